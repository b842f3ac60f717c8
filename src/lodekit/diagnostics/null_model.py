"""Null model of a fit: the log evidence of smooth Gaussian processes that obey no equation, one per observable.

Correct equations are at least as likely. The noise model is the same as in the fit. A grid over lengthscales,
amplitudes and noise levels replaces a search, so the null model has no local optima.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lodekit.data.noise import NoiseModel
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements

Array = NDArray[np.float64]
#: So many measurements of each observable are looked at: in runs of neighbours, so that fast changes are seen, too.
_N_SEGMENTS, _SEGMENT_ROWS = 3, 20
#: Levels of noise in spreads of the data. Deviations go on by the same step, so that there are few ratios of the two:
#: those at these places, from about a tenth to thirty spreads.
_NOISE_GRID = np.geomspace(1e-6, 1.5, 29)
_NOISE_GRID_RATIO, _AMPLITUDE_INDEX = _NOISE_GRID[1] / _NOISE_GRID[0], np.arange(23, 35)


def subsample_segments(measurements: Measurements) -> Measurements:
    """Return measurements in runs of neighbours where there are many; the same where there are few."""
    if all(len(item.times) <= _N_SEGMENTS * _SEGMENT_ROWS for item in measurements.series):
        return measurements
    found = []
    for item in measurements.series:
        starts = np.linspace(0, max(len(item.times) - _SEGMENT_ROWS, 0), _N_SEGMENTS).astype(np.intp)
        rows = np.unique(np.minimum(starts[:, None] + np.arange(_SEGMENT_ROWS), len(item.times) - 1))
        found.append(item.select(rows) if len(item.times) > _N_SEGMENTS * _SEGMENT_ROWS else item)
    return Measurements(found)


def fit_null_model(
    series: Sequence[TimeSeries], noise: NoiseModel, span: float
) -> tuple[float, dict[str, float]] | None:
    """Return log evidence and noise std (rms) by observable; None if noise is zero, or partly known, partly learned."""
    if any(item.is_exact.any() or (item.has_known_noise.any() and item.has_unknown_noise.any()) for item in series):
        return None
    units = noise.level_scales
    totals = np.zeros((len(units), len(_NOISE_GRID)))
    tables: list[Array] = []
    spectra: dict[bytes, tuple[Array, Array]] = {}
    for item, group in zip(series, noise.level_indices, strict=True):
        levels = units[group] * _NOISE_GRID if item.has_unknown_noise.any() else np.ones(1)
        weights = np.ones(len(item.times)) if item.has_unknown_noise.any() else 1.0 / item.std
        # Observables with the same times have the same covariances.
        key = item.times.tobytes() + weights.tobytes()
        if key not in spectra:
            spectra[key] = _eigendecompose_covariances(item.times / (float(span) or 1.0), weights)
        table = _max_log_evidence(item.values, weights, levels, *spectra[key])
        totals[group] += table
        tables.append(np.broadcast_to(table, _NOISE_GRID.shape))
    best = totals.argmax(axis=1)
    if not np.isfinite(totals.max(axis=1)).all():
        return None
    found = {
        item.observable: float(units[group] * _NOISE_GRID[best[group]])
        if item.has_unknown_noise.any()
        else float(np.sqrt(np.mean(item.std**2)))
        for item, group in zip(series, noise.level_indices, strict=True)
    }
    value = sum(float(table[best[group]]) for table, group in zip(tables, noise.level_indices, strict=True))
    return value, found


def _eigendecompose_covariances(times: Array, weights: Array) -> tuple[Array, Array]:
    """Return eigenvalues, (l, n), and eigenvectors, (l, n, n), of weighted covariances with several lengthscales."""
    lag = times[:, None] - times[None, :]
    step = float(np.median(np.diff(np.unique(times)))) if np.ptp(times) > 0 else 1.0
    # Lengthscales from 0.7 sampling steps to three time spans.
    lengths = np.geomspace(min(max(0.7 * step, 1e-9), 1.0), 3.0, 12)
    correlations = np.exp(-0.5 * (lag / lengths[:, None, None]) ** 2)
    eigenvalues, vectors = np.linalg.eigh(correlations * np.outer(weights, weights))
    return np.maximum(eigenvalues, 0.0), vectors


def _max_log_evidence(values: Array, weights: Array, noise_grid: Array, eigenvalues: Array, vectors: Array) -> Array:
    """Return the best log evidence of a series over lengthscales and deviations at each level of noise.

    Shapes: values, weights (n,), eigenvalues, vectors (l, n) and (l, n, n).
    """
    count, mean = len(values), float(values.mean())
    spread = float(np.std(values)) or float(np.max(np.abs(values))) or 1.0
    # A constant beside the curve, as large as the mean: what does not change needs no lengthscale.
    constant = 1.0 + (mean / spread) ** 2
    ones, rest = weights @ vectors, (weights * (values - mean)) @ vectors
    # Variances of the rotated data in units of the deviation: lengthscales, ratios of level and deviation, data.
    ratios = np.arange(-_AMPLITUDE_INDEX.max(), len(noise_grid) - _AMPLITUDE_INDEX.min())
    noise = (noise_grid[0] / (spread * _NOISE_GRID[0]) * _NOISE_GRID_RATIO**ratios) ** 2
    variances = eigenvalues[:, None, :] + noise[:, None]
    square, both, one = ((part[:, None, :] / variances).sum(axis=2) for part in (rest**2, rest * ones, ones**2))
    # Of the constant, Sherman and Morrison know what it changes.
    more = 1.0 + constant * one
    square += (mean * (2.0 * both + mean * one) - constant * both**2) / more
    logs = np.log(variances).sum(axis=2) + np.log(more)
    # Levels, deviations.
    rows = np.arange(len(noise_grid))[:, None] - _AMPLITUDE_INDEX - ratios[0]
    unit = (spread * _NOISE_GRID[0] * _NOISE_GRID_RATIO**_AMPLITUDE_INDEX) ** 2
    found = square[:, rows] / unit + logs[:, rows] + count * np.log(2.0 * np.pi * unit)
    return np.asarray(np.log(weights).sum() - 0.5 * found.min(axis=(0, 2)))
