"""What only a process of its own can show: its beginning, its imports, its end; and that `run` tells the same."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from lodekit.cli import app
from tests.cli.command import COMMAND, HEATING, run, run_alone
from tests.cli.conftest import Fitted
from tests.limits import PATIENCE

#: One call of every command: imports that it forgot have been made by other tests in this process.
CALLS = {
    "inspect": ("inspect", HEATING, "--param", "a,b"),
    "init": ("init", "tau*y' + y = K*u", "--param", "tau,K"),
    "fit": ("fit", "heating.toml", "missing.csv"),
    "predict": ("predict", "heating-fit", "--n", "3"),
    "sample": ("sample", "heating-fit", "--n", "3"),
    "check": ("check", "heating-fit", "--json"),
    "simulate": ("simulate", HEATING, "--param", "a,b", "--set", "a=3,b=1", "--n", "3"),
    "validate": ("validate", "heating-fit", "missing.csv"),
    "catalog": ("catalog", "three-tank"),
    "watch": ("watch", "heating-fit", "missing.csv", "--once"),
}
#: These take longer; where they are tested, it is in a process of their own. So is a fit that goes well, below.
ELSEWHERE = {"demo", "reproduce", "studio"}


def words(text: str) -> list[str | float]:
    """Return a text as words and numbers."""
    found: list[str | float] = []
    for word in text.replace(",", " ").split():
        try:
            found.append(float(word))
        except ValueError:
            found.append(word)
    return found


def assert_same(here: str, alone: str) -> None:
    """Assert that two texts say the same; two processes may round differently, in digits that nobody needs."""
    wanted = [word if isinstance(word, str) else pytest.approx(word, rel=1e-6, abs=1e-6) for word in words(alone)]
    assert words(here) == wanted


def test_every_command_is_called() -> None:
    assert {command.callback.__name__ for command in app.registered_commands if command.callback} == {
        *CALLS,
        *ELSEWHERE,
    }


@pytest.mark.parametrize("command", [*CALLS, "--help", "--version", "unknown"])
def test_a_process_of_its_own_tells_the_same_as_this_one(fitted: Fitted, command: str) -> None:
    arguments = CALLS.get(command, (command,))
    alone, here = (call(*arguments, cwd=fitted.folder) for call in (run_alone, run))
    assert here.returncode == alone.returncode
    assert_same(here.stdout, alone.stdout)
    assert_same(here.stderr, alone.stderr)
    assert alone.stdout or alone.stderr


def test_a_command_inside_this_process_leaves_it_as_it_was(fitted: Fitted, tmp_path: Path) -> None:
    def state() -> dict[str, object]:
        mask = os.umask(0)
        os.umask(mask)
        return {
            "folder": Path.cwd(),
            "environment": dict(os.environ),
            "arguments": list(sys.argv),
            "streams": (sys.stdin, sys.stdout, sys.stderr),
            "handlers": [signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGINT)],
            "filters": list(warnings.filters),
            "shown": warnings.showwarning,
            "mask": mask,
            "logs": (logging.root.level, list(logging.root.handlers)),
        }

    # As Python begins: what an earlier command may have left is no excuse.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    before = state()
    arguments = (str(fitted.folder / "heating.toml"), str(fitted.folder / "heating.csv"), "--set", "a=3,b=1")
    for more, code in (((), 0), (("--engine", "steam"), 2)):
        assert run("fit", *arguments, *more, "--out", "out", cwd=tmp_path, SOME_NAME="some value").returncode == code
        assert state() == before
    assert (tmp_path / "out" / "channels.png").exists()


def test_mistakes_and_warnings_are_shown_as_a_process_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no test of a command inside this process could see them."""

    def warned(*_: object) -> None:
        warnings.warn("this is odd", stacklevel=2)
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("lodekit.cli.arguments.read_system", warned)
    done = run("inspect", "x' = u")
    assert (done.returncode, done.stdout) == (1, "")
    assert "UserWarning: this is odd" in done.stderr
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.endswith("ZeroDivisionError: a mistake of ours\n")


