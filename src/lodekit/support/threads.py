"""Limits on the number of threads of linear algebra libraries (BLAS and OpenMP)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_LOCK = Lock()
#: How many callers are inside, and what brings back what was there before the first of them.
_LIMIT_STATE: dict[str, Any] = {"count": 0, "limits": None}
#: What was found of the libraries of this process, and how many modules there were then.
_CONTROLLER_CACHE: dict[str, Any] = {"modules": 0, "controller": None}
#: Libraries whose threads come from OpenMP have a number for each thread that calls them; others one for the process.
_PROCESS_WIDE_LAYERS = ["pthreads", "intel", "gnu", "tbb", "disabled", "not specified", "unknown"]


@contextmanager
def single_threaded_blas(library: str = "blas") -> Iterator[None]:
    """Limit linear algebra to one thread inside the context; safe to use from several threads at once.

    If every caller saved and restored the limit itself, the last one could restore the limit of another and leave the
    process at one thread. So callers are counted: the first one sets the limit and the last one restores it.

    Examples
    --------
    >>> with single_threaded_blas():
    ...     pass
    """
    import threadpoolctl

    every = _controller(threadpoolctl)
    if library == "openmp":
        with every.select(user_api="openmp").limit(limits=1):
            yield
        return
    blas = every.select(user_api="blas")
    with _LOCK:
        if not _LIMIT_STATE["count"]:
            _release_controlling_thread(threadpoolctl)
            _LIMIT_STATE["limits"] = blas.select(threading_layer=_PROCESS_WIDE_LAYERS).limit(limits=1)
        _LIMIT_STATE["count"] += 1
    try:
        with blas.select(threading_layer="openmp").limit(limits=1):
            yield
    finally:
        with _LOCK:
            _LIMIT_STATE["count"] -= 1
            if not _LIMIT_STATE["count"]:
                _release_controlling_thread(threadpoolctl)
                _LIMIT_STATE["limits"].restore_original_limits()
                _release_controlling_thread(threadpoolctl)


def _controller(threadpoolctl: Any) -> Any:
    """Return the libraries of this process; they are looked for again only where a module was imported since."""
    modules = len(sys.modules)
    if modules != _CONTROLLER_CACHE["modules"]:
        _CONTROLLER_CACHE.update(controller=threadpoolctl.ThreadpoolController(), modules=modules)
    return _CONTROLLER_CACHE["controller"]


def _release_controlling_thread(threadpoolctl: Any) -> None:
    """Let any thread set the number: newer versions keep that to the thread that did so first, without a word."""
    controller: Any = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(controller, "clear_controlling_thread"):
        controller.clear_controlling_thread(force=True)
