"""Out-of-core storage of rows: a temporary file of 64-bit floats that is read in chunks.

Samples of known inputs are extracted from the file; only samples at which an input changes are kept in memory.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from lodekit.data.inputs import InputGap, InputGapDetector, InputSignal, is_logged_every_row
from lodekit.data.observations import TimeSeries
from lodekit.data.tables.reader import TableData
from lodekit.errors import DataError
from lodekit.support.arguments import Array, Mask

#: Rows read at once.
_CHUNK_ROWS = 200_000
#: State of a filter after omitted rows: the log evidence of these rows, its rounding error, and arrays: the
#: hyperparameters, mean and covariance root of the states, (s, 1) and (s, s), and the states of the response to known
#: inputs, (q,).
FilterCheckpoint = tuple[float, float, tuple[Array, Array, Array, Array]]


def two_values_error(name: str, time: float) -> DataError:
    """Return the error about an input with two different values at one time."""
    return DataError(
        f"the input {name} has two different values at t = {time:g}; expected one: check the time column, or remove "
        "duplicate rows"
    )


def missing_outputs_error(
    found: Sequence[str], wanted: Sequence[str] = (), notes: Sequence[str] = (), *, are_arrays: bool = False
) -> DataError:
    """Return the error if only known inputs were found, given the other channels and notes about columns."""
    columns = [f"{note}; " for note in notes if note.startswith(("no column for ", "all values of "))]
    name, named = (wanted[0], f" ({', '.join(wanted)})") if wanted else ("CHANNEL", "")
    remedy = f"if its column has another name, use --map {name}=COLUMN, or columns={{{name!r}: 'COLUMN'}} in Python"
    remedy = f"add its values to the dict, {{{name!r}: values}}" if are_arrays else remedy
    return DataError(
        f"expected measurements of a channel that responds to the inputs{named}, got only {', '.join(found)}; "
        f"{''.join(columns)}{remedy}"
    )


@dataclass(frozen=True)
class OutOfCoreRows:
    """Rows that can be read again; they are written to disk as floats when they are first needed.

    names: The measured observables.
    known_noise: Known standard deviations that are the same for all rows.
    noise_columns: Observables whose known standard deviations are columns of the rows.
    read_blocks: Returns the rows, in blocks.
    existing_store: The rows, if they are already on disk.
    window: The first and last time at which one of these was measured; None for that of all columns.
    input_statistics: Statistics of the samples of inputs, which were columns of these rows.
    checkpoints: The filter after omitted earlier rows, at the fitted hyperparameters and at neighbouring ones; None if
        no rows are omitted.
    n_omitted: The number of measurements in the omitted rows.
    sampled_times: If rows are omitted: some times of all rows, and how many rows each represents; (k,).
    """

    names: tuple[str, ...]
    known_noise: Mapping[str, float]
    noise_columns: tuple[str, ...]
    read_blocks: Callable[[], Iterator[TableData]]
    existing_store: RowStore | None = None
    window: tuple[float, float] | None = None
    input_statistics: Mapping[str, InputSampleStatistics] = field(default_factory=dict)
    checkpoints: tuple[FilterCheckpoint, ...] | None = None
    n_omitted: int = 0
    sampled_times: tuple[Array, Array] | None = None

    @cached_property
    def store(self) -> RowStore:
        """The rows on disk."""
        noise = self.known_noise, self.noise_columns
        return self.existing_store or RowStore.write(self.names, self.read_blocks(), *noise)


class InputSampleStatistics(NamedTuple):
    """Statistics of the samples of an input.

    n_samples: The number of samples.
    mean, std: Mean and standard deviation.
    max_abs: The largest absolute value.
    gap: The gap in its log across which it changed most.
    """

    n_samples: int
    mean: float
    std: float
    max_abs: float
    gap: InputGap | None = None


@dataclass(frozen=True)
class RowStore:
    """Rows ordered by time, in one file of 64-bit floats; rows without any value are left out.

    Rows with the same time and values in different columns are merged into one.

    names: The measured observables.
    columns: The columns of the file, including these.
    known_noise: Known standard deviations that are the same for all rows.
    noise_columns: Observables whose known standard deviations are in the file.
    n_rows: The number of rows.
    min_step: The smallest time between two rows with different times; infinite if there are none.
    folder: The temporary folder of the file.
    source: The store that wrote the file, if another one did: the folder is removed with it. Copies in other
        processes do not remove it.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    known_noise: Mapping[str, float]
    noise_columns: tuple[str, ...]
    n_rows: int
    min_step: float
    folder: str = field(compare=False, repr=False)
    source: RowStore | None = field(default=None, compare=False, repr=False)

    @classmethod
    def write(
        cls,
        names: Sequence[str],
        blocks: Iterable[TableData],
        known_noise: Mapping[str, float] | None = None,
        noise_columns: Sequence[str] = (),
    ) -> RowStore:
        """Write rows to a temporary folder that is removed together with the returned object.

        Each row takes eight bytes for its time, for each observable and for each noise column. The environment variable
        TMPDIR sets the location of the folder.

        Examples
        --------
        >>> from lodekit.data.tables.cells import NumberFormat
        >>> from lodekit.data.tables.reader import TableData
        >>> block = TableData(np.arange(3.0), {"x": np.array([1.0, np.nan, 2.0])}, {}, NumberFormat())
        >>> store = RowStore.write(["x"], [block], {"x": 0.1})
        >>> store.n_rows, store.read_series(0, 2)[0].values.tolist()
        (2, [1.0, 2.0])
        """
        known = dict(known_noise or {})

        def to_array(block: TableData) -> Array:
            count = len(block.times)
            columns = [block.values.get(name, np.full(count, np.nan)) for name in names]
            columns += [block.noise.get(name, np.full(count, known.get(name, np.nan))) for name in noise_columns]
            return np.column_stack([block.times, *columns])

        return cls._write_arrays(map(to_array, blocks), tuple(names), known, tuple(noise_columns))

    @classmethod
    def _write_arrays(
        cls, blocks: Iterable[Array], names: tuple[str, ...], known_noise: dict[str, float], noisy: tuple[str, ...]
    ) -> RowStore:
        """Write arrays of times, values and noise standard deviations; rows without any value are dropped."""
        folder = tempfile.mkdtemp(prefix="lodekit-rows-")
        store = cls(names, names, known_noise, noisy, 0, np.inf, folder)
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
        count, min_step, last = 0, np.inf, -np.inf
        pairs = [(1 + k, 1 + len(names) + noisy.index(name) if name in noisy else 0) for k, name in enumerate(names)]
        held = np.zeros((0, 1 + len(names) + len(noisy)))
        with store._path.open("wb") as file:
            for block in blocks:
                rows = block[~np.isnan(block[:, 1 : 1 + len(names)]).all(axis=1)]
                if not len(rows):
                    continue
                steps = np.diff(np.concatenate([[last], rows[:, 0]]))
                if (steps < 0).any():
                    late = rows[int(np.argmax(steps < 0)), 0]
                    raise DataError(
                        f"rows on disk must be in the order of time, but t = {late:g} comes after a later "
                        "one; sort the rows by time, and name files in the order of their times"
                    )
                min_step = np.min(steps, where=(steps > 0) & np.isfinite(steps), initial=min_step)
                last = float(rows[-1, 0])
                rows = np.concatenate([held, rows])
                # More rows with the last time may follow.
                rows, held = np.split(rows, [int(np.searchsorted(rows[:, 0], last))])
                count += _append_rows(_merge_rows_of_equal_time(rows, pairs), file)
            count += _append_rows(_merge_rows_of_equal_time(held, pairs), file)
        if not count:
            raise DataError(f"expected at least one value of {', '.join(names)}, every cell is missing")
        return replace(store, n_rows=count, min_step=float(min_step), source=store)

    @property
    def _path(self) -> Path:
        return Path(self.folder, "rows.f64")

    @property
    def _width(self) -> int:
        return 1 + len(self.columns) + len(self.noise_columns)

    def read_array(self, first: int, last: int) -> Array:
        """Return a range of rows: times, all columns, and the noise columns."""
        count = max(0, min(last, self.n_rows) - first)
        try:
            rows = np.fromfile(self._path, dtype=float, count=count * self._width, offset=8 * first * self._width)
        except FileNotFoundError:
            rows = np.zeros(0)
        if len(rows) < count * self._width:
            raise DataError(
                "the rows of this fit were in a temporary file, which no longer exists; call fit again with the file"
            )
        return rows.reshape(count, self._width)

    def read_series(self, first: int, last: int, step: int = 1) -> list[TimeSeries]:
        """Return the measurements of some rows, one series for each observable."""
        rows, series = self.read_array(first, last)[::step], []
        for name in self.names:
            values = rows[:, 1 + self.columns.index(name)]
            std = np.full(len(rows), self.known_noise.get(name, np.nan))
            if name in self.noise_columns:
                std = rows[:, 1 + len(self.columns) + self.noise_columns.index(name)]
            known = ~np.isnan(values)
            series.append(TimeSeries(name, rows[known, 0], values[known], std[known]))
        return series

    def select_columns(self, names: Sequence[str], chunk_rows: int) -> RowStore:
        """Return the rows with a value in one of some columns, in a new file if other rows are left out."""
        starts = range(0, self.n_rows, chunk_rows)
        places = [1 + self.columns.index(name) for name in names]
        there = sum(int((~np.isnan(self.read_array(k, k + chunk_rows)[:, places]).all(axis=1)).sum()) for k in starts)
        if there == self.n_rows:
            return replace(self, names=tuple(names), source=self)
        noisy = tuple(name for name in self.noise_columns if name in names)
        places = [0, *places, *(1 + len(self.columns) + self.noise_columns.index(name) for name in noisy)]
        arrays = (self.read_array(k, k + chunk_rows)[:, places] for k in starts)
        return RowStore._write_arrays(arrays, tuple(names), dict(self.known_noise), noisy)

    def time_of_row(self, row: int) -> float:
        """Return the time of a row."""
        return float(self.read_array(row, row + 1)[0, 0])


