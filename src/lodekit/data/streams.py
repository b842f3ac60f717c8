"""Tables larger than memory, or on a cluster: read in pieces, kept as sums."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.data.statistics import Statistics
from lodekit.data.tables.cells import Numerals
from lodekit.data.tables.columns import Columns
from lodekit.data.tables.frames import FrameBlock
from lodekit.data.tables.order import Order
from lodekit.data.tables.parquet import ParquetFile
from lodekit.data.tables.places import naming
from lodekit.data.tables.reading import find_mark, read_block
from lodekit.data.tables.table import Block, Plan, Records, TableSource
from lodekit.errors import DataError
from lodekit.progress import waiting
from lodekit.quantities import Conversion
from lodekit.threads import one_thread

__all__ = ["DaskFrame", "Piece", "is_dask", "read_again", "series_of", "sum_partitions", "sum_tables"]

Array = NDArray[np.float64]
_Result = TypeVar("_Result")
_Span = tuple[float, float, int]  # first time, last time, number of records
#: Pieces at work at the same time, however many cores there are: each takes about 80 MB.
_MOST_WORKERS = 16


@dataclass(frozen=True)
class Piece:
    """What is kept of some records; pieces add.

    Parameters
    ----------
    sums : Statistics
    numerals : Numerals
        How their numbers are written.
    order : Order
        Of their times; it knows how many there are.
    """

    sums: Statistics
    numerals: Numerals
    order: Order

    def __add__(self, other: Piece) -> Piece:
        return Piece(self.sums + other.sums, self.numerals + other.numerals, self.order + other.order)


def sum_tables(tables: Sequence[TableSource], plans: Sequence[Plan]) -> tuple[Statistics, list[Numerals], list[Order]]:
    """Return sums over the measurements of tables, how the numbers of each are written, and the order of its times.

    Memory does not grow with the number of records: one look at the times for the window, then the sums, pieces side
    by side. They are added in order, so that the sums are the same to the last bit however the threads are scheduled.

    Parameters
    ----------
    tables : sequence of TableSource
    plans : sequence of Plan
        One for each table, with the form of its dates and their origin.
    """
    # The threads of BLAS spin while they wait, and take the cores from the transforms.
    with one_thread():
        plans = [_marked(table, plan) for table, plan in zip(tables, plans, strict=True)]
        with waiting("looking at the times") as advance:
            spans = [_find_span(table, plan, advance) for table, plan in zip(tables, plans, strict=True)]
        start, stop, count = _hull(spans)
        _refuse_one_time(plans, start, stop, count)
        total, numerals = Statistics.empty(start, stop), [Numerals() for _ in plans]
        orders = [Order() for _ in plans]
        pairs = enumerate(zip(tables, plans, strict=True))
        jobs = (partial(_numbered, number, job) for number, pair in pairs for job in _sum_jobs(*pair, start, stop))
        with waiting("reading", count) as advance:
            for number, piece in _in_order(jobs):
                total, orders[number] = total + piece.sums, orders[number] + piece.order
                with naming(plans[number].where):
                    numerals[number] += piece.numerals
                advance(piece.order.count)
        for plan, span, order in zip(plans, spans, orders, strict=True):
            if span[2] != order.count:
                raise DataError(f"{plan.where}: expected {span[2]} rows, got {order.count}; did the file change?")
    return total, numerals, orders


def read_again(tables: Sequence[TableSource], plans: Sequence[Plan]) -> Iterator[Records]:
    """Yield the records of tables, block after block.

    Parameters
    ----------
    tables, plans
        As in `sum_tables`.
    """
    plans = [_marked(table, plan) for table, plan in zip(tables, plans, strict=True)]
    pairs = zip(tables, plans, strict=True)
    with waiting("writing rows to a temporary file") as advance:
        for found in _in_order(partial(_read, block, plan) for table, plan in pairs for block in _blocks(table, plan)):
            yield found
            advance(len(found.times))


def _read(block: Block, plan: Plan) -> Records:
    with naming(plan.where):
        return read_block(block, plan)


def _marked(table: TableSource, plan: Plan) -> Plan:
    with naming(plan.where):
        return find_mark(table, plan)


def _numbered(number: int, job: Callable[[], Piece]) -> tuple[int, Piece]:
    return number, job()


def _in_order(jobs: Iterable[Callable[[], _Result]]) -> Iterator[_Result]:
    """Yield what jobs return, in their order; some of them run side by side."""
    workers = min(import_module("joblib").cpu_count(), _MOST_WORKERS)
    queue = deque[Future[_Result]]()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for job in jobs:
                queue.append(pool.submit(job))
                if len(queue) > workers:
                    yield queue.popleft().result()
        except DataError:
            # What is wrong in an earlier piece is told first, whoever was faster.
            for future in queue:
                future.result()
            raise
        while queue:
            yield queue.popleft().result()


def _blocks(table: TableSource, plan: Plan) -> Iterator[Block]:
    with naming(plan.where):
        yield from table.blocks(plan.columns.used)


def _find_span(table: TableSource, plan: Plan, advance: Callable[[int], None]) -> _Span:
    """Return the first and the last time of a table, and its number of records."""
    # A Parquet file tells it at its end, but not of the rows in a window.
    told = table.span(plan.columns.time) if isinstance(table, ParquetFile) and not plan.has_window else None
    if told is not None:
        low, high = plan.conversions.get("t", Conversion()).apply(np.array(told[:2])).tolist()
        return low, high, told[2]
    times = replace(plan, columns=Columns(plan.columns.time, {}, {}))
    spans = []
    for span in _in_order(partial(_look, block, times) for block in _blocks(table, times)):
        spans.append(span)
        advance(span[2])
    if not (found := [span for span in spans if span[2]]):
        raise DataError(f"{plan.where}: expected rows of measurements, found none")
    return _hull(found)


def _look(block: Block, plan: Plan) -> _Span:
    with naming(plan.where):
        times = read_block(block, plan).times
    return (float(times.min()), float(times.max()), len(times)) if len(times) else (np.inf, -np.inf, 0)


def _hull(spans: Sequence[_Span]) -> _Span:
    starts, stops, counts = zip(*spans, strict=True)
    return min(starts), max(stops), sum(counts)


def _refuse_one_time(plans: Sequence[Plan], start: float, stop: float, count: int) -> None:
    """Raise where all rows have one time: sums are made over a window of time, which has a length."""
    if start < stop:
        return
    first = plans[0]
    where = first.where if len(plans) == 1 else f"{first.where} to {Path(plans[-1].where).name}"
    rows = "there is one row" if count == 1 else f"all {count} rows have the same one"
    column = f" (column {first.columns.time})" if first.columns.time else ""
    raise DataError(
        f"{where}: expected rows with different times{column}, {rows}, t = {start + 0.0:g}; check that column, or "
        "leave that record out"
    )


def _sum_jobs(table: TableSource, plan: Plan, start: float, stop: float) -> Iterator[Callable[[], Piece]]:
    """Yield the work on a table, block by block."""
    for block in _blocks(table, plan):
        yield partial(_sum, block, plan, start, stop)


def _sum(block: Block, plan: Plan, start: float, stop: float) -> Piece:
    with naming(plan.where):
        records = read_block(block, plan)
        # Pieces run side by side, so each of them keeps to one core.
        with one_thread("openmp"):
            sums = Statistics.of(start, stop, series_of(records, plan.noise))
    return Piece(sums, records.numerals, Order.of(records.times))


def series_of(records: Records, noise: Mapping[str, float]) -> list[Series]:
    """Return the measurements in records; observables with the same records and noise share their arrays of times.

    Parameters
    ----------
    records : Records
    noise : dict of observable to float
        Known standard deviations; learned where there is none.
    """
    found = []
    shared: dict[tuple[object, bytes], tuple[Array, Array]] = {}
    for name, values in records.values.items():
        kept = np.isfinite(values)
        whole, own = bool(kept.all()), records.noise.get(name)
        known = noise.get(name, np.nan) if own is None else np.nan
        key = (repr(known) if own is None else name, b"" if whole else kept.tobytes())
        if key not in shared:
            std = np.full(len(values), known) if own is None else own
            shared[key] = (records.times, std) if whole else (records.times[kept], std[kept])
        found.append(Series(name, shared[key][0], values if whole else values[kept], shared[key][1]))
    return found


def is_dask(source: object) -> bool:
    """Return whether something is a Dask DataFrame."""
    # Whoever holds a Dask DataFrame has imported Dask: no need to do so here.
    return isinstance(source, getattr(sys.modules.get("dask.dataframe"), "DataFrame", ()))


@dataclass(frozen=True)
class DaskFrame:
    """A Dask DataFrame as a table.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    separator, notes
        Nothing: those of text files.
    """

    frame: Any
    separator: str = ""
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(map(str, self.frame.columns))

    @property
    def by_number(self) -> bool:
        """Whether columns may be named by their numbers: not where they are called by numbers themselves."""
        return not any(isinstance(label, Integral) for label in self.frame.columns)

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers."""
        return self.frame[self._labels([name])[0]].dtype.kind in "iufb"

    def _labels(self, names: Sequence[str]) -> list[Any]:
        own = {str(label): label for label in self.frame.columns}
        return [own[name] for name in names]

    def take(self, names: Sequence[str]) -> Any:
        """Return the columns of these names."""
        return self.frame[self._labels(names)]

    def count(self, limit: int) -> int:
        """Return more than any limit: what is on a cluster is summed there."""
        return limit + 1

    def blocks(self, names: Sequence[str], *, whole: bool = False) -> Iterator[FrameBlock]:
        """Yield partitions, one after the other.

        Parameters
        ----------
        names : sequence of str
            Of the columns.
        whole : bool
            Refused: partitions are never put together here.
        """
        if whole:
            raise DataError("expected a table that fits into memory, got a Dask DataFrame")
        for part in self.take(names).to_delayed():
            yield _block(part.compute(), names)


