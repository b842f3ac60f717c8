"""What is read of tables, and how: columns, dates, units, known noise and the window of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from lodekit.data.clock import Clock
from lodekit.data.tables.advice import Advice
from lodekit.data.tables.columns import Columns, find_all_columns, recall_names
from lodekit.data.tables.headers import ColumnUnits, convert_columns, find_unit
from lodekit.data.tables.instants import SteppedTable
from lodekit.data.tables.noise import KnownNoise
from lodekit.data.tables.order import Order
from lodekit.data.tables.places import naming
from lodekit.data.tables.reading import find_dates
from lodekit.data.tables.table import Plan, TableSource
from lodekit.errors import DataError, EquationError

__all__ = ["Request", "check_orders", "make_plans"]


@dataclass(frozen=True)
class Request:
    """What is asked of tables.

    Parameters
    ----------
    channels : sequence of str
        The channels of the system.
    noise : KnownNoise
    time : str, optional
        The column of the time in a table; by default the one called t, time, timestamp, date or the like.
    columns : dict of observable to column, optional
        For columns of tables with other names: a name, or a number counted from one (the label itself where a DataFrame
        calls its columns by numbers). ``t`` is the time, ``std(f1)`` the known noise of f1.
    recalled : dict of str to str
        Where files before these had them; what is asked for goes before, and what is not there does no harm.
    header : bool, optional
        Whether text files start with the names of their columns; found out by default.
    dt : float, optional
        The time between two rows of a table without a time; the first row is at zero.
    records : str, optional
        The column that says which record a line belongs to: a name, or a number counted from one.
    since : datetime, optional
        The date that is time zero; by default that of the first record of the first table.
    units : dict of str to str
        The units of channels and of the time ``t`` in the model: columns with another unit in their names are
        converted, or refused.
    window : (first, last)
        Times, as numbers or dates; others are left out. None stands for no limit.
    in_shell : bool
        Whether messages speak of options of the command line, and not of arguments in Python.
    never : sequence of str
        Channels that are never measured, such as disturbances: nobody misses a column for them.
    check : callable, optional
        Called with the names of observables before large files are read; raises where they make no sense.
    check_units : callable, optional
        Called with units that the names of columns tell; raises where they make no sense.
    """

    channels: Sequence[str]
    noise: KnownNoise = field(default_factory=KnownNoise)
    time: str | None = None
    columns: Mapping[str, Any] | None = None
    recalled: Mapping[str, str] = field(default_factory=dict)
    header: bool | None = None
    dt: float | None = None
    records: str | None = None
    since: datetime | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    window: tuple[Any, Any] = (None, None)
    in_shell: bool = False
    never: Sequence[str] = ()
    check: Callable[[Sequence[str]], object] | None = None
    check_units: Callable[[Mapping[str, str]], object] | None = None

    @property
    def measurable(self) -> list[str]:
        """The channels that may be measured."""
        return [name for name in self.channels if name not in self.never]

    @property
    def advice(self) -> Advice:
        """The words of messages."""
        return Advice(in_shell=self.in_shell)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise where names of observables make no sense."""
        if self.check is None:
            return
        try:
            self.check(names)
        except EquationError as problem:
            # The equations are as they should be: it is the data that name something else.
            raise DataError(f"among what was measured: {problem}") from None


def make_plans(tables: Mapping[str, TableSource], request: Request) -> tuple[list[Plan], dict[str, str]]:
    """Return a plan for each table, and the units that their columns tell.

    Parameters
    ----------
    tables : dict of str to TableSource
        By the names they have in messages.
    request : Request
    """
    plans = []
    for (where, table), own in zip(tables.items(), _find_columns(tables, request), strict=True):
        known = {name: request.noise.number_of(name) for name in own.values if name not in own.noise}
        numbers = {name: number for name, number in known.items() if number is not None}
        plans.append(Plan(where, own, table.separator, numbers))
    observed = list(dict.fromkeys(name for plan in plans for name in plan.columns.values))
    request.check_names(observed)
    for name in request.noise.names:
        if name not in observed and name not in request.channels:
            raise DataError(f"noise_std names {name}, which is not observed; expected some of {', '.join(observed)}")
    plans = _date_plans(tables, plans, request.since)
    plans, units = _convert_plans(plans, request.units)
    if request.check_units is not None and units:
        request.check_units(units)
    return _limit_plans(plans, request, units.get("t", "")), units


def _limit_plans(plans: Sequence[Plan], request: Request, unit: str) -> list[Plan]:
    """Return the plans with the window of time that is asked for."""
    clock = Clock(plans[0].origin, request.units.get("t") or unit)
    edges = list(plans[0].window)
    for number, (edge, what) in enumerate(zip(request.window, ("first", "last"), strict=True)):
        if edge is not None:
            edges[number] = clock.read_edge(edge, f"the {what} time")
    if not edges[0] <= edges[1]:
        raise DataError(f"expected the first time before the last, got {edges[0]:g} and {edges[1]:g}")
    return [replace(plan, window=(edges[0], edges[1])) for plan in plans]