def _append_rows(rows: Array, file: IO[bytes]) -> int:
    """Write rows to a file and return their number."""
    try:
        rows.tofile(file)
    except OSError as problem:
        raise DataError(
            f"rows that are too many for memory are kept in a temporary file, {file.name}, which cannot be written: "
            f"{problem}; set the environment variable TMPDIR to a folder with more free space"
        ) from None
    return len(rows)


def _merge_rows_of_equal_time(rows: Array, pairs: Sequence[tuple[int, int]]) -> Array:
    """Return as few rows as hold all values: the k-th value of a column at a time is in the k-th row of that time.

    Shapes: rows (n, c).

    Examples
    --------
    >>> rows = np.array([[3.0, 1.0, np.nan], [3.0, np.nan, 5.0], [4.0, 2.0, 6.0]])
    >>> _merge_rows_of_equal_time(rows, [(1, 0), (2, 0)]).tolist()
    [[3.0, 1.0, 5.0], [4.0, 2.0, 6.0]]
    """
    is_new = np.append(True, np.diff(rows[:, 0]) > 0)[: len(rows)]
    if is_new.all():
        return rows
    begins, group = np.flatnonzero(is_new), np.cumsum(is_new) - 1
    there = ~np.isnan(rows[:, [place for place, _ in pairs]])
    counts = np.add.reduceat(there, begins, axis=0, dtype=np.intp)
    sizes = counts.max(axis=1)
    found = np.full((int(sizes.sum()), rows.shape[1]), np.nan)
    found[:, 0] = np.repeat(rows[begins, 0], sizes)
    for number, (place, noise) in enumerate(pairs):
        own, before = np.flatnonzero(there[:, number]), np.cumsum(counts[:, number]) - counts[:, number]
        target = (np.cumsum(sizes) - sizes - before)[group[own]] + np.arange(len(own))
        found[target, place] = rows[own, place]
        if noise:
            found[target, noise] = rows[own, noise]
    return found


