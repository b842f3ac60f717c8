"""Parametrization of all solutions by free functions and modes: f = sum_l B_l(d) z_l + sum_i C_i(d) p_i, d_i p_i = 0.

The columns B_l are a minimal (column-reduced, Popov) basis of the kernel of A; the columns C_i are reduced modulo their
d_i and modulo B. Both depend only on the solution space, not on how the equations are written. The rows that recover
z and p from a solution give an exact proof that these are all solutions and only solutions.

Every other basis of the kernel is B W with W unimodular (invertible over K[d]). A basis can be chosen by rows that
compute the free functions from a solution, by columns, or by a whole V; the choice is checked, and the rows X and the
mode columns follow. The solutions do not change, but the prior on them may.

Degenerate parameter values: over Q(parameters) the Smith form is the generic one. If no denominator of U, V, D and the
two inverses vanishes at a parameter value, the form there is the generic one evaluated; so these denominators include
every exception. Each irreducible factor is tested at zeros of it in a large prime field; a generic structure there
proves that the factor is harmless on almost all of its zeros, and it is dropped. Exceptions that need two factors to
vanish at once are not listed, nor are values at which a coefficient of the equations is undefined.

The parametrization must be recomputed (substitute first) also at poles of its rows X and g_i, the
`exceptional_factors`. A chosen basis can fail at values at which the minimal one is valid: `singular_basis_factors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

from lodekit.algebra import reduction, smith
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import (
    Polynomial,
    gcd,
    map_polynomial_to_finite_field,
    multiply,
    primitive_part,
    pseudo_divide,
    sample_zeros,
    scale,
)
from lodekit.algebra.reduction import Vector
from lodekit.algebra.scalars import Element, FiniteField, Scalar, ScalarRing
from lodekit.errors import VerificationError

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class ModeColumn:
    """A finite-dimensional part of the solutions: f = C(d) p with d_i(d) p = 0.

    annihilator: d_i, as a canonical multiple.
    column: C, n x 1, of lower degree than d_i.
    observable: The row g, 1 x n, that recovers p from a solution: p = g(d) f. The free functions cannot influence it.
    correction: The column, q x 1, by which the free functions change because C was reduced modulo the kernel.
    """

    annihilator: Polynomial
    column: OperatorMatrix
    observable: OperatorMatrix
    correction: OperatorMatrix


@dataclass(frozen=True)
class Parametrization:
    """All solutions of A(d) f = 0, and only solutions.

    operator: A.
    equations: The Popov form of A: the same solutions without redundancy, independent of how A is written.
    free: B, n x q: columns of a basis of the kernel, the minimal one unless another was chosen.
    modes: The autonomous part, empty for a controllable system. The d_i need not divide each other: parts that are
        decoupled in the equations stay decoupled here.
    chosen_observables: The rows X of a chosen basis; None for the minimal basis.
    """

    operator: OperatorMatrix
    equations: OperatorMatrix
    free: OperatorMatrix
    modes: tuple[ModeColumn, ...]
    _decomposition: smith.PopovDecomposition = field(repr=False, compare=False)
    chosen_observables: OperatorMatrix | None = None

    @property
    def free_columns(self) -> sympy.ImmutableMatrix:
        """B as a SymPy matrix."""
        return self.free.sympy

    @property
    def mode_columns(self) -> sympy.ImmutableMatrix:
        """The columns C_i side by side, as a SymPy matrix."""
        import sympy

        if not self.modes:
            return sympy.ImmutableMatrix(self.operator.width, 0, [])
        return sympy.ImmutableMatrix(sympy.Matrix.hstack(*(mode.column.sympy for mode in self.modes)))

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees in d of the free columns: the orders of derivatives of the free functions."""
        return tuple(self.free.degree(j) for j in range(self.free.width))

    @cached_property
    def free_observables(self) -> OperatorMatrix:
        """The rows X, q x n, that recover the free functions from a solution: z = X(d) f."""
        if self.chosen_observables is not None:
            return self.chosen_observables
        form = self._decomposition.diagonal_form
        left, _, right = smith.build_transformation_matrices(self.operator, form)
        inverse = smith.invert_right_transformation(left @ self.operator, right, form.diagonal)
        stretch = _leading_integer_matrix(self.operator.ring, self._decomposition.kernel, self.operator.variable)
        total = stretch @ inverse.take_rows(range(self._decomposition.rank, self.operator.width))
        for mode in self.modes:
            total = total + mode.correction @ mode.observable
        return total

    @cached_property
    def equation_weights(self) -> OperatorMatrix:
        """The matrix W with ``equations = W A``."""
        ring, operator = self.operator.ring, self.operator
        weights, contents = self._decomposition.equation_weights
        rows = [[scale(ring, w, a) for w, a in zip(row, operator.denominators, strict=True)] for row in weights]
        return OperatorMatrix.from_vectors(ring, rows, len(operator.rows), operator.variable, contents)

    def verify(self) -> tuple[str, ...]:
        """Check exactly that these are solutions, all solutions, and each once; return the proved statements."""
        unless = VerificationError.unless
        ring, variable = self.operator.ring, self.operator.variable
        unless(not (self.operator @ self.free).is_nonzero(), "A B = 0")
        unless(self.equation_weights @ self.operator == self.equations, "the reduced equations are W A")
        total = self.free @ self.free_observables
        identity = OperatorMatrix.identity(ring, self.free.width, variable)
        unless(self.free_observables @ self.free == identity, "X B = I")
        for number, mode in enumerate(self.modes, 1):
            image = self.operator @ mode.column
            unless(_vanishes_modulo(image, mode.annihilator), f"A C_{number} is divisible by d_{number}")
            degree = len(mode.annihilator)
            unless(all(len(row[0]) < degree for row in mode.column.rows), f"C_{number} is reduced modulo d_{number}")
            multiple = [multiply(ring, mode.annihilator, entry) for entry in mode.observable.rows[0]]
            unless(self._vanishes_on_solutions(multiple), f"d_{number} g_{number} f = 0 for every solution")
            unless(not (mode.observable @ self.free).is_nonzero(), f"g_{number} B = 0")
            unless(_vanishes_modulo(self.free_observables @ mode.column, mode.annihilator), f"X C_{number} p = 0")
            for other, row in enumerate(self.modes, 1):
                value = row.observable @ mode.column
                if other == number:
                    value = value - OperatorMatrix.identity(ring, 1, variable)
                unless(_vanishes_modulo(value, mode.annihilator), f"g_{other} C_{number} p is p or zero")
            total = total + mode.column @ mode.observable
        rest = total - OperatorMatrix.identity(ring, self.operator.width, variable)
        complete = all(self._vanishes_on_solutions(row) for row in rest.rows)
        unless(complete, "f = B X f + sum_i C_i g_i f for every solution")
        minimal = self.chosen_observables is None
        degrees = self.degrees
        leading = [[row[j][degree : degree + 1] for row in self.free.rows] for j, degree in enumerate(degrees)]
        is_reduced = len(reduction.kernel_and_image(ring, leading)[0]) == len(degrees)
        unless(not minimal or is_reduced, "the free columns are column-reduced")
        return (
            "A B = 0 and A C_i is divisible by d_i: only solutions",
            "f = B X f + sum_i C_i g_i f whenever A f = 0: all solutions",
            "X and g_i recover the free functions and modes, so each solution occurs exactly once",
            f"the free columns are a {'minimal (column-reduced)' if minimal else 'chosen'} basis",
        )

    def _vanishes_on_solutions(self, row: Vector) -> bool:
        """Return whether a row is a combination of the equations."""
        return not any(self._remainder(row))

    def _remainder(self, row: Vector) -> Vector:
        shifts = [0] * self.operator.width
        basis = {reduction.pivot_index(equation, shifts): equation for equation in self.equations.rows}
        return reduction.reduce_modulo_basis(self.operator.ring, row, basis, shifts)

    def reduced_mode_observable(self, mode: int, cofactor: Polynomial) -> Vector:
        """Return the row ``cofactor g`` of a mode, given by its number `mode`, reduced by the equations and primitive.

        With the cofactor d_i / f of a factor f of d_i, it is the part of the mode that f annihilates.
        """
        ring = self.operator.ring
        row = self._remainder([multiply(ring, cofactor, entry) for entry in self.modes[mode].observable.rows[0]])
        first = next(entry for entry in row if entry)
        return reduction.primitive_part_of_vector(ring, row, first[-1])

    def can_choose(self, channels: Sequence[int]) -> bool:
        """Return whether these channels (by number) can be prescribed freely at the same time.

        They can if the rows of B that belong to them are linearly independent.
        """
        chosen = list(channels)
        if not len(set(chosen)) == len(chosen) <= self.free.width:
            return False
        if self._decomposition.count_inputs(sum(1 << i for i in chosen)) == len(chosen):
            return True
        # A random point may be special: it proves that this many rows are independent, but there may be more.
        basis, _ = reduction.popov_basis(self.free.ring, [self.free.rows[i] for i in chosen], [0] * self.free.width)
        return len(basis) == len(chosen)

    def input_sets(self, limit: int) -> tuple[tuple[int, ...], ...]:
        """Return the largest sets of channels that can be chosen freely, in order, at most `limit` of them."""
        return self._decomposition.input_sets(limit) if self.free.width else ((),)[:limit]


