"""Where sessions are kept between two looks at the page: each under a name that nobody can guess, for a while."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lodekit.errors import LodekitError
from lodekit.studio.companion import Companion
from lodekit.studio.session import Session
from lodekit.studio.work import Job

__all__ = ["Room", "Shelf"]

_TOKEN = re.compile(r"[A-Za-z0-9_-]{22}")


class Room:
    """One session with its folder, its task, and what is kept ready for it.

    Parameters
    ----------
    token : str
        Its name.
    folder : Path
        Its files; nobody else has any there.
    """

    def __init__(self, token: str, folder: Path) -> None:
        self.token, self.folder = token, folder
        self.session = Session()
        self.job: Job | None = None
        #: Who was asked last, and has the measurements at hand.
        self.companion: Companion | None = None
        #: What went wrong last, in words, by step.
        self.trouble: dict[str, str] = {}
        self.seen = time.monotonic()
        #: Whether somebody has seen it; the file that the command was given is taken before.
        self.is_begun = False
        #: Uploads that were taken already.
        self.taken: list[str] = []
        self._kept: dict[str, tuple[object, Any]] = {}

    def keep(self, name: str, key: object, make: Callable[[], Any]) -> Any:
        """Return what is kept under a name, made anew where the key has changed.

        Parameters
        ----------
        name : str
        key : object
            All that it depends on.
        make : function
            Called without arguments.
        """
        found = self._kept.get(name)
        if found is None or found[0] != key:
            try:
                found = (key, make())
            except LodekitError as problem:
                # What cannot be made is not tried again until something changes.
                found = (key, problem)
            self._kept[name] = found
        if isinstance(found[1], LodekitError):
            # A new raise of an old exception: without the frames of all raises before.
            raise found[1].with_traceback(None)
        return found[1]

    def last(self, name: str) -> Any:
        """Return what is kept under a name, whatever it depends on; None where nothing is."""
        found = self._kept.get(name)
        return None if found is None else found[1]

    def clear(self) -> None:
        """Forget all that is kept ready and what went wrong, and end the task."""
        self._kept.clear()
        self.trouble.clear()
        if self.job is not None and self.job.is_running:
            self.job.cancel()
        self.job = None


class Shelf:
    """All sessions of a server: the newest ones, for a while.

    Parameters
    ----------
    most : int
        How many are kept.
    seconds : float
        For how long after somebody has last looked at them.
    folder : Path, optional
        Where their files are; a temporary folder by default.
    """

    def __init__(self, most: int = 50, seconds: float = 12 * 3600.0, folder: Path | None = None) -> None:
        self.most, self.seconds = most, seconds
        self._folder = Path(tempfile.mkdtemp(prefix="lodekit-studio-")) if folder is None else folder
        self._rooms: dict[str, Room] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rooms)

    def open(self, token: str = "") -> Room:
        """Return the session of a token, or a new one under a new token where there is none.

        Examples
        --------
        >>> shelf = Shelf()
        >>> room = shelf.open()
        >>> shelf.open(room.token) is room, shelf.open("guess") is room
        (True, False)
        >>> shelf.close()
        """
        with self._lock:
            room = self._rooms.pop(token, None) if _TOKEN.fullmatch(token) else None
            if room is None:
                name = secrets.token_urlsafe(16)
                room = Room(name, self._folder / secrets.token_hex(8))
                room.folder.mkdir(parents=True)
            # The one that was looked at last stands last.
            self._rooms[room.token] = room
            room.seen = time.monotonic()
            self._tidy()
        return room

    def _tidy(self) -> None:
        """Forget sessions that are too old, or too many."""
        now = time.monotonic()
        old = [room for room in self._rooms.values() if now - room.seen > self.seconds]
        old += list(self._rooms.values())[: max(len(self._rooms) - self.most, 0)]
        for room in dict.fromkeys(old):
            self._drop(room)

    def _drop(self, room: Room) -> None:
        self._rooms.pop(room.token, None)
        room.clear()
        shutil.rmtree(room.folder, ignore_errors=True)

    def close(self) -> None:
        """Forget everything, and remove all files."""
        with self._lock:
            for room in list(self._rooms.values()):
                self._drop(room)
            shutil.rmtree(self._folder, ignore_errors=True)
