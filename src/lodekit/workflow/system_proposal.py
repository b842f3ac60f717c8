"""Propose a system file for a data file: channels, inputs, units, and first-order equations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lodekit.data.preview import ColumnPreview, TablePreview
from lodekit.data.tables.columns import IGNORED_COLUMN, ArgumentSyntax, is_time_name, resolve_columns, strip_unit
from lodekit.errors import DataError, EquationError, LodekitError
from lodekit.support.interval_means import IntervalObservable, parse_interval
from lodekit.system.dimensions import check_units
from lodekit.system.files import SystemFileHints, format_system_file
from lodekit.system.parameters import parse_names
from lodekit.system.system import System


@dataclass(frozen=True)
class ColumnRole:
    """The proposed role of a column.

    input_kind: The interpolation of an input between samples; empty for a measured channel.
    reason: The reason, for users.
    """

    channel: str
    column: ColumnPreview
    input_kind: str = ""
    reason: str = ""


def guess_column_roles(
    preview: TablePreview, channels: Sequence[str] | None = None, mapping: Mapping[str, str] | None = None
) -> list[ColumnRole]:
    """Return the roles of columns: those of some channels, or all numeric ones."""
    if channels is None:
        usable = [column for column in preview.columns if not column.is_constant]
        return _guess_roles(dict(zip(_channel_names(usable, preview.has_header), usable, strict=True)))
    time = None if preview.time is None or "t" in (mapping or {}) else preview.time.name
    known, syntax = {column.name: column for column in preview.columns}, ArgumentSyntax(in_shell=True)
    try:
        places = resolve_columns(preview.names, channels, mapping, time, syntax=syntax).values
    except DataError:
        if preview.has_header or mapping:
            raise
        return []
    return _guess_roles({name: known[column] for name, column in places.items() if column in known})


#: Words in the names of weather columns.
_WEATHER_WORDS = (
    r"outdoor|outside|exterior|ambient|t?amb|t?ext|weather|solar|sun|irradiance|irradiation|radiation|ghi|dni|dhi|wind"
    r"|au(?:ss|ß)en\w*|\w*strahlung|sonne|sonnenschein\w*|wetter\w*|umgebung\w*|soleil|insolation|ext[eé]rieure?"
    r"|oat|^t_?[ao]\s*(?:[\[(/].*|in .*)?$"
)
#: With a room, "out" is an outdoor temperature; otherwise it may be the outlet of a heat exchanger.
_ROOM_WORDS, _OUTDOOR_WORDS = r"room|indoor|zone|^t_?i", r"t?out"


def _guess_roles(columns: Mapping[str, ColumnPreview]) -> list[ColumnRole]:
    """Return the roles of columns by channel: inputs are stepped, or weather beside other measured channels."""

    def names_one_of(words: str, column: ColumnPreview) -> bool:
        return bool(re.search(rf"(?<![a-z])({words})(?![a-z])", column.name.lower()))

    words = _WEATHER_WORDS
    if any(names_one_of(f"{_WEATHER_WORDS}|{_ROOM_WORDS}", column) for column in columns.values()):
        words = f"{words}|{_OUTDOOR_WORDS}"
    weather = {name for name, column in columns.items() if names_one_of(words, column)}
    others = [name for name, column in columns.items() if name not in weather and not column.input_evidence]
    roles = []
    for name, column in columns.items():
        kind, reason = ("hold", column.input_evidence) if column.input_evidence else ("", "looks like a sensor signal")
        if others and name in weather:
            kind, reason = "linear", "has a name that suggests weather data"
        roles.append(ColumnRole(name, column, kind, reason))
    return roles


def _channel_names(columns: Sequence[ColumnPreview], has_header: bool) -> list[str]:
    """Return valid channel names: u and y without a header, otherwise those of the columns."""
    names: list[str] = []
    letters = ["u" if column.input_evidence else "y" for column in columns]
    for index, (letter, column) in enumerate(zip(letters, columns, strict=True)):
        plain = strip_unit(column.name) if has_header else ""
        average = _interval_of_column(column)
        name = re.sub(r"\W+", "_", plain if average is None else average[0]).strip("_")
        try:
            (name,) = parse_names([name], "channel")
        except EquationError:
            name = letter if letters.count(letter) == 1 else f"{letter}{1 + letters[:index].count(letter)}"
        while name in names:
            name += "_"
        names.append(name)
    return names


def _interval_of_column(column: ColumnPreview) -> IntervalObservable | None:
    """Return the average of a channel in the name of a column, ``mean(T, 300) [degC]``; None for point values."""
    try:
        interval = parse_interval(re.sub(r"\s*\[[^\[\]]*\]\s*$", "", column.name))
    except EquationError:
        return None
    return interval if interval is not None and interval[0].isidentifier() else None


def propose_first_order_equations(roles: Sequence[ColumnRole]) -> tuple[str, dict[str, str]]:
    """Return proposed equations and the definitions of their parameters; empty without inputs or outputs.

    Each output responds to all inputs with one gain for each, one time constant and an offset.
    """
    inputs = [guess.channel for guess in roles if guess.input_kind]
    outputs = [guess.channel for guess in roles if not guess.input_kind]
    if not inputs or not outputs:
        return "", {}
    taken = {*inputs, *outputs}
    lines, about = [], dict[str, str]()

    def new(name: str, known: str = "") -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        about[name] = known
        return name

    for row, output in enumerate(outputs, 1):
        end = str(row) if len(outputs) > 1 else ""
        tau = new(f"tau{end}", "positive = true")
        gains = [new(f"K{end}{column if len(inputs) > 1 else ''}") for column in range(1, len(inputs) + 1)]
        offset = new(f"{output}_0" if output[-1].isdigit() else f"{output}0")
        drive = " + ".join(f"{gain}*{name}" for gain, name in zip(gains, inputs, strict=True))
        lines.append(f"{tau}*{output}' + {output} - {offset} = {drive}")
    return "\n".join(lines), about


def propose_system_file(
    preview: TablePreview,
    roles: Sequence[ColumnRole],
    equations: str = "",
    parameters: Sequence[str] = (),
    channels: Sequence[str] | None = None,
    *,
    mapping: Mapping[str, str] | None = None,
    disturbances: Mapping[str, str] | None = None,
    title: str = "",
    parameter_definitions: Mapping[str, str] | None = None,
    dt: float | None = None,
    timezone: str = "",
    split_gaps: bool = False,
) -> str:
    """Return the text of a system file with the information from a data file."""
    about = dict(parameter_definitions or {})
    remark = ""
    if not equations:
        equations, about = propose_first_order_equations(roles)
        parameters = list(about)
        if equations:
            channels = None
            remark = "A first guess: each measured channel follows the inputs with one time constant."
            remark += " Write your own."
        else:
            channels = [guess.channel for guess in roles]
            remark = "No column looks like an input, so there is no guess; write equations and their parameters below."
    contents = SystemFileHints(
        units=_consistent_units(preview, roles, equations, parameters),
        inputs={guess.channel: (guess.input_kind, guess.reason) for guess in roles if guess.input_kind},
        disturbances=disturbances or {},
        columns=_explicit_columns(preview, roles, mapping or {}),
        records=preview.record_column,
        split_gaps=split_gaps,
        dt=dt,
        timezone=timezone,
        missing=sorted({value for guess in roles for value in guess.column.failures}),
        parameter_options=about,
        comment=remark,
    )
    return format_system_file(equations, parameters, channels, title=title, hints=contents)


def _consistent_units(
    preview: TablePreview, roles: Sequence[ColumnRole], equations: str, parameters: Sequence[str]
) -> dict[str, str]:
    """Return the units in column names; none if the equations contradict them."""
    own = [guess for guess in roles if (average := _interval_of_column(guess.column)) is None or not average[2]]
    units = {guess.channel: guess.column.unit for guess in own if guess.column.unit}
    if preview.time is not None and preview.time.unit:
        units["t"] = preview.time.unit
    if equations:
        try:
            check_units(System(equations, parameters=list(parameters)), units)
        except LodekitError:
            return {}
    return units


def _explicit_columns(
    preview: TablePreview, roles: Sequence[ColumnRole], mapping: Mapping[str, str]
) -> dict[str, int | str]:
    """Return the columns that are not found by their names; columns without a name by number."""
    found: dict[str, int | str] = {}
    if preview.time is not None and [name for name in preview.names if is_time_name(name)] != [preview.time.name]:
        found["t"] = preview.time.name if _has_column_name(preview, preview.time) else preview.time.number
    for guess in roles:
        name, column = guess.channel, guess.column
        if name in mapping:
            found[name] = mapping[name]
        elif _interval_of_column(column) is None and not _is_recognized_by_name(preview, name, column):
            found[name] = column.name if _has_column_name(preview, column) else column.number
    return found | {name: column for name, column in mapping.items() if column == IGNORED_COLUMN}


def _is_recognized_by_name(preview: TablePreview, channel: str, column: ColumnPreview) -> bool:
    """Return whether a column is assigned to a channel by its name."""
    try:
        time = None if preview.time is None else preview.time.name
        return resolve_columns(preview.names, [channel], None, time).values[channel] == column.name
    except DataError:
        return False


def _has_column_name(preview: TablePreview, column: ColumnPreview) -> bool:
    return preview.has_header and not re.fullmatch(r"unnamed \d+|\d+", column.name)
