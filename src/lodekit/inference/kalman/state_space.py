"""The prior as a linear state-space model driven by white noise.

A latent function z with a Matern covariance has the states ``z^(k)``, each divided by the k-th power of its rate; white
noise drives the last one [1]_. Modes are deterministic states: weights of their basis functions, propagated to the
current time. Disturbances add their own states and those of the system that they drive, from rest at the start. If no
function is free, these states contain all modes: their initial covariance replaces separate states, and in regular
rows the filter converges to its steady state. Every observable is then a linear combination of states that does not
depend on time.

States of the driven system are scaled by magnitudes from F and G, chosen such that the rows of F stay as small as its
eigenvalues allow, whatever the units are. Nothing depends on these scales, so derivatives treat them as constants.

.. [1] J. Hartikainen and S. Sarkka, Kalman filtering and smoothing solutions to temporal Gaussian process regression
   models, IEEE International Workshop on Machine Learning for Signal Processing, 2010, 379-384.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from lodekit.errors import LodekitError
from lodekit.inference.kalman.discretize import ProcessDiscretization
from lodekit.prior.compile import Coefficients
from lodekit.prior.disturbances import CompiledDisturbances, DisturbanceMatrices, require_disturbances
from lodekit.prior.expm import expm_frechet
from lodekit.prior.kernels import Kernel
from lodekit.prior.modes import ModeGroup, mode_matrix, mode_matrix_with_jacobian
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, IndexArray


@dataclass(frozen=True)
class UnitProcess:
    """A process at unit lengthscale and variance, in states that are divided by powers of its rate.

    F, P: State matrix and stationary covariance; (s, s).
    noise_intensity: Spectral density of the noise that drives the last state.
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
        """Return the states of a process, which are cached; raise if there are infinitely many."""
        if latent in _UNIT_PROCESSES:
            return _UNIT_PROCESSES[latent]
        state_space = latent.state_space(1.0)
        if state_space is None:
            raise LodekitError(f"expected a covariance with finitely many states, got {latent.name}")
        companion, spectral_density = state_space
        size = len(companion)
        rate = float(-companion[-1, 0]) ** (1.0 / size)
        powers = rate ** np.arange(size)
        h = [float(part[0]) for part in latent.derivatives(np, np.zeros(1), 2 * size - 2)]
        orders = np.add.outer(np.arange(size), np.arange(size))
        # Odd derivatives of an even function vanish at zero.
        at_zero = np.where(orders % 2 == 0, np.array(h)[orders] * (-1.0) ** np.arange(size), 0.0)
        F = companion * powers / powers[:, None]
        process = cls(rate, F, spectral_density / powers[-1] ** 2, at_zero / np.outer(powers, powers))
        return _UNIT_PROCESSES.setdefault(latent, process)


_UNIT_PROCESSES: dict[Kernel, UnitProcess] = {}


def build_block_diagonal(blocks: Sequence[Array]) -> Array:
    """Return square matrices along a diagonal; there may be none."""
    places = consecutive_slices([len(block) for block in blocks])
    result = np.zeros((places[-1].stop if places else 0,) * 2)
    for place, block in zip(places, blocks, strict=True):
        result[place, place] = block
    return result


