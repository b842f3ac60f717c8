"""Responses to known inputs, from rest: values at any times, their derivatives, and products with them.

The response is the solution of ``x' = F x + G v``, ``g = H x + D v + D1 v'`` with ``x = 0`` at the start. Inputs act
from the start on, whatever their value is then: a constant input is a step at the start, not a rest that it has
come to. With a delay T an input is ``v(t) = u(t - T)``, known for all times as u is (its first value before the first
sample), and the states are zero at the start still: a delay moves the jumps of u, it does not move the start.

Before the start the same equations are solved backwards, so that they hold at all times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.data.inputs import InputSignal
from lodekit.prior.responses.lengths import Table
from lodekit.prior.responses.matrices import StateMatrices, balance
from lodekit.prior.responses.recursion import drive_through, run_through
from lodekit.prior.responses.schedule import Schedule, Side
from lodekit.prior.responses.transitions import Steps

__all__ = ["Response", "ResponsePlan"]

Array = NDArray[np.float64]


class ResponsePlan:
    """All that does not depend on parameters: which inputs, from which start, seen at which times.

    Parameters
    ----------
    signals : sequence of InputSignal
        One for each column of G; the same signal may stand there twice, with different delays.
    times : array-like, shape (n,)
        Where the response is wanted, ascending; times may repeat.
    start : float
        Where the states are zero.

    Examples
    --------
    >>> step = InputSignal([0.0, 1.0], [0.0, 2.0], "hold")
    >>> plan = ResponsePlan([step], np.array([0.5, 1.0, 2.0]), 0.0)
    >>> lag = StateMatrices.of([[-1.0]], [[1.0]], [[1.0]])
    >>> plan.respond(lag).values.round(6).tolist()
    [[0.0, 0.0, 1.264241]]
    >>> plan.respond(lag, np.array([0.25])).values.round(6).tolist()
    [[0.0, 0.0, 1.055267]]
    """

    def __init__(self, signals: Sequence[InputSignal], times: ArrayLike, start: float) -> None:
        self.signals, self.start = tuple(signals), float(start)
        self.times = np.asarray(times, dtype=float)
        if np.any(np.diff(self.times) < 0) or not np.isfinite(self.times).all():
            raise ValueError("times of a response ascend, and are finite")
        #: How many derivatives of inputs are not zero between samples, plus one.
        self.orders = 2 if any(signal.kind == "linear" for signal in self.signals) else 1
        before = int(np.searchsorted(self.times, self.start))
        sides = [(slice(before, None), 1.0), *([(slice(before - 1, None, -1), -1.0)] if before else [])]
        self._sides = [(part, Side(self.signals, self.start, self.times[part], sign)) for part, sign in sides]
        self._laid: tuple[bytes, list[tuple[slice, Schedule]]] = (b"", [])

    def schedules(self, delays: Array) -> list[tuple[slice, Schedule]]:
        """Return the times from the start on, and those before it, last first, where there are some, with schedules.

        Parameters
        ----------
        delays : array, shape (m,)
        """
        key = delays.tobytes()
        if self._laid[0] != key or not self._laid[1]:
            laid = [(part, side.lay_out(delays, self.orders)) for part, side in self._sides]
            self._laid = (key, laid)
        return self._laid[1]

    def respond(self, matrices: StateMatrices, delays: ArrayLike | None = None, begin: Array | None = None) -> Response:
        """Return the response at given numbers.

        Parameters
        ----------
        matrices : StateMatrices
        delays : array, shape (m,), optional
            How much later each input acts; none where not given.
        begin : array, shape (s,), optional
            The states at the start; zero where not given.
        """
        later = np.zeros(len(self.signals)) if delays is None else np.asarray(delays, dtype=float)
        return Response(self, matrices, later, begin)


class _Part:
    """The motion on one side of the start, in states of like size."""

    def __init__(self, schedule: Schedule, steps: Steps, begin: Array | None = None) -> None:
        self.schedule, self.steps = schedule, steps
        self.table = Table(steps, schedule.steps)
        self.lags = Table(steps, schedule.events.lags)
        self.transitions: Array = self.table.matrices[:, :, : steps.states]
        states = np.zeros((len(schedule.steps.which) + 1, steps.states))
        if begin is not None:
            states[0] = begin
        even = schedule.even_inputs
        if even is None:
            states[1:] = self.force(self.table.matrices, self.lags.matrices)
            self._run(states[None])
        else:
            # Few numbers drive all states: they are never added up for each of these.
            inputs, lags, places = even
            beside = self.lags.matrices[lags, :, steps.states + places]
            gain = np.concatenate([self.table.matrices[0, :, steps.states :].T, beside])
            drive_through(self.transitions[0].T, gain, inputs[None], states[:1], states[None, 1:])
        #: At all rows, shape (n + 1, s).
        self.states = states

    def _run(self, states: Array) -> None:
        """Replace what is added in each step by the states, shape (k, n + 1, s), from those at the start."""
        factors = self.transitions.swapaxes(1, 2)
        run_through(factors, self.schedule.steps.which, states[:, 1:], states[:, 0])

    def force(self, matrices: Array, of_lags: Array) -> Array:
        """Return what inputs add in each step, shape (..., n, s), from steps or their derivatives."""
        schedule, s = self.schedule, self.steps.states
        forcing = schedule.steps.apply(matrices[..., s:], schedule.drive)
        if len(schedule.events.step):
            self._add(forcing, schedule.events.lags.apply(of_lags[..., s:], schedule.events.changes))
        return forcing

    def _add(self, forcing: Array, parts: Array) -> None:
        """Add what events bring, shape (..., e, s), to their steps, (..., n, s)."""
        step, count = self.schedule.events.step, forcing.shape[-2]
        if self.schedule.events.ascend:
            forcing[..., step, :] += parts
            return
        for index in np.ndindex(*forcing.shape[:-2], forcing.shape[-1]):
            place = (*index[:-1], slice(None), index[-1])
            forcing[place] += np.bincount(step, weights=parts[place], minlength=count)

    def slopes(self, d_F: Array, d_G: Array, d_delays: Array) -> Array:
        """Return the derivatives of the states at all rows, shape (p, n + 1, s)."""
        s, schedule = self.steps.states, self.schedule
        d_steps, d_lags = self.table.slopes(d_F, d_G), self.lags.slopes(d_F, d_G)
        forcing = self.force(d_steps, d_lags)
        forcing += schedule.steps.apply(d_steps[..., :s], self.states[:-1])
        for column in range(self.steps.inputs):
            if d_delays[:, column].any():
                forcing += np.multiply.outer(d_delays[:, column], self.delay_forcing(column))
        states = np.zeros((len(d_F), *self.states.shape))
        states[:, 1:] = forcing
        self._run(states)
        return states

    def delay_forcing(self, column: int) -> Array:
        """Return what a later input adds in each step, for each unit of delay, shape (n, s).

        The derivative of u(t - T) in T is minus that of u: slopes act as values, and jumps as impulses.
        """
        schedule, s, m = self.schedule, self.steps.states, self.steps.inputs
        events, gain = schedule.events, self.steps.G[:, column]
        forcing = np.zeros((len(schedule.drive), s))
        if schedule.jumps is not None:
            forcing += schedule.steps.apply(self.transitions, np.outer(schedule.jumps[:, column], gain))
        kicks = events.lags.apply(self.lags.matrices[:, :, :s], np.outer(events.changes[:, column], gain))
        if self.steps.orders == 2:
            own = slice(s + column, s + column + 1)
            slopes = slice(m + column, m + column + 1)
            forcing += schedule.steps.apply(self.table.matrices[:, :, own], schedule.drive[:, slopes])
            kicks += events.lags.apply(self.lags.matrices[:, :, own], events.changes[:, slopes])
        if len(events.step):
            self._add(forcing, kicks)
        return -schedule.sign * forcing

    def pull_back(
        self, weights: Array, H: Array, with_delays: bool, end: Array | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Return the derivatives of ``sum weights * (H states[at])`` in F, G, delays and the states at the start.

        Those in the delays are zero where nobody asks; `end` is what the states at the end are worth beside.
        """
        schedule, s, m = self.schedule, self.steps.states, self.steps.inputs
        worth = self._find_worth(weights, H, end)
        of_steps = np.empty((s, self.steps.width, len(schedule.steps.distinct))).transpose(2, 0, 1)
        of_steps[:, :, :s] = schedule.steps.collect(worth, self.states[:-1])
        events, of_lags, even = schedule.events, np.zeros(self.lags.matrices.shape), schedule.even_inputs
        if even is not None:
            inputs, lags, places = even
            both = worth.T @ inputs
            width = self.steps.width - s
            of_steps[0, :, s:], of_lags[lags, :, s + places] = both[:, :width], both[:, width:].T
        else:
            of_steps[:, :, s:] = schedule.steps.collect(worth, schedule.drive)
            if len(events.step):
                of_lags[:, :, s:] = events.lags.collect(worth[events.step], events.changes)
        of_F, of_G = self.table.pull_back(of_steps)
        if len(events.step):
            more = self.lags.pull_back(of_lags)
            of_F, of_G = of_F + more[0], of_G + more[1]
        of_delays = np.zeros(m)
        if with_delays:
            if schedule.jumps is not None:
                jumps = schedule.steps.collect(worth, schedule.jumps)
                of_delays += np.einsum("ujm,uji,im->m", jumps, self.transitions, self.steps.G)
            kicks = of_lags[:, :, s : s + m]
            of_delays += np.einsum("ujm,uji,im->m", kicks, self.lags.matrices[:, :, :s], self.steps.G)
            if self.steps.orders == 2:
                for found, table in ((of_steps, self.table), (of_lags, self.lags)):
                    of_delays += np.einsum("ujm,ujm->m", found[:, :, s + m :], table.matrices[:, :, s : s + m])
        return of_F, of_G, -schedule.sign * of_delays, self._worth_of_start(weights, H, worth, end)

    def _worth_of_start(self, weights: Array, H: Array, worth: Array, end: Array | None) -> Array:
        """Return what the states at the start are worth, shape (s,)."""
        at = np.arange(len(self.states))[self.schedule.at]
        found = np.asarray(weights[:, at == 0].sum(axis=1) @ H)
        if len(worth):
            return np.asarray(found + worth[0] @ self.transitions[self.schedule.steps.which[0]])
        return found if end is None else found + end

    def _find_worth(self, weights: Array, H: Array, end: Array | None = None) -> Array:
        """Return what the state after each step is worth, shape (n, s), where ``H states[at]`` has weights, (q, n)."""
        schedule, which = self.schedule, self.schedule.steps.which
        if isinstance(schedule.at, slice) and len(schedule.steps.distinct) == 1 and len(weights) < len(H.T):
            own = np.ascontiguousarray(weights[:, 1 - (schedule.at.start or 0) :].T)
            worth = np.empty((len(which), len(H.T)))
            worth[-1] = own[-1] @ H + (0.0 if end is None else end)
            drive_through(self.transitions[0], H, own[None, :-1], worth[-1:], worth[None, :-1], backwards=True)
            return worth
        worth = np.zeros(self.states.shape)
        if isinstance(schedule.at, slice):
            worth[schedule.at] = weights.T @ H
        else:
            np.add.at(worth, schedule.at, weights.T @ H)
        if end is not None:
            worth[-1] += end
        worth = worth[1:]
        if len(which) > 1:
            run_through(self.transitions, which[1:], worth[None, :-1], worth[-1:], backwards=True)
        return worth


