"""What Arrow notes in a Parquet file beside the file's own kinds: lengths of time, and the names of time zones."""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass

__all__ = ["Hint", "read_hints"]

_UNITS = ("s", "ms", "us", "ns")
# Places in the tables of Arrow's format of messages, and numbers of kinds there.
_MESSAGE_HEADER, _SCHEMA_FIELDS, _FIELD_NAME, _FIELD_KIND, _FIELD_CONTENT = 2, 1, 0, 2, 3
_TIMESTAMP, _DURATION = 10, 18
#: A damaged number of fields is not to take all memory.
_MOST_FIELDS = 100_000


@dataclass(frozen=True)
class Hint:
    """What a column holds, which its own kind does not tell.

    Parameters
    ----------
    kind : {"zone", "length"}
        Dates with a time zone, or lengths of time.
    text : str
        The name of the zone, or the unit of the lengths.
    """

    kind: str
    text: str


def read_hints(packed: bytes) -> dict[str, Hint]:
    """Return hints by column; none where the note is absent or damaged: it only adds to what the file says.

    Parameters
    ----------
    packed : bytes
        The entry ``ARROW:schema`` of the file: a message of Arrow's format for streams, in Base64.

    Examples
    --------
    >>> read_hints(b"no message")
    {}
    """
    try:
        data = base64.b64decode(packed, validate=True)
        # A mark and a length come before the message itself.
        schema = _Table(data, _follow(data, 8)).table(_MESSAGE_HEADER)
        found = {}
        for field in schema.tables(_SCHEMA_FIELDS):
            kind, content = field.number(_FIELD_KIND, "B"), field.table(_FIELD_CONTENT)
            if kind == _DURATION:
                found[field.text(_FIELD_NAME)] = Hint("length", _UNITS[content.number(0, "h", 1)])
            elif kind == _TIMESTAMP and (zone := content.text(1)):
                found[field.text(_FIELD_NAME)] = Hint("zone", zone)
        return found
    except (binascii.Error, struct.error, ValueError, IndexError):
        return {}


def _follow(data: bytes, place: int) -> int:
    """Return where an offset leads to; forward, as the format has it."""
    return place + int(struct.unpack_from("<I", data, place)[0])


@dataclass(frozen=True)
class _Table:
    """A table of the format: entries by number, each of which may be absent."""

    data: bytes
    place: int

    def _find(self, number: int) -> int | None:
        start = self.place - int(struct.unpack_from("<i", self.data, self.place)[0])
        if start < 0:
            raise ValueError
        size = struct.unpack_from("<H", self.data, start)[0]
        if 4 + 2 * number >= size:
            return None
        offset = struct.unpack_from("<H", self.data, start + 4 + 2 * number)[0]
        return self.place + int(offset) if offset else None

    def number(self, entry: int, form: str, default: int = 0) -> int:
        found = self._find(entry)
        return default if found is None else int(struct.unpack_from(f"<{form}", self.data, found)[0])

    def table(self, entry: int) -> _Table:
        found = self._find(entry)
        if found is None:
            raise ValueError
        return _Table(self.data, _follow(self.data, found))

    def tables(self, entry: int) -> list[_Table]:
        found = self._find(entry)
        if found is None:
            return []
        start = _follow(self.data, found)
        count = struct.unpack_from("<I", self.data, start)[0]
        if count > _MOST_FIELDS:
            raise ValueError
        return [_Table(self.data, _follow(self.data, start + 4 + 4 * number)) for number in range(count)]

    def text(self, entry: int) -> str:
        found = self._find(entry)
        if found is None:
            return ""
        start = _follow(self.data, found)
        size = struct.unpack_from("<I", self.data, start)[0]
        return self.data[start + 4 : start + 4 + size].decode()
