"""The application and code that commands share: options, parsing of numbers and times, messages.

Results go to stdout, messages to stderr; exit codes are 0, 1 (failed) and 2 (bad input).
"""

from __future__ import annotations

import io
import math
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text
from typer import Argument, Option

import lodekit as lk
from lodekit.errors import EquationError, FitError, LodekitError
from lodekit.support.files import write_atomically
from lodekit.support.html import replace_advice
from lodekit.support.text import join_list

if TYPE_CHECKING:
    from lodekit.data.time_reference import TimeReference
    from lodekit.support.arguments import Array

app = typer.Typer(
    help="Fit linear differential equations to measurements, with curves that satisfy the equations exactly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Names = list[str] | None
JsonOption = Annotated[bool, Option("--json", help="Print JSON.")]
ParamOption = Annotated[Names, Option("--param", "-p", help="Parameters, separated by commas; may be repeated.")]
PositiveOption = Annotated[Names, Option("--positive", help="Positive parameters, which then need no --param.")]
ForceOption = Annotated[bool, Option("--force", help="Overwrite existing files.")]
ChannelsOption = Annotated[Names, Option("--channels", help="The channels in order, separated by commas.")]
BasisOption = Annotated[
    Names, Option("--basis", help="The free functions: expressions in the channels, separated by commas.")
]
StepOption = Annotated[float | None, Option("--dt", help="Sampling interval, if the file has no time column.")]
SplitOption = Annotated[
    bool, Option("--split-gaps", help="Start a new record after each gap (a step six times as long as most).")
]
MapOption = Annotated[
    Names, Option("--map", "-m", help="The column of a channel, by name or number: T1=temp_1,t=1; T1=- reads none.")
]
HeaderOption = Annotated[
    bool | None, Option("--header/--no-header", help="Whether the first line has column names; detected by default.")
]
TimezoneOption = Annotated[
    str | None, Option("--timezone", help="Time zone of dates without one, such as Europe/Berlin.")
]
FirstOption = Annotated[str | None, Option("--from", help="Omit rows before this time or date.")]
LastOption = Annotated[str | None, Option("--to", help="Omit rows after this time, or after this day.")]
ModelArgument = Annotated[Path, Argument(help="A saved model, or a folder written by lodekit fit.")]
OutOption = Annotated[
    Path | None,
    Option("--out", "-o", help="Output file, which replaces one with the same columns; standard output by default."),
]
#: What to use instead of commands that do not exist.
_OTHER_COMMANDS = {"report": "lodekit fit, which writes report.html", "diagnose": "lodekit fit and lodekit check"}


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lodekit {lk.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Fit linear differential equations to measurements, with curves that satisfy the equations exactly."""


def read_system(
    source: str, parameters: list[str] | dict[str, lk.Parameter], channels: list[str], basis: list[str] | None = None
) -> lk.System:
    """Return a system from a system file, or from equations as text."""
    from lodekit.system.parameters import parse_parameters

    if not is_system_file(source):
        if re.fullmatch(r"[\w.-]+", source):
            names = ", ".join(example.name for example in lk.catalog.examples())
            raise LodekitError(
                f'expected equations such as "x\' = -a*x + u", or a system file (.toml), got {source!r}; the catalog '
                f"has {names}"
            )
        return lk.System(source, parse_parameters(parameters), channels=channels or None, basis=basis or None)
    if parameters or channels:
        raise LodekitError("a system file names its own parameters and channels; remove --param and --channels")
    system = lk.read_system_file(source).system
    return system.with_basis(basis) if basis else system


def is_system_file(text: str) -> bool:
    """Return whether a text is the path of a system file, existing or not; otherwise it contains equations."""
    try:
        return text.endswith(".toml") or Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with invalid characters
        return False


def parse_names(options: list[str] | None) -> list[str]:
    """Return names from repeated options, each with one or several names separated by commas."""
    return [name.strip() for option in options or [] for name in option.split(",") if name.strip()]


def parse_parameter_options(
    source: str, param: list[str] | None, positive: list[str] | None
) -> dict[str, lk.Parameter]:
    """Return the parameters named by options, in the order of the equations."""
    from lodekit.system.parameters import parse_parameters

    above = parse_names(positive)
    found = parse_parameters([*parse_names(param), *(name for name in above if name not in parse_names(param))])
    known = {name: lk.Parameter(positive=True) if name in above else own for name, own in found.items()}
    words = re.findall(r"\w+", source)
    return dict(sorted(known.items(), key=lambda item: words.index(item[0]) if item[0] in words else len(words)))


def print_message(text: str) -> None:
    """Print a message to standard error."""
    text = replace_advice(text, "cli_advice.txt")
    Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)


def run() -> None:
    """Run the command line; turn lodekit's errors into a message and exit code 2, or 1 if no fit was found."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without Greek letters shows their codes instead of a traceback.
            stream.reconfigure(errors="backslashreplace")
    if hasattr(signal, "SIGPIPE"):
        # If the reader of our output ends (head, less), end quietly as other tools do.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        try:
            if (name := "".join(sys.argv[1:2])) in _OTHER_COMMANDS:
                raise LodekitError(f"no command is called {name}; use {_OTHER_COMMANDS[name]}")
            app()
        finally:
            sys.stdout.flush()
    except LodekitError as problem:
        undeclared = problem.undeclared if isinstance(problem, EquationError) else ()
        hint = f"try: --param {','.join(undeclared)}" if undeclared else ""
        _exit_with_error(
            replace_advice(str(problem), "cli_advice.txt"), hint, code=1 if isinstance(problem, FitError) else 2
        )
    except MemoryError:
        _exit_with_error("there is not enough memory for this; request fewer times or fewer samples")
    except OSError as problem:
        # Python flushes again at exit; a second failure needs no message.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        _exit_with_error(f"cannot write the results: {problem.strerror or problem}")


def _exit_with_error(text: str, hint: str = "", code: int = 2) -> None:
    console = Console(stderr=True)
    console.print(Text("error: ", "bold red") + Text(text), soft_wrap=True)
    if hint:
        console.print(Text(hint), soft_wrap=True)
    sys.exit(code)


def parse_numbers(options: Sequence[str], option_name: str) -> dict[str, float]:
    """Return numbers by name from texts such as ``tau=10``, several in one text separated by commas."""
    expected = f"NAME=NUMBER, such as {option_name} tau=10"
    numbers: dict[str, float] = {}
    for name, text in parse_pairs(options, option_name, expected).items():
        try:
            numbers[name] = float(text)
        except ValueError:
            numbers[name] = math.nan
        if not math.isfinite(numbers[name]):
            raise LodekitError(f"expected {option_name} {expected}, got '{name}={text}'")
    return numbers


def read_mapping(options: list[str] | None, gp: lk.LODEGP | None = None) -> dict[str, str]:
    """Return the columns by channel that ``--map`` assigns; raise if a fitted model has no such channel."""
    from lodekit.data.tables.columns import ArgumentSyntax, check_mapping_names, parse_mapping

    found = parse_mapping(options or [])
    if gp is not None:
        check_mapping_names(found, gp.system.plain_channels, ArgumentSyntax(in_shell=True))
    return found


def parse_pairs(options: Sequence[str], option_name: str, expected: str) -> dict[str, str]:
    """Return words by name from texts such as ``u=hold``, several in one text separated by commas."""
    found: dict[str, str] = {}
    for text in (part.strip() for option in options for part in option.split(",") if part.strip()):
        name, _, word = (part.strip() for part in text.partition("="))
        if not name or not word:
            advice = "; use a decimal point: 0.5" if any(re.search(r"\d,\d", option) for option in options) else ""
            raise LodekitError(f"expected {option_name} {expected}, got {text!r}{advice}")
        if name in found:
            raise LodekitError(f"{option_name} names {name!r} twice")
        found[name] = word
    return found


def parse_horizon(text: str) -> int | str:
    """Return the horizon from an option: a number of rows, or a time such as ``24 h``."""
    return int(text) if text.isdecimal() else text


def prediction_times(
    gp: lk.LODEGP,
    start: str | None,
    stop: str | None,
    count: int | None,
    at: Path | None,
    record: str | None = None,
    default_count: int = 200,
    columns: dict[str, str] | None = None,
) -> dict[str, Array]:
    """Return the times of ``--from``, ``--to``, ``--n`` or ``--at`` by record; by default its window."""
    import numpy as np

    from lodekit.workflow.new_data import read_times

    names = gp.records_ if record is None else gp.fit_.for_record(record).record_names
    if at is not None:
        if start is not None or stop is not None or count is not None:
            raise LodekitError("expected --at FILE, or --from, --to and --n, got both")
        return dict.fromkeys(names, read_times(gp, at, columns))
    times, clock, count = {}, gp.fit_.clock, count or default_count
    for name in names:
        window = gp.fit_.for_record(name).measurements.window
        times[name] = np.linspace(*parse_range(clock, start, stop, window), count)
    return times


def parse_range(
    clock: TimeReference, start: str | None, stop: str | None, window: tuple[float, float]
) -> tuple[float, float]:
    """Return the times of ``--from`` and ``--to``, by default those of a window; a day as the last time is included."""
    low = window[0] if start is None else clock.parse_time(start, "--from")
    high = window[1] if stop is None else clock.parse_time(stop, "--to", is_end=True)
    # A day ends when the next one begins.
    is_before = low >= high and stop is not None and high != clock.parse_time(stop, "--to")
    if is_before or not (math.isfinite(low) and math.isfinite(high - low) and low <= high):
        given = f"{start or clock.format_times(low)} and {stop or clock.format_times(high)}"
        raise LodekitError(f"--from must be earlier than --to (by default the last row), both finite; got {given}")
    return low, high


def read_planned_inputs(
    gp: lk.LODEGP, times: dict[str, Array], at: Path | None, columns: dict[str, str] | None = None
) -> dict[str, tuple[Array, Array]]:
    """Return inputs after the record from a file of times; empty if they are not needed. Print which inputs apply."""
    from lodekit.workflow.new_data import find_input_columns, read_inputs

    planned = [] if at is None else find_input_columns(gp, at, columns)
    ends, names = dict[str, str](), dict[str, None]()
    # Responses to planned inputs start from the last record.
    for name, own in list(times.items())[-1 if planned else 0 :]:
        part = gp.fit_.for_record(name)
        known = {each: signal.times[-1] for each, signal in part.measurements.inputs.items() if len(signal.times) > 1}
        end = max(part.measurements.window[1], *known.values(), -math.inf)
        if not len(own) or own.max() <= end:
            continue
        if at is not None and planned:
            print_message(f"after {part.clock.format_times(end)}, inputs are those in {at}: {', '.join(planned)}")
            return read_inputs(gp, at, columns)
        if known:
            ends[name] = part.clock.format_times(min(known.values()))
            names |= dict.fromkeys(known)
    if ends:
        several = join_list([f"{time} ({record})" for record, time in ends.items()])
        after = several if len(gp.records_) > 1 else next(iter(ends.values()))
        advice = f"predict with others: --at FILE, with columns t, {', '.join(names)}"
        print_message(f"after {after}, known inputs keep their last values; {advice}")
    return {}


def choose_record(gp: lk.LODEGP, record: str | None) -> str | None:
    """Return the record to start from: the last one by default, with a message."""
    if record is None and len(gp.records_) > 1:
        record = gp.records_[-1]
        print_message(f"starting from the last record, {record}; --record chooses another")
    return record


def write_output(text: str, out: Path | None) -> None:
    """Write a result to a file or to standard output; raise if the file has other columns."""
    if out is None:
        sys.stdout.write(text)
        return
    if out.is_file():
        with open(out, "rb") as file:
            old, new = file.readline(10_000).strip(), text.partition("\n")[0].encode().strip()
        if old and old != new and old[:1] != b"{":
            raise LodekitError(f"{out} exists and has other columns; choose another name, or remove it first")
    write_atomically(out, text)
