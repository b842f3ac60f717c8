"""Measurements cut into blocks of consecutive times; blocks that are alike share all that does not depend on values.

Two blocks are alike where their steps, what was measured at each time, and whose noise it has are the same. Regular
data have a handful of different blocks, however long they are; with irregular times each block is one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.markov.families import Chunk, Family, chunk_up, put_in_families
from lodekit.inference.markov.inside import Motion
from lodekit.inference.markov.lanes import Places
from lodekit.inference.markov.states import Space
from lodekit.inference.markov.stretches import Plan
from lodekit.inference.markov.sums import Sums
from lodekit.inference.measured import Measured
from lodekit.prior.responses.lengths import Lengths

__all__ = ["Layout", "MarkovData", "cut", "shorter_length"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
Mask = NDArray[np.bool_]
#: Measurements in a block: for the evidence, and where covariances of all its states are asked for.
_USUAL, _ASKED = 128, 48
#: Of a short record fewer: so many rows at least, and so many times the root of all rows, where the ways through a
#: block and from block to block cost about the same.
_LEAST, _ROOT = 12, 0.6
#: Where blocks share nothing their length is nothing to the cost of each: longer ones, up to so many times, as long as
#: there are so many.
_LONGER, _MANY = 6, 380
#: So few blocks that share nothing are worked on as those that share matrices: a filter inside them would cost as much
#: as for hundreds.
_FEW = 8
#: Where less than this share of all observables at all times was measured, each measurement has a place of its own.
_FULL = 0.5
#: An error of the log evidence, relative to itself or to the number of measurements, for which blocks are cut shorter,
#: and by how much.
_FINE, _SHORTER = 1e-10, 4


@dataclass(frozen=True)
class Layout:
    """Times cut into blocks of equally many places, with what was measured there.

    Parameters
    ----------
    times : array, shape (b, n)
        Scaled time of each place; places that fill up the last block repeat its last time.
    steps : array of int, shape (b, n + 1)
        The number of the length of the step to each place from the one before it, and to the block that follows.
    lengths : array
        All different lengths of steps; the first is zero.
    observed : array of int, shape (b, n, w)
        The numbers of the observables; -1 for nothing.
    numbers : array of int, shape (b, n, w)
        Those of the measurements; -1 for nothing.
    patterns : array of int, shape (b,)
        The number of the pattern of each block.
    chunks : tuple of Chunk
    keeps : array, shape (k, c), optional
        For each step, one for each state that adds up something and goes on, zero for those that begin anew with it.
    """

    times: Array
    steps: Numbers
    lengths: Array
    observed: Numbers
    numbers: Numbers
    patterns: Numbers
    chunks: tuple[Chunk, ...]
    keeps: Array | None = None
    _plans: dict[int, Plan] = field(default_factory=dict, compare=False, repr=False)
    _places: dict[int, Places] = field(default_factory=dict, compare=False, repr=False)

    def motion(self, space: Space, numbers: Numbers | None = None) -> Motion:
        """Return a system over some of the steps.

        Parameters
        ----------
        space : Space
        numbers : array of int, shape (k,), optional
            Those of the steps; all where nobody says.
        """
        own = slice(None) if numbers is None else numbers
        return Motion(space, self.lengths[own], None if self.keeps is None else self.keeps[own])

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """All chunks, as many together as their matrices may be."""
        few = _FEW if self.keeps is None else np.inf
        return put_in_families(self.chunks, self.places, self.observed.shape[2], few)

    def plan(self, blocks: Numbers) -> Plan:
        """Return what some blocks are made of."""
        return Plan.of(blocks, self.steps[blocks, 1:], self.observed[blocks])

    def plan_of(self, number: int) -> Plan:
        """Return what a block of each pattern of a family is made of."""
        if number not in self._plans:
            self._plans[number] = self.plan(self.families[number].first)
        return self._plans[number]

    def side_by_side(self, number: int) -> Places:
        """Return the blocks of a family that share nothing, side by side."""
        if number not in self._places:
            own = self.families[number].chunks[0].blocks.ravel()
            self._places[number] = Places.of(self.lengths[self.steps[own]], self.observed[own], self.numbers[own])
        return self._places[number]

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self.patterns)

    @property
    def places(self) -> int:
        """How many places a block has."""
        return int(self.times.shape[1])

    @cached_property
    def counts(self) -> Numbers:
        """How many measurements each block has."""
        return np.asarray((self.numbers >= 0).sum(axis=(1, 2)), dtype=np.intp)

    def spread(self, values: Array, rest: float) -> Array:
        """Return something of each measurement at its place, shape (b, n w, ...); `rest` where there is none.

        Parameters
        ----------
        values : array, shape (m, ...)
        rest : float
        """
        padded = np.concatenate([values, np.full((1, *values.shape[1:]), rest)])
        return padded[self.numbers.reshape(self.blocks, -1)]

    def gather(self, values: Array, size: int) -> Array:
        """Return the way back from `spread`: something of each measurement in their order, shape (m, ...).

        Parameters
        ----------
        values : array, shape (b, n w, ...)
        size : int
            m.
        """
        found, there = np.zeros((size, *values.shape[2:])), self._there
        found[self.numbers.reshape(-1)[there]] = values.reshape(self.numbers.size, *values.shape[2:])[there]
        return found

    @cached_property
    def _there(self) -> Numbers:
        """The numbers of all places at which something was measured."""
        return np.flatnonzero(self.numbers >= 0)


def cut(
    times: Array,
    observed: Numbers,
    numbers: Numbers,
    kinds: Numbers,
    length: int,
    resolution: float,
    begins: Mask | None = None,
) -> Layout:
    """Return places in ascending time cut into blocks.

    Parameters
    ----------
    times : array, shape (n,)
        Scaled times of all places.
    observed, numbers : arrays of int, shape (n, w)
        As in `Layout`.
    kinds : array of int, shape (n, w)
        Numbers that are the same where the noise is.
    length : int
        Of a block.
    resolution : float
        What the clock resolves, in scaled time: steps that differ by no more are the same.
    begins : array of bool, shape (n, c), optional
        Which of the states that add up something begin anew at each place.
    """
    count, width = len(times), observed.shape[1]
    blocks = -(-count // length)
    total = blocks * length

    def filled(values: Numbers) -> Numbers:
        found = np.full((total, width), -1, dtype=np.intp)
        found[:count] = values
        return found.reshape(blocks, length, width)

    whole = Lengths.of(np.diff(times), resolution)
    which, distinct, keeps = whole.which, np.maximum(whole.distinct, 0.0), None
    if begins is not None:
        kept, own = np.unique(~begins[:-1], axis=0, return_inverse=True)
        pairs, which = np.unique(np.stack([which, own.reshape(-1)], axis=1), axis=0, return_inverse=True)
        distinct, which = distinct[pairs[:, 0]], which.reshape(-1)
        keeps = np.concatenate([np.ones((1, begins.shape[1])), kept[pairs[:, 1]].astype(float)])
    # Number zero is no step at all.
    lengths = np.concatenate([[0.0], distinct])
    steps = np.zeros((blocks, length + 1), dtype=np.intp)
    inner = np.zeros(total, dtype=np.intp)
    inner[1:count] = which + 1
    steps[:, :length] = inner.reshape(blocks, length)
    steps[:-1, length] = steps[1:, 0]
    steps[:, 0] = 0
    places = np.concatenate([times, np.full(total - count, times[-1] if count else 0.0)]).reshape(blocks, length)
    seen = filled(observed)
    key = np.concatenate([steps, seen.reshape(blocks, -1), filled(kinds).reshape(blocks, -1)], axis=1)
    patterns = _number(key)
    chunks = chunk_up(patterns, length, width, alone=begins is None)
    return Layout(places, steps, lengths, seen, filled(numbers), patterns, chunks, keeps)


def _number(key: Numbers) -> Numbers:
    """Return the same number for equal rows."""
    flat = np.ascontiguousarray(key).view(np.dtype((np.void, key.dtype.itemsize * key.shape[1]))).ravel()
    _, inverse = np.unique(flat, return_inverse=True)
    return np.asarray(inverse, dtype=np.intp)


@dataclass(frozen=True)
class MarkovData(Measured):
    """Measurements in memory with their prior, as the Markov engine sees them.

    `prior`, `times`, `index`, `values`, `noise` and `log_jacobian` are those of `Measured`.

    Parameters
    ----------
    length : int, optional
        How many measurements a block should have; what is fast otherwise.
    until : float, optional
        The scaled time at which the next piece of a record begins; None where nothing follows.
    goes_on : bool
        Whether they are a piece of a record that begins earlier.
    """

    length: int | None = None
    until: float | None = None
    goes_on: bool = False
    _layouts: dict[int | None, Layout] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def resolution(self) -> float:
        """What the clock resolves, in scaled time."""
        far = float(np.abs(self.times).max(initial=0.0)) + abs(self.prior.units.start)
        return 4.0 * float(np.spacing(far)) / self.prior.units.span

    @cached_property
    def _kinds(self) -> Numbers:
        """A number of the noise of each measurement: its level, or which known variance."""
        _, known = np.unique(self.noise.known, return_inverse=True)
        groups = int(self.noise.group.max(initial=0)) + 1
        return np.where(self.noise.learned, self.noise.group, groups + known).astype(np.intp)

    @cached_property
    def sums(self) -> Sums | None:
        """Intervals of measurements that are means over some; None where there are none."""
        windows = self.prior.observables.windows
        if windows is None:
            return None
        times = [self.scaled_times[index] for index in self.index]
        return Sums.of(windows, times, self.scaled_times, self.resolution)

    @cached_property
    def table(self) -> tuple[Array, Numbers, Numbers]:
        """Scaled times of all places, and which measurements of which observables, (n, w): -1 for none."""
        count, width = len(self.times), len(self.index)
        columns = np.repeat(np.arange(width), np.diff(self.edges))
        numbers = columns if self.sums is None else self.sums.readings
        where = np.concatenate(self.index) if width else np.zeros(0, dtype=np.intp)
        # Measurements come in the order of time.
        is_twice = any((np.diff(index) <= 0).any() for index in self.index)
        if is_twice or self.size < _FULL * count * width:
            order = np.lexsort((columns, where))
            return self.scaled_times[where[order]], numbers[order][:, None], order[:, None]
        rows = np.full((count, width), -1, dtype=np.intp)
        rows[where, columns] = np.arange(self.size)
        return self.scaled_times, np.where(rows >= 0, np.append(numbers, -1)[rows], -1), rows

    def layout(self, length: int | None = None) -> Layout:
        """Return the measurements in blocks.

        Parameters
        ----------
        length : int, optional
            How many measurements a block should have; what is fast where nobody says.
        """
        # Blocks that nobody has asked for are not those of any length: they may be longer than usual.
        wanted = length or self.length
        if wanted not in self._layouts:
            self._layouts[wanted] = self._make(wanted, np.zeros(0))[0] if wanted else self._make_usual()
        return self._layouts[wanted]

    def _make_usual(self) -> Layout:
        """Return blocks of a length that is fast."""
        rows, width = self.table[1].shape
        usual = int(min(_USUAL, width * max(_LEAST, int(_ROOT * np.sqrt(rows)))))
        found = self._make(usual, np.zeros(0))[0]
        rare = sum(family.chunks[0].blocks.size for family in found.families if family.is_alone)
        return found if rare < 2 * _MANY else self._make(min(_LONGER, rare // _MANY) * usual, np.zeros(0))[0]

    def with_times(self, times: Array, length: int | None = None, sums: Sums | None = None) -> tuple[Layout, Numbers]:
        """Return a layout that has places for more times, and the numbers of these places.

        Parameters
        ----------
        times : array, shape (k,)
            Scaled, in any order.
        length : int, optional
            As in `layout`.
        sums : Sums, optional
            Intervals of the measurements and of others; those of the measurements where nobody says.
        """
        return self._make(length or self.length or _ASKED, times, sums)

    def _make(self, length: int, more: Array, sums: Sums | None = None) -> tuple[Layout, Numbers]:
        times, observed, rows = self.table
        sums = sums or self.sums
        starts = np.zeros(0) if sums is None else sums.starts
        more, added = self._begin(more, starts)
        width = observed.shape[1]
        kinds = np.where(rows >= 0, np.append(self._kinds, -1)[rows], -1)
        starts = np.setdiff1d(starts, np.concatenate([times, more]))
        # The state after the last block is that of the last place.
        ends = np.zeros(0) if self.until is None else np.array([self.until])
        empty = np.full((len(more) + len(starts) + len(ends), width), -1, dtype=np.intp)
        every = np.concatenate([times, more, starts, ends])
        order = np.argsort(every, kind="stable")
        both = [np.concatenate([part, empty])[order] for part in (observed, rows, kinds)]
        place = np.empty(len(every), dtype=np.intp)
        place[order] = np.arange(len(every))
        begins = None if sums is None else sums.begins(every[order])
        found = cut(every[order], both[0], both[1], both[2], max(1, length // width), self.resolution, begins)
        return found, place[len(times) + added : len(times) + len(more)]

    def _begin(self, more: Array, starts: Array) -> tuple[Array, int]:
        """Return times with the one at which disturbances begin, where these need it, and how many were added.

        Raise where other times, or starts of intervals, come before it.
        """
        if self.prior.observables.disturbed is None or self.goes_on:
            return more, 0
        first = min(float(part.min(initial=np.inf)) for part in (self.table[0], more, starts))
        if first < -self.resolution:
            raise LodekitError(
                "disturbances act from the start of a record on, and nothing is said of them before: ask for times "
                f"from {self.prior.units.start:.6g} on, for intervals that begin then or later, or fit all data again"
            )
        return (more, 0) if first <= 0.0 else (np.concatenate([[0.0], more]), 1)


def shorter_length(layout: Layout, size: int, value: float, error: float) -> int | None:
    """Return how many measurements a block should have at most, where rounding inside blocks can be seen; else None.

    A covariance inside a block loses digits where noise is small against what the block may do.

    Parameters
    ----------
    layout : Layout
        The blocks with which the log evidence was found.
    size : int
        The number of measurements.
    value, error : float
        The log evidence, and about how large an error rounding makes in it.
    """
    if not np.isfinite(value) or error <= _FINE * max(size, abs(value)) or layout.places <= 1:
        return None
    return max(1, layout.places // _SHORTER) * int(layout.observed.shape[2])
