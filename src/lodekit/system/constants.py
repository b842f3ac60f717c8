"""Values of sqrt, exp, sin and cos at exact numbers, in terms of named constants without hidden relations.

Zero is recognised exactly only if the constants are independent. Square roots of distinct primes are, with s^2 = p. Of
the exponentials (and of the angles) of rational numbers, two are always related; those with a simple ratio, such as
exp(1) and exp(1/2), are therefore refused together. The relations of others have powers that no equation contains.
Multiples of pi are accepted where the cosine has square roots only.
"""

from __future__ import annotations

from fractions import Fraction

from flint import fmpz

from lodekit.algebra.constants import Constant
from lodekit.algebra.scalars import Scalar, ScalarRing

__all__ = ["MissingConstantError", "RelatedConstantsError", "constant_value"]

#: Radicands are factored into primes: at once up to here.
_LARGEST_RADICAND = 10**12
#: Up to which whole exponent exp(n) is a power of exp(1), and exp(n pi) one of exp(pi).
_LARGEST_POWER_OF_E = 64
#: Two arguments have a simple ratio where its numerator and denominator do not exceed this.
_SIMPLE_RATIO = 64
#: cos(pi r) where it has square roots only: r -> [(rational factor, radicand), ...].
_ROOT_ANGLES = {
    Fraction(0): [(Fraction(1), 1)],
    Fraction(1, 12): [(Fraction(1, 4), 6), (Fraction(1, 4), 2)],
    Fraction(1, 6): [(Fraction(1, 2), 3)],
    Fraction(1, 5): [(Fraction(1, 4), 1), (Fraction(1, 4), 5)],
    Fraction(1, 4): [(Fraction(1, 2), 2)],
    Fraction(1, 3): [(Fraction(1, 2), 1)],
    Fraction(2, 5): [(Fraction(-1, 4), 1), (Fraction(1, 4), 5)],
    Fraction(5, 12): [(Fraction(1, 4), 6), (Fraction(-1, 4), 2)],
    Fraction(1, 2): [(Fraction(0), 1)],
}


class MissingConstantError(Exception):
    """The ring lacks constants that a value needs; the caller extends the ring and starts again."""

    def __init__(self, *constants: Constant) -> None:
        super().__init__(*constants)
        self.constants = constants


class RelatedConstantsError(Exception):
    """Two constants, `first` and `second`, have an algebraic relation that the ring would not know."""

    def __init__(self, first: Constant, second: Constant) -> None:
        super().__init__(first, second)
        self.names = (first.name, second.name)


def constant_value(ring: ScalarRing, function: str, argument: Scalar) -> Scalar | None:
    """Return a `function` at a number, the `argument`, in `ring`; None where such numbers have no named value.

    Numbers are rational, or rational multiples of pi (not for ``sqrt``).

    Raises
    ------
    MissingConstantError
        Where the ring must be extended first.
    RelatedConstantsError
        Where that would bring in a hidden relation.
    """
    rational = argument.as_fraction()
    if function == "sqrt":
        return None if rational is None else _square_root(ring, rational)
    times_pi = rational is None
    if rational is None:
        rational = _multiple_of_pi(ring, argument)
        if rational is None:
            return None
    if function == "exp":
        return _exponential(ring, rational, times_pi)
    if times_pi or rational == 0:
        return _cosine_of_pi(ring, rational if function == "cos" else Fraction(1, 2) - rational)
    value = _symbol(ring, Constant(function, abs(rational)))
    return -value if function == "sin" and rational < 0 else value


def _symbol(ring: ScalarRing, constant: Constant) -> Scalar:
    if constant in ring.constants:
        return ring.constant(constant)
    family = ("cos", "sin") if constant.kind in ("cos", "sin") else (constant.kind,)
    for other in ring.constants:
        if constant.kind not in ("pi", "sqrt") and other.kind in family and other.times_pi == constant.times_pi:
            ratio = constant.argument / other.argument
            if ratio != 1 and max(ratio.numerator, ratio.denominator) <= _SIMPLE_RATIO:
                raise RelatedConstantsError(other, constant)
    raise MissingConstantError(*([constant.cosine] if constant.kind == "sin" else []), constant)


def _square_root(ring: ScalarRing, value: Fraction) -> Scalar | None:
    if value < 0 or max(value.numerator, value.denominator) > _LARGEST_RADICAND:
        return None
    if not value:
        return ring.rational(0)
    # sqrt(p/q) = sqrt(p q)/q; distinct primes have independent square roots.
    result = ring.rational(Fraction(1, value.denominator))
    for prime, exponent in fmpz(value.numerator * value.denominator).factor():
        result = result * ring.rational(int(prime) ** (int(exponent) // 2))
        if exponent % 2:
            result = result * _symbol(ring, Constant("sqrt", Fraction(int(prime))))
    return result


def _exponential(ring: ScalarRing, value: Fraction, times_pi: bool) -> Scalar | None:
    if value.denominator == 1:
        if abs(value) > _LARGEST_POWER_OF_E:
            return None
        return _symbol(ring, Constant("exp", Fraction(1), times_pi)) ** int(value) if value else ring.rational(1)
    base = _symbol(ring, Constant("exp", abs(value), times_pi))
    return base if value > 0 else ring.rational(1) / base


def _cosine_of_pi(ring: ScalarRing, turns: Fraction) -> Scalar | None:
    """Return cos(pi turns), reduced to an angle between 0 and pi/2."""
    turns = abs(turns) % 2
    turns = 2 - turns if turns > 1 else turns
    negative = turns > Fraction(1, 2)
    turns = 1 - turns if negative else turns
    total = ring.rational(0)
    for factor, radicand in _ROOT_ANGLES.get(turns, ()):
        root = _square_root(ring, Fraction(radicand))
        if root is not None:
            total = total + ring.rational(-factor if negative else factor) * root
    return total if turns in _ROOT_ANGLES else None


def _multiple_of_pi(ring: ScalarRing, value: Scalar) -> Fraction | None:
    pi = Constant("pi")
    return (value / _symbol(ring, pi)).as_fraction() if pi in ring.constants else None
