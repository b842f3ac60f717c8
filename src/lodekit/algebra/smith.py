"""The Smith normal form U A V = D of an operator matrix with its transformations, and an independent check of it.

The decomposition has three stages: the rows of A are reduced to their Popov form P (equations without redundancy), the
columns of P to ``P [N B] = [L 0]`` (B is a minimal basis of the kernel), and the square, regular L to a diagonal by
alternating Hermite forms. For a controllable system L is the identity. Every stage is canonical, so the result depends
only on the solution space (except `left`, the combination of the given equations).

Stages are computed when they are first used: N contains Bezout coefficients, which can be huge with many parameters,
but rank, kernel and controllability do not need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from flint import fmpz, fmpz_poly, nmod_mat

from lodekit.algebra import reduction
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import (
    Polynomial,
    add,
    divide_exactly,
    extended_gcd,
    from_multivariate,
    gcd,
    map_polynomial_to_finite_field,
    multiply,
    primitive_part,
    pseudo_divide,
    sample_points,
    scale,
    to_multivariate,
)
from lodekit.algebra.reduction import Vector
from lodekit.algebra.scalars import (
    MAX_PRODUCT_TERMS,
    CoefficientRing,
    Element,
    Scalar,
    ScalarRing,
    expression_swell_error,
)
from lodekit.errors import VerificationError

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class DiagonalForm:
    """``[left; relations] A [right kernel] = [diag 0; 0 0]``, without fractions.

    left, relations: Rows that make A diagonal, and relations among the rows of A.
    right, kernel: Columns that make A diagonal, and columns that A maps to zero.
    diagonal: The diagonal entries.
    """

    left: list[Vector]
    relations: list[Vector]
    right: list[Vector]
    kernel: list[Vector]
    diagonal: list[Polynomial]


@dataclass(frozen=True)
class PopovDecomposition:
    """The stages for one matrix, given by rows of numerators."""

    ring: ScalarRing
    rows: list[Vector]
    width: int

    @cached_property
    def _row_reduction(self) -> tuple[list[Vector], list[Vector], list[Vector]]:
        return reduction.kernel_and_image(self.ring, self.rows)

    @cached_property
    def equations(self) -> list[Vector]:
        """P: the Popov form of the rows."""
        return [reduction.divide_by_content(self.ring, row) for row in self._row_reduction[0]]

    @property
    def n_states(self) -> int:
        """The order of square equations: the number of initial values that fix a solution."""
        return sum(len(row[reduction.pivot_index(row, [0] * self.width)]) - 1 for row in self.equations)

    @property
    def zero_channels(self) -> list[int]:
        """The positions of channels that the equations force to be zero, each by a separate row."""
        rows = ([(j, len(entry)) for j, entry in enumerate(row) if entry] for row in self.equations)
        return sorted(entries[0][0] for entries in rows if len(entries) == 1 and entries[0][1] == 1)

    @property
    def equation_weights(self) -> tuple[list[Vector], list[Element]]:
        """The combinations of rows that give the equations, and a denominator for each."""
        image_rows, weights, _ = self._row_reduction
        return weights, [reduction.vector_content(self.ring, row) for row in image_rows]

    @property
    def relations(self) -> list[Vector]:
        """A minimal basis of the relations among the rows."""
        return self._row_reduction[2]

    @property
    def rank(self) -> int:
        """The rank over K(d)."""
        return len(self._row_reduction[0])

    @cached_property
    def _column_reduction(self) -> tuple[list[Vector], list[Vector], list[Vector]]:
        equations = self.equations
        return reduction.kernel_and_image(self.ring, [[row[j] for row in equations] for j in range(self.width)])

    @cached_property
    def kernel(self) -> list[Vector]:
        """B: the minimal basis of the kernel."""
        if self.width - self.rank == 1 and self.ring.names and not self.ring.has_relations:
            # With symbols in the coefficients, minors are much smaller than intermediate results of the column stage.
            return [_kernel_vector_from_minors(self.ring, self.equations)]
        return self._column_reduction[2]

    @cached_property
    def is_controllable(self) -> bool:
        """Whether all diagonal entries are constants; decided at a random point if that suffices."""
        if self.width == self.rank:
            # Without free functions, only a system whose solution is zero is controllable.
            return all(len(entry) < 2 for row in self.equations for entry in row)
        if reduction.is_provably_left_prime(self.ring, self.equations, self.width):
            return True
        return all(len(entry) == 1 for entry in self.diagonal_form.diagonal)

    @cached_property
    def _row_echelon_form(self) -> tuple[int, dict[int, int], list[list[int]]]:
        """The prime, the equation that determines each channel that is not free, and the equations solved for them."""
        field, points = next(sample_points(self.ring, seed=1))
        # A point in d as well: a number without relation to the equations.
        d = field.integer(0x9E3779B97F4A7C15)
        values = []
        for row in self.equations:
            for entry in reversed(row):
                total = field.zero
                for value in reversed(map_polynomial_to_finite_field(self.ring, entry, field, points)):
                    total = total * d + value
                values.append(int(total))
        # The last channels come first, so that these are determined and the first ones free.
        solved, rank = nmod_mat(len(self.equations), self.width, values, field.prime).rref()
        rows = [[int(value) for value in reversed(row)] for row in solved.tolist()[:rank]]
        owners = {max(j for j, value in enumerate(row) if value): i for i, row in enumerate(rows)}
        return field.prime, owners, rows

    def count_inputs(self, channel_mask: int) -> int:
        """Return how many of some channels can be chosen at the same time."""
        prime, owners, rows = self._row_echelon_form
        mine = [owners[j] for j in owners if channel_mask >> j & 1]
        missing = [j for j in range(self.width) if j not in owners and not channel_mask >> j & 1]
        kept = self.width - len(owners) - len(missing)
        if not mine or not missing:
            return kept
        return kept + int(nmod_mat(len(mine), len(missing), [rows[i][j] for i in mine for j in missing], prime).rank())

    def input_sets(self, limit: int) -> tuple[tuple[int, ...], ...]:
        """Return the largest sets of channels that can be chosen freely, in order, at most `limit` of them."""
        found: list[tuple[int, ...]] = []
        size, whole = self.width - self.rank, (1 << self.width) - 1
        # Depth first, without recursion: there may be more channels than Python allows levels.
        stack = [(0, 0, 0)]
        while stack and len(found) < limit:
            chosen, count, start = stack.pop()
            if count == size:
                found.append(tuple(j for j in range(self.width) if chosen >> j & 1))
                continue
            # Skip this channel only if later ones can still complete the set.
            later = chosen | (whole >> (start + 1) << (start + 1))
            if start + 1 < self.width and self.count_inputs(later) == size:
                stack.append((chosen, count, start + 1))
            if self.count_inputs(chosen | 1 << start) == count + 1:
                stack.append((chosen | 1 << start, count + 1, start + 1))
        return tuple(found)

    @cached_property
    def diagonal_form(self) -> DiagonalForm:
        """The whole decomposition, with transformations; the diagonal need not be a chain of divisors."""
        return _assemble_diagonal_form(self.ring, self.rows, self._row_reduction, self._column_reduction)

    @cached_property
    def invariants(self) -> list[Polynomial]:
        """The nonzero entries of the Smith form, as canonical multiples, computed without transformations."""
        if self.is_controllable:
            return [[self.ring.one]] * self.rank
        return invariant_factors_of_diagonal(self.ring, self.diagonal_form.diagonal)


def diagonalize(ring: CoefficientRing, rows: Sequence[Vector], width: int) -> DiagonalForm:
    """Return the whole decomposition of a matrix over any `ring`, given by its `rows` and its `width`."""
    row_reduction = reduction.kernel_and_image(ring, rows)
    equations = [reduction.divide_by_content(ring, row) for row in row_reduction[0]]
    column_reduction = reduction.kernel_and_image(ring, [[row[j] for row in equations] for j in range(width)])
    return _assemble_diagonal_form(ring, rows, row_reduction, column_reduction)


def invariant_factors_of_diagonal(ring: CoefficientRing, diagonal: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the invariant factors of a matrix with this `diagonal` over `ring`, as canonical multiples."""
    chain = [primitive_part(ring, entry) for entry in diagonal]
    for i in range(len(chain)):
        for j in range(i + 1, len(chain)):
            common = gcd(ring, chain[i], chain[j])
            quotient = divide_exactly(ring, chain[i], common)[1]
            chain[i], chain[j] = common, primitive_part(ring, multiply(ring, quotient, chain[j]))
    return chain


