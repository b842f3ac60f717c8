"""Polynomials in d over a coefficient ring: lists of coefficients, lowest degree first, without trailing zeros.

Pseudo-division, greatest common divisors, Yun's square-free factorization, and evaluation at random points of large
prime fields (Schwartz-Zippel lemma). At a special point rank can only decrease and invariant factors can only grow, so
one point can prove full rank and controllability, however large the symbolic expressions are. The random generator is
seeded.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from flint import fmpz, fmpz_mpoly_ctx, fmpz_poly, nmod_poly

from lodekit.algebra.scalars import (
    CoefficientRing,
    Element,
    FiniteField,
    Scalar,
    ScalarRing,
    factor_multivariate,
    format_sum,
    multiply_powers,
)

Polynomial = list[Element]


def trim(coefficients: Polynomial) -> Polynomial:
    """Drop zeros at the high end, in place, and return the list."""
    while coefficients and not coefficients[-1]:
        coefficients.pop()
    return coefficients


def add(first: Sequence[Element], second: Sequence[Element]) -> Polynomial:
    """Return ``first + second``."""
    if len(first) < len(second):
        first, second = second, first
    total = list(first)
    for i, value in enumerate(second):
        total[i] = total[i] + value
    return trim(total)


def scale(ring: CoefficientRing, polynomial: Sequence[Element], factor: Element, shift: int = 0) -> Polynomial:
    """Return ``factor * d^shift * polynomial`` over `ring`."""
    if not polynomial or not factor:
        return []
    values = [factor * value for value in polynomial]
    if ring.has_relations:
        values = trim([ring.reduce(value) for value in values])
    return [ring.zero] * shift + values


def multiply(ring: CoefficientRing, first: Sequence[Element], second: Sequence[Element]) -> Polynomial:
    """Return ``first * second`` over `ring`."""
    if not first or not second:
        return []
    if len(first) == 1 or len(second) == 1:
        constant, other = (first, second) if len(first) == 1 else (second, first)
        return scale(ring, other, constant[0])
    if isinstance(ring.one, fmpz):
        return list((fmpz_poly(list(first)) * fmpz_poly(list(second))).coeffs())
    product = [ring.zero] * (len(first) + len(second) - 1)
    for i, left in enumerate(first):
        if left:
            for j, right in enumerate(second):
                product[i + j] = product[i + j] + left * right
    if ring.has_relations:
        product = [ring.reduce(value) for value in product]
    return trim(product)


def derivative(polynomial: Sequence[Element]) -> Polynomial:
    """Return the derivative in d."""
    return trim([value * power for power, value in enumerate(polynomial)][1:])


def primitive_part(ring: CoefficientRing, polynomial: Sequence[Element]) -> Polynomial:
    """Return the canonical multiple of a `polynomial` over `ring`.

    Its coefficients have no common factor, and the leading one is root-free and positive.
    """
    if not polynomial:
        return []
    unit = ring.canonical_multiplier(polynomial[-1])
    values = scale(ring, polynomial, unit) if unit != 1 else list(polynomial)
    divisor = ring.content(values)
    return values if divisor == 1 else [ring.divide(value, divisor) for value in values]


def pseudo_divide(
    ring: CoefficientRing, dividend: Sequence[Element], divisor: Sequence[Element]
) -> tuple[Element, Polynomial, Polynomial]:
    """Return ``c, q, r`` over `ring` with ``c * dividend = q * divisor + r`` and ``deg r < deg divisor``."""
    factor, rest = ring.one, list(dividend)
    quotient: Polynomial = []
    while len(rest) >= len(divisor):
        shift = len(rest) - len(divisor)
        common = ring.common_factor(divisor[-1], rest[-1])
        top, bottom = ring.divide(divisor[-1], common), ring.divide(rest[-1], common)
        rest = add(scale(ring, rest, top), scale(ring, divisor, -bottom, shift))
        quotient = add(scale(ring, quotient, top), [ring.zero] * shift + [bottom])
        factor = ring.reduce(factor * top)
    return factor, quotient, rest


def divide_exactly(
    ring: CoefficientRing, dividend: Sequence[Element], divisor: Sequence[Element]
) -> tuple[Element, Polynomial]:
    """Return ``c, q`` over `ring` with ``c * dividend = q * divisor``, a division without remainder."""
    factor, quotient, rest = pseudo_divide(ring, dividend, divisor)
    if rest:
        raise ArithmeticError("a polynomial division that must be exact left a remainder")
    return factor, quotient


def gcd(ring: CoefficientRing, first: Sequence[Element], second: Sequence[Element]) -> Polynomial:
    """Return the greatest common divisor of `first` and `second` over `ring`'s fractions, as a canonical multiple."""
    left, right = list(first), list(second)
    while right:
        left, right = right, pseudo_divide(ring, left, right)[2]
        if 1 in (len(left), len(right)):
            # A constant divides everything; making it canonical can cost more than the rest of the algorithm.
            return [ring.one]
        right = primitive_part(ring, right)
    return primitive_part(ring, left)


