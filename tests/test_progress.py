"""Progress is shown to people who wait, and to nobody else."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rich.progress

import lodekit as lk
import lodekit.cli.fit as fit_command
from lodekit.fitting import multistart
from lodekit.fitting.lbfgs import maximize_lbfgs
from lodekit.report import make_report
from lodekit.support import progress
from lodekit.workflow import pipeline
from tests.limits import PATIENCE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def wait_for(self, words: str) -> None:
        """Wait until a bar says so, however slow this machine is; not for ever, where it never does."""
        end = time.monotonic() + PATIENCE
        while words not in self.getvalue() and time.monotonic() < end:
            time.sleep(0.01)


def test_a_bar_appears_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(progress, "_BAR_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.track_progress("reading", 10) as advance:
        advance(5, "half")
        stream.wait_for("reading, half")
    assert "reading, half" in stream.getvalue()


@pytest.mark.parametrize(("patience", "stream"), [(60.0, Terminal), (0.0, io.StringIO)])
def test_nothing_appears_at_once_or_elsewhere(
    monkeypatch: pytest.MonkeyPatch, patience: float, stream: type[io.StringIO]
) -> None:
    shown = stream()
    monkeypatch.setattr(progress, "_BAR_DELAY_SECONDS", patience)
    monkeypatch.setattr(sys, "stderr", shown)
    with progress.track_progress("reading", 10) as advance:
        advance(5, "half")
        time.sleep(0.1)
    assert shown.getvalue() == ""


def test_a_fit_shows_that_it_is_alive_during_its_first_search(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()

    def slow(*arguments: object, **options: object) -> object:
        stream.wait_for("fitting")
        return maximize_lbfgs(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(progress, "_BAR_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(multistart, "maximize_lbfgs", slow)
    monkeypatch.setattr(sys, "stderr", stream)
    times = np.linspace(0, 4, 12)
    lk.LODEGP(lk.System("x'' + x = u"), random_state=0, restarts=1).fit(times, {"x": np.sin(2 * times)})
    assert "fitting" in stream.getvalue()


def test_one_bar_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(progress, "_BAR_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.track_progress("outer", 2), progress.track_progress("inner") as advance:
        advance()
        progress.report_best_value(progress, "height", 1.0)
        stream.wait_for("outer")
    assert "outer" in stream.getvalue()
    assert "inner" not in stream.getvalue()
    assert "height" not in stream.getvalue()
    with pytest.raises(KeyboardInterrupt), progress.track_progress("again"):
        raise KeyboardInterrupt
    # Whoever was interrupted does not stand in the way of the next one.
    with progress.track_progress("next"):
        stream.wait_for("next")
    assert "next" in stream.getvalue()


def test_a_bar_that_counts_nothing_shows_what_goes_on_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same line, which then says how far that came."""
    stream = Terminal()
    monkeypatch.setattr(progress, "_BAR_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.track_progress("outer"):
        with progress.track_progress("inner", 3) as advance:
            advance(1, "second")
            progress.report_best_value(progress, "height", 1.0)
            stream.wait_for("inner, second, height 1.000")
        stream.wait_for("outer, height 1.000")
    for words in ("inner, second, height 1.000", "outer, height 1.000"):
        assert words in stream.getvalue()


def test_a_fit_with_disturbances_says_which_start_it_follows_and_how_far_it_came() -> None:
    """Log evidences of one search grow, and begin anew where something else is searched."""
    times, heard = np.linspace(0.0, 20.0, 60), list[str]()
    values = np.sin(times) + 0.1 * np.random.default_rng(0).standard_normal(60)
    system = lk.System("y' = -a*y + w", parameters={"a": lk.Parameter(positive=True)})
    gp = lk.LODEGP(system, disturbances={"w": "matern-1/2"}, random_state=0)
    with progress.listening(lambda words, done, total: heard.append(words)):
        gp.fit(times, {"y": values})
    followed = [words for words in heard if words.startswith("fitting with disturbances, start 1 of ")]
    heights = [float(words.split()[-1]) for words in followed if "log evidence" in words]
    assert len(heights) > 2
    assert heights == sorted(heights)
    assert any(words.startswith("fitting, computing standard errors, log evidence") for words in heard)


@pytest.mark.parametrize("quiet", [False, True])
def test_no_progress_is_shown_where_nothing_is_to_be_printed(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``lodekit fit --quiet`` prints nothing but errors."""
    made = []

    def make(*arguments: object, **options: object) -> rich.progress.Progress:
        made.append(True)
        return bar(*arguments, **options)  # type: ignore[arg-type]

    def slow(*arguments: object, **options: object) -> object:
        with progress.track_progress("fitting"):
            raise lk.LodekitError("enough")

    bar = rich.progress.Progress
    monkeypatch.setattr(rich.progress, "Progress", make)
    monkeypatch.setattr(pipeline, "fit_file", slow)
    monkeypatch.setattr(sys, "stderr", Terminal())
    (tmp_path / "log.csv").write_text("t,y\n0,1\n1,2\n")
    with pytest.raises(lk.LodekitError, match="enough"):
        fit_command.fit("y' = 1", [str(tmp_path / "log.csv")], out=tmp_path / "out", quiet=quiet)
    assert made == ([] if quiet else [True])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda gp: gp.certificate(), "checking that the curves satisfy the equations"),
        (lambda gp: gp.plot_parameters(others="following", points=5), "computing profile likelihoods"),
        (lambda gp: gp.plot_evidence(points=5), "computing the log evidence over two parameters"),
        (lambda gp: gp.sample([0.0, 1.0], size=2), "drawing from the posterior"),
        (lambda gp: gp.plan_experiment(np.arange(5.0), start={"x": 1.0}), "planning the experiment"),
        (make_report, "writing the report"),
    ],
)
def test_what_may_take_seconds_reports_what_it_does(
    oscillator: lk.LODEGP, call: Callable[[lk.LODEGP], object], words: str
) -> None:
    heard = list[str]()
    with progress.listening(lambda text, done, total: heard.append(text)):
        call(oscillator)
    assert any(text.startswith(words) for text in heard)


@pytest.fixture(scope="module")
def oscillator() -> lk.LODEGP:
    t = np.linspace(0.0, 8.0, 30)
    system = lk.System("x'' + c*x' + k*x = 0", parameters={name: lk.Parameter(positive=True) for name in "ck"})
    x = np.exp(-0.2 * t) * np.cos(2.0 * t) + 0.02 * np.random.default_rng(0).standard_normal(30)
    return lk.LODEGP(system, random_state=0).fit(t, x)
