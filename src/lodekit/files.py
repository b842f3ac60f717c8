"""Files are written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from lodekit.errors import LodekitError

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where a file that is open cannot be removed: that says as much as a lock
    flock = None  # type: ignore[assignment]

__all__ = ["MODEL", "check_folder", "make_folder", "set_aside", "write_file"]

#: What a fitted model is called in the folder of its fit.
MODEL = "model.lodekit"

#: Names that are tried for a new file; another writer has to take each of them away.
_ATTEMPTS = 100


def write_file(path: str | Path, content: str | bytes, error: type[LodekitError] = LodekitError) -> None:
    """Write a file whole or not at all: an interrupted write leaves what was there before, and nothing else.

    What was written is on the disk before it takes the place of the old file. A process that is killed while it writes
    leaves a part of the new file beside the old one; the next write to the same file removes it.

    Parameters
    ----------
    path : str or Path
        An old file is replaced; what a link names is replaced, and the link stays.
    content : str or bytes
        Text is written as UTF-8.
    error : type
        The class of error that is raised where the file cannot be written.
    """
    try:
        data = content.encode("utf-8") if isinstance(content, str) else content
        # A link stays a link; what it names is replaced.
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            _write_through(target, data)
        else:
            _remove_leftovers(target)
            _write_beside(target, data)
    except (OSError, ValueError) as problem:  # the latter for names, or texts, that no file can have
        raise error(f"cannot write {path}: {getattr(problem, 'strerror', None) or problem}") from None


def _write_beside(target: Path, data: bytes) -> None:
    """Write a part beside a file, and put it in its place."""
    handle, part = _open_part(target)
    try:
        try:
            with os.fdopen(handle, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(handle)
            if flock is not None:
                # While it is open it is locked, and nobody takes it for a leftover.
                part.replace(target)
        finally:
            os.close(handle)
        if flock is None:
            part.replace(target)
        _sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _open_part(target: Path) -> tuple[int, Path]:
    """Return a new file beside another, open and locked, with the rights that any new file gets."""
    for _ in range(_ATTEMPTS):
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            handle = os.open(part, flags, 0o666)
        except FileExistsError:
            continue
        if _lock(handle) and part.exists():
            return handle, part
        # Somebody took it for a leftover before it was locked.
        os.close(handle)
    raise FileExistsError("no name was left for a new file")


def _lock(handle: int) -> bool:
    """Return whether a file could be locked; where there are no locks it counts as locked."""
    if flock is None:
        return True
    try:
        flock(handle, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _remove_leftovers(target: Path) -> None:
    """Remove what killed writes to a file have left beside it; a part that is still being written is locked."""
    with suppress(OSError), os.scandir(target.parent) as entries:
        pattern = re.compile(rf"\.{re.escape(target.name)}\.\w+\.part")
        for part in [target.with_name(entry.name) for entry in entries if pattern.fullmatch(entry.name)]:
            with suppress(OSError):
                handle = os.open(part, os.O_WRONLY)
                try:
                    if flock is not None:
                        flock(handle, LOCK_EX | LOCK_NB)
                        part.unlink()
                finally:
                    os.close(handle)
                if flock is None:
                    part.unlink()


def _sync_folder(folder: Path) -> None:
    """Have the new name of a file on the disk, where folders can be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_through(target: Path, data: bytes) -> None:
    """Write to a device or a pipe, which must not be replaced."""
    with target.open("wb") as file:
        file.write(data)


def check_folder(path: str | Path) -> None:
    """Raise where results could not be written to a folder; nothing is made yet.

    Parameters
    ----------
    path : str or Path
        The folder; it need not exist.
    """
    folder = Path(path)
    try:
        if folder.exists() and not folder.is_dir():
            raise LodekitError(f"expected a folder for the results, {folder} is a file; try another name")
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    except OSError as problem:  # such as a name that is too long
        raise LodekitError(f"cannot write to {folder}: {problem.strerror or problem}; try another folder") from None
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise LodekitError(f"cannot write to {folder}: {there} does not allow it; try another folder")


def make_folder(path: str | Path) -> Path:
    """Return a folder, made with its parents where it was not there; raise where that is not allowed.

    Parameters
    ----------
    path : str or Path
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:
        raise LodekitError(f"cannot write to {folder}: {getattr(problem, 'strerror', None) or problem}") from None
    return folder


def set_aside(folder: str | Path, contents: Mapping[str, str | bytes], others: Iterable[str] = ()) -> Path | None:
    """Move files that would be replaced to a folder of their own inside, ``earlier-1`` or the next; return it.

    Nothing is moved, and None returned, where there are none, or all that are there hold the same already.

    Parameters
    ----------
    folder : str or Path
        Where files are about to be written.
    contents : dict of str to str or bytes
        What is about to be written, by name.
    others : iterable of str
        Names of files that belong to those, and go with them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("old")
    ...     same, moved = set_aside(folder, {"a.txt": "old"}), set_aside(folder, {"a.txt": "new"})
    ...     same is None, moved.name, Path(moved, "a.txt").read_text(), Path(folder, "a.txt").exists()
    (True, 'earlier-1', 'old', False)
    """
    place = Path(folder)
    there = [name for name in dict.fromkeys((*contents, *others)) if (place / name).is_file()]
    if not any(_differs(place / name, contents[name]) for name in there if name in contents):
        return None
    numbers = (re.fullmatch(r"earlier-(\d+)", path.name) for path in place.iterdir())
    aside = place / f"earlier-{1 + max((int(found[1]) for found in numbers if found), default=0)}"
    try:
        aside.mkdir()
        for name in there:
            (place / name).rename(aside / name)
    except OSError as problem:
        raise LodekitError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    return aside


def _differs(path: Path, content: str | bytes) -> bool:
    try:
        return path.read_bytes() != (content.encode("utf-8") if isinstance(content, str) else content)
    except OSError:
        return True
