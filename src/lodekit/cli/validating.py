"""The command that holds a fitted model against a record that it has not seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lodekit.cli.app import FirstOption, JsonOption, LastOption, MapOption, ModelArgument, read_names, say
from lodekit.cli.inputs import read_lead
from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.workflow import read_model

__all__ = ["validate"]


def validate(
    model: ModelArgument,
    data: Annotated[str, typer.Argument(help="CSV or Parquet file of a record that was not used.")],
    given: Annotated[
        list[str] | None,
        typer.Option("--given", help="Channels that are known over the whole record, where the fit has no inputs."),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--start",
            help="What tells the initial state: the number of first rows, or all; the first 10 where disturbances or "
            "free functions drive, which all rows would tell as well.",
        ),
    ] = "all",
    ahead: Annotated[
        str, typer.Option("--ahead", help="For so many rows, or times such as '24 h', ahead, separated by commas.")
    ] = "1,5,10",
    mapping: MapOption = None,
    dt: Annotated[
        float | None, typer.Option("--dt", help="The time between two rows, without a column of times.")
    ] = None,
    first: FirstOption = None,
    last: LastOption = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Where a figure of the free run goes, as PNG.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict a record that was not used from its inputs alone, and some rows ahead: fit percentages, coverage.

    Ends with exit code 1 where the model does not hold there.

    Example: lodekit validate log-fit other.csv --plot free-run.png
    """
    from lodekit.data.tables import read_mapping
    from lodekit.plotting import to_png
    from lodekit.rereading import read_record

    if plot is not None and plot.suffix.lower() != ".png":
        raise LodekitError(f"expected a PNG file for --plot, such as {plot.with_suffix('.png')}, got {plot}")
    gp = read_model(model)
    found = gp.validate(
        read_record(gp, data, read_mapping(mapping or []), dt, (first, last)),
        given=read_names(given) or None,
        start=start if start == "all" else _whole(start, "--start"),
        ahead=[read_lead(part) for part in map(str.strip, ahead.split(",")) if part],
    )
    if plot is not None:
        write_file(plot, to_png(found.plot()))
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else repr(found))
    if not found.holds:
        say("the model does not hold on this record; see the verdict")
        raise typer.Exit(1)


def _whole(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise LodekitError(f"expected a whole number for {option}, got {text!r}") from None
