"""The exceptions; every message states what was expected, what was received and what to try."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

#: How many characters of a user's line a message shows at most.
_WIDTH = 100


class LodekitError(Exception):
    """The base class of all errors that lodekit raises on purpose."""


@dataclass(frozen=True)
class Place:
    """A part of a line of user text to which an error refers.

    Parameters
    ----------
    line : str
        The whole line as the user wrote it.
    start, stop : int
        The part, as positions in ``line``; ``stop`` is exclusive.
    equation : int
        The number of the equation, counted from one; zero if there is none.
    """

    line: str
    start: int
    stop: int
    equation: int = 0

    def caret(self) -> str:
        """Return the position and the line with carets under the part; long lines are shortened.

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
    """Return the width of a text in columns of a terminal."""
    wide = sum(1 for character in text if unicodedata.east_asian_width(character) in "WF")
    marks = sum(1 for character in text if unicodedata.combining(character))
    return len(text) + wide - marks


class EquationError(LodekitError):
    """The text is not a linear ODE system with constant coefficients.

    Parameters
    ----------
    message : str
        What was expected, what was received and what to try; the line with its carets is added below.
    place : Place, optional
        Position in the user's text, for editors and web pages; an attribute of the error.
    undeclared : sequence of str
        Names that look like undeclared parameters; an attribute of the error, as a tuple.
    """

    def __init__(self, message: str, place: Place | None = None, undeclared: Sequence[str] = ()) -> None:
        super().__init__(message if place is None or not place.line else f"{message}\n{place.caret()}")
        self.place = place
        self.undeclared = tuple(undeclared)


class ArgumentError(LodekitError, TypeError):
    """A function has no argument of the given name."""


class ParameterError(LodekitError):
    """The declaration, bounds or value of a parameter are invalid."""


class AlgebraError(LodekitError):
    """An exact computation is not possible for the given input."""


class InconsistentSystemError(LodekitError):
    """The equations contradict each other: a combination of them gives 0 = something."""


class VerificationError(LodekitError):
    """An exact identity does not hold; raised by the independent checks."""

    @classmethod
    def unless(cls, holds: bool, statement: str) -> None:
        """Raise an error with the statement unless it holds."""
        if not holds:
            raise cls(f"the exact check failed: expected that {statement}, and it does not hold")


class DataError(LodekitError):
    """The measurements cannot be used as they are."""


class NotFittedError(LodekitError, AttributeError):
    """The estimator has not been fitted yet."""


class FitError(LodekitError):
    """No fit was found, although equations and data are valid."""


class AccuracyError(FitError):
    """A result cannot be computed with sufficient accuracy in floating-point numbers."""


class SystemFileError(LodekitError):
    """A file is not a valid system file."""
