"""README and the first pages do what they say: their commands run, and print what is printed there.

The examples in Python are run by pytest itself, as those of all pages are.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from lodekit.system.files import read_system_file
from lodekit.workflow.pipeline import fit_file
from tests.cli.command import run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text("utf-8")
LOG = (DOCS / "from-a-log.md").read_text("utf-8")
#: What a newcomer should not meet in the first screen.
ELSEWHERE = ("smith", "unimodular", "monic", "and a proof", "on waves", "found out", "thousand sums")


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_shown(expected: str, found: str) -> bool:
    """Tell whether a page shows what a command printed: dots stand for anything, and numbers agree to 1 %."""
    pieces = re.split(r"(\.\.\.|\d+\.\d+)", " ".join(expected.split()))
    numbers = [float(piece) for piece in pieces[1::2] if piece != "..."]
    written = {True: ".*", False: r"(\d+\.\d+)"}
    pattern = "".join(written[piece == "..."] if k % 2 else re.escape(piece) for k, piece in enumerate(pieces))
    match = re.fullmatch(pattern, " ".join(found.split()))
    return match is not None and bool(np.allclose([float(text) for text in match.groups()], numbers, rtol=0.01))


def test_the_readme_is_one_screen_of_plain_words() -> None:
    assert len(README.splitlines()) < 100
    assert [word for word in ELSEWHERE if word in README.lower()] == []


def test_what_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) > 15
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_commands_of_the_readme_are_there() -> None:
    commands = re.findall(r"(?m)^make (\w+) ", README)
    assert commands == ["demo", "test"]
    for command in (*commands, "docs", "trust"):
        done = subprocess.run(
            ["make", "--dry-run", command],  # noqa: S607 - whichever make there is
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert ".venv/bin/" in done.stdout


def test_other_numbers_are_noticed() -> None:
    assert is_shown("... a 0.50 ...", "b 0.1 a 0.499 c")
    assert not is_shown("... a 0.50 ...", "b 0.1 a 0.51 c")
    assert not is_shown("a 0.50", "b 0.50")


def test_a_log_becomes_a_validated_model_as_the_page_shows(tmp_path: Path) -> None:
    for name in ("two-rooms.csv", "two-rooms-tuesday.csv"):
        shutil.copy(DOCS / name, tmp_path)
    (init, begun), (_, guessed), (_, fitted), (validate, held) = re.findall(
        r"```\n\$ lodekit (.*?)\n(.*?)```", LOG, re.DOTALL
    )
    assert run(*init.split(), cwd=tmp_path).stderr == begun
    plant, data = tmp_path / "plant.toml", tmp_path / "two-rooms.csv"
    # What `lodekit fit` prints, without the figures that it draws.
    assert is_shown(guessed, fit_file(read_system_file(plant), data, random_state=0).gp.summary())
    written = re.search(r"```toml\n(.*?)```", LOG, re.DOTALL)
    assert written is not None
    plant.write_text(written[1])
    gp = fit_file(read_system_file(plant), data, random_state=0).gp
    assert is_shown(fitted, gp.summary())
    (tmp_path / "two-rooms-fit").mkdir()
    gp.save(tmp_path / "two-rooms-fit" / "model.lodekit")
    assert is_shown(held, run(*validate.split(), cwd=tmp_path).stdout)


def test_the_record_is_what_the_script_writes(pictures: ModuleType, tmp_path: Path) -> None:
    pictures.write_rooms(tmp_path)
    for name in ("two-rooms.csv", "two-rooms-tuesday.csv"):
        kept, made = (np.loadtxt(folder / name, delimiter=",", skiprows=1) for folder in (DOCS, tmp_path))
        # The last digit may be rounded either way.
        assert np.allclose(kept, made, rtol=0, atol=0.011)


def test_every_picture_is_drawn_by_the_script_and_shown_on_a_page(pictures: ModuleType, tmp_path: Path) -> None:
    pages = "".join(page.read_text("utf-8") for page in DOCS.rglob("*.md"))
    assert {path.stem for path in (DOCS / "pictures").glob("*.png")} == set(pictures.PICTURES)
    assert [name for name in pictures.PICTURES if f"pictures/{name}.png" not in pages] == []
    pictures.save_small(pictures.draw_free(tmp_path), tmp_path / "free.png")
    assert abs((tmp_path / "free.png").stat().st_size / (DOCS / "pictures" / "free.png").stat().st_size - 1) < 0.5
