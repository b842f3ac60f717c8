"""Start values without inputs: the poles of the system are matched to damped oscillations in the data."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.optimize import least_squares

from lodekit.data.observations import TimeSeries
from lodekit.fitting import search_options as options
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.prior.prior import Prior
from lodekit.support.arguments import Array, ComplexArray


def fit_oscillations(
    prior: Prior, series: list[TimeSeries], layout: ParameterLayout, generator: np.random.Generator
) -> list[Array]:
    """Return parameter values at which the poles match oscillations in the data, each of shape (p,), best first.

    The list is empty if a free function drives the system, or fewer than two roots depend on parameters.
    """
    opt = options.SEARCH
    factors, compiled = parametric_pole_factors(prior), prior.observables.compiled.factors
    degree = sum(compiled[k].coefficients.stop - compiled[k].coefficients.start - 1 for k in factors)
    if degree < 2:
        return []
    span, longest = prior.units.time_scale, max(series, key=lambda item: len(item.times))
    peaks = [rate * span for rate in find_damped_oscillations(longest, min(degree // 2, opt.max_oscillations) + 1)]
    found: list[Array] = []
    for chosen in combinations(peaks, min(degree // 2, opt.max_oscillations, len(peaks))):
        theta = parameters_from_poles(prior, factors, layout, np.array(chosen), generator)
        found += [] if theta is None else [theta]
        if len(found) == opt.max_guesses:
            break
    return found


def find_damped_oscillations(item: TimeSeries, count: int) -> list[complex]:
    """Return exponents of the strongest decaying oscillations in a series, with positive imaginary parts.

    Each is the one that reduces the residuals of the previous ones most (matching pursuit).
    """
    opt = options.SEARCH
    times, values = item.times[: opt.max_periodogram_rows], item.values[: opt.max_periodogram_rows]
    span = float(np.ptp(times)) or 1.0
    s, left = (times - times.min()) / span, values - values.mean()
    # The Nyquist frequency: half a period per sampling interval.
    highest = np.pi * len(np.unique(times))
    grid = np.arange(1.0, max(highest, 4.0), 2.0 * np.pi * opt.frequency_step)
    found: list[complex] = []
    for _ in range(count):
        rates = [complex(-decay, omega) for decay in opt.decay_rates for omega in grid]
        best = _strongest_exponent(s, left, np.array(rates))
        for step in (0.5, 0.2, 0.07, 0.02):
            # Position and width of the peak, on finer and finer grids around it.
            around = [
                complex(best.real + a * step * 4.0, best.imag + b * step) for a in range(-2, 3) for b in range(-3, 4)
            ]
            best = _strongest_exponent(s, left, np.array([rate for rate in around if rate.imag > 0]))
        found.append(best / span)
        shape = np.exp(best * s)
        basis = np.stack([shape.real, shape.imag], axis=1)
        left = left - basis @ np.linalg.lstsq(basis, left, rcond=None)[0]
    return found


def _strongest_exponent(scaled_times: Array, values: Array, exponents: ComplexArray) -> complex:
    """Return the exponent whose oscillation reduces the sum of squares most."""
    power = np.empty(len(exponents))
    for first in range(0, len(exponents), 256):
        part = exponents[first : first + 256]
        shapes = np.exp(part[:, None] * scaled_times)
        a, b = shapes.real, shapes.imag
        # Least squares on a cosine and a sine, in closed form for all exponents at once.
        aa, bb, ab = (a * a).sum(1), (b * b).sum(1), (a * b).sum(1)
        ya, yb = a @ values, b @ values
        bottom, top = aa * bb - ab * ab, bb * ya**2 - 2.0 * ab * ya * yb + aa * yb**2
        power[first : first + 256] = np.where(bottom > 1e-9 * aa * bb, top / np.where(bottom > 0, bottom, 1.0), 0.0)
    return complex(exponents[int(np.argmax(power))])


def parametric_pole_factors(prior: Prior) -> list[int]:
    """Return the factors whose roots depend on parameters; none if a free function drives the system."""
    if prior.kernels or any(group.has_state_matrix for group in prior.groups):
        return []
    return sorted({group.factor for group in prior.groups if group.root is None})


def parameters_from_poles(
    prior: Prior,
    factors: list[int],
    layout: ParameterLayout,
    poles: ComplexArray,
    generator: np.random.Generator,
    initial_theta: Array | None = None,
) -> Array | None:
    """Return parameters at which exponents, in scaled time, are closest to roots; None if nothing is finite.

    Shapes: poles (r,), initial_theta (p,).
    """

    def mismatch(x: Array) -> Array:
        with np.errstate(all="ignore"):
            own = prior.observables.evaluate(layout.parameter_values(x, layout.free_parameters)).factors
            total = np.ones(len(poles), dtype=complex)
            for number in factors:
                powers = poles[:, None] ** np.arange(len(own[number]))
                terms = own[number] * powers
                total *= terms.sum(axis=1) / np.abs(terms).sum(axis=1)
        return np.asarray(np.nan_to_num(np.concatenate([total.real, total.imag]), nan=1e3, posinf=1e3, neginf=-1e3))

    best: tuple[float, Array] | None = None
    for attempt in range(options.SEARCH.n_least_squares_starts):
        values = layout.draw_starts(layout.free_parameters, attempt, generator)
        if initial_theta is not None and not attempt:
            values = initial_theta[layout.free_parameters]
        x0 = np.array([t.inverse(value) for t, value in zip(layout.transforms.values(), values.tolist(), strict=True)])
        result = least_squares(mismatch, x0, max_nfev=60)
        if np.isfinite(result.x).all() and (best is None or result.cost < best[0]):
            best = float(result.cost), layout.parameter_values(result.x, layout.free_parameters)
        if best is not None and best[0] < 1e-12:
            break
    return None if best is None else best[1]
