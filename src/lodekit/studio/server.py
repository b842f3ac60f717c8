"""Processes of the web server that answer requests of pages, or run one background task.

The server only draws. Algebra, curves and fits run in separate processes, so that the page and all other sessions
continue if one of them ends or takes too long.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from lodekit.errors import LodekitError
from lodekit.studio.session import user_message
from lodekit.studio.worker import PROGRESS_FILE, RESULT_FILE

#: Seconds until a request is answered.
ANSWER_TIMEOUT_SECONDS = 60.0
PROCESS_ENDED_MESSAGE = """The computation ended twice without an answer, perhaps because there was not enough memory. \
Nothing that you typed is lost; change something to try again."""


class _ProcessEndedError(Exception):
    """A process ended before it answered."""


class ComputeProcess:
    """A process that answers requests one after another; it is restarted when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.last_request = time.monotonic()
        self.is_closed = False
        self._start()

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "lodekit.studio.compute"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._process: subprocess.Popen[bytes] | None = process
        self._replies: Queue[Any] = Queue()
        self._was_ready = False
        self._receiver = threading.Thread(target=_receive_loop, args=(process, self._replies), daemon=True)
        self._receiver.start()

    @property
    def pid(self) -> int | None:
        """The identifier of the process; None if it is not running."""
        return None if self._process is None else self._process.pid

    @property
    def is_free(self) -> bool:
        """Whether a request would be answered immediately: the process is ready and idle."""
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
            raise LodekitError("The server is shutting down.")
        if self._process is None:
            self._start()
        try:
            if not self._was_ready:
                # The first message means that the process has loaded its modules.
                self._receive(timeout=90.0)
                self._was_ready = True
            self._send((name, arguments))
            answer: tuple[str, Any] = self._receive(timeout)
        except Empty:
            self._kill()
            message = f"This took longer than {timeout:.0f} seconds and was stopped; try fewer data or fewer equations."
            raise LodekitError(message) from None
        return answer

    def _receive(self, timeout: float) -> Any:
        """Return the next message of the process; raise if it ends or sends nothing before the timeout."""
        message = self._replies.get(timeout=timeout)
        if message is None:
            raise _ProcessEndedError
        return message

    def _send(self, request: object) -> None:
        process = self._process
        try:
            if process is not None:
                pickle.dump(request, process.stdin)  # type: ignore[arg-type]
                process.stdin.flush()  # type: ignore[union-attr]
        except (OSError, ValueError):
            # It was closed meanwhile.
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
        """End the process permanently."""
        self.is_closed = True
        self._kill()


def _receive_loop(process: subprocess.Popen[bytes], replies: Queue[Any]) -> None:
    """Put all messages of a process into a queue, and None when it has ended."""
    try:
        while True:
            # Both ends are this program, and no other process can write here.
            replies.put(pickle.load(process.stdout))  # type: ignore[arg-type]  # noqa: S301
    except Exception:
        replies.put(None)
    process.stdout.close()  # type: ignore[union-attr]


def serve_requests(handlers: dict[str, Callable[..., Any]], warm_up: Callable[[], object]) -> None:
    """Answer requests from standard input on standard output, until the input ends."""
    # Output of libraries is discarded; only answers are written to the original standard output.
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
    process: A process without other requests, which ends with the task.
    timeout: The longest duration, in seconds.
    """

    def __init__(self, folder: Path, task: str, process: ComputeProcess, timeout: float) -> None:
        self.folder, self.task, self.timeout = folder, task, timeout
        self.start_time = time.monotonic()
        self._process = process
        self._end_reason = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._process.call("run_task", self.folder, timeout=self.timeout)
        except LodekitError as problem:
            self._end_reason = self._end_reason or str(problem)
        self._process.close()

    @property
    def is_running(self) -> bool:
        """Whether the task has not ended."""
        return self._thread.is_alive()

    def progress(self) -> tuple[str, float, float]:
        """Return the current activity, the completed fraction (zero if unknown), and the elapsed seconds."""
        text, fraction = "starting", 0.0
        with suppress(OSError, ValueError, KeyError, TypeError):
            progress = json.loads((self.folder / PROGRESS_FILE).read_text(encoding="utf-8"))
            text, total = str(progress["words"]), progress["total"]
            fraction = min(progress["done"] / total, 1.0) if total else 0.0
        return text, fraction, time.monotonic() - self.start_time

    def cancel(self) -> None:
        """End the task at the user's request."""
        self._end_reason = "Cancelled."
        self._process.close()
        self._thread.join()

    def result(self) -> dict[str, Any]:
        """Return the result; the key ``trouble`` contains an error message."""
        return {"trouble": self._end_reason} if self._end_reason else read_result(self.folder)


def read_result(folder: Path) -> dict[str, Any]:
    """Return the result of a task from its folder; the key ``trouble`` contains an error message."""
    try:
        result = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"trouble": "This computation ended without a result; perhaps there was not enough memory."}
    return result if isinstance(result, dict) else {"trouble": "This computation returned an invalid result."}
