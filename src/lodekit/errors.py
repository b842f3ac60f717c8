"""One exception tree; every message says what was expected, what came and what to try."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "AccuracyError",
    "AlgebraError",
    "DataError",
    "EquationError",
    "FitError",
    "InconsistentSystemError",
    "LodekitError",
    "NotFittedError",
    "ParameterError",
    "Place",
    "SystemFileError",
    "VerificationError",
]

#: How many characters of a user's line a message shows at most.
_WIDTH = 100


class LodekitError(Exception):
    """The base class of every error that lodekit raises on purpose: whoever catches it catches them all."""


@dataclass(frozen=True)
class Place:
    """A stretch of a line of user text that an error can point to.

    Parameters
    ----------
    line : str
        The whole line as the user wrote it.
    start, stop : int
        The stretch, as positions in ``line``; ``stop`` is exclusive.
    equation : int
        The number of the equation, counted from one; zero where there is none.
    """

    line: str
    start: int
    stop: int
    equation: int = 0

    def caret(self) -> str:
        """Return the line with carets under the stretch, below a word on where it is; of a long line a part.

        Examples
        --------
        >>> print(Place("x' = a*x", 5, 6, equation=1).caret())
          in equation 1:
              x' = a*x
                   ^
        """
        left = max(0, min(self.start - _WIDTH // 2, len(self.line) - _WIDTH))
        shown = self.line[left : left + _WIDTH].expandtabs(1)
        head = "..." if left else ""
        tail = "..." if left + _WIDTH < len(self.line) else ""
        where = f"in equation {self.equation}:" if self.equation else "in:"
        pad = " " * (len(head) + _columns(self.line[left : self.start]))
        stretch = self.line[self.start : max(self.start + 1, min(self.stop, left + _WIDTH))]
        carets = "^" * max(1, _columns(stretch))
        return f"  {where}\n      {head}{shown}{tail}\n      {pad}{carets}"


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    wide = sum(1 for character in text if unicodedata.east_asian_width(character) in "WF")
    marks = sum(1 for character in text if unicodedata.combining(character))
    return len(text) + wide - marks


class EquationError(LodekitError):
    """Text that is not a linear ODE system with constant coefficients.

    Parameters
    ----------
    message : str
        What was expected, what came and what to try; the line with its carets is put below it.
    place : Place, optional
        Where in the user's text, for editors and web pages; kept as an attribute.
    undeclared : sequence of str
        Names that look like parameters which were not declared; kept as an attribute, a tuple.
    """

    def __init__(self, message: str, place: Place | None = None, undeclared: Sequence[str] = ()) -> None:
        super().__init__(message if place is None or not place.line else f"{message}\n{place.caret()}")
        self.place = place
        self.undeclared = tuple(undeclared)


class ParameterError(LodekitError):
    """A parameter that is declared, bounded or valued in a way that cannot be."""


class AlgebraError(LodekitError):
    """An exact computation that cannot be carried out on what it was given."""


class InconsistentSystemError(LodekitError):
    """Equations that contradict each other: a combination of them forces 0 = something."""


class VerificationError(LodekitError):
    """An exact identity that does not hold; raised by the independent checkers."""

    @classmethod
    def unless(cls, holds: bool, statement: str) -> None:
        """Raise an error that quotes a statement, unless it holds."""
        if not holds:
            raise cls(f"the exact check failed: expected that {statement}, and it does not hold")


class DataError(LodekitError):
    """Measurements that cannot be used as they are."""


class NotFittedError(LodekitError, AttributeError):
    """An estimator that was asked for what only a fit can tell, before it has seen any data."""


class FitError(LodekitError):
    """Equations and data that make sense one by one, and to which no fit could be found."""


class AccuracyError(FitError):
    """An answer that floating-point numbers cannot give with the digits that it needs."""


class SystemFileError(LodekitError):
    """A system file that cannot be read as one."""
