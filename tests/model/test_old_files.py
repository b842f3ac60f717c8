"""Models that earlier versions have saved still load, and say what they said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lodekit as lk

SAVED = Path(__file__).parents[1] / "saved"
#: The log evidence and the mean of all channels at t = 1 that the version which wrote the files printed.
EXPECTED = {
    "dense": (102.7919433408, [0.7941063917, 0.4293922448, 1.2367957789]),
    "spectral": (213.9222592581, [0.6035567224, 0.7756622829, 0.1721055605, -0.3051101003, 0.1140119167]),
    "channels": (78.9229843950, [27.1092907694, 18.4955772909, 5.1972237201]),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_files_of_format_two_load(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tolerance: the search for waves of the channel prior starts afresh, and is good to 1e-8."""
    if name == "channels":
        # These files hold no results on parameters, which are computed again: here that takes half a minute.
        monkeypatch.setattr("lodekit.diagnostics.diagnosis.assess_identifiability", lambda *_: {})
        monkeypatch.setattr("lodekit.diagnostics.diagnosis.find_alternative_optima", lambda *_: ())
    gp = lk.LODEGP.load(SAVED / f"format-2-{name}.lodekit")
    evidence, mean = EXPECTED[name]
    assert gp.log_evidence_ == pytest.approx(evidence, rel=1e-8)
    np.testing.assert_allclose(gp.predict([1.0])[0], mean, rtol=1e-6)
    assert gp.converged_
    # Format 2 held the negative of what is maximised; levels of noise had no prior then.
    more = gp.fit_.setup.objective.log_prior(gp.fit_.optimum.x)[0]
    assert gp.fit_.optimum.value == pytest.approx(evidence + more, rel=1e-8)


def test_files_of_one_record_load() -> None:
    gp = lk.LODEGP.load(SAVED / "format-4-dense.lodekit")
    assert gp.log_evidence_ == pytest.approx(2.626659821, rel=1e-8)
    assert gp.parameters_["a"].value == pytest.approx(0.456438418824)
    np.testing.assert_allclose(gp.predict([2.5], record=0)[0], [1.2738442556, 0.7062410034], rtol=1e-6)
    assert gp.records_ == ("0",)
    assert [check.record for check in gp.fit_.diagnosis.checks] == ["", ""]
