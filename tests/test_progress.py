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


@pytest.mark.parametrize(
    ("patience", "terminal", "shown"), [(60.0, True, False), (0.0, False, False), (0.0, True, True)]
)
def test_a_bar_appears_only_on_a_terminal_and_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch, patience: float, terminal: bool, shown: bool
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.waiting("reading", 10) as advance:
        advance(5, "half")
        time.sleep(0.3)
    assert ("reading, half" in stream.getvalue()) == shown


def test_a_fit_shows_that_it_is_alive_during_its_first_search(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()

    def slow(*arguments: object, **options: object) -> object:
        time.sleep(0.3)
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
        time.sleep(0.2)
    assert "outer" in stream.getvalue()
    assert "inner" not in stream.getvalue()
    with pytest.raises(KeyboardInterrupt), progress.waiting("again"):
        raise KeyboardInterrupt
    # Whoever was interrupted does not stand in the way of the next one.
    with progress.waiting("next"):
        time.sleep(0.2)
    assert "next" in stream.getvalue()
