"""From a file to an answer: init, fit and demo, with everything that can be wrong on the way."""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.results.summary import format_summary, summary_dict
from lodekit.support.html import replace_advice
from lodekit.system.files import read_system_file
from lodekit.workflow.pipeline import read_model
from tests.cli.command import run, run_alone
from tests.cli.conftest import Fitted

#: Nothing is printed, and little is searched for: what such a fit finds does not matter.
QUICK = ("--quiet", "--set", "a=3,b=1", "--restarts", "1")


def read_csv(path: Path) -> dict[str, np.ndarray]:
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_fit_prints_a_summary_and_writes_everything(fitted: Fitted) -> None:
    assert fitted.done.returncode == 0
    assert fitted.done.stderr == ""
    assert "LODE-GP Results" in fitted.done.stdout
    assert "heating-fit/report.html" in fitted.done.stdout
    names = {path.name for path in Path(fitted.model).iterdir()}
    assert names == {
        *("report.html", "model.lodekit", "predictions.csv"),
        *("channels.png", "parameters.png", "equations.png", "residuals.png"),
    }
    page = (Path(fitted.model) / "report.html").read_text(encoding="utf-8")
    assert "<h1>A heater</h1>" in page
    assert "lodekit fit heating.toml heating.csv" in page


def test_fit_is_that_of_the_library(fitted: Fitted) -> None:
    data = read_csv(fitted.folder / "heating.csv")
    gp = lk.LODEGP(read_system_file(fitted.folder / "heating.toml").system, random_state=0)
    gp.fit(data["t"], {name: data[name] for name in ("f1", "f2", "u")})
    saved = lk.LODEGP.load(Path(fitted.model) / "model.lodekit")
    # Rounding may differ between two processes; searches that begin so end within 1e-6 of each other.
    for name in ("a", "b"):
        assert saved.parameters_[name].value == pytest.approx(gp.parameters_[name].value, rel=1e-5)
    table = read_csv(Path(fitted.model) / "predictions.csv")
    mean, std = gp.predict(table["t"], return_std=True)
    for number, name in enumerate(("f1", "f2", "u")):
        assert np.allclose(table[name], mean[:, number], rtol=0, atol=1e-5)
        assert np.allclose(table[f"std({name})"], std[:, number], rtol=0, atol=1e-5)
    assert saved.labels_["title"] == "A heater"


def test_fit_as_json_with_known_values(fitted: Fitted, tmp_path: Path) -> None:
    options = ("--set", "b=1", "--start", "a=2", "--noise", "channel", "--json", "--no-figures")
    done = run("fit", "heating.toml", "heating.csv", "--out", str(tmp_path / "out"), *options, cwd=fitted.folder)
    content = json.loads(done.stdout)
    assert content["parameters"]["b"] == {
        "value": 1.0,
        "std_error": 0.0,
        "interval": [1.0, 1.0],
        "identified": True,
        "note": "fixed",
    }
    low, high = content["parameters"]["a"]["interval"]
    assert low < 3 < high
    assert set(content["noise"]) == {"f1", "f2", "u"}
    assert content["converged"] is True
    assert Path(content["files"]["report.html"]).exists()
    assert "channels.png" not in content["files"]