@dataclass(frozen=True)
class DisturbanceStates:
    """States of disturbances and of the system that they drive, at given hyperparameters, in scaled time.

    observables: The measured observables.
    coefficients: Their coefficients.
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
        """The process of each disturbance; None for white noise."""
        return tuple(None if latent is None else UnitProcess.of(latent) for latent in self.response.kernels)

    @cached_property
    def lengthscales(self) -> dict[int, float]:
        """The lengthscales of coloured disturbances, by their indices."""
        return dict(zip(self.response.coloured_index, self.hyper.disturbance_lengthscales.tolist(), strict=True))

    @cached_property
    def state_slices(self) -> list[slice]:
        """The states of each disturbance and, last, those of the system."""
        sizes = [0 if process is None else len(process.F) for process in self.processes]
        return consecutive_slices([*sizes, self.response.shapes[0][0]])

    @property
    def size(self) -> int:
        """The number of states."""
        return int(self.state_slices[-1].stop)

    @cached_property
    def _matrices_and_jacobian(self) -> tuple[DisturbanceMatrices, DisturbanceMatrices]:
        """The matrices, and their derivatives in the parameters."""
        values, jacobian = require_disturbances(self.coefficients.disturbance_table)
        return self.response.split(values), self.response.split(jacobian)

    @cached_property
    def _integrated_std(self) -> Array:
        """The approximate standard deviation of the integral of each disturbance over unit scaled time, shape (d,)."""
        span = self.observables.units.time_scale
        lengths = np.array([np.sqrt(span) if unit is None else span for unit in self.processes])
        return np.asarray(lengths * self.hyper.disturbance_amplitudes)

    @cached_property
    def state_scales(self) -> Array:
        """The scales of the states of the system, shape (s,)."""
        F, G, _, _ = self._matrices_and_jacobian[0]
        F = np.abs(F) * self.observables.units.time_scale
        drive = np.abs(G) @ self._integrated_std
        if not len(F) or not (np.isfinite(F).all() and np.isfinite(drive).all()):
            return np.ones(len(F))
        # The spectral radius of the magnitudes does not depend on units; scaled rows of F add up to at most twice it.
        rate = 2.0 * max(1.0, float(np.abs(np.linalg.eigvals(F)).max()))
        scales = np.linalg.solve(np.eye(len(F)) - F / rate, drive)
        return np.where(scales > 0.0, scales, 1.0)

    @cached_property
    def F(self) -> Array:
        """F of all states, shape (n, n); those of a disturbance are in units of its amplitude."""
        system_F, x, span = self._matrices_and_jacobian[0][0], self.state_slices[-1], self.observables.units.time_scale
        F = np.zeros((self.size, self.size))
        F[x, x] = span * system_F * self.state_scales / self.state_scales[:, None]
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=False)):
            if unit is not None:
                F[place, place] = unit.F / self.lengthscales[k]
                F[x, place.start] = self._noise_input_matrix[:, k]
        return F

    @cached_property
    def _noise_input_matrix(self) -> Array:
        """The input matrix from disturbances to the states of the system, shape (s, d)."""
        _, G, _, _ = self._matrices_and_jacobian[0]
        return np.asarray(G * self._integrated_std / self.state_scales[:, None])

    @cached_property
    def _noise_intensities(self) -> list[Array]:
        """The contribution of each disturbance to the noise intensity."""
        x, parts = self.state_slices[-1], [np.zeros((self.size, self.size)) for _ in self.processes]
        for k, (unit, place, part) in enumerate(zip(self.processes, self.state_slices, parts, strict=False)):
            if unit is None:
                part[x, x] = np.outer(self._noise_input_matrix[:, k], self._noise_input_matrix[:, k])
            else:
                part[place.stop - 1, place.stop - 1] = unit.noise_intensity / self.lengthscales[k]
        return parts

    @property
    def noise_intensity(self) -> Array:
        """The spectral density of the white noise, shape (n, n)."""
        return np.asarray(sum(self._noise_intensities, np.zeros((self.size, self.size))))

    @property
    def P_root(self) -> Array:
        """A root of the covariance at the start: disturbances are stationary, the system is at rest."""
        parts = [unit.P_root for unit in self.processes if unit is not None]
        return build_block_diagonal([*parts, np.zeros((self.response.shapes[0][0],) * 2)])

    @property
    def has_modes(self) -> bool:
        """Whether the states contain all modes."""
        return self.response.states is not None

    @cached_property
    def _modes(self) -> tuple[Observables, Coefficients]:
        """The states of the system as observables of the modes, and their coefficients."""
        units = self.observables.units.unscaled(self.response.shapes[0][0])
        states = Observables(require_disturbances(self.response.states), units)
        return states, states.evaluate(self.hyper.theta)

    @cached_property
    def mode_states(self) -> Array:
        """The initial states of the system in each basis function of the modes, shape (s, r)."""
        states, coefficients = self._modes
        basis, _ = states.mode_basis(coefficients, states.compiled.groups, np.zeros(1), with_jacobian=False)
        return np.concatenate(basis) / self.state_scales[:, None]

    def mode_states_vjp(self, gradient: Array) -> Array:
        """Return derivatives in the parameters, (p,), from those in `mode_states`, (s, r)."""
        states, coefficients = self._modes
        weights = list((gradient / self.state_scales[:, None])[:, None])
        return states.mode_basis_vjp(coefficients, states.compiled.groups, np.zeros(1), weights)

    def build_observation_matrix(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return the observation matrix of some observables, shape (o, n)."""
        values, _ = require_disturbances(coefficients.disturbance_table)
        _, _, H, D = require_disturbances(observables.disturbances).split(values)
        return self._assemble_observation_matrix(H, D, observables.units.scales)

    def _assemble_observation_matrix(self, system_H: Array, D: Array, observable_scales: Array) -> Array:
        """Return the observation matrix from its parts, or its derivatives from theirs, shape (..., o, n)."""
        H = np.zeros((*system_H.shape[:-1], self.size))
        H[..., self.state_slices[-1]] = system_H * self.state_scales / observable_scales[:, None]
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=False)):
            if unit is not None:
                length = min(place.stop - place.start, D.shape[-3])
                parts = np.moveaxis(D[..., :length, :, k], -2, -1)
                rate = unit.rate / (self.lengthscales[k] * self.observables.units.time_scale)
                scales = self.hyper.disturbance_amplitudes[k] * rate ** np.arange(length)
                H[..., place.start : place.start + length] = parts * scales / observable_scales[:, None]
        return H

    def vjp(
        self, grad_F: Array, grad_noise_intensity: Array, grad_P_initial: Array, grad_H: Array, H: Array
    ) -> tuple[Array, Array, Array]:
        """Return derivatives in the parameters, and in the logarithms of lengthscales and amplitudes.

        Shapes: grad_F, grad_noise_intensity, grad_P_initial (n, n), grad_H, H (o, n).
        """
        dF, dG, dH, dD = self._matrices_and_jacobian[1]
        x, span, scales = self.state_slices[-1], self.observables.units.time_scale, self.state_scales
        theta = np.tensordot(dF * (span * scales / scales[:, None]), grad_F[x, x], 2)
        theta += np.tensordot(self._assemble_observation_matrix(dH, dD, self.observables.units.scales), grad_H, 2)
        grad_input_matrix = np.zeros_like(self._noise_input_matrix)
        lengthscales, amplitudes = {}, np.zeros(len(self.processes))
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=False)):
            in_density = float(np.sum(grad_noise_intensity * self._noise_intensities[k]))
            if unit is None:
                grad_input_matrix[:, k] = 2.0 * grad_noise_intensity[x, x] @ self._noise_input_matrix[:, k]
                amplitudes[k] = 2.0 * in_density
                continue
            grad_input_matrix[:, k] = grad_F[x, place.start]
            amplitudes[k] = 2.0 * (in_density + float(np.sum(grad_P_initial[place, place] * unit.P)))
            matrices = grad_F[place, place], self.F[place, place], grad_H[:, place], H[:, place]
            lengthscales[k] = _lengthscale_vjp(*matrices, in_density)
        theta += np.tensordot(dG * (self._integrated_std / scales[:, None]), grad_input_matrix, 2)
        return theta, np.array([lengthscales[k] for k in self.response.coloured_index]), amplitudes


