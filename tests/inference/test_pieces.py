"""Records that are filtered piece by piece from disk say what they say in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations
from lodekit.data.spool import Spool
from lodekit.data.tables.cells import Numerals
from lodekit.data.tables.table import Records
from lodekit.errors import DataError, LodekitError
from lodekit.inference.markov.engine import MarkovEngine
from lodekit.inference.markov.layout import MarkovData
from lodekit.inference.markov.pieces import PiecesEngine
from lodekit.preparing import prepare
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import ObservableReader
from lodekit.settings import Arguments
from lodekit.setup import Setup
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


def make(example: Example, count: int = 60) -> tuple[Setup, Hyperparameters, list[Records]]:
    """Return all that is settled before a fit, hyperparameters, and the rows in blocks as tables have them."""
    generator = np.random.default_rng(5)
    times = 0.25 * np.arange(count) if example.regular else np.sort(generator.uniform(0.0, 0.25 * count, count))
    # One time stands twice, just where a piece of twenty rows ends.
    times[20] = times[19] if not example.regular else times[20]
    system = lk.System(example.equations, parameters=list(example.parameters))
    names = [name for name in system.channels if name not in example.disturbances]
    values = np.cumsum(generator.standard_normal((len(names), count)), axis=1)
    values[generator.random(values.shape) < 0.15] = np.nan
    # A whole piece in which something was not measured, and rows without anything.
    values[0, 7:14] = np.nan
    values[:, [0, 33]] = np.nan
    std = np.where(np.arange(count) % 5, np.nan, example.noise)
    observations = Observations()
    for number, (name, row) in enumerate(zip(names, values, strict=True)):
        observations = observations.add(times, name, row, None if number else std)
    arguments = Arguments(latent="matern-5/2", disturbances=example.disturbances or None, engine="markov")
    setup = prepare(system, arguments, Measurements.of(observations))
    layout, layers = setup.layout, setup.prior
    theta = np.array([example.parameters[name] for name in layers.observables.compiled.parameters])
    disturbed = layers.observables.disturbed
    more = (0, 0) if disturbed is None else (len(disturbed.coloured), len(disturbed.names))
    hyper = Hyperparameters(
        theta,
        np.full(layers.processes, 0.1),
        np.full(layers.processes, 0.8),
        np.full(len(layers.groups), 0.9),
        np.full(layers.noise.count, example.noise),
        np.full(more[0], 0.05),
        np.full(more[1], 1.3),
    )
    assert layout.pack(hyper).size == layout.size
    blocks = [
        Records(
            times[part], dict(zip(names, values[:, part], strict=True)), {names[0]: std[part]}, Numerals()
        )
        for part in (slice(0, 25), slice(25, 25), slice(25, None))
    ]
    return setup, hyper, blocks


@pytest.mark.parametrize("name", EXAMPLES)
def test_pieces_say_what_the_whole_record_says(name: str) -> None:
    """Evidence and gradient to 1e-10; means and deviations at, between, before and after the data."""
    setup, hyper, blocks = make(EXAMPLES[name])
    prior, names = setup.prior, setup.prior.noise.observables
    whole = MarkovEngine(MarkovData.of(prior, setup.measurements.series))
    expected = whole.evaluate(hyper)
    assert np.isfinite(expected.value)
    first, last = setup.measurements.window
    early = first if EXAMPLES[name].disturbances else first - 0.3
    times = np.concatenate([np.linspace(early, last + 0.4, 23), setup.measurements.series[0].times[3:30]])
    observables = ObservableReader(setup.system, {}, prior.disturbances).compile_plain([names[0], f"{names[0]} + 2*{names[1]}"], prior.units)
    curve = whole.posterior(hyper)
    for rows in (20, 7):
        engine = PiecesEngine(prior, Spool.write(names, blocks, noisy=names[:1]), rows)
        assert len(engine.starts) > 2
        found = engine.evaluate(hyper)
        assert engine.size == whole.size
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        assert engine.value(hyper) == found.value
        gradient = gradient_vector(expected)
        np.testing.assert_allclose(gradient_vector(found), gradient, rtol=1e-10, atol=1e-10 * np.abs(gradient).max())
        posterior = engine.posterior(hyper)
        mean = curve.mean(observables, times)
        np.testing.assert_allclose(posterior.mean(observables, times), mean, atol=1e-9 * np.abs(mean).max())
        variance = curve.variance(observables, times)
        np.testing.assert_allclose(posterior.variance(observables, times), variance, atol=1e-9 * variance.max())
