"""Partition of measurements into blocks of consecutive rows.

Blocks with the same steps, observables and noise levels have the same pattern and share all matrices. Regular data have
a handful of patterns, however long they are; with irregular times every block has its own. Chunks contain patterns that
occur equally often, so that their values are columns of arrays; the matrices of a group of chunks are computed jointly.
Irregular blocks, which occur too rarely to share matrices, are filtered row by row, hundreds of them side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.kalman.block_model import DiscretizedModel, SegmentPlan
from lodekit.inference.kalman.interval_means import AveragingStates
from lodekit.inference.kalman.state_space import StateSpaceModel, consecutive_slices
from lodekit.inference.stacked_measurements import StackedMeasurements
from lodekit.prior.input_response.hold import UniqueSteps
from lodekit.support.arguments import Array, IndexArray, Mask

Scalar = TypeVar("Scalar", bound=np.generic)
#: Irregular blocks side by side: times since the start of each block, the last one that of the next block, (p + 1, u);
#: observables and measurements in each row, -1 for none, (p, w, u); the observables that occur in each column.
IrregularRows = tuple[Array, IndexArray, IndexArray, tuple[IndexArray, ...]]
#: Blocks of a pattern that occurs at most this often are irregular.
_MAX_IRREGULAR_REPEATS = 3
#: Up to this many irregular blocks are handled as regular ones: filtering them would cost as much as hundreds.
_MAX_DENSE_IRREGULAR_BLOCKS = 8
#: The cost of an irregular block hardly depends on its length: lengthen them up to this factor, but keep this many.
_MAX_BLOCK_LENGTHENING, _MIN_IRREGULAR_BLOCKS = 6, 380
#: Numbers of type float64 in a cache line.
CACHE_LINE_DOUBLES = 8


@dataclass(frozen=True)
class BlockChunk:
    """Patterns that occur equally often: their indices, (u,), and the blocks of each, (u, k)."""

    patterns: IndexArray
    blocks: IndexArray


@dataclass(frozen=True)
class ChunkGroup:
    """Chunks whose matrices are computed together; a chunk of irregular blocks is a group of its own."""

    chunks: tuple[BlockChunk, ...]
    is_irregular: bool = False

    @cached_property
    def patterns(self) -> IndexArray:
        """The patterns of all chunks, shape (u,)."""
        return np.concatenate([chunk.patterns for chunk in self.chunks])

    @cached_property
    def first_blocks(self) -> IndexArray:
        """A block of each pattern, shape (u,)."""
        return np.concatenate([chunk.blocks[:, 0] for chunk in self.chunks])

    @cached_property
    def single_blocks(self) -> BlockChunk:
        """The blocks of the first chunk, each by itself."""
        chunk = self.chunks[0]
        return BlockChunk(np.repeat(chunk.patterns, chunk.blocks.shape[1]), chunk.blocks.reshape(-1, 1))

    @property
    def chunk_slices(self) -> list[slice]:
        """The positions of each chunk in `patterns`."""
        return consecutive_slices([len(chunk.patterns) for chunk in self.chunks])


def group_blocks(
    patterns: IndexArray, rows_per_block: int, width: int, *, allow_irregular: bool
) -> tuple[BlockChunk, ...]:
    """Return the chunks of all patterns, as large as memory allows.

    Shapes: patterns (b,).
    """
    max_patterns = _max_patterns(rows_per_block, width)
    max_irregular = 1000 if allow_irregular else max_patterns
    counts = np.bincount(patterns)
    members = np.split(np.argsort(patterns, kind="stable"), np.cumsum(counts)[:-1])
    chunks = []
    for often in np.unique(counts):
        equal = np.flatnonzero(counts == often)
        step = max_patterns if often > _MAX_IRREGULAR_REPEATS else max(1, max_irregular // int(often))
        # Chunks of about the same size: a small last one would cost as much as the others.
        step = -(-len(equal) // max(1, round(len(equal) / step)))
        for start in range(0, len(equal), step):
            part = equal[start : start + step]
            chunks.append(BlockChunk(part, np.stack([members[number] for number in part]).astype(np.intp)))
    return tuple(chunks)


def _max_patterns(rows_per_block: int, width: int) -> int:
    """Return the number of patterns that are handled together: at most 2,000,000 elements."""
    size = rows_per_block * width
    return max(1, 2_000_000 // max(1, 3 * size * size + 8 * size * rows_per_block))


@dataclass(frozen=True)
class BlockLayout:
    """Rows in blocks of equal length.

    times: Scaled time of each row; rows that fill up the last block repeat its last time; (b, n).
    step_index: The step to each row from the previous one, and to the next block; (b, n + 1).
    step_lengths: All distinct step lengths; the first is zero.
    observable_index, measurement_index: The observables and measurements in each row; -1 for none; (b, n, w).
    patterns: The pattern of each block; (b,).
    retained: For each step, 1 for each averaging state that it keeps, 0 for those that it resets; (k, c).
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
    _irregular_rows: dict[int, IrregularRows] = field(default_factory=dict, compare=False, repr=False)

    def discretize_model(self, model: StateSpaceModel, step_index: IndexArray | None = None) -> DiscretizedModel:
        """Discretize a model over all steps, or over those with some indices, (k,)."""
        index = slice(None) if step_index is None else step_index
        retained = None if self.retained is None else self.retained[index]
        return DiscretizedModel(model, self.step_lengths[index], retained)

    @cached_property
    def chunk_groups(self) -> tuple[ChunkGroup, ...]:
        """The groups of all chunks: those of irregular blocks first, then others, as large as memory allows."""
        irregular, count = [], 0
        regular: list[list[BlockChunk]] = []
        max_patterns = _max_patterns(self.rows_per_block, self.observable_index.shape[2])
        for chunk in self.chunks:
            # The filter inside irregular blocks cannot reset averaging states.
            if (
                self.retained is None
                and chunk.blocks.shape[1] <= _MAX_IRREGULAR_REPEATS
                and chunk.blocks.size > _MAX_DENSE_IRREGULAR_BLOCKS
            ):
                irregular.append(ChunkGroup((chunk,), is_irregular=True))
                continue
            count += len(chunk.patterns)
            if not regular or count > max_patterns:
                regular.append([chunk])
                count = len(chunk.patterns)
            else:
                regular[-1].append(chunk)
        return (*irregular, *(ChunkGroup(tuple(chunks)) for chunks in regular))

    def plan_segments(self, blocks: IndexArray) -> SegmentPlan:
        """Return the segments of some blocks."""
        return SegmentPlan.of(blocks, self.step_index[blocks, 1:], self.observable_index[blocks])

    def get_group_plan(self, group_index: int) -> SegmentPlan:
        """Return the segments of one block of each pattern of a group."""
        if group_index not in self._plans:
            self._plans[group_index] = self.plan_segments(self.chunk_groups[group_index].first_blocks)
        return self._plans[group_index]

    def get_irregular_rows(self, group_index: int) -> IrregularRows:
        """Return the rows of a group of irregular blocks, with empty blocks as padding."""
        if group_index not in self._irregular_rows:
            blocks = self.chunk_groups[group_index].chunks[0].blocks.ravel()
            dt = pad_to_cache_line(self.step_lengths[self.step_index[blocks]])
            observed, measured = (
                np.ascontiguousarray(pad_to_cache_line(part[blocks], -1).transpose(1, 2, 0))
                for part in (self.observable_index, self.measurement_index)
            )
            columns = tuple(np.unique(column[column >= 0]) for column in observed.swapaxes(0, 1))
            times = np.cumsum(np.ascontiguousarray(dt.T), axis=0)
            self._irregular_rows[group_index] = times, observed, measured, columns
        return self._irregular_rows[group_index]

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return len(self.patterns)

    @property
    def rows_per_block(self) -> int:
        """The number of rows of a block."""
        return int(self.times.shape[1])

    def to_blocks(self, values: Array, fill_value: float) -> Array:
        """Arrange values of measurements in blocks, shape (b, n w, ...), with `fill_value` for missing ones.

        Shapes: values (m, ...).
        """
        padded = np.concatenate([values, np.full((1, *values.shape[1:]), fill_value)])
        return padded[self.measurement_index.reshape(self.n_blocks, -1)]

    def from_blocks(self, values: Array, n_measurements: int) -> Array:
        """Undo `to_blocks`: return values in the order of the measurements, shape (m, ...).

        Shapes: values (b, n w, ...).
        """
        result = np.zeros((n_measurements, *values.shape[2:]))
        positions, numbers = self.measured_positions
        result[numbers] = values.reshape(self.measurement_index.size, *values.shape[2:])[positions]
        return result

    @cached_property
    def measured_positions(self) -> tuple[IndexArray, IndexArray]:
        """The positions of measurements among all entries, and their numbers."""
        positions = np.flatnonzero(self.measurement_index >= 0)
        return positions, self.measurement_index.ravel()[positions]


