"""A DataFrame of any library is read as a file with the same columns is, to the last digit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from lodekit.data.sources import LoadedData, load_data
from lodekit.errors import DataError

pandas = pytest.importorskip("pandas")
arrow = pytest.importorskip("pyarrow")

COUNT = 30
NUMBERS = np.random.default_rng(0).standard_normal(COUNT)
STEPS = [timedelta(seconds=int(second), milliseconds=int(second) * 37 % 1000) for second in range(0, 9 * COUNT, 9)]
LIBRARIES = ["pandas", "polars", "pyarrow", "pandas of pyarrow"]


def make_frame(library: str, columns: dict[str, Any]) -> Any:
    if library == "polars":
        return pl.DataFrame(columns)
    if library == "pyarrow":
        return arrow.table(columns)
    frame = pandas.DataFrame(columns)
    return frame.convert_dtypes(dtype_backend="pyarrow") if library == "pandas of pyarrow" else frame


def assert_same(found: LoadedData, expected: LoadedData) -> None:
    assert found.origin == expected.origin
    assert found.labels == expected.labels
    assert found.measurements.names == expected.measurements.names
    for one, two in zip(found.measurements.series, expected.measurements.series, strict=True):
        np.testing.assert_array_equal(one.times, two.times)
        np.testing.assert_array_equal(one.values, two.values)
        np.testing.assert_array_equal(one.std, two.std)


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    lines = [";".join(columns)]
    for row in zip(*columns.values(), strict=True):
        cells = [
            "" if cell is None else cell.isoformat(" ") if isinstance(cell, datetime) else repr(cell) for cell in row
        ]
        lines.append(";".join(cell.replace(".", ",") for cell in cells))
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=1))])
@pytest.mark.parametrize("library", LIBRARIES)
def test_dates_numbers_and_gaps_are_those_of_a_file(tmp_path: Path, library: str, zone: timezone | None) -> None:
    if library == "polars" and zone not in (None, UTC):
        pytest.skip("polars has no zones that are offsets alone")
    x = [None if number < -1 else float(number) for number in NUMBERS]
    dates = [datetime(2026, 3, 1, 12, 0, 0, 250000, zone) + step for step in STEPS]
    columns = {"Date": dates, "X [m]": x, "error": [0.5] * COUNT}
    options: dict[str, Any] = {"channels": ["x", "y"], "noise_std": {"x": "error"}}
    expected = load_data(write_csv(tmp_path / "a.csv", columns), **options)
    assert len(expected.measurements.series[0].times) < COUNT
    assert_same(load_data(make_frame(library, columns), **options), expected)


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_are_called_by_number_as_in_a_file(tmp_path: Path, library: str) -> None:
    columns = {"a": [float(k) / 7 for k in range(COUNT)], "b": [int(k) for k in range(COUNT)], "c": NUMBERS.tolist()}
    options: dict[str, Any] = {"channels": ["x"], "columns": {"t": 1, "x": "c", "x'": 2}}
    expected = load_data(write_csv(tmp_path / "a.csv", columns), **options)
    assert_same(load_data(make_frame(library, columns), **options), expected)


@pytest.mark.parametrize("library", LIBRARIES)
def test_texts_are_read_as_cells_are(library: str) -> None:
    columns = {"t": ["0", "0,5", "1"], "x": ["1,5", None, "NA"], "y": [None, " 2,25", "-"]}
    x, y = load_data(make_frame(library, columns), channels=["x", "y"]).measurements.series
    assert (x.times.tolist(), x.values.tolist()) == ([0], [1.5])
    assert (y.times.tolist(), y.values.tolist()) == ([0.5], [2.25])


def test_lengths_truths_decimals_and_categories_are_numbers() -> None:
    frame = pandas.DataFrame(
        {
            "t": pandas.to_timedelta([0, 1500, 3000], unit="ms"),
            "truth": [True, False, True],
            "decimal": [Decimal("1.25"), None, Decimal("2.5")],
            "category": pandas.Categorical(["1", "2", "1"]),
            "nullable": pandas.array([1, None, 3], dtype="Int64"),
            "mixed": [1.5, "2.5", None],
        }
    )
    found = load_data(frame, channels=list(frame.columns[1:])).measurements
    assert [item.times.tolist() for item in found.series][:2] == [[0, 1.5, 3], [0, 3]]
    values = {item.observable: item.values.tolist() for item in found.series}
    assert values == {
        "truth": [1, 0, 1],
        "decimal": [1.25, 2.5],
        "category": [1, 2, 1],
        "nullable": [1, 3],
        "mixed": [1.5, 2.5],
    }
    days = arrow.table({"t": [date(2026, 3, 1), date(2026, 3, 3)], "x": [1, 2]})
    assert load_data(days, channels=["x"]).measurements.series[0].times.tolist() == [0, 172800]
    numbered = pandas.DataFrame(np.arange(6.0).reshape(3, 2))
    assert load_data(numbered, channels=["x"], columns={"t": "0", "x": "1"}).measurements.size == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"t": [datetime(2026, 3, 1), None], "x": [1, 2]}, "the DataFrame: .*column t has none in row 2"),
        ({"t": [0.0, np.nan], "x": [1, 2]}, "the DataFrame: expected a time in every row, column t has none in row 2"),
        ({"t": [0, 1], "x": ["1", "two"]}, "the DataFrame: row 2, column x: expected a number, got 'two'"),
        ({"t": [0, 1], "x": [datetime(2026, 3, 1)] * 2}, "the DataFrame: expected numbers in column x, got "),
        ({"t": [0, 1], "x": [None, None]}, "the DataFrame: expected at least one value of x, every cell is missing"),
        ({"t": [], "x": []}, "the DataFrame: expected rows"),
    ],
)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_what_cannot_be_used_is_named(library: str, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(make_frame(library, columns), channels=["x"])


def test_the_common_index_of_series_is_the_time() -> None:
    index = pandas.date_range("2026-03-01", periods=4, freq="min")
    x, u = pandas.Series(np.arange(4.0), index), pandas.Series(np.ones(4), index)
    found = load_data({"x": x, "u": u}, channels=["x", "u"])
    assert found.origin == datetime(2026, 3, 1)
    assert found.measurements.window == (0.0, 180.0)
    with pytest.raises(DataError, match="expected Series with the same index, or a column t, got different indices"):
        load_data({"x": x, "u": u[1:]}, channels=["x", "u"])


def test_rows_as_dicts_are_told_how_to_become_columns() -> None:
    rows = [{"t": np.float64(t), "x": 1.0} for t in range(3)]
    with pytest.raises(
        DataError, match=r"as 't', got one float64; a dict is a table: .* \{name: \[row\[name\]"
    ) as caught:
        load_data(rows, channels=["x"])
    assert "iterable" not in str(caught.value)
    assert load_data({name: [row[name] for row in rows] for name in rows[0]}, channels=["x"]).measurements.size == 3


def test_a_date_is_the_same_number_of_seconds_however_it_comes(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    ticks = np.sort(random.integers(-(10**15), 10**15, 1000))
    dates = pl.Series("t", ticks).cast(pl.Datetime("us"))
    columns = {"t": dates.to_list(), "x": [1.0] * 1000}
    expected = load_data(write_csv(tmp_path / "a.csv", columns), channels=["x"])
    for unit in ("us", "ns"):
        frame = pl.DataFrame({"t": dates.cast(pl.Datetime(unit)), "x": columns["x"]})
        assert_same(load_data(frame, channels=["x"]), expected)
        assert_same(load_data(frame.to_pandas(), channels=["x"]), expected)
        frame.write_parquet(tmp_path / "a.parquet")
        assert_same(load_data(tmp_path / "a.parquet", channels=["x"]), expected)
    # Two roundings, of the rest and of the sum: at most one unit in the last place.
    np.testing.assert_allclose(expected.measurements.series[0].times, (ticks - ticks[0]) / 1e6, rtol=2.3e-16)
