"""Text files are read as people write them: separators, marks, quotes, comments, encodings."""

from __future__ import annotations

import codecs
import gzip
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lodekit.data.tables import read_table
from lodekit.data.tables.text import TextFile
from lodekit.errors import DataError, LodekitError
from tests.data.table_files import DIALECTS, Reader, nan, same
from tests.real_records import RECORDS, needs


@pytest.mark.parametrize("content", DIALECTS)
def test_one_table_is_the_same_in_many_dialects(read: Reader, content: str) -> None:
    same(read(content), [0, 1], x=[1.5, 2.5], y=[2, -0.3])


ENCODED: dict[str, tuple[bytes, str | None]] = {
    "UTF-8 with its mark": (codecs.BOM_UTF8 + "t;°x\n0;1".encode(), None),
    "UTF-16, small end first": (codecs.BOM_UTF16_LE + "t;°x\n0;1".encode("utf-16-le"), "encoding UTF-16"),
    "UTF-16, big end first": (codecs.BOM_UTF16_BE + "t;°x\n0;1".encode("utf-16-be"), "encoding UTF-16"),
    "Latin-1": ("t;°x\n0;1".encode("latin-1"), "encoding Latin-1"),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", ENCODED)
def test_encodings_are_told_and_gzip_is_unpacked(read: Reader, name: str, compressed: bool) -> None:
    data, note = ENCODED[name]
    table = read(gzip.compress(data) if compressed else data, "x", mapping={"x": "°x"})
    same(table, [0], x=[1])
    assert [text for text in table.notes if "encoding" in text] == ([note] if note else [])


@pytest.mark.parametrize("mark", ["", " ", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-", "?", '""', "#N/A"])
def test_words_for_missing_are_missing_values(read: Reader, mark: str) -> None:
    same(read(f"t,x,y\n0,{mark},1\n1,2,{mark}\n"), [0, 1], x=[nan, 2], y=[1, nan])


def test_truth_is_one_and_falsehood_zero(read: Reader) -> None:
    same(read("t,x,y\n0,true,1\n1,FALSE,2\n2,,3\n"), [0, 1, 2], x=[1, 0, nan], y=[1, 2, 3])


def test_files_without_header_have_numbered_columns(read: Reader) -> None:
    content = "0,1,2\n1,NA,4\n"
    table = read(content, "x", mapping={"t": "1", "x": "3"})
    same(table, [0, 1], x=[2, 4])
    assert "columns not used: 2" in table.notes
    assert "no header: columns are identified by their numbers" in table.notes
    with pytest.raises(
        DataError, match=r"no header.*3 columns.*try dt=STEP and columns=.'x': 2.; otherwise columns=.'t': 1, 'x': 2."
    ):
        read(content, "x")
    # A header may be made of numbers, and a first line of data may hold a word.
    same(read("0,1\n5,6\n", "x", mapping={"t": "0", "x": "1"}, header=True), [5], x=[6])
    same(read("5,6,ok\n", "x", mapping={"t": "1", "x": "2"}, header=False), [5], x=[6])


finite = st.floats(allow_nan=False, allow_infinity=False)
cell = st.one_of(st.none(), finite, st.integers(-(10**6), 10**6).map(float))


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(finite, cell, cell), min_size=1, max_size=12),
    separator=st.sampled_from([",", ";", "\t", "|", " ", " ; ", "   "]),
    comma=st.booleans(),
    quoted=st.booleans(),
    marker=st.sampled_from(["NA", "nan", "null", "?", "-"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    comments=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[float, float | None, float | None]],
    separator: str,
    comma: bool,
    quoted: bool,
    marker: str,
    newline: str,
    comments: bool,
    encoding: str,
) -> None:
    def write(number: float | None) -> str:
        text = marker if number is None else repr(number)
        text = text.replace(".", ",") if comma else text
        return f'"{text}"' if quoted or (comma and separator == ",") else text

    lines = ["t,grün,y".replace(",", separator), *(separator.join(map(write, row)) for row in rows)]
    if comments:
        lines = ["# a; comment, here", *lines[:2], "", "  % more", *lines[2:], ""]
    path = tmp_path_factory.mktemp("table") / "data.txt"
    path.write_bytes(newline.join(lines).encode(encoding))
    expected = np.array([[nan if number is None else number for number in row] for row in rows])
    try:
        table = read_table(path, ["grün", "y"])
    except DataError as problem:
        # The two refusals that are meant: nothing but missing values, and numbers that may be thousands.
        if np.isnan(expected[:, 1:]).all() or "may be" in str(problem):
            return
        raise
    found = np.stack([table.times, table.values["grün"], table.values["y"]], axis=1)
    np.testing.assert_array_equal(found, expected)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    try:
        file = TextFile.open(lambda: BytesIO(data))
        columns = [block(file.names[0], ()) for block in file.blocks(file.names, as_one_block=True)]
    except LodekitError:
        return
    for content, places in columns:
        assert {len(texts) for texts in content.values()} == {len(places.numbers)}


@settings(deadline=None)
@given(st.text("0123456789,.;:-/ \t\n\"'#eTx?", max_size=80))
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("table") / "data.csv"
    path.write_text(text)
    try:
        table = read_table(path, ["x"], mapping={"t": "1", "x": "2"})
    except LodekitError:
        return
    assert np.isfinite(table.times).all()
    assert not np.isinf(table.values["x"]).any()


@needs("tclab_mimo_random_steps.csv")
@needs("tclab_siso_step.csv")
@needs("daisy_heating_system.dat")
def test_real_measurements_are_read_as_they_are() -> None:
    names = {"Q1": "Heater 1", "Q2": "Heater 2", "T1": "temperature 1", "T2": "Temperature 2"}
    table = read_table(RECORDS / "tclab_mimo_random_steps.csv", ["Q1", "Q2", "T1", "T2", "TH1"], mapping=names)
    assert len(table.times) == 201
    assert table.times[1] == 3.002565622329711914
    assert table.values["T1"][0] == 21.09
    assert "no column for TH1: not measured" in table.notes
    table = read_table(RECORDS / "tclab_siso_step.csv", ["u", "y"], mapping={"t": "1", "u": "2", "y": "3"})
    assert (table.times[1], table.values["y"][0]) == (1.01, 299.53)
    table = read_table(RECORDS / "daisy_heating_system.dat", ["u", "y"], mapping={"t": "1", "u": "2", "y": "3"})
    assert len(table.times) == 801
    assert (table.times[1], table.values["y"][0]) == (2, 129.32)
    assert "separator white space, decimal point" in table.notes
