"""Where the generic structure may fail: parameter factors whose zeros change the Smith form.

Over Q(parameters) the Smith form is the generic one. At a parameter value where no denominator of U, V, D and the two
inverses vanishes, the identities can be evaluated, so the form there is the generic one evaluated: these denominators
hold every exception. Each irreducible factor is then tested at a point where it vanishes. The point lies in a large
finite field, where it can be found exactly; a generic structure there proves that the factor does no harm on almost all
of its zeros, and it is dropped. Exceptions that need two factors to vanish at once are not listed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from flint import fmpz

from lodekit.algebra.constants import Constant
from lodekit.algebra.finite_field import Element, FiniteField
from lodekit.algebra.polynomials import Polynomial, primitive, roots_modulo
from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.algebra.smith import SmithForm, invariant_factors
from lodekit.errors import AlgebraError

__all__ = ["check_constants", "degenerate_factors", "exceptional_factors"]

_ATTEMPTS = 40


def exceptional_factors(form: SmithForm) -> list[Element]:
    """Return the irreducible parameter factors outside whose zeros the generic form is proved to hold."""
    ring = form.operator.ring
    return [factor for factor in _denominator_factors(form) if ring.involves_parameters(factor)]


def _denominator_factors(form: SmithForm) -> list[Element]:
    ring = form.operator.ring
    matrices = (form.left, form.diagonal, form.left_inverse, form.right_inverse)
    found: dict[tuple[tuple[tuple[int, ...], int], ...], Element] = {}
    for matrix in matrices:
        for denominator in matrix.denominators:
            for factor in ring.parameter_factors(denominator):
                found[tuple(ring.terms(factor).items())] = factor
    return [found[key] for key in sorted(found, key=lambda terms: (len(terms), [-sum(e) for e, _ in terms], terms))]


def check_constants(form: SmithForm) -> None:
    """Raise where the form rests on a constant that cannot be proved non-zero.

    The ring knows square roots and sines; other relations, such as 4 cos(pi/5) = 1 + sqrt(5), are hidden from it.
    """
    ring = form.operator.ring
    if not ring.constants:
        return
    for factor in _denominator_factors(form):
        if not Scalar(ring, factor).certainly_nonzero():
            raise AlgebraError(
                f"cannot decide whether {ring.format(factor)} is zero; expected constants without hidden relations "
                "between them. Write one of them in terms of the others, or as a decimal number."
            )


def degenerate_factors(form: SmithForm) -> list[Element]:
    """Return the parameter factors at whose zeros the Smith form changes, tested by substituting such zeros."""
    return [factor for factor in exceptional_factors(form) if _changes_structure(form, factor)]


def _changes_structure(form: SmithForm, factor: Element) -> bool:
    """Return whether the form differs at a random zero of the factor; yes where no zero could be found."""
    operator, ring = form.operator, form.operator.ring
    for field, points in _zeros(ring, factor):
        if any(not ring.image(bottom, field, points) for bottom in operator.denominators):
            return False  # the equations themselves are undefined there: nothing to parametrize
        rows = [[_image(ring, entry, field, points) for entry in row] for row in operator.rows]
        here = invariant_factors(field, rows, operator.width)
        there = [primitive(field, _image(ring, entry, field, points)) for entry in form.invariants]
        return here != there
    return True


def _image(ring: ScalarRing, polynomial: Polynomial, field: FiniteField, points: Sequence[Element]) -> Polynomial:
    values = [ring.image(value, field, points) for value in polynomial]
    while values and not values[-1]:
        values.pop()
    return values


def _zeros(ring: ScalarRing, factor: Element) -> Iterator[tuple[FiniteField, list[Element]]]:
    """Yield random points of large finite fields at which the factor, but nothing else in particular, vanishes."""
    generator = random.Random(len(ring.names))
    first_parameter = len(ring.constants)
    unknowns = [i for i, degree in enumerate(factor.degrees()) if degree and i >= first_parameter]
    for _ in range(_ATTEMPTS):
        field = FiniteField(_random_prime(generator))
        points = _random_point(ring, field, generator)
        if points is None:
            continue
        unknown = generator.choice(unknowns)
        coefficients = [0] * (int(factor.degrees()[unknown]) + 1)
        for exponents, value in ring.terms(factor).items():
            term = field.integer(value)
            for i, exponent in enumerate(exponents):
                if exponent and i != unknown:
                    term = term * points[i] ** exponent
            coefficients[exponents[unknown]] += int(term)
        roots = roots_modulo(field.prime, coefficients)
        if roots:
            points[unknown] = field.integer(roots[0])
            yield field, points


def _random_prime(generator: random.Random) -> int:
    while True:
        candidate = generator.getrandbits(60) | (1 << 60) | 1
        if fmpz(candidate).is_prime():
            return candidate


def _random_point(ring: ScalarRing, field: FiniteField, generator: random.Random) -> list[Element] | None:
    """Return random coordinates that respect the squares of square roots and sines, or None where these have none."""
    points: list[Element] = []
    for constant in ring.constants:
        if constant.kind in ("sqrt", "sin"):
            if constant.kind == "sqrt":
                square = int(constant.argument)
            else:
                cosine = points[ring.constants.index(Constant("cos", constant.argument, constant.times_pi))]
                square = int(field.one - cosine**2)
            roots = roots_modulo(field.prime, [-square, 0, 1])
            if not roots:
                return None
            points.append(field.integer(roots[0]))
        else:
            points.append(field.integer(generator.getrandbits(60)))
    points += [field.integer(generator.getrandbits(60)) for _ in ring.parameters]
    return points
