"""The command that writes a system file, from equations, from a data file, or from both."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import lodekit as lk
from lodekit.cli.app import (
    ChannelsOption,
    ForceOption,
    HeaderOption,
    MapOption,
    OutOption,
    ParamOption,
    PositiveOption,
    parse_names,
    parse_parameter_options,
    print_message,
    write_output,
)
from lodekit.errors import LodekitError

if TYPE_CHECKING:
    from lodekit.data.preview import TablePreview
    from lodekit.workflow.system_proposal import ColumnRole


def init(
    source: Annotated[
        str | None,
        Argument(
            metavar="[EQUATIONS | FILE]", help="Equations as text, separated by ';'; or with --data the file to write."
        ),
    ] = None,
    data: Annotated[
        Path | None, Option("--data", "-d", help="A data file, from which channels, inputs and units are proposed.")
    ] = None,
    param: ParamOption = None,
    positive: PositiveOption = None,
    channel: ChannelsOption = None,
    mapping: MapOption = None,
    header: HeaderOption = None,
    title: Annotated[str, Option("--title", help="Title of the report.")] = "",
    yes: Annotated[bool, Option("--yes", "-y", help="Accept all proposals without asking.")] = False,
    out: OutOption = None,
    force: ForceOption = False,
) -> None:
    """Write a commented system file, from equations or from a data file, for you to complete.

    With --data, columns that are held or switched are proposed as known inputs; on a terminal you are asked.

    Examples: lodekit init "tau*y' + y = K*u" --positive tau --param K --out plant.toml;
    lodekit init plant.toml --data log.csv
    """
    from lodekit.system.files import SystemFileHints, format_system_file

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
        raise LodekitError(f"{out} already exists; expected a new name, or --force")
    known = parse_parameter_options(equations, param, positive)
    names, channels = list(known), parse_names(channel) or None
    above = {name: "positive = true" for name, own in known.items() if own.positive}
    if data is None:
        hints = SystemFileHints(parameter_options=above)
        text = format_system_file(equations, names, channels, title=title, hints=hints)
    else:
        text = _propose_from_data(equations, names, channels, data, mapping or [], header, title, yes, above)
    write_output(text, out)
    if out is not None:
        example = "DATA.csv" if data is None else shlex.quote(str(data))
        print_message(f"wrote {out}; next: lodekit fit {shlex.quote(str(out))} {example}")


def _propose_from_data(
    equations: str,
    parameters: list[str],
    channels: list[str] | None,
    data: Path,
    mapping: list[str],
    header: bool | None,
    title: str,
    yes: bool,
    parameter_definitions: dict[str, str],
) -> str:
    """Return a system file from a data file, and print the proposals with their reasons."""
    from lodekit.data.preview import preview_table
    from lodekit.data.tables import parse_mapping
    from lodekit.system.parameters import parse_parameters
    from lodekit.workflow.system_proposal import guess_column_roles, propose_system_file

    known = parse_parameters(parameters)
    system = lk.System(equations, parameters=known, channels=channels) if equations.strip() else None
    where = parse_mapping(mapping)
    look = preview_table(data, header)
    guesses = guess_column_roles(look, system, where)
    for line in _describe_columns(data, look, guesses, system):
        print_message(line)
    if system is None and not guesses:
        raise LodekitError(f"{data}: expected columns of numbers that change, found none beside the time")
    if not yes and is_terminal():
        guesses = [_ask_role(guess) for guess in guesses]
    if system is None and not any(guess.input_kind for guess in guesses):
        print_message("there is no known input, so no equations are proposed: write them into the file")
    elif system is None:
        print_message("its equations are a first guess, with one time constant for each output; write your own")
    texts: dict[str, Any] = {"mapping": where, "title": title, "parameter_definitions": parameter_definitions}
    return propose_system_file(look, guesses, equations.strip(), parameters, channels, **texts)


def is_terminal() -> bool:
    """Return whether the command runs on a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _describe_columns(
    data: Path, preview: TablePreview, roles: Sequence[ColumnRole], system: lk.System | None
) -> list[str]:
    """Return a description of a file, one line for each column."""
    if preview.time is None:
        lines = [
            f"{data.name}: {preview.n_rows} rows; no column is a time: say the time between two rows, fit ... --dt 0.1"
        ]
    else:
        unit = f", in {preview.time.unit}" if preview.time.unit else "; its unit is not known, write it under [units]"
        lines = [f"{data.name}: {preview.n_rows} rows; t is column {preview.time.name}: {preview.time_reason}{unit}"]
    if preview.record_column:
        lines.append(f"records: column {preview.record_column} changes where times start anew")
    for guess in roles:
        column = "" if guess.column.name == guess.channel else f" (column {guess.column.name})"
        what = "a known input, held between samples" if guess.input_kind else "measured"
        lines.append(f"{guess.channel}{column}: {what}: it {guess.reason}")
    used = {guess.column.name for guess in roles}
    if system is None:
        lines += [f"{c.name}: left out: it never changes" for c in preview.columns if c.name not in used]
        lines += [f"{name}: left out: it {what}" for name, what in preview.skipped_columns.items()]
    elif absent := [n for n in system.plain_channels if n not in {guess.channel for guess in roles}]:
        lines.append(f"no column for {', '.join(absent)}: not measured, or say where, --map {absent[0]}=COLUMN")
    if sum(not guess.input_kind for guess in roles) > 1:
        lines.append("a measured column that is known as well, such as the weather, goes under [inputs], too")
    return lines


def _ask_role(role: ColumnRole) -> ColumnRole:
    """Return the role of a column after asking the user."""
    default = role.input_kind or "no"
    text = f"{role.channel}: a known input? hold (kept between samples), linear, or no"
    while (answer := typer.prompt(text, default=default, err=True).strip().lower()) not in ("hold", "linear", "no"):
        print_message(f"expected hold, linear or no, got {answer}")
    if answer == default:
        return role
    if answer == "no":
        return replace(role, input_kind="", reason="was measured")
    return replace(role, input_kind=answer, reason="is known")
