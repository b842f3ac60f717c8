"""Commands that reproduce the paper and open the studio, a page in the browser."""

from __future__ import annotations

import os
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from lodekit.errors import LodekitError
from lodekit.support.files import check_folder
from lodekit.support.progress import track_progress

VERDICT_COLORS = {"yes": "green", "no": "red", "tie": "yellow", "open": "dim"}


class PaperTopic(StrEnum):
    """The experiments that can be reproduced."""

    bipendulum = "bipendulum"
    heating = "heating"
    three_tank = "three-tank"
    lfm = "lfm"
    eigenvalues = "eigenvalues"
    runtime = "runtime"
    construction = "construction"
    evidence = "evidence"
    everything = "all"


def reproduce(
    topic: Annotated[PaperTopic, Argument(help="Experiment of the paper.")] = PaperTopic.everything,
    quick: Annotated[
        bool, Option("--quick", help="Only three repetitions: one or two minutes instead of a quarter of an hour.")
    ] = False,
    jobs: Annotated[
        int,
        Option(
            "--jobs", "-j", help="Number of parallel runs, -1 for one per core; measured times are then not comparable."
        ),
    ] = 1,
    out: Annotated[Path, Option("--out", "-o", help="Folder of results and reports.")] = Path("reproduction"),
) -> None:
    """Run the paper's experiments in four ways, and compare each figure with the published one.

    An interrupted run can be resumed. It requires GPyTorch and matplotlib: the extras gpytorch and plot.
    """
    from lodekit.paper.claims import RunResults, check_claims
    from lodekit.paper.report import write_report
    from lodekit.paper.runner import collect_results, make_plan
    from lodekit.plotting import import_matplotlib

    # Report a missing package now, not after a quarter of an hour.
    import_matplotlib()
    check_folder(out)
    plan = make_plan(topic.value, quick=quick)
    rows = []
    with track_progress("reproducing", len(plan.runs())) as advance:
        for job, row in collect_results(plan, out / "runs", jobs):
            rows.append(row)
            advance(1, job.name)
    results = RunResults(rows)
    with track_progress("drawing") as advance:
        paths = write_report(results, plan, out, notify=partial(advance, 1))
    console = Console(soft_wrap=True, highlight=False)
    for claim in check_claims(results):
        console.print(f"[{VERDICT_COLORS[claim.status]}]{claim.status:>4}[/]", end="  ")
        console.print(f"{claim.text} ({claim.evidence})", markup=False)
    for path in paths[:3]:
        typer.echo(path)


def studio(
    data: Annotated[Path | None, Argument(metavar="[DATA]", help="CSV or Parquet file to load.")] = None,
    port: Annotated[int, Option("--port", min=1, max=65535, help="Port of the page.")] = 8501,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Whether to open a browser.")] = True,
    address: Annotated[
        str, Option("--address", help="Address to listen on: this machine only, or 0.0.0.0 for the whole network.")
    ] = "localhost",
) -> None:
    """Open the studio in the browser: enter equations, add data files, and see the results.

    Example: lodekit studio log.csv
    """
    if find_spec("streamlit") is None:
        raise LodekitError("the studio needs Streamlit, which is not installed; try: pip install 'lodekit[studio]'")
    if data is not None and not os.path.isfile(data):
        raise LodekitError(f"expected a data file, {data} is not a file")
    # The wildcard address is not one that a browser can open.
    host = address if address.strip("0.:") else "localhost"
    typer.echo(f"lodekit studio: http://{host}:{port}{f', with {data.name}' if data else ''}; Ctrl-C stops it")
    from lodekit.studio.app import serve

    serve(data, port=port, browser=browser, address=address)
