"""Tables as people have them: an index, a Series, dates, dicts; what is no number, or no time, is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from lodekit.data import sources
from lodekit.data.observations import Observations
from lodekit.data.sources import LoadedData, load_data
from lodekit.data.tables.reader import TimeOrder
from lodekit.errors import DataError, LodekitError

pandas = pytest.importorskip("pandas")

T = np.arange(12.0)
X = np.sin(T)
DAY = datetime(2026, 3, 1, 12)
DATES = [DAY + timedelta(seconds=30 * k) for k in range(12)]


def read(*data: Any, **options: Any) -> LoadedData:
    return load_data(*data, **{"channels": ["x"], **options})


def values(found: LoadedData) -> tuple[list[float], list[float]]:
    (series,) = found.measurements.series
    return series.times.tolist(), series.values.tolist()


def test_masked_means_missing() -> None:
    masked = np.ma.array(np.where(T == 3, -999.0, X), mask=T == 3)
    kept = T != 3
    expected = (T[kept].tolist(), X[kept].tolist())
    assert values(read(T, masked)) == expected
    assert values(read(T, {"x": masked})) == expected
    assert values(read({"t": T, "x": masked})) == expected
    assert values(LoadedData(read(Observations().add(T, "x", masked)).measurements)) == expected
    noise = np.ma.array(np.full((12, 1), 0.5), mask=(T == 2)[:, None])
    assert np.flatnonzero(read(T, X, noise_std=noise).measurements.series[0].has_unknown_noise).tolist() == [2]
    with pytest.raises(DataError, match="expected finite times, got nan at index 3 of the times of x"):
        read(np.ma.array(T, mask=T == 3), X)


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "complex array": (lambda: read(T, X + 1j), "complex"),
    "complex column": (lambda: read(T, {"x": X + 1j}), "complex"),
    "complex frame": (lambda: read(T, pandas.DataFrame({"x": X + 1j})), "complex"),
    "complex table": (lambda: read(pandas.DataFrame({"t": T, "x": X + 1j})), "complex"),
    "dates as values": (lambda: read(T, np.array(DATES, dtype="datetime64[s]")), "got dates"),
    "dates in a frame": (lambda: read(T, pandas.DataFrame({"x": DATES})), "column x, got dates"),
    "lengths as values": (lambda: read(T, T.astype("timedelta64[s]")), "got differences of dates"),
    "lengths in a frame": (lambda: read(T, pl.DataFrame({"x": [timedelta(1)] * 12})), "column x, got lengths of time"),
    "huge integers as times": (lambda: read([10**400] * 12, X), "over 300 digits"),
    "huge integers as values": (lambda: read(T, {"x": [10**400] * 12}), "over 300 digits"),
    "ragged times": (lambda: read([[0], [1, 2]], X), "rows of different lengths"),
    "texts as times": (lambda: read(["a", "b"], X[:2]), "expected files or a DataFrame alone"),
    "double columns": (
        lambda: read(T, pandas.DataFrame(np.c_[X, X], columns=["x", "x"])),
        "different names of columns",
    ),
    "double columns alone": (
        lambda: read(pandas.DataFrame(np.c_[T, X, X], columns=["t", "x", "x"])),
        "different names",
    ),
    "numbers as columns": (
        lambda: read(T, pandas.DataFrame(np.c_[X, X])),
        "called like channels, x, got the numbers 0, 1",
    ),
    "levels": (lambda: read(T, pandas.DataFrame(X[:, None], columns=[["x"], ["m"]])), "one level of columns"),
    "text in a frame": (
        lambda: read(T, pandas.DataFrame({"x": ["a"] * 12})),
        "row 1, column x: expected a number, got 'a'",
    ),
    "lazy": (lambda: read(T, pl.LazyFrame({"x": X})), r"got LazyFrame; call collect\(\)"),
    "lazy alone": (lambda: read(pl.LazyFrame({"t": T, "x": X})), r"got LazyFrame; call collect\(\)"),
    "a time beside times": (lambda: read(T, pandas.DataFrame({"t": T, "x": X})), "got a column t as well"),
    "a frame and values": (
        lambda: read([(T, X), pandas.DataFrame({"t": T, "x": X})]),
        "a list of records that are all files and tables, or all times with values.*got DataFrame as number 1",
    ),
    "a record and a number": (lambda: read([(T, X), 3.0]), "got float as number 1"),
    "two records and noise": (lambda: read([(T, X), (T, X)], noise_std=X), "one noise_std for several records"),
    "noise twice": (lambda: read([(T, X, 0.1), (T, X)], noise_std=0.1), "record 0 has its own noise"),
    "numbers and dates": (lambda: read([(T, X), (DATES, X)]), "record 1: expected times as in the first record"),
    "an empty record": (lambda: read([(T, X), (T, np.nan * X)]), "record 1: expected at least one measurement"),
    "times alone": (lambda: read(T), "expected values beside the times"),
    "dates of two kinds": (lambda: read([DAY, DAY.replace(tzinfo=UTC)], [1, 2]), "dates of one kind"),
    "no date": (lambda: read(np.array(["2026-03-01", "NaT"], dtype="datetime64[s]"), [1, 2]), "a time in every row"),
    "columns of two lengths": (lambda: read({"t": T, "x": X[1:]}), "columns of one length, got t: 12, x: 11"),
    "a Series without a name": (lambda: read(pandas.Series(X, index=T), channels=["x", "y"]), "a Series with a name"),
    "rows without a time": (lambda: read(pandas.DataFrame({"x": X})), "expected a column t or time, got the columns x"),
    "periods": (
        lambda: read(pandas.DataFrame({"x": X}, index=pandas.period_range("2026", periods=12, freq="D"))),
        "got periods",
    ),
    "a time of day": (lambda: read({"time": ["12:00:01"] * 12, "x": X}), "a time of day needs its date"),
    "no columns": (lambda: read({}), "expected columns with names, found none"),
    "a label that is not there": (lambda: read(pandas.DataFrame(np.c_[T, X]), columns={"t": 1, "x": 2}), "a column 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_number_and_no_table_is_refused_in_words(name: str) -> None:
    request, match = BAD[name]
    with pytest.raises(LodekitError, match=match) as caught:
        request()
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        pandas.DataFrame({"x": X}, index=pandas.Index(T)),
        pandas.DataFrame({"x": X}, index=pandas.Index(T.astype(int), name="t")),
        pandas.DataFrame({"t": T, "x": X}, index=np.arange(12) + 5),
        pandas.DataFrame({"x": X}, index=pandas.to_timedelta(T, unit="s")),
        pandas.Series(X, index=T),
        pandas.Series(X, index=T, name="x"),
        pandas.DataFrame({"time": T.astype(object), "x": list(X)}),
        {"t": T, "x": X.tolist()},
        np.array(list(zip(T, X, strict=True)), dtype=[("t", float), ("x", float)]),
        pl.DataFrame({"t": T, "X [m]": X}),
    ],
    ids=["floats", "named", "column", "lengths", "Series", "named Series", "objects", "dict", "structured", "polars"],
)
def test_tables_hold_their_times_as_people_write_them(source: Any) -> None:
    assert values(read(source)) == (T.tolist(), X.tolist())


class Dataset:
    """What xarray has: a table with coordinates, that can be made a DataFrame."""

    def to_dataframe(self) -> Any:
        return pandas.DataFrame({"x": X}, index=pandas.Index(T, name="time"))


def test_times_may_be_arrays_of_any_kind() -> None:
    expected = (T.tolist(), X.tolist())
    assert values(read(Dataset())) == expected
    assert values(read(T[:, None], X)) == expected
    assert values(read(pandas.Series(T), pandas.DataFrame({"x": X}))) == expected
    assert values(read(T, pandas.DataFrame(X[:, None]))) == expected
    assert values(read(pandas.DataFrame(np.c_[X, T]), columns={"t": 1, "x": 0})) == expected
    for lengths in (
        (1000 * T).astype("timedelta64[ms]"),
        [timedelta(seconds=t) for t in T],
        pandas.to_timedelta(T, "s"),
    ):
        found = read(lengths, X)
        assert values(found) == expected
        assert found.labels == {"title": "", "units": {"t": "s"}, "origin": ""}


@pytest.mark.parametrize("zone", [None, UTC])
def test_dates_as_arrays_are_those_of_tables(zone: Any) -> None:
    dates = [date.replace(tzinfo=zone) for date in DATES]
    index = pandas.DatetimeIndex(dates)
    forms: list[Any] = [dates, index, pandas.Series(dates), pl.Series(dates), [date.isoformat(" ") for date in dates]]
    forms += [] if zone else [index.to_numpy(), np.array(dates, dtype="datetime64[s]")[:, None]]
    sources_of = [(form, X) for form in forms]
    tables = [pandas.DataFrame({"x": X}, index=index), pandas.Series(X, index=index), {"date": dates, "x": X}]
    for data in (*sources_of, *((table,) for table in tables)):
        found = read(*data)
        assert values(found) == ((30 * T).tolist(), X.tolist())
        assert found.origin == dates[0]
        assert found.units == {"t": "s"}


@pytest.mark.parametrize("large", [False, True])
def test_times_are_nearly_in_order_and_more_than_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 0 if large else 10**6)
    step, wave, packets = np.repeat([0.0, 1.0], 20), np.sin(np.arange(40.0)), np.arange(40.0)
    packets[[20, 21]] = packets[[21, 20]]

    def write(u: Any) -> Path:
        rows = [f"{own},{k % 7}" for k, own in enumerate(u)]
        (tmp_path / "a.csv").write_text("\n".join(["u,x", *rows]))
        return tmp_path / "a.csv"

    with pytest.raises(DataError, match=r"a\.csv: expected times in column u, got 2 different numbers in 40 rows"):
        read(write(step), columns={"t": 1})
    with pytest.raises(DataError, match=r"column u, nearly in order, got numbers that go up and down.*or dt=STEP"):
        read(write(wave), columns={"t": 1})
    with pytest.raises(DataError, match=r"nearly in order.*several records"):
        read(write([*range(20), *range(20)]), columns={"t": 1})
    assert "times in column u go back by up to 1" in read(write(packets), columns={"t": 1}).notes
    for plain in (np.arange(40.0), np.arange(40.0)[::-1], np.repeat(np.arange(10.0), 4)):
        assert read(write(plain), columns={"t": 1}).measurements.size == 40


@pytest.mark.parametrize("large", [False, True])
def test_files_that_overlap_are_no_pieces_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 0 if large else 10**6)

    def write(name: str, header: str, first: int) -> None:
        (tmp_path / name).write_text("\n".join([header, *(f"{first + k},{k % 5}" for k in range(10))]))

    write("a.csv", "t,x", 0)
    write("b.csv", "t,x", 9)
    assert read(str(tmp_path / "*.csv")).measurements.size == 20
    write("c.csv", "t,y", 4)
    assert read(str(tmp_path / "*.csv"), channels=["x", "y"]).measurements.size == 30
    write("d.csv", "t,x", 5)
    with pytest.raises(DataError, match=r"d\.csv: expected files one after the other.*x is measured in .*a\.csv"):
        read(str(tmp_path / "*.csv"), channels=["x", "y"])


def test_rows_without_a_time_are_a_step_apart(tmp_path: Path) -> None:
    frame = pl.DataFrame({"u": X, "x": X})
    assert values(read(frame, dt=0.5)) == ((0.5 * T).tolist(), X.tolist())
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    for path in ("a.csv", "a.parquet"):
        assert values(read(tmp_path / path, dt=0.5, columns={"x": 2})) == ((0.5 * T).tolist(), X.tolist())
    (tmp_path / "one.csv").write_text("x\n1.5\n2\n")
    assert values(read(tmp_path / "one.csv", dt=2)) == ([0, 2], [1.5, 2])
    (tmp_path / "one.csv").write_text("x\n1,5\n\n2\n")
    assert values(read(tmp_path / "one.csv", dt=2)) == ([0, 2], [1.5, 2])
    assert "rows are 2 apart in time" in read(tmp_path / "one.csv", dt=2).notes
    for options, match in (
        ({"dt": 0}, "expected dt as a positive number"),
        ({"dt": True}, "expected dt as a positive number"),
        ({"dt": 1, "columns": {"t": "u"}}, "choose one"),
        ({"dt": 1, "time": "u"}, "choose one"),
    ):
        with pytest.raises(DataError, match=match):
            read(frame, **options)
    with pytest.raises(DataError, match="the table has a column time; leave out dt"):
        read(frame.rename({"u": "time"}), dt=1)
    with pytest.raises(DataError, match="expected one table with --dt, got 2"):
        read([[tmp_path / "a.csv", tmp_path / "one.csv"]], dt=1, in_shell=True)
    with pytest.raises(DataError, match="dt= is about columns"):
        read(T, X, dt=1)


@pytest.mark.parametrize("large", [False, True])
def test_a_window_leaves_other_rows_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 0 if large else 10**6)
    frame = pl.DataFrame({"t": T, "x": X})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_csv(tmp_path / "a.csv")
    dated = pandas.DataFrame({"x": X}, index=pandas.DatetimeIndex(DATES))
    for source in (frame, tmp_path / "a.parquet", tmp_path / "a.csv"):
        found = read(source, window=(2.5, "8")).measurements
        assert (found.window, found.size) == ((3.0, 8.0), 6)
    found = read(dated, window=("2026-03-01 12:01", DAY + timedelta(seconds=150))).measurements
    assert (found.window, found.size) == ((60.0, 150.0), 4)
    # A last day belongs to the window, as in slices of pandas.
    days = pandas.DataFrame({"x": X}, index=pandas.date_range("2026-03-01", periods=len(X), freq="6h"))
    found = read(days, window=("2026-03-02", "2026-03-02")).measurements
    assert (found.window, found.size) == ((86400.0, 86400.0 + 3 * 21600.0), 4)
    with pytest.raises(DataError, match="expected the first time before the last, got 2026-03-05 and 2026-03-04"):
        read(days, window=("2026-03-05", "2026-03-04"))
    for window, match in (
        ((8, 2), "expected the first time before the last, got 8 and 2"),
        (
            (20, 30),
            "expected rows( from t = 20 until t = 30| of measurements), found none(; the rows are between t = 0|$)",
        ),
        (("soon", None), "expected a number or a date such as .* for the first time, got 'soon'"),
        ((None, "2026-03-01"), "the last time is a date, but the times are numbers"),
        ((np.nan, None), "expected a finite time for the first time"),
    ):
        with pytest.raises(DataError, match=match):
            read(frame, window=window)


def test_the_order_of_parts_is_the_order_of_the_whole() -> None:
    draw = np.random.default_rng(0)
    for _ in range(500):
        t = draw.integers(0, draw.integers(1, 6), draw.integers(1, 9)).astype(float)
        t = np.sort(t) if draw.random() < 0.4 else t
        pairs = [(t[i], t[j]) for i in range(len(t)) for j in range(i, len(t))]
        drop, rise = max(a - b for a, b in pairs), max(b - a for a, b in pairs)
        cut = int(draw.integers(0, len(t) + 1))
        for found in (TimeOrder.from_times(t), TimeOrder.from_times(t[:cut]) + TimeOrder.from_times(t[cut:])):
            assert (found.count, found.low, found.high) == (len(t), t.min(), t.max())
            assert (found.max_drop, found.max_rise, len(found.distinct_times)) == (
                drop,
                rise,
                min(len(set(t.tolist())), 3),
            )
