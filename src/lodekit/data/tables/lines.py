"""The bytes of a text file as whole lines of UTF-8, in pieces of any size."""

from __future__ import annotations

import codecs
import gzip
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lodekit.errors import DataError

__all__ = ["SAMPLE", "Opener", "read_lines", "read_pipe", "reading"]

#: Opens a file for reading, from its start each time.
Opener = Callable[[], IO[bytes]]
#: How many bytes of a file are looked at to find out how it is written; its first piece has no more.
SAMPLE = 1 << 18
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BINARY = "expected a text file or Parquet, got binary data"
#: No record is longer; what has no line ends is no table, however large it is.
_LONGEST_LINE = 16 << 20
#: A pipe can be read only once, so all of it is kept.
_MOST_PIPED = 128 << 20
#: So many seconds a writer of a pipe may take to come.
_PATIENCE = 1.0


def read_lines(open_file: Opener, size: int, notes: list[str] | None = None) -> Iterator[bytes]:
    r"""Yield a text file in pieces that end where a line ends: unpacked, as UTF-8, with plain line ends.

    Parameters
    ----------
    open_file : callable
        Opens the file; gzip is unpacked on the way.
    size : int
        About how many bytes are read at once, and fewer at first, for a cheap look at the start of a file. A piece
        has at least one line, however long that is.
    notes : list of str, optional
        Gets what there is to say about the encoding, while pieces are read.

    Examples
    --------
    >>> from io import BytesIO
    >>> list(read_lines(lambda: BytesIO(b"t,x\r\n0,1\r\n1,2"), 6))
    [b't,x\n', b'0,1\n1,2']
    """
    notes = [] if notes is None else notes
    held = rest = b""
    for piece in _read_bytes(open_file, size, notes):
        rest += piece
        # A return at the very end may be half of a line end; where there are line feeds, they end the lines.
        if cut := rest.rfind(b"\n") + 1 or rest.rfind(b"\r", 0, -1) + 1:
            if held:
                yield _plain(held, notes)
            held, rest = rest[:cut], rest[cut:]
        if len(rest) > _LONGEST_LINE:
            raise DataError(
                _BINARY if b"\0" in rest else f"expected lines of text, one is longer than {_LONGEST_LINE >> 20} MB"
            )
    # A last line without its end stays with those before it: sums do not depend on a missing line end then.
    if held := held + rest.rstrip(b"\x1a"):  # old systems end a text so
        yield _plain(held, notes)


def read_pipe(place: Path) -> bytes:
    """Return what a pipe delivers; devices, and pipes that nobody writes to, are refused.

    Parameters
    ----------
    place : Path
        Of something that is no plain file.
    """
    kind = place.stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError
    if not stat.S_ISFIFO(kind):
        raise DataError("expected a file or a pipe, got a device; save the data in a file")
    # An open that waits for a writer may wait forever; this one returns at once, and there is time for one to come.
    handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb", buffering=0) as pipe:
        content, end = bytearray(), time.monotonic() + _PATIENCE
        # Nothing at all is read where there is no writer, None where there is one that has not written yet.
        while (piece := pipe.read(1 << 20)) == b"":
            if time.monotonic() > end:
                raise DataError("expected data from the pipe, nobody writes to it; start the writer, or save a file")
            time.sleep(0.02)
        content += piece or b""
        os.set_blocking(handle, True)
        while piece := pipe.read(1 << 20):
            content += piece
            if len(content) > _MOST_PIPED:
                raise DataError(
                    f"expected at most {_MOST_PIPED >> 20} MB from a pipe; save the data in a file, of any size"
                )
    return bytes(content)


@contextmanager
def reading() -> Iterator[None]:
    """Turn what goes wrong while a file is read into an error of data."""
    try:
        yield
    except IsADirectoryError:
        raise DataError("expected a file, got a folder") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise DataError(f"cannot be unpacked, {problem}") from None
    except UnicodeError:
        raise DataError(_BINARY) from None
    except (OSError, ValueError) as problem:
        raise DataError(f"cannot be read, {getattr(problem, 'strerror', None) or problem}") from None


def _read_bytes(open_file: Opener, size: int, notes: list[str]) -> Iterator[bytes]:
    """Yield the bytes of a file: unpacked, without the mark of its encoding, and as UTF-8 where they were UTF-16."""
    with reading(), open_file() as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream = gzip.GzipFile(fileobj=file) if packed else file
        first = stream.read(max(4, min(size, SAMPLE)))
        if first.startswith(b"PK\x03\x04"):
            raise DataError("expected a text file or Parquet, got a spreadsheet or zip archive; save the table as CSV")
        if not first.startswith(_UTF16):
            yield first.removeprefix(codecs.BOM_UTF8)
            while piece := stream.read(size):
                yield piece
            return
        notes.append("encoding UTF-16")
        decoder, piece = codecs.getincrementaldecoder("utf-16")(), first
        while piece:
            yield decoder.decode(piece).encode()
            piece = stream.read(size)
        decoder.decode(b"", final=True)


def _plain(lines: bytes, notes: list[str]) -> bytes:
    if b"\0" in lines:
        raise DataError(f"{_BINARY} (or UTF-16 without its mark: save as UTF-8)")
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError:
            lines = lines.decode("latin-1").encode()
            if "encoding Latin-1" not in notes:
                notes.append("encoding Latin-1")
    return lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in lines else lines
