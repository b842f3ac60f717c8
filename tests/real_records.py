"""Where the real records are, which are no part of the project, and tests that need one of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

RECORDS = Path(os.environ.get("LODEKIT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def needs(name: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped where a record is missing.

    Parameters
    ----------
    name : str
        Of its file.
    """
    return pytest.mark.skipif(not (RECORDS / name).exists(), reason="the real record is not here")
