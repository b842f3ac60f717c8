"""Standard terminology: one name per concept, and every named method has a file that names it and its reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import statements

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "lodekit"


def read_table(title: str) -> list[list[str]]:
    """Return the cells below the table head of docs/notation.md that contains a title."""
    lines = (ROOT / "docs" / "notation.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|") and f"| {title} |" in line)
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


METHODS = [(method, module.strip("`"), pattern.strip("`")) for method, module, pattern, _ in read_table("pattern")]


def module_docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


@pytest.mark.parametrize(("method", "module", "pattern"), METHODS, ids=[method for method, *_ in METHODS])
def test_the_file_that_implements_a_method_names_it(method: str, module: str, pattern: str) -> None:
    path = SOURCES / module
    assert path.exists(), module
    assert re.search(pattern, module_docstring(path), flags=re.IGNORECASE | re.DOTALL), (method, module)


def test_the_list_of_methods_is_complete() -> None:
    assert len(METHODS) >= 30
    assert len({method for method, *_ in METHODS}) == len(METHODS)


def names_defined_in(text: str) -> Iterator[str]:
    """Yield classes, functions, their arguments, and fields of classes."""
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            yield from (item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
        elif isinstance(node, ast.ClassDef):
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            yield from (field.id for field in fields if isinstance(field, ast.Name))


def words_of(name: str) -> set[str]:
    """Return the words of a name in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)}


def replaced_words() -> dict[str, str]:
    """Return the words that the glossary replaces, and what is used instead."""
    return {
        word.strip(): term for term, _, words in read_table("instead of") for word in words.split(",") if word.strip()
    }


def find_misuses(text: str) -> dict[str, str]:
    """Return the names in a source text that contain a replaced word, and the standard term."""
    replaced = replaced_words()
    return {name: replaced[word] for name in names_defined_in(text) for word in words_of(name) & set(replaced)}


def test_no_name_contains_a_word_that_the_glossary_replaces() -> None:
    files = {path.relative_to(SOURCES).as_posix(): path.read_text() for path in sorted(SOURCES.rglob("*.py"))}
    assert {place: found for place, text in files.items() if (found := find_misuses(text))} == {}


def test_a_replaced_word_is_noticed() -> None:
    found = find_misuses("def pull_back(told): ...\nclass Yardstick:\n    leftover: int")
    assert set(found) == {"told", "Yardstick", "leftover"}
    assert find_misuses("class Kernel:\n    output: int\ndef hessian(fisher): ...") == {}


def test_the_glossary_has_every_term_once() -> None:
    terms = [term for term, *_ in read_table("instead of")]
    assert len(terms) == len(set(terms)) > 20
    assert not set(terms) & set(replaced_words())
