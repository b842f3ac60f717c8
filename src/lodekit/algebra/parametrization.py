"""Every solution as free functions plus modes: f = sum_l B_l(d) z_l + sum_i C_i(d) p_i with d_i p_i = 0.

The columns B_l are a minimal (column-reduced, Popov) basis of the kernel of A; the columns C_i are reduced modulo their
d_i and modulo B. Both depend on the solution space alone, not on how the equations are written. The rows that recover
z and p from a solution come along, and with them an exact proof that nothing is missing and nothing is too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lodekit.algebra.finite_field import Element, FiniteField
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import Polynomial, multiply, pseudo_divide
from lodekit.algebra.reduction import (
    Vector,
    kernel_and_image,
    leading_position,
    normal_form,
    popov_basis,
    primitive_vector,
)
from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.algebra.smith import SmithForm, divide_rows
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
    """

    annihilator: Polynomial
    column: OperatorMatrix
    observable: OperatorMatrix


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
        B, n x q: columns of a minimal basis of the kernel.
    free_observables : OperatorMatrix
        The rows X, q x n, that read the free functions off a solution: z = X(d) f.
    modes : tuple of ModeColumn
        The autonomous part, empty for a controllable system.
    """

    operator: OperatorMatrix
    equations: OperatorMatrix
    free: OperatorMatrix
    free_observables: OperatorMatrix
    modes: tuple[ModeColumn, ...]

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

    def verify(self) -> tuple[str, ...]:
        """Check exactly that these are solutions, that they are all, and that the basis is minimal.

        Returns
        -------
        tuple of str
            What was proved.

        Raises
        ------
        VerificationError
            Naming the first statement that does not hold.
        """
        ring, width = self.operator.ring, self.operator.width
        VerificationError.unless(not (self.operator @ self.free).is_nonzero(), "A B = 0")
        total = self.free @ self.free_observables
        for number, mode in enumerate(self.modes, 1):
            image = self.operator @ mode.column
            rests = (pseudo_divide(ring, row[0], mode.annihilator)[2] for row in image.rows)
            VerificationError.unless(not any(rests), f"A C_{number} is divisible by d_{number}")
            degree = len(mode.annihilator)
            VerificationError.unless(
                all(len(row[0]) < degree for row in mode.column.rows), f"C_{number} is reduced modulo d_{number}"
            )
            autonomous = mode.observable.rows[0]
            multiple = [multiply(ring, mode.annihilator, entry) for entry in autonomous]
            VerificationError.unless(
                self._vanishes_on_solutions(multiple), f"d_{number} g_{number} f = 0 for every solution"
            )
            total = total + mode.column @ mode.observable
        rest = total - OperatorMatrix.identity(ring, width, self.operator.variable)
        complete = all(self._vanishes_on_solutions(row) for row in rest.rows)
        VerificationError.unless(complete, "f = B X f + sum_i C_i g_i f for every solution")
        VerificationError.unless(_is_column_reduced(self.free), "the free columns are column-reduced")
        return (
            "A B = 0 and A C_i is divisible by d_i: only solutions",
            "f = B X f + sum_i C_i g_i f whenever A f = 0: all solutions",
            "the free columns are a minimal (column-reduced) basis",
        )

    def _vanishes_on_solutions(self, row: Vector) -> bool:
        """Return whether a row is a combination of the equations."""
        shifts, basis = self._equation_basis
        return not any(normal_form(self.operator.ring, row, basis, shifts))

    @cached_property
    def _equation_basis(self) -> tuple[list[int], dict[int, Vector]]:
        shifts = [0] * self.operator.width
        return shifts, {leading_position(row, shifts): row for row in self.equations.rows}

    def simplest_observable(self, mode: ModeColumn) -> Vector:
        """Return the row g of a mode in its shortest form: reduced by the equations, primitive."""
        shifts, basis = self._equation_basis
        row = normal_form(self.operator.ring, mode.observable.rows[0], basis, shifts)
        first = next(entry for entry in row if entry)
        return primitive_vector(self.operator.ring, row, first[-1])

    def can_choose(self, channels: Sequence[int]) -> bool:
        """Return whether these channels (by number) can be prescribed freely, all at once.

        They can when the rows of B that belong to them are linearly independent.
        """
        chosen = list(channels)
        return len(set(chosen)) == len(chosen) <= self.free.width and self._rank(chosen) == len(chosen)

    def input_sets(self, limit: int) -> tuple[tuple[int, ...], ...]:
        """Return the largest sets of channels that can be chosen freely, in order, at most `limit` of them."""
        found: list[tuple[int, ...]] = []
        size, width = self.free.width, self.operator.width

        def extend(chosen: tuple[int, ...], start: int) -> None:
            if len(chosen) == size:
                found.append(chosen)
                return
            for index in range(start, width):
                # Without what follows, no set can be completed any more: no later index will do either.
                if len(found) == limit or self._rank([*chosen, *range(index, width)]) < size:
                    return
                if self._rank([*chosen, index]) == len(chosen) + 1:
                    extend((*chosen, index), index + 1)

        extend((), 0)
        return tuple(found)

    def _rank(self, indices: Sequence[int]) -> int:
        """Return the exact rank of some rows of B."""
        most = min(len(indices), self.free.width)
        basis, _ = popov_basis(_FIELD, [self._rows_at_point[i] for i in indices], [0] * self.free.width)
        if len(basis) == most:
            return most
        # A single point can be unlucky: that many rows are independent, but there may be more.
        image, _, _ = kernel_and_image(self.free.ring, [self.free.rows[i] for i in indices])
        return len(image)

    @cached_property
    def _rows_at_point(self) -> list[Vector]:
        """B at one fixed point of a large finite field; zero where square roots make that impossible."""
        ring = self.free.ring
        if ring.has_relations:
            return [[[] for _ in row] for row in self.free.rows]
        d, *points = [_FIELD.integer(_POINT * (i + 3) + i) for i in range(len(ring.names) + 1)]
        rows: list[Vector] = []
        for row in self.free.rows:
            values = [_evaluate([ring.image(c, _FIELD, points) for c in entry], d) for entry in row]
            rows.append([[value] if value else [] for value in values])
        return rows


_FIELD = FiniteField(2**61 - 1)
_POINT = 0x9E3779B97F4A7C15


def _evaluate(polynomial: Sequence[Element], point: Element) -> Element:
    total = _FIELD.zero
    for value in reversed(polynomial):
        total = total * point + value
    return total


def _is_column_reduced(matrix: OperatorMatrix) -> bool:
    """Return whether the coefficients of each column's highest power are linearly independent."""
    degrees = [matrix.degree(j) for j in range(matrix.width)]
    leading: list[Vector] = [
        [[row[j][degree]] if 0 <= degree < len(row[j]) else [] for row in matrix.rows]
        for j, degree in enumerate(degrees)
    ]
    image, _, _ = kernel_and_image(matrix.ring, leading)
    return len(image) == matrix.width


