"""Tables on the command line: without a time, within a window, in other units; messages speak of options."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from lodekit.cli.arguments import write_output
from lodekit.errors import LodekitError
from tests.cli.command import run

ROOM = """
equations = ["T' = -k*(T - 20) + u"]
[parameters]
k = { positive = true }
[units]
t = "min"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "room.toml").write_text(ROOM)
    t = np.arange(40)
    temperatures = 20 + 5 * np.exp(-0.1 * t) + 0.01 * np.cos(7 * t)
    rows = [f"2026-03-01 12:{k:02d},{own:.4f},0" for k, own in zip(t, temperatures, strict=True)]
    (tmp_path / "dated.csv").write_text("\n".join(["Logger 7", "date,T,u", *rows]))
    rows = [f"0,{own:.4f}" for own in temperatures]
    (tmp_path / "plain.csv").write_text("\n".join(["u,T", *rows]))
    return tmp_path


def test_a_window_of_dates_in_minutes(folder: Path) -> None:
    done = run(
        *("fit", "room.toml", "dated.csv", "--from", "2026-03-01 12:10", "--to", "29", "--no-figures", "--json"),
        *("--mode-deviation", "3", "--basis", "T"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["observations"] == 40
    assert "times are counted in min since 2026-03-01 12:00:00" in found["notes"]
    assert not any("is converted from s" in note for note in found["notes"])
    assert "line 1 above the header was skipped ('Logger 7')" in found["notes"]
    assert any(name.startswith("all 20 values of u are 0") for name in found["warnings"])
    done = run("predict", "dated-fit", "--from", "2026-03-01T12:15", "--to", "15", "--n", "1", cwd=folder)
    assert done.stdout.splitlines()[1].startswith("15.0,2026-03-01T12:15:00,")
    (folder / "at.txt").write_text("2026-03-01 12:15\n2026-03-01 12:16\n")
    done = run("predict", "dated-fit", "--at", "at.txt", cwd=folder)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["t", "15.0", "16.0"]
    (folder / "at.csv").write_text("date,u\n2026-03-01 12:15,0\n2026-03-01 12:16,0\n")
    assert run("predict", "dated-fit", "--at", "at.csv", cwd=folder).stdout == done.stdout


def test_times_of_predictions_are_converted_to_the_unit_of_the_model(folder: Path) -> None:
    options = ("--dt", "1", "--no-figures", "--restarts", "1", "-q")
    assert run("fit", "room.toml", "plain.csv", *options, cwd=folder).returncode == 0
    (folder / "hours.csv").write_text("t [h],u\n0.5,0\n1,0\n")
    done = run("predict", "plain-fit", "--at", "hours.csv", cwd=folder)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["t", "30.0", "60.0"]


def test_a_file_without_a_time_takes_a_step_and_no_column_for_it(folder: Path) -> None:
    done = run("fit", "room.toml", "plain.csv", cwd=folder)
    assert done.returncode == 2
    assert "otherwise --map t=COLUMN" in done.stderr
    assert "--dt STEP" in done.stderr
    assert "columns=" not in done.stderr
    for wrong in ("t=1", "t=u"):
        done = run("fit", "room.toml", "plain.csv", "--map", wrong, "--no-figures", cwd=folder)
        assert done.returncode == 2
        assert "expected times in column u, got 1 different number in 40 rows" in done.stderr
    done = run("fit", "room.toml", "plain.csv", "--dt", "1", "--no-figures", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["parameters"]["k"]["value"] == pytest.approx(0.1, rel=0.05)


def test_check_of_a_system_file_points_to_inspect(folder: Path) -> None:
    done = run("check", "room.toml", cwd=folder)
    assert done.returncode == 2
    assert "lodekit inspect room.toml shows what its equations imply" in done.stderr


def test_inspect_takes_a_basis(folder: Path) -> None:
    done = run("inspect", "x' = v; v' = u", "--basis", "x", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert run("inspect", "room.toml", "--basis", "T", cwd=folder).returncode == 0
    done = run("inspect", "x' = v; v' = u", "--basis", "x*x", cwd=folder)
    assert done.returncode == 2
    (folder / "deep.toml").write_text("mode_deviation = -1\n" + ROOM)
    done = run("fit", "deep.toml", "dated.csv", cwd=folder)
    assert (
        done.returncode,
        "expected --mode-deviation as a positive number, 'open' or 'learned', got -1" in done.stderr,
    ) == (2, True)


def test_a_result_does_not_replace_a_table_with_other_columns(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("time,T\n0,20\n")
    with pytest.raises(LodekitError, match="exists and has other columns"):
        write_output("t,T,std(T)\n0,20,0.1\n", log)
    assert log.read_text() == "time,T\n0,20\n"
    for value in ("20", "21"):
        write_output(f"t,T,std(T)\n0,{value},0.1\n", tmp_path / "new.csv")
    assert "21" in (tmp_path / "new.csv").read_text()


def test_local_dates_have_the_time_zone_of_the_fit(tmp_path: Path) -> None:
    """The clocks go back in this night; other files for the model are in the same zone."""
    zone, start = ZoneInfo("Europe/Berlin"), datetime(2024, 10, 26, 22, tzinfo=UTC)
    dates = [(start + timedelta(minutes=10 * k)).astimezone(zone) for k in range(40)]
    rows = [f"{date:%Y-%m-%d %H:%M},{5 * np.exp(-k / 10):.5f}" for k, date in enumerate(dates)]
    (tmp_path / "log.csv").write_text("\n".join(["date,T", *rows]))
    equation = ("fit", "T' = -k*T", "log.csv", "--positive", "k", "--no-figures", "-q")
    done = run(*equation, cwd=tmp_path)
    assert done.returncode == 2
    assert "--timezone Europe/Berlin" in done.stderr
    assert run(*equation, "--timezone", "Europe/Berlin", cwd=tmp_path).returncode == 0
    shown = run("predict", "log-fit", "--n", "2", cwd=tmp_path).stdout.splitlines()
    assert [line.split(",")[:2] for line in shown[1:]] == [
        ["0.0", "2024-10-27T00:00:00+02:00"],
        ["23400.0", "2024-10-27T05:30:00+01:00"],
    ]
    validated = run("validate", "log-fit", "log.csv", cwd=tmp_path)
    assert validated.returncode == 0, validated.stderr
    rows = [f"{date.astimezone(UTC):%Y-%m-%d %H:%M},{row[17:]}" for date, row in zip(dates, rows, strict=True)]
    (tmp_path / "utc.csv").write_text("\n".join(["date,T", *rows]))
    validated = run("validate", "log-fit", "utc.csv", "--timezone", "UTC", cwd=tmp_path)
    assert validated.returncode == 0, validated.stderr
    watched = run("watch", "log-fit", "utc.csv", "--timezone", "UTC", "--fresh", "--once", cwd=tmp_path)
    assert watched.stdout.splitlines()[1].startswith("0.0,2024-10-27T00:00:00+02:00"), watched.stderr
