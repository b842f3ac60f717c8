"""One search for an optimum of the objective from one start, with L-BFGS-B (Byrd, Lu, Nocedal and Zhu 1995)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from lodekit.fitting import search_options as options
from lodekit.fitting.objective import Objective
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.support.progress import report_best_value

Array = NDArray[np.float64]

#: What a search is told of a point where nothing finite can be said.
INFEASIBLE_VALUE = -1e12
#: Why a search ended that has come to its end.
CONVERGED_MESSAGE = "the evidence does not grow any more"
#: Why a search ended that could have gone on, had the evidence been known there.
UNDEFINED_MESSAGE = "the evidence grows where it is not known"


@dataclass(frozen=True, eq=False)
class Optimum:
    """The result of a search.

    x: The vector of the layout; (n,).
    value: The log evidence there, plus the log prior where parameters have priors.
    message: Why the search ended.
    n_evaluations: How often the objective was evaluated.
    at_bound: What sits at a limit of the search; (n,).
    other_optima: Where searches from other starts have ended that came about as far, with the objective there.
    """

    x: Array
    value: float
    converged: bool
    message: str
    n_evaluations: int
    at_bound: NDArray[np.bool_]
    other_optima: tuple[tuple[float, Array], ...] = ()

    def is_reached_by(self, x: Array, value: float, layout: ParameterLayout, agreement: float) -> bool:
        """Return whether a search that has come to a point is on its last steps to this optimum.

        Deviations do not count: that of a free function or a mode which the data do without goes on shrinking for ever.

        Shapes: x (n,).
        """
        apart = np.abs(x - self.x)
        apart[layout.slices.deviations] = apart[layout.slices.mode_deviations] = 0.0
        apart[layout.slices.disturbance_deviations] = 0.0
        return bool(
            abs(value - self.value) < agreement and np.max(apart, initial=0.0) < options.SEARCH.same_point_distance
        )


def search_bounds(objective: Objective, x0: Array, centre: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds of a run from `x0` of a search that began at `centre`, each of shape (n,).

    Standard deviations have no unit of their own: their bounds lie around the start, which matches the data. Parameters
    move in strides, because a first step that is too long ends on a plateau where they mean nothing; what may be
    negative can always change its sign.

    Shapes: x0, centre (n,).
    """
    opt, layout, reach = options.SEARCH, objective.layout, objective.engine.search_limits
    blocks, noise = layout.slices, objective.engine.prior.noise
    low, high = x0 - opt.max_stride, x0 + opt.max_stride
    for k, transform in enumerate(layout.transforms.values()):
        if transform.is_unbounded:
            # Around zero the scale of the search is fine: from there to the expected magnitude may be many strides.
            far = max(abs(float(x0[k])), abs(transform.inverse(transform.expected_magnitude)))
            low[k], high[k] = min(low[k], -far), max(high[k], far)
    theta, shortest, longest = blocks.theta, np.log(reach.min_lengthscale), np.log(reach.max_lengthscale)
    low[theta] = np.maximum(centre[theta] - opt.max_parameter_distance, low[theta])
    high[theta] = np.minimum(centre[theta] + opt.max_parameter_distance, high[theta])
    low[blocks.lengthscales] = np.maximum(shortest, x0[blocks.lengthscales] - np.log(reach.max_shrink_factor))
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


def _minimize_lbfgs(
    objective: Objective,
    descend: Callable[[Array], tuple[float, Array]],
    settings: dict[str, float],
    tolerance: float,
    unit: float = 1.0,
    is_known: Callable[[Array, float], bool] = lambda z, value: False,
    bounds: Array | None = None,
) -> tuple[OptimizeResult, bool]:
    """Return the result of L-BFGS-B from zero, and whether it was stopped by a small gain or at a known optimum.

    `descend` returns minus the objective over `unit`, and its gradient.
    """
    values: list[float] = []
    z0 = np.zeros(objective.layout.size)

    def watch(intermediate_result: OptimizeResult) -> None:
        values.append(-unit * float(intermediate_result.fun))
        report_best_value(objective, objective.name, values[-1])
        # The gain is absolute, in nats, not relative to the objective, down to its rounding errors.
        least = max(tolerance, options.SEARCH.lbfgs_relative_tolerance * abs(values[-1]))
        if (len(values) > 1 and values[-1] - values[-2] < least) or is_known(intermediate_result.x, values[-1]):
            raise StopIteration

    settings = {"ftol": 0.0, **settings}
    result = minimize(descend, z0, jac=True, method="L-BFGS-B", bounds=bounds, options=settings, callback=watch)
    return result, "StopIteration" in str(result.message)


def maximize_lbfgs_preconditioned(objective: Objective, x0: Array, information: Array, tolerance: float) -> Optimum:
    """Return where L-BFGS ends from one start, in coordinates in which an information matrix is about the identity.

    Shapes: x0 (n,), information (n, n).
    """
    axes = _preconditioner(information)

    def descend(z: Array) -> tuple[float, Array]:
        value, gradient = objective.evaluate(x0 + axes @ z)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -INFEASIBLE_VALUE, np.zeros_like(z)
        return -value, -(axes.T @ gradient)

    settings = {"maxiter": options.SEARCH.preconditioned_max_iterations, "maxcor": 30, "gtol": 1e-6}
    result, stopped = _minimize_lbfgs(objective, descend, settings, tolerance)
    converged = bool(result.success or stopped)
    message, inner = CONVERGED_MESSAGE if converged else str(result.message), np.zeros(len(x0), dtype=bool)
    return Optimum(x0 + axes @ result.x, -float(result.fun), converged, message, int(result.nfev), inner)


