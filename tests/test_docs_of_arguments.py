"""The public API is documented: every argument is described, and every function has an example that runs.

- The section "Parameters" of a docstring (that of the class, for its constructor) has an entry for every argument.
- Functions and methods have an example: in their docstring, in the README or in the documentation.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import lodekit as lk
from lodekit.cli import app

ROOT = Path(__file__).parent.parent

#: What users import: all names of these modules, and these names of others.
PUBLIC_MODULES = ("lodekit.system.catalog", "lodekit.plotting", "lodekit.integrations.gpytorch")
PUBLIC_NAMES = (
    "lodekit.report.make_report",
    "lodekit.results.simulation.simulate",
    *(f"lodekit.{name}" for name in lk.__all__),
)


@dataclass(frozen=True)
class Item:
    """A function, a method, or a class for what its objects are made from."""

    name: str
    thing: Any

    @property
    def module(self) -> str:
        return str(self.thing.__module__)

    @property
    def docstring(self) -> str:
        return inspect.cleandoc(self.thing.__doc__ or "")

    @property
    def arguments(self) -> list[str]:
        found = list(inspect.signature(self.thing).parameters.values()) if _is_called(self.thing) else []
        # A first argument ``fit: Fit`` is dropped where the function becomes a method of LODEGP.
        names = [a.name for i, a in enumerate(found) if i or (a.name, a.annotation) != ("fit", "Fit")]
        # The help of a command describes its options where they are declared.
        is_command = any(self.thing is command.callback for command in app.registered_commands)
        hints = get_type_hints(self.thing, include_extras=True) if is_command else {}
        names = [name for name in names if not any(getattr(m, "help", "") for m in get_args(hints.get(name))[1:])]
        return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def _is_called(thing: Any) -> bool:
    """Tell whether somebody wrote a signature: protocols have none, and errors may have that of all exceptions."""
    if not inspect.isclass(thing):
        return True
    own = [parent for parent in thing.__mro__ if parent.__module__.startswith("lodekit")]
    return not getattr(thing, "_is_protocol", False) and any("__init__" in vars(parent) for parent in own)


def section(docstring: str, title: str) -> list[str]:
    """Return the lines of a section in the style of numpydoc."""
    lines = docstring.splitlines()
    heads = [i for i in range(len(lines) - 1) if re.fullmatch(r"-{3,}", lines[i + 1])]
    for head, end in pairwise([*heads, len(lines)]):
        if lines[head] == title:
            return lines[head + 2 : end]
    return []


def described(docstring: str) -> set[str]:
    """Return the names that have an entry in "Parameters": ``a, b : type``, at the margin."""
    entries = [line for line in section(docstring, "Parameters") if re.match(r"[*\w]", line)]
    return {name.strip().lstrip("*") for line in entries for name in line.split(" : ")[0].split(",")}


def items_of(name: str, thing: Any) -> Iterator[Item]:
    """Yield what can be called: a function, or a class with its public methods, whoever defines them."""
    if inspect.isclass(thing):
        yield Item(name, thing)
        for key in dir(thing):
            member = inspect.getattr_static(thing, key)
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not key.startswith("_") and inspect.isfunction(function) and function.__module__.startswith("lodekit"):
                yield Item(f"{name}.{key}", function)
    elif inspect.isfunction(thing):
        yield Item(name, thing)


def find_public() -> list[Item]:
    """Return everything that users import, with the methods that they call."""
    found: list[Item] = []
    for path in PUBLIC_MODULES:
        module = importlib.import_module(path)
        own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == path]
        public = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
        found += [item for name in public for item in items_of(f"{path}.{name}", getattr(module, name))]
    for path in PUBLIC_NAMES:
        owner, _, name = path.rpartition(".")
        found += items_of(path, getattr(importlib.import_module(owner), name))
    return found


def list_missing(items: list[Item]) -> list[str]:
    lines = []
    for item in items:
        missing = [argument for argument in item.arguments if argument not in described(item.docstring)]
        if missing:
            lines.append(f"{item.name}: {', '.join(missing)}")
    return sorted(set(lines))


def test_every_argument_of_the_public_api_is_described() -> None:
    assert list_missing(find_public()) == []


def test_every_public_name_has_a_docstring() -> None:
    assert [item.name for item in find_public() if not item.docstring] == []


def test_every_public_function_and_method_has_an_example_that_runs() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = [
        line for page in pages for line in page.read_text("utf-8").splitlines() if re.match(r"(>>>|\.\.\.) ", line)
    ]
    lines = []
    for item in find_public():
        call = re.compile(rf"\b{item.name.rpartition('.')[2]}\(")
        own = any(line.startswith(">>> ") for line in section(item.docstring, "Examples"))
        error = inspect.isclass(item.thing) and issubclass(item.thing, Exception)
        if not (own or error or any(map(call.search, shown))):
            lines.append(item.name)
    assert sorted(set(lines)) == []


def test_descriptions_are_found() -> None:
    text = "Add.\n\nParameters\n----------\na, b : int\n    Of c : d.\n*rest : int\n\nReturns\n-------\ne : int"
    assert described(text) == {"a", "b", "rest"}
    assert described("Return ``first * second`` in `ring`.") == set()
