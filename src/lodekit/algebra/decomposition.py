"""The staged decomposition of an operator matrix that Smith form and parametrization are made from.

Rows of A to their Popov form P (equations without redundancy), columns of P to ``P [N B] = [L 0]`` (B spans the kernel,
minimally), and L, square and regular, to a diagonal by Hermite forms in turn. For a controllable system L is the
identity and the third stage is empty. Every stage is canonical, so the result depends on the solution space alone (up
to `left`, which says how the given equations make it).

Stages are computed when asked for: N holds Bezout coefficients, which can be enormous with many parameters, and most
questions (rank, kernel, controllability) do without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flint import fmpz, fmpz_poly

from lodekit.algebra.finite_field import CoefficientRing, Element
from lodekit.algebra.pointwise import Exchanges, has_no_modes
from lodekit.algebra.polynomials import (
    Polynomial,
    add,
    divide_exactly,
    from_multivariate,
    gcd,
    multiply,
    primitive,
    scale,
    to_multivariate,
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
from lodekit.algebra.scalars import ScalarRing, too_large

__all__ = ["Decomposition", "Parts", "between", "combine", "decompose", "divisibility_chain", "without_content"]

#: How many products of terms in the parameters one step of the elimination for a single kernel vector may take: two
#: seconds or so. The step after it would take twenty times as many.
MAX_STEP = 10_000_000


@dataclass(frozen=True)
class Parts:
    """``[left; relations] A [right kernel] = [diag 0; 0 0]``, everything without fractions.

    Parameters
    ----------
    left, relations : list of vectors
        Rows that make A diagonal, and rows that make it vanish.
    right, kernel : list of vectors
        Columns that make A diagonal, and columns that A makes vanish.
    diagonal : list of polynomials
        What is left between `left` and `right`.
    """

    left: list[Vector]
    relations: list[Vector]
    right: list[Vector]
    kernel: list[Vector]
    diagonal: list[Polynomial]


@dataclass(frozen=True)
class Decomposition:
    """The stages for one matrix, given by rows of numerators.

    Parameters
    ----------
    ring : ScalarRing
    rows : list of vectors
    width : int
    """

    ring: ScalarRing
    rows: list[Vector]
    width: int

    @cached_property
    def _row_stage(self) -> tuple[list[Vector], list[Vector], list[Vector]]:
        return kernel_and_image(self.ring, self.rows)

    @cached_property
    def equations(self) -> list[Vector]:
        """P: the Popov form of the rows."""
        return [without_content(self.ring, row) for row in self._row_stage[0]]

    @property
    def equation_weights(self) -> tuple[list[Vector], list[Element]]:
        """How the rows make the equations: combinations, and for each a denominator."""
        image_rows, weights, _ = self._row_stage
        return weights, [_content(self.ring, row) for row in image_rows]

    @property
    def relations(self) -> list[Vector]:
        """A minimal basis of the relations among the rows."""
        return self._row_stage[2]

    @property
    def rank(self) -> int:
        """The rank over K(d)."""
        return len(self._row_stage[0])

    @cached_property
    def _column_stage(self) -> tuple[list[Vector], list[Vector], list[Vector]]:
        equations = self.equations
        return kernel_and_image(self.ring, [[row[j] for row in equations] for j in range(self.width)])

    @cached_property
    def kernel(self) -> list[Vector]:
        """B: the minimal basis of the kernel."""
        if self.width - self.rank == 1 and self.ring.names and not self.ring.has_relations:
            # With symbols in the coefficients, minors are much smaller than what the column stage makes on its way.
            return [_kernel_vector(self.ring, self.equations)]
        return self._column_stage[2]

    @cached_property
    def is_controllable(self) -> bool:
        """Whether all diagonal entries are constants; decided at a random point where that is enough."""
        if self.width == self.rank:
            # Nothing is free: the only controllable system is that of zeros.
            return all(len(entry) < 2 for row in self.equations for entry in row)
        if has_no_modes(self.ring, self.equations, self.width):
            return True
        return all(len(entry) == 1 for entry in self.parts.diagonal)

    @cached_property
    def exchanges(self) -> Exchanges:
        """Which channels can be chosen freely instead of others."""
        return Exchanges(self.ring, self.equations, self.width)

    @cached_property
    def parts(self) -> Parts:
        """The whole decomposition, with transformations; the diagonal need not be a chain of divisors."""
        return _assemble(self.ring, self.rows, self._row_stage, self._column_stage)

    @cached_property
    def invariants(self) -> list[Polynomial]:
        """The non-zero entries of the Smith form, as canonical multiples; no transformations are needed for them."""
        if self.is_controllable:
            return [[self.ring.one]] * self.rank
        return divisibility_chain(self.ring, self.parts.diagonal)


def decompose(ring: CoefficientRing, rows: Sequence[Vector], width: int) -> Parts:
    """Return the whole decomposition of a matrix over any `ring`, given by its `rows` and its `width`."""
    row_stage = kernel_and_image(ring, rows)
    equations = [without_content(ring, row) for row in row_stage[0]]
    column_stage = kernel_and_image(ring, [[row[j] for row in equations] for j in range(width)])
    return _assemble(ring, rows, row_stage, column_stage)


def divisibility_chain(ring: CoefficientRing, diagonal: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the invariant factors of a matrix with this `diagonal` over `ring`, as canonical multiples."""
    chain = [primitive(ring, entry) for entry in diagonal]
    for i in range(len(chain)):
        for j in range(i + 1, len(chain)):
            common = gcd(ring, chain[i], chain[j])
            quotient = divide_exactly(ring, chain[i], common)[1]
            chain[i], chain[j] = common, primitive(ring, multiply(ring, quotient, chain[j]))
    return chain


