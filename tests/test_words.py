"""One name for one thing: the public names of the code keep to the glossary of docs/notation.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_house import statements

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "lodekit"


def read_table(title: str) -> list[list[str]]:
    """Return the cells below a table head that contains a title."""
    lines = (ROOT / "docs" / "notation.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|") and f"| {title} |" in line)
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


@cache
def unused_words() -> set[str]:
    return {word.strip() for _, _, words in read_table("not used") for word in words.split(",")}


@cache
def allowed() -> dict[str, tuple[str, ...]]:
    return {word: tuple(place.strip() for place in places.split(",")) for word, places, _ in read_table("only in")}


def words_of(name: str) -> set[str]:
    """Return the words of a name, in the singular; of a plural both."""
    found = {word.lower() for word in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)}
    return found | {word.removesuffix("s") for word in found}


def public_names(text: str) -> Iterator[str]:
    """Yield public classes, functions, their arguments, and fields of classes."""
    for node in statements(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        yield node.name
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            yield from (item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
        else:
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            yield from (field.id for field in fields if isinstance(field, ast.Name) and not field.id.startswith("_"))


def find_misuses(place: str, text: str) -> list[str]:
    """Return the names in a file, given by its place in the house, that hold a word they should not."""
    unused, kept = unused_words(), allowed()
    names = [*public_names(text), *Path(place).with_suffix("").parts]
    room = Path(place).with_suffix("").parts[0]
    return sorted({name for name in names for word in words_of(name) & unused if room not in kept.get(word, ())})


def test_no_public_name_holds_a_word_that_is_not_used() -> None:
    files = {path.relative_to(SOURCES).as_posix(): path.read_text() for path in sorted(SOURCES.rglob("*.py"))}
    assert {place: found for place, text in files.items() if (found := find_misuses(place, text))} == {}


def test_a_wrong_word_is_noticed() -> None:
    assert find_misuses("prior/prior.py", "def hessian_of(rows): ...\nclass A:\n    sources: int") == [
        "hessian_of",
        "rows",
        "sources",
    ]
    assert find_misuses("algebra/smith.py", "def take_rows(kernel): ...") == []
    assert find_misuses("inference/problem.py", "") == ["problem"]


def test_the_glossary_has_every_word_once() -> None:
    words = [word for word, *_ in read_table("not used")]
    assert len(words) == len(set(words)) > 20
    assert not set(words) & unused_words()
    assert set(allowed()) <= unused_words()
