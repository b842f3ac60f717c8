"""Bayesian linear regression on a few modes beside known functions, by sequential QR factorization.

Modes are as smooth as their exponents are small: Chebyshev interpolation on panels of the time axis gives them at any
number of times to rounding. Derivatives at all times become derivatives at the nodes by the transpose of the same
sparse matrix, so derivatives in the parameters are needed at the nodes only. Decayed modes need no panels, and if all
modes have decayed, no rows.

With D the modes at the measurements, r the data without all that is known, both in units of the noise, and amplitudes
that are standard normal, ``A = I + D^T D`` and ``-2 log evidence = |r - D mu|^2 + |mu|^2 + log|A| + constants``. A QR
factorization of D above the identity, beside r above zero, gives all of it without squaring the condition, and takes
time in proportion to the number of measurements.

The modal engine: log evidence and posterior of systems without free functions, in linear time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array

from lodekit.data.noise import MeasurementNoise
from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.engine import DISTURBANCES_NEED_STATES, EngineTask, Evidence, SearchLimits
from lodekit.inference.stacked_measurements import StackedMeasurements, data_mean_squares, mode_mean_squares
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]
#: Nodes of a panel, and how far a mode may turn or decay on half of one: the error is below 1e-13 then.
_PANEL_NODES, _MAX_PANEL_PHASE = 16, 1.8


@dataclass(frozen=True)
class ModeGrid:
    """Nodes from which the modes are had at the first of all times; later they are gone.

    nodes: Scaled times; (k,).
    interpolation: Takes functions on the nodes to the first a times; None where the nodes are these; (a, k).
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
        return gradients if self.interpolation is None else np.asarray(self._interpolation_transposed @ gradients)

    @cached_property
    def _interpolation_transposed(self) -> Any:
        return self.interpolation.T


def build_mode_grid(times: Array, rates: Sequence[float], lifetimes: Sequence[float]) -> ModeGrid:
    """Return nodes on panels for modes of some rates, and the interpolation to some times.

    Shapes: times (n,).
    """
    low, high = float(times[0]), float(times[-1])
    stop = min(high, low + max(lifetimes, default=0.0))
    count = int(np.searchsorted(times, stop, side="right"))
    # Interpolation is worthwhile if nodes are fewer than half of the times.
    edges, most = [low], 0.5 * count / _PANEL_NODES
    while edges[-1] < stop and len(edges) <= most + 1.0:
        alive = [rate for rate, life in zip(rates, lifetimes, strict=True) if life > edges[-1] - low]
        # No panel is longer than the time in which modes live.
        width = 2.0 * _MAX_PANEL_PHASE
        edges.append(edges[-1] + width / max(*alive, 1e-300, width / max(stop - low, 1e-300)))
    if len(edges) < 2 or len(edges) > most + 1.0:
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


