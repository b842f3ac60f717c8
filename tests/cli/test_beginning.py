"""A system file from a data file: inputs are guessed, and said to be; fits accept what is written."""

from __future__ import annotations

import tomllib
from datetime import datetime, timedelta
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from lodekit.errors import EquationError, SystemFileError
from lodekit.system.files import read_system_file
from lodekit.workflow.pipeline import fit_file
from tests.cli.command import run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log of a lag: pseudo-random valve, a level that follows it, remarks and a constant."""
    generator = np.random.default_rng(0)
    lines, y = ["Time [min],valve (%),level [m],remark,fan"], 0.0
    for k in range(80):
        u = float(generator.integers(0, 2))
        lines.append(f"{k},{20 + 60 * u:g},{1 + y + 0.01 * generator.standard_normal():.4f},ok,1")
        y += 0.2 * (2 * u - y)
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    return path


def test_columns_become_channels_inputs_and_units(log: Path) -> None:
    done = run("init", "plant.toml", "--data", "log.csv", cwd=log.parent)
    assert (done.returncode, done.stdout) == (0, "")
    for part in (
        "log.csv: 80 rows; t is column Time [min]: recognised by its name, in min",
        "valve (column valve (%)): a known input, held between samples: it takes two values only, 20 and 80",
        "level (column level [m]): measured",
        "remark: left out: it contains no numbers",
        "fan: left out: it never changes",
        "equations are only a first guess",
        "next: lodekit fit plant.toml log.csv",
    ):
        assert part in done.stderr
    file = read_system_file(log.parent / "plant.toml")
    assert file.system.equations == ("tau*level' + level - level0 = K*valve",)
    assert file.system.parameters["tau"].positive
    assert (file.inputs, file.columns) == ({"valve": "hold"}, {})
    assert file.units == {"t": "min", "level": "m", "valve": "%"}
    gp = fit_file(file, log, random_state=0).gp
    assert gp.parameters_["K"].value == pytest.approx(2 / 60, rel=0.05)


def test_equations_go_with_data(log: Path) -> None:
    equations = ("init", "c*h' = q - k*h", "--param", "c,k", "--data", "log.csv")
    done = run(*equations, "--map", "h=level", "--map", "q=valve", "--out", "tank.toml", cwd=log.parent)
    assert done.returncode == 0, done.stderr
    file = read_system_file(log.parent / "tank.toml")
    assert file.inputs == {"q": "hold"}
    assert file.columns == {"h": "level", "q": "valve"}
    assert file.units["h"] == "m"
    absent = run(*equations, "--map", "h=level", cwd=log.parent)
    assert "no column for q: not measured; otherwise assign its column, --map q=COLUMN" in absent.stderr
    assert "[inputs]\n" not in absent.stdout.replace("# [inputs]", "")


def test_records_may_have_names_and_columns_may_be_means(tmp_path: Path) -> None:
    rows = [f"{run_},{k},{k // 4 % 2},{np.sin(0.1 * k):.4f}" for run_ in ("mon", "tue") for k in range(40)]
    (tmp_path / "a.csv").write_text('run,t,u,"mean(T, 2) [degC]"\n' + "\n".join(rows))
    done = run("init", "a.toml", "--data", "a.csv", cwd=tmp_path)
    assert "records: column run changes when times start again" in done.stderr
    file = read_system_file(tmp_path / "a.toml")
    assert (file.records, file.columns, file.units["T"]) == ("run", {}, "degC")
    assert file.system.plain_channels == ("T", "u")


def test_a_file_without_header_and_with_several_records(tmp_path: Path) -> None:
    rows = [f"{run_} {k} {k // 4 % 2} {np.sin(0.1 * k + run_):.4f}" for run_ in (1, 2) for k in range(40)]
    (tmp_path / "a.dat").write_text("run t u y\n" + "\n".join(rows))
    done = run("init", "--data", "a.dat", cwd=tmp_path)
    assert "records: column run changes when times start again" in done.stderr
    assert '\nrecords = "run"\n' in done.stdout
    (tmp_path / "b.dat").write_text("\n".join(row.split(" ", 1)[1] for row in rows[:40]))
    assert run("init", "b.toml", "--data", "b.dat", cwd=tmp_path).returncode == 0
    file = read_system_file(tmp_path / "b.toml")
    assert (file.columns, file.inputs) == ({"t": "1", "u": "2", "y": "3"}, {"u": "hold"})


def test_dates_are_seconds_and_inspect_knows_the_inputs(tmp_path: Path) -> None:
    rows = [f"01.03.2026 08:00:{k:02d};{k // 4 % 2};{np.sin(0.1 * k):.4f}".replace("0.", "0,") for k in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["Datum;Ventil;T1", *rows]))
    done = run("init", "a.toml", "--data", "a.csv", cwd=tmp_path)
    assert "t is column Datum: recognised by its name, in s" in done.stderr
    shown = run("inspect", "a.toml", cwd=tmp_path).stdout
    assert "Given Ventil" in shown
    assert "x1' = -1/tau*x1 + K/tau*Ventil" in shown
    assert "the motion is determined by one initial value" in shown


def test_without_inputs_the_equations_are_left_to_the_user(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["t,x", *(f"{k},{np.sin(0.1 * k):.5f}" for k in range(40))]))
    done = run("init", "a.toml", "--data", "a.csv", cwd=tmp_path)
    assert "no column looks like an input, so no equations are proposed" in done.stderr
    assert "next: write your equations into the file; lodekit fit" in done.stderr
    with pytest.raises(EquationError, match="expected at least one equation"):
        read_system_file(tmp_path / "a.toml")
    text = (tmp_path / "a.toml").read_text().replace("equations = [", "equations = [\"x'' = -k*x\",")
    (tmp_path / "a.toml").write_text(text.replace("[parameters]", "[parameters]\nk = {}"))
    assert read_system_file(tmp_path / "a.toml").system.channels == ("x",)


def test_a_cell_of_text_does_not_hide_a_column_of_numbers(log: Path) -> None:
    lines = log.read_text().splitlines()
    lines[30] = lines[30].replace(lines[30].split(",")[2], "wet")
    log.write_text("\n".join(lines))
    done = run("init", "log.csv", "--out", "plant.toml", cwd=log.parent)
    assert "level cannot be read yet: line 31, column level [m]: expected a number, got 'wet'" in done.stderr
    assert "next: correct log.csv; lodekit fit plant.toml log.csv" in done.stderr
    assert read_system_file(log.parent / "plant.toml").system.plain_channels == ("level", "valve")


def test_all_rows_of_a_long_file_are_counted(tmp_path: Path) -> None:
    rows = (f"{k},{k // 50 % 2},{k * 7 % 13}" for k in range(200_000))
    (tmp_path / "a.csv").write_text("\n".join(["t,u,y", *rows]) + "\n")
    assert "a.csv: 200000 rows;" in run("init", "a.csv", cwd=tmp_path).stderr


def test_gaps_of_the_log_are_mentioned(tmp_path: Path) -> None:
    times = [*range(30), *range(100, 130)]
    (tmp_path / "log.csv").write_text("\n".join(["t [s],u,y", *(f"{t},{t // 10 % 2},{t * t % 7}.5" for t in times)]))
    done = run("init", "log.csv", cwd=tmp_path)
    assert "the log has a gap of 71 s: split_gaps = true starts a new record after each" in done.stderr
    assert "\nsplit_gaps = true\n" in done.stdout
    rows = [f"2024-03-{1 + t // 24:02d} {t % 24:02d}:00,{t // 10 % 2},{t * t % 7}.5" for t in times]
    (tmp_path / "dated.csv").write_text("\n".join(["t,u,y", *rows, "2024-03-09 00:00,1,2"]))
    assert "the log has 2 gaps, the longest of 3 d:" in run("init", "dated.csv", cwd=tmp_path).stderr


def test_cells_that_cannot_be_read_yet_are_explained(tmp_path: Path) -> None:
    rows = [f"{k // 60:02d}:{k % 60:02d};{k // 10 % 2}.000,0;{k * k % 7},5" for k in range(40)]
    (tmp_path / "log.csv").write_text("\n".join(["Zeit;u;y", *rows]))
    done = run("init", "new.toml", "--data", "log.csv", cwd=tmp_path)
    assert "the time cannot be read yet: line 2, column Zeit: expected a number, got '00:00'; a time of" in done.stderr
    assert "u: a known input, held between samples" in done.stderr
    assert "got '0.000,0'; remove the separators between thousands, as in 0000,0" in done.stderr
    assert "next: correct log.csv;" in done.stderr


def test_ambiguous_dates_are_rejected_as_by_a_fit(tmp_path: Path) -> None:
    rows = [f"0{1 + k // 9}/0{1 + k % 9}/2024,{k % 2},{k * 7 % 13}" for k in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["time,u,y", *rows]))
    done = run("init", "a.csv", "--out", "a.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "may have the day or the month first" in done.stderr
    assert not (tmp_path / "a.toml").exists()


def test_a_file_without_a_time_column_needs_a_sampling_interval(log: Path) -> None:
    text = "\n".join(line.split(",", 1)[1] for line in log.read_text().splitlines())
    (log.parent / "b.csv").write_text(text)
    done = run("init", "b.csv", "--out", "b.toml", cwd=log.parent)
    assert "there is no time column: give the sampling interval, --dt 0.1" in done.stderr
    assert "next: write the sampling interval into the file, dt = ...; lodekit fit b.toml b.csv" in done.stderr
    done = run("init", "b.csv", "--dt", "2", "--out", "c.toml", cwd=log.parent)
    assert "next: lodekit fit c.toml b.csv" in done.stderr
    file = read_system_file(log.parent / "c.toml")
    assert file.dt == 2.0
    # The time constant of the log is five rows, of two units of time each.
    assert fit_file(file, log.parent / "b.csv", random_state=0).gp.parameters_["tau"].value == pytest.approx(9, rel=0.1)
    assert run("init", "log.csv", "--dt", "2", cwd=log.parent).returncode == 2
    assert run("init", "x' = u", "--dt", "2", cwd=log.parent).returncode == 2
    assert "expected --dt as a positive finite number" in run("init", "b.csv", "--dt", "-1", cwd=log.parent).stderr
    # Files with times have their own.
    assert fit_file(file, log, random_state=0).gp.parameters_["tau"].value == pytest.approx(4.5, rel=0.1)
    (log.parent / "d.toml").write_text((log.parent / "c.toml").read_text().replace("dt = 2.0", "dt = -2.0"))
    with pytest.raises(SystemFileError, match=r"expected dt as a positive number, got -2\.0"):
        read_system_file(log.parent / "d.toml")


def test_weather_is_proposed_as_a_known_input(tmp_path: Path) -> None:
    def inputs(*names: str) -> dict[str, str]:
        rows = [",".join(f"{np.sin(0.1 * k * (c + 1) + c):.4f}" for c in range(len(names))) for k in range(40)]
        table = [f"{k},{row}" for k, row in enumerate(rows)]
        (tmp_path / "a.csv").write_text("\n".join([f"t,{','.join(names)}", *table]))
        assert run("init", "a.csv", "--out", "a.toml", "--force", cwd=tmp_path).returncode == 0
        text = (tmp_path / "a.toml").read_text().replace("equations = [", 'equations = ["x = 0",')
        return dict(tomllib.loads(text).get("inputs", {}))

    assert inputs("T_in", "T_out", "solar [W/m2]") == {"T_out": "linear", "solar": "linear"}
    assert inputs("room", "Tout") == {"Tout": "linear"}
    assert list(inputs("Raum", "Sonne [W/m²]").values()) == ["linear"]
    assert inputs("T1", "Ambient temperature") == {"Ambient_temperature": "linear"}
    for outdoor in ("Ta", "To [degC]", "T_a", "Tout", "T_out", "OAT"):
        assert list(inputs("Ti", outdoor).values()) == ["linear"]
    # The outlet of a heat exchanger, and weather alone.
    assert inputs("T_feed", "T_out") == {}
    assert inputs("wind", "solar") == {}


def test_what_is_no_file_is_not_taken_for_an_equation(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for wrong in ("folder", "missing.csv"):
        done = run("init", wrong, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"or a data file; {wrong} is neither" in done.stderr


def test_the_time_column_can_be_mapped_without_equations(log: Path) -> None:
    folder = log.parent
    (folder / "clocks.csv").write_text("\n".join(["t,clock,y", *(f"{k},{2 * k},{k * k % 7}.5" for k in range(9))]))
    for column in ("clock", "2"):
        done = run("init", "--data", "clocks.csv", "--map", f"t={column}", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert 't = "clock"' in done.stdout


def test_a_clock_change_asks_for_the_time_zone(log: Path) -> None:
    start, folder = datetime(2026, 3, 29), log.parent
    hours = [start + timedelta(hours=k + (k > 1)) for k in range(24)]
    rows = [f"{date:%Y-%m-%d %H:%M},{k // 5 % 2},{k * k % 7}.5" for k, date in enumerate(hours)]
    (folder / "summer.csv").write_text("\n".join(["date,valve,level", *rows]))
    done = run("init", "summer.toml", "--data", "summer.csv", cwd=folder)
    assert "the local times jump by an hour at 2026-03-29 03:00, as clocks do" in done.stderr
    assert 'next: write the time zone into the file, such as timezone = "Europe/Berlin"' in done.stderr
    zone = ("--timezone", "Europe/Berlin", "--force")
    assert "time zone" not in run("init", "summer.toml", "--data", "summer.csv", *zone, cwd=folder).stderr


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([f'{t},{t // 5 % 2},"1,{100 + t}"' for t in range(40)], "'1,100' may be 1100 or 1.100"),
        ([f"{t % 20},{t // 5 % 2},{t % 7}" for t in range(40)], "got numbers that go up and down"),
        ([f"{t // 2},{t // 5 % 2},{t % 7}" for t in range(40)], "the input u has two different values at t = 2"),
    ],
)
def test_data_that_a_fit_refuses_are_reported(log: Path, rows: list[str], message: str) -> None:
    (log.parent / "bad.csv").write_text("\n".join(["t,u,y", *rows]))
    done = run("init", "bad.toml", "--data", "bad.csv", cwd=log.parent)
    assert "lodekit fit cannot read the data yet: " in done.stderr
    assert message in done.stderr
    assert "next: correct bad.csv or bad.toml; lodekit fit bad.toml bad.csv" in done.stderr


def test_a_terminal_is_asked(log: Path) -> None:
    with (
        mock.patch("lodekit.cli.init.is_terminal", return_value=True),
        mock.patch("typer.prompt", side_effect=["linear", "sometimes", "no"]) as prompt,
    ):
        done = run("init", "--data", "log.csv", cwd=log.parent)
    assert prompt.call_count == 3
    assert "expected hold, linear or no, got sometimes" in done.stderr
    assert 'valve = "linear"' in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected equations"),
        (("plant.toml",), "or a data file, --data log.csv"),
        (("plant.toml", "--data", "log.csv", "--param", "a"), "need equations"),
        (("plant.toml", "--data", "log.csv", "--map", "y=level"), "--map of channels need equations"),
        (("plant.toml", "--data", "log.csv", "--map", "t=clock"), "expected a column clock (for t)"),
        (("x' = u", "--map", "x=1"), "needs a data file"),
        (("plant.toml", "--data", "log.csv", "--out", "other.toml"), "got both"),
        (("plant.toml", "--data", "nothing.csv"), "nothing.csv"),
        (("plant.toml", "--data", "still.csv"), "expected columns of numbers that change"),
        (("y' = v", "--data", "log.csv"), "try --map CHANNEL=COLUMN"),
        (("log.toml", "--data", "log.csv"), "--force"),
    ],
)
def test_what_cannot_be_is_refused(log: Path, arguments: tuple[str, ...], message: str) -> None:
    (log.parent / "log.toml").write_text("")
    (log.parent / "still.csv").write_text("t,u\n0,1\n1,1\n2,1\n")
    done = run("init", *arguments, cwd=log.parent)
    assert done.returncode == 2
    assert message in done.stderr
