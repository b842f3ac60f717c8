"""Means over intervals: states that add up an observable from the start of an interval to its end.

A mean over the interval that ends at a time is read from a state that began at zero at the start of the interval and
grew with what is averaged. Intervals that overlap need states of their own; the next interval that begins after the
end of one takes its state. Modes need none: their means are rows of numbers already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.markov.states import Slopes, Space
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables

__all__ = ["SummedSpace", "Sums", "sum_up"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
Mask = NDArray[np.bool_]
#: So many intervals may be open at the same time.
_MOST = 64


@dataclass(frozen=True)
class Sums:
    """Intervals, and which state adds up what.

    Parameters
    ----------
    owners : array of int, shape (c,)
        The number of the observable that each state adds up.
    windows : array, shape (c,)
        The lengths of its intervals, in scaled time.
    starts : array, shape (i,)
        The starts of all intervals, in scaled time.
    states : array of int, shape (i,)
        The states that begin there.
    firsts : array of int, shape (o,)
        Where the rows of each observable begin: one for each of its states, or one where it has none.
    readings : array of int, shape (m,)
        The number of the row of each value.
    """

    owners: Numbers
    windows: Array
    starts: Array
    states: Numbers
    firsts: Numbers
    readings: Numbers

    @classmethod
    def of(cls, windows: Array, ends: Sequence[Array], times: Array, resolution: float) -> Sums:
        """Return the intervals of some values.

        Parameters
        ----------
        windows : array, shape (o,)
            The length of the intervals of each observable, zero where it has none.
        ends : sequence of arrays
            The scaled times of the values of each observable.
        times : array
            Ascending times: starts that are as close to one as the clock resolves are at it.
        resolution : float
            Of the clock.
        """
        owners: list[int] = []
        starts, states, firsts, readings, rows = [], [], [], [], 0
        for number, (window, own) in enumerate(zip(windows.tolist(), ends, strict=True)):
            firsts.append(rows)
            if not window:
                readings.append(np.full(len(own), rows))
                rows += 1
                continue
            different, which = np.unique(own, return_inverse=True)
            begin = _snap(different - window, times, resolution)
            # How many intervals are open where one begins, with itself.
            depth = np.arange(1, len(begin) + 1) - np.searchsorted(different, begin, side="right")
            count = max(1, int(depth.max(initial=1)))
            turns = np.arange(len(begin)) % count
            starts.append(begin)
            states.append(len(owners) + turns)
            readings.append(rows + turns[which.reshape(-1)])
            owners += [number] * count
            rows += count
        every = [np.concatenate(part) if part else np.zeros(0) for part in (starts, states, readings)]
        if len(owners) > _MOST:
            raise LodekitError(
                f"expected intervals of which at most {_MOST} are open at the same time, got {len(owners)}: the Markov "
                "engine needs a state for each; use engine='dense', or every second value or fewer"
            )
        numbers = np.array(owners, dtype=np.intp)
        return cls(
            numbers, windows[numbers], every[0], every[1].astype(np.intp), np.array(firsts), every[2].astype(np.intp)
        )

    def __len__(self) -> int:
        return len(self.owners)

    def begins(self, places: Array) -> Mask:
        """Return which states begin anew at each place, shape (n, c).

        Parameters
        ----------
        places : array, shape (n,)
            Ascending times; all starts are among them.
        """
        found = np.zeros((len(places), len(self)), dtype=bool)
        # Behind all that is measured at that time.
        found[np.searchsorted(places, self.starts, side="right") - 1, self.states] = True
        return found


def _snap(values: Array, times: Array, resolution: float) -> Array:
    """Return values, and times in their place where they are as close as the clock resolves."""
    if not len(times):
        return values
    right = np.clip(np.searchsorted(times, values), 0, len(times) - 1)
    left = np.maximum(right - 1, 0)
    near = np.where(np.abs(times[left] - values) < np.abs(times[right] - values), times[left], times[right])
    return np.where(np.abs(near - values) <= resolution, near, values)


@dataclass(frozen=True, kw_only=True)
class SummedSpace(Space):
    """A linear system with states that add up observables; they come last among those that noise drives.

    `prior`, `hyper`, `coefficients`, `units`, `matrix`, `density`, `readings` and `disturbed` are those of `Space`.

    Parameters
    ----------
    without : Space
        Without these states.
    sums : Sums
    """

    without: Space
    sums: Sums

    def root_at(self, time: float) -> Array:
        """Return a root of the prior covariance of the states at a scaled time; sums are zero."""
        own, n = self.without.root_at(time), self.without.noisy
        found = np.zeros((self.size, self.size))
        kept = _kept(n, self.size, len(self.sums))
        found[np.ix_(kept, kept)] = own
        return found

    def readings_of(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return other observables as rows of all states, as if none were averaged but their modes.

        Parameters
        ----------
        observables : Observables
        coefficients : Coefficients
            At the same values of the parameters.
        """
        return _widen(self.without.readings_of(observables, coefficients), self.without.noisy, len(self.sums))

    def pull(self, slopes: Slopes, time: float) -> Hyperparameters:
        """Return derivatives as those of the system without sums.

        Parameters
        ----------
        slopes : Slopes
        time : float
            The scaled time of the start.
        """
        n, count, sums = self.without.noisy, len(self.sums), self.sums
        kept = _kept(n, self.size, count)
        in_readings = np.zeros_like(self.without.readings)
        plain = np.ones(len(in_readings), dtype=bool)
        plain[sums.owners] = False
        edges = np.append(sums.firsts, len(slopes.readings))
        for number, first in enumerate(sums.firsts):
            own = slopes.readings[first : edges[number + 1], kept].sum(axis=0)
            in_readings[number, n:] = own[n:]
            if plain[number]:
                in_readings[number, :n] = own[:n]
        np.add.at(in_readings[:, :n], sums.owners, slopes.matrix[n : n + count, :n] / sums.windows[:, None])
        own = np.ix_(kept, kept)
        return self.without.pull(
            Slopes(slopes.matrix[own], slopes.density[:n, :n], in_readings, slopes.start[own]), time
        )


