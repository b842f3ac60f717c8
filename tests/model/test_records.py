"""Fits to several records: answers, figures, files and updates, each by record; a shared part and an own part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.errors import DataError, LodekitError
from lodekit.report import make_report
from lodekit.results.summary import summary_dict
from lodekit.workflow.pipeline import forecast_table

Array = NDArray[np.float64]
TAU, GAIN, NOISE = 3.0, 2.0, 0.03
SYSTEM = lk.System(
    "tau*y' + y = K*u", parameters={name: lk.Parameter(positive=True) for name in ("tau", "K")}, channels=["y", "u"]
)
#: Start, length, initial value and angular frequency of the input of each record.
RUNS = {"0": (0.0, 20.0, 0.0, 0.6), "1": (300.0, 15.0, 3.0, 0.9), "2": (5.0, 10.0, -2.0, 0.4)}


def solve(times: Array, name: str) -> Array:
    """Return y and u, shape (n, 2)."""
    start, _, state, rate = RUNS[name]
    s = times - start
    size = GAIN / (1.0 + (rate * TAU) ** 2)
    y = size * (np.sin(rate * s) - rate * TAU * np.cos(rate * s)) + (state + size * rate * TAU) * np.exp(-s / TAU)
    return np.stack([y, np.sin(rate * s)], axis=1)


def measure(name: str, count: int = 30) -> tuple[Array, Array]:
    start, length, *_ = RUNS[name]
    times = np.linspace(start, start + length, count)
    generator = np.random.default_rng(int(name))
    return times, solve(times, name) + NOISE * generator.standard_normal((count, 2))


@pytest.fixture(scope="module")
def three() -> lk.LODEGP:
    return lk.LODEGP(SYSTEM, random_state=0).fit([measure(name) for name in RUNS])


def test_parameters_come_from_all_records(three: lk.LODEGP) -> None:
    assert three.records_ == ("0", "1", "2")
    assert three.converged_
    assert three.engine_ == "dense: 3 records; the largest has 60 measurements; exact, and fast up to 200"
    alone = lk.LODEGP(SYSTEM, random_state=0).fit(*measure("2"))
    for name, truth in (("tau", TAU), ("K", GAIN)):
        found = three.parameters_[name]
        assert found.value == pytest.approx(truth, abs=4.0 * found.std_error)
        assert found.std_error < 0.7 * alone.parameters_[name].std_error
    assert three.noise_ == pytest.approx({"y": NOISE, "u": NOISE}, rel=0.3)
    parts = three.fit_.record_fits
    assert sum(part.log_evidence for part in parts) == pytest.approx(three.log_evidence_)
    assert all(part.estimates is three.parameters_ for part in parts)
    # Errors count what was learned against all measurements, not against those of one record.
    assert {part.residual_dof_fraction for part in parts} == {three.fit_.residual_dof_fraction}


def test_every_record_has_curves_of_its_own(three: lk.LODEGP) -> None:
    for name in RUNS:
        times = np.linspace(RUNS[name][0], RUNS[name][0] + RUNS[name][1], 40)
        mean, std = three.predict(times, return_std=True, record=name)
        assert np.sqrt(np.mean((mean - solve(times, name)) ** 2)) < NOISE
        assert (np.abs(mean - solve(times, name)) < 5.0 * std).all()
        fixed = three.predict(times, return_std=True, parameters="fixed", record=int(name))[1]
        # What was learned is uncertain, and that counts in every record.
        assert (std > fixed).all()
        assert np.abs(three.residual(times, record=name, relative=True)).max() < 1e-10
        covariance = three.predict(times[:3], "y", return_cov=True, record=name)[1]
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std[:3, 0], rtol=1e-6)


def test_questions_about_curves_need_a_record(three: lk.LODEGP) -> None:
    times, values = measure("1")
    for ask in (
        lambda: three.predict([0.0]),
        lambda: three.sample([0.0]),
        lambda: three.residual([0.0]),
        lambda: three.score(times, values),
    ):
        with pytest.raises(DataError, match="this fit has 3 records, 0, 1, 2; specify one of them: record='0'"):
            ask()
    with pytest.raises(DataError, match="expected one of the records 0, 1, 2, got 'b'"):
        three.predict([0.0], record="b")
    with pytest.raises(LodekitError, match="one record"):
        three.fit_.posterior.mean(three.fit_.observables(["y"]), np.zeros(1))


def test_samples_of_different_records_share_parameters(three: lk.LODEGP) -> None:
    drawn = {}
    for name, (start, length, *_) in RUNS.items():
        times = np.linspace(start, start + length, 5)
        drawn[name] = three.sample(times, 40, 3, return_parameters=True, record=name)
        mean, std = three.predict(times, return_std=True, record=name)
        apart = (drawn[name][0].mean(axis=0) - mean) / std
        # The mean of 40 draws has a deviation of 0.16; one in a million lies beyond five of these.
        assert np.abs(apart).max() < 0.8
    np.testing.assert_allclose(drawn["0"][1]["tau"], drawn["2"][1]["tau"])
    assert np.std(drawn["0"][1]["tau"]) == pytest.approx(three.parameters_["tau"].std_error, rel=0.5)


def test_scores_prefer_the_record_that_was_measured(three: lk.LODEGP) -> None:
    times, values = measure("1")
    assert three.score(times, values, record="1") > three.score(times, values, record="0") + 3.0


def test_the_certificate_holds_for_every_record(three: lk.LODEGP) -> None:
    every, one = three.certificate(samples=2), three.certificate(samples=2, record="1")
    assert every.is_strict
    assert (len(every.mean.times), len(one.mean.times)) == (603, 201)
    assert every.residual >= one.residual


def test_a_curve_that_is_spoilt_in_one_record_is_noticed(three: lk.LODEGP, monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = three.fit_.for_record("2").posterior
    mean = type(posterior).mean

    def spoilt(self: Any, observables: Any, times: Array) -> Array:
        return mean(self, observables, times) + 1e-3 * (self is posterior) * np.sin(times)[:, None]

    monkeypatch.setattr(type(posterior), "mean", spoilt)
    assert not three.certificate(samples=0).is_strict
    assert three.certificate(samples=0, record="1").is_strict


def test_a_summary_counts_records_and_a_warning_names_them() -> None:
    times, values = measure("0")
    loud = values + 0.5 * np.random.default_rng(9).standard_normal(values.shape) * [1.0, 0.0]
    gp = lk.LODEGP(SYSTEM, random_state=0).fit([(times, values), (times, loud)], noise_std=NOISE)
    assert "120 (2 records)" in gp.summary()
    # Where one record is much noisier than stated, short lengthscales follow it, and miss the other one.
    assert any("y of records 0 and 1 are correlated" in text for text in gp.warnings_)
    described = summary_dict(gp.fit_)
    assert described["records"]["1"]["observations"] == 60
    assert described["records"]["0"]["window"] == [0.0, 20.0]
    assert [check.record for check in gp.fit_.diagnosis.checks] == ["0", "0", "1", "1"]
    assert gp.fit_.diagnosis.explained_variance["y"] == min(
        each["explained"]["y"] for each in described["records"].values()
    )


def test_figures_have_panels_for_every_record(three: lk.LODEGP) -> None:
    figure = three.plot(samples=1, random_state=0)
    assert len(figure.axes) == 6
    assert [axis.get_title() for axis in figure.axes[:3]] == ["record 0", "record 1", "record 2"]
    assert len(three.plot(record="1", observable="y").axes) == 1
    # Beside each other: each with the times of its record.
    assert figure.axes[1].get_xlim()[0] > 250.0 > figure.axes[0].get_xlim()[1]
    assert len(three.plot_residual().axes) == 3
    many = lk.LODEGP(SYSTEM, random_state=0).fit([measure(name, 12) for name in "0121"])
    assert [axis.get_ylabel() for axis in many.plot().axes] == ["y", "u"] * 4
    assert len(three.plot_parameters(others="fixed", points=5).axes) == 2


def test_a_report_has_sections_for_every_record(three: lk.LODEGP) -> None:
    page = make_report(three, title="Three runs", source="a.csv, b.csv, c.csv")
    for name in RUNS:
        for heading in ("Channels, record", "Residuals, record", "Do the curves satisfy the equations? Record"):
            assert f"{heading} {name}" in page
    assert "fitted to 180 measurements from a.csv, b.csv, c.csv, 3 records, the longest 20 long" in page


def test_records_are_saved_and_loaded(three: lk.LODEGP, tmp_path: Path) -> None:
    three.save(tmp_path / "three.lodekit")
    again = lk.LODEGP.load(tmp_path / "three.lodekit")
    assert again.records_ == three.records_
    assert again.log_evidence_ == pytest.approx(three.log_evidence_, abs=1e-6)
    assert [check.record for check in again.fit_.diagnosis.checks] == ["0", "0", "1", "1", "2", "2"]
    for name, (start, *_) in RUNS.items():
        times = start + np.arange(4.0)
        np.testing.assert_allclose(again.predict(times, record=name), three.predict(times, record=name), atol=1e-8)


def test_updates_add_to_a_record_or_make_a_new_one(tmp_path: Path) -> None:
    times, values = measure("0", 20)
    gp = lk.LODEGP(SYSTEM, random_state=0).fit(times[:12], values[:12])
    before = gp.parameters_["tau"].std_error
    gp.update(*measure("1", 20), record="second")
    assert gp.records_ == ("0", "second")
    assert gp.parameters_["tau"].std_error < before
    with pytest.raises(DataError, match="specify one of them"):
        gp.update(times[12:], values[12:])
    kept = gp.parameters_["tau"].value
    starts = [part.prior.units.start for part in gp.fit_.record_fits]
    gp.update(times[12:], values[12:], record="0", relearn=False)
    assert [part.measurements.size for part in gp.fit_.record_fits] == [40, 40]
    assert gp.parameters_["tau"].value == kept
    # An earlier measurement moves no mode: every record keeps its time zero, also in a file.
    gp.update([295.0], {"u": [0.0]}, record="second", relearn=False)
    gp.save(tmp_path / "a.lodekit")
    for model in (gp, lk.LODEGP.load(tmp_path / "a.lodekit")):
        assert [part.prior.units.start for part in model.fit_.record_fits] == starts
    with pytest.raises(DataError, match="one record, got several"):
        gp.update([(times, values), (times, values)], record="0")


def test_records_may_measure_different_channels() -> None:
    t, values = measure("0")
    s, others = measure("1")
    gp = lk.LODEGP(SYSTEM, random_state=0).fit([(t, values), (s, {"y": others[:, 0]})])
    mean, std = gp.predict(s, "u", return_std=True, record=1)
    # Not measured there, but the equations and the other record tell it.
    assert np.mean(np.abs(mean - solve(s, "1")[:, 1]) < 2.5 * std) > 0.9
    assert gp.fit_.for_record(1).measurements.names == ("y",)
    assert gp.parameters_["tau"].value == pytest.approx(TAU, rel=0.1)
    columns = forecast_table(gp, 1)
    assert {len(cells) for cells in columns.values()} == {len(t) + len(s)}
    # The first row of a record is predicted from none.
    assert (columns["std(u)"][0], columns["u"][0]) == (None, None)
    assert [cell is None for cell in columns["std(u)"][1:]] == [name == "1" for name in columns["record"][1:]]


def test_one_record_tells_what_another_leaves_open() -> None:
    oscillator = lk.System("m*x'' + c*x' + k*x = u", parameters={name: lk.Parameter(positive=True) for name in "mck"})
    t = np.linspace(0.0, 12.0, 40)
    generator = np.random.default_rng(0)
    runs = []
    for rate in (1.0, 2.2):
        wave = np.exp(1j * rate * t) / (4.0 - 1.5 * rate**2 + 0.6j * rate)
        runs.append((t, np.stack([wave.real, np.cos(rate * t)], axis=1) + 0.003 * generator.standard_normal((40, 2))))
    # Of one sine x'' = -x: m and k can be traded for each other. Two sines of different frequencies tell them apart.
    alone = lk.LODEGP(oscillator, random_state=0).fit(*runs[0])
    both = lk.LODEGP(oscillator, random_state=0).fit(runs)
    for name, truth in (("m", 1.5), ("c", 0.6), ("k", 4.0)):
        found = both.parameters_[name]
        assert found.identified
        assert found.value == pytest.approx(truth, abs=4.0 * found.std_error)
        assert found.std_error < 0.1 * truth
        assert alone.parameters_[name].identified == (name == "c")


def test_many_measurements_take_waves_in_every_record_that_has_them() -> None:
    runs = [measure("0", 150), measure("1", 30)]
    gp = lk.LODEGP(SYSTEM, random_state=0).fit(runs)
    assert [part.engine_choice.name for part in gp.fit_.record_fits] == ["spectral", "dense"]
    assert gp.parameters_["tau"].value == pytest.approx(TAU, rel=0.03)


def test_sums_are_records_too() -> None:
    parts = []
    for name in ("0", "1"):
        times, values = measure(name, 400)
        data = lk.Observations().add(times, "y", values[:, 0]).add(times, "u", values[:, 1])
        parts.append(lk.Statistics.of(times[0], times[-1], data))
    gp = lk.LODEGP(SYSTEM, random_state=0).fit(parts)
    plain = lk.LODEGP(SYSTEM, random_state=0).fit([measure(name, 400) for name in ("0", "1")])
    assert gp.parameters_["tau"].value == pytest.approx(plain.parameters_["tau"].value, rel=1e-4)
    assert gp.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-3)
    assert len(gp.plot().axes) == 4


def test_parts_of_the_first_record_of_a_list_are_not_replaced_by_the_second_record() -> None:
    system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    times = np.r_[np.arange(0.0, 10.0), np.arange(50.0, 60.0)]
    gp = lk.LODEGP(system, random_state=0)
    gp.fit([(times, np.exp(-0.2 * (times % 50))), (times[:10], np.exp(-0.2 * times[:10]))], split_gaps=True)
    assert gp.records_ == ("0, part 1", "0, part 2", "1")
    assert gp.fit_.setup.engine.size == 30