def _assemble(
    ring: CoefficientRing,
    rows: Sequence[Vector],
    row_stage: tuple[list[Vector], list[Vector], list[Vector]],
    column_stage: tuple[list[Vector], list[Vector], list[Vector]],
) -> Parts:
    row_image, left, relations = row_stage
    lattice, right, kernel = column_stage
    square = [[column[i] for column in lattice] for i in range(len(lattice))]
    row_steps, column_steps = _diagonalize(ring, square)
    # The rows of P are those of the row stage without their common factors, which `left` still carries.
    contents = [_content(ring, row) for row in row_image]
    common = ring.one
    for content in contents:
        common = ring.divide(common * content, ring.common_factor(common, content))
    shares = [ring.divide(common, content) for content in contents]
    weights = [[scale(ring, w, share) for w, share in zip(step, shares, strict=True)] for step in row_steps]
    left = _reduce_modulo(ring, [combine(ring, step, left) for step in weights], relations)
    right = _reduce_modulo(ring, [combine(ring, step, right) for step in column_steps], kernel)
    diagonal = [between(ring, first, rows, second) for first, second in zip(left, right, strict=True)]
    return Parts(left, relations, right, kernel, diagonal)


def combine(ring: CoefficientRing, weights: Vector, vectors: Sequence[Vector]) -> Vector:
    """Return the sum of the `vectors` over `ring`, each times its polynomial among the `weights`."""
    if isinstance(ring.one, fmpz):
        return _combine_integers(weights, vectors)
    total: Vector = [[] for _ in vectors[0]]
    for weight, vector in zip(weights, vectors, strict=True):
        if weight:
            total = [add(old, multiply(ring, weight, entry)) for old, entry in zip(total, vector, strict=True)]
    return total


def _combine_integers(weights: Vector, vectors: Sequence[Vector]) -> Vector:
    """Return what `combine` does, by FLINT's polynomials; zeros cost nothing."""
    total = [fmpz_poly([])] * len(vectors[0])
    for weight, vector in zip(weights, vectors, strict=True):
        factor = fmpz_poly(weight)
        for place, entry in enumerate(vector) if weight else ():
            if entry:
                total[place] += factor * fmpz_poly(entry)
    return [entry.coeffs() for entry in total]


def between(ring: CoefficientRing, left: Vector, rows: Sequence[Vector], right: Vector) -> Polynomial:
    """Return the polynomial ``left A right`` over `ring`, A given by its `rows`."""
    total: Polynomial = []
    for entry, factor in zip(combine(ring, left, rows), right, strict=True):
        if entry and factor:
            total = add(total, multiply(ring, entry, factor))
    return total


