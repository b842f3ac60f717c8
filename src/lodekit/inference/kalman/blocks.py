"""Blocks that are alike, in chunks that are worked on together.

All blocks of a pattern share their matrices. In a chunk all patterns occur equally often, so that values of their
blocks are columns of arrays; the matrices of a family of chunks are made together. Blocks that occur too seldom to
share anything are filtered each by itself, some hundred at once.

Measurements cut into blocks of consecutive times; blocks that are alike share all that does not depend on values.

Two blocks are alike where their steps, what was measured at each time, and whose noise it has are the same. Regular
data have a handful of different blocks, however long they are; with irregular times each block is one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.kalman.block_model import DiscretizedModel, SegmentPlan
from lodekit.inference.kalman.interval_means import AveragingStates
from lodekit.inference.kalman.irregular import BlockRows
from lodekit.inference.kalman.state_space import StateSpaceModel
from lodekit.inference.stacked_measurements import StackedMeasurements
from lodekit.prior.input_response.hold import UniqueSteps

IndexArray = NDArray[np.intp]
#: Blocks that are no more often than this share nothing, and are worked on by themselves.
_MAX_IRREGULAR_REPEATS = 3
#: Numbers that matrices of blocks which are worked on together may have, and how many blocks that share nothing.
_MAX_ELEMENTS, _MAX_IRREGULAR_BLOCKS = 2_000_000, 1000


@dataclass(frozen=True)
class BlockChunk:
    """Different blocks that are worked on together; each occurs equally often.

    patterns: The numbers of the patterns; (u,).
    blocks: The blocks of each pattern; (u, k).
    """

    patterns: IndexArray
    blocks: IndexArray

    def is_irregular(self, max_few: float) -> bool:
        """Return whether its blocks occur so seldom that they share nothing, and are more than a few."""
        return bool(self.blocks.shape[1] <= _MAX_IRREGULAR_REPEATS and self.blocks.size > max_few)

    @property
    def as_single_blocks(self) -> BlockChunk:
        """The same blocks, each by itself."""
        return BlockChunk(np.repeat(self.patterns, self.blocks.shape[1]), self.blocks.reshape(-1, 1))


@dataclass(frozen=True)
class ChunkGroup:
    """Chunks whose matrices are made together, however often their blocks occur; one that is filtered is by itself.

    is_irregular: Whether its blocks share nothing, so that each is filtered by itself.
    """

    chunks: tuple[BlockChunk, ...]
    is_irregular: bool = False

    @cached_property
    def patterns(self) -> IndexArray:
        """The patterns of all chunks."""
        return np.concatenate([chunk.patterns for chunk in self.chunks])

    @cached_property
    def first_blocks(self) -> IndexArray:
        """A block of each pattern."""
        return np.concatenate([chunk.blocks[:, 0] for chunk in self.chunks])

    @property
    def chunk_slices(self) -> list[slice]:
        """Where the patterns of each chunk stand among those of all."""
        edges = np.cumsum([0, *(len(chunk.patterns) for chunk in self.chunks)]).tolist()
        return [slice(start, stop) for start, stop in pairwise(edges)]


def group_blocks(
    patterns: IndexArray, rows_per_block: int, width: int, *, allow_irregular: bool
) -> tuple[BlockChunk, ...]:
    """Return patterns in chunks, of which all occur equally often, as many as may be worked on together.

    Shapes: patterns (b,).
    """
    most = _max_patterns(rows_per_block, width)
    rare = _MAX_IRREGULAR_BLOCKS if allow_irregular else most
    counts = np.bincount(patterns)
    order = np.argsort(patterns, kind="stable")
    members = np.split(order, np.cumsum(counts)[:-1])
    found = []
    for often in np.unique(counts):
        own = np.flatnonzero(counts == often)
        step = most if often > _MAX_IRREGULAR_REPEATS else max(1, rare // int(often))
        # All about as large: the last one would cost as much if it were small.
        step = -(-len(own) // max(1, round(len(own) / step)))
        for start in range(0, len(own), step):
            part = own[start : start + step]
            found.append(BlockChunk(part, np.stack([members[number] for number in part]).astype(np.intp)))
    return tuple(found)


def group_chunks(
    chunks: Sequence[BlockChunk], rows_per_block: int, width: int, max_few: float
) -> tuple[ChunkGroup, ...]:
    """Return chunks in families: those that are filtered by themselves, then others, as many as may be together."""
    by_themselves = [ChunkGroup((chunk,), is_irregular=True) for chunk in chunks if chunk.is_irregular(max_few)]
    most, count = _max_patterns(rows_per_block, width), 0
    shared: list[list[BlockChunk]] = []
    for chunk in (chunk for chunk in chunks if not chunk.is_irregular(max_few)):
        count += len(chunk.patterns)
        if not shared or count > most:
            shared.append([chunk])
            count = len(chunk.patterns)
        else:
            shared[-1].append(chunk)
    return (*by_themselves, *(ChunkGroup(tuple(own)) for own in shared))


def _max_patterns(rows_per_block: int, width: int) -> int:
    """Return how many patterns may be worked on together."""
    size = rows_per_block * width
    return max(1, _MAX_ELEMENTS // max(1, 3 * size * size + 8 * size * rows_per_block))


Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: Measurements in a block: for the evidence, and where covariances of all its states are asked for.
_BLOCK_MEASUREMENTS, _POSTERIOR_BLOCK_MEASUREMENTS = 128, 48
#: Of a short record fewer: so many rows at least, and so many times the root of all rows, where the ways through a
#: block and from block to block cost about the same.
_MIN_BLOCK_ROWS, _BLOCK_ROWS_PER_SQRT_ROWS = 12, 0.6
#: Where blocks share nothing their length is nothing to the cost of each: longer ones, up to so many times, as long as
#: there are so many.
_MAX_BLOCK_LENGTHENING, _MIN_IRREGULAR_BLOCKS = 6, 380
#: So few blocks that share nothing are worked on as those that share matrices: a filter inside them would cost as much
#: as for hundreds.
_MAX_DENSE_IRREGULAR_BLOCKS = 8
#: Where less than this share of all observables at all times was measured, each measurement has a place of its own.
_MIN_FILL_FRACTION = 0.5
#: An error of the log evidence, relative to itself or to the number of measurements, for which blocks are cut shorter,
#: and by how much.
_EVIDENCE_ERROR_TOLERANCE, _BLOCK_REDUCTION_FACTOR = 1e-10, 4


@dataclass(frozen=True)
class BlockLayout:
    """Times cut into blocks of equally many places, with what was measured there.

    times: Scaled time of each place; places that fill up the last block repeat its last time; (b, n).
    step_index: The number of the length of the step to each place from the one before it, and to the block that
        follows; (b, n + 1).
    step_lengths: All different lengths of steps; the first is zero.
    observable_index: The numbers of the observables; -1 for nothing; (b, n, w).
    measurement_index: Those of the measurements; -1 for nothing; (b, n, w).
    patterns: The number of the pattern of each block; (b,).
    retained: For each step, one for each state that adds up something and goes on, zero for those that begin anew
        with it; (k, c).
    """

    times: Array
    step_index: IndexArray
    step_lengths: Array
    observable_index: IndexArray
    measurement_index: IndexArray
    patterns: IndexArray
    chunks: tuple[BlockChunk, ...]
    retained: Array | None = None
    _plans: dict[int, SegmentPlan] = field(default_factory=dict, compare=False, repr=False)
    _irregular_rows: dict[int, BlockRows] = field(default_factory=dict, compare=False, repr=False)

    def discretize_model(self, model: StateSpaceModel, step_index: IndexArray | None = None) -> DiscretizedModel:
        """Return a system over some of the steps.

        Shapes: step_index (k,).
        """
        own = slice(None) if step_index is None else step_index
        return DiscretizedModel(model, self.step_lengths[own], None if self.retained is None else self.retained[own])

    @cached_property
    def chunk_groups(self) -> tuple[ChunkGroup, ...]:
        """All chunks, as many together as their matrices may be."""
        few = _MAX_DENSE_IRREGULAR_BLOCKS if self.retained is None else np.inf
        return group_chunks(self.chunks, self.rows_per_block, self.observable_index.shape[2], few)

    def plan_segments(self, blocks: IndexArray) -> SegmentPlan:
        """Return what some blocks are made of."""
        return SegmentPlan.of(blocks, self.step_index[blocks, 1:], self.observable_index[blocks])

    def get_group_plan(self, group_index: int) -> SegmentPlan:
        """Return what a block of each pattern of a family is made of."""
        if group_index not in self._plans:
            self._plans[group_index] = self.plan_segments(self.chunk_groups[group_index].first_blocks)
        return self._plans[group_index]

    def get_irregular_rows(self, group_index: int) -> BlockRows:
        """Return the blocks of a family that share nothing, side by side."""
        if group_index not in self._irregular_rows:
            own = self.chunk_groups[group_index].chunks[0].blocks.ravel()
            self._irregular_rows[group_index] = BlockRows.of(
                self.step_lengths[self.step_index[own]], self.observable_index[own], self.measurement_index[own]
            )
        return self._irregular_rows[group_index]

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return len(self.patterns)

    @property
    def rows_per_block(self) -> int:
        """How many places a block has."""
        return int(self.times.shape[1])

    @cached_property
    def measurement_counts(self) -> IndexArray:
        """How many measurements each block has."""
        return np.asarray((self.measurement_index >= 0).sum(axis=(1, 2)), dtype=np.intp)

    def to_blocks(self, values: Array, fill_value: float) -> Array:
        """Return something of each measurement at its place, shape (b, n w, ...); `fill_value` where there is none.

        Shapes: values (m, ...).
        """
        padded = np.concatenate([values, np.full((1, *values.shape[1:]), fill_value)])
        return padded[self.measurement_index.reshape(self.n_blocks, -1)]

    def from_blocks(self, values: Array, n_measurements: int) -> Array:
        """Return the way back from `spread`: something of each measurement in their order, shape (m, ...).

        Shapes: values (b, n w, ...).
        """
        found, there = np.zeros((n_measurements, *values.shape[2:])), self._measured_index
        found[self.measurement_index.reshape(-1)[there]] = values.reshape(
            self.measurement_index.size, *values.shape[2:]
        )[there]
        return found

    @cached_property
    def _measured_index(self) -> IndexArray:
        """The numbers of all places at which something was measured."""
        return np.flatnonzero(self.measurement_index >= 0)


def partition_times(
    times: Array,
    observable_index: IndexArray,
    measurement_index: IndexArray,
    noise_index: IndexArray,
    rows_per_block: int,
    resolution: float,
    interval_starts: Mask | None = None,
) -> BlockLayout:
    """Return places in ascending time cut into blocks.

    Shapes: times (n,), observable_index, measurement_index (n, w), noise_index (n, w), interval_starts (n, c).
    """
    count, width = len(times), observable_index.shape[1]
    blocks = -(-count // rows_per_block)
    total = blocks * rows_per_block

    def filled(values: IndexArray) -> IndexArray:
        found = np.full((total, width), -1, dtype=np.intp)
        found[:count] = values
        return found.reshape(blocks, rows_per_block, width)

    whole = UniqueSteps.from_steps(np.diff(times), resolution)
    which, distinct, keeps = whole.index, np.maximum(whole.distinct, 0.0), None
    if interval_starts is not None:
        kept, own = np.unique(~interval_starts[:-1], axis=0, return_inverse=True)
        pairs, which = np.unique(np.stack([which, own.reshape(-1)], axis=1), axis=0, return_inverse=True)
        distinct, which = distinct[pairs[:, 0]], which.reshape(-1)
        keeps = np.concatenate([np.ones((1, interval_starts.shape[1])), kept[pairs[:, 1]].astype(float)])
    # Number zero is no step at all.
    lengths = np.concatenate([[0.0], distinct])
    steps = np.zeros((blocks, rows_per_block + 1), dtype=np.intp)
    inner = np.zeros(total, dtype=np.intp)
    inner[1:count] = which + 1
    steps[:, :rows_per_block] = inner.reshape(blocks, rows_per_block)
    steps[:-1, rows_per_block] = steps[1:, 0]
    steps[:, 0] = 0
    places = np.concatenate([times, np.full(total - count, times[-1] if count else 0.0)]).reshape(
        blocks, rows_per_block
    )
    seen = filled(observable_index)
    key = np.concatenate([steps, seen.reshape(blocks, -1), filled(noise_index).reshape(blocks, -1)], axis=1)
    patterns = _number_distinct_rows(key)
    chunks = group_blocks(patterns, rows_per_block, width, allow_irregular=interval_starts is None)
    return BlockLayout(places, steps, lengths, seen, filled(measurement_index), patterns, chunks, keeps)


def _number_distinct_rows(rows: IndexArray) -> IndexArray:
    """Return the same number for equal rows."""
    flat = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, inverse = np.unique(flat, return_inverse=True)
    return np.asarray(inverse, dtype=np.intp)


@dataclass(frozen=True)
class KalmanData(StackedMeasurements):
    """Measurements in memory with their prior, as the Markov engine sees them.

    `prior`, `times`, `index`, `values`, `noise` and `log_jacobian` are those of `StackedMeasurements`.

    block_length: How many measurements a block should have; what is fast otherwise.
    next_time: The scaled time at which the next piece of a record begins; None where nothing follows.
    is_continuation: Whether they are a piece of a record that begins earlier.
    """

    block_length: int | None = None
    next_time: float | None = None
    is_continuation: bool = False
    _layouts: dict[int | None, BlockLayout] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def time_resolution(self) -> float:
        """What the clock resolves, in scaled time."""
        far = float(np.abs(self.times).max(initial=0.0)) + abs(self.prior.units.start)
        return 4.0 * float(np.spacing(far)) / self.prior.units.time_scale

    @cached_property
    def _noise_index(self) -> IndexArray:
        """A number of the noise of each measurement: its level, or which known variance."""
        _, known = np.unique(self.noise.known_variance, return_inverse=True)
        groups = int(self.noise.level_index.max(initial=0)) + 1
        return np.where(self.noise.learned, self.noise.level_index, groups + known).astype(np.intp)

    @cached_property
    def averaging(self) -> AveragingStates | None:
        """Intervals of measurements that are means over some; None where there are none."""
        windows = self.prior.observables.windows
        if windows is None:
            return None
        times = [self.scaled_times[index] for index in self.index]
        return AveragingStates.of(windows, times, self.scaled_times, self.time_resolution)

    @cached_property
    def row_table(self) -> tuple[Array, IndexArray, IndexArray]:
        """Scaled times of all places, and which measurements of which observables, (n, w): -1 for none."""
        count, width = len(self.times), len(self.index)
        columns = np.repeat(np.arange(width), np.diff(self.offsets))
        numbers = columns if self.averaging is None else self.averaging.row_index
        where = np.concatenate(self.index) if width else np.zeros(0, dtype=np.intp)
        # Measurements come in the order of time.
        is_twice = any((np.diff(index) <= 0).any() for index in self.index)
        if is_twice or self.size < _MIN_FILL_FRACTION * count * width:
            order = np.lexsort((columns, where))
            return self.scaled_times[where[order]], numbers[order][:, None], order[:, None]
        rows = np.full((count, width), -1, dtype=np.intp)
        rows[where, columns] = np.arange(self.size)
        return self.scaled_times, np.where(rows >= 0, np.append(numbers, -1)[rows], -1), rows

    def layout(self, block_length: int | None = None) -> BlockLayout:
        """Return the measurements in blocks."""
        # Blocks that nobody has asked for are not those of any length: they may be longer than usual.
        wanted = block_length or self.block_length
        if wanted not in self._layouts:
            self._layouts[wanted] = (
                self._build_layout(wanted, np.zeros(0))[0] if wanted else self._build_default_layout()
            )
        return self._layouts[wanted]

    def _build_default_layout(self) -> BlockLayout:
        """Return blocks of a length that is fast."""
        rows, width = self.row_table[1].shape
        usual = int(
            min(_BLOCK_MEASUREMENTS, width * max(_MIN_BLOCK_ROWS, int(_BLOCK_ROWS_PER_SQRT_ROWS * np.sqrt(rows))))
        )
        found = self._build_layout(usual, np.zeros(0))[0]
        rare = sum(family.chunks[0].blocks.size for family in found.chunk_groups if family.is_irregular)
        return (
            found
            if rare < 2 * _MIN_IRREGULAR_BLOCKS
            else self._build_layout(min(_MAX_BLOCK_LENGTHENING, rare // _MIN_IRREGULAR_BLOCKS) * usual, np.zeros(0))[0]
        )

    def with_times(
        self, times: Array, block_length: int | None = None, averaging: AveragingStates | None = None
    ) -> tuple[BlockLayout, IndexArray]:
        """Return a layout that has places for more times, and the numbers of these places.

        Shapes: times (k,).
        """
        return self._build_layout(block_length or self.block_length or _POSTERIOR_BLOCK_MEASUREMENTS, times, averaging)

    def _build_layout(
        self, block_length: int, extra_times: Array, averaging: AveragingStates | None = None
    ) -> tuple[BlockLayout, IndexArray]:
        times, observed, rows = self.row_table
        averaging = averaging or self.averaging
        starts = np.zeros(0) if averaging is None else averaging.interval_starts
        extra_times, added = self._add_start_time(extra_times, starts)
        width = observed.shape[1]
        kinds = np.where(rows >= 0, np.append(self._noise_index, -1)[rows], -1)
        starts = np.setdiff1d(starts, np.concatenate([times, extra_times]))
        # The state after the last block is that of the last place.
        ends = np.zeros(0) if self.next_time is None else np.array([self.next_time])
        empty = np.full((len(extra_times) + len(starts) + len(ends), width), -1, dtype=np.intp)
        every = np.concatenate([times, extra_times, starts, ends])
        order = np.argsort(every, kind="stable")
        both = [np.concatenate([part, empty])[order] for part in (observed, rows, kinds)]
        place = np.empty(len(every), dtype=np.intp)
        place[order] = np.arange(len(every))
        begins = None if averaging is None else averaging.starts_at(every[order])
        found = partition_times(
            every[order], both[0], both[1], both[2], max(1, block_length // width), self.time_resolution, begins
        )
        return found, place[len(times) + added : len(times) + len(extra_times)]

    def _add_start_time(self, extra_times: Array, interval_starts: Array) -> tuple[Array, int]:
        """Return times with the one at which disturbances begin, where these need it, and how many were added.

        Raise where other times, or starts of intervals, come before it.
        """
        if self.prior.observables.disturbances is None or self.is_continuation:
            return extra_times, 0
        first = min(float(part.min(initial=np.inf)) for part in (self.row_table[0], extra_times, interval_starts))
        if first < -self.time_resolution:
            raise LodekitError(
                "disturbances act from the start of a record on, and nothing is said of them before: ask for times "
                f"from {self.prior.units.start:.6g} on, for intervals that begin then or later, or fit all data again"
            )
        return (extra_times, 0) if first <= 0.0 else (np.concatenate([[0.0], extra_times]), 1)


def reduce_block_length(layout: BlockLayout, n_measurements: int, log_evidence: float, error: float) -> int | None:
    """Return how many measurements a block should have at most, where rounding inside blocks can be seen; else None.

    A covariance inside a block loses digits where noise is small against what the block may do.
    """
    if (
        not np.isfinite(log_evidence)
        or error <= _EVIDENCE_ERROR_TOLERANCE * max(n_measurements, abs(log_evidence))
        or layout.rows_per_block <= 1
    ):
        return None
    return max(1, layout.rows_per_block // _BLOCK_REDUCTION_FACTOR) * int(layout.observable_index.shape[2])
