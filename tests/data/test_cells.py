"""What cannot be read as a number for certain is refused, with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lodekit.data.preview import preview_table
from lodekit.data.sources import load_data
from lodekit.errors import DataError
from tests.data.table_files import Reader, same


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("t,x\n0,1\n1,abc\n", "line 3, column x: expected a number, got 'abc'; leave the cell empty"),
        ("t,x\n0,1\n1,0.006 V\n", "got '0.006 V'; write the number without its unit, which can be in the name"),
        ("t,x\n0,1\n1,4 %\n", "got '4 %'; write the number without its unit"),
        ("t,x\n0,1\n1,1.2.3\n", "got '1.2.3'; leave the cell empty"),
        ("# c\n\nt,x\n0,1\n# c\n1,abc\n", "line 6, column x: expected a number, got 'abc'"),
        ('t,x\n0,1\n1,"abc"\n', "line 3, column x: expected a number, got 'abc'"),
        ("t  x\n0  1\n\n1  abc\n", "line 4, column x: expected a number, got 'abc'"),
        ("t,x\nearly,left\n0,1\n", "line 2, column t: expected a number, got 'early'; put # before lines with units"),
        ("t;x\n0;1.5\n1;2,5\n", "line 3, column x: expected a number, got '2,5'"),
        (
            "t;x\n0;1,5\n1;2.5\n2;3,5\n",
            "line 3, column x: expected a number, got '2.5'; other cells have a decimal comma",
        ),
        ("t,x\n0,2024-03-01\n", "line 2, column x.*dates are read in the time column only"),
        ("t,x\n0,1_000\n", "got '1_000'"),
        ("t,x\n0,0x10\n", "got '0x10'"),
        ("t,x\n0,inf\n", "line 2, column x: expected a finite number, got 'inf'"),
        ("t,x\n0,1\n1,-Infinity\n", "line 3, column x: expected a finite number"),
        ("t,x\n0,1\n1,1e999\n", "line 3, column x: expected a finite number, got '1e999'"),
        ("t,x\ninf,1\n", "line 2, column t: expected a finite number"),
        ("t,x\n0,1\n,2\nNA,3\n3,4\n", "expected a time in every row, column t has none in lines 3, 4"),
        ("t,x\n,1\n", "column t has none in line 2"),
        ("t,x\n" + ",1\n" * 9, "in lines 2, 3, 4, 5, 6, ... .9 in all."),
        ("t,x\n0,1\n1,2,3\n", "line 3: expected 2 cells, like the first line, separated by ',', got 3"),
        ("t,x,y\n0,1,2\n1,2\n", "line 3: expected 3 cells, like the first line, separated by ',', got 2"),
        ("t,x\n0,1,0,5\n1,0,2,5\n", "line 2: expected 2 cells.*decimal comma needs another separator"),
        ("t x\n0 1\n1 2 3\n", "line 3: expected 2 cells.*white space, got 3; put # before"),
        ("Report of today\n0;1\n1;2\n", "line 2: expected 1 cell, like the first line.*got 2; put # before"),
        ("Report\n0,1\n1,2\n", "line 2: expected 1 cell, like the first line.*got 2; put # before"),
        ('t,x\n0,"1\n5"\n1,2\n', "line 3, column x: expected a number, got '1.n5'"),
        ('t,x\n0,"1\n1,2\n', "the cells cannot be separated.*check the quotes"),
        ("t,x\n0,\n1,\n", "expected at least one value of x, every cell is missing"),
        ("t,x\n", "expected rows of numbers below the header .t, x., found none"),
        ("t\n0\n1\n", "expected two or more columns.*got lines such as '1'"),
        ("", "the file is empty"),
        ("\n \n# nothing\n", "the file is empty"),
        ("sep=;\n", "expected lines of numbers"),
        pytest.param(b"t,x\n0,1\0\n", "binary data", id="a zero byte"),
        pytest.param(bytes(range(256)) * 9, "binary data", id="every byte"),
        pytest.param("t,x\n0,1".encode("utf-16-le"), "UTF-16 without its mark", id="UTF-16 without its mark"),
        pytest.param(b"\xff\xfe\x00", "binary data", id="half a character"),
        pytest.param(b"PK\x03\x04rest", "spreadsheet or zip archive; save the table as CSV", id="a zip archive"),
        pytest.param(b"PAR1 and nothing else", "cannot be read as Parquet", id="four letters of Parquet"),
    ],
)
def test_what_cannot_be_read_is_named(read: Reader, content: str | bytes, match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        read(content, "x")
    assert str(caught.value).count("data.csv") == 1


def test_half_a_compressed_file_is_named(read: Reader) -> None:
    with pytest.raises(DataError, match=r"data\.csv: .*cannot be unpacked"):
        read(gzip.compress(b"t,x\n0,1\n" * 99)[:-9], "x")


def test_a_far_line_is_found(read: Reader) -> None:
    rows = [f"{number},1" for number in range(5000)]
    rows[4000] = "4000,oops"
    with pytest.raises(DataError, match="line 4002, column x: expected a number, got 'oops'"):
        read("t,x\n" + "\n".join(rows), "x")


def test_a_decimal_comma_far_down_is_found(read: Reader) -> None:
    table = read("t;x\n" + "".join(f"{number};1\n" for number in range(3000)) + "3000;1,5\n", "x")
    assert table.values["x"][-1] == 1.5
    assert "separator ';', decimal comma" in table.notes


@pytest.mark.parametrize(
    "content",
    [
        "t;x\n0;1,234.5\n",
        "t;x\n0;1.234,5\n1;2,5\n",
        "t;x\n0;1.234.567\n",
        "t;x\n0;1 234,5\n1;2,5\n",
        "t;x\n0;1'234.5\n",
        "t\tx\n0\t1,234,567\n",
        't,x\n0,"1,234"\n',
        't,x\n0,"1,234"\n1,999\n',
        "t;x\n0;1,234\n1;999\n",
        "t;x\n0;1.234\n1;999\n",
    ],
)
def test_thousands_are_never_misread(read: Reader, content: str) -> None:
    with pytest.raises(DataError, match=r"column x.*(remove|without separators between thousands)"):
        read(content, "x")


def test_three_decimals_are_no_thousands(read: Reader) -> None:
    same(read("t;x\n0;20,125\n1;0,5\n2;7\n", "x"), [0, 1, 2], x=[20.125, 0.5, 7])
    same(read("t;x\n0;20.125\n1;0.5\n2;7\n", "x"), [0, 1, 2], x=[20.125, 0.5, 7])
    same(read("t,x\n0,20.125\n1,7\n", "x"), [0, 1], x=[20.125, 7])
    table = read("t;x\n0;20,125\n1;20,250\n", "x")
    same(table, [0, 1], x=[20.125, 20.25])
    assert "'20,125' in column x is read as 20.125" in table.notes


def test_failures_of_loggers_are_read_as_missing_and_counted(tmp_path: Path) -> None:
    rows = [f"{t},{20 + t % 3}" for t in range(12)]
    for row, cell in {2: "ERR", 3: "#NV", 5: "Bad", 7: "ERR"}.items():
        rows[row] = f"{row},{cell}"
    (tmp_path / "log.csv").write_text("\n".join(["t,T", *rows]))
    found = load_data(tmp_path / "log.csv", channels=["T"])
    assert found.notes == ("column T: 4 text cells read as missing (ERR, #NV, Bad)",)
    assert len(found.measurements.series[0].times) == 8
    # A column of errors is still recognised in the header.
    (tmp_path / "log.csv").write_text("t,T,error\n" + "\n".join(f"{row},0.1" for row in rows))
    assert load_data(tmp_path / "log.csv", channels=["T"], columns={"std(T)": "error"}).notes


def test_repeated_numbers_for_failures_are_named_and_can_be_missing(tmp_path: Path) -> None:
    rows = [f"{t},{20 + t % 3}" for t in range(12)]
    for row, cell in {2: -999, 3: -999, 5: 9999, 7: 9999}.items():
        rows[row] = f"{row},{cell}"
    (tmp_path / "log.csv").write_text("\n".join(["t,T", *rows]))
    found = load_data(tmp_path / "log.csv", channels=["T"])
    told = (
        "the channel T is -999 or 9999 in {} rows{}, as if a sensor failed; missing=[-999, 9999] reads them as "
        "missing; correct this first, because other warnings may follow from it"
    )
    assert found.notes == found.warnings == (told.format(4, ""),)
    (tmp_path / "other.csv").write_text("t,T\n1,20\n2,21\n3,-999\n4,22\n")
    found = load_data([tmp_path / "log.csv", tmp_path / "other.csv"], channels=["T"])
    assert found.warnings == (told.format(5, " of records log.csv and other.csv"),)
    (told,) = load_data(tmp_path / "log.csv", channels=["T"], in_shell=True).warnings
    assert "; --missing -999 --missing 9999 reads them as missing; correct" in told
    found = load_data(tmp_path / "log.csv", channels=["T"], missing=[-999, 9999])
    assert (found.notes, len(found.measurements.series[0].times)) == ((), 8)
    with pytest.raises(DataError, match="missing"):
        load_data(tmp_path / "log.csv", channels=["T"], missing="off")
    look = preview_table(tmp_path / "log.csv").columns[0]
    assert (look.failures, look.input_evidence) == ((-999.0, 9999.0), "")
