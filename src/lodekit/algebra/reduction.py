"""Popov and Hermite forms: canonical bases of modules over K[d], kernels and images of polynomial matrices.

A *vector* is a list of polynomials, and a list of vectors spans a module. Order the monomials ``d^k e_j`` by
``k + shift_j``, ties by position: the reduced Groebner basis of the module for that order is its (shifted) Popov form,
unique up to scalars. One shift for all gives a minimal basis; a large shift on some positions eliminates those first,
which yields kernels and transformation matrices; shifts that decrease steeply give the Hermite form.

Degrees never grow during the reduction, and every vector is kept free of common factors, so coefficients stay as small
as the result requires: a textbook Smith elimination is slower by orders of magnitude on such systems
(benchmarks/algebra.py). With integer coefficients, FLINT polynomials replace lists internally: the steps are the same,
but faster with hundreds of channels.

References
----------
Mulders, Storjohann (2003), On lattice reduction for polynomial matrices. Beckermann, Labahn, Villard (2006), Normal
forms for general polynomial matrices.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from flint import fmpz, fmpz_poly, nmod_mat, nmod_poly

from lodekit.algebra.polynomials import Polynomial, map_polynomial_to_finite_field, sample_points, scale, trim
from lodekit.algebra.scalars import MAX_PRODUCT_TERMS, CoefficientRing, Element, ScalarRing, expression_swell_error

Vector = list[Polynomial]
#: A vector of FLINT polynomials, whose lengths and coefficients are accessed like those of lists.
_FlintVector = list[Any]

#: A shift beyond all degrees: its positions are eliminated before all others.
ELIMINATION_SHIFT = 1 << 40


def pivot_index(vector: Vector, shifts: Sequence[int | None]) -> int:
    """Return the position of the leading monomial of a `vector`, or -1 for none.

    The `shifts` are added to the degrees; a position with shift None is only carried along.
    """
    best, position = -1, -1
    for j, polynomial in enumerate(vector):
        if polynomial:
            shift = shifts[j]
            if shift is not None and len(polynomial) + shift > best:
                best, position = len(polynomial) + shift, j
    return position


def primitive_part_of_vector(ring: CoefficientRing, vector: Vector, pivot: Element) -> Vector:
    """Return the primitive multiple of a `vector` over `ring`.

    Its elements have no common factor, and `pivot`, one of them, is free of roots and positive.
    """
    unit = ring.canonical_multiplier(pivot)
    if _is_flint_vector(vector):
        return _divide_flint_vector_by_content([polynomial * unit for polynomial in vector] if unit != 1 else vector)
    if unit != 1:
        if ring.count_terms((unit,)) * _count_vector_terms(ring, vector) > MAX_PRODUCT_TERMS:
            raise expression_swell_error()
        vector = [scale(ring, polynomial, unit) for polynomial in vector]
    return divide_by_content(ring, vector)


def vector_content(ring: CoefficientRing, vector: Vector) -> Element:
    """Return a common divisor of all coefficients of a vector."""
    return ring.content(value for polynomial in vector for value in polynomial)


def divide_by_content(ring: CoefficientRing, vector: Vector) -> Vector:
    """Return the `vector` over `ring` divided by the factor common to all its coefficients."""
    divisor = vector_content(ring, vector)
    if divisor == 1 or not divisor:
        return vector
    return [[ring.divide(value, divisor) for value in polynomial] for polynomial in vector]


def _to_flint(vector: Vector) -> _FlintVector:
    return [fmpz_poly(polynomial) for polynomial in vector]


def _from_flint(vector: _FlintVector) -> Vector:
    return [polynomial.coeffs() for polynomial in vector]


def _is_flint_vector(vector: Vector | _FlintVector) -> bool:
    return bool(vector) and isinstance(vector[0], fmpz_poly)


def _divide_flint_vector_by_content(vector: _FlintVector) -> _FlintVector:
    divisor = fmpz(0)
    for polynomial in vector:
        if polynomial:
            divisor = divisor.gcd(polynomial.content())
            if divisor == 1:
                return vector
    return [polynomial // divisor for polynomial in vector] if divisor else vector


def _leading_coefficient(polynomial: Any) -> Element:
    return polynomial[len(polynomial) - 1]


def _cancel_term(ring: CoefficientRing, vector: Vector, pivot_vector: Vector, position: int, degree: int) -> Vector:
    """Return the combination of both vectors without ``d^degree`` at the position."""
    pivot, target = _leading_coefficient(pivot_vector[position]), vector[position][degree]
    shift = degree + 1 - len(pivot_vector[position])
    common = ring.common_factor(pivot, target)
    keep, subtract = ring.divide(pivot, common), ring.divide(target, common)
    if _is_flint_vector(vector):
        packed: _FlintVector = [polynomial * keep for polynomial in vector] if keep != 1 else list(vector)
        factor = fmpz_poly([0] * shift + [subtract]) if shift else subtract
        for place, polynomial in enumerate(pivot_vector):
            if polynomial:
                packed[place] -= polynomial * factor
        return _divide_flint_vector_by_content(packed)
    products = ring.count_terms((keep,)) * _count_vector_terms(ring, vector)
    if products + ring.count_terms((subtract,)) * _count_vector_terms(ring, pivot_vector) > MAX_PRODUCT_TERMS:
        raise expression_swell_error()
    result: Vector = []
    for polynomial, other in zip(vector, pivot_vector, strict=True):
        if not other and (keep == 1 or not polynomial):
            result.append(polynomial)
            continue
        values = [keep * value for value in polynomial] if keep != 1 else list(polynomial)
        if other:
            values += [ring.zero] * (len(other) + shift - len(values))
            for power, value in enumerate(other, shift):
                values[power] = values[power] - subtract * value
        if ring.has_relations:
            values = [ring.reduce(value) for value in values]
        result.append(trim(values))
    result = divide_by_content(ring, result)
    if _count_vector_terms(ring, result) > 100_000:
        raise expression_swell_error()
    return result


def _count_vector_terms(ring: CoefficientRing, vector: Vector) -> int:
    return ring.count_terms(value for polynomial in vector for value in polynomial)


def _weak_popov_basis(
    ring: CoefficientRing, vectors: Iterable[Vector], shifts: Sequence[int | None]
) -> tuple[dict[int, Vector], list[Vector]]:
    """Return a basis with distinct leading positions, and the remainders of vectors whose ordered part vanishes."""

    def weight(vector: Vector) -> int:
        position = pivot_index(vector, shifts)
        return -1 if position < 0 else len(vector[position]) + (shifts[position] or 0)

    basis: dict[int, Vector] = {}
    vanished: list[Vector] = []
    work = 0
    for start in sorted(vectors, key=weight):
        vector = start
        while True:
            position = pivot_index(vector, shifts)
            if position < 0:
                vanished.append(vector)
                break
            if position not in basis:
                basis[position] = vector
                break
            if len(vector[position]) < len(basis[position][position]):
                vector, basis[position] = basis[position], vector
            vector = _cancel_term(ring, vector, basis[position], position, len(vector[position]) - 1)
            work += _count_vector_terms(ring, vector)
            if work > MAX_PRODUCT_TERMS:
                raise expression_swell_error()
            position = pivot_index(vector, shifts)
            if ring.has_relations and position >= 0:
                # Common factors hidden by square roots appear when the leading coefficient is free of roots.
                vector = primitive_part_of_vector(ring, vector, vector[position][-1])
    return basis, vanished


def reduce_modulo_basis(
    ring: CoefficientRing,
    vector: Vector,
    basis: dict[int, Vector],
    shifts: Sequence[int | None],
    *,
    excluded_pivot: int = -1,
) -> Vector:
    """Return a multiple of the vector's remainder modulo a basis with distinct leading positions."""
    if isinstance(ring.one, fmpz) and not _is_flint_vector(vector):
        packed = {position: _to_flint(by) for position, by in basis.items()}
        return _from_flint(reduce_modulo_basis(ring, _to_flint(vector), packed, shifts, excluded_pivot=excluded_pivot))
    places = [(k, len(by[k]), shifts[k] or 0) for k, by in basis.items() if k != excluded_pivot]
    while True:
        best, target = -1, -1
        for position, least, shift in places:
            length = len(vector[position])
            if length >= least and length + shift > best:
                best, target = length + shift, position
        if target < 0:
            return vector
        vector = _cancel_term(ring, vector, basis[target], target, len(vector[target]) - 1)


