"""Problems and hyperparameters on every catalog system, for tests of the engines."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations
from lodekit.inference.assembly import make_prior, make_problem
from lodekit.inference.engines import DenseEngine
from lodekit.inference.problem import Hyperparameters, Problem
from lodekit.learning.search import _matched, _Sizes
from lodekit.learning.transforms import Layout, parameter_transforms

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
) -> tuple[lk.LODEGP, Problem, Layout, Hyperparameters]:
    """Return a problem with random data of moderate size, and hyperparameters near the truth."""
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
    data = Observations()
    for channel, column in zip(system.channels, table.T, strict=True):
        data = data.add(times, channel, column)
    model = lk.LODEGP(system, latent=latent, noise=noise)
    measurements = Measurements.of(data)
    prior = make_prior(measurements, model._reader.rows, model._latents(), noise)
    problem = make_problem(prior, measurements.series)
    names = problem.rows.compiled.parameters
    fixed, transforms = parameter_transforms(names, system.parameters)
    noises = 1 if noise == "shared" else len(problem.values)
    layout = Layout(names, fixed, transforms, len(problem.latents), len(problem.groups), noises)
    theta = np.array(values) * (1.0 + 0.1 * generator.standard_normal(len(values)))
    hyper = _matched(
        DenseEngine(problem),
        layout,
        _Sizes.at(DenseEngine(problem), theta),
        lengthscale,
        level * problem.prior.noise_units[:noises],
    )
    assert hyper is not None
    return model, problem, layout, hyper


def gradient_vector(evidence: Any) -> Array:
    return np.concatenate(
        [
            evidence.theta,
            evidence.log_lengthscales,
            evidence.log_deviations,
            evidence.log_mode_deviations,
            evidence.log_noise,
        ]
    )


def shifted(hyper: Hyperparameters, index: int, step: float) -> Hyperparameters:
    """Return hyperparameters with one entry of the gradient's vector moved: parameters plainly, others in logarithm."""
    parts = [hyper.theta, hyper.lengthscales, hyper.deviations, hyper.mode_deviations, hyper.noise]
    moved = [part.copy() for part in parts]
    for number, part in enumerate(moved):
        if index < len(part):
            part[index] = part[index] + step if number == 0 else part[index] * np.exp(step)
            break
        index -= len(part)
    return Hyperparameters(*moved)
