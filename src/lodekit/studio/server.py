"""Processes beside the web server, and the sessions that it keeps.

The server only draws. Algebra, curves and fits run in processes of their own, so that the page and all other sessions
continue if one of them ends or takes too long.
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
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from lodekit.errors import LodekitError
from lodekit.studio.session import StudioSession, user_message
from lodekit.studio.worker import PROGRESS_FILE, REQUEST_FILE, RESULT_FILE
from lodekit.support.files import write_atomically

#: Seconds until a request is answered.
ANSWER_TIMEOUT_SECONDS = 20.0
#: Seconds until a background task ends.
TASK_TIMEOUT_SECONDS = 600.0
PROCESS_ENDED_MESSAGE = (
    "The process that computes for this page ended twice before it had an answer; perhaps there was not enough "
    "memory. Another one is ready: change something to try again. Nothing that you typed is lost."
)


class _ProcessEndedError(Exception):
    """A process ended before it answered."""


def _start_process(module: str, stdout: int) -> subprocess.Popen[bytes]:
    """Start a Python process that runs a module and reads requests from standard input."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class ComputeProcess:
    """A process that answers one request after another; it is started again when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.last_request = time.monotonic()
        self.is_closed = False
        self._start()

    def _start(self) -> None:
        process = _start_process("lodekit.studio.compute", subprocess.PIPE)
        self._process: subprocess.Popen[bytes] | None = process
        self._replies: Queue[Any] = Queue()
        self._was_ready = False
        self._receiver = threading.Thread(target=_receive_loop, args=(process, self._replies), daemon=True)
        self._receiver.start()

    @property
    def pid(self) -> int | None:
        """The identifier of the process; None if there is none now."""
        return None if self._process is None else self._process.pid

    @property
    def is_free(self) -> bool:
        """Whether a request would be answered at once: the process is ready and nobody waits for it."""
        is_ready = self._was_ready or not self._replies.empty()
        return not self._lock.locked() and self._process is not None and is_ready

    def call(self, name: str, *arguments: Any, timeout: float = ANSWER_TIMEOUT_SECONDS) -> Any:
        """Return the answer to a request; raise a LodekitError with a message for users if it fails."""
        with self._lock:
            self.last_request = time.monotonic()
            for _ in range(2):
                with suppress(_ProcessEndedError):
                    kind, answer = self._call(name, arguments, timeout)
                    if kind == "trouble":
                        raise LodekitError(answer)
                    return answer
                self._kill()
            raise LodekitError(PROCESS_ENDED_MESSAGE)

    def _call(self, name: str, arguments: tuple[Any, ...], timeout: float) -> tuple[str, Any]:
        if self.is_closed:
            raise LodekitError("The server is about to end.")
        if self._process is None:
            self._start()
        try:
            if not self._was_ready:
                # The first message says that the process has loaded its modules.
                self._receive(timeout=90.0)
                self._was_ready = True
            self._send((name, arguments))
            answer: tuple[str, Any] = self._receive(timeout)
        except Empty:
            self._kill()
            raise LodekitError(
                f"This took longer than {timeout:.0f} seconds and was ended; try something smaller. "
                "Nothing that you typed is lost."
            ) from None
        return answer

    def _receive(self, timeout: float) -> Any:
        """Return the next message of the process; raise if it ends or sends nothing before the timeout."""
        message = self._replies.get(timeout=timeout)
        if message is None:
            raise _ProcessEndedError
        return message

    def _send(self, request: object) -> None:
        try:
            pickle.dump(request, self._process.stdin)  # type: ignore[arg-type, union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except OSError:
            raise _ProcessEndedError from None

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            process.wait()
            self._receiver.join()

    def close(self) -> None:
        """End the process for good."""
        self.is_closed = True
        self._kill()


def _receive_loop(process: subprocess.Popen[bytes], replies: Queue[Any]) -> None:
    """Put all messages of a process into a queue, and None when it has ended."""
    try:
        while True:
            # Both ends are this program: no one else can write there.
            replies.put(pickle.load(process.stdout))  # type: ignore[arg-type]  # noqa: S301
    except Exception:
        replies.put(None)
    process.stdout.close()  # type: ignore[union-attr]


def serve_requests(handlers: dict[str, Callable[..., Any]], warm_up: Callable[[], object]) -> None:
    """Answer requests from standard input on standard output, until the input ends."""
    # What libraries print is discarded; only answers are written to the original standard output.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warm_up()
    pickle.dump("ready", answers)
    answers.flush()
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own server
        except (EOFError, OSError):
            return
        try:
            answer = "found", handlers[name](*arguments)
        except Exception as problem:
            answer = "trouble", user_message(problem)
        pickle.dump(answer, answers)
        answers.flush()


class BackgroundTask:
    """A task in a process of its own.

    folder: Contains the request, the progress and the result.
    task: The kind of task.
    process: Waits for the name of the folder.
    timeout: In seconds.
    """

    def __init__(self, folder: Path, task: str, process: subprocess.Popen[bytes], timeout: float) -> None:
        self.folder, self.task, self.timeout = folder, task, timeout
        self.start_time = time.monotonic()
        self._process = process
        self._end_reason = ""
        with suppress(OSError):
            process.stdin.write(f"{folder}\n".encode())  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]

    @property
    def is_running(self) -> bool:
        """Whether the task has not ended; a task that exceeds its time is ended here."""
        if self._process.poll() is not None:
            return False
        if time.monotonic() - self.start_time > self.timeout:
            self._kill(
                f"This took longer than {self.timeout:.0f} seconds and was ended; nothing that you typed is lost."
            )
            return False
        return True

    def progress(self) -> tuple[str, float, float]:
        """Return the current activity, the completed fraction as far as it is known, and the elapsed seconds."""
        text, fraction = "starting", 0.0
        with suppress(OSError, ValueError, KeyError, TypeError):
            progress = json.loads((self.folder / PROGRESS_FILE).read_text(encoding="utf-8"))
            text, total = str(progress["words"]), progress["total"]
            fraction = min(progress["done"] / total, 1.0) if total else 0.0
        return text, fraction, time.monotonic() - self.start_time

    def cancel(self) -> None:
        """End the task at the user's request."""
        self._kill("Cancelled.")

    def _kill(self, reason: str) -> None:
        self._end_reason = reason
        self._process.kill()
        self._process.wait()

    def result(self) -> dict[str, Any]:
        """Return the result; the key ``trouble`` contains an error message."""
        return {"trouble": self._end_reason} if self._end_reason else read_result(self.folder)