def _recall(tables: Mapping[str, TableSource], request: Request) -> dict[str, Any]:
    """Return where columns are asked for, or were in files before, as far as all tables have these."""
    found = {**request.recalled}
    for table in tables.values():
        found = recall_names(found, [str(name) for name in table.names])
    if request.time is not None or any(isinstance(table, SteppedTable) for table in tables.values()):
        found.pop("t", None)
    asked = dict(request.columns or {})
    taken = {str(column) for column in asked.values()}
    return {name: column for name, column in found.items() if column not in taken} | asked


def _find_columns(tables: Mapping[str, TableSource], request: Request) -> list[Columns]:
    """Return the columns that are read of each table: those that are asked for, and those that are found by name."""
    noise = request.noise
    if request.columns is not None and not isinstance(request.columns, Mapping):
        raise DataError(f"expected columns as a dict of observable to column, got {type(request.columns).__name__}")
    columns = _recall(tables, request)
    mapping = {f"std({name})": column for name, column in noise.columns.items()}
    for key, column in columns.items():
        if mapping.setdefault(key, column) != column:
            raise DataError(f"{key} is said to be in column {mapping[key]} and in column {column}; choose one")
    # What is no observable is said so before its column is missed elsewhere.
    request.check_names([key for key in columns if key != "t" and not str(key).startswith("std(")])
    time = request.time
    if any(isinstance(table, SteppedTable) for table in tables.values()):
        if time is not None or "t" in mapping:
            raise DataError("the time is said to be in a column and to be told by the number of the row; choose one")
        time = SteppedTable.time
    names = {where: table.names for where, table in tables.items()}
    by_number = all(table.by_number for table in tables.values())
    found = find_all_columns(names, request.channels, mapping, time, advice=request.advice, by_number=by_number)
    if request.records is not None:
        found = [
            own.with_record(each, str(request.records), by_number=by_number)
            for own, each in zip(found, names.values(), strict=True)
        ]
    for own in found:
        for name, column in own.noise.items():
            if (number := noise.number_of(name)) is not None:
                raise DataError(
                    f"the noise of {name} is said to be {number:g} (noise_std, or [noise] in the system file), and to "
                    f"be in column {column}; leave out one of them"
                )
    return found


def _date_plans(tables: Mapping[str, TableSource], plans: Sequence[Plan], since: datetime | None) -> list[Plan]:
    """Return the plans with the forms of their dates, and one origin for all of them."""
    dated, firsts = [], []
    for table, plan in zip(tables.values(), plans, strict=True):
        with naming(plan.where):
            own, first = find_dates(table, plan)
        dated.append(own)
        firsts.append(first)
    origin = firsts[0] if since is None or firsts[0] is None else since
    for plan, first in zip(plans, firsts, strict=True):
        if _describe_clock(first) != _describe_clock(origin):
            raise DataError(
                f"{plan.where}: expected {_describe_clock(origin)} in column {plan.columns.time}, as elsewhere, "
                f"got {_describe_clock(first)}"
            )
    return [replace(plan, origin=origin) for plan in dated]


def _describe_clock(date: datetime | None) -> str:
    if date is None:
        return "times as numbers"
    return f"dates with{'out' if date.tzinfo is None else ''} a time zone"


def _convert_plans(plans: Sequence[Plan], declared: Mapping[str, str]) -> tuple[list[Plan], dict[str, str]]:
    """Return the plans with what their numbers are converted by, and units that are told, not declared."""
    units = ColumnUnits({name: unit.strip() for name, unit in declared.items() if unit.strip()})
    found = []
    for plan in plans:
        own = plan.time_unit or find_unit(plan.columns.time, is_time=True)
        with naming(plan.where):
            conversions, notes = convert_columns(plan.columns, own, units)
        found.append(replace(plan, conversions=conversions, notes=tuple(notes)))
    return found, units.told


def check_orders(plans: Sequence[Plan], orders: Sequence[Order], advice: Advice) -> list[list[str]]:
    """Return what there is to say about the times of each table; raise where they are none, or pieces overlap.

    Parameters
    ----------
    plans : sequence of Plan
        Of the pieces of one record.
    orders : sequence of Order
        Of the times of each table.
    advice : Advice
        The words of messages.
    """
    notes = []
    for plan, order in zip(plans, orders, strict=True):
        remedy = f"say which column is the time, {advice.map({'t': 'COLUMN'})}, or {advice.step} where there is none"
        with naming(plan.where):
            notes.append(order.check(plan.columns.time, remedy, advice.records))
    filled = [(order, plan) for order, plan in zip(orders, plans, strict=True) if order.count]
    for name in dict.fromkeys(name for plan in plans for name in plan.columns.values):
        own = sorted((order.low, order.high, plan.where) for order, plan in filled if name in plan.columns.values)
        for (_, high, first), (low, _, second) in pairwise(own):
            if low < high:
                raise DataError(
                    f"{second}: expected files one after the other in time, and {name} is measured in {first} at the "
                    f"same time. Only pieces of one record are read together ({advice.join}); records of their own "
                    f"are listed one by one, or told apart by a column, {advice.records}"
                )
    return notes
