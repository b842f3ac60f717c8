"""Dates become seconds since the first one; doubtful ones are refused."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from lodekit.data.sources import load_data
from lodekit.data.tables import read_time_list
from lodekit.errors import DataError, LodekitError
from lodekit.support.labels import Labels
from tests.data.table_files import Reader, same

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
def test_dates_become_seconds_since_the_first_one(
    read: Reader, form: str, first: str, second: str, seconds: float, origin: datetime
) -> None:
    table = read(form.format(first, second), "x")
    same(table, [0, seconds], x=[1.5, 2.5])
    assert table.origin == origin
    assert table.origin.utcoffset() == origin.utcoffset()
    assert any(note.startswith(f"times are seconds since {origin}; ") for note in table.notes)


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


def test_pieces_of_a_record_have_one_order_of_day_and_month(tmp_path: Path) -> None:
    for number, dates in enumerate((("12/30/2023", "12/31/2023"), ("01/01/2024", "01/02/2024"), ("01/03/2024",))):
        (tmp_path / f"{number}.csv").write_text("\n".join(["t,x", *(f"{date},1" for date in dates)]))
    for source in (str(tmp_path / "*.csv"), [tmp_path / "1.csv", tmp_path / "0.csv"]):
        records = load_data(source, channels=["x"], units={"t": "d"}).measurements.records.values()
        assert sum(len(record.series[0].times) for record in records) == (5 if isinstance(source, str) else 4)
        assert max(float(np.ptp(record.series[0].times)) for record in records) == (4.0 if len(records) == 1 else 1.0)
    with pytest.raises(DataError, match="'01/02/2024' may have the day or the month first"):
        load_data(str(tmp_path / "[12].csv"), channels=["x"])


def test_a_wrong_date_of_a_list_is_named_by_its_line_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "at.txt").write_text("# when\ntime\n\n2024-02-28\n2024-02-30\n")
    with pytest.raises(DataError, match=r"at\.txt: line 5: .*'2024-02-30': there is no such day"):
        read_time_list(tmp_path / "at.txt")


@pytest.mark.parametrize(
    ("start", "change"), [("2024-10-26 12:00", "2024-10-27 02:00"), ("2024-03-30 12:00", "2024-03-31 03:00")]
)
@pytest.mark.parametrize("minutes", [1, 10, 60])
@pytest.mark.parametrize("options", [{}, {"units": {"t": "h"}}, {"records": "label"}])
def test_a_change_of_the_clock_in_local_times_is_noted_or_refused(
    tmp_path: Path, start: str, change: str, minutes: int, options: dict[str, Any]
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = datetime.fromisoformat(start).replace(tzinfo=zone).timestamp()
    dates = [datetime.fromtimestamp(first + 60 * minutes * k, zone) for k in range(40 * 60 // minutes)]
    path, times = str(tmp_path / "log.csv"), []
    for form in ("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M%z"):
        rows = [f"{date.strftime(form)},{date.hour},a" for date in dates]
        (tmp_path / "log.csv").write_text("\n".join(["t,x,label", *rows]) + "\n")
        found = load_data(path, channels=["x"], timezone="Europe/Berlin", **options)
        assert not any("daylight-saving" in note for note in found.notes)
        times.append(found.measurements.series[0].times)
        if form.endswith("%M"):
            # An hour that is repeated would be mixed; one that is skipped is noted.
            with pytest.raises(DataError, match="timezone") if "10-27" in change else nullcontext() as refused:
                loaded = load_data(path, channels=["x"], **options)
                (note,) = (each for each in loaded.notes if "daylight" in each)
                assert Labels.from_dict(loaded.labels).warnings == note
            assert f"jump by an hour at {change}" in (str(refused.value) if refused else note)
    assert times[0].tolist() == times[1].tolist()
    with pytest.raises(LodekitError, match="expected the name of a time zone, such as 'Europe/Berlin', got 'Berlin'"):
        load_data(path, channels=["x"], timezone="Berlin")


def test_other_jumps_of_local_times_are_not_taken_for_a_change_of_the_clock(tmp_path: Path) -> None:
    """A pause of an hour on a working day, repeated times, and rows that come a second late."""
    start = datetime(2024, 3, 27, 12)
    seconds = [*range(0, 36000, 60), 36000 - 1, *range(36000 + 3600, 100000, 60), 99960]
    rows = [f"{start + timedelta(seconds=s):%Y-%m-%d %H:%M:%S},{s}" for s in seconds]
    (tmp_path / "log.csv").write_text("\n".join(["t,x", *rows]) + "\n")
    assert not any("daylight-saving" in note for note in load_data(str(tmp_path / "log.csv"), channels=["x"]).notes)
    (tmp_path / "log.csv").write_text("\n".join(["t,x", *sorted(rows[::30], key=lambda row: row[::-1])]) + "\n")
    with pytest.raises(DataError, match="sort the rows") as refused:
        load_data(str(tmp_path / "log.csv"), channels=["x"])
    assert "daylight-saving" not in str(refused.value)


def test_the_only_column_of_dates_is_the_time_whatever_it_is_called(tmp_path: Path) -> None:
    rows = "".join(f"2024-03-01 12:{k:02d};{k},5;#NV\n" for k in range(20))
    (tmp_path / "log.csv").write_text("Messung;x;y\n" + rows + "2024-03-01 12:30;---;1\n")
    found = load_data(str(tmp_path / "log.csv"), channels=["x", "y"]).measurements
    assert [(item.observable, len(item.times)) for item in found.series] == [("x", 20), ("y", 1)]
    assert found.series[0].times[:3].tolist() == [0.0, 60.0, 120.0]
    (tmp_path / "log.csv").write_text("Messung;bis;x\n" + "2024-03-01 12:00;2024-03-01 12:01;1\n" * 3)
    with pytest.raises(DataError, match="expected a column t or time"):
        load_data(str(tmp_path / "log.csv"), channels=["x"])


def test_hourly_rows_with_the_newest_first_are_no_change_of_the_clock(tmp_path: Path) -> None:
    rows = [f"{datetime(2024, 1, 20) - timedelta(hours=k):%Y-%m-%d %H:%M},{k}" for k in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(["t,x", *rows]) + "\n")
    found = load_data(str(tmp_path / "log.csv"), channels=["x"])
    assert sorted(found.measurements.series[0].times.tolist()) == [3600.0 * k for k in range(-59, 1)]
    assert not any("daylight-saving" in note for note in found.notes)