def extended_gcd(
    ring: CoefficientRing, first: Sequence[Element], second: Sequence[Element]
) -> tuple[Polynomial, Polynomial, Polynomial]:
    """Return ``g, s, t`` over `ring`: ``s * first + t * second = g`` is a multiple of the greatest common divisor."""
    rows = [(list(first), [ring.one], []), (list(second), [], [ring.one])]
    while rows[1][0]:
        factor, quotient, rest = pseudo_divide(ring, rows[0][0], rows[1][0])
        negative = scale(ring, quotient, -ring.one)
        s, t = (
            add(scale(ring, old, factor), multiply(ring, negative, new))
            for old, new in zip(rows[0][1:], rows[1][1:], strict=True)
        )
        divisor = ring.content([*rest, *s, *t])
        rest, s, t = ([ring.divide(value, divisor) for value in part] for part in (rest, s, t))
        rows = [rows[1], (rest, s, t)]
    return rows[0]


def factor(ring: ScalarRing, polynomial: Sequence[Element]) -> list[tuple[Polynomial, int]]:
    """Return the factors of positive degree of a `polynomial` over `ring`, canonical, with exact multiplicities.

    Factors are irreducible over Q(constants, parameters), except with square roots or sines: then they are only
    square-free, since irreducibility over an algebraic extension is not needed for exact multiplicities.
    """
    if len(polynomial) < 2:
        return []
    if any(ring.involves_roots(element) for element in polynomial):
        parts = _square_free_factors(ring, polynomial)
    elif isinstance(ring.one, fmpz):
        _, factors = fmpz_poly(list(polynomial)).factor()
        parts = [(list(part.coeffs()), int(count)) for part, count in factors if part.degree() > 0]
    else:
        # Factor in Z[d, symbols] and keep the factors that contain d (Gauss's lemma).
        found = factor_multivariate(to_multivariate(ring, polynomial))
        parts = [(part, count) for part, count in ((from_multivariate(ring, f), n) for f, n in found) if len(part) > 1]
    canonical = [(primitive_part(ring, part), count) for part, count in parts]
    return sorted(canonical, key=lambda item: (len(item[0]), [tuple(ring.terms(c).items()) for c in item[0]], item[1]))


def _square_free_factors(ring: ScalarRing, polynomial: Sequence[Element]) -> list[tuple[Polynomial, int]]:
    """Yun's algorithm over the fraction field."""
    parts, count = [], 1
    common = gcd(ring, polynomial, derivative(polynomial))
    rest = divide_exactly(ring, polynomial, common)[1]
    while len(rest) > 1:
        shared = gcd(ring, rest, common)
        part = divide_exactly(ring, rest, shared)[1]
        if len(part) > 1:
            parts.append((part, count))
        rest, common, count = shared, divide_exactly(ring, common, shared)[1], count + 1
    return parts


def to_multivariate(ring: ScalarRing, polynomial: Sequence[Element]) -> Element:
    """Return a `polynomial` in d over `ring`, whose coefficients have symbols, as a FLINT polynomial in all of them.

    Divisions and greatest common divisors are those of Z[d, symbols], without the relations of constants.
    """
    context = fmpz_mpoly_ctx.get([f"v{i}" for i in range(len(ring.names) + 1)], "lex")
    terms = ((power, ring.terms(element)) for power, element in enumerate(polynomial))
    return context.from_dict({(power, *exponents): value for power, part in terms for exponents, value in part.items()})


def from_multivariate(ring: ScalarRing, element: Element) -> Polynomial:
    """Return the polynomial in d over `ring` of an `element` made by `to_multivariate`."""
    if not element:
        return []
    powers: list[dict[tuple[int, ...], int]] = [{} for _ in range(int(element.degrees()[0]) + 1)]
    for exponents, value in element.to_dict().items():
        powers[int(exponents[0])][tuple(int(e) for e in exponents[1:])] = int(value)
    return [ring.from_terms(power) for power in powers]


def clear_denominators(ring: ScalarRing, entries: Iterable[Sequence[Scalar]]) -> tuple[Element, list[Polynomial]]:
    """Return the common denominator of polynomials over the field, and the polynomials multiplied by it."""
    entries = list(entries)
    common = ring.common_multiple(value.denominator for entry in entries for value in entry)
    return common, [trim([v.numerator * ring.divide(common, v.denominator) for v in entry]) for entry in entries]


