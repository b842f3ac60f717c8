"""Atomic file writes, and archives of plain values and arrays (JSON and NumPy's format, never pickle).

Archives may come from anywhere, so their claimed sizes are checked before memory is allocated: compressed zeros expand
a thousandfold, and an array header may claim more numbers than fit into memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import secrets
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from textwrap import shorten
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from lodekit.errors import LodekitError
from lodekit.support.text import find_closest_name

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where an open file cannot be removed, which is as good as a lock
    flock = None  # type: ignore[assignment]

#: The file name of a fitted model in the folder of its fit.
MODEL_FILE = "model.lodekit"


def write_atomically(path: str | Path, content: str | bytes, error: type[LodekitError] = LodekitError) -> None:
    """Write a file atomically: an interrupted write leaves the old content.

    The data are synced to disk before they replace the old file. A killed process leaves a temporary file, which the
    next write to the same file removes.
    """
    try:
        data = content.encode("utf-8") if isinstance(content, str) else content
        # Keep a link and replace its target.
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            with target.open("wb") as file:  # a device or a pipe, which must not be replaced
                file.write(data)
        else:
            _remove_stale_temporaries(target)
            _write_and_replace(target, data)
    except (OSError, ValueError, TypeError) as problem:  # the latter for invalid names or texts
        raise error(f"cannot write {path}: {getattr(problem, 'strerror', None) or problem}") from None


def _write_and_replace(target: Path, data: bytes) -> None:
    """Write a temporary file and rename it to its target."""
    handle, part = _open_temporary(target)
    try:
        try:
            with os.fdopen(handle, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(handle)
            if flock is not None:
                # Rename while the file is locked, so that it is not removed as stale.
                part.replace(target)
        finally:
            os.close(handle)
        if flock is None:
            part.replace(target)
        _sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _open_temporary(target: Path) -> tuple[int, Path]:
    """Return a new open and locked temporary file next to a file, with default permissions."""
    for _ in range(100):
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            handle = os.open(part, flags, 0o666)
        except FileExistsError:
            continue
        if _lock(handle) and part.exists():
            return handle, part
        # Another process removed it as stale before it was locked.
        os.close(handle)
    raise FileExistsError("no unused name was found for a new file")


def _lock(handle: int) -> bool:
    """Lock a file and return whether that succeeded; systems without locks always succeed."""
    try:
        if flock is not None:
            flock(handle, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _remove_stale_temporaries(target: Path) -> None:
    """Remove temporary files of killed writes; those still being written are locked."""
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
    """Sync a folder to disk if the system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_folder(path: str | Path) -> None:
    """Raise if results cannot be written to a folder; nothing is created."""
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
    """Create a folder with its parents if needed, and return its path."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:
        raise LodekitError(f"cannot write to {folder}: {getattr(problem, 'strerror', None) or problem}") from None
    return folder


def back_up_files(
    folder: str | Path, contents: Mapping[str, str | bytes], other_names: Iterable[str] = ()
) -> Path | None:
    """Move files that are about to change to the subfolder ``earlier-1`` (or the next number) and return it.

    Returns None and moves nothing if no existing file changes.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("old")
    ...     same, moved = back_up_files(folder, {"a.txt": "old"}), back_up_files(folder, {"a.txt": "new"})
    ...     same is None, moved.name, Path(moved, "a.txt").read_text(), Path(folder, "a.txt").exists()
    (True, 'earlier-1', 'old', False)
    """
    place = Path(folder)
    there = [name for name in dict.fromkeys((*contents, *other_names)) if (place / name).is_file()]
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


_VALUES_MEMBER, _ARRAYS_MEMBER, _CHECKSUM_MEMBER = "model.json", "arrays.npz", "sha256"
#: Archives may always expand to this size, and larger ones twentyfold.
_MIN_EXPANDED_BYTES = 64 << 20
#: What reading a damaged archive raises.
_DAMAGE_ERRORS = zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, OverflowError, RuntimeError, TypeError


class StorageError(LodekitError):
    """A file that cannot be written, or is not a saved model."""


def write_archive(path: str | Path, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write plain values and arrays to one file, atomically."""
    import numpy as np

    target = _as_path(path)
    try:
        text = json.dumps(values, indent=1, ensure_ascii=False, default=lambda value: value.item())
    except (AttributeError, TypeError, ValueError) as problem:
        raise StorageError(f"cannot save the arguments of this model: {problem}; use plain numbers and texts") from None
    packed, whole = io.BytesIO(), io.BytesIO()
    np.savez(packed, allow_pickle=False, **{name: np.asarray(array) for name, array in arrays.items()})
    content, numbers = text.encode("utf-8"), packed.getvalue()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_VALUES_MEMBER, content)
        archive.writestr(_ARRAYS_MEMBER, numbers)
        archive.writestr(_CHECKSUM_MEMBER, _checksum(content, numbers))
    write_atomically(target, whole.getvalue(), StorageError)


def describe_read_error(problem: Exception) -> str:
    """Return why a file cannot be read; if there is none, with a similar name or the current folder."""
    reason = getattr(problem, "strerror", None) or str(problem)
    if not (isinstance(problem, FileNotFoundError) and problem.filename):
        return reason
    path = Path(problem.filename)
    closest = find_closest_name(path.name, os.listdir(path.parent) if path.parent.is_dir() else [])
    return f"{reason}; " + (f"did you mean {path.with_name(closest)}?" if closest else f"this folder is {Path.cwd()}")