def parametrize(form: SmithForm) -> Parametrization:
    """Return the parametrization of the solutions from a Smith form."""
    operator = form.operator
    ring, (_, width), variable = operator.ring, operator.shape, operator.variable
    equations, _ = popov_basis(ring, operator.rows, [0] * width)
    kernel = form.right.columns()[form.rank :]
    scales = [ring.rational(_leading_integer(ring, vector)) for vector in kernel]
    shrink = OperatorMatrix.diagonal(ring, [ring.rational(1) / value for value in scales], variable)
    stretch = OperatorMatrix.diagonal(ring, scales, variable)
    free = form.right.take_columns(range(form.rank, width)) @ shrink
    recover = stretch @ form.right_inverse.take_rows(range(form.rank, width))
    top = divide_rows(form.left @ operator, form.invariants)
    modes = []
    for i, annihilator in enumerate(form.invariants):
        if len(annihilator) == 1:
            continue
        raw = [row[i] for row in form.right.rows]
        mode, correction = _reduce_mode(raw, annihilator, kernel, top.take_rows([i]))
        recover = recover + stretch @ correction @ mode.observable
        modes.append(mode)
    return Parametrization(
        operator,
        OperatorMatrix.from_vectors(ring, list(equations.values()), width, variable),
        free,
        recover,
        tuple(modes),
    )


def _reduce_mode(
    raw: Vector, annihilator: Polynomial, kernel: Sequence[Vector], observable: OperatorMatrix
) -> tuple[ModeColumn, OperatorMatrix]:
    """Reduce a column of V modulo its d_i and the kernel.

    Returns
    -------
    mode : ModeColumn
        With C and a rescaled p.
    correction : OperatorMatrix
        The column F, q x 1, with ``raw p' = C p + kernel F p``, p' the function that belonged to the column before.
    """
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
    # Now reduced = s raw + kernel T modulo d_i, with tags T and scale s. C = reduced/leading and p = (leading/s) p'.
    leading = ring.rational(_leading_integer(ring, reduced[:width]))
    unit = OperatorMatrix.diagonal(ring, [ring.rational(1) / leading], variable)
    column = OperatorMatrix.from_vectors(ring, [[entry] for entry in reduced[:width]], 1, variable) @ unit
    rescaled = OperatorMatrix.diagonal(ring, [leading / Scalar(ring, reduced[-1][0])], variable) @ observable
    tags = OperatorMatrix.from_vectors(ring, [[tag] for tag in reduced[width:-1]], 1, variable)
    return ModeColumn(annihilator, column, rescaled), -(tags @ unit)


def _leading_integer(ring: ScalarRing, vector: Vector) -> int:
    """Return the integer coefficient of the leading term of a vector; columns are shown with it scaled to one."""
    pivot = vector[leading_position(vector, [0] * len(vector))][-1]
    return next(iter(ring.terms(pivot).values()))
