"""What is public is documented: every argument is described, every function is shown at work.

Three rules, over everything that a module exports by its ``__all__``:

- In the public API, the section "Parameters" of a docstring (that of the class, for what makes an object) has an entry
  for every argument.
- Inside the house, a docstring names every argument: in its section "Parameters", or between backticks in a formula or
  a sentence. Where there is one argument only, the summary speaks of it and need not name it.
- In the public API, functions and methods have an example that runs: in their docstring, or in README or docs.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import lodekit as lk
from lodekit.cli import app

ROOT = Path(__file__).parent.parent

#: What users import: all names of these modules, and these names of others.
PUBLIC_MODULES = (
    "lodekit.system.catalog",
    "lodekit.results.simulation",
    "lodekit.plotting",
    "lodekit.integrations.gpytorch",
)
PUBLIC_NAMES = ("lodekit.report.make_report", *(f"lodekit.{name}" for name in lk.__all__))


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


def named(docstring: str) -> set[str]:
    """Return the words between backticks, wherever they stand, and those that are described."""
    quoted = re.findall(r"``(.+?)``|`(.+?)`", docstring, flags=re.DOTALL)
    return described(docstring) | {word for pair in quoted for text in pair for word in re.findall(r"\w+", text)}


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


def find_exported() -> list[Item]:
    """Return everything that a module of ours exports and defines itself."""
    found: list[Item] = []
    for entry in pkgutil.walk_packages(lk.__path__, "lodekit."):
        if entry.name.endswith("__main__"):
            continue
        module = importlib.import_module(entry.name)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if getattr(thing, "__module__", "") == entry.name:
                found += items_of(f"{entry.name}.{name}", thing)
    return found


def find_public() -> list[Item]:
    """Return everything that users import, with the methods that they call."""
    found: list[Item] = []
    for path in PUBLIC_MODULES:
        module = importlib.import_module(path)
        found += [item for name in module.__all__ for item in items_of(f"{path}.{name}", getattr(module, name))]
    for path in PUBLIC_NAMES:
        owner, _, name = path.rpartition(".")
        found += items_of(path, getattr(importlib.import_module(owner), name))
    return found


def list_missing(items: list[Item], names: Callable[[str], set[str]]) -> list[str]:
    lines = []
    for item in items:
        missing = [argument for argument in item.arguments if argument not in names(item.docstring)]
        if missing:
            lines.append(f"{item.name}: {', '.join(missing)}")
    return sorted(set(lines))


def test_every_argument_of_the_public_api_is_described() -> None:
    assert list_missing(find_public(), described) == []


def test_every_argument_inside_the_house_is_named() -> None:
    assert list_missing([item for item in find_exported() if len(item.arguments) > 1], named) == []


def test_every_exported_name_says_what_it_is() -> None:
    assert [item.name for item in find_exported() if not item.docstring] == []


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Add.\n\nParameters\n----------\na, b : int\n    Of c : d.\n*rest : int\n\nReturns\n-------\ne : int",
            "a b rest",
        ),
        ("Return ``first * second`` in `ring`.", ""),
        ("Say nothing.", ""),
    ],
)
def test_descriptions_are_found_where_they_are(text: str, expected: str) -> None:
    assert described(text) == set(expected.split())
    assert named(text) - described(text) == ({"first", "second", "ring"} if "ring" in text else set())
