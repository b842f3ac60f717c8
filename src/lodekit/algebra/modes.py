"""Exponents of the autonomous part: exact multiplicities, and certified root isolation by ball arithmetic.

For a system without free functions, the exponents follow from a characteristic polynomial, without transformations and
their Bezout coefficients. In the Popov form of the equations, the highest derivative of each channel is the pivot
of one equation, so the lower ones are the states of ``s' = M s`` with a block companion matrix M. The elementary
divisors follow from the exact characteristic polynomial of M (Bareiss elimination) and from the minimal polynomial at a
random point of a large prime field. If both agree there, each factor has one Jordan block, which is a proof, as a
minimal polynomial can only become smaller at a point. Otherwise the block sizes are those at the point, which are the
generic ones up to a probability of about 1e-15.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from flint import acb, acb_poly, arb, ctx as flint_context, fmpq, fmpq_mat, fmpz_poly, nmod_mat, nmod_poly

from lodekit.algebra import polynomials
from lodekit.algebra.polynomials import Polynomial
from lodekit.algebra.reduction import Vector, pivot_index
from lodekit.algebra.scalars import MAX_FACTOR_TERMS, MAX_PRODUCT_TERMS, Element, ScalarRing, expression_swell_error
from lodekit.errors import AlgebraError


def factor_annihilators(ring: ScalarRing, annihilators: Sequence[Polynomial]) -> list[tuple[Polynomial, int, int]]:
    """Return the factors of all d_i, the `annihilators`: canonical polynomial, exact multiplicity and index i."""
    return [
        (part, multiplicity, index)
        for index, annihilator in enumerate(annihilators)
        for part, multiplicity in polynomials.factor(ring, annihilator)
    ]


def isolate_roots(
    ring: ScalarRing, polynomial: Sequence[Element], values: Mapping[str, Fraction] | None = None
) -> list[tuple[complex, int]]:
    """Return the roots of a polynomial at rational parameter values, to full float accuracy, with exact multiplicity.

    The values are substituted exactly and the result is factored, so multiplicities are exact. Each root is isolated by
    interval arithmetic and refined until its enclosure is far narrower than the spacing of floats. If a leading
    coefficient vanishes at the values, there are fewer roots than generically.
    """
    exact = dict(values or {})
    exponents = [vector for element in polynomial for vector in ring.terms(element)]
    used = [name for k, name in enumerate(ring.names) if any(vector[k] for vector in exponents)]
    missing = [name for name in ring.parameters if name in used and name not in exact]
    if missing:
        raise AlgebraError(f"roots need a value for every parameter; missing: {', '.join(missing)}")
    target, special = polynomials.specialize(ring, polynomial, exact)
    if not special:
        raise AlgebraError("every coefficient vanishes at these parameter values: the mode is not defined there")
    parts = polynomials.factor(target, special)
    roots = [(root, count) for part, count in parts for root in _isolate_simple_roots(target, part)]
    return sorted(roots, key=lambda item: (item[0].real, item[0].imag))


def _isolate_simple_roots(ring: ScalarRing, polynomial: Polynomial) -> list[complex]:
    """Return the roots of a square-free polynomial without parameters."""
    zeros = next(power for power, element in enumerate(polynomial) if element)
    rest = polynomial[zeros:]
    # Even and odd part share the roots whose negatives are roots as well, which include the imaginary ones.
    even = [value if power % 2 == 0 else ring.zero for power, value in enumerate(rest)]
    odd = [value if power % 2 else ring.zero for power, value in enumerate(rest)]
    may_be_imaginary = len(polynomials.gcd(ring, polynomials.trim(even), polynomials.trim(odd))) > 1
    # The precision is doubled until each root is known to 60 bits, more than the 53 of a float.
    for bits in (96 << k for k in range(8)):
        with flint_context.workprec(bits):
            roots = _roots_at_precision(ring, rest, may_be_imaginary=may_be_imaginary)
        if roots is not None:
            return [*roots, *([0j] * zeros)]
    raise AlgebraError("the roots of a mode could not be separated, even with 16,000 bits")


def _roots_at_precision(ring: ScalarRing, polynomial: Polynomial, *, may_be_imaginary: bool) -> list[complex] | None:
    """Return rounded roots, or None if the current precision is not sufficient."""
    if len(polynomial) < 2:
        return []
    if not ring.constants:
        balls = [acb(root) for root, _ in fmpz_poly(list(polynomial)).complex_roots()]
    else:
        coefficients = [acb(ring.enclose(element)) for element in polynomial]
        try:
            balls = acb_poly(coefficients).roots(tol=arb(2) ** -(flint_context.prec // 2))
        except ValueError:
            return None
    roots = []
    for ball in balls:
        mirrored = acb(ball.real, -ball.imag)
        is_real = sum(1 for other in balls if other.overlaps(mirrored)) == 1 and ball.imag.contains(0)
        real = _round_ball(ball.real, may_vanish=may_be_imaginary)
        imaginary = 0.0 if is_real else _round_ball(ball.imag, may_vanish=False)
        if real is None or imaginary is None:
            return None
        if not math.isfinite(real) or not math.isfinite(imaginary) or (real == imaginary == 0.0):
            raise AlgebraError("a root of a mode is too large or too small for a float; rescale time or parameters")
        roots.append(complex(real, imaginary))
    return roots


def _round_ball(part: Any, *, may_vanish: bool) -> float | None:
    """Return the centre of a ball as a float, zero if it contains zero and may vanish; None if it is too wide."""
    radius = part.rad()
    if radius == 0:
        return float(part.mid())
    if part.contains(0):
        # If imaginary roots are possible, a real part whose ball contains zero at 768 bits is zero.
        return 0.0 if may_vanish and flint_context.prec >= 768 else None
    return float(part.mid()) if radius * arb(2) ** 60 < abs(part.mid()) else None


def elementary_divisors(ring: ScalarRing, equations: Sequence[Vector]) -> list[tuple[Polynomial, int]]:
    """Return irreducible polynomials with exponents: the elementary divisors of square equations."""
    if ring.has_relations:
        raise AlgebraError("the exponents of systems with square roots need the whole decomposition")
    parts = polynomials.factor(ring, _characteristic_polynomial(ring, equations))
    field, points = next(polynomials.sample_points(ring, seed=2))

    def at_point(polynomial: Polynomial) -> Polynomial:
        return polynomials.map_polynomial_to_finite_field(ring, polynomial, field, points)

    rows = _companion_matrix(equations, [list(map(at_point, row)) for row in equations])
    matrix = nmod_mat(len(rows), len(rows), [int(value) for row in rows for value in row], field.prime)
    minimal_polynomial = matrix.minpoly()
    divisors = []
    for part, count in parts:
        image = nmod_poly([int(value) for value in at_point(part)], field.prime)
        largest = 0
        while largest < count and not minimal_polynomial % image ** (largest + 1):
            largest += 1
        divisors += [(part, size) for size in _jordan_block_sizes(matrix, field.prime, image, count, largest)]
    return divisors


def _jordan_block_sizes(matrix: nmod_mat, prime: int, part: nmod_poly, count: int, largest: int) -> list[int]:
    """Return the sizes of the blocks of a factor, largest first; their sum is its exponent, the `count`."""
    # Without ranks, if all blocks have size one, or the largest block leaves room for at most one more.
    if largest in (0, 1) or count - largest < 2:
        sizes = [largest] * (count // largest) if largest == 1 else [largest, count - largest]
        return [size for size in sizes if size]
    size = matrix.nrows()
    total = nmod_mat(size, size, [0] * size * size, prime)
    identity = nmod_mat(size, size, [int(i == j) for i in range(size) for j in range(size)], prime)
    for value in reversed(part.coeffs()):
        total = total * matrix + identity * value
    nullities, power = [0], identity
    while nullities[-1] < count * part.degree():
        power = power * total
        nullities.append(size - power.rank())
        if nullities[-1] == nullities[-2]:
            break
    at_least = [(b - a) // part.degree() for a, b in pairwise(nullities)]
    return [sum(1 for n in at_least if n > index) for index in range(at_least[0])]


def _companion_matrix(equations: Sequence[Vector], values: Sequence[Vector]) -> list[list[Element]]:
    """Return M of ``s' = M s`` for equations with given values over a field; derivatives are in ascending order."""
    width = len(equations)
    # Each channel has one row, which contains its highest derivative.
    owners = [pivot_index(row, [0] * width) for row in equations]
    rows = dict(zip(owners, values, strict=True))
    degree = {channel: len(row[channel]) - 1 for channel, row in zip(owners, equations, strict=True)}
    start, offset = {}, 0
    for channel in range(width):
        start[channel], offset = offset, offset + degree[channel]
    matrix: list[list[Element]] = [[0] * offset for _ in range(offset)]
    for channel in range(width):
        for k in range(degree[channel] - 1):
            matrix[start[channel] + k][start[channel] + k + 1] = 1
        if degree[channel]:
            row = rows[channel]
            lead = row[channel][degree[channel]]
            last = matrix[start[channel] + degree[channel] - 1]
            for other in range(width):
                for k, value in enumerate(row[other][: degree[other]]):
                    last[start[other] + k] = -value / lead
    return matrix


