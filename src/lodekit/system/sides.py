"""Combinations of equations in which some channels do not occur, with both sides."""

from __future__ import annotations

from collections.abc import Sequence

from lodekit.algebra.decomposition import combine
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.reduction import kernel_and_image
from lodekit.algebra.scalars import Scalar
from lodekit.system.signals import Signal

__all__ = ["eliminate"]


def eliminate(
    operator: OperatorMatrix, known: Sequence[Signal], hidden: Sequence[int]
) -> tuple[OperatorMatrix, list[Signal]]:
    """Return both sides of the equations that others imply without some columns, which are zero then.

    Parameters
    ----------
    operator : OperatorMatrix
        The left sides, which hold channels.
    known : sequence of Signal
        The right sides, which hold none.
    hidden : sequence of int
        The columns that are eliminated.
    """
    if not hidden:
        return operator, list(known)
    ring = operator.ring
    _, _, weights = kernel_and_image(ring, [[row[j] for j in hidden] for row in operator.rows])
    rows = [combine(ring, weight, operator.rows) for weight in weights]
    sides = []
    for weight in weights:
        total = Signal(ring)
        for factor, bottom, signal in zip(weight, operator.denominators, known, strict=True):
            total = total + signal.apply([Scalar(ring, c * bottom) for c in factor])
        sides.append(total)
    return OperatorMatrix(ring, rows, [ring.one] * len(rows), operator.width), sides