def _vanishes_modulo(matrix: OperatorMatrix, annihilator: Polynomial) -> bool:
    """Return whether all entries of a column are multiples of a polynomial."""
    return not any(pseudo_divide(matrix.ring, row[0], annihilator)[2] for row in matrix.rows)


def parametrize(operator: OperatorMatrix, decomposition: smith.PopovDecomposition | None = None) -> Parametrization:
    """Return all solutions of A(d) f = 0, A the `operator`; a known `decomposition` is reused."""
    stages = decomposition or smith.PopovDecomposition(operator.ring, operator.rows, operator.width)
    ring, width, variable = operator.ring, operator.width, operator.variable
    kernel = stages.kernel
    shrink = _leading_integer_matrix(ring, kernel, variable, inverse=True)
    columns = [[vector[i] for vector in kernel] for i in range(width)]
    free = OperatorMatrix.from_vectors(ring, columns, len(kernel), variable) @ shrink
    modes: list[ModeColumn] = []
    if not stages.is_controllable:
        parts = stages.diagonal_form
        left, _, _ = smith.build_transformation_matrices(operator, parts)
        rows = smith.divide_rows(left @ operator, parts.diagonal)
        modes = [
            _reduce_mode_column(parts.right[i], primitive_part(ring, entry), kernel, rows.take_rows([i]))
            for i, entry in enumerate(parts.diagonal)
            if len(entry) > 1
        ]
    equations = OperatorMatrix.from_vectors(ring, stages.equations, width, variable)
    return Parametrization(operator, equations, free, tuple(modes), stages)


