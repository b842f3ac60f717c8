"""The documentation site is built without a warning, names all that is public, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.test_docs_of_arguments import find_public

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    options = ("--fail-on-warning", "--keep-going", "-q", "-d", str(folder / "read"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "docs", str(folder / "pages")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "pages"


def test_the_site_names_everything_that_is_public(site: Path) -> None:
    lines = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    named = {line.split()[0] for line in lines if " py:" in line}
    # Errors are described where they are defined.
    missing = {item.name for item in find_public()} - named
    assert {name for name in missing if name.replace("lodekit.", "lodekit.errors.", 1) not in named} == set()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    loads = re.compile(r'<(?:script|img|iframe|source|link)\b[^>]*(?:src|href)="(?:https?:)?//')
    assert [str(page) for page in pages if loads.search(page.read_text("utf-8"))] == []
