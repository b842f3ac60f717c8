"""What went wrong, in words for people: a sentence, and never a traceback."""

from __future__ import annotations

from lodekit.errors import LodekitError

__all__ = ["say_trouble"]


def say_trouble(raised: Exception) -> str:
    """Return what is said on the page about an exception: what our own ones say, and one sentence for all others.

    Examples
    --------
    >>> say_trouble(LodekitError("expected two times, got one"))
    'expected two times, got one'
    >>> say_trouble(KeyError("x"))
    'Something unexpected went wrong here; nothing that you typed is lost.'
    """
    if isinstance(raised, LodekitError):
        return str(raised)
    if isinstance(raised, MemoryError):
        return "There is not enough memory for this; take fewer lines, or a shorter window."
    return "Something unexpected went wrong here; nothing that you typed is lost."
