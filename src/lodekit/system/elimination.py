"""The equations that a system implies between some of its channels alone: all others are eliminated exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lodekit.algebra.decomposition import combine
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.reduction import kernel_and_image
from lodekit.algebra.scalars import Scalar
from lodekit.system.delays import channel_of
from lodekit.system.facts import Facts
from lodekit.system.signals import Signal

__all__ = ["eliminate", "implied_equations"]


def eliminate(
    operator: OperatorMatrix, known: Sequence[Signal], hidden: Sequence[int]
) -> tuple[OperatorMatrix, list[Signal]]:
    """Return both sides of the equations that others imply without some columns, which are zero then.

    Parameters
    ----------
    operator : OperatorMatrix
    known : sequence of Signal
        Both sides of the equations.
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


def implied_equations(system: Facts, channels: Collection[str]) -> tuple[OperatorMatrix, list[Signal]]:
    """Return both sides of the equations between some channels that a system implies; columns of others are zero.

    With a channel, its delayed ones remain.

    Parameters
    ----------
    system : Facts
    channels : collection of str
        Those that remain.

    Examples
    --------
    >>> import lodekit as lk
    >>> operator, known = implied_equations(lk.System("x' = v; v' = -k*x", parameters=["k"]), ["x"])
    >>> [[str(value) for value in operator.coefficients(0, 0)], operator.coefficients(0, 1)]
    [['k', '0', '1'], []]
    """
    hidden = [j for j, name in enumerate(system.channels) if channel_of(name) not in channels]
    return eliminate(system.operator, system.forcing, hidden)
