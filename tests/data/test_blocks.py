"""A text file is cut into blocks between records, wherever its bytes are cut."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lodekit.data.tables import text
from lodekit.data.tables.text import TextFile, read_lines
from lodekit.errors import DataError

QUOTED = 't;x;"a ""remark"", with\nline ends"\n' + "".join(
    f'{k};"{k},5";"one; ""two""\n# three\n{"," * (k % 4)}"\n' if k % 3 else f"{k};{k},5;\n" for k in range(30)
)


def read(file: TextFile, monkeypatch: pytest.MonkeyPatch, size: int | None) -> tuple[list[list[str]], list[int], int]:
    """Return the columns of a file, the lines of its records, and the number of blocks."""
    if size is not None:
        monkeypatch.setattr(text, "BLOCK_BYTES", size)
    columns: list[list[str]] = [[] for _ in file.names]
    lines: list[int] = []
    blocks = list(file.blocks(file.names, as_one_block=size is None))
    for block in blocks:
        content, places = block(file.names[0], ())
        for column, name in zip(columns, file.names, strict=True):
            column.extend(content[name].to_list())
        lines.extend(places.numbers.tolist())
    return columns, lines, len(blocks)


@pytest.mark.parametrize("size", range(1, 90, 2))
def test_cuts_inside_quoted_cells_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TextFile.open(lambda: BytesIO(QUOTED.encode()))
    columns, lines, _ = read(file, monkeypatch, None)
    assert len(lines) == 30
    assert columns[2][1] == 'one; "two"\n# three\n,'
    found, places, blocks = read(file, monkeypatch, size)
    assert (found, places) == (columns, lines)
    assert blocks > 5


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 11, 50, 1000])
def test_line_ends_survive_every_cut(ends: str, size: int) -> None:
    content = ends.join(["t,x", "0,1", "", "1,2", "2,3 ü"]) + ends
    pieces = list(read_lines(lambda: BytesIO(content.encode()), size))
    assert b"".join(pieces).decode() == content.replace("\r\n", "\n").replace("\r", "\n")
    assert all(piece.endswith(b"\n") for piece in pieces)


@settings(deadline=None, max_examples=50)
@given(
    cells=st.lists(st.tuples(st.integers(0, 99), st.text('ab ",;\n#%é', max_size=9)), min_size=1, max_size=30),
    size=st.integers(1, 200),
)
def test_any_cells_in_any_blocks(cells: list[tuple[int, str]], size: int) -> None:
    rows = [f'{number};"{cell.replace(chr(34), chr(34) * 2)}"' for number, cell in cells]
    data = "\n".join(["t;remark", *rows]).encode()
    with pytest.MonkeyPatch.context() as patch:
        file = TextFile.open(lambda: BytesIO(data), header=True)
        try:
            expected = read(file, patch, None)[:2]
        except DataError:
            with pytest.raises(DataError):
                read(file, patch, size)
            return
        assert read(file, patch, size)[:2] == expected


def test_a_quote_that_never_closes_is_an_error_and_not_the_rest_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{k},1" for k in range(100_000)]
    rows[50] = '50,"1'
    file = TextFile.open(lambda: BytesIO("\n".join(["t,x", *rows]).encode()))
    with pytest.raises(DataError, match=r"line \d+: the cells cannot be separated.*check the quotes"):
        read(file, monkeypatch, 1000)
    seen: list[object] = []
    with pytest.raises(DataError):
        seen.extend(file.blocks(["t"]))
    # A cell may be as long as the reader of the standard library allows, 131072 characters, and no longer.
    assert len(seen) < 5


@pytest.mark.parametrize("where", [0, 57, 118])
@pytest.mark.parametrize("ragged", [("5", "6,7,8,9"), ("5,6,7,8", "9,9")])
def test_lines_too_short_and_too_long_do_not_make_up_for_each_other(where: int, ragged: tuple[str, str]) -> None:
    rows = ["0,1,2"] * 120
    rows[where : where + 2] = ragged
    file = TextFile.open(lambda: BytesIO("\n".join(["t,x,y", *rows]).encode()))
    for names in (["t", "x"], ["t", "x", "y"]):
        for direct in ((), names):
            (block,) = file.blocks(names, as_one_block=True)
            with pytest.raises(DataError, match=f"line {where + 2}: expected 3 cells"):
                block("t", direct)


def test_numbers_that_are_parsed_at_once_are_those_of_the_texts() -> None:
    random = np.random.default_rng(0)
    numbers = random.standard_normal(2000) * 10.0 ** random.integers(-200, 200, 2000)
    cells = [repr(float(number)) for number in numbers]
    file = TextFile.open(lambda: BytesIO("\n".join(["t,x", *(f"{k},{cell}" for k, cell in enumerate(cells))]).encode()))
    (block,) = file.blocks(["t", "x"], as_one_block=True)
    assert block("t", ["t", "x"])[0]["x"].tolist() == [float(cell) for cell in cells]
    assert block("t", ())[0]["x"].to_list() == cells


@pytest.mark.parametrize("gap", ["1 ", '"1"', "true", "1,5;"])
def test_cells_that_are_no_plain_numbers_come_as_texts(gap: str) -> None:
    file = TextFile.open(lambda: BytesIO(f"t;x\n0;1\n1;{gap}\n2;3\n".encode()))
    (block,) = file.blocks(["t", "x"], as_one_block=True)
    content, _ = block("t", ["t", "x"])
    assert content["x"].to_list()[0] == "1"
