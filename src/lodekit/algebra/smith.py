"""The Smith form U A V = D with its transformation matrices, and an independent check of it.

The road: rows of A to their Popov form P (equations without redundancy), columns of P to ``P [N B] = [L 0]`` (B spans
the kernel, minimally), and L, square and regular, to a diagonal by Hermite forms in turn. For a controllable system L
is the identity and the third step is empty. Every step is canonical, so the result depends on the solution space alone
(up to the rows of U, which say how the given equations make it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from lodekit.algebra.finite_field import CoefficientRing
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import (
    Polynomial,
    add,
    divide_exactly,
    extended_gcd,
    multiply,
    primitive,
    pseudo_divide,
    scale,
)
from lodekit.algebra.reduction import (
    ELIMINATE,
    Vector,
    kernel_and_image,
    leading_position,
    normal_form,
    popov_basis,
    primitive_vector,
)
from lodekit.algebra.scalars import Scalar
from lodekit.errors import VerificationError

if TYPE_CHECKING:
    import sympy

__all__ = ["SmithForm", "invariant_factors", "smith_form"]


@dataclass(frozen=True)
class SmithForm:
    """``U A V = D``: U and V invertible over K[d], D diagonal, monic, each entry dividing the next.

    The exact matrices are `left`, `diagonal` and `right` (`OperatorMatrix`); `U`, `D`, `V` are the same for SymPy.
    `left_inverse` and `right_inverse` are witnesses that U and V are unimodular.

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
        ring, width, variable = self.operator.ring, self.operator.width, self.operator.variable
        top = divide_rows(self.left @ self.operator, self.invariants)
        if self.rank == width:
            return top
        free = self.right.take_columns(range(self.rank, width))
        image, combinations, _ = kernel_and_image(ring, free.rows)
        start = OperatorMatrix.from_vectors(
            ring, combinations, width, variable, [row[i][0] for i, row in enumerate(image)]
        )
        rest = start - start @ self.right.take_columns(range(self.rank)) @ top
        return top.above(rest)

    @cached_property
    def left_inverse(self) -> OperatorMatrix:
        """``U^-1``."""
        ring, height, variable = self.operator.ring, len(self.operator.rows), self.operator.variable
        image = self.operator @ self.right
        first = _divide_columns(image, self.invariants)
        if self.rank == height:
            return first
        relations = self.left.take_rows(range(self.rank, height))
        # The last rows of U have no denominators of their own, only those of A.
        basis, combinations, _ = kernel_and_image(ring, relations.columns())
        below = [vector[i][0] for i, vector in enumerate(basis)]
        start = OperatorMatrix.from_vectors(ring, combinations, height, variable, below).transpose()
        rest = start - first @ self.left.take_rows(range(self.rank)) @ start
        return first.beside(rest)

    def verify(self) -> tuple[str, ...]:
        """Check the form exactly, by multiplication alone; no elimination is trusted.

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


def smith_form(operator: OperatorMatrix) -> SmithForm:
    """Return the Smith form of an operator matrix, with transformations.

    The last columns of V are the minimal (column-reduced, Popov) basis of the kernel; the last rows of U are a minimal
    basis of the relations among the equations.
    """
    ring, (height, width), variable = operator.ring, operator.shape, operator.variable
    parts = _decompose(ring, operator.rows, width)
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
    return SmithForm(
        operator,
        OperatorMatrix.from_vectors(ring, rows, height, variable, below),
        OperatorMatrix(ring, diagonal, under, width, variable),
        OperatorMatrix(ring, right, [ring.one] * width, width, variable),
        rank=len(parts.diagonal),
    )


def invariant_factors(ring: CoefficientRing, rows: Sequence[Vector], width: int) -> list[Polynomial]:
    """Return the non-zero diagonal entries of the Smith form, as canonical multiples."""
    return [primitive(ring, entry) for entry in _decompose(ring, rows, width).diagonal]


@dataclass(frozen=True)
class _Decomposition:
    """``[left; relations] A [right kernel] = [diag 0; 0 0]``, everything without fractions."""

    left: list[Vector]
    relations: list[Vector]
    right: list[Vector]
    kernel: list[Vector]
    diagonal: list[Polynomial]


def _decompose(ring: CoefficientRing, rows: Sequence[Vector], width: int) -> _Decomposition:
    image, left, relations = kernel_and_image(ring, rows)
    # Rows without common factor: only then does everything after depend on the solution space, not on the writing.
    contents = [ring.content(value for entry in row for value in entry) for row in image]
    equations = [
        [[ring.divide(value, content) for value in entry] for entry in row]
        for row, content in zip(image, contents, strict=True)
    ]
    columns = [[row[j] for row in equations] for j in range(width)]
    lattice, right, kernel = kernel_and_image(ring, columns)
    square = [[column[i] for column in lattice] for i in range(len(lattice))]
    row_steps, column_steps = _diagonalize(ring, square)
    common = ring.one
    for content in contents:
        common = ring.divide(common * content, ring.common_factor(common, content))
    shares = [ring.divide(common, content) for content in contents]
    weights = [[scale(ring, w, share) for w, share in zip(step, shares, strict=True)] for step in row_steps]
    left = _reduce_modulo(ring, [_combine(ring, step, left) for step in weights], relations)
    right = _reduce_modulo(ring, [_combine(ring, step, right) for step in column_steps], kernel)
    diagonal = [_between(ring, first, rows, second) for first, second in zip(left, right, strict=True)]
    return _Decomposition(left, relations, right, kernel, diagonal)


def _combine(ring: CoefficientRing, weights: Vector, vectors: Sequence[Vector]) -> Vector:
    """Return the sum of the vectors, each times its polynomial."""
    total: Vector = [[] for _ in vectors[0]]
    for weight, vector in zip(weights, vectors, strict=True):
        if weight:
            total = [add(old, multiply(ring, weight, entry)) for old, entry in zip(total, vector, strict=True)]
    return total


def _between(ring: CoefficientRing, left: Vector, rows: Sequence[Vector], right: Vector) -> Polynomial:
    """Return the polynomial ``left A right``, A given by rows."""
    total: Polynomial = []
    for entry, factor in zip(_combine(ring, left, rows), right, strict=True):
        if entry and factor:
            total = add(total, multiply(ring, entry, factor))
    return total


def _reduce_modulo(ring: CoefficientRing, vectors: Sequence[Vector], kernel: Sequence[Vector]) -> list[Vector]:
    """Take from each vector what lies in the kernel, and make it primitive."""
    if not vectors:
        return []
    shifts = [0] * len(vectors[0])
    basis = {leading_position(vector, shifts): vector for vector in kernel}
    reduced = [normal_form(ring, vector, basis, shifts) for vector in vectors]
    return [primitive_vector(ring, v, v[leading_position(v, shifts)][-1]) for v in reduced]


def _diagonalize(ring: CoefficientRing, square: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    """Return row steps and column steps that make a regular matrix, given by rows, diagonal with a divisibility chain.

    Row and column Hermite forms in turn: each is unique and so are its multipliers, hence nothing can swell.
    """
    size = len(square)
    row_steps = [[[ring.one] if i == j else [] for j in range(size)] for i in range(size)]
    column_steps = [[[ring.one] if i == j else [] for j in range(size)] for i in range(size)]
    if all(len(entry) < 2 for row in square for entry in row) and _is_diagonal(square):
        return row_steps, column_steps
    matrix = square
    while True:
        matrix, row_steps = _hermite(ring, matrix, row_steps)
        if _is_diagonal(matrix):
            break
        columns = [[row[j] for row in matrix] for j in range(size)]
        columns, column_steps = _hermite(ring, columns, column_steps)
        matrix = [[column[i] for column in columns] for i in range(size)]
        if _is_diagonal(matrix):
            break
    diagonal = [matrix[i][i] for i in range(size)]
    for i in range(size):
        for j in range(i + 1, size):
            if pseudo_divide(ring, diagonal[j], diagonal[i])[2]:
                _merge(ring, (i, j), diagonal, row_steps, column_steps)
                for k in (i, j):
                    diagonal[k] = _between(ring, row_steps[k], square, column_steps[k])
    return row_steps, column_steps


def _is_diagonal(matrix: Sequence[Vector]) -> bool:
    return all(not entry for i, row in enumerate(matrix) for j, entry in enumerate(row) if i != j)


def _hermite(ring: CoefficientRing, vectors: list[Vector], steps: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    """Return the triangular form of a regular matrix of vectors, with the steps carried along."""
    size = len(vectors)
    extended = [[*vector, *step] for vector, step in zip(vectors, steps, strict=True)]
    shifts = [ELIMINATE * (size - j) for j in range(size)] + [None] * len(steps[0])
    basis, _ = popov_basis(ring, extended, shifts)
    ordered = [basis[position] for position in range(size)]
    return [vector[:size] for vector in ordered], [vector[size:] for vector in ordered]


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
        vectors[i], vectors[j] = _combine(ring, first, both), _combine(ring, second, both)


def divide_rows(matrix: OperatorMatrix, divisors: Sequence[Polynomial]) -> OperatorMatrix:
    """Divide the first rows exactly, each by its (monic multiple of the) polynomial; further rows are dropped."""
    entries = [[_quotient(matrix, i, j, divisor) for j in range(matrix.width)] for i, divisor in enumerate(divisors)]
    return OperatorMatrix.from_scalars(matrix.ring, entries, matrix.width, matrix.variable)


def _divide_columns(matrix: OperatorMatrix, divisors: Sequence[Polynomial]) -> OperatorMatrix:
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
