"""Interval means and totals, as loggers and meters record them: parsing of texts such as ``mean(T, 300)``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fractions import Fraction

from lodekit.errors import EquationError

_UNIT_PATTERN = re.compile(r"\s*\[[^\[\]]*\]$")
_FUNCTION_PATTERN = re.compile(r"\s*(mean|total)\s*\(")
_NUMBER_PATTERN = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?|\.[0-9]+([eE][+-]?[0-9]{1,3})?")
#: A linear differential expression of channels, the length of the interval that ends at the time stamp, in the unit of
#: time, and whether the expression is integrated over that interval (a total) instead of averaged (a mean).
IntervalObservable = tuple[str, Fraction, bool]


def parse_interval(text: str) -> IntervalObservable | None:
    """Parse an interval mean or total; None if the text is neither.

    Examples
    --------
    >>> parse_interval("mean(T1 - T2, 300)")
    ('T1 - T2', Fraction(300, 1), False)
    >>> parse_interval("x'") is None
    True
    """
    opening = _FUNCTION_PATTERN.match(text)
    if opening is None:
        return None
    pieces, function = _split_arguments(text, opening.end()), opening[1]
    # A channel named mean or total may be written with its time argument.
    if pieces is None or pieces == ["t"]:
        return None
    if len(pieces) != 2 or not pieces[0]:
        raise EquationError(
            f"expected an expression and the length of the interval, such as {function}(T, 300), got {text.strip()!r}"
        )
    expression, written = pieces
    if _NUMBER_PATTERN.fullmatch(written) is None or not 1e-90 < float(written) < 1e90:
        raise EquationError(
            f"expected a number above zero for the interval of {function}({expression}, ...), in the unit of time, got "
            f"{written!r}"
        )
    if re.search(r"\b(mean|total)\s*\(", expression):
        raise EquationError(f"{text.strip()!r} averages twice; expected one interval, such as {function}(T, {written})")
    return expression, Fraction(written), function == "total"


def averaging_time(text: str) -> float:
    """Return the interval length of an observable; zero for point values.

    Examples
    --------
    >>> averaging_time("total(Q, 3600)"), averaging_time("Q")
    (3600.0, 0.0)
    """
    interval = parse_interval(text)
    return 0.0 if interval is None else float(interval[1])


def interval_from_column(column: str, channels: Collection[str]) -> str:
    """Return the interval mean or total in a column name, without its unit; empty if there is none.

    Examples
    --------
    >>> interval_from_column("mean(T, 300) [degC]", ["T"]), interval_from_column("mean(T)", ["T"])
    ('mean(T, 300)', '')
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
    interval = None if name in units else parse_interval(name)
    if interval is None:
        return units.get(name, "")
    expression, _, is_total = interval
    unit, time = (units.get(key, "").strip() for key in (expression, "t"))
    if not is_total:
        return unit
    return f"{f'({unit})' if '/' in unit else unit}*{time}" if unit and time else ""


def _split_arguments(text: str, start: int) -> list[str] | None:
    """Return the arguments of a call that starts at a position; None if text follows its closing parenthesis."""
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
