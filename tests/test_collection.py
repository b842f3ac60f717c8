"""The order of the tests. That all processes collect the same ones is checked by pytest-xdist at each start."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONG

ROOT = Path(__file__).parents[1]


def test_files_that_begin_first_are_there() -> None:
    assert [name for name in LONG if not (ROOT / name).exists()] == []
    assert len(set(LONG)) == len(LONG)