def read_archive(path: str | Path, what: str = "a saved lodekit model") -> tuple[Any, dict[str, Any], bool]:
    """Return the values and arrays of an archive, and whether it has a checksum; raise if the checksum is wrong."""
    source = _as_path(path)
    try:
        if source.exists() and not source.is_file():
            raise StorageError(f"cannot read {source}: expected a file, got a folder, a pipe or a device")
        with zipfile.ZipFile(source) as archive:
            room = max(_MIN_EXPANDED_BYTES, 20 * source.stat().st_size)
            content = _read_member(archive, _VALUES_MEMBER, min(room, 16 << 20))
            numbers = _read_member(archive, _ARRAYS_MEMBER, room)
            checked = _CHECKSUM_MEMBER in archive.namelist()
            if checked and _read_member(archive, _CHECKSUM_MEMBER, 1 << 10).decode() != _checksum(content, numbers):
                raise StorageError(f"{source} was damaged or changed after it was saved: its checksum is another one")
        return json.loads(content), _read_arrays(numbers, room), checked
    except OSError as problem:
        raise StorageError(f"cannot read {source}: {describe_read_error(problem)}") from None
    except _DAMAGE_ERRORS as problem:
        reason = "expected a file that lodekit has saved" if isinstance(problem, zipfile.BadZipFile) else problem
        raise StorageError(f"{source} is not {what}: {reason}") from None


def _as_path(path: str | Path) -> Path:
    if not isinstance(path, str | Path):
        raise StorageError(f"expected the path of a file, got {type(path).__name__}")
    return Path(path)


def _checksum(content: bytes, numbers: bytes) -> str:
    # Hashing both digests separates the two parts unambiguously.
    return hashlib.sha256(hashlib.sha256(content).digest() + hashlib.sha256(numbers).digest()).hexdigest()


def _read_member(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    """Return a member of an archive after checking its size."""
    item = archive.getinfo(name)
    if item.file_size > max_bytes:
        raise ValueError(f"{name} would take {item.file_size:,} bytes in memory, which is out of proportion")
    return archive.read(item)


def _read_arrays(numbers: bytes, max_bytes: int) -> dict[str, Any]:
    """Return the arrays of an ``npz`` archive after checking their sizes."""
    with zipfile.ZipFile(io.BytesIO(numbers)) as archive:
        items = archive.infolist()
        total = sum(item.file_size for item in items)
        if len(items) > 100_000 or total > max_bytes:
            raise ValueError(f"{len(items):,} arrays with {total:,} bytes are out of proportion")
        return {item.filename.removesuffix(".npy"): _read_array(archive.read(item)) for item in items}


def _read_array(data: bytes) -> Any:
    import numpy as np

    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"arrays of version {version} are not expected")
    shape, transposed, kind = np.lib.format.read_array_header_1_0(file, max_header_size=10_000)
    if kind.hasobject or math.prod(shape) * kind.itemsize != len(data) - file.tell():
        raise ValueError(f"an array of shape {shape} does not have the numbers that it claims")
    # A copy, since arrays over a buffer cannot be written to.
    array = np.frombuffer(data, dtype=kind, offset=file.tell()).copy()
    return array.reshape(shape, order="F" if transposed else "C")


def check_types(value: object, hint: Any) -> None:
    """Raise TypeError if a value from a file does not match a type hint, recursively through dataclasses.

    Examples
    --------
    >>> check_types((1.0, 2), tuple[float, ...])
    >>> check_types({"x": "1"}, dict[str, float])
    Traceback (most recent call last):
    TypeError: expected float, got '1'
    """
    parts = get_args(hint)
    if isinstance(hint, UnionType):
        if not any(_has_type(value, part) for part in parts):
            raise TypeError(f"expected {hint}, got {shorten(repr(value), 60)}")
    elif isinstance(hint, type) and is_dataclass(hint) and isinstance(value, hint):
        for name, own in get_type_hints(hint).items():
            check_types(getattr(value, name), own)
    elif (origin := get_origin(hint)) is tuple and isinstance(value, tuple):
        kinds = parts[:1] * len(value) if Ellipsis in parts else parts
        if len(kinds) != len(value):
            raise TypeError(f"expected {len(kinds)} values, got {len(value)}")
        for item, kind in zip(value, kinds, strict=True):
            check_types(item, kind)
    elif origin is not None and isinstance(value, Mapping) and issubclass(origin, Mapping):
        for key, item in value.items():
            check_types(key, parts[0])
            check_types(item, parts[1])
    elif hint is not Any:
        is_valid = type(value) is hint or (hint is float and isinstance(value, float | int))
        if isinstance(value, int) and hint in (int, float):
            # Larger integers are exact in JSON and in Python, but not as floats.
            is_valid = not isinstance(value, bool) and abs(value) <= 2**53
        if not is_valid:
            raise TypeError(f"expected {getattr(hint, '__name__', hint)}, got {shorten(repr(value), 60)}")


def _has_type(value: object, hint: Any) -> bool:
    try:
        check_types(value, hint)
    except TypeError:
        return False
    return True
