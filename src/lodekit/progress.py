"""Progress on standard error, where a person waits longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from threading import Timer
from typing import Any
from weakref import ref

__all__ = ["listening", "reach", "silence", "waiting"]

#: Who hears of every step: words, the number of steps that are done, and how many there are, where that is known.
Hearer = Callable[[str, int, int | None], None]

#: Seconds before a bar is shown.
_PATIENCE = 1.0
#: What is waited for, the innermost last.
_steps: list[_Step] = []
#: The bar that is there, or about to be, with its lines and how many steps each counts; the last line is seen.
_shown: list[tuple[Any, Any, int | None]] = []
#: Who wants to hear of every step; the last one does.
_listeners: list[Hearer] = []


class _Step:
    """Something that is waited for: how far it has come, in words and numbers.

    Parameters
    ----------
    text : str
    total : int or None
        How many steps there are.
    hear : function
        Told of each.
    """

    def __init__(self, text: str, total: int | None, hear: Hearer) -> None:
        self.text, self.total, self.hear = text, total, hear
        self.done, self.what, self.height = 0, "", ""
        self.best, self.hill = -inf, ref[Any](_Step)
        self._tell()

    def advance(self, amount: int = 1, what: str = "") -> None:
        """Count some steps as done, and say what comes next, or what they led to."""
        self.done, self.what = self.done + amount, what
        self._tell()

    def reach(self, hill: Any, name: str, value: float) -> None:
        """Tell the highest value so far, as `reach` does."""
        if self.hill() is not hill:
            # Whatever it was, nobody should have to keep it for this.
            self.best, self.hill = -inf, ref(hill)
        if value > self.best:
            self.best, self.height = value, f"{name} {value:.3f}"
            self._tell()

    def take_over(self, inner: _Step) -> None:
        """Go on where something inside has come to, unless steps are counted here: then it was one of many."""
        if self.total is None and inner.height:
            self.best, self.hill, self.height = inner.best, inner.hill, inner.height
            self._tell()

    def _tell(self) -> None:
        self.hear(", ".join(part for part in (self.text, self.what, self.height) if part), self.done, self.total)


def _nobody(words: str, done: int, total: int | None) -> None:
    """Hear nothing."""


@contextmanager
def listening(hear: Hearer) -> Iterator[None]:
    """Call a function at every step, instead of showing a bar: for programs that show progress in their own way.

    Parameters
    ----------
    hear : function
        Called with words, the number of steps that are done, and how many there are, where that is known.

    Examples
    --------
    >>> heard = []
    >>> with listening(lambda *said: heard.append(said)), waiting("fitting", 2) as advance:
    ...     advance(1, "first start")
    >>> heard
    [('fitting', 0, 2), ('fitting, first start', 1, 2)]
    """
    _listeners.append(hear)
    try:
        yield
    finally:
        _listeners.remove(hear)


@contextmanager
def silence() -> Iterator[None]:
    """Show no progress at all.

    Examples
    --------
    >>> with silence(), waiting("fitting") as advance:
    ...     advance(1, "first start")
    """
    with listening(_nobody):
        yield


def reach(hill: Any, name: str, value: float) -> None:
    """Say how high a search has come; of all that is said of one hill, the highest value is shown.

    Parameters
    ----------
    hill : object
        What is searched. Values of another one begin anew.
    name : str
        What the values are.
    value : float

    Examples
    --------
    >>> heard = []
    >>> with listening(lambda *said: heard.append(said[0])), waiting("fitting"):
    ...     for value in (-3.0, 2.0, 1.0):
    ...         reach(_Step, "height", value)
    >>> heard
    ['fitting', 'fitting, height -3.000', 'fitting, height 2.000']
    """
    if _steps:
        _steps[-1].reach(hill, name, value)


@contextmanager
def waiting(text: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Yield a function ``advance(amount, what)`` that counts steps done and may say what they led to.

    A bar shows both on a terminal, after a second. It also moves while a single step takes long. There is no second
    bar inside another one: that shows what is inside, where it does not count steps itself.

    Parameters
    ----------
    text : str
        What is waited for; it stands beside the bar.
    total : int, optional
        How many steps there are, where that is known.
    """
    with _showing(text, total) as hear:
        step = _Step(text, total, hear)
        _steps.append(step)
        try:
            yield step.advance
        finally:
            _steps.remove(step)
            if _steps:
                _steps[-1].take_over(step)


@contextmanager
def _showing(text: str, total: int | None) -> Iterator[Hearer]:
    """Yield who is to hear of the steps of something: a listener, a bar, or nobody."""
    if _listeners:
        yield _listeners[-1]
    elif _shown:
        bar, line, count = _shown[-1]
        if count is not None:
            yield _nobody
            return
        bar.update(line, visible=False)
        try:
            with _line(bar, text, total) as hear:
                # The clock goes on.
                bar.tasks[-1].start_time = bar.tasks[0].start_time
                yield hear
        finally:
            bar.update(line, visible=True)
    elif not sys.stderr.isatty():
        yield _nobody
    else:
        with _bar() as bar, _line(bar, text, total) as hear:
            yield hear


@contextmanager
def _bar() -> Iterator[Any]:
    """Yield a bar that is shown where it takes long."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    patience = Timer(_PATIENCE, bar.start)
    patience.daemon = True
    patience.start()
    try:
        yield bar
    finally:
        patience.cancel()
        patience.join()
        bar.live.stop()


@contextmanager
def _line(bar: Any, text: str, total: int | None) -> Iterator[Hearer]:
    """Yield a function that says in a line of a bar how far something has come."""
    task = bar.add_task(text, total=total)
    known = (bar, task, total)
    _shown.append(known)
    try:
        yield lambda words, done, total: bar.update(task, completed=done, description=words)
    finally:
        _shown.remove(known)
        bar.remove_task(task)
