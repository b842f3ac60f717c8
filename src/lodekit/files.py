"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex

from lodekit.errors import LodekitError

__all__ = ["check_folder", "make_folder", "write_file"]


def write_file(path: str | Path, content: str | bytes, error: type[LodekitError] = LodekitError) -> None:
    """Write a file whole or not at all: an interrupted write leaves what was there before, and nothing else.

    Parameters
    ----------
    path : str or Path
        An old file is replaced; what a link names is replaced, and the link stays.
    content : str or bytes
        Text is written as UTF-8.
    error : type
        The class of error that is raised where the file cannot be written.
    """
    # A link stays a link; what it names is replaced.
    target = Path(os.path.realpath(path))
    data = content.encode("utf-8") if isinstance(content, str) else content
    if target.exists() and not target.is_file() and not target.is_dir():
        _write_through(target, data, error)
        return
    try:
        # The system takes the rights that the user does not give from 0o666: to ask for these, one would have to change
        # them for the whole process.
        name = str(target.parent / f".{target.name}.{token_hex(8)}.part")
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except (OSError, ValueError) as problem:
        raise error(f"cannot write {target}: {getattr(problem, 'strerror', None) or problem}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(target)
    except OSError as problem:
        raise error(f"cannot write {target}: {problem.strerror or problem}") from None
    finally:
        Path(name).unlink(missing_ok=True)


def _write_through(target: Path, data: bytes, error: type[LodekitError]) -> None:
    """Write to a device or a pipe, which must not be replaced."""
    try:
        with target.open("wb") as file:
            file.write(data)
    except OSError as problem:
        raise error(f"cannot write {target}: {problem.strerror or problem}") from None


def check_folder(path: str | Path) -> None:
    """Raise where results could not be written to a folder; nothing is made yet.

    Parameters
    ----------
    path : str or Path
        The folder; it need not exist.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise LodekitError(f"expected a folder for the results, {folder} is a file; try another name")
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
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
    except OSError as problem:
        raise LodekitError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    return folder
