"""Progress on standard error, where a person waits longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["steps"]

_PATIENCE = 1.0


@contextmanager
def steps(text: str, total: int | None) -> Iterator[Callable[[str], None]]:
    """Lend a function that says what has been done; a bar shows it on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=total)
    patience = Timer(_PATIENCE, bar.start)
    patience.daemon = True
    patience.start()

    def advance(what: str) -> None:
        bar.update(task, advance=1, description=f"{text}: {what}")

    try:
        yield advance
    finally:
        patience.cancel()
        patience.join()
        bar.stop()