@dataclass
class _InputSampleCollector:
    """Collects the samples of one input, block by block.

    parts: Times and values of the samples that are kept, block by block.
    n_samples, n_missing, n_kept: The number of samples, of rows without a value, and of samples that are kept.
    sums: Sums of the values minus the reference, and of their squares.
    reference: The first value; subtracting it preserves digits if the offset is large.
    max_abs: The largest absolute value.
    last: Time and value of the last sample so far, kept or not.
    n_measured, n_logged: The number of times with a measurement, and of those at which the input has a value as well.
    """

    name: str
    kind: str
    parts: list[tuple[Array, Array]] = field(default_factory=list)
    n_samples: int = 0
    n_missing: int = 0
    n_kept: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])
    reference: float = math.nan
    max_abs: float = 0.0
    last: tuple[float, float] | None = None
    n_measured: int = 0
    n_logged: int = 0

    def __post_init__(self) -> None:
        self.gap_detector = InputGapDetector(self.kind)

    def update(self, times: Array, values: Array, measured: Mask) -> None:
        """Add samples, ordered by time; keep those that determine the signal.

        Shapes: times, values (n,), measured (n,).
        """
        there = ~np.isnan(values)
        # Rows of one time count once; the few that are split between two blocks count twice.
        begins = np.flatnonzero(np.append(True, np.diff(times) > 0))
        at, sampled = (np.logical_or.reduceat(own, begins) for own in (measured, there))
        self.n_measured, self.n_logged = self.n_measured + int(at.sum()), self.n_logged + int((at & sampled).sum())
        self.n_missing += int((~there).sum())
        times, values = times[there], values[there]
        if not len(times):
            return
        if math.isnan(self.reference):
            self.reference = float(values[0])
        away = values - self.reference
        self.n_samples += len(values)
        self.sums = [self.sums[0] + float(away.sum()), self.sums[1] + float(away @ away)]
        self.max_abs = max(self.max_abs, float(np.abs(values).max()))
        if self.last is not None:
            times, values = np.append(self.last[0], times), np.append(self.last[1], values)
        again = np.diff(times) == 0
        if (again & (np.diff(values) != 0)).any():
            when = times[1:][again & (np.diff(values) != 0)][0]
            raise two_values_error(self.name, float(when))
        first = np.append(True, ~again)
        times, values = times[first], values[first]
        self.gap_detector.update(*(own if self.last is None else own[1:] for own in (times, values)))
        moves = np.diff(values) != 0
        # Linear interpolation needs both ends of a constant stretch, a hold only its beginning.
        kept = np.append(self.last is None, moves)
        if self.kind == "linear":
            kept[1:-1] |= moves[1:]
            kept[-1] |= len(kept) > 1
        self.parts.append((times[kept], values[kept]))
        self.n_kept += int(kept.sum())
        self.last = float(times[-1]), float(values[-1])
        if self.n_kept > 20_000_000:  # of 16 bytes each
            raise DataError(
                f"the input {self.name} changes in more than 20000000 rows, and its changes are kept in memory; use "
                "every k-th row, or a piece of the record"
            )

    @property
    def statistics(self) -> InputSampleStatistics:
        """Statistics of all samples."""
        shift = self.sums[0] / self.n_samples
        std = math.sqrt(max(self.sums[1] / self.n_samples - shift**2, 0.0))
        gap = self.gap_detector.largest_gap if is_logged_every_row(self.n_measured, self.n_logged) else None
        return InputSampleStatistics(self.n_samples, self.reference + shift, std, self.max_abs, gap)

    @property
    def signal(self) -> InputSignal:
        """The input as a signal."""
        if not self.n_samples:
            raise DataError(f"expected samples of the input {self.name}, every cell is missing")
        times, values = (np.concatenate([part[k] for part in self.parts]) for k in (0, 1))
        return InputSignal(times, values, self.kind, self.n_missing)  # type: ignore[arg-type]


