"""Measurement files are read as people write them; what cannot be read for certain is refused with its line."""

import codecs
import gzip
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from time import process_time

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lodekit.data.observations import read_observations
from lodekit.data.tables import Table, read_mapping, read_table
from io import BytesIO
from lodekit.data.tables.text import TextFile
from lodekit.errors import DataError, LodekitError

DATA = Path(__file__).parents[3] / "shared" / "data"
Reader = Callable[..., Table]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Read text, or bytes, as a file; channels x and y unless others are named."""

    def write_and_read(
        content: str | bytes,
        *channels: str,
        name: str = "data.csv",
        mapping: dict[str, str] | None = None,
        time: str | None = None,
        header: bool | None = None,
    ) -> Table:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_table(path, channels or ("x", "y"), mapping=mapping, time=time, header=header)

    return write_and_read


def same(table: Table, times: list[float], **values: list[float]) -> None:
    np.testing.assert_array_equal(table.times, times)
    assert list(table.values) == list(values)
    for name, numbers in values.items():
        np.testing.assert_array_equal(table.values[name], numbers)


nan = math.nan
PLAIN = "t,x,y\n0,1.5,2\n1,2.5,-3e-1\n"


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.rstrip(),
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace(",", "|"),
        PLAIN.replace(",", ", "),
        PLAIN.replace(",", " "),
        PLAIN.replace(",", "   ").replace("\n", "  \n  "),
        PLAIN.replace(",", " \t "),
        PLAIN.replace(",", ";").replace(".", ","),
        PLAIN.replace(",", "\t").replace(".", ","),
        PLAIN.replace(",", "  ").replace(".", ","),
        '"t" ; "x" ; "y" \n"0" ; "1,5" ; "2" \n1;2,5;-3e-1',
        't;x;y\n"0";"1,5";"2"\n1;2,5;-3e-1',
        '"t","x","y"\n"0","1,5","2"\n"1","2,5","-0,3"',
        '"t" "x" "y"\n0 1.5 2\n1 2.5 -.3',
        "t,x,y,\n0,1.5,2,\n1,2.5,-3e-1,\n",
        "t,x,y\n0,1.5,2,\n1,2.5,-3e-1,\n",
        "t;x;y\n0;1.5;2\n;;\n1;2.5;-.3\n;;\n ; ; \n",
        "# a comment\n\n% another\nt,x,y\n# units\n0,1.5,2\n\n  # more, and, more\n1,2.5,-3e-1\n\n",
        "# t, x, y\n0,1.5,2\n1,2.5,-3e-1\n",
        "sep=;\nt;x;y\n0;1,5;2\n1;2,5;-0,3\n",
        "y;t;x\n2;0;1.5\n-.3;1;2.5\n",
        "t,x,y,remark\n0,1.5,2,ok\n1,2.5,-0.3,50%\n",
        't,x,"a, b",y\n0,1.5,"u, v",2\n1,2.5,,-0.3\n',
        't,x,"two\nlines",y\n0,1.5,3,2\n1,2.5,,-0.3\n',
        "t,x,y\n +0. , 1.50 ,2e0\n1E0,+2.5,-.3\n",
        "Time,x,y\n0,1.5,2\n1,2.5,-0.3\n\x1a",
    ],
)
def test_one_table_in_many_dialects(read: Reader, content: str) -> None:
    same(read(content), [0, 1], x=[1.5, 2.5], y=[2, -0.3])


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (codecs.BOM_UTF8 + "t;°x\n0;1".encode(), None),
        ("t;°x\n0;1".encode("utf-16"), "encoding UTF-16"),
        (codecs.BOM_UTF16_BE + "t;°x\n0;1".encode("utf-16-be"), "encoding UTF-16"),
        ("t;°x\n0;1".encode("latin-1"), "encoding Latin-1"),
        (gzip.compress("t;°x\n0;1".encode()), None),
    ],
)
def test_encodings_and_gzip(read: Reader, data: bytes, note: str | None) -> None:
    table = read(data, "x", mapping={"x": "°x"})
    same(table, [0], x=[1])
    assert [text for text in table.notes if "encoding" in text] == ([note] if note else [])


@pytest.mark.parametrize("mark", ["", " ", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-", "?", '""', "#N/A"])
def test_missing_values(read: Reader, mark: str) -> None:
    same(read(f"t,x,y\n0,{mark},1\n1,2,{mark}\n"), [0, 1], x=[nan, 2], y=[1, nan])


def test_truth_is_one_and_falsehood_zero(read: Reader) -> None:
    same(read("t,x,y\n0,true,1\n1,FALSE,2\n2,,3\n"), [0, 1, 2], x=[1, 0, nan], y=[1, 2, 3])


def test_files_without_header_have_numbered_columns(read: Reader) -> None:
    content = "0,1,2\n1,NA,4\n"
    table = read(content, "x", mapping={"t": "1", "x": "3"})
    same(table, [0, 1], x=[2, 4])
    assert table.unused == ("2",)
    assert "no header: the columns are called by their numbers" in table.notes
    with pytest.raises(DataError, match=r"no header.*3 columns.*try --map t=1 --map x=2"):
        read(content, "x")
    # A header may be made of numbers, and a first line of data may hold a word.
    same(read("0,1\n5,6\n", "x", mapping={"t": "0", "x": "1"}, header=True), [5], x=[6])
    same(read("5,6,ok\n", "x", mapping={"t": "1", "x": "2"}, header=False), [5], x=[6])


def test_columns_are_found_by_name_case_and_unit(read: Reader) -> None:
    table = read("TIME (s); T1 [degC] ;t2;Q;remark\n0;1;2;3;a\n", "T1", "T2", "TH")
    same(table, [0], T1=[1], T2=[2])
    assert table.time_name == "TIME (s)"
    assert table.unused == ("Q", "remark")
    assert table.notes == (
        "separator ';', decimal point",
        "T1 is in column T1 [degC]",
        "T2 is in column t2",
        "no column for TH: not measured (columns not used: Q, remark)",
    )
    # An exact name wins over similar ones; a capital T is no time.
    same(read("t,T,t [K],T [K]\n0,1,2,3\n", "T", mapping={"t": "t"}), [0], T=[1])
    same(read("time,T\n0,1\n", "T"), [0], T=[1])
    same(read("t [s],T (K)\n0,1\n", "T"), [0], T=[1])


def test_a_mapping_names_columns_derivatives_and_noise(read: Reader) -> None:
    content = "clock,a,b,c,sigma\n0,1,2,3,0.1\n1,2,3,4,\n"
    mapping = {"t": "clock", "x": "b", "x'": "3", "y": "A", "std(x)": "sigma"}
    with pytest.raises(DataError, match="column b is mapped to x and to x'"):
        read(content, mapping=mapping)
    table = read(content, mapping=mapping | {"x'": "4"})
    derivative: dict[str, list[float]] = {"x'": [3, 4]}
    same(table, [0, 1], x=[2, 3], y=[1, 2], **derivative)
    np.testing.assert_array_equal(table.noise["x"], [0.1, nan])
    assert table.unused == ()
    assert len(read_observations(("x", "y"), table.times, table.values, table.noise)) == 6
    with pytest.raises(DataError, match="line 2, column c: expected a standard deviation of zero or more, got -3"):
        read(content.replace("3,0.1", "-3,0.1"), mapping={"t": "1", "x": "a", "std(x)": "c"})
    with pytest.raises(DataError, match="y itself has no column"):
        read(content, mapping={"t": "1", "x": "a", "std(y)": "c"})


@pytest.mark.parametrize(
    ("header", "mapping", "time", "match"),
    [
        ("a,x,y", {}, None, "expected a column t or time, got the columns a, x, y; try --map t=COLUMN"),
        ("t,time,x", {}, None, "the time may be in any of the columns t, time; try --map t='t'"),
        ("t,a,b", {}, None, "at least one of x, y, got the columns t, a, b; try --map x=COLUMN"),
        ("t,x [m],x [km]", {}, None, "channel x may be in any of the columns x .m., x .km.; try --map x='x .m.'"),
        ("t,X,X [m]", {}, None, "channel x may be in any of the columns X, X .m."),
        ("t,x,x", {}, None, "expected different names of columns, got x more than once"),
        ("t,x,y", {"x": "z"}, None, "expected a column z .for x., got the columns t, x, y"),
        ("t,x,y", {"x": "4"}, None, "expected a column 1 to 3 for x, got 4"),
        ("t,x,y", {"x": "0"}, None, "expected a column 1 to 3 for x, got 0"),
        ("t,a [m],a (m)", {"x": "a"}, None, "a .for x. may be any of the columns a .m., a .m.; write its full name"),
        ("t,x,y", {"x": "y", "y": "y"}, None, "column y is mapped to x and to y"),
        ("t,x,y", {"t": "x"}, "t", "the time is said to be in column t and in column x"),
        ("t,x,y", {}, "w", "expected a column w .for t."),
        ("t,x,y", {"": "x"}, None, "expected a channel and its column"),
        ("t,x,y", {"x": ""}, None, "expected a channel and its column"),
    ],
)
def test_doubtful_columns_are_refused(
    read: Reader, header: str, mapping: dict[str, str], time: str | None, match: str
) -> None:
    with pytest.raises(DataError, match=match) as caught:
        read(f"{header}\n0,1,2\n", mapping=mapping, time=time)
    assert str(caught.value).count("data.csv") == 1


def test_a_column_for_two_channels_is_refused(read: Reader) -> None:
    with pytest.raises(DataError, match="column TH may be any of the channels Th, tH"):
        read("t,TH\n0,1\n", "Th", "tH")
    same(read("t,T1 [K]\n0,1\n", "t1", "T1"), [0], T1=[1])


def test_options_of_the_command_line() -> None:
    assert read_mapping(["T1=temperature 1", " t = 1 ", "f1'=a=b"]) == {"T1": "temperature 1", "t": "1", "f1'": "a=b"}
    assert read_mapping([]) == {}
    for wrong in ("T1", "T1=", "=a", "", "="):
        with pytest.raises(DataError, match="expected --map CHANNEL=COLUMN"):
            read_mapping([wrong])
    with pytest.raises(DataError, match="names x twice, for a and b"):
        read_mapping(["x=a", "x=b"])


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("t,x\n0,1\n1,abc\n", "line 3, column x: expected a number, got 'abc'; leave the cell empty"),
        ("# c\n\nt,x\n0,1\n# c\n1,abc\n", "line 6, column x: expected a number, got 'abc'"),
        ('t,x\n0,1\n1,"abc"\n', "line 3, column x: expected a number, got 'abc'"),
        ("t  x\n0  1\n\n1  abc\n", "line 4, column x: expected a number, got 'abc'"),
        ("t,x\ns,m\n0,1\n", "line 2, column t: expected a number, got 's'; put # before lines with units"),
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
        ("Report of today\nt;x\n0;1\n1;2\n", "line 2: expected 1 cell, like the first line.*got 2; put # before"),
        ("Report\nt,x\n0,1\n1,2\n", "line 2: expected 1 cell, like the first line.*got 2; put # before"),
        ('t,x\n0,"1\n5"\n1,2\n', "line 3, column x: expected a number, got '1.n5'"),
        ('t,x\n0,"1\n1,2\n', "the cells cannot be told apart.*check the quotes"),
        ("t,x\n0,\n1,\n", "expected at least one value of x, every cell is missing"),
        ("t,x\n", "expected rows of numbers below the header .t, x., found none"),
        ("t\n0\n1\n", "expected two or more columns.*got lines such as '1'"),
        ("", "the file is empty"),
        ("\n \n# nothing\n", "the file is empty"),
        ("sep=;\n", "expected lines of numbers"),
        (b"t,x\n0,1\0\n", "binary data"),
        (bytes(range(256)) * 9, "binary data"),
        ("t,x\n0,1".encode("utf-16-le"), "UTF-16 without its mark"),
        (b"\xff\xfe\x00", "binary data"),
        (b"PK\x03\x04rest", "spreadsheet or zip archive; save the table as CSV"),
        (gzip.compress(b"t,x\n0,1\n" * 99)[:-9], "cannot be unpacked"),
        (b"PAR1 and nothing else", "cannot be read as Parquet"),
    ],
)
def test_what_cannot_be_read_is_named(read: Reader, content: str | bytes, match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        read(content, "x")
    assert str(caught.value).count("data.csv") == 1


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
    with pytest.raises(DataError, match=r"column x.*(remove|separators between thousands)"):
        read(content, "x")


def test_three_decimals_are_no_thousands(read: Reader) -> None:
    same(read("t;x\n0;20,125\n1;0,5\n2;7\n", "x"), [0, 1, 2], x=[20.125, 0.5, 7])
    same(read("t;x\n0;20.125\n1;0.5\n2;7\n", "x"), [0, 1, 2], x=[20.125, 0.5, 7])
    same(read("t,x\n0,20.125\n1,7\n", "x"), [0, 1], x=[20.125, 7])
    table = read("t;x\n0;20,125\n1;20,250\n", "x")
    same(table, [0, 1], x=[20.125, 20.25])
    assert "'20,125' in column x is read as 20.125" in table.notes


UTC1 = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("first", "second", "seconds", "origin"),
    [
        ("2024-03-01", "2024-03-02", 86400, datetime(2024, 3, 1)),
        ("2024-02-28", "2024-03-01", 2 * 86400, datetime(2024, 2, 28)),
        ("2024-03-01 12:00", "2024-03-01 12:01", 60, datetime(2024, 3, 1, 12)),
        ("2024-03-01T12:00:00", "2024-03-01 12:00:00.5", 0.5, datetime(2024, 3, 1, 12)),
        ("2024-03-01 12:00:00.25", "2024-03-01 12:00:01,5", 1.25, datetime(2024, 3, 1, 12, 0, 0, 250000)),
        ("2024-03-01T12:00:00Z", "2024-03-01T13:00:00+00:00", 3600, datetime(2024, 3, 1, 12, tzinfo=UTC)),
        ("2024-03-01T12:00:00+01:00", "2024-03-01 12:00:00 UTC", 3600, datetime(2024, 3, 1, 12, tzinfo=UTC1)),
        ("2024-03-01 12:00:00+0100", "2024-03-01 12:00:00-05", 21600, datetime(2024, 3, 1, 12, tzinfo=UTC1)),
        ("2024/03/01", "2024/3/2", 86400, datetime(2024, 3, 1)),
        ("01.03.2024 12:00", "01.03.2024 12:00:30", 30, datetime(2024, 3, 1, 12)),
        ("1.3.2024, 8:00", "1.3.2024, 8:01", 60, datetime(2024, 3, 1, 8)),
        ("03/01/2024", "03/14/2024", 13 * 86400, datetime(2024, 3, 1)),
        ("01/03/2024", "14/03/2024", 13 * 86400, datetime(2024, 3, 1)),
        ("3/14/2024 12:30 AM", "3/14/2024 1:30 pm", 13 * 3600, datetime(2024, 3, 14, 0, 30)),
        ("05/05/2024", "06/06/2024", 32 * 86400, datetime(2024, 5, 5)),
        ("1969-12-31 23:59:59.5", "1970-01-01", 0.5, datetime(1969, 12, 31, 23, 59, 59, 500000)),
    ],
)
@pytest.mark.parametrize("form", ["timestamp;x\n{};1,5\n{};2,5\n", '"date"\t"x"\n"{}"\t1.5\n"{}"\t2.5\n'])
def test_dates(read: Reader, form: str, first: str, second: str, seconds: float, origin: datetime) -> None:
    table = read(form.format(first, second), "x")
    same(table, [0, seconds], x=[1.5, 2.5])
    assert table.origin == origin
    assert table.origin.utcoffset() == origin.utcoffset()
    assert f"times are seconds since {origin}" in table.notes


@pytest.mark.parametrize(
    ("first", "second", "match"),
    [
        ("01/03/2024", "02/03/2024", "'01/03/2024' may have the day or the month first"),
        ("14/03/2024", "03/14/2024", "may have the day or the month first"),
        ("2024-03-01", "01.03.2024", "line 3: expected a date.*same form as '2024-03-01' above, got '01.03.2024'"),
        ("2024-03-01", "5", "line 3: expected a date"),
        ("2024-03-01", "2024-02-30", "line 3.*there is no such day or time"),
        ("2024-03-01", "2024-13-01", "no such day or time"),
        ("2024-03-01", "2024-03-01 24:00", "no such day or time"),
        ("3/14/2024 1:00 PM", "3/14/2024 13:00 PM", "no such day or time"),
        ("2024-03-01 12:00Z", "2024-03-01 12:00", "line 3: expected a time zone as in other rows"),
        ("2024-03-01 12:00Z", "2024-03-01 12:00+99:00", "expected a time zone such as"),
        ("0", "2024-03-01", "line 3, column t: expected a number, got '2024-03-01'"),
        ("12:00:00", "12:00:01", "column t: expected a number, got '12:00:00'"),
        ("2024-03-01", "", "column t has none in line 3"),
    ],
)
def test_doubtful_dates_are_refused(read: Reader, first: str, second: str, match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        read(f"t,x\n{first},1\n{second},2\n", "x")
    assert "column t" in str(caught.value)


def test_parquet(tmp_path: Path) -> None:
    start = datetime(2024, 3, 1, 12, tzinfo=UTC)
    path = tmp_path / "data.parquet"
    frame = pl.DataFrame(
        {
            "when": [start, start + timedelta(milliseconds=500), start + timedelta(days=1)],
            "day": [date(2024, 3, 1), date(2024, 3, 2), date(2024, 3, 3)],
            "since": [timedelta(0), timedelta(seconds=1.5), timedelta(minutes=1)],
            "number": [1, 2, None],
            "price": [Decimal("1.25"), None, Decimal("3.50")],
            "on": [True, False, None],
            "float": [1.5, nan, None],
            "text": ["1,5", "NA", "2,25"],
            "kind": pl.Series(["1", "2", None], dtype=pl.Categorical),
            "list": [[1], [2], [3]],
            "nothing": [None, None, None],
            "infinite": [1.0, math.inf, 2.0],
            "gap": [start, None, start],
        }
    )
    frame.write_parquet(path)
    names = ["number", "price", "on", "float", "text", "kind", "nothing"]
    table = read_table(path, names, time="when")
    expected = [[1, 2, nan], [1.25, nan, 3.5], [1, 0, nan], [1.5, nan, nan], [1.5, nan, 2.25], [1, 2, nan], [nan] * 3]
    same(table, [0, 0.5, 86400], **dict(zip(names, expected, strict=True)))
    assert table.origin == start
    assert table.unused == ("day", "since", "list", "infinite", "gap")
    assert "column nothing has no values" in table.notes
    table = read_table(path, ["x"], mapping={"t": "day", "x": "number"})
    same(table, [0, 86400, 2 * 86400], x=[1, 2, nan])
    assert table.origin == datetime(2024, 3, 1)
    table = read_table(path, ["number"], time="since")
    same(table, [0, 1.5, 60], number=[1, 2, nan])
    assert table.origin is None
    for channel, time, match in (
        ("list", "when", "expected numbers in column list, got List"),
        ("day", "when", "expected numbers in column day, got Date"),
        ("number", "list", "expected numbers or dates in column list"),
        ("number", "gap", "column gap has none in row 2"),
        ("infinite", "when", "row 2, column infinite: expected a finite number"),
        ("nothing", "when", "every cell is missing"),
    ):
        with pytest.raises(DataError, match=match):
            read_table(path, [channel], time=time)
    frame.clear().write_parquet(path)
    with pytest.raises(DataError, match="expected rows"):
        read_table(path, ["number"], time="when")
    path.write_text("t,x\n0,1\n")
    with pytest.raises(DataError, match="expected a Parquet file, got something else"):
        read_table(path, ["x"])


def test_unreadable_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.csv: cannot be read, No such file"):
        read_table(tmp_path / "missing.csv", ["x"])
    with pytest.raises(DataError, match="expected a file, got a folder"):
        read_table(tmp_path, ["x"])
    with pytest.raises(DataError, match="cannot be read"):
        read_table("a\0b", ["x"])
    with pytest.raises(DataError, match="expected the path"):
        read_table(3, ["x"])  # type: ignore[arg-type]


def test_a_million_rows_take_seconds(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    numbers = np.random.default_rng(0).normal(size=(200_000, 5)).round(9)
    pl.DataFrame(numbers, schema=["t", *"abcd"], orient="row").write_csv(path)
    before = process_time()
    table = read_table(path, list("abcd"))
    # About 0.3 s: a million rows in a couple of seconds, with room for slow machines.
    assert process_time() - before < 3
    np.testing.assert_array_equal(np.stack([table.times, *table.values.values()], axis=1), numbers)


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
        cells = TextFile.open(lambda: BytesIO(data))
    except LodekitError:
        return
    assert len(cells.frame) == len(cells.lines)
    assert cells.frame.width == len(cells.names)


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


@pytest.mark.skipif(not DATA.is_dir(), reason="the real measurements are not here")
def test_real_measurements() -> None:
    names = {"Q1": "Heater 1", "Q2": "Heater 2", "T1": "temperature 1", "T2": "Temperature 2"}
    table = read_table(DATA / "tclab_mimo_random_steps.csv", ["Q1", "Q2", "T1", "T2", "TH1"], mapping=names)
    assert table.time_name == "Time (sec)"
    assert len(table.times) == 201
    assert table.times[1] == 3.002565622329711914
    assert table.values["T1"][0] == 21.09
    assert "no column for TH1: not measured" in table.notes
    table = read_table(DATA / "tclab_siso_step.csv", ["u", "y"], mapping={"t": "1", "u": "2", "y": "3"})
    assert (table.times[1], table.values["y"][0]) == (1.01, 299.53)
    table = read_table(DATA / "daisy_heating_system.dat", ["u", "y"], mapping={"t": "1", "u": "2", "y": "3"})
    assert len(table.times) == 801
    assert (table.times[1], table.values["y"][0]) == (2, 129.32)
    assert "separator white space, decimal point" in table.notes
