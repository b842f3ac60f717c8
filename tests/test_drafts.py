"""Drafts for a release agree with the project: the conda recipe with pyproject.toml, the paper with JOSS's format."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import comparison
import lodekit as lk

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
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


def load_maker() -> Any:
    specification = importlib.util.spec_from_file_location("recipe_maker", ROOT / "recipe" / "make.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_recipe_is_made_of_the_project_as_it_is() -> None:
    made = load_maker().make_recipe(PROJECT, lk.__version__)
    assert (ROOT / "recipe" / "recipe.yaml").read_text() == made, "run: python recipe/make.py"
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load(made)
    assert recipe["context"]["version"] == lk.__version__
    run = [item["then"] if isinstance(item, dict) else item for item in recipe["requirements"]["run"]]
    assert len(run) == 1 + len(PROJECT["project"]["dependencies"])
    assert "numpy >=2.0" in run


def test_a_requirement_that_conda_cannot_read_is_noticed() -> None:
    maker = load_maker()
    assert maker.requirement_lines("duckdb>=1.4") == ["    - python-duckdb >=1.4"]
    with pytest.raises(KeyError):
        maker.requirement_lines("numpy>=2.0; sys_platform == 'win32'")


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