def _leading_integer_matrix(
    ring: ScalarRing, vectors: Sequence[Vector], variable: str, *, inverse: bool = False
) -> OperatorMatrix:
    """Return the diagonal matrix of the leading integers of vectors, by which columns are scaled for display."""
    values = [ring.rational(_leading_integer(ring, vector)) for vector in vectors]
    return OperatorMatrix.diagonal(ring, [ring.rational(1) / v if inverse else v for v in values], variable)


def _reduce_mode_column(
    raw: Vector, annihilator: Polynomial, kernel: Sequence[Vector], observable: OperatorMatrix
) -> ModeColumn:
    """Reduce a column of V modulo its d_i and the kernel."""
    ring, variable = observable.ring, observable.variable
    width, count = len(raw), len(kernel)
    # Each kernel vector carries a tag, and the last entry carries the scale of the reduced vector.
    tagged = [[*v, *([ring.one] if i == j else [] for j in range(count)), []] for i, v in enumerate(kernel)]
    multiples = [
        [annihilator if i == j else [] for j in range(width)] + [[] for _ in range(count + 1)] for i in range(width)
    ]
    shifts = [0] * width + [None] * (count + 1)
    basis, _ = reduction.popov_basis(ring, [*tagged, *multiples], shifts)
    reduced = reduction.reduce_modulo_basis(ring, [*raw, *([] for _ in range(count)), [ring.one]], basis, shifts)
    reduced = reduction.primitive_part_of_vector(ring, reduced, reduced[reduction.pivot_index(reduced, shifts)][-1])
    # Now reduced = s raw + kernel T modulo d_i, with tags T and scale s. Let C = reduced/leading, p = (leading/s) p',
    # and p' the function of the raw column: raw p' = C p - kernel (T/leading) p.
    leading = ring.rational(_leading_integer(ring, reduced[:width]))
    unit = OperatorMatrix.diagonal(ring, [ring.rational(1) / leading], variable)
    column = OperatorMatrix.from_vectors(ring, [[entry] for entry in reduced[:width]], 1, variable) @ unit
    rescaled = OperatorMatrix.diagonal(ring, [leading / Scalar(ring, reduced[-1][0])], variable) @ observable
    tags = OperatorMatrix.from_vectors(ring, [[tag] for tag in reduced[width:-1]], 1, variable)
    correction = -(_leading_integer_matrix(ring, kernel, variable) @ tags @ unit)
    return ModeColumn(annihilator, column, rescaled, correction)