def _assemble_diagonal_form(
    ring: CoefficientRing,
    rows: Sequence[Vector],
    row_reduction: tuple[list[Vector], list[Vector], list[Vector]],
    column_reduction: tuple[list[Vector], list[Vector], list[Vector]],
) -> DiagonalForm:
    row_image, left, relations = row_reduction
    lattice, right, kernel = column_reduction
    square = [[column[i] for column in lattice] for i in range(len(lattice))]
    row_steps, column_steps = _diagonalize_by_hermite_forms(ring, square)
    # The rows of P are those of the row stage without their common factors, which `left` still contains.
    contents = [reduction.vector_content(ring, row) for row in row_image]
    common = ring.one
    for content in contents:
        common = ring.divide(common * content, ring.common_factor(common, content))
    shares = [ring.divide(common, content) for content in contents]
    weights = [[scale(ring, w, share) for w, share in zip(step, shares, strict=True)] for step in row_steps]
    left = _reduce_modulo_kernel(ring, [linear_combination(ring, step, left) for step in weights], relations)
    right = _reduce_modulo_kernel(ring, [linear_combination(ring, step, right) for step in column_steps], kernel)
    diagonal = [bilinear_product(ring, first, rows, second) for first, second in zip(left, right, strict=True)]
    return DiagonalForm(left, relations, right, kernel, diagonal)


