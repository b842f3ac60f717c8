"""Refinement of an optimum by Newton's method with active bounds, in local coordinates around the end of a search.

The Hessian that standard errors require also gives Newton's steps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import combinations, product

import numpy as np

from lodekit.fitting import search_options as options
from lodekit.fitting.hessian import observed_information, whitening_axes
from lodekit.fitting.lbfgs import CONVERGED_MESSAGE, UNDEFINED_MESSAGE, Optimum, search_bounds
from lodekit.fitting.objective import Objective
from lodekit.support.arguments import Array, Mask
from lodekit.support.progress import report_best_value


def find_zero_barriers(objective: Objective, optimum: Optimum) -> list[int]:
    """Return the positions of unbounded parameters near zero that cannot change sign: a lag would become unstable."""
    x, least = optimum.x, optimum.value - options.SEARCH.zero_barrier_loss
    near = np.abs(x) < options.SEARCH.zero_barrier_distance
    places = [k for k, each in enumerate(objective.layout.transforms.values()) if each.is_unbounded and near[k]]
    with np.errstate(all="ignore"):
        return [k for k in places if not objective.value(np.where(np.arange(len(x)) == k, -x, x)) > least]


def snap_to_bounds(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which parameters next to a bound are moved to it, all to the same relative distance.

    Zero is a bound of an unbounded parameter that cannot change sign.

    On the scale of the search a bound is infinitely far away, so where a search towards it ends depends on rounding
    errors and units; the optimum at the bound does not.
    """
    opt = options.SEARCH
    layout, best, barriers = objective.layout, optimum, find_zero_barriers(objective, optimum)
    for place, number in enumerate(layout.free_parameters):
        transform, x = layout.transforms[number], best.x.copy()
        value = transform.forward(float(x[place]))
        bound, sign = transform.nearest_bound(value)
        end = transform.inverse(bound + sign * opt.bound_gap * transform.expected_magnitude)
        is_near = abs(value - bound) < opt.bound_snap_distance * transform.expected_magnitude
        is_wall = not transform.is_unbounded or place in barriers
        if not (is_near and is_wall) or (best.at_bound[place] and x[place] == end):
            continue
        x[place] = end
        with np.errstate(all="ignore"):
            there = objective.value(x)
        if there >= best.value - opt.max_snap_loss:
            at_bound = best.at_bound.copy()
            at_bound[place] = True
            best = replace(best, x=x, value=there, at_bound=at_bound)
    return best


def refine_newton(objective: Objective, optimum: Optimum, information: Array) -> tuple[Optimum, Array]:
    """Return a refined optimum, and minus the Hessian of the objective there, shape (n, n).

    A search ends when a step gains next to nothing. On a narrow ridge that may be far from the optimum; elsewhere the
    last digits depend on rounding errors. Newton's method converges to a zero of the gradient.

    Equations are linear in most of their parameters. If the data only determine combinations of parameters, the ridge
    is straight in the parameters and curved on the logarithmic scale of the search: rounds of steps alternate between
    linear coordinates, first, and those of the search. A positive parameter that is best at zero reaches its bound.

    Shapes: information (n, n).
    """
    opt, best = options.SEARCH, optimum
    for number in range(opt.newton_rounds if objective.layout.free_parameters else 1):
        best = snap_to_bounds(objective, best)
        if best.at_bound.all() or not np.isfinite(information[np.ix_(~best.at_bound, ~best.at_bound)]).all():
            break
        with np.errstate(all="ignore"):
            iteration = NewtonIteration(objective, best, linear=number % 2 == 0)
            # Near points that the engine rejects, the gradient may not be finite although the objective is.
            here = iteration.information_from_search(information, iteration.y, iteration.gradient)
            if not np.isfinite(iteration.free_block(here)).all():
                break
            end, information, promise = iteration.run(information)
        gain, best = end.value - best.value, end
        report_best_value(objective, objective.name, best.value)
        least = max(opt.newton_round_tolerance, iteration.negligible_gain)
        if not promise > least or (number and gain < least):
            break
    return _separate_modes(objective, snap_to_bounds(objective, best), information)


