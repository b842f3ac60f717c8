"""What is read from files in pieces gives the same sums as the same numbers in memory; what cannot be read says why."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lodekit.data import streams
from lodekit.data.observations import Series
from lodekit.data.statistics import Statistics
from lodekit.data.streams import is_stream, read_stream
from lodekit.errors import DataError, LodekitError

polars = pytest.importorskip("polars")

Array = NDArray[np.float64]
CHANNELS = ("x", "y", "u")


def make_table(count: int, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    t = random.uniform(-3.0, 8.0, count)
    return {"t": t, "x": np.sin(t), "y": random.standard_normal(count), "u": random.standard_normal(count)}


def make_missing(table: Mapping[str, Array], *names: str) -> dict[str, Array]:
    random = np.random.default_rng(1)
    return {
        name: np.where(random.random(len(values)) < 0.3, np.nan, values) if name in names else values
        for name, values in table.items()
    }


def write(path: Path, table: Mapping[str, Any]) -> Path:
    frame = polars.DataFrame({name: polars.Series(values, strict=False) for name, values in table.items()})
    frame = frame.with_columns(polars.col(polars.Float64).fill_nan(None))
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path)
    return path


def in_memory(table: Mapping[str, Array], noise: Mapping[str, Any] | None = None) -> Statistics:
    series = []
    for name in CHANNELS:
        if name in table:
            kept = ~np.isnan(table[name])
            std = np.broadcast_to((noise or {}).get(name, np.nan), kept.shape).astype(float)
            series.append(Series(name, table["t"][kept], table[name][kept], std[kept]))
    return Statistics.of(float(table["t"].min()), float(table["t"].max()), series)


def assert_same(found: Statistics, expected: Statistics) -> None:
    assert (found.start, found.stop) == (expected.start, expected.stop)
    assert set(found.cells) == set(expected.cells)
    for key, cell in expected.cells.items():
        other = found.cells[key].about(cell.reference)
        assert other.count == cell.count
        # The transforms are exact to about 1e-14 of the weight of all measurements, whatever the pieces.
        scale = 1e-10 * max(cell.count, float(cell.moments[0]))
        np.testing.assert_allclose(other.moments, cell.moments, rtol=0, atol=scale)
        np.testing.assert_allclose(other.products, cell.products, rtol=0, atol=scale)
        for name in ("log_weights", "square", "bins"):
            np.testing.assert_allclose(getattr(other, name), getattr(cell, name), rtol=1e-10, atol=scale)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_ROWS", 1000)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_gives_the_statistics_of_its_numbers(tmp_path: Path, ending: str) -> None:
    table = make_table(3500)
    assert_same(read_stream(str(write(tmp_path / f"a.{ending}", table)), CHANNELS), in_memory(table))


def test_a_compressed_csv_file_is_read_as_such(tmp_path: Path) -> None:
    table = make_table(2500)
    plain = write(tmp_path / "a.csv", table)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert_same(read_stream(tmp_path / "a.csv.gz", CHANNELS), in_memory(table))


@pytest.mark.parametrize("form", ["pattern", "list", "overlapping"])
def test_several_files_add_up_and_each_counts_once(tmp_path: Path, form: str) -> None:
    tables = [make_table(1500, seed) for seed in range(3)]
    paths = [
        write(tmp_path / name, table) for name, table in zip(("b.parquet", "a.csv", "c.parquet"), tables, strict=True)
    ]
    source: Any = {
        "pattern": str(tmp_path / "*"),
        "list": paths,
        "overlapping": [str(tmp_path / "*.parquet"), paths[0], paths[1]],
    }[form]
    whole = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    assert_same(read_stream(source, CHANNELS), in_memory(whole))


def test_files_may_measure_different_channels(tmp_path: Path) -> None:
    table = make_table(1200)
    write(tmp_path / "a.parquet", {name: table[name] for name in ("t", "x")})
    write(tmp_path / "b.parquet", {name: table[name] for name in ("t", "y", "u")})
    assert_same(read_stream(str(tmp_path / "*.parquet"), CHANNELS), in_memory(table))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_null_and_nan_are_missing(tmp_path: Path, ending: str) -> None:
    table = make_missing(make_table(3500), "x", "u")
    table["u"][:1500] = np.nan
    path = write(tmp_path / f"a.{ending}", table)
    assert_same(read_stream(path, CHANNELS), in_memory(table))
    polars.DataFrame(table).write_parquet(tmp_path / "nan.parquet")
    assert_same(read_stream(tmp_path / "nan.parquet", CHANNELS), in_memory(table))


def test_a_column_of_nulls_and_words_for_missing_are_no_measurements(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,x,y\n0,NA,1\n1,,2\n2,null,nan\n")
    found = read_stream(tmp_path / "a.csv", CHANNELS)
    assert {key: cell.count for key, cell in found.cells.items()} == {("y", False): 2}
    polars.DataFrame({"t": [0, 1], "x": [None, None], "y": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    assert read_stream(tmp_path / "a.parquet", CHANNELS).observables == ("y",)


def test_known_noise_comes_as_number_or_as_column(tmp_path: Path) -> None:
    table = make_table(3500)
    std = np.random.default_rng(2).uniform(0.5, 2.0, 3500)
    std[::7] = np.nan
    path = write(tmp_path / "a.parquet", {**table, "sx": std})
    found = read_stream(path, CHANNELS, noise_std={"x": "sx", "y": 0.5})
    assert set(found.cells) == {("x", False), ("x", True), ("y", True), ("u", False)}
    assert_same(found, in_memory(table, {"x": std, "y": 0.5}))
    assert_same(read_stream(path, CHANNELS, noise_std=2), in_memory(table, dict.fromkeys(CHANNELS, 2.0)))


def test_other_columns_are_ignored_and_the_time_can_be_named(tmp_path: Path) -> None:
    table = make_table(500)
    path = write(tmp_path / "a.parquet", {"seconds": table["t"], "t": ["a"] * 500, "x": table["x"]})
    assert_same(read_stream(path, CHANNELS, time="seconds"), in_memory({"t": table["t"], "x": table["x"]}))


def test_t_that_is_a_channel_is_not_the_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"time": np.arange(5.0), "t": np.ones(5)})
    assert read_stream(path, ["t"]).stop == 4.0


def test_integers_and_single_precision_are_numbers(tmp_path: Path) -> None:
    table: dict[str, Any] = {"t": np.arange(50), "x": np.arange(50) % 7, "y": np.linspace(0, 1, 50, dtype=np.float32)}
    path = write(tmp_path / "a.parquet", table)
    assert_same(read_stream(path, CHANNELS), in_memory({name: part.astype(float) for name, part in table.items()}))


@pytest.mark.parametrize("statistics", [True, False])
def test_the_window_comes_from_the_footer_where_there_is_one(tmp_path: Path, statistics: bool) -> None:
    pytest.importorskip("pyarrow")
    table = make_table(2500)
    polars.DataFrame(table).write_parquet(tmp_path / "a.parquet", statistics=statistics, row_group_size=600)
    plan = streams._Plan(str(tmp_path / "a.parquet"), "t", {"x": None})
    expected = (table["t"].min(), table["t"].max(), 2500) if statistics else None
    assert streams._footer(plan) == expected
    assert_same(read_stream(tmp_path / "a.parquet", CHANNELS), in_memory(table))


def test_the_sums_do_not_depend_on_the_threads(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", make_table(20000))
    first, second = (read_stream(path, CHANNELS).cells["x", False] for _ in range(2))
    # Threads of a transform may add in another order; pieces of the file are added in theirs.
    np.testing.assert_allclose(first.products, second.products, rtol=0, atol=1e-9)


def test_channels_measured_together_share_their_times(tmp_path: Path) -> None:
    table = make_missing(make_table(100), "x")
    table["u"] = np.where(np.isnan(table["x"]), np.nan, table["u"])
    plan = streams._Plan("a", "t", {"x": None, "u": None, "y": None})
    x, u, y = streams._series(polars.DataFrame(table), plan)
    assert x.times is u.times
    assert x.std is u.std
    assert y.times is not x.times


@pytest.mark.parametrize(
    ("source", "expected"),
    [("a.csv", True), (Path("a"), True), (["a", Path("b")], True), ([], False), ([1.0], False), (None, False)],
)
def test_paths_and_lists_of_them_are_streams(source: object, expected: bool) -> None:
    assert is_stream(source) is expected
    assert not is_stream(np.zeros(3))
    assert not is_stream(polars.DataFrame({"t": [1.0]}))


T = np.arange(4.0)
DAYS = np.arange(4).astype("datetime64[ms]")
BAD: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {
    "no time": ({"a": T, "x": T}, {}, r"expected a time column t or time \(no channel\), got the columns a, x"),
    "two times": ({"t": T, "time": T, "x": T}, {}, "got both; name it by time="),
    "other time": ({"t": T, "x": T}, {"time": "s"}, "expected a time column s"),
    "time is a channel": ({"y": T, "x": T}, {"time": "y"}, r"expected a time column y \(no channel\)"),
    "no channel": ({"t": T, "z": T}, {}, "expected a column for at least one of x, y, u, got the columns t, z"),
    "text": ({"t": T, "x": list("abcd")}, {}, "(expected numbers in column x, got String|could not parse)"),
    "dates": ({"t": DAYS, "x": T}, {}, r"expected numbers in column t, got Datetime.*; convert dates to seconds"),
    "infinite value": ({"t": T, "x": [1.0, -np.inf, 0, 0]}, {}, "expected finite values or null in column x, got -inf"),
    "infinite time": ({"t": [0, 1, 2, np.inf], "x": T}, {}, "expected finite times in column t, got inf"),
    "missing time": ({"t": [0, 1, 2, np.nan], "x": T}, {}, "expected finite times in column t, got nan"),
    "one time": ({"t": np.ones(4), "x": T}, {}, "start < stop"),
    "all missing": ({"t": T, "x": np.full(4, np.nan)}, {}, "every value is missing"),
    "no rows": ({"t": T[:0], "x": T[:0]}, {}, "the file is empty"),
    "noise of nothing": ({"t": T, "x": T}, {"noise_std": {"z": 1.0}}, "noise_std names z"),
    "noise of no column": ({"t": T, "x": T}, {"noise_std": {"y": 1.0}}, "noise_std names y"),
    "no noise column": ({"t": T, "x": T}, {"noise_std": {"x": "sx"}}, "expected a column sx"),
    "zero noise": ({"t": T, "x": T}, {"noise_std": {"x": 0.0}}, "expected a number above zero as noise_std of x"),
    "true noise": ({"t": T, "x": T}, {"noise_std": True}, "expected a number above zero as noise_std of x"),
    "noise as text": ({"t": T, "x": T}, {"noise_std": "sx"}, "or a dict to a column, got 'sx'"),
    "zero in noise": (
        {"t": T, "x": T, "sx": T},
        {"noise_std": {"x": "sx"}},
        "expected noise above zero or null in column sx, got 0.0",
    ),
}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("case", list(BAD))
def test_a_table_that_cannot_be_used_says_why(tmp_path: Path, case: str, ending: str) -> None:
    table, options, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        read_stream(write(tmp_path / f"bad.{ending}", table), CHANNELS, **options)
    general = ("start < stop", "every value is missing", "noise_std")
    assert f"bad.{ending}" in str(caught.value) or any(text in str(caught.value) for text in general)


def test_a_missing_time_in_a_file_of_nan_says_so_without_nulls(tmp_path: Path) -> None:
    polars.DataFrame({"t": [0.0, np.nan, 2.0], "x": [1.0, 2.0, 3.0]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet: expected finite times in column t, got nan"):
        read_stream(tmp_path / "a.parquet", CHANNELS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "a.csv: cannot be read, empty CSV"),
        ("a.parquet", b"", "a.parquet: cannot be read"),
        ("a.parquet", b"PAR1 and nothing else", "a.parquet: cannot be read"),
        ("a.csv", b"t,x\n0,1\n1,2,3,4\n", "a.csv: cannot be read"),
        ("a.txt", b"t,x\n0,1\n", "a.txt: expected a file that ends in .parquet, .csv, .csv.gz"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_stream(tmp_path / name, CHANNELS)


@pytest.mark.parametrize("line", ["7,oops", "7,inf"])
def test_a_file_that_fails_in_the_middle_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path / "a.csv", {"t": np.arange(5000.0), "x": np.ones(5000)})
    good = (tmp_path / "a.csv").read_text()
    (tmp_path / "b.csv").write_text(good + line + "\n" + good.split("\n", 1)[1])
    write(tmp_path / "c.csv", {"t": np.arange(5.0), "x": np.ones(5)})
    with pytest.raises(DataError, match=r"b\.csv: .*column .?x"):
        read_stream(str(tmp_path / "*.csv"), CHANNELS)


def test_a_damaged_parquet_file_is_named_and_never_cut_short(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    polars.DataFrame(make_table(20000)).write_parquet(path := tmp_path / "a.parquet", row_group_size=1000)
    content = bytearray(path.read_bytes())
    place = parquet.read_metadata(path).row_group(10).column(1).data_page_offset
    content[place : place + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read"):
        read_stream(path, CHANNELS)


def test_a_file_that_changes_between_the_looks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", make_table(2000))
    monkeypatch.setattr(streams, "_footer", lambda _: (-3.0, 8.0, 1999))
    with pytest.raises(DataError, match="expected 1999 rows, got 2000; did the file change"):
        read_stream(path, CHANNELS)
    monkeypatch.setattr(streams, "_footer", lambda _: (0.0, 8.0, 2000))
    with pytest.raises(DataError, match=r"a\.parquet: expected times between 0.0 and 8.0"):
        read_stream(path, CHANNELS)


@pytest.mark.parametrize("source", ["nothing_*.parquet", ["nothing.csv"], "."])
def test_no_files_is_an_error(source: str | Sequence[str]) -> None:
    with pytest.raises(DataError, match=r"found none at (nothing|\.)"):
        read_stream(source, CHANNELS)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(DataError, match="expected a path, a list of paths or a Dask DataFrame, got ndarray"):
        read_stream(np.zeros(3), CHANNELS)


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", make_table(10))
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(LodekitError, match="pip install polars"):
        read_stream(path, CHANNELS)


def test_without_pyarrow_the_times_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(2500)
    path = write(tmp_path / "a.parquet", table)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert_same(read_stream(path, CHANNELS), in_memory(table))
