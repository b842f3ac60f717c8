"""Interval means and totals, as loggers and meters deliver them: what a text such as ``mean(T, 300)`` says."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from lodekit.errors import EquationError

_UNIT_PATTERN = re.compile(r"\s*\[[^\[\]]*\]$")
_FUNCTION_PATTERN = re.compile(r"\s*(mean|total)\s*\(")
_NUMBER_PATTERN = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?|\.[0-9]+([eE][+-]?[0-9]{1,3})?")
#: Longer or shorter windows than these cannot be meant, and floats could not square them.
_MIN_WINDOW, _MAX_WINDOW = 1e-90, 1e90


@dataclass(frozen=True)
class IntervalObservable:
    """An expression, and the interval over which it is averaged or summed up, which ends at the time stamp.

    expression: What is averaged: a channel, or any linear differential expression of channels.
    window: The length of the interval, in the unit of time.
    is_total: Whether it is the integral, and not the mean.
    """

    expression: str
    window: Fraction
    is_total: bool

    @property
    def factor(self) -> Fraction:
        """What the mean is multiplied by: the window for a total, or one."""
        return self.window if self.is_total else Fraction(1)

    @property
    def length(self) -> float:
        """The window as a float."""
        return float(self.window)


def parse_interval(text: str) -> IntervalObservable | None:
    """Return what a text says of an interval; None where it is no mean and no total.

    Examples
    --------
    >>> parse_interval("mean(T1 - T2, 300)")
    Interval(expression='T1 - T2', window=Fraction(300, 1), is_total=False)
    >>> parse_interval("x'") is None
    True
    """
    opening = _FUNCTION_PATTERN.match(text)
    if opening is None:
        return None
    pieces = _split_arguments(text, opening.end())
    function = opening[1]
    # A channel that is called so may be written with its time.
    if pieces is None or pieces == ["t"]:
        return None
    if len(pieces) != 2 or not pieces[0]:
        raise EquationError(
            f"expected an expression and the length of the interval, such as {function}(T, 300), got {text.strip()!r}"
        )
    expression, written = pieces
    if _NUMBER_PATTERN.fullmatch(written) is None or not _MIN_WINDOW < float(written) < _MAX_WINDOW:
        raise EquationError(
            f"expected a number above zero for the interval of {function}({expression}, ...), in the unit of time, got "
            f"{written!r}"
        )
    if re.search(r"\b(mean|total)\s*\(", expression):
        raise EquationError(f"{text.strip()!r} averages twice; expected one interval, such as {function}(T, {written})")
    return IntervalObservable(expression, Fraction(written), function == "total")


def averaging_time(text: str) -> float:
    """Return the length of the interval of an observable; zero where it is a value at one time.

    Examples
    --------
    >>> averaging_time("total(Q, 3600)"), averaging_time("Q")
    (3600.0, 0.0)
    """
    found = parse_interval(text)
    return 0.0 if found is None else found.length


def interval_from_column(column: str, channels: Collection[str]) -> str:
    """Return the mean or total of channels that the name of a column says, without a unit behind it; or nothing.

    Examples
    --------
    >>> interval_from_column("mean(T, 300) [degC]", ["T"]), interval_from_column("mean(T)", ["T"]), interval_from_column("T", ["T"])
    ('mean(T, 300)', '', '')
    """
    text = _UNIT_PATTERN.sub("", column.strip()).strip()
    opening = _FUNCTION_PATTERN.match(text)
    pieces = None if opening is None else _split_arguments(text, opening.end())
    if pieces is None or len(pieces) < 2 or not set(re.findall(r"\w+", pieces[0])) & set(channels):
        return ""
    parse_interval(text)
    return text


def observable_unit(units: Mapping[str, str], name: str) -> str:
    """Return the unit of an observable: that of its channel for a mean, times that of time for a total.

    Examples
    --------
    >>> [observable_unit({"Q": "kW", "t": "h"}, name) for name in ("Q", "mean(Q, 1)", "total(Q, 1)", "Q'")]
    ['kW', 'kW', 'kW*h', '']
    """
    found = None if name in units else parse_interval(name)
    if found is None:
        return units.get(name, "")
    own, time = (units.get(key, "").strip() for key in (found.expression, "t"))
    if not found.is_total:
        return own
    bracketed = f"({own})" if "/" in own else own
    return f"{bracketed}*{time}" if own and time else ""


def _split_arguments(text: str, start: int) -> list[str] | None:
    """Return the arguments of a call whose parenthesis opens before a position; None where it is not the whole text."""
    depth, pieces, begin = 1, [], start
    for position in range(start, len(text)):
        character = text[position]
        depth += (character == "(") - (character == ")")
        if (character == "," and depth == 1) or depth == 0:
            pieces.append(text[begin:position].strip())
            begin = position + 1
        if depth == 0:
            return None if text[position + 1 :].strip() else pieces
    return None