def _separate_modes(objective: Objective, optimum: Optimum, information: Array) -> tuple[Optimum, Array]:
    """Return an optimum at which no two modes coincide, and minus the Hessian there.

    At an optimum two lags are often equal. Near it the objective is flat, but rounding errors of its gradient grow with
    the inverse square of the distance: differences are ten times as wide as elsewhere.

    Shapes: information (n, n).
    """
    opt, layout, prior = options.SEARCH, objective.layout, objective.engine.prior

    def smallest_gap(x: Array) -> float:
        values = prior.observables.evaluate(layout.unpack(x).theta)
        rates = prior.observables.exponents(values, prior.groups, include_signals=False)
        gaps = np.abs(np.subtract.outer(rates, rates)) + np.diag(np.full(len(rates), np.inf))
        return float(gaps.min(initial=np.inf) / max(float(np.abs(rates).max(initial=0.0)), 1e-300))

    with np.errstate(all="ignore"):
        if layout.diffuse_modes is None or (gap := smallest_gap(optimum.x)) > 10.0 * opt.hessian_step:
            return optimum, information
        best, points, names = optimum, list[Array](), [layout.names[number] for number in layout.free_parameters]
        # In alphabetical order, so that the first parameter by name is the larger one.
        inner = sorted(np.flatnonzero(~optimum.at_bound[layout.slices.theta]).tolist(), key=names.__getitem__)
        for (first, second), sign in product(combinations(inner, 2), (-1.0, 1.0)):
            x = optimum.x.copy()
            x[first], x[second] = x[first] + opt.hessian_step, x[second] + sign * opt.hessian_step
            points += [x] if smallest_gap(x) > 0.1 * opt.hessian_step >= gap else []
        value, _, x = max(((objective.value(x), -k, x) for k, x in enumerate(points)), default=(-np.inf, 0, optimum.x))
        if value > optimum.value - opt.max_snap_loss:
            best = replace(optimum, x=x, value=value)
        return best, observed_information(objective, best.x, 10.0 * opt.hessian_step)


def _repair_information(information: Array, n_parameters: int) -> Array:
    """Return a positive definite information matrix; rounding errors may make off-diagonal entries too large.

    If scaling to a unit diagonal leaves an eigenvalue at or below zero, off-diagonal entries are reduced by a common
    factor until the smallest eigenvalue is `min_consistent_eigenvalue`. Rows of hyperparameters whose diagonal is not
    positive are decoupled from the others; the first `n_parameters` rows are those of parameters.
    """
    diagonal = np.diag(information)
    if not (diagonal[:n_parameters] > 0.0).all() or not (diagonal > 0.0).any():
        return information
    lost = diagonal <= 0.0
    found = np.where(lost[:, None] | lost, np.diag(diagonal), information)
    scale = 1.0 / np.sqrt(np.where(lost, 1.0, diagonal))
    lowest = float(np.linalg.eigvalsh((found * np.outer(scale, scale))[np.ix_(~lost, ~lost)]).min())
    share = min(1.0, (1.0 - options.SEARCH.min_consistent_eigenvalue) / max(1.0 - lowest, 1e-300))
    return found if lowest > 0.0 else np.asarray(share * found + (1.0 - share) * np.diag(diagonal))


def _update_bfgs(information: Array, step: Array, slope_change: Array) -> Array:
    """Return minus the Hessian after a step, by the formula of Broyden, Fletcher, Goldfarb and Shanno.

    slope_change: The gradient before the step minus that after it; (n,).

    Shapes: information (n, n), step (n,).
    """
    expected, curvature = information @ step, float(slope_change @ step)
    if not curvature > 0.0 or not float(expected @ step) > 0.0:
        return information
    change = np.outer(slope_change, slope_change) / curvature
    return np.asarray(information + change - np.outer(expected, expected) / float(expected @ step))


