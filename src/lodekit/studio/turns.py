"""One at a time: exact and linear algebra are not made for several threads, and a server has one for each page."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar

__all__ = ["in_turn"]

P = ParamSpec("P")
R = TypeVar("R")
_TURN = RLock()


def in_turn(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that waits until no other such function runs in this process."""

    @wraps(function)
    def waiting(*args: P.args, **kwargs: P.kwargs) -> R:
        with _TURN:
            return function(*args, **kwargs)

    return waiting
