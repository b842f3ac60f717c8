"""The documentation site is built without a warning, names all that is public, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from studio_browser import HOW, browsing, find_browser
from tests.test_docs_of_arguments import find_public

ROOT = Path(__file__).parents[1]


def build(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read all pages and follow all links, strictly; write two of them, for the others take as long again."""
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    read, pages = ("-d", str(folder / "read")), folder / "pages"
    done = build("--fail-on-warning", "--keep-going", "-b", "dummy", *read, "docs", str(folder / "none"))
    assert done.returncode == 0, done.stderr
    done = build("-b", "html", *read, "docs", str(pages), "docs/index.md", "docs/method.md")
    assert done.returncode == 0, done.stderr
    return pages


def test_the_site_names_everything_that_is_public(site: Path) -> None:
    lines = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    named = {line.split()[0] for line in lines if " py:" in line}
    # Errors are described where they are defined.
    missing = {item.name for item in find_public()} - named
    assert {name for name in missing if name.replace("lodekit.", "lodekit.errors.", 1) not in named} == set()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|iframe|source|link)\b[^>]*(?:src|href)="(?:https?:)?//')
    for name in ("index", "method"):
        page = (site / f"{name}.html").read_text("utf-8")
        assert "</html>" in page
        assert loads.findall(page) == []
    # Formulas are part of the page.
    assert page.count("<math") > 20


@pytest.mark.parametrize("width", [390, 1366, 1600])
def test_pages_are_not_wider_than_the_window(site: Path, width: int) -> None:
    if find_browser() is None:
        pytest.skip(HOW)
    with browsing() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto((site / "method.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_page_can_be_reached(site: Path) -> None:
    """Sphinx warns of a page in no table of contents; one that is left out altogether would escape it."""
    read = {path.stem for path in (site.parent / "read").rglob("*.doctree")}
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "paper-joss"}
    assert pages - read == set()