@dataclass(frozen=True)
class ModalData(StackedMeasurements):
    """Measurements in memory with their prior, which has no free functions, as the modal engine sees them.

    `prior`, `times`, `index`, `values`, `noise` and `log_jacobian` are those of `StackedMeasurements`.
    """

    _grids: dict[Any, ModeGrid] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_grids": {}}

    @cached_property
    def observable_rows(self) -> list[slice]:
        """Where the measurements of each observable stand among all."""
        return [slice(low, high) for low, high in pairwise(self.offsets.tolist())]

    @cached_property
    def noises(self) -> list[MeasurementNoise]:
        """The noise of each observable: of all its measurements, or of one of them where all have the same."""
        parts = [self.noise.select(rows) for rows in self.observable_rows]
        return [part.select(slice(0, 1)) if part.is_homoscedastic else part for part in parts]

    def gather_rows(self, functions: Sequence[Array]) -> list[Array]:
        """Return functions at all times, one for each observable, at its measurements: each of shape (m, ...).

        Shapes: functions (n, ...).
        """
        triples = zip(functions, self.index, self.is_complete_grid, strict=True)
        return [part if full else part[index] for part, index, full in triples]

    def scatter_add(self, observable: int, values: Array) -> Array:
        """Return sums over measurements of an observable at each time, shape (n,): the transposed of `pick`.

        Shapes: values (m,).
        """
        if self.is_complete_grid[observable]:
            return values
        return np.bincount(self.index[observable], values, minlength=len(self.times)).astype(float)

    @cached_property
    def is_complete_grid(self) -> list[bool]:
        """Whether each observable was measured once at every time."""
        return [len(i) == len(self.times) and not (np.diff(i) != 1).any() for i in self.index]

    def active_rows(self, n_times: int) -> list[slice]:
        """Return, for each observable, which of all measurements were made at the first times; `n_times` of these."""
        ends = [int(np.searchsorted(index, n_times)) for index in self.index]
        return [slice(rows.start, rows.start + end) for rows, end in zip(self.observable_rows, ends, strict=True)]

    def mode_grid(self, coefficients: Coefficients) -> ModeGrid:
        """Return nodes that are close enough for the modes at some values of the parameters."""
        found = self.observables.exponents(coefficients, self.prior.groups, include_signals=False)
        # In powers of two, so that neighbours in a search share them.
        rates = np.exp2(np.ceil(np.log2(np.maximum(np.abs(found), 1e-3))))
        # After 44 e-foldings a mode that was of the size of the data is below rounding.
        decay = np.exp2(np.floor(np.log2(np.maximum(-found.real, 1e-3))))
        lives = np.where(found.real < 0, 44.0 / decay, np.inf)
        # An average sees what was there when its interval began.
        lives = lives + self.observables.longest_window
        key = tuple(sorted(zip(rates.tolist(), lives.tolist(), strict=True)))
        if key not in self._grids:
            if len(self._grids) >= 4:
                self._grids.pop(next(iter(self._grids)))
            self._grids[key] = build_mode_grid(self.scaled_times, rates.tolist(), lives.tolist())
        return self._grids[key]


#: So many rows are factorized at once.
_CHUNK_ROWS = 16384


@dataclass(frozen=True)
class ModalRegression:
    """The regression solved at some hyperparameters.

    coefficients: Of the measured observables.
    grid: The nodes that the modes were computed at.
    active_rows: For each observable, the measurements that modes reach.
    design: The modes times their prior deviations, in units of the noise, at these measurements; (a, r).
    residuals: What the fit leaves of the data, in units of the noise; (m,).
    noise_std: Of the noise of each observable, scaled: shape (1,) where it is that of all its measurements.
    mean: Of the amplitudes; (r,).
    precision_root: Upper triangular R with ``R^T R = A``; (r, r).
    value: The log evidence in the user's units.
    error: About how large an error rounding makes in it.
    """

    coefficients: Coefficients
    grid: ModeGrid
    active_rows: list[slice]
    design: Array
    residuals: Array
    noise_std: list[Array]
    mean: Array
    precision_root: Array
    value: float
    error: float

    @property
    def covariance_root(self) -> Array:
        """``R^-1``: the covariance of the amplitudes is its product with its transposed."""
        return np.asarray(solve_triangular(self.precision_root, np.eye(len(self.precision_root)), check_finite=False))


@np.errstate(all="ignore")
def solve_modal(data: ModalData, hyper: Hyperparameters) -> ModalRegression | None:
    """Return the solved regression; None if something is not finite."""
    observables, groups = data.observables, data.prior.groups
    values = observables.evaluate(hyper.theta)
    if not all(np.isfinite(part).all() for part in (*values.factors, *values.mode_columns)):
        return None
    grid = data.mode_grid(values)
    basis, _ = observables.mode_basis(values, groups, grid.nodes, with_jacobian=False)
    means, _ = observables.means(values, data.times, with_jacobian=False)
    deviations = [np.sqrt(noise.variance(hyper.noise_std)) for noise in data.noises]
    known, parts = data.gather_rows(means), data.active_rows(grid.n_times)
    design = _design_matrix(data, grid, parts, basis, deviations) * data.prior.mode_std(hyper.mode_amplitudes)
    rest = np.empty(len(data.values))
    for rows, part, deviation in zip(data.observable_rows, known, deviations, strict=True):
        np.subtract(data.values[rows], part, out=rest[rows])
        rest[rows] /= deviation
    target = np.concatenate([rest[part] for part in parts])
    if not np.isfinite(design).all() or not np.isfinite(target).all():
        return None
    R, size = _qr_triangular_factor(design, target), design.shape[1]
    root, image = R[:size, :size], R[:size, size]
    diagonal = np.abs(np.diag(root))
    if not (diagonal > 0).all():
        return None
    mean = np.asarray(solve_triangular(root, image, check_finite=False)) if size else np.zeros(0)
    fitted = design @ mean
    through = float(np.linalg.norm((target - fitted) * fitted))
    for place, own in zip(parts, np.split(fitted, _part_boundaries(parts)), strict=True):
        rest[place] -= own
    deviance = float(rest @ rest) + float(mean @ mean) + 2.0 * float(np.log(diagonal).sum())
    # One deviation may be that of all measurements of an observable; there may be no measurement.
    measured = [
        (rows.stop - rows.start, part) for rows, part in zip(data.observable_rows, deviations, strict=True) if len(part)
    ]
    logs = [count * float(np.log(part).mean()) for count, part in measured]
    value = -0.5 * (deviance + 2.0 * sum(logs) + len(rest) * float(np.log(2.0 * np.pi))) + data.log_jacobian
    if not np.isfinite(value):
        return None
    # What relative errors of modes and known functions do to half the deviance.
    through += _propagated_rounding_error(data, known, rest, deviations)
    # In practice, entries and the factorization have a relative error of 2e-15.
    error = 4e-15 * (through + float(np.linalg.norm(mean)) ** 2 + size + np.sqrt(len(rest)))
    return ModalRegression(values, grid, parts, design, rest, deviations, mean, root, value, error)


