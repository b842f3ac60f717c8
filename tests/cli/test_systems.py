"""Commands on systems: results on stdout, messages on stderr, exit code 2 for bad input."""

import json
from pathlib import Path

import pytest

import lodekit as lk
from tests.cli.command import HEATING, run


def test_inspect_prints_the_analysis_and_its_proof() -> None:
    done = run("inspect", HEATING, "--param", "a,b")
    assert done.returncode == 0
    assert done.stderr == ""
    for line in ("f1 = z' + b*z", "The system is controllable", "U A V = D", "the structure changes if b = 0"):
        assert line in done.stdout


def test_inspect_as_json_is_one_document() -> None:
    done = run("inspect", HEATING, "-p", "a", "-p", "b", "--json")
    content = json.loads(done.stdout)
    assert content["is_controllable"] is True
    assert content["degeneracies"] == ["b"]
    assert content["parametrization"]["free_columns"] == [["d + b"], ["b"], ["d^2 + (a + b)*d"]]


def test_inspect_takes_what_is_above_zero() -> None:
    assert "a > 0" in run("inspect", "x' = -a*x", "--positive", "a").stdout


def test_inspect_as_latex() -> None:
    done = run("inspect", HEATING, "--param", "a,b", "--latex")
    assert "\\begin{aligned}" in done.stdout
    assert "\\dot{f_{1}}" in done.stdout


def test_inspect_reads_system_files(tmp_path: Path) -> None:
    path = tmp_path / "tank.toml"
    path.write_text('equations = ["h\' = q - c*h"]\n[parameters]\nc = { positive = true }\n')
    done = run("inspect", str(path))
    assert done.returncode == 0
    assert "c > 0" in done.stdout
    assert run("inspect", str(path), "--param", "c").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("inspect", "x' = -k*x"), "declare `k` as a parameter with --param"),
        # A term beside a channel in a sum is a channel itself.
        (("inspect", "C*T' = (Ta - T)/R + P"), "try: --param C,R"),
        (("inspect", "x' = 1; x' = 2"), "forces 0 = -1"),
        (("inspect", "missing.toml"), "cannot read missing.toml"),
        (("inspect", "x' = u", "--json", "--latex"), "choose one"),
        (("inspect", ""), "empty text"),
        (("inspect", "m*x'' + k*x = F"), "try: --param m,k"),
        (("inspect", "x' = " + "y + " * 200), "end of the line"),
        (("catalog", "nothing"), "no example is called"),
        (("inspect",), "Missing argument"),
        (("unknown",), "No such command"),
        (("report", "log-fit"), "lodekit fit, which writes report.html"),
        (("diagnose",), "use lodekit fit and lodekit check"),
    ],
)
def test_bad_input_exits_with_2_and_a_message_on_stderr(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_catalog_lists_every_example_and_shows_each() -> None:
    done = run("catalog")
    for example in lk.catalog.examples():
        assert example.name in done.stdout
    assert len(json.loads(run("catalog", "--json").stdout)) == len(lk.catalog.examples())
    shown = run("catalog", "three-tank")
    assert "one constant mode, f1 - f2 + f3, cannot be influenced" in shown.stdout
    assert json.loads(run("catalog", "three_tank", "--json").stdout)["free_functions"] == 2


def test_version() -> None:
    assert run("--version").stdout.strip() == f"lodekit {lk.__version__}"
