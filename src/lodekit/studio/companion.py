"""Companions: processes beside the server, in which algebra and curves of all sessions are computed.

The server only draws. Whatever happens to a companion (too much memory, too long a computation, a fault in a library),
the page and everybody else's session live on, and another one takes its place.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue
from typing import Any

from lodekit.errors import LodekitError
from lodekit.studio.troubles import say_trouble

__all__ = ["LIMIT", "Companion", "Company"]

#: Seconds that an answer may take.
LIMIT = 20.0
#: Seconds until a process is ready to be asked.
_PATIENCE = 90.0
LOST = (
    "The process that computes for this page ended twice before it had an answer; perhaps there was not enough "
    "memory. Another one is ready: change something to try again. Nothing that you typed is lost."
)


class _LostError(Exception):
    """The process has ended before it answered."""


class _Helper:
    """A process, and what it says."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lodekit.studio.replies"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._is_ready = False
        self._said: Queue[Any] = Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        try:
            while True:
                # Both ends are this program: nobody else can write there.
                self._said.put(pickle.load(self.process.stdout))  # type: ignore[arg-type]  # noqa: S301
        except Exception:
            # It has ended, whatever it said last.
            self._said.put(None)
        self.process.stdout.close()  # type: ignore[union-attr]

    @property
    def has_begun(self) -> bool:
        """Whether it has said that it can be asked."""
        return self._is_ready or not self._said.empty()

    def wait(self, seconds: float) -> None:
        """Wait until it can be asked."""
        if not self._is_ready:
            self.hear(seconds)
            self._is_ready = True

    def hear(self, seconds: float) -> Any:
        """Return what it says next; raise where it ends, or says nothing for so long."""
        found = self._said.get(timeout=seconds)
        if found is None:
            raise _LostError
        return found

    def tell(self, request: object) -> None:
        """Send a request; raise where nobody is there."""
        try:
            pickle.dump(request, self.process.stdin)  # type: ignore[arg-type]
            self.process.stdin.flush()  # type: ignore[union-attr]
        except OSError:
            raise _LostError from None

    def end(self) -> None:
        """End it."""
        self.process.kill()
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()
        self._listener.join()


class Companion:
    """Somebody who computes, one thing after another, in a process that is started again when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: _Helper | None = _Helper()
        self.asked = time.monotonic()
        self.is_dismissed = False

    @property
    def pid(self) -> int | None:
        """The number of its process; None where it has none now."""
        return None if self._helper is None else self._helper.process.pid

    @property
    def is_free(self) -> bool:
        """Whether it would answer at once: nobody else waits, and its process is there."""
        helper = self._helper
        return not self._lock.locked() and helper is not None and helper.has_begun

    def ask(self, name: str, *arguments: Any, limit: float = LIMIT) -> Any:
        """Return the answer to a question; raise a LodekitError with what went wrong, in words.

        Parameters
        ----------
        name : str
            Of a function in `lodekit.studio.replies`.
        *arguments
            Plain values.
        limit : float
            Seconds that it may take.
        """
        with self._lock:
            self.asked = time.monotonic()
            for _ in range(2):
                with suppress(_LostError):
                    kind, found = self._ask(name, arguments, limit)
                    if kind == "trouble":
                        raise LodekitError(found)
                    return found
                self._end()
            raise LodekitError(LOST)

    def _ask(self, name: str, arguments: tuple[Any, ...], limit: float) -> tuple[str, Any]:
        if self.is_dismissed:
            raise LodekitError("The server is about to end.")
        if self._helper is None:
            self._helper = _Helper()
        helper = self._helper
        try:
            helper.wait(_PATIENCE)
            helper.tell((name, arguments))
            found: tuple[str, Any] = helper.hear(limit)
        except Empty:
            self._end()
            raise LodekitError(
                f"This took longer than {limit:.0f} seconds and was ended; try something smaller. "
                "Nothing that you typed is lost."
            ) from None
        return found

    def _end(self) -> None:
        if self._helper is not None:
            self._helper.end()
        self._helper = None

    def dismiss(self) -> None:
        """End it for good."""
        self.is_dismissed = True
        self._end()


class Company:
    """The companions of a server: one at first, more where all are busy.

    Parameters
    ----------
    most : int
        How many there are at most.
    """

    def __init__(self, most: int = 4) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._all: list[Companion] = []

    def prepare(self) -> None:
        """Have a companion ready."""
        with self._lock:
            if not self._all:
                self._all.append(Companion())

    def choose(self, last: Companion | None = None) -> Companion:
        """Return who is asked next: whoever was asked last, where that one is free, for it knows the subject.

        Parameters
        ----------
        last : Companion, optional
            Who was asked last.
        """
        self.prepare()
        with self._lock:
            free = [own for own in self._all if own.is_free]
            if last in free:
                return last
            if free:
                return min(free, key=lambda own: own.asked)
            if len(self._all) < self.most and all(own.pid is not None for own in self._all):
                # Whoever comes later will find one more; to wait for it now would take longer than most answers.
                self._all.append(Companion())
            return last if last in self._all else self._all[0]

    def close(self) -> None:
        """Dismiss all of them."""
        with self._lock:
            for own in self._all:
                own.dismiss()
            self._all = []


def answer_all(functions: dict[str, Callable[..., Any]], begin: Callable[[], object]) -> None:
    """Answer questions from standard input on standard output, until there are no more.

    Parameters
    ----------
    functions : dict of str to function
        What can be asked for.
    begin : function
        Called before the first question, to have ready what all of them need.
    """
    # Answers go where standard output went; whatever a library prints goes nowhere.
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    begin()
    pickle.dump("ready", answers)
    answers.flush()
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own server
        except (EOFError, OSError):
            return
        pickle.dump(_answer(functions[name], arguments), answers)
        answers.flush()


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "found", function(*arguments)
    except Exception as problem:
        return "trouble", say_trouble(problem)