def _part_boundaries(parts: list[slice]) -> NDArray[np.intp]:
    """Return where one part ends and the next one begins, in all of them together."""
    return np.cumsum([part.stop - part.start for part in parts])[:-1]


def _design_matrix(
    data: ModalData, grid: ModeGrid, parts: list[slice], basis: list[Array], noise_std: list[Array]
) -> Array:
    """Return the modes at the measurements that they reach, in units of the noise, shape (a, r)."""
    found = []
    for own, index, full, part, deviation in zip(
        basis, data.index, data.is_complete_grid, parts, noise_std, strict=True
    ):
        count, modes = part.stop - part.start, grid.interpolate(own)
        found.append((modes if full else modes[index[:count]]) / deviation[:count, None])
    return np.concatenate(found)


def _propagated_rounding_error(data: ModalData, known: list[Array], residuals: Array, noise_std: list[Array]) -> float:
    """Return what relative errors of known functions and data do to half the deviance, seen on some of the rows."""
    total = 0.0
    for rows, part, deviation in zip(data.observable_rows, known, noise_std, strict=True):
        # About 8192 rows are enough for an estimate.
        step = (rows.stop - rows.start) // 8192 + 1
        values, own, unit = data.values[rows][::step], part[::step], deviation[::step]
        sizes = (np.abs(own) + np.abs(values - own)) / unit
        total += step * float(np.sum((residuals[rows][::step] * sizes) ** 2))
    return float(np.sqrt(total))