class NewtonIteration:
    """Newton's method in local coordinates: the objective as a function of moves `y` from an optimum, shape (n,).

    By default these are the coordinates of the search, in which positive parameters are logarithms and their bounds
    infinitely far away. In linear coordinates, moves of parameters are in units of the derivative of their transform
    at the start, but at least of a hundredth of their expected magnitude. The std of a free function is then replaced
    by its reciprocal: a common factor of parameters often scales a free function, so that this ridge is straight, too.
    """

    def __init__(self, objective: Objective, best: Optimum, *, linear: bool) -> None:
        opt, layout, x = options.SEARCH, objective.layout, best.x
        self.objective, self.x, self.best, self.value_noise = objective, x, best, 0.0
        self.transforms = list(layout.transforms.values()) if linear else []
        self.barriers = find_zero_barriers(objective, best) if linear else []
        self.reciprocal = layout.slices.deviations if linear else slice(0, 0)
        places = list(zip(self.transforms, x.tolist(), strict=False))
        self.values = np.array([transform.forward(point) for transform, point in places])
        # On the scale of the search a parameter near zero hardly changes any more; with this unit it does.
        self.units = np.array([max(transform.derivative(point), transform.scale) for transform, point in places])
        self.n_parameters = layout.slices.theta.stop
        # Predicted gain that is not worth more steps if they converge slowly and are expensive.
        is_expensive = objective.engine.size >= opt.max_cheap_rows or layout.n_disturbances
        self.negligible_gain = opt.converged_gain if is_expensive else 0.0
        self.y = np.zeros(len(x))
        self.gradient = self.evaluate(self.y)[1]
        self.set_free(~best.at_bound)

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """The smallest and largest moves, each of shape (n,)."""
        low, high = (limit - self.x for limit in search_bounds(self.objective, self.x, self.x))
        for k, transform in enumerate(self.transforms):
            gap = options.SEARCH.bound_gap * transform.expected_magnitude
            most = transform.forward(float(self.x[k] + high[k]))
            least = transform.forward(float(self.x[k] + low[k]))
            if not transform.is_unbounded:
                # A finite bound can be reached.
                least = transform.low + gap if np.isfinite(transform.low) else least
                most = transform.high - gap if np.isfinite(transform.high) else most
            elif k in self.barriers:
                least, most = (gap, most) if self.values[k] > 0.0 else (least, -gap)
            low[k] = min((least - self.values[k]) / self.units[k], 0.0)
            high[k] = max((most - self.values[k]) / self.units[k], 0.0)
        for limit in (low, high):
            limit[self.reciprocal] = -np.expm1(-limit[self.reciprocal])
        return low, high

    def point(self, y: Array) -> Array:
        """Return the parameter vector of the search after a move."""
        x = self.x + y
        for k, transform in enumerate(self.transforms):
            # Rounding errors must not change entries with a zero move.
            x[k] = transform.inverse(self.values[k] + self.units[k] * y[k]) if y[k] else self.x[k]
        x[self.reciprocal] = self.x[self.reciprocal] - np.log1p(-y[self.reciprocal])
        return np.asarray(x)

    def evaluate(self, y: Array) -> tuple[float, Array]:
        """Return the objective after a move, and its gradient with respect to the move."""
        x = self.point(y)
        value, gradient = self.objective.evaluate(x)
        return value, gradient / self._derivatives(x)[0]

    def active_bounds(self, y: Array, gradient: Array) -> Mask:
        """Return which entries are at an active bound: noise levels and, in linear coordinates, parameters; (n,)."""
        (low, high), noise = self.bounds, self.objective.layout.slices.noise
        is_active = np.zeros(len(y), dtype=bool)
        is_active[noise] = ((y <= low) & (gradient < 0.0) | (y >= high) & (gradient > 0.0))[noise]
        for k, transform in enumerate(self.transforms):
            at_wall = (y[k] <= low[k] and gradient[k] <= 0.0) or (y[k] >= high[k] and gradient[k] >= 0.0)
            is_active[k] = at_wall and (not transform.is_unbounded or k in self.barriers)
        return is_active

    def information_from_search(self, information: Array, y: Array, gradient: Array) -> Array:
        """Return minus the Hessian in the move, (n, n), given that on the search scale and the gradient in the move."""
        speeds, bends = self._derivatives(self.point(y))
        curvature = np.diag(np.where(bends, gradient * speeds * bends, 0.0))
        return np.asarray((information + curvature) / np.outer(speeds, speeds))

    def information_to_search(self, information: Array, y: Array, gradient: Array) -> Array:
        """Return minus the Hessian on the search scale, (n, n), given that in the move."""
        speeds, bends = self._derivatives(self.point(y))
        curvature = np.diag(np.where(bends, gradient * speeds * bends, 0.0))
        return np.asarray(information * np.outer(speeds, speeds) - curvature)

    def _derivatives(self, x: Array) -> tuple[Array, Array]:
        """Return the derivatives of the move in the search vector, and of their logarithms, each of shape (n,)."""
        speeds, bends = np.ones(len(x)), np.zeros(len(x))
        for k, transform in enumerate(self.transforms):
            speeds[k] = transform.derivative(float(x[k])) / self.units[k]
            bends[k] = transform.log_jacobian_gradient(float(x[k]))
        speeds[self.reciprocal] = np.exp(self.x[self.reciprocal] - x[self.reciprocal])
        bends[self.reciprocal] = -1.0
        return speeds, bends

    def set_free(self, is_free: Mask) -> None:
        """Set which entries are optimised."""
        self.free_index = np.flatnonzero(is_free)
        self.low, self.high = (limit[self.free_index] for limit in self.bounds)

    def move_within_bounds(self, move: Array) -> Array:
        """Return the full move after a further move of the free entries, clipped to their bounds."""
        y = self.y.copy()
        y[self.free_index] = np.clip(y[self.free_index] + move, self.low, self.high)
        return y

    def free_block(self, matrix: Array) -> Array:
        """Return the rows and columns of the free entries."""
        return matrix[np.ix_(self.free_index, self.free_index)]

    def run(self, information: Array) -> tuple[Optimum, Array, float]:
        """Return the optimum, minus the Hessian there, and the predicted gain of another step."""
        opt, whole = options.SEARCH, self.information_from_search(information, self.y, self.gradient)
        part = self.free_block(whole)
        roots, is_narrow = whitening_axes(part)
        noise = self.measure_gradient_noise(roots)
        for _ in range(opt.max_axes_updates if noise > opt.quiet_gradient_noise else int(is_narrow)):
            # If gradients have few digits, the first curvature may be inaccurate, and so are the axes derived from it.
            old, (part, roots) = roots, self.measure_information(part, roots, noise)
            if np.allclose(old.T @ part @ old, np.eye(len(roots)), atol=0.2):
                break
            noise = self.measure_gradient_noise(roots)
        idle, last, is_updated = 0, np.inf, False
        for number in range(opt.newton_max_fast_steps if self.n_parameters else opt.newton_max_steps_no_parameters):
            z = roots.T @ self.gradient[self.free_index]
            promise = 0.5 * float(z @ z)
            least = max(opt.newton_tolerance, opt.newton_relative_tolerance * abs(self.best.value))
            least = max(least, 0.1 * min(noise, opt.max_gradient_noise) ** 2)
            is_slow = opt.slow_convergence_ratio * last < promise < self.negligible_gain
            if not np.isfinite(promise) or promise < least or is_slow:
                break
            before, last, start, slope = self.best.value, promise, self.y, self.gradient
            if not self.line_search(z, roots):
                break
            # If the gain of a step differs from its prediction, the curvature has changed.
            gain, clear_gain = self.best.value - before, opt.clear_relative_gain * (1.0 + abs(before))
            is_clear = promise > max(clear_gain, opt.value_noise_factor * self.value_noise)
            surprise = abs(gain - promise) > 0.3 * promise and promise > clear_gain
            is_disappointing = surprise and self.negligible_gain > max(gain, 0.0)
            idle = idle + 1 if is_clear and gain < opt.idle_gain_ratio * promise else 0
            is_late = number >= opt.newton_max_steps or noise > opt.blind_gradient_noise or idle == opt.max_idle_steps
            if is_disappointing or (gain < opt.newton_fast_gain and is_late):
                break
            kept = self.drop_active_bounds()
            if not len(self.free_index):
                part = part[:0, :0]
                break
            if not kept.all():
                whole[np.ix_(self.free_index, self.free_index)] = part = part[np.ix_(kept, kept)]
                roots = whitening_axes(part)[0]
            if surprise or float(np.max(np.abs(z))) > opt.remeasure_step or not kept.all():
                # If gradients are expensive, the information is updated while steps gain, and measured at the end.
                is_updated = bool(self.negligible_gain and kept.all() and gain > opt.min_update_gain_ratio * promise)
                if is_updated:
                    index = self.free_index
                    part = _update_bfgs(part, (self.y - start)[index], (slope - self.gradient)[index])
                    roots = whitening_axes(part)[0]
                else:
                    part, roots = self.measure_information(part, roots, noise)
        part, roots = self.measure_information(part, roots, noise) if is_updated and len(part) else (part, roots)
        return self.conclude(whole, part, roots, noise)

    def conclude(self, whole: Array, part: Array, roots: Array, noise: float) -> tuple[Optimum, Array, float]:
        """Return the result of `run`, given minus the Hessian of all entries and of the free ones, with their axes.

        Shapes: whole (n, n), part, roots (f, f).
        """
        opt = options.SEARCH
        if noise > opt.quiet_gradient_noise and len(part):
            part = _repair_information(part, int(np.sum(self.free_index < self.n_parameters)))
            roots = whitening_axes(part)[0]
            noise = max(noise, self.measure_gradient_noise(roots))
        whole[np.ix_(self.free_index, self.free_index)] = part
        z = roots.T @ self.gradient[self.free_index] if len(self.free_index) else np.zeros(0)
        promise, blind = 0.5 * float(z @ z), 10.0 * len(z) * min(noise, opt.max_gradient_noise) ** 2
        if not self.best.converged and promise < opt.converged_gain + blind:
            # With very small noise gradients are large, so L-BFGS does not report convergence.
            self.best = replace(self.best, converged=True, message=CONVERGED_MESSAGE)
        elif opt.undefined_gain_ratio * (100.0 + abs(self.best.value)) + blind < promise < np.inf or (
            noise > opt.max_gradient_noise and not self.best.converged
        ):
            # The objective is undefined uphill: rounding errors leave too few digits there.
            self.best = replace(self.best, converged=False, message=UNDEFINED_MESSAGE)
        return self.best, self.information_to_search(whole, self.y, self.gradient), promise

    def drop_active_bounds(self) -> Mask:
        """Remove entries that a step has moved to their bounds; return which of the free entries remain."""
        walls = self.active_bounds(self.y, self.gradient)
        kept = ~walls[self.free_index]
        if not kept.all():
            at_bound = self.best.at_bound.copy()
            at_bound[self.free_index[~kept]] = True
            self.best = replace(self.best, at_bound=at_bound)
            self.set_free(~at_bound)
        return np.asarray(kept)

    def measure_gradient_noise(self, axes: Array) -> float:
        """Return the effect of rounding errors on the gradient along whitened axes (unit: one standard error)."""
        width = options.SEARCH.noise_probe_step
        value, slope = self.evaluate(self.move_within_bounds(width * axes.sum(axis=1)))
        if np.isfinite(value):
            self.value_noise = max(self.value_noise, abs(value - self.best.value))
        change = np.abs(axes.T @ (slope - self.gradient)[self.free_index])
        return max(0.0, float(np.max(change)) - 10.0 * width) if np.isfinite(change).all() else 0.0

    def measure_information(self, information: Array, axes: Array, gradient_noise: float) -> tuple[Array, Array]:
        """Return minus the Hessian at the current point, and its axes; the previous ones if it is not finite.

        Differences are taken along the given axes, in which it is about the identity: so the curvature along a narrow
        ridge is measured along the ridge and is not a difference of large numbers. If rounding errors leave gradients
        with few digits, differences are wider.
        """
        opt, count = options.SEARCH, axes.shape[1]
        found, widths = np.zeros((count, count)), np.zeros(count)
        room = np.minimum(self.y[self.free_index] - self.low, self.high - self.y[self.free_index])
        for k in range(count):
            size = float(np.max(np.abs(axes[:, k])))
            width = min(opt.difference_step, opt.max_difference_step / size)
            width = max(width, opt.noise_step_factor * gradient_noise)
            width = min(width, max(opt.difference_step, opt.max_noisy_difference_step / size))
            width = min(width, 0.5 * float(np.min(room / np.maximum(np.abs(axes[:, k]), 1e-300))))
            moves = (self.move_within_bounds(sign * width * axes[:, k]) for sign in (1.0, -1.0))
            above, below = (axes.T @ self.evaluate(y)[1][self.free_index] for y in moves)
            found[k], widths[k] = (below - above) / (2.0 * width), width
        if not np.isfinite(found).all():
            return information, axes
        # Each entry is measured twice; rounding errors are smaller in the wider difference.
        shares = widths[:, None] ** 2 / (widths[:, None] ** 2 + widths**2)
        try:
            back = np.linalg.inv(axes)
        except np.linalg.LinAlgError:
            return information, axes
        new = np.asarray(back.T @ (shares * found + shares.T * found.T) @ back)
        return (new, whitening_axes(new)[0]) if np.isfinite(new).all() else (information, axes)

    def line_search(self, z: Array, axes: Array) -> bool:
        """Take a step uphill, shortened if necessary; return whether a step was accepted.

        A long step along a curved ridge ends beside it: a correction orthogonal to the step leads back.
        """
        opt, best = options.SEARCH, self.best
        longest = min(1.0, opt.newton_max_step_length / max(float(np.max(np.abs(axes @ z))), 1e-300))
        evaluations, along = best.n_evaluations, z / max(float(np.linalg.norm(z)), 1e-300)
        # A gain may be smaller than the rounding errors of the objective; its gradient is more accurate.
        loss = min(opt.value_noise_factor * self.value_noise, opt.max_allowed_loss)
        least = best.value - max(opt.allowed_relative_loss * (1.0 + abs(best.value)), loss)
        # The last trial step ends where the first entry reaches its bound.
        start, here, move = self.y, self.y[self.free_index], axes @ z
        room = np.where(move > 0.0, self.high - here, here - self.low) / np.maximum(np.abs(move), 1e-300)
        for share in [*(longest * 0.25**k for k in range(6)), min(longest, (1.0 + 1e-12) * float(np.min(room)))]:
            step, trials = share * z, []
            for _ in range(3):
                y = self.move_within_bounds(axes @ step)
                value, slope = self.evaluate(y)
                evaluations += 1
                if not np.isfinite(slope).all():
                    break
                trials.append((value, y, slope))
                self.y = y
                step = axes.T @ slope[self.free_index]
                step -= along * float(along @ step)
                if float(np.max(np.abs(step))) < opt.remeasure_step:
                    break
            self.y = start
            value, y, slope = max(trials, key=lambda item: item[0], default=(-np.inf, start, self.gradient))
            flatter = np.linalg.norm(axes.T @ slope[self.free_index]) < np.linalg.norm(z)
            if value >= best.value or (value >= least and flatter):
                self.y, self.gradient = y, slope
                self.best = replace(best, x=self.point(y), value=value, n_evaluations=evaluations)
                return True
        return False
