"""Long work in processes of their own, which can be watched and ended; one waits for the next task, ready to begin."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.studio.companion import Company
from lodekit.studio.worker import PROGRESS, REQUEST, RESULT

__all__ = ["Job", "Progress", "Workshop", "read_result"]

#: Seconds that a task may take.
LIMIT = 600.0
_LARGEST = 64 << 20


@dataclass(frozen=True)
class Progress:
    """How far a task has come.

    Parameters
    ----------
    words : str
        What is being done.
    share : float
        Of the whole, between zero and one, as far as that is known.
    seconds : float
        Since it began.
    """

    words: str
    share: float
    seconds: float


class Job:
    """A task in a process of its own.

    Parameters
    ----------
    folder : Path
        Where it reads and writes.
    task : str
        What is done.
    process : Popen
        That waits for the name of the folder.
    limit : float
        Seconds that it may take.
    """

    def __init__(self, folder: Path, task: str, process: subprocess.Popen[str], limit: float = LIMIT) -> None:
        self.folder, self.task, self.limit = folder, task, limit
        self.began = time.monotonic()
        self._process = process
        self._ended = ""
        assert process.stdin is not None  # noqa: S101 - it was opened so
        with suppress(OSError):
            process.stdin.write(f"{folder}\n")
            process.stdin.close()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; one that takes too long is ended here."""
        if self._process.poll() is not None:
            return False
        if time.monotonic() - self.began > self.limit:
            self._end(f"This took longer than {self.limit:.0f} seconds and was ended; nothing that you typed is lost.")
            return False
        return True

    def progress(self) -> Progress:
        """Return how far it has come."""
        words, share = "starting", 0.0
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads((self.folder / PROGRESS).read_text(encoding="utf-8"))
            words, total = str(said["words"]), said["total"]
            share = min(said["done"] / total, 1.0) if total else 0.0
        return Progress(words, share, time.monotonic() - self.began)

    def cancel(self) -> None:
        """End it; what was typed stays."""
        self._end("Cancelled.")

    def _end(self, why: str) -> None:
        self._ended = why
        self._process.kill()
        self._process.wait()

    def result(self) -> dict[str, Any]:
        """Return what came of it; under ``trouble`` what went wrong, in words."""
        if self._ended:
            return {"trouble": self._ended}
        return read_result(self.folder)


def read_result(folder: Path) -> dict[str, Any]:
    """Return what a task has left in a folder; under ``trouble`` what went wrong, in words."""
    try:
        if (folder / RESULT).stat().st_size > _LARGEST:
            return {"trouble": "The result is too large to be shown."}
        found = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"trouble": "This computation ended without a result; perhaps there was not enough memory."}
    if not isinstance(found, dict):
        return {"trouble": "This computation left something that is no result."}
    return found


class Workshop:
    """Where tasks are done: so many at a time, and one process that is ready for the next.

    Parameters
    ----------
    most : int
        How many tasks may run at the same time.
    """

    def __init__(self, most: int = 4) -> None:
        self.most = most
        #: Who computes for each session, between its tasks.
        self.company = Company()
        self._lock = threading.Lock()
        self._ready: subprocess.Popen[str] | None = None
        self._running: list[Job] = []

    def prepare(self) -> None:
        """Have a process ready for the next task, and a companion for the next session."""
        self.company.prepare()
        self._prepare()

    def _prepare(self) -> None:
        with self._lock:
            if self._ready is None or self._ready.poll() is not None:
                self._ready = _start()

    def begin(self, folder: Path, wanted: Mapping[str, Any], limit: float = LIMIT) -> Job:
        """Begin a task, and return it.

        Parameters
        ----------
        folder : Path
            Where it reads and writes.
        wanted : dict
            Plain values: the ``task``, and what it needs.
        limit : float
            Seconds that it may take.
        """
        (folder / RESULT).unlink(missing_ok=True)
        (folder / PROGRESS).unlink(missing_ok=True)
        write_file(folder / REQUEST, json.dumps(wanted))
        with self._lock:
            self._running = [job for job in self._running if job.is_running]
            if len(self._running) >= self.most:
                raise LodekitError(f"{self.most} computations are running here already; try again in a moment")
            ready = self._ready if self._ready is not None and self._ready.poll() is None else _start()
            self._ready = None
            job = Job(folder, str(wanted["task"]), ready, limit)
            self._running.append(job)
        self._prepare()
        return job

    def close(self) -> None:
        """End everything that runs."""
        self.company.close()
        with self._lock:
            for job in self._running:
                if job.is_running:
                    job.cancel()
            if self._ready is not None:
                self._ready.kill()
                self._ready.communicate()
            self._running, self._ready = [], None


def _start() -> subprocess.Popen[str]:
    """Return a process that has what it needs, and waits for a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "lodekit.studio.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