def test_german_files_with_dates_and_other_names(tmp_path: Path) -> None:
    rows = ["Zeitpunkt;Temperatur (K)"]
    for k in range(30):
        value = f"{20 + 5 * np.exp(-k / 10):.4f}".replace(".", ",")
        rows.append(f"01.03.2026 12:{k:02d}:00;{value if k != 7 else ''}")
    (tmp_path / "log.csv").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "room.toml").write_text(
        'equations = ["tau*T\' + T = Ta"]\n[parameters]\ntau = { positive = true }\nTa = {}\n'
        '[units]\nT = "K"\ntau = "s"\n[columns]\nt = "Zeitpunkt"\n'
    )
    done = run("fit", "room.toml", "log.csv", "--map", "T=Temperatur (K)", "--json", "--no-figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["observations"] == 29
    assert content["parameters"]["tau"]["value"] == pytest.approx(600, rel=1e-2)
    assert content["parameters"]["Ta"]["value"] == pytest.approx(20, abs=0.05)
    assert "decimal comma" in done.stderr
    at = ("--from", "2026-03-01T12:10", "--to", "2026-03-01T12:20", "--n", "2")
    shown = run("predict", "log-fit", *at, cwd=tmp_path).stdout.splitlines()
    assert shown[0] == "t,date,T,std(T)"
    assert shown[1].startswith("600.0,2026-03-01T12:10:00,")
    assert float(shown[1].split(",")[2]) == pytest.approx(20 + 5 * np.exp(-1), abs=0.02)


def test_dates_are_seconds_unless_units_say_otherwise(tmp_path: Path) -> None:
    rows = "".join(f"2026-03-01T12:{k:02d}:00+01:00,{20 + 5 * np.exp(-k / 10):.5f}\n" for k in range(30))
    (tmp_path / "log.csv").write_text("time,T\n" + rows)
    system = 'equations = ["tau*T\' + T = 20"]\n[parameters]\ntau = { positive = true }\n[units]\nt = "min"\n'
    (tmp_path / "room.toml").write_text(system)
    (tmp_path / "wrong.toml").write_text(system.replace("min", "K"))
    wrong = run("fit", "wrong.toml", "log.csv", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "dates and durations in column time are seconds, but t is in K" in wrong.stderr
    assert not (tmp_path / "log-fit").exists()
    (tmp_path / "room.toml").write_text(system.replace("min", "s"))
    assert run("fit", "room.toml", "log.csv", "-q", "--no-figures", cwd=tmp_path).returncode == 0

    # The same moment in two zones, without one, in seconds, and from a file.
    (tmp_path / "dates.txt").write_text("2026-03-01 12:05\n2026-03-01 12:06\n")
    moments = [
        ("--n", "1", "--from", text)
        for text in ("2026-03-01T11:05Z", "2026-03-01T12:05+01:00", "01.03.2026 12:05", "300")
    ]
    for moment in [*moments, ("--at", "dates.txt")]:
        shown = run("predict", "log-fit", *moment, cwd=tmp_path).stdout.splitlines()
        assert shown[0] == "t,date,T,std(T)"
        time, date, value, deviation = shown[1].split(",")
        assert (time, date) == ("300.0", "2026-03-01T12:05:00+01:00")
        # The mean falls by 5e-3 a second, so this is a millisecond.
        assert float(value) == pytest.approx(20 + 5 * np.exp(-0.5), abs=5e-6)
        # The variance of 6e-13 is what is left of the prior's 9 after subtraction: rounding, 2e-16 * 9 a step, takes
        # all digits but two or three.
        assert float(deviation) == pytest.approx(8e-7, rel=0.1)
    assert run("predict", "log-fit", "--from", "1e12", "--to", "2e12", cwd=tmp_path).returncode == 2


def test_results_of_different_files_do_not_meet(fitted: Fitted, tmp_path: Path) -> None:
    for name in ("run.1.csv", "run.2.csv", "log[1].csv"):
        (tmp_path / name).write_text((fitted.folder / "heating.csv").read_text())
        done = run("fit", str(fitted.folder / "heating.toml"), name, *QUICK, "--no-figures", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"run.1-fit", "run.2-fit", "log1-fit"}


def test_a_refit_leaves_no_figures_of_the_old_one(fitted: Fitted, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "channels.png").write_text("old")
    (out / "mine.txt").write_text("keep")
    done = run("fit", "heating.toml", "heating.csv", "-o", str(out), *QUICK, "--no-figures", cwd=fitted.folder)
    assert done.returncode == 0
    assert {path.name for path in out.iterdir()} == {"mine.txt", "report.html", "predictions.csv", "model.lodekit"}


def test_a_pattern_names_several_files_and_their_columns_are_mapped(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    example, times = lk.catalog.heating(), np.linspace(-5, 5, 1000)
    table = example.solution_at(times) + 0.02 * np.random.default_rng(0).standard_normal((1000, 3))
    for part in range(2):
        rows = slice(500 * part, 500 * (part + 1))
        columns = {"clock": times[rows], **{name: table[rows, k] for k, name in enumerate(("F1 [K]", "f2", "input"))}}
        polars.DataFrame(columns).write_parquet(tmp_path / f"part{part}.parquet")
    (tmp_path / "heating.toml").write_text(
        'equations = ["f1\' = -a*(f1-f2)+u", "f2\' = -b*(f2-f1)"]\nparameters = ["a", "b"]\n'
    )
    options = ("--map", "t=clock", "--map", "u=4", "--json", "--no-figures")
    done = run("fit", "heating.toml", "part*.parquet", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["observations"] == 3000
    assert content["parameters"]["a"]["value"] == pytest.approx(3, rel=0.02)
    assert content["notes"] == ["f1 is in column F1 [K]", "u is in column input"]
    assert (tmp_path / "part-fit" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.toml", "heating.csv"), "cannot read missing.toml"),
        (("heating.toml", "missing.csv"), "missing.csv"),
        (("heating.toml", "heating.csv", "--map", "f9=f1"), "f9"),
        (("heating.toml", "heating.csv", "--map", "f1"), "--map"),
        (("heating.toml", "heating.csv", "--map", "f1=nothing"), "nothing"),
        (("heating.toml", "heating.csv", "--set", "c=1"), "unknown parameter 'c'; expected one of: a, b"),
        (("heating.toml", "heating.csv", "--set", "a=x"), "expected --set NAME=NUMBER"),
        (("heating.toml", "heating.csv", "--set", "a=1,a=2"), "twice"),
        (("heating.toml", "heating.csv", "--engine", "steam"), "expected --engine"),
        (("heating.toml", "heating.csv", "--noise", "loud"), "expected --noise"),
        (("heating.toml", "heating.csv", "--latent", "matern-2"), "matern-2"),
        (("heating.toml", "heating.csv", "--restarts", "0"), "restarts"),
        (("heating.toml", "heating.csv", "--seed", "-1"), "seed"),
        (("heating.toml", "heating.csv", "--json", "--quiet"), "choose one"),
        (("heating.toml", "heating.csv", "--out", "heating.csv"), "heating.csv is a file"),
        (("heating.csv", "heating.toml"), "expected the system before the data"),
        (("heating.toml", "wrong.csv"), "got the columns"),
        (("heating.toml", "heating.csv", "--out", ""), "expected a folder after --out"),
        (("heating.toml", "heating.csv", "--start", "a=1e400"), "expected --start NAME=NUMBER"),
        (("heating.toml",), "Missing argument"),
    ],
)
def test_bad_input_exits_with_2_and_writes_nothing(
    fitted: Fitted, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    for name in ("heating.toml", "heating.csv"):
        (tmp_path / name).write_text((fitted.folder / name).read_text())
    (tmp_path / "wrong.csv").write_text("t,x\n0,1\n1,2\n")
    done = run("fit", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"heating.toml", "heating.csv", "wrong.csv"}


def test_no_fit_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "wild.toml").write_text(
        'equations = ["x\' = k*x + exp(800*t)"]\n[parameters]\nk = { positive = true }\n'
    )
    (tmp_path / "data.csv").write_text("t,x\n" + "".join(f"{k},{np.sin(k)}\n" for k in range(12)))
    done = run("fit", "wild.toml", "data.csv", cwd=tmp_path)
    assert done.returncode == 1
    assert "no start gives a finite evidence" in done.stderr
    assert not (tmp_path / "data-fit").exists()


def test_a_fit_that_failed_exits_with_1_and_writes_everything(tmp_path: Path) -> None:
    # Bounds far from the truth: the search can only end in a poor place.
    (tmp_path / "far.toml").write_text(
        'equations = ["x\' + k*x = 0"]\n[parameters]\nk = { bounds = [1, 2] }\n', encoding="utf-8"
    )
    rows = (f"{t},{np.cos(t) + 0.01 * np.sin(97 * t):.6f}" for t in np.linspace(0, 20, 80))
    (tmp_path / "data.csv").write_text("\n".join(["t,x", *rows]), encoding="utf-8")
    done = run("fit", "far.toml", "data.csv", "--no-figures", cwd=tmp_path)
    assert done.returncode == 1
    assert "the equations do not describe these data, or the search ended at a local optimum" in done.stdout
    assert "variance explained (x)" in done.stdout
    assert "the curves fit the data poorly; see the warnings" in done.stderr
    assert {path.name for path in (tmp_path / "data-fit").iterdir()} == {
        "report.html",
        "model.lodekit",
        "predictions.csv",
    }
    content = summary_dict(read_model(tmp_path / "data-fit").fit_)
    assert content["converged"] is False
    assert content["explained"]["x"] < 0.5
    assert any("do not describe" in text for text in content["warnings"])


def test_init_writes_to_stdout_or_to_a_new_file(tmp_path: Path) -> None:
    done = run("init", "tau*y' + y = K*u", "--param", "tau,K", "--channels", "u,y")
    path = tmp_path / "plant.toml"
    path.write_text(done.stdout)
    assert read_system_file(path).system.channels == ("u", "y")
    again = run("init", "x' = u", "--out", str(path))
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert "tau" in path.read_text()
    assert run("init", "x' = u", "--out", str(path), "--force").returncode == 0
    assert read_system_file(path).system.channels == ("x", "u")
    assert run("init", "x' = = u").returncode == 2
    assert run("init", "x' = u", "--out", str(tmp_path / "no" / "x.toml")).returncode == 2


def test_demo_fits_prints_and_names_the_report(tmp_path: Path) -> None:
    done = run_alone("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "LODE-GP Results" in done.stdout
    assert "Report: demo/report.html" in done.stdout
    assert "The truth is a = 3, b = 1." in done.stdout
    assert (tmp_path / "demo" / "report.html").stat().st_size > 1_000_000
    assert (tmp_path / "demo" / "data.csv").exists()


def write_runs(folder: Path) -> None:
    """Write three records of a first-order lag, each in a file and all in one, and the system file."""
    generator = np.random.default_rng(0)
    every = ["run,t,y,u"]
    for number, (state, rate) in enumerate(((0.0, 0.6), (3.0, 0.9), (-2.0, 0.4)), 1):
        t = np.linspace(0.0, 12.0, 25)
        size = 2.0 / (1.0 + (3.0 * rate) ** 2)
        y = size * (np.sin(rate * t) - 3.0 * rate * np.cos(rate * t)) + (state + 3.0 * size * rate) * np.exp(-t / 3.0)
        table = np.stack([t, y, np.sin(rate * t)], axis=1)
        table[:, 1:] += 0.02 * generator.standard_normal((25, 2))
        rows = [",".join(map(repr, row)) for row in table.tolist()]
        (folder / f"run{number}.csv").write_text("\n".join(["t,y,u", *rows]) + "\n")
        every += [f"{number},{row}" for row in rows]
    (folder / "all.csv").write_text("\n".join(every) + "\n")
    (folder / "lag.toml").write_text("equations = [\"tau*y' + y = K*u\"]\nparameters = ['tau', 'K']\n")


def test_several_files_are_several_records(tmp_path: Path) -> None:
    write_runs(tmp_path)
    done = run(
        "fit", "lag.toml", "run1.csv", "run2.csv", "run3.csv", "--out", "fit", "--json", "--no-figures", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert {name: each["observations"] for name, each in content["records"].items()} == {
        f"run{k}.csv": 50 for k in (1, 2, 3)
    }
    assert content["parameters"]["tau"]["value"] == pytest.approx(3.0, rel=0.05)
    assert content["notes"][0].startswith("3 records, each with its own initial state: run1.csv,")
    with (tmp_path / "fit" / "predictions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {name: sum(row["record"] == name for row in rows) for name in content["records"]} == dict.fromkeys(
        content["records"], 400
    )
    page = (tmp_path / "fit" / "report.html").read_text(encoding="utf-8")
    assert "Channels, record run2.csv" in page
    # A column that tells records apart gives the same fit.
    arguments = ("lag.toml", "all.csv", "--records", "run", "--out", "again", "--json", "--no-figures")
    again = run("fit", *arguments, cwd=tmp_path)
    same = json.loads(again.stdout)
    assert list(same["records"]) == ["1", "2", "3"]
    assert same["log_evidence"] == pytest.approx(content["log_evidence"], abs=1e-6)
    text = (tmp_path / "lag.toml").read_text()
    (tmp_path / "column.toml").write_text('records = "run"\n' + text)
    assert read_system_file(tmp_path / "column.toml").records == "run"
    refused = run("fit", "lag.toml", "all.csv", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--records COLUMN" in refused.stderr


def test_commands_on_a_model_take_one_record_or_all(tmp_path: Path) -> None:
    write_runs(tmp_path)
    options = ("--out", "fit", "--restarts", "1", "-q", "--no-figures")
    run("fit", "lag.toml", "run1.csv", "run2.csv", *options, cwd=tmp_path)
    every = run("predict", "fit", "--n", "3", cwd=tmp_path).stdout.splitlines()
    assert every[0] == "record,t,y,std(y),u,std(u)"
    assert [line.split(",")[0] for line in every[1:]] == ["run1.csv"] * 3 + ["run2.csv"] * 3
    one = run("predict", "fit", "--n", "3", "--record", "run2.csv", cwd=tmp_path).stdout.splitlines()
    assert one[1:] == every[4:]
    drawn = run("sample", "fit", "--n", "2", "--size", "2", cwd=tmp_path).stdout.splitlines()
    assert drawn[0] == "record,sample,t,y,u,tau,K"
    assert len(drawn) == 9
    assert run("check", "fit", "--n", "50", cwd=tmp_path).returncode == 0
    assert "at 50 times" in run("check", "fit", "--n", "50", "--record", "run1.csv", cwd=tmp_path).stdout
    wrong = run("predict", "fit", "--record", "run9.csv", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "expected one of the records run1.csv, run2.csv, got 'run9.csv'" in wrong.stderr


def test_the_code_in_a_report_makes_the_same_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with columns of other names, and in another unit of time than that of the file."""
    generator, y, rows = np.random.default_rng(0), 0.0, []
    for k in range(60):
        rows.append(f"{60 * k},{k // 10 % 2},{y + 0.01 * generator.standard_normal():.4f}")
        y += 0.2 * (2 * (k // 10 % 2) - y)
    (tmp_path / "log.csv").write_text("\n".join(["time [s],valve,level", *rows]))
    (tmp_path / "plant.toml").write_text(
        'equations = ["tau*y\' + y = K*u"]\n[parameters]\ntau = { positive = true }\nK = {}\n[units]\nt = "min"\n'
        '[inputs]\nu = "hold"\n[columns]\ny = "level"\nu = "valve"\n'
    )
    monkeypatch.chdir(tmp_path)
    for options in ((), ("--to", "40", "--seed", "3"), ("--set", "K=2")):
        done = run("fit", "plant.toml", "log.csv", "--no-figures", "--force", "--json", *options, cwd=tmp_path)
        tau = json.loads(done.stdout)["parameters"]["tau"]["value"]
        report = (tmp_path / "log-fit" / "report.html").read_text()
        code = html.unescape(re.sub("<[^>]*>", "", re.findall(r"<pre[^>]*>(.*?)</pre>", report, re.DOTALL)[-1]))
        scope: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, scope)  # noqa: S102
        assert scope["gp"].parameters_["tau"].value == pytest.approx(tau)


def test_messages_name_options_instead_of_arguments(tmp_path: Path) -> None:
    rows = [f"{t},{t // 10 % 2},{0.1 * t % 3:.1f}" for t in range(40)]
    (tmp_path / "log.csv").write_text("\n".join(["t,u,y", *rows]))
    (tmp_path / "no-u.csv").write_text("\n".join(["t,y", *(f"{t},{t % 7}" for t in range(40))]))
    (tmp_path / "empty.csv").write_text("\n".join(["t,u,y", *(f"{t},{t // 10 % 2}," for t in range(40))]))
    system = ("tau*y' + y = K*u", "--positive", "tau", "--param", "K", "--input", "u=hold")
    for options, expected in (
        (("log.csv", "--fixed", "tau=-3"), "--set tau: expected a value above zero, got -3"),
        (("log.csv", "--start", "tau=-3"), "--start tau: expected a value above zero, got -3"),
        (("log.csv", "--noise", "chanel"), "expected --noise 'channel' or 'shared', got 'chanel'"),
        (("log.csv", "--engine", "foo"), "expected --engine 'auto'"),
        (("log.csv", "--disturbance", "w=white"), "--disturbance names 'w', which is not a channel"),
        (("no-u.csv",), "map it: --map u=COLUMN"),
        (("empty.csv",), "use --map y=COLUMN"),
    ):
        done = run("fit", *system[:1], *options, *system[1:], cwd=tmp_path)
        assert done.returncode == 2
        assert expected in done.stderr
        assert not re.search(r"\b\w+=[{'\"]|Python|noise_std", done.stderr)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        # One number for a channel in the system file is no noise of single rows.
        ("give it a larger noise_std", "give it a larger noise level (a column std(NAME))"),
        ("give noise_std for each row", "give the noise level of each row (a column std(NAME))"),
        ("give a larger noise_std", "give a larger noise level ([noise] in the system file, or a column std(NAME))"),
        ("try inputs={'u': 'auto'} (straight lines)", "try --input u=auto (straight lines)"),
        ("split the record at gaps (split_gaps=True or --split-gaps)", "split the record at gaps (--split-gaps)"),
        ("use latent='matern-7/2', or", "use --latent matern-7/2, or"),
    ],
)
def test_warnings_name_options_instead_of_arguments(message: str, expected: str) -> None:
    assert replace_advice(message, "cli_advice.txt") == expected


def test_summaries_of_records_with_long_names_are_printed() -> None:
    name = "residuals of T2 of record measured-on-a-tuesday.csv"
    assert f"{name} correlated" in format_summary([], {}, {name: "correlated"}, [])
