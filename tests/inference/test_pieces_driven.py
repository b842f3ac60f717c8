"""Known inputs of records on disk: pieces hand on the response, and say what the whole record says in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.data.row_store import OutOfCoreRows, extract_inputs
from lodekit.data.statistics import Statistics
from lodekit.data.tables.cells import NumberFormat
from lodekit.data.tables.reader import TableData
from lodekit.errors import DataError
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.kalman.out_of_core import OutOfCoreEngine
from lodekit.prior.observables import ObservableCompiler
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import gradient_vector

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Example:
    """A driven system."""

    equations: str
    parameters: Mapping[str, float]
    inputs: Mapping[str, str]
    disturbances: Mapping[str, str] = field(default_factory=dict)
    regular: bool = True


EXAMPLES = {
    "held, white disturbance": Example(
        "x' = -a*x + K*u + w; y' = x - b*y", {"a": 0.7, "b": 0.4, "K": 2.0}, {"u": "hold"}, {"w": "white"}
    ),
    "held and linear, irregular, free function": Example(
        "x' = -a*x + K*u; y' = -y + x + 2*v + z", {"a": 0.7, "K": 2.0}, {"u": "hold", "v": "linear"}, regular=False
    ),
    "dead time that is learned": Example(
        "x' = -a*x + K*delay(u, T) + w; y' = x - y", {"a": 0.7, "K": 2.0, "T": 0.83}, {"u": "hold"}, {"w": "matern-3/2"}
    ),
    "modes alone": Example("x'' + a*x' + x = K*u; y' = -y + x", {"a": 0.2, "K": 1.5}, {"u": "hold"}, regular=False),
}


#: Of all hyperparameters but those of modes, which are left open.
SIZES = {
    "lengthscales": 0.1,
    "amplitudes": 0.8,
    "noise_std": 0.3,
    "disturbance_lengthscales": 0.05,
    "disturbance_amplitudes": 1.3,
}


def rows(example: Example, count: int) -> tuple[Array, dict[str, Array]]:
    """Return times and columns: inputs have values in rows without measurements, and miss some."""
    generator = np.random.default_rng(5)
    times = 0.25 * np.arange(count) if example.regular else np.sort(generator.uniform(0.0, 0.25 * count, count))
    columns = {name: np.cumsum(generator.standard_normal(count)) for name in "xy"}
    for name, kind in example.inputs.items():
        own = np.repeat(generator.standard_normal(count // 5 + 1), 5)[:count]
        columns[name] = own if kind == "hold" else np.where(np.arange(count) % 20 < 6, 0.3, generator.random(count))
        columns[name][[3, 4, 22]] = np.nan
    columns["y"][generator.random(count) < 0.3] = np.nan
    for name in "xy":
        # A record begins and ends with its measurements, and inputs were logged while nothing was measured.
        columns[name][[0, 1, 2, 9, 10, 24, count - 1]] = np.nan
    return np.asarray(times, dtype=float), columns


def both(example: Example, count: int = 50, *, tall: bool = False) -> tuple[Measurements, Measurements]:
    """Return the same measurements, in memory and on disk, where tall tables have y in rows of its own."""
    times, columns = rows(example, count)
    observations = Observations()
    for name, values in columns.items():
        observations = observations.add(times, name, values)
    kept = Measurements.from_observations(observations)
    sums = Statistics.of(times[0], times[-1], kept.series, 8)
    if tall:
        is_y = np.arange(2 * count) % 2 == 1
        times = np.repeat(times, 2)
        columns = {name: np.where(is_y == (name == "y"), np.repeat(own, 2), np.nan) for name, own in columns.items()}
    blocks = [
        TableData(times[part], {name: own[part] for name, own in columns.items()}, {}, NumberFormat())
        for part in (slice(0, 23), slice(23, None))
    ]
    summed = Measurements(
        sufficient_statistics=sums, stored_rows=OutOfCoreRows(tuple(columns), {}, (), lambda: iter(blocks))
    )
    return kept.with_known_inputs(example.inputs), summed.with_known_inputs(example.inputs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_driven_pieces_say_what_the_whole_record_says(name: str) -> None:
    """Evidence and gradient to 1e-10, means and deviations to 1e-9, however long pieces are."""
    example = EXAMPLES[name]
    kept, summed = both(example)
    system = lk.System(example.equations, parameters=list(example.parameters))
    arguments = FitSettings(
        latent="matern-5/2", inputs=example.inputs, disturbances=example.disturbances or None, engine="markov"
    )
    setup, own = build_setup(system, arguments, kept), build_setup(system, arguments, summed)
    prior = setup.prior
    hyper = setup.layout.unpack(np.zeros(setup.layout.size))
    theta = np.array([example.parameters[name] for name in prior.observables.compiled.parameters])
    parts = {name: np.full(getattr(hyper, name).shape, size) for name, size in SIZES.items()}
    hyper = Hyperparameters(theta, mode_amplitudes=hyper.mode_amplitudes, **parts)
    # Modes that are left open follow the parameters, and the times of the record.
    hyper, same = (each.layout.unpack(each.layout.pack(hyper)) for each in (setup, own))
    np.testing.assert_allclose(same.mode_amplitudes, hyper.mode_amplitudes, rtol=1e-12)
    assert summed.window == kept.window
    whole = KalmanEngine(KalmanData.from_series(prior, kept.series))
    expected = whole.evaluate(hyper)
    gradient = gradient_vector(expected)
    assert np.abs(gradient[: len(theta)]).min() > 0.1
    assert summed.stored_rows is not None
    for most in (7, 16):
        engine = OutOfCoreEngine(prior, summed.stored_rows.store, most)
        found = engine.evaluate(hyper)
        assert len(engine.batch_starts) > 2
        assert engine.size == whole.size
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        np.testing.assert_allclose(gradient_vector(found), gradient, rtol=1e-10, atol=1e-10 * np.abs(gradient).max())
    first, last = kept.window
    times = np.concatenate([np.linspace(first, last + 2.0, 8), engine.batch_starts])
    observables = ObservableCompiler(system, kept.inputs, prior.disturbances).compile_unscaled(["x", "y"], prior.units)
    posterior, curve = engine.posterior(hyper), whole.posterior(hyper)
    for question in ("mean", "variance"):
        known = getattr(curve, question)(observables, times)
        # One time by one, the starts of pieces after the last time: states are found by going through those before.
        asked = np.concatenate([getattr(posterior, question)(observables, times[[k]]) for k in range(len(times))])
        np.testing.assert_allclose(asked, known, atol=1e-9 * np.abs(known).max())


@pytest.mark.parametrize("name", ["held, white disturbance", "modes alone"])
def test_channels_in_rows_of_their_own_are_one_row_in_memory_as_on_disk(name: str) -> None:
    """What stands for infinity in open modes follows the number of rows: so does the evidence."""
    example = EXAMPLES[name]
    arguments = FitSettings(inputs=example.inputs, disturbances=example.disturbances or None, engine="markov")
    system = lk.System(example.equations, parameters=list(example.parameters))
    found = [build_setup(system, arguments, own).layout for own in both(example, tall=True)]
    expected, other = (layout.unpack(np.zeros(layout.size)).mode_amplitudes for layout in found)
    assert len(expected)
    np.testing.assert_allclose(other, expected, rtol=1e-12)


def test_samples_of_inputs_are_those_of_memory_wherever_something_changes() -> None:
    kept, summed = both(EXAMPLES["held and linear, irregular, free function"], 500)
    times = np.linspace(-1.0, 130.0, 4000)
    for name, signal in kept.inputs.items():
        own = summed.inputs[name]
        np.testing.assert_allclose(own.at(times), signal.at(times), rtol=1e-14)
        assert own.missing == signal.missing == 3
        assert len(own.times) < len(signal.times)
    for one, other in zip(kept.input_statistics, summed.input_statistics, strict=True):
        assert (other.observable, other.count) == (one.observable, one.count)
        assert (other.mean, other.std, other.scale) == pytest.approx((one.mean, one.std, one.scale))


def test_inputs_that_contradict_themselves_or_are_missing_are_told_in_words() -> None:
    def spooled(u: list[float]) -> OutOfCoreRows:
        values = {"x": np.arange(4.0), "u": np.array(u)}
        block = TableData(np.array([0.0, 1.0, 1.0, 2.0]), values, {}, NumberFormat())
        return OutOfCoreRows(("x", "u"), {}, (), lambda: iter([block]))

    with pytest.raises(DataError, match="u has two different values at t = 1"):
        extract_inputs(spooled([0.0, 1.0, 2.0, 3.0]), {"u": "hold"})
    with pytest.raises(DataError, match="samples of the input u, every cell is missing"):
        extract_inputs(spooled([np.nan] * 4), {"u": "hold"})
    assert extract_inputs(spooled([0.0, 1.0, 1.0, 3.0]), {"u": "linear"})[1]["u"].times.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(DataError, match=r"that responds to the inputs.*, got only "):
        extract_inputs(spooled([0.0] * 4), {"u": "hold", "x": "hold"})
