"""A whole session in one file: what was typed, the data, and every fit; bounded and checked when it is opened."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.archive import StorageError, pack, unpack
from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.model import LODEGP
from lodekit.studio.session import Session, read_session
from lodekit.studio.worker import PROGRESS, REQUEST, RESULT
from lodekit.studio.writing import SYSTEM
from lodekit.workflow import MODEL

__all__ = ["ENDING", "LARGEST", "check_session", "pack_session", "safe_name", "unpack_session", "weigh_session"]

ENDING = ".studio"
#: The largest file that is taken, in bytes.
LARGEST = 50 << 20
_MARK, _FORMAT = "lodekit-session", 1
#: What is kept of a fit.
_FILES = (REQUEST, RESULT, SYSTEM, MODEL)
#: Names of files and folders that stand beside the data in the folder of a session or of a fit.
_TAKEN = re.compile("|".join([*map(re.escape, (*_FILES, PROGRESS)), r"fit-\d+", "sliders", "free", "files"]))
#: More fits than a person makes; a session with more is none that the page has saved.
_MOST_FITS = 500


def safe_name(name: str) -> str:
    """Return the name of a file without folders and odd characters; ``log.csv`` where nothing is left of it.

    Parameters
    ----------
    name : str
        As somebody called it.

    Examples
    --------
    >>> safe_name("../../etc/pass wd.csv"), safe_name("")
    ('pass wd.csv', 'log.csv')
    """
    last = re.split(r"[\\/]", name)[-1]
    plain = re.sub(r"[^\w.,+() -]", "_", last).strip(". ")[-120:]
    return plain if plain and not _TAKEN.fullmatch(plain) else "log.csv"


def pack_session(session: Session, folder: Path) -> bytes:
    """Return a session as the content of one file.

    Parameters
    ----------
    session : Session
    folder : Path
        With its data file, and a folder for each of its fits.
    """
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "session")
        _pack(path, session, folder)
        return path.read_bytes()


def _pack(path: Path, session: Session, folder: Path) -> None:
    arrays = {name: np.frombuffer(file.read_bytes(), dtype=np.uint8) for name, file in _files(session, folder)}
    pack(path, {"kind": _MARK, "format": _FORMAT, "session": session.to_dict()}, arrays)


def _files(session: Session, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield all files of a session, with their names in its archive."""
    named = {"data": folder / session.file} if session.file else {}
    for number, name in enumerate(session.tray):
        named |= {f"fit{number}_{part}": folder / name / file for part, file in enumerate(_FILES)}
    return ((name, path) for name, path in named.items() if path.is_file())


def weigh_session(session: Session, folder: Path) -> int:
    """Return how many bytes the files of a session have before they are packed.

    Parameters
    ----------
    session : Session
    folder : Path
        Its files.
    """
    return sum(path.stat().st_size for _, path in _files(session, folder))


def check_session(session: Session, folder: Path) -> None:
    """Raise where a session that is saved now could not be opened again; packs it to see.

    Parameters
    ----------
    session : Session
    folder : Path
        Its files.
    """
    remedy = "take fits out of the comparison, or take models and data away one by one"
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "session")
        _pack(path, session, folder)
        if (size := path.stat().st_size) > LARGEST:
            raise LodekitError(f"this session could not be opened again: {_too_large(size)}; {remedy}")
        try:
            unpack(path)
        except StorageError:
            # Files of a few bytes that become very large ones are refused, wherever they come from.
            raise LodekitError(f"this session could not be opened again: its data repeat too much; {remedy}") from None


def _too_large(size: int) -> str:
    return f"expected a session of at most {LARGEST / 2**20:.1f} MB, got {size / 2**20:.1f} MB"


def unpack_session(content: bytes, folder: Path) -> Session:
    """Return the session in the content of a file, and write its data and its fits to a folder.

    Nothing there is changed where the file is no whole session.

    Parameters
    ----------
    content : bytes
        From anywhere.
    folder : Path
        Where files go.
    """
    if len(content) > LARGEST:
        raise LodekitError(_too_large(len(content)))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "session")
        path.write_bytes(content)
        try:
            values, arrays, _ = unpack(path)
        except StorageError:
            raise LodekitError(
                "expected a session that the studio has saved, got another file, or a damaged one"
            ) from None
    if not isinstance(values, dict) or values.get("kind") != _MARK or values.get("format") != _FORMAT:
        raise LodekitError("expected a session that the studio has saved, got another file")
    session = read_session(values.get("session"))
    names = set(session.tray)
    if not len(names) == len(session.tray) <= _MOST_FITS or not all(re.fullmatch(r"fit-\d{1,4}", n) for n in names):
        raise LodekitError("expected a session with the names of its fits, got others")
    if session.file and (session.file != safe_name(session.file) or "data" not in arrays):
        raise LodekitError("expected a session with its data file, got one without")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        whole = Path(place)
        if session.file:
            write_file(whole / session.file, arrays["data"].astype(np.uint8).tobytes())
        for number, name in enumerate(session.tray):
            _write_fit(whole / name, {file: arrays.get(f"fit{number}_{part}") for part, file in enumerate(_FILES)})
        for made in whole.iterdir():
            # What follows from an earlier fit of that name, such as its report, goes with it.
            shutil.rmtree(folder / made.name, ignore_errors=True)
            made.replace(folder / made.name)
    return session


def _write_fit(folder: Path, parts: Mapping[str, Any]) -> None:
    """Write the files of a fit; raise where its model is none, or its result is no JSON."""
    folder.mkdir()
    for name, array in parts.items():
        if array is not None:
            write_file(folder / name, array.astype(np.uint8).tobytes())
    try:
        json.loads((folder / RESULT).read_text(encoding="utf-8"))
        LODEGP.load(folder / MODEL)
    except (OSError, ValueError, LodekitError):
        raise LodekitError("expected a session with complete fits, got one that was damaged or changed") from None
