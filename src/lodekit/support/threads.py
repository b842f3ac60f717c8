"""Limits on the number of threads of linear algebra libraries (BLAS and OpenMP)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_LOCK = Lock()
#: The number of active callers, and the limits to restore after the last of them.
_LIMIT_STATE: dict[str, Any] = {"count": 0, "limits": None}
#: The controller of the loaded libraries, and the number of modules when it was created.
_CONTROLLER_CACHE: dict[str, Any] = {"modules": 0, "controller": None}
#: Libraries with OpenMP threads have one limit for each calling thread; those with other layers one for the process.
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
    """Return the libraries of this process; they are searched again only if modules were imported since."""
    modules = len(sys.modules)
    if modules != _CONTROLLER_CACHE["modules"]:
        _CONTROLLER_CACHE.update(controller=threadpoolctl.ThreadpoolController(), modules=modules)
    return _CONTROLLER_CACHE["controller"]


def _release_controlling_thread(threadpoolctl: Any) -> None:
    """Let any thread set the limit: newer versions silently reserve this for the first thread that did so."""
    controller: Any = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(controller, "clear_controlling_thread"):
        controller.clear_controlling_thread(force=True)