def _characteristic_polynomial(ring: ScalarRing, equations: Sequence[Vector]) -> Polynomial:
    """Return the determinant of square equations, as a canonical multiple."""
    if not ring.names:
        values = [[[fmpq(value) for value in entry] for entry in row] for row in equations]
        matrix = _companion_matrix(equations, values)
        size = len(matrix)
        monic = fmpq_mat(size, size, [value for row in matrix for value in row]).charpoly()
        return polynomials.primitive_part(ring, list(monic.numer().coeffs()))
    return polynomials.primitive_part(ring, _bareiss_determinant(ring, equations))


def _bareiss_determinant(ring: ScalarRing, rows: Sequence[Vector]) -> Polynomial:
    """Return the determinant by fraction-free elimination in Z[d, symbols]: all intermediate results are minors."""
    matrix = [[polynomials.to_multivariate(ring, entry) for entry in row] for row in rows]
    size, previous = len(rows), polynomials.to_multivariate(ring, [ring.one])
    for k in range(size - 1):
        _, i, j = min((len(matrix[i][j]), i, j) for i in range(k, size) for j in range(k, size) if matrix[i][j])
        matrix[k], matrix[i] = matrix[i], matrix[k]
        for row in matrix:
            row[k], row[j] = row[j], row[k]
        pivot = matrix[k]
        for row in matrix[k + 1 :]:
            lengths = [len(pivot[k]) * len(row[j]) + len(row[k]) * len(pivot[j]) for j in range(k + 1, size)]
            # A longer determinant would not be factored anyway.
            if max(lengths) > MAX_PRODUCT_TERMS or sum(len(entry) for entry in row) > 10 * MAX_FACTOR_TERMS:
                raise expression_swell_error()
            row[k + 1 :] = [(pivot[k] * row[j] - row[k] * pivot[j]) // previous for j in range(k + 1, size)]
        previous = pivot[k]
    return polynomials.from_multivariate(ring, matrix[-1][-1])
