"""Companions: processes beside the server, in which algebra and curves of all sessions are computed.

The server only draws. Whatever happens to a companion (too much memory, too long a computation, a fault in a library),
the page and everybody else's session live on, and another one takes its place.

Long work in processes of their own, which can be watched and ended; one waits for the next task, ready to begin.

Where sessions are kept between two looks at the page: each under a name that nobody can guess, for a while.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from lodekit.errors import LodekitError
from lodekit.studio.session import StudioSession, user_message
from lodekit.studio.worker import PROGRESS_FILE, REQUEST_FILE, RESULT_FILE
from lodekit.support.files import write_atomically

#: Seconds that an answer may take.
ANSWER_TIMEOUT_SECONDS = 20.0
#: Seconds until a process is ready to be asked.
STARTUP_TIMEOUT_SECONDS = 90.0
PROCESS_ENDED_MESSAGE = (
    "The process that computes for this page ended twice before it had an answer; perhaps there was not enough "
    "memory. Another one is ready: change something to try again. Nothing that you typed is lost."
)


class _ProcessEndedError(Exception):
    """The process has ended before it answered."""


class _Subprocess:
    """A process, and what it says."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lodekit.studio.compute"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._was_ready = False
        self._replies: Queue[Any] = Queue()
        self._receiver = threading.Thread(target=self._receive_loop, daemon=True)
        self._receiver.start()

    def _receive_loop(self) -> None:
        try:
            while True:
                # Both ends are this program: nobody else can write there.
                self._replies.put(pickle.load(self.process.stdout))  # type: ignore[arg-type]  # noqa: S301
        except Exception:
            # It has ended, whatever it said last.
            self._replies.put(None)
        self.process.stdout.close()  # type: ignore[union-attr]

    @property
    def is_ready(self) -> bool:
        """Whether it has said that it can be asked."""
        return self._was_ready or not self._replies.empty()

    def wait_until_ready(self, timeout: float) -> None:
        """Wait until it can be asked."""
        if not self._was_ready:
            self.receive(timeout)
            self._was_ready = True

    def receive(self, timeout: float) -> Any:
        """Return what it says next; raise where it ends, or says nothing for so long."""
        found = self._replies.get(timeout=timeout)
        if found is None:
            raise _ProcessEndedError
        return found

    def send(self, request: object) -> None:
        """Send a request; raise where nobody is there."""
        try:
            pickle.dump(request, self.process.stdin)  # type: ignore[arg-type]
            self.process.stdin.flush()  # type: ignore[union-attr]
        except OSError:
            raise _ProcessEndedError from None

    def kill(self) -> None:
        """End it."""
        self.process.kill()
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()
        self._receiver.join()


