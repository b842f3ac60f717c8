"""Canonical bases of modules over K[d]: the one elimination that everything else is made of.

A *vector* is a list of polynomials, and a list of vectors spans a module. Order the monomials ``d^k e_j`` by
``k + shift_j``, ties by position: the reduced Groebner basis of the module for that order is its (shifted) Popov form,
unique up to scalars. One shift for all gives a minimal basis; a large shift on some positions eliminates those first,
which yields kernels and transformation matrices; shifts that decrease steeply give the Hermite form.

Degrees never grow on the way, and every vector is kept free of common factors, so coefficients stay as small as the
answer needs: a textbook Smith elimination is slower by orders of magnitude on such systems (benchmarks/algebra.py).
Where coefficients are integers, with no symbols among them, FLINT's polynomials take the place of lists inside: the
same steps, which count where channels are hundreds.

References
----------
Mulders, Storjohann (2003), On lattice reduction for polynomial matrices. Beckermann, Labahn, Villard (2006), Normal
forms for general polynomial matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flint import fmpz, fmpz_poly

from lodekit.algebra.finite_field import CoefficientRing, Element
from lodekit.algebra.polynomials import Polynomial, scale, trim
from lodekit.algebra.scalars import MAX_PRODUCTS, too_large

__all__ = [
    "ELIMINATE",
    "Vector",
    "kernel_and_image",
    "leading_position",
    "normal_form",
    "popov_basis",
    "primitive_vector",
]

Vector = list[Polynomial]
#: A vector of FLINT's polynomials, which have lengths and coefficients as lists do.
_Packed = list[Any]

#: A shift beyond every degree that occurs: its positions are eliminated before all others.
ELIMINATE = 1 << 40

#: How many terms in the parameters a vector may have before the computation is given up.
MAX_TERMS = 100_000
#: How many terms all vectors together may have that one elimination goes through.
MAX_WORK = 1_000_000


def leading_position(vector: Vector, shifts: Sequence[int | None]) -> int:
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


def primitive_vector(ring: CoefficientRing, vector: Vector, pivot: Element) -> Vector:
    """Return the primitive multiple of a `vector` over `ring`.

    Its elements have no common factor, and `pivot`, one of them, is root-free and positive.
    """
    unit = ring.unit(pivot)
    if _is_packed(vector):
        return _without_content([polynomial * unit for polynomial in vector] if unit != 1 else vector)
    if unit != 1:
        if ring.count_terms((unit,)) * _count(ring, vector) > MAX_PRODUCTS:
            raise too_large()
        vector = [scale(ring, polynomial, unit) for polynomial in vector]
    divisor = ring.content(value for polynomial in vector for value in polynomial)
    if divisor == 1 or not divisor:
        return vector
    return [[ring.divide(value, divisor) for value in polynomial] for polynomial in vector]


def _pack(vector: Vector) -> _Packed:
    return [fmpz_poly(polynomial) for polynomial in vector]


def _unpack(vector: _Packed) -> Vector:
    return [polynomial.coeffs() for polynomial in vector]


def _is_packed(vector: Vector | _Packed) -> bool:
    return bool(vector) and isinstance(vector[0], fmpz_poly)


def _without_content(vector: _Packed) -> _Packed:
    divisor = fmpz(0)
    for polynomial in vector:
        if polynomial:
            divisor = divisor.gcd(polynomial.content())
            if divisor == 1:
                return vector
    return [polynomial // divisor for polynomial in vector] if divisor else vector


def _leading(polynomial: Any) -> Element:
    return polynomial[len(polynomial) - 1]


def _cancel(ring: CoefficientRing, vector: Vector, by: Vector, position: int, degree: int) -> Vector:
    """Return the combination of both that has no ``d^degree`` at the position."""
    pivot, target = _leading(by[position]), vector[position][degree]
    shift = degree + 1 - len(by[position])
    common = ring.common_factor(pivot, target)
    keep, subtract = ring.divide(pivot, common), ring.divide(target, common)
    if _is_packed(vector):
        packed: _Packed = [polynomial * keep for polynomial in vector] if keep != 1 else list(vector)
        factor = fmpz_poly([0] * shift + [subtract]) if shift else subtract
        for place, polynomial in enumerate(by):
            if polynomial:
                packed[place] -= polynomial * factor
        return _without_content(packed)
    if (
        ring.count_terms((keep,)) * _count(ring, vector) + ring.count_terms((subtract,)) * _count(ring, by)
        > MAX_PRODUCTS
    ):
        raise too_large()
    result: Vector = []
    for polynomial, other in zip(vector, by, strict=True):
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
    divisor = ring.content(value for polynomial in result for value in polynomial)
    if divisor and divisor != 1:
        result = [[ring.divide(value, divisor) for value in polynomial] for polynomial in result]
    if _count(ring, result) > MAX_TERMS:
        raise too_large()
    return result


def _count(ring: CoefficientRing, vector: Vector) -> int:
    return ring.count_terms(value for polynomial in vector for value in polynomial)


def _weak_basis(
    ring: CoefficientRing, vectors: Iterable[Vector], shifts: Sequence[int | None]
) -> tuple[dict[int, Vector], list[Vector]]:
    """Return a basis with distinct leading positions, and what was left of vectors that vanish in the ordered part."""

    def weight(vector: Vector) -> int:
        position = leading_position(vector, shifts)
        return -1 if position < 0 else len(vector[position]) + (shifts[position] or 0)

    basis: dict[int, Vector] = {}
    vanished: list[Vector] = []
    work = 0
    for start in sorted(vectors, key=weight):
        vector = start
        while True:
            position = leading_position(vector, shifts)
            if position < 0:
                vanished.append(vector)
                break
            if position not in basis:
                basis[position] = vector
                break
            if len(vector[position]) < len(basis[position][position]):
                vector, basis[position] = basis[position], vector
            vector = _cancel(ring, vector, basis[position], position, len(vector[position]) - 1)
            work += _count(ring, vector)
            if work > MAX_WORK:
                raise too_large()
            position = leading_position(vector, shifts)
            if ring.has_relations and position >= 0:
                # Common factors that hide behind square roots come out when the leading coefficient is free of them.
                vector = primitive_vector(ring, vector, vector[position][-1])
    return basis, vanished


def normal_form(
    ring: CoefficientRing, vector: Vector, basis: dict[int, Vector], shifts: Sequence[int | None], *, skip: int = -1
) -> Vector:
    """Return a multiple of the vector's remainder modulo a basis with distinct leading positions.

    Parameters
    ----------
    ring : CoefficientRing
        Of the coefficients.
    vector : vector
        What is reduced.
    basis : dict of int to vector
        By leading position.
    shifts : sequence of int or None
        Added to the degrees; a position with None is only carried along.
    skip : int
        A leading position whose basis vector is not used (the vector's own).
    """
    if isinstance(ring.one, fmpz) and not _is_packed(vector):
        packed = {position: _pack(by) for position, by in basis.items()}
        return _unpack(normal_form(ring, _pack(vector), packed, shifts, skip=skip))
    places = [(k, len(by[k]), shifts[k] or 0) for k, by in basis.items() if k != skip]
    while True:
        best, target = -1, -1
        for position, least, shift in places:
            length = len(vector[position])
            if length >= least and length + shift > best:
                best, target = length + shift, position
        if target < 0:
            return vector
        vector = _cancel(ring, vector, basis[target], target, len(vector[target]) - 1)


def popov_basis(
    ring: CoefficientRing, vectors: Iterable[Vector], shifts: Sequence[int | None]
) -> tuple[dict[int, Vector], list[Vector]]:
    """Return the canonical basis by leading position, and the carried parts of vectors that vanish.

    Every vector is the primitive multiple with a positive leading coefficient, so the result is unique: it depends on
    the module and the shifts alone (where nothing is carried, or nothing vanishes).

    Parameters
    ----------
    ring : CoefficientRing
        Of the coefficients.
    vectors : iterable of vectors
        What spans the module.
    shifts : sequence of int or None
        Added to the degrees; a position with None is only carried along.
    """
    if is_plain := isinstance(ring.one, fmpz):
        vectors = [_pack(vector) for vector in vectors]
    basis, vanished = _weak_basis(ring, vectors, shifts)
    order = sorted(basis, key=lambda position: len(basis[position][position]) + (shifts[position] or 0))
    for position in order:
        basis[position] = normal_form(ring, basis[position], basis, shifts, skip=position)
    found = {
        position: primitive_vector(ring, basis[position], _leading(basis[position][position])) for position in order
    }
    if is_plain:
        found, vanished = {position: _unpack(vector) for position, vector in found.items()}, [*map(_unpack, vanished)]
    return {position: found[position] for position in sorted(found)}, vanished


def kernel_and_image(
    ring: CoefficientRing, vectors: Sequence[Vector]
) -> tuple[list[Vector], list[Vector], list[Vector]]:
    """Return the Popov basis of the module over `ring` that `vectors` span, with how it is combined from them.

    Returns
    -------
    image : list of vectors
        The Popov basis of the module that the given vectors span.
    combinations : list of vectors
        For each of them the coefficients of the given vectors, reduced modulo the kernel.
    kernel : list of vectors
        A minimal (Popov) basis of the relations among the given vectors; with `combinations` it is unimodular.
    """
    if not vectors:
        return [], [], []
    width, count = len(vectors[0]), len(vectors)
    extended = [
        [list(p) for p in vector] + [[ring.one] if i == j else [] for j in range(count)]
        for i, vector in enumerate(vectors)
    ]
    basis, _ = popov_basis(ring, extended, [ELIMINATE] * width + [0] * count)
    image = [vector for position, vector in basis.items() if position < width]
    kernel = [vector[width:] for position, vector in basis.items() if position >= width]
    return [v[:width] for v in image], [v[width:] for v in image], kernel
