"""Columns of bytes: numbers are told from other things as Python tells them, and searched and joined as texts are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lodekit.data.tables import strings
from lodekit.data.tables.strings import StringColumn, parse_decimals

#: What Python would take as well: underscores, words for no number, blanks, digits of other scripts.
NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf|infinity))", re.ASCII)
ODD = [
    "",
    "inf",
    "-Infinity",
    "nan",
    "1_0",
    "0x1",
    "1e400",
    "1e-400",
    "-0",
    "+1",
    "1,5",
    "١",
    "1 ",
    " 1",
    "1d5",
    "e5",
    ".",
]
CELLS = st.one_of(st.text("0159+-.eE", max_size=7), st.sampled_from(ODD), st.floats(allow_nan=False).map(repr))


def read(cells: list[str]) -> tuple[list[float], list[bool]]:
    numbers, valid = parse_decimals(np.frombuffer("".join(f"{cell}\n" for cell in cells).encode(), dtype=np.uint8))
    return numbers.tolist(), valid.tolist()


@pytest.mark.parametrize("few", [0, 10**9])
@settings(deadline=None, max_examples=60)
@given(cells=st.lists(CELLS, min_size=1, max_size=60))
def test_numbers_are_those_of_python_and_nothing_else_is_one(few: int, cells: list[str]) -> None:
    """By both parsers: that of SciPy alone would take 1.2.3 for 1.2."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "_MIN_LINES_FOR_MMREAD", few)
        numbers, valid = read(cells)
    assert valid == [NUMBER.fullmatch(cell) is not None for cell in cells]
    for cell, number, is_number in zip(cells, numbers, valid, strict=True):
        assert number == float(cell) if is_number else np.isnan(number)


TEXTS = st.lists(st.text("a5,. \t\n\u00a0éN", max_size=6), max_size=20)


@settings(deadline=None, max_examples=60)
@given(cells=TEXTS)
def test_texts_in_one_buffer_do_as_texts_of_python_do(cells: list[str]) -> None:
    texts = StringColumn.from_strings(cells)
    assert texts.to_list() == cells
    stripped = texts.strip()
    assert stripped.to_list() == [cell.strip() for cell in cells]
    assert stripped.contains(",").tolist() == ["," in cell.strip() for cell in cells]
    assert stripped.equals_any(("na", "")).tolist() == [cell.strip().lower() in ("na", "") for cell in cells]
    lines = stripped.join_lines().tobytes().decode().split("\n")
    assert lines == [*(cell.strip().replace("\n", "\v") for cell in cells), ""]
    chosen = np.array([len(cell) > 2 for cell in cells], dtype=bool)
    assert texts.select(chosen).join_lines().tobytes().count(b"\n") == chosen.sum()


def test_a_narrow_column_of_a_wide_table_is_joined_alike() -> None:
    rows = "".join(f"{k},{'x' * 200}\n" for k in range(50)).encode()
    data = np.frombuffer(rows, dtype=np.uint8)
    commas = np.flatnonzero(data == ord(","))
    starts = np.concatenate(([0], np.flatnonzero(data == 10)[:-1] + 1))
    assert StringColumn(data, starts, commas).join_lines().tobytes() == "".join(f"{k}\n" for k in range(50)).encode()
