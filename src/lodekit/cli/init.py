"""The command that writes a system file, from equations, from a data file, or from both."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import lodekit as lk
from lodekit.cli import arguments
from lodekit.errors import EquationError, LodekitError

if TYPE_CHECKING:
    from lodekit.data.preview import TablePreview
    from lodekit.workflow.system_proposal import ColumnRole


def init(
    source: Annotated[
        str | None,
        Argument(
            metavar="[EQUATIONS | FILE]",
            help="Equations as text, separated by ';'; or a data file; or with --data the file to write.",
        ),
    ] = None,
    data: Annotated[
        Path | None, Option("--data", "-d", help="A data file, from which channels, inputs and units are proposed.")
    ] = None,
    param: arguments.ParamOption = None,
    positive: arguments.PositiveOption = None,
    channel: arguments.ChannelsOption = None,
    mapping: arguments.MapOption = None,
    header: arguments.HeaderOption = None,
    dt: arguments.StepOption = None,
    split_gaps: arguments.SplitOption = False,
    timezone: arguments.TimezoneOption = None,
    title: Annotated[str, Option("--title", help="Title of the report.")] = "",
    yes: Annotated[bool, Option("--yes", "-y", help="Accept all proposals without asking.")] = False,
    out: arguments.OutOption = None,
    force: arguments.ForceOption = False,
) -> None:
    """Write a commented system file, from equations or from a data file, for you to complete.

    From a data file, columns that are held, switched or weather are proposed as known inputs; on a terminal you are
    asked.

    Examples: lodekit init "tau*y' + y = K*u" --positive tau --param K --out plant.toml;
    lodekit init plant.toml --data log.csv
    """
    from lodekit.system.files import SystemFileHints, format_system_file

    equations = source or ""
    if equations.strip().lower().endswith(".toml") and "=" not in equations:
        if out is not None:
            raise LodekitError(f"expected {equations} or --out {out} as the file to write, got both")
        equations, out = "", Path(equations.strip())
    if data is None and "=" not in equations and equations.strip() and os.path.isfile(equations.strip()):
        equations, data = "", Path(equations.strip())
    if re.fullmatch(r"[\w./\\:~ -]+", equations.strip()):
        raise LodekitError(f'expected equations, such as "tau*y\' + y = K*u", or a data file; {equations} is neither')
    if dt is not None and not 0.0 < dt < math.inf:
        raise LodekitError(f"expected --dt as a positive finite number, got {dt:g}")
    if not equations.strip() and data is None:
        raise LodekitError('expected equations, such as "tau*y\' + y = K*u", or a data file, --data log.csv')
    if not equations.strip() and (param or positive or channel or arguments.read_mapping(mapping).keys() - {"t"}):
        raise LodekitError("--param, --positive, --channels and --map of channels need equations; add them")
    if (mapping or dt is not None) and data is None:
        raise LodekitError(f"{'--map' if mapping else '--dt'} needs a data file; add --data FILE")
    if out is not None and os.path.exists(out) and not force:
        raise LodekitError(f"{out} already exists; expected a new name, or --force")
    known = arguments.parse_parameter_options(equations, param, positive)
    names, channels = list(known), arguments.parse_names(channel) or None
    above = {name: "positive = true" for name, own in known.items() if own.positive}
    before: list[str] = []
    if data is None:
        hints = SystemFileHints(parameter_options=above, split_gaps=split_gaps)
        text = format_system_file(equations, names, channels, title=title, hints=hints)
    else:
        texts = {"title": title, "parameter_definitions": above, "dt": dt, "split_gaps": split_gaps}
        texts |= {"timezone": timezone or ""}
        text, before = _propose_from_data(equations, names, channels, data, mapping or [], header, yes, texts)
    arguments.write_output(text, out)
    if out is not None:
        example = "DATA.csv" if data is None else shlex.quote(str(data))
        before = before or (_check_reading(out, data, header) if data else [])
        steps = "; ".join([*before, f"lodekit fit {shlex.quote(str(out))} {example}"])
        arguments.print_message(f"wrote {out}; next: {steps}")


def _propose_from_data(
    equations: str,
    parameters: list[str],
    channels: list[str] | None,
    data: Path,
    mapping: list[str],
    header: bool | None,
    yes: bool,
    texts: dict[str, Any],
) -> tuple[str, list[str]]:
    """Return a system file from a data file, and the next steps before a fit; print the proposals with reasons."""
    from lodekit.data.preview import preview_table
    from lodekit.data.tables.columns import resolve_columns
    from lodekit.system.files import describe_nonlinear_product
    from lodekit.system.parameters import parse_parameters
    from lodekit.workflow.system_proposal import guess_column_roles, propose_system_file

    known, dt = parse_parameters(parameters), texts["dt"]
    where, look = arguments.read_mapping(mapping), preview_table(data, header)
    try:
        system = lk.System(equations, parameters=known, channels=channels) if equations.strip() else None
    except EquationError as problem:
        text = describe_nonlinear_product(problem, (*look.names, *where), "a column of the data")
        raise (LodekitError(text) if text else problem) from None
    if "t" in where:
        look = preview_table(data, header, resolve_columns(look.names, (), {"t": where["t"]}).time)
    if dt is not None and look.time is not None:
        raise LodekitError(
            f"{data}: the file has a time column, {look.time.name}; leave out --dt, or rename the column"
        )
    guesses = guess_column_roles(look, system and system.plain_channels, where)
    for line in _describe_columns(data, look, guesses, system, dt):
        arguments.print_message(line)
    if system is None and not guesses:
        raise LodekitError(f"{data}: expected columns of numbers that change, found none beside the time")
    if not yes and is_terminal():
        guesses = [_ask_role(guess) for guess in guesses]
    problems = [each.problem for each in (look.time, *(guess.column for guess in guesses)) if each and each.problem]
    before = [f"correct {data.name}"] if problems else []
    if look.time is None and dt is None:
        before.append("write the sampling interval into the file, dt = ...")
    if look.clock_change and not texts["timezone"]:
        arguments.print_message(f"the local times jump by an hour at {look.clock_change}, as clocks do")
        before.append('write the time zone into the file, such as timezone = "Europe/Berlin", above the first table')
    if system is None and len({bool(guess.input_kind) for guess in guesses}) < 2:
        missing = "an output" if guesses[0].input_kind else "an input"
        arguments.print_message(f"no column looks like {missing}, so no equations are proposed")
        before.append("write your equations into the file")
    elif system is None:
        arguments.print_message(
            "the proposed equations are only a first guess, with one time constant for each output; write your own"
        )
    texts["split_gaps"] = texts["split_gaps"] or bool(look.gaps)
    return propose_system_file(look, guesses, equations.strip(), parameters, channels, mapping=where, **texts), before


def _check_reading(file: Path, data: Path, header: bool | None) -> list[str]:
    """Print why a fit cannot read the data; return what to do then."""
    from lodekit.workflow.pipeline import prepare_fit

    try:
        gp, found = prepare_fit(lk.read_system_file(file), data, header=header, in_shell=True)
        found.measurements.with_known_inputs(gp.inputs or {})
    except LodekitError as problem:
        arguments.print_message(f"lodekit fit cannot read the data yet: {problem}")
        return [f"correct {data.name} or {file}"]
    return []


def is_terminal() -> bool:
    """Return whether the command runs on a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _describe_columns(
    data: Path, preview: TablePreview, roles: Sequence[ColumnRole], system: lk.System | None, dt: float | None
) -> list[str]:
    """Return a description of a file, one line for each column."""
    from lodekit.data.sources import FAILED_SENSOR

    if preview.time is not None:
        unit = f", in {preview.time.unit}" if preview.time.unit else "; its unit is not known, write it under [units]"
        time = f"t is column {preview.time.name}: {preview.time_reason}{unit}"
    else:
        step = ": give the sampling interval, --dt 0.1" if dt is None else f"; dt = {dt:g}"
        time = f"there is no time column{step}"
    lines = [f"{data.name}: {preview.n_rows} rows; {time}"]
    if preview.time is not None and preview.time.problem:
        lines.append(f"the time cannot be read yet: {preview.time.problem}")
    if preview.gaps:
        lines.append(f"the log has {preview.gaps}: split_gaps = true starts a new record after each")
    if preview.record_column:
        lines.append(f"records: column {preview.record_column} changes when times start again")
    for guess in roles:
        column = "" if guess.column.name == guess.channel else f" (column {guess.column.name})"
        between = "interpolated linearly" if guess.input_kind == "linear" else "held between samples"
        what = f"a known input, {between}" if guess.input_kind else "measured"
        lines.append(f"{guess.channel}{column}: {what}: it {guess.reason}")
        lines += [f"{guess.channel} cannot be read yet: {guess.column.problem}"] if guess.column.problem else []
        if failures := " or ".join(f"{value:g}" for value in guess.column.failures):
            lines.append(f"{guess.channel} is {failures} in some rows, {FAILED_SENSOR}: proposed as missing")
    used = {guess.column.name for guess in roles}
    if system is None:
        unused = [column for column in preview.columns if column.name not in used]
        lines += [f"{each.name}: left out: {each.problem or 'it never changes'}" for each in unused]
        lines += [f"{name}: left out: it {what}" for name, what in preview.skipped_columns.items()]
    elif absent := [n for n in system.plain_channels if n not in {guess.channel for guess in roles}]:
        lines.append(
            f"no column for {', '.join(absent)}: not measured; otherwise assign its column, --map {absent[0]}=COLUMN"
        )
    if sum(not guess.input_kind for guess in roles) > 1:
        lines.append("measured columns that the equations do not explain, such as weather, belong under [inputs]")
    return lines


def _ask_role(role: ColumnRole) -> ColumnRole:
    """Return the role of a column after asking the user."""
    default = role.input_kind or "no"
    text = f"{role.channel}: a known input? hold (kept between samples), linear, or no"
    while (answer := typer.prompt(text, default=default, err=True).strip().lower()) not in ("hold", "linear", "no"):
        arguments.print_message(f"expected hold, linear or no, got {answer}")
    if answer == default:
        return role
    if answer == "no":
        return replace(role, input_kind="", reason="was measured")
    return replace(role, input_kind=answer, reason="is known")
