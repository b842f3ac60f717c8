"""A whole session in one file: what was typed, the data, and every fit; bounded and checked when it is opened."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
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

__all__ = ["ENDING", "LARGEST", "pack_session", "safe_name", "unpack_session"]

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
    arrays: dict[str, Any] = {}
    if session.file and (folder / session.file).is_file():
        arrays["data"] = _read(folder / session.file)
    for number, name in enumerate(session.tray):
        for part, file in enumerate(_FILES):
            if (folder / name / file).is_file():
                arrays[f"fit{number}_{part}"] = _read(folder / name / file)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "session")
        pack(path, {"kind": _MARK, "format": _FORMAT, "session": session.to_dict()}, arrays)
        return path.read_bytes()


def _read(path: Path) -> Any:
    return np.frombuffer(path.read_bytes(), dtype=np.uint8)


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
        raise LodekitError(f"expected a session of at most {LARGEST >> 20} MB, got {len(content) >> 20} MB")
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
