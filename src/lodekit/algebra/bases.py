"""Other bases of the free functions than the minimal one: chosen by what they read, by columns, or by a whole V.

With B the minimal basis of the kernel, every other one is B W with W unimodular: invertible over K[d]. What is chosen
is checked for that, and the rest of the parametrization follows: the rows X that read the free functions off a
solution, and mode columns that go with them. The solutions stay the same, the prior on them need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lodekit.algebra.decomposition import decompose, divisibility_chain
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.parametrization import ModeColumn, Parametrization
from lodekit.algebra.polynomials import Polynomial, gcd, primitive, pseudo_divide
from lodekit.algebra.reduction import kernel_and_image
from lodekit.algebra.scalars import Scalar
from lodekit.algebra.smith import divide_columns

__all__ = ["diagonal_by", "invariants_of", "invert", "with_columns", "with_rows", "with_transformation"]


def invert(matrix: OperatorMatrix) -> OperatorMatrix | None:
    """Return a left inverse over K[d], the inverse of a square matrix; None where there is none."""
    ring = matrix.ring
    image, witness, _ = kernel_and_image(ring, matrix.rows)
    if len(image) < matrix.width or any(len(row[i]) != 1 for i, row in enumerate(image)):
        return None
    below = [row[i][0] for i, row in enumerate(image)]
    start = OperatorMatrix.from_vectors(ring, witness, len(matrix.rows), matrix.variable, below)
    # The witness combines the numerators of the rows.
    return start @ OperatorMatrix.diagonal(ring, [Scalar(ring, bottom) for bottom in matrix.denominators])


def invariants_of(matrix: OperatorMatrix) -> list[Polynomial]:
    """Return the invariant factors of a matrix, as canonical multiples: as many as its rank."""
    return divisibility_chain(matrix.ring, decompose(matrix.ring, matrix.rows, matrix.width).diagonal)


def with_rows(parametrization: Parametrization, rows: OperatorMatrix, inverse: OperatorMatrix) -> Parametrization:
    """Return the parametrization whose free functions are read off a solution by given rows E: z = E(d) f.

    Parameters
    ----------
    parametrization : Parametrization
        With any basis B.
    rows : OperatorMatrix
        E, q x n.
    inverse : OperatorMatrix
        The inverse of E B, q x q.
    """
    free = parametrization.free @ inverse
    # A mode shares nothing with what was chosen: E C_i p = 0.
    modes = tuple(
        replace(mode, column=_reduce(mode.column - free @ (rows @ mode.column), mode.annihilator))
        for mode in parametrization.modes
    )
    return replace(parametrization, free=free, modes=modes, chosen=rows)


def with_columns(parametrization: Parametrization, columns: OperatorMatrix, inverse: OperatorMatrix) -> Parametrization:
    """Return the parametrization with given free columns B W; the modes stay as they are.

    Parameters
    ----------
    parametrization : Parametrization
        With any basis B.
    columns : OperatorMatrix
        B W, n x q.
    inverse : OperatorMatrix
        The inverse of W, q x q.
    """
    return replace(parametrization, free=columns, chosen=inverse @ parametrization.free_observables)


def diagonal_by(operator: OperatorMatrix, right: OperatorMatrix) -> list[Polynomial] | None:
    """Return the d_i, empty for zero, with ``U A V = D`` for some unimodular U, A the `operator` and V = `right`.

    None where there is no such U: where the columns of A V, divided by their d_i, cannot be completed to U^-1.
    """
    image = operator @ right
    divisors = [_column_divisor(image, j) for j in range(image.width)]
    kept = [j for j, divisor in enumerate(divisors) if divisor]
    if not kept:
        return divisors
    primitive_part = divide_columns(image.take_columns(kept), [divisors[j] for j in kept])
    return divisors if invert(primitive_part) is not None else None


def with_transformation(
    parametrization: Parametrization, right: OperatorMatrix, inverse: OperatorMatrix, diagonal: Sequence[Polynomial]
) -> Parametrization:
    """Return the parametrization by all of V: f = V h with d_i h_i = 0.

    Parameters
    ----------
    parametrization : Parametrization
        With any basis.
    right, inverse : OperatorMatrix
        V and its inverse.
    diagonal : sequence of polynomials
        The d_i, as `diagonal_by` returns them: free columns have none.
    """
    free = [j for j, entry in enumerate(diagonal) if not entry]
    zero = OperatorMatrix.from_vectors(right.ring, [[[]] for _ in free], 1, right.variable)
    modes = tuple(
        ModeColumn(entry, _reduce(right.take_columns([j]), entry), inverse.take_rows([j]), zero)
        for j, entry in enumerate(diagonal)
        if len(entry) > 1
    )
    return replace(parametrization, free=right.take_columns(free), modes=modes, chosen=inverse.take_rows(free))


def _column_divisor(matrix: OperatorMatrix, column: int) -> Polynomial:
    """Return the greatest common divisor of a column over K[d], as a canonical multiple."""
    total: Polynomial = []
    for row in matrix.rows:
        total = gcd(matrix.ring, total, row[column])
    return primitive(matrix.ring, total)


def _reduce(column: OperatorMatrix, divisor: Polynomial) -> OperatorMatrix:
    """Return a column modulo a polynomial."""
    ring, entries = column.ring, []
    for row, bottom in zip(column.rows, column.denominators, strict=True):
        factor, _, rest = pseudo_divide(ring, row[0], divisor)
        below = ring.reduce(factor * bottom)
        entries.append([[Scalar(ring, value, below) for value in rest]])
    return OperatorMatrix.from_scalars(ring, entries, 1, column.variable)
