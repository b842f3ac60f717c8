"""Other parameter values that fit about as well as the estimate.

Equivalent parameters give exactly the same behaviour of all measured signals: the input-output equations have the same
coefficients there. These polynomial equations are solved by the Levenberg-Marquardt method from many starts: results
are correct, but distant ones may be missed. Other alternatives are local optima found by searches, and aliases: sampled
at multiples of one step, an oscillation cannot be distinguished from one that is faster by a full period per step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.diagnostics.profile_likelihood import ObjectiveSurface, profile_point
from lodekit.fitting import search_options as options
from lodekit.fitting.global_search import GlobalSearch
from lodekit.fitting.hessian import invert_information, observed_information
from lodekit.fitting.lbfgs import Optimum, maximize_lbfgs
from lodekit.fitting.objective import Objective
from lodekit.fitting.output_error import fit_others
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.scaling import time_gaps
from lodekit.fitting.setup import StructuralIdentifiability
from lodekit.fitting.starts.undriven import parameters_from_poles, parametric_pole_factors
from lodekit.prior.compile import ScalarFunctions
from lodekit.support.arguments import Array, Mask

#: Number of starting points of the Levenberg-Marquardt method.
_N_STARTS = 96
#: Coefficients are equal if their relative difference is below this.
_RESIDUAL_TOLERANCE = 1e-9
#: A solution is isolated if all singular values of the Jacobian, relative to the largest, are above this.
_RANK_TOLERANCE = 1e-7


def find_equivalent_parameters(
    structure: StructuralIdentifiability, layout: ParameterLayout, theta: Array
) -> list[tuple[Array, Array]]:
    """Return other values within all bounds with the same measured behaviour, nearest first.

    Sign changes are excluded, and so are values at which all channels have the same behaviour, such as exchanging p and
    q in ``p*q*y'' + (p + q)*y' + y = u``. One parameter per unidentifiable direction is fixed.

    Returns pairs of theta, in the user's units, (p,), and the Jacobian of the free parameters there with respect to
    those at the estimate, on the search scale, (k, k). Shapes: theta (p,).
    """
    free = np.array([n for n in layout.free_parameters if layout.names[n] not in structure.pivots], dtype=int)
    # A multistart search finds too little in more than 8 dimensions.
    if not len(free) or len(layout.free_parameters) > 8 or (table := structure.input_output_coefficients) is None:
        return []
    with np.errstate(all="ignore"):
        values, slopes = (each[0] for each in table.evaluate_many(theta[None]))
        rates = np.abs(slopes[free])
        used = rates.any(axis=0)
        is_finite = np.isfinite(values).all() and np.isfinite(slopes).all() and theta[free].all()
        if not is_finite or np.count_nonzero(used) < len(free):
            return []
        # Differences of coefficients beyond 0.3 of their magnitude are compared on a logarithmic scale.
        scales = 0.3 * np.where(values != 0.0, np.abs(values), rates.max(axis=0))[used]
        targets = np.arcsinh(values[used] / scales)

        def residuals(points: Array) -> tuple[Array, Array]:
            """Return residuals of coefficients at many points, (n, s), and derivatives in log parameters, (n, s, k)."""
            values, slopes = table.evaluate_many(points)
            scaled = values[:, used] / scales
            rates = slopes[:, free][:, :, used] / (scales * np.sqrt(1.0 + scaled**2))[:, None, :]
            return np.arcsinh(scaled) - targets, rates.transpose(0, 2, 1)

        def is_isolated(point: Array) -> bool:
            """Return whether the coefficients determine all free parameters near a point."""
            strengths = np.linalg.svd(np.nan_to_num(residuals(point[None])[1][0]), compute_uv=False)
            return bool(strengths[-1] > _RANK_TOLERANCE * strengths[0])

        if not is_isolated(theta):
            return []
        ends = _solve_levenberg_marquardt(residuals, _start_points(layout, free, theta), free)
        found: list[Array] = []
        # Points with more positive values first.
        for end in sorted(ends, key=lambda end: -int(np.count_nonzero(end > 0.0))):
            is_known = any(np.all(np.abs(np.log(np.abs(end / other)[free])) < 1e-3) for other in [theta, *found])
            inside = all(layout.transforms[int(n)].low < end[n] < layout.transforms[int(n)].high for n in free)
            if not is_known and inside and is_isolated(end):
                found.append(end)
        found = [end for end in found if not _is_same_system(structure, theta, end)]
        found.sort(key=lambda end: float(np.sum(np.log(np.abs(end[free] / theta[free])) ** 2)))
        pairs = [(end, _parameter_jacobian(table, layout, used, scales, (theta, end))) for end in found]
    return [(end, jacobian) for end, jacobian in pairs if np.isfinite(jacobian).all()]


def _start_points(layout: ParameterLayout, free: NDArray[np.int_], theta: Array) -> Array:
    """Return pseudo-random points around the estimate, from a fixed seed, (n, p); some with other signs if allowed."""
    generator, points = np.random.default_rng(0), np.tile(theta, (_N_STARTS, 1))
    # Starts lie within a factor of 1000 of the estimate.
    reach = np.log(1000.0) * np.where(np.arange(_N_STARTS) % 2, 1.0, 0.4)
    for n in sorted(free.tolist(), key=layout.names.__getitem__):
        points[:, n] *= np.exp(reach * generator.uniform(-1.0, 1.0, _N_STARTS))
        transform = layout.transforms[n]
        if transform.low < 0.0 < transform.high:
            points[: _N_STARTS // 3, n] *= generator.choice([-1.0, 1.0], _N_STARTS // 3)
    return points


def _solve_levenberg_marquardt(
    residuals: Callable[[Array], tuple[Array, Array]], theta: Array, free: NDArray[np.int_]
) -> list[Array]:
    """Return points with zero residuals, reached from many starts by steps in the logarithms of free parameters.

    Shapes: theta (n, p).
    """
    ends, damping = list[Array](), np.full(len(theta), 1e-2)
    left, rates = residuals(theta)
    cost, unit = np.nan_to_num(np.sum(left**2, axis=1), nan=np.inf), np.eye(len(free))
    for _ in range(40):
        square = np.nan_to_num(rates.transpose(0, 2, 1) @ rates)
        bent = damping * (1e-12 + np.trace(square, axis1=1, axis2=2))
        slope = np.nan_to_num(np.einsum("nsk,ns->nk", rates, left))
        step = -np.linalg.solve(square + (bent + 1e-300)[:, None, None] * unit, slope[..., None])[..., 0]
        step /= np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True) / 2.0)
        tried = theta.copy()
        tried[:, free] *= np.exp(step)
        left_there, rates_there = residuals(tried)
        cost_there = np.nan_to_num(np.sum(left_there**2, axis=1), nan=np.inf)
        better = cost_there < cost
        theta[better], left[better], rates[better] = tried[better], left_there[better], rates_there[better]
        cost = np.minimum(cost, cost_there)
        damping = np.where(better, np.maximum(0.1 * damping, 1e-14), 5.0 * damping)
        is_open = (cost > _RESIDUAL_TOLERANCE**2) & (damping < 1e3)
        ends += [theta[k] for k in np.flatnonzero(cost <= _RESIDUAL_TOLERANCE**2)]
        if not is_open.any():
            break
        theta, left, rates, cost, damping = (each[is_open] for each in (theta, left, rates, cost, damping))
    return ends


def _parameter_jacobian(
    table: ScalarFunctions, layout: ParameterLayout, used: Mask, scales: Array, points: tuple[Array, Array]
) -> Array:
    """Return the Jacobian of the free parameters at the second point with respect to those at the first, (k, k)."""
    learned, transforms, rates = layout.free_parameters, layout.transforms, []
    for theta in points:
        _, slopes = (each[0] for each in table.evaluate_many(theta[None]))
        units = [transforms[n].derivative(transforms[n].inverse(float(theta[n]))) / theta[n] for n in learned]
        rates.append((slopes[learned][:, used] * np.array(units)[:, None] / scales).T)
    return np.asarray(np.linalg.pinv(rates[1], rcond=_RANK_TOLERANCE) @ rates[0])


def _is_same_system(structure: StructuralIdentifiability, theta: Array, other: Array) -> bool:
    """Return whether all channels, measured or not, have the same behaviour at both parameter values."""
    if structure.all_channel_coefficients is None:
        return False
    here, there = structure.all_channel_coefficients.evaluate_many(np.stack([theta, other]))[0]
    return bool(np.all(np.abs(there - here) <= 100.0 * _RESIDUAL_TOLERANCE * np.maximum(np.abs(here), np.abs(there))))


#: Alternatives are reported if their log evidence is lower by at most the first number; below the second, it is equal.
_MAX_LOG_DROP, _SAME_EVIDENCE = 2.0, 1e-2


@dataclass(frozen=True)
class AlternativeOptimum:
    """Parameter values that fit about as well as the estimate.

    point: The search vector.
    below: The objective at the estimate minus that at the point; negative if the point is better.
    is_alias: Whether it is an alias: an oscillation with the same samples at times that are multiples of one step.
    values: Free parameters that differ, in the user's units; empty if all are within the errors of the estimate.
    errors: Standard errors of all free parameters there, on the search scale; zero or missing if unknown.
    is_twin: Whether all measured channels have exactly the same behaviour as at the estimate.
    """

    point: tuple[float, ...]
    below: float
    is_alias: bool
    values: Mapping[str, float]
    errors: Mapping[str, float]
    is_twin: bool = False

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> AlternativeOptimum:
        """Return an alternative optimum read from JSON; older files lack `is_twin`."""
        point, own = tuple(float(each) for each in state["point"]), (dict(state["values"]), dict(state["errors"]))
        return cls(point, float(state["below"]), bool(state["is_alias"]), *own, bool(state.get("is_twin", False)))


def find_alternative_optima(
    objective: Objective,
    optimum: Optimum,
    information: Array,
    times: Sequence[Array],
    structure: StructuralIdentifiability | None = None,
) -> tuple[AlternativeOptimum, ...]:
    """Return other parameter values that fit about as well, the largest objective first.

    Shapes: information (n, n).
    """
    layout = objective.layout
    if not layout.free_parameters:
        return ()
    covariance = invert_information(information, ~optimum.at_bound)[layout.slices.theta, layout.slices.theta]
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    errors[optimum.at_bound[layout.slices.theta]] = np.inf
    found = [] if structure is None else _find_equivalent_optima(objective, optimum, covariance, errors, structure)
    starts = [(x, True) for x in _alias_points(objective, optimum, times)]
    starts += [(x, False) for value, x in optimum.other_optima if value > optimum.value - _MAX_LOG_DROP - 1.0]
    search = GlobalSearch.around(objective, optimum.x)
    distant = _distant_points(objective, optimum, information, errors, structure)
    starts += [(x, False) for x in (distant if search is None else _global_points(search, optimum, structure))]
    is_slow = search is not None and not is_beyond_nyquist(objective, optimum.x, times)
    rivals = list[AlternativeOptimum]()
    for start, is_alias in starts:
        # Even with large standard errors, a point 0.2 away on the search scale may belong to another optimum.
        if _distinct_parameters(objective, start, optimum.x, np.minimum(errors, 0.2)):
            rival = _search_from(objective, optimum, start, errors)
            if rival is not None:
                is_fast = is_slow and is_beyond_nyquist(objective, np.array(rival.point), times)
                rivals.append(replace(rival, is_alias=is_alias or is_fast))
    for rival in sorted(rivals, key=lambda rival: rival.below):
        point, others = np.array(rival.point), [optimum.x, *(np.array(each.point) for each in found)]
        own = errors if rival.values else np.zeros_like(errors)
        # Standard errors of the estimate mean little at a better optimum.
        is_best = rival.below < min([-options.SEARCH.equivalent_switch_gain, *(each.below for each in found)])
        is_new = is_best or all(_distinct_parameters(objective, point, each, own) for each in others)
        found += [rival] if is_new and not _exchanges_unneeded(layout, optimum, rival) else []
    return tuple(sorted(found, key=lambda rival: rival.below))


def _global_points(search: GlobalSearch, optimum: Optimum, structure: StructuralIdentifiability | None) -> list[Array]:
    """Return the best point of a global search, and those with the least and the largest value of each parameter.

    Of unidentifiable directions, one parameter is fixed.
    """
    pivots = [search.regression.layout.index_of(name) for name in ([] if structure is None else structure.pivots)]
    ends = search.find_points(optimum.x, _MAX_LOG_DROP, {k: float(optimum.x[k]) for k in pivots})
    values = ends[:, : len(search.low)]
    return list(ends[np.unique([0, *values.argmin(axis=0), *values.argmax(axis=0)])] if len(ends) else ends)


def is_beyond_nyquist(objective: Objective, x: Array, times: Sequence[Array]) -> bool:
    """Return whether a mode oscillates at more than half the sampling frequency of regular samples."""
    observables, groups = objective.engine.prior.observables, objective.engine.prior.groups
    coefficients = observables.evaluate(objective.layout.unpack(x).theta)
    rates = observables.exponents(coefficients, groups, include_signals=False).imag / observables.units.time_scale
    # NaN, and so false, if there is no common step.
    return bool(np.max(np.abs(rates), initial=0.0) * find_common_sampling_step(times) > np.pi)


#: Without a global search, other optima are searched for if the output-error method applies, or if a standard error on
#: the search scale exceeds the first number. Parameters are moved by the second number, to points whose log evidence is
#: lower by at most the last one.
_MIN_DOUBTFUL_STD, _START_DISTANCE, _MAX_START_DROP = 0.1, 2.0, 20.0


def _distant_points(
    objective: Objective,
    optimum: Optimum,
    information: Array,
    errors: Array,
    structure: StructuralIdentifiability | None,
) -> Iterator[Array]:
    """Yield points with one parameter moved far, to its expected magnitude or to the other sign, others re-optimised.

    Shapes: information (n, n), errors (p,).
    """
    layout, known = objective.layout, structure.unidentifiable if structure is not None else []
    moving = [(k, layout.transforms[n]) for k, n in enumerate(layout.free_parameters) if layout.names[n] not in known]
    is_doubtful = objective.regression is not None or any(errors[k] > _MIN_DOUBTFUL_STD for k, _ in moving)
    if objective.engine.size > options.SEARCH.max_global_rows or not is_doubtful:
        return
    for k, transform in moving:
        here, surface = float(optimum.x[k]), ObjectiveSurface(objective, optimum, information, [k], "relearned")
        expected = transform.expected_point(here)
        targets = [here - _START_DISTANCE, here + _START_DISTANCE, expected]
        for there in dict.fromkeys([*targets, -here, -expected] if transform.is_unbounded else targets):
            with np.errstate(all="ignore"):
                found = profile_point(surface, optimum.x, k, there, [], retry=False)
                if surface.relative_value(found) > -_MAX_START_DROP:
                    yield found


def _search_from(objective: Objective, optimum: Optimum, start: Array, errors: Array) -> AlternativeOptimum | None:
    """Return the optimum reached from a point if it fits about as well; without values if it is near the estimate."""
    with np.errstate(all="ignore"):
        start = fit_others(objective, start, np.flatnonzero(~optimum.at_bound))
        other = maximize_lbfgs(objective, start, tolerance=1e-3, max_iterations=100, known_optimum=optimum)
    point, below = tuple(other.x.tolist()), optimum.value - other.value
    if not below < _MAX_LOG_DROP:
        return None
    names = _distinct_parameters(objective, other.x, optimum.x, errors)
    if not names:
        return AlternativeOptimum(point, below, False, {}, {})
    layout, theta = objective.layout, objective.layout.unpack(other.x).theta
    with np.errstate(all="ignore"):
        free = ~(other.at_bound | (optimum.at_bound & (other.x == optimum.x)))
        covariance = invert_information(observed_information(objective, other.x), free)
    spread = np.nan_to_num(np.sqrt(np.maximum(np.diag(covariance), 0.0)), posinf=0.0)
    values = {name: float(theta[layout.names.index(name)]) for name in names}
    errors_there = {layout.names[n]: float(spread[k]) for k, n in enumerate(layout.free_parameters)}
    return AlternativeOptimum(point, below, False, values, errors_there)


def _find_equivalent_optima(
    objective: Objective, optimum: Optimum, covariance: Array, errors: Array, structure: StructuralIdentifiability
) -> list[AlternativeOptimum]:
    """Return optima at equivalent parameter values; the prior of free functions and states may change the objective."""
    layout, found = objective.layout, list[AlternativeOptimum]()
    # Variances of unidentified parameters are infinite; they must not affect those of others through rounding.
    known = np.where(np.isfinite(covariance), covariance, 0.0)
    for theta, jacobian in find_equivalent_parameters(structure, layout, layout.unpack(optimum.x).theta):
        x = optimum.x.copy()
        x[layout.slices.theta] = [layout.transforms[n].inverse(float(theta[n])) for n in layout.free_parameters]
        names = _distinct_parameters(objective, x, optimum.x, errors)
        if not names or _leaves_bound(optimum, x):
            continue
        with np.errstate(all="ignore"):
            below = optimum.value - objective.value(x)
        if abs(below) < _SAME_EVIDENCE:
            # With the same evidence, the standard errors are transformed by the Jacobian, and no search is needed.
            spread = np.sqrt(np.maximum(np.diag(jacobian @ known @ jacobian.T), 0.0))
            own = {layout.names[n]: float(spread[k]) for k, n in enumerate(layout.free_parameters)}
            values = {name: float(theta[layout.names.index(name)]) for name in names}
            rival: AlternativeOptimum | None = AlternativeOptimum(tuple(x.tolist()), below, False, values, own)
        else:
            rival = _search_from(objective, optimum, x, errors)
        if rival is None or _distinct_parameters(objective, np.array(rival.point), x, errors):
            continue
        values = {name: each for name, each in rival.values.items() if name not in structure.unidentifiable}
        if values:
            found.append(replace(rival, values=values, is_twin=True))
    return found


def _leaves_bound(optimum: Optimum, x: Array) -> bool:
    """Return whether a parameter that is at a bound at the optimum is elsewhere.

    A lag that is best at zero is not needed; exchanging it with another one is not an alternative.
    """
    return bool(np.any(optimum.at_bound & (np.abs(x - optimum.x) > 1.0)))


def _exchanges_unneeded(layout: ParameterLayout, optimum: Optimum, rival: AlternativeOptimum) -> bool:
    """Return whether the alternative exchanges an unneeded parameter at a bound with another one, with the same fit."""
    stuck = [layout.names[n] for k, n in enumerate(layout.free_parameters) if optimum.at_bound[k]]
    # Standard errors on the search scale are stored as zero at a bound, and are large next to it.
    is_lost = any(not 0.0 < error < 3.0 for name, error in rival.errors.items() if name not in stuck)
    return is_lost and abs(rival.below) < _SAME_EVIDENCE and _leaves_bound(optimum, np.array(rival.point))


def _distinct_parameters(objective: Objective, x: Array, centre: Array, errors: Array) -> list[str]:
    """Return the parameters that differ between two points by more than their errors."""
    layout, found = objective.layout, []
    for position, number in enumerate(layout.free_parameters):
        transform, error = layout.transforms[number], float(errors[position])
        apart = abs(float(x[position] - centre[position]))
        if transform.is_unbounded:
            here, there = (transform.forward(float(each[position])) for each in (centre, x))
            size = max(abs(here), transform.expected_magnitude)
            apart, error = abs(there - here) / size, error * transform.derivative(float(centre[position])) / size
        # Distinct: five standard errors away, and 0.05 on the search scale.
        if apart > max(5.0 * error, 0.05):
            found.append(layout.names[number])
    return found


def find_common_sampling_step(times: Sequence[Array]) -> float:
    """Return the step of which all sampling intervals are multiples; NaN if there is none."""
    gaps = time_gaps(times)
    if not len(gaps):
        return math.nan
    step = float(gaps.min())
    turns = gaps / step
    return step if bool(np.all(np.abs(turns - np.rint(turns)) < 1e-4)) else math.nan


def _alias_points(objective: Objective, optimum: Optimum, times: Sequence[Array]) -> Iterator[Array]:
    """Yield points at which one oscillation of an autonomous system is replaced by an alias with the same samples."""
    prior, layout = objective.engine.prior, objective.layout
    factors = parametric_pole_factors(prior)
    if not factors or math.isnan(step := find_common_sampling_step(times)):
        return
    turn, theta = 2.0 * np.pi * prior.units.time_scale / step, layout.unpack(optimum.x).theta
    own = prior.observables.evaluate(theta).factors
    roots = [root for k in factors for root in np.roots(np.asarray(own[k])[::-1]) if root.imag >= 0.0]
    generator = np.random.default_rng(0)
    for number, root in enumerate(roots):
        # The mirrored frequency has the same samples.
        other = abs(turn - root.imag)
        # With three samples per period or more, an alias would be implausibly fast.
        if not root.imag > 0.0 or min(other, root.imag) < turn / 3.0:
            continue
        wanted = np.array([*roots[:number], complex(root.real, other), *roots[number + 1 :]])
        found = parameters_from_poles(prior, factors, layout, wanted, generator, initial_theta=theta)
        if found is not None:
            x = optimum.x.copy()
            x[layout.slices.theta] = [layout.transforms[n].inverse(float(found[n])) for n in layout.free_parameters]
            yield x
