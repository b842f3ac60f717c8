"""A process with finitely many states at unit lengthscale and variance.

Disturbances as states: those of coloured ones, and those of the system that they drive, from rest at the start.

States of the system have units of their own. Each is divided by a size that it may well reach, which is made of the
magnitudes of F and G in such a way that rows of F stay as small as its eigenvalues allow, whatever the units are.
Nothing depends on these sizes, so that derivatives take them for constants.

The prior as a linear system that white noise drives: free functions with their derivatives, and modes.

A free function z with a Matern covariance has the states ``z^(k)``, each divided by the k-th power of its rate; white
noise drives the last one. Modes are states that nothing drives: weights of their basis functions, moved to the time
that is looked at. Every observable is then one row of numbers, whatever the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.kalman.discretize import ProcessDiscretization
from lodekit.prior.compile import Coefficients
from lodekit.prior.disturbances import CompiledDisturbances, DisturbanceMatrices, require_disturbances
from lodekit.prior.expm import expm_frechet
from lodekit.prior.kernels import Kernel
from lodekit.prior.modes import ModeGroup, balance_companion
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]


@dataclass(frozen=True)
class UnitProcess:
    """A process at unit lengthscale and variance, in states that are divided by powers of its rate.

    rate: With the unit lengthscale.
    F: F; (s, s).
    noise_intensity: Of the noise that drives the last state.
    P: Of the states, at any time; (s, s).
    """

    rate: float
    F: Array
    noise_intensity: float
    P: Array

    @cached_property
    def P_root(self) -> Array:
        """A root of the covariance, lower triangular."""
        return np.asarray(np.linalg.cholesky(self.P), dtype=float)

    @classmethod
    def of(cls, latent: Kernel) -> UnitProcess:
        """Return the states of a process, which are made once; raise where there are none."""
        if latent not in _UNIT_PROCESSES:
            _UNIT_PROCESSES[latent] = cls._build(latent)
        return _UNIT_PROCESSES[latent]

    @classmethod
    def _build(cls, latent: Kernel) -> UnitProcess:
        own = latent.state_space(1.0)
        if own is None:
            raise LodekitError(f"expected a covariance with finitely many states, got {latent.name}")
        size = len(own.F)
        rate = float(-own.F[-1, 0]) ** (1.0 / size)
        powers = rate ** np.arange(size)
        h = [float(part[0]) for part in latent.derivatives(np, np.zeros(1), 2 * size - 2)]
        signs = (-1.0) ** np.arange(size)
        orders = np.add.outer(np.arange(size), np.arange(size))
        # Odd derivatives of an even function vanish at zero.
        at_zero = np.where(orders % 2 == 0, np.array(h)[orders] * signs, 0.0)
        matrix = own.F * powers / powers[:, None]
        return cls(rate, matrix, own.spectral_density / powers[-1] ** 2, at_zero / np.outer(powers, powers))


#: The few that were asked for.
_UNIT_PROCESSES: dict[Kernel, UnitProcess] = {}


def build_block_diagonal(blocks: Sequence[Array]) -> Array:
    """Return square matrices along a diagonal.

    Shapes: blocks (k, k).

    Examples
    --------
    >>> build_block_diagonal([np.array([[2.0]]), np.array([[1.0, 3.0], [0.0, 4.0]])]).tolist()
    [[2.0, 0.0, 0.0], [0.0, 1.0, 3.0], [0.0, 0.0, 4.0]]
    """
    edges = np.cumsum([0, *(len(part) for part in blocks)]).tolist()
    found = np.zeros((edges[-1], edges[-1]))
    for part, (start, stop) in zip(blocks, pairwise(edges), strict=True):
        found[start:stop, start:stop] = part
    return found


#: The window is looked at so many times to tell how far disturbances take observables.
_N_WINDOW_STEPS = 32


@dataclass(frozen=True)
class DisturbanceStates:
    """States of disturbances and of what they drive, at some hyperparameters, in scaled time.

    observables: What was measured; its response to disturbances is there.
    coefficients: Of these.
    """

    observables: Observables
    coefficients: Coefficients
    hyper: Hyperparameters

    @property
    def response(self) -> CompiledDisturbances:
        """The response to disturbances."""
        return require_disturbances(self.observables.disturbances)

    @cached_property
    def processes(self) -> tuple[UnitProcess | None, ...]:
        """The states of each disturbance, None for white noise."""
        return tuple(None if latent is None else UnitProcess.of(latent) for latent in self.response.kernels)

    @cached_property
    def lengthscales(self) -> dict[int, float]:
        """The lengthscales of those that have one, by their numbers."""
        return dict(zip(self.response.coloured_index, self.hyper.disturbance_lengthscales.tolist(), strict=True))

    @cached_property
    def _state_offsets(self) -> list[int]:
        sizes = [0 if unit is None else len(unit.F) for unit in self.processes]
        return [int(edge) for edge in np.cumsum([0, *sizes])]

    @property
    def state_slices(self) -> list[slice]:
        """Where the states of each disturbance stand; the rest are those of the system."""
        return [slice(start, stop) for start, stop in pairwise(self._state_offsets)]

    @property
    def _system_slice(self) -> slice:
        return slice(self._state_offsets[-1], self.size)

    @property
    def size(self) -> int:
        """How many states there are."""
        return self._state_offsets[-1] + self.response.shapes[0][0]

    @cached_property
    def _matrices_and_jacobian(self) -> tuple[DisturbanceMatrices, DisturbanceMatrices]:
        """The numbers, and their derivatives in the parameters."""
        return _split_coefficients(self.response, self.coefficients)

    @cached_property
    def _integrated_std(self) -> Array:
        """About what each disturbance adds up to in unit scaled time, shape (d,)."""
        span = self.observables.units.time_scale
        lengths = np.array([np.sqrt(span) if unit is None else span for unit in self.processes])
        return np.asarray(lengths * self.hyper.disturbance_amplitudes)

    @cached_property
    def state_scales(self) -> Array:
        """What the states of the system are divided by, shape (s,)."""
        own = self._matrices_and_jacobian[0]
        A = np.abs(own.F) * self.observables.units.time_scale
        push = np.abs(own.G) @ self._integrated_std
        if not len(A) or not (np.isfinite(A).all() and np.isfinite(push).all()):
            return np.ones(len(A))
        # The spectral radius of the magnitudes does not depend on units; rows of A, scaled, add up to twice it at most.
        rate = 2.0 * max(1.0, float(np.abs(np.linalg.eigvals(A)).max()))
        found = np.linalg.solve(np.eye(len(A)) - A / rate, push)
        return np.where(found > 0.0, found, 1.0)

    @cached_property
    def F(self) -> Array:
        """F of all states, shape (n, n); those of a disturbance are in units of its deviation."""
        own, x, span = self._matrices_and_jacobian[0], self._system_slice, self.observables.units.time_scale
        found = np.zeros((self.size, self.size))
        found[x, x] = span * own.F * self.state_scales / self.state_scales[:, None]
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=True)):
            if unit is not None:
                found[place, place] = unit.F / self.lengthscales[k]
                found[x, place.start] = self._noise_input_matrix[:, k]
        return found

    @cached_property
    def _noise_input_matrix(self) -> Array:
        """How much each disturbance moves the states of the system, shape (s, d)."""
        return np.asarray(self._matrices_and_jacobian[0].G * self._integrated_std / self.state_scales[:, None])

    @cached_property
    def _noise_intensities(self) -> list[Array]:
        """What each disturbance adds to the spectral density of the noise."""
        found = []
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=True)):
            own = np.zeros((self.size, self.size))
            if unit is None:
                own[self._system_slice, self._system_slice] = np.outer(
                    self._noise_input_matrix[:, k], self._noise_input_matrix[:, k]
                )
            else:
                own[place.stop - 1, place.stop - 1] = unit.noise_intensity / self.lengthscales[k]
            found.append(own)
        return found

    @property
    def noise_intensity(self) -> Array:
        """The spectral density of the noise that drives all states, shape (n, n)."""
        return np.asarray(sum(self._noise_intensities, np.zeros((self.size, self.size))))

    @property
    def P_root(self) -> Array:
        """A root of the covariance at the start: coloured disturbances are there, the system is at rest."""
        parts = [unit.P_root for unit in self.processes if unit is not None]
        return build_block_diagonal([*parts, np.zeros((self.response.shapes[0][0],) * 2)])

    def build_observation_matrix(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return observables as rows of numbers for the states, shape (o, n)."""
        values, _ = _split_coefficients(require_disturbances(observables.disturbances), coefficients)
        return self._assemble_observation_matrix(values, observables.units.scales)

    def _assemble_observation_matrix(self, matrices: DisturbanceMatrices, observable_scales: Array) -> Array:
        """Return rows from numbers, or derivatives of rows from theirs, shape (..., o, n)."""
        found = np.zeros((*matrices.observation_matrix.shape[:-1], self.size))
        found[..., self._system_slice] = matrices.observation_matrix * self.state_scales / observable_scales[:, None]
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=True)):
            if unit is not None:
                length = min(place.stop - place.start, matrices.feedthrough.shape[-3])
                parts = np.moveaxis(matrices.feedthrough[..., :length, :, k], -2, -1)
                found[..., place.start : place.start + length] = (
                    parts * self._derivative_scales(k)[:length] / observable_scales[:, None]
                )
        return found

    def _derivative_scales(self, disturbance: int) -> Array:
        """Return what the derivatives of a disturbance are in its states, shape (s,)."""
        unit, place = require_disturbances(self.processes[disturbance]), self.state_slices[disturbance]
        rate = unit.rate / (self.lengthscales[disturbance] * self.observables.units.time_scale)
        return np.asarray(self.hyper.disturbance_amplitudes[disturbance] * rate ** np.arange(place.stop - place.start))

    def vjp(
        self, grad_F: Array, grad_noise_intensity: Array, grad_P_initial: Array, grad_H: Array, H: Array
    ) -> tuple[Array, Array, Array]:
        """Return derivatives in the parameters, and in the logarithms of lengthscales and deviations.

        Shapes: grad_F, grad_noise_intensity, grad_P_initial (n, n), grad_H, H (o, n).
        """
        _, slopes = self._matrices_and_jacobian
        x, span, scales = self._system_slice, self.observables.units.time_scale, self.state_scales
        theta = np.tensordot(slopes.F * (span * scales / scales[:, None]), grad_F[x, x], 2)
        theta += np.tensordot(self._assemble_observation_matrix(slopes, self.observables.units.scales), grad_H, 2)
        in_pushes = np.zeros_like(self._noise_input_matrix)
        lengthscales, deviations = {}, np.zeros(len(self.processes))
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=True)):
            of_density = float(np.sum(grad_noise_intensity * self._noise_intensities[k]))
            if unit is None:
                in_pushes[:, k] = 2.0 * grad_noise_intensity[x, x] @ self._noise_input_matrix[:, k]
                deviations[k] = 2.0 * of_density
                continue
            in_pushes[:, k] = grad_F[x, place.start]
            deviations[k] = 2.0 * (of_density + float(np.sum(grad_P_initial[place, place] * unit.P)))
            orders = np.arange(len(unit.F))
            of_rows = float(np.sum(grad_H[:, place] * H[:, place] * orders))
            of_matrix = float(np.sum(grad_F[place, place] * self.F[place, place]))
            lengthscales[k] = -of_matrix - of_density - of_rows
        theta += np.tensordot(slopes.G * (self._integrated_std / scales[:, None]), in_pushes, 2)
        return theta, np.array([lengthscales[k] for k in self.response.coloured_index]), deviations


