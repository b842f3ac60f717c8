"""Response of a state space ``x' = F x + G v``, ``g = H x + D v + D1 v'`` to known inputs, with derivatives.

States are zero at the start. Inputs act from the start, whatever their value is then: a constant input is a step at the
start. With a dead time (delay) T an input is ``v(t) = u(t - T)``, known for all times like u (its first value before
the first sample); a dead time shifts the jumps of u, not the start. Before the start the same equations are solved
backwards.

Between samples, zero-order and first-order holds make the discretization exact. Jacobians are forward sensitivities;
gradients use the adjoint-state method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import matrix_balance

from lodekit.data.inputs import InputSignal
from lodekit.prior.input_response.hold import HoldDiscretization, InputSchedule, StepTable, prepare_schedule
from lodekit.prior.linear_recurrence import solve_constant_recurrence, solve_recurrence, solve_recurrences
from lodekit.support.arguments import Array, IndexArray
from lodekit.support.recent import RecentResults


@dataclass(frozen=True, eq=False)
class StateMatrices:
    """The matrices of a state space with s states, m inputs and q observables, or their derivatives.

    F, G: ``x' = F x + G v``; (..., s, s) and (..., s, m).
    H, D, D1: ``g = H x + D v + D1 v'``. Derivatives in p parameters have p in front of all shapes; (..., q, s), (...,
        q, m) and (..., q, m).
    """

    F: Array
    G: Array
    H: Array
    D: Array
    D1: Array

    def contract(self, jacobians: StateMatrices) -> Array:
        """Return the sum of the products of all entries with those of ``jacobians``, shape (p,)."""
        pairs = zip(vars(self).values(), vars(jacobians).values(), strict=True)
        return np.asarray(sum(slopes.reshape(len(slopes), part.size) @ part.ravel() for part, slopes in pairs))

    @property
    def is_finite(self) -> bool:
        """Whether all entries are finite."""
        return all(bool(np.isfinite(matrix).all()) for matrix in vars(self).values())


@dataclass(frozen=True)
class _DualMatrix:
    """A matrix with its derivatives in the parameters."""

    value: Array
    jacobian: Array

    def __matmul__(self, other: _DualMatrix) -> _DualMatrix:
        return _DualMatrix(self.value @ other.value, self.jacobian @ other.value + self.value @ other.jacobian)

    def __add__(self, other: _DualMatrix) -> _DualMatrix:
        return _DualMatrix(self.value + other.value, self.jacobian + other.jacobian)


def observable_state_space(
    matrices: StateMatrices,
    jacobians: StateMatrices,
    weights: tuple[Array, Array],
    feedthrough: tuple[Array, Array] | None = None,
) -> tuple[StateMatrices, StateMatrices]:
    """Return the state space of observables ``W(d) g + V(d) v``, with its derivatives in the parameters.

    Between jumps and kinks an input has no derivative beyond the first, so ``g'' = H F^2 x + H F G v + H G v'`` and so
    on, to any order. All shapes may have further leading dimensions, for many state spaces at once.

    Shapes: weights (k, r, q) and (p, k, r, q), feedthrough (k, r, m) and (p, k, r, m).

    Examples
    --------
    >>> lag = StateMatrices(*np.array([-2.0, 3.0, 1.0, 0.0, 0.0])[:, None, None])
    >>> none = StateMatrices(*np.zeros((5, 0, 1, 1)))
    >>> velocity = np.array([[[0.0]], [[1.0]]])
    >>> found, _ = observable_state_space(lag, none, (velocity, np.zeros((0, 2, 1, 1))))
    >>> found.H.tolist(), found.D.tolist()
    ([[-2.0]], [[3.0]])
    """
    pairs = zip(vars(matrices).values(), vars(jacobians).values(), strict=True)
    F, G, H, D, D1 = (_DualMatrix(*pair) for pair in pairs)
    shapes = [(*weights[0].shape[:-3], weights[0].shape[-2], part.value.shape[-1]) for part in (F, G, G)]
    # The observables on x, v and v', and the k-th derivative of g: H F^k on x, and the factors of v and v'.
    totals = [_DualMatrix(np.zeros(shape), np.zeros((len(F.jacobian), *shape))) for shape in shapes]
    derivative = [H, D, D1]
    for order in range(weights[0].shape[-3]):
        W = _DualMatrix(weights[0][..., order, :, :], weights[1][..., order, :, :])
        totals = [total + W @ part for total, part in zip(totals, derivative, strict=True)]
        derivative = [derivative[0] @ F, derivative[0] @ G, derivative[1]]
    if feedthrough is not None:
        for order in range(min(2, feedthrough[0].shape[-3])):
            totals[order + 1] += _DualMatrix(feedthrough[0][..., order, :, :], feedthrough[1][..., order, :, :])
    parts = (F, G, *totals)
    return StateMatrices(*(part.value for part in parts)), StateMatrices(*(part.jacobian for part in parts))


def append_integrators(
    matrices: StateMatrices, jacobians: StateMatrices, rows: IndexArray
) -> tuple[StateMatrices, StateMatrices]:
    """Return a state space in which integrals from the start replace some observables, with one state for each.

    Shapes: rows (k,).

    Examples
    --------
    >>> lag = StateMatrices(*np.array([-2.0, 3.0, 1.0, 0.0, 0.0])[:, None, None])
    >>> none = StateMatrices(*np.zeros((5, 0, 1, 1)))
    >>> found, _ = append_integrators(lag, none, np.array([0]))
    >>> found.F.tolist(), found.H.tolist()
    ([[-2.0, 0.0], [1.0, 0.0]], [[0.0, 1.0]])
    """
    found, more = [], len(rows)
    for part, one in ((matrices, 1.0), (jacobians, 0.0)):
        leading, states = part.F.shape[:-2], part.F.shape[-1]
        F = np.zeros((*leading, states + more, states + more))
        F[..., :states, :states], F[..., states:, :states] = part.F, part.H[..., rows, :]
        H = np.concatenate([part.H, np.zeros((*part.H.shape[:-1], more))], axis=-1)
        H[..., rows, :] = 0.0
        H[..., rows, states + np.arange(more)] = one
        D, D1 = part.D.copy(), part.D1.copy()
        # The integral of an input's slope is the input.
        D[..., rows, :], D1[..., rows, :] = part.D1[..., rows, :], 0.0
        G = np.concatenate([part.G, part.D[..., rows, :]], axis=-2)
        found.append(StateMatrices(F, G, H, D, D1))
    return found[0], found[1]


def balance_states(F: Array) -> Array:
    """Return scales of the states, powers of two, that balance the rows and columns of F, shape (s,).

    Shapes: F (s, s).
    """
    if len(F) < 2:
        return np.ones(len(F))
    _, (scales, _) = matrix_balance(F, permute=False, separate=True)
    return np.asarray(scales, dtype=float)


class ResponsePlan:
    """The part of a response that does not depend on parameters: inputs, start and times.

    signals: One for each column of G; the same signal may occur twice, with different delays.
    times: Ascending; times may repeat; (n,).
    start: Time at which the states are zero.

    Examples
    --------
    >>> step = InputSignal([0.0, 1.0], [0.0, 2.0], "hold")
    >>> plan = ResponsePlan([step], np.array([0.5, 1.0, 2.0]), 0.0)
    >>> lag = StateMatrices(*np.array([-1.0, 1.0, 1.0, 0.0, 0.0])[:, None, None])
    >>> StateSpaceResponse(plan, lag).values.round(6).tolist()
    [[0.0, 0.0, 1.264241]]
    >>> StateSpaceResponse(plan, lag, np.array([0.25])).values.round(6).tolist()
    [[0.0, 0.0, 1.055267]]
    """

    def __init__(self, signals: Sequence[InputSignal], times: ArrayLike, start: float) -> None:
        self.signals, self.start = tuple(signals), float(start)
        self.times = np.asarray(times, dtype=float)
        if np.any(np.diff(self.times) < 0) or not np.isfinite(self.times).all():
            raise ValueError("times of a response ascend, and are finite")
        #: 1 (first-order hold) if an input is piecewise linear, otherwise 0 (zero-order hold).
        self.hold_order = int(any(signal.kind == "linear" for signal in self.signals))
        before = int(np.searchsorted(self.times, self.start))
        sides = [(slice(before, None), 1.0), *([(slice(before - 1, None, -1), -1.0)] if before else [])]
        self._directions = [
            (part, prepare_schedule(self.signals, self.start, self.times[part], sign, self.hold_order))
            for part, sign in sides
        ]
        self._schedules = RecentResults()

    def schedules(self, delays: Array) -> list[tuple[slice, InputSchedule]]:
        """Return the times from the start on, and those before it in descending order, if any, with schedules.

        Shapes: delays (m,).
        """
        return self._schedules.find(
            delays.tobytes(), lambda: [(part, build(delays)) for part, build in self._directions]
        )


class _StateTrajectory:
    """The states on one side of the start, in balanced units."""

    def __init__(self, schedule: InputSchedule, hold: HoldDiscretization, initial_state: Array | None = None) -> None:
        self.schedule, self.hold = schedule, hold
        # One table for steps and events: a search evaluates it hundreds of times, mostly with one length for each.
        self.table = StepTable(hold, schedule.steps, schedule.event_lags)
        self.step_matrices, self.event_matrices = self._split_table(self.table.matrices)
        self.transitions: Array = self.step_matrices[:, :, : hold.n_states]
        states = np.zeros((len(schedule.steps.index) + 1, hold.n_states))
        if initial_state is not None:
            states[0] = initial_state
        even = schedule.uniform_inputs
        if even is None:
            states[1:] = schedule.forcing(
                self.step_matrices[:, :, hold.n_states :], self.event_matrices[:, :, hold.n_states :]
            )
            self._propagate(states[None])
        else:
            # If few inputs drive all states, the forcing is not formed.
            inputs, lags, places = even
            beside = self.event_matrices[lags, :, hold.n_states + places]
            gain = np.concatenate([self.step_matrices[0, :, hold.n_states :].T, beside])
            solve_constant_recurrence(self.transitions[0].T, gain, inputs[None], states[:1], states[None, 1:])
        #: The states at all rows, shape (n + 1, s).
        self.states = states

    def _split_table(self, matrices: Array) -> tuple[Array, Array]:
        """Return the parts of a table, (..., u + e, s, width), that belong to steps and to events."""
        count = len(self.schedule.steps.distinct)
        return matrices[..., :count, :, :], matrices[..., count:, :, :]

    def _propagate(self, states: Array) -> None:
        """Replace the forcing of each step by the states, shape (k, n + 1, s), starting from the initial states."""
        factors = self.transitions.swapaxes(1, 2)
        solve_recurrence(factors, self.schedule.steps.index, states[:, 1:], states[:, 0])

    def jacobian(self, d_F: Array, d_G: Array, d_delays: Array) -> Array:
        """Return the derivatives of the states at all rows, shape (p, n + 1, s)."""
        s, schedule = self.hold.n_states, self.schedule
        d_steps, d_lags = self._split_table(self.table.jacobian(d_F, d_G))
        forcing = schedule.forcing(d_steps[..., s:], d_lags[..., s:])
        forcing += schedule.steps.apply(d_steps[..., :s], self.states[:-1])
        for column in range(self.hold.n_inputs):
            if d_delays[:, column].any():
                forcing += np.multiply.outer(d_delays[:, column], self.delay_forcing(column))
        states = np.zeros((len(d_F), *self.states.shape))
        states[:, 1:] = forcing
        self._propagate(states)
        return states

    def delay_forcing(self, column: int) -> Array:
        """Return the derivative of the forcing in the delay of an input, shape (n, s).

        The derivative of u(t - T) in T is minus that of u: slopes act as values, and jumps act as impulses.
        """
        schedule, s, m = self.schedule, self.hold.n_states, self.hold.n_inputs
        gain = self.hold.G[:, column]
        forcing = np.zeros((len(schedule.step_inputs), s))
        if schedule.jumps is not None:
            forcing += schedule.steps.apply(self.transitions, np.outer(schedule.jumps[:, column], gain))
        jumps = np.outer(schedule.event_changes[:, column], gain)
        kicks = schedule.event_lags.apply(self.event_matrices[:, :, :s], jumps)
        if self.hold.hold_order:
            value, slope = slice(s + column, s + column + 1), slice(m + column, m + column + 1)
            forcing += schedule.steps.apply(self.step_matrices[:, :, value], schedule.step_inputs[:, slope])
            kicks += schedule.event_lags.apply(self.event_matrices[:, :, value], schedule.event_changes[:, slope])
        if len(schedule.event_steps):
            schedule.add_events(forcing, kicks)
        return -schedule.sign * forcing

    def vjp(
        self, cotangents: Array, H: Array, with_delays: bool, final_adjoint: Array | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Return the derivatives of ``sum cotangents * (H states[at])`` in F, G, delays and the initial state.

        Those in the delays are zero without `with_delays`; `final_adjoint` is added to the adjoint of the final state.
        """
        schedule, s, m = self.schedule, self.hold.n_states, self.hold.n_inputs
        adjoint = self._adjoint_states(cotangents, H, final_adjoint)
        of_table = np.empty((s, self.hold.width, len(self.table.matrices))).transpose(2, 0, 1)
        of_steps, of_lags = self._split_table(of_table)
        of_steps[:, :, :s] = schedule.steps.sum_outer_products(adjoint, self.states[:-1])
        of_lags[:], even = 0.0, schedule.uniform_inputs
        if even is not None:
            inputs, lags, places = even
            of_inputs, of_events = np.split(adjoint.T @ inputs, [self.hold.width - s], axis=1)
            of_steps[0, :, s:], of_lags[lags, :, s + places] = of_inputs, of_events.T
        else:
            of_steps[:, :, s:] = schedule.steps.sum_outer_products(adjoint, schedule.step_inputs)
            if len(schedule.event_steps):
                at_events = adjoint[schedule.event_steps]
                of_lags[:, :, s:] = schedule.event_lags.sum_outer_products(at_events, schedule.event_changes)
        of_F, of_G = self.table.vjp(of_table)
        of_delays = np.zeros(m)
        if with_delays:
            if schedule.jumps is not None:
                jumps = schedule.steps.sum_outer_products(adjoint, schedule.jumps)
                of_delays += np.einsum("ujm,uji,im->m", jumps, self.transitions, self.hold.G)
            kicks = of_lags[:, :, s : s + m]
            of_delays += np.einsum("ujm,uji,im->m", kicks, self.event_matrices[:, :, :s], self.hold.G)
            if self.hold.hold_order:
                of_delays += np.einsum("ujm,ujm->m", of_table[:, :, s + m :], self.table.matrices[:, :, s : s + m])
        at = np.arange(len(self.states))[schedule.requested_index]
        of_start = np.asarray(cotangents[:, at == 0].sum(axis=1) @ H)
        if len(adjoint):
            of_start += adjoint[0] @ self.transitions[schedule.steps.index[0]]
        elif final_adjoint is not None:
            of_start += final_adjoint
        return of_F, of_G, -schedule.sign * of_delays, of_start

    def _adjoint_states(self, weights: Array, H: Array, final_adjoint: Array | None = None) -> Array:
        """Return the adjoint of the state after each step, shape (n, s), for weights of ``H states[at]``, (q, n)."""
        at, steps = self.schedule.requested_index, self.schedule.steps
        final = np.zeros(len(H.T)) if final_adjoint is None else final_adjoint
        if isinstance(at, slice) and len(steps.distinct) == 1 and len(weights) < len(H.T):
            after = np.ascontiguousarray(weights[:, 1 - (at.start or 0) :].T)
            adjoint = np.empty((len(steps.index), len(H.T)))
            adjoint[-1] = after[-1] @ H + final
            rows = adjoint[None, :-1]
            solve_constant_recurrence(self.transitions[0], H, after[None, :-1], adjoint[-1:], rows, backwards=True)
            return adjoint
        adjoint = np.zeros(self.states.shape)
        if isinstance(at, slice):  # far faster than add.at
            adjoint[at] = weights.T @ H
        else:
            np.add.at(adjoint, at, weights.T @ H)
        adjoint[-1] += final
        adjoint = adjoint[1:]
        if len(steps.index) > 1:
            solve_recurrence(self.transitions, steps.index[1:], adjoint[None, :-1], adjoint[-1:], backwards=True)
        return adjoint


