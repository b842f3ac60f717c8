"""Start values by gradient matching: each channel is smoothed, and its derivatives are fitted to the equations.

A classical two-step method (Varah 1982; Ramsay and Silverman 2005): biased by noise, but close enough to start from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import least_squares

from lodekit.data.observations import TimeSeries
from lodekit.fitting import search_options as options
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.starts.input_output import InputOutputEquations
from lodekit.prior.kernels import SquaredExponential
from lodekit.support.arguments import Array


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
