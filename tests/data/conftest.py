"""A reader of texts as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lodekit.data.tables import TableData, read_table
from tests.data.table_files import Reader


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Read text, or bytes, as a file; channels x and y unless others are named."""

    def write_and_read(
        content: str | bytes,
        *channels: str,
        name: str = "data.csv",
        mapping: dict[str, str] | None = None,
        time: str | None = None,
        header: bool | None = None,
    ) -> TableData:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_table(path, channels or ("x", "y"), mapping=mapping, time=time, header=header)

    return write_and_read