def _leading_integer(ring: ScalarRing, vector: Vector) -> int:
    """Return the integer coefficient of the leading term of a vector; it is scaled to one for display."""
    pivot = vector[reduction.pivot_index(vector, [0] * len(vector))][-1]
    return next(iter(ring.terms(pivot).values()))


def left_inverse(matrix: OperatorMatrix) -> OperatorMatrix | None:
    """Return a left inverse over K[d], the inverse of a square matrix; None if there is none."""
    ring = matrix.ring
    image, witness, _ = reduction.kernel_and_image(ring, matrix.rows)
    if len(image) < matrix.width or any(len(row[i]) != 1 for i, row in enumerate(image)):
        return None
    below = [row[i][0] for i, row in enumerate(image)]
    start = OperatorMatrix.from_vectors(ring, witness, len(matrix.rows), matrix.variable, below)
    # The witness combines the numerators of the rows.
    return start @ OperatorMatrix.diagonal(ring, [Scalar(ring, bottom) for bottom in matrix.denominators])


def change_basis_by_rows(
    parametrization: Parametrization, rows: OperatorMatrix, inverse: OperatorMatrix
) -> Parametrization:
    """Return the parametrization whose free functions are given rows E of a solution: z = E(d) f."""
    free = parametrization.free @ inverse
    # A mode does not contribute to the chosen expressions: E C_i p = 0.
    modes = tuple(
        replace(mode, column=_reduce_column_modulo(mode.column - free @ (rows @ mode.column), mode.annihilator))
        for mode in parametrization.modes
    )
    return replace(parametrization, free=free, modes=modes, chosen_observables=rows)


def transformed_diagonal(operator: OperatorMatrix, right: OperatorMatrix) -> list[Polynomial] | None:
    """Return the d_i, empty for zero, with ``U A V = D`` for some unimodular U, A the `operator` and V = `right`.

    The result is None if there is no such U: if the columns of A V, divided by their d_i, cannot be completed to U^-1.
    """
    ring, image = operator.ring, operator @ right
    # The greatest common divisor of each column, as a canonical multiple.
    divisors = [primitive_part(ring, reduce(partial(gcd, ring), column, [])) for column in image.columns()]
    kept = [j for j, divisor in enumerate(divisors) if divisor]
    if not kept:
        return divisors
    quotients = smith.divide_rows(image.take_columns(kept).transpose(), [divisors[j] for j in kept]).transpose()
    return divisors if left_inverse(quotients) is not None else None


def change_basis_by_transformation(
    parametrization: Parametrization, right: OperatorMatrix, inverse: OperatorMatrix, diagonal: Sequence[Polynomial]
) -> Parametrization:
    """Return the parametrization by a whole V: f = V h with d_i h_i = 0."""
    free = [j for j, entry in enumerate(diagonal) if not entry]
    zero = OperatorMatrix.from_vectors(right.ring, [[[]] for _ in free], 1, right.variable)
    modes = tuple(
        ModeColumn(entry, _reduce_column_modulo(right.take_columns([j]), entry), inverse.take_rows([j]), zero)
        for j, entry in enumerate(diagonal)
        if len(entry) > 1
    )
    columns, observables = right.take_columns(free), inverse.take_rows(free)
    return replace(parametrization, free=columns, modes=modes, chosen_observables=observables)


