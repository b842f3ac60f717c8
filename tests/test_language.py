"""Pages, public docstrings and messages are plain English: phrases that read like a translation are found."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docs_of_arguments import find_public

ROOT = Path(__file__).parents[1]
#: Phrases to avoid, and what to write instead. A blank stands for any white space.
PHRASES = {
    r"(?<!few\sto\s)\b(tells?|told)\b": "identifies, shows, reports, gives",
    r"\b(says?|said)\b": "states, reports, shows, gives",
    r"\bcounts? (that|what)\b": "includes, accounts for",
    r"\b(nobody|somebody)\b": "unmeasured, unknown, known, the passive voice",
    r"\berr(s|ed)\b": "has an error of; the standard deviation of",
    r"\bmend(s|ed|ing)?\b": "fix, fixed",
    r"\bfound out\b": "detected, determined",
    r"\b(is|are) called so\b|\bchanges? as sensors do\b": "recognised by its name; looks like a sensor signal",
    r"\b(stands?|stood) (once|only|in the|in code|beside|there)\b": "appears, is",
    r"(?<!standard\s)\bdeviation of (free|mode)\b": "amplitude of free function 1 (std)",
    r"\bexplained of\b|\binitial state open\b": "variance explained (T2); initial state estimated from data",
    r"\bso (much|many rows|far) (later|ahead)\b": "this far beyond the data",
    r"^Of the\b[^.]*\.$": "a sentence with a verb",
    r"\b(every|each|upper|lower) floors?\b|\b(house|rooms?|doors?) of (the )?(code|library)\b": "layer, package",
    r"\b(leftovers?|yardsticks?)\b": "residual, remainder; reference",
    r"\bin truth\b": "in fact, actually",
    r"\banew\b": "again",
    r"\bas the rows do\b": "in proportion to the number of rows",
    r"\b(is|are) no (parabolas?|numbers?|times|limits?|business)\b": "is not a",
    r"\bgo(es)? with (an |the |no |known )?inputs?\b": "is correlated with",
    r"\bobeys? no\b|\ba poor place\b": "without equations; a poor optimum",
    r"\b(counts )?all else\b|\ball that (was|is)\b": "all other parameters, all measured channels",
    r"\btaken to (be|have been)\b|\bsits at\b|\bthis is so\b|\bgoes on as\b": "is assumed, is at, holds, continues",
    r"\bask(s|ed)? for\b(?!\?)|\bwhat was (asked|learned)\b": "request, the requested; the estimates",
    r"\bholds (no|dates|units|numbers|the time)\b": "contains",
    r"\bwill (not )?do\b|\bnot made (for|of)\b|\b(cannot|can) take this\b": "is possible, is not supported",
    r"\btie(s|d)? (the )?\w+ to\b|\btake .{1,30} out of (the|these)\b": "relate; remove from",
    r"\bcounts? as\b": "is treated as",
    r"\bstands? (alone|inside)\b|\bas it is (held|linear)\b": "appears; because",
    r"\b(is a slip|are slips|basis is none)\b": "is an error, is not a basis",
}
SEARCHED = {re.compile(phrase.replace(" ", r"\s+"), re.IGNORECASE): advice for phrase, advice in PHRASES.items()}


def find_phrases(text: str, line: int = 1) -> list[str]:
    """Return the line of each phrase in a text that begins at a line, the phrase, and what to write instead."""
    found = [(match, advice) for phrase, advice in SEARCHED.items() for match in phrase.finditer(text)]
    places = [(line + text.count("\n", 0, match.start()), match, advice) for match, advice in found]
    return [f"{place}: {' '.join(match[0].split())!r}; write: {advice}" for place, match, advice in places]


def read_texts() -> Iterator[tuple[Path, int, str]]:
    """Yield pages, strings of the sources (of docstrings the public ones), each with its file and first line."""
    docs, assets = ROOT / "docs", ROOT / "src" / "lodekit" / "assets"
    pages = [path for path in docs.rglob("*.md") if path.parent.name != "paper" and path.name != "claims.md"]
    for path in sorted([*pages, *ROOT.glob("*.md"), *assets.glob("*.t[xo]*"), *assets.glob("*.html")]):
        text = path.read_text(encoding="utf-8")
        # The last column of the tables there lists the words that are replaced.
        yield path, 1, re.sub(r"(?m)[^|\n]*\|$", "|", text) if path.name == "notation.md" else text
    public = {item.docstring for item in find_public()}
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").glob("*.py")]):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        bare = {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            if node not in bare or inspect.cleandoc(node.value) in public or "examples" in path.parts:
                yield path, node.lineno, node.value


def test_texts_are_plain_english() -> None:
    found = [f"{path.relative_to(ROOT)}:{at}" for path, line, text in read_texts() for at in find_phrases(text, line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "where the data tell nothing of a parameter",
        "what a single measurement errs by",
        "the band counts that the parameters are estimates",
        "until that is mended",
        "a channel that nobody measures",
        "inputs that somebody set",
        "All of it is found out.",
        "Fits keep what plans say.",
        "it is called so",
        "it changes as sensors do",
        "stands once only in the equations",
        "explained of T2",
        "Of the starts.",
        "Predict so much\nlater as well",
    ],
)
def test_a_phrase_to_avoid_is_found(sentence: str) -> None:
    assert find_phrases(sentence)


def test_buildings_and_plain_sentences_are_allowed() -> None:
    text = "A house has two rooms; a door is open, and data are too few to tell whether the floor is warm."
    assert find_phrases(text) == []


def test_places_are_lines_of_the_file() -> None:
    assert find_phrases("one\ntwo\nthe summary says so", 5) == ["7: 'says'; write: states, reports, shows, gives"]