def _split_coefficients(
    response: CompiledDisturbances, coefficients: Coefficients
) -> tuple[DisturbanceMatrices, DisturbanceMatrices]:
    values, slopes = require_disturbances(coefficients.disturbance_table)
    return response.split(values), response.split(slopes)


def unit_disturbance_variance(
    observables: Observables, coefficients: Coefficients, theta: Array, lengthscale: float
) -> Array:
    """Return the mean squares of observables over the window, for each disturbance at unit deviation, shape (d, o).

    Shapes: theta (p,).
    """
    disturbed, none = require_disturbances(observables.disturbances), np.zeros(0)
    count, lengths = len(disturbed.names), np.full(len(disturbed.coloured_index), lengthscale)
    found = np.zeros((count, observables.count))
    for k in range(count):
        hyper = Hyperparameters(theta, none, none, none, none, lengths, np.eye(count)[k])
        own = DisturbanceStates(observables, coefficients, hyper)
        rows, P = own.build_observation_matrix(observables, coefficients), own.P_root @ own.P_root.T
        if not (np.isfinite(own.F).all() and np.isfinite(own.noise_intensity).all()):
            continue
        steps = ProcessDiscretization(own.F, own.noise_intensity, np.array([1.0 / _N_WINDOW_STEPS]))
        for _ in range(_N_WINDOW_STEPS):
            P = steps.Phi[0] @ P @ steps.Phi[0].T + steps.Q[0]
            found[k] += np.einsum("oi,ij,oj->o", rows, P, rows) / _N_WINDOW_STEPS
    return found


