"""The Smith form U A V = D with its transformation matrices, and an independent check of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from lodekit.algebra.decomposition import Decomposition, Parts, between, combine, without_content
from lodekit.algebra.finite_field import CoefficientRing
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import (
    Polynomial,
    divide_exactly,
    extended_gcd,
    multiply,
    primitive,
    pseudo_divide,
    scale,
)
from lodekit.algebra.reduction import Vector, kernel_and_image
from lodekit.algebra.scalars import Scalar
from lodekit.errors import VerificationError

if TYPE_CHECKING:
    import sympy

__all__ = ["SmithForm", "divide_columns", "divide_rows", "invert_right", "smith_form", "to_matrices"]


@dataclass(frozen=True)
class SmithForm:
    """``U A V = D``: U and V invertible over K[d], D diagonal, monic, each entry dividing the next.

    The exact matrices are `left`, `diagonal` and `right` (`OperatorMatrix`); `U`, `D`, `V` are the same for SymPy.
    `left_inverse` and `right_inverse` are witnesses that U and V are unimodular.

    Parameters
    ----------
    operator : OperatorMatrix
        A.
    left, diagonal, right : OperatorMatrix
        U, D and V, exact.
    rank : int
        How many entries of the diagonal are not zero.

    Examples
    --------
    >>> import lodekit as lk
    >>> form = lk.System("x'' + 3*x' + 2*x = u").smith_form
    >>> form.D
    Matrix([[1, 0]])
    >>> for line in form.verify():
    ...     print(line)
    U A V = D
    U and V are unimodular
    D is diagonal and monic, and each entry divides the next
    """

    operator: OperatorMatrix
    left: OperatorMatrix
    diagonal: OperatorMatrix
    right: OperatorMatrix
    rank: int

    @property
    def U(self) -> sympy.ImmutableMatrix:
        """The left transformation, as a SymPy matrix."""
        return self.left.sympy

    @property
    def D(self) -> sympy.ImmutableMatrix:
        """The diagonal form, as a SymPy matrix."""
        return self.diagonal.sympy

    @property
    def V(self) -> sympy.ImmutableMatrix:
        """The right transformation, as a SymPy matrix; its last columns are a minimal basis of the kernel."""
        return self.right.sympy

    @property
    def invariants(self) -> list[Polynomial]:
        """The non-zero diagonal entries, as canonical multiples."""
        return [self.diagonal.rows[i][i] for i in range(self.rank)]

    @cached_property
    def right_inverse(self) -> OperatorMatrix:
        """``V^-1``: its rows are the decoupled functions p = V^-1 f."""
        return invert_right(self.left @ self.operator, self.right, self.invariants)

    @cached_property
    def left_inverse(self) -> OperatorMatrix:
        """``U^-1``."""
        ring, height, variable = self.operator.ring, len(self.operator.rows), self.operator.variable
        first = divide_columns(self.operator @ self.right, self.invariants)
        if self.rank == height:
            return first
        relations = self.left.take_rows(range(self.rank, height))
        # These rows are their numerators: they have no denominators, for those of A are multiplied into them.
        basis, witness, _ = kernel_and_image(ring, relations.columns())
        below = [vector[i][0] for i, vector in enumerate(basis)]
        start = OperatorMatrix.from_vectors(ring, witness, height, variable, below).transpose()
        rest = start - first @ self.left.take_rows(range(self.rank)) @ start
        return first.beside(rest)

    def verify(self) -> tuple[str, ...]:
        """Return what was proved, after checking the form exactly, by multiplication alone; no elimination is trusted.

        Returns
        -------
        tuple of str
            The identities that were proved.

        Raises
        ------
        VerificationError
            Naming the first identity that does not hold.
        """
        height, width = self.operator.shape
        nonzero = sum(1 for i in range(min(height, width)) if self.diagonal.rows[i][i])
        VerificationError.unless(nonzero == self.rank, "the rank is the number of non-zero diagonal entries")
        VerificationError.unless(self.left @ self.operator @ self.right == self.diagonal, "U A V = D")
        for name, matrix, inverse, size in (
            ("U", self.left, self.left_inverse, height),
            ("V", self.right, self.right_inverse, width),
        ):
            identity = OperatorMatrix.identity(self.operator.ring, size, self.operator.variable)
            VerificationError.unless(matrix @ inverse == identity, f"{name} is unimodular")
        ring = self.operator.ring
        for i, row in enumerate(self.diagonal.rows):
            VerificationError.unless(all(not entry for j, entry in enumerate(row) if j != i), "D is diagonal")
            if i < width and row[i]:
                VerificationError.unless(row[i][-1] == self.diagonal.denominators[i], "D is monic")
        chain = [row[i] for i, row in enumerate(self.diagonal.rows) if i < width]
        for entry, following in pairwise(chain):
            divides = not following if not entry else not pseudo_divide(ring, following, entry)[2]
            VerificationError.unless(divides, "each diagonal entry divides the next")
        return (
            "U A V = D",
            "U and V are unimodular",
            "D is diagonal and monic, and each entry divides the next",
        )


def smith_form(operator: OperatorMatrix, decomposition: Decomposition | None = None) -> SmithForm:
    """Return the Smith form of an `operator` with its transformations; its `decomposition` is taken over where known.

    The last columns of V are the minimal (column-reduced, Popov) basis of the kernel; the last rows of U are a minimal
    basis of the relations among the equations.
    """
    stages = decomposition or Decomposition(operator.ring, operator.rows, operator.width)
    parts = _chain(operator.ring, operator.rows, stages.parts)
    left, diagonal, right = to_matrices(operator, parts)
    return SmithForm(operator, left, diagonal, right, rank=len(parts.diagonal))


def to_matrices(operator: OperatorMatrix, parts: Parts) -> tuple[OperatorMatrix, OperatorMatrix, OperatorMatrix]:
    """Return U, D and V with ``U A V = D`` and monic D, for A the `operator`, from the `parts` of its decomposition."""
    ring, (height, width), variable = operator.ring, operator.shape, operator.variable
    rows, below, diagonal, under = [], [], [], []
    for i, (left, entry) in enumerate(zip(parts.left, parts.diagonal, strict=True)):
        # A has row denominators a_j: U = U' diag(a). Dividing by the leading coefficient makes the entry monic.
        canonical = primitive(ring, entry)
        row = [scale(ring, value, a) for value, a in zip(left, operator.denominators, strict=True)]
        rows.append([scale(ring, value, canonical[-1]) for value in row])
        below.append(ring.reduce(entry[-1] * canonical[-1]))
        diagonal.append([canonical if j == i else [] for j in range(width)])
        under.append(canonical[-1])
    rows += [
        [scale(ring, value, a) for value, a in zip(left, operator.denominators, strict=True)]
        for left in parts.relations
    ]
    below += [ring.one] * len(parts.relations)
    diagonal += [[[] for _ in range(width)] for _ in parts.relations]
    under += [ring.one] * len(parts.relations)
    columns = parts.right + parts.kernel
    right = [[columns[j][i] for j in range(width)] for i in range(width)]
    return (
        OperatorMatrix.from_vectors(ring, rows, height, variable, below),
        OperatorMatrix(ring, diagonal, under, width, variable),
        OperatorMatrix(ring, right, [ring.one] * width, width, variable),
    )


def _chain(ring: CoefficientRing, rows: Sequence[Vector], parts: Parts) -> Parts:
    """Make every diagonal entry divide the next, smallest pairs first: this keeps the transformations small."""
    left, right, diagonal = list(parts.left), list(parts.right), list(parts.diagonal)
    while True:
        pairs = [
            (len(diagonal[i]) + len(diagonal[j]), i, j)
            for i, j in combinations(range(len(diagonal)), 2)
            if not _divides(ring, diagonal[i], diagonal[j]) and not _divides(ring, diagonal[j], diagonal[i])
        ]
        if not pairs:
            break
        _, i, j = min(pairs)
        _merge(ring, (i, j), diagonal, left, right)
        for k in (i, j):
            left[k], right[k] = without_content(ring, left[k]), without_content(ring, right[k])
            diagonal[k] = between(ring, left[k], rows, right[k])
    order = sorted(range(len(diagonal)), key=lambda i: len(diagonal[i]))
    left, right, diagonal = ([part[i] for i in order] for part in (left, right, diagonal))
    return Parts(left, parts.relations, right, parts.kernel, diagonal)


def _divides(ring: CoefficientRing, entry: Polynomial, following: Polynomial) -> bool:
    return len(entry) <= len(following) and not pseudo_divide(ring, following, entry)[2]


def _merge(
    ring: CoefficientRing, pair: tuple[int, int], diagonal: list[Polynomial], rows: list[Vector], columns: list[Vector]
) -> None:
    """Turn two diagonal entries a, b into gcd and lcm by changing rows and columns in place.

    With s a + t b = g, ``[[s, t], [-b/g, a/g]] diag(a, b) [[1, -t b/g], [1, s a/g]] = diag(g, a b/g)``.
    """
    i, j = pair
    g, s, t = extended_gcd(ring, diagonal[i], diagonal[j])
    a_factor, a_part = divide_exactly(ring, diagonal[i], g)
    b_factor, b_part = divide_exactly(ring, diagonal[j], g)
    # Both quotients over one multiplier, which scales a whole row or column and so does no harm.
    a_part, b_part = scale(ring, a_part, b_factor), scale(ring, b_part, -a_factor)
    for vectors, first, second in (
        (rows, [s, t], [b_part, a_part]),
        (columns, [[ring.one], [ring.one]], [multiply(ring, t, b_part), multiply(ring, s, a_part)]),
    ):
        both = [vectors[i], vectors[j]]
        vectors[i], vectors[j] = combine(ring, first, both), combine(ring, second, both)


def invert_right(image: OperatorMatrix, right: OperatorMatrix, diagonal: Sequence[Polynomial]) -> OperatorMatrix:
    """Return ``V^-1`` from U A, the `image`, and V = `right` with ``U A V = D``; the `diagonal` holds the d_i.

    Its first rows are those of U A divided by the d_i.
    """
    ring, width, rank, variable = right.ring, right.width, len(diagonal), right.variable
    top = divide_rows(image, diagonal)
    if rank == width:
        return top
    basis, witness, _ = kernel_and_image(ring, right.take_columns(range(rank, width)).rows)
    below = [row[i][0] for i, row in enumerate(basis)]
    start = OperatorMatrix.from_vectors(ring, witness, width, variable, below)
    return top.above(start - start @ right.take_columns(range(rank)) @ top)


def divide_rows(matrix: OperatorMatrix, divisors: Sequence[Polynomial]) -> OperatorMatrix:
    """Return the first rows of a `matrix`, as many as `divisors`, divided exactly by (monic multiples of) them."""
    entries = [[_quotient(matrix, i, j, divisor) for j in range(matrix.width)] for i, divisor in enumerate(divisors)]
    return OperatorMatrix.from_scalars(matrix.ring, entries, matrix.width, matrix.variable)


def divide_columns(matrix: OperatorMatrix, divisors: Sequence[Polynomial]) -> OperatorMatrix:
    """Return the first columns of a `matrix`, as many as `divisors`, divided exactly by (monic multiples of) them."""
    entries = [
        [_quotient(matrix, i, j, divisor) for j, divisor in enumerate(divisors)] for i in range(len(matrix.rows))
    ]
    return OperatorMatrix.from_scalars(matrix.ring, entries, len(divisors), matrix.variable)


def _quotient(matrix: OperatorMatrix, i: int, j: int, divisor: Polynomial) -> list[Scalar]:
    """Return entry (i, j) divided by the monic multiple of the divisor."""
    ring = matrix.ring
    factor, quotient, rest = pseudo_divide(ring, matrix.rows[i][j], divisor)
    VerificationError.unless(not rest, "a row or column is divisible by its invariant factor")
    bottom = ring.reduce(factor * matrix.denominators[i])
    return [Scalar(ring, ring.reduce(value * divisor[-1]), bottom) for value in quotient]
