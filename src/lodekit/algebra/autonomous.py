"""The exponents of a system in which nothing is free, without any transformation: from a characteristic polynomial.

In the Popov form of the equations, the highest derivative of each channel stands in one equation and nowhere else, so
the lower ones are the states of ``s' = M s``. The elementary divisors follow from the characteristic polynomial of M,
which is exact, and from the minimal polynomial at a random point of a large finite field. Where the two agree there,
each factor has one block, and that is proved: a minimal polynomial can only become smaller at a point. Where they do
not, the blocks are those at the point, which are the generic ones up to a chance of about 1e-15.

Bezout coefficients do not occur, so this reaches where the whole decomposition does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from flint import fmpq, fmpq_mat, nmod_mat, nmod_poly

from lodekit.algebra.finite_field import Element, FiniteField
from lodekit.algebra.polynomials import Polynomial, factor, from_multivariate, primitive, to_multivariate
from lodekit.algebra.reduction import Vector, leading_position
from lodekit.algebra.sampling import image, random_points
from lodekit.algebra.scalars import MAX_FACTORED, MAX_PRODUCTS, ScalarRing, too_large
from lodekit.errors import AlgebraError

__all__ = ["count_states", "elementary_divisors", "forced_positions"]

#: How many terms a row of minors may have: a determinant that is longer would not be factored anyway.
MAX_IN_ROW = 10 * MAX_FACTORED


def count_states(equations: Sequence[Vector]) -> int:
    """Return how many initial numbers fix a solution of `equations` in Popov form, as many of them as channels.

    Examples
    --------
    >>> ring = ScalarRing()
    >>> count_states([[[ring.one, ring.zero, ring.one], []], [[], [ring.one, ring.one]]])
    3
    """
    return sum(len(row[leading_position(row, [0] * len(row))]) - 1 for row in equations)


def forced_positions(equations: Sequence[Vector]) -> list[int]:
    """Return the positions of channels that `equations` in Popov form force to be zero: they say so in a row."""
    found = []
    for row in equations:
        places = [j for j, entry in enumerate(row) if entry]
        if len(places) == 1 and len(row[places[0]]) == 1:
            found.append(places[0])
    return sorted(found)


def elementary_divisors(ring: ScalarRing, equations: Sequence[Vector]) -> list[tuple[Polynomial, int]]:
    """Return irreducible polynomials with exponents: what the solutions of square equations are made of.

    Parameters
    ----------
    ring : ScalarRing
        Without square roots and sines.
    equations : sequence of vectors
        In Popov form, as many as there are channels.
    """
    if ring.has_relations:
        raise AlgebraError("the exponents of systems with square roots need the whole decomposition")
    parts = factor(ring, _characteristic(ring, equations))
    field, points = next(random_points(ring, seed=2))
    matrix = _states(equations, [[image(ring, entry, field, points) for entry in row] for row in equations])
    smallest = nmod_mat(len(matrix), len(matrix), [int(v) for row in matrix for v in row], field.prime).minpoly()
    found = []
    for part, count in parts:
        at_point = nmod_poly([int(value) for value in image(ring, part, field, points)], field.prime)
        largest = 0
        while largest < count and not smallest % at_point ** (largest + 1):
            largest += 1
        found += [(part, size) for size in _blocks(matrix, field, at_point, count, largest)]
    return found


def _blocks(matrix: list[list[Element]], field: FiniteField, part: nmod_poly, count: int, largest: int) -> list[int]:
    """Return the sizes of the blocks of a factor, largest first; together they make up its exponent, the `count`."""
    # Without ranks, where all blocks have size one, or what the largest leaves has room for one at most.
    if largest in (0, 1) or count - largest < 2:
        sizes = [largest] * (count // largest) if largest == 1 else [largest, count - largest]
        return [size for size in sizes if size]
    size = len(matrix)
    total = nmod_mat(size, size, [0] * size * size, field.prime)
    base = nmod_mat(size, size, [int(value) for row in matrix for value in row], field.prime)
    identity = nmod_mat(size, size, [int(i == j) for i in range(size) for j in range(size)], field.prime)
    for value in reversed(part.coeffs()):
        total = total * base + identity * value
    nullities, power = [0], identity
    while nullities[-1] < count * part.degree():
        power = power * total
        nullities.append(size - power.rank())
        if nullities[-1] == nullities[-2]:
            break
    at_least = [(b - a) // part.degree() for a, b in pairwise(nullities)]
    return [sum(1 for n in at_least if n > index) for index in range(at_least[0])]


def _states(equations: Sequence[Vector], values: Sequence[Vector]) -> list[list[Element]]:
    """Return M of ``s' = M s`` over a field in which the equations have these values; derivatives ascend."""
    width = len(equations)
    # Each channel has one row of its own, which holds its highest derivative.
    owners = [leading_position(row, [0] * width) for row in equations]
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


def _characteristic(ring: ScalarRing, equations: Sequence[Vector]) -> Polynomial:
    """Return the determinant of square equations, as a canonical multiple."""
    if not ring.names:
        values = [[[fmpq(value) for value in entry] for entry in row] for row in equations]
        matrix = _states(equations, values)
        size = len(matrix)
        monic = fmpq_mat(size, size, [value for row in matrix for value in row]).charpoly()
        return primitive(ring, list(monic.numer().coeffs()))
    return primitive(ring, _determinant(ring, equations))


def _determinant(ring: ScalarRing, rows: Sequence[Vector]) -> Polynomial:
    """Return the determinant by fraction-free elimination in Z[d, symbols]: all that occurs are minors."""
    matrix = [[to_multivariate(ring, entry) for entry in row] for row in rows]
    size, previous = len(rows), to_multivariate(ring, [ring.one])
    for k in range(size - 1):
        _, i, j = min((len(matrix[i][j]), i, j) for i in range(k, size) for j in range(k, size) if matrix[i][j])
        matrix[k], matrix[i] = matrix[i], matrix[k]
        for row in matrix:
            row[k], row[j] = row[j], row[k]
        pivot = matrix[k]
        for row in matrix[k + 1 :]:
            lengths = [len(pivot[k]) * len(row[j]) + len(row[k]) * len(pivot[j]) for j in range(k + 1, size)]
            if max(lengths) > MAX_PRODUCTS or sum(len(entry) for entry in row) > MAX_IN_ROW:
                raise too_large()
            row[k + 1 :] = [(pivot[k] * row[j] - row[k] * pivot[j]) // previous for j in range(k + 1, size)]
        previous = pivot[k]
    return from_multivariate(ring, matrix[-1][-1])
