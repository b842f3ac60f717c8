"""Identifiability of parameters: structural identifiability, excitation, and profile likelihood.

A direction v of the parameters is not excited if ``(dA/dv) c - df/dv``, with the posterior of the curves c inserted,
cannot be distinguished from zero: the same curves solve the equations for other values. ``m x'' + c x' + k x = F``, for
example, holds for a damped sine with many m, c and k. The prior still prefers one of them, so the Hessian of the
objective does not show this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from lodekit.algebra.operators import OperatorMatrix
from lodekit.diagnostics.equivalent_parameters import AlternativeOptimum
from lodekit.diagnostics.profile_likelihood import (
    CHI2_95_HALF,
    IntervalRung,
    ObjectiveSurface,
    ProfilePath,
    continue_profiles,
    find_fall,
    has_equivalent_beyond_infinity,
    profile_from_bounds,
    profile_interval,
    profile_likelihood,
)
from lodekit.diagnostics.residual_tests import FittedRecord
from lodekit.errors import LodekitError
from lodekit.fitting.hessian import invert_information, observed_information, residual_dof_fraction
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.objective import Objective
from lodekit.fitting.setup import StructuralIdentifiability
from lodekit.prior.compile import ScalarFunctions, SignalFunctions
from lodekit.prior.observables import ObservableCompiler
from lodekit.support.arguments import Array
from lodekit.system.signals import ExponentialPolynomial
from lodekit.system.structural_identifiability import find_implied_equations, format_invariants
from lodekit.uncertainty.estimates import (
    AT_BOUND_MESSAGES,
    NORMAL_QUANTILE_95,
    NOT_IDENTIFIED_MESSAGE,
    Estimate,
    confidence_interval,
    inflated_quantile,
    student_quantile,
)

#: A direction is not excited if its squared effect is less than this many times the variance of the effect.
_MIN_SIGNAL_TO_NOISE = 12.0


def _derivatives(record: FittedRecord, times: Array, pairs: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    """Return posterior means of derivatives (channel, order), (n, o), and their covariances at each time, (n, o, o)."""
    names = record.setup.system.channels
    texts = [f"D({names[j]}, {k})" if k else names[j] for j, k in pairs]
    compiled = ObservableCompiler(record.setup.system).compile_unscaled(texts, record.prior.units)
    covariance, rows = record.posterior.covariance(compiled, times), np.arange(len(times))
    return record.posterior.mean(compiled, times), covariance[rows, :, rows, :]


def find_unexcited_directions(records: Sequence[FittedRecord], parameter_index: Sequence[int], scales: Array) -> Array:
    """Return directions in which parameters can change while the fitted curves still solve the equations, (k, n).

    Unmeasured channels are eliminated first. The information of all records is summed.

    Shapes: scales (n,).
    """
    nothing = np.zeros((0, len(parameter_index)))
    if any(each.prior.observables.input_response is not None or each.prior.disturbances for each in records):
        # Smooth curves do not represent jumps of an input, and disturbances have their own prior.
        return nothing
    signal, noise = np.zeros((2, len(parameter_index), len(parameter_index)))
    looked = False
    try:
        with np.errstate(all="ignore"):
            for record in records if len(parameter_index) else ():
                system, (start, stop) = record.setup.system, record.measurements.window
                channels = [name for name in system.channels if name in record.measurements.names]
                if channels and stop > start:
                    equations = find_implied_equations(system, channels)
                    more = _equation_moments(record, *equations, list(parameter_index), scales)
                    signal, noise, looked = signal + more[0], noise + more[1], True
            if not looked:
                return nothing
            scale = 1.0 / np.sqrt(np.diag(signal) + np.diag(noise) + 1e-300)
            signal, noise = (part * np.outer(scale, scale) for part in (signal, noise))
            # Shares of signal plus noise avoid a division by zero if something is known exactly.
            shares, vectors = eigh(signal, signal + noise + 1e-9 * np.eye(len(parameter_index)))
    except (LodekitError, np.linalg.LinAlgError, ValueError):
        # The elimination is too large, or values are not finite: no result.
        return nothing
    found = (scale[:, None] * vectors[:, shares < _MIN_SIGNAL_TO_NOISE / (1.0 + _MIN_SIGNAL_TO_NOISE)]).T
    return np.asarray(found / np.max(np.abs(found), axis=1, keepdims=True, initial=1e-300))


def _equation_moments(
    record: FittedRecord,
    operator: OperatorMatrix,
    forcing: Sequence[ExponentialPolynomial],
    parameter_index: list[int],
    scales: Array,
) -> tuple[Array, Array]:
    """Return the squared effects of changes of parameters on the equations, and their variances, (n, n) each."""
    terms = [(i, (j, k), value) for i, j, k, value in operator.terms()]
    pairs = sorted({pair for _, pair, _ in terms})
    signal, noise = np.zeros((2, len(parameter_index), len(parameter_index)))
    if not pairs:
        return signal, noise
    (start, stop), theta = record.measurements.window, record.hyperparameters.theta
    # Multiples of the golden ratio avoid resonance with periodic curves.
    times = start + (stop - start) * np.sort((0.5 + 0.6180339887498949 * np.arange(24)) % 1.0)
    mean, covariance = _derivatives(record, times, pairs)
    _, slopes = ScalarFunctions(operator.ring, [value for *_, value in terms]).evaluate(theta)
    sides = SignalFunctions(operator.ring, forcing).evaluate(theta, times)
    for i, (_, side_slopes) in enumerate(sides):
        weights = np.zeros((len(parameter_index), len(pairs)))
        for (equation, pair, _), slope in zip(terms, slopes.T, strict=True):
            if equation == i:
                weights[:, pairs.index(pair)] += slope[parameter_index] * scales
        change = mean @ weights.T - (side_slopes[parameter_index] * scales[:, None]).T
        squares, variances = change.T @ change, np.einsum("po,noq,rq->pr", weights, covariance, weights)
        # Equations are weighted by their precision.
        unit = float(np.trace(variances) + 1e-9 * np.trace(squares)) or 1.0
        signal += squares / unit
        noise += variances / unit
    return signal, noise


#: A parameter is not identified if its 95 % interval is wider than that of this standard error on the search scale.
_MAX_IDENTIFIED_STD = 2.0
#: The same for intervals of unbounded parameters around several optima, in units of their magnitude.
_MAX_RELATIVE_WIDTH = 100.0
#: Intervals follow from the Hessian if the standard error on the search scale is below the first number, and the
#: deviation of the profile from a parabola below the second, unless there are few degrees of freedom.
_MAX_QUADRATIC_STD, _MAX_QUADRATIC_BEND, _MIN_BENT_DOF = 0.15, 0.05, 10.0


@dataclass(frozen=True)
class IdentifiabilityResult:
    """The identifiability of a parameter, which takes precedence over the standard error from the Hessian.

    identified: Whether the data determine the parameter.
    note: Why there is no interval; empty if there is one.
    reason: How this was determined: ``"structure"`` by exact algebra, ``"size"`` if it is confounded with the std of a
        disturbance, ``"motion"`` if the curves solve the equations for other values, too, ``"flat"``, ``"side"`` and
        ``"profile"`` by the profile likelihood, ``"bound"`` by moving other parameters away from their bounds,
        ``"rival"`` and ``"alias"`` if other values fit about as well, ``"twin"`` if they give exactly the same
        behaviour, ``"few"`` if there are too few measurements, ``"unresolved"`` if noise-free data are undersampled,
        ``"failed"`` if the search has failed.
    interval: The 95 % interval in the user's units; None if unknown.
    ladder: Intervals at several levels: the quantile of the normal distribution and both ends of each.
    combinations: Identifiable combinations of this and other parameters, such as ``a + b``, if they are simple.
    """

    identified: bool
    note: str
    reason: str
    interval: tuple[float, float] | None = None
    ladder: tuple[IntervalRung, ...] = ()
    combinations: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> IdentifiabilityResult:
        """Return a result read from JSON, in which infinite ends are None; older files have no ladders."""

        def ends(low: float | None, high: float | None) -> tuple[float, float]:
            return -math.inf if low is None else float(low), math.inf if high is None else float(high)

        interval = None if state["interval"] is None else ends(*state["interval"])
        ladder = tuple((float(deviate), *ends(low, high)) for deviate, low, high in state.get("ladder", ()))
        more = interval, ladder, tuple(state.get("combinations", ()))
        return cls(bool(state["identified"]), str(state["note"]), str(state["reason"]), *more)

    def interval_at(self, value: float, confidence: float, quantile: float | None = None) -> tuple[float, float] | None:
        """Return the interval at a confidence level around a value, if known, interpolated between levels."""
        if self.interval is None or (confidence == 0.95 and quantile is None) or not (self.identified or self.ladder):
            return self.interval
        rungs = ((0.0, value, value), *(self.ladder or ((NORMAL_QUANTILE_95, *self.interval),)))
        deviate = student_quantile(confidence) if quantile is None else quantile
        after = next((k for k, rung in enumerate(rungs) if rung[0] >= deviate), len(rungs) - 1)
        (below, *inner), (above, *outer) = rungs[after - 1], rungs[after]
        return _interpolate_interval((deviate - below) / (above - below), inner, outer)

    def extended_by(self, other: IdentifiabilityResult, value: float) -> IdentifiabilityResult:
        """Return the result with intervals that also contain those of another result, around the same value."""

        def join(own: Sequence[float], level: float) -> tuple[float, float]:
            more = other.interval_at(value, 0.95, level) or own
            return min(own[0], more[0]), max(own[1], more[1])

        rungs = tuple((level, *join(ends, level)) for level, *ends in self.ladder)
        return replace(self, interval=self.interval and join(self.interval, NORMAL_QUANTILE_95), ladder=rungs)


def _interpolate_interval(fraction: float, inner: Sequence[float], outer: Sequence[float]) -> tuple[float, float]:
    """Return an interval interpolated between two others, or extrapolated; logarithmically if all ends are positive."""
    if min(*inner, *outer) > 0.0 and math.isfinite(outer[1]):
        ends = ((1.0 - fraction) * math.log(a) + fraction * math.log(b) for a, b in zip(inner, outer, strict=True))
        # exp(700) is near the largest float.
        low, high = (math.exp(end) if end < 700.0 else math.inf for end in ends)
    else:
        low, high = (b if math.isinf(b) else a + fraction * (b - a) for a, b in zip(inner, outer, strict=True))
    return low, high


def apply_identifiability(
    estimates: Mapping[str, Estimate],
    results: Mapping[str, IdentifiabilityResult],
    has_enough_rows: bool,
    confidence: float = 0.95,
    quantiles: Mapping[str, float] | None = None,
) -> dict[str, Estimate]:
    """Return estimates with standard errors and intervals corrected by the identifiability results."""
    found = dict(estimates)
    for name, verdict in results.items():
        reach = (quantiles or {}).get(name) if verdict.reason in ("profile", "side") and verdict.ladder else None
        old, interval = estimates[name], verdict.interval_at(estimates[name].value, confidence, reach)
        low_95, high_95 = verdict.interval or (math.nan, math.nan)
        error = (high_95 - low_95) / (2.0 * NORMAL_QUANTILE_95)
        if verdict.reason in ("bound", "rival") and interval is not None and old.identified:
            low, high = min(old.interval[0], interval[0]), max(old.interval[1], interval[1])
            found[name] = replace(old, std_error=max(old.std_error, error), interval=(low, high))
            continue
        if old.note in AT_BOUND_MESSAGES and verdict.reason not in ("structure", "size"):
            continue
        if not verdict.identified:
            limits = interval or (old.interval if not old.identified else (-math.inf, math.inf))
            found[name] = replace(old, std_error=math.inf, interval=limits, identified=False, note=verdict.note)
        elif verdict.reason == "profile" and interval is not None and old.identified:
            found[name] = replace(old, interval=interval)
        elif interval is not None and old.note == NOT_IDENTIFIED_MESSAGE and has_enough_rows:
            found[name] = replace(old, std_error=error, interval=interval, identified=True, note="")
    return found


Results = dict[str, IdentifiabilityResult]


def assess_structure(structure: StructuralIdentifiability) -> Results:
    """Return the structurally unidentifiable parameters, by name."""
    reasons = ("structure", structure.unidentifiable), ("size", structure.scale_confounded)
    return {name: IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, why) for why, names in reasons for name in names}


class LikelihoodShape(NamedTuple):
    """The objective near its optimum.

    information: Minus the Hessian at the optimum; (n, n).
    dof, bends: The results of `satterthwaite_dof`; (p,).
    """

    objective: Objective
    optimum: Optimum
    information: Array
    dof: Array
    bends: Array


def count_unknowns(objective: Objective, n_records: int) -> int:
    """Return the number of parameters, initial values of all records, and noise levels that are estimated."""
    layout, groups = objective.layout, objective.engine.prior.groups
    return len(layout.free_parameters) + n_records * sum(group.size for group in groups) + layout.n_noise_levels


def assess_identifiability(
    structure: StructuralIdentifiability,
    records: Sequence[FittedRecord],
    shape: LikelihoodShape,
    inflation_factors: Mapping[str, float],
) -> Results:
    """Return identifiability results that the Hessian does not give, by name: from algebra, curves and profiles.

    `inflation_factors` widen the intervals of parameters if residuals are correlated.
    """
    objective, optimum, information, *_ = shape
    layout, found = objective.layout, assess_structure(structure)
    # An estimated noise level requires one measurement more.
    if objective.engine.size < count_unknowns(objective, len(records)) + bool(layout.n_noise_levels):
        few = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "few")
        return dict.fromkeys((layout.names[n] for n in layout.free_parameters), few) | found
    named = ((n, layout.names[n]) for n in layout.free_parameters)
    free = [n for n, name in named if name not in found and objective.parameters[name].prior is None]
    theta = layout.unpack(optimum.x).theta
    sizes = np.array([max(abs(float(theta[n])), layout.transforms[n].expected_magnitude) for n in free])
    for way in find_unexcited_directions(records, free, sizes):
        for number, share in zip(free, way, strict=True):
            if abs(share) > 0.1:
                found[layout.names[number]] = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "motion")
    # If only combinations are determined, one parameter of each is fixed, which makes searches shorter.
    pivots = [layout.index_of(name) for name in sorted(structure.pivots)]
    held = replace(optimum, at_bound=optimum.at_bound | np.isin(np.arange(layout.size), pivots))
    around = LikelihoodShape(objective, held, information, *shape[3:])
    profiled, paths = _assess_profiles(around, found, inflation_factors)
    found |= profiled
    paths += _profile_combinations(around, structure.unidentifiable, pivots)
    with np.errstate(all="ignore"):
        paths += continue_profiles(objective, held, information, paths)
    found |= _assess_near_bounds(shape, found, paths)
    combinations = find_flat_combinations(objective, optimum, information)
    for name, result in found.items():
        if not result.identified and result.reason in ("flat", "side"):
            found[name] = replace(result, combinations=combinations.get(name, ()))
    return found


#: Directions with less curvature than this, relative to that along single parameters, are flat; the objective may
#: change by up to 0.1 nats along them, and their weights are fractions with denominators up to 6.
_MAX_FLAT_EIGENVALUE, _MAX_FLAT_CHANGE, _MAX_DENOMINATOR = 1e-4, 0.1, 6


def find_flat_combinations(objective: Objective, optimum: Optimum, information: Array) -> dict[str, tuple[str, ...]]:
    """Return identifiable combinations of unidentified parameters, such as ``a + b`` or ``a*b``, if simple, by name.

    Flat directions of the information, in the parameters or in their logarithms, are rounded to simple fractions; the
    objective must be constant along the rounded directions.

    Shapes: information (n, n).
    """
    layout, inner = objective.layout, np.flatnonzero(~optimum.at_bound)
    part, names = information[np.ix_(inner, inner)], [layout.names[number] for number in layout.free_parameters]
    if not names or not np.isfinite(part).all():
        return {}
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), 1e-6))
    eigenvalues, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    ways = np.zeros((int(np.sum(eigenvalues < _MAX_FLAT_EIGENVALUE)), layout.size))
    ways[:, inner] = (scale[:, None] * vectors[:, eigenvalues < _MAX_FLAT_EIGENVALUE]).T
    # Directions of lengthscales, standard deviations and noise levels alone are ignored.
    ways = ways[np.max(np.abs(ways[:, : len(names)]), axis=1) > 0.1 * np.max(np.abs(ways), axis=1)]
    pairs = list(zip(layout.transforms.values(), optimum.x.tolist(), strict=False))
    values = np.array([transform.forward(x) for transform, x in pairs])
    moves = ways[:, : len(names)] * [transform.derivative(x) for transform, x in pairs]

    def is_flat(weights: Array, are_powers: bool) -> bool:
        steps = 0.5 / np.max(np.abs(weights if are_powers else weights / values)) * np.outer([-1.0, 1.0], weights)
        ends = np.tile(optimum.x, (2, 1))
        for x, moved in zip(ends, values * np.exp(steps) if are_powers else values + steps, strict=True):
            x[: len(names)] = [pair[0].inverse(value) for pair, value in zip(pairs, moved.tolist(), strict=True)]
        return all(abs(objective.value(x) - optimum.value) < _MAX_FLAT_CHANGE for x in ends)

    for are_powers, rows in ((False, moves), (True, moves / np.where(values == 0.0, np.inf, values))):
        simple = _rational_echelon_form(rows)
        if simple and all(is_flat(np.array(row, dtype=float), are_powers) for row in simple):
            # In alphabetical order, so that the combinations do not depend on the order of declaration.
            involved = sorted(name for k, name in enumerate(names) if any(row[k] for row in simple))
            directions = [{n: value for n, value in zip(names, row, strict=True) if n in involved} for row in simple]
            return dict.fromkeys(involved, tuple(format_invariants(involved, directions, are_powers=are_powers)))
    return {}


def _rational_echelon_form(rows: Array) -> list[list[Fraction]]:
    """Return the reduced echelon form of rows, rounded to simple fractions; empty if entries are not close to these."""
    left, found = rows / np.max(np.abs(rows), axis=1, keepdims=True, initial=1e-300), []
    for k in range(len(left)):
        row, column = np.unravel_index(int(np.argmax(np.abs(left[k:]))), left[k:].shape)
        left[[k, k + row]] = left[[k + row, k]]
        left[k] /= left[k, column]
        left -= np.outer(np.where(np.arange(len(left)) == k, 0.0, left[:, column]), left[k])
    for values in left.tolist() if np.isfinite(left).all() else ():
        found.append([Fraction(value).limit_denominator(_MAX_DENOMINATOR) for value in values])
        if any(abs(value - float(simple)) > 0.01 for value, simple in zip(values, found[-1], strict=True)):
            return []
    return found


def _exceeds_interval(interval: tuple[float, float], known: IdentifiabilityResult) -> bool:
    """Return whether an interval extends clearly beyond one found by profile likelihood."""
    if known.interval is None or known.reason not in ("profile", "side"):
        return False
    finite = [edge for edge in known.interval if math.isfinite(edge)]
    margin = 0.05 * (max(finite) - min(finite) if len(finite) > 1 else abs(finite[0]) if finite else math.inf)
    return interval[0] < known.interval[0] - margin or interval[1] > known.interval[1] + margin


def _assess_near_bounds(shape: LikelihoodShape, known: Results, paths: Sequence[tuple[int, ProfilePath]]) -> Results:
    """Return results of parameters whose intervals widen if others move away from their bounds, or from near these."""
    objective, optimum, information, *_ = shape
    layout, found = objective.layout, {}
    for name, ladder in profile_from_bounds(objective, optimum, information, paths).items():
        interval = next((low, high) for deviate, low, high in ladder if deviate == NORMAL_QUANTILE_95)
        transform, point = layout.transform_of(name), float(optimum.x[layout.index_of(name)])
        if transform is None or (name in known and not _exceeds_interval(interval, known[name])):
            continue
        value = transform.forward(point)
        far = max(transform.distance(value, edge) for edge in interval)
        # Too wide, or beyond a one-sided limit found by a profile.
        is_open = far > NORMAL_QUANTILE_95 * _MAX_IDENTIFIED_STD or (name in known and not known[name].identified)
        inside = IdentifiabilityResult(True, "", "bound", interval, ladder)
        if is_open:
            found[name] = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "flat")
        else:
            found[name] = known[name].extended_by(inside, value) if name in known else inside
    return found


def assess_alternatives(shape: LikelihoodShape, alternatives: Sequence[AlternativeOptimum], known: Results) -> Results:
    """Return results of parameters for which other values fit about as well, by name.

    Their intervals contain all alternatives. Parameters with aliases or exactly equivalent values are not identified.
    """
    layout, found = shape.objective.layout, {}
    for position, number in enumerate(layout.free_parameters if alternatives else ()):
        name, transform = layout.names[number], layout.transforms[number]
        around = _interval_at_optimum(shape, name, known)
        reach = student_quantile(0.95, float(shape.dof[position]))
        edges = tuple(map(transform.inverse, around))
        # Optima next to the estimate or to a bound have no standard errors: steps are a fraction of the interval.
        step = 0.1 * (edges[1] - edges[0])
        places = [(np.array(each.point), reach * each.errors.get(name, 0.0) or step) for each in alternatives]
        is_outside = not all(edges[0] <= x[position] <= edges[1] for x, _ in places)
        if name in known and not known[name].identified:
            if is_outside:
                # An alternative optimum is outside the interval found by a profile.
                found[name] = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "flat")
            continue
        surface = ObjectiveSurface(*shape[:3], [position], "relearned")
        ends = [find_fall(surface, position, places, edge, sign) for edge, sign in zip(edges, (-1, 1), strict=True)]
        interval = transform.forward(ends[0]), transform.forward(ends[1])
        own = [rival for rival in alternatives if name in rival.values]
        if any(rival.is_alias or rival.is_twin for rival in own):
            others = ", ".join(f"{rival.values[name]:.4g}" for rival in own)
            is_alias = any(rival.is_alias for rival in own)
            # There is an alias for every additional turn per step.
            interval = (transform.low, transform.high) if is_alias else interval
            found[name] = IdentifiabilityResult(
                False, f"{others} fits equally well", "alias" if is_alias else "twin", interval
            )
            continue
        value = transform.forward(float(shape.optimum.x[position]))
        if transform.is_unbounded and max(transform.distance(value, end) for end in interval) > _MAX_RELATIVE_WIDTH:
            found[name] = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "flat")
        elif ends[1] - ends[0] > 2.0 * NORMAL_QUANTILE_95 * _MAX_IDENTIFIED_STD and not transform.is_unbounded:
            found[name] = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "rival", interval)
        elif own or tuple(ends) != edges:
            inside = IdentifiabilityResult(True, "", "rival", interval)
            found[name] = known[name].extended_by(inside, value) if name in known else inside
    return found


def _interval_at_optimum(shape: LikelihoodShape, name: str, known: Results) -> tuple[float, float]:
    """Return the interval of a parameter from its known result, if any, or from the Hessian; infinite if unknown."""
    if name in known:
        return known[name].interval or (-math.inf, math.inf)
    objective, optimum, information, dof, _ = shape
    layout, position = objective.layout, objective.layout.index_of(name)
    spread = math.sqrt(max(float(invert_information(information, ~optimum.at_bound)[position, position]), 0.0))
    reach = student_quantile(0.95, float(dof[position])) * spread
    return confidence_interval(layout.transforms[layout.free_parameters[position]], float(optimum.x[position]), reach)


def assess_signs(shape: LikelihoodShape, names: Sequence[str], known: Results) -> Results:
    """Return results of parameters whose sign the data do not identify, by name; a start value determines the sign."""
    layout, found = shape.objective.layout, Results()
    theta = layout.unpack(shape.optimum.x).theta
    for name in names:
        if layout.transform_of(name) is None or shape.objective.parameters[name].start is not None:
            continue
        value = float(theta[layout.names.index(name)])
        reach = max(map(abs, _interval_at_optimum(shape, name, known)))
        found[name] = IdentifiabilityResult(False, f"{-value:.4g} fits equally well", "twin", (-reach, reach))
    return found


def _assess_profiles(
    shape: LikelihoodShape, known: Results, inflation_factors: Mapping[str, float]
) -> tuple[Results, list[tuple[int, ProfilePath]]]:
    """Return profile results of parameters for which the Hessian is not reliable, with positions and profile paths."""
    objective, optimum, information, dof, bends = shape
    layout, found, paths = objective.layout, Results(), list[tuple[int, ProfilePath]]()
    errors = relative_standard_errors(objective, optimum, information)
    left = math.sqrt(residual_dof_fraction(layout, objective.engine.size, optimum.at_bound))
    variances = np.diag(invert_information(information, ~optimum.at_bound))
    remaining = [name for name in errors if name not in known]

    def is_doubtful(name: str) -> bool:
        # The Hessian is not sufficient if standard errors are large or profiles are not parabolas; with few degrees of
        # freedom no profile is one, which Student's t distribution accounts for. Next to unexcited directions, ridges
        # are curved.
        position = layout.index_of(name)
        is_parabola = bends[position] < _MAX_QUADRATIC_BEND or dof[position] < _MIN_BENT_DOF
        is_parabola = is_parabola and not any(result.reason == "motion" for result in known.values())
        # Profiles of other parameters stay inside the interval if the objective is quadratic.
        limit = 1.05 * NORMAL_QUANTILE_95 * math.sqrt(max(variances[position], 0.0))
        points = (point for _, path in paths for point in path if point[1] >= -CHI2_95_HALF)
        is_left = any(abs(float(x[position] - optimum.x[position])) > limit for x, _ in points)
        return is_left or not (0.0 < errors[name] < _MAX_QUADRATIC_STD and is_parabola)

    while name := next(filter(is_doubtful, remaining), None):
        remaining.remove(name)
        position, relative = layout.index_of(name), errors[name]
        if not 0.0 < relative < 3.0:
            interval, falls, both = profile_likelihood(objective, optimum, information, position)
            paths += ((position, path) for path in both)
            if not any(falls):
                found[name] = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "flat")
            elif not all(falls):
                found[name] = _one_sided_result(*interval, is_above=falls[1])
            if not all(falls):
                continue
            # The Hessian is not reliable: trace the profile with the standard error that follows from its width.
            transform = layout.transforms[layout.free_parameters[position]]
            value = transform.forward(float(optimum.x[position]))
            relative = sum(transform.distance(value, edge) for edge in interval) / (2.0 * NORMAL_QUANTILE_95)
        reach = inflated_quantile(0.95, float(dof[position]), inflation_factors.get(name, 1.0))
        state = relative, reach, left
        found[name], new_paths = _assess_profile_interval(objective, optimum, information, position, state)
        paths += ((position, path) for path in new_paths)
    for name, result in found.items():
        if result.reason == "side":
            position = layout.index_of(name)
            transform, point = layout.transforms[layout.free_parameters[position]], float(optimum.x[position])
            # A bound at several times the magnitude of the parameter, with the other sign, is not informative.
            far = min(transform.distance(transform.forward(point), end) for end in result.interval or ())
            is_far = transform.is_unbounded and far > NORMAL_QUANTILE_95 * _MAX_IDENTIFIED_STD
            # The last points of paths along which the profile does not fall.
            ends = (path[-1][0] for place, path in paths if place == position and path[-1][1] > -CHI2_95_HALF)
            if is_far or any(has_equivalent_beyond_infinity(*shape[:3], position, x) for x in ends):
                found[name] = IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "flat")
    return found, paths


def _profile_combinations(
    shape: LikelihoodShape, names: Sequence[str], pivots: Sequence[int]
) -> list[tuple[int, ProfilePath]]:
    """Return profiles of identifiable combinations of unidentifiable parameters, if the Hessian is not reliable.

    In ``a*b``, one factor, the pivot, is fixed and the other one is varied: other parameters may depend on it, above
    all if it is close to zero.
    """
    objective, held, information, *_ = shape
    layout, moves, paths = objective.layout, np.zeros(len(pivots)), list[tuple[int, ProfilePath]]()
    errors = relative_standard_errors(objective, held, information)
    doubtful = [name for name in names if name in errors and not 0.0 < errors[name] < _MAX_QUADRATIC_STD]
    if not doubtful:
        return paths
    # Fixed factors are set to their expected magnitude, so that the other ones have room to move.
    for k, place in enumerate(pivots):
        here = float(held.x[place])
        moves[k] = layout.transforms[layout.free_parameters[place]].expected_point(here) - here
    with np.errstate(all="ignore"):
        surface = ObjectiveSurface(objective, held, information, pivots, "relearned")
        x = surface.reoptimize(held.x + surface.directions @ moves)
        if not surface.relative_value(x) > -_MAX_FLAT_CHANGE:
            return paths
        moved, curvature = replace(held, x=x), observed_information(objective, x)
        for position in map(layout.index_of, doubtful):
            paths += ((position, path) for path in profile_likelihood(objective, moved, curvature, position)[2])
    return paths


def _one_sided_result(
    low: float, high: float, *, is_above: bool, ladder: tuple[IntervalRung, ...] = ()
) -> IdentifiabilityResult:
    """Return the result of a parameter that the data bound on one side only."""
    side, edge = ("at most", high) if is_above else ("at least", low)
    return IdentifiabilityResult(False, f"{side} {edge:.3g} (95 %)", "side", (low, high), ladder)


def _assess_profile_interval(
    objective: Objective, optimum: Optimum, information: Array, position: int, known: tuple[float, float, float]
) -> tuple[IdentifiabilityResult, list[ProfilePath]]:
    """Return the profile result of one parameter, and its paths.

    known: Standard error, 95 % quantile, and square root of the residual degrees of freedom fraction.
    """
    error, reach, left = known
    # Standard errors include the degrees of freedom used up by estimation, which the evidence does not.
    sides = profile_interval(objective, optimum, information, position, error * left, reach / left)
    (lower_end, is_open_below, *paths), (upper_end, is_open_above, *more) = sides
    paths += more
    if is_open_below and is_open_above:
        return IdentifiabilityResult(False, NOT_IDENTIFIED_MESSAGE, "flat"), paths
    # Fractions of the 95 % quantile: intervals of about 50, 90, 95, 99 and 99.9 %.
    levels = [share * reach for share in (0.34, 0.84, 1.0, 1.32, 1.7)]
    ladder = tuple((level, lower_end(level / left), upper_end(level / left)) for level in levels)
    low, high = ladder[2][1:]
    if is_open_below or is_open_above:
        return _one_sided_result(low, high, is_above=is_open_below, ladder=ladder), paths
    return IdentifiabilityResult(True, "", "profile", (low, high), ladder), paths


def relative_standard_errors(objective: Objective, optimum: Optimum, information: Array) -> dict[str, float]:
    """Return standard errors on the search scale, or relative to the magnitude of unbounded parameters, by name.

    Shapes: information (n, n).
    """
    layout, found = objective.layout, {}
    covariance = invert_information(information, ~optimum.at_bound)
    for position, number in enumerate(layout.free_parameters):
        transform, point = layout.transforms[number], float(optimum.x[position])
        if not optimum.at_bound[position]:
            spread = math.sqrt(max(float(covariance[position, position]), 0.0))
            size = max(abs(transform.forward(point)), transform.expected_magnitude)
            unit = transform.derivative(point) / size if transform.is_unbounded else 1.0
            found[layout.names[number]] = spread * unit
    return found
