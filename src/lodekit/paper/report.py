"""The reproduction as JSON, Markdown and one HTML page."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

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


def _report_blocks(content: _ReportContent) -> Iterator[tuple[Any, ...]]:
    """Yield the parts of the report after its introduction: the kind of each, and its content."""
    texts, (_, tables, claims, differences, figures) = load_report_texts(), content
    if claims:
        yield "section", "What it shows"
        yield "text", texts["status_note"]
        yield "table", ["statement", "holds", "evidence"], claims, 3
    for table in tables:
        yield "section", table.title
        yield "text", table.description
        yield "table", table.columns, table.rows, table.n_text_columns
        yield from (("note", note) for note in table.notes)
        yield "list", table.items
        if table.title == "Main results" and differences:
            yield "subsection", "Cells beyond the published spread"
            yield "list", differences
    if figures:
        yield "section", "Figures"
    yield from (("figure", *figure) for figure in figures)
    yield "section", "Errata of the paper that matter here"
    yield "list", texts["errata"]


#: The levels of headings.
_LEVELS = {"section": 2, "subsection": 3}


def _render_markdown(content: _ReportContent) -> str:
    texts, plan = load_report_texts(), content[0]
    run = f"{_describe_run(plan)} To run it again: `{_command_line(plan)}`."
    parts = [f"# {texts['title']}", texts["introduction"], run]
    for kind, *own in _report_blocks(content):
        if kind == "table":
            columns, rows, n_text = own
            align = ["---"] * n_text + ["---:"] * (len(columns) - n_text)
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in (columns, align, *rows)))
        elif kind == "list":
            parts.append("\n".join(f"- {item}" for item in own[0]))
        elif kind == "figure":
            parts.append(f"![{own[1]}]({own[0]}.png)\n\n{own[1]}")
        else:
            parts.append(f"{'#' * _LEVELS[kind]} {own[0]}" if kind in _LEVELS else own[0])
    return "\n\n".join(part for part in parts if part) + "\n"


def _render_html(content: _ReportContent) -> str:
    texts, plan = load_report_texts(), content[0]
    style = "main { max-width: 80rem; } td.text { min-width: 7rem; }"
    page = HtmlPage(texts["title"], texts["introduction"], style)
    page.add_paragraph(_describe_run(plan), "note")
    page.add_code(_command_line(plan))
    for kind, *own in _report_blocks(content):
        if kind == "table":
            page.add_table(own[0], own[1], text_columns=range(own[2]))
        elif kind == "list" and own[0]:
            page.add_list(own[0])
        elif kind == "figure":
            page.add_image(own[2], own[1])
        elif kind in _LEVELS:
            page.add_section(own[0], _LEVELS[kind])
        elif kind != "list":
            page.add_paragraph(own[0], "note" if kind == "note" else "")
    return page.to_html()
