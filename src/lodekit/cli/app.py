"""The frame of the command line: results on stdout, messages on stderr; exit codes 0, 1 (failed) and 2 (bad input)."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from lodekit.errors import EquationError, FitError, LodekitError
from lodekit.system import catalog as examples
from lodekit.system.files import read_system_file
from lodekit.system.parameters import Parameter, read_parameters
from lodekit.system.system import System
from lodekit.version import __version__

__all__ = [
    "BasisOption",
    "ChannelsOption",
    "FirstOption",
    "ForceOption",
    "HeaderOption",
    "JsonOption",
    "LastOption",
    "MapOption",
    "ModelArgument",
    "OutOption",
    "ParamOption",
    "PositiveOption",
    "app",
    "is_file",
    "read_drivers",
    "read_names",
    "read_roles",
    "read_system",
    "run",
    "say",
]

app = typer.Typer(
    help="Linear ODE systems as Gaussian processes: equations in, provably strict solutions out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print plain values as JSON.")]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="Names of parameters, separated by commas; may be repeated."),
]
PositiveOption = Annotated[
    list[str] | None,
    typer.Option("--positive", help="Names of parameters that are above zero; they need no --param."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]
ChannelsOption = Annotated[
    list[str] | None, typer.Option("--channels", help="The order of the channels, separated by commas.")
]
BasisOption = Annotated[
    list[str] | None,
    typer.Option("--basis", help="What the free functions are: expressions in the channels, separated by commas."),
]
MapOption = Annotated[
    list[str] | None, typer.Option("--map", "-m", help="Which column is what: T1=temp_1, t=1 (a number).")
]
HeaderOption = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line names the columns; found out otherwise."),
]
FirstOption = Annotated[str | None, typer.Option("--from", help="Rows before this time, or date, are left out.")]
LastOption = Annotated[str | None, typer.Option("--to", help="Rows after this time, or date, are left out.")]
ModelArgument = Annotated[Path, typer.Argument(help="A saved model, or the folder that lodekit fit has written.")]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; standard output otherwise.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lodekit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Linear ODE systems as Gaussian processes: equations in, provably strict solutions out."""


def read_system(
    source: str, parameters: list[str] | dict[str, Parameter], channels: list[str], basis: list[str] | None = None
) -> System:
    """Return a system from a system file, or from equations as text.

    Parameters
    ----------
    source : str
        The path of a system file, or equations.
    parameters : list of str, or dict of str to Parameter
        That go with equations; a system file has its own.
    channels : list of str
        The same of channels.
    basis : list of str, optional
        What the free functions are; goes before what a system file says.
    """
    is_there = is_file(source)
    if re.fullmatch(r"[\w.-]+", source) and not is_there:
        names = ", ".join(example.name for example in examples.examples())
        raise LodekitError(
            f'expected equations such as "x\' = -a*x + u", or a system file (.toml), got {source!r}; the catalog has '
            f"{names}"
        )
    if not is_there:
        return System(source, parameters=read_parameters(parameters), channels=channels or None, basis=basis or None)
    if parameters or channels:
        raise LodekitError("a system file names its own parameters and channels; remove --param and --channels")
    system = read_system_file(source).system
    return system.with_basis(basis) if basis else system


def read_drivers(source: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return known inputs and disturbances of a system file with their kinds; none where it is something else."""
    file = read_system_file(source) if is_file(source) else None
    return ({}, {}) if file is None else (dict(file.inputs), dict(file.disturbances))


def is_file(text: str) -> bool:
    """Return whether a text is the path of a system file, or of one that should be there; otherwise it is equations."""
    try:
        return text.endswith(".toml") or Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with characters no name has
        return False


def read_names(options: list[str] | None) -> list[str]:
    """Return names from options that may be repeated and may hold several, separated by commas."""
    return [name.strip() for option in options or [] for name in option.split(",") if name.strip()]


def read_roles(source: str, param: list[str] | None, positive: list[str] | None) -> dict[str, Parameter]:
    """Return the parameters that options name, in the order in which equations have them.

    Parameters
    ----------
    source : str
        The equations.
    param, positive : list of str or None
        What ``--param`` and ``--positive`` say.
    """
    above = read_names(positive)
    found = read_parameters([*read_names(param), *(name for name in above if name not in read_names(param))])
    known = {name: Parameter(positive=True) if name in above else own for name, own in found.items()}
    words = re.findall(r"\w+", source)
    return dict(sorted(known.items(), key=lambda item: words.index(item[0]) if item[0] in words else len(words)))


def say(text: str) -> None:
    """Print a message, on standard error."""
    Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)


def run() -> None:
    """Run the command line; turn lodekit's errors into a message and exit code 2, or 1 where no fit was found."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without Greek letters shows their codes instead of a traceback.
            stream.reconfigure(errors="backslashreplace")
    if hasattr(signal, "SIGPIPE"):
        # The reader of our output may go away (head, less): that ends us quietly, as it ends other tools.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except LodekitError as problem:
        undeclared = problem.undeclared if isinstance(problem, EquationError) else ()
        hint = f"try: --param {','.join(undeclared)}" if undeclared else ""
        _fail(str(problem), hint, code=1 if isinstance(problem, FitError) else 2)
    except MemoryError:
        _fail("there is not enough memory for this; ask for fewer times, or for fewer samples")
    except OSError as problem:
        # Python flushes once more at the end; what cannot be written then is no news.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        _fail(f"cannot write the results: {problem.strerror or problem}")


def _fail(text: str, hint: str = "", code: int = 2) -> None:
    console = Console(stderr=True)
    console.print(Text("error: ", "bold red") + Text(text), soft_wrap=True)
    if hint:
        console.print(Text(hint), soft_wrap=True)
    sys.exit(code)
