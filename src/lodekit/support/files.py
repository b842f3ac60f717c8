"""Files are written whole or not at all.

Plain values and arrays in one archive: JSON and NumPy's format, never pickle, with bounds on what comes out of it.

A file may come from anywhere. What it says about its own size is checked before anything of that size is made: packed
zeros are a thousand times larger than their archive, and an array may claim more numbers than there is memory.
"""

from __future__ import annotations

import hashlib
import io
import json
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

import numpy as np

from lodekit.errors import LodekitError

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where a file that is open cannot be removed: that says as much as a lock
    flock = None  # type: ignore[assignment]

#: What a fitted model is called in the folder of its fit.
MODEL_FILE = "model.lodekit"

#: Names that are tried for a new file; another writer has to take each of them away.
_MAX_NAME_ATTEMPTS = 100


def write_atomically(path: str | Path, content: str | bytes, error: type[LodekitError] = LodekitError) -> None:
    """Write a file whole or not at all: an interrupted write leaves what was there before, and nothing else.

    What was written is on the disk before it takes the place of the old file. A process that is killed while it writes
    leaves a part of the new file beside the old one; the next write to the same file removes it.
    """
    try:
        data = content.encode("utf-8") if isinstance(content, str) else content
        # A link stays a link; what it names is replaced.
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            _write_in_place(target, data)
        else:
            _remove_stale_temporaries(target)
            _write_and_replace(target, data)
    except (OSError, ValueError) as problem:  # the latter for names, or texts, that no file can have
        raise error(f"cannot write {path}: {getattr(problem, 'strerror', None) or problem}") from None


def _write_and_replace(target: Path, data: bytes) -> None:
    """Write a part beside a file, and put it in its place."""
    handle, part = _open_temporary(target)
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


def _open_temporary(target: Path) -> tuple[int, Path]:
    """Return a new file beside another, open and locked, with the rights that any new file gets."""
    for _ in range(_MAX_NAME_ATTEMPTS):
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


def _remove_stale_temporaries(target: Path) -> None:
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


def _write_in_place(target: Path, data: bytes) -> None:
    """Write to a device or a pipe, which must not be replaced."""
    with target.open("wb") as file:
        file.write(data)


def check_folder(path: str | Path) -> None:
    """Raise where results could not be written to a folder; nothing is made yet."""
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
    """Return a folder, made with its parents where it was not there; raise where that is not allowed."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:
        raise LodekitError(f"cannot write to {folder}: {getattr(problem, 'strerror', None) or problem}") from None
    return folder


def back_up_files(
    folder: str | Path, contents: Mapping[str, str | bytes], other_names: Iterable[str] = ()
) -> Path | None:
    """Move files that would be replaced to a folder of their own inside, ``earlier-1`` or the next; return it.

    Nothing is moved, and None returned, where there are none, or all that are there hold the same already.

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
#: How large an archive may become: measurements seldom shrink to a fifth, and a small file may hold many equal numbers.
_MAX_EXPANSION_RATIO = 20
_MIN_EXPANDED_BYTES = 64 << 20
#: Texts of a system and of its arguments are short.
_MAX_VALUES_BYTES = 16 << 20
_MAX_ARRAYS = 100_000
_MAX_EXACT_INTEGER = 2**53


class StorageError(LodekitError):
    """A file that cannot be written, or is not a saved model."""


