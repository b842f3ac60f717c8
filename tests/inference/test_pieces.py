"""Records that are filtered piece by piece from disk say what they say in memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data import sources
from lodekit.data.observations import Observations, TimeSeries
from lodekit.data.records import Measurements
from lodekit.data.row_store import RowStore
from lodekit.data.tables.cells import NumberFormat
from lodekit.data.tables.reader import TableData
from lodekit.errors import DataError, LodekitError
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.inference.kalman import out_of_core
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.kalman.evidence import FilterSolution, solve_filter
from lodekit.inference.kalman.out_of_core import OutOfCoreEngine
from lodekit.prior.observables import ObservableCompiler
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import gradient_vector

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Example:
    """A system, its free functions and disturbances, and how its rows come."""

    equations: str
    parameters: dict[str, float]
    disturbances: dict[str, str]
    regular: bool
    noise: float = 0.1


EXAMPLES = {
    "free function, irregular": Example("x' = -a*x + u", {"a": 0.7}, {}, regular=False),
    "free function, regular": Example("x' = -a*x + u", {"a": 0.7}, {}, regular=True),
    "white disturbance": Example("x' = -a*x + v + w; v' = -v + u", {"a": 0.7}, {"w": "white"}, regular=True),
    "rough disturbance": Example("x' = -a*x + w; y' = x - b*y", {"a": 0.7, "b": 0.4}, {"w": "matern-3/2"}, False),
    "modes and a known function": Example("x'' + a*x' + x = sin(t); y' = -y + x + u", {"a": 0.2}, {}, regular=False),
    "growing mode, little noise": Example("x' = 0.3*x; y' = -y + x + u", {}, {}, regular=True, noise=1e-5),
}


def make(example: Example, count: int = 50) -> tuple[FitSetup, Hyperparameters, list[TableData]]:
    """Return all that is settled before a fit, hyperparameters, and the rows in blocks as tables have them."""
    generator = np.random.default_rng(5)
    times = 0.25 * np.arange(count) if example.regular else np.sort(generator.uniform(0.0, 0.25 * count, count))
    # One time stands twice, just where a piece of sixteen rows ends, the first row left out.
    times[17] = times[16] if not example.regular else times[17]
    system = lk.System(example.equations, parameters=list(example.parameters))
    names = [name for name in system.channels if name not in example.disturbances]
    values = np.cumsum(generator.standard_normal((len(names), count)), axis=1)
    values[generator.random(values.shape) < 0.15] = np.nan
    # A whole piece in which something was not measured, and rows without anything.
    values[0, 7:14] = np.nan
    values[:, [0, 25]] = np.nan
    std = np.where(np.arange(count) % 5, np.nan, example.noise)
    observations = Observations()
    for number, (name, row) in enumerate(zip(names, values, strict=True)):
        observations = observations.add(times, name, row, None if number else std)
    arguments = FitSettings(latent="matern-5/2", disturbances=example.disturbances or None, engine="markov")
    setup = build_setup(system, arguments, Measurements.from_observations(observations))
    layout, layers = setup.layout, setup.prior
    theta = np.array([example.parameters[name] for name in layers.observables.compiled.parameters])
    disturbed = layers.observables.disturbances
    more = (0, 0) if disturbed is None else (len(disturbed.coloured_index), len(disturbed.names))
    hyper = Hyperparameters(
        theta,
        np.full(layers.n_processes, 0.1),
        np.full(layers.n_processes, 0.8),
        np.full(len(layers.groups), 0.9),
        np.full(layers.noise.n_levels, example.noise),
        np.full(more[0], 0.05),
        np.full(more[1], 1.3),
    )
    assert layout.pack(hyper).size == layout.size
    blocks = [
        TableData(
            np.asarray(times[part], dtype=float),
            dict(zip(names, values[:, part], strict=True)),
            {names[0]: std[part]},
            NumberFormat(),
        )
        for part in (slice(0, 25), slice(25, 25), slice(25, None))
    ]
    return setup, hyper, blocks


@pytest.mark.parametrize("name", EXAMPLES)
def test_pieces_say_what_the_whole_record_says(name: str) -> None:
    """Evidence and gradient to 1e-10; means and deviations at, between, before and after the data."""
    setup, hyper, blocks = make(EXAMPLES[name])
    prior, names = setup.prior, setup.prior.noise.observables
    whole = KalmanEngine(KalmanData.from_series(prior, setup.measurements.series))
    expected = whole.evaluate(hyper)
    assert np.isfinite(expected.value)
    first, last = setup.measurements.window
    early = first if EXAMPLES[name].disturbances else first - 0.3
    times = np.concatenate([np.linspace(early, last + 0.4, 23), setup.measurements.series[0].times[3:30]])
    observables = ObservableCompiler(setup.system, {}, prior.disturbances).compile_unscaled(
        [names[0], f"{names[0]} + 2*{names[1]}"], prior.units
    )
    curve = whole.posterior(hyper)
    gradient = gradient_vector(expected)
    spool = RowStore.write(names, blocks, noise_columns=names[:1])
    for rows in (7, 16):
        engine = OutOfCoreEngine(prior, spool, rows)
        assert len(engine.batch_starts) > 2
        found = engine.evaluate(hyper)
        assert engine.size == whole.size
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        np.testing.assert_allclose(gradient_vector(found), gradient, rtol=1e-10, atol=1e-10 * np.abs(gradient).max())
    posterior = engine.posterior(hyper)
    assert posterior.value == engine.value(hyper) == found.value
    mean, variance = curve.mean(observables, times), curve.variance(observables, times)
    np.testing.assert_allclose(posterior.mean(observables, times), mean, atol=1e-9 * np.abs(mean).max())
    np.testing.assert_allclose(posterior.variance(observables, times), variance, atol=1e-9 * variance.max())
    some = times[(times >= engine.batch_starts[1]) & (times < engine.batch_starts[2])]
    joint = curve.covariance(observables, some)
    np.testing.assert_allclose(posterior.covariance(observables, some), joint, atol=1e-9 * joint.max())


def test_half_a_way_back_is_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    setup, hyper, blocks = make(EXAMPLES["white disturbance"])
    names = setup.prior.noise.observables
    engine = OutOfCoreEngine(setup.prior, RowStore.write(names, blocks, noise_columns=names[:1]), 16)

    def stop(*args: Any, keep_blocks: bool) -> FilterSolution | None:
        """Nothing is finite from where the last piece has told something."""
        return solve_filter(*args, keep_blocks=keep_blocks) if args[-1].score is None else None

    monkeypatch.setattr(out_of_core, "solve_filter", stop)
    assert np.isfinite(engine.value(hyper))
    assert engine.evaluate(hyper).value == -np.inf
    with pytest.raises(LodekitError, match="not finite"):
        engine.posterior(hyper)


@pytest.mark.parametrize("name", ["rough disturbance", "modes and a known function"])
def test_draws_have_the_moments_of_the_posterior(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of one function in several pieces, whitened: means and covariances of 2000 draws within five errors."""
    monkeypatch.setattr(out_of_core, "_DRAWS_PER_PASS", 1500)
    setup, hyper, blocks = make(EXAMPLES[name], 36)
    prior, names, count = setup.prior, setup.prior.noise.observables, 2000
    observables = ObservableCompiler(setup.system, {}, prior.disturbances).compile_unscaled(["y"], prior.units)
    posterior = OutOfCoreEngine(prior, RowStore.write(names, blocks, noise_columns=names[:1]), 10).posterior(hyper)
    curve = KalmanEngine(KalmanData.from_series(prior, setup.measurements.series)).posterior(hyper)
    times = np.array([7.4, 2.1, 2.6, 0.9, 4.2])
    drawn = posterior.sample(observables, times, count, np.random.default_rng(1))[:, :, 0]
    root = np.linalg.cholesky(curve.covariance(observables, times)[:, 0, :, 0])
    white = np.linalg.solve(root, (drawn - curve.mean(observables, times)[:, 0]).T)
    assert np.abs(white.mean(axis=1)).max() < 5.0 / np.sqrt(count)
    assert np.abs(np.cov(white) - np.eye(len(times))).max() < 5.0 * np.sqrt(2.0 / count)


