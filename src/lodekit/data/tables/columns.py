"""Mapping of table columns to the time and the channels of a model, and units in column names."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lodekit.data.tables.strings import prefix_errors
from lodekit.errors import DataError, EquationError
from lodekit.support.interval_means import interval_from_column, parse_interval
from lodekit.support.text import find_closest_name
from lodekit.support.units import UnitConversion, find_unit_conversion, is_known_unit


@dataclass(frozen=True)
class ArgumentSyntax:
    """The spelling of arguments in messages: for Python, or for the command line.

    Examples
    --------
    >>> [ArgumentSyntax(in_shell).column_mapping({"T": "temp 1"}) for in_shell in (False, True)]
    ["columns={'T': 'temp 1'}", "--map T='temp 1'"]
    """

    in_shell: bool = False

    def column_mapping(self, columns: Mapping[str, str | int]) -> str:
        """Return the argument that assigns columns to observables."""
        if self.in_shell:
            return " ".join(f"--map {shlex.quote(name)}={shlex.quote(str(own))}" for name, own in columns.items())
        return f"columns={dict(columns)!r}"

    def missing_values(self, values: Sequence[float]) -> str:
        """Return the argument that names numbers for missing values."""
        texts = [f"{value:g}" for value in values]
        return f"--missing {' --missing '.join(texts)}" if self.in_shell else f"missing=[{', '.join(texts)}]"

    @property
    def record_column(self) -> str:
        """The argument that names the column of the record."""
        return "--records COLUMN" if self.in_shell else "records=COLUMN"

    @property
    def file_group(self) -> str:
        """How to group files that belong to one record."""
        return "one pattern in quotes" if self.in_shell else "a pattern, or a list in the list: [[a, b], c]"

    @property
    def time_step_name(self) -> str:
        """The argument for the sampling interval."""
        return "--dt" if self.in_shell else "dt"

    @property
    def time_step(self) -> str:
        """The argument for the sampling interval, with a placeholder value."""
        return f"{self.time_step_name} STEP" if self.in_shell else f"{self.time_step_name}=STEP"


#: Stands for a column if a channel is not to be read.
IGNORED_COLUMN = "-"
_TIME_NAMES = (
    *("time", "times", "timestamp", "date", "datetime", "date_time", "date time", "zeit", "datum", "zeitstempel"),
)
_BRACKETED_UNIT_PATTERN = re.compile(r"\s*(?:\[[^\[\]]*\]|\([^()]*\))$")
#: The unit of a time may follow it without brackets.
_TIME_UNIT_PATTERN = re.compile(
    r"(?:_|\s+in\s+|\s*/\s*|,\s*)(?:[munµμ]?s|[mu]?sec|seconds?|min|minutes?|h|hr|hours?|d|days?)$"
)
_STD_PATTERN = re.compile(r"std\((?!\s*t\s*\))(.+)\)")


@dataclass(frozen=True)
class ColumnMapping:
    """The columns of a table to read.

    values, noise: Columns by observable; noise only if the mapping names it.
    record: The column that contains the record of each row; empty if there is none.
    """

    time: str
    values: dict[str, str]
    noise: dict[str, str]
    record: str = ""

    @property
    def numeric(self) -> list[str]:
        """All columns of times and numbers, without duplicates."""
        return list(dict.fromkeys([self.time, *self.values.values(), *self.noise.values()]))

    @property
    def used(self) -> list[str]:
        """All columns to read, without duplicates."""
        return [*self.numeric, *([self.record] if self.record else [])]

    def with_record(self, names: Sequence[str], record: str, *, allow_numbers: bool = True) -> ColumnMapping:
        """Return the same columns, and the column that contains the record of each row.

        Examples
        --------
        >>> resolve_columns(["run", "t", "x"], ["x"]).with_record(["run", "t", "x"], "run").used
        ['t', 'x', 'run']
        """
        found = _locate_column(names, "the record", record.strip(), allow_numbers)
        if found in self.numeric:
            raise DataError(f"column {found} is used for the records and for something else; choose one")
        return replace(self, record=found)


def parse_mapping(texts: Iterable[str]) -> dict[str, str]:
    """Return the columns in ``--map`` options: observable (or ``t``) to column.

    Examples
    --------
    >>> parse_mapping(["T1=temperature 1", "t=1,u=valve, left"])
    {'T1': 'temperature 1', 't': '1', 'u': 'valve, left'}
    """
    found: dict[str, str] = {}
    # A comma separates columns if another CHANNEL= follows.
    for text in (part for each in texts for part in re.split(r",(?=\s*\w+\s*=)", each)):
        name, equals, column = (part.strip() for part in text.partition("="))
        if not (name and equals and column):
            raise DataError(f"expected --map CHANNEL=COLUMN, such as --map T1=temp1 or --map t=1, got {text!r}")
        if name in found:
            raise DataError(f"--map names {name} twice, for {found[name]} and {column}; remove one of them")
        found[name] = column
    return found


def format_column_list(names: Sequence[str]) -> str:
    """Return the names of columns for a message; a long list is shortened."""
    return ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")


def have_number_names(names: Sequence[str]) -> bool:
    """Return whether columns are named 1, 2, 3 and so on, like those of a file without a header."""
    return list(names) == [str(number) for number in range(1, len(names) + 1)]


def is_time_name(name: str) -> bool:
    """Return whether a column has the name of a time; a capital T is more often a temperature.

    Examples
    --------
    >>> [is_time_name(name) for name in ("t", "Time [ms]", "time_s", "T", "times two")]
    [True, True, True, False, False]
    """
    plain = _TIME_UNIT_PATTERN.sub("", strip_unit(name))
    return plain == "t" or plain.casefold() in _TIME_NAMES


def resolve_columns(
    names: Sequence[str],
    channels: Sequence[str],
    mapping: Mapping[str, str] | None = None,
    time: str | None = None,
    *,
    syntax: ArgumentSyntax = ArgumentSyntax(),  # noqa: B008 - it cannot change
    allow_numbers: bool = True,
) -> ColumnMapping:
    """Assign columns: first by the mapping, then by equal names, then by names that differ only in case and unit.

    Examples
    --------
    >>> resolve_columns(["Time", "t1 [degC]", "T2", "remark"], ["T1", "T2"]).values
    {'T1': 't1 [degC]', 'T2': 'T2'}
    """
    _check_distinct(names)
    wanted = _requested_columns(names, mapping or {}, time, allow_numbers)
    noise = {match[1].strip(): wanted.pop(key) for key in [*wanted] if (match := _STD_PATTERN.fullmatch(key))}
    taken = {*wanted.values(), *noise.values()}
    open_channels = [name for name in channels if name not in wanted]
    equal = {name: name for name in open_channels if name in names and name not in taken}
    averages = _match_interval_means(names, channels, taken | set(equal), wanted)
    taken |= {*equal, *averages.values()}
    time_column = wanted.pop("t", None) or _find_time_column(names, taken, channels, syntax, wanted)
    open_channels = [name for name in open_channels if name not in equal]
    similar = _match_similar_names(names, open_channels, taken | {time_column}, syntax)
    found = {**wanted, **equal, **similar, **averages}
    if not found and channels:
        raise DataError(
            f"expected a column for at least one of {', '.join(channels)}, got the columns "
            f"{format_column_list([name for name in names if name != time])}; try "
            f"{syntax.column_mapping({channels[0] if len(channels) == 1 else 'CHANNEL': 'COLUMN'})}"
        )
    for name, column in noise.items():
        if name not in found:
            raise DataError(f"std({name}) names the column {column}, but {name} itself has no column; map it too")
    order = [*(name for name in channels if name in found), *(name for name in found if name not in channels)]
    return ColumnMapping(time_column, {name: found[name] for name in order}, noise)


def resolve_columns_of_tables(
    tables: Mapping[str, Sequence[str]],
    channels: Sequence[str],
    mapping: Mapping[str, str] | None = None,
    time: str | None = None,
    *,
    syntax: ArgumentSyntax = ArgumentSyntax(),  # noqa: B008 - it cannot change
    allow_numbers: bool = True,
) -> list[ColumnMapping]:
    """Return the columns of several tables of one record, by the rules of `resolve_columns`.

    Each table may contain only some of the channels: a mapped column must be in at least one of them. A channel that is
    mapped to ``-`` is left out, even if a column has its name.

    Examples
    --------
    >>> one, two = resolve_columns_of_tables({"a": ["t", "x"], "b": ["t", "temp"]}, ["x", "T"], {"T": "temp"})
    >>> one.values, two.values
    ({'x': 'x'}, {'T': 'temp'})
    >>> resolve_columns_of_tables({"a": ["t", "x", "y"]}, ["x", "y"], {"x": "-"})[0].values
    {'y': 'y'}
    """
    asked = {str(key).strip(): str(column).strip() for key, column in (mapping or {}).items()}
    channels = [name for name in channels if asked.get(name) != IGNORED_COLUMN]
    asked = {key: column for key, column in asked.items() if column != IGNORED_COLUMN}
    several, found, seen = len(tables) > 1, [], set[str]()
    options: dict[str, Any] = {"syntax": syntax, "allow_numbers": allow_numbers}
    for key, column in asked.items() if several else ():
        if not any(_has_column(names, column, allow_numbers) for names in tables.values()):
            every = format_column_list(list(dict.fromkeys(name for names in tables.values() for name in names)))
            raise DataError(f"expected a column {column} (for {key}) in some table, got the columns {every}")
    for where, names in tables.items():
        own = {k: c for k, c in asked.items() if not several or k == "t" or _has_column(names, c, allow_numbers)}
        with prefix_errors(where):
            if several:
                # A noise column may be in many tables; it is used in those that contain the values.
                plain = {k: c for k, c in own.items() if not _STD_PATTERN.fullmatch(k)}
                values = resolve_columns(names, channels, plain, time, **options).values if plain != own else {}
                own = {k: c for k, c in own.items() if not (m := _STD_PATTERN.fullmatch(k)) or m[1].strip() in values}
            found.append(resolve_columns(names, channels, own, time, **options))
        seen |= set(own)
    if absent := [key for key in asked if key not in seen]:
        name = absent[0].removeprefix("std(").removesuffix(")")
        raise DataError(f"{absent[0]} names the column {asked[absent[0]]}, but {name} itself has no column; map it too")
    return found


def _has_column(names: Sequence[str], wanted: str, by_number: bool) -> bool:
    try:
        _locate_column(names, "", wanted, by_number)
    except DataError:
        return False
    return True


def check_mapping_order(
    mapping: Mapping[str, Any], names: Iterable[str], channels: Sequence[str], syntax: ArgumentSyntax
) -> None:
    """Raise if a mapping assigns channels to columns instead of columns to channels."""
    for key in (mapping.keys() - {"t", *channels}).intersection(names):
        if (channel := str(mapping[key])) in channels:
            remedy = syntax.column_mapping({channel: key})
            raise DataError(f"expected a column for each channel, got channel {channel} for column {key}; try {remedy}")


def check_mapping_names(mapping: Mapping[str, Any], channels: Sequence[str], syntax: ArgumentSyntax) -> None:
    """Raise if a mapping names an unknown channel."""
    for name in map(str, mapping):
        if name.isidentifier() and name not in ("t", *channels):
            hint = f". Is it {alike!r}?" if (alike := find_closest_name(name, channels)) else ""
            option = "--map" if syntax.in_shell else "columns"
            raise DataError(f"{option}: unknown name {name!r}; expected a channel ({', '.join(channels)}){hint}")


def _check_distinct(names: Sequence[str]) -> None:
    if not names:
        raise DataError("expected columns with names, found none")
    twice = list(dict.fromkeys(name for position, name in enumerate(names) if name in set(names[:position])))
    if twice:
        every = format_column_list(twice)
        raise DataError(f"expected different names of columns, got {every} more than once; rename them")


def _requested_columns(
    names: Sequence[str], mapping: Mapping[str, str], time: str | None, by_number: bool
) -> dict[str, str]:
    """Return the columns that the user has named."""
    asked = {str(key).strip(): str(column).strip() for key, column in mapping.items()}
    if time is not None and asked.setdefault("t", str(time).strip()) != str(time).strip():
        raise DataError(f"the time is assigned to column {time} and to column {asked['t']}; choose one")
    found: dict[str, str] = {}
    for key, wanted in asked.items():
        if not key or not wanted:
            raise DataError(f"expected a channel and its column, got {key!r} and {wanted!r}")
        column = _locate_column(names, key, wanted, by_number)
        if column in found.values():
            other = next(name for name, already in found.items() if already == column)
            raise DataError(f"column {column} is mapped to {other} and to {key}; expected one column for each")
        found[key] = column
    return found


def _locate_column(names: Sequence[str], key: str, wanted: str, by_number: bool) -> str:
    """Return the column with a given name, number (counted from one), or name without a unit."""
    if wanted in names:
        return wanted
    if by_number and re.fullmatch(r"[0-9]{1,6}", wanted):
        if 1 <= int(wanted) <= len(names):
            return names[int(wanted) - 1]
        raise DataError(f"expected a column 1 to {len(names)} for {key}, got {wanted}")
    found = _similar_names(wanted, names)
    if len(found) > 1:
        every = format_column_list(found)
        raise DataError(f"{wanted} (for {key}) may be any of the columns {every}; write its full name")
    if not found:
        raise DataError(f"expected a column {wanted} (for {key}), got the columns {format_column_list(names)}")
    return found[0]


def strip_unit(name: str) -> str:
    """Return a name without surrounding white space and without a unit, in brackets or as in ``T / K``."""
    text = _BRACKETED_UNIT_PATTERN.sub("", unicodedata.normalize("NFKC", name).strip()).strip()
    found = _find_unit_after_name(text)
    return text[: found.start()] if found else text


def _find_unit_after_name(text: str) -> re.Match[str] | None:
    """Return the match of a known unit as in ``T / K``, ``T in K`` or ``T/K``; ``km/h`` is a unit without a name."""
    found = _UNIT_AFTER_NAME_PATTERN.search(text)
    if found is None and (found := re.search(r"(?<=\w)/(?P<unit>.+)$", text)):
        # T/K is a temperature, km/h and T1/T2 are not.
        is_symbol = re.match(r"[A-Z]\d?/(?![A-Z]\d)", text)
        if " " in text[: found.start()] or (is_known_unit(text) and not is_symbol):
            return None
    return found if found and is_known_unit(found["unit"]) else None


def _similar_names(wanted: str, names: Iterable[str]) -> list[str]:
    """Return the columns whose names differ only in the unit; if there are none, only in unit and case."""
    plain = {name: strip_unit(name) for name in names}
    target = strip_unit(wanted)
    found = [name for name, text in plain.items() if text == target]
    return found or [name for name, text in plain.items() if text.casefold() == target.casefold()]


def _find_time_column(
    names: Sequence[str], taken: set[str], channels: Sequence[str], advice: ArgumentSyntax, wanted: Mapping[str, str]
) -> str:
    free = [name for name in names if name not in taken]
    if not channels and len(free) == 1:
        return free[0]
    found = [name for name in free if is_time_name(name)]
    if len(found) == 1:
        return found[0]
    if found:
        every = format_column_list(found)
        raise DataError(f"the time may be in any of the columns {every}; try {advice.column_mapping({'t': found[0]})}")
    for name, column in wanted.items():
        if is_time_name(column):
            raise DataError(
                f"column {column} is assigned to {name}, and no other looks like a time (columns are counted from "
                f"one). Expected another column for {name}, of {format_column_list(names)}, or one for the time, "
                f"{advice.column_mapping({'t': 'COLUMN'})}"
            )
    if have_number_names(names):
        name = channels[0] if len(channels) == 1 else "CHANNEL"
        raise DataError(
            f"the table has no header, so its {len(names)} columns are identified by numbers; if none contains the "
            f"time, try {advice.time_step} and {advice.column_mapping({name: 2})}; otherwise "
            f"{advice.column_mapping({'t': 1, name: 2})}"
        )
    raise DataError(
        f"expected a column t or time, got the columns {format_column_list(names)}; if none contains the time, give "
        f"the sampling interval, {advice.time_step}; otherwise {advice.column_mapping({'t': 'COLUMN'})}"
    )


def _match_interval_means(
    names: Sequence[str], channels: Sequence[str], taken: set[str], wanted: Mapping[str, str]
) -> dict[str, str]:
    """Return the columns named like averages of channels, such as ``mean(T, 300)``, by these averages."""
    found: dict[str, str] = {}
    for column in names:
        if column in taken:
            continue
        try:
            name = interval_from_column(column, channels)
        except EquationError as problem:
            raise DataError(f"column {column}: {problem}") from None
        if name and name in found:
            raise DataError(f"columns {found[name]} and {column} are both {name}; expected one column for each")
        if name and name not in wanted:
            found[name] = column
    return found


def _match_similar_names(
    names: Sequence[str], channels: Sequence[str], taken: set[str], advice: ArgumentSyntax
) -> dict[str, str]:
    free = [name for name in names if name not in taken]
    found: dict[str, str] = {}
    for channel in channels:
        matches = _similar_names(channel, free)
        if len(matches) > 1:
            every, remedy = format_column_list(matches), advice.column_mapping({channel: matches[0]})
            raise DataError(f"channel {channel} may be in any of the columns {every}; try {remedy}")
        if matches:
            found[channel] = matches[0]
    for column in set(found.values()):
        rivals = [channel for channel in found if found[channel] == column]
        exact = [channel for channel in rivals if strip_unit(column) == strip_unit(channel)]
        if len(rivals) > 1 and len(exact) != 1:
            remedy = advice.column_mapping({rivals[0]: column})
            raise DataError(f"column {column} may be any of the channels {', '.join(rivals)}; try {remedy}")
        found = {channel: c for channel, c in found.items() if c != column or len(rivals) == 1 or channel in exact}
    return found


def reuse_columns(known: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the columns of an earlier file that another file also has.

    Examples
    --------
    >>> reuse_columns({"T": "temp. 1", "u": "2"}, ["t", "temp. 1"])
    {'T': 'temp. 1'}
    """
    has_header = not have_number_names(names)
    # Column numbers do not apply to a file with a header, whose columns may have another order.
    usable = {IGNORED_COLUMN, *(name for name in names if name.isdigit() != has_header)}
    usable |= {strip_unit(name) for name in usable}
    return {name: column for name, column in known.items() if column in usable}


