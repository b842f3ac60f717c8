"""Known inputs while they come: the last samples of each, and the state of the response to them.

Of an input that acts T later the samples of the last T are kept, of any other one the last sample.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.online.remembered import Remembered, resolution_at
from lodekit.prior.responses.matrices import StateMatrices, balance
from lodekit.prior.responses.response import ResponsePlan
from lodekit.prior.responses.transitions import Steps

__all__ = ["Plant", "Samples"]

Array = NDArray[np.float64]


class Samples:
    """The last samples of an input.

    Parameters
    ----------
    kind : {"hold", "linear"}
    times, values : sequence of float
        Ascending; one at least, unless the input has not begun.
    """

    __slots__ = ("kind", "times", "values")

    def __init__(self, kind: str, times: Sequence[float] = (), values: Sequence[float] = ()) -> None:
        self.kind = kind
        self.times, self.values = list(times), list(values)

    def copy(self) -> Samples:
        """Return the same samples, to be changed without these."""
        return Samples(self.kind, self.times, self.values)

    def add(self, time: float, value: float) -> tuple[int, list[float], list[float]]:
        """Add a sample, in the place of all that stands at its time or later; return what `restore` needs.

        Parameters
        ----------
        time, value : float
        """
        place = len(self.times)
        while place and self.times[place - 1] >= time:
            place -= 1
        before = place, self.times[place:], self.values[place:]
        del self.times[place:], self.values[place:]
        # A held input that stays as it is has nothing new to remember.
        if self.kind != "hold" or not place or self.values[-1] != value:
            self.times.append(time)
            self.values.append(value)
        return before

    def restore(self, before: tuple[int, list[float], list[float]]) -> None:
        """Take back what `add` has done."""
        place, times, values = before
        self.times[place:], self.values[place:] = times, values

    def forget(self, time: float) -> None:
        """Drop samples that say nothing about a time and later."""
        count = bisect_right(self.times, time) - 1
        if count > 0:
            del self.times[:count], self.values[:count]

    def at(self, time: float) -> tuple[float, float]:
        """Return value and slope at a time, from the right; constant before the first sample and after the last."""
        place = bisect_right(self.times, time)
        if self.kind == "hold" or place in (0, len(self.times)):
            return self.values[max(place - 1, 0)], 0.0
        t, v = self.times, self.values
        slope = (v[place] - v[place - 1]) / (t[place] - t[place - 1])
        return v[place - 1] + slope * (time - t[place - 1]), slope


class Plant:
    """The response to known inputs, step by step.

    Parameters
    ----------
    matrices : StateMatrices
        Of any observables; the states are those of all.
    delays : array, shape (m,)
        How much later each input acts.
    inputs : sequence of str
        The channel of each input.
    kinds : dict of str to {"hold", "linear"}
        What channels do between samples.
    """

    def __init__(self, matrices: StateMatrices, delays: Array, inputs: Sequence[str], kinds: Mapping[str, str]) -> None:
        self.matrices, self.delays, self.inputs, self.kinds = matrices, delays, tuple(inputs), dict(kinds)
        self.scales = balance(matrices.F)
        self._columns = list(zip(self.inputs, delays.tolist(), strict=True))
        self._is_prompt = not delays.any()
        self._longest = {
            name: max((delay for own, delay in self._columns if own == name), default=0.0) for name in self.kinds
        }
        F, G = matrices.F * self.scales / self.scales[:, None], matrices.G / self.scales[:, None]
        self._orders = 2 if "linear" in self.kinds.values() else 1
        self._steps = Steps(F, G, self._orders)
        self._known = Remembered(lambda length: self._steps.at(np.array([length]))[0][0])

    @property
    def size(self) -> int:
        """How many states there are."""
        return len(self.scales)

    def begin(self, signals: Mapping[str, InputSignal], start: float, time: float) -> tuple[Array, dict[str, Samples]]:
        """Return the states at a time, from rest at the start of a record, and the samples that are to be kept.

        Parameters
        ----------
        signals : dict of str to InputSignal
            The inputs of the record.
        start, time : float
        """
        m, own = len(self.inputs), self.matrices
        none = np.zeros((self.size, m))
        states = StateMatrices(own.F, own.G, np.eye(self.size), none, none)
        plan = ResponsePlan([signals[name] for name in self.inputs], np.array([time]), start)
        found = plan.respond(states, self.delays).values[:, 0] / self.scales
        samples = {
            name: Samples(signal.kind, signal.times.tolist(), signal.values.tolist())
            for name, signal in signals.items()
        }
        self.forget(samples, time)
        return found, samples

    def forget(self, samples: Mapping[str, Samples], time: float) -> None:
        """Drop samples that no longer act at a time.

        Parameters
        ----------
        samples : dict of str to Samples
        time : float
        """
        slack = resolution_at(time)
        for name, own in samples.items():
            if len(own.times) > 1:
                own.forget(time - self._longest[name] - slack)

    def advance(
        self, state: Array, samples: Mapping[str, Samples], before: float, after: float, lead: float = 0.0
    ) -> tuple[Array, float]:
        """Return the state at a later time, and by how much it is ahead of that, which is rounding.

        Parameters
        ----------
        state : array, shape (q,)
        samples : dict of str to Samples
        before, after : float
            Times.
        lead : float
            By how much the state is ahead of the first: what rounding does to one step is made good in the next.
        """
        slack = resolution_at(after)
        edges = [before, *self._breaks(samples, before + slack, after - slack), after]
        m = len(self.inputs)
        both = np.zeros(self.size + self._orders * m)
        for first, last in pairwise(edges):
            wanted = (last - first) - lead
            if wanted <= slack:
                lead = -wanted
                continue
            middle, half = 0.5 * (first + last), 0.5 * (last - first)
            both[: self.size] = state
            for column, (name, delay) in enumerate(self._columns, self.size):
                value, slope = samples[name].at(middle - delay)
                both[column] = value - slope * half
                if self._orders == 2:
                    both[column + m] = slope
            length, matrix = self._known.find(wanted, slack)
            state, lead = matrix @ both, length - wanted
        return state, lead

    def _breaks(self, samples: Mapping[str, Samples], low: float, high: float) -> list[float]:
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

    def feed(self, samples: Mapping[str, Samples], time: float) -> tuple[Array, Array]:
        """Return values and slopes of all inputs at a time, from the right, shapes (m,).

        Parameters
        ----------
        samples : dict of str to Samples
        time : float
        """
        # A jump that misses the time by rounding only lies on it.
        slack = 0.0 if self._is_prompt else resolution_at(time)
        both = np.array([samples[name].at(time - delay + (slack if delay else 0.0)) for name, delay in self._columns])
        both = both.reshape(-1, 2)
        return both[:, 0], both[:, 1]