class Response:
    """The response of one state space to the inputs of a plan.

    Parameters
    ----------
    plan : ResponsePlan
    matrices : StateMatrices
    delays : array, shape (m,)
    begin : array, shape (s,), optional
        The states at the start; zero where not given.
    """

    def __init__(self, plan: ResponsePlan, matrices: StateMatrices, delays: Array, begin: Array | None = None) -> None:
        self.plan, self.matrices = plan, matrices
        self._is_finite = matrices.is_finite and bool(np.isfinite(delays).all())
        self._parts: list[tuple[slice, _Part]] = []
        self._scales = balance(matrices.F) if self._is_finite else np.ones(len(matrices.F))
        if not self._is_finite:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            for part, schedule in plan.schedules(delays):
                F, G = self._to_scales(matrices.F), matrices.G / self._scales[:, None]
                steps = Steps(schedule.sign * F, schedule.sign * G, plan.orders)
                own = None if begin is None else begin / self._scales
                self._parts.append((part, _Part(schedule, steps, own)))

    def _to_scales(self, F: Array) -> Array:
        return np.asarray(F * self._scales / self._scales[:, None])

    @property
    def values(self) -> Array:
        """The observables, shape (q, n); NaN where the numbers of the state space are not finite."""
        H, D, D1 = self.matrices.H, self.matrices.D, self.matrices.D1
        found = np.full((len(H), len(self.plan.times)), np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            for part, motion in self._parts:
                feed = motion.schedule.feed
                own = (H * self._scales) @ motion.states[motion.schedule.at].T
                if D.any():
                    own += D @ feed[0]
                if D1.any():
                    own += D1 @ feed[1]
                found[:, part] = own
        return found

    @property
    def end(self) -> Array:
        """The states at the last time, shape (s,); NaN where they are not finite, zero where there is none."""
        if not self._is_finite:
            return np.full(len(self._scales), np.nan)
        return np.asarray(self._parts[0][1].states[-1] * self._scales)

    def jacobian(self, slopes: StateMatrices, d_delays: Array | None = None) -> Array:
        """Return the derivatives of the values in p parameters, shape (p, q, n).

        Parameters
        ----------
        slopes : StateMatrices
            Derivatives of the matrices in the parameters.
        d_delays : array, shape (p, m), optional
            Derivatives of the delays; none where not given.
        """
        many = len(slopes.F)
        moved = np.zeros((many, len(self.plan.signals))) if d_delays is None else d_delays
        H, D = self.matrices.H * self._scales, self.matrices.D
        found = np.full((many, len(H), len(self.plan.times)), np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            for part, motion in self._parts:
                sign, at, feed = motion.schedule.sign, motion.schedule.at, motion.schedule.feed
                d_F, d_G = self._to_scales(slopes.F), slopes.G / self._scales[:, None]
                d_states = motion.slopes(sign * d_F, sign * d_G, moved)[:, at]
                change = H @ d_states.swapaxes(1, 2) + (slopes.H * self._scales) @ motion.states[at].T
                change += slopes.D @ feed[0] + slopes.D1 @ feed[1] - (D * moved[:, None]) @ feed[1]
                found[:, :, part] = change
        return found

    def pull_back(
        self, weights: Array, *, with_delays: bool = True, end: Array | None = None
    ) -> tuple[StateMatrices, Array, Array]:
        """Return the derivatives of ``sum weights * values`` in all matrices, the delays, (m,), and the start, (s,).

        Parameters
        ----------
        weights : array, shape (q, n)
        with_delays : bool
            Whether those in the delays are wanted; they are zero otherwise.
        end : array, shape (s,), optional
            What the states at the last time are worth beside; nothing where not given.
        """
        matrices = self.matrices
        of_F, of_G, of_H, of_D, of_D1 = (np.zeros(a.shape) for a in vars(matrices).values())
        of_delays, of_start = np.zeros(len(self.plan.signals)), np.zeros(len(self._scales))
        if not self._is_finite:
            nan = (np.full(a.shape, np.nan) for a in (of_F, of_G, of_H, of_D, of_D1))
            return StateMatrices(*nan), np.full(len(of_delays), np.nan), np.full(len(of_start), np.nan)
        later = None if end is None else end * self._scales
        with np.errstate(over="ignore", invalid="ignore"):
            for part, motion in self._parts:
                own, feed, sign = weights[:, part], motion.schedule.feed, motion.schedule.sign
                d_F, d_G, d_delays, d_start = motion.pull_back(
                    own, matrices.H * self._scales, with_delays, later if sign > 0 else None
                )
                of_start += d_start / self._scales
                of_F += sign * self._to_scales(d_F)
                of_G += sign * d_G / self._scales[:, None]
                of_H += own @ motion.states[motion.schedule.at] * self._scales
                of_D += own @ feed[0].T
                of_delays += d_delays
                if self.plan.orders == 2:
                    of_slopes = own @ feed[1].T
                    of_D1 += of_slopes
                    of_delays -= (matrices.D * of_slopes).sum(0) if with_delays else 0.0
        return StateMatrices(of_F, of_G, of_H, of_D, of_D1), of_delays, of_start

    def gradient(self, weights: Array, slopes: StateMatrices, d_delays: Array | None = None) -> Array:
        """Return the derivatives of ``sum weights * values`` in p parameters, shape (p,).

        Parameters
        ----------
        weights : array, shape (q, n)
        slopes : StateMatrices
            Derivatives of the matrices in the parameters.
        d_delays : array, shape (p, m), optional
            Derivatives of the delays; none where not given.
        """
        of_matrices, of_delays, _ = self.pull_back(weights, with_delays=d_delays is not None)
        found = of_matrices.contract(slopes)
        return found if d_delays is None else found + d_delays @ of_delays