_UNIT_IN_BRACKETS_PATTERN = re.compile(r"(?:\[(?P<square>[^\[\]]*)\]|\((?P<round>[^()]*)\))\s*$")
_UNIT_SUFFIX_PATTERN = re.compile(r"(?:_|\s+in\s+|\s*/\s*|,\s*)(?P<unit>[^\W\d_]+)$")
#: Units without brackets, as in ``T / K`` or ``T in K``.
_UNIT_AFTER_NAME_PATTERN = re.compile(r"\s+(?:/|in)\s+(?P<unit>.+)$")
#: Common marks for quantities without a unit.
_DIMENSIONLESS_MARKERS = ("", "-", "--", "1", "none", "n/a", "/")
_DERIVATIVE_PATTERN = re.compile(r"(?P<channel>\w+)(?P<primes>'+)")


def unit_from_name(column: str, *, is_time: bool = False) -> str:
    """Return the unit in the name of a column; empty if there is none.

    Square brackets always contain a unit. Round ones, or a text after ``/`` or ``in``, are one only if it is known.

    Examples
    --------
    >>> [unit_from_name(name) for name in ("angle [deg]", "x (filtered)", "Ta / K")]
    ['deg', '', 'K']
    >>> unit_from_name("time_ms", is_time=True)
    'ms'
    """
    text = unicodedata.normalize("NFC", column).strip()
    if found := _UNIT_IN_BRACKETS_PATTERN.search(text):
        unit = found["square"] if found["square"] is not None else found["round"]
        certain = found["square"] is not None or is_known_unit(unit)
        return unit.strip() if certain and unit.strip().lower() not in _DIMENSIONLESS_MARKERS else ""
    if found := _find_unit_after_name(text):
        return found["unit"]
    if is_time and (found := _UNIT_SUFFIX_PATTERN.search(text)) and find_unit_conversion(found["unit"], "s"):
        return found["unit"]
    return ""


