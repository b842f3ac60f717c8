"""Parquet files: columns of all kinds, and what is wrong with a file."""

from __future__ import annotations

import base64
import gzip
import math
import os
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from threading import Thread

import polars as pl
import pytest

from lodekit.data.tables import frames, read_table
from lodekit.data.tables.parquet import ParquetFile, read_arrow_metadata
from lodekit.errors import DataError
from tests.data.table_files import nan, same


def test_columns_of_all_kinds_are_read_or_refused(tmp_path: Path) -> None:
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
    assert "columns not used: day, since, list, infinite, gap" in table.notes
    assert "column nothing has no values" in table.notes
    table = read_table(path, ["x"], mapping={"t": "day", "x": "number"})
    same(table, [0, 86400, 2 * 86400], x=[1, 2, nan])
    assert table.origin == datetime(2024, 3, 1)
    table = read_table(path, ["number"], time="since")
    same(table, [0, 1.5, 60], number=[1, 2, nan])
    assert table.origin is None
    for channel, time, match in (
        ("list", "when", "expected numbers in column list, got List"),
        ("day", "when", "expected numbers in column day, got dates"),
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


def test_paths_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.csv: cannot be read, No such file"):
        read_table(tmp_path / "missing.csv", ["x"])
    with pytest.raises(DataError, match="expected a file, got a folder"):
        read_table(tmp_path, ["x"])
    with pytest.raises(DataError, match="cannot be read"):
        read_table("a\0b", ["x"])
    with pytest.raises(DataError, match="expected the path"):
        read_table(3, ["x"])  # type: ignore[arg-type]


def test_packed_files_and_pipes_are_read(tmp_path: Path) -> None:
    frame, packed = pl.DataFrame({"t": [0.0, 1.0], "x": [1.5, 2.5]}), BytesIO()
    frame.write_parquet(packed)
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(packed.getvalue()))
    same(read_table(tmp_path / "a.parquet.gz", ["x"]), [0, 1], x=[1.5, 2.5])
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = Thread(target=pipe.write_text, args=("t;x\n0;1,5\n1;2,5\n",))
    writer.start()
    same(read_table(pipe, ["x"]), [0, 1], x=[1.5, 2.5])
    writer.join()


def test_names_that_only_their_case_tells_apart_and_names_like_patterns(tmp_path: Path) -> None:
    path = tmp_path / "a[1]*?'.parquet"
    pl.DataFrame({"t": [0.0, 1.0], "T": [5.0, 6.0], 'say "x"': [7.0, 8.0]}).write_parquet(path)
    pl.DataFrame({"t": [9.0], "T": [9.0]}).write_parquet(tmp_path / "a1bc'.parquet")
    same(read_table(path, ["T", "x"], mapping={"x": 'say "x"'}), [0, 1], T=[5, 6], x=[7, 8])


def test_a_column_called_like_the_number_of_a_row_is_one_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "TABLE_BLOCK_ROWS", 2)
    frame = pl.DataFrame({"t": [0.0, 1.0, 2.0, 3.0, 4.0], "file_row_number": [5, 6, 7, 8, 9]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.rename({"file_row_number": "x"}).write_parquet(tmp_path / "b.parquet")
    for name in ("a", "b"):
        file = ParquetFile.open(str(tmp_path / f"{name}.parquet"))
        blocks = [block("t", ()) for block in file.blocks(file.names)]
        assert [places.numbers.tolist() for _, places in blocks] == [[1, 2], [3, 4], [5]]
        assert [value for content, _ in blocks for value in content[file.names[1]].tolist()] == [5, 6, 7, 8, 9]


def test_time_zones_and_nanoseconds_survive(tmp_path: Path) -> None:
    first = int(datetime(2024, 3, 1, 12, tzinfo=UTC).timestamp()) * 10**9
    when = pl.Series([first, first + 10**9 + 7]).cast(pl.Datetime("ns", "UTC")).dt.convert_time_zone("Europe/Berlin")
    pl.DataFrame({"when": when, "x": [1.0, 2.0]}).write_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", ["x"], time="when")
    assert str(table.origin) == "2024-03-01 13:00:00+01:00"
    same(table, [0, 1 + 7e-9], x=[1, 2])


def test_a_damaged_note_of_arrow_is_no_note() -> None:
    """Each byte may be wrong: there are fewer hints then, or others, and never an error of another kind."""
    path = BytesIO()
    pl.DataFrame({"since": [timedelta(1)], "x": [1.0]}).write_parquet(path)
    (packed,) = re.findall(rb"ARROW:schema.{2,4}?([A-Za-z0-9+/=]{40,})", path.getvalue(), re.DOTALL)
    content = base64.b64decode(packed)
    assert read_arrow_metadata(packed) == {"since": ("length", "us")}
    for place in range(len(content)):
        for value in (0, 127, 255):
            read_arrow_metadata(base64.b64encode(content[:place] + bytes([value]) + content[place + 1 :]))
        read_arrow_metadata(base64.b64encode(content[:place]))
