"""What went wrong, in words for people: a sentence, and never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

from lodekit.errors import LodekitError

__all__ = ["hide_folder", "say_trouble"]


def say_trouble(raised: Exception, folder: Path | None = None) -> str:
    """Return what is said on the page about an exception: what our own ones say, and one sentence for all others.

    Parameters
    ----------
    raised : Exception
    folder : Path, optional
        Where files are kept, of which nothing is said.

    Examples
    --------
    >>> say_trouble(LodekitError("expected two times, got one"))
    'expected two times, got one'
    >>> say_trouble(KeyError("x"))
    'Something unexpected went wrong here; nothing that you typed is lost.'
    """
    if isinstance(raised, LodekitError):
        return str(raised) if folder is None else hide_folder(str(raised), folder)
    if isinstance(raised, MemoryError):
        return "There is not enough memory for this; take fewer lines, or a shorter window."
    return "Something unexpected went wrong here; nothing that you typed is lost."


def hide_folder(text: str, folder: Path) -> str:
    """Return a message without the folder in which files are kept here: their names say enough.

    Parameters
    ----------
    text : str
    folder : Path

    Examples
    --------
    >>> hide_folder("/tmp/a7f3/log.csv: expected columns", Path("/tmp/a7f3"))
    'log.csv: expected columns'
    """
    for place in dict.fromkeys((folder, folder.resolve(), folder.parent, folder.parent.resolve())):
        text = text.replace(f"{place}{os.sep}", "").replace(str(place), "")
    return text
