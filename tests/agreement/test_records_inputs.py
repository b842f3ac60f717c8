"""Several records with known inputs of their own: evidences add, and a record cut in two is two records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.fitting.setup import build_setup

Array = NDArray[np.float64]
TRUTH = {"tau": 5.0, "K": 2.0}
NOISE = 0.02


def make_system() -> lk.System:
    return lk.System("tau*y' + y = K*u", parameters={name: lk.Parameter(positive=True) for name in TRUTH})


def make_record(count: int, begin: float, seed: int, noise: float | Array = NOISE) -> tuple[Array, dict[str, Array]]:
    """Return a run with an input of its own that steps at random, by exact steps, from an initial state of its own."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.standard_normal(count // 8 + 1), 8)[:count]
    y, keep = np.full(count, generator.standard_normal()), np.exp(-1.0 / TRUTH["tau"])
    for k in range(count - 1):
        y[k + 1] = keep * y[k] + (1.0 - keep) * TRUTH["K"] * u[k]
    return begin + np.arange(float(count)), {"y": y + noise * generator.standard_normal(count), "u": u}


RECORDS = [make_record(80, 0.0, 1), make_record(60, 100.0, 2)]


@pytest.fixture(scope="module")
def fitted() -> lk.LODEGP:
    return lk.LODEGP(make_system(), inputs={"u": "hold"}, random_state=0).fit(RECORDS)


def test_parameters_are_found_from_both_records(fitted: lk.LODEGP) -> None:
    for name, value in TRUTH.items():
        found = fitted.parameters_[name]
        assert abs(found.value - value) < 4.0 * found.std_error
        assert found.std_error < 0.01 * value


def test_evidences_of_single_records_add(fitted: lk.LODEGP) -> None:
    """Each record alone, at the same values, with a prior of its own that has the same units."""
    fit = fitted.fit_
    scales = dict(zip(fit.measurements.names, fit.prior.units.scales.tolist(), strict=True))
    total = 0.0
    for times, values in RECORDS:
        own = lk.Observations().add(times, "y", values["y"]).add(times, "u", values["u"])
        units = replace(fit.prior.units, start=float(times[0]))
        setup = build_setup(
            fit.system, fit.settings, Measurements.from_observations(own), time_units=units, scales=scales
        )
        total += setup.engine.value(fit.hyperparameters)
    assert fit.setup.engine.value(fit.hyperparameters) == pytest.approx(total, rel=1e-9)


def test_inputs_of_the_other_record_are_noticed(fitted: lk.LODEGP) -> None:
    """Were both records driven by the input of the first, the second one would be far off."""
    (_, first), (times, second) = RECORDS
    follows = fitted.predict(times, observable="y", record=1)
    assert np.std(follows - second["y"]) < 2.0 * NOISE
    assert fitted.predict(times, observable="u", record=1) == pytest.approx(second["u"])
    wrong = lk.LODEGP(make_system(), inputs={"u": "hold"}, random_state=0)
    wrong.fit([RECORDS[0], (times, {"y": second["y"], "u": first["u"][:60]})])
    assert wrong.fit_.log_evidence < fitted.fit_.log_evidence - 50.0


def test_what_if_runs_start_where_a_record_ended(fitted: lk.LODEGP) -> None:
    """An exact step from the last value of the record, by hand."""
    times, _ = RECORDS[1]
    last = fitted.predict(times[-1:], observable="y", record=1)[0]
    tau, K = (fitted.parameters_[name].value for name in ("tau", "K"))
    keep = np.exp(-7.0 / tau)
    then = fitted.simulate([times[-1] + 7.0], {"u": ([times[-1]], [1.5])}, "end", "y", record=1)
    assert then[0] == pytest.approx(keep * last + (1.0 - keep) * K * 1.5, abs=1e-6)
    with pytest.raises(lk.LodekitError, match="specify one of them"):
        fitted.simulate([times[-1] + 7.0], {"u": 1.5}, "end", "y")
    rest = fitted.simulate([0.0, 7.0], {"u": 1.5}, observable="y")
    assert rest == pytest.approx([0.0, (1.0 - keep) * K * 1.5], abs=1e-6)


def test_another_record_is_predicted_from_its_input(fitted: lk.LODEGP) -> None:
    assert fitted.validate(*make_record(50, 7.0, 3))["y"].fit_percent > 97.0
    several = fitted.validate(RECORDS)
    for number, record in enumerate(RECORDS):
        alone, own = fitted.validate(*record)["y"], several[f"y of record {number}"]
        assert (own.fit_percent, own.holds) == (alone.fit_percent, alone.holds)


def test_a_saved_fit_has_the_inputs_of_all_records(fitted: lk.LODEGP, tmp_path: Path) -> None:
    fitted.save(tmp_path / "plant.lodekit")
    again = lk.LODEGP.load(tmp_path / "plant.lodekit")
    for number, (times, _) in enumerate(RECORDS):
        # Between samples, and beyond them.
        asked = np.concatenate([times + 0.5, times[-1:] + 9.0])
        assert again.predict(asked, record=number) == pytest.approx(fitted.predict(asked, record=number), abs=1e-9)
    assert again.fit_.log_evidence == pytest.approx(fitted.fit_.log_evidence, rel=1e-9)


def test_update_adds_to_the_inputs_of_one_record(fitted: lk.LODEGP) -> None:
    times, values = make_record(70, 100.0, 2)
    gp = lk.LODEGP.from_fit(fitted.fit_)
    later = {name: column[60:] for name, column in values.items()}
    gp.update(times[60:], later, record=1, relearn=False)
    assert gp.predict(times[60:], observable="u", record=1) == pytest.approx(later["u"])
    assert gp.fit_.for_record(0).measurements.size == fitted.fit_.for_record(0).measurements.size


def test_a_record_cut_in_two_is_two_records_with_the_state_carried() -> None:
    """Exact where the state at the cut is known: a value there without noise ends one record and begins the other."""
    std = np.where(np.arange(81) == 40, 0.0, NOISE)
    times, values = make_record(81, 0.0, 4, std)
    known = {name: lk.Parameter(fixed=value) for name, value in TRUTH.items()}
    system = lk.System("tau*y' + y = K*u", parameters=known)
    model = lk.LODEGP(system, inputs={"u": "hold"}, mode_deviation=1.0, random_state=0)
    whole = clone(model).fit(times, values, {"y": std})
    cut = [slice(0, 41), slice(40, 81)]
    pieces = [(times[part], {name: column[part] for name, column in values.items()}, {"y": std[part]}) for part in cut]
    both = clone(model).fit(pieces)
    for number, part in enumerate(cut):
        asked = times[part] + 0.25
        asked = asked[asked < times[part][-1]]
        mean, deviation = whole.predict(asked, return_std=True, observable="y")
        own, spread = both.predict(asked, return_std=True, observable="y", record=number)
        # Values without noise keep a trace of it in computations, which backwards in time grows exp(8)-fold.
        assert own == pytest.approx(mean, abs=2e-5)
        assert spread == pytest.approx(deviation, abs=2e-5)


def test_figures_and_words_know_both_records(fitted: lk.LODEGP) -> None:
    pytest.importorskip("matplotlib")
    assert len(fitted.plot_residuals().axes) == 6
    assert len(fitted.plot_residuals(record=1).axes) == 3
    # One row of magnitude and phase: the plant is the same in both.
    assert len(fitted.plot_bode().axes) == 2
    assert set(fitted.diagnose().to_dict()["residuals"]) == {"y of record 0", "y of record 1"}
    assert "u: known input, held constant between its 140 samples" in fitted.summary()
