"""Data and hyperparameters on every catalog system, for tests of the engines."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.observations import Observations, TimeSeries
from lodekit.data.records import Measurements
from lodekit.fitting.parameter_vector import ParameterLayout, build_transforms
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.fitting.starts.candidates import VarianceTargets, match_variances
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.engine import Evidence
from lodekit.prior.observables import ObservableCompiler
from lodekit.prior.prior import Hyperparameters, Prior, build_prior
from lodekit.results.fit import fit_at_point
from tests.witness import Witness

Array = NDArray[np.float64]

#: Every catalog system; the paper's equal-length bipendulum, parametric lengths and a repeated mode beside them.
EXAMPLES: dict[str, lk.catalog.Example] = {example.name: example for example in lk.catalog.examples()}
EXAMPLES["equal bipendulum"] = lk.catalog.bipendulum(1, 1)
EXAMPLES["parametric bipendulum"] = lk.catalog.bipendulum(1, 2, parametric=True)
#: Systems of one's own: repeated real and complex modes, with and without parameters, and a growing one.
EXTRA = {
    "double decay": ("x'' + 2*x' + x = 0", {}),
    "double oscillation": ("x^(4) + 2*x'' + x = 0; y' = u + x", {}),
    "growth": ("x' = 0.3*x; y' = -y + x + u", {}),
    "parametric double root": ("x'' + 2*a*x' + a^2*x = 0", {"a": Fraction(1)}),
    "fast forcing": ("x' + a*x = sin(300*t) + 1; y' = x - y + u", {"a": Fraction(2)}),
    "cubic with parameters": ("x''' + a*x'' + b*x' + x = 0", {"a": Fraction(2), "b": Fraction(2)}),
}


def solution_table(example: lk.catalog.Example, times: Array) -> Array:
    """Return the exact solution, shape (n, channels)."""
    return example.solution_at(times)


@cache
def system_of(name: str) -> tuple[lk.System, tuple[float, ...]]:
    if name in EXTRA:
        text, values = EXTRA[name]
        return lk.System(text, parameters=list(values)), tuple(float(v) for v in values.values())
    example = EXAMPLES[name]
    return example.system, tuple(float(value) for value in example.values.values())


def make_case(
    name: str,
    *,
    count: int = 8,
    seed: int = 0,
    missing: bool = False,
    latent: str = "se",
    noise: str = "shared",
    lengthscale: float = 0.6,
    level: float = 0.2,
) -> tuple[ObservableCompiler, DenseData, ParameterLayout, Hyperparameters]:
    """Return random data of moderate size on a system, and hyperparameters near the truth."""
    system, values = system_of(name)
    generator = np.random.default_rng(seed)
    times = np.sort(generator.uniform(0.5, 4.0, count))
    if name in EXAMPLES:
        table = solution_table(EXAMPLES[name], times)
    else:
        table = generator.standard_normal((count, len(system.channels)))
    table = table + 0.05 * table.std(axis=0) * generator.standard_normal(table.shape)
    if missing:
        table[generator.random(table.shape) < 0.25] = np.nan
    observations = Observations()
    for channel, column in zip(system.channels, table.T, strict=True):
        observations = observations.add(times, channel, column)
    measurements = Measurements.from_observations(observations)
    prior = prior_of(system, measurements, latent=latent, noise=noise)
    data = DenseData.from_series(prior, measurements.series)
    names = prior.observables.compiled.parameters
    fixed, transforms = build_transforms(names, system.parameters)
    layout = ParameterLayout(names, fixed, transforms, prior.n_processes, len(prior.groups), prior.noise.n_levels)
    theta = np.array(values) * (1.0 + 0.1 * generator.standard_normal(len(values)))
    engine = DenseEngine(data)
    hyper = match_variances(
        engine, layout, VarianceTargets.evaluate_at(engine, theta), lengthscale, level * prior.noise.level_scales
    )
    assert hyper is not None
    return ObservableCompiler(system), data, layout, hyper


def keep_model(
    example: lk.catalog.Example, times: Array, noise: float, *, level: float, seed: int = 0, **options: Any
) -> lk.LODEGP:
    """Return a model of noisy data at the true parameters, as a fit would leave it, but without a search.

    Parameters
    ----------
    example : Example
    times : array
    noise : float
        That the data have, as a share of each channel.
    level : float
        That the model takes the noise for, as a share, too.
    seed : int
    **options
        As for `LODEGP`.
    """
    table = example.solution_at(times)
    table = table + noise * table.std(axis=0) * np.random.default_rng(seed).standard_normal(table.shape)
    observations = Observations()
    for channel, column in zip(example.system.channels, table.T, strict=True):
        observations = observations.add(times, channel, column)
    setup = build_setup(
        example.system, FitSettings(random_state=0, **options), Measurements.from_observations(observations)
    )
    theta = np.array([float(example.values[name]) for name in setup.layout.names])
    sizes, levels = VarianceTargets.evaluate_at(setup.engine, theta), level * setup.prior.noise.level_scales
    hyper = match_variances(setup.engine, setup.layout, sizes, 0.3, levels)
    assert hyper is not None
    return lk.LODEGP.from_fit(fit_at_point(setup, setup.layout.pack(hyper)))


def prior_of(
    system: lk.System, measurements: Measurements, *, latent: str = "se", noise: str = "shared", channels: bool = False
) -> Prior:
    """Return the prior of measurements of a system."""
    latents = FitSettings(latent=latent).parse_kernels(system)
    return build_prior(measurements, ObservableCompiler(system), latents, noise, channel_prior=channels)


def series_of(data: DenseData) -> list[TimeSeries]:
    """Return the data as measurements whose noise is learned."""
    names = data.prior.noise.observables
    parts = zip(names, data.index, values_of(data), strict=True)
    return [TimeSeries(name, data.times[i], v, np.full(len(v), np.nan)) for name, i, v in parts]


def values_of(data: DenseData) -> list[Array]:
    """Return the measurements of each observable in the user's units."""
    parts = np.split(data.values, data.offsets[1:-1])
    return [part * scale for part, scale in zip(parts, data.prior.units.scales, strict=True)]


def witness_of(name: str, data: DenseData) -> Witness:
    """Return what tells the evidence of such a case with many digits."""
    return Witness(system_of(name)[0], data.prior, Measurements(series_of(data)))


def gradient_vector(evidence: Evidence) -> Array:
    return np.concatenate(evidence.gradient.arrays)


def shifted(hyper: Hyperparameters, index: int, step: float) -> Hyperparameters:
    """Return hyperparameters with one entry of the gradient's vector moved: parameters plainly, others in logarithm."""
    moved = [part.copy() for part in hyper.arrays]
    for number, part in enumerate(moved):
        if index < len(part):
            part[index] = part[index] + step if number == 0 else part[index] * np.exp(step)
            break
        index -= len(part)
    return Hyperparameters(*moved)
