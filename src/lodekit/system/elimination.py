"""The equations that a system implies between some of its channels alone: all others are eliminated exactly."""

from __future__ import annotations

from collections.abc import Collection

from lodekit.algebra.decomposition import combine
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.reduction import kernel_and_image
from lodekit.algebra.scalars import Scalar
from lodekit.system.facts import Facts
from lodekit.system.signals import Signal

__all__ = ["implied_equations"]


def implied_equations(system: Facts, channels: Collection[str]) -> tuple[OperatorMatrix, list[Signal]]:
    """Return both sides of the equations between some channels that a system implies; columns of others are zero.

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
    operator, ring = system.operator, system.operator.ring
    hidden = [j for j, name in enumerate(system.channels) if name not in channels]
    if not hidden:
        return operator, list(system.forcing)
    _, _, weights = kernel_and_image(ring, [[row[j] for j in hidden] for row in operator.rows])
    rows = [combine(ring, weight, operator.rows) for weight in weights]
    known = []
    for weight in weights:
        total = Signal(ring)
        for factor, bottom, signal in zip(weight, operator.denominators, system.forcing, strict=True):
            total = total + signal.apply([Scalar(ring, c * bottom) for c in factor])
        known.append(total)
    return OperatorMatrix(ring, rows, [ring.one] * len(rows), operator.width), known
