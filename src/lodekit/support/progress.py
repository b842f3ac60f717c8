"""Progress bars on standard error for operations that take longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from threading import Timer
from typing import Any
from weakref import ref

#: Receives each step: a text, the number of completed steps, and their total number, if known.
ProgressCallback = Callable[[str, int, int | None], None]

#: Seconds before a bar is shown.
_BAR_DELAY_SECONDS = 1.0
#: Running tasks, the innermost last.
_active_tasks: list[_Task] = []
#: The bar, shown or pending, with its lines and their total numbers of steps; the last line is visible.
_visible_lines: list[tuple[Any, Any, int | None]] = []
#: Listeners to progress; only the last one is called.
_callbacks: list[ProgressCallback] = []


class _Task:
    """A task whose progress is shown, in words and numbers.

    total: Number of steps.
    callback: Called at each step.
    """

    def __init__(self, text: str, total: int | None, hear: ProgressCallback) -> None:
        self.text, self.total, self.callback = text, total, hear
        self.done, self.detail, self.best_text = 0, "", ""
        self.best, self.objective = -inf, ref[Any](_Task)
        self._notify()

    def advance(self, amount: int = 1, what: str = "") -> None:
        """Complete some steps, with a message about the next step or the result."""
        self.done, self.detail = self.done + amount, what
        self._notify()

    def report_best_value(self, hill: Any, name: str, value: float) -> None:
        """Report the highest value so far; see the function `report_best_value`."""
        if self.objective() is not hill:
            # A weak reference, so that the objective is not kept alive.
            self.best, self.objective = -inf, ref(hill)
        if value > self.best:
            self.best, self.best_text = value, f"{name} {value:.3f}"
            self._notify()

    def adopt_result(self, inner: _Task) -> None:
        """Adopt the progress of an inner task, unless this task counts steps and the inner one is one of many."""
        if self.total is None and inner.best_text:
            self.best, self.objective, self.best_text = inner.best, inner.objective, inner.best_text
            self._notify()

    def _notify(self) -> None:
        self.callback(", ".join(filter(None, (self.text, self.detail, self.best_text))), self.done, self.total)


def _ignore_progress(words: str, done: int, total: int | None) -> None:
    """Ignore progress."""


@contextmanager
def listening(callback: ProgressCallback) -> Iterator[None]:
    """Call a function at every step instead of showing a progress bar.

    Examples
    --------
    >>> heard = []
    >>> with listening(lambda *said: heard.append(said)), track_progress("fitting", 2) as advance:
    ...     advance(1, "first start")
    >>> heard
    [('fitting', 0, 2), ('fitting, first start', 1, 2)]
    """
    _callbacks.append(callback)
    try:
        yield
    finally:
        _callbacks.remove(callback)


def hide_progress() -> AbstractContextManager[None]:
    """Hide all progress bars.

    Examples
    --------
    >>> with hide_progress(), track_progress("fitting") as advance:
    ...     advance(1, "first start")
    """
    return listening(_ignore_progress)


def report_best_value(objective: Any, name: str, value: float) -> None:
    """Report the value that a search has reached; for each objective, the highest value is shown.

    Examples
    --------
    >>> heard = []
    >>> with listening(lambda *said: heard.append(said[0])), track_progress("fitting"):
    ...     for value in (-3.0, 2.0, 1.0):
    ...         report_best_value(_Task, "height", value)
    >>> heard
    ['fitting', 'fitting, height -3.000', 'fitting, height 2.000']
    """
    if _active_tasks:
        _active_tasks[-1].report_best_value(objective, name, value)


@contextmanager
def track_progress(text: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Yield a function ``advance(amount, what)`` that completes steps, with an optional message.

    On a terminal, a bar shows both after a second. It also moves during a long step. Bars are not nested: the outer bar
    shows the progress of inner tasks, unless it counts steps itself.
    """
    with _progress_callback(text, total) as hear:
        step = _Task(text, total, hear)
        _active_tasks.append(step)
        try:
            yield step.advance
        finally:
            _active_tasks.remove(step)
            if _active_tasks:
                _active_tasks[-1].adopt_result(step)


@contextmanager
def _progress_callback(text: str, total: int | None) -> Iterator[ProgressCallback]:
    """Yield the callback for the steps of a task: a listener, a bar, or one that ignores them."""
    if _callbacks:
        yield _callbacks[-1]
    elif _visible_lines:
        bar, line, count = _visible_lines[-1]
        if count is not None:
            yield _ignore_progress
            return
        bar.update(line, visible=False)
        try:
            with _bar_line(bar, text, total) as hear:
                # Keep the elapsed time.
                bar.tasks[-1].start_time = bar.tasks[0].start_time
                yield hear
        finally:
            bar.update(line, visible=True)
    elif not sys.stderr.isatty():
        yield _ignore_progress
    else:
        with _delayed_bar() as bar, _bar_line(bar, text, total) as hear:
            yield hear


@contextmanager
def _delayed_bar() -> Iterator[Any]:
    """Yield a bar that is shown if the task takes long."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    columns = SpinnerColumn(), text, BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    patience = Timer(_BAR_DELAY_SECONDS, bar.start)
    patience.daemon = True
    patience.start()
    try:
        yield bar
    finally:
        patience.cancel()
        patience.join()
        bar.live.stop()


@contextmanager
def _bar_line(bar: Any, text: str, total: int | None) -> Iterator[ProgressCallback]:
    """Yield a function that shows the progress of a task in a line of a bar."""
    task = bar.add_task(text, total=total)
    known = (bar, task, total)
    _visible_lines.append(known)
    try:
        yield lambda words, done, total: bar.update(task, completed=done, description=words)
    finally:
        _visible_lines.remove(known)
        bar.remove_task(task)
