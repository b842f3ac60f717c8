"""The house keeps its rules: no circles, no reaching into others, small rooms, one place for the fitted state."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest

import lodekit as lk

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILES = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").glob("*.py"))]
#: A list of examples is as long as it is.
LONG = ("src/lodekit/system/catalog.py",)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_module_imports_itself_through_others() -> None:
    """Imports for type checkers count as well: what cannot be understood without each other is one thing."""
    graph = grimp.build_graph("lodekit", cache_dir=None)
    below = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # Raises an error that names the circle.
    assert len(list(TopologicalSorter(below).static_order())) == len(graph.modules)


def test_every_room_of_the_engine_house_has_an_inner_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert "exclude_type_checking_imports" not in settings
    inner = {name for item in settings["contracts"] if item.get("exhaustive") for name in item.get("containers", ())}
    # The paper, the report and the commands are lists of things side by side.
    loose = {"lodekit.paper", "lodekit.report", "lodekit.cli"}
    rooms = {path.parent for path in SOURCES if path.name == "__init__.py" and len(list(path.parent.glob("*.py"))) > 4}
    names = {".".join(room.relative_to(ROOT / "src").parts) for room in rooms} - {"lodekit"}
    assert names - loose == inner & names, names - loose - inner


def test_the_tree_shows_every_room_above_those_it_imports_from() -> None:
    """Newcomers read it first: a file that it does not name is found by chance."""
    tree = (ROOT / "CONTRIBUTING.md").read_text().split("```")[1]
    shown_names = [line.split()[0].strip("/").removesuffix(".py") for line in tree.splitlines() if line[:1].strip()]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    floors = [layer.split(" | ") for layer in settings["contracts"][0]["layers"]]
    floor = {name.removeprefix("lodekit."): number for number, names in enumerate(floors) for name in names}
    there = {path.stem for path in (ROOT / "src" / "lodekit").glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in (ROOT / "src" / "lodekit").glob("*/__init__.py")}
    assert there == set(floor)
    assert sorted([*shown_names, "__main__"]) == sorted(floor)
    numbers = [floor[name] for name in shown_names]
    assert numbers == sorted(numbers)


def statements(parent: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements, those within others as well, and no expression: there are ten times as many of these."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node
            yield from statements(node)


def own_names(nodes: list[ast.AST]) -> set[str]:
    """The private names that a module defines itself: functions, attributes and fields."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


#: What can be a use of a private name; most files have none, and need not be parsed.
PRIVATE = re.compile(r"(?<!\bself)(?<!\bcls)\._\w|\bimport\b(?:\s*\([^)]*|[^\n]*)\b_\w")


def reached(text: str) -> Iterator[str]:
    """Yield every use of a private name of somebody else: ``other._name``, or an import of it."""
    nodes = list(ast.walk(ast.parse(text))) if PRIVATE.search(text) else []
    own = own_names(nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not itself and node.attr not in own:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                if is_private(name.name):
                    yield f"line {node.lineno}: import {name.name}"


def is_private(name: str) -> bool:
    # What notebooks and pickle call is public by convention.
    return name.startswith("_") and not name.endswith("_")


def test_what_the_door_of_a_room_names_is_in_it() -> None:
    """The docstring of a package says what to read first: names in single backticks are its files."""
    named = 0
    for door in (ROOT / "src" / "lodekit").glob("*/**/__init__.py"):
        text = ast.get_docstring(ast.parse(door.read_text())) or ""
        for name in re.findall(r"(?<!`)`(\w+)`(?!`)", text):
            assert (door.parent / f"{name}.py").exists() or (door.parent / name).is_dir(), f"{shown(door)}: {name}"
            named += 1
        for page in re.findall(r"docs/[\w-]+\.md", text):
            assert (ROOT / page).exists(), f"{shown(door)}: {page}"
    assert named > 50


def test_benchmarks_that_are_listed_are_there() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    listed = re.findall(r"`(\w+\.py)`", text)
    links = [ROOT / "benchmarks" / link for link in re.findall(r"\]\(([^)#]+)\)", text)]
    assert len(listed) > 30
    assert [path for path in (*(ROOT / "benchmarks" / name for name in listed), *links) if not path.exists()] == []


def test_nobody_reaches_into_others() -> None:
    found = {shown(path): uses for path in FILES if (uses := list(reached(path.read_text())))}
    assert found == {}


def test_reaching_is_noticed() -> None:
    assert len(list(reached("model._hyper.theta\nfrom lodekit.model import _secret\nself._own = self._own"))) == 2
    assert len(list(reached("from lodekit.model import (\n    LODEGP,\n    _secret,\n)"))) == 1
    assert len(list(reached("import numpy\nmodels[0]._hyper\nmake()._hyper\nmyself._hyper"))) == 3
    assert list(reached("class A:\n    _kept = 1\n    def f(self, other):\n        return other._kept")) == []


def test_files_and_functions_fit_on_a_desk() -> None:
    texts = {shown(path): path.read_text() for path in FILES if shown(path) not in LONG}
    assert {name: lines for name, text in texts.items() if (lines := len(text.splitlines())) > 400} == {}
    long = {}
    for name, text in texts.items():
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (lines := 1 + (node.end_lineno or 0) - node.lineno) > 60:
                long[f"{name}: {node.name}"] = lines
    assert long == {}


def make_walk() -> lk.LODEGP:
    return lk.LODEGP(lk.System("x' = v"), random_state=0)


@pytest.fixture(scope="module")
def walk() -> lk.LODEGP:
    return make_walk().fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})


def test_the_estimator_inherits_nothing_and_holds_one_fitted_value(walk: lk.LODEGP) -> None:
    assert lk.LODEGP.__bases__ == (object,)
    before: dict[str, Any] = vars(make_walk())
    assert set(vars(walk)) - set(before) == {"fit_"}
    assert {name: vars(walk)[name] for name in before} == before


def test_the_fitted_state_is_frozen(walk: lk.LODEGP) -> None:
    with pytest.raises(AttributeError):
        walk.fit_.optimum = None  # type: ignore[assignment, misc]
