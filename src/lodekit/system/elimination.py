"""The equations that a system implies between some of its channels alone: all others are eliminated exactly."""

from __future__ import annotations

from collections.abc import Collection

from lodekit.algebra.operators import OperatorMatrix
from lodekit.system.delays import channel_of
from lodekit.system.facts import Facts
from lodekit.system.sides import eliminate
from lodekit.system.signals import Signal

__all__ = ["implied_equations"]


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