def write_archive(path: str | Path, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write plain values and arrays to one file; an interrupted write leaves the old file as it was."""
    target = _as_path(path)
    try:
        text = json.dumps(values, indent=1, ensure_ascii=False, default=lambda value: value.item())
    except (AttributeError, TypeError, ValueError) as problem:
        raise StorageError(f"cannot save the arguments of this model: {problem}; use plain numbers and texts") from None
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **{name: np.asarray(array) for name, array in arrays.items()})
    content, numbers = text.encode("utf-8"), packed.getvalue()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_VALUES_MEMBER, content)
        archive.writestr(_ARRAYS_MEMBER, numbers)
        archive.writestr(_CHECKSUM_MEMBER, _checksum(content, numbers))
    write_atomically(target, whole.getvalue(), StorageError)


def read_archive(path: str | Path, what: str = "a saved lodekit model") -> tuple[Any, dict[str, Any], bool]:
    """Return the plain values and the arrays of an archive, and whether it has a checksum; a wrong one is an error."""
    source = _as_path(path)
    try:
        if source.exists() and not source.is_file():
            raise StorageError(f"cannot read {source}: expected a file, got a folder, a pipe or a device")
        with zipfile.ZipFile(source) as archive:
            room = max(_MIN_EXPANDED_BYTES, _MAX_EXPANSION_RATIO * source.stat().st_size)
            content = _read_member(archive, _VALUES_MEMBER, min(room, _MAX_VALUES_BYTES))
            numbers = _read_member(archive, _ARRAYS_MEMBER, room)
            checked = _CHECKSUM_MEMBER in archive.namelist()
            if checked and _read_member(archive, _CHECKSUM_MEMBER, 1 << 10).decode() != _checksum(content, numbers):
                raise StorageError(f"{source} was damaged or changed after it was saved: its checksum is another one")
        return json.loads(content), _read_arrays(numbers, room), checked
    except OSError as problem:
        raise StorageError(f"cannot read {source}: {problem.strerror or problem}") from None
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        EOFError,
        NotImplementedError,
        OverflowError,
        RecursionError,
        RuntimeError,
        TypeError,
    ) as problem:
        raise StorageError(f"{source} is not {what}: {problem}") from None


def _as_path(path: str | Path) -> Path:
    if not isinstance(path, str | Path):
        raise StorageError(f"expected the path of a file, got {type(path).__name__}")
    return Path(path)


def _checksum(content: bytes, numbers: bytes) -> str:
    # Both are read as they are written here, so where one ends and the other starts is no question.
    return hashlib.sha256(hashlib.sha256(content).digest() + hashlib.sha256(numbers).digest()).hexdigest()


def _read_member(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    """Return what an archive holds under a name; its size, which it cannot exceed, is looked at before."""
    item = archive.getinfo(name)
    if item.file_size > max_bytes:
        raise ValueError(f"{name} would take {item.file_size:,} bytes in memory, which is out of proportion")
    return archive.read(item)


def _read_arrays(numbers: bytes, max_bytes: int) -> dict[str, Any]:
    """Return the arrays of NumPy's archive; none is larger than the bytes that are there for it."""
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(numbers)) as archive:
        items = archive.infolist()
        total = sum(item.file_size for item in items)
        if len(items) > _MAX_ARRAYS or total > max_bytes:
            raise ValueError(f"{len(items):,} arrays with {total:,} bytes are out of proportion")
        for item in items:
            arrays[item.filename.removesuffix(".npy")] = _read_array(archive.read(item))
    return arrays


def _read_array(data: bytes) -> Any:
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"arrays of version {version} are not expected")
    shape, transposed, kind = np.lib.format.read_array_header_1_0(file, max_header_size=10_000)
    count = 1
    for size in shape:
        count *= size
    if kind.hasobject or count * kind.itemsize != len(data) - file.tell():
        raise ValueError(f"an array of shape {shape} does not have the numbers that it claims")
    # A copy, since arrays over a buffer cannot be written to.
    found = np.frombuffer(data, dtype=kind, offset=file.tell()).copy()
    return found.reshape(shape, order="F" if transposed else "C")


def check_types(value: object, hint: Any) -> None:
    """Raise TypeError where a value from a file is not what a dataclass says of it, all the way down.

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
    elif not (_is_exact_number(value, hint) if hint in (int, float) else type(value) is hint):
        raise TypeError(f"expected {getattr(hint, '__name__', hint)}, got {shorten(repr(value), 60)}")


def _has_type(value: object, hint: Any) -> bool:
    try:
        check_types(value, hint)
    except TypeError:
        return False
    return True


def _is_exact_number(value: object, hint: type) -> bool:
    # A whole number beyond is exact in JSON and in Python, and in no array.
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= _MAX_EXACT_INTEGER
    return hint is float and isinstance(value, float)
