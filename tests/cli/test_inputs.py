"""Known inputs on the command line, in system files and in reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lodekit.errors import EquationError, SystemFileError
from lodekit.report import make_report
from lodekit.system.files import format_system_file, read_system_file
from lodekit.workflow.pipeline import read_model
from tests.cli.command import run

SYSTEM = """
equations = ["tau*y' + y = K*u"]
[parameters]
tau = { positive = true }
K = { positive = true }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("inputs")
    generator, u = np.random.default_rng(0), np.repeat([0.0, 1.0, 0.0, 2.0], 10)
    y = np.zeros(40)
    for k in range(39):
        y[k + 1] = y[k] + (1 - np.exp(-1 / 3)) * (2 * u[k] - y[k])
    y += 0.02 * generator.standard_normal(40)
    lines = [f"{t},{a:.6f},{'' if t == 13 else b}" for t, (a, b) in enumerate(zip(y, u, strict=True))]
    (tmp_path / "log.csv").write_text("\n".join(["t,y,u", *lines]))
    (tmp_path / "plant.toml").write_text(SYSTEM)
    (tmp_path / "driven.toml").write_text(SYSTEM + '[inputs]\nu = "hold"\n')
    return tmp_path


def fit(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return what a fit prints as JSON."""
    done = run("fit", arguments[0], "log.csv", "--no-figures", "--json", *arguments[1:], cwd=folder)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def driven(folder: Path) -> dict[str, Any]:
    return fit(folder, "driven.toml", "--out", "driven")


def test_options_and_system_files_say_the_same(folder: Path, driven: dict[str, Any]) -> None:
    found = fit(folder, "plant.toml", "--input", "u=hold")
    for each in (driven, found):
        assert each["inputs"] == {"u": {"kind": "hold", "samples": 39, "missing": 1}}
    for name, estimate in driven["parameters"].items():
        assert found["parameters"][name]["value"] == pytest.approx(estimate["value"], rel=1e-6)
    assert driven["parameters"]["tau"]["value"] == pytest.approx(3.0, rel=0.05)
    assert read_model(folder / "log-fit").get_params()["inputs"] == {"u": "hold"}


def test_options_go_before_system_files(folder: Path) -> None:
    found = fit(folder, "driven.toml", "--input", "u=linear", "--set", "tau=3,K=2", "--out", "linear")
    assert found["inputs"]["u"]["kind"] == "linear"


def test_what_is_no_input_is_refused(folder: Path) -> None:
    for option, text in (("u", "CHANNEL=hold"), ("u=held", "expected 'hold'"), ("u=hold,u=linear", "twice")):
        done = run("fit", "plant.toml", "log.csv", "--input", option, cwd=folder)
        assert done.returncode == 2
        assert text in done.stderr
    done = run("fit", "plant.toml", "log.csv", "--disturbance", "w", cwd=folder)
    assert (done.returncode, "expected --disturbance CHANNEL=white" in done.stderr) == (2, True)
    (folder / "wrong.toml").write_text(SYSTEM + '[inputs]\nv = "hold"\n')
    with pytest.raises(SystemFileError, match=r"\[inputs\] names v; expected one of: y, u"):
        read_system_file(folder / "wrong.toml")
    (folder / "wrong.toml").write_text(SYSTEM + "[inputs]\nu = 1\n")
    with pytest.raises(SystemFileError, match="'hold' or 'linear' or 'auto', got 1"):
        read_system_file(folder / "wrong.toml")


def test_files_to_start_from_show_how(tmp_path: Path) -> None:
    text = format_system_file("tau*y' + y = K*u", ["tau", "K"])
    for line in ("# [inputs]", '# u = "hold"'):
        assert line in text.splitlines()
        text = text.replace(line, line[2:])
    (tmp_path / "plant.toml").write_text(text)
    assert read_system_file(tmp_path / "plant.toml").inputs == {"u": "hold"}


@pytest.mark.parametrize(("equation", "name"), [("tau*y' + y = K*u", "w"), ("tau*y' + y = K*w", "d"), ("w' = d", "w1")])
def test_files_to_start_from_show_where_a_disturbance_stands(tmp_path: Path, equation: str, name: str) -> None:
    text = format_system_file(equation, ["tau", "K"] if "tau" in equation else [])
    shown = f'"{equation} + {name}"'
    assert f"# Each must appear in an equation above, for example {name} in {shown}" in text.splitlines()
    text = text.replace(f'"{equation}"', shown)
    for line in ("# [disturbances]", f'# {name} = "white"'):
        assert line in text.splitlines()
        text = text.replace(line, line[2:])
    (tmp_path / "plant.toml").write_text(text)
    assert read_system_file(tmp_path / "plant.toml").disturbances == {name: "white"}


@pytest.mark.usefixtures("driven")
def test_reports_tell_inputs_from_measurements(folder: Path) -> None:
    page = make_report(read_model(folder / "driven"))
    assert "known, held\\u003c" in page
    assert (
        "Channel u: known input, held constant between its 39 samples, 1 missing sample filled with the last value."
        in page
    )
    assert "not measured" not in page
    assert ">Input responses</h2>" in page
    for column in ("static gain", "time constants"):
        assert f">{column}</th>" in page
    assert "y</b> after u steps from 0 to 1" in page.replace("\\u003c", "<").replace("\\u003e", ">")
    assert "magnitude (dB" in page
    assert "lk.LODEGP(system, random_state=0, inputs={&#x27;u&#x27;: &#x27;hold&#x27;})" in page
    assert "a dict or table of y, u" in page


def test_a_dead_time_beside_a_disturbance_is_written_to_the_end(folder: Path) -> None:
    """Without the disturbance the delayed input is known still; it was once asked for after the whole fit."""
    text, roles = "tau*y' + y = K*delay(u, T) + w", ("--input", "u=hold", "--disturbance", "w=white")
    fixed = ("--param", "tau,K,T", "--set", "tau=3,K=2,T=0.5", "--restarts", "1")
    done = run("fit", text, "log.csv", *roles, *fixed, "--no-figures", "--out", "late", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert ">Input responses</h2>" in (folder / "late" / "report.html").read_text(encoding="utf-8")
    gp = read_model(folder / "late")
    space, found = gp.state_space(), gp.transfer_function("y", "u")
    assert (space.outputs, space.exact.inputs) == (("y",), ("u", "delay(u, T)"))
    assert found.at([0.7]) == pytest.approx([2 * np.exp(-0.35j) / (1 + 2.1j)])
    with pytest.raises(EquationError, match="'u' is delayed in the equations, so it must be a known input"):
        gp.state_space(inputs=())


@pytest.mark.usefixtures("driven")
def test_predictions_use_the_inputs_of_a_file_after_the_record(folder: Path) -> None:
    (folder / "plan.csv").write_text("t,u\n30,9\n40,3\n60,3\n")
    done = run("predict", "driven", "--at", "plan.csv", cwd=folder)
    assert done.stderr == "after t = 39, inputs are those in plan.csv: u\n"
    # Inside the record, inputs are those of the log.
    inside, _, last = done.stdout.splitlines()[1:]
    assert (inside.split(",")[3], last.split(",")[3]) == ("2.0", "3.0")
    response = run("simulate", "driven", "plan.csv", "--start", "end", cwd=folder).stdout.splitlines()[-1].split(",")
    assert list(map(float, last.split(",")[:3])) == pytest.approx(list(map(float, response[:3])))
    done = run("sample", "driven", "--at", "plan.csv", cwd=folder)
    assert done.returncode == 2
    assert "sample cannot use the inputs in plan.csv; remove their columns" in done.stderr


@pytest.mark.usefixtures("driven")
def test_mappings_for_a_model_name_its_channels(folder: Path) -> None:
    (folder / "later.csv").write_text("t,u\n40,3\n60,3\n")
    commands = ("predict", "--at", "later.csv"), ("predict", "--to", "60"), ("simulate", "later.csv"), ("watch", "-")
    for command, *options in (*commands, ("validate", "log.csv")):
        done = run(command, "driven", *options, "--map", "v=u", cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "error: --map: unknown name 'v'; expected a channel (y, u)\n"


@pytest.mark.usefixtures("driven")
def test_the_time_in_a_file_of_inputs_is_found_by_its_mapping(folder: Path) -> None:
    (folder / "moments.csv").write_text("moment,u\n40,3\n60,3\n")
    done = run("predict", "driven", "--at", "moments.csv", cwd=folder)
    assert done.returncode == 2
    assert "--dt STEP; otherwise --map t=COLUMN" in done.stderr
    done = run("predict", "driven", "--at", "moments.csv", "--map", "t=moment", cwd=folder)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["t", "40.0", "60.0"]


def test_inputs_after_the_last_of_several_records(folder: Path) -> None:
    (folder / "short.csv").write_text("\n".join((folder / "log.csv").read_text().split("\n")[:25]))
    options = ("--out", "pair", "--restarts", "1", "-q", "--no-figures")
    assert run("fit", "driven.toml", "log.csv", "short.csv", *options, cwd=folder).returncode == 0
    (folder / "more.csv").write_text("t,u\n23,3\n60,3\n")
    assert "after t = 23, inputs are those in more.csv" in run("predict", "pair", "--at", "more.csv", cwd=folder).stderr
    note = "after t = 39 (log.csv) and t = 23 (short.csv), known inputs keep their last values"
    assert note in run("predict", "pair", "--to", "60", cwd=folder).stderr


@pytest.mark.usefixtures("driven")
def test_predictions_mention_inputs_that_keep_their_last_values(folder: Path) -> None:
    (folder / "times.txt").write_text("5\n60\n")
    for command, *options in (("predict", "--to", "60"), ("predict", "--at", "times.txt"), ("sample", "--to", "60")):
        note = "after t = 39, known inputs keep their last values; predict with others: --at FILE, with columns t, u"
        assert note in run(command, "driven", *options, cwd=folder).stderr
        assert not run(command, "driven", "--to", "39", cwd=folder).stderr


@pytest.mark.usefixtures("driven")
def test_simulations_from_rest_mention_values_far_from_the_record(folder: Path) -> None:
    (folder / "plan.csv").write_text("t,u\n40,3\n60,3\n")
    assert not run("simulate", "driven", "plan.csv", cwd=folder).stderr
    # A room that cools from 30 to the 20 degrees outside, and never has zero degrees.
    rows = [f"{t},{20 + 10 * np.exp(-t / 3) + 0.01 * (-1) ** t:.4f},20" for t in range(15)]
    (folder / "warm.csv").write_text("\n".join(["t,y,u", *rows]))
    known = ("--positive", "tau", "--set", "tau=3", "--input", "u=hold", "--no-figures", "--restarts", "1")
    assert run("fit", "tau*y' + y = u", "warm.csv", *known, cwd=folder).returncode == 0
    done = run("simulate", "warm-fit", "plan.csv", cwd=folder)
    assert "from rest, y starts at 0, far from the record; try --start end or steady" in done.stderr
    assert not run("simulate", "warm-fit", "plan.csv", "--start", "steady", cwd=folder).stderr


@pytest.mark.usefixtures("driven")
def test_simulations_start_in_a_steady_state(folder: Path) -> None:
    (folder / "plan.csv").write_text("t,u\n40,3\n60,3\n")
    done = run("simulate", "driven", "plan.csv", "--start", "steady", cwd=folder)
    first, last = (float(line.split(",")[1]) for line in done.stdout.splitlines()[1:])
    assert first == pytest.approx(last, abs=1e-9)
    assert first == pytest.approx(6.0, rel=0.02)
    for arguments, words in {
        ("--n", "5"): "--n needs --from or --to",
        ("--start", "stedy"): "expected --start as one of rest, steady, begin, end, or values",
        ("--from", "soon"): "expected a number or a date",
    }.items():
        done = run("simulate", "driven", "plan.csv", *arguments, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
