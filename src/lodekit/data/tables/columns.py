"""Which column of a file holds the time, and which one each channel."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lodekit.data.tables.advice import Advice
from lodekit.data.tables.places import naming
from lodekit.errors import DataError, EquationError
from lodekit.intervals import find_interval

__all__ = [
    "LEFT_OUT",
    "Columns",
    "are_numbered",
    "find_all_columns",
    "find_columns",
    "is_time_name",
    "list_columns",
    "read_mapping",
    "recall_names",
]

#: What stands for a column where a channel is not to be read.
LEFT_OUT = "-"
_TIMES = ("time", "times", "timestamp", "date", "datetime", "date_time", "date time", "zeit", "datum", "zeitstempel")
_UNIT = re.compile(r"\s*(?:\[[^\[\]]*\]|\([^()]*\))$")
#: The unit of a time may stand behind it without brackets.
_TIME_UNIT = re.compile(r"(?:_|\s+in\s+|\s*/\s*|,\s*)(?:[munµμ]?s|[mu]?sec|seconds?|min|minutes?|h|hr|hours?|d|days?)$")
_NOISE = re.compile(r"std\((?!\s*t\s*\))(.+)\)")


@dataclass(frozen=True)
class Columns:
    """The columns of a file that are read.

    Parameters
    ----------
    time : str
    values, noise : dict of observable to column
        Noise only where the mapping names it.
    record : str
        The column that says which record a line belongs to; empty where none does.
    """

    time: str
    values: dict[str, str]
    noise: dict[str, str]
    record: str = ""

    @property
    def numbers(self) -> list[str]:
        """Every column of times and numbers, each once."""
        return list(dict.fromkeys([self.time, *self.values.values(), *self.noise.values()]))

    @property
    def used(self) -> list[str]:
        """Every column that is read, each once."""
        return [*self.numbers, *([self.record] if self.record else [])]

    def with_record(self, names: Sequence[str], record: str, *, by_number: bool = True) -> Columns:
        """Return the same columns, and the one that says which record a line belongs to.

        Parameters
        ----------
        names : sequence of str
            The columns of the file, in order.
        record : str
            The name of the column, or its number counted from one.
        by_number : bool
            Whether a column may be named by its number.

        Examples
        --------
        >>> find_columns(["run", "t", "x"], ["x"]).with_record(["run", "t", "x"], "run").used
        ['t', 'x', 'run']
        """
        found = _locate(names, "the record", record.strip(), by_number)
        if found in self.numbers:
            raise DataError(f"column {found} is said to number the records, and to hold something else; choose one")
        return replace(self, record=found)


def read_mapping(texts: Iterable[str]) -> dict[str, str]:
    """Return what ``--map`` options say: observable (or ``t``) to column.

    Examples
    --------
    >>> read_mapping(["T1=temperature 1", "t=1"])
    {'T1': 'temperature 1', 't': '1'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, column = (part.strip() for part in text.partition("="))
        if not (name and equals and column):
            raise DataError(f"expected --map CHANNEL=COLUMN, such as --map T1=temp1 or --map t=1, got {text!r}")
        if name in found:
            raise DataError(f"--map names {name} twice, for {found[name]} and {column}; remove one of them")
        found[name] = column
    return found


def list_columns(names: Sequence[str]) -> str:
    """Return the names of columns for a message; many are cut short."""
    return ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")


def are_numbered(names: Sequence[str]) -> bool:
    """Return whether columns are called 1, 2, 3 and so on, as those of a file without a header are."""
    return list(names) == [str(number) for number in range(1, len(names) + 1)]


def is_time_name(name: str) -> bool:
    """Return whether a column is called like a time; a capital T is a temperature more often.

    Examples
    --------
    >>> [is_time_name(name) for name in ("t", "Time [ms]", "time_s", "T", "times two")]
    [True, True, True, False, False]
    """
    plain = _TIME_UNIT.sub("", _plain(name))
    return plain == "t" or plain.casefold() in _TIMES


def find_columns(
    names: Sequence[str],
    channels: Sequence[str],
    mapping: Mapping[str, str] | None = None,
    time: str | None = None,
    *,
    advice: Advice = Advice(),  # noqa: B008 - it cannot change
    by_number: bool = True,
) -> Columns:
    """Return which column is what: what the mapping says, then equal names, then names that differ in case and unit.

    Parameters
    ----------
    names : sequence of str
        The columns of the file, in order.
    channels : sequence of str
    mapping : dict of observable to column, optional
        A column is a name or a number counted from one. ``t`` is the time, ``std(T1)`` the noise of T1.
    time : str, optional
        The column of the time.
    advice : Advice
        The words of messages.
    by_number : bool
        Whether a column may be named by its number; where columns are called by numbers themselves, these are meant.

    Examples
    --------
    >>> find_columns(["Time", "t1 [degC]", "T2", "remark"], ["T1", "T2"]).values
    {'T1': 't1 [degC]', 'T2': 'T2'}
    """
    _check_distinct(names)
    wanted = _explicit(names, mapping or {}, time, by_number)
    noise = {match[1].strip(): wanted.pop(key) for key in [*wanted] if (match := _NOISE.fullmatch(key))}
    taken = {*wanted.values(), *noise.values()}
    open_channels = [name for name in channels if name not in wanted]
    equal = {name: name for name in open_channels if name in names and name not in taken}
    averages = _averages(names, channels, taken | set(equal), wanted)
    taken |= {*equal, *averages.values()}
    time_column = wanted.pop("t", None) or _find_time(names, taken, channels, advice, wanted)
    similar = _similar(names, [name for name in open_channels if name not in equal], taken | {time_column}, advice)
    found = {**wanted, **equal, **similar, **averages}
    if not found and channels:
        raise DataError(
            f"expected a column for at least one of {', '.join(channels)}, got the columns {list_columns(names)}; "
            f"try {advice.map({channels[0]: 'COLUMN'})}"
        )
    for name, column in noise.items():
        if name not in found:
            raise DataError(f"std({name}) names the column {column}, but {name} itself has no column; map it too")
    order = [*(name for name in channels if name in found), *(name for name in found if name not in channels)]
    return Columns(time_column, {name: found[name] for name in order}, noise)


def find_all_columns(
    tables: Mapping[str, Sequence[str]],
    channels: Sequence[str],
    mapping: Mapping[str, str] | None = None,
    time: str | None = None,
    *,
    advice: Advice = Advice(),  # noqa: B008 - it cannot change
    by_number: bool = True,
) -> list[Columns]:
    """Return the columns of several tables that belong together, by the rules of `find_columns`.

    Each may measure some of the channels only: a column that the mapping names must be in one of them at least. A
    channel that is mapped to ``-`` is left out, though a column is called like it.

    Parameters
    ----------
    tables : dict of str to sequence of str
        The columns of each table, by the name it has in messages.
    channels, mapping, time, advice, by_number
        As in `find_columns`.

    Examples
    --------
    >>> one, two = find_all_columns({"a": ["t", "x"], "b": ["t", "temp"]}, ["x", "T"], {"T": "temp"})
    >>> one.values, two.values
    ({'x': 'x'}, {'T': 'temp'})
    >>> find_all_columns({"a": ["t", "x", "y"]}, ["x", "y"], {"x": "-"})[0].values
    {'y': 'y'}
    """
    asked = {str(key).strip(): str(column).strip() for key, column in (mapping or {}).items()}
    channels = [name for name in channels if asked.get(name) != LEFT_OUT]
    asked = {key: column for key, column in asked.items() if column != LEFT_OUT}
    several, found, seen = len(tables) > 1, [], set[str]()
    options: dict[str, Any] = {"advice": advice, "by_number": by_number}
    for key, column in asked.items() if several else ():
        if not any(_is_there(names, column, by_number) for names in tables.values()):
            every = list_columns(list(dict.fromkeys(name for names in tables.values() for name in names)))
            raise DataError(f"expected a column {column} (for {key}) in some table, got the columns {every}")
    for where, names in tables.items():
        own = {k: c for k, c in asked.items() if not several or k == "t" or _is_there(names, c, by_number)}
        with naming(where):
            if several:
                # A column of noise may be in many tables, and counts where that of its values is.
                plain = {k: c for k, c in own.items() if not _NOISE.fullmatch(k)}
                values = find_columns(names, channels, plain, time, **options).values if plain != own else {}
                own = {k: c for k, c in own.items() if not (m := _NOISE.fullmatch(k)) or m[1].strip() in values}
            found.append(find_columns(names, channels, own, time, **options))
        seen |= set(own)
    if absent := [key for key in asked if key not in seen]:
        name = absent[0].removeprefix("std(").removesuffix(")")
        raise DataError(f"{absent[0]} names the column {asked[absent[0]]}, but {name} itself has no column; map it too")
    return found


def _is_there(names: Sequence[str], wanted: str, by_number: bool) -> bool:
    try:
        _locate(names, "", wanted, by_number)
    except DataError:
        return False
    return True


def _check_distinct(names: Sequence[str]) -> None:
    if not names:
        raise DataError("expected columns with names, found none")
    twice = list(dict.fromkeys(name for position, name in enumerate(names) if name in set(names[:position])))
    if twice:
        raise DataError(f"expected different names of columns, got {list_columns(twice)} more than once; rename them")


def _explicit(names: Sequence[str], mapping: Mapping[str, str], time: str | None, by_number: bool) -> dict[str, str]:
    """Return the columns that the user has named."""
    asked = {str(key).strip(): str(column).strip() for key, column in mapping.items()}
    if time is not None and asked.setdefault("t", str(time).strip()) != str(time).strip():
        raise DataError(f"the time is said to be in column {time} and in column {asked['t']}; choose one")
    found: dict[str, str] = {}
    for key, wanted in asked.items():
        if not key or not wanted:
            raise DataError(f"expected a channel and its column, got {key!r} and {wanted!r}")
        column = _locate(names, key, wanted, by_number)
        if column in found.values():
            other = next(name for name, already in found.items() if already == column)
            raise DataError(f"column {column} is mapped to {other} and to {key}; expected one column for each")
        found[key] = column
    return found


def _locate(names: Sequence[str], key: str, wanted: str, by_number: bool) -> str:
    """Return the column that is meant by its name, its number counted from one, or its name without a unit."""
    if wanted in names:
        return wanted
    if by_number and re.fullmatch(r"[0-9]{1,6}", wanted):
        if 1 <= int(wanted) <= len(names):
            return names[int(wanted) - 1]
        raise DataError(f"expected a column 1 to {len(names)} for {key}, got {wanted}")
    found = _candidates(wanted, names)
    if len(found) > 1:
        raise DataError(f"{wanted} (for {key}) may be any of the columns {list_columns(found)}; write its full name")
    if not found:
        raise DataError(f"expected a column {wanted} (for {key}), got the columns {list_columns(names)}")
    return found[0]


def _plain(name: str) -> str:
    """Return a name without blanks around it and without a unit in brackets."""
    return _UNIT.sub("", unicodedata.normalize("NFKC", name).strip()).strip()


def _candidates(wanted: str, names: Iterable[str]) -> list[str]:
    """Return the columns that are called so but for a unit; where there are none, but for the case as well."""
    plain = {name: _plain(name) for name in names}
    target = _plain(wanted)
    found = [name for name, text in plain.items() if text == target]
    return found or [name for name, text in plain.items() if text.casefold() == target.casefold()]


def _find_time(
    names: Sequence[str], taken: set[str], channels: Sequence[str], advice: Advice, wanted: Mapping[str, str]
) -> str:
    free = [name for name in names if name not in taken]
    if not channels and len(free) == 1:
        return free[0]
    found = [name for name in free if is_time_name(name)]
    if len(found) == 1:
        return found[0]
    if found:
        every = list_columns(found)
        raise DataError(f"the time may be in any of the columns {every}; try {advice.map({'t': found[0]})}")
    for name, column in wanted.items():
        if is_time_name(column):
            raise DataError(
                f"column {column} is said to hold {name}, and no other is called like a time (columns are counted from "
                f"one). Expected another column for {name}, of {list_columns(names)}, or one for the time, "
                f"{advice.map({'t': 'COLUMN'})}"
            )
    if are_numbered(names):
        name = channels[0] if channels else "CHANNEL"
        raise DataError(
            f"the table has no header, so its {len(names)} columns have numbers; name them: try "
            f"{advice.map({'t': 1, name: 2})}, or without a time {advice.step} and {advice.map({name: 1})}"
        )
    raise DataError(
        f"expected a column t or time, got the columns {list_columns(names)}; try {advice.map({'t': 'COLUMN'})}, or "
        f"where there is none, and the time between two rows is always the same, {advice.step}"
    )


def _averages(
    names: Sequence[str], channels: Sequence[str], taken: set[str], wanted: Mapping[str, str]
) -> dict[str, str]:
    """Return the columns that are called like averages of channels, such as ``mean(T, 300)``, by these."""
    found: dict[str, str] = {}
    for column in names:
        if column in taken:
            continue
        try:
            name = find_interval(column, channels)
        except EquationError as problem:
            raise DataError(f"column {column}: {problem}") from None
        if name and name in found:
            raise DataError(f"columns {found[name]} and {column} are both {name}; expected one column for each")
        if name and name not in wanted:
            found[name] = column
    return found


def _similar(names: Sequence[str], channels: Sequence[str], taken: set[str], advice: Advice) -> dict[str, str]:
    free = [name for name in names if name not in taken]
    found: dict[str, str] = {}
    for channel in channels:
        matches = _candidates(channel, free)
        if len(matches) > 1:
            raise DataError(
                f"channel {channel} may be in any of the columns {list_columns(matches)}; "
                f"try {advice.map({channel: matches[0]})}"
            )
        if matches:
            found[channel] = matches[0]
    for column in set(found.values()):
        rivals = [channel for channel in found if found[channel] == column]
        exact = [channel for channel in rivals if _plain(column) == _plain(channel)]
        if len(rivals) > 1 and len(exact) != 1:
            raise DataError(
                f"column {column} may be any of the channels {', '.join(rivals)}; try {advice.map({rivals[0]: column})}"
            )
        for channel in rivals if len(rivals) > 1 else ():
            if channel not in exact:
                del found[channel]
    return found


def recall_names(known: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return which of some columns hold what those of another file held; nothing where none does.

    Parameters
    ----------
    known : dict of str to str
        Where that file had channels and the time ``t``, by name or number.
    names : sequence of str
        Of the columns of this one.

    Examples
    --------
    >>> recall_names({"T": "temp. 1", "u": "2"}, ["t", "temp. 1"])
    {'T': 'temp. 1'}
    """
    has_header = not are_numbered(names)
    # The number of a column says nothing about a file that has names, and may have them in another order.
    return {
        name: column
        for name, column in known.items()
        if column == LEFT_OUT or (column in names and column.isdigit() != has_header)
    }