class ComputeProcess:
    """Somebody who computes, one thing after another, in a process that is started again when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subprocess: _Subprocess | None = _Subprocess()
        self.last_request = time.monotonic()
        self.is_closed = False

    @property
    def pid(self) -> int | None:
        """The number of its process; None where it has none now."""
        return None if self._subprocess is None else self._subprocess.process.pid

    @property
    def is_free(self) -> bool:
        """Whether it would answer at once: nobody else waits, and its process is there."""
        helper = self._subprocess
        return not self._lock.locked() and helper is not None and helper.is_ready

    def call(self, name: str, *arguments: Any, timeout: float = ANSWER_TIMEOUT_SECONDS) -> Any:
        """Return the answer to a question; raise a LodekitError with what went wrong, in words."""
        with self._lock:
            self.last_request = time.monotonic()
            for _ in range(2):
                with suppress(_ProcessEndedError):
                    kind, found = self._call(name, arguments, timeout)
                    if kind == "trouble":
                        raise LodekitError(found)
                    return found
                self._kill()
            raise LodekitError(PROCESS_ENDED_MESSAGE)

    def _call(self, name: str, arguments: tuple[Any, ...], timeout: float) -> tuple[str, Any]:
        if self.is_closed:
            raise LodekitError("The server is about to end.")
        if self._subprocess is None:
            self._subprocess = _Subprocess()
        helper = self._subprocess
        try:
            helper.wait_until_ready(STARTUP_TIMEOUT_SECONDS)
            helper.send((name, arguments))
            found: tuple[str, Any] = helper.receive(timeout)
        except Empty:
            self._kill()
            raise LodekitError(
                f"This took longer than {timeout:.0f} seconds and was ended; try something smaller. "
                "Nothing that you typed is lost."
            ) from None
        return found

    def _kill(self) -> None:
        if self._subprocess is not None:
            self._subprocess.kill()
        self._subprocess = None

    def close(self) -> None:
        """End it for good."""
        self.is_closed = True
        self._kill()


class ComputePool:
    """The companions of a server: one at first, more where all are busy.

    max_processes: How many there are at most.
    """

    def __init__(self, max_processes: int = 4) -> None:
        self.max_processes = max_processes
        self._lock = threading.Lock()
        self._processes: list[ComputeProcess] = []

    def prepare(self) -> None:
        """Have a companion ready."""
        with self._lock:
            if not self._processes:
                self._processes.append(ComputeProcess())

    def choose(self, previous: ComputeProcess | None = None) -> ComputeProcess:
        """Return who is asked next: whoever was asked last, where that one is free, for it knows the subject."""
        self.prepare()
        with self._lock:
            free = [own for own in self._processes if own.is_free]
            if previous in free:
                return previous
            if free:
                return min(free, key=lambda own: own.last_request)
            if len(self._processes) < self.max_processes and all(own.pid is not None for own in self._processes):
                # Whoever comes later will find one more; to wait for it now would take longer than most answers.
                self._processes.append(ComputeProcess())
            return previous if previous in self._processes else self._processes[0]

    def close(self) -> None:
        """Dismiss all of them."""
        with self._lock:
            for own in self._processes:
                own.close()
            self._processes = []


def serve_requests(handlers: dict[str, Callable[..., Any]], warm_up: Callable[[], object]) -> None:
    """Answer questions from standard input on standard output, until there are no more."""
    # Answers go where standard output went; whatever a library prints goes nowhere.
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    warm_up()
    pickle.dump("ready", answers)
    answers.flush()
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own server
        except (EOFError, OSError):
            return
        pickle.dump(_handle_request(handlers[name], arguments), answers)
        answers.flush()


def _handle_request(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "found", function(*arguments)
    except Exception as problem:
        return "trouble", user_message(problem)


#: Seconds that a task may take.
TASK_TIMEOUT_SECONDS = 600.0
MAX_RESULT_BYTES = 64 << 20


@dataclass(frozen=True)
class TaskProgress:
    """How far a task has come.

    text: What is being done.
    fraction: Of the whole, between zero and one, as far as that is known.
    seconds: Since it began.
    """

    text: str
    fraction: float
    seconds: float


class BackgroundTask:
    """A task in a process of its own.

    folder: Where it reads and writes.
    task: What is done.
    process: That waits for the name of the folder.
    timeout: Seconds that it may take.
    """

    def __init__(
        self, folder: Path, task: str, process: subprocess.Popen[str], timeout: float = TASK_TIMEOUT_SECONDS
    ) -> None:
        self.folder, self.task, self.timeout = folder, task, timeout
        self.start_time = time.monotonic()
        self._process = process
        self._end_reason = ""
        assert process.stdin is not None  # noqa: S101 - it was opened so
        with suppress(OSError):
            process.stdin.write(f"{folder}\n")
            process.stdin.close()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; one that takes too long is ended here."""
        if self._process.poll() is not None:
            return False
        if time.monotonic() - self.start_time > self.timeout:
            self._kill(
                f"This took longer than {self.timeout:.0f} seconds and was ended; nothing that you typed is lost."
            )
            return False
        return True

    def progress(self) -> TaskProgress:
        """Return how far it has come."""
        words, share = "starting", 0.0
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads((self.folder / PROGRESS_FILE).read_text(encoding="utf-8"))
            words, total = str(said["words"]), said["total"]
            share = min(said["done"] / total, 1.0) if total else 0.0
        return TaskProgress(words, share, time.monotonic() - self.start_time)

    def cancel(self) -> None:
        """End it; what was typed stays."""
        self._kill("Cancelled.")

    def _kill(self, reason: str) -> None:
        self._end_reason = reason
        self._process.kill()
        self._process.wait()

    def result(self) -> dict[str, Any]:
        """Return what came of it; under ``trouble`` what went wrong, in words."""
        if self._end_reason:
            return {"trouble": self._end_reason}
        return read_result(self.folder)


def read_result(folder: Path) -> dict[str, Any]:
    """Return what a task has left in a folder; under ``trouble`` what went wrong, in words."""
    try:
        if (folder / RESULT_FILE).stat().st_size > MAX_RESULT_BYTES:
            return {"trouble": "The result is too large to be shown."}
        found = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"trouble": "This computation ended without a result; perhaps there was not enough memory."}
    if not isinstance(found, dict):
        return {"trouble": "This computation left something that is no result."}
    return found


class TaskRunner:
    """Where tasks are done: so many at a time, and one process that is ready for the next.

    max_tasks: How many tasks may run at the same time.
    """

    def __init__(self, max_tasks: int = 4) -> None:
        self.max_tasks = max_tasks
        #: Who computes for each session, between its tasks.
        self.compute_pool = ComputePool()
        self._lock = threading.Lock()
        self._idle_process: subprocess.Popen[str] | None = None
        self._running: list[BackgroundTask] = []

    def prepare(self) -> None:
        """Have a process ready for the next task, and a companion for the next session."""
        self.compute_pool.prepare()
        self._start_idle_process()

    def _start_idle_process(self) -> None:
        with self._lock:
            if self._idle_process is None or self._idle_process.poll() is not None:
                self._idle_process = _start_worker()

    def start(self, folder: Path, request: Mapping[str, Any], timeout: float = TASK_TIMEOUT_SECONDS) -> BackgroundTask:
        """Begin a task, and return it."""
        (folder / RESULT_FILE).unlink(missing_ok=True)
        (folder / PROGRESS_FILE).unlink(missing_ok=True)
        write_atomically(folder / REQUEST_FILE, json.dumps(request))
        with self._lock:
            self._running = [job for job in self._running if job.is_running]
            if len(self._running) >= self.max_tasks:
                raise LodekitError(f"{self.max_tasks} computations are running here already; try again in a moment")
            ready = (
                self._idle_process
                if self._idle_process is not None and self._idle_process.poll() is None
                else _start_worker()
            )
            self._idle_process = None
            job = BackgroundTask(folder, str(request["task"]), ready, timeout)
            self._running.append(job)
        self._start_idle_process()
        return job

    def close(self) -> None:
        """End everything that runs."""
        self.compute_pool.close()
        with self._lock:
            for job in self._running:
                if job.is_running:
                    job.cancel()
            if self._idle_process is not None:
                self._idle_process.kill()
                self._idle_process.communicate()
            self._running, self._idle_process = [], None


