"""Where a row stands in its file, for messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows"]


@dataclass(frozen=True)
class Rows:
    """The places of rows in a file.

    Parameters
    ----------
    kind : {"line", "row"}
        Lines of a text file; rows of other files.
    numbers : array of int, shape (n,)
        Counted from one.
    """

    kind: str
    numbers: NDArray[np.int64]

    def name(self, row: int) -> str:
        """Return the place of one row."""
        return f"{self.kind} {self.numbers[row]}"

    def list(self, chosen: NDArray[np.bool_]) -> str:
        """Return the places of the chosen rows; many are cut short."""
        places = self.numbers[chosen]
        text = ", ".join(map(str, places[:5]))
        more = f", ... ({len(places)} in all)" if len(places) > 5 else ""
        return f"{self.kind}{'s' if len(places) > 1 else ''} {text}{more}"
