"""One thread for small matrices, agreed on by all who ask for it at the same time.

A limit on the threads of BLAS holds for the whole process. Whoever sets one, and puts back what was there before, puts
back the limit of another where two overlap; so the first to come sets it, and the last to leave takes it away.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from threadpoolctl import threadpool_limits

__all__ = ["one_thread"]

_lock = Lock()
#: By the kind of library: how many ask for one thread, and the limit that they share.
_held: dict[str, tuple[int, Any]] = {}


@contextmanager
def one_thread(library: str = "blas") -> Iterator[None]:
    """Let a library use one thread in this process for a while.

    What it may use afterwards is what it was before the first of all overlapping uses.

    Parameters
    ----------
    library : {"blas", "openmp"}

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread():
    ...     print({item["num_threads"] for item in threadpool_info() if item["user_api"] == "blas"} <= {1})
    True
    """
    with _lock:
        users, limit = _held.get(library, (0, None))
        _held[library] = (users + 1, limit if users else threadpool_limits(1, user_api=library))
    try:
        yield
    finally:
        with _lock:
            users, limit = _held[library]
            _held[library] = (users - 1, limit)
            if users == 1:
                limit.restore_original_limits()
                del _held[library]
