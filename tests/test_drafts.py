"""Drafts and pages keep to what they promise: the paper to JOSS's format, the comparison to what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import comparison

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "docs" / "paper-joss"
#: What JOSS asks of a paper (joss.readthedocs.io, 2026).
SECTIONS = (
    "Summary",
    "Statement of need",
    "State of the field",
    "Software design",
    "Research impact statement",
    "AI usage disclosure",
    "Acknowledgements",
    "References",
)


def test_the_paper_has_the_sections_and_the_length_that_joss_asks_for() -> None:
    _, head, text = (PAPER / "paper.md").read_text().split("---\n", 2)
    assert tuple(re.findall(r"^# (.+)$", text, flags=re.MULTILINE)) == SECTIONS
    assert re.findall(r"^(title|tags|authors|affiliations|date|bibliography):", head, flags=re.MULTILINE) == [
        "title",
        "tags",
        "authors",
        "affiliations",
        "date",
        "bibliography",
    ]
    assert 750 <= len(text.split()) <= 1750


def test_every_citation_of_the_paper_has_an_entry_and_every_entry_is_cited() -> None:
    cited = set(re.findall(r"@([\w:-]+)", (PAPER / "paper.md").read_text().split("---\n", 2)[2]))
    entries = re.findall(r"^@\w+\{([\w:-]+),", (PAPER / "paper.bib").read_text(), flags=re.MULTILINE)
    assert cited == set(entries)
    assert len(entries) == len(set(entries))


def test_the_tables_of_the_comparison_are_those_that_were_measured() -> None:
    page = comparison.PAGE.read_text()
    assert comparison.fill_page(page) == page, "run: python benchmarks/comparison.py --only-docs"
    spoilt = page.replace("| 2 % | lodekit |", "| 2 % | lodekit, better |")
    assert comparison.fill_page(spoilt) == page != spoilt
