"""Equations as sums of monomials: which terms must scale alike when the units of time and channels change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from flint import arb
from flint import ctx as flint_context

from lodekit.algebra.finite_field import Element
from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.quantities import Powers
from lodekit.system.delays import Delayed, channel_of
from lodekit.system.facts import Facts
from lodekit.system.signals import Signal
from lodekit.system.writing import primes

__all__ = ["Balance", "Term", "balances", "terms_of"]

#: Bits that irrational numbers are enclosed with: their logarithms are floats, which tell 53.
_BITS = 128


@dataclass(frozen=True)
class Term:
    """A monomial of an equation: a number times powers of parameters, times a derivative of a channel or a power of t.

    Parameters
    ----------
    powers : dict of str to Fraction
        Exponents of parameters, of one channel and of t.
    number : Fraction or None
        The size of the number; None where it is not rational.
    log_number : float
        The logarithm of its size.
    channel : str
        Empty in known functions of time.
    order : int
        Which derivative of the channel it is.
    text : str
        As users write it, without its number.
    """

    powers: Powers
    number: Fraction | None
    log_number: float
    channel: str
    order: int
    text: str

    @property
    def is_bound(self) -> bool:
        """Whether something other than its number tells its dimension: a channel or a parameter."""
        return bool(self.channel) or any(name != "t" for name in self.powers)

    def __str__(self) -> str:
        if self.number == 1:
            return self.text or "1"
        shown = "" if self.number is None else f"{float(self.number):g}"
        return "*".join(part for part in (shown, self.text) if part) or "a number"


@dataclass(frozen=True)
class Balance:
    """Terms that must scale alike.

    Parameters
    ----------
    name : str
        What they are the terms of, for messages.
    terms : tuple of Term
    pure : bool
        Whether their scale is that of a pure number.
    """

    name: str
    terms: tuple[Term, ...]
    pure: bool = False


def balances(system: Facts) -> list[Balance]:
    """Return which terms must scale alike: those of each equation, and exponents of known functions with one.

    Parameters
    ----------
    system : Facts
    """
    operator, found = system.operator, []
    for i, known in enumerate(system.forcing):
        row = [operator.coefficients(i, j) for j in range(operator.width)]
        terms, inner = terms_of(operator.ring, row, known, system.channels)
        found.append(Balance(f"equation {i + 1}", terms))
        found += [Balance(f"equation {i + 1}, inside a function of time", part, pure=True) for part in inner]
    for name in system.channels:
        if isinstance(name, Delayed) and operator.ring.involves_parameters(name.time.numerator):
            bottom = name.time.denominator
            # A number beside parameters may be in any unit.
            times = [
                term for term in _monomials(operator.ring, name.time.numerator, bottom, {}, "", 0, "") if term.powers
            ]
            clock = _monomials(operator.ring, bottom, bottom, {"t": Fraction(1)}, "", 0, "t")
            found.append(Balance(f"the time of {name}", (*times, *clock), pure=True))
    return [balance for balance in found if len(balance.terms) > 1]


def terms_of(
    ring: ScalarRing, row: Sequence[Sequence[Scalar]], known: Signal, channels: Sequence[str]
) -> tuple[tuple[Term, ...], list[tuple[Term, ...]]]:
    """Return the terms of ``sum C_c(d) c - known(t)``, and those that must be pure numbers inside known functions.

    Fractions are cleared first: all terms are multiplied by the common denominator.

    Parameters
    ----------
    ring : ScalarRing
    row : sequence of sequences of Scalar
        The operator on each channel, lowest power of d first.
    known : Signal
    channels : sequence of str
    """
    factors = [
        (value, name, k, 0) for name, values in zip(channels, row, strict=True) for k, value in enumerate(values)
    ]
    factors += [(value, "", 0, wave.power) for wave, value in known.terms.items()]
    bottom = ring.common_multiple(value.denominator for value, *_ in factors if value)
    terms = []
    for value, name, order, power in factors:
        if value:
            whole = Scalar(ring, value.numerator * ring.divide(bottom, value.denominator)).numerator
            shape = primes(name, order) if name else _time(power)
            time, channel = Fraction(power - order), channel_of(name)
            terms += _monomials(ring, whole, bottom, {channel: Fraction(1), "t": time}, channel, order, shape)
    inner = []
    for rate in {scalar for wave in known.terms for scalar in (wave.rate, wave.frequency) if scalar}:
        one = _monomials(ring, rate.denominator, rate.denominator, {}, "", 0, "")
        times = _monomials(ring, rate.numerator, rate.denominator, {"t": Fraction(1)}, "", 0, "t")
        inner.append((*times, *one))
    return tuple(terms), inner


def _time(power: int) -> str:
    return "" if not power else "t" if power == 1 else f"t^{power}"


def _monomials(
    ring: ScalarRing, element: Element, bottom: Element, powers: Powers, channel: str, order: int, shape: str
) -> list[Term]:
    """Return the terms of a coefficient, each times the same channel or function of time."""
    count = len(ring.constants)
    parts: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for exponents, value in ring.terms(element).items():
        parts.setdefault(exponents[count:], {})[(*exponents[:count], *[0] * len(ring.parameters))] = value
    # The number that stands before all terms of a denominator is none of theirs.
    content = gcd(*ring.terms(bottom).values())
    found = []
    for key, numbers in parts.items():
        own = {name: Fraction(e) for name, e in zip(ring.parameters, key, strict=True) if e}
        total = {name: power for name, power in {**powers, **own}.items() if power and name}
        plain = not any(any(exponents) for exponents in numbers)
        number = Fraction(abs(sum(numbers.values())), content) if plain else None
        with flint_context.workprec(_BITS):
            size = float((abs(ring.enclose(ring.from_terms(numbers))) / arb(content)).log().mid())
        names = [name if e == 1 else f"{name}^{e}" for name, e in zip(ring.parameters, key, strict=True) if e]
        found.append(Term(total, number, size, channel, order, "*".join([*names, *([shape] if shape else [])])))
    return found