def _qr_triangular_factor(design: Array, target: Array) -> Array:
    """Return the triangular factor of the design above the identity, the target above zero beside it."""
    size = design.shape[1]
    R = np.eye(size, size + 1)
    for start in range(0, len(target), _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        R = np.asarray(np.linalg.qr(np.concatenate([R, np.column_stack([design[rows], target[rows]])]), mode="r"))
    return R


@np.errstate(all="ignore")
def evaluate_modal(data: ModalData, hyper: Hyperparameters) -> Evidence:
    """Return the log evidence and its gradient; minus infinity where something is not finite."""
    found = solve_modal(data, hyper)
    if found is None:
        return Evidence.infeasible(hyper)
    gradient = _evidence_gradient(data, hyper, found)
    if not all(np.isfinite(part).all() for part in gradient.arrays):
        return Evidence.infeasible(hyper)
    return Evidence(found.value, gradient, found.error)


def _evidence_gradient(data: ModalData, hyper: Hyperparameters, regression: ModalRegression) -> Hyperparameters:
    """Return the derivatives of the log evidence, in closed form.

    Minus half the deviance has the derivative ``r mu^T - D A^-1`` in the design, and the rest in the known functions.
    """
    prior, observables, design, rest = data.prior, data.observables, regression.design, regression.residuals.copy()
    (turned, inverse), ends = (
        _reorthogonalize(design, regression.covariance_root),
        _part_boundaries(regression.active_rows),
    )
    covered = turned @ inverse.T
    left = np.concatenate([rest[part] for part in regression.active_rows])
    # Amplitudes of modes that look nearly alike are large and cancel; what rounding leaves of them is no rest.
    left -= turned @ (turned.T @ left - inverse.T @ regression.mean)
    for place, own_rest in zip(regression.active_rows, np.split(left, ends), strict=True):
        rest[place] = own_rest
    slopes = left[:, None] * regression.mean - covered
    mode_deviations = prior.sum_over_groups(np.sum(slopes * design, axis=0))
    noise = np.zeros(len(hyper.noise_std))
    shares = np.split(np.sum(covered * design, axis=1), ends)
    for rows, part, share, own, deviation in zip(
        data.observable_rows, regression.active_rows, shares, data.noises, regression.noise_std, strict=True
    ):
        noise += own.level_gradient(
            _noise_variance_gradient(rest[rows], share, part.stop - part.start, deviation), hyper.noise_std
        )
    theta = np.zeros(len(hyper.theta))
    if len(theta):
        gathered = _node_gradients(data, regression, np.split(slopes * prior.mode_std(hyper.mode_amplitudes), ends))
        theta += observables.mode_basis_vjp(regression.coefficients, prior.groups, regression.grid.nodes, gathered)
        in_means = [data.scatter_add(o, rest[r] / regression.noise_std[o]) for o, r in enumerate(data.observable_rows)]
        theta += observables.mean_vjp(regression.coefficients, data.times, in_means)
    none = np.zeros(0)
    return Hyperparameters(theta, none, none, mode_deviations, noise)


def _reorthogonalize(design: Array, inverse: Array) -> tuple[Array, Array]:
    """Return ``D R^-1``, shape (a, r), and ``R^-1``, with columns made orthogonal a second time.

    Modes that look nearly alike cost digits in them, and would cost as many once more in products.

    Shapes: design (a, r), inverse (r, r).
    """
    turned, again = design @ inverse, inverse
    for start in range(0, len(turned), _CHUNK_ROWS):
        again = np.asarray(np.linalg.qr(np.concatenate([again, turned[start : start + _CHUNK_ROWS]]), mode="r"))
    if not len(turned) or not np.isfinite(again).all() or not np.diag(again).all():
        return turned, inverse
    closer = np.asarray(solve_triangular(again, np.eye(len(again)), check_finite=False))
    return turned @ closer, inverse @ closer


def _noise_variance_gradient(residuals: Array, leverage: Array, count: int, noise_std: Array) -> Array:
    """Return derivatives in the variances of the noise of an observable, shape (m,), or (1,) where they are one."""
    if len(noise_std) == 1:
        total = float(residuals @ residuals) - len(residuals) + float(leverage.sum())
        return np.asarray(0.5 * total / noise_std**2)
    diagonal = residuals**2 - 1.0
    diagonal[:count] += leverage
    return np.asarray(0.5 * diagonal / noise_std**2)


def _node_gradients(data: ModalData, regression: ModalRegression, row_gradients: list[Array]) -> list[Array]:
    """Return derivatives in the modes of each observable at the nodes, from those in the rows of the design."""
    gathered = []
    for part, index, full, deviation in zip(
        row_gradients, data.index, data.is_complete_grid, regression.noise_std, strict=True
    ):
        own = part / deviation[: len(part), None]
        if not full:
            placed = np.zeros((regression.grid.n_times, part.shape[1]))
            np.add.at(placed, index[: len(part)], own)
            own = placed
        gathered.append(regression.grid.interpolate_adjoint(own))
    return gathered


@dataclass(frozen=True)
class ModalPosterior:
    """The posterior at given hyperparameters, as a normal distribution of the amplitudes of modes.

    data: Measurements with their prior.
    regression: At these hyperparameters.
    """

    data: ModalData
    hyper: Hyperparameters
    regression: ModalRegression

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.regression.value

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""
        return self.regression.error

    @property
    def mean_rounding_error(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: amplitudes do not cancel."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy: none."""
        return []

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met; there are none."""

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """
        values = observables.evaluate(self.hyper.theta)
        return self._evaluate_observables(observables, values, times, self.regression.mean[:, None])[:, :, 0]

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        inverse = self.regression.covariance_root
        found = [np.sum((part @ inverse) ** 2, axis=2) for part in self._iterate_mode_blocks(observables, times)]
        return np.concatenate(found) if found else np.zeros((0, observables.count))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        inverse, count = self.regression.covariance_root, observables.count
        parts = [part @ inverse for part in self._iterate_mode_blocks(observables, times)]
        reduced = np.concatenate([np.zeros((0, count, len(inverse))), *parts]).reshape(len(times) * count, len(inverse))
        return np.asarray((reduced @ reduced.T).reshape(len(times), count, len(times), count))

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o)."""
        mean, values = self.regression.mean, observables.evaluate(self.hyper.theta)
        drawn = mean[:, None] + self.regression.covariance_root @ generator.standard_normal((len(mean), size))
        return self._evaluate_observables(observables, values, times, drawn).transpose(2, 0, 1)

    def _evaluate_observables(
        self, observables: Observables, coefficients: Coefficients, times: Array, amplitudes: Array
    ) -> Array:
        """Return observables of functions in their units, all that is known added, shape (n, o, s)."""
        means, _ = observables.means(coefficients, times, with_jacobian=False)
        parts = [part @ amplitudes for part in self._iterate_mode_blocks(observables, times)]
        total = np.concatenate(parts) if parts else np.zeros((0, observables.count, amplitudes.shape[1]))
        return total + np.stack(means, axis=1)[:, :, None]

    def _iterate_mode_blocks(self, observables: Observables, times: Array) -> Iterator[Array]:
        """Yield the modes times their prior deviations, seen through the observables, shape (n, o, r), in blocks."""
        prior = self.data.prior
        values, roots = observables.evaluate(self.hyper.theta), prior.mode_std(self.hyper.mode_amplitudes)
        # In chunks, because modes at all times may not fit into memory.
        for start in range(0, len(times), chunk := 8192):
            scaled = observables.units.scale_times(times[start : start + chunk])
            basis, _ = observables.mode_basis(values, prior.groups, scaled, with_jacobian=False)
            yield np.stack(basis, axis=1) * roots


@dataclass(frozen=True)
class ModalEngine:
    """Log evidence and posterior of modes beside known functions.

    data: Measurements with their prior.
    """

    name: ClassVar[str] = "modal"
    uses_device: ClassVar[bool] = False
    has_states: ClassVar[bool] = False
    approximates_channel_prior: ClassVar[bool] = False
    data: ModalData

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.data.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return len(self.data.values)

    @property
    def search_limits(self) -> SearchLimits:
        """How far a search may take lengthscales; there are none."""
        return SearchLimits(1e-3)

    @property
    def benefits_from_threads(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        return evaluate_modal(self.data, hyper)

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.value_with_error(hyper)[0]

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        found = solve_modal(self.data, hyper)
        return (-np.inf, 0.0) if found is None else (found.value, found.error)

    def posterior(self, hyper: Hyperparameters) -> ModalPosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        found = solve_modal(self.data, hyper)
        if found is None:
            raise AccuracyError("the modes are not finite at these values; check units and starting values")
        return ModalPosterior(self.data, hyper, found)

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        data = self.data
        means, _ = self.prior.observables.means(coefficients, data.times, with_jacobian=False)
        left = [
            data.values[rows] - part for rows, part in zip(data.observable_rows, data.gather_rows(means), strict=True)
        ]
        return data_mean_squares(left), mode_mean_squares(self.prior, coefficients, data.subsampled_times)

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return an empty text: a prior that is not finite has many causes."""
        return ""

    @staticmethod
    def rejection_reason(task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""
        if task.has_disturbances:
            return DISTURBANCES_NEED_STATES
        if task.latents:
            return "free functions remain, and it has modes alone"
        if not task.in_memory:
            return "the data are streamed"
        if task.has_exact_values:
            return "exact values need the dense engine; give exact values a small noise_std"
        return ""

    @staticmethod
    def cost(task: EngineTask) -> float:
        """Return about how many operations an evaluation takes; without known inputs only those who ask get it."""
        return float(task.size) if task.has_inputs else np.inf

    @staticmethod
    def selection_reason(task: EngineTask) -> str:
        """Return the reason for choosing this engine."""
        return "inputs are known, and no free function remains"

    @classmethod
    def create(cls, prior: Prior, measurements: Measurements, task: EngineTask) -> ModalEngine:
        """Return an engine on measurements in memory."""
        return cls(ModalData.from_series(prior, measurements.series))
