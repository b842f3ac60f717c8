"""A yardstick for a fit: the log evidence of smooth curves that obey no equation, one for each observable.

Right equations beat it or tie: they know more. A fit that is clearly below has ended in a poor place, or its equations
do not describe the data. The same noise is assumed, shared or not, known or learned. A grid over lengthscales,
deviations and levels is enough for a yardstick, and has no poor places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.data.noise import Noise
from lodekit.data.observations import Series

__all__ = ["Yardstick", "measure_yardstick", "take_runs"]

Array = NDArray[np.float64]
#: So many measurements of each observable are looked at: in runs of neighbours, so that fast changes are seen, too.
_RUNS, _LENGTH = 3, 20
#: How many lengthscales there are, from this share of the sampling step to so many spans.
_LENGTHSCALES, _SHORTEST, _LONGEST = 12, 0.7, 3.0
#: Levels of noise in spreads of the data. Deviations go on by the same step, so that there are few ratios of the two:
#: those at these places, from about a tenth to thirty spreads.
_LEVELS = np.geomspace(1e-6, 1.5, 29)
_STEP, _PLACES = _LEVELS[1] / _LEVELS[0], np.arange(23, 35)


@dataclass(frozen=True)
class Yardstick:
    """What smooth curves that obey no equation make of the data.

    Parameters
    ----------
    log_evidence : float
        Of all observables, in the user's units.
    noise : dict of str to float
        The root mean square of the noise of each observable, in the user's units.
    size : int
        How many measurements were looked at.
    """

    log_evidence: float
    noise: dict[str, float]
    size: int


def take_runs(measurements: Measurements) -> Measurements:
    """Return measurements in runs of neighbours where there are many; the same where there are few.

    Parameters
    ----------
    measurements : Measurements
        In memory.
    """
    if all(len(item.times) <= _RUNS * _LENGTH for item in measurements.series):
        return measurements
    found = []
    for item in measurements.series:
        starts = np.linspace(0, max(len(item.times) - _LENGTH, 0), _RUNS).astype(np.intp)
        rows = np.unique(np.minimum(starts[:, None] + np.arange(_LENGTH), len(item.times) - 1))
        found.append(item.take(rows) if len(item.times) > _RUNS * _LENGTH else item)
    return Measurements(found)


def measure_yardstick(series: Sequence[Series], noise: Noise, span: float) -> Yardstick | None:
    """Return what smooth curves make of the data; None where some noise is zero, or partly known and partly learned.

    Parameters
    ----------
    series : sequence of Series
        In the order of the noise.
    noise : Noise
        Which level belongs to which observable.
    span : float
        Of time.
    """
    if any(item.exact.any() or (item.known.any() and item.learned.any()) for item in series):
        return None
    units = noise.units
    totals = np.zeros((len(units), len(_LEVELS)))
    tables: list[Array] = []
    spectra: dict[bytes, tuple[Array, Array]] = {}
    for item, group in zip(series, noise.groups, strict=True):
        levels = units[group] * _LEVELS if item.learned.any() else np.ones(1)
        weights = np.ones(len(item.times)) if item.learned.any() else 1.0 / item.std
        # Observables with the same times have the same covariances.
        key = item.times.tobytes() + weights.tobytes()
        if key not in spectra:
            spectra[key] = _spectra(item.times / (float(span) or 1.0), weights)
        table = _evidences(item.values, weights, levels, *spectra[key])
        totals[group] += table
        tables.append(np.broadcast_to(table, _LEVELS.shape))
    best = totals.argmax(axis=1)
    if not np.isfinite(totals.max(axis=1)).all():
        return None
    found = {
        item.observable: float(units[group] * _LEVELS[best[group]])
        if item.learned.any()
        else float(np.sqrt(np.mean(item.std**2)))
        for item, group in zip(series, noise.groups, strict=True)
    }
    value = sum(float(table[best[group]]) for table, group in zip(tables, noise.groups, strict=True))
    return Yardstick(value, found, sum(len(item.times) for item in series))


def _spectra(times: Array, weights: Array) -> tuple[Array, Array]:
    """Return eigenvalues, (l, n), and eigenvectors, (l, n, n), of weighted covariances with several lengthscales."""
    lag = times[:, None] - times[None, :]
    step = float(np.median(np.diff(np.unique(times)))) if np.ptp(times) > 0 else 1.0
    lengths = np.geomspace(min(max(_SHORTEST * step, 1e-9), 1.0), _LONGEST, _LENGTHSCALES)
    eigenvalues, vectors = np.linalg.eigh(
        np.exp(-0.5 * (lag / lengths[:, None, None]) ** 2) * np.outer(weights, weights)
    )
    return np.maximum(eigenvalues, 0.0), vectors


def _evidences(values: Array, weights: Array, levels: Array, eigenvalues: Array, vectors: Array) -> Array:
    """Return the best log evidence of a series over lengthscales and deviations at each level of noise.

    Parameters
    ----------
    values, weights : arrays, shape (n,)
        What was measured, and the reciprocals of known noise; one where it is learned.
    levels : array
        Of the noise.
    eigenvalues, vectors : arrays, shapes (l, n) and (l, n, n)
        Of the weighted covariance, for each lengthscale.
    """
    count, mean = len(values), float(values.mean())
    spread = float(np.std(values)) or float(np.max(np.abs(values))) or 1.0
    # A constant beside the curve, as large as the mean: what does not change needs no lengthscale.
    constant = 1.0 + (mean / spread) ** 2
    ones, rest = weights @ vectors, (weights * (values - mean)) @ vectors
    # Variances of the rotated data in units of the deviation: lengthscales, ratios of level and deviation, data.
    ratios = np.arange(-_PLACES.max(), len(levels) - _PLACES.min())
    noise = (levels[0] / (spread * _LEVELS[0]) * _STEP**ratios) ** 2
    variances = eigenvalues[:, None, :] + noise[:, None]
    square, both, one = ((part[:, None, :] / variances).sum(axis=2) for part in (rest**2, rest * ones, ones**2))
    # Of the constant, Sherman and Morrison know what it changes.
    more = 1.0 + constant * one
    square += (mean * (2.0 * both + mean * one) - constant * both**2) / more
    logs = np.log(variances).sum(axis=2) + np.log(more)
    # Levels, deviations.
    rows = np.arange(len(levels))[:, None] - _PLACES - ratios[0]
    unit = (spread * _LEVELS[0] * _STEP**_PLACES) ** 2
    found = square[:, rows] / unit + logs[:, rows] + count * np.log(2.0 * np.pi * unit)
    return np.asarray(np.log(weights).sum() - 0.5 * found.min(axis=(0, 2)))