def test_memory_does_not_grow_with_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six times as many rows: what an evaluation needs at its peak grows by less than half of these rows."""
    plain = RowStore.read_series
    peaks, sizes, read = [], (1000, 6000), []

    def watched(own: RowStore, first: int, last: int) -> list[TimeSeries]:
        read.append(last - first)
        return plain(own, first, last)

    monkeypatch.setattr(RowStore, "read_series", watched)
    for count in sizes:
        setup, hyper, blocks = make(EXAMPLES["free function, regular"], count)
        names = setup.prior.noise.observables
        engine = OutOfCoreEngine(setup.prior, RowStore.write(names, blocks, noise_columns=names[:1]), 500)
        del blocks
        # What is made once, and stays.
        assert engine.value(hyper) < 0.0
        tracemalloc.start()
        assert np.isfinite(engine.value(hyper))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(read) == 500
    width = 8 * (1 + len(names) + 1)
    assert peaks[1] - peaks[0] < 0.5 * width * (sizes[1] - sizes[0])


def write_file(folder: Path, count: int) -> Path:
    """Write a driven system with 0.05 of noise."""
    generator = np.random.default_rng(0)
    times = 0.1 * np.arange(count)
    u = np.sin(0.9 * times) + np.sin(0.31 * times)
    x = np.zeros(count)
    for k in range(count - 1):
        x[k + 1] = x[k] * np.exp(-0.05) + 0.5 * (u[k] + u[k + 1]) * (1 - np.exp(-0.05)) / 0.5
    noise = 0.05 * generator.standard_normal((2, count))
    table = pl.DataFrame(
        {"t": times, "x": x + noise[0], "u": np.where(np.arange(count) % 7 == 3, np.nan, u + noise[1])}
    )
    path = folder / "log.parquet"
    table.write_parquet(path, row_group_size=40)
    return path


def driven() -> lk.System:
    return lk.System("x' = -a*x + u", parameters={"a": lk.Parameter(positive=True)})


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[lk.LODEGP, lk.LODEGP]]:
    """The same file, in memory and on disk."""
    path = write_file(tmp_path_factory.mktemp("pieces"), 150)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_of_core, "ROWS_IN_MEMORY", 40)
        for most in (1000, 100):
            patch.setattr(sources, "MAX_ROWS_IN_MEMORY", most)
            gp = lk.LODEGP(driven(), latent="matern-5/2", random_state=0, restarts=1)
            found.append(gp.fit(path, noise_std=0.05))
        yield found[0], found[1]


def test_a_file_too_large_for_memory_is_fitted_as_in_memory(fits: tuple[lk.LODEGP, lk.LODEGP]) -> None:
    small, large = fits
    assert large.fit_.measurements.has_only_statistics
    assert not small.fit_.measurements.has_only_statistics
    assert large.engine_.startswith("markov")
    assert large.log_evidence_ == pytest.approx(small.log_evidence_, abs=1e-3)
    one, other = (gp.parameters_["a"] for gp in fits)
    assert other.value == pytest.approx(one.value, abs=0.02 * one.std_error)
    assert other.std_error == pytest.approx(one.std_error, rel=1e-2)
    times = np.linspace(-0.5, 16.0, 9)
    for first, second in zip(*(gp.predict(times, return_std=True) for gp in fits), strict=True):
        np.testing.assert_allclose(second, first, rtol=1e-2, atol=1e-3)
    assert "Log evidence" in str(large.summary())


def test_what_rows_on_disk_do_not_allow_is_refused_in_words(fits: tuple[lk.LODEGP, lk.LODEGP]) -> None:
    large = fits[1]
    with pytest.raises(LodekitError, match="on disk"):
        large.predict(np.array([0.0, 14.0]), return_cov=True)
    with pytest.raises(LodekitError, match=r"cannot be added to; fit again with all files, or .*stream"):
        large.update([20.0, 21.0], {"x": [0.0, 0.1]})


def test_the_temporary_file_goes_with_its_owner() -> None:
    _, _, blocks = make(EXAMPLES["free function, regular"])
    spool = RowStore.write(("x",), blocks)
    folder = Path(spool.folder)
    assert folder.is_dir()
    copy = deepcopy(spool)
    assert copy.time_of_row(3) == spool.time_of_row(3)
    del spool
    gc.collect()
    assert not folder.exists()
    with pytest.raises(DataError, match="no longer exists"):
        copy.time_of_row(3)


@pytest.mark.parametrize("length", [1, 7, 100])
def test_rows_of_one_time_are_as_few_as_hold_all_values(length: int) -> None:
    """Wherever blocks are cut, no value is lost, and each keeps its noise."""
    generator = np.random.default_rng(2)
    times = np.sort(generator.integers(0, 30, 100)).astype(float)
    x, y = (np.where(generator.random(100) < 0.5, np.nan, np.arange(100.0)) for _ in range(2))
    blocks = [
        TableData(times[part], {"x": x[part], "y": y[part]}, {"y": 1.0 + y[part]}, NumberFormat())
        for part in (slice(first, first + length) for first in range(0, 100, length))
    ]
    spool = RowStore.write(("x", "y"), blocks, noise_columns=("y",))
    for item, values in zip(spool.read_series(0, 100), (x, y), strict=True):
        there = ~np.isnan(values)
        np.testing.assert_array_equal(item.times, times[there])
        np.testing.assert_array_equal(item.values, values[there])
        np.testing.assert_array_equal(item.std, 1.0 + values[there] if item.observable == "y" else np.nan)
    most = [max(int((~np.isnan(own[times == t])).sum()) for own in (x, y)) for t in np.unique(times)]
    assert spool.n_rows == sum(most) < 100


def test_rows_that_are_not_in_order_are_refused() -> None:
    _, _, blocks = make(EXAMPLES["free function, regular"])
    with pytest.raises(DataError, match="sort the rows by time"):
        RowStore.write(("x",), blocks[::-1])
    nothing = TableData(np.arange(3.0), {"x": np.full(3, np.nan)}, {}, NumberFormat())
    with pytest.raises(DataError, match="every cell is missing"):
        RowStore.write(("x",), [nothing])


def test_text_files_with_columns_of_noise_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on disk is what memory would hold."""
    path = tmp_path / "log.csv"
    path.write_text("t,x,u,s\n" + "".join(f"{0.5 * k},{k % 3},{'' if k % 4 else k},{0.1 + k}\n" for k in range(30)))
    found = []
    for most in (100, 10):
        monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", most)
        source = sources.load_data(path, channels=["x", "u"], columns={"std(x)": "s"}, noise_std={"u": 0.3})
        found.append(source.measurements)
    assert found[1].stored_rows is not None
    for item, again in zip(found[0].series, found[1].stored_rows.store.read_series(0, 30), strict=True):
        for name in ("times", "values", "std"):
            np.testing.assert_array_equal(getattr(again, name), getattr(item, name))
