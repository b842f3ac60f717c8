"""The frame of the command line: results on stdout, messages on stderr; exit codes 0, 1 (failed) and 2 (bad input)."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import lodekit
from lodekit.errors import EquationError, LodekitError

__all__ = ["JsonOption", "app", "run"]

app = typer.Typer(
    help="Linear ODE systems as Gaussian processes: equations in, provably strict solutions out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print plain values as JSON.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lodekit {lodekit.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Linear ODE systems as Gaussian processes: equations in, provably strict solutions out."""


def run() -> None:
    """Run the command line; turn lodekit's errors into a message and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without Greek letters shows their codes instead of a traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except LodekitError as problem:
        console = Console(stderr=True)
        console.print(Text("error: ", "bold red") + Text(str(problem)), soft_wrap=True)
        if isinstance(problem, EquationError) and problem.undeclared:
            console.print(Text(f"try: --param {','.join(problem.undeclared)}"), soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output went away (head, less): not an error.
        sys.stderr.close()
        sys.exit(0)
