"""The reproduction as JSON, Markdown and one HTML page."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from lodekit.paper.claims import check_claims, find_differences
from lodekit.paper.experiments import load_report_texts
from lodekit.paper.figures import PaperFigure, draw_figures
from lodekit.paper.results import RunResults
from lodekit.paper.runner import RunPlan, provenance
from lodekit.paper.tables import ReportTable, make_tables
from lodekit.support.files import make_folder, write_atomically
from lodekit.support.html import HtmlPage

#: The plan, the tables, the claims as rows, differences to the published values, and the figures.
_ReportContent = tuple[RunPlan, Sequence[ReportTable], Sequence[Sequence[str]], Sequence[str], Sequence[PaperFigure]]


def write_report(
    results: RunResults, plan: RunPlan, folder: Path, *, notify: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Write ``results.json``, ``README.md``, ``report.html`` and the figures to a folder; return the paths."""
    make_folder(folder)
    drawn = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for picture in draw_figures(results):
            notify(f"figure: {picture[0]}")
            drawn.append(picture)
    claims = [[claim.text, claim.status.replace("no", "NO"), claim.evidence] for claim in check_claims(results)]
    content = plan, make_tables(results), claims, find_differences(results), drawn
    paths = [folder / "results.json", folder / "README.md", folder / "report.html"]
    write_atomically(paths[0], json.dumps(list(results.rows), indent=1) + "\n")
    for name, _, png in drawn:
        paths.append(folder / f"{name}.png")
        write_atomically(paths[-1], png)
    write_atomically(paths[1], _render_markdown(content))
    write_atomically(paths[2], _render_html(content))
    return paths


def _describe_run(plan: RunPlan) -> str:
    size = "quick" if plan.quick else "full"
    return (
        f"A {size} run, reported on {date.today().isoformat()}: {plan.n_noisy} noisy data sets for each system, and "
        f"one noise-free data set, with {plan.n_exact} random starts where starts are random; {provenance()}."
    )


def _command_line(plan: RunPlan) -> str:
    topic = plan.topics[0] if len(plan.topics) == 1 else "all"
    return f"lodekit reproduce {topic}" + (" --quick" if plan.quick else "")


def _render_markdown(content: _ReportContent) -> str:
    texts, (plan, tables, claims, differences, figures) = load_report_texts(), content
    parts = [
        f"# {texts['title']}",
        texts["introduction"],
        f"{_describe_run(plan)} To run it again: `{_command_line(plan)}`.",
    ]
    if claims:
        lines = ["| statement | holds | evidence |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(claim)} |" for claim in claims]
        parts += ["## What it shows", texts["status_note"], "\n".join(lines)]
    for table in tables:
        parts.append(table.markdown())
        if table.title == "Main results" and differences:
            parts += ["### Cells beyond the published spread", "\n".join(f"- {line}" for line in differences)]
    if figures:
        parts.append("## Figures")
        parts += [f"![{caption}]({name}.png)\n\n{caption}" for name, caption, _ in figures]
    parts += ["## Errata of the paper that matter here", "\n".join(f"- {text}" for text in texts["errata"])]
    return "\n\n".join(parts) + "\n"


def _render_html(content: _ReportContent) -> str:
    texts, (plan, tables, claims, differences, figures) = load_report_texts(), content
    page = HtmlPage(texts["title"], texts["introduction"])
    page.add_to_head("<style>main { max-width: 80rem; } td.text { min-width: 7rem; }</style>")
    page.add_paragraph(_describe_run(plan), "note")
    page.add_code(_command_line(plan))
    if claims:
        page.add_section("What it shows")
        page.add_paragraph(texts["status_note"])
        page.add_table(["statement", "holds", "evidence"], claims, text_columns=(0, 1, 2))
    for table in tables:
        page.add_section(table.title)
        page.add_paragraph(table.description)
        page.add_table(table.columns, table.rows, text_columns=range(table.n_text_columns))
        for note in table.notes:
            page.add_paragraph(note, "note")
        if table.items:
            page.add_list(table.items)
        if table.title == "Main results" and differences:
            page.add_section("Cells beyond the published spread", 3)
            page.add_list(differences)
    if figures:
        page.add_section("Figures")
        for _, caption, png in figures:
            page.add_image(png, caption)
    page.add_section("Errata of the paper that matter here")
    page.add_list(texts["errata"])
    return page.to_html()