def test_output_has_no_colour_codes_in_a_pipe_and_survives_a_closed_one() -> None:
    assert "\x1b[" not in run_alone("inspect", "x' = u").stdout
    assert "\x1b[" in run_alone("inspect", "x' = u", FORCE_COLOR="1").stdout
    script = f"{COMMAND} catalog three-tank | head -1"
    closed = subprocess.run(script, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert "Traceback" not in closed.stderr
    assert "BrokenPipe" not in closed.stderr


def test_a_terminal_without_greek_letters_gets_their_codes() -> None:
    done = run_alone("inspect", "\u03b8' = u", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "\\u03b8' = u" in done.stdout


def test_the_package_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lodekit", "inspect", "x' = u"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0


ANALYSIS = "import lodekit as lk; lk.System(\"x'' + a*x = u\", parameters=['a'])"
FIT = (
    "import random, lodekit as lk; noise = random.Random(0); times = [k / 5 for k in range(25)];"
    "gp = lk.LODEGP(lk.System(\"x' = -a*x + u\", parameters=['a']), random_state=0);"
    "gp.fit(times, {'x': [1 + noise.gauss(0, 0.1) for _ in times], 'u': [1 + noise.gauss(0, 0.1) for _ in times]})"
)
UNUSED_IN_A_FIT = (
    "scipy.interpolate scipy.stats scipy.signal scipy.integrate matplotlib pandas polars pyarrow duckdb dask torch "
    "plotly typer rich lodekit.cli lodekit.workflow lodekit.report lodekit.studio lodekit.paper"
)
COMMAND_LINE = "from lodekit.__main__ import main; main()"


@pytest.mark.parametrize(
    ("code", "argument", "unused"),
    [
        ("import lodekit; lodekit.__version__, dir(lodekit)", "", "lodekit.errors lodekit.system dataclasses"),
        (COMMAND_LINE, "--version", "lodekit.cli lodekit.errors typer rich numpy flint dataclasses"),
        (COMMAND_LINE, "--help", "lodekit.system lodekit.workflow numpy scipy flint"),
        (ANALYSIS, "", "sympy numpy scipy matplotlib torch typer rich"),
        (FIT, "", UNUSED_IN_A_FIT),
    ],
)
def test_a_new_process_loads_only_what_it_uses(code: str, argument: str, unused: str) -> None:
    check = f"print('loaded:', *sorted(set({unused.split()}) & set(sys.modules)), file=sys.stderr)"
    script = f"import atexit, sys; atexit.register(lambda: {check}); {code}"
    arguments = [sys.executable, "-c", script, *argument.split()]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "loaded:\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_no_traceback(fitted: Fitted) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(COMMAND), "predict", fitted.model], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "cannot write the results" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fit_in_a_process_of_its_own_can_be_piped(fitted: Fitted, tmp_path: Path) -> None:
    script = f"{COMMAND} fit heating.toml heating.csv --out {tmp_path} --json --no-figures | grep -c std_error"
    done = subprocess.run(script, shell=True, cwd=fitted.folder, capture_output=True, text=True, check=False)  # noqa: S602
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
    assert (tmp_path / "report.html").exists()


def wait_until_it_works(process: subprocess.Popen[str]) -> None:
    """Wait for the covariance of 9000 rows, 650 MB, however long this machine takes to import what it needs."""
    resident = Path(f"/proc/{process.pid}/statm")
    if not resident.exists():
        time.sleep(10)
        return
    while int(resident.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") < 400e6:
        assert process.poll() is None
        time.sleep(0.05)


def test_an_interrupted_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    made = run("simulate", "heating", "--n", "3000", "--noise", "0.1", "--out", "long.csv", cwd=tmp_path)
    assert made.returncode == 0
    run("init", HEATING, "--param", "a,b", "--out", "heating.toml", cwd=tmp_path)
    arguments = [str(COMMAND), "fit", "heating.toml", "long.csv", "--engine", "dense"]
    process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until_it_works(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"long.csv", "heating.toml"}
