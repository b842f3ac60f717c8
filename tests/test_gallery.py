"""Examples run, are short, and print what the gallery shows; every system of the catalog is in it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lodekit as lk
from tests.real_records import RECORDS as DATA

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "gallery" / "notebooks"
RECORDS = {"tclab": "tclab_mimo_random_steps.csv", "lamp": "daisy_heating_system.dat", "school": "school_heating.csv"}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
#: Numbers of two machines differ by rounding alone; a twentieth lets the search change a little, and no more.
SHARE = 0.05


def load_maker() -> ModuleType:
    specification = importlib.util.spec_from_file_location("gallery_maker", ROOT / "docs" / "gallery" / "make.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look for their module there.
    sys.modules["gallery_maker"] = module
    specification.loader.exec_module(module)
    return module


maker = load_maker()
NAMES: tuple[str, ...] = maker.NAMES


def read_page(name: str) -> str:
    return (ROOT / "docs" / "gallery" / f"{name}.md").read_text(encoding="utf-8")


def output_of(page: str) -> str:
    return page.rpartition("```text\n")[2].partition("\n```")[0]


def last_digit(number: str) -> float:
    """Return what one more in the last digit of a printed number is worth."""
    mantissa, _, power = number.partition("e")
    return float(10.0 ** (int(power or 0) - len(mantissa.partition(".")[2])))


def is_same(printed: str, shown: str) -> bool:
    """Whether two texts have the same words, and numbers that agree to a twentieth or two in their last digit."""
    if NUMBER.sub("#", printed) != NUMBER.sub("#", shown):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(abs(float(a) - float(b)) <= SHARE * abs(float(b)) + 2 * last_digit(b) for a, b in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_its_page_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in RECORDS and not (DATA / RECORDS[name]).exists():
        pytest.skip(f"no {RECORDS[name]} in {DATA}")
    # Its numbers count here, and a picture that is drawn at all.
    printed = maker.run_script(name, tmp_path, DATA.resolve(), dpi=30)
    assert (tmp_path / f"{name}.png").stat().st_size > 1000
    shown = output_of(read_page(name))
    assert is_same(printed.strip(), shown.strip()), (
        f"{printed}\nis not\n{shown}\nrun: python docs/gallery/make.py {name}"
    )


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_without_its_record_an_example_says_where_that_is_from(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"give its folder") as stop:
        maker.run_script(name, tmp_path, tmp_path)
    assert RECORDS[name] in str(stop.value)


def test_pages_show_the_scripts_as_they_are() -> None:
    stale = [name for name in NAMES if read_page(name) != maker.make_page(name, output_of(read_page(name)))]
    assert stale == []
    assert read_page("index") == maker.make_index()


def read_notebook(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    return found


def test_every_page_has_a_notebook_with_its_code() -> None:
    assert {path.stem for path in NOTEBOOKS.iterdir()} == set(NAMES)
    assert [name for name in NAMES if read_notebook(name) != json.loads(maker.make_notebook(name))] == []


def test_the_cells_of_a_notebook_run_in_order() -> None:
    cells = [cell for cell in read_notebook("free_decay")["cells"] if cell["cell_type"] == "code"]
    printed, names = io.StringIO(), dict[str, Any]()
    assert len(cells) > 3
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            exec("".join(cell["source"]), names)  # noqa: S102
    assert is_same(printed.getvalue().strip(), output_of(read_page("free_decay")).strip())
    assert cells[-1]["source"][-1] == "figure"
    assert len(names["figure"].axes) == 1


def test_every_system_of_the_catalog_and_every_record_has_its_page() -> None:
    assert {example.name for example in lk.catalog.examples()} | set(RECORDS) == set(NAMES)
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(NAMES)
    for name in set(NAMES) - set(RECORDS):
        assert f"lk.catalog.{name}(" in (ROOT / "examples" / f"{name}.py").read_text()


def test_examples_are_short_and_pictures_small() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "examples").glob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > 60} == {}
    pictures = list((ROOT / "docs" / "gallery" / "figures").glob("*.png"))
    assert {path.stem for path in pictures} == {f"{name}{size}" for name in NAMES for size in ("", "-small")}
    assert {path.name: path.stat().st_size for path in pictures if path.stat().st_size > 60_000} == {}


def test_other_numbers_and_other_words_are_noticed() -> None:
    assert is_same("a = 2.98, x(0) = 1e-05", "a = 3.01, x(0) = 1e-05")
    assert not is_same("a = 2.8", "a = 3.2")
    assert not is_same("a = 3.0", "b = 3.0")
    assert not is_same("a = 3.0", "a = 3.0, b = 1")
    assert not is_same("a = 0.00012", "a = 0.00042")