def _start_worker() -> subprocess.Popen[str]:
    """Return a process that has what it needs, and waits for a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "lodekit.studio.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{22}")


class ServerSession:
    """One session with its folder, its task, and what is kept ready for it.

    token: Its name.
    folder: Its files; nobody else has any there.
    """

    def __init__(self, token: str, folder: Path) -> None:
        self.token, self.folder = token, folder
        self.session = StudioSession()
        self.task: BackgroundTask | None = None
        #: Who was asked last, and has the measurements at hand.
        self.compute_process: ComputeProcess | None = None
        #: What went wrong last, in words, by step.
        self.errors: dict[str, str] = {}
        self.last_access = time.monotonic()
        #: Whether somebody has seen it; the file that the command was given is taken before.
        self.is_started = False
        #: Uploads that were taken already.
        self.uploaded_ids: list[str] = []
        self._cache: dict[str, tuple[object, Any]] = {}

    def get_or_compute(self, name: str, key: object, compute: Callable[[], Any]) -> Any:
        """Return what is kept under a name, made anew where the key has changed."""
        found = self._cache.get(name)
        if found is None or found[0] != key:
            try:
                found = (key, compute())
            except LodekitError as problem:
                # What cannot be made is not tried again until something changes.
                found = (key, problem)
            self._cache[name] = found
        if isinstance(found[1], LodekitError):
            # A new raise of an old exception: without the frames of all raises before.
            raise found[1].with_traceback(None)
        return found[1]

    def get_cached(self, name: str) -> Any:
        """Return what is kept under a name, whatever it depends on; None where nothing is."""
        found = self._cache.get(name)
        return None if found is None else found[1]

    def clear(self) -> None:
        """Forget all that is kept ready and what went wrong, and end the task."""
        self._cache.clear()
        self.errors.clear()
        if self.task is not None and self.task.is_running:
            self.task.cancel()
        self.task = None


class SessionStore:
    """All sessions of a server: the newest ones, for a while.

    max_sessions: How many are kept.
    max_age_seconds: For how long after somebody has last looked at them.
    folder: Where their files are; a temporary folder by default.
    """

    def __init__(
        self, max_sessions: int = 50, max_age_seconds: float = 12 * 3600.0, folder: Path | None = None
    ) -> None:
        self.max_sessions, self.max_age_seconds = max_sessions, max_age_seconds
        self._folder = Path(tempfile.mkdtemp(prefix="lodekit-studio-")) if folder is None else folder
        self._sessions: dict[str, ServerSession] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, token: str = "") -> ServerSession:
        """Return the session of a token, or a new one under a new token where there is none.

        Examples
        --------
        >>> shelf = SessionStore()
        >>> room = shelf.open()
        >>> shelf.open(room.token) is room, shelf.open("guess") is room
        (True, False)
        >>> shelf.close()
        """
        with self._lock:
            room = self._sessions.pop(token, None) if TOKEN_PATTERN.fullmatch(token) else None
            if room is None:
                name = secrets.token_urlsafe(16)
                room = ServerSession(name, self._folder / secrets.token_hex(8))
                room.folder.mkdir(parents=True)
            # The one that was looked at last stands last.
            self._sessions[room.token] = room
            room.last_access = time.monotonic()
            self._expire_sessions()
        return room

    def _expire_sessions(self) -> None:
        """Forget sessions that are too old, or too many."""
        now = time.monotonic()
        old = [room for room in self._sessions.values() if now - room.last_access > self.max_age_seconds]
        old += list(self._sessions.values())[: max(len(self._sessions) - self.max_sessions, 0)]
        for room in dict.fromkeys(old):
            self._remove(room)

    def _remove(self, server_session: ServerSession) -> None:
        self._sessions.pop(server_session.token, None)
        server_session.clear()
        shutil.rmtree(server_session.folder, ignore_errors=True)

    def close(self) -> None:
        """Forget everything, and remove all files."""
        with self._lock:
            for room in list(self._sessions.values()):
                self._remove(room)
            shutil.rmtree(self._folder, ignore_errors=True)
