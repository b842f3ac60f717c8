"""Everything that fit accepts becomes measurements; its size, not its kind, says what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from lodekit.data import sources
from lodekit.data.observations import Observations
from lodekit.data.sources import LoadedData, load_data
from lodekit.data.statistics import Statistics
from lodekit.errors import DataError
from tests.data.sums import CHANNELS, assert_same, in_memory, make_table, write

TIMES = np.arange(5.0)


def is_sums(source: Any) -> bool:
    return load_data(source, channels=CHANNELS).measurements.sufficient_statistics is not None


def test_size_decides_and_files_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 100)
    table = make_table(100)
    for ending in ("csv", "parquet"):
        path = write(tmp_path / f"hundred.{ending}", table)
        assert not is_sums(path)
        assert is_sums(write(tmp_path / f"more.{ending}", make_table(101)))
        write(tmp_path / f"two.{ending}", {name: part + 99.0 for name, part in make_table(1).items()})
        assert is_sums([[path, tmp_path / f"two.{ending}"]])
    assert not is_sums(pl.DataFrame(table))
    assert is_sums(pl.DataFrame(make_table(101)))


def test_lines_of_header_and_comments_above_it_are_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 2)
    (tmp_path / "a.csv").write_text("# one\n# two\nt,x\n0,1\n1,2\n")
    assert not is_sums(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("# one\n# two\nt,x\n0,1\n1,2\n2,3")
    assert is_sums(tmp_path / "a.csv")


def test_several_small_files_are_one_set_of_measurements(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,x\n0,1\n1,4\n")
    (tmp_path / "b.csv").write_text("time;X [m];y\n1;2,5;7\n2;3;\n")
    found = load_data(str(tmp_path / "?.csv"), channels=CHANNELS)
    x, y = found.measurements.series
    assert (x.times.tolist(), x.values.tolist()) == ([0, 1, 1, 2], [1, 2.5, 4, 3])
    assert (y.times.tolist(), y.values.tolist()) == ([1], [7])
    assert "separator ';', decimal comma (b.csv)" in found.notes
    assert "no column for u: not measured (b.csv)" in found.notes


def test_dates_of_several_files_have_one_origin(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("date,x\n2026-03-01 12:00,1\n2026-03-01 12:01,2\n")
    (tmp_path / "b.csv").write_text("date;x\n01.03.2026 12:02;3\n")
    pl.DataFrame({"date": [datetime(2026, 3, 1, 12, 3)], "x": [4.0]}).write_parquet(tmp_path / "c.parquet")
    found = load_data(str(tmp_path / "*"), channels=("x",))
    assert found.measurements.series[0].times.tolist() == [0, 60, 120, 180]
    assert found.origin == datetime(2026, 3, 1, 12)
    assert found.labels == {"title": "", "units": {"t": "s"}, "origin": "2026-03-01T12:00:00"}
    advice = 'for hours, use fit(..., units={"t": "h"}) (or t = "h" under [units] in a system file)'
    assert f"times are seconds since 2026-03-01 12:00:00; {advice}" in found.notes
    later = load_data(str(tmp_path / "b.csv"), channels=("x",), since=datetime(2026, 3, 1))
    assert later.measurements.series[0].times.tolist() == [43320]


@pytest.mark.parametrize(
    ("second", "got"), [("5", "times as numbers"), ("2026-03-01 12:00Z", "dates with a time zone")]
)
def test_files_with_different_clocks_are_refused(tmp_path: Path, second: str, got: str) -> None:
    (tmp_path / "a.csv").write_text("t,x\n2026-03-01 12:00,1\n")
    (tmp_path / "b.csv").write_text(f"t,x\n{second},1\n")
    with pytest.raises(DataError, match=rf"b\.csv: expected dates without a time zone in column t.*got {got}"):
        load_data(str(tmp_path / "*.csv"), channels=("x",))


def test_values_are_taken_as_they_are() -> None:
    sums = in_memory(make_table(50))
    assert load_data(sums).measurements.sufficient_statistics is sums
    data = Observations().add(TIMES, "x'", TIMES)
    assert load_data(data).measurements.names == ("x'",)
    found = load_data(TIMES, {"x": TIMES}, noise_std=0.5)
    assert found.measurements.series[0].std.tolist() == [0.5] * 5
    assert load_data(found) is found
    assert found.labels == {}


def test_names_are_checked_before_anything_large_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", make_table(10))
    seen: list[str] = []
    load_data(path, channels=CHANNELS, columns={"x'": "y"}, check=seen.extend)
    assert set(seen) == {"x", "u", "x'"}
    seen.clear()
    load_data(TIMES, {"x": TIMES, "misspelt": np.full(5, np.nan)}, check=seen.extend)
    assert seen == ["x", "misspelt"]


def test_known_noise_is_a_number_or_a_column_and_never_both(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", {"t": TIMES, "x": TIMES, "y": TIMES, "sx": TIMES})
    x, y = load_data(path, channels=CHANNELS, noise_std={"x": "sx", "y": 0, "u": 1}).measurements.series
    assert x.std.tolist() == TIMES.tolist()
    assert y.is_exact.all()
    x, y = load_data(path, channels=CHANNELS, noise_std={"y": 1}, columns={"std(x)": "sx"}).measurements.series
    assert x.std.tolist() == TIMES.tolist()
    assert y.std.tolist() == [1] * 5
    for both in (0.5, {"x": 1}):
        with pytest.raises(DataError, match=r"the noise of x is given as .*, and in column sx; remove one"):
            load_data(path, channels=CHANNELS, noise_std=both, columns={"std(x)": "sx"})
    with pytest.raises(DataError, match=r"std\(x\) is assigned to column sx and to column y; choose one"):
        load_data(path, channels=CHANNELS, noise_std={"x": "sx"}, columns={"std(x)": "y"})
    assert load_data(path, channels=CHANNELS, noise_std=0.5).measurements.series[0].std.tolist() == [0.5] * 5


@pytest.mark.parametrize(
    ("source", "Y", "options", "message"),
    [
        ("a.csv", TIMES, {}, "expected files or a DataFrame alone"),
        (pl.DataFrame({"t": TIMES, "x": TIMES}), None, {"header": True}, "header= is about text files"),
        (TIMES, {"x": TIMES}, {"time": "t"}, "time= is about columns of files"),
        (TIMES, {"x": TIMES}, {"columns": {}}, "columns= is about columns of files"),
        (TIMES, {"x": TIMES}, {"header": True}, "header= is about columns of files"),
        (pl.DataFrame({"t": TIMES, "x": TIMES}), None, {"columns": "x"}, "expected columns as a dict"),
        (pl.DataFrame({"t": TIMES, "z": TIMES}), None, {}, "the DataFrame: expected a column for at least one of"),
        (Statistics.empty(0, 1), None, {}, "the sums are empty"),
        (Statistics.empty(0, 1), TIMES, {}, "expected Statistics alone"),
        (LoadedData(load_data(TIMES, {"x": TIMES}).measurements), None, {"noise_std": 1}, "expected a Source alone"),
        (pl.LazyFrame({"t": TIMES, "x": TIMES}), None, {}, "expected a DataFrame with named columns"),
    ],
)
def test_what_does_not_belong_together_is_refused(source: Any, Y: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(source, Y, CHANNELS, **options)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing_*.parquet", "found none at nothing"),
        (["nothing.csv"], r"nothing\.csv: cannot be read, No such file"),
        (".", "expected a file, got a folder"),
    ],
)
def test_no_files_is_an_error(source: str | Sequence[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(source, channels=CHANNELS)


def test_a_name_with_brackets_is_no_pattern_where_there_is_such_a_file(tmp_path: Path) -> None:
    table = make_table(20)
    path = write(tmp_path / "log[1].csv", table)
    assert_same(load_data(path, channels=CHANNELS).measurements.statistics, in_memory(table))
