"""Sufficient statistics of tables larger than memory, or on a Dask cluster, accumulated block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.data.statistics import Statistics
from lodekit.data.tables.cells import NumberFormat
from lodekit.data.tables.columns import ColumnMapping
from lodekit.data.tables.frames import PARTITION_ROW, DataFrameTable, TableBlock, read_frame
from lodekit.data.tables.parquet import ParquetFile
from lodekit.data.tables.reader import TableData, TableSchema, TableSource, TimeOrder, detect_decimal_mark, read_block
from lodekit.data.tables.strings import prefix_errors
from lodekit.errors import DataError
from lodekit.support.arguments import Array
from lodekit.support.progress import track_progress
from lodekit.support.threads import single_threaded_blas
from lodekit.support.units import UnitConversion

_Result = TypeVar("_Result")
#: The largest number of simultaneously processed blocks, for any number of cores: each takes about 80 MB.
_MAX_WORKERS = 16


#: The statistics of a block, its number format and the order of its times.
_BlockResult = tuple[Statistics, NumberFormat, TimeOrder]


def accumulate_statistics(
    tables: Sequence[TableSource], schemas: Sequence[TableSchema]
) -> tuple[Statistics, list[NumberFormat], list[TimeOrder]]:
    """Return sums over the measurements of tables, the number format of each table, and the order of its times.

    Memory does not grow with the number of rows: a first pass finds the time window, a second one accumulates blocks in
    parallel. Blocks are added in order, so the sums are identical to the last bit for any scheduling of threads.
    """
    # Waiting BLAS threads spin and take cores from the transforms.
    with single_threaded_blas():
        schemas = [_with_decimal_mark(table, plan) for table, plan in zip(tables, schemas, strict=True)]
        with track_progress("looking at the times") as advance:
            spans = [_table_time_span(table, plan, advance) for table, plan in zip(tables, schemas, strict=True)]
        whole = sum(spans, TimeOrder())
        _check_distinct_times(schemas, whole)
        total, numerals = Statistics.empty(whole.low, whole.high), [NumberFormat() for _ in schemas]
        orders = [TimeOrder() for _ in schemas]
        pairs = enumerate(zip(tables, schemas, strict=True))
        jobs = (
            partial(lambda n, job: (n, job()), number, partial(_block_statistics, block, plan, whole.low, whole.high))
            for number, (table, plan) in pairs
            for block in _iterate_blocks(table, plan)
        )
        with track_progress("reading", whole.count) as advance:
            for number, (statistics, number_format, order) in _run_in_order(jobs):
                total, orders[number] = total + statistics, orders[number] + order
                with prefix_errors(schemas[number].table_name):
                    numerals[number] += number_format
                advance(order.count)
        for plan, span, order in zip(schemas, spans, orders, strict=True):
            if span.count != order.count:
                message = f"{plan.table_name}: expected {span.count} rows, got {order.count}; did the file change?"
                raise DataError(message)
    return total, numerals, orders


def iterate_rows(tables: Sequence[TableSource], schemas: Sequence[TableSchema]) -> Iterator[TableData]:
    """Yield the rows of tables, block by block."""
    schemas = [_with_decimal_mark(table, plan) for table, plan in zip(tables, schemas, strict=True)]
    pairs = zip(tables, schemas, strict=True)
    with track_progress("writing rows to a temporary file") as advance:
        jobs = (partial(_read_named_block, b, plan) for table, plan in pairs for b in _iterate_blocks(table, plan))
        for block in _run_in_order(jobs):
            yield block
            advance(len(block.times))


def _read_named_block(block: TableBlock, plan: TableSchema) -> TableData:
    with prefix_errors(plan.table_name):
        return read_block(block, plan)


def _with_decimal_mark(table: TableSource, plan: TableSchema) -> TableSchema:
    with prefix_errors(plan.table_name):
        return detect_decimal_mark(table, plan)


def _run_in_order(jobs: Iterable[Callable[[], _Result]]) -> Iterator[_Result]:
    """Yield the results of jobs in order; several jobs run in parallel."""
    workers = min(import_module("joblib").cpu_count(), _MAX_WORKERS)
    queue = deque[Future[_Result]]()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for job in jobs:
                queue.append(pool.submit(job))
                if len(queue) > workers:
                    yield queue.popleft().result()
        except DataError:
            # Report the error of the earliest block, whichever failed first.
            for future in queue:
                future.result()
            raise
        while queue:
            yield queue.popleft().result()


def _iterate_blocks(table: TableSource, plan: TableSchema) -> Iterator[TableBlock]:
    with prefix_errors(plan.table_name):
        yield from table.blocks(plan.columns.used)


def _table_time_span(table: TableSource, plan: TableSchema, advance: Callable[[int], None]) -> TimeOrder:
    """Return the first and last time of a table and its number of rows, but not the order of its times."""
    # The footer of a Parquet file contains the range of all rows, not of those in a window.
    known = table.column_range(plan.columns.time) if isinstance(table, ParquetFile) and not plan.has_window else None
    if known is not None:
        low, high = plan.conversions.get("t", UnitConversion()).convert(np.array(known[:2])).tolist()
        return TimeOrder(known[2], low, high)
    times = replace(plan, columns=ColumnMapping(plan.columns.time, {}, {}))
    total = TimeOrder()
    for span in _run_in_order(partial(_block_time_span, block, times) for block in _iterate_blocks(table, times)):
        total += span
        advance(span.count)
    if not total.count:
        raise DataError(f"{plan.table_name}: expected rows of measurements, found none")
    return total


def _block_time_span(block: TableBlock, plan: TableSchema) -> TimeOrder:
    times = _read_named_block(block, plan).times
    return TimeOrder(len(times), float(times.min(initial=np.inf)), float(times.max(initial=-np.inf)))


def _check_distinct_times(plans: Sequence[TableSchema], span: TimeOrder) -> None:
    """Raise if all rows have the same time: sums need a time window of positive length."""
    if span.low < span.high:
        return
    first = plans[0]
    where = first.table_name if len(plans) == 1 else f"{first.table_name} to {Path(plans[-1].table_name).name}"
    rows = "there is one row" if span.count == 1 else f"all {span.count} rows have the same one"
    column = f" (column {first.columns.time})" if first.columns.time else ""
    raise DataError(
        f"{where}: expected rows with different times{column}, {rows}, t = {span.low + 0.0:g}; check that column, or "
        "leave that record out"
    )


def _block_statistics(block: TableBlock, plan: TableSchema, start: float, stop: float) -> _BlockResult:
    records = _read_named_block(block, plan)
    # Blocks run in parallel, so each of them uses one core.
    with prefix_errors(plan.table_name), single_threaded_blas("openmp"):
        sums = Statistics.of(start, stop, to_series(records, plan.known_noise))
    return sums, records.number_format, TimeOrder.from_times(records.times, plan)


def to_series(records: TableData, noise: Mapping[str, float]) -> list[TimeSeries]:
    """Return the measurements in rows; observables with the same rows and noise share their arrays of times."""
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
        found.append(TimeSeries(name, shared[key][0], values if whole else values[kept], shared[key][1]))
    return found


def _on_partition(part: Any, work: Callable[..., _Result], plan: TableSchema, window: tuple[float, ...]) -> _Result:
    return work(partial(read_frame, part, plan.columns.used, 0, PARTITION_ROW), plan, *window)


def _add_results(results: Sequence[_BlockResult]) -> _BlockResult:
    statistics, formats, orders = zip(*results, strict=True)
    return sum(statistics[1:], statistics[0]), sum(formats, NumberFormat()), sum(orders, TimeOrder())


def accumulate_dask_statistics(
    table: DataFrameTable, schema: TableSchema
) -> tuple[Statistics, NumberFormat, TimeOrder]:
    """Return sums over the measurements of a Dask DataFrame, its number format, and the order of its times.

    All steps are pure functions of partitions, so lost work can be repeated.
    """
    with single_threaded_blas():
        times = replace(schema, columns=ColumnMapping(schema.columns.time, {}, {}))
        span = _tree_reduce(table, times, _block_time_span, partial(sum, start=TimeOrder()))
        if not span.count:
            raise DataError(f"{schema.table_name}: expected rows of measurements, found none")
        _check_distinct_times([schema], span)
        total = Statistics.empty(span.low, span.high)
        result = _tree_reduce(table, schema, _block_statistics, _add_results, total.start, total.stop)
    return total + result[0], result[1], result[2]


def _tree_reduce(
    table: DataFrameTable,
    plan: TableSchema,
    work: Callable[..., _Result],
    join: Callable[[Sequence[_Result]], _Result],
    *window: float,
) -> _Result:
    """Apply a function to all partitions and combine the results in a tree reduction."""
    dask = import_module("dask")
    run = dask.delayed(partial(_on_partition, work=work, plan=plan, window=window), pure=True)
    join = dask.delayed(join, pure=True)
    level: list[Any] = [run(part) for part in table.partitions(plan.columns.used)]
    while len(level) > 1:
        level = [join(level[first : first + 8]) for first in range(0, len(level), 8)]
    result: _Result = level[0].compute()
    return result