def pad_to_cache_line(values: NDArray[Scalar], fill_value: int = 0) -> NDArray[Scalar]:
    """Pad the first axis, that of blocks, to a multiple of a cache line.

    Examples
    --------
    >>> pad_to_cache_line(np.ones(3)).tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    more = -len(values) % CACHE_LINE_DOUBLES
    return np.concatenate([values, np.full((more, *values.shape[1:]), fill_value, dtype=values.dtype)])


def partition_times(
    times: Array,
    observable_index: IndexArray,
    measurement_index: IndexArray,
    noise_index: IndexArray,
    rows_per_block: int,
    resolution: float,
    interval_starts: Mask | None = None,
) -> BlockLayout:
    """Cut rows in ascending time into blocks.

    Shapes: times (n,), observable_index, measurement_index (n, w), noise_index (n, w), interval_starts (n, c).
    """
    count, width = len(times), observable_index.shape[1]
    blocks = -(-count // rows_per_block)
    total = blocks * rows_per_block

    def fill(values: IndexArray) -> IndexArray:
        padding = np.full((total - count, width), -1, dtype=np.intp)
        return np.concatenate([values, padding]).reshape(blocks, rows_per_block, width)

    whole = UniqueSteps.from_steps(np.diff(times), resolution)
    which, distinct, retained = whole.index, np.maximum(whole.distinct, 0.0), None
    if interval_starts is not None:
        kept, own = np.unique(~interval_starts[:-1], axis=0, return_inverse=True)
        pairs, which = np.unique(np.stack([which, own.reshape(-1)], axis=1), axis=0, return_inverse=True)
        distinct, which = distinct[pairs[:, 0]], which.reshape(-1)
        retained = np.concatenate([np.ones((1, interval_starts.shape[1])), kept[pairs[:, 1]].astype(float)])
    # The first step has length zero.
    lengths = np.concatenate([[0.0], distinct])
    steps = np.zeros((blocks, rows_per_block + 1), dtype=np.intp)
    inner = np.zeros(total, dtype=np.intp)
    inner[1:count] = which + 1
    steps[:, :-1] = inner.reshape(blocks, rows_per_block)
    steps[:-1, -1] = steps[1:, 0]
    steps[:, 0] = 0
    times = np.concatenate([times, np.full(total - count, times[-1] if count else 0.0)]).reshape(blocks, -1)
    seen = fill(observable_index)
    key = np.concatenate([steps, seen.reshape(blocks, -1), fill(noise_index).reshape(blocks, -1)], axis=1)
    # Rows as single items are sorted faster than by columns.
    rows = np.ascontiguousarray(key).view(np.dtype((np.void, key.dtype.itemsize * key.shape[1]))).ravel()
    patterns = np.asarray(np.unique(rows, return_inverse=True)[1], dtype=np.intp)
    chunks = group_blocks(patterns, rows_per_block, width, allow_irregular=interval_starts is None)
    return BlockLayout(times, steps, lengths, seen, fill(measurement_index), patterns, chunks, retained)


@dataclass(frozen=True)
class KalmanData(StackedMeasurements):
    """Measurements in memory with their prior, as the Kalman engine uses them.

    Other attributes are those of `StackedMeasurements`.

    block_length: The number of measurements of a block; None: a fast one.
    next_time: The scaled time at which the next batch of a record begins; None if nothing follows.
    is_continuation: Whether earlier batches of the record exist.
    """

    block_length: int | None = None
    next_time: float | None = None
    is_continuation: bool = False
    _layouts: dict[int | None, BlockLayout] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def time_resolution(self) -> float:
        """The resolution of floating-point times, in scaled time."""
        far = float(np.abs(self.times).max(initial=0.0)) + abs(self.prior.units.start)
        return 4.0 * float(np.spacing(far)) / self.prior.units.time_scale

    @cached_property
    def _noise_index(self) -> IndexArray:
        """The noise group of each measurement: its noise level, or the index of its known variance."""
        _, known = np.unique(self.noise.known_variance, return_inverse=True)
        groups = int(self.noise.level_index.max(initial=0)) + 1
        return np.where(self.noise.learned, self.noise.level_index, groups + known).astype(np.intp)

    @cached_property
    def averaging(self) -> AveragingStates | None:
        """The averaging states of interval means; None if there are none."""
        windows = self.prior.observables.windows
        if windows is None:
            return None
        times = [self.scaled_times[index] for index in self.index]
        return AveragingStates.of(windows, times, self.scaled_times, self.time_resolution)

    @cached_property
    def row_table(self) -> tuple[Array, IndexArray, IndexArray]:
        """Scaled times of all rows, (n,), their observables and their measurements, (n, w): -1 for none."""
        count, width = len(self.times), len(self.index)
        columns = np.repeat(np.arange(width), np.diff(self.offsets))
        numbers = columns if self.averaging is None else self.averaging.row_index
        order_at_one_time = self.filter_order[columns]
        where = np.concatenate(self.index) if width else np.zeros(0, dtype=np.intp)
        # One row for each measurement if times repeat, or if fewer than half of all entries were measured.
        is_twice = any((np.diff(index) <= 0).any() for index in self.index)
        if is_twice or self.size < 0.5 * count * width:
            order = np.lexsort((order_at_one_time, where))
            return self.scaled_times[where[order]], numbers[order][:, None], order[:, None]
        rows = np.full((count, width), -1, dtype=np.intp)
        rows[where, order_at_one_time] = np.arange(self.size)
        return self.scaled_times, np.where(rows >= 0, np.append(numbers, -1)[rows], -1), rows

    def layout(self, block_length: int | None = None) -> BlockLayout:
        """Return the measurements in blocks."""
        # The default layout may have longer blocks than its nominal length.
        length = block_length or self.block_length
        if length not in self._layouts:
            self._layouts[length] = self.build_layout(length)[0] if length else self._build_default_layout()
        return self._layouts[length]

    def _build_default_layout(self) -> BlockLayout:
        """Return blocks of a fast length: for few rows, one that balances the work inside and between blocks."""
        rows, width = self.row_table[1].shape
        usual = int(min(128, width * max(12, int(0.6 * np.sqrt(rows)))))
        layout = self.build_layout(usual)[0]
        irregular = sum(group.chunks[0].blocks.size for group in layout.chunk_groups if group.is_irregular)
        if irregular < 2 * _MIN_IRREGULAR_BLOCKS:
            return layout
        return self.build_layout(min(_MAX_BLOCK_LENGTHENING, irregular // _MIN_IRREGULAR_BLOCKS) * usual)[0]

    def build_layout(
        self, block_length: int, extra_times: Array | None = None, averaging: AveragingStates | None = None
    ) -> tuple[BlockLayout, IndexArray]:
        """Return a layout with rows for more times, (k,), and the indices of these rows."""
        times, observed, rows = self.row_table
        averaging = averaging or self.averaging
        starts = np.zeros(0) if averaging is None else averaging.interval_starts
        extra_times, added = self._add_start_time(np.zeros(0) if extra_times is None else extra_times, starts)
        width = observed.shape[1]
        kinds = np.where(rows >= 0, np.append(self._noise_index, -1)[rows], -1)
        starts = np.setdiff1d(starts, np.concatenate([times, extra_times]))
        # The state after the last block is that of the last row.
        ends = np.zeros(0) if self.next_time is None else np.array([self.next_time])
        empty = np.full((len(extra_times) + len(starts) + len(ends), width), -1, dtype=np.intp)
        every = np.concatenate([times, extra_times, starts, ends])
        order = np.argsort(every, kind="stable")
        observed, rows, kinds = (np.concatenate([part, empty])[order] for part in (observed, rows, kinds))
        row = np.empty(len(every), dtype=np.intp)
        row[order] = np.arange(len(every))
        resets = None if averaging is None else averaging.starts_at(every[order])
        length = max(1, block_length // width)
        layout = partition_times(every[order], observed, rows, kinds, length, self.time_resolution, resets)
        return layout, row[len(times) + added : len(times) + len(extra_times)]

    def _add_start_time(self, extra_times: Array, interval_starts: Array) -> tuple[Array, int]:
        """Return times with the start of the disturbances, if it is missing, and the number of added times.

        Raise if other times, or starts of intervals, are earlier.
        """
        if self.prior.observables.disturbances is None or self.is_continuation:
            return extra_times, 0
        first = min(float(part.min(initial=np.inf)) for part in (self.row_table[0], extra_times, interval_starts))
        if first < -self.time_resolution:
            raise LodekitError(
                "disturbances begin at the start of a record, so there are no predictions before it: request times "
                f"from {self.prior.units.start:.6g} on, or intervals that begin then or later, or fit all data again"
            )
        return (extra_times, 0) if first <= 0.0 else (np.concatenate([[0.0], extra_times]), 1)


def reduce_block_length(layout: BlockLayout, n_measurements: int, log_evidence: float, error: float) -> int | None:
    """Return a shorter block length in measurements, if rounding inside blocks affects the log evidence; else None.

    A covariance inside a block loses digits if noise is small compared with the signal.
    """
    is_accurate = error <= 1e-10 * max(n_measurements, abs(log_evidence))
    return None if is_accurate or not np.isfinite(log_evidence) else shorten_blocks(layout)


def shorten_blocks(layout: BlockLayout) -> int | None:
    """Return a quarter of the length of the blocks, in measurements; None for blocks of one row."""
    rows, width = layout.rows_per_block, int(layout.observable_index.shape[2])
    return None if rows <= 1 else max(1, rows // 4) * width
