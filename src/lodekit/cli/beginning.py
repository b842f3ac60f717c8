"""The command to begin with: a system file from equations, from a data file, or from both."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lodekit.cli.app import (
    ChannelsOption,
    ForceOption,
    HeaderOption,
    MapOption,
    OutOption,
    ParamOption,
    PositiveOption,
    read_names,
    read_roles,
    say,
)
from lodekit.cli.inputs import deliver
from lodekit.errors import LodekitError
from lodekit.system.parameters import read_parameters
from lodekit.system.system import System
from lodekit.system.templates import Contents, format_system_file

if TYPE_CHECKING:
    from lodekit.data.looking import Look
    from lodekit.proposal import Guess

__all__ = ["init", "is_terminal"]

_KINDS = ("hold", "linear", "no")


def init(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[EQUATIONS | FILE]", help="Equations as text, separated by ';'; or with --data the file to write."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", "-d", help="A data file: its columns become channels, inputs, units.")
    ] = None,
    param: ParamOption = None,
    positive: PositiveOption = None,
    channel: ChannelsOption = None,
    mapping: MapOption = None,
    header: HeaderOption = None,
    title: Annotated[str, typer.Option("--title", help="What the report is called.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; take what is guessed.")] = False,
    out: OutOption = None,
    force: ForceOption = False,
) -> None:
    """Write a commented system file, from equations or from a data file, to be filled in.

    With --data, columns that are held or switched are proposed as known inputs. On a terminal it asks.

    Examples: lodekit init "tau*y' + y = K*u" --positive tau --param K --out plant.toml;
    lodekit init plant.toml --data log.csv
    """
    equations = source or ""
    if equations.strip().lower().endswith(".toml") and "=" not in equations:
        if out is not None:
            raise LodekitError(f"expected {equations} or --out {out} as the file to write, got both")
        equations, out = "", Path(equations.strip())
    if not equations.strip() and data is None:
        raise LodekitError('expected equations, such as "tau*y\' + y = K*u", or a data file, --data log.csv')
    if not equations.strip() and (param or positive or channel or mapping):
        raise LodekitError("--param, --positive, --channels and --map go with equations; expected these, too")
    if mapping and data is None:
        raise LodekitError("--map goes with a data file; expected --data")
    if out is not None and os.path.exists(out) and not force:
        raise LodekitError(f"{out} is there already; expected a new name, or --force")
    known = read_roles(equations, param, positive)
    names, channels = list(known), read_names(channel) or None
    above = {name: "positive = true" for name, own in known.items() if own.positive}
    if data is None:
        text = format_system_file(equations, names, channels, title=title, contents=Contents(about=above))
    else:
        text = _propose(equations, names, channels, data, mapping or [], header, title, yes, above)
    deliver(text, out)
    if out is not None:
        example = "DATA.csv" if data is None else shlex.quote(str(data))
        say(f"wrote {out}; next: lodekit fit {shlex.quote(str(out))} {example}")


def _propose(
    equations: str,
    parameters: list[str],
    channels: list[str] | None,
    data: Path,
    mapping: list[str],
    header: bool | None,
    title: str,
    yes: bool,
    known: dict[str, str],
) -> str:
    """Return a system file from a data file, and say what was guessed and why."""
    from lodekit.data.looking import look_at
    from lodekit.data.tables import read_mapping
    from lodekit.proposal import find_channels, propose_file

    system = None
    if equations.strip():
        system = System(equations, parameters=read_parameters(parameters), channels=channels)
    where = read_mapping(mapping)
    look = look_at(data, header)
    guesses = find_channels(look, system, where)
    for line in _describe(data, look, guesses, system):
        say(line)
    if system is None and not guesses:
        raise LodekitError(f"{data}: expected columns of numbers that change, found none beside the time")
    if not yes and is_terminal():
        guesses = [_ask(guess) for guess in guesses]
    if system is None and not any(guess.kind for guess in guesses):
        say("no input is known, so no equations are guessed: write them into the file")
    elif system is None:
        say("its equations are a guess to begin with: one time constant for each; write your own")
    said = equations.strip()
    return propose_file(look, guesses, said, parameters, channels, mapping=where, title=title, known=known)


def is_terminal() -> bool:
    """Return whether there is somebody to ask."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _describe(data: Path, look: Look, guesses: Sequence[Guess], system: System | None) -> list[str]:
    """Return what was found in a file, a line for each column."""
    if look.time is None:
        lines = [
            f"{data.name}: {look.count} rows; no column is a time: say the time between two rows, fit ... --dt 0.1"
        ]
    else:
        unit = f", in {look.time.unit}" if look.time.unit else "; its unit is not known, write it under [units]"
        lines = [f"{data.name}: {look.count} rows; t is column {look.time.name}: {look.why}{unit}"]
    if look.record:
        lines.append(f"records: column {look.record} changes where times start anew")
    for guess in guesses:
        column = "" if guess.column.name == guess.channel else f" (column {guess.column.name})"
        what = "a known input, held between samples" if guess.kind else "measured"
        lines.append(f"{guess.channel}{column}: {what}: it {guess.reason}")
    used = {guess.column.name for guess in guesses}
    if system is None:
        lines += [f"{c.name}: left out: it never changes" for c in look.columns if c.name not in used]
        lines += [f"{name}: left out: it {what}" for name, what in look.left_out.items()]
    elif absent := [n for n in system.plain_channels if n not in {guess.channel for guess in guesses}]:
        lines.append(f"no column for {', '.join(absent)}: not measured, or say where, --map {absent[0]}=COLUMN")
    if sum(not guess.kind for guess in guesses) > 1:
        lines.append("a measured column that is known as well, such as the weather, goes under [inputs], too")
    return lines


def _ask(guess: Guess) -> Guess:
    """Return a guess as the person at the terminal sees it."""
    default = guess.kind or "no"
    text = f"{guess.channel}: a known input? hold (kept between samples), linear, or no"
    while (answer := typer.prompt(text, default=default, err=True).strip().lower()) not in _KINDS:
        say(f"expected hold, linear or no, got {answer}")
    if answer == default:
        return guess
    return replace(
        guess, kind="" if answer == "no" else answer, reason="is known" if answer != "no" else "was measured"
    )
