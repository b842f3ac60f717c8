"""Irrational constants known by name, and rational numbers as people write them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from flint import arb, fmpq, fmpz

__all__ = ["Constant", "format_rational"]


def format_rational(value: Fraction) -> str:
    """Return a short decimal where there is an exact one, else a fraction.

    Examples
    --------
    >>> format_rational(Fraction(981, 100)), format_rational(Fraction(2, 3)), format_rational(Fraction(1, 2**40))
    ('9.81', '2/3', '1/1099511627776')
    """
    rest, digits = value.denominator, 0
    # Each step is one more decimal place, as few as there can be.
    while rest % 5 == 0 or rest % 2 == 0:
        rest //= 10 if rest % 10 == 0 else 5 if rest % 5 == 0 else 2
        digits += 1
    if rest != 1 or digits == 0 or digits > 12:
        # FLINT writes integers of any length; Python refuses long ones.
        top, bottom = str(fmpz(value.numerator)), str(fmpz(value.denominator))
        return top if bottom == "1" else f"{top}/{bottom}"
    text = str(fmpz(abs(value.numerator) * 10**digits // value.denominator)).zfill(digits + 1)
    return ("-" if value < 0 else "") + f"{text[:-digits]}.{text[-digits:]}"


@dataclass(frozen=True, order=True)
class Constant:
    """An irrational number known by name: ``pi``, ``sqrt(2)``, ``exp(1)``, ``cos(0.3)``, ``sin(pi/5)``.

    Parameters
    ----------
    kind : {"pi", "sqrt", "exp", "cos", "sin"}
    argument : Fraction
        The rational argument (a prime for ``sqrt``); ignored for ``pi``.
    times_pi : bool
        Whether the argument is a multiple of pi.
    """

    kind: str
    argument: Fraction = Fraction(1)
    times_pi: bool = False

    @property
    def name(self) -> str:
        """The constant as users write it.

        Examples
        --------
        >>> Constant("sqrt", Fraction(2)).name, Constant("cos", Fraction(1, 5), times_pi=True).name
        ('sqrt(2)', 'cos(pi/5)')
        """
        if self.kind == "pi":
            return "pi"
        if not self.times_pi:
            return f"{self.kind}({self.argument})"
        top, bottom = self.argument.numerator, self.argument.denominator
        return f"{self.kind}({'' if top == 1 else f'{top}*'}pi{'' if bottom == 1 else f'/{bottom}'})"

    @property
    def cosine(self) -> Constant:
        """The cosine of the same angle: what the square of a sine is written in."""
        return replace(self, kind="cos")

    def enclose(self) -> Any:
        """Return a ball (``arb``) that holds the value, at the current precision of FLINT."""
        if self.kind == "pi":
            return arb.pi()
        argument = arb(fmpq(self.argument.numerator, self.argument.denominator))
        if self.times_pi:
            argument *= arb.pi()
        return getattr(argument, self.kind)()
