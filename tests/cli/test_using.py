"""Commands on a fitted model, simulated data, and the command that runs the paper again."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from lodekit.cli.arguments import parse_range
from lodekit.data.time_reference import TimeReference
from lodekit.errors import LodekitError
from lodekit.results.simulation import simulate
from tests.cli.command import HEATING, run, run_alone
from tests.cli.conftest import Fitted
from tests.limits import PATIENCE


def columns(text: str) -> tuple[list[str], np.ndarray]:
    head, *rows = text.splitlines()
    return head.split(","), np.array([[float(cell) for cell in row.split(",")] for row in rows])


def test_predict_is_that_of_the_library(fitted: Fitted) -> None:
    done = run("predict", fitted.model, "--from", "-6", "--to", "8", "--n", "15", "--observable", "f1'")
    names, table = columns(done.stdout)
    assert names == ["t", "f1'", "std(f1')"]
    gp = lk.LODEGP.load(Path(fitted.model) / "model.lodekit")
    mean, std = gp.predict(np.linspace(-6, 8, 15), "f1'", return_std=True)
    # All digits are printed, but two processes may round differently, the more so what is left of the prior variance.
    assert np.allclose(table[:, 1], mean, rtol=0, atol=1e-9)
    assert np.allclose(table[:, 2], std, rtol=1e-6)
    content = json.loads(run("predict", fitted.model, "--n", "3", "--json").stdout)
    assert content["t"] == [-5.0, 0.0, 5.0]
    assert set(content) == {"t", *(f for name in ("f1", "f2", "u") for f in (name, f"std({name})"))}


def test_predict_at_the_times_of_a_file(fitted: Fitted, tmp_path: Path) -> None:
    out = tmp_path / "at.csv"
    done = run("predict", fitted.model, "--at", str(fitted.folder / "heating.csv"), "--out", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    assert len(out.read_text().splitlines()) == 26
    (tmp_path / "plain.txt").write_text("0.5\n1.5\n")
    shown = run("predict", fitted.model, "--at", str(tmp_path / "plain.txt")).stdout
    assert columns(shown)[1][:, 0].tolist() == [0.5, 1.5]
    assert run("predict", fitted.model, "--at", "missing.txt").returncode == 2


def test_samples_satisfy_the_equations(fitted: Fitted) -> None:
    options = ("--size", "2", "--seed", "3", "--n", "5")
    shown = [part for observable in ("f2'", "f1", "f2") for part in ("--observable", observable)]
    done = run("sample", fitted.model, *options, *shown)
    names, table = columns(done.stdout)
    assert names == ["sample", "t", "f2'", "f1", "f2", "a", "b"]
    assert table[:, 0].tolist() == [1.0] * 5 + [2.0] * 5
    # Each at the parameters that were drawn with it.
    assert np.allclose(table[:, 2], -table[:, 6] * (table[:, 4] - table[:, 3]), atol=1e-9)
    assert len(set(table[:, 6].tolist())) == 2
    # The same seed, the same draws, up to the rounding of another process.
    again, other = (run("sample", fitted.model, *options, *shown, *seed).stdout for seed in ((), ("--seed", "4")))
    assert np.allclose(columns(again)[1], table, rtol=0, atol=1e-7)
    assert not np.allclose(columns(other)[1], table, rtol=0, atol=1e-3)


def test_check_prints_the_certificate(fitted: Fitted) -> None:
    done = run("check", fitted.model)
    assert done.returncode == 0
    assert "U A V = D" in done.stdout
    assert "The curves satisfy the equations." in done.stdout
    content = json.loads(run("check", fitted.model, "--json").stdout)
    assert content["strict"] is True
    assert content["residual"] < 1e-9
    assert 0 < content["uncertainty"] < 1e-9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "nothing"), "nothing"),
        (("predict", "MODEL", "--from", "5", "--to", "1"), "--from must be earlier than --to"),
        (("predict", "MODEL", "--from", "soon"), "expected a number or a date"),
        (("predict", "MODEL", "--from", "2026-01-01"), "is a date, but the times are numbers; expected a number"),
        (("predict", "MODEL", "--from", "nan"), "expected a finite time"),
        (("predict", "MODEL", "--from", "2026-13-01"), "error: --from: expected a date"),
        (("validate", "MODEL", "heating.csv", "--given", "u", "--start", "soon"), "or a number of rows, got 'soon'"),
        (("predict", "MODEL", "--ahead", "3 hous"), "unknown unit in '3 hous'"),
        (("predict", "MODEL", "--n", "0"), "--n"),
        (("predict", "MODEL", "--ahead", "2", "--n", "5"), "remove --from, --to, --n and --at"),
        (("predict", "MODEL", "--at", "x.csv", "--n", "5"), "got both"),
        (("predict", "MODEL", "--at", "x.csv", "--from", "1"), "got both"),
        (("predict", "MODEL", "--observable", "f9"), "f9"),
        (("predict", "MODEL", "--observable", "f1*f2"), "f1*f2"),
        (("sample", "MODEL", "--size", "0"), "size"),
        (("check", "heating.csv"), "heating.csv"),
        (("simulate", HEATING, "--param", "a,b"), "expected a value for the parameter 'a'"),
        (("simulate", HEATING, "--param", "a,b", "--set", "c=1"), "unknown parameter 'c'"),
        (("simulate", HEATING, "--param", "a,b", "--set", "a=0,6"), "got '6'; use a decimal point: 0.5"),
        (("simulate", "heating", "--set", "a=1"), "at its own values"),
        (("simulate", "heating", "--noise", "-1"), "--noise"),
        (("simulate", "heating", "--from", "3", "--to", "1"), "--from must be earlier than --to"),
        (("simulate", "heating", "--out", "no/such/folder.csv"), "cannot write"),
        (("reproduce", "everything"), "everything"),
        (("simulate", "heatng"), "the catalog has"),
        (("inspect", "heating"), "the catalog has"),
        (("predict", "."), "has no model.lodekit in it"),
        (("predict", "MODEL", "--observable", "f1", "--observable", "f1"), "two columns would be called"),
        (("predict", "MODEL", "--from", "-1e308", "--to", "1e308"), "both finite"),
        (("predict", "MODEL", "--n", "100000000"), "--n"),
        (("sample", "MODEL", "--size", "100000000"), "at most"),
    ],
)
def test_bad_input_exits_with_2(fitted: Fitted, arguments: tuple[str, ...], message: str) -> None:
    done = run(*(fitted.model if part == "MODEL" else part for part in arguments), cwd=fitted.folder)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_last_day_is_included_and_not_before_the_first() -> None:
    clock = TimeReference(datetime(2026, 3, 30), "h")
    for first, last, expected in (
        ("2026-03-31", "2026-03-31", (24.0, 48.0)),
        ("2026-03-31 12:00", "2026-03-31", (36.0, 48.0)),
        ("5", "5", (5.0, 5.0)),
        (None, None, (1.0, 2.0)),
    ):
        assert parse_range(clock, first, last, (1.0, 2.0)) == expected
    for last in ("2026-03-30", "2026-03-29"):
        with pytest.raises(LodekitError, match=f"must be earlier than --to .* got 2026-03-31 and {last}$"):
            parse_range(clock, "2026-03-31", last, (1.0, 2.0))


def test_simulate_draws_a_solution_of_any_system(tmp_path: Path) -> None:
    options = ("--set", "a=3,b=1", "--n", "400", "--to", "4", "--seed", "5")
    names, table = columns(run("simulate", HEATING, "--param", "a,b", *options).stdout)
    assert names == ["t", "f1", "f2", "u"]
    t, f1, f2, _ = table.T
    slope = np.gradient(f2, t, edge_order=2)
    assert np.max(np.abs(slope + (f2 - f1))[2:-2]) < 1e-3 * np.max(np.abs(slope))
    other = columns(run("simulate", HEATING, "--param", "a,b", "--set", "a=3,b=1", "--seed", "6").stdout)[1]
    assert not np.allclose(other[:, 1], np.interp(other[:, 0], t, f1))


def test_equations_may_be_longer_than_any_name_of_a_file() -> None:
    done = run("simulate", "x' = -x" + " + 0" * 100, "--n", "2")
    assert done.returncode == 0
    assert done.stdout.startswith("t,x\n0.0,")


def test_simulated_solutions_have_no_residual_and_the_variance_that_was_meant() -> None:
    system = lk.System(HEATING, parameters="a,b")
    times, values = np.linspace(0, 3, 7), {"a": 3.0, "b": 1.0}
    observables = ["f1'", "f1", "f2", "u", "f2'"]
    d1, f1, f2, u, d2 = simulate(system, times, values, observable=observables, size=3, random_state=0).transpose(
        2, 0, 1
    )
    assert np.allclose(d1, -3 * (f1 - f2) + u, atol=1e-10)
    assert np.allclose(d2, -(f2 - f1), atol=1e-10)
    many = simulate(system, times, values, size=4000, random_state=1)
    # Channels vary by one on geometric average; so does every time.
    assert np.exp(np.mean(np.log(many.std(axis=0)))) == pytest.approx(1.0, rel=0.05)
    modes = simulate(lk.System("x'' + 4*x = 0"), times, size=2000, random_state=2)
    assert 0.3 < modes.std() < 3
    forced = simulate(lk.System("x' + x = 2"), [50.0, 60.0], random_state=0)
    assert forced.shape == (1, 2, 1)
    for wrong in ({"size": 0}, {"lengthscale": -1.0}, {"random_state": -3}):
        with pytest.raises(lk.LodekitError):
            simulate(system, times, values, **wrong)
    with pytest.raises(lk.LodekitError, match="matern-1/2"):
        simulate(system, times, values, latent="matern-1/2")
    with pytest.raises(lk.LodekitError, match="at least one time"):
        simulate(system, [], values)


def test_times_alone_are_read_with_care(fitted: Fitted, tmp_path: Path) -> None:
    path = tmp_path / "times.txt"
    for text, wanted in (("t\n0,5\n1,5\n", [0.5, 1.5]), ("# two\n-1e0\n2\n", [-1.0, 2.0])):
        path.write_text(text)
        assert columns(run("predict", fitted.model, "--at", str(path)).stdout)[1][:, 0].tolist() == wanted
    path.write_text("inf\n2\n3\n")
    done = run("predict", fitted.model, "--at", str(path))
    assert done.returncode == 2
    assert "expected finite times" in done.stderr


def test_devices_and_links_are_written_through(fitted: Fitted, tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("")
    link.symlink_to(real)
    assert run("predict", fitted.model, "--n", "2", "--out", str(link)).returncode == 0
    assert link.is_symlink()
    assert real.read_text().startswith("t,f1")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)  # noqa: S607
    assert run("predict", fitted.model, "--n", "2", "--out", str(pipe)).returncode == 0
    assert process.communicate(timeout=PATIENCE)[0].startswith("t,f1")
    assert pipe.is_fifo()


def test_reproduce_writes_a_report(tmp_path: Path) -> None:
    pytest.importorskip("gpytorch")
    done = run_alone("reproduce", "lfm", "--quick", "--out", str(tmp_path / "paper"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "paper" / "report.html").exists()
    assert "latent force model" in (tmp_path / "paper" / "README.md").read_text()
    assert str(tmp_path / "paper" / "report.html") in done.stdout
