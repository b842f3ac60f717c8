"""What is read in pieces gives the same sums as the same numbers in memory, in order, and never cut short."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from lodekit.data import sources, streams
from lodekit.data.sources import load_data
from lodekit.data.statistics import Statistics
from lodekit.data.tables import frames, text
from lodekit.data.tables.cells import NumberFormat
from lodekit.data.tables.parquet import ParquetFile
from lodekit.data.tables.reader import TableData
from lodekit.errors import DataError
from tests.data.sums import CHANNELS, assert_same, in_memory, make_missing, make_table, write


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 0)
    monkeypatch.setattr(frames, "TABLE_BLOCK_ROWS", 1000)
    monkeypatch.setattr(text, "BLOCK_BYTES", 20_000)


def read_sums(source: Any, channels: tuple[str, ...] = CHANNELS, **options: Any) -> Statistics:
    found = load_data(source, channels=channels, **options).measurements.sufficient_statistics
    assert found is not None
    return found


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_gives_the_statistics_of_its_numbers(tmp_path: Path, ending: str) -> None:
    table = make_table(3500)
    assert_same(read_sums(str(write(tmp_path / f"a.{ending}", table))), in_memory(table))


@pytest.mark.parametrize("form", ["pattern", "list", "overlapping"])
def test_several_files_add_up_and_each_counts_once(tmp_path: Path, form: str) -> None:
    tables = [make_table(1500, seed) for seed in range(3)]
    tables = [{**table, "t": table["t"] + 11.0 * number} for number, table in enumerate(tables)]
    paths = [
        write(tmp_path / name, table) for name, table in zip(("b.parquet", "a.csv", "c.parquet"), tables, strict=True)
    ]
    source: Any = {
        "pattern": str(tmp_path / "*"),
        "list": [paths],
        "overlapping": [[str(tmp_path / "*.parquet"), paths[0], paths[1]]],
    }[form]
    whole = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    assert_same(read_sums(source), in_memory(whole))


def test_files_may_measure_different_channels(tmp_path: Path) -> None:
    table = make_table(1200)
    write(tmp_path / "a.parquet", {name: table[name] for name in ("t", "x")})
    write(tmp_path / "b.parquet", {name: table[name] for name in ("t", "y", "u")})
    found = load_data(str(tmp_path / "*.parquet"), channels=CHANNELS)
    assert_same(found.measurements.sufficient_statistics, in_memory(table))
    assert found.notes == (
        "read in pieces, as there are too many rows to keep all of them in memory",
        "no column for y, u: not measured (a.parquet)",
        "no column for x: not measured (b.parquet)",
    )


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_null_and_nan_are_missing(tmp_path: Path, ending: str) -> None:
    table = make_missing(make_table(3500), "x", "u")
    table["u"][:1500] = np.nan
    assert_same(read_sums(write(tmp_path / f"a.{ending}", table)), in_memory(table))
    pl.DataFrame(table).write_parquet(tmp_path / "nan.parquet")
    assert_same(read_sums(tmp_path / "nan.parquet"), in_memory(table))


def test_a_column_of_nulls_and_words_for_missing_are_no_measurements(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,x,y\n0,NA,1\n1,,2\n2,null,nan\n")
    found = load_data(tmp_path / "a.csv", channels=CHANNELS)
    assert found.measurements.sufficient_statistics is not None
    assert {key: cell.count for key, cell in found.measurements.sufficient_statistics.cells.items()} == {
        ("y", False): 2
    }
    assert "column x has no values" in found.notes
    pl.DataFrame({"t": [0, 1], "x": [None, None], "y": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    assert read_sums(tmp_path / "a.parquet").observables == ("y",)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_known_noise_comes_as_number_as_column_or_by_the_mapping(tmp_path: Path, ending: str) -> None:
    table = make_table(3500)
    std = np.random.default_rng(2).uniform(0.5, 2.0, 3500)
    std[::7] = np.nan
    path = write(tmp_path / f"a.{ending}", {**table, "sx": std})
    found = read_sums(path, noise_std={"x": "sx", "y": 0.5})
    assert set(found.cells) == {("x", False), ("x", True), ("y", True), ("u", False)}
    assert_same(found, in_memory(table, {"x": std, "y": 0.5}))
    mapped = read_sums(path, noise_std={"y": 0.5}, columns={"std(x)": "sx"})
    assert_same(mapped, in_memory(table, {"x": std, "y": 0.5}))
    assert_same(read_sums(path, noise_std=2), in_memory(table, dict.fromkeys(CHANNELS, 2.0)))


def test_integers_and_single_precision_are_numbers(tmp_path: Path) -> None:
    table: dict[str, Any] = {"t": np.arange(50), "x": np.arange(50) % 7, "y": np.linspace(0, 1, 50, dtype=np.float32)}
    path = write(tmp_path / "a.parquet", table)
    assert_same(read_sums(path), in_memory({name: part.astype(float) for name, part in table.items()}))


@pytest.mark.parametrize("statistics", [True, False])
def test_the_window_comes_from_the_footer_where_there_is_one(tmp_path: Path, statistics: bool) -> None:
    table = make_table(2500)
    path = tmp_path / "a.parquet"
    pl.DataFrame(table).write_parquet(path, statistics=statistics, row_group_size=600)
    expected = (table["t"].min(), table["t"].max(), 2500) if statistics else None
    assert ParquetFile.open(str(path)).column_range("t") == expected
    assert_same(read_sums(path), in_memory(table))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_sums_do_not_depend_on_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", make_table(20000))
    first = read_sums(path)
    monkeypatch.setattr(streams, "_MAX_WORKERS", 1)
    second = read_sums(path)
    assert len(first.cells) > 0
    assert first.cells.keys() == second.cells.keys()
    for key, cell in first.cells.items():
        # Threads of a transform may add in another order; pieces of the file are added in theirs.
        np.testing.assert_allclose(cell.value_moments, second.cells[key].value_moments, rtol=0, atol=1e-9)
        np.testing.assert_allclose(cell.weight_moments, second.cells[key].weight_moments, rtol=0, atol=1e-9)


def test_channels_measured_together_share_their_times() -> None:
    table = make_missing(make_table(100), "x")
    table["u"] = np.where(np.isnan(table["x"]), np.nan, table["u"])
    records = TableData(table["t"], {name: table[name] for name in ("x", "u", "y")}, {}, NumberFormat())
    x, u, y = streams.to_series(records, {})
    assert x.times is u.times
    assert x.std is u.std
    assert y.times is not x.times
    x, u, y = streams.to_series(records, {"x": 0.5})
    assert x.std is not u.std


T = np.arange(4.0)
BAD: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {
    "no time": ({"a": T, "x": T}, {}, "expected a column t or time, got the columns a, x"),
    "two times": ({"t": T, "time": T, "x": T}, {}, "the time may be in any of the columns t, time"),
    "other time": ({"t": T, "x": T}, {"time": "s"}, r"expected a column s \(for t\)"),
    "no channel": ({"t": T, "z": T}, {}, "expected a column for at least one of x, y, u, got the columns t, z"),
    "text": ({"t": T, "x": list("abcd")}, {}, "column x: expected a number, got 'a'"),
    "infinite value": ({"t": T, "x": [1.0, -np.inf, 0, 0]}, {}, "column x: expected a finite number, got .?-inf"),
    "infinite time": ({"t": [0, 1, 2, np.inf], "x": T}, {}, "column t: expected a finite number, got .?inf"),
    "missing time": ({"t": [0, 1, 2, np.nan], "x": T}, {}, "expected a time in every row, column t has none in"),
    "one time": ({"t": np.ones(4), "x": T}, {}, r"different times \(column t\), all 4 rows have the same one, t = 1; "),
    "one row": (
        {"t": [0.0], "x": [2.0]},
        {},
        r"rows with different times \(column t\), there is one row, t = 0; check",
    ),
    "all missing": ({"t": T, "x": np.full(4, np.nan)}, {}, "at least one value of x, every cell is missing"),
    "no rows": ({"t": T[:0], "x": T[:0]}, {}, "expected rows of .*found none"),
    "noise of nothing": ({"t": T, "x": T}, {"noise_std": {"z": 1.0}}, "noise_std names z, which is not observed"),
    "no noise column": ({"t": T, "x": T}, {"noise_std": {"x": "sx"}}, r"expected a column sx \(for std\(x\)\)"),
    "zero noise": ({"t": T, "x": T}, {"noise_std": {"x": 0.0}}, "sums over the data need noise above zero"),
    "true noise": ({"t": T, "x": T}, {"noise_std": True}, "expected a number of zero or more as noise_std of all"),
    "noise as text": ({"t": T, "x": T}, {"noise_std": "sx"}, "or a dict of channel to number or column, got 'sx'"),
    "zero in noise": ({"t": T, "x": T, "sx": T}, {"noise_std": {"x": "sx"}}, "need noise above zero"),
    "negative noise": ({"t": T, "x": T, "sx": -T}, {"noise_std": {"x": "sx"}}, "column sx: expected a standard dev"),
}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("case", list(BAD))
def test_a_table_that_cannot_be_used_says_why(tmp_path: Path, case: str, ending: str) -> None:
    table, options, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        read_sums(write(tmp_path / f"bad.{ending}", table), **options)
    assert f"bad.{ending}: " in str(caught.value) or "noise_std" in str(caught.value)


@pytest.mark.parametrize(("line", "message"), [("7,oops", "got 'oops'"), ("7,inf", "got .?inf"), ("7", "got 1")])
def test_a_file_that_fails_in_the_middle_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    write(tmp_path / "a.csv", {"t": np.arange(5000.0), "x": np.ones(5000)})
    good = (tmp_path / "a.csv").read_text()
    (tmp_path / "b.csv").write_text(good + line + "\n" + good.split("\n", 1)[1])
    write(tmp_path / "c.csv", {"t": np.arange(5.0), "x": np.ones(5)})
    with pytest.raises(DataError, match=rf"b\.csv: line 5002.*{message}"):
        read_sums(str(tmp_path / "*.csv"))


def test_the_first_of_two_mistakes_is_told_however_fast_the_threads_are(tmp_path: Path) -> None:
    rows = [f"{number},1" for number in range(20_000)]
    rows[9_000], rows[12_000] = "first,1", '12000,"second'
    (tmp_path / "a.csv").write_text("t,x\n" + "\n".join(rows))
    for _ in range(3):
        with pytest.raises(DataError, match=r"line 9002, column t: expected a number, got 'first'"):
            read_sums(tmp_path / "a.csv")


def test_a_damaged_parquet_file_is_named_and_never_cut_short(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pl.DataFrame(make_table(20000)).write_parquet(path := tmp_path / "a.parquet", row_group_size=1000)
    content = bytearray(path.read_bytes())
    place = parquet.read_metadata(path).row_group(10).column(1).data_page_offset
    content[place : place + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read"):
        read_sums(path)


def test_a_file_that_changes_between_the_looks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", make_table(2000))
    monkeypatch.setattr(ParquetFile, "column_range", lambda *_: (-3.0, 8.0, 1999))
    with pytest.raises(DataError, match=r"a\.parquet: expected 1999 rows, got 2000; did the file change"):
        read_sums(path)
    monkeypatch.setattr(ParquetFile, "column_range", lambda *_: (0.0, 8.0, 2000))
    with pytest.raises(DataError, match=r"a\.parquet: expected times between 0.0 and 8.0"):
        read_sums(path)


def test_text_and_parquet_of_one_table_give_the_same_sums(tmp_path: Path) -> None:
    """Beyond the number of records that are kept, cells that are missing included."""
    table = make_missing(make_table(3500), "x", "u")
    text, binary = (read_sums(write(tmp_path / f"a.{ending}", table)) for ending in ("csv", "parquet"))
    assert text.size == binary.size < 3 * 3500
    assert_same(text, binary)