def _block(part: Any, names: Sequence[str]) -> FrameBlock:
    return FrameBlock(part, tuple(names), kind="partition's row")


def _look_at_partition(part: Any, plan: Plan) -> _Span:
    return _look(_block(part, plan.columns.used), plan)


def _sum_partition(part: Any, plan: Plan, start: float, stop: float) -> Piece:
    return _sum(_block(part, plan.columns.used), plan, start, stop)


def _add_pieces(pieces: Sequence[Piece]) -> Piece:
    return sum(pieces[1:], start=pieces[0])


def sum_partitions(table: DaskFrame, plan: Plan) -> tuple[Statistics, Numerals, Order]:
    """Return sums over the measurements of a Dask DataFrame, how its numbers are written, and the order of its times.

    Pure functions of partitions, so that lost work is simply done again.

    Parameters
    ----------
    table : DaskFrame
    plan : Plan
        With the form of its dates and their origin.
    """
    with one_thread():
        times = replace(plan, columns=Columns(plan.columns.time, {}, {}))
        start, stop, count = _gather(table.take(times.columns.used), partial(_look_at_partition, plan=times), _hull)
        if not count:
            raise DataError(f"{plan.where}: expected rows of measurements, found none")
        _refuse_one_time([plan], start, stop, count)
        total = Statistics.empty(start, stop)
        work = partial(_sum_partition, plan=plan, start=total.start, stop=total.stop)
        piece = _gather(table.take(plan.columns.used), work, _add_pieces)
    return total + piece.sums, piece.numerals, piece.order


def _gather(frame: Any, work: Callable[[Any], _Result], join: Callable[[Sequence[_Result]], _Result]) -> _Result:
    """Return what work on all partitions gives together, joined in a tree."""
    dask = import_module("dask")
    work, join = dask.delayed(work, pure=True), dask.delayed(join, pure=True)
    level: list[Any] = [work(part) for part in frame.to_delayed()]
    while len(level) > 1:
        level = [join(level[first : first + 8]) for first in range(0, len(level), 8)]
    found: _Result = level[0].compute()
    return found