def _target_unit(name: str, declared: Mapping[str, str], from_headers: Mapping[str, str]) -> str:
    """Return the unit of an observable in the model; empty if it is unknown."""
    if unit := declared.get(name) or from_headers.get(name):
        return unit
    time = declared.get("t", "")
    if interval := parse_interval(name):
        expression, _, is_total = interval
        unit = _target_unit(expression, declared, from_headers)
        return (f"({unit})*({time})" if unit and time else "") if is_total else unit
    match = _DERIVATIVE_PATTERN.fullmatch(name)
    channel = declared.get(match["channel"], "") if match else ""
    return f"({channel})/({time})^{len(match['primes'])}" if match and channel and time else ""


def find_column_conversions(
    columns: ColumnMapping, time_unit: str, declared: Mapping[str, str], from_headers: dict[str, str]
) -> tuple[dict[str, UnitConversion], list[str]]:
    """Return the unit conversions of columns, by observable, ``t`` and ``std(x)``, and notes about them.

    Units that are not declared are added to `from_headers`.
    """
    found: dict[str, UnitConversion] = {}
    notes: list[str] = []
    own_units = {"t": (columns.time, time_unit)}
    own_units |= {name: (column, unit_from_name(column)) for name, column in columns.values.items()}
    for name, (column, own) in own_units.items():
        if not own:
            continue
        target = _target_unit(name, declared, from_headers)
        if not target and declared and name != "t" and not re.fullmatch(r"\w+'*", name) and is_known_unit(own):
            raise DataError(
                f"column {column}: its name has the unit {own}, and that of {name} is not known; give {name} in the "
                "units of the model, in a column without a unit in its name"
            )
        if not target:
            expression, _, is_total = parse_interval(name) or (name, 0, False)
            if not is_total:
                from_headers[expression] = own
            continue
        found[name] = _require_conversion(name, column, own, target)
        if not found[name].is_identity:
            notes.append(f"{name} is converted from {own} to {target.replace('(', '').replace(')', '')}")
    for name, column in columns.noise.items():
        own, target = unit_from_name(column), _target_unit(name, declared, from_headers)
        # Without its own unit, a noise column has the unit of the values.
        known = found.get(name, UnitConversion())
        found[f"std({name})"] = _require_conversion(name, column, own, target) if own and target else known
    return {name: conversion for name, conversion in found.items() if not conversion.is_identity}, notes


def _require_conversion(name: str, column: str, own: str, target: str) -> UnitConversion:
    conversion = find_unit_conversion(own, target)
    if conversion is None:
        what = f"column {column} is in {own}, according to its name"
        if unit_from_name(column, is_time=name == "t") != own:
            what = f"dates and durations in column {column} are seconds"
        if unknown := [unit for unit in (own, target) if not is_known_unit(unit)]:
            what = f"unknown unit {unknown[0]}: {what}"
        raise DataError(
            f"{what}, but {name} is in {target} ([units] in the system file, or the labels of the fit), and one cannot "
            "be converted to the other; correct the unit, or the name of the column"
        )
    return conversion
