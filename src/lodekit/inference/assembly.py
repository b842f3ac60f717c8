"""From observations to the problem that the engines work on: scales, one grid of times, checks of what is possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.observations import DataError, Observations, Series
from lodekit.inference.problem import Problem, Rows, Scaling, mode_groups
from lodekit.prior.latents import Latent

__all__ = ["make_problem", "merge"]

Array = NDArray[np.float64]


def merge(observations: Observations) -> list[Series]:
    """Return one series for each observable, ordered by time."""
    found = []
    for name in observations.observables:
        parts = [series for series in observations.series if series.observable == name and len(series.times)]
        if parts:
            joined = [np.concatenate([getattr(p, field) for p in parts]) for field in ("times", "values", "std")]
            order = np.lexsort((joined[1], joined[0]))
            found.append(Series(name, *(part[order] for part in joined)))
    return found


def make_problem(
    observations: Observations,
    compile_observables: Callable[[Sequence[str], Scaling, Array], Rows],
    latents: tuple[Latent, ...],
    noise: str,
) -> Problem:
    """Return data and prior in scaled units."""
    merged = merge(observations)
    times = np.unique(np.concatenate([series.times for series in merged]))
    span = float(np.ptp(times)) if len(times) > 1 else 1.0
    with np.errstate(all="ignore"):
        scales = np.array([_scale(series) for series in merged])
    if not np.isfinite(scales).all() or (scales < 1e-100).any() or (scales > 1e100).any() or not 1e-100 < span < 1e100:
        raise DataError("expected times and values of a size that floats can square; change their units")
    rows = compile_observables([series.observable for series in merged], Scaling(float(times[0]), span), scales)
    problem = Problem(
        rows,
        latents,
        mode_groups(rows.compiled),
        times,
        [np.searchsorted(times, series.times) for series in merged],
        [series.values for series in merged],
        [series.std for series in merged],
        list(range(len(merged))) if noise == "channel" else [0] * len(merged),
    )
    _check_exact_values(problem, merged)
    _check_forced_values(problem, merged)
    return problem


def _scale(series: Series) -> float:
    """Return the unit of an observable: its spread, or its size where it does not change."""
    spread, size = float(np.std(series.values)), float(np.max(np.abs(series.values)))
    return spread if spread > 1e-12 * size and spread > 0 else size or 1.0


def _check_exact_values(problem: Problem, merged: Sequence[Series]) -> None:
    """Raise where exact values contradict each other."""
    for series, index in zip(merged, problem.index, strict=True):
        exact = series.std == 0
        seen: dict[int, float] = {}
        for i, value in zip(index[exact], series.values[exact], strict=True):
            if seen.setdefault(int(i), float(value)) != value:
                raise DataError(
                    f"{series.observable} has two different exact values at t = {problem.times[i]}: {seen[int(i)]} and "
                    f"{value}; give them a noise_std above zero"
                )


def _check_forced_values(problem: Problem, merged: Sequence[Series]) -> None:
    """Raise where the equations determine an observable completely and the data say otherwise."""
    compiled = problem.rows.compiled
    theta = np.full(len(compiled.parameters), 0.7310585786)
    values = compiled.evaluate(theta)
    for o, series in enumerate(merged):
        if values.free[o].any() or any(column[o].any() for column in values.columns) or compiled.signals[o].count:
            continue
        mean, count = float(series.values.mean()), len(series.values)
        spread = float(series.values.std()) / np.sqrt(count)
        exact = bool((series.values[series.std == 0] != 0).any())
        if exact or (mean != 0 and (count < 3 or abs(mean) > 5.0 * spread)):
            raise DataError(
                f"the equations force {series.observable} to be zero, but the data are not (mean {mean:.4g}); check "
                "the equations, or leave this observable out"
            )
