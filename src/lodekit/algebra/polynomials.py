"""Polynomials in d over a coefficient ring: plain lists of coefficients, lowest degree first, no zero at the end.

They carry no ring of their own, so that the eliminations stay one tight loop; functions that must recognise zero under
relations, or take out common factors, are handed the ring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from flint import fmpz, fmpz_mpoly_ctx, fmpz_poly, nmod_poly

from lodekit.algebra.finite_field import CoefficientRing, Element
from lodekit.algebra.scalars import Scalar, ScalarRing, check_factorable, join_terms

__all__ = [
    "Polynomial",
    "add",
    "derivative",
    "divide_exactly",
    "extended_gcd",
    "factor",
    "format_polynomial",
    "from_multivariate",
    "gcd",
    "lowest_terms",
    "multiply",
    "primitive",
    "pseudo_divide",
    "roots_modulo",
    "scale",
    "specialize",
    "to_multivariate",
    "trim",
]

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


def primitive(ring: CoefficientRing, polynomial: Sequence[Element]) -> Polynomial:
    """Return the canonical multiple of a `polynomial` over `ring`.

    Its coefficients have no common factor, and the leading one is root-free and positive.
    """
    if not polynomial:
        return []
    unit = ring.unit(polynomial[-1])
    values = scale(ring, polynomial, unit) if unit != 1 else list(polynomial)
    divisor = ring.content(values)
    if divisor != 1:
        values = [ring.divide(value, divisor) for value in values]
    return values


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
    """Return ``c, q`` over `ring` with ``c * dividend = q * divisor``, where the division leaves no rest."""
    factor, quotient, rest = pseudo_divide(ring, dividend, divisor)
    if rest:
        raise ArithmeticError("a polynomial division that must be exact left a rest")
    return factor, quotient


def gcd(ring: CoefficientRing, first: Sequence[Element], second: Sequence[Element]) -> Polynomial:
    """Return the greatest common divisor of `first` and `second` over `ring`'s fractions, as a canonical multiple."""
    left, right = list(first), list(second)
    while right:
        left, right = right, pseudo_divide(ring, left, right)[2]
        if 1 in (len(left), len(right)):
            # A constant divides everything; making it canonical can cost more than all the rest.
            return [ring.one]
        right = primitive(ring, right)
    return primitive(ring, left)


