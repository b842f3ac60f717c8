"""Files are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lodekit.errors import LodekitError

__all__ = ["make_folder", "write_file"]


def write_file(path: str | Path, content: str | bytes, error: type[LodekitError] = LodekitError) -> None:
    """Write a file; an interrupted write leaves what was there before, and nothing else.

    Parameters
    ----------
    path : str or Path
    content : str or bytes
        Text is written as UTF-8.
    error : type
        What is raised where the file cannot be written.
    """
    target = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as problem:
        raise error(f"cannot write {target}: {problem.strerror or problem}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp keeps the file to its owner; results are shared like any other file.
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except OSError as problem:
        raise error(f"cannot write {target}: {problem.strerror or problem}") from None
    finally:
        Path(name).unlink(missing_ok=True)


def make_folder(path: str | Path) -> Path:
    """Return a folder that exists."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise LodekitError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    return folder
