"""What new users type first: equations instead of a file, the wrong order, a slip in a name, the same fit again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lodekit.errors import EquationError
from lodekit.system.files import read_system_file
from tests.cli.command import run

ROOM = "tau*T1' + T1 - Ta = K*Q"
QUICK = ("--no-figures", "--input", "Q=hold")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    t = np.arange(40.0)
    noise = 0.01 * np.random.default_rng(0).standard_normal(40)
    values = 20.0 + 2.0 * np.where(t < 10, 0.0, 1.0 - np.exp(-(t - 10.0) / 5.0)) + noise
    rows = [f"{a:g},{int(a >= 10)},{b:.4f}" for a, b in zip(t, values, strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(["Time,Q,T1", *rows]))
    return tmp_path


def test_equations_are_fitted_as_they_are_typed_and_a_second_fit_keeps_the_first(log: Path) -> None:
    first = run("fit", ROOM, "log.csv", *QUICK, "--positive", "tau", "--param", "K,Ta", "--json", cwd=log)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)["parameters"]
    assert list(found) == ["tau", "Ta", "K"]
    assert found["tau"]["value"] == pytest.approx(5.0, rel=0.05)
    assert found["tau"]["interval"][0] > 0
    (log / "log-fit" / "mine.txt").write_text("keep me")
    before = (log / "log-fit" / "report.html").read_bytes()
    second = run("fit", ROOM, "log.csv", *QUICK, "--param", "tau,K,Ta", "--set", "Ta=20", cwd=log)
    aside = "log-fit had earlier results, which are now in log-fit/earlier-1; use --force to overwrite instead"
    assert aside in second.stderr
    assert (log / "log-fit" / "earlier-1" / "report.html").read_bytes() == before
    assert (log / "log-fit" / "mine.txt").exists()
    now = (log / "log-fit" / "report.html").read_bytes()
    assert now != before
    asked = run("predict", "log-fit/earlier-1", "--n", "2", cwd=log)
    assert asked.stdout.splitlines()[0].startswith("t,T1")


def test_force_replaces_and_measurements_beside_results_stay(log: Path) -> None:
    (log / "in").mkdir()
    (log / "log.csv").rename(log / "in" / "data.csv")
    (log / "in" / "report.html").write_text("an earlier one")
    given = ("fit", ROOM, "in/data.csv", *QUICK, "--param", "tau,K,Ta", "--out", "in", "--force", "-q")
    done = run(*given, cwd=log)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name for path in (log / "in").iterdir()} >= {"data.csv", "report.html", "model.lodekit"}
    assert not (log / "in" / "earlier-1").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("log.csv", "plant.toml"), "expected the system before the data; try: lodekit fit plant.toml log.csv"),
        (("plant", "log.csv"), "expected a system file (.toml) or equations such as"),
        ((ROOM, "log.csv"), "try: --param tau,Ta,K"),
        ((ROOM, "log.csv", "--param", "tau,K,Ta", "--map", "Q=1"), "column Time is assigned to Q, and no other looks"),
        ((ROOM, "log.csv", "--param", "tau,K,Ta", "--map", "P=1"), "unknown name 'P'; expected a channel (T1, Q)"),
        (("T1'' = -k*sin(T1)", "log.csv", "--param", "k"), "write T1 for sin(T1)"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_try(log: Path, given: tuple[str, ...], said: str) -> None:
    done = run("fit", *given, cwd=log)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")


@pytest.mark.parametrize("roles", [("--disturbance", "w=white"), ("--input", "Q=hold,w=hold")])
def test_what_drives_the_equations_is_not_proposed_as_a_parameter(log: Path, roles: tuple[str, ...]) -> None:
    done = run("fit", f"{ROOM} + w", "log.csv", *roles, cwd=log)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "try: --param tau,Ta,K"


def test_a_product_with_an_input_is_not_declared_as_a_parameter(log: Path) -> None:
    done = run("fit", "tau*T1' = Ta - T1 + K*T1*u", "log.csv", "--input", "u=hold", cwd=log)
    assert done.returncode == 2
    assert "u is an input or a disturbance and multiplies a channel" in done.stderr
    assert "try:" not in done.stderr
    product = "tau*T1' = -T1 + K*T1*Q"
    for done in (
        run("init", product, "--data", "log.csv", "--param", "tau,K", cwd=log),
        run("fit", product, "log.csv", "--param", "tau,K", cwd=log),
    ):
        assert "Q is a column of the data and multiplies a channel" in done.stderr
        assert "try:" not in done.stderr
    text = 'equations = ["tau*T1\' = -T1 + K*T1*Q"]\nparameters = ["tau", "K"]\n[inputs]\nQ = "hold"\n'
    (log / "product.toml").write_text(text)
    with pytest.raises(EquationError, match="Q is an input or a disturbance and multiplies a channel"):
        read_system_file(log / "product.toml")


def test_a_system_file_has_its_own_parameters(log: Path) -> None:
    assert run("init", ROOM, "--positive", "tau,K", "--param", "Ta", "--out", "room.toml", cwd=log).returncode == 0
    known = read_system_file(log / "room.toml").system.parameters
    assert {name: own.positive for name, own in known.items()} == {"tau": True, "Ta": False, "K": True}
    done = run("fit", "room.toml", "log.csv", "--positive", "tau", cwd=log)
    assert (done.returncode, "names its own parameters" in done.stderr) == (2, True)
    assert "need equations" in run("init", "new.toml", "--data", "log.csv", "--positive", "tau", cwd=log).stderr


def test_a_channel_that_nobody_measured_is_told(log: Path) -> None:
    done = run("fit", ROOM.replace("Ta", "T2"), "log.csv", *QUICK, "--param", "tau,K", "--restarts", "1", cwd=log)
    assert "T2 was not measured and appears only once in the equations" in done.stdout
    assert "Did you mean T1?" in done.stdout