def cancel_common_factors(
    ring: ScalarRing, numerator: Sequence[Scalar], denominator: Sequence[Scalar]
) -> tuple[list[Scalar], list[Scalar]]:
    """Return two polynomials in d with integral coefficients and no common factor, in the same ratio.

    If square roots or sines occur in `ring`, denominators are cleared and common factors stay.
    """
    _, (above, below) = clear_denominators(ring, (numerator, denominator))
    if not ring.has_relations:
        pair = [to_multivariate(ring, part) for part in (above, below)]
        divisor = pair[0].gcd(pair[1])
        above, below = (from_multivariate(ring, part // divisor) for part in pair)
    return [Scalar(ring, value) for value in above], [Scalar(ring, value) for value in below]


def roots_modulo_prime(prime: int, polynomial: Sequence[int]) -> list[int]:
    """Return the roots of an integer `polynomial` in the field with `prime` elements."""
    image = nmod_poly([value % prime for value in polynomial], prime)
    return sorted(int(root) for root, _ in image.roots()) if image.degree() > 0 else []


def specialize(
    ring: ScalarRing, polynomial: Sequence[Element], values: Mapping[str, Fraction]
) -> tuple[ScalarRing, Polynomial]:
    """Return the ring of constants of `ring`, and a multiple of the `polynomial` at rational `values` in it.

    Parameters without a value must not occur in the polynomial.
    """
    target = ScalarRing((), ring.constants)
    count = len(ring.constants)
    points = [Fraction(values.get(name, 0)) for name in ring.parameters]
    total = []
    for element in polynomial:
        value = target.rational(0)
        for exponents, coefficient in ring.terms(element).items():
            rational = multiply_powers(Fraction(coefficient), points, exponents[count:])
            symbol = Scalar(target, target.from_terms({exponents[:count]: 1}))
            value = value + symbol * target.rational(rational)
        total.append(value)
    return target, clear_denominators(target, [total])[1][0]


def format_polynomial(coefficients: Sequence[Scalar], variable: str = "d") -> str:
    """Return `coefficients`, lowest first, as the text of a polynomial in `variable`: ``d^2 + (a + b)*d``."""
    powers = ["", variable, *(f"{variable}^{power}" for power in range(2, len(coefficients)))]
    pairs = list(zip(coefficients, powers, strict=False))
    return format_sum((value, base) for value, base in reversed(pairs) if value)


def map_polynomial_to_finite_field(
    ring: ScalarRing, polynomial: Polynomial, field: FiniteField, points: Sequence[Element]
) -> Polynomial:
    """Return a `polynomial` in d over `ring` at the `points` of a `field`, one for each symbol of the ring."""
    return trim([ring.map_to_finite_field(value, field, points) for value in polynomial])


def sample_points(ring: ScalarRing, seed: int = 0) -> Iterator[tuple[FiniteField, list[Element]]]:
    """Yield points from a `seed`, one coordinate for each symbol of `ring`.

    The relations for squares of square roots and sines hold at the points.
    """
    for field, branches in _sample_fields(ring, random.Random(seed)):
        yield field, branches[0]


def sample_zeros(ring: ScalarRing, factor: Element) -> Iterator[tuple[FiniteField, list[list[Element]]]]:
    """Yield fields with zeros of a parameter `factor` in `ring`, on many branches of square roots and sines.

    Over an extension by square roots, a factor that is irreducible over the rationals can split, and only one of the
    parts may matter; hence the branches.
    """
    generator = random.Random(len(ring.names))
    unknowns = [i for i, degree in enumerate(factor.degrees()) if degree > 0 and i >= len(ring.constants)]
    for attempt, (field, branches) in enumerate(_sample_fields(ring, generator)):
        if attempt == 20:  # about every second field has a zero
            return
        unknown = generator.choice(unknowns)
        zeros = []
        for points in branches:
            coefficients = [0] * (int(factor.degrees()[unknown]) + 1)
            for exponents, value in ring.terms(factor).items():
                others = [0 if i == unknown else exponent for i, exponent in enumerate(exponents)]
                coefficients[exponents[unknown]] += int(multiply_powers(field.integer(value), points, others))
            zeros += [
                [field.integer(root) if i == unknown else value for i, value in enumerate(points)]
                for root in roots_modulo_prime(field.prime, coefficients)
            ]
        if zeros:
            yield field, zeros


def _sample_fields(ring: ScalarRing, generator: random.Random) -> Iterator[tuple[FiniteField, list[list[Element]]]]:
    """Yield fields in which all square roots and sines of the ring exist, with a point on each of their branches."""
    # Each square root or sine exists only modulo every second prime; a system has few of them.
    for _ in range(2000):
        while not fmpz(prime := generator.getrandbits(60) | (1 << 60) | 1).is_prime():
            pass
        field = FiniteField(prime)
        branches: list[list[Element]] = [[]]
        for constant in ring.constants:
            if constant.kind not in ("sqrt", "sin"):
                value = field.integer(generator.getrandbits(60))
                branches = [[*points, value] for points in branches]
                continue
            extended = []
            for points in branches:
                square = int(constant.argument)
                if constant.kind == "sin":
                    square = int(field.one - points[ring.constants.index(constant.cosine)] ** 2)
                roots = roots_modulo_prime(field.prime, [-square, 0, 1])
                extended += [[*points, field.integer(root)] for root in roots if len(roots) == 2]
            branches = extended[:16]
        parameters = [field.integer(generator.getrandbits(60)) for _ in ring.parameters]
        if branches:
            yield field, [[*points, *parameters] for points in branches]
