"""Start values without known inputs: gradient matching, and damped oscillations in the data.

Gradient matching smooths each channel and fits its derivatives to the equations, a classical two-step method (Varah
1982; Ramsay and Silverman 2005): biased by noise, but close enough to start from. If no free function drives the
system, its poles are matched to the strongest decaying oscillations in the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import least_squares

from lodekit.data.observations import TimeSeries
from lodekit.fitting import search_options as options
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.starts.input_output import InputOutputEquations
from lodekit.prior.kernels import SquaredExponential
from lodekit.prior.prior import Prior
from lodekit.support.arguments import Array, ComplexArray


def fit_gradient_matching(
    equations: Sequence[InputOutputEquations], layout: ParameterLayout, count: int, generator: np.random.Generator
) -> list[Array]:
    """Return parameter values, best first, at which smoothed data come close to satisfying the equations.

    Parameters that do not occur stay NaN.
    """
    opt, far = options.SEARCH, options.SEARCH.matching_max_log_distance
    involved = sorted({number for each in equations for number in each.parameter_indices})
    smooth = [(each, *_smooth_terms(each)) for each in equations]
    centre = np.array([layout.transforms[number].centre for number in involved])

    def parameters(x: Array, others: float) -> Array:
        return layout.parameter_values(centre + x, involved, others)

    def mismatch(x: Array) -> Array:
        theta = parameters(np.clip(x, -far, far), 1.0)
        return np.concatenate([_relative_residuals(*each, theta) for each in smooth])

    found: list[tuple[float, int, Array]] = []
    for attempt in range(max(opt.n_least_squares_starts, count)):
        drawn = zip(involved, layout.draw_starts(involved, attempt, generator).tolist(), strict=True)
        x0 = np.array([layout.transforms[n].inverse(value) for n, value in drawn]) - centre
        # Each step takes one evaluation plus one per parameter.
        result = least_squares(mismatch, x0, method="lm", max_nfev=opt.matching_max_steps * (len(x0) + 1))
        found.append((float(result.cost), attempt, np.clip(result.x, -far, far)))
        lowest = min(cost for cost, *_ in found)
        if lowest < opt.matching_good_cost * len(result.fun):
            break
        if sum(1 for cost, *_ in found if cost < lowest * (1.0 + opt.cost_tolerance) + 1e-12) >= 2:
            break
    found.sort(key=lambda item: item[:2])
    starts: list[Array] = []
    for _, _, x in found:
        theta = parameters(x, np.nan)
        apart = [np.abs(theta - other) / (np.abs(theta) + np.abs(other) + 1e-300) for other in starts]
        if all(np.nanmax(each) > opt.duplicate_guess_tolerance for each in apart):
            starts.append(theta)
    return starts[:count]


def _smooth_terms(equations: InputOutputEquations) -> tuple[Array, Array]:
    """Return times, (n,), and the smoothed derivative of each term of the equations at these times, (terms, n)."""
    start, stop = equations.window
    margin = options.SEARCH.matching_margin * (stop - start)
    grid = np.linspace(start + margin, stop - margin, options.SEARCH.n_matching_times)
    orders = [equations.max_order(j) for j in range(len(equations.series))]
    smooth = _smooth_series(equations.series, grid, orders)
    terms = zip(equations.term_series, equations.term_order, strict=True)
    return grid, np.stack([smooth[j][k] for j, k in terms])


def _relative_residuals(equations: InputOutputEquations, times: Array, derivatives: Array, theta: Array) -> Array:
    """Return the residuals of all equations at given parameter values, relative to the RMS size of their terms."""
    belongs = (np.arange(equations.n_equations)[:, None] == equations.term_equation).astype(float)
    with np.errstate(all="ignore"):
        parts = equations.coefficients.evaluate_values(np, theta)[:, None] * derivatives
        total, size = belongs @ parts, belongs @ parts**2
        for n, (side, _) in enumerate(equations.forcing.evaluate(theta, times)):
            total[n] -= side
            size[n] += side**2
        scaled = total / np.sqrt(size.mean(axis=1, keepdims=True) + 1e-300)
    return np.asarray(np.nan_to_num(scaled.ravel(), nan=1e3, posinf=1e3, neginf=-1e3))


def _smooth_series(series: Sequence[TimeSeries], grid: Array, orders: Sequence[int]) -> list[list[Array]]:
    """Return smoothed series and derivatives on a grid, by squared-exponential regression with the largest evidence."""
    found: list[list[Array]] = [[] for _ in series]
    groups: dict[bytes, list[int]] = {}
    for number, item in enumerate(series):
        groups.setdefault(item.times.tobytes(), []).append(number)
    for numbers in groups.values():
        # Series with the same times share one covariance matrix.
        step = max(1, len(series[numbers[0]].times) // options.SEARCH.max_smoothed_rows)
        times, span = series[numbers[0]].times[::step], float(np.ptp(series[numbers[0]].times)) or 1.0
        values = np.stack([series[number].values[::step] for number in numbers], axis=1)
        centres = values.mean(axis=0)
        lengths, weights = _regress_on_grid((times[:, None] - times[None, :]) / span, values - centres)
        for k, number in enumerate(numbers):
            ell = lengths[k] * span
            stack = SquaredExponential().derivatives(np, (grid[:, None] - times[None, :]) / ell, orders[number])
            found[number] = [ell**-m * (part @ weights[:, k]) for m, part in enumerate(stack)]
            found[number][0] = found[number][0] + centres[k]
    return found


def _regress_on_grid(lag: Array, values: Array) -> tuple[Array, Array]:
    """Return the lengthscale of largest evidence of each column, (s,), and its weights, (n, s); zero if none works.

    Shapes: lag (n, n), values (n, s).
    """
    count = len(values)
    best, lengths, weights = np.full(values.shape[1], np.inf), np.ones(values.shape[1]), np.zeros(values.shape)
    for ell in np.geomspace(*options.SEARCH.smoother_lengthscale_range):
        K = np.exp(-0.5 * (lag / ell) ** 2)
        for noise in options.SEARCH.smoother_noise_ratios:
            factor, info = lapack.dpotrf(K + noise * np.eye(count), lower=1, clean=0)
            if info != 0:
                continue
            alpha, _ = lapack.dpotrs(factor, values, lower=1)
            amplitude = np.maximum(np.einsum("ns,ns->s", values, alpha) / count, 1e-300)
            cost = 0.5 * count * np.log(amplitude) + float(np.log(np.diag(factor)).sum())
            better = cost < best
            best, lengths = np.where(better, cost, best), np.where(better, ell, lengths)
            weights = np.where(better, alpha, weights)
    return lengths, weights


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