def linear_combination(ring: CoefficientRing, weights: Vector, vectors: Sequence[Vector]) -> Vector:
    """Return the sum of the `vectors` over `ring`, each times its polynomial among the `weights`."""
    if isinstance(ring.one, fmpz):  # by FLINT's polynomials; zeros cost nothing
        sums = [fmpz_poly([])] * len(vectors[0])
        for weight, vector in zip(weights, vectors, strict=True):
            factor = fmpz_poly(weight)
            for place, entry in enumerate(vector) if weight else ():
                if entry:
                    sums[place] += factor * fmpz_poly(entry)
        return [entry.coeffs() for entry in sums]
    total: Vector = [[] for _ in vectors[0]]
    for weight, vector in zip(weights, vectors, strict=True):
        if weight:
            total = [add(old, multiply(ring, weight, entry)) for old, entry in zip(total, vector, strict=True)]
    return total


def bilinear_product(ring: CoefficientRing, left: Vector, rows: Sequence[Vector], right: Vector) -> Polynomial:
    """Return the polynomial ``left A right`` over `ring`, A given by its `rows`."""
    total: Polynomial = []
    for entry, factor in zip(linear_combination(ring, left, rows), right, strict=True):
        if entry and factor:
            total = add(total, multiply(ring, entry, factor))
    return total


def _reduce_modulo_kernel(ring: CoefficientRing, vectors: Sequence[Vector], kernel: Sequence[Vector]) -> list[Vector]:
    """Remove from each vector its part in the kernel, and make it primitive."""
    if not vectors:
        return []
    shifts = [0] * len(vectors[0])
    basis = {reduction.pivot_index(vector, shifts): vector for vector in kernel}
    reduced = [reduction.reduce_modulo_basis(ring, vector, basis, shifts) for vector in vectors]
    return [reduction.primitive_part_of_vector(ring, v, v[reduction.pivot_index(v, shifts)][-1]) for v in reduced]