def _lengthscale_vjp(grad_F: Array, F: Array, grad_H: Array, H: Array, of_noise_intensity: float) -> float:
    """Return the derivative in the log lengthscale of a process, from those in its matrices."""
    of_H = float(np.sum(grad_H * H * np.arange(len(F))))
    return -float(np.sum(grad_F * F)) - of_noise_intensity - of_H


def unit_disturbance_variance(
    observables: Observables, coefficients: Coefficients, theta: Array, lengthscale: float
) -> Array:
    """Return mean squares of observables over the window, for each disturbance at unit amplitude, shape (d, o).

    Shapes: theta (p,).
    """
    disturbances, none = require_disturbances(observables.disturbances), np.zeros(0)
    count, lengths = len(disturbances.names), np.full(len(disturbances.coloured_index), lengthscale)
    mean_squares, n_steps = np.zeros((count, observables.count)), 32
    for k in range(count):
        hyper = Hyperparameters(theta, none, none, none, none, lengths, np.eye(count)[k])
        states = DisturbanceStates(observables, coefficients, hyper)
        if np.isfinite(states.F).all() and np.isfinite(states.noise_intensity).all():
            dt, index = np.array([1.0 / n_steps]), np.zeros(n_steps, dtype=np.intp)
            mean_squares[k] = sum(part / n_steps for part in _propagate_variance(states, dt, index))
    return mean_squares