def _kept(noisy: int, size: int, count: int) -> Numbers:
    """Return the numbers of the states that add up nothing."""
    return np.delete(np.arange(size), np.arange(noisy, noisy + count))


def _widen(rows: Array, noisy: int, count: int) -> Array:
    """Return rows with zeros for states that add up something."""
    return np.concatenate([rows[:, :noisy], np.zeros((len(rows), count)), rows[:, noisy:]], axis=1)


def sum_up(space: Space, sums: Sums | None) -> Space:
    """Return a system with states that add up observables.

    Parameters
    ----------
    space : Space
        Without them.
    sums : Sums, optional
        None where nothing is averaged.
    """
    if sums is None:
        return space
    n, size, count = space.noisy, space.size, len(sums)
    kept, added = _kept(n, size + count, count), np.arange(n, n + count)
    matrix, density = np.zeros((size + count, size + count)), np.zeros((n + count, n + count))
    matrix[np.ix_(kept, kept)], density[:n, :n] = space.matrix, space.density
    matrix[n : n + count, :n] = space.readings[sums.owners, :n] / sums.windows[:, None]
    readings = _widen(space.readings, n, count)
    parts = []
    for number in range(len(sums.firsts)):
        own = added[sums.owners == number]
        row = np.repeat(readings[number : number + 1], max(1, len(own)), axis=0)
        if len(own):
            row[:, : n + count] = 0.0
            row[np.arange(len(own)), own] = 1.0
        parts.append(row)
    found: dict[str, Any] = {item.name: getattr(space, item.name) for item in fields(space)}
    found |= {"matrix": matrix, "density": density, "readings": np.concatenate(parts) if parts else readings}
    return SummedSpace(**found, without=space, sums=sums)
