"""A system file from a data file: channels, inputs, units, and equations to begin with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lodekit.data.looking import Column, Look
from lodekit.data.tables.advice import Advice
from lodekit.data.tables.columns import LEFT_OUT, find_columns, is_time_name
from lodekit.errors import DataError, EquationError, LodekitError
from lodekit.intervals import Interval, read_interval
from lodekit.system.dimensions import check_units
from lodekit.system.names import list_names
from lodekit.system.system import System
from lodekit.system.templates import Contents, format_system_file

__all__ = ["Guess", "find_channels", "guess_equations", "propose_file"]

_GUESS = (
    "A first guess, to begin with: whatever was measured follows the inputs with one time constant. Write your own."
)
_OPEN = "No column looks like an input, so there is no guess; write your equations, and their parameters below."


@dataclass(frozen=True)
class Guess:
    """What a column is taken for.

    Parameters
    ----------
    channel : str
    column : Column
    kind : {"", "hold", "linear", "auto"}
        Of an input, what it does between samples; empty for what was measured.
    reason : str
        In words.
    """

    channel: str
    column: Column
    kind: str = ""
    reason: str = ""


def find_channels(look: Look, system: System | None = None, mapping: Mapping[str, str] | None = None) -> list[Guess]:
    """Return what each column is taken for: those of a system's channels, or all that hold numbers.

    Parameters
    ----------
    look : Look
    system : System, optional
        Whose channels are looked for.
    mapping : dict of channel to column, optional
        Where channels of the system are, as ``--map`` says it.
    """
    if system is None:
        usable = [column for column in look.columns if not column.is_constant]
        named = _name_columns(usable, look.has_header)
        return [_guess(name, column) for name, column in zip(named, usable, strict=True)]
    time = None if look.time is None else look.time.name
    known = {column.name: column for column in look.columns}
    try:
        own_time = None if "t" in (mapping or {}) else time
        found = find_columns(look.names, system.plain_channels, mapping, own_time, advice=Advice(in_shell=True))
    except DataError:
        if look.has_header or mapping:
            raise
        return []
    return [_guess(name, known[column]) for name, column in found.values.items() if column in known]


def _guess(channel: str, column: Column) -> Guess:
    if column.stepped:
        return Guess(channel, column, "hold", column.stepped)
    return Guess(channel, column, "", "changes as sensors do")


def _name_columns(columns: Sequence[Column], has_header: bool) -> list[str]:
    """Return names that equations can have: u and y without a header, otherwise those of the columns."""
    found: list[str] = []
    counts = {letter: sum(bool(c.stepped) == (letter == "u") for c in columns) for letter in "uy"}
    for column in columns:
        letter = "u" if column.stepped else "y"
        plain = re.sub(r"\s*(\[[^\[\]]*\]|\([^()]*\))\s*$", "", column.name) if has_header else ""
        average = _average(column)
        name = re.sub(r"\W+", "_", plain if average is None else average.expression).strip("_")
        try:
            (name,) = list_names([name], "channel")
        except EquationError:
            number = 1 + sum(bool(c.stepped) == bool(column.stepped) for c in columns[: columns.index(column)])
            name = letter if counts[letter] == 1 else f"{letter}{number}"
        while name in found:
            name += "_"
        found.append(name)
    return found


def _average(column: Column) -> Interval | None:
    """Return which average of a channel a column holds as its name says, ``mean(T, 300) [degC]``; None for values."""
    try:
        found = read_interval(re.sub(r"\s*\[[^\[\]]*\]\s*$", "", column.name))
    except EquationError:
        return None
    return found if found is not None and found.expression.isidentifier() else None


def guess_equations(guesses: Sequence[Guess]) -> tuple[str, dict[str, str]]:
    """Return equations to begin with, and what is known of their parameters; nothing without inputs or outputs.

    Each output follows all inputs with a gain each, one time constant and an offset.

    Parameters
    ----------
    guesses : sequence of Guess

    Examples
    --------
    >>> guess_equations([Guess("u", Column("u", 2), "hold"), Guess("y", Column("y", 3))])
    ("tau*y' + y - y0 = K*u", {'tau': 'positive = true', 'K': '', 'y0': ''})
    """
    inputs = [guess.channel for guess in guesses if guess.kind]
    outputs = [guess.channel for guess in guesses if not guess.kind]
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


def propose_file(
    look: Look,
    guesses: Sequence[Guess],
    equations: str = "",
    parameters: Sequence[str] = (),
    channels: Sequence[str] | None = None,
    *,
    mapping: Mapping[str, str] | None = None,
    title: str = "",
    known: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a system file with what a data file tells.

    Parameters
    ----------
    look : Look
    guesses : sequence of Guess
        What columns are taken for.
    equations : str
        Of the user; guessed where there are none.
    parameters, channels : sequence of str
        That go with them.
    mapping : dict of channel to column, optional
        As the user said it.
    title : str
    known : dict of str to str, optional
        What parameters of the user's equations are known to be, in TOML.
    """
    about = dict(known or {})
    remark = ""
    if not equations:
        equations, about = guess_equations(guesses)
        remark, parameters = (_GUESS if equations else _OPEN), list(about)
        channels = None if equations else [guess.channel for guess in guesses]
    contents = Contents(
        units=_units(look, guesses, equations, parameters),
        inputs={guess.channel: (guess.kind, guess.reason) for guess in guesses if guess.kind},
        columns=_columns(look, guesses, mapping or {}),
        records=look.record,
        about=about,
        remark=remark,
    )
    return format_system_file(equations, parameters, channels, title=title, contents=contents)


def _units(look: Look, guesses: Sequence[Guess], equations: str, parameters: Sequence[str]) -> dict[str, str]:
    """Return the units that names of columns tell; none where equations contradict them."""
    own = [guess for guess in guesses if (average := _average(guess.column)) is None or not average.is_total]
    units = {guess.channel: guess.column.unit for guess in own if guess.column.unit}
    if look.time is not None and look.time.unit:
        units["t"] = look.time.unit
    if equations:
        try:
            check_units(System(equations, parameters=list(parameters)), units)
        except LodekitError:
            return {}
    return units


def _columns(look: Look, guesses: Sequence[Guess], mapping: Mapping[str, str]) -> dict[str, int | str]:
    """Return the columns that their names do not tell; those without a name by number."""
    found: dict[str, int | str] = {}
    if look.time is not None and [name for name in look.names if is_time_name(name)] != [look.time.name]:
        found["t"] = look.time.name if _has_name(look, look.time) else look.time.number
    for guess in guesses:
        name, column = guess.channel, guess.column
        if name in mapping:
            found[name] = mapping[name]
        elif _average(column) is None and not _is_told(look, name, column):
            found[name] = column.name if _has_name(look, column) else column.number
    return found | {name: column for name, column in mapping.items() if column == LEFT_OUT}


def _is_told(look: Look, channel: str, column: Column) -> bool:
    """Return whether the name of a column tells by itself that it is that of a channel."""
    try:
        time = None if look.time is None else look.time.name
        return find_columns(look.names, [channel], None, time).values[channel] == column.name
    except DataError:
        return False


def _has_name(look: Look, column: Column) -> bool:
    return look.has_header and not re.fullmatch(r"unnamed \d+|\d+", column.name)