def disturbance_response_variance(observables: Observables, hyper: Hyperparameters, times: Array) -> Array:
    """Return the variance that disturbances give to observables, from rest at time zero, shape (n, o).

    Shapes: times (n,).
    """
    coefficients = observables.evaluate(hyper.theta)
    own = DisturbanceStates(observables, coefficients, hyper)
    rows, P = own.build_observation_matrix(observables, coefficients), own.P_root @ own.P_root.T
    ordered, places = np.unique(times, return_inverse=True)
    lengths, which = np.unique(np.diff(ordered, prepend=0.0), return_inverse=True)
    steps, found = (
        ProcessDiscretization(own.F, own.noise_intensity, lengths),
        np.zeros((len(ordered), observables.count)),
    )
    for number, step in enumerate(which):
        P = steps.Phi[step] @ P @ steps.Phi[step].T + steps.Q[step]
        found[number] = np.einsum("oi,ij,oj->o", rows, P, rows)
    return np.maximum(found, 0.0)[places]


@dataclass(frozen=True)
class StateSpaceGradient:
    """Derivatives of a number in all that a linear system is made of.

    F: In F; (s, s).
    noise_intensity: In the spectral density of the noise; (n, n).
    H: In the rows of the observables; (o, s).
    P_initial: In the covariance at the start, symmetric; (s, s).
    """

    F: Array
    noise_intensity: Array
    H: Array
    P_initial: Array


