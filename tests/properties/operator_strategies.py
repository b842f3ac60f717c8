"""Random operator matrices for property tests: all shapes, ranks and planted structures."""

from __future__ import annotations

from hypothesis import strategies as st

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import Polynomial, multiply, trim
from lodekit.algebra.scalars import ScalarRing

RINGS = [ScalarRing(tuple("abc"[:count])) for count in range(4)]


@st.composite
def polynomials(draw: st.DrawFn, ring: ScalarRing, degree: int = 2) -> Polynomial:
    """A polynomial with small integer coefficients, some of them times a parameter."""
    values = []
    for _ in range(draw(st.integers(0, degree + 1))):
        value = ring.integer(draw(st.integers(-4, 4)))
        if draw(st.booleans()) and ring.parameters:
            value = value * ring.parameter(draw(st.sampled_from(ring.parameters))).numerator
        values.append(value)
    return trim(values)


@st.composite
def matrices(draw: st.DrawFn, rows: int, columns: int, ring: ScalarRing, degree: int = 2) -> OperatorMatrix:
    """A matrix of random polynomials."""
    entries = [[draw(polynomials(ring, degree)) for _ in range(columns)] for _ in range(rows)]
    return OperatorMatrix.from_vectors(ring, entries, columns)


@st.composite
def operators(draw: st.DrawFn) -> OperatorMatrix:
    """Any operator matrix: wide, square, tall, rank-deficient, zero, 1 x 1, with 0 to 3 parameters."""
    ring = draw(st.sampled_from(RINGS))
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["plain", "plain", "deficient", "zero", "tall"]))
    if kind == "zero":
        return OperatorMatrix.from_vectors(ring, [[[] for _ in range(columns)] for _ in range(rows)], columns)
    if kind == "deficient":
        return draw(matrices(rows, 1, ring, 1)) @ draw(matrices(1, columns, ring, 1))
    if kind == "tall":
        return draw(matrices(columns + 1, columns, ring, 1))
    # Bezout coefficients of dense matrices in several parameters are enormous; keep those small.
    if len(ring.parameters) > 1:
        return draw(matrices(min(rows, 2), min(columns, 3), ring, 1))
    return draw(matrices(rows, columns, ring))


@st.composite
def unimodular(draw: st.DrawFn, size: int, ring: ScalarRing, steps: int = 3) -> OperatorMatrix:
    """A product of elementary matrices: invertible over the polynomials."""
    total = OperatorMatrix.identity(ring, size)
    for _ in range(steps):
        rows = [[[ring.one] if i == j else [] for j in range(size)] for i in range(size)]
        i = draw(st.integers(0, size - 1))
        if size == 1 or draw(st.booleans()):
            rows[i][i] = [ring.integer(draw(st.sampled_from([-3, -1, 2, 5])))]
        else:
            j = draw(st.integers(0, size - 2))
            rows[i][j if j < i else j + 1] = draw(polynomials(ring, 1))
        total = OperatorMatrix.from_vectors(ring, rows, size) @ total
    return total


@st.composite
def invariant_chains(draw: st.DrawFn, ring: ScalarRing, size: int) -> list[Polynomial]:
    """Polynomials that divide each other in turn, with repeated, complex and parametric roots."""
    factors: list[Polynomial] = [
        [ring.zero, ring.one],
        [ring.integer(2), ring.one],
        [ring.integer(5), ring.integer(2), ring.one],
        [ring.one, ring.zero, ring.one],
    ]
    if ring.parameters:
        factors.append([ring.parameter(ring.parameters[0]).numerator, ring.one])
    chain, current = [], [ring.one]
    for _ in range(size):
        for _ in range(draw(st.integers(0, 2))):
            current = multiply(ring, current, draw(st.sampled_from(factors)))
        chain.append(current)
    return chain
