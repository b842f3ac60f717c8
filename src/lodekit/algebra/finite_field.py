"""The interface of coefficient rings that eliminations work over, and the integers modulo a prime, which have it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from flint import nmod

__all__ = ["CoefficientRing", "Element", "FiniteField"]

#: An element of a coefficient ring: ``fmpz``, ``fmpz_mpoly`` or ``nmod``; FLINT ships no type hints.
Element = Any


class CoefficientRing(Protocol):
    """The operations on coefficients that eliminations use."""

    @property
    def zero(self) -> Element:
        """The zero of the domain."""
        ...

    @property
    def one(self) -> Element:
        """The one of the domain."""
        ...

    @property
    def has_relations(self) -> bool:
        """Whether products must be brought to normal form by `reduce`."""
        ...

    def reduce(self, element: Element) -> Element:
        """Return the element in normal form."""
        ...

    def common_factor(self, first: Element, second: Element) -> Element:
        """Return a common divisor of `first` and `second`, as large as the domain allows."""
        ...

    def content(self, elements: Iterable[Element]) -> Element:
        """Return a common divisor of all elements; zero for none."""
        ...

    def divide(self, element: Element, divisor: Element) -> Element:
        """Return the quotient of `element` by `divisor`, which divides it exactly."""
        ...

    def count_terms(self, elements: Iterable[Element]) -> int:
        """Return how many symbolic terms the elements have in all; zero without symbols."""
        ...

    def unit(self, element: Element) -> Element:
        """Return a multiplier that makes the element canonical among its multiples."""
        ...


@dataclass(frozen=True)
class FiniteField:
    """The integers modulo a prime below 2^63: where structure is tested at single points."""

    prime: int
    zero: Element = field(init=False, repr=False, compare=False)
    one: Element = field(init=False, repr=False, compare=False)
    has_relations: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "zero", nmod(0, self.prime))
        object.__setattr__(self, "one", nmod(1, self.prime))

    def integer(self, value: int) -> Element:
        """Return an integer as an element of the field."""
        return nmod(value % self.prime, self.prime)

    def reduce(self, element: Element) -> Element:
        """Return the element: there are no relations."""
        return element

    def common_factor(self, first: Element, second: Element) -> Element:
        """Return `first`, whatever `second` is: in a field an elimination subtracts a quotient and scales nothing."""
        return first

    def content(self, elements: Iterable[Element]) -> Element:
        """Return one: in a field every element divides every other."""
        return self.one if any(elements) else self.zero

    def count_terms(self, elements: Iterable[Element]) -> int:
        """Return zero: there are no symbols."""
        return 0

    def divide(self, element: Element, divisor: Element) -> Element:
        """Return ``element / divisor``."""
        return element / divisor

    def unit(self, element: Element) -> Element:
        """Return the inverse."""
        return self.one / element