@dataclass(frozen=True)
class StateSpaceModel:
    """The prior of some observables as a linear system, at some hyperparameters.

    coefficients: Of the measured observables.
    processes: One for each free function.
    F: F; the states that noise drives come first; (s, s).
    noise_intensity: The spectral density of the noise that drives the first n states; (n, n).
    H: The measured observables; (o, s).
    disturbances: The states of disturbances and of what they drive; they stand between free functions and modes.
    """

    prior: Prior
    hyper: Hyperparameters
    coefficients: Coefficients
    processes: tuple[UnitProcess, ...]
    F: Array
    noise_intensity: Array
    H: Array
    disturbances: DisturbanceStates | None = None

    @property
    def n_stochastic(self) -> int:
        """How many states noise drives."""
        return len(self.noise_intensity)

    @property
    def size(self) -> int:
        """How many states there are."""
        return len(self.F)

    @cached_property
    def is_finite(self) -> bool:
        """Whether all numbers are."""
        return all(bool(np.isfinite(part).all()) for part in (self.F, self.noise_intensity, self.H))

    @cached_property
    def state_slices(self) -> list[slice]:
        """Where the states of each free function, of all disturbances, and of each group of modes stand."""
        more = 0 if self.disturbances is None else self.disturbances.size
        return _consecutive_slices(
            [*(len(unit.F) for unit in self.processes), more, *(group.size for group in self.prior.groups)]
        )

    @property
    def mode_slices(self) -> list[tuple[ModeGroup, slice]]:
        """The groups of modes, and where their states stand."""
        return list(zip(self.prior.groups, self.state_slices[len(self.processes) + 1 :], strict=True))

    def prior_P_root(self, time: float) -> Array:
        """Return a root of the prior covariance of the states at a scaled time, shape (s, s)."""
        parts = []
        for unit, deviation in zip(self.processes, self.hyper.amplitudes, strict=True):
            parts.append(deviation * unit.P_root)
        parts += [] if self.disturbances is None else [self.disturbances.P_root]
        roots = self.prior.mode_std(self.hyper.mode_amplitudes)
        offset = self.n_stochastic
        for group, place in self.mode_slices:
            own = roots[place.start - offset : place.stop - offset]
            parts.append(_matrix_exponential(self.F[place, place], time - _mode_origin(group)) * own)
        return build_block_diagonal(parts)

    def build_observation_matrix(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return other observables as rows, shape (o, s)."""
        return build_observation_matrix(
            self.prior, self.hyper, self.processes, observables, coefficients, self.disturbances
        )

    def vjp(self, gradient: StateSpaceGradient, time: float) -> Hyperparameters:
        """Return derivatives in the parameters and in the logarithms of all hyperparameters but the noise."""
        own, values = self.prior.observables, self.coefficients
        theta = np.zeros(len(self.hyper.theta))
        lengthscales, deviations = np.zeros(len(self.processes)), np.zeros(len(self.processes))
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=False)):
            in_density = float(np.sum(gradient.noise_intensity[place, place] * self.noise_intensity[place, place]))
            in_start = float(np.sum(gradient.P_initial[place, place] * unit.P)) * self.hyper.amplitudes[k] ** 2
            deviations[k] = 2.0 * (in_density + in_start)
            orders = np.arange(len(unit.F))
            in_rows = float(np.sum(gradient.H[:, place] * self.H[:, place] * orders))
            in_matrix = float(np.sum(gradient.F[place, place] * self.F[place, place]))
            lengthscales[k] = -in_matrix - in_density - in_rows
            length = min(values.free.shape[-1], len(orders))
            scale = (unit.rate / self.hyper.lengthscales[k]) ** orders[:length]
            weights = gradient.H[:, place][:, :length] * scale
            theta += np.tensordot(values.free_jacobian[:, :, k, :length], weights, 2)
        mode_deviations = np.zeros(len(self.prior.groups))
        for number, (group, place) in enumerate(self.mode_slices):
            span, deviation = time - _mode_origin(group), self.hyper.mode_amplitudes[number]
            flow = _matrix_exponential(self.F[place, place], span)
            in_root = 2.0 * gradient.P_initial[place, place] @ flow * deviation**2
            mode_deviations[number] = float(np.sum(in_root * flow))
            if not len(theta):
                continue
            weights = [row[None, place] for row in gradient.H]
            theta += own.mode_basis_vjp(values, (group,), np.array([_mode_origin(group)]), weights)
            if group.root is None:
                _, back = expm_frechet(span * self.F[place, place].T[None], in_root[None, None])
                in_matrix_of = gradient.F[place, place] + span * back[0, 0]
                theta += np.tensordot(_companion_jacobian(own, values, group), in_matrix_of, 2)
        found = Hyperparameters(theta, lengthscales, deviations, mode_deviations, np.zeros(0))
        return found if self.disturbances is None else self._disturbance_vjp(self.disturbances, found, gradient)

    def _disturbance_vjp(
        self, disturbances: DisturbanceStates, hyper_gradient: Hyperparameters, gradient: StateSpaceGradient
    ) -> Hyperparameters:
        """Return derivatives with those that disturbances add."""
        place = self.state_slices[len(self.processes)]
        inner = gradient.F[place, place], gradient.noise_intensity[place, place], gradient.P_initial[place, place]
        theta, lengthscales, deviations = disturbances.vjp(*inner, gradient.H[:, place], self.H[:, place])
        return replace(
            hyper_gradient,
            theta=hyper_gradient.theta + theta,
            disturbance_lengthscales=lengthscales,
            disturbance_amplitudes=deviations,
        )


def build_state_space_model(prior: Prior, hyper: Hyperparameters, coefficients: Coefficients) -> StateSpaceModel:
    """Return the prior of what was measured as a linear system."""
    units = tuple(UnitProcess.of(latent) for latent in prior.kernels)
    matrices, densities = [], []
    for unit, ell, deviation in zip(units, hyper.lengthscales, hyper.amplitudes, strict=True):
        matrices.append(unit.F / ell)
        density = np.zeros_like(unit.F)
        density[-1, -1] = deviation**2 * unit.noise_intensity / ell
        densities.append(density)
    disturbed = None
    if prior.observables.disturbances is not None:
        disturbed = DisturbanceStates(prior.observables, coefficients, hyper)
        matrices.append(disturbed.F)
        densities.append(disturbed.noise_intensity)
    matrices += [_build_mode_matrix(prior.observables, coefficients, group) for group in prior.groups]
    rows = build_observation_matrix(prior, hyper, units, prior.observables, coefficients, disturbed)
    return StateSpaceModel(
        prior,
        hyper,
        coefficients,
        units,
        build_block_diagonal(matrices),
        build_block_diagonal(densities),
        rows,
        disturbed,
    )


def build_observation_matrix(
    prior: Prior,
    hyper: Hyperparameters,
    processes: Sequence[UnitProcess],
    observables: Observables,
    coefficients: Coefficients,
    disturbances: DisturbanceStates | None = None,
) -> Array:
    """Return observables as rows of numbers for the states, shape (o, s)."""
    parts = []
    for k, (latent, unit) in enumerate(zip(prior.kernels, processes, strict=True)):
        own = coefficients.free[:, k]
        latent.check_order(2 * (own.shape[-1] - 1))
        block = np.zeros((len(own), len(unit.F)))
        block[:, : own.shape[-1]] = own * (unit.rate / hyper.lengthscales[k]) ** np.arange(own.shape[-1])
        parts.append(block)
    if disturbances is not None:
        parts.append(disturbances.build_observation_matrix(observables, coefficients))
    for group in prior.groups:
        found, _ = observables.mode_basis(coefficients, (group,), np.array([_mode_origin(group)]), with_jacobian=False)
        parts.append(np.concatenate(found))
    return np.concatenate(parts, axis=1) if parts else np.zeros((observables.count, 0))


def _consecutive_slices(sizes: Sequence[int]) -> list[slice]:
    edges = np.cumsum([0, *sizes]).tolist()
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _mode_origin(group: ModeGroup) -> float:
    """Return the scaled time at which the states of a group are the weights of its basis functions."""
    return 1.0 if group.root is not None and group.root.real > 0 else 0.0


def _matrix_exponential(F: Array, dt: float) -> Array:
    """Return ``e^(F span)``."""
    if dt == 0.0:
        return np.eye(len(F))
    if not np.isfinite(F * dt).all():
        return np.full(F.shape, np.inf)
    return np.asarray(expm_frechet((F * dt)[None])[0][0])


def _build_mode_matrix(observables: Observables, coefficients: Coefficients, group: ModeGroup) -> Array:
    """Return how the weights of basis functions move when time does, shape (r, r)."""
    factor = observables.compiled.factors[group.factor]
    if group.root is None:
        none = coefficients.jacobian.factors[group.factor][:0]
        return balance_companion(coefficients.factors[group.factor], none, factor.multiplicity)[0]
    root = group.root * observables.units.time_scale
    own = np.array([[root.real, root.imag], [-root.imag, root.real]]) if root.imag else np.array([[root.real]])
    shift = np.diag(np.arange(1.0, factor.multiplicity), 1)
    return np.asarray(np.kron(np.eye(factor.multiplicity), own) + np.kron(shift, np.eye(len(own))))


def _companion_jacobian(observables: Observables, coefficients: Coefficients, group: ModeGroup) -> Array:
    """Return derivatives of the companion matrix of a group in the parameters, shape (p, r, r)."""
    factor = observables.compiled.factors[group.factor]
    own = coefficients.factors[group.factor], coefficients.jacobian.factors[group.factor]
    return balance_companion(*own, factor.multiplicity)[1]
