"""Where a record stands, for messages: in its file, and in which file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import DataError

__all__ = ["Places", "naming"]


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Put the name of a table before what is wrong with it."""
    try:
        yield
    except DataError as problem:
        raise DataError(f"{where}: {problem}") from None


@dataclass(frozen=True)
class Places:
    """The places of records in a table.

    Parameters
    ----------
    kind : {"line", "row"}
        Lines of a text file; rows of other tables.
    numbers : array of int, shape (n,)
        Counted from one.
    """

    kind: str
    numbers: NDArray[np.int64]

    def name(self, record: int) -> str:
        """Return the place of one record."""
        return f"{self.kind} {self.numbers[record]}"

    def list(self, chosen: NDArray[np.bool_]) -> str:
        """Return the places of the chosen records; many are cut short."""
        places = self.numbers[chosen]
        text = ", ".join(map(str, places[:5]))
        more = f", ... ({len(places)} in all)" if len(places) > 5 else ""
        return f"{self.kind}{'s' if len(places) > 1 else ''} {text}{more}"
