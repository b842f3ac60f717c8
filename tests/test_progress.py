"""Progress is shown to people who wait, and to nobody else."""

from __future__ import annotations

import io
import sys
import time

import numpy as np
import pytest

import lodekit as lk
from lodekit import progress
from lodekit.learning.searches import learn
from lodekit.learning.searches.search import search


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def wait_for(self, words: str) -> None:
        """Wait until a bar says so, however slow this machine is; not for ever, where it never does."""
        end = time.monotonic() + 20.0
        while words not in self.getvalue() and time.monotonic() < end:
            time.sleep(0.01)


def test_a_bar_appears_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.waiting("reading", 10) as advance:
        advance(5, "half")
        stream.wait_for("reading, half")
    assert "reading, half" in stream.getvalue()


@pytest.mark.parametrize(("patience", "stream"), [(60.0, Terminal), (0.0, io.StringIO)])
def test_nothing_appears_at_once_or_elsewhere(
    monkeypatch: pytest.MonkeyPatch, patience: float, stream: type[io.StringIO]
) -> None:
    shown = stream()
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    monkeypatch.setattr(sys, "stderr", shown)
    with progress.waiting("reading", 10) as advance:
        advance(5, "half")
        time.sleep(0.1)
    assert shown.getvalue() == ""


def test_a_fit_shows_that_it_is_alive_during_its_first_search(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()

    def slow(*arguments: object, **options: object) -> object:
        stream.wait_for("fitting")
        return search(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(learn, "search", slow)
    monkeypatch.setattr(sys, "stderr", stream)
    times = np.linspace(0, 4, 12)
    lk.LODEGP(lk.System("x'' + x = u"), random_state=0, restarts=1).fit(times, {"x": np.sin(2 * times)})
    assert "fitting" in stream.getvalue()


def test_one_bar_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.waiting("outer"), progress.waiting("inner") as advance:
        advance()
        stream.wait_for("outer")
    assert "outer" in stream.getvalue()
    assert "inner" not in stream.getvalue()
    with pytest.raises(KeyboardInterrupt), progress.waiting("again"):
        raise KeyboardInterrupt
    # Whoever was interrupted does not stand in the way of the next one.
    with progress.waiting("next"):
        stream.wait_for("next")
    assert "next" in stream.getvalue()