def popov_basis(
    ring: CoefficientRing, vectors: Iterable[Vector], shifts: Sequence[int | None]
) -> tuple[dict[int, Vector], list[Vector]]:
    """Return the canonical basis by leading position, and the carried parts of vectors that vanish.

    Every vector is the primitive multiple with a positive leading coefficient, so the result is unique: it depends only
    on the module and the shifts (if nothing is carried along, or nothing vanishes).
    """
    if is_plain := isinstance(ring.one, fmpz):
        vectors = [_to_flint(vector) for vector in vectors]
    basis, vanished = _weak_popov_basis(ring, vectors, shifts)
    order = sorted(basis, key=lambda position: len(basis[position][position]) + (shifts[position] or 0))
    for position in order:
        basis[position] = reduce_modulo_basis(ring, basis[position], basis, shifts, excluded_pivot=position)
    found = {j: primitive_part_of_vector(ring, basis[j], _leading_coefficient(basis[j][j])) for j in sorted(basis)}
    if is_plain:
        found, vanished = {j: _from_flint(vector) for j, vector in found.items()}, [*map(_from_flint, vanished)]
    return found, vanished


def kernel_and_image(
    ring: CoefficientRing, vectors: Sequence[Vector]
) -> tuple[list[Vector], list[Vector], list[Vector]]:
    """Return the Popov basis of the module over `ring` spanned by `vectors`, its coefficients, and the kernel."""
    if not vectors:
        return [], [], []
    width, count = len(vectors[0]), len(vectors)
    identity = [[[ring.one] if i == j else [] for j in range(count)] for i in range(count)]
    extended = [[*map(list, vector), *row] for vector, row in zip(vectors, identity, strict=True)]
    basis, _ = popov_basis(ring, extended, [ELIMINATION_SHIFT] * width + [0] * count)
    image = [vector for position, vector in basis.items() if position < width]
    kernel = [vector[width:] for position, vector in basis.items() if position >= width]
    return [v[:width] for v in image], [v[width:] for v in image], kernel


