"""Start values from least squares of the weak form of the equations: the data are not differentiated.

Each equation is multiplied by test functions ``(1 - s^2)^p`` of compact support and integrated by parts until all
derivatives are those of the test function. Integrals of the data remain, in which noise averages out. Residuals are
divided by their standard deviation due to measurement noise, so that they do not depend on the scale of an equation,
and large parameters that cancel each other bring no advantage.

For systems with delays, the delays are scanned, and the weak form estimates the other parameters at each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.polynomial import Polynomial
from scipy.optimize import least_squares

from lodekit.data.observations import TimeSeries
from lodekit.data.records import estimate_noise_std
from lodekit.fitting import search_options as options
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.scaling import time_gaps
from lodekit.fitting.starts.input_output import InputOutputEquations, parameters_occurring
from lodekit.prior.compile import ScalarFunctions
from lodekit.support.arguments import Array
from lodekit.system.system import System

#: Quadrature weights by times, whether values are held, order of the derivative, and half-width.
QuadratureCache = dict[tuple[bytes, bool, int, float], Array]
#: Residuals and their Jacobian, from parameters, the indices of those that are estimated, and their derivatives.
WeakForm = Callable[[Array, list[int], Array], tuple[Array, Array]]


def fit_weak_form(
    equations: Sequence[InputOutputEquations],
    layout: ParameterLayout,
    generator: np.random.Generator,
    half_widths: Sequence[float] = options.SEARCH.window_half_widths,
    *,
    initial_theta: Array | None = None,
    quadrature_caches: Sequence[QuadratureCache] | None = None,
) -> list[Array]:
    """Return parameter values, each of shape (p,), best first; NaN for parameters that do not occur.

    Shapes: initial_theta (p,).
    """
    opt, involved = options.SEARCH, sorted({number for each in equations for number in each.parameter_indices})
    tried = [] if initial_theta is None else [initial_theta]
    for attempt in range(opt.n_least_squares_starts if initial_theta is None else 0):
        tried.append(np.zeros(len(layout.names)))
        tried[-1][involved] = layout.draw_starts(involved, attempt, generator)
    starts = [np.array([layout.transforms[n].inverse(float(each[n])) for n in involved]) for each in tried]
    known = quadrature_caches or [{} for _ in equations]
    records = []
    for each, own in zip(equations, known, strict=True):
        pairs = zip(each.series, each.holds, strict=True)
        thinned = [_thin_series(item) if not kind else _thin_input(item, kind, each.window) for item, kind in pairs]
        records.append((each, thinned, own))
    found: list[tuple[float, float, Array]] = []
    for half in half_widths:
        forms = [_assemble_weak_form(each, series, half, own) for each, series, own in records]
        usable = [form for form in forms if form is not None]
        n_residuals = opt.n_windows * sum(each.n_equations for each, f in zip(equations, forms, strict=True) if f)
        if n_residuals < len(involved):
            continue
        # The solution for another width is a good start and needs fewer steps.
        tries = [(x, opt.weak_form_warm_steps) for *_, x in found[-1:]]
        tries += [(x, opt.weak_form_max_steps) for x in starts[: 1 if found else opt.n_least_squares_starts]]
        guesses: list[tuple[float, float, Array]] = []
        for x0, steps in tries:
            guess = _minimize_weak_form(usable, n_residuals, involved, layout, x0, steps)
            guesses = sorted([*guesses, *([] if guess is None else [guess])], key=lambda guess: guess[0])
            if len(guesses) > 1 and guesses[1][0] < (1.0 + opt.cost_tolerance) * guesses[0][0]:
                break
        found += guesses[:1]
    # Wide windows leave small residuals because they average a lot; solutions are ranked by their standard errors.
    found.sort(key=lambda guess: (guess[0] > opt.poor_weak_form_cost, guess[1]))
    return [layout.parameter_values(x, involved) for *_, x in found]


def _minimize_weak_form(
    forms: Sequence[WeakForm], n_residuals: int, involved: list[int], layout: ParameterLayout, x0: Array, max_steps: int
) -> tuple[float, float, Array] | None:
    """Return the mean squared residual, the largest standard error and the solution x of a least-squares problem.

    The result is None if nothing is finite. Residuals are in units of their noise.
    """
    last: dict[bytes, tuple[Array, Array]] = {}

    def evaluate(x: Array) -> tuple[Array, Array]:
        key = x.tobytes()
        if key not in last:
            last.clear()
            slopes = np.array([layout.transforms[n].derivative(float(x[i])) for i, n in enumerate(involved)])
            theta = layout.parameter_values(x, involved, 1.0)
            residuals, jacobians = zip(*(form(theta, involved, slopes) for form in forms), strict=True)
            far, side = _distance_penalty(involved, layout, x)
            last[key] = np.concatenate([*residuals, far]), np.concatenate([*jacobians, np.diag(side)])
        return last[key]

    limits = {"max_nfev": max_steps, "ftol": 1e-4, "xtol": 1e-4}
    result = least_squares(lambda x: evaluate(x)[0], x0, jac=lambda x: evaluate(x)[1], method="lm", **limits)
    if not np.isfinite(result.x).all():
        return None
    residual, slope = (part[:n_residuals] for part in evaluate(result.x))
    # Neighbouring windows overlap, so these standard errors are too small; they only serve to compare widths.
    sizes, cost = np.linalg.svd(slope, compute_uv=False), float(np.mean(residual**2))
    return cost, float(np.sqrt(max(cost, 1.0)) / max(float(sizes.min()), 1e-300)), result.x


def _distance_penalty(parameter_indices: Sequence[int], layout: ParameterLayout, x: Array) -> tuple[Array, Array]:
    """Return residuals, and their derivatives, that penalise parameters far from their expected magnitudes.

    If the term of a high derivative is negligible, wide windows leave a common factor of the other terms undetermined.
    """
    transforms = [layout.transforms[n] for n in parameter_indices]
    centre = np.array([transform.centre for transform in transforms])
    pairs = zip(transforms, x.tolist(), strict=True)
    away = np.array([transform.distance_from_expected(point) for transform, point in pairs])
    beyond = np.maximum(away - options.SEARCH.penalty_log_distance, 0.0)
    return beyond, np.where(beyond > 0, np.sign(x - centre), 0.0)


def _assemble_weak_form(
    equations: InputOutputEquations, series: Sequence[TimeSeries], half_width: float, quadrature_cache: QuadratureCache
) -> WeakForm | None:
    """Return the weak form with test functions of one half-width (fraction of the record); None with too few rows.

    It is a function of all parameters, (p,), of the indices of those that are estimated, and of their derivatives in
    the search vector. It returns residuals in units of their noise, (equations * windows,), and their Jacobian.
    """
    opt = options.SEARCH
    start, stop = equations.window
    width = half_width * (stop - start)
    centres = np.linspace(start + width, stop - width, opt.n_windows)
    pairs = list(zip(series, equations.holds, strict=True))
    if any(2.0 * half_width * len(item.times) < opt.min_window_rows for item, kind in pairs if not kind):
        return None
    power, n_terms = int(equations.term_order.max()) + 2, len(equations.term_order)
    # Integrals of each term without its coefficient, and their covariance due to noise.
    integrals, covariance = np.zeros((opt.n_windows, n_terms)), np.zeros((opt.n_windows, n_terms, n_terms))
    for j, (item, kind) in enumerate(pairs):
        # A known input has no noise.
        noise_std, key, held = 0.0 if kind else _noise_std(item), item.times.tobytes(), kind == "hold"
        quadrature = held_bump_quadrature if held else bump_quadrature
        for order in range(equations.max_order(j) + 1):
            if (key, held, order, half_width) not in quadrature_cache:
                weights = (-1.0) ** order * quadrature(item.times, centres, width, power, order)
                quadrature_cache[key, held, order, half_width] = weights
        terms = np.flatnonzero(equations.term_series == j)
        rows = np.stack([quadrature_cache[key, held, int(equations.term_order[k]), half_width] for k in terms])
        integrals[:, terms] = (rows @ item.values).T
        # Noise of one series correlates all terms in which it occurs.
        covariance[:, terms[:, None], terms] = noise_std**2 * (rows.transpose(1, 0, 2) @ rows.transpose(1, 2, 0))
    grid = np.linspace(start, stop, opt.n_forcing_times)
    forcing_weights = bump_quadrature(grid, centres, width, power, 0)
    members = [np.flatnonzero(equations.term_equation == n) for n in range(equations.n_equations)]
    blocks = [(own, integrals[:, own], covariance[:, own[:, None], own]) for own in members]

    def evaluate(theta: Array, parameter_indices: list[int], derivatives: Array) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            values, gradient = equations.coefficients.evaluate(theta)
            gradient = gradient[parameter_indices] * derivatives[:, None]
            sides = equations.forcing.evaluate(theta, grid)
            residuals, jacobians = [], []
            for (own, F, G), (side, d_side) in zip(blocks, sides, strict=True):
                c, dc = values[own], gradient[:, own]
                total = F @ c - forcing_weights @ side
                d_total = F @ dc.T - forcing_weights @ (d_side[parameter_indices] * derivatives[:, None]).T
                Gc = G @ c
                deviation = np.sqrt(np.maximum(Gc @ c, 1e-300))
                relative, d_deviation = total / deviation, (Gc @ dc.T) / deviation[:, None]
                residuals.append(relative)
                jacobians.append((d_total - relative[:, None] * d_deviation) / deviation[:, None])
        residual, slope = np.concatenate(residuals), np.concatenate(jacobians)
        bad = ~np.isfinite(residual) | ~np.isfinite(slope).all(axis=1) | (np.abs(residual) > 1e100)
        return np.where(bad, 1e6, residual), np.where(bad[:, None], 0.0, slope)

    return evaluate


def _thin_series(item: TimeSeries) -> TimeSeries:
    """Return a series with one value for each time, thinned to about `max_weak_form_rows` rows."""
    times, where = np.unique(item.times, return_inverse=True)
    counts = np.bincount(where)
    values, std = np.bincount(where, item.values) / counts, np.bincount(where, np.nan_to_num(item.std)) / counts
    step = max(1, len(times) // options.SEARCH.max_weak_form_rows)
    return TimeSeries(item.observable, times[::step], values[::step], std[::step])


def _thin_input(item: TimeSeries, hold: str, window: tuple[float, float]) -> TimeSeries:
    """Return an input without repeated held values; too many samples are averaged (hold) or thinned (linear)."""
    times, values = item.times, item.values
    if hold == "linear":
        # The input is constant beyond its samples.
        start, stop = min(window[0], float(times[0])), max(window[1], float(times[-1]))
        times = np.unique(np.concatenate([[start], times, [stop]]))
        values = np.interp(times, item.times, item.values)
    else:
        new = np.concatenate([[True], np.diff(values) != 0])
        times, values = times[new], values[new]
    if len(times) > options.SEARCH.max_weak_form_rows:
        step = len(times) // options.SEARCH.max_weak_form_rows + 1
        if hold == "hold":
            # Means of the held input: integrals over the much longer windows hardly change.
            area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
            places = np.append(np.arange(0, len(times) - 1, step), len(times) - 1)
            means = np.diff(area[places]) / np.diff(times[places])
            times, values = times[places], np.append(means, values[-1])
        else:
            times, values = times[::step], values[::step]
    return TimeSeries(item.observable, times, values, np.zeros(len(times)))


def _noise_std(item: TimeSeries) -> float:
    """Return a rough noise standard deviation of a series, from its differences; includes interpolation errors."""
    scatter, spread = estimate_noise_std(item.values) if len(item.values) > 4 else 0.0, float(item.values.std())
    return float(max(scatter, item.std.mean(), options.SEARCH.min_start_noise_fraction * spread, 1e-300))


def bump_quadrature(times: Array, centres: Array, width: float, power: int, order: int) -> Array:
    """Return quadrature weights of integrals of a function times derivatives of bumps, shape (windows, n).

    They are exact for a function that is linear between its values: second differences of the second antiderivative
    of the other factor.

    Shapes: times (n,), centres (windows,).
    """
    bump = Polynomial([1.0, 0.0, -1.0]) ** power
    twice = bump.deriv(order - 2) if order > 2 else bump.integ(2 - order, lbnd=-1.0) if order < 2 else bump
    s = (times[None, :] - centres[:, None]) / width
    inside = np.clip(s, -1.0, 1.0)
    # Beyond the bump its antiderivative continues along its tangent.
    values, steps = twice(inside) + twice.deriv()(inside) * (s - inside), np.diff(times) / width
    slopes = np.diff(values, axis=1) / steps
    first, last = slopes[:, :1] - twice.deriv()(inside[:, :1]), twice.deriv()(inside[:, -1:]) - slopes[:, -1:]
    return np.asarray(width ** (1 - order) * np.concatenate([first, np.diff(slopes, axis=1), last], axis=1))


def held_bump_quadrature(times: Array, centres: Array, width: float, power: int, order: int) -> Array:
    """Return quadrature weights of integrals of a held function times derivatives of bumps, shape (windows, n).

    Shapes: times (n,).
    """
    bump = Polynomial([1.0, 0.0, -1.0]) ** power
    once = bump.deriv(order - 1) if order > 1 else bump.integ(1, lbnd=-1.0) if order < 1 else bump
    edges = once(np.clip((times[None, :] - centres[:, None]) / width, -1.0, 1.0))
    edges[:, 0] = once(-1.0)
    last = np.full((len(centres), 1), once(1.0))
    return np.asarray(width ** (1 - order) * np.diff(np.concatenate([edges, last], axis=1), axis=1))


def find_delay_parameters(system: System, layout: ParameterLayout) -> list[int]:
    """Return the numbers of the free parameters that the delays of a system depend on."""
    times = [name.time for name in system.delayed_channels]
    elements = [part for time in times for part in (time.numerator, time.denominator)]
    seen = parameters_occurring(system.operator.ring, elements)
    return sorted((n for n in layout.free_parameters if n in seen), key=layout.names.__getitem__)


def build_delay_grid(times: Array) -> Array:
    """Return delays to try, from half a sampling interval to a fraction of the record.

    Shapes: times (n,).

    Examples
    --------
    >>> build_delay_grid(np.arange(11.0)).round(2).tolist()
    [0.5, 0.75, 1.12, 1.69, 2.53]
    """
    opt, gaps = options.SEARCH, time_gaps([times])
    if len(gaps) < 2:
        return np.zeros(0)
    shortest, longest = 0.5 * float(np.median(gaps)), opt.max_delay_fraction * float(np.ptp(times))
    count = int(np.floor(np.log(max(longest / shortest, 1.0)) / np.log(opt.delay_grid_ratio))) + 1
    return np.asarray(shortest * opt.delay_grid_ratio ** np.arange(count))


def scan_delays(
    system: System, equations: Sequence[InputOutputEquations], layout: ParameterLayout, generator: np.random.Generator
) -> list[Array]:
    """Return parameter values for many delays, each of shape (p,); NaN for parameters that do not occur."""
    table = ScalarFunctions(system.operator.ring, [name.time for name in system.delayed_channels])
    numbers = find_delay_parameters(system, layout)
    # The longest record has the longest delays.
    longest = max(equations, key=lambda each: each.window[1] - each.window[0])
    measured = [item.times for item, kind in zip(longest.series, longest.holds, strict=True) if not kind]
    grid = build_delay_grid(np.concatenate(measured)).tolist()
    tried = list(product(grid, repeat=len(numbers)))
    places = np.linspace(0, len(tried) - 1, min(len(tried), options.SEARCH.max_delay_combinations))
    tried = [tried[k] for k in np.unique(places.astype(int))]
    found: list[Array] = []
    integrals: list[QuadratureCache] = [{} for _ in equations]
    for values in tried:
        theta = np.where(np.isnan(layout.fixed_values), 1.0, layout.fixed_values)
        theta[numbers] = values
        delays, _ = table.evaluate(theta)
        shifted, near = [each.with_delays(delays) for each in equations], found[-1] if found else None
        widths = options.SEARCH.delay_window_half_widths
        solutions = fit_weak_form(shifted, layout, generator, widths, initial_theta=near, quadrature_caches=integrals)
        for guess in solutions[:1]:
            guess[numbers] = values
            found.append(guess)
    return found