def _preconditioner(H: Array) -> Array:
    """Return the directions, as columns, in which a quadratic form is the identity; flat ones are not followed far."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-2))
    if not np.isfinite(H).all():
        return np.diag(np.where(np.isfinite(scale) & (scale > 0.0), scale, 1.0))
    sizes, vectors = np.linalg.eigh(H * np.outer(scale, scale))
    floor = options.SEARCH.preconditioner_floor * max(float(sizes.max()), 1e-300)
    return np.asarray(scale[:, None] * vectors / np.sqrt(np.maximum(sizes, floor)))


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
    """Return where L-BFGS-B ends from one start: if a step gains too little, or at a known optimum.

    Parameters that start near the truth, because the data suggested them, are trusted: steps change them less than the
    rest, and half as many steps are needed.

    Parameters, and lengthscales where short ones make evaluations dear, are reached in strides: a search that ends at
    the limit of its stride goes on from there, as long as that gains something.

    Shapes: x0 (n,).
    """
    scale = _step_scales(objective.layout, trusted=trusted)
    agreement = objective.engine.search_limits.evidence_tolerance if agreement is None else agreement
    arguments = x0, max_iterations, tolerance, known_optimum, scale, agreement
    found, is_steep = _run_lbfgs(objective, x0, *arguments)
    evaluations = found.n_evaluations
    while is_steep or _stopped_at_stride(objective, found, x0).any():
        following, is_steep = _run_lbfgs(objective, found.x, *arguments)
        evaluations += following.n_evaluations
        gain, before, found = following.value - found.value, found, following
        if gain < options.SEARCH.restart_gain:
            # Had it come to an end before, it has now: where a line leads nowhere, nothing new was learned.
            ended = before if before.converged else found
            at_bound = found.at_bound & ~_stopped_at_stride(objective, found, x0)
            found = replace(found, at_bound=at_bound, converged=ended.converged, message=ended.message)
            break
    return replace(found, n_evaluations=evaluations)


def _stopped_at_stride(objective: Objective, optimum: Optimum, centre: Array) -> NDArray[np.bool_]:
    """Return which entries ended at the limit of their stride, and could go farther, shape (n,)."""
    opt = options.SEARCH
    blocks = objective.layout.slices
    inner = np.zeros(objective.layout.size, dtype=bool)
    farthest = opt.max_parameter_distance - opt.at_bound_tolerance
    inner[blocks.theta] = np.abs(optimum.x[blocks.theta] - centre[blocks.theta]) < farthest
    lengthscales, reach = optimum.x[blocks.lengthscales], objective.engine.search_limits
    shortest = float(np.log(reach.min_lengthscale)) + opt.at_bound_tolerance
    longest = float(np.log(opt.longest_lengthscale_share * reach.max_lengthscale))
    inner[blocks.lengthscales] = (lengthscales > shortest) & (lengthscales < longest)
    return optimum.at_bound & inner


def _run_lbfgs(
    objective: Objective,
    x0: Array,
    centre: Array,
    max_iterations: int,
    tolerance: float,
    known_optimum: Optimum | None,
    scale: Array,
    agreement: float,
) -> tuple[Optimum, bool]:
    """Return where one stride of a search ends, and whether it is steep there; steps are measured in units of `scale`.

    A step that gains nothing where it is steep has lost its way: so it goes along walls of narrow valleys.
    """
    opt = options.SEARCH
    low, high = search_bounds(objective, x0, centre)
    start = np.clip(x0, low, high)

    def evaluate(x: Array) -> tuple[float, Array]:
        value, gradient = objective.evaluate(x)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            value, gradient = INFEASIBLE_VALUE, np.zeros_like(x)
        return value, scale * gradient

    first = evaluate(start)
    # The first step of L-BFGS-B is as long as the gradient, up to the limits of the search, from where many a search
    # does not find back: in this unit it is one.
    unit = max(1.0, float(np.linalg.norm(first[1])))

    def descend(z: Array) -> tuple[float, Array]:
        value, gradient = evaluate(start + scale * z) if z.any() else first
        return -value / unit, -gradient / unit

    def is_known(z: Array, value: float) -> bool:
        x = start + scale * z
        return known_optimum is not None and known_optimum.is_reached_by(x, value, objective.layout, agreement)

    box = np.stack([(low - start) / scale, (high - start) / scale], axis=1)
    settings = {"maxiter": max_iterations, "maxcor": 20, "gtol": 1e-5 / unit, "maxls": 15}
    found, stopped = _minimize_lbfgs(objective, descend, settings, tolerance, unit, is_known, bounds=box)
    x, value = np.clip(start + scale * found.x, low, high), -unit * float(found.fun)
    at_bound = (x <= low + opt.at_bound_tolerance) | (x >= high - opt.at_bound_tolerance)
    gradient = np.where(at_bound, 0.0, unit * found.jac / scale)
    flat = float(np.max(np.abs(gradient), initial=0.0)) < opt.flat_gradient_ratio * max(1.0, abs(value))
    message, converged = CONVERGED_MESSAGE if stopped else str(found.message), bool(found.success or flat or stopped)
    # One that looks where a start leads need not go on.
    is_steep = not flat and known_optimum is None and found.nit < max_iterations
    return Optimum(x, value, converged, message, int(found.nfev), at_bound), is_steep


def _step_scales(layout: ParameterLayout, *, trusted: bool) -> Array:
    """Return how far a step may well go in each entry of the vector, shape (n,)."""
    found, blocks = np.ones(layout.size), layout.slices
    found[blocks.theta] = 0.1 if trusted else 1.0
    found[blocks.lengthscales] = found[blocks.noise] = 0.5
    return found