def is_provably_left_prime(ring: ScalarRing, equations: Sequence[Vector], width: int) -> bool:
    """Return whether a random point proves that the equations leave no mode; False if it proves nothing.

    The determinants of the equations times random matrices are combinations of the maximal minors: if two of them have
    no common zero, neither do the minors.
    """
    rank = len(equations)
    if not rank:
        return True
    field, points = next(sample_points(ring))
    prime, generator = field.prime, random.Random(rank)
    rows = [[map_polynomial_to_finite_field(ring, entry, field, points) for entry in row] for row in equations]
    most = max(len(entry) for row in rows for entry in row)
    entries = [[int(e[k]) if k < len(e) else 0 for row in rows for e in row] for k in range(most)]
    powers = [nmod_mat(rank, width, values, prime) for values in entries]
    degree = sum(max(len(entry) for entry in row) - 1 for row in rows)
    found = nmod_poly([0], prime)
    for _ in range(2):
        mixed = nmod_mat(width, rank, [generator.getrandbits(60) for _ in range(width * rank)], prime)
        square = [power * mixed for power in powers]
        values = []
        for point in range(degree + 1):
            total = square[-1]
            for power in reversed(square[:-1]):
                total = total * point + power
            values.append(int(total.det()))
        found = found.gcd(_interpolate_newton(values, prime))
    return bool(found.degree() == 0)


def _interpolate_newton(values: Sequence[int], prime: int) -> nmod_poly:
    """Return the polynomial with these values at 0, 1, 2, ..., by Newton's divided differences."""
    differences = list(values)
    for order in range(1, len(values)):
        inverse = pow(order, -1, prime)
        for k in range(len(values) - 1, order - 1, -1):
            differences[k] = (differences[k] - differences[k - 1]) * inverse % prime
    total = nmod_poly([0], prime)
    for k in range(len(values) - 1, -1, -1):
        total = total * nmod_poly([-k % prime, 1], prime) + differences[k]
    return total