def _diagonalize_by_hermite_forms(ring: CoefficientRing, square: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    """Return row steps and column steps that make a regular matrix, given by rows, diagonal.

    Row and column Hermite forms alternate: each is unique, and so are its multipliers.
    """
    matrix, size = square, len(square)
    steps: list[list[Vector]] = [
        [[[ring.one] if i == j else [] for j in range(size)] for i in range(size)] for _ in ("rows", "columns")
    ]
    shifts = [reduction.ELIMINATION_SHIFT * (size - j) for j in range(size)] + [None] * size
    # Each pass transposes the matrix, so that row and column steps alternate.
    side = 0
    while any(entry for i, row in enumerate(matrix) for j, entry in enumerate(row) if i != j):
        extended = [row + step for row, step in zip(matrix, steps[side], strict=True)]
        basis, _ = reduction.popov_basis(ring, extended, shifts)
        reduced = [basis[position] for position in range(size)]
        steps[side] = [vector[size:] for vector in reduced]
        matrix, side = [[vector[j] for vector in reduced] for j in range(size)], 1 - side
    return steps[0], steps[1]


def _count_products(matrix: Sequence[Sequence[Element]], row: int, column: int) -> int:
    """Return the number of term products needed to eliminate a column with the entry of that column in a row."""
    lengths = [len(entry) for entry in matrix[row]]
    others = [[len(entry) for entry in other] for i, other in enumerate(matrix) if i != row]
    return sum(lengths[column] * sum(other) + other[column] * sum(lengths) for other in others)


def _kernel_vector_from_minors(ring: ScalarRing, rows: Sequence[Vector]) -> Vector:
    """Return the kernel of an r x (r + 1) matrix of full rank: its maximal minors divided by their common divisor.

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
        # Ten times the limit takes about two seconds; the next step could take twenty times as many products.
        if _count_products(matrix, k, pivot) > 10 * MAX_PRODUCT_TERMS:
            raise expression_swell_error()
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
    return reduction.primitive_part_of_vector(ring, result, result[reduction.pivot_index(result, [0] * width)][-1])


@dataclass(frozen=True)
class SmithForm:
    """``U A V = D``: U and V invertible over K[d], D diagonal, monic, each entry dividing the next.

    The exact matrices are `left`, `diagonal` and `right` (`OperatorMatrix`); `U`, `D`, `V` are the same for SymPy.
    `left_inverse` and `right_inverse` prove that U and V are unimodular.

    operator: A.
    left, diagonal, right: U, D and V, exact.
    rank: The number of nonzero diagonal entries.

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
        """The nonzero diagonal entries, as canonical multiples."""
        return [self.diagonal.rows[i][i] for i in range(self.rank)]

    @cached_property
    def right_inverse(self) -> OperatorMatrix:
        """``V^-1``: its rows are the decoupled functions p = V^-1 f."""
        return invert_right_transformation(self.left @ self.operator, self.right, self.invariants)

    @cached_property
    def left_inverse(self) -> OperatorMatrix:
        """``U^-1``, from ``V^T A^T U^T = D^T``."""
        product = (self.operator @ self.right).transpose()
        return invert_right_transformation(product, self.left.transpose(), self.invariants).transpose()

    def verify(self) -> tuple[str, ...]:
        """Check the form exactly by multiplication, independently of any elimination; return the proved statements."""
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
        return ("U A V = D", "U and V are unimodular", "D is diagonal and monic, and each entry divides the next")


def smith_form(operator: OperatorMatrix, decomposition: PopovDecomposition | None = None) -> SmithForm:
    """Return the Smith form of an `operator` with its transformations; a known `decomposition` is reused.

    The last columns of V are the minimal (column-reduced, Popov) basis of the kernel; the last rows of U are a minimal
    basis of the relations among the equations.
    """
    stages = decomposition or PopovDecomposition(operator.ring, operator.rows, operator.width)
    parts = _make_divisibility_chain(operator.ring, operator.rows, stages.diagonal_form)
    left, diagonal, right = build_transformation_matrices(operator, parts)
    return SmithForm(operator, left, diagonal, right, rank=len(parts.diagonal))


def build_transformation_matrices(
    operator: OperatorMatrix, diagonal_form: DiagonalForm
) -> tuple[OperatorMatrix, OperatorMatrix, OperatorMatrix]:
    """Return U, D and V with ``U A V = D`` and monic D, from a `diagonal_form` of A, the `operator`."""
    ring, (height, width), variable = operator.ring, operator.shape, operator.variable
    rank, n_relations = len(diagonal_form.diagonal), len(diagonal_form.relations)
    # A has row denominators a_j: U = U' diag(a). Dividing by the leading coefficient makes an entry monic.
    rows = [
        [scale(ring, value, a) for value, a in zip(left, operator.denominators, strict=True)]
        for left in (*diagonal_form.left, *diagonal_form.relations)
    ]
    canonical = [primitive_part(ring, entry) for entry in diagonal_form.diagonal]
    under = [entry[-1] for entry in canonical] + [ring.one] * n_relations
    rows = [[scale(ring, value, leading) for value in row] for row, leading in zip(rows, under, strict=True)]
    below = [ring.reduce(e[-1] * u) for e, u in zip(diagonal_form.diagonal, under, strict=False)]
    below += [ring.one] * n_relations
    diagonal = [[canonical[i] if i == j < rank else [] for j in range(width)] for i in range(height)]
    columns = diagonal_form.right + diagonal_form.kernel
    right = [[columns[j][i] for j in range(width)] for i in range(width)]
    return (
        OperatorMatrix.from_vectors(ring, rows, height, variable, below),
        OperatorMatrix(ring, diagonal, under, width, variable),
        OperatorMatrix(ring, right, [ring.one] * width, width, variable),
    )


def _make_divisibility_chain(
    ring: CoefficientRing, rows: Sequence[Vector], diagonal_form: DiagonalForm
) -> DiagonalForm:
    """Make every diagonal entry divide the next, smallest pairs first: this keeps the transformations small."""
    left, right, diagonal = list(diagonal_form.left), list(diagonal_form.right), list(diagonal_form.diagonal)
    while True:
        pairs = [
            (len(diagonal[i]) + len(diagonal[j]), i, j)
            for i, j in combinations(range(len(diagonal)), 2)
            if not _divides(ring, diagonal[i], diagonal[j]) and not _divides(ring, diagonal[j], diagonal[i])
        ]
        if not pairs:
            break
        _, i, j = min(pairs)
        # Two entries a, b become their gcd g = s a + t b and their lcm:
        # [[s, t], [-b/g, a/g]] diag(a, b) [[1, -t b/g], [1, s a/g]] = diag(g, a b/g).
        g, s, t = extended_gcd(ring, diagonal[i], diagonal[j])
        a_factor, a_part = divide_exactly(ring, diagonal[i], g)
        b_factor, b_part = divide_exactly(ring, diagonal[j], g)
        # Both quotients over one multiplier, which only scales a whole row or column.
        a_part, b_part = scale(ring, a_part, b_factor), scale(ring, b_part, -a_factor)
        for vectors, first, second in (
            (left, [s, t], [b_part, a_part]),
            (right, [[ring.one], [ring.one]], [multiply(ring, t, b_part), multiply(ring, s, a_part)]),
        ):
            both = [vectors[i], vectors[j]]
            vectors[i], vectors[j] = linear_combination(ring, first, both), linear_combination(ring, second, both)
        for k in (i, j):
            left[k], right[k] = reduction.divide_by_content(ring, left[k]), reduction.divide_by_content(ring, right[k])
            diagonal[k] = bilinear_product(ring, left[k], rows, right[k])
    order = sorted(range(len(diagonal)), key=lambda i: len(diagonal[i]))
    left, right, diagonal = ([part[i] for i in order] for part in (left, right, diagonal))
    return DiagonalForm(left, diagonal_form.relations, right, diagonal_form.kernel, diagonal)


def _divides(ring: CoefficientRing, entry: Polynomial, following: Polynomial) -> bool:
    return len(entry) <= len(following) and not pseudo_divide(ring, following, entry)[2]


def invert_right_transformation(
    left_product: OperatorMatrix, right: OperatorMatrix, diagonal: Sequence[Polynomial]
) -> OperatorMatrix:
    """Return ``V^-1`` from U A, the `left_product`, and V = `right` with ``U A V = D``; the `diagonal` is the d_i.

    Its first rows are those of U A divided by the d_i.
    """
    ring, width, rank, variable = right.ring, right.width, len(diagonal), right.variable
    top = divide_rows(left_product, diagonal)
    if rank == width:
        return top
    basis, witness, _ = reduction.kernel_and_image(ring, right.take_columns(range(rank, width)).rows)
    below = [row[i][0] for i, row in enumerate(basis)]
    start = OperatorMatrix.from_vectors(ring, witness, width, variable, below)
    return top.vstack(start - start @ right.take_columns(range(rank)) @ top)


def divide_rows(matrix: OperatorMatrix, divisors: Sequence[Polynomial]) -> OperatorMatrix:
    """Return the first rows of a `matrix`, each divided exactly by (a monic multiple of) one of the `divisors`."""
    ring, entries = matrix.ring, list[list[list[Scalar]]]()
    for row, denominator, divisor in zip(matrix.rows, matrix.denominators, divisors, strict=False):
        entries.append([])
        for entry in row:
            factor, quotient, rest = pseudo_divide(ring, entry, divisor)
            VerificationError.unless(not rest, "a row or column is divisible by its invariant factor")
            bottom = ring.reduce(factor * denominator)
            entries[-1].append([Scalar(ring, ring.reduce(value * divisor[-1]), bottom) for value in quotient])
    return OperatorMatrix.from_scalars(ring, entries, matrix.width, matrix.variable)
