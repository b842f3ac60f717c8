"""The command that runs the paper again."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lodekit.files import check_folder
from lodekit.progress import waiting

__all__ = ["Topic", "reproduce"]


_COLOURS = {"yes": "green", "no": "red", "tie": "yellow", "open": "dim"}


class Topic(StrEnum):
    """What can be reproduced."""

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
    topic: Annotated[Topic, typer.Argument(help="Which experiment of the paper.")] = Topic.everything,
    quick: Annotated[
        bool, typer.Option("--quick", help="Three repetitions: a minute or two; all takes a quarter of an hour.")
    ] = False,
    jobs: Annotated[
        int,
        typer.Option("--jobs", "-j", help="Runs at the same time, -1 for one on each core; times are not fair then."),
    ] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of results and reports.")] = Path("reproduction"),
) -> None:
    """Run the paper's experiments in four ways, and put each figure beside the published one.

    An interrupted run goes on where it was. GPyTorch and matplotlib are needed: the extras gpytorch and plot.
    """
    from lodekit.paper.claims import claims
    from lodekit.paper.report import write_report
    from lodekit.paper.results import Results
    from lodekit.paper.runner import collect, make_plan
    from lodekit.plotting import import_matplotlib

    # Known now, and not after a quarter of an hour.
    import_matplotlib()
    check_folder(out)
    plan = make_plan(topic.value, quick=quick)
    rows = []
    with waiting("reproducing", len(plan.jobs())) as advance:
        for job, row in collect(plan, out / "runs", jobs):
            rows.append(row)
            advance(1, job.name)
    results = Results(rows)
    with waiting("drawing") as advance:
        paths = write_report(results, plan, out, tell=partial(advance, 1))
    console = Console(soft_wrap=True, highlight=False)
    for claim in claims(results):
        console.print(f"[{_COLOURS[claim.verdict]}]{claim.verdict:>4}[/]", end="  ")
        console.print(f"{claim.text} ({claim.evidence})", markup=False)
    for path in paths[:3]:
        typer.echo(path)
