"""Global search of the output-error method: simulations at many points at once, and searches from many random points.

If known inputs and initial states determine all measurements, the deviance of `fitting.output_error` is evaluated for
hundreds of parameter vectors in one pass of NumPy, and Levenberg-Marquardt steps with finite differences [1]_ lead from
all of them to optima. One fit evaluates a vector in about a millisecond, a pass needs ten to twenty microseconds.

.. [1] K. Madsen, H. B. Nielsen and O. Tingleff, Methods for non-linear least squares problems, 2004.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lodekit.fitting import search_options as options
from lodekit.fitting.lbfgs import search_bounds
from lodekit.fitting.objective import Objective
from lodekit.fitting.output_error import VariableProjection
from lodekit.prior.observables import Observables
from lodekit.support.arguments import Array

#: Residuals of simulations that are not finite; values that are simulated at once.
_INFEASIBLE, _MAX_VALUES = 1e150, 100_000


@dataclass(frozen=True, eq=False)
class GlobalSearch:
    """Simulations of measurements at many points of the search, (k, p), of which there are only the parameters.

    low, high: The bounds of the search; (p,).
    """

    regression: VariableProjection
    low: Array
    high: Array

    @classmethod
    def around(cls, objective: Objective, x: Array) -> GlobalSearch | None:
        """Return the search around a point; None for averages, estimated dead times, many rows, and other systems."""
        regression, learned = objective.regression, objective.layout.free_parameters
        if regression is None or len(regression.values) > options.SEARCH.max_global_rows:
            return None
        response = regression.observables.input_response
        if regression.observables.intervals is not None or not learned:
            return None
        if response is not None:
            table = response.evaluate(objective.layout.unpack(x).theta)
            if response.compiled.delays(table)[1][learned].any():
                return None
        low, high = search_bounds(objective, x, x)
        return cls(regression.thinned(options.SEARCH.screening_rows), low[: len(learned)], high[: len(learned)])

    def draw_points(self, x: Array, share: float = 1.0) -> Array:
        """Return random points, the same for the same estimate: most of them around it, others in the whole range.

        Parameters are drawn in alphabetical order, so that the order of declaration does not matter. Shapes: x (p,).
        """
        opt, layout, generator = options.SEARCH, self.regression.layout, np.random.default_rng(0)
        cost = len(self.regression.values) * (1 + len(self.low))
        count = int(share * min(opt.n_global_starts, opt.max_global_values / cost)) + 1
        points = np.empty((count, len(self.low)))
        for k in sorted(range(len(self.low)), key=lambda k: layout.names[layout.free_parameters[k]]):
            is_near = generator.random(count) < opt.global_near_share
            near = x[k] + opt.global_near_std * generator.standard_normal(count)
            points[:, k] = np.where(is_near, near, generator.uniform(self.low[k], self.high[k], count))
            points[:, k] *= generator.choice([-1.0, 1.0], count) if self.regression.is_unbounded[k] else 1.0
        return points

    def find_points(self, x: Array, max_drop: float, held: Mapping[int, float], share: float = 1.0) -> Array:
        """Return ends of searches with some parameters held at values, as search vectors, (k, n), the best first.

        Their log evidence is below that at a search vector by less than `max_drop`. The evidence changes less than the
        deviance, since initial states and noise levels use up degrees of freedom. Shapes: x (n,).
        """
        count = len(self.low)
        points = self.draw_points(x[:count], share)
        points[:, list(held)] = list(held.values())
        ends, deviances = self.descend(points, list(held))
        regression, size = self.regression, len(self.regression.values)
        modes = sum(group.size for prior in regression.priors for group in prior.groups)
        dof_fraction = max(size - modes - regression.observables.count, 1) / size
        ends = ends[deviances < self.evaluate(x[None, :count])[2][0] + max_drop / dof_fraction]
        return np.hstack([ends, np.tile(x[count:], (len(ends), 1))])

    @cached_property
    def _columns(self) -> tuple[Array, Array]:
        """The known standard deviation of each measurement (NaN if it is estimated), and its observable as a mask."""
        return self.regression.known_std, np.eye(self.regression.observables.count)[self.regression.observable_index]

    @np.errstate(all="ignore")
    def evaluate(self, x: Array, levels: Array | None = None) -> tuple[Array, Array, Array]:
        """Return residuals, (k, m), the noise levels that fit them, (k, o), and deviances, (k,).

        Amplitudes of modes are fitted with the given noise levels, which matter if there are several observables.
        """
        regression, (known, members) = self.regression, self._columns
        start = np.full((len(x), members.shape[1]), options.SEARCH.initial_noise_fraction)
        weights = 1.0 / self._noise(start if levels is None else levels)
        residuals, theta = np.full((len(x), len(known)), _INFEASIBLE), regression.layout.parameter_values_many(x)
        table = regression.observables.compiled.table.evaluate_values(np, theta)
        usable = np.isfinite(table).all(axis=1) & (np.abs(table).max(axis=1, initial=0.0) < 1e100)
        # Parts that fit into the cache, about.
        parts = np.array_split(np.flatnonzero(usable), 1 + usable.sum() * len(known) // _MAX_VALUES)
        for part in (part for part in parts if len(part)):
            for record, rows in enumerate(regression.record_rows):
                B, target = self._linear_model(record, theta[part], table[part])
                residuals[part, rows] = _project_out(B, target, weights[part, rows])
        lost = ~np.isfinite(residuals).all(axis=1)
        residuals[lost] = _INFEASIBLE
        learned = np.isnan(known)
        squares, counts = residuals[:, learned] ** 2 @ members[learned], members[learned].sum(axis=0)
        levels = np.sqrt(squares / np.maximum(counts, 1.0) + options.SEARCH.min_noise_fraction**2)
        deviances = np.log(levels) @ counts + 0.5 * np.sum((residuals[:, ~learned] / known[~learned]) ** 2, axis=1)
        return residuals, levels, deviances

    def _noise(self, levels: Array) -> Array:
        """Return the noise standard deviation of each measurement, (k, m), from levels, (k, o)."""
        known, members = self._columns
        return np.where(np.isnan(known), levels @ members.T, known)

    def _linear_model(self, record: int, theta: Array, table: Array) -> tuple[Array, Array]:
        """Return the modes at the measurements of a record, (k, m, r), and the measurements minus the known response.

        Shapes: theta (k, p), table (k, s).
        """
        regression, prior = self.regression, self.regression.priors[record]
        observables, times = prior.observables, regression.record_times[record]
        arrays, scaled = observables.split(np, table), regression.scaled_times[record]
        modes = observables.mode_values(np, arrays, prior.groups, scaled)
        modes = np.broadcast_to(modes, (len(theta), *modes.shape[-3:]))
        means = _means(observables, theta, table, times)
        pairs = list(enumerate(regression.time_index[record]))
        basis = np.concatenate([modes[:, number, index] for number, index in pairs], axis=1)
        known = np.concatenate([means[:, number, index] for number, index in pairs], axis=1)
        return basis, regression.values[regression.record_rows[record]] - known

    @np.errstate(all="ignore")
    def descend(self, x: Array, held: Sequence[int] = ()) -> tuple[Array, Array]:
        """Return the ends of Levenberg-Marquardt searches from many points, with some parameters held.

        Returns points, (k, p), and deviances, (k,), the best first.
        """
        opt, x = options.SEARCH, x.clip(self.low, self.high)
        free = [k for k in range(x.shape[1]) if k not in held]
        residuals, levels, deviances = self.evaluate(x)
        max_damping = opt.lm_damping * opt.lm_damping_increase**opt.lm_max_damping_tries
        damping, running = np.full(len(x), opt.lm_damping), np.flatnonzero(residuals[:, 0] != _INFEASIBLE)
        for _ in range(opt.simulation_max_steps if free else 0):
            if not len(running):
                break
            here, scale = x[running], self._noise(levels[running])
            moved = np.repeat(here[:, None], len(free), axis=1)
            moved[:, range(len(free)), free] += opt.global_difference_step
            shifted = self.evaluate(moved.reshape(-1, x.shape[1]), np.repeat(levels[running], len(free), axis=0))[0]
            shifted = shifted.reshape(len(here), len(free), -1) - residuals[running, None]
            J = shifted / opt.global_difference_step / scale[:, None]
            # With columns of unit length, the matrix is positive definite for any units.
            sizes = np.maximum(np.sqrt(np.sum(J**2, axis=2)), 0.03)
            J = np.nan_to_num(J / sizes[:, :, None], posinf=0.0, neginf=0.0)
            H = J @ J.swapaxes(1, 2) + damping[running, None, None] * np.eye(len(free))
            steps = np.linalg.solve(H, J @ (residuals[running] / scale)[:, :, None])[:, :, 0] / sizes
            tried = here.copy()
            tried[:, free] -= steps.clip(-opt.lm_max_log_step, opt.lm_max_log_step)
            tried = tried.clip(self.low, self.high)
            found = self.evaluate(tried, levels[running])
            won = deviances[running] - found[2]
            better, weight = won > 0.0, damping[running]
            changed = running[better]
            x[changed], residuals[changed], levels[changed] = tried[better], found[0][better], found[1][better]
            deviances[changed] = found[2][better]
            changes = np.where(better, opt.lm_damping_decrease, opt.lm_damping_increase)
            damping[running] = np.maximum(weight * changes, 1e-9)
            running = running[np.where(better, won > opt.simulation_tolerance, weight < max_damping)]
        order = np.argsort(deviances, kind="stable")
        return x[order], deviances[order]


def _means(observables: Observables, theta: Array, table: Array, times: Array) -> Array:
    """Return the known responses of all observables in scaled units, shape (k, o, n)."""
    means = observables.mean_values(np, table, times)
    if observables.input_response is not None:
        means = means + observables.input_response.respond_many(theta, times) / observables.units.scales[:, None]
    return np.broadcast_to(means, (len(theta), *means.shape[-2:]))


def _project_out(B: Array, target: Array, weights: Array) -> Array:
    """Return what the columns of B leave of the targets in a weighted regression, (k, m); shapes (k, m, r), (k, m)."""
    B, weighted = B * weights[:, :, None], target * weights
    lost = ~(np.isfinite(B).all(axis=(1, 2)) & np.isfinite(weighted).all(axis=1))
    B[lost], weighted[lost] = 0.0, np.nan
    if B.shape[2]:
        Q = np.linalg.qr(B / np.maximum(np.abs(B).max(axis=1, keepdims=True), 1e-300))[0]
        weighted = weighted - (Q @ (Q.swapaxes(1, 2) @ weighted[:, :, None]))[:, :, 0]
    return np.asarray(weighted / weights)
