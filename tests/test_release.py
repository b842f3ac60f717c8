"""What is released: small, complete, and enough for the core in an environment with nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from hatchling.build import build_sdist, build_wheel
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import lodekit as lk
from tests.limits import PATIENCE

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The largest file is the script of the plots; everything else is source.
SCRIPT = "lodekit/assets/plotly-basic.min.js"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made from it."""
    place = tmp_path_factory.mktemp("dist")
    before = Path.cwd()
    try:
        os.chdir(ROOT)
        sdist = place / build_sdist(str(place))
        with tarfile.open(sdist) as packed:
            packed.extractall(place, filter="data")
        os.chdir(place / sdist.name.removesuffix(".tar.gz"))
        return sdist, place / build_wheel(str(place))
    finally:
        os.chdir(before)


def test_the_wheel_holds_the_sources_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        sizes = {item.filename: item.file_size for item in wheel.infolist()}
    own = {name for name in sizes if ".dist-info/" not in name}
    skipped = {"__pycache__"}
    there = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "lodekit").rglob("*")
        if path.is_file() and not skipped & set(path.parts)
    }
    assert own == there
    assert {Path(name).suffix for name in own} <= {".py", ".typed", ".js", ".css", ".html", ".json", ".toml", ".txt"}
    # The length of modules is limited elsewhere.
    large = {name for name, size in sizes.items() if size > 40_000}
    assert {name for name in large if not name.endswith(".py")} == {SCRIPT}
    assert "lodekit/py.typed" in own
    assert any(name.endswith("licenses/LICENSE") for name in sizes)
    # The sources are a good megabyte of it: what else might come in (pictures, data) would be seen here.
    assert built[1].stat().st_size < 1.6e6


def test_the_sdist_can_be_tested_and_holds_no_data(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as packed:
        names = {item.name.partition("/")[2] for item in packed.getmembers()}
    assert {"Makefile", "constraints.txt", "pyproject.toml", "tests/test_release.py", "docs/notation.md"} <= names
    # Except for two small records that are simulated, for the first pages, and notebooks of the gallery.
    found = [name for name in names if name.endswith((".csv", ".parquet", ".ipynb")) or ".venv" in name]
    assert all(name.startswith(("docs/two-rooms", "docs/gallery/notebooks/")) for name in found), found
    assert built[0].stat().st_size < 3.5e6


def test_the_version_stands_in_one_place(built: tuple[Path, Path]) -> None:
    assert "version" not in PROJECT
    assert built[1].name.startswith(f"lodekit-{lk.__version__}-")
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == lk.__version__  # type: ignore[index]
    assert f"## {lk.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def needed(requirements: list[str], extra: str = "") -> Iterator[str]:
    """Yield the packages that requirements need, with all that these need; as they are installed here."""
    todo, seen = [(row, extra) for row in requirements], set[tuple[str, str]]()
    while todo:
        row, own = todo.pop()
        item = Requirement(row)
        if item.marker and not item.marker.evaluate({"extra": own}):
            continue
        name = canonicalize_name(item.name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        yield name
        # Another version than the pinned one may need other packages.
        rows = found.requires or [] if found.version.partition("+")[0] == pins().get(name) else []
        for more in ("", *sorted(item.extras)):
            if (name, more) not in seen:
                seen.add((name, more))
                todo += [(row, more) for row in rows]


def link_packages(place: Path) -> None:
    """Make links to what the core needs, each package by its name."""
    for name in set(needed(PROJECT["dependencies"])):
        for file in distribution(name).files or ():
            first, target = file.parts[0], Path(str(distribution(name).locate_file(file.parts[0])))
            if first not in ("..", "__pycache__") and not (place / first).exists():
                (place / first).symlink_to(target)


def test_the_wheel_is_enough_for_the_core(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Without torch, matplotlib and every other package that the core does not name."""
    venv.create(tmp_path / "empty", symlinks=True)
    (site,) = (tmp_path / "empty").glob("lib/python*/site-packages")
    with zipfile.ZipFile(built[1]) as wheel:
        wheel.extractall(site)  # noqa: S202 - it was built here
    link_packages(site)
    shutil.copy(ROOT / "tests" / "core_alone.py", tmp_path)
    command = [str(tmp_path / "empty" / "bin" / "python"), "-I", "core_alone.py"]
    # Links share the compiled modules of what they lead to.
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@cache
def pins() -> dict[str, str]:
    """Return the versions in ``constraints.txt``, by package."""
    rows = [row.partition("==") for row in (ROOT / "constraints.txt").read_text().splitlines() if "==" in row]
    return {canonicalize_name(name): version for name, _, version in rows}


def all_requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"].values()
    return [*PROJECT["dependencies"], *(row for rows in extras for row in rows)]


def test_every_package_is_pinned_within_its_bounds() -> None:
    for row in all_requirements():
        item = Requirement(row)
        assert item.specifier.contains(Version(pins()[canonicalize_name(item.name)])), row
    # What torch brings along on machines with certain devices is no business of ours.
    drivers = re.compile(r"nvidia-.*|cuda-.*|triton|pip|setuptools|lodekit")
    found = {name for name in needed(all_requirements()) if not drivers.fullmatch(name)}
    assert found <= set(pins()), found - set(pins())


def test_every_package_of_the_core_is_named_with_its_cost() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text().partition("| package | MB |")[2].partition("\n\n")[0]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    named = [name.strip() for first, *_ in table for name in re.split(r", (?:or )?", first)]
    assert sorted(named) == sorted(Requirement(row).name for row in PROJECT["dependencies"])
    assert all(re.fullmatch(r"[\d, ]+", cost) for _, cost, *_ in table)


def test_the_recipe_for_conda_names_the_same_packages() -> None:
    text = (ROOT / "docs" / "conda" / "recipe.yaml").read_text().partition("  run:\n")[2].partition("\ntests:")[0]
    named = set(re.findall(r"^ +(?:- |then: |else: )([a-z][a-z0-9-]*)(?: |$)", text, re.MULTILINE)) - {"if", "python"}
    # One is called otherwise there.
    called = {"duckdb": "python-duckdb"}
    assert named == {called.get(name, name) for name in (Requirement(row).name for row in PROJECT["dependencies"])}


def test_repo_review_has_nothing_to_say() -> None:
    from repo_review.processor import process

    results = process(ROOT).results
    assert len(results) > 50
    assert {item.name: item.err_msg for item in results if item.result is False} == {}


def test_no_registry_is_named() -> None:
    """Packages are named, and never where they come from: mirrors work as well."""
    hosts = re.compile("|".join(["py" + r"pi\.org", "pythonhos" + r"ted\.", "npm" + r"js\.", "anaconda" + r"\.org"]))
    files = [*ROOT.glob("*.*"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*.yml"), ROOT / "Makefile"]
    files += [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    assert len(files) > 300
    assert [path.name for path in files if path.is_file() and hosts.search(path.read_text(errors="ignore"))] == []


def test_python_is_one_that_is_promised() -> None:
    promised = [row.rpartition(" ")[2] for row in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", row)]
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert re.search(r"python: \[(.*)\]", workflow)[1].replace('"', "").split(", ") == promised  # type: ignore[index]
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in promised
