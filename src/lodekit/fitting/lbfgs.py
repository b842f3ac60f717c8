"""One search for an optimum of the objective from one start, with L-BFGS-B (Byrd, Lu, Nocedal and Zhu 1995)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from lodekit.fitting import search_options as options
from lodekit.fitting.hessian import whitening_axes
from lodekit.fitting.objective import Objective
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.support.arguments import Array, Mask
from lodekit.support.progress import report_best_value

#: The objective reported to the optimiser if it is not finite at a point.
INFEASIBLE_VALUE = -1e12
#: The message of a search that converged.
CONVERGED_MESSAGE = "the evidence no longer increases"
#: The message of a search that ended where the objective increases towards points at which it is undefined.
UNDEFINED_MESSAGE = "the evidence increases towards points at which it is undefined"


@dataclass(frozen=True, eq=False)
class Optimum:
    """The result of a search.

    x: The vector of the layout; (n,).
    value: The objective there: log evidence plus log prior.
    converged: Whether the search converged.
    message: Why the search ended.
    n_evaluations: The number of evaluations of the objective.
    at_bound: Entries at a bound of the search; (n,).
    other_optima: The objective and the vector of other optima with about the same objective.
    """

    x: Array
    value: float
    converged: bool
    message: str
    n_evaluations: int
    at_bound: Mask
    other_optima: tuple[tuple[float, Array], ...] = ()

    def is_reached_by(self, x: Array, value: float, layout: ParameterLayout, agreement: float) -> bool:
        """Return whether a search that has reached a point is converging to this optimum.

        Standard deviations are ignored: those of an inactive free function, mode or disturbance keep shrinking.

        Shapes: x (n,).
        """
        apart = np.abs(x - self.x)
        apart[layout.slices.deviations] = apart[layout.slices.mode_deviations] = 0.0
        apart[layout.slices.disturbance_deviations] = 0.0
        is_close = bool(np.max(apart, initial=0.0) < options.SEARCH.same_point_distance)
        return is_close and abs(value - self.value) < agreement


def search_bounds(objective: Objective, x0: Array, centre: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds of a run from `x0` of a search that began at `centre`, each of shape (n,).

    Bounds of standard deviations are relative to the start, which matches the variance of the data. Bounds of
    parameters are relative to their expected magnitudes: beyond these, a state or a coupling has no visible effect.

    Shapes: x0, centre (n,).
    """
    opt, layout, reach = options.SEARCH, objective.layout, objective.engine.search_limits
    blocks, noise = layout.slices, objective.engine.prior.noise
    low, high = centre.copy(), centre.copy()
    for place, transform in enumerate(layout.transforms.values()):
        # An unbounded parameter may have either sign; its unit is a hundredth of its expected magnitude.
        middle, far = transform.centre, opt.max_parameter_distance
        if transform.is_unbounded:
            far += transform.inverse(transform.expected_magnitude)
        low[place], high[place] = min(x0[place], middle - far), max(x0[place], middle + far)
    shortest, longest = np.log(reach.min_lengthscale), np.log(reach.max_lengthscale)
    low[blocks.lengthscales] = np.clip(x0[blocks.lengthscales] - np.log(reach.max_shrink_factor), shortest, longest)
    low[blocks.disturbance_lengthscales] = shortest
    high[blocks.lengthscales] = high[blocks.disturbance_lengthscales] = longest
    low[blocks.noise] = np.log(noise.min_levels[: layout.n_noise_levels])
    high[blocks.noise] = np.log(opt.max_noise_fraction * noise.level_scales[: layout.n_noise_levels])
    for block, start, down, up in (
        (blocks.deviations, centre, reach.max_log_std_change, reach.max_log_std_change),
        (blocks.mode_deviations, x0, opt.max_mode_std_change, opt.max_mode_std_change),
        (blocks.disturbance_deviations, centre, opt.max_disturbance_decrease, opt.max_parameter_distance),
    ):
        low[block], high[block] = start[block] - down, start[block] + up
    return low, high


def maximize_lbfgs_preconditioned(objective: Objective, x0: Array, information: Array, tolerance: float) -> Optimum:
    """Return the optimum found by L-BFGS from one start, in coordinates whitened by an information matrix.

    Shapes: x0 (n,), information (n, n).
    """
    opt = options.SEARCH
    finite = np.nan_to_num(information, posinf=0.0, neginf=0.0)
    axes = whitening_axes(finite, opt.preconditioner_floor, min_diagonal=1e-2)[0]
    return _run_lbfgs(objective, x0, axes, opt.preconditioned_max_iterations, tolerance)


def maximize_lbfgs(
    objective: Objective,
    x0: Array,
    *,
    max_iterations: int = 500,
    tolerance: float = 1e-7,
    known_optimum: Optimum | None = None,
    agreement: float | None = None,
    trusted: bool = False,
) -> Optimum:
    """Return the optimum found by L-BFGS-B from one start; it ends if a step gains too little, or at a known optimum.

    Parameters estimated from the data are trusted: first steps change them less than other entries, which halves the
    number of iterations.

    If short lengthscales are expensive, each run may shorten them by a limited factor: a search that ends at this
    limit is continued from there while the objective improves.

    Shapes: x0 (n,).
    """
    axes = np.diag(_step_scales(objective, trusted=trusted))
    agreement = objective.engine.search_limits.evidence_tolerance if agreement is None else agreement
    limits = max_iterations, tolerance, known_optimum, agreement
    found = _run_lbfgs(objective, x0, axes, *limits, search_bounds(objective, x0, x0))
    evaluations = found.n_evaluations
    while _stopped_at_stride(objective, found).any():
        following = _run_lbfgs(objective, found.x, axes, *limits, search_bounds(objective, found.x, x0))
        evaluations += following.n_evaluations
        gain, before, found = following.value - found.value, found, following
        if gain < options.SEARCH.restart_gain:
            # A search that had converged before this run has converged, even if the last line search failed.
            ended = before if before.converged else found
            at_bound = found.at_bound & ~_stopped_at_stride(objective, found)
            found = replace(found, at_bound=at_bound, converged=ended.converged, message=ended.message)
            break
    return replace(found, n_evaluations=evaluations)