def _reduce_column_modulo(column: OperatorMatrix, divisor: Polynomial) -> OperatorMatrix:
    """Return a column modulo a polynomial."""
    ring, entries = column.ring, []
    for row, bottom in zip(column.rows, column.denominators, strict=True):
        factor, _, rest = pseudo_divide(ring, row[0], divisor)
        below = ring.reduce(factor * bottom)
        entries.append([[Scalar(ring, value, below) for value in rest]])
    return OperatorMatrix.from_scalars(ring, entries, 1, column.variable)


def degenerate_factors(form: smith.SmithForm) -> list[Element]:
    """Return the parameter factors at whose zeros the Smith form changes, tested at such zeros."""
    operator, ring = form.operator, form.operator.ring

    def differs(field: FiniteField, points: Sequence[Element]) -> bool:
        if any(not ring.map_to_finite_field(bottom, field, points) for bottom in operator.denominators):
            return False  # the equations are undefined there
        rows = _map_rows(ring, operator.rows, field, points)
        here = smith.invariant_factors_of_diagonal(field, smith.diagonalize(field, rows, operator.width).diagonal)
        (there,) = _map_rows(ring, [form.invariants], field, points)
        if [len(entry) for entry in there] != [len(entry) for entry in form.invariants]:
            return True  # a leading coefficient vanishes, and a mode loses an exponent
        return here != [primitive_part(field, entry) for entry in there]

    factors = _denominator_factors((form.left, form.diagonal, form.left_inverse, form.right_inverse))
    return [factor for factor in factors if _holds_at_zero(ring, factor, differs)]


def _holds_at_zero(ring: ScalarRing, factor: Element, test: Callable[[FiniteField, Sequence[Element]], bool]) -> bool:
    """Return whether a test holds at some of the random zeros of a factor; True if no zero is found."""
    for prime_field, branches in sample_zeros(ring, factor):
        return any(test(prime_field, points) for points in branches)
    return True


def exceptional_factors(parametrization: Parametrization) -> list[Element]:
    """Return the parameter factors at whose zeros a parametrization may not hold, and must not be evaluated.

    If X and g_i are defined, the identities that prove the parametrization can be evaluated too.
    """
    rows = (parametrization.free_observables, *(mode.observable for mode in parametrization.modes))
    columns = (parametrization.free, *(mode.column for mode in parametrization.modes))
    # If the leading coefficient of d_i vanishes, a mode has fewer functions.
    leading = [mode.annihilator[-1] for mode in parametrization.modes]
    return _denominator_factors((*rows, *columns), leading)


def singular_basis_factors(columns: OperatorMatrix, inverses: Iterable[OperatorMatrix]) -> list[Element]:
    """Return the parameter factors at whose zeros chosen columns are no longer a basis, tested at such zeros."""
    ring, rows = columns.ring, columns.transpose()

    def is_singular(field: FiniteField, points: Sequence[Element]) -> bool:
        if any(not ring.map_to_finite_field(bottom, field, points) for bottom in columns.denominators):
            return True
        # A denominator of a transposed row is a common multiple of those above: a unit here.
        diagonal = smith.diagonalize(field, _map_rows(ring, rows.rows, field, points), rows.width).diagonal
        return len(diagonal) < columns.width or any(len(entry) > 1 for entry in diagonal)

    factors = _denominator_factors((columns, *inverses))
    return [factor for factor in factors if _holds_at_zero(ring, factor, is_singular)]


def _map_rows(ring: ScalarRing, rows: Sequence[Vector], target: FiniteField, points: Sequence[Element]) -> list[Vector]:
    """Return a polynomial matrix at a point of a finite field."""
    return [[map_polynomial_to_finite_field(ring, entry, target, points) for entry in row] for row in rows]


def _denominator_factors(matrices: Sequence[OperatorMatrix], others: Iterable[Element] = ()) -> list[Element]:
    """Return the parameter factors of all denominators, and of other elements."""
    ring = matrices[0].ring
    found: dict[tuple[tuple[tuple[int, ...], int], ...], Element] = {}
    for element in (*(bottom for matrix in matrices for bottom in matrix.denominators), *others):
        for factor in ring.parameter_factors(element):
            found[tuple(ring.terms(factor).items())] = factor
    return [found[key] for key in sorted(found, key=lambda terms: (len(terms), [-sum(e) for e, _ in terms], terms))]
