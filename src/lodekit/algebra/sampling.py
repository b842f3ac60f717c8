"""Random points of large finite fields, and exact polynomials evaluated there.

What holds at one point where nothing special was asked for holds generically: rank can only drop and invariant factors
can only grow at a special point. So a point can prove "full rank" and "controllable" at a cost that does not depend on
how large the symbolic expressions would become. The generator is seeded: the same system gives the same points.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

from flint import fmpz

from lodekit.algebra.constants import Constant
from lodekit.algebra.finite_field import Element, FiniteField
from lodekit.algebra.polynomials import Polynomial, roots_modulo, trim
from lodekit.algebra.scalars import ScalarRing

__all__ = ["image", "random_points", "zeros"]

#: In how many fields a zero of a factor is looked for; every other one or so has none.
_ATTEMPTS = 20
#: How many primes are tried: each square root and each sine exists modulo every second one only, and a system has few.
_PRIMES = 2000
#: How many of the 2^n ways to sign n square roots and sines are followed.
_BRANCHES = 16


def image(ring: ScalarRing, polynomial: Polynomial, field: FiniteField, points: Sequence[Element]) -> Polynomial:
    """Return a `polynomial` in d over `ring` at the `points` of a `field`, one for each symbol of the ring."""
    return trim([ring.image(value, field, points) for value in polynomial])


def random_points(ring: ScalarRing, seed: int = 0) -> Iterator[tuple[FiniteField, list[Element]]]:
    """Yield points from a `seed`, one coordinate for each symbol of `ring`.

    The squares of square roots and sines are respected.
    """
    for field, branches in _fields(ring, random.Random(seed)):
        yield field, branches[0]


def zeros(ring: ScalarRing, factor: Element) -> Iterator[tuple[FiniteField, list[list[Element]]]]:
    """Yield fields with zeros of a parameter `factor` in `ring`, on many branches of roots and on all of the factor.

    Over an extension by square roots, a factor that is irreducible over the rationals can split, and only one of the
    parts may matter; hence the branches.
    """
    generator = random.Random(len(ring.names))
    unknowns = [i for i, degree in enumerate(factor.degrees()) if degree > 0 and i >= len(ring.constants)]
    for attempt, (field, branches) in enumerate(_fields(ring, generator)):
        if attempt == _ATTEMPTS:
            return
        unknown = generator.choice(unknowns)
        found = []
        for points in branches:
            coefficients = [0] * (int(factor.degrees()[unknown]) + 1)
            for exponents, value in ring.terms(factor).items():
                term = field.integer(value)
                for i, exponent in enumerate(exponents):
                    if exponent and i != unknown:
                        term = term * points[i] ** exponent
                coefficients[exponents[unknown]] += int(term)
            found += [
                [field.integer(root) if i == unknown else value for i, value in enumerate(points)]
                for root in roots_modulo(field.prime, coefficients)
            ]
        if found:
            yield field, found


def _fields(ring: ScalarRing, generator: random.Random) -> Iterator[tuple[FiniteField, list[list[Element]]]]:
    """Yield fields in which all square roots and sines of the ring exist, with a point on each branch of them."""
    for _ in range(_PRIMES):
        field = FiniteField(_random_prime(generator))
        branches: list[list[Element]] = [[]]
        for constant in ring.constants:
            if constant.kind not in ("sqrt", "sin"):
                value = field.integer(generator.getrandbits(60))
                branches = [[*points, value] for points in branches]
                continue
            extended = []
            for points, index in product(branches, (0, 1)):
                roots = roots_modulo(field.prime, [-_square(ring, constant, field, points), 0, 1])
                if len(roots) == 2:
                    extended.append([*points, field.integer(roots[index])])
            branches = extended[:_BRANCHES]
        parameters = [field.integer(generator.getrandbits(60)) for _ in ring.parameters]
        if branches:
            yield field, [[*points, *parameters] for points in branches]


def _square(ring: ScalarRing, constant: Constant, field: FiniteField, points: Sequence[Element]) -> int:
    if constant.kind == "sqrt":
        return int(constant.argument)
    cosine = points[ring.constants.index(constant.cosine)]
    return int(field.one - cosine**2)


def _random_prime(generator: random.Random) -> int:
    while True:
        candidate = generator.getrandbits(60) | (1 << 60) | 1
        if fmpz(candidate).is_prime():
            return candidate
