"""Tables become records: each is one, or a piece of one, or a column says which line belongs to which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations
from lodekit.data.planning import Request, check_orders
from lodekit.data.records import FIRST, Record
from lodekit.data.spool import Spooled
from lodekit.data.streams import DaskFrame, read_again, sum_partitions, sum_tables
from lodekit.data.tables.cells import Numerals
from lodekit.data.tables.columns import list_columns
from lodekit.data.tables.order import Order
from lodekit.data.tables.places import naming
from lodekit.data.tables.reading import describe_columns, describe_file, describe_times, read_whole
from lodekit.data.tables.table import Plan, TableSource
from lodekit.errors import DataError

__all__ = ["Group", "join_groups", "read_records"]

#: The name of a record, and the tables that are pieces of it, by the names they have in messages.
Group = tuple[str, Mapping[str, TableSource]]


def join_groups(groups: Sequence[Group], plans: Sequence[Plan]) -> tuple[list[Group], list[str]]:
    """Return records that are one in truth as one, and what is to be said about that.

    Files that measure different channels, none of them twice, belong to one record: alone, none of them would tell
    much.

    Parameters
    ----------
    groups : sequence of Group
    plans : sequence of Plan
        Of all tables, in order.
    """
    seen = [name for plan in plans for name in plan.columns.values]
    if len(groups) < 2 or len(set(seen)) < len(seen):
        return list(groups), []
    joined = {where: table for _, tables in groups for where, table in tables.items()}
    return [(FIRST, joined)], [f"one record: {', '.join(name for name, _ in groups)} measure different channels"]


def read_records(
    groups: Sequence[Group], plans: Sequence[Plan], request: Request, *, large: bool
) -> tuple[list[Record], tuple[str, ...]]:
    """Return the measurements of each record, and what was found out about the files.

    Parameters
    ----------
    groups : sequence of Group
        Records, each with its tables.
    plans : sequence of Plan
        One for each table of all groups, in order.
    request : Request
    large : bool
        Whether they are read in pieces, and only sums are kept.
    """
    if request.records is not None:
        if large:
            raise DataError(
                "expected one record in each file, as files of this size are read in pieces, got "
                f"{request.advice.records}; write a file for each record"
            )
        return _split_records({w: table for _, own in groups for w, table in own.items()}, plans, request)
    records, notes, first = [], [], 0
    for name, tables in groups:
        own = plans[first : first + len(tables)]
        first += len(tables)
        read = _read_large if large else _read_small
        measurements, orders, found = read(tables, own, request)
        for said, more in zip(found, check_orders(own, orders, request.advice), strict=True):
            said.extend(more)
        records.append(Record(name, measurements))
        notes += found
    pieces = ["read in pieces, as there are too many rows to keep all of them in memory"] if large else []
    return records, (*pieces, *_join_notes(plans, notes))


def _split_records(
    tables: Mapping[str, TableSource], plans: Sequence[Plan], request: Request
) -> tuple[list[Record], tuple[str, ...]]:
    """Return the records that a column tells apart; one may go on from table to table."""
    found: dict[str, Observations] = {}
    pieces: dict[str, list[tuple[Plan, Order]]] = {}
    notes = []
    for table, plan in zip(tables.values(), plans, strict=True):
        with naming(plan.where):
            content = read_whole(table, plan, request.measurable)
            labels = np.zeros(0, dtype=object) if content.labels is None else content.labels
            for label in dict.fromkeys(labels.tolist()):
                rows = labels == label
                own = found.get(label, Observations())
                for name, values in content.values.items():
                    std = content.noise[name][rows] if name in content.noise else plan.noise.get(name)
                    own = own.add(content.times[rows], name, values[rows], std)
                found[label] = own
                part = replace(plan, where=f"{plan.where}, record {label}")
                pieces.setdefault(label, []).append((part, Order.of(content.times[rows])))
        notes.append(list(content.notes))
    for own_pieces in pieces.values():
        check_orders([plan for plan, _ in own_pieces], [order for _, order in own_pieces], request.advice)
    filled = {label: own for label, own in found.items() if len(own)}
    if not filled:
        raise _nothing_measured(plans, [order for own_pieces in pieces.values() for _, order in own_pieces])
    records = [Record(label, Measurements.of(own)) for label, own in filled.items()]
    return records, _join_notes(plans, notes)


_Read = tuple[Measurements, list[Order], list[list[str]]]


def _read_small(tables: Mapping[str, TableSource], plans: Sequence[Plan], request: Request) -> _Read:
    observations, notes, orders = Observations(), [], []
    for table, plan in zip(tables.values(), plans, strict=True):
        with naming(plan.where):
            found = read_whole(table, plan, request.measurable)
            for name, values in found.values.items():
                observations = observations.add(found.times, name, values, found.noise.get(name, plan.noise.get(name)))
        notes.append(list(found.notes))
        orders.append(Order.of(found.times))
    if not len(observations):
        raise _nothing_measured(plans, orders)
    return Measurements.of(observations), orders, notes


def _read_large(tables: Mapping[str, TableSource], plans: Sequence[Plan], request: Request) -> _Read:
    sources, found, spooled = list(tables.values()), [Numerals()], None
    if isinstance(sources[0], DaskFrame):
        sums, found[0], order = sum_partitions(sources[0], plans[0])
        orders = [order]
    else:
        sums, found, orders = sum_tables(sources, plans)
        noisy = tuple(name for name in sums.observables if any(name in plan.columns.noise for plan in plans))
        # A file may measure what those before it did not.
        known = {name: std for plan in plans for name, std in plan.noise.items()}
        spooled = Spooled(sums.observables, known, noisy, partial(read_again, sources, plans))
    if not sums.size:
        raise _nothing_measured(plans, orders)
    notes = []
    for table, plan, numerals in zip(sources, plans, found, strict=True):
        with naming(plan.where):
            about = describe_file(table, numerals)
        empty = {name for name in plan.columns.values if name not in sums.observables}
        own = describe_columns(table.names, plan.columns, request.measurable, empty)
        notes.append([*about, *describe_times(plan), *own])
    return Measurements(sums=sums, spooled=spooled), orders, notes


def _nothing_measured(plans: Sequence[Plan], orders: Sequence[Order]) -> DataError:
    observed = dict.fromkeys(name for plan in plans for name in plan.columns.values)
    where = f"{plans[0].where}: " if len(plans) == 1 else ""
    if plans[0].has_window and not any(order.count for order in orders):
        first, last = plans[0].window
        return DataError(f"{where}expected rows between the times {first:g} and {last:g}, found none")
    return DataError(f"{where}expected at least one value of {', '.join(observed)}, every cell is missing")


def _join_notes(plans: Sequence[Plan], notes: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return notes about several files, each once, with the files where it is not about all of them."""
    about: dict[str, list[str]] = {}
    for plan, own in zip(plans, notes, strict=True):
        for note in own:
            about.setdefault(note, []).append(Path(plan.where).name)
    return tuple(
        note if len(where) == len(plans) else f"{note} ({list_columns(where)})" for note, where in about.items()
    )
