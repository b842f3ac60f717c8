"""Output-error method for systems in which known inputs and initial states determine all measured channels.

Parameters are drawn around their expected magnitudes, delays from a grid. The best vectors on a thinned record are
refined by the Levenberg-Marquardt method with geodesic acceleration, which lets steps follow curved valleys (Transtrum
and Sethna 2012); the results are starts of a preconditioned search of the objective.

The response to known inputs is a known function of the parameters plus modes with linear amplitudes: these follow by
linear regression, and only the parameters are searched (variable projection, Golub and Pereyra 1973). The function that
is minimised is a weighted sum of the logarithms of the residual variances of the observables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, zip_longest

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.data.noise import EXACT_NOISE_RATIO
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements, with_empty_series
from lodekit.fitting import search_options as options
from lodekit.fitting.lbfgs import Optimum, maximize_lbfgs_preconditioned
from lodekit.fitting.objective import Objective
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.starts.candidates import StartPoint
from lodekit.fitting.starts.weak_form import build_delay_grid, find_delay_parameters
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, IndexArray, Mask
from lodekit.support.progress import track_progress
from lodekit.system.system import System


@dataclass(frozen=True, eq=False)
class ProjectedFit:
    """A simulation at given parameter values, with the best amplitudes of modes.

    z: Coordinates of the parameters.
    deviance: The function that is minimised: about minus the log likelihood.
    residuals: Data minus simulation, scaled; (m,).
    noise_std: The noise standard deviation of each observable, scaled; (o,).
    mode_amplitudes: The amplitudes of the modes in each record; (k, r).
    jacobian: Derivatives of the projected residuals, in units of the noise, with respect to the coordinates; without
        columns if it was not requested; (m, parameters).
    """

    z: Array
    deviance: float
    residuals: Array
    noise_std: Array
    mode_amplitudes: Array
    jacobian: Array


def union_times(series: Sequence[TimeSeries]) -> Array:
    """Return all distinct times of some series, ascending."""
    return np.unique(np.concatenate([item.times for item in series]))


@dataclass(frozen=True)
class VariableProjection:
    """Measurements of one record, or of several, and their simulation.

    layout: The layout of the search vector.
    priors: The prior of each record, with its inputs and start time; there are no free functions.
    record_times: The distinct times of each record, ascending; (n,).
    time_index: For each record and observable, the indices of the times at which it was measured.
    values: All measurements, scaled, ordered by record and then by observable; (m,).
    known_std: Known standard deviations, scaled; NaN elsewhere; (m,).
    """

    layout: ParameterLayout
    priors: Sequence[Prior]
    record_times: Sequence[Array]
    time_index: Sequence[Sequence[IndexArray]]
    values: Array
    known_std: Array

    @classmethod
    def from_records(
        cls, priors: Sequence[Prior], layout: ParameterLayout, records: Sequence[Sequence[TimeSeries]], max_rows: int
    ) -> VariableProjection:
        """Return measurements with their simulation, thinned to at most `max_rows` rows."""
        record_times, time_index = [union_times(series) for series in records], list[list[IndexArray]]()
        values, known_std = [], []
        for prior, series, times in zip(priors, records, record_times, strict=True):
            time_index.append([np.searchsorted(times, item.times) for item in series])
            for item, scale in zip(series, prior.units.scales, strict=True):
                values.append(item.values / scale)
                std = np.maximum(item.std / scale, EXACT_NOISE_RATIO)
                known_std.append(np.where(item.has_known_noise, std, np.nan))
        every = cls(layout, priors, record_times, time_index, np.concatenate(values), np.concatenate(known_std))
        return every.thinned(max_rows)

    def thinned(self, max_rows: int) -> VariableProjection:
        """Return the same with every n-th time of each record, at most `max_rows` rows in total."""
        stride = -(-sum(map(len, self.record_times)) // max_rows)
        kept = [np.arange(len(times)) % stride == 0 for times in self.record_times]
        rows = np.concatenate([own[k] for own, index in zip(kept, self.time_index, strict=True) for k in index])
        time_index = [[k[own[k]] // stride for k in index] for own, index in zip(kept, self.time_index, strict=True)]
        times = [each[::stride] for each in self.record_times]
        return VariableProjection(self.layout, self.priors, times, time_index, self.values[rows], self.known_std[rows])

    def from_parameters(self, theta: Array) -> Array:
        """Return the coordinates z: logarithms, or unbounded parameters in units of their expected magnitude."""
        pairs = self.layout.transforms.items()
        return np.array(
            [theta[n] / t.expected_magnitude if t.is_unbounded else t.inverse(float(theta[n])) for n, t in pairs]
        )

    def to_parameters(self, z: Array) -> Array:
        """Return all parameters at some coordinates."""
        theta = self.layout.fixed_values.copy()
        for point, (n, t) in zip(z.tolist(), self.layout.transforms.items(), strict=True):
            theta[n] = t.expected_magnitude * point if t.is_unbounded else t.forward(point)
        return theta

    def derivatives(self, z: Array) -> Array:
        """Return the derivatives of the free parameters with respect to their coordinates."""
        pairs = zip(z.tolist(), self.layout.transforms.values(), strict=True)
        return np.array([t.expected_magnitude if t.is_unbounded else t.derivative(point) for point, t in pairs])

    def _step_bounds(self, z: Array, held: Sequence[int]) -> tuple[Array, Array]:
        """Return the lower and upper limits of a step in each coordinate; those that are held do not move."""
        opt, unbounded = options.SEARCH, self.is_unbounded
        most = np.where(unbounded, opt.lm_max_unbounded_step * np.maximum(1.0, np.abs(z)), opt.lm_max_log_step)
        centres = np.array([t.centre for t in self.layout.transforms.values()])
        reach = np.where(unbounded, np.inf, opt.lm_max_log_distance)
        most[list(held)] = 0.0
        low, high = np.minimum(centres - reach - z, 0.0), np.maximum(centres + reach - z, 0.0)
        return np.maximum(-most, low), np.minimum(most, high)

    @cached_property
    def is_unbounded(self) -> Mask:
        """Which free parameters have no bounds."""
        return np.array([t.is_unbounded for t in self.layout.transforms.values()], dtype=bool)

    def has_growing_mode(self, z: Array) -> bool:
        """Return whether a mode grows by more than a factor of e over the record."""
        coefficients = self.observables.evaluate(self.to_parameters(z))
        exponents = self.observables.exponents(coefficients, self.priors[0].groups, include_signals=False)
        return bool(np.max(exponents.real, initial=-np.inf) > 1.0)

    @property
    def observables(self) -> Observables:
        """The compiled measured observables."""
        return self.priors[0].observables

    @cached_property
    def scaled_times(self) -> list[Array]:
        """The times of each record, scaled."""
        return [prior.units.scale_times(times) for prior, times in zip(self.priors, self.record_times, strict=True)]

    @cached_property
    def record_rows(self) -> list[slice]:
        """The rows of the measurements of each record."""
        ends = accumulate((sum(map(len, index)) for index in self.time_index), initial=0)
        return [slice(start, stop) for start, stop in pairwise(ends)]

    @cached_property
    def observable_index(self) -> IndexArray:
        """The observable of each measurement."""
        return np.concatenate([np.full(len(k), i) for index in self.time_index for i, k in enumerate(index)])

    @cached_property
    def counts(self) -> IndexArray:
        """The number of measurements of each observable."""
        return np.bincount(self.observable_index, minlength=self.observables.count)

    def evaluate(self, z: Array, noise_std: Array | None = None, *, with_jacobian: bool) -> ProjectedFit | None:
        """Return the simulation at some coordinates; None if it is not finite.

        Shapes: noise_std (o,).
        """
        if noise_std is None:
            noise_std = np.full(self.observables.count, options.SEARCH.initial_noise_fraction)
        with np.errstate(all="ignore"):
            values = self.observables.evaluate(self.to_parameters(z))
            if not all(np.isfinite(part).all() for part in (*values.factors, *values.mode_columns, values.table[0])):
                return None
            weights, projected = self._weights(noise_std), list[tuple[Array, Array, Array]]()
            for record, rows in enumerate(self.record_rows):
                part = self._project_record(record, values, weights[rows], with_jacobian=with_jacobian)
                if part is None:
                    return None
                projected.append(part)
            residuals, J = (np.concatenate([part[k] for part in projected]) for k in (0, 2))
            deviance, noise_std = self._profile_deviance(residuals)
            if with_jacobian:
                # The projection was made with the old weights; the difference hardly matters.
                J = J * self.derivatives(z) * (self._weights(noise_std) / weights)[:, None]
        if not np.isfinite(deviance) or not np.isfinite(J).all():
            return None
        return ProjectedFit(z, deviance, residuals, noise_std, np.stack([part[1] for part in projected]), J)

    def _project_record(
        self, record: int, coefficients: Coefficients, weights: Array, *, with_jacobian: bool
    ) -> tuple[Array, Array, Array] | None:
        """Return the residuals of a record, (m,), amplitudes of its modes, (r,), and derivatives, (m, parameters).

        Shapes: weights (m,).
        """
        prior, time_index, learned = self.priors[record], self.time_index[record], self.layout.free_parameters
        observables, times = prior.observables, self.scaled_times[record]
        means, d_means = observables.means(coefficients, self.record_times[record], with_jacobian=with_jacobian)
        basis, d_basis = observables.mode_basis(coefficients, prior.groups, times, with_jacobian=with_jacobian)
        B, known = (
            np.concatenate([part[index] for part, index in zip(functions, time_index, strict=True)])
            for functions in (basis, means)
        )
        B, target = B * weights[:, None], (self.values[self.record_rows[record]] - known) * weights
        if not (np.isfinite(B).all() and np.isfinite(target).all()):
            return None
        Q, amplitudes = _project_modes(B, target)
        residuals = (target - B @ amplitudes) / weights
        if not with_jacobian:
            return residuals, amplitudes, np.zeros((len(residuals), 0))
        pairs = zip(d_means, d_basis, time_index, strict=True)
        parts = [(d[learned] + e[learned] @ amplitudes)[:, index] for d, e, index in pairs]
        J = -np.concatenate(parts, axis=1).T * weights[:, None]
        return residuals, amplitudes, J - Q @ (Q.T @ J)

    def _weights(self, noise_std: Array) -> Array:
        """Return the reciprocal noise standard deviation of each measurement."""
        return np.asarray(1.0 / np.where(np.isnan(self.known_std), noise_std[self.observable_index], self.known_std))

    def _profile_deviance(self, residuals: Array) -> tuple[float, Array]:
        """Return the deviance, and the noise level of each observable that minimises it."""
        learned = np.isnan(self.known_std)
        total = 0.5 * float(np.sum((residuals[~learned] / self.known_std[~learned]) ** 2))
        levels = np.ones(len(self.counts))
        squares = np.bincount(self.observable_index[learned], residuals[learned] ** 2, minlength=len(levels))
        counts = np.bincount(self.observable_index[learned], minlength=len(levels))
        some = counts > 0
        levels[some] = np.sqrt(squares[some] / counts[some] + options.SEARCH.min_noise_fraction**2)
        return total + float(counts[some] @ np.log(levels[some])), levels

    def weighted_residuals(self, fit: ProjectedFit) -> Array:
        """Return the residuals divided by their noise standard deviations, shape (m,)."""
        return fit.residuals * self._weights(fit.noise_std)

    def levenberg_marquardt(
        self, z: Array, max_steps: int, tolerance: float, target_deviance: float = -np.inf, held: Sequence[int] = ()
    ) -> ProjectedFit | None:
        """Return the result of Levenberg-Marquardt steps, some coordinates held; None if the start is infeasible."""
        here, damping = self.evaluate(z, with_jacobian=True), options.SEARCH.lm_damping
        if here is None:
            return None
        for _ in range(max_steps):
            there, damping = self._levenberg_marquardt_step(here, damping, held)
            if there is None:
                break
            won, here = here.deviance - there.deviance, there
            if won < tolerance or here.deviance < target_deviance:
                break
        return here

    def _levenberg_marquardt_step(
        self, here: ProjectedFit, damping: float, fixed: Sequence[int]
    ) -> tuple[ProjectedFit | None, float]:
        """Return the fit after one step, with derivatives, and the next damping; None if no step improves the fit."""
        opt = options.SEARCH
        H, g = here.jacobian.T @ here.jacobian, here.jacobian.T @ self.weighted_residuals(here)
        low, high = self._step_bounds(here.z, fixed)
        for attempt in range(opt.lm_max_damping_tries):
            held = H + np.diag(damping * np.maximum(np.diag(H), 1e-3))
            straight = _solve_bounded_step(held, g, low, high)
            z = here.z + np.clip(straight + self._geodesic_acceleration(here, held, straight), low, high)
            # The first trial is usually accepted, and its derivatives are needed then.
            there = self.evaluate(z, here.noise_std, with_jacobian=attempt == 0)
            if there is not None and there.deviance < here.deviance:
                there = there if there.jacobian.size else self.evaluate(z, here.noise_std, with_jacobian=True)
                return there, max(damping * (opt.lm_damping_decrease if attempt == 0 else 1.0), 1e-9)
            # A lag of the wrong sign is unstable: the parameter goes most of the way to zero, without blocking others.
            crosses, most = self.is_unbounded & (z * here.z < 0.0), -opt.lm_max_zero_approach * here.z
            low, high = np.where(crosses & (z < 0.0), most, low), np.where(crosses & (z > 0.0), most, high)
            damping *= 1.0 if crosses.any() else opt.lm_damping_increase
        return None, damping

    def _geodesic_acceleration(self, here: ProjectedFit, damped_hessian: Array, step: Array) -> Array:
        """Return half the geodesic acceleration along a step, a correction that follows a curved valley.

        It is zero unless it is small compared to the step; otherwise the step is too long for it to be meaningful.
        """
        opt = options.SEARCH
        ahead = self.evaluate(here.z + opt.geodesic_probe_fraction * step, here.noise_std, with_jacobian=False)
        if ahead is None:
            return np.zeros_like(step)
        change = ahead.residuals * self._weights(here.noise_std) - self.weighted_residuals(here)
        change = change / opt.geodesic_probe_fraction - here.jacobian @ step
        correction = -np.linalg.solve(damped_hessian, here.jacobian.T @ change) / opt.geodesic_probe_fraction
        scale = np.sqrt(np.diag(damped_hessian))
        small = np.linalg.norm(scale * correction) < opt.geodesic_max_ratio * np.linalg.norm(scale * step)
        return np.asarray(correction if small else np.zeros_like(step))


def _project_modes(B: Array, target: Array) -> tuple[Array, Array]:
    """Return an orthonormal basis of the span of the modes, shape (m, r), and their least-squares amplitudes, (r,)."""
    if not B.shape[1]:
        return B, np.zeros(0)
    U, sizes, V = np.linalg.svd(B, full_matrices=False)
    kept = sizes > options.SEARCH.singular_value_tolerance * max(float(sizes[0]), 1e-300)
    return U[:, kept], (V[kept].T / sizes[kept]) @ (U[:, kept].T @ target)


def _solve_bounded_step(damped_hessian: Array, gradient: Array, low: Array, high: Array) -> Array:
    """Return the minimiser of a quadratic approximation within bounds; entries beyond a bound are fixed at it."""
    step, free = np.zeros(len(gradient)), np.ones(len(gradient), dtype=bool)
    while free.any():
        right = gradient[free] + damped_hessian[np.ix_(free, ~free)] @ step[~free]
        step[free] = -np.linalg.solve(damped_hessian[np.ix_(free, free)], right)
        beyond = free & ((step < low) | (step > high))
        if not beyond.any():
            break
        step[beyond] = np.clip(step[beyond], low[beyond], high[beyond])
        free &= ~beyond
    return step


def multistart_output_error(
    system: System,
    objective: Objective,
    priors: Sequence[Prior],
    records: Sequence[Sequence[TimeSeries]],
    guesses: Sequence[StartPoint],
    generator: np.random.Generator,
    tolerance: float,
    initial_theta: Array | None = None,
) -> Optimum | None:
    """Return the best optimum of the objective; None if no simulation is finite.

    Shapes: initial_theta (p,).
    """
    opt, layout = options.SEARCH, objective.layout
    whole = VariableProjection.from_records(priors, layout, records, opt.simulation_rows)
    thin = VariableProjection.from_records(priors, layout, records, opt.screening_rows)
    lags = find_delay_parameters(system, layout)
    # A delay may be shorter than the sampling interval of a thinned record, so all times are used.
    grid = build_delay_grid(max(map(union_times, records), key=np.ptp)) if lags else np.zeros(0)
    delays = {n: np.roll(grid, -k * opt.delay_grid_offset) for k, n in enumerate(lags) if len(grid)}
    given = [guess.theta for guess in guesses if guess.family == "given"]
    if initial_theta is not None:
        ends = _continue_from_previous(thin, whole, initial_theta, guesses, delays, generator)
    elif given:
        ends = [end for theta in given if (end := _descend(whole, whole.from_parameters(theta))) is not None]
    else:
        ends = _screen_and_descend(thin, whole, _screen_starts(thin, guesses, delays, generator))
    return _maximize_from_projection(objective, whole, ends[0], tolerance) if ends else None


def _descend(whole: VariableProjection, z: Array, target_deviance: float = -np.inf) -> ProjectedFit | None:
    """Return the result of Levenberg-Marquardt steps on all rows; None if the start is not finite."""
    opt = options.SEARCH
    return whole.levenberg_marquardt(z, opt.simulation_max_steps, opt.simulation_tolerance, target_deviance)


def _continue_from_previous(
    thin: VariableProjection,
    whole: VariableProjection,
    initial_theta: Array,
    guesses: Sequence[StartPoint],
    delays: Mapping[int, Array],
    generator: np.random.Generator,
) -> list[ProjectedFit]:
    """Return the fit continued from an earlier one, and fits from other starts if one starts out better; best first."""
    end = _descend(whole, whole.from_parameters(initial_theta))
    here = None if end is None else thin.evaluate(end.z, end.noise_std, with_jacobian=False)
    starts = _screen_starts(thin, guesses, delays, generator)
    best = thin.evaluate(starts[0], None if end is None else end.noise_std, with_jacobian=False) if starts else None
    if end is not None and (best is None or (here is not None and here.deviance <= best.deviance)):
        return [end]
    others = _screen_and_descend(thin, whole, starts)
    return sorted([*([] if end is None else [end]), *others], key=lambda item: item.deviance)


def _screen_and_descend(
    thin: VariableProjection, whole: VariableProjection, starts: Sequence[Array]
) -> list[ProjectedFit]:
    """Return the fits reached from the first of some starting points, best first."""
    opt = options.SEARCH
    first, ends = list[ProjectedFit](), list[ProjectedFit]()
    with track_progress("fitting, simulations"):
        for z in starts[: opt.n_screened_followed]:
            end = thin.levenberg_marquardt(z, opt.screening_max_steps, opt.screening_tolerance)
            first = sorted([*first, *([] if end is None else [end])], key=lambda end: end.deviance)
            agree = len(first) > 1 and first[1].deviance < first[0].deviance + opt.screening_tolerance
            if agree and len(first) > opt.n_simulation_finalists:
                break
        for start in first[: opt.n_simulation_finalists]:
            # A search that reaches the deviance of another one has found the same optimum.
            enough = min((end.deviance + opt.simulation_agreement for end in ends), default=-np.inf)
            end = _descend(whole, start.z, enough)
            ends += [] if end is None else [end]
    return sorted(ends, key=lambda end: end.deviance)


def _screen_starts(
    thin: VariableProjection, guesses: Sequence[StartPoint], delays: Mapping[int, Array], generator: np.random.Generator
) -> list[Array]:
    """Return coordinates of starting points, the most promising first; the values of `delays` are tried in turn.

    A fit with a long delay and a vanishing lag can hide the optimum with a short delay. So the start with the shortest
    delays, near the model without delays, is the first one.
    """
    opt, layout = options.SEARCH, thin.layout
    count = min(opt.n_screened_per_parameter * (1 + len(layout.free_parameters)), opt.max_screened)
    blind = next((guess.theta for guess in guesses if guess.family == "blind"), np.full(len(layout.names), np.nan))
    drawn = [*(guess.theta for guess in guesses if guess.family != "blind"), *[blind] * count]
    found = []
    for attempt, theta in enumerate(drawn):
        filled = np.where(np.isnan(layout.fixed_values), theta, layout.fixed_values)
        for n in (n for n in delays if np.isnan(filled[n])):
            filled[n] = delays[n][attempt % len(delays[n])]
        # Unbounded parameters are drawn at random from the third attempt on, others from the second.
        gaps = np.flatnonzero(np.isnan(filled)).tolist()
        filled[gaps] = layout.draw_starts(gaps, attempt, generator)
        if (end := thin.evaluate(thin.from_parameters(filled), with_jacobian=False)) is not None:
            found.append(end)
    found = sorted(found, key=lambda end: end.deviance)
    if thin.is_unbounded.any():
        # Growing modes can fit the beginning of a record and lead away from stable ones: both kinds alternate.
        grows = [thin.has_growing_mode(end.z) for end in found]
        kinds = ([end for end, own in zip(found, grows, strict=True) if own is kind] for kind in (False, True))
        found = [end for pair in zip_longest(*kinds) for end in pair if end is not None]
    if delays and found:
        found.insert(0, min(found, key=lambda end: float(thin.to_parameters(end.z)[list(delays)].sum())))
    return [end.z for end in found]


def simulated_records(
    measurements: Measurements, layout: ParameterLayout, observables: Sequence[str]
) -> list[list[TimeSeries]]:
    """Return the measurements that can be simulated, of each record up to its first segment; empty if there are none.

    Known inputs, or initial states with a diffuse prior, must determine all measured channels.
    """
    parts = [] if measurements.has_only_statistics else list(measurements.records.values())
    can_simulate = any(part.inputs or layout.diffuse_modes is not None for part in parts)
    if not (can_simulate and layout.is_deterministic and layout.free_parameters):
        return []
    return [_first_segment(with_empty_series(part, observables).series, part.inputs) for part in parts]


def _first_segment(record: Sequence[TimeSeries], inputs: Mapping[str, InputSignal]) -> list[TimeSeries]:
    """Return the first segment of a long record, in which inputs vary about as much as in the whole record."""
    count, times = options.SEARCH.simulation_rows, union_times(record)
    while count < len(times):
        stop = times[count - 1]
        parts = [(signal.values[signal.times <= stop], signal.values) for signal in inputs.values()]
        if all(
            np.std(part) >= options.SEARCH.min_input_std_ratio * np.std(whole) for part, whole in parts if len(part)
        ):
            break
        count *= 2
    stop = times[min(count, len(times)) - 1]
    return [item.select(np.flatnonzero(item.times <= stop)) for item in record]


def fit_others(objective: Objective, x: Array, free: IndexArray) -> Array:
    """Return a point with some entries of the search vector fitted by the output-error method, if that applies.

    Shapes: x (n,), free (k,).
    """
    regression, layout = objective.regression, objective.layout
    held = np.setdiff1d(np.arange(len(layout.free_parameters)), free)
    if regression is None or len(held) == len(layout.free_parameters):
        return x
    opt, start = options.SEARCH, regression.from_parameters(layout.unpack(x).theta)
    found = regression.levenberg_marquardt(
        start, opt.simulation_max_steps, opt.simulation_tolerance, held=held.tolist()
    )
    if found is None:
        return x
    end = _search_point(objective, regression, found)
    end[held] = x[held]
    return max(x, end, key=objective.value)


def _search_point(objective: Objective, whole: VariableProjection, projected: ProjectedFit) -> Array:
    """Return the search vector of a projected fit."""
    prior, layout = objective.engine.prior, objective.layout
    ends = np.cumsum([group.size for group in prior.groups])[:-1]
    pieces = np.split(projected.mode_amplitudes, ends, axis=1) if prior.groups else []
    modes = np.array([max(float(np.sqrt(np.mean(piece**2))), 1e-6) for piece in pieces])
    levels, groups = projected.noise_std * prior.units.scales, np.array(prior.noise.level_indices)
    noise = np.array([float(np.sqrt(np.mean(levels[groups == g] ** 2))) for g in range(layout.n_noise_levels)])
    theta = whole.to_parameters(projected.z)
    return layout.pack(Hyperparameters(theta, np.zeros(0), np.zeros(0), layout.resolve_mode_std(modes, theta), noise))


def _maximize_from_projection(
    objective: Objective, whole: VariableProjection, projected: ProjectedFit, tolerance: float
) -> Optimum | None:
    """Return the optimum searched from a projected fit, preconditioned by its Jacobian; None if that is not finite."""
    layout, x0 = objective.layout, _search_point(objective, whole, projected)
    if not np.isfinite(objective.value(x0)):
        return None
    blocks, curvature = layout.slices, np.zeros(layout.size)
    curvature[blocks.mode_deviations] = options.SEARCH.mode_std_curvature
    counts, groups = whole.counts, np.array(objective.engine.prior.noise.level_indices)
    curvature[blocks.noise] = [2.0 * max(int(counts[groups == g].sum()), 1) for g in range(layout.n_noise_levels)]
    H = np.diag(curvature)
    slopes = np.array([layout.transforms[n].derivative(float(x0[i])) for i, n in enumerate(layout.free_parameters)])
    J = projected.jacobian * (slopes / whole.derivatives(projected.z))
    # The information is scaled up to the number of measurements, as the record is thinned.
    H[blocks.theta, blocks.theta] = J.T @ J * max(objective.engine.size / len(whole.values), 1.0)
    return maximize_lbfgs_preconditioned(objective, x0, H, tolerance)