def extended_gcd(
    ring: CoefficientRing, first: Sequence[Element], second: Sequence[Element]
) -> tuple[Polynomial, Polynomial, Polynomial]:
    """Return ``g, s, t`` over `ring`, ``s * first + t * second = g`` a multiple of the greatest common divisor."""
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

    Factors are irreducible over Q(constants, parameters), except where square roots or sines occur: there they are
    square-free only, since irreducibility over an algebraic extension is not needed for exact multiplicities.
    """
    if len(polynomial) < 2:
        return []
    if any(ring.involves_roots(element) for element in polynomial):
        parts = _square_free_parts(ring, polynomial)
    elif isinstance(ring.one, fmpz):
        _, found = fmpz_poly(list(polynomial)).factor()
        parts = [(list(part.coeffs()), int(count)) for part, count in found if part.degree() > 0]
    else:
        parts = _factor_with_symbols(ring, polynomial)
    canonical = [(primitive(ring, part), count) for part, count in parts]
    return sorted(canonical, key=lambda item: (len(item[0]), [tuple(ring.terms(c).items()) for c in item[0]], item[1]))


def _square_free_parts(ring: ScalarRing, polynomial: Sequence[Element]) -> list[tuple[Polynomial, int]]:
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


def _factor_with_symbols(ring: ScalarRing, polynomial: Sequence[Element]) -> list[tuple[Polynomial, int]]:
    """Factor in Z[d, symbols] and keep what contains d (Gauss's lemma)."""
    whole = to_multivariate(ring, polynomial)
    check_factorable(len(whole))
    parts = [(from_multivariate(ring, part), int(count)) for part, count in whole.factor()[1]]
    return [(part, count) for part, count in parts if len(part) > 1]


def to_multivariate(ring: ScalarRing, polynomial: Sequence[Element]) -> Element:
    """Return a `polynomial` in d over `ring`, whose coefficients have symbols, as one of FLINT's in d and all symbols.

    Its divisions and greatest common divisors are those of Z[d, symbols]; relations of constants are not known there.
    """
    context = fmpz_mpoly_ctx.get([f"v{i}" for i in range(len(ring.names) + 1)], "lex")
    return context.from_dict(
        {
            (power, *exponents): value
            for power, element in enumerate(polynomial)
            for exponents, value in ring.terms(element).items()
        }
    )


def from_multivariate(ring: ScalarRing, element: Element) -> Polynomial:
    """Return the polynomial in d over `ring` that an `element` made by `to_multivariate` stands for."""
    if not element:
        return []
    powers: list[dict[tuple[int, ...], int]] = [{} for _ in range(int(element.degrees()[0]) + 1)]
    for exponents, value in element.to_dict().items():
        powers[int(exponents[0])][tuple(int(e) for e in exponents[1:])] = int(value)
    return [ring.from_terms(power) for power in powers]


def lowest_terms(
    ring: ScalarRing, top: Sequence[Scalar], bottom: Sequence[Scalar]
) -> tuple[list[Scalar], list[Scalar]]:
    """Return two polynomials in d without a common factor, whole numbers included, in the ratio of `top` and `bottom`.

    Where square roots or sines occur in `ring`, denominators are cleared and common factors stay.

    Examples
    --------
    >>> ring = ScalarRing(("a",))
    >>> one, a = ring.rational(1), ring.parameter("a")
    >>> lowest_terms(ring, [a, one], [a / a, one / a])
    ([Scalar(a)], [Scalar(1)])
    """
    common = ring.common_multiple(value.denominator for value in (*top, *bottom))
    above, below = (
        trim([value.numerator * ring.divide(common, value.denominator) for value in part]) for part in (top, bottom)
    )
    if not ring.has_relations:
        pair = [to_multivariate(ring, part) for part in (above, below)]
        divisor = pair[0].gcd(pair[1])
        above, below = (from_multivariate(ring, part // divisor) for part in pair)
    return [Scalar(ring, value) for value in above], [Scalar(ring, value) for value in below]


def roots_modulo(prime: int, polynomial: Sequence[int]) -> list[int]:
    """Return the roots of an integer `polynomial` in the field with `prime` elements."""
    image = nmod_poly([value % prime for value in polynomial], prime)
    if image.degree() < 1:
        return []
    return sorted(int(root) for root, _ in image.roots())


def specialize(
    ring: ScalarRing, polynomial: Sequence[Element], values: Mapping[str, Fraction]
) -> tuple[ScalarRing, Polynomial]:
    """Return the ring that is left of `ring` at rational `values`, and a multiple of the `polynomial` in it.

    Parameters without a value must not occur in the polynomial.
    """
    target = ScalarRing((), ring.constants)
    count = len(ring.constants)
    points = [Fraction(values.get(name, 0)) for name in ring.parameters]
    total = []
    for element in polynomial:
        value = target.rational(0)
        for exponents, coefficient in ring.terms(element).items():
            rational = Fraction(coefficient)
            for point, exponent in zip(points, exponents[count:], strict=True):
                rational *= point**exponent
            symbol = Scalar(target, target.from_terms({exponents[:count]: 1}))
            value = value + symbol * target.rational(rational)
        total.append(value)
    common = target.common_multiple(value.denominator for value in total)
    return target, trim([value.numerator * target.divide(common, value.denominator) for value in total])


def format_polynomial(coefficients: Sequence[Scalar], variable: str = "d") -> str:
    """Return `coefficients`, lowest first, as users would write a polynomial in `variable`: ``d^2 + (a + b)*d``."""
    powers = ["", variable, *(f"{variable}^{power}" for power in range(2, len(coefficients)))]
    pairs = list(zip(coefficients, powers, strict=False))
    return join_terms((value, base) for value, base in reversed(pairs) if value)
