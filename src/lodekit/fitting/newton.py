"""Refinement of an optimum by Newton's method with active bounds, in local coordinates around the end of a search.

The Hessian that standard errors need gives the last digits of the optimum.
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
    """Return the places of unbounded parameters that are next to zero and cannot cross it: a lag would be unstable."""
    x, least = optimum.x, optimum.value - options.SEARCH.zero_barrier_loss
    near = np.abs(x) < options.SEARCH.zero_barrier_distance
    places = [k for k, each in enumerate(objective.layout.transforms.values()) if each.is_unbounded and near[k]]
    with np.errstate(all="ignore"):
        return [k for k in places if not objective.value(np.where(np.arange(len(x)) == k, -x, x)) > least]


def snap_to_bounds(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which parameters next to their bounds sit there, all at one distance.

    Zero is a bound of an unbounded parameter that cannot cross it.

    On the scale of the search a bound is infinitely far away. How far a search goes towards it before it finds that
    nothing changes any more depends on rounding, and so on units; what is best at the bound does not.
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
    """Return an optimum with more digits, and minus the Hessian of the objective there, shape (n, n).

    A search ends where a step gains next to nothing. In a narrow valley that may be far from the end of it; and where
    it is not, rounding decides about the last digits. Newton's steps end where the gradient vanishes.

    Equations are linear in most of their parameters. Where data tell combinations of them only, the valley is straight
    in the parameters themselves, and bends on the logarithmic scale of the search: steps are taken in the former, and
    in the latter where that leads nowhere. A positive parameter that is best at zero gets there, and sits at its bound.

    Shapes: information (n, n).
    """
    opt, best = options.SEARCH, optimum
    for number in range(opt.newton_rounds if objective.layout.free_parameters else 1):
        best = snap_to_bounds(objective, best)
        if best.at_bound.all() or not np.isfinite(information[np.ix_(~best.at_bound, ~best.at_bound)]).all():
            break
        with np.errstate(all="ignore"):
            iteration = NewtonIteration(objective, best, linear=number % 2 == 0)
            # Next to what the engine refuses, a gradient may not be finite where the objective is.
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

    The best two of several lags are often equal. Next to that point the evidence is flat, but its gradient has rounding
    errors in inverse proportion to the square of the distance: differences of it are ten times as wide as elsewhere.

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
        # In alphabetical order, so that the first one by name is the larger one.
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
    """Return a curvature that can be one: rounding errors may make entries too large for those on the diagonal.

    They are reduced, all by the same share, until no direction has less than a hundredth of what the diagonal says. A
    lengthscale, deviation or level about which only rounding errors are left says nothing of parameters, which come
    first.
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

    slope_change: The slope before the step minus that after it; (n,).

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
    at the start or of a hundredth of their expected magnitude. The std of a free function is then a reciprocal: a
    common factor of parameters often scales a free function, so that this valley is straight as well.
    """

    def __init__(self, objective: Objective, best: Optimum, *, linear: bool) -> None:
        opt, layout, x = options.SEARCH, objective.layout, best.x
        self.objective, self.x, self.best, self.value_noise = objective, x, best, 0.0
        self.transforms = list(layout.transforms.values()) if linear else []
        self.barriers = find_zero_barriers(objective, best) if linear else []
        self.reciprocal = layout.slices.deviations if linear else slice(0, 0)
        places = list(zip(self.transforms, x.tolist(), strict=False))
        self.values = np.array([transform.forward(point) for transform, point in places])
        # On the scale of the search a parameter that has run away towards zero hardly moves any more; here it does.
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
        """Return the vector of the search after a move."""
        x = self.x + y
        for k, transform in enumerate(self.transforms):
            # Rounding must not move what does not move.
            x[k] = transform.inverse(self.values[k] + self.units[k] * y[k]) if y[k] else self.x[k]
        x[self.reciprocal] = self.x[self.reciprocal] - np.log1p(-y[self.reciprocal])
        return np.asarray(x)

    def evaluate(self, y: Array) -> tuple[float, Array]:
        """Return the objective after a move, and its gradient in the move."""
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
        """Return minus the Hessian in the move, (n, n), from that on the scale of the search; gradient in the move."""
        speeds, bends = self._derivatives(self.point(y))
        curvature = np.diag(np.where(bends, gradient * speeds * bends, 0.0))
        return np.asarray((information + curvature) / np.outer(speeds, speeds))

    def information_to_search(self, information: Array, y: Array, gradient: Array) -> Array:
        """Return minus the Hessian on the scale of the search, (n, n), from that in the move."""
        speeds, bends = self._derivatives(self.point(y))
        curvature = np.diag(np.where(bends, gradient * speeds * bends, 0.0))
        return np.asarray(information * np.outer(speeds, speeds) - curvature)

    def _derivatives(self, x: Array) -> tuple[Array, Array]:
        """Return derivatives of the move in the vector of the search, and those of their logarithms, each (n,)."""
        speeds, bends = np.ones(len(x)), np.zeros(len(x))
        for k, transform in enumerate(self.transforms):
            speeds[k] = transform.derivative(float(x[k])) / self.units[k]
            bends[k] = transform.log_jacobian_gradient(float(x[k]))
        speeds[self.reciprocal] = np.exp(self.x[self.reciprocal] - x[self.reciprocal])
        bends[self.reciprocal] = -1.0
        return speeds, bends

    def set_free(self, is_free: Mask) -> None:
        """Go on with these entries only."""
        self.free_index = np.flatnonzero(is_free)
        self.low, self.high = (limit[self.free_index] for limit in self.bounds)

    def move_within_bounds(self, move: Array) -> Array:
        """Return the whole move where these entries are moved farther, within their limits."""
        y = self.y.copy()
        y[self.free_index] = np.clip(y[self.free_index] + move, self.low, self.high)
        return y

    def free_block(self, matrix: Array) -> Array:
        """Return the rows and columns of the free entries."""
        return matrix[np.ix_(self.free_index, self.free_index)]

    def run(self, information: Array) -> tuple[Optimum, Array, float]:
        """Return the optimum, minus the Hessian there, and what another step promises to gain."""
        opt, whole = options.SEARCH, self.information_from_search(information, self.y, self.gradient)
        part = self.free_block(whole)
        roots, is_narrow = whitening_axes(part)
        noise = self.measure_gradient_noise(roots)
        for _ in range(opt.max_axes_updates if noise > opt.quiet_gradient_noise else int(is_narrow)):
            # Where gradients have few digits, the first curvature may be far off, and so are axes made from it.
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
            # Where a step does not gain what it has promised, the curvature has changed.
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
                # Where gradients are expensive, the information is updated as long as steps gain, and measured last.
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
        """Return what `run` does, from minus the Hessian of all entries and of the free ones, with the axes of these.

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
            # Next to no noise makes gradients large that a search takes for a sign that it has not ended.
            self.best = replace(self.best, converged=True, message=CONVERGED_MESSAGE)
        elif opt.undefined_gain_ratio * (100.0 + abs(self.best.value)) + blind < promise < np.inf or (
            noise > opt.max_gradient_noise and not self.best.converged
        ):
            # Uphill nothing is known: rounding leaves too few digits there.
            self.best = replace(self.best, converged=False, message=UNDEFINED_MESSAGE)
        return self.best, self.information_to_search(whole, self.y, self.gradient), promise

    def drop_active_bounds(self) -> Mask:
        """Return which entries are still inside; go on without those that a step has taken to their bounds."""
        walls = self.active_bounds(self.y, self.gradient)
        kept = ~walls[self.free_index]
        if not kept.all():
            at_bound = self.best.at_bound.copy()
            at_bound[self.free_index[~kept]] = True
            self.best = replace(self.best, at_bound=at_bound)
            self.set_free(~at_bound)
        return np.asarray(kept)

    def measure_gradient_noise(self, axes: Array) -> float:
        """Return how much rounding errors change the gradient along axes, in which standard errors have length one."""
        width = options.SEARCH.noise_probe_step
        value, slope = self.evaluate(self.move_within_bounds(width * axes.sum(axis=1)))
        if np.isfinite(value):
            self.value_noise = max(self.value_noise, abs(value - self.best.value))
        change = np.abs(axes.T @ (slope - self.gradient)[self.free_index])
        return max(0.0, float(np.max(change)) - 10.0 * width) if np.isfinite(change).all() else 0.0

    def measure_information(self, information: Array, axes: Array, gradient_noise: float) -> tuple[Array, Array]:
        """Return minus the Hessian at a point, and its axes; what was known before where it is not finite.

        Differences are taken along given directions, in which it is about the identity: so the curvature along a narrow
        valley is measured along it, and is no difference of large numbers. Where the data have next to no noise,
        gradients have few digits, and differences are wide enough to be clear of that.
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
        # Each entry was measured twice; rounding errors are smaller in the wider difference.
        shares = widths[:, None] ** 2 / (widths[:, None] ** 2 + widths**2)
        try:
            back = np.linalg.inv(axes)
        except np.linalg.LinAlgError:
            return information, axes
        new = np.asarray(back.T @ (shares * found + shares.T * found.T) @ back)
        return (new, whitening_axes(new)[0]) if np.isfinite(new).all() else (information, axes)

    def line_search(self, z: Array, axes: Array) -> bool:
        """Take a step uphill, shortened where it must be; return whether there was one.

        A long step along a valley that bends ends beside it: a second one leads back, across the first.
        """
        opt, best = options.SEARCH, self.best
        longest = min(1.0, opt.newton_max_step_length / max(float(np.max(np.abs(axes @ z))), 1e-300))
        evaluations, along = best.n_evaluations, z / max(float(np.linalg.norm(z)), 1e-300)
        # A gain may be too small for the digits of the objective: those of its gradient are better.
        loss = min(opt.value_noise_factor * self.value_noise, opt.max_allowed_loss)
        least = best.value - max(opt.allowed_relative_loss * (1.0 + abs(best.value)), loss)
        # The last one ends where the first entry meets its limit: beside the others, that one need not move at all.
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
