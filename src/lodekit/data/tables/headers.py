"""Units in the names of columns, and what they ask for: numbers are converted to the units of the model, or refused."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

from lodekit.data.tables.columns import Columns
from lodekit.errors import DataError
from lodekit.intervals import read_interval
from lodekit.quantities import Conversion, find_conversion, is_known

__all__ = ["ColumnUnits", "convert_columns", "find_unit"]

_BRACKETS = re.compile(r"(?:\[(?P<square>[^\[\]]*)\]|\((?P<round>[^()]*)\))\s*$")
_SUFFIX = re.compile(r"(?:_|\s+in\s+|\s*/\s*|,\s*)(?P<unit>[^\W\d_]+)$")
#: What people write where there is no unit.
_NONE = ("", "-", "--", "1", "none", "n/a", "/")
_DERIVATIVE = re.compile(r"(?P<channel>\w+)(?P<primes>'+)")


def find_unit(column: str, *, is_time: bool = False) -> str:
    """Return the unit in the name of a column; empty where there is none.

    Square brackets hold units. Others hold remarks as well: what is no known unit is none there.

    Parameters
    ----------
    column : str
    is_time : bool
        Whether it is a time, whose unit may stand behind the name without brackets.

    Examples
    --------
    >>> find_unit("angle [deg]"), find_unit("x (filtered)"), find_unit("time_ms", is_time=True)
    ('deg', '', 'ms')
    """
    text = unicodedata.normalize("NFC", column).strip()
    if found := _BRACKETS.search(text):
        unit = found["square"] if found["square"] is not None else found["round"]
        certain = found["square"] is not None or is_known(unit)
        return unit.strip() if certain and unit.strip().lower() not in _NONE else ""
    if is_time and (found := _SUFFIX.search(text)) and find_conversion(found["unit"], "s"):
        return found["unit"]
    return ""


@dataclass
class ColumnUnits:
    """The units of what is measured: those that are declared, and those that the names of columns tell.

    Parameters
    ----------
    declared : dict of str to str
        Units of channels and of the time ``t``; numbers in others are converted to these.
    told : dict of str to str
        Units of what has none declared, by the first column that tells; filled while columns are looked at.
    """

    declared: Mapping[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)

    def target(self, name: str) -> str:
        """Return the unit that an observable has in the end; empty where nothing tells."""
        if own := self.declared.get(name) or self.told.get(name):
            return own
        if average := read_interval(name):
            own, time = self.target(average.expression), self.declared.get("t", "")
            return (f"({own})*({time})" if own and time else "") if average.is_total else own
        found = _DERIVATIVE.fullmatch(name)
        channel, time = (self.declared.get(found["channel"], ""), self.declared.get("t", "")) if found else ("", "")
        return f"({channel})/({time})^{len(found['primes'])}" if found and channel and time else ""


def convert_columns(columns: Columns, time_unit: str, units: ColumnUnits) -> tuple[dict[str, Conversion], list[str]]:
    """Return how the numbers of columns are converted, by observable, ``t`` and ``std(x)``, and notes about it.

    Parameters
    ----------
    columns : Columns
    time_unit : str
        The unit of the times; that in the name of their column where there is one.
    units : ColumnUnits
        Gets what the columns tell.
    """
    found: dict[str, Conversion] = {}
    notes: list[str] = []
    own_units = {"t": (columns.time, time_unit)}
    own_units |= {name: (column, find_unit(column)) for name, column in columns.values.items()}
    for name, (column, own) in own_units.items():
        if not own:
            continue
        target = units.target(name)
        if not target and units.declared and name != "t" and not re.fullmatch(r"\w+'*", name) and is_known(own):
            raise DataError(
                f"column {column}: its name has the unit {own}, and that of {name} is not known; give {name} in the "
                "units of the model, in a column without a unit in its name"
            )
        if not target:
            average = read_interval(name)
            if average is None or not average.is_total:
                units.told[name if average is None else average.expression] = own
            continue
        found[name] = _convert(name, column, own, target)
        if not found[name].is_none:
            notes.append(f"{name} is converted from {own} to {target.replace('(', '').replace(')', '')}")
    for name, column in columns.noise.items():
        own, target = find_unit(column), units.target(name) or ""
        # Without a unit of its own, noise has that of the values beside it.
        found[f"std({name})"] = _convert(name, column, own, target) if own and target else found.get(name, Conversion())
    return {name: conversion for name, conversion in found.items() if not conversion.is_none}, notes


def _convert(name: str, column: str, own: str, target: str) -> Conversion:
    conversion = find_conversion(own, target)
    if conversion is None:
        what = f"the name of column {column} says that it is in {own}"
        if find_unit(column, is_time=name == "t") != own:
            what = f"dates and durations in column {column} are seconds"
        raise DataError(
            f"{what}, but {name} is in {target} ([units] in the system file, or the labels of the fit), and one cannot "
            "be converted to the other; correct the unit, or the name of the column"
        )
    return conversion
