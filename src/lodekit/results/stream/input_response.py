"""Response of a stream to known inputs (zero- and first-order hold), buffered for dead times (delays)."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.prior.input_response.hold import HoldDiscretization
from lodekit.prior.input_response.response import ResponsePlan, StateMatrices, StateSpaceResponse, balance_states
from lodekit.support.arguments import Array

T = TypeVar("T")


class TimeStepCache(Generic[T]):
    """A bounded cache of values by length of time; lengths that agree up to rounding errors share a value."""

    def __init__(self, make: Callable[[float], T]) -> None:
        self._compute = make
        self._lengths: list[float] = []
        self._entries: list[T] = []
        self._last: tuple[float, T] | None = None

    def get(self, length: float, resolution: float) -> tuple[float, T]:
        """Return a length that agrees up to the resolution, and its value."""
        last = self._last
        if last is not None and abs(last[0] - length) <= resolution:
            return last
        place = bisect_left(self._lengths, length)
        near = [k for k in (place - 1, place) if 0 <= k < len(self._lengths)]
        best = min(near, key=lambda k: abs(self._lengths[k] - length), default=-1)
        if best < 0 or abs(self._lengths[best] - length) > resolution:
            if len(self._lengths) >= 256:
                self._lengths.clear()
                self._entries.clear()
                place = 0
            self._lengths.insert(place, length)
            self._entries.insert(place, self._compute(length))
            best = place
        self._last = (self._lengths[best], self._entries[best])
        return self._last


def clock_resolution(time: float) -> float:
    """Return the resolution of floating-point times at a time: four units in the last place."""
    return 4.0 * math.ulp(time)


class InputBuffer:
    """The last samples of an input.

    kind: Interpolation between samples.
    times, values: Samples in ascending time; at least one, unless the input has not begun.
    """

    __slots__ = ("kind", "times", "values")

    def __init__(self, kind: str, times: Sequence[float] = (), values: Sequence[float] = ()) -> None:
        self.kind = kind
        self.times, self.values = list(times), list(values)

    def add(self, time: float, value: float) -> tuple[int, list[float], list[float]]:
        """Add a sample, which replaces all at its time or later; return the argument of `undo_add`."""
        place = len(self.times)
        while place and self.times[place - 1] >= time:
            place -= 1
        before = place, self.times[place:], self.values[place:]
        del self.times[place:], self.values[place:]
        # An unchanged sample of a held input need not be stored.
        if self.kind != "hold" or not place or self.values[-1] != value:
            self.times.append(time)
            self.values.append(value)
        return before

    def undo_add(self, removed: tuple[int, list[float], list[float]]) -> None:
        """Undo `add`."""
        place, times, values = removed
        self.times[place:], self.values[place:] = times, values

    def drop_before(self, time: float) -> None:
        """Drop samples that do not affect a time and later."""
        count = bisect_right(self.times, time) - 1
        if count > 0:
            del self.times[:count], self.values[:count]

    def value_and_slope(self, time: float) -> tuple[float, float]:
        """Return value and slope at a time, from the right; constant before the first sample and after the last."""
        place = bisect_right(self.times, time)
        if self.kind == "hold" or place in (0, len(self.times)):
            return self.values[max(place - 1, 0)], 0.0
        t, v = self.times, self.values
        slope = (v[place] - v[place - 1]) / (t[place] - t[place - 1])
        return v[place - 1] + slope * (time - t[place - 1]), slope


class StreamInputResponse:
    """The response to known inputs, step by step.

    matrices: Matrices of any observables; the states are the same for all.
    delays: Delay of each input; (m,).
    inputs: The channel of each input.
    input_kinds: Interpolation of the inputs between samples.
    """

    def __init__(
        self, matrices: StateMatrices, delays: Array, inputs: Sequence[str], input_kinds: Mapping[str, str]
    ) -> None:
        self.matrices, self.delays, self.inputs, self.input_kinds = matrices, delays, tuple(inputs), dict(input_kinds)
        self.scales = balance_states(matrices.F)
        self._columns = list(zip(self.inputs, delays.tolist(), strict=True))
        self._is_undelayed = not delays.any()
        self._max_delays = dict.fromkeys(self.input_kinds, 0.0)
        for name, delay in self._columns:
            self._max_delays[name] = max(self._max_delays[name], delay)
        F, G = matrices.F * self.scales / self.scales[:, None], matrices.G / self.scales[:, None]
        self._hold_order = int("linear" in self.input_kinds.values())
        hold = HoldDiscretization(F, G, self._hold_order)
        self._transition_cache = TimeStepCache(lambda length: hold.discretize(np.array([length]))[0][0])

    @property
    def size(self) -> int:
        """Number of states."""
        return len(self.scales)

    def start(
        self, signals: Mapping[str, InputSignal], start: float, time: float
    ) -> tuple[Array, dict[str, InputBuffer]]:
        """Return the states at a time, from rest at the start of a record, and the samples that are still needed."""
        m, own = len(self.inputs), self.matrices
        none = np.zeros((self.size, m))
        states = StateMatrices(own.F, own.G, np.eye(self.size), none, none)
        plan = ResponsePlan([signals[name] for name in self.inputs], np.array([time]), start)
        found = StateSpaceResponse(plan, states, self.delays).values[:, 0] / self.scales
        samples = {
            name: InputBuffer(signal.kind, signal.times.tolist(), signal.values.tolist())
            for name, signal in signals.items()
        }
        self.drop_old_samples(samples, time)
        return found, samples

    def drop_old_samples(self, samples: Mapping[str, InputBuffer], time: float) -> None:
        """Drop samples that have no effect from a time on."""
        slack = clock_resolution(time)
        for name, own in samples.items():
            if len(own.times) > 1:
                own.drop_before(time - self._max_delays[name] - slack)

    def advance(
        self, state: Array, samples: Mapping[str, InputBuffer], before: float, after: float, time_offset: float = 0.0
    ) -> tuple[Array, float]:
        """Return the state at a later time, and its time offset due to rounding of steps.

        Shapes: state (q,).
        """
        slack = clock_resolution(after)
        edges = [before, *self._break_times(samples, before + slack, after - slack), after]
        m = len(self.inputs)
        both = np.zeros(self.size + (self._hold_order + 1) * m)
        for first, last in pairwise(edges):
            wanted = (last - first) - time_offset
            if wanted <= slack:
                time_offset = -wanted
                continue
            middle, half = 0.5 * (first + last), 0.5 * (last - first)
            both[: self.size] = state
            for column, (name, delay) in enumerate(self._columns, self.size):
                value, slope = samples[name].value_and_slope(middle - delay)
                both[column] = value - slope * half
                if self._hold_order:
                    both[column + m] = slope
            length, matrix = self._transition_cache.get(wanted, slack)
            state, time_offset = matrix @ both, length - wanted
        return state, time_offset

    def _break_times(self, samples: Mapping[str, InputBuffer], low: float, high: float) -> list[float]:
        """Return the times between two at which some input jumps or has a corner, ascending."""
        found = set()
        for name, delay in self._columns:
            own = samples[name].times
            if own[-1] + delay > low:
                place = bisect_right(own, low - delay)
                while place < len(own) and own[place] + delay < high:
                    if own[place] + delay > low:
                        found.add(own[place] + delay)
                    place += 1
        return sorted(found)

    def input_values(self, samples: Mapping[str, InputBuffer], time: float) -> tuple[Array, Array]:
        """Return values and slopes of all inputs at a time, from the right, shapes (m,)."""
        # A jump that differs from the time by rounding errors only is at this time.
        slack = 0.0 if self._is_undelayed else clock_resolution(time)
        times = ((name, time - delay + (slack if delay else 0.0)) for name, delay in self._columns)
        values, slopes = np.array([samples[name].value_and_slope(at) for name, at in times]).reshape(-1, 2).T
        return values, slopes
