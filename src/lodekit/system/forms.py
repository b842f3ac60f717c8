"""Linear forms: operators on channels plus a known function of time, and bounds on their size."""

from __future__ import annotations

from dataclasses import dataclass

from flint import fmpz

from lodekit.algebra.finite_field import Element
from lodekit.algebra.scalars import Scalar
from lodekit.errors import EquationError, Place
from lodekit.system.signals import Signal

__all__ = ["MAX_WAVES", "LinearForm", "check_size", "check_sum"]

#: Bounds on the size of a coefficient, so that no text can make the arithmetic run away.
MAX_TERMS = 4_000
MAX_DEGREE = 200
MAX_BITS = 12_000
MAX_WAVES = 200


@dataclass(frozen=True)
class LinearForm:
    """``sum_c C_c(d) c + known(t)``: operators on channels plus a known function of time.

    Parameters
    ----------
    channels : dict of str to list of Scalar
        Coefficients of the operator on each channel, lowest power of d first.
    known : Signal
    """

    channels: dict[str, list[Scalar]]
    known: Signal

    def __add__(self, other: LinearForm) -> LinearForm:
        channels = {name: list(values) for name, values in self.channels.items()}
        for name, values in other.channels.items():
            old = channels.get(name, [])
            zero = self.known.ring.rational(0)
            width = max(len(old), len(values))
            padded = [list(part) + [zero] * (width - len(part)) for part in (old, values)]
            channels[name] = [a + b for a, b in zip(*padded, strict=True)]
        return LinearForm(channels, self.known + other.known)

    def scale(self, factor: Scalar) -> LinearForm:
        """Return the form times a field element."""
        channels = {name: [value * factor for value in values] for name, values in self.channels.items()}
        return LinearForm(channels, self.known.scale(factor))

    def differentiate(self, order: int) -> LinearForm:
        """Return the derivative of the given order."""
        zeros = [self.known.ring.rational(0)] * order
        return LinearForm(
            {name: zeros + values for name, values in self.channels.items()}, self.known.derivative(order)
        )


def check_size(place: Place, *forms: LinearForm) -> None:
    """Raise where the product of some forms would have coefficients that grow beyond all use.

    Parameters
    ----------
    place : Place
        Where the product stands in the equation.
    *forms : LinearForm
        Its factors.
    """
    terms, degree, bits = 1, 0, 0
    for form in forms:
        parts = _sizes(place, form)
        terms, degree, bits = (
            terms * max(part[0] for part in parts),
            degree + max(part[1] for part in parts),
            bits + max(part[2] for part in parts),
        )
    _check(place, terms, degree, bits)


def check_sum(place: Place, first: LinearForm, second: LinearForm) -> None:
    """Raise where the sum of two forms would have coefficients that grow beyond all use, over a common denominator.

    Parameters
    ----------
    place : Place
        Where the sum stands in the equation.
    first, second : LinearForm
    """
    (top, bottom), (other, under) = _sizes(place, first), _sizes(place, second)
    products = ((top, under), (other, bottom), (bottom, under))
    terms = max(top[0] * under[0] + other[0] * bottom[0], bottom[0] * under[0])
    _check(place, terms, max(a[1] + b[1] for a, b in products), max(a[2] + b[2] for a, b in products))


def _check(place: Place, terms: int, degree: int, bits: int) -> None:
    if terms > MAX_TERMS or degree > MAX_DEGREE or bits > MAX_BITS:
        raise EquationError("a coefficient grows too large; simplify the expression or use fewer digits", place)


def _sizes(place: Place, form: LinearForm) -> list[tuple[int, int, int]]:
    """Return the largest sizes of numerators, and of denominators."""
    if len(form.known.terms) > MAX_WAVES:
        raise EquationError("a function of time has too many terms; simplify it", place)
    values = [*form.known.terms.values(), *(v for part in form.channels.values() for v in part)]
    found = []
    for elements in ([value.numerator for value in values], [value.denominator for value in values]):
        sizes = [_size(element) for element in elements] or [(1, 0, 0)]
        found.append((max(s[0] for s in sizes), max(s[1] for s in sizes), max(s[2] for s in sizes)))
    return found


def _size(element: Element) -> tuple[int, int, int]:
    """Return the number of terms, the degree and the bits of the largest integer of a ring element."""
    if isinstance(element, fmpz):  # a ring without symbols
        return 1, 0, int(abs(element)).bit_length()
    coefficients = element.coeffs()
    bits = max((int(abs(c)).bit_length() for c in coefficients), default=0)
    return len(coefficients), max(0, int(element.total_degree())), bits
