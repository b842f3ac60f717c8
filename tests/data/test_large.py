"""Large files are read by the rules of small ones: every dialect gives the same sums as the same file in memory."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lodekit.data import sources
from lodekit.data.sources import LoadedData, load_data
from lodekit.data.tables import text
from lodekit.errors import DataError
from tests.data.sums import assert_same
from tests.data.table_files import DIALECTS

Both = Callable[..., tuple[Any, LoadedData]]
START = datetime(2026, 3, 1, 12)


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Both:
    """Read files in memory, unless that is not wanted, and in blocks of some bytes."""

    def write_and_read(*contents: str | bytes, block: int = 64, **options: Any) -> tuple[LoadedData | None, LoadedData]:
        for number, content in enumerate(contents):
            data = content.encode() if isinstance(content, str) else content
            (tmp_path / f"{number}.csv").write_bytes(data)
        options = {"channels": ("x", "y"), **options}
        small = None if options.pop("large_only", False) else load_data(str(tmp_path / "*.csv"), **options)
        with monkeypatch.context() as patch:
            patch.setattr(sources, "MAX_ROWS_IN_MEMORY", 0)
            patch.setattr(text, "BLOCK_BYTES", block)
            return small, load_data(str(tmp_path / "*.csv"), **options)

    return write_and_read


def assert_agree(small: LoadedData, large: LoadedData) -> None:
    assert small.measurements.sufficient_statistics is None
    assert_same(large.measurements.sufficient_statistics, small.measurements.statistics)
    assert large.origin == small.origin
    assert large.notes == ("read in pieces, as there are too many rows to keep all of them in memory", *small.notes)


@pytest.mark.parametrize("block", [1, 1 << 20], ids=["a row at a time", "all at once"])
@pytest.mark.parametrize("content", DIALECTS)
def test_every_dialect_is_read_in_pieces_as_in_memory(both: Both, content: str, block: int) -> None:
    assert_agree(*both(content, block=block))


def make_rows(count: int, separator: str = ",", mark: str = ".", missing: str = "") -> list[str]:
    random = np.random.default_rng(0)
    rows = []
    for number, (x, y) in enumerate(random.standard_normal((count, 2)).round(4)):
        cells = [f"{number / 8}", missing if number % 5 == 3 else f"{x}", f"{y}"]
        rows.append(separator.join(cell.replace(".", mark) for cell in cells))
    return rows


@pytest.mark.parametrize(
    ("separator", "mark", "missing"),
    [
        (",", ".", ""),
        (",", ".", "NA"),
        (";", ",", "?"),
        ("\t", ",", "null"),
        (";", ".", "-"),
        ("|", ".", "nan"),
        (" ; ", ",", " "),
        ("   ", ".", "N/A"),
    ],
)
def test_long_files_of_every_kind_are_read_in_pieces_as_in_memory(
    both: Both, separator: str, mark: str, missing: str
) -> None:
    rows = ["t,x,y".replace(",", separator), *make_rows(60, separator, mark, missing)]
    assert_agree(*both("\n".join(rows), block=100))
    commented = [line for number, row in enumerate(rows) for line in (row, "# remark" if number % 7 == 0 else "")]
    assert_agree(*both("# a log\n" + "\r\n".join(commented), block=100))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_encodings_and_gzip_survive_every_cut(both: Both, encoding: str) -> None:
    content = "\n".join(
        ["t;x;y;Größe", *(f"{row};ä{'€' if encoding != 'latin-1' else ''}" for row in make_rows(30, ";"))]
    )
    assert_agree(*both(content.encode(encoding), block=33))
    assert_agree(*both(gzip.compress(content.encode(encoding)), block=33))


def test_header_mapping_and_noise_hold_in_every_piece(both: Both) -> None:
    rows = [f"{k};{k % 3};{k % 5};{0.5 + k % 2}" for k in range(50)]
    columns = {"t": 1, "x": 2, "x'": "3", "std(x)": 4}
    assert_agree(*both("\n".join(rows), columns=columns, noise_std={"x'": 0.25}))
    assert_agree(*both("\n".join(["-1;8;7;6", *rows]), columns=columns, header=False))
    units = "\n".join(["Time (s);X [m];Y;sigma", *rows])
    assert_agree(*both(units, noise_std={"x": "SIGMA", "y": 2.0}))


def test_rows_on_disk_have_the_noise_that_is_known_of_every_file(both: Both) -> None:
    rows = make_rows(40)
    first = "\n".join(["t,x", *(row.rpartition(",")[0] for row in rows[:20])])
    _, large = both(first, "\n".join(["t,x,y", *rows[20:]]), noise_std={"x": 0.5, "y": 0.25})
    assert large.measurements.stored_rows is not None
    x, y = large.measurements.stored_rows.store.read_series(0, 40)
    assert (set(x.std.tolist()), set(y.std.tolist())) == ({0.5}, {0.25})


def test_truth_is_one_and_falsehood_zero_in_every_block(both: Both) -> None:
    rows = [f"{k},{['true', 'FALSE', ''][k % 3]},{k % 4}" for k in range(60)]
    assert_agree(*both("\n".join(["t,x,y", *rows])))
    mixed = [row.replace("true", "1").replace("FALSE", "0") if k > 30 else row for k, row in enumerate(rows)]
    with pytest.raises(DataError, match=r"line 2, column x: expected a number, got 'true'"):
        both("\n".join(["t,x,y", *mixed]))
    with pytest.raises(DataError, match=r"column x: .*true and false, got both \(line 2 and line 33\)"):
        both("\n".join(["t,x,y", *mixed]), block=1, large_only=True)


FORMS = ["%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M %p", "%d/%m/%Y, %H:%M"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", [timedelta(minutes=7), timedelta(hours=11, seconds=0.125)])
def test_dates_in_every_block_count_from_the_first_of_all(both: Both, form: str, step: timedelta) -> None:
    dates = [(START + k * step).strftime(form) for k in range(80)]
    late = "/%Y" in form and step < timedelta(hours=1)
    if late:
        dates[-1] = (START + timedelta(days=20)).strftime(form)  # what settles the order may come last
    lines = ["date;x", *(f'"{date}";{k % 9}' if k % 4 == 0 else f"{date};{k % 9}" for k, date in enumerate(dates))]
    parts = [lines] if late else [lines[:41], [lines[0], *lines[41:]]]
    small, large = both(*("\n".join(part) for part in parts))
    assert_agree(small, large)
    assert small.origin is not None


def test_a_mark_that_comes_late_is_found_and_two_marks_are_refused(both: Both) -> None:
    late = ["t;x", *(f"{k};{k % 7}" for k in range(100)), "100;1,5"]
    small, large = both("\n".join(late))
    assert_agree(small, large)
    assert "separator ';', decimal comma" in large.notes
    early, never = ["t;x", *("0;1,5", "1;2") * 40, "2;2.5"], ["t;x", *("0;1", "1;2") * 40, "2;2.5", "3;3", "4;1,5"]
    other = r"0\.csv: line 82, column x: expected a number, got '2.5'; other cells have a decimal comma"
    for large_only in (False, True):
        with pytest.raises(DataError, match=other):
            both("\n".join(early), large_only=large_only)
    with pytest.raises(DataError, match=r"0\.csv: line 8[24], column x: expected a number"):
        both("\n".join(never))
    # Where no line had a mark at first, each block remembers where its first one stands.
    marks = r"0\.csv: some numbers have a decimal point \(line 82\), others a decimal comma \(line 84\)"
    with pytest.raises(DataError, match=marks):
        both("\n".join(never), block=1, large_only=True)


@pytest.mark.parametrize("mark", [".", ","])
def test_thousands_are_never_misread_wherever_they_are(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 0)
    monkeypatch.setattr(text, "BLOCK_BYTES", 64)
    rows = ["t;x", *(f"{k};{k}" for k in range(100)), f"100;1{mark}234", *(f"{k};{k}" for k in range(101, 200))]
    path.write_text("\n".join(rows))
    with pytest.raises(DataError, match=r"a\.csv: column x: '1.234' may be 1234 or 1.234"):
        load_data(path, channels=("x",))
    path.write_text("\n".join([*rows, f"200;1{mark}5"]))
    found = load_data(path, channels=("x",)).measurements.sufficient_statistics
    assert found is not None
    assert found.cells["x", False].bins[2].sum() == pytest.approx(sum(range(200)) - 100 + 1.234 + 1.5)


def test_files_of_several_dialects_are_one_record(both: Both) -> None:
    one = "\n".join(["t,x,y", *make_rows(50)])
    two = "\n".join(["Zeit;Y [m]", *(f"{100 + k};{k % 3},5" for k in range(40))])
    small, large = both(one, two)
    assert_agree(small, large)
    assert "separator ';', decimal comma (1.csv)" in large.notes