def disturbance_response_variance(observables: Observables, hyper: Hyperparameters, times: Array) -> Array:
    """Return the variance of observables due to disturbances, from rest at time zero, shape (n, o), at times (n,)."""
    states = DisturbanceStates(observables, observables.evaluate(hyper.theta), hyper)
    ordered, time_index = np.unique(times, return_inverse=True)
    dt, step_index = np.unique(np.diff(ordered, prepend=0.0), return_inverse=True)
    variances = [np.zeros((0, observables.count)), *(v[None] for v in _propagate_variance(states, dt, step_index))]
    return np.maximum(np.concatenate(variances), 0.0)[time_index]


def _propagate_variance(states: DisturbanceStates, dt: Array, step_index: IndexArray) -> Iterator[Array]:
    """Yield the variances of observables after each of some steps from rest, shape (o,)."""
    H, P = states.build_observation_matrix(states.observables, states.coefficients), states.P_root @ states.P_root.T
    steps = ProcessDiscretization(states.F, states.noise_intensity, dt)
    for step in step_index:
        P = steps.Phi[step] @ P @ steps.Phi[step].T + steps.Q[step]
        yield np.einsum("oi,ij,oj->o", H, P, H)


@dataclass
class StateSpaceGradient:
    """Derivatives of the log evidence in the matrices of a state-space model, summed over blocks.

    F, noise_intensity, H: In the state matrix, (s, s), in the spectral density of the noise, (n, n), and in the
        observation matrix, (o, s).
    """

    F: Array
    noise_intensity: Array
    H: Array

    @classmethod
    def zeros(cls, model: StateSpaceModel) -> StateSpaceGradient:
        """Return zeros for a model."""
        return cls(*(np.zeros_like(part) for part in (model.F, model.noise_intensity, model.H)))


