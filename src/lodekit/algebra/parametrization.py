"""Every solution as free functions plus modes: f = sum_l B_l(d) z_l + sum_i C_i(d) p_i with d_i p_i = 0.

The columns B_l are a minimal (column-reduced, Popov) basis of the kernel of A; the columns C_i are reduced modulo their
d_i and modulo B. Both depend on the solution space alone, not on how the equations are written. The rows that recover
z and p from a solution come along, and with them an exact proof that nothing is missing and nothing is too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lodekit.algebra.decomposition import Decomposition
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import Polynomial, multiply, primitive, pseudo_divide, scale
from lodekit.algebra.reduction import (
    Vector,
    kernel_and_image,
    leading_position,
    normal_form,
    popov_basis,
    primitive_vector,
)
from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.algebra.smith import divide_rows, invert_right, to_matrices
from lodekit.errors import VerificationError

if TYPE_CHECKING:
    import sympy

__all__ = ["ModeColumn", "Parametrization", "parametrize"]


@dataclass(frozen=True)
class ModeColumn:
    """A finite-dimensional part of the solutions: f = C(d) p with d_i(d) p = 0.

    Parameters
    ----------
    annihilator : polynomial
        d_i, as a canonical multiple.
    column : OperatorMatrix
        C, n x 1, of lower degree than d_i.
    observable : OperatorMatrix
        The row g, 1 x n, that reads p off a solution: p = g(d) f. It cannot be influenced by the free functions.
    correction : OperatorMatrix
        The column, q x 1, by which the free functions change because C was reduced modulo the kernel.
    """

    annihilator: Polynomial
    column: OperatorMatrix
    observable: OperatorMatrix
    correction: OperatorMatrix


@dataclass(frozen=True)
class Parametrization:
    """All solutions of A(d) f = 0, and only solutions.

    Parameters
    ----------
    operator : OperatorMatrix
        A.
    equations : OperatorMatrix
        The Popov form of A: the same solutions, without redundancy, the same however A was written.
    free : OperatorMatrix
        B, n x q: columns of a basis of the kernel, the minimal one unless another was chosen.
    modes : tuple of ModeColumn
        The autonomous part, empty for a controllable system. The d_i need not divide each other: what is decoupled in
        the equations stays decoupled here.
    chosen : OperatorMatrix, optional
        The rows X of a basis that somebody chose; None for the minimal basis.
    """

    operator: OperatorMatrix
    equations: OperatorMatrix
    free: OperatorMatrix
    modes: tuple[ModeColumn, ...]
    _stages: Decomposition = field(repr=False, compare=False)
    chosen: OperatorMatrix | None = None

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
        """Degrees in d of the free columns: how many derivatives of the free functions occur."""
        return tuple(self.free.degree(j) for j in range(self.free.width))

    @cached_property
    def free_observables(self) -> OperatorMatrix:
        """The rows X, q x n, that read the free functions off a solution: z = X(d) f."""
        if self.chosen is not None:
            return self.chosen
        left, _, right = to_matrices(self.operator, self._stages.parts)
        inverse = invert_right(left @ self.operator, right, self._stages.parts.diagonal)
        stretch = _leading_scales(self.operator.ring, self._stages.kernel, self.operator.variable)
        total = stretch @ inverse.take_rows(range(self._stages.rank, self.operator.width))
        for mode in self.modes:
            total = total + mode.correction @ mode.observable
        return total

    @cached_property
    def equation_weights(self) -> OperatorMatrix:
        """The matrix W with ``equations = W A``."""
        ring, operator = self.operator.ring, self.operator
        weights, contents = self._stages.equation_weights
        rows = [[scale(ring, w, a) for w, a in zip(row, operator.denominators, strict=True)] for row in weights]
        return OperatorMatrix.from_vectors(ring, rows, len(operator.rows), operator.variable, contents)

    def verify(self) -> tuple[str, ...]:
        """Return what was proved, after checking exactly that these are solutions, all of them, and none twice.

        Returns
        -------
        tuple of str
            What was proved.

        Raises
        ------
        VerificationError
            Naming the first statement that does not hold.
        """
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
        minimal = self.chosen is None
        unless(not minimal or _is_column_reduced(self.free), "the free columns are column-reduced")
        return (
            "A B = 0 and A C_i is divisible by d_i: only solutions",
            "f = B X f + sum_i C_i g_i f whenever A f = 0: all solutions",
            "X and g_i read the free functions and the modes off again: each solution once",
            f"the free columns are a {'minimal (column-reduced)' if minimal else 'chosen'} basis",
        )

    def _vanishes_on_solutions(self, row: Vector) -> bool:
        """Return whether a row is a combination of the equations."""
        return not any(self._remainder(row))

    def _remainder(self, row: Vector) -> Vector:
        shifts, basis = self._equation_basis
        return normal_form(self.operator.ring, row, basis, shifts)

    @cached_property
    def _equation_basis(self) -> tuple[list[int], dict[int, Vector]]:
        shifts = [0] * self.operator.width
        return shifts, {leading_position(row, shifts): row for row in self.equations.rows}

    def observable_of(self, mode: int, cofactor: Polynomial) -> Vector:
        """Return the row ``cofactor g`` of a mode, given by its number `mode`, reduced by the equations and primitive.

        With the cofactor d_i / f of a factor f of d_i, it shows the part of the mode that f annihilates, alone.
        """
        ring = self.operator.ring
        row = self._remainder([multiply(ring, cofactor, entry) for entry in self.modes[mode].observable.rows[0]])
        first = next(entry for entry in row if entry)
        return primitive_vector(ring, row, first[-1])

    def can_choose(self, channels: Sequence[int]) -> bool:
        """Return whether these channels (by number) can be prescribed freely, all at once.

        They can when the rows of B that belong to them are linearly independent.
        """
        chosen = list(channels)
        return len(set(chosen)) == len(chosen) <= self.free.width and self._rank(chosen) == len(chosen)

    def input_sets(self, limit: int) -> tuple[tuple[int, ...], ...]:
        """Return the largest sets of channels that can be chosen freely, in order, at most `limit` of them."""
        return self._stages.exchanges.sets(limit) if self.free.width else ((),)[:limit]

    def _rank(self, indices: Sequence[int]) -> int:
        """Return the exact rank of some rows of B."""
        found = self._stages.exchanges.rank(sum(1 << i for i in indices))
        if found == min(len(indices), self.free.width):
            return found
        # A single point can be unlucky: that many rows are independent, but there may be more.
        basis, _ = popov_basis(self.free.ring, [self.free.rows[i] for i in indices], [0] * self.free.width)
        return len(basis)


def _vanishes_modulo(matrix: OperatorMatrix, annihilator: Polynomial) -> bool:
    """Return whether all entries of a column are multiples of a polynomial."""
    return not any(pseudo_divide(matrix.ring, row[0], annihilator)[2] for row in matrix.rows)


def _is_column_reduced(matrix: OperatorMatrix) -> bool:
    """Return whether the coefficients of each column's highest power are linearly independent; no column is zero."""
    degrees = [matrix.degree(j) for j in range(matrix.width)]
    leading: list[Vector] = [
        [[row[j][degree]] if degree < len(row[j]) else [] for row in matrix.rows] for j, degree in enumerate(degrees)
    ]
    image, _, _ = kernel_and_image(matrix.ring, leading)
    return len(image) == matrix.width