def read_result(folder: Path, max_bytes: int = 64 << 20) -> dict[str, Any]:
    """Return the result of a task from its folder; the key ``trouble`` contains an error message."""
    try:
        if (folder / RESULT_FILE).stat().st_size > max_bytes:
            return {"trouble": "The result is too large to be shown."}
        result = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"trouble": "This computation ended without a result; perhaps there was not enough memory."}
    return result if isinstance(result, dict) else {"trouble": "This computation left something that is no result."}


class ProcessPool:
    """The processes of a server: some answer requests of all sessions, others run one background task each.

    max_processes: The largest number of processes that answer requests; there is one at first.
    max_tasks: The largest number of simultaneous tasks; one further process is ready for the next.
    """

    def __init__(self, max_processes: int = 4, max_tasks: int = 4) -> None:
        self.max_processes, self.max_tasks = max_processes, max_tasks
        self._lock = threading.RLock()
        self._processes: list[ComputeProcess] = []
        self._idle_process: subprocess.Popen[bytes] | None = None
        self._running: list[BackgroundTask] = []

    def prepare(self) -> None:
        """Start a process for requests and one for the next task, unless there are some."""
        with self._lock:
            if not self._processes:
                self._processes.append(ComputeProcess())
            self._prepare_task()

    def _prepare_task(self) -> subprocess.Popen[bytes]:
        if self._idle_process is None or self._idle_process.poll() is not None:
            self._idle_process = _start_process("lodekit.studio.worker", subprocess.DEVNULL)
        return self._idle_process

    def choose(self, previous: ComputeProcess | None = None) -> ComputeProcess:
        """Return the process for the next request: the previous one if it is free, as it has the model at hand."""
        with self._lock:
            if not self._processes:
                self._processes.append(ComputeProcess())
            free = [process for process in self._processes if process.is_free]
            if previous in free:
                return previous
            if free:
                return min(free, key=lambda process: process.last_request)
            if len(self._processes) < self.max_processes and all(each.pid is not None for each in self._processes):
                # It serves later requests; to wait for it now would take longer than most answers.
                self._processes.append(ComputeProcess())
            return previous if previous in self._processes else self._processes[0]

    def start(self, folder: Path, request: Mapping[str, Any], timeout: float = TASK_TIMEOUT_SECONDS) -> BackgroundTask:
        """Start a task."""
        (folder / RESULT_FILE).unlink(missing_ok=True)
        (folder / PROGRESS_FILE).unlink(missing_ok=True)
        write_atomically(folder / REQUEST_FILE, json.dumps(request))
        with self._lock:
            self._running = [task for task in self._running if task.is_running]
            if len(self._running) >= self.max_tasks:
                raise LodekitError(f"{self.max_tasks} computations are running here already; try again in a moment")
            task = BackgroundTask(folder, str(request["task"]), self._prepare_task(), timeout)
            self._idle_process = None
            self._running.append(task)
            self._prepare_task()
        return task

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            for process in self._processes:
                process.close()
            for task in self._running:
                if task.is_running:
                    task.cancel()
            if self._idle_process is not None:
                self._idle_process.kill()
                self._idle_process.communicate()
            self._processes, self._running, self._idle_process = [], [], None


TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{22}")


class ServerSession:
    """A session on the server: its folder, its task and cached results.

    token: The name of the session.
    folder: The files of this session alone.
    """

    def __init__(self, token: str, folder: Path) -> None:
        self.token, self.folder = token, folder
        self.session = StudioSession()
        self.task: BackgroundTask | None = None
        #: The process that answered last and has the model in memory.
        self.compute_process: ComputeProcess | None = None
        #: Latest error messages by step.
        self.errors: dict[str, str] = {}
        self.last_access = time.monotonic()
        #: Whether the page was shown; the file of the command line is loaded before that.
        self.is_started = False
        #: Uploads that were processed already.
        self.uploaded_ids: list[str] = []
        self._cache: dict[str, tuple[object, Any]] = {}

    def get_or_compute(self, name: str, key: object, compute: Callable[[], Any]) -> Any:
        """Return the cached value of a name, computed again if the key has changed."""
        entry = self._cache.get(name)
        if entry is None or entry[0] != key:
            try:
                entry = (key, compute())
            except LodekitError as problem:
                # A failed computation is not repeated until something changes.
                entry = (key, problem)
            self._cache[name] = entry
        if isinstance(entry[1], LodekitError):
            # Drop the frames of earlier raises of the same exception.
            raise entry[1].with_traceback(None)
        return entry[1]

    def get_cached(self, name: str) -> Any:
        """Return the cached value of a name, whatever its key; None without one."""
        return self._cache.get(name, (None, None))[1]

    def clear(self) -> None:
        """Clear the cache and the errors, and end the task."""
        self._cache.clear()
        self.errors.clear()
        if self.task is not None and self.task.is_running:
            self.task.cancel()
        self.task = None


class SessionStore:
    """The most recent sessions of a server.

    max_sessions: The number of sessions that are kept.
    max_age_seconds: The time since the last access after which a session is removed.
    folder: Contains their files; a temporary folder by default.
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
        """Return the session of a token, or a new one with a new token if there is none."""
        with self._lock:
            session = self._sessions.pop(token, None) if TOKEN_PATTERN.fullmatch(token) else None
            if session is None:
                session = ServerSession(secrets.token_urlsafe(16), self._folder / secrets.token_hex(8))
                session.folder.mkdir(parents=True)
            # Sessions are ordered by their last access.
            self._sessions[session.token] = session
            session.last_access = now = time.monotonic()
            sessions = list(self._sessions.values())
            old = [each for each in sessions if now - each.last_access > self.max_age_seconds]
            for each in dict.fromkeys([*old, *sessions[: max(len(sessions) - self.max_sessions, 0)]]):
                self._remove(each)
        return session

    def _remove(self, session: ServerSession) -> None:
        self._sessions.pop(session.token, None)
        session.clear()
        shutil.rmtree(session.folder, ignore_errors=True)

    def close(self) -> None:
        """Remove all sessions and their files."""
        with self._lock:
            for session in list(self._sessions.values()):
                self._remove(session)
            shutil.rmtree(self._folder, ignore_errors=True)
