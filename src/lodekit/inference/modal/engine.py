"""Modal engine: Bayesian linear regression on a few modes and known functions, by sequential QR factorization.

Modes with small exponents are smooth: Chebyshev interpolation on panels of the time axis gives them at any number of
times up to rounding errors. Derivatives at all times become derivatives at the nodes by the transpose of the same
sparse matrix, so derivatives in the parameters are needed at the nodes only. Decayed modes need no panels, and if all
modes have decayed, no rows.

With D the modes at the measurements, r the data minus the known functions, both in units of the noise, and standard
normal amplitudes, ``A = I + D^T D`` and ``-2 log evidence = |r - D mu|^2 + |mu|^2 + log|A| + constants``. A QR
factorization of the stacked matrix ``[[I, 0], [D, r]]`` gives all terms without squaring the condition number, in time
proportional to the number of measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import chebyshev
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array

from lodekit.data.noise import MeasurementNoise
from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.engine import EngineTask, Evidence, SearchLimits
from lodekit.inference.stacked_measurements import StackedEngine, StackedMeasurements, StackedPosterior
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, ComplexArray
from lodekit.support.recent import RecentResults

#: Nodes of a panel, and the largest phase or decay of a mode on half of it: the error is then below 1e-13.
_PANEL_NODES, _MAX_PANEL_PHASE = 16, 1.8


@dataclass(frozen=True)
class ModeGrid:
    """Nodes for interpolation of the modes at the first times; at later times the modes have decayed.

    nodes: Scaled times; (k,).
    interpolation: Maps functions on the nodes to the first a times; None if the nodes are these times; (a, k).
    n_times: a.
    """

    nodes: Array
    interpolation: Any
    n_times: int

    def interpolate(self, functions: Array) -> Array:
        """Return functions at the first times, shape (a, r), from those on the nodes, (k, r)."""
        return functions if self.interpolation is None else np.asarray(self.interpolation @ functions)

    def interpolate_adjoint(self, gradients: Array) -> Array:
        """Return derivatives in functions on the nodes, shape (k, r), from those at the first times, (a, r)."""
        return gradients if self.interpolation is None else np.asarray(self.interpolation.T @ gradients)


def build_mode_grid(times: Array, rates: Sequence[float], lifetimes: Sequence[float]) -> ModeGrid:
    """Return nodes on panels for modes of some rates, and the interpolation to some times.

    Shapes: times (n,).
    """
    low, high = float(times[0]), float(times[-1])
    stop = min(high, low + max(lifetimes, default=0.0))
    count = int(np.searchsorted(times, stop, side="right"))
    # Interpolation is worthwhile if nodes are fewer than half of the times.
    edges, max_panels = [low], 0.5 * count / _PANEL_NODES
    while edges[-1] < stop and len(edges) <= max_panels + 1.0:
        alive = [rate for rate, life in zip(rates, lifetimes, strict=True) if life > edges[-1] - low]
        # No panel is longer than the lifetime of the modes.
        width = 2.0 * _MAX_PANEL_PHASE
        edges.append(edges[-1] + width / max(*alive, 1e-300, width / max(stop - low, 1e-300)))
    if len(edges) < 2 or len(edges) > max_panels + 1.0:
        return ModeGrid(times[:count], None, count)
    bounds = np.array(edges)
    widths = np.diff(bounds)
    points = np.cos(np.pi * (np.arange(_PANEL_NODES) + 0.5) / _PANEL_NODES)
    nodes = bounds[:-1, None] + widths[:, None] * 0.5 * (1.0 + points)
    panel = np.clip(np.searchsorted(bounds, times[:count], side="right") - 1, 0, len(widths) - 1)
    position = 2.0 * (times[:count] - bounds[panel]) / widths[panel] - 1.0
    inverse = np.linalg.inv(chebyshev.chebvander(points, _PANEL_NODES - 1))
    values = chebyshev.chebvander(position, _PANEL_NODES - 1) @ inverse
    places = (_PANEL_NODES * panel[:, None] + np.arange(_PANEL_NODES)).ravel()
    starts = _PANEL_NODES * np.arange(count + 1)
    return ModeGrid(nodes.ravel(), csr_array((values.ravel(), places, starts), shape=(count, nodes.size)), count)


#: Number of rows that are factorized together.
_CHUNK_ROWS = 16384


@dataclass(frozen=True)
class ModalPosterior(StackedPosterior):
    """The regression solved at given hyperparameters: a normal distribution of the amplitudes of modes.

    data: Measurements with their prior.
    coefficients: Coefficients of the measured observables.
    grid: The nodes at which the modes were computed.
    active_rows: For each observable, the measurements at which modes have not decayed.
    design: The modes times their prior standard deviations, in units of the noise, at these measurements; (a, r).
    residuals: The data minus the fit, in units of the noise; (m,).
    noise_std: Scaled standard deviation of the noise of each observable, of length one if it is constant.
    amplitudes: Posterior mean; (r,).
    precision_root: Upper triangular R with ``R^T R = A``; (r, r).
    value, error: The log evidence in the user's units, and its estimated rounding error.
    """

    data: StackedMeasurements
    hyper: Hyperparameters
    coefficients: Coefficients
    grid: ModeGrid
    active_rows: list[slice]
    design: Array
    residuals: Array
    noise_std: list[Array]
    amplitudes: Array
    precision_root: Array
    value: float
    error: float

    @property
    def covariance_root(self) -> Array:
        """``R^-1``, a root of the covariance of the amplitudes."""
        return np.asarray(solve_triangular(self.precision_root, np.eye(len(self.precision_root)), check_finite=False))

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """
        values = observables.evaluate(self.hyper.theta)
        return self._evaluate_observables(observables, values, times, self.amplitudes[:, None])[:, :, 0]

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        inverse = self.covariance_root
        found = [np.sum((part @ inverse) ** 2, axis=2) for part in self._iterate_mode_blocks(observables, times)]
        return np.concatenate(found) if found else np.zeros((0, observables.count))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        inverse, count = self.covariance_root, observables.count
        parts = [part @ inverse for part in self._iterate_mode_blocks(observables, times)]
        reduced = np.concatenate([np.zeros((0, count, len(inverse))), *parts]).reshape(len(times) * count, len(inverse))
        return np.asarray((reduced @ reduced.T).reshape(len(times), count, len(times), count))

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return samples of observables from the posterior, shape (size, n, o)."""
        mean, values = self.amplitudes, observables.evaluate(self.hyper.theta)
        drawn = mean[:, None] + self.covariance_root @ generator.standard_normal((len(mean), size))
        return self._evaluate_observables(observables, values, times, drawn).transpose(2, 0, 1)

    def _evaluate_observables(
        self, observables: Observables, coefficients: Coefficients, times: Array, amplitudes: Array
    ) -> Array:
        """Return observables of functions in their units, with the known functions, shape (n, o, s)."""
        means, _ = observables.means(coefficients, times, with_jacobian=False)
        parts = [part @ amplitudes for part in self._iterate_mode_blocks(observables, times)]
        total = np.concatenate(parts) if parts else np.zeros((0, observables.count, amplitudes.shape[1]))
        return total + np.stack(means, axis=1)[:, :, None]

    def _iterate_mode_blocks(self, observables: Observables, times: Array) -> Iterator[Array]:
        """Yield observables of the modes times their prior standard deviations, shape (n, o, r), in blocks."""
        prior = self.data.prior
        values, roots = observables.evaluate(self.hyper.theta), prior.mode_std(self.hyper.mode_amplitudes)
        # In chunks, because modes at all times may not fit into memory.
        for start in range(0, len(times), chunk := 8192):
            scaled = observables.units.scale_times(times[start : start + chunk])
            basis, _ = observables.mode_basis(values, prior.groups, scaled, with_jacobian=False)
            yield np.stack(basis, axis=1) * roots


@dataclass(frozen=True)
class ModalEngine(StackedEngine):
    """Log evidence and posterior of modes and known functions.

    data: Measurements with their prior, which has no free functions.
    """

    name: ClassVar[str] = "modal"
    benefits_from_threads: ClassVar[bool] = False
    search_limits: ClassVar[SearchLimits] = SearchLimits(1e-3)
    _grids: RecentResults = field(default_factory=lambda: RecentResults(4), init=False, compare=False, repr=False)

    @cached_property
    def _noises(self) -> list[MeasurementNoise]:
        """The noise of each observable: of all its measurements, or of one of them if all have the same."""
        parts = [self.data.noise.select(rows) for rows in self.data.observable_rows]
        return [part.select(slice(0, 1)) if part.is_homoscedastic else part for part in parts]

    @cached_property
    def _is_complete(self) -> list[bool]:
        """Whether each observable was measured once at every time."""
        return [len(i) == len(self.data.times) and not (np.diff(i) != 1).any() for i in self.data.index]

    def _gather_rows(self, functions: Sequence[Array]) -> list[Array]:
        """Return functions of each observable at all times, (n, ...), at its measurements, (m, ...)."""
        triples = zip(functions, self.data.index, self._is_complete, strict=True)
        return [part if full else part[index] for part, index, full in triples]

    def _mode_grid(self, exponents: ComplexArray) -> ModeGrid:
        """Return nodes that resolve modes of some exponents."""
        # In powers of two, so that neighbouring points of a search share them.
        rates = np.exp2(np.ceil(np.log2(np.maximum(np.abs(exponents), 1e-3))))
        # After 44 e-foldings a mode as large as the data is below rounding errors.
        decay = np.exp2(np.floor(np.log2(np.maximum(-exponents.real, 1e-3))))
        # An average depends on values since its interval began.
        lifetimes = np.where(exponents.real < 0, 44.0 / decay, np.inf) + self.prior.observables.longest_window
        key = tuple(sorted(zip(rates.tolist(), lifetimes.tolist(), strict=True)))
        times = self.data.scaled_times
        return self._grids.find(key, lambda: build_mode_grid(times, rates.tolist(), lifetimes.tolist()))

    @np.errstate(all="ignore")
    def _solve(self, hyper: Hyperparameters) -> ModalPosterior | None:
        """Return the solved regression; None if something is not finite."""
        data, prior, observables = self.data, self.prior, self.prior.observables
        coefficients = observables.evaluate(hyper.theta)
        if not all(np.isfinite(part).all() for part in (*coefficients.factors, *coefficients.mode_columns)):
            return None
        exponents = observables.exponents(coefficients, prior.groups, include_signals=False)
        grid = self._mode_grid(exponents)
        basis, _ = observables.mode_basis(coefficients, prior.groups, grid.nodes, with_jacobian=False)
        means, _ = observables.means(coefficients, data.times, with_jacobian=False)
        noise_std = [np.sqrt(noise.variance(hyper.noise_std)) for noise in self._noises]
        known = self._gather_rows(means)
        residuals, designs, active_rows = np.empty(data.size), [], []
        for o, rows in enumerate(data.observable_rows):
            np.subtract(data.values[rows], known[o], out=residuals[rows])
            residuals[rows] /= noise_std[o]
            index = data.index[o]
            count, modes = int(np.searchsorted(index, grid.n_times)), grid.interpolate(basis[o])
            designs.append((modes if self._is_complete[o] else modes[index[:count]]) / noise_std[o][:count, None])
            active_rows.append(slice(rows.start, rows.start + count))
        design = np.concatenate(designs) * prior.mode_std(hyper.mode_amplitudes)
        target = np.concatenate([residuals[rows] for rows in active_rows])
        if not np.isfinite(design).all() or not np.isfinite(target).all():
            return None
        size = design.shape[1]
        R = _append_rows(np.eye(size, size + 1), np.column_stack([design, target]))
        root, image = R[:size, :size], R[:size, size]
        diagonal = np.abs(np.diag(root))
        if not (diagonal > 0).all():
            return None
        mean = np.asarray(solve_triangular(root, image, check_finite=False)) if size else np.zeros(0)
        fitted = design @ mean
        through = float(np.linalg.norm((target - fitted) * fitted))
        for rows, part in zip(active_rows, _split_active(fitted, active_rows), strict=True):
            residuals[rows] -= part
        deviance = float(residuals @ residuals) + float(mean @ mean) + 2.0 * float(np.log(diagonal).sum())
        # An observable may have a single standard deviation for all rows, or no measurements.
        counts = [(len(index), std) for index, std in zip(data.index, noise_std, strict=True) if len(std)]
        logs = sum(count * float(np.log(std).mean()) for count, std in counts)
        value = -0.5 * (deviance + 2.0 * logs + len(residuals) * float(np.log(2.0 * np.pi))) + data.log_jacobian
        if not np.isfinite(value):
            return None
        # The effect of relative errors of modes and known functions on half the deviance.
        through += self._propagated_rounding_error(known, residuals, noise_std)
        # In practice, entries and the factorization have a relative error of 2e-15; that of a mode that grows by
        # e^k and of a response to inputs with it is up to k^2 times larger.
        growth = max(1.0, float(exponents.real.max(initial=0.0)) * (data.scaled_times[-1] - data.scaled_times[0]))
        error = 4e-15 * growth**2 * (through + float(np.linalg.norm(mean)) ** 2 + size + np.sqrt(len(residuals)))
        arrays = design, residuals, noise_std, mean, root
        return ModalPosterior(data, hyper, coefficients, grid, active_rows, *arrays, value, error)

    def _propagated_rounding_error(self, known: list[Array], residuals: Array, noise_std: list[Array]) -> float:
        """Return the effect of relative errors of known functions and data on half the deviance, from some rows."""
        total = 0.0
        for rows, part, deviation in zip(self.data.observable_rows, known, noise_std, strict=True):
            # About 8192 rows are enough for an estimate.
            step = (rows.stop - rows.start) // 8192 + 1
            values, mean = self.data.values[rows][::step], part[::step]
            sizes = (np.abs(mean) + np.abs(values - mean)) / deviation[::step]
            total += step * float(np.sum((residuals[rows][::step] * sizes) ** 2))
        return float(np.sqrt(total))

    @np.errstate(all="ignore")
    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity if it is not finite."""
        solution = self._solve(hyper)
        if solution is None:
            return Evidence.infeasible(hyper)
        gradient = self._gradient(solution)
        if not all(np.isfinite(part).all() for part in gradient.arrays):
            return Evidence.infeasible(hyper)
        return Evidence(solution.value, gradient, solution.error)

    def _gradient(self, solution: ModalPosterior) -> Hyperparameters:
        """Return the derivatives of the log evidence, in closed form.

        Minus half the deviance has the derivative ``r mu^T - D A^-1`` in the design, and the residuals in the known
        functions.
        """
        data, prior, hyper, observables = self.data, self.prior, solution.hyper, self.prior.observables
        active_rows, design, noise_std = solution.active_rows, solution.design, solution.noise_std
        turned, inverse = _reorthogonalize(design, solution.covariance_root)
        design_covariance, residuals = turned @ inverse.T, solution.residuals.copy()
        active = np.concatenate([residuals[rows] for rows in active_rows])
        # Amplitudes of nearly equal modes are large and cancel; their rounding errors must not affect the residuals.
        active -= turned @ (turned.T @ active - inverse.T @ solution.amplitudes)
        for rows, part in zip(active_rows, _split_active(active, active_rows), strict=True):
            residuals[rows] = part
        slopes = active[:, None] * solution.amplitudes - design_covariance
        mode_amplitudes = prior.sum_over_groups(np.sum(slopes * design, axis=0))
        leverages = _split_active(np.sum(design_covariance * design, axis=1), active_rows)
        noise, in_means = np.zeros(len(hyper.noise_std)), []
        for o, (rows, leverage, std) in enumerate(zip(data.observable_rows, leverages, noise_std, strict=True)):
            part = residuals[rows]
            in_variances = _noise_variance_gradient(part, leverage, std)
            noise += self._noises[o].level_gradient(in_variances, hyper.noise_std)
            part = part / std
            if not self._is_complete[o]:
                part = np.bincount(data.index[o], part, minlength=len(data.times)).astype(float)
            in_means.append(part)
        theta = np.zeros(len(hyper.theta))
        if len(theta):
            scaled = _split_active(slopes * prior.mode_std(hyper.mode_amplitudes), active_rows)
            nodes, on_nodes = solution.grid.nodes, self._node_gradients(solution, scaled)
            theta += observables.mode_basis_vjp(solution.coefficients, prior.groups, nodes, on_nodes)
            theta += observables.mean_vjp(solution.coefficients, data.times, in_means)
        none = np.zeros(0)
        return Hyperparameters(theta, none, none, mode_amplitudes, noise)

    def _node_gradients(self, solution: ModalPosterior, row_gradients: list[Array]) -> list[Array]:
        """Return derivatives in the modes of each observable at the nodes, from those in the rows of the design."""
        gathered = []
        for o, part in enumerate(row_gradients):
            at_times = part / solution.noise_std[o][: len(part), None]
            if not self._is_complete[o]:
                rows, at_times = at_times, np.zeros((solution.grid.n_times, part.shape[1]))
                np.add.at(at_times, self.data.index[o][: len(part)], rows)
            gathered.append(solution.grid.interpolate_adjoint(at_times))
        return gathered

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and its estimated rounding error."""
        solution = self._solve(hyper)
        return (-np.inf, 0.0) if solution is None else (solution.value, solution.error)

    def posterior(self, hyper: Hyperparameters) -> ModalPosterior:
        """Return the posterior at given hyperparameters; raise if it is not finite."""
        solution = self._solve(hyper)
        if solution is None:
            raise AccuracyError("the modes are not finite at these values; check units and starting values")
        return solution

    @staticmethod
    def rejection_reason(task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""
        if task.latents:
            return "the equations leave free functions, which it does not support"
        if not task.in_memory:
            return "the data are streamed"
        return ""

    @staticmethod
    def cost(task: EngineTask) -> float:
        """Return the approximate number of operations of an evaluation; infinite without inputs or exact values."""
        return float(task.size) if task.has_inputs or task.has_exact_values else np.inf

    @staticmethod
    def selection_reason(task: EngineTask) -> str:
        """Return the reason for choosing this engine."""
        known = "inputs are known" if task.has_inputs else "exact values are given"
        return f"{known}, and no free function remains"

    @classmethod
    def create(cls, prior: Prior, measurements: Measurements, task: EngineTask) -> ModalEngine:
        """Return an engine on measurements in memory."""
        return cls(StackedMeasurements.from_series(prior, measurements.series))


def _split_active(values: Array, active_rows: list[slice]) -> list[Array]:
    """Return values at all active rows as one array for each observable."""
    return np.split(values, np.cumsum([rows.stop - rows.start for rows in active_rows])[:-1])


def _append_rows(R: Array, rows: Array) -> Array:
    """Return the triangular QR factor of R above more rows, by chunks."""
    for start in range(0, len(rows), _CHUNK_ROWS):
        R = np.asarray(np.linalg.qr(np.concatenate([R, rows[start : start + _CHUNK_ROWS]]), mode="r"))
    return R


def _reorthogonalize(design: Array, inverse: Array) -> tuple[Array, Array]:
    """Return ``D R^-1``, shape (a, r), and ``R^-1``, with columns orthogonalised a second time.

    Nearly equal modes make these columns inaccurate, and products would lose digits again.

    Shapes: design (a, r), inverse (r, r).
    """
    turned = design @ inverse
    again = _append_rows(inverse, turned)
    if not len(turned) or not np.isfinite(again).all() or not np.diag(again).all():
        return turned, inverse
    correction = np.asarray(solve_triangular(again, np.eye(len(again)), check_finite=False))
    return turned @ correction, inverse @ correction


def _noise_variance_gradient(residuals: Array, leverage: Array, noise_std: Array) -> Array:
    """Return derivatives in the noise variances of an observable, shape (m,), or (1,) if there is one."""
    if len(noise_std) == 1:
        total = float(residuals @ residuals) - len(residuals) + float(leverage.sum())
        return np.asarray(0.5 * total / noise_std**2)
    diagonal = residuals**2 - 1.0
    diagonal[: len(leverage)] += leverage
    return np.asarray(0.5 * diagonal / noise_std**2)
