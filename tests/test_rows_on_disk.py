"""A record that is larger than memory, with a known input: it is fitted, saved, loaded, and goes on as a stream."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data import sources
from lodekit.diagnostics.residual_tests import ljung_box_test
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.inference.kalman import out_of_core
from lodekit.report import make_report
from lodekit.results.fit import fit_at_point

Array = NDArray[np.float64]
COUNT, PIECE = 220, 80
#: Rows with a value.
MEASURED = 217


def simulate(count: int) -> dict[str, Array]:
    """Return a heated body with a white disturbance; its last row has no measurement."""
    generator = np.random.default_rng(3)
    u = np.repeat(generator.uniform(0.0, 1.0, count // 11 + 1), 11)[:count]
    x, decay = np.zeros(count), np.exp(-0.2)
    for k in range(count - 1):
        x[k + 1] = decay * x[k] + (1 - decay) * 2.0 * u[k] + 0.05 * generator.standard_normal()
    x += 0.05 * generator.standard_normal(count)
    x[[17, 90, count - 1]] = np.nan
    return {"t": np.arange(float(count)), "x": x, "u": u}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("disk") / "log.parquet"
    pl.DataFrame(simulate(COUNT)).write_parquet(found, row_group_size=70)
    return found


def make(path: Path, most: int) -> lk.LODEGP:
    """Return a model at a point near the truth, on rows in memory or on disk."""
    parameters = {"a": lk.Parameter(positive=True), "K": lk.Parameter(fixed=0.42)}
    plant = lk.System("x' = -a*x + K*u + w", parameters=parameters)
    gp = lk.LODEGP(plant, inputs={"u": "hold"}, disturbances={"w": "white"}, random_state=0)
    arguments = FitSettings(**{name: value for name, value in gp.get_params().items() if name != "system"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "MAX_ROWS_IN_MEMORY", most)
        source = sources.load_data(path, channels=["x", "u"], noise_std={"x": 0.05})
    setup = build_setup(plant, arguments, source.measurements, parameter_magnitudes=np.array([0.2, 0.4]))
    hyper = setup.layout.unpack(np.zeros(setup.layout.size))
    parts = {"theta": [0.21, 0.42], "disturbance_amplitudes": [0.05]}
    x = setup.layout.pack(replace(hyper, **{name: np.array(own) for name, own in parts.items()}))
    gp.fit_ = replace(fit_at_point(setup, x), notes=source.notes, disturbance_gains={"w": 30.0})
    return gp


@pytest.fixture(scope="module")
def on_disk(path: Path) -> Iterator[lk.LODEGP]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_of_core, "ROWS_IN_MEMORY", PIECE)
        yield make(path, 100)


@pytest.fixture(scope="module")
def in_memory(path: Path) -> lk.LODEGP:
    return make(path, 1000)


def test_a_time_that_stands_twice_has_two_rows_in_memory_as_on_disk(tmp_path: Path) -> None:
    """What stands for infinity in open modes follows the number of rows: so does the evidence."""
    table = simulate(120)
    table["t"][[50, 51]] = table["t"][49]
    pl.DataFrame(table).write_parquet(tmp_path / "twice.parquet")
    both = [make(tmp_path / "twice.parquet", most) for most in (100, 1000)]
    assert [gp.fit_.is_on_disk for gp in both] == [True, False]
    assert both[0].fit_.posterior.value == pytest.approx(both[1].fit_.posterior.value, rel=1e-10)


def test_an_input_that_moved_in_a_gap_is_told_of_rows_on_disk_and_of_a_model_that_was_loaded(tmp_path: Path) -> None:
    """As in memory; the rows about the gap are not kept when the model is saved."""
    table = simulate(COUNT)
    kept = (table["t"] < 52) | (table["t"] >= 62)
    pl.DataFrame({name: own[kept] for name, own in table.items()}).write_parquet(tmp_path / "gap.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_of_core, "ROWS_IN_MEMORY", PIECE)
        on_disk, in_memory = (make(tmp_path / "gap.parquet", most) for most in (100, 1000))
        on_disk.save(tmp_path / "model.lodekit")
        loaded = lk.LODEGP.load(tmp_path / "model.lodekit")
    (expected,) = [text for text in in_memory.warnings_ if "during a gap of 11 (between t = 51 and 62)" in text]
    assert expected in on_disk.warnings_
    assert expected in loaded.warnings_


def test_a_driven_record_on_disk_says_what_memory_says(on_disk: lk.LODEGP, in_memory: lk.LODEGP) -> None:
    assert on_disk.fit_.is_on_disk
    assert not in_memory.fit_.is_on_disk
    assert on_disk.fit_.posterior.value == pytest.approx(in_memory.fit_.posterior.value, rel=1e-10)
    # What open modes cost is told by errors of predictions: typical ones of the last rows here, of all of them there.
    assert on_disk.log_evidence_ == pytest.approx(in_memory.log_evidence_, abs=0.05)
    np.testing.assert_allclose(on_disk.fit_.observed_information, in_memory.fit_.observed_information, rtol=1e-6)
    times = np.array([0.0, 49.5, 120.0, 218.0, 230.0])
    (mean, std), (expected, widened) = (gp.predict(times, "x", return_std=True) for gp in (on_disk, in_memory))
    np.testing.assert_allclose(mean, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(std[:-1], widened[:-1], rtol=1e-6, atol=1e-9)
    # Beyond the data, model error is added where rows are in memory.
    assert std[-1] < widened[-1] + 1e-6
    notes = on_disk.summary()
    assert "held constant between its 220 samples" in notes
    assert "sums" not in notes


def test_residuals_of_the_last_rows_are_looked_at(on_disk: lk.LODEGP, in_memory: lk.LODEGP) -> None:
    """The last piece, whose innovations are those of the whole record."""
    (check,) = on_disk.fit_.diagnosis.checks
    assert (check.count, check.looked) == (MEASURED, MEASURED - 2 * PIECE)
    assert check.whiteness is not None
    whole = in_memory.fit_.fitted_record.innovations
    assert whole is not None
    last = [part[-check.looked :] for part in whole["x"][:2]]
    expected = ljung_box_test(*last, innovations=True)
    assert expected is not None
    assert check.whiteness.lags == pytest.approx(expected.lags, abs=1e-8)
    assert "independent noise" in on_disk.diagnose().sentences[0]


@pytest.fixture(scope="module")
def loaded(on_disk: lk.LODEGP, tmp_path_factory: pytest.TempPathFactory) -> lk.LODEGP:
    place = tmp_path_factory.mktemp("saved")
    on_disk.save(place / "model.lodekit")
    # Saved once more, it says the same.
    lk.LODEGP.load(place / "model.lodekit").save(place / "again.lodekit")
    return lk.LODEGP.load(place / "again.lodekit")


def test_a_stream_goes_on_from_the_end_of_rows_on_disk(
    on_disk: lk.LODEGP, in_memory: lk.LODEGP, loaded: lk.LODEGP
) -> None:
    streams = [gp.stream() for gp in (in_memory, on_disk, loaded)]
    assert [stream.time for stream in streams] == [218.0] * 3
    for t, x, u in ((219.0, 0.5, 0.3), (220.5, 0.7, 0.9), (221.0, np.nan, 0.1), (230.0, 0.4, 0.1)):
        found = [stream.push(t, {"x": x}, inputs={"u": u}) for stream in streams]
        for other in found[1:]:
            assert other.keys() == found[0].keys()
            for name, own in other.items():
                assert own[:4] == pytest.approx(found[0][name][:4], rel=1e-9)
    for each in streams[1:]:
        np.testing.assert_allclose(each.state, streams[0].state, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(each.covariance, streams[0].covariance, rtol=1e-8, atol=1e-14)
        assert each.threshold == pytest.approx(streams[0].threshold, rel=0.05)


def test_a_saved_model_predicts_from_its_end_on(on_disk: lk.LODEGP, loaded: lk.LODEGP) -> None:
    times = np.array([160.0, 180.0, 219.0, 240.0])
    for one, other in zip(*(gp.predict(times, return_std=True) for gp in (on_disk, loaded)), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-10)
    before, after = (gp.summary().splitlines() for gp in (on_disk, loaded))
    assert [line for line in after if "coef" not in line][:4] == [line for line in before if "coef" not in line][:4]
    assert loaded.parameters_["a"].std_error == pytest.approx(on_disk.parameters_["a"].std_error)
    assert loaded.diagnose() == on_disk.diagnose()
    assert loaded.certificate().is_strict
    assert loaded.sample(times, 2, 0, "x", parameters="fixed").shape == (2, 4)


def test_what_a_saved_model_has_left_out_is_told(loaded: lk.LODEGP) -> None:
    with pytest.raises(lk.LodekitError, match=r"saved without its rows before t = 81"):
        loaded.predict([1.0])
    with pytest.raises(lk.LodekitError, match="without most of its rows"):
        loaded.log_evidence({"a": 0.1})
    with pytest.raises(lk.LodekitError, match=r"parameters='fixed'"):
        loaded.sample([219.0], 2)
    with pytest.raises(lk.LodekitError, match=r"or give new rows to gp.stream"):
        loaded.update([300.0], {"x": [1.0]})


def test_new_samples_of_an_input_are_scored_as_in_memory(on_disk: lk.LODEGP, in_memory: lk.LODEGP) -> None:
    t, new = np.array([222.0, 223.0, 225.0]), {"x": [0.5, 0.7, 0.6], "u": [0.3, 0.4, 0.2]}
    assert on_disk.score(t, new) == pytest.approx(in_memory.score(t, new), abs=1e-6)
    assert on_disk.score(t, new) != pytest.approx(on_disk.score(t, {"x": new["x"]}), abs=1e-3)


def test_a_loaded_model_travels_after_it_was_asked(loaded: lk.LODEGP) -> None:
    """As joblib sends it to other processes, on the same machine."""
    times = np.array([180.0, 219.0])
    expected = loaded.predict(times, "x")
    np.testing.assert_allclose(pickle.loads(pickle.dumps(loaded)).predict(times, "x"), expected, rtol=1e-9)  # noqa: S301


def test_a_report_tells_residuals_of_the_last_rows(on_disk: lk.LODEGP) -> None:
    page = make_report(on_disk)
    assert f"the numbers come from the last {MEASURED - 2 * PIECE}." in page
    assert "The residuals are consistent with independent noise." in page
    assert "no residuals to look at" not in page
