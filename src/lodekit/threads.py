"""The threads of linear algebra: one while somebody asks for that, and as many as before once nobody does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

__all__ = ["one_thread"]

_LOCK = Lock()
#: How many callers are inside, and what brings back what was there before the first of them.
_STATE: dict[str, Any] = {"count": 0, "limits": None}


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS at one thread inside, whoever else does so at the same time.

    The number of threads belongs to the process. Callers in several threads that each remember what they found would
    remember the limits of each other, and the last one out would leave one thread for good: so they are counted, the
    first one in sets the limit, and the last one out lifts it.

    Examples
    --------
    >>> with one_thread():
    ...     pass
    """
    from threadpoolctl import threadpool_limits

    with _LOCK:
        if not _STATE["count"]:
            _STATE["limits"] = threadpool_limits(1, user_api="blas")
        _STATE["count"] += 1
    try:
        yield
    finally:
        with _LOCK:
            _STATE["count"] -= 1
            if not _STATE["count"]:
                _STATE["limits"].restore_original_limits()
