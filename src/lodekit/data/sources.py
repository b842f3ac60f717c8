"""Everything that `fit` accepts becomes measurements: arrays, observations, sums, files, DataFrames.

Files and DataFrames are read by one reader, with the same rules for columns and cells whatever their kind and size.
Their size alone decides what is kept: the measurements themselves up to `LARGE` records, sums over them beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lodekit.arguments import read_numbers
from lodekit.data.clock import Clock
from lodekit.data.gathering import join_groups, read_records
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations, read_observations
from lodekit.data.opening import is_frame, open_records, open_tables, split_records
from lodekit.data.planning import Request, make_plans
from lodekit.data.records import FIRST, Pool, Record, describe_records
from lodekit.data.statistics import Statistics
from lodekit.data.tables.columns import Columns, is_time_name, list_columns
from lodekit.data.tables.dates import Moments
from lodekit.data.tables.frames import Frame
from lodekit.data.tables.instants import SteppedTable, read_instants
from lodekit.data.tables.noise import read_noise
from lodekit.data.tables.places import naming
from lodekit.data.tables.reading import read_whole
from lodekit.data.tables.table import Plan, TableSource
from lodekit.errors import DataError

__all__ = ["LARGE", "Source", "read_source", "read_values"]

#: Where tables have more records than this, all files together, they are read in pieces and only sums are kept.
LARGE = 2_000_000


@dataclass(frozen=True)
class Source:
    """What was read, and what was found out on the way.

    Parameters
    ----------
    measurements : Measurements
    origin : datetime or None
        The date that is time zero, where there are dates: times are counted from then.
    notes : tuple of str
        What was found out about files, in words.
    units : dict of str to str
        Units of channels and of the time ``t``, as far as the data tell them.
    places : dict of str to str
        Columns of channels and of the time ``t``, as far as they were said.
    """

    measurements: Measurements
    origin: datetime | None = None
    notes: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, Any]:
        """What a model calls things, as far as the data tell it: units, and the origin of time where it has dates."""
        if self.origin is None and not self.units and not self.places:
            return {}
        origin = "" if self.origin is None else self.origin.isoformat()
        found = {"title": "", "units": dict(self.units), "origin": origin}
        return found | {"columns": dict(self.places)} if self.places else found


def read_source(
    source: Any, Y: Any = None, channels: Sequence[str] = (), *, noise_std: Any = None, **how: Any
) -> Source:
    r"""Return measurements from anything that `fit` accepts.

    Parameters
    ----------
    source : array-like, Observations, Statistics, path, pattern, DataFrame, Dask DataFrame, Source, or a list of these
        Times, or something that holds times and values itself. Files are Parquet, or text in any dialect that
        `lodekit.data.tables.read_table` describes; those of a pattern count together, each once, in the order of their
        names. A list holds records: files, tables, or pairs of times and values; a list of files in it is one record.
    Y : array (n, channels), dict of observable to array, or DataFrame, optional
        The values, where `source` holds the times alone.
    channels : sequence of str
        The channels of the system.
    noise_std : number, dict or array, optional
        Known standard deviation of the noise; learned where it is absent. For tables a number, or a dict of
        observable to number or column; for arrays as in `read_observations`.
    **how
        What else is asked of tables, as `lodekit.data.planning.Request` describes it: time, columns, header, dt,
        records, since, units, window, in_shell, never, check and check_units.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "log.csv").write_text("date;T [K]\n01.03.2026 12:00;293,5\n01.03.2026 12:01;293,25\n")
    ...     found = read_source(folder + "/*.csv", channels=["T"])
    >>> found.measurements.series[0].times.tolist(), found.origin
    ([0.0, 60.0], datetime.datetime(2026, 3, 1, 12, 0))
    """
    request = Request(channels, **how)
    items = split_records(source, Y)
    if items is not None:
        groups = open_records(items, request)
    else:
        tables = open_tables(source, Y, request)
        groups = None if tables is None else [(FIRST, tables)]
    if groups is None:
        about = ("time", "columns", "header", "dt", "records")
        if absent := [name for name in about if getattr(request, name) is not None]:
            raise DataError(f"{absent[0]}= is about columns of files or of a DataFrame; expected none with arrays")
        return _read_arrays(source, Y, noise_std, request) if items is None else _read_list(items, noise_std, request)
    request = replace(request, noise=read_noise(noise_std))
    tables = {where: table for _, own in groups for where, table in own.items()}
    plans, told = make_plans(tables, request)
    joined, remarks = join_groups(groups, plans) if request.records is None else (groups, [])
    records, notes = read_records(joined, plans, request, large=_is_large(tables))
    kept = {name: unit for name, unit in told.items() if name in channels or name == "t"}
    asked = {**({} if request.time is None else {"t": request.time}), **(request.columns or {})}
    places = {name: str(column) for name, column in asked.items()}
    notes = (*remarks, *describe_records(records), *notes)
    return Source(Pool.together(records), plans[0].origin, notes, kept, places)


def _read_list(items: Sequence[Any], noise_std: Any, request: Request) -> Source:
    """Return records that come as values: times and values, Observations, or sums."""
    records, first = [], Source(Measurements())
    for number, item in enumerate(items):
        is_pair = isinstance(item, list | tuple)
        t, Y, *own = item if is_pair else (item, None)
        if own and noise_std is not None:
            raise DataError(f"record {number} has its own noise, (t, Y, noise_std); expected no noise_std for all then")
        is_plain = noise_std is None or isinstance(noise_std, Mapping)
        if not is_plain and read_numbers("noise_std", noise_std).size > 1:
            raise DataError("expected one noise_std for several records, or (t, Y, noise_std) for each, got an array")
        with naming(f"record {number}"):
            found = _read_arrays(t, Y, own[0] if own else noise_std, request)
        if number and (found.origin, found.units) != (first.origin, first.units):
            raise DataError(f"record {number}: expected times as in the first record: all numbers, or all dates")
        if not number:
            first = found
            # Dates of all records are counted from one origin.
            request = replace(request, since=found.origin, units={**request.units, **found.units})
        records.append(Record(str(number), found.measurements))
    return Source(Pool.together(records), first.origin, tuple(describe_records(records)), first.units)


def _read_arrays(source: Any, Y: Any, noise_std: Any, request: Request) -> Source:
    """Return measurements that come as values, not as tables."""
    for kind, what in ((Source, "a Source"), (Statistics, "Statistics")):
        if isinstance(source, kind) and (Y is not None or noise_std is not None):
            raise DataError(f"expected {what} alone: values and noise are in there")
    if isinstance(source, Source):
        request.check_names(source.measurements.names)
        return source
    if isinstance(source, Statistics):
        if not source.size:
            raise DataError("expected at least one measurement; the sums are empty")
        request.check_names(source.observables)
        return Source(Measurements(sums=source))
    clock = Clock(request.since, request.units.get("t", ""))
    observations, own = read_values(request.channels, source, Y, noise_std, clock, is_new=clock == Clock())
    # A name without values is checked, too: it may be misspelt.
    request.check_names(observations.observables)
    return Source(Measurements.of(observations), own.origin, (), {"t": own.unit} if own.unit else {})


def read_values(
    channels: Sequence[str], t: Any, Y: Any, noise_std: Any, clock: Clock, *, is_new: bool = False
) -> tuple[Observations, Clock]:
    """Return observations from times and values, and how the times are counted.

    Parameters
    ----------
    channels : sequence of str
        The order of the columns of an array.
    t : array-like, shape (n,), or Observations
        Numbers, dates, or lengths of time.
    Y : array-like (n, channels), dict of observable to array, or DataFrame
        NaN, or masked, for missing values.
    noise_std : number, dict or array, or None
        Known standard deviation of the noise.
    clock : Clock
        Of the fit that these belong to; an empty one where there is none yet.
    is_new : bool
        Whether dates may be counted from the first of them.
    """
    if not isinstance(t, Observations):
        if Y is None:
            got = type(t).__name__
            raise DataError(f"expected values beside the times, fit(t, Y), or a table of both, got {got} alone")
        instants = read_instants(t)
        if instants is not None and is_new:
            clock = Clock(instants.first if isinstance(instants, Moments) else None, "s")
        numbers = None if instants is None else clock.read(t)
        t = t if numbers is None else numbers
        Y = _read_frame(Y, channels) if is_frame(Y) else Y
    return read_observations(channels, t, Y, noise_std), clock


def _read_frame(frame: Any, channels: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a DataFrame whose times come apart."""
    table = SteppedTable(Frame(frame), 1.0)
    names = table.table.names
    called = dict(zip(names, names, strict=True))
    if not table.by_number:
        if [*names] != [str(number) for number in range(len(channels))]:
            raise DataError(
                f"expected columns called like channels, {', '.join(channels)}, got the numbers {list_columns(names)}; "
                "rename them"
            )
        # What an array becomes when it is made a DataFrame.
        called = dict(zip(names, channels, strict=True))
    if times := [name for name in names if is_time_name(name)]:
        raise DataError(
            f"expected values alone beside the times, got a column {times[0]} as well; leave it out, or give the "
            "DataFrame alone: fit(df)"
        )
    if len(set(names)) < len(names):
        raise DataError(f"expected different names of columns, got {list_columns(names)}")
    plan = Plan("the DataFrame", Columns(table.time, {name: column for column, name in called.items()}, {}))
    with naming(plan.where):
        return dict(read_whole(table, plan, ()).values)


def _is_large(tables: Mapping[str, TableSource]) -> bool:
    count = 0
    for where, table in tables.items():
        with naming(where):
            count += table.count(LARGE - count)
        if count > LARGE:
            return True
    return False
