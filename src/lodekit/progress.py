"""Progress on standard error, where a person waits longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["listening", "waiting"]

#: Seconds before a bar is shown.
_PATIENCE = 1.0
#: The bar that is there, or about to be; never two.
_shown: list[object] = []
#: Who wants to hear of every step; the last one does.
_listeners: list[Callable[[str, int, int | None], None]] = []


def _no_advance(amount: int = 1, what: str = "") -> None:
    """Count nothing."""


def _telling(hear: Callable[[str, int, int | None], None], text: str, total: int | None) -> Callable[..., None]:
    """Return a function that counts steps, and tells a listener of each."""
    done = 0
    hear(text, done, total)

    def advance(amount: int = 1, what: str = "") -> None:
        nonlocal done
        done += amount
        hear(f"{text}, {what}" if what else text, done, total)

    return advance


@contextmanager
def listening(hear: Callable[[str, int, int | None], None]) -> Iterator[None]:
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
def waiting(text: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Yield a function ``advance(amount, what)`` that counts steps done and may say what they led to.

    A bar shows both on a terminal, after a second. It also moves while a single step takes long; inside another bar
    there is no second one.

    Parameters
    ----------
    text : str
        What is waited for; it stands beside the bar.
    total : int, optional
        How many steps there are, where that is known.
    """
    if _listeners:
        yield _telling(_listeners[-1], text, total)
        return
    if _shown or not sys.stderr.isatty():
        yield _no_advance
        return
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
    task = bar.add_task(text, total=total)
    patience = Timer(_PATIENCE, bar.start)
    patience.daemon = True
    patience.start()
    _shown.append(bar)

    def advance(amount: int = 1, what: str = "") -> None:
        bar.update(task, advance=amount, description=f"{text}, {what}" if what else text)

    try:
        yield advance
    finally:
        _shown.remove(bar)
        patience.cancel()
        patience.join()
        bar.live.stop()