def extract_inputs(
    spooled: OutOfCoreRows, hold_types: Mapping[str, str]
) -> tuple[OutOfCoreRows, dict[str, InputSignal]]:
    """Return rows without the columns of known inputs, and these inputs as signals.

    Of a held input, only samples at which it changes are kept; of a linearly interpolated one, all except those inside
    constant stretches.

    Examples
    --------
    >>> from lodekit.data.tables.cells import NumberFormat
    >>> from lodekit.data.tables.reader import TableData
    >>> values = {"x": np.arange(4.0), "u": np.array([1.0, 1.0, 1.0, 2.0])}
    >>> block = TableData(np.arange(4.0), values, {}, NumberFormat())
    >>> rows = OutOfCoreRows(("x", "u"), {}, (), lambda: iter([block]))
    >>> left, inputs = extract_inputs(rows, {"u": "hold"})
    >>> left.names, inputs["u"].times.tolist()
    (('x',), [0.0, 3.0])
    """
    if not hold_types:
        return spooled, {}
    names = tuple(name for name in spooled.names if name not in hold_types)
    if not names:
        raise missing_outputs_error(spooled.names)
    every = spooled.store
    collectors = {name: _InputSampleCollector(name, kind) for name, kind in hold_types.items()}
    places = {name: 1 + every.columns.index(name) for name in every.names}
    for first in range(0, every.n_rows, _CHUNK_ROWS):
        rows = every.read_array(first, first + _CHUNK_ROWS)
        some = np.asarray(~np.isnan(rows[:, [places[name] for name in names]]).all(axis=1))
        for name, collector in collectors.items():
            collector.update(rows[:, 0], rows[:, places[name]], some)
    signals = {name: collector.signal for name, collector in collectors.items()}
    statistics = {**spooled.input_statistics, **{name: each.statistics for name, each in collectors.items()}}
    store = every.select_columns(names, _CHUNK_ROWS)
    noisy = tuple(name for name in spooled.noise_columns if name in names)
    window = store.time_of_row(0), store.time_of_row(store.n_rows - 1)
    changes: dict[str, Any] = {"names": names, "noise_columns": noisy, "existing_store": store, "window": window}
    return replace(spooled, **changes, input_statistics=statistics), signals