@dataclass(frozen=True)
class StateSpaceModel:
    """The prior of the measured observables as a state-space model, at given hyperparameters.

    coefficients: Coefficients of the measured observables.
    processes: One for each latent function.
    F: State matrix; stochastic states come first; (s, s).
    noise_intensity: Spectral density of the noise that drives the first n states; (n, n).
    H: Observation matrix of the measured observables; (o, s).
    disturbances: The states of disturbances, between those of latent functions and modes.
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
        """The number of states that noise drives."""
        return len(self.noise_intensity)

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self.F)

    @property
    def groups(self) -> tuple[ModeGroup, ...]:
        """The groups of modes with states of their own."""
        return () if self.disturbances is not None and self.disturbances.has_modes else self.prior.groups

    @cached_property
    def state_slices(self) -> list[slice]:
        """The states of each latent function, of all disturbances, and of each group of modes."""
        sizes = [*(len(unit.F) for unit in self.processes), 0 if self.disturbances is None else self.disturbances.size]
        return consecutive_slices([*sizes, *(group.size for group in self.groups)])

    @property
    def mode_slices(self) -> list[tuple[ModeGroup, slice]]:
        """The groups of modes with states of their own, and these."""
        return list(zip(self.groups, self.state_slices[len(self.processes) + 1 :], strict=True))

    def prior_P_root(self, time: float) -> Array:
        """Return a root of the prior covariance of the states at a scaled time, shape (s, s)."""
        parts = [a * process.P_root for process, a in zip(self.processes, self.hyper.amplitudes, strict=True)]
        parts += [] if self.disturbances is None else [self.disturbances.P_root]
        roots = self.prior.mode_std(self.hyper.mode_amplitudes)
        for group, place in self.mode_slices:
            std = roots[place.start - self.n_stochastic : place.stop - self.n_stochastic]
            parts.append(expm_frechet(self.F[None, place, place] * (time - _mode_origin(group)))[0][0] * std)
        P_root = build_block_diagonal(parts)
        if self.disturbances is not None and self.disturbances.has_modes:
            x = self.disturbances.state_slices[-1]
            P_root[x, x] = self.disturbances.mode_states * roots
        return P_root

    def build_observation_matrix(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return the observation matrix of some observables, shape (o, s)."""
        parts = [np.zeros((observables.count, 0))]
        for k, (latent, unit) in enumerate(zip(self.prior.kernels, self.processes, strict=True)):
            free = coefficients.free[:, k]
            latent.check_order(2 * (free.shape[-1] - 1))
            parts.append(np.zeros((len(free), len(unit.F))))
            powers = (unit.rate / self.hyper.lengthscales[k]) ** np.arange(free.shape[-1])
            parts[-1][:, : free.shape[-1]] = free * powers
        if self.disturbances is not None:
            parts.append(self.disturbances.build_observation_matrix(observables, coefficients))
        for group in self.groups:
            origin = np.array([_mode_origin(group)])
            parts.append(np.concatenate(observables.mode_basis(coefficients, (group,), origin, with_jacobian=False)[0]))
        return np.concatenate(parts, axis=1)

    def vjp(self, gradient: StateSpaceGradient, grad_P_initial: Array, time: float) -> Hyperparameters:
        """Return derivatives in the parameters and in the logarithms of all hyperparameters but the noise.

        Shapes: grad_P_initial, in the covariance of the state at the scaled time of the start, symmetric: (s, s).
        """
        observables, values = self.prior.observables, self.coefficients
        theta = np.zeros(len(self.hyper.theta))
        lengthscales, amplitudes = np.zeros((2, len(self.processes)))
        for k, (unit, place) in enumerate(zip(self.processes, self.state_slices, strict=False)):
            in_density = float(np.sum(gradient.noise_intensity[place, place] * self.noise_intensity[place, place]))
            in_P = float(np.sum(grad_P_initial[place, place] * unit.P)) * self.hyper.amplitudes[k] ** 2
            amplitudes[k] = 2.0 * (in_density + in_P)
            matrices = gradient.F[place, place], self.F[place, place], gradient.H[:, place], self.H[:, place]
            lengthscales[k] = _lengthscale_vjp(*matrices, in_density)
            length = min(values.free.shape[-1], len(unit.F))
            scale = (unit.rate / self.hyper.lengthscales[k]) ** np.arange(length)
            weights = gradient.H[:, place][:, :length] * scale
            theta += np.tensordot(values.free_jacobian[:, :, k, :length], weights, 2)
        mode_amplitudes = np.zeros(len(self.prior.groups))
        for number, (group, place) in enumerate(self.mode_slices):
            origin, F = _mode_origin(group), self.F[place, place]
            Phi = expm_frechet(F[None] * (time - origin))[0][0]
            in_root = 2.0 * grad_P_initial[place, place] @ Phi * self.hyper.mode_amplitudes[number] ** 2
            mode_amplitudes[number] = float(np.sum(in_root * Phi))
            if not len(theta):
                continue
            weights = [row[None, place] for row in gradient.H]
            theta += observables.mode_basis_vjp(values, (group,), np.array([origin]), weights)
            if group.root is None:
                _, in_F = expm_frechet((time - origin) * F.T[None], in_root[None, None])
                factor = values.factors[group.factor], values.jacobian.factors[group.factor]
                _, jacobian = mode_matrix_with_jacobian(*factor, group)
                theta += np.tensordot(jacobian, gradient.F[place, place] + (time - origin) * in_F[0, 0], 2)
        result = Hyperparameters(theta, lengthscales, amplitudes, mode_amplitudes, np.zeros(0))
        if self.disturbances is None:
            return result
        place = self.state_slices[len(self.processes)]
        parts = gradient.F[place, place], gradient.noise_intensity[place, place], grad_P_initial[place, place]
        theta, lengthscales, amplitudes = self.disturbances.vjp(*parts, gradient.H[:, place], self.H[:, place])
        theta = result.theta + theta
        if self.disturbances.has_modes:
            x, states = self.disturbances.state_slices[-1], self.disturbances.mode_states
            grad_states = 2.0 * grad_P_initial[x, x] @ states * self.prior.mode_variance(self.hyper.mode_amplitudes)
            mode_amplitudes = self.prior.sum_over_groups(np.sum(grad_states * states, axis=0))
            theta = theta + self.disturbances.mode_states_vjp(grad_states)
            result = replace(result, mode_amplitudes=mode_amplitudes)
        return replace(result, theta=theta, disturbance_lengthscales=lengthscales, disturbance_amplitudes=amplitudes)


