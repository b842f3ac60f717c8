"""Several records are read from lists, from files and from a column; what they are called, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import lodekit as lk
from lodekit.data import sources
from lodekit.data.inputs import InputSignal
from lodekit.data.records import Measurements, RecordSet, find_record_index, with_empty_series
from lodekit.data.sources import LoadedData, load_data
from lodekit.errors import DataError

pd = pytest.importorskip("pandas")
T, X = np.arange(6.0), np.array([1.0, 2.0, 4.0, 3.0, 5.0, 6.0])


def read(source: Any, channels: tuple[str, ...] = ("x", "u"), **how: Any) -> LoadedData:
    return load_data(source, channels=channels, **how)


def records_of(source: LoadedData) -> dict[str, Measurements]:
    assert isinstance(source.measurements, RecordSet)
    return dict(source.measurements.records)


def write(path: Path, header: str, rows: Any) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


LISTS: dict[str, Any] = {
    "pairs": [(T, {"x": X}), (T[:4], {"x": X[:4]})],
    "pairs as lists": [[T, {"x": X}], [T[:4], {"x": X[:4]}]],
    "observations": [lk.Observations().add(T, "x", X), lk.Observations().add(T[:4], "x", X[:4])],
    "pandas": [pd.DataFrame({"t": T, "x": X}), pd.DataFrame({"t": T[:4], "x": X[:4]})],
    "polars and a dict": (pl.DataFrame({"t": T, "x": X}), {"t": T[:4], "x": X[:4]}),
}


@pytest.mark.parametrize("form", LISTS)
def test_a_list_holds_records_called_by_numbers(form: str) -> None:
    found = records_of(read(LISTS[form]))
    assert list(found) == ["0", "1"]
    assert [part.series[0].times.tolist() for part in found.values()] == [T.tolist(), T[:4].tolist()]
    assert [part.series[0].values.tolist() for part in found.values()] == [X.tolist(), X[:4].tolist()]


def test_the_noise_of_records_is_that_of_all_or_their_own() -> None:
    both = records_of(read([(T, {"x": X}), (T, {"x": X})], noise_std={"x": 0.5}))
    assert [part.observable_statistics[0].known_noise for part in both.values()] == [0.5, 0.5]
    own = records_of(read([(T, {"x": X}, 0.1), (T, {"x": X})]))
    assert own["0"].observable_statistics[0].known_noise == pytest.approx(0.1)
    assert own["1"].observable_statistics[0].n_unknown_noise


def test_each_of_several_files_is_a_record_and_a_pattern_is_one(tmp_path: Path) -> None:
    first = write(tmp_path / "b.csv", "t,x,u", zip(T, X, X, strict=True))
    second = write(tmp_path / "a.csv", "t,x", zip(T + 10, X, strict=True))
    found = read([first, second])
    # In the order in which they are listed, not in that of names.
    assert list(records_of(found)) == ["b.csv", "a.csv"]
    assert records_of(found)["a.csv"].names == ("x",)
    assert found.notes[0] == "2 records, each with its own initial state: b.csv, a.csv"
    assert "no column for u: not measured (a.csv)" in found.notes
    for one in (str(tmp_path / "*.csv"), [[first, second]], [str(tmp_path / "*.csv")]):
        assert not isinstance(read(one).measurements, RecordSet)
        assert read(one).measurements.size == 18
    third = write(tmp_path / "c.txt", "t,x", zip(T, X, strict=True))
    pieces = records_of(read([[first, second], third]))
    assert [part.size for part in pieces.values()] == [18, 6]
    with pytest.raises(DataError, match=r"different files for different records, got .*b\.csv twice"):
        read([first, tmp_path / "." / "b.csv"])


def test_files_of_one_name_are_called_by_their_paths(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "log.csv", "t,x", zip(T, X, strict=True))
    paths = [str(tmp_path / name / "log.csv") for name in ("monday", "tuesday")]
    assert list(records_of(read(paths))) == paths


def test_files_that_measure_different_channels_are_one_record(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.csv", f"t,{name}", zip(T, X, strict=True)) for name in "xu"]
    found = read(paths)
    assert not isinstance(found.measurements, RecordSet)
    assert found.measurements.names == ("x", "u")
    assert found.notes[0] == "x.csv and u.csv measure different channels, so they are read as one record"
    assert not any("no column for" in note for note in found.notes)


@pytest.mark.parametrize("ending", ["csv", "parquet", "polars", "pandas"])
@pytest.mark.parametrize("labels", [["7", "7", "7", "a b", "a b", "a b"], [3, 3, 1, 1, 1, 3]])
def test_a_column_says_which_line_belongs_to_which_record(tmp_path: Path, ending: str, labels: list[Any]) -> None:
    frame = pl.DataFrame({"run": labels, "t": T, "x": X})
    source: Any = frame.to_pandas() if ending == "pandas" else frame
    if ending in ("csv", "parquet"):
        source = tmp_path / f"log.{ending}"
        frame.write_csv(source) if ending == "csv" else frame.write_parquet(source)
    found = records_of(read(source, records="run"))
    assert list(found) == list(dict.fromkeys(map(str, labels)))
    for name, part in found.items():
        rows = [k for k, label in enumerate(labels) if str(label) == name]
        assert part.series[0].times.tolist() == T[rows].tolist()
        assert part.series[0].values.tolist() == X[rows].tolist()
    assert [part.size for part in records_of(read(source, records="1")).values()] == [len(labels) // 2] * 2
    # A window leaves lines out, and with them a record that lies outside.
    assert read(source, records="run", window=(None, 1.5)).measurements.size == 2


def test_times_may_start_anew_in_every_record(tmp_path: Path) -> None:
    rows = [(run, t, t % 5) for run in "ab" for t in range(20)]
    path = write(tmp_path / "log.csv", "run,t,x", rows)
    with pytest.raises(DataError, match="several records: specify the column of the record, --records COLUMN"):
        read(path, in_shell=True)
    assert [part.size for part in records_of(read(path, records="run")).values()] == [20, 20]
    # A record may go on in another file, but not at the same times.
    more = write(tmp_path / "more.csv", "run,t,x", [("b", t, t % 3) for t in range(20, 30)])
    assert [part.size for part in records_of(read([path, more], records="run")).values()] == [20, 30]
    again = write(tmp_path / "more.csv", "run,t,x", [("b", t, t % 3) for t in range(10, 30)])
    with pytest.raises(DataError, match=r"more\.csv, record b: expected files one after the other in time"):
        read([path, again], records="run")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such column": ({"records": "shift"}, r"expected a column shift \(for the record\)"),
    "a channel": ({"records": "x"}, "column x is used for the records and for something else"),
    "the time": ({"records": "t"}, "column t is used for the records"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_number_no_records_are_refused(case: str) -> None:
    how, match = REFUSED[case]
    with pytest.raises(DataError, match=match):
        read(pl.DataFrame({"run": [1] * 6, "t": T, "x": X}), **how)


def test_every_line_belongs_to_a_record(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "run,t,x", [("a", 0, 1), ("", 1, 2), ("b", 2, 3)])
    with pytest.raises(DataError, match="expected a record in every row, column run has none in line 3"):
        read(path, records="run")
    with pytest.raises(DataError, match="records= is about columns"):
        load_data(T, {"x": X}, ["x"], records="run")
    dated = pl.DataFrame({"run": [datetime(2026, 3, 1)] * 6, "t": T, "x": X})
    with pytest.raises(DataError, match="in column run, got dates"):
        read(dated, records="run")


def test_records_that_are_read_in_pieces_keep_sums_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path / f"{k}.csv", "t,x", zip(T + k, X, strict=True)) for k in range(2)]
    kept = read(paths)
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 5)
    summed = read(paths)
    assert summed.notes[1] == "read in pieces, as there are too many rows to keep all of them in memory"
    for name, part in records_of(summed).items():
        assert part.sufficient_statistics is not None
        assert part.window == records_of(kept)[name].window
        assert part.size == 6
    for one, two in zip(
        summed.measurements.observable_statistics, kept.measurements.observable_statistics, strict=True
    ):
        assert one.std == pytest.approx(two.std, rel=1e-6)
        assert one.count == two.count
        assert one.mean == pytest.approx(two.mean)
    with pytest.raises(DataError, match="write a file for each record"):
        read(write(tmp_path / "c.csv", "run,t,x", zip("aaabbb", T, X, strict=True)), records="run")


def test_dates_of_records_have_one_origin() -> None:
    first = np.array(["2026-03-01T12:00", "2026-03-01T12:01"], dtype="datetime64[s]")
    found = read([(first, {"x": [1.0, 2.0]}), (first + np.timedelta64(1, "h"), {"x": [1.0, 2.0]})])
    assert found.origin == datetime(2026, 3, 1, 12)
    assert [part.series[0].times.tolist() for part in records_of(found).values()] == [[0.0, 60.0], [3600.0, 3660.0]]


def test_rows_without_a_time_begin_at_zero_in_every_record(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{k}.csv", "x,u", zip(X, X, strict=True)) for k in range(2)]
    found = records_of(read(paths, dt=0.5))
    assert [part.window for part in found.values()] == [(0.0, 2.5), (0.0, 2.5)]


def test_all_records_together_are_counted_as_one_set_of_numbers() -> None:
    generator = np.random.default_rng(0)
    values = [generator.standard_normal(9) + 3.0, 2.0 * generator.standard_normal(12)]
    parts = [
        Measurements.from_observations(
            lk.Observations().add(np.arange(9.0), "x", values[0]).add([0.0], "u", [4.0], 0.5)
        ),
        Measurements.from_observations(lk.Observations().add(np.arange(12.0) - 50.0, "x", values[1], 0.1)),
    ]
    pool = RecordSet.from_records({"a": parts[0], "b": parts[1]})
    assert isinstance(pool, RecordSet)
    joined = np.concatenate(values)
    x, u = pool.observable_statistics
    assert (x.count, x.scale, x.n_unknown_noise) == (21, x.std, 9)
    assert [x.mean, x.std, x.known_noise] == pytest.approx([joined.mean(), joined.std(), 0.1])
    assert (u.count, u.scale, u.known_noise) == (1, 4.0, 0.5)
    assert (pool.size, pool.n_distinct, pool.names) == (22, 22, ("x", "u"))
    assert pool.window == (0.0, 11.0)
    assert pool.counts_by_record.tolist() == [[9, 1], [12, 0]]
    scatter = [np.mean(np.diff(part, 3) ** 2) / 20.0 for part in values]
    only = RecordSet.from_records({"a": Measurements(parts[0].series[:1]), "b": parts[1]})
    assert only.difference_noise_std() == pytest.approx([np.sqrt((9 * scatter[0] + 12 * scatter[1]) / 21)])
    assert pool.difference_noise_std() is None
    empty = with_empty_series(parts[1], ("x", "u"))
    assert (empty.names, empty.size, empty.window) == (("x", "u"), 12, (-50.0, -39.0))
    with pytest.raises(DataError, match="specify record="):
        _ = pool + parts[0]
    asked: tuple[Callable[[], object], ...] = (
        pool.time_grid,
        pool.decimated_series,
        lambda: pool.plotted_series,
        lambda: pool.statistics,
    )
    for ask in asked:
        with pytest.raises(DataError, match="one record"):
            ask()


def test_inputs_are_joined_by_name_whatever_their_order() -> None:
    signals = {"u": InputSignal([0.0, 1.0], [1.0, 3.0], "hold"), "v": InputSignal([0.0], [50.0], "hold")}
    both = [signals, dict(reversed(signals.items()))]
    parts = [replace(Measurements.from_observations(lk.Observations().add(T, "x", X)), inputs=own) for own in both]
    pool = RecordSet.from_records({str(k): part for k, part in enumerate(parts)})
    assert [(item.observable, item.mean) for item in pool.input_statistics] == [("u", 2.0), ("v", 50.0)]


@pytest.mark.parametrize(
    ("names", "record", "place"),
    [(["a", "b"], "b", 1), (["a", "b"], 1, 1), (["3", "7"], 7, 1), (["3", "7"], "3", 0), (["only"], None, 0)],
)
def test_records_are_found_by_name_or_number(names: list[str], record: Any, place: int) -> None:
    assert find_record_index(names, record) == place


@pytest.mark.parametrize("record", [None, "c", 2, -1, True, 1.5])
def test_records_that_are_not_there_are_refused(record: Any) -> None:
    with pytest.raises(DataError, match="a, b"):
        find_record_index(["a", "b"], record)


def test_a_number_is_no_position_where_names_are_numbers() -> None:
    with pytest.raises(DataError, match="expected one of the records 3, 7, got 1"):
        find_record_index(["3", "7"], 1)