def respond_many(plan: ResponsePlan, matrices: StateMatrices, delays: Array) -> Array:
    """Return the responses of k state spaces to the inputs of a plan, with the same delays; shape (k, q, n).

    All matrices have k in front of their shapes, and are finite.
    """
    values = np.empty((*matrices.H.shape[:-1], len(plan.times)))
    for part, schedule in plan.schedules(delays):
        hold = HoldDiscretization(schedule.sign * matrices.F, schedule.sign * matrices.G, plan.hold_order)
        s, lengths = hold.n_states, (schedule.steps.distinct, schedule.event_lags.distinct)
        at_steps, at_events = (hold.discretize(each)[0] for each in lengths)
        forcing = schedule.forcing(at_steps[..., s:], at_events[..., s:])
        states = solve_recurrences(at_steps[..., :s], schedule.steps.index, np.zeros((len(values), s, 1)), forcing)
        response = matrices.H @ states[..., 0][:, schedule.requested_index].swapaxes(1, 2)
        for gain, inputs in zip((matrices.D, matrices.D1), schedule.feedthrough_inputs, strict=True):
            response += gain @ inputs
        values[..., part] = response
    return values


class StateSpaceResponse:
    """The response of one state space to the inputs of a plan.

    delays: The dead times of the inputs; zero if not given; (m,).
    initial_state: The states at the start; zero if not given; (s,).
    """

    def __init__(
        self,
        plan: ResponsePlan,
        matrices: StateMatrices,
        delays: Array | None = None,
        initial_state: Array | None = None,
    ) -> None:
        self.plan, self.matrices = plan, matrices
        delays = np.zeros(len(plan.signals)) if delays is None else delays
        self._is_finite = matrices.is_finite and bool(np.isfinite(delays).all())
        self._trajectories: list[tuple[slice, _StateTrajectory]] = []
        self._state_scales = balance_states(matrices.F) if self._is_finite else np.ones(len(matrices.F))
        if not self._is_finite:
            return
        F, G = self._balance(matrices.F), matrices.G / self._state_scales[:, None]
        initial = None if initial_state is None else initial_state / self._state_scales
        with np.errstate(over="ignore", invalid="ignore"):
            for part, schedule in plan.schedules(delays):
                hold = HoldDiscretization(schedule.sign * F, schedule.sign * G, plan.hold_order)
                self._trajectories.append((part, _StateTrajectory(schedule, hold, initial)))

    def _balance(self, F: Array) -> Array:
        return np.asarray(F * self._state_scales / self._state_scales[:, None])

    @property
    def values(self) -> Array:
        """The observables, shape (q, n); NaN if the state space is not finite."""
        H, D, D1 = self.matrices.H, self.matrices.D, self.matrices.D1
        values = np.full((len(H), len(self.plan.times)), np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            for part, trajectory in self._trajectories:
                response = (H * self._state_scales) @ trajectory.states[trajectory.schedule.requested_index].T
                for gain, inputs in zip((D, D1), trajectory.schedule.feedthrough_inputs, strict=True):
                    if gain.any():
                        response += gain @ inputs
                values[:, part] = response
        return values

    @property
    def final_state(self) -> Array:
        """The states at the last time, shape (s,); NaN if they are not finite."""
        if not self._is_finite:
            return np.full(len(self._state_scales), np.nan)
        return np.asarray(self._trajectories[0][1].states[-1] * self._state_scales)

    def jacobian(self, jacobians: StateMatrices, delays_jacobian: Array | None = None) -> Array:
        """Return the derivatives of the values in p parameters, shape (p, q, n).

        Shapes: delays_jacobian (p, m).
        """
        count = len(jacobians.F)
        d_delays = np.zeros((count, len(self.plan.signals))) if delays_jacobian is None else delays_jacobian
        H, D = self.matrices.H * self._state_scales, self.matrices.D
        d_F, d_G = self._balance(jacobians.F), jacobians.G / self._state_scales[:, None]
        jacobian = np.full((count, len(H), len(self.plan.times)), np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            for part, trajectory in self._trajectories:
                schedule = trajectory.schedule
                sign, rows, (inputs, slopes) = schedule.sign, schedule.requested_index, schedule.feedthrough_inputs
                d_states = trajectory.jacobian(sign * d_F, sign * d_G, d_delays)[:, rows]
                change = H @ d_states.swapaxes(1, 2) + (jacobians.H * self._state_scales) @ trajectory.states[rows].T
                change += jacobians.D @ inputs + jacobians.D1 @ slopes - (D * d_delays[:, None]) @ slopes
                jacobian[:, :, part] = change
        return jacobian

    def gradient(
        self,
        cotangents: Array,
        jacobians: StateMatrices,
        delays_jacobian: Array | None = None,
        final_adjoint: Array | None = None,
    ) -> tuple[Array, Array]:
        """Return the derivatives of ``sum cotangents * values`` in p parameters, (p,), and in the initial state, (s,).

        Shapes: cotangents (q, n), delays_jacobian (p, m), final_adjoint (s,).
        """
        matrices, scales = self.matrices, self._state_scales
        if not self._is_finite:
            return np.full(len(jacobians.F), np.nan), np.full(len(scales), np.nan)
        of_F, of_G, of_H, of_D, of_D1 = (np.zeros(a.shape) for a in vars(matrices).values())
        of_delays, of_start = np.zeros(len(self.plan.signals)), np.zeros(len(scales))
        with_delays = delays_jacobian is not None
        with np.errstate(over="ignore", invalid="ignore"):
            for part, trajectory in self._trajectories:
                schedule, weights = trajectory.schedule, cotangents[:, part]
                inputs, slopes = schedule.feedthrough_inputs
                final = None if final_adjoint is None or schedule.sign < 0 else final_adjoint * scales
                d_F, d_G, d_delays, d_start = trajectory.vjp(weights, matrices.H * scales, with_delays, final)
                of_start += d_start / scales
                of_F += schedule.sign * self._balance(d_F)
                of_G += schedule.sign * d_G / scales[:, None]
                of_H += weights @ trajectory.states[schedule.requested_index] * scales
                of_D += weights @ inputs.T
                of_delays += d_delays
                if self.plan.hold_order:
                    of_slopes = weights @ slopes.T
                    of_D1 += of_slopes
                    of_delays -= (matrices.D * of_slopes).sum(0) if with_delays else 0.0
        gradient = StateMatrices(of_F, of_G, of_H, of_D, of_D1).contract(jacobians)
        return gradient if delays_jacobian is None else gradient + delays_jacobian @ of_delays, of_start