def parametrize(operator: OperatorMatrix, decomposition: Decomposition | None = None) -> Parametrization:
    """Return all solutions of A(d) f = 0, A the `operator`; its `decomposition` is taken over where it is known."""
    stages = decomposition or Decomposition(operator.ring, operator.rows, operator.width)
    ring, width, variable = operator.ring, operator.width, operator.variable
    kernel = stages.kernel
    shrink = _leading_scales(ring, kernel, variable, invert=True)
    columns = [[vector[i] for vector in kernel] for i in range(width)]
    free = OperatorMatrix.from_vectors(ring, columns, len(kernel), variable) @ shrink
    modes = []
    if not stages.is_controllable:
        parts = stages.parts
        left, _, _ = to_matrices(operator, parts)
        rows = divide_rows(left @ operator, parts.diagonal)
        for i, entry in enumerate(parts.diagonal):
            if len(entry) > 1:
                modes.append(_reduce_mode(parts.right[i], primitive(ring, entry), kernel, rows.take_rows([i])))
    equations = OperatorMatrix.from_vectors(ring, stages.equations, width, variable)
    return Parametrization(operator, equations, free, tuple(modes), stages)


def _leading_scales(
    ring: ScalarRing, vectors: Sequence[Vector], variable: str, *, invert: bool = False
) -> OperatorMatrix:
    """Return the diagonal matrix of the leading integers of vectors, by which columns are scaled to be shown."""
    values = [ring.rational(_leading_integer(ring, vector)) for vector in vectors]
    return OperatorMatrix.diagonal(ring, [ring.rational(1) / v if invert else v for v in values], variable)


def _reduce_mode(
    raw: Vector, annihilator: Polynomial, kernel: Sequence[Vector], observable: OperatorMatrix
) -> ModeColumn:
    """Reduce a column of V modulo its d_i and the kernel."""
    ring, variable = observable.ring, observable.variable
    width, count = len(raw), len(kernel)
    # Each kernel vector carries a tag, and the last place carries the scale of the reduced vector itself.
    tagged = [[*v, *([ring.one] if i == j else [] for j in range(count)), []] for i, v in enumerate(kernel)]
    multiples = [
        [annihilator if i == j else [] for j in range(width)] + [[] for _ in range(count + 1)] for i in range(width)
    ]
    shifts = [0] * width + [None] * (count + 1)
    basis, _ = popov_basis(ring, [*tagged, *multiples], shifts)
    reduced = normal_form(ring, [*raw, *([] for _ in range(count)), [ring.one]], basis, shifts)
    reduced = primitive_vector(ring, reduced, reduced[leading_position(reduced, shifts)][-1])
    # Now reduced = s raw + kernel T modulo d_i, with tags T and scale s. Let C = reduced/leading, p = (leading/s) p',
    # and p' the function that belonged to the raw column: raw p' = C p - kernel (T/leading) p.
    leading = ring.rational(_leading_integer(ring, reduced[:width]))
    unit = OperatorMatrix.diagonal(ring, [ring.rational(1) / leading], variable)
    column = OperatorMatrix.from_vectors(ring, [[entry] for entry in reduced[:width]], 1, variable) @ unit
    rescaled = OperatorMatrix.diagonal(ring, [leading / Scalar(ring, reduced[-1][0])], variable) @ observable
    tags = OperatorMatrix.from_vectors(ring, [[tag] for tag in reduced[width:-1]], 1, variable)
    correction = -(_leading_scales(ring, kernel, variable) @ tags @ unit)
    return ModeColumn(annihilator, column, rescaled, correction)


def _leading_integer(ring: ScalarRing, vector: Vector) -> int:
    """Return the integer coefficient of the leading term of a vector; columns are shown with it scaled to one."""
    pivot = vector[leading_position(vector, [0] * len(vector))][-1]
    return next(iter(ring.terms(pivot).values()))
