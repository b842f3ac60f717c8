"""From measurements to what the engines work on: the prior in scaled units, checks of what is possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements, Summary, check_exact_values
from lodekit.data.observations import Series
from lodekit.errors import DataError
from lodekit.inference.engine import Engine
from lodekit.inference.engines import Choice, DenseEngine, make_spectral
from lodekit.inference.problem import Prior, Problem, Rows, Scaling, mode_groups
from lodekit.prior.latents import Latent

__all__ = ["make_engine", "make_prior", "make_problem"]

Array = NDArray[np.float64]


def make_prior(
    measurements: Measurements,
    compile_observables: Callable[[Sequence[str], Scaling, Array], Rows],
    latents: tuple[Latent, ...],
    noise: str,
    *,
    channels: Sequence[str] | None = None,
    scaling: Scaling | None = None,
    scales: Mapping[str, float] | None = None,
) -> Prior:
    """Return the prior of the measured observables, in scaled units.

    Parameters
    ----------
    channels : sequence of str, optional
        All channels, where the prior stands on these.
    scaling, scales : optional
        Units to keep, from an earlier prior; those of the data otherwise.
    """
    summaries = measurements.summaries
    start, stop = measurements.window
    scaling = scaling or Scaling(start, stop - start or 1.0)
    units = np.array([(scales or {}).get(item.observable, item.scale) for item in summaries])
    if (
        not np.isfinite(units).all()
        or (units < 1e-100).any()
        or (units > 1e100).any()
        or not 1e-100 < scaling.span < 1e100
    ):
        raise DataError("expected times and values of a size that floats can square; change their units")
    rows = compile_observables(measurements.names, scaling, units)
    on_channels = None
    if channels is not None and latents:
        on_channels = compile_observables(channels, scaling, np.ones(len(channels)))
    noise_group = tuple(range(len(summaries))) if noise == "channel" else (0,) * len(summaries)
    prior = Prior(rows, latents, mode_groups(rows.compiled), noise_group, on_channels)
    _check_forced_values(prior, summaries)
    return prior


def make_problem(prior: Prior, series: Sequence[Series]) -> Problem:
    """Return measurements in memory with their prior, for the dense engine."""
    check_exact_values(series)
    times = np.unique(np.concatenate([item.times for item in series]))
    return Problem(
        prior,
        times,
        [np.searchsorted(times, item.times) for item in series],
        [item.values for item in series],
        [item.std for item in series],
    )


def make_engine(
    choice: Choice, prior: Prior, measurements: Measurements, *, tolerance: float, device: str | None = None
) -> Engine:
    """Return the engine that was chosen."""
    if choice.name == "dense":
        return DenseEngine(make_problem(prior, measurements.series), device)
    return make_spectral(prior, measurements, tolerance)


def _check_forced_values(prior: Prior, summaries: Sequence[Summary]) -> None:
    """Raise where the equations determine an observable completely and the data say otherwise."""
    compiled = prior.rows.compiled
    theta = np.full(len(compiled.parameters), 0.7310585786)
    values = compiled.evaluate(theta)
    for o, item in enumerate(summaries):
        if values.free[o].any() or any(column[o].any() for column in values.columns) or compiled.signals[o].count:
            continue
        error = item.spread / np.sqrt(item.count)
        if item.exact or (item.mean != 0 and (item.count < 3 or abs(item.mean) > 5.0 * error)):
            raise DataError(
                f"the equations force {item.observable} to be zero, but the data are not (mean {item.mean:.4g}); check "
                "the equations, or leave this observable out"
            )