def _stopped_at_stride(objective: Objective, optimum: Optimum) -> Mask:
    """Return which lengthscales ended at the limit of the run but not of the search, shape (n,)."""
    opt = options.SEARCH
    blocks = objective.layout.slices
    inner = np.zeros(objective.layout.size, dtype=bool)
    lengthscales, reach = optimum.x[blocks.lengthscales], objective.engine.search_limits
    shortest = float(np.log(reach.min_lengthscale)) + opt.at_bound_tolerance
    longest = float(np.log(opt.longest_lengthscale_share * reach.max_lengthscale))
    inner[blocks.lengthscales] = (lengthscales > shortest) & (lengthscales < longest)
    return optimum.at_bound & inner


def _run_lbfgs(
    objective: Objective,
    x0: Array,
    axes: Array,
    max_iterations: int,
    tolerance: float,
    known_optimum: Optimum | None = None,
    agreement: float = 0.0,
    bounds: tuple[Array, Array] | None = None,
) -> Optimum:
    """Return the result of one run of L-BFGS-B.

    The coordinates are z in ``x = x0 + axes z``; with bounds, `axes` is diagonal.

    Shapes: x0 (n,), axes (n, n).
    """
    opt, values = options.SEARCH, list[float]()
    start, limits, (low, high) = x0, None, search_bounds(objective, x0, x0) if bounds is None else bounds
    if bounds is not None:
        start = np.clip(x0, *bounds)
        limits = np.stack([(bound - start) / np.diag(axes) for bound in bounds], axis=1)
    first = objective.evaluate(start)
    # The first step of L-BFGS-B is as long as the gradient, so it may reach the bounds, where many searches get stuck:
    # in this unit of the objective its length is at most one.
    slope = axes.T @ first[1]
    unit = max(1.0, float(np.linalg.norm(slope))) if np.isfinite(slope).all() else 1.0

    def descend(z: Array) -> tuple[float, Array]:
        x = start + axes @ z
        value, gradient = objective.evaluate(np.clip(x, low, high)) if z.any() else first
        if limits is None:
            gradient = np.where((x < low) | (x > high), 0.0, gradient)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -INFEASIBLE_VALUE / unit, np.zeros_like(z)
        return -value / unit, -(axes.T @ gradient) / unit

    def watch(intermediate_result: OptimizeResult) -> None:
        values.append(-unit * float(intermediate_result.fun))
        report_best_value(objective, objective.name, values[-1])
        # The tolerance is absolute, in nats, not relative to the objective, but above rounding errors.
        least = max(tolerance, opt.lbfgs_relative_tolerance * abs(values[-1]))
        x = start + axes @ intermediate_result.x
        is_known = known_optimum is not None and known_optimum.is_reached_by(x, values[-1], objective.layout, agreement)
        if is_known or (len(values) > 1 and values[-1] - values[-2] < least):
            raise StopIteration

    # In whitened coordinates the gradient tolerance is smaller: a small gradient implies a small gain there.
    limited = {"gtol": 1e-5 / unit, "maxcor": 20, "maxls": 15}
    settings = {"ftol": 0.0, "maxiter": max_iterations} | (limited if bounds else {"gtol": 1e-6 / unit, "maxcor": 30})
    z0 = np.zeros(objective.layout.size)
    result = minimize(descend, z0, jac=True, method="L-BFGS-B", bounds=limits, options=settings, callback=watch)
    stopped = "StopIteration" in str(result.message)
    x, value, is_flat = np.clip(start + axes @ result.x, low, high), -unit * float(result.fun), False
    at_bound = np.zeros(len(x), dtype=bool)
    if bounds is not None:
        at_bound = (x <= bounds[0] + opt.at_bound_tolerance) | (x >= bounds[1] - opt.at_bound_tolerance)
        gradient = np.where(at_bound, 0.0, unit * result.jac / np.diag(axes))
        is_flat = float(np.max(np.abs(gradient), initial=0.0)) < opt.flat_gradient_ratio * max(1.0, abs(value))
    converged = result.success or stopped or is_flat
    message = CONVERGED_MESSAGE if converged else str(result.message)
    return Optimum(x, value, bool(converged), message, int(result.nfev), at_bound)


def _step_scales(objective: Objective, *, trusted: bool) -> Array:
    """Return a typical step size for each entry of the vector, shape (n,).

    Like standard errors, the steps of parameters and noise levels decrease with the square root of the number of
    measurements, which saves evaluations on long records.
    """
    found, blocks = np.ones(objective.layout.size), objective.layout.slices
    share = min(1.0, np.sqrt(options.SEARCH.full_step_rows / max(objective.engine.size, 1)))
    found[blocks.theta] = share * (0.1 if trusted else 1.0)
    found[blocks.lengthscales], found[blocks.noise] = 0.5, 0.5 * share
    return found
