"""The bytes of a text file as whole lines of UTF-8, in pieces of any size."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from lodekit.errors import DataError

__all__ = ["SAMPLE", "Opener", "read_lines", "reading"]

#: Opens a file for reading, from its start each time.
Opener = Callable[[], IO[bytes]]
#: How many bytes of a file are looked at to find out how it is written; its first piece has no more.
SAMPLE = 1 << 18
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BINARY = "expected a text file or Parquet, got binary data"


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
    # A last line without its end stays with those before it: sums do not depend on a missing line end then.
    if held := held + rest.rstrip(b"\x1a"):  # old systems end a text so
        yield _plain(held, notes)


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
