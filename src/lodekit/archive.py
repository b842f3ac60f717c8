"""Plain values and arrays in one archive: JSON and NumPy's format, never pickle, with bounds on what comes out of it.

A file may come from anywhere. What it says about its own size is checked before anything of that size is made: packed
zeros are a thousand times larger than their archive, and an array may claim more numbers than there is memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from textwrap import shorten
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from lodekit.errors import LodekitError
from lodekit.files import write_file

__all__ = ["StorageError", "check_types", "pack", "unpack"]

_VALUES, _ARRAYS, _CHECKSUM = "model.json", "arrays.npz", "sha256"
#: How large an archive may become: measurements seldom shrink to a fifth, and a small file may hold many equal numbers.
_MOST_GROWTH = 20
_SMALL = 64 << 20
#: Texts of a system and of its arguments are short.
_MOST_VALUES = 16 << 20
_MOST_MEMBERS = 100_000
_MOST_WHOLE = 2**53


class StorageError(LodekitError):
    """A file that cannot be written, or is not a saved model."""


def pack(path: str | Path, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write plain values and arrays to one file; an interrupted write leaves the old file as it was.

    Parameters
    ----------
    path : str or Path
        The file; an old one is replaced.
    values : dict
        What JSON can hold, and NumPy's numbers.
    arrays : dict of str to array
    """
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
        archive.writestr(_VALUES, content)
        archive.writestr(_ARRAYS, numbers)
        archive.writestr(_CHECKSUM, _checksum(content, numbers))
    write_file(target, whole.getvalue(), StorageError)


def unpack(path: str | Path, what: str = "a saved lodekit model") -> tuple[Any, dict[str, Any], bool]:
    """Return the plain values and the arrays of an archive, and whether it has a checksum; a wrong one is an error.

    Parameters
    ----------
    path : str or Path
        What `pack` has written, or anything else.
    what : str
        What it should be, for messages.
    """
    source = _as_path(path)
    try:
        if source.exists() and not source.is_file():
            raise StorageError(f"cannot read {source}: expected a file, got a folder, a pipe or a device")
        with zipfile.ZipFile(source) as archive:
            room = max(_SMALL, _MOST_GROWTH * source.stat().st_size)
            content = _read_member(archive, _VALUES, min(room, _MOST_VALUES))
            numbers = _read_member(archive, _ARRAYS, room)
            checked = _CHECKSUM in archive.namelist()
            if checked and _read_member(archive, _CHECKSUM, 1 << 10).decode() != _checksum(content, numbers):
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


def _read_member(archive: zipfile.ZipFile, name: str, room: int) -> bytes:
    """Return what an archive holds under a name; its size, which it cannot exceed, is looked at before."""
    item = archive.getinfo(name)
    if item.file_size > room:
        raise ValueError(f"{name} would take {item.file_size:,} bytes in memory, which is out of proportion")
    return archive.read(item)


def _read_arrays(numbers: bytes, room: int) -> dict[str, Any]:
    """Return the arrays of NumPy's archive; none is larger than the bytes that are there for it."""
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(numbers)) as archive:
        items = archive.infolist()
        total = sum(item.file_size for item in items)
        if len(items) > _MOST_MEMBERS or total > room:
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

    Parameters
    ----------
    value : object
    hint : type
        A dataclass, ``str``, ``bool``, ``int``, ``float``, or a tuple, mapping or union of these.

    Examples
    --------
    >>> check_types((1.0, 2), tuple[float, ...])
    >>> check_types({"x": "1"}, dict[str, float])
    Traceback (most recent call last):
    TypeError: expected float, got '1'
    """
    parts = get_args(hint)
    if isinstance(hint, UnionType):
        if not any(_is_of(value, part) for part in parts):
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
    elif not (_is_number(value, hint) if hint in (int, float) else type(value) is hint):
        raise TypeError(f"expected {getattr(hint, '__name__', hint)}, got {shorten(repr(value), 60)}")


def _is_of(value: object, hint: Any) -> bool:
    try:
        check_types(value, hint)
    except TypeError:
        return False
    return True


def _is_number(value: object, hint: type) -> bool:
    # A whole number beyond is exact in JSON and in Python, and in no array.
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= _MOST_WHOLE
    return hint is float and isinstance(value, float)