def build_state_space_model(prior: Prior, hyper: Hyperparameters, coefficients: Coefficients) -> StateSpaceModel:
    """Return the prior of the measured observables as a state-space model."""
    processes = tuple(UnitProcess.of(latent) for latent in prior.kernels)
    matrices, intensities = [], []
    for process, ell, amplitude in zip(processes, hyper.lengthscales, hyper.amplitudes, strict=True):
        matrices.append(process.F / ell)
        intensities.append(np.zeros_like(process.F))
        intensities[-1][-1, -1] = amplitude**2 * process.noise_intensity / ell
    disturbances = None
    if prior.observables.disturbances is not None:
        disturbances = DisturbanceStates(prior.observables, coefficients, hyper)
        matrices.append(disturbances.F)
        intensities.append(disturbances.noise_intensity)
    if disturbances is None or not disturbances.has_modes:
        matrices += [_build_mode_matrix(prior.observables, coefficients, group) for group in prior.groups]
    F, noise_intensity = build_block_diagonal(matrices), build_block_diagonal(intensities)
    none = np.zeros((0, len(F)))
    model = StateSpaceModel(prior, hyper, coefficients, processes, F, noise_intensity, none, disturbances)
    return replace(model, H=model.build_observation_matrix(prior.observables, coefficients))


def consecutive_slices(sizes: Sequence[int]) -> list[slice]:
    """Return slices of these lengths, one after the other."""
    edges = np.cumsum([0, *sizes]).tolist()
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _mode_origin(group: ModeGroup) -> float:
    """Return the scaled time at which the states of a mode group are the weights of its basis functions."""
    return 1.0 if group.root is not None and group.root.real > 0 else 0.0


def _build_mode_matrix(observables: Observables, coefficients: Coefficients, group: ModeGroup) -> Array:
    """Return the state matrix of a group of modes, shape (r, r)."""
    if group.root is None:
        return np.asarray(mode_matrix(np, coefficients.factors[group.factor], group))
    root = group.root * observables.units.time_scale
    block = np.array([[root.real, root.imag], [-root.imag, root.real]]) if root.imag else np.array([[root.real]])
    shift = np.diag(np.arange(1.0, group.multiplicity), 1)
    return np.asarray(np.kron(np.eye(group.multiplicity), block) + np.kron(shift, np.eye(len(block))))
