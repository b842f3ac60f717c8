"""The command that opens the studio: a page in the browser, served by this machine for this machine."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from lodekit.errors import LodekitError

__all__ = ["studio"]


def studio(
    data: Annotated[Path | None, typer.Argument(metavar="[DATA]", help="CSV or Parquet file to begin with.")] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where the page is served.")] = 8501,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether a browser is opened.")] = True,
    address: Annotated[
        str, typer.Option("--address", help="Who may see it: this machine alone, or 0.0.0.0 for the whole network.")
    ] = "localhost",
) -> None:
    """Open a page in the browser: type equations, drop data, see the answer.

    Example: lodekit studio log.csv
    """
    if find_spec("streamlit") is None:
        raise LodekitError("the studio needs Streamlit, which is not installed; try: pip install 'lodekit[studio]'")
    if data is not None and not os.path.isfile(data):
        raise LodekitError(f"expected a data file, {data} is none")
    from lodekit.studio.serving import announce, serve

    typer.echo(announce(data, port, address))
    serve(data, port=port, browser=browser, address=address)
