"""Known inputs on the command line, in system files and in reports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lodekit.errors import SystemFileError
from lodekit.report import make_report
from lodekit.system.files import read_system_file
from lodekit.system.templates import format_system_file
from lodekit.workflow import fit_file, read_model
from tests.cli.command import run

SYSTEM = """
equations = ["tau*y' + y = K*u"]
[parameters]
tau = { positive = true }
K = { positive = true }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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


def test_options_and_system_files_say_the_same(folder: Path) -> None:
    found = []
    for system, options in (("plant.toml", ("--input", "u=hold")), ("driven.toml", ())):
        done = run("fit", str(folder / system), str(folder / "log.csv"), "--no-figures", "--json", *options, cwd=folder)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0]["parameters"] == found[1]["parameters"]
    assert found[0]["inputs"] == {"u": {"kind": "hold", "samples": 39, "missing": 1}}
    assert found[0]["parameters"]["tau"]["value"] == pytest.approx(3.0, rel=0.05)
    assert read_model(folder / "log-fit").get_params()["inputs"] == {"u": "hold"}


def test_options_go_before_system_files(folder: Path) -> None:
    done = run("fit", "driven.toml", "log.csv", "--no-figures", "--json", "--input", "u=linear", cwd=folder)
    assert json.loads(done.stdout)["inputs"]["u"]["kind"] == "linear"


def test_what_is_no_input_is_refused(folder: Path) -> None:
    for option, text in (("u", "CHANNEL=hold"), ("u=held", "expected 'hold'"), ("u=hold,u=linear", "twice")):
        done = run("fit", "plant.toml", "log.csv", "--input", option, cwd=folder)
        assert done.returncode == 2
        assert text in done.stderr
    done = run("fit", "plant.toml", "log.csv", "--disturbance", "w", cwd=folder)
    assert (done.returncode, "expected --disturbance CHANNEL=white" in done.stderr) == (2, True)
    (folder / "wrong.toml").write_text(SYSTEM + '[inputs]\nv = "hold"\n')
    with pytest.raises(SystemFileError, match=r"\[inputs\] names v; expected some of y, u"):
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


def test_reports_tell_inputs_from_measurements(folder: Path) -> None:
    product = fit_file(read_system_file(folder / "driven.toml"), folder / "log.csv", random_state=0)
    page = make_report(product.gp)
    assert "known, held between samples" in page
    assert "Input u: known, held between 39 samples, 1 missing sample kept unchanged." in page
    assert "not measured" not in page
    assert "<h2>The plant</h2>" in page
    for column in ("static gain", "time constants"):
        assert f">{column}</th>" in page
    assert "y</b> after u went from 0 to 1" in page.replace("\\u003c", "<").replace("\\u003e", ">")
    assert "magnitude in dB" in page
    assert "lk.LODEGP(system, random_state=0, inputs={&#x27;u&#x27;: &#x27;hold&#x27;})" in page
    assert "a dict or table of y, u" in page
