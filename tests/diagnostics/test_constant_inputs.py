"""An input that never changes is named where a fit fails or leaves parameters open, and only there."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.diagnostics.diagnosis import Diagnosis
from lodekit.diagnostics.identifiability import IdentifiabilityResult
from lodekit.diagnostics.messages import constant_input_warnings

_T = np.arange(0.0, 40.0)


def _said(u: np.ndarray) -> list[str]:
    observations = lk.Observations().add(_T, "y", np.cos(_T)).add(_T, "u", u)
    return constant_input_warnings(Measurements.from_observations(observations).with_known_inputs({"u": "hold"}))


def _fit(y: np.ndarray, level: float) -> lk.LODEGP:
    parameters = {"tau": lk.Parameter(fixed=5.0), "K": lk.Parameter(positive=True)}
    system = lk.System("tau*y' + y = K*u", parameters=parameters)
    noisy = y + 0.05 * np.random.default_rng(0).standard_normal(len(_T))
    return lk.LODEGP(system, inputs={"u": "hold"}, random_state=0, restarts=1).fit(
        _T, {"y": noisy, "u": np.full(len(_T), level)}
    )


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_constant_is_told_with_its_value(level: float) -> None:
    (text,) = _said(np.full(len(_T), level))
    assert text.startswith(f"input u never changes (it is {level:g} throughout), so the data do not show its effect")


def test_one_step_is_enough() -> None:
    assert _said(np.where(_T < 20.0, 0.0, 1.0)) == []


def test_a_fit_that_leaves_the_gain_open_says_so_first() -> None:
    gp = _fit(3.0 * np.exp(-_T / 5.0), 0.0)
    assert gp.warnings_[0].startswith("input u never changes (it is 0 throughout)")


def test_a_step_just_before_the_record_is_a_record_like_others() -> None:
    gp = _fit(2.0 - 2.0 * np.exp(-_T / 5.0), 1.0)
    assert gp.parameters_["K"].value == pytest.approx(2.0, rel=0.05)
    assert not any("never changes" in text for text in gp.warnings_)


@pytest.mark.parametrize(("reason", "expected"), [("structure", False), ("size", False), ("flat", True)])
def test_what_the_equations_leave_open_is_not_for_want_of_data(reason: str, expected: bool) -> None:
    assert Diagnosis(identifiability={"K": IdentifiabilityResult(False, "", reason)}).needs_more_data is expected


def test_a_fit_to_constant_data_confirms_nothing() -> None:
    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0, restarts=1).fit(
        _T[:20], {"y": np.full(20, 5.0), "u": np.where(_T[:20] < 10.0, 0.0, 1.0)}
    )
    lines = gp.summary().splitlines()
    assert any(line.split()[-2:] == ["Converged:", "-"] for line in lines)
    assert next(line for line in lines if line.startswith("residuals of y")).split()[-1] == "-"
    assert next(line for line in lines if line.startswith("K ")).split()[1] == "-"
    assert "<td>–</td>" in str(gp.summary()._repr_html_())
    assert "nan" not in gp.summary()
