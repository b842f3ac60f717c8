"""The relations between measured quantities in a form that is unique: its coefficients are all that data can show.

All that was not measured is eliminated, and what remains is brought to its Popov form with leading coefficients of one.
Values of the parameters at which these coefficients are the same give the same behaviour of what was measured, whatever
the inputs and the initial states are; values at which they are not do not.
"""

from __future__ import annotations

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.reduction import ELIMINATE, Vector, popov_basis
from lodekit.algebra.scalars import Scalar
from lodekit.system.delays import Delayed
from lodekit.system.identification import Measured
from lodekit.system.signals import Signal

__all__ = ["relation_coefficients"]


def relation_coefficients(measured: Measured) -> list[Scalar]:
    """Return what determines the behaviour of all that was measured, as functions of the parameters.

    These are the coefficients of the relations, those of the known functions of time in them with their rates and
    frequencies, and the delays.

    Parameters
    ----------
    measured : Measured

    Examples
    --------
    >>> import lodekit as lk
    >>> from lodekit.prior.observables import ObservableReader
    >>> system = lk.System("p*h' = u - h; q*y' = h - y", parameters=["p", "q"])
    >>> operator, known = ObservableReader(system).read(["y", "u"])
    >>> [str(value) for value in relation_coefficients(Measured(system, operator, known, ("p", "q")))]
    ['-1/(p*q)', '1/(p*q)', '(p + q)/(p*q)']
    """
    system, ring = measured.system, measured.system.operator.ring
    joined, sides, hidden = _with_observables(measured)
    count = len(joined.rows)
    # What each relation is combined from is carried along, for the right-hand sides.
    rows: list[Vector] = [
        [*row, *([bottom] if i == k else [] for k in range(count))]
        for i, (row, bottom) in enumerate(zip(joined.rows, joined.denominators, strict=True))
    ]
    shifts = [ELIMINATE if j in hidden else 0 for j in range(joined.width)]
    basis, _ = popov_basis(ring, rows, [*shifts, *[None] * count])
    found: list[Scalar] = []
    for pivot, row in basis.items():
        if pivot in hidden:
            continue
        leading = row[pivot][-1]
        found += [Scalar(ring, value, leading) for entry in row[: joined.width] for value in entry]
        total = Signal(ring)
        for weight, signal in zip(row[joined.width :], sides, strict=True):
            total = total + signal.apply([Scalar(ring, value, leading) for value in weight])
        for wave, value in total.terms.items():
            found += [value, wave.rate, wave.frequency]
    found += [name.time for name in system.channels if isinstance(name, Delayed)]
    return [value for value in dict.fromkeys(found) if value.as_fraction() is None]


def _with_observables(measured: Measured) -> tuple[OperatorMatrix, list[Signal], set[int]]:
    """Return the equations, with a column for each observable that is no channel, and the columns to eliminate."""
    system, ring = measured.system, measured.system.operator.ring
    others = [i for i, place in enumerate(measured.plain) if place is None]
    width, zero = system.operator.width, list[Scalar]()
    entries = [[*row, *[zero] * len(others)] for row in system.operator.entries()]
    own = measured.observables
    for k, i in enumerate(others):
        shown = [[ring.rational(-1)] if k == n else zero for n in range(len(others))]
        entries.append([*(own.coefficients(i, j) for j in range(width)), *shown])
    sides = [*system.forcing, *(measured.known[i].scale(ring.rational(-1)) for i in others)]
    hidden = set(range(width)) - measured.visible
    return OperatorMatrix.from_scalars(ring, entries, width + len(others)), sides, hidden
