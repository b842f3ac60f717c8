"""Lines above the header, a line of units, separators at the end of lines, and comments inside of quotes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from lodekit.data import sources
from lodekit.data.follow import follow_rows
from lodekit.data.preview import preview_table
from lodekit.data.sources import ReadOptions, load_data
from lodekit.data.tables import text, text as text_module
from lodekit.errors import DataError
from tests.data.sums import assert_same
from tests.data.table_files import Reader, same

ROWS = "0,1.5\n1,2.5\n2,3.5\n"


@pytest.mark.parametrize(
    "above",
    [
        "Logger 5000 v2\n",
        "Logger 5000, channel 3, on the roof\n",
        "Serial,1234\n",
        "Serial,1234\nStarted,2026-03-01 12:00\n\nGain,2.5\n",
        "# a comment\nDevice\n",
        "a,b,c,d,e\n",
    ],
)
def test_what_stands_above_the_header_is_skipped_and_told(read: Reader, above: str) -> None:
    table = read(f"{above}t,x\n{ROWS}", "x")
    same(table, [0, 1, 2], x=[1.5, 2.5, 3.5])
    assert any("above the header" in note for note in table.notes)


@pytest.mark.parametrize(
    "content",
    ["t,x,remark\n0,1.5,start\n1,2.5,on\n2,3.5,\n", "t,x\n0,1.5\n1,2.5\n2,3.5\n", "x,t\n1.5,0\n2.5,1\n3.5,2\n"],
)
def test_a_table_that_starts_at_once_has_nothing_above_it(read: Reader, content: str) -> None:
    table = read(content, "x")
    same(table, [0, 1, 2], x=[1.5, 2.5, 3.5])
    assert not any("header" in note for note in table.notes)


def test_text_among_the_rows_is_no_header(read: Reader) -> None:
    with pytest.raises(DataError, match="line 3, column t: expected a number, got 'pump'"):
        read("t,x\n0,1\npump,on\n1,2\n2,3\n", "x")
    with pytest.raises(DataError, match="line 3, column a: expected a number, got 'pump'"):
        read("a,x\n0,1\npump,on\n1,2\n2,3\n", "x", mapping={"t": "a"}, header=True)


@pytest.mark.parametrize("units", ["ms,mm", "[ms],[mm]", "(ms),(mm)", "ms,mm,", "ms,"])
def test_a_line_of_units_belongs_to_the_names(tmp_path: Path, units: str) -> None:
    (tmp_path / "a.csv").write_text(f"time,x\n{units}\n0,1000\n500,1500\n")
    found = load_data(tmp_path / "a.csv", channels=["x"], units={"t": "s", "x": "m"})
    (series,) = found.measurements.series
    factor = 1000 if "mm" in units else 1
    assert (series.times.tolist(), series.values.tolist()) == ([0, 0.5], [1000 / factor, 1500 / factor])
    assert "line 2 contains units" in found.notes


def test_a_separator_at_the_end_of_lines_separates_nothing(read: Reader) -> None:
    for header in ("t\tx\t\n", "t\tx\n"):
        same(read(header + "0\t1\t\n1\t2\t\n", "x"), [0, 1], x=[1, 2])
    same(read("0\t1\t\n1\t2\t\n", "x", mapping={"t": "1", "x": "2"}), [0, 1], x=[1, 2])
    with pytest.raises(DataError, match="so its 2 columns are identified by numbers"):
        read("0\t1\t\n1\t2\t\n", "x")
    # A last column that is empty at first is a column.
    same(read("0,1,\n1,2,5\n", "x", mapping={"t": "1", "x": "3"}), [0, 1], x=[float("nan"), 5])


def test_what_is_quoted_is_no_comment(read: Reader) -> None:
    same(read('"#",t,x\n"#1",0,1\n"# 2",1,2\n', "x"), [0, 1], x=[1, 2])
    same(read('"# t","x"\n0,1\n1,2\n', "x"), [0, 1], x=[1, 2])
    table = read('t,x,remark\n0,1,"one\n# two\n\n% three"\n# gone, gone, gone\n1,2,"5"" pipe"\n2,3,6" pipe\n', "x")
    same(table, [0, 1, 2], x=[1, 2, 3])


KINDS: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "cell": lambda t, x: (t, "oops"),
    "width": lambda t, x: (t, "1,2,3"),
    "no time": lambda t, x: ("", x),
    "infinite": lambda t, x: (t, "inf"),
    "no date": lambda t, x: ("soon", x),
}


@pytest.mark.parametrize("style", ["plain", "comments", "quotes", "blank", "crlf", "several lines"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_line_of_an_error_is_right_in_files_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str, kind: str
) -> None:
    for seed in range(6):
        draw = random.Random(f"{style} {kind} {seed}")
        monkeypatch.setattr(text, "BLOCK_BYTES", draw.choice([64, 200, 1000]))
        monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", draw.choice([5, 10**6]))
        for module in (text_module, text):
            monkeypatch.setattr(module, "SAMPLE_BYTES", draw.choice([300, 1 << 18]))
        count, dated, found = draw.randint(20, 80), draw.random() < 0.5, ["t,x,remark"]
        wrong = draw.randint(8, count - 1)
        for k in range(count):
            if style == "comments" and draw.random() < 0.2:
                found.append("# nothing")
            if style == "blank" and draw.random() < 0.2:
                found.append(draw.choice(["", ",,"]))
            t, x = f"2026-03-01 12:{k // 60:02d}:{k % 60:02d}" if dated else f"{k}", f"{k / 2}"
            if k == wrong:
                t, x = KINDS[kind](t, x)
            remark = {"quotes": '"a, b"', "several lines": draw.choice(['"a\nb"', ""])}.get(style, "a")
            found.append(f"{t},{x},{remark}")
            if k == wrong:
                expected = sum(line.count("\n") + 1 for line in found)
        end = "\r\n" if style == "crlf" else "\n"
        (tmp_path / "a.csv").write_bytes(end.join("\n".join(found).split("\n")).encode())
        with pytest.raises(DataError) as caught:
            load_data(tmp_path / "a.csv", channels=["x"])
        named = re.search(r"lines? (\d+)", str(caught.value))
        assert named is not None
        assert int(named[1]) == expected


def test_times_are_joined_from_columns_of_dates_and_times_of_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{day}.03.2026,{hour:02d}:30,{hour}.5" for day in (30, 31) for hour in range(24)]
    text = "Logger XY\nSite: Bldg 7\n\n{},P (kW)\n" + "\n".join(rows)
    for names in ("Date,Time", "Datum,Zeit", "Tag,Uhrzeit", "Date,Time of day"):
        (tmp_path / "a.csv").write_text(text.format(names))
        for limit in (10**6, 0):
            monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", limit)
            found = load_data(tmp_path / "a.csv", channels=["P"], units={"t": "h"}, columns={"P": 3})
            assert found.origin == datetime(2026, 3, 30, 0, 30)
            assert found.measurements.size == 48
            assert found.measurements.window == (0.0, 47.0)
            assert "lines 1 to 2 above the header were skipped ('Logger XY')" in found.notes
            assert f"times are joined from the columns {' and '.join(names.split(','))}" in found.notes
    look = preview_table(tmp_path / "a.csv")
    assert look.time is not None
    assert (look.time.name, look.time.unit, look.skipped_columns) == ("Date", "h", {})
    assert not any("not used" in note for note in found.notes)
    with pytest.raises(DataError, match="the date and the time of day in one column, got two"):
        list(follow_rows(iter([(tmp_path / "a.csv").read_bytes()]), "log", lambda _: ReadOptions(["P"])))


def test_a_missing_line_end_changes_nothing_in_the_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 0)
    rows = "t,x\n" + "\n".join(f"{k / 7},{(k * k) % 13}" for k in range(200))
    found = []
    for end in ("", "\n"):
        (tmp_path / "a.csv").write_text(rows + end)
        found.append(load_data(tmp_path / "a.csv", channels=["x"]).measurements.statistics)
    assert found[0].size == 200
    assert_same(found[0], found[1])