def _content(ring: CoefficientRing, vector: Vector) -> Element:
    return ring.content(value for entry in vector for value in entry)


def without_content(ring: CoefficientRing, vector: Vector) -> Vector:
    """Return the `vector` over `ring` divided by the factor common to all its coefficients."""
    content = _content(ring, vector)
    return [[ring.divide(value, content) for value in entry] for entry in vector]


def _reduce_modulo(ring: CoefficientRing, vectors: Sequence[Vector], kernel: Sequence[Vector]) -> list[Vector]:
    """Take from each vector what lies in the kernel, and make it primitive."""
    if not vectors:
        return []
    shifts = [0] * len(vectors[0])
    basis = {leading_position(vector, shifts): vector for vector in kernel}
    reduced = [normal_form(ring, vector, basis, shifts) for vector in vectors]
    return [primitive_vector(ring, v, v[leading_position(v, shifts)][-1]) for v in reduced]


def _diagonalize(ring: CoefficientRing, square: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    """Return row steps and column steps that make a regular matrix, given by rows, diagonal.

    Row and column Hermite forms in turn: each is unique, and so are its multipliers.
    """
    size = len(square)
    row_steps: list[Vector] = [[[ring.one] if i == j else [] for j in range(size)] for i in range(size)]
    column_steps: list[Vector] = [[[ring.one] if i == j else [] for j in range(size)] for i in range(size)]
    matrix = square
    while not _is_diagonal(matrix):
        matrix, row_steps = _hermite(ring, matrix, row_steps)
        if _is_diagonal(matrix):
            break
        columns = [[row[j] for row in matrix] for j in range(size)]
        columns, column_steps = _hermite(ring, columns, column_steps)
        matrix = [[column[i] for column in columns] for i in range(size)]
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


def _count_products(matrix: Sequence[Sequence[Element]], row: int, column: int) -> int:
    """Return how many products of terms it takes to eliminate a column of a matrix with the entry in a row of it."""
    lengths = [len(entry) for entry in matrix[row]]
    others = [[len(entry) for entry in other] for i, other in enumerate(matrix) if i != row]
    return sum(lengths[column] * sum(other) + other[column] * sum(lengths) for other in others)


def _kernel_vector(ring: ScalarRing, rows: Sequence[Vector]) -> Vector:
    """Return the kernel of an r x (r + 1) matrix of full rank: its maximal minors without their common divisor.

    Fraction-free Gauss-Jordan elimination in Z[d, symbols]; no Bezout coefficients occur.
    """
    size, width = len(rows), len(rows) + 1
    matrix = [[to_multivariate(ring, entry) for entry in row] for row in rows]
    previous = to_multivariate(ring, [ring.one])
    pivots: list[int] = []
    for k in range(size):
        choices = [
            (len(matrix[i][j]), i, j) for i in range(k, size) for j in range(width) if matrix[i][j] and j not in pivots
        ]
        _, pivot_row, pivot = min(choices)
        matrix[k], matrix[pivot_row] = matrix[pivot_row], matrix[k]
        pivots.append(pivot)
        if _count_products(matrix, k, pivot) > MAX_STEP:
            raise too_large()
        for i in range(size):
            if i != k:
                factor = matrix[i][pivot]
                matrix[i] = [
                    (matrix[k][pivot] * matrix[i][j] - factor * matrix[k][j]) // previous for j in range(width)
                ]
        previous = matrix[k][pivot]
    (free,) = set(range(width)) - set(pivots)
    vector = [to_multivariate(ring, [])] * width
    vector[free] = previous
    for k, pivot in enumerate(pivots):
        vector[pivot] = -matrix[k][free]
    divisor = to_multivariate(ring, [])
    for entry in vector:
        divisor = divisor.gcd(entry)
    result = [from_multivariate(ring, entry // divisor) for entry in vector]
    return primitive_vector(ring, result, result[leading_position(result, [0] * width)][-1])
