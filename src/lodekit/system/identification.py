"""What measurements can tell about parameters at all, by exact algebra: whatever the noise, and for any solution.

Whatever is not measured is eliminated from the equations, from their derivatives and from what was measured: a linear
system for the derivatives of all these. The relations that remain between measured quantities, brought to echelon form,
are all that data can show; parameters that can move without any change of their coefficients are undetermined. The
derivatives of the coefficients are computed exactly, at a random point of a large finite field: what holds there holds
generically.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice

from flint import nmod_mat

from lodekit.algebra.finite_field import Element, FiniteField
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.sampling import random_points
from lodekit.algebra.scalars import Scalar
from lodekit.system.delays import Delayed, channel_of
from lodekit.system.facts import Facts
from lodekit.system.signals import Signal, Wave

__all__ = ["Measured", "undetermined_directions"]

#: Matrices with more columns than this are not looked at: such systems are too large to be told here.
_WIDEST = 1500
#: Entries of directions are told from numbers modulo a prime where they are fractions of numbers up to this.
_SMALL = 12

Column = tuple[int, int, int]


@dataclass(frozen=True)
class Measured:
    """A system, what was measured of it, and which parameters are not known.

    Parameters
    ----------
    system : Facts
    observables : OperatorMatrix
        A row for each measured observable: the operator on the channels.
    known : sequence of Signal
        The known functions of time beside the operators.
    unknown : tuple of str
        Parameters that only data can tell, in order. All others are known.
    """

    system: Facts
    observables: OperatorMatrix
    known: Sequence[Signal]
    unknown: tuple[str, ...]

    @cached_property
    def plain(self) -> tuple[int | None, ...]:
        """The number of the channel that each observable is; None for all else that was measured."""
        found: list[int | None] = []
        for i, signal in enumerate(self.known):
            row = [self.observables.coefficients(i, j) for j in range(self.observables.width)]
            used = [j for j, values in enumerate(row) if any(values)]
            alone = len(used) == 1 and [value.as_fraction() for value in row[used[0]]] == [1] and not signal
            found.append(used[0] if alone else None)
        return tuple(found)

    @cached_property
    def visible(self) -> frozenset[int]:
        """The numbers of channels that are measured, and of those that are delayed."""
        names = self.system.channels
        measured = {names[j] for j in self.plain if j is not None}
        return frozenset(j for j, name in enumerate(names) if name in measured or channel_of(name) in measured)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The channels that are not measured themselves."""
        return tuple(name for j, name in enumerate(self.system.channels) if j not in self.visible)


def undetermined_directions(measured: Measured) -> list[dict[str, Fraction | None]] | None:
    """Return directions in which parameters can move without any change of what can be measured; None if too large.

    Parameters
    ----------
    measured : Measured

    Returns
    -------
    list of dict of str to Fraction
        A basis in echelon form. An entry is None where it depends on the values of the parameters.

    Examples
    --------
    >>> import lodekit as lk
    >>> from lodekit.prior.observables import ObservableReader
    >>> system = lk.System("(M + m)*x'' + c*x' = F", parameters=["M", "m", "c"])
    >>> operator, known = ObservableReader(system).read(["x", "F"])
    >>> [way] = undetermined_directions(Measured(system, operator, known, ("M", "m", "c")))
    >>> {name: str(value) for name, value in way.items()}
    {'M': '1', 'm': '-1'}
    """
    if not measured.unknown:
        return []
    found: list[tuple[int, list[list[int]]]] = []
    for field, points in islice(random_points(measured.system.operator.ring, seed=7), 2):
        jets = _Jets(measured, field, _fix(measured, field, points))
        if jets.width > _WIDEST:
            return None
        found.append((field.prime, jets.null_directions()))
        if not found[0][1]:
            return []
    (prime, first), (other, second) = found
    if len(first) != len(second):
        # One of the points is a special one: too rare to look for a third.
        return None
    directions = []
    for one, two in zip(first, second, strict=True):
        way: dict[str, Fraction | None] = {}
        for name, a, b in zip(measured.unknown, one, two, strict=True):
            if a or b:
                left, right = _as_fraction(a, prime), _as_fraction(b, other)
                way[name] = left if left == right else None
        directions.append(way)
    return directions


def _fix(measured: Measured, field: FiniteField, points: Sequence[Element]) -> list[Element]:
    """Return a point at which parameters that are fixed have their values."""
    ring, found = measured.system.operator.ring, list(points)
    for name, parameter in measured.system.parameters.items():
        if parameter.fixed is not None and name not in measured.unknown:
            value = Fraction(parameter.fixed)
            place = len(ring.constants) + ring.parameters.index(name)
            found[place] = field.integer(value.numerator) / field.integer(value.denominator)
    return found


def _as_fraction(value: int, prime: int) -> Fraction | None:
    """Return the small fraction that a number modulo a prime stands for; None where there is none."""
    for bottom in range(1, _SMALL + 1):
        top = value * bottom % prime
        top = top - prime if top > prime // 2 else top
        if abs(top) <= _SMALL:
            return Fraction(top, bottom)
    return None


class _Jets:
    """The equations, what was measured, and their derivatives as one linear system over a finite field.

    Its unknowns are derivatives of channels (to be eliminated), then derivatives of observables, high ones first, then
    known functions of time. So rows of the echelon form that start with an observable are relations between measured
    quantities alone, of lowest order.
    """

    def __init__(self, measured: Measured, field: FiniteField, points: Sequence[Element]) -> None:
        self.measured, self.field, self.points = measured, field, points
        system, own = measured.system, measured.observables
        self.ring = system.operator.ring
        #: The known functions of time that occur in `rows`, numbered; filled while these are made.
        self.waves: dict[Wave, int] = {}
        orders = [_order(system.operator, i) for i in range(len(system.operator.rows))]
        # Elimination multiplies by determinants at most, whose order is bounded by the sum of all orders.
        self.reach = sum(orders) + sum(_order(own, i) for i in range(len(own.rows)))
        self.depth = 2 * self.reach + 1
        self.width = (len(system.channels) + len(own.rows)) * (self.depth + max(orders, default=0) + 1)

    def null_directions(self) -> list[list[int]]:
        """Return moves of the unknown parameters that change no relation, in echelon form, as numbers below p."""
        prime = self.field.prime
        columns = sorted({column for row in self.rows for column in row})
        index = {column: k for k, column in enumerate(columns)}
        matrix = self._matrix(0, index, range(len(self.rows)))
        pivots, chosen = _pivots(*matrix.rref()), _pivots(*matrix.transpose().rref())
        others = sorted(set(range(len(columns))) - set(pivots))
        if not others:
            return _null_space([[] for _ in self.measured.unknown], prime)
        table = matrix.tolist()
        square = _take([table[r] for r in chosen], pivots, prime)
        values = square.solve(_take([table[r] for r in chosen], others, prime))
        # The relations between measured quantities: rows that start with an observable.
        # High ones may lack a derivative that would have made them simpler.
        shown = [r for r, k in enumerate(pivots) if columns[k][0] == 1 and -columns[k][1] <= self.reach]
        seen = {
            columns[k][2] for i, k in enumerate(others) if columns[k][0] == 2 and any(int(values[r, i]) for r in shown)
        }
        inverse = square.inv()
        weights = nmod_mat(
            len(shown), len(chosen), [int(inverse[r, k]) for r in shown for k in range(len(chosen))], prime
        )
        slopes: list[list[int]] = []
        for number in range(1, len(self.measured.unknown) + 1):
            table = self._matrix(number, index, chosen).tolist()
            change = weights * (_take(table, others, prime) - _take(table, pivots, prime) * values)
            own = [int(value) for value in change.entries()]
            for wave, place in self.waves.items():
                parts = [self._parts(value)[number] for value in (wave.rate, wave.frequency)]
                own += [int(part) if place in seen else 0 for part in parts]
            delays = [name for name in self.measured.system.channels if isinstance(name, Delayed)]
            slopes.append(own + [int(self._parts(name.time)[number]) for name in delays])
        return _null_space(slopes, prime)

    def _matrix(self, number: int, index: dict[Column, int], chosen: Sequence[int]) -> nmod_mat:
        """Return some rows as a matrix: their values, or their derivatives in a parameter counted from one."""
        matrix = nmod_mat(len(chosen), len(index), self.field.prime)
        for r, place in enumerate(chosen):
            for column, parts in self.rows[place].items():
                matrix[r, index[column]] = parts[number]
        return matrix

    @cached_property
    def rows(self) -> list[dict[Column, list[Element]]]:
        """All rows, by columns (kind, minus the order, number): each entry with its derivatives in the parameters."""
        system, measured = self.measured.system, self.measured
        found: list[dict[Column, list[Element]]] = []
        for kind, operator, signals in (
            (0, system.operator, [signal.scale(self.ring.rational(-1)) for signal in system.forcing]),
            (1, measured.observables, measured.known),
        ):
            for i, signal in enumerate(signals):
                if kind and measured.plain[i] is not None:
                    continue
                fixed = [
                    (order, j, self._parts(value))
                    for j in range(operator.width)
                    for order, value in enumerate(operator.coefficients(i, j))
                    if value
                ]
                current = signal
                for k in range(self.depth):
                    row = {(int(j in measured.visible), -(order + k), j): parts for order, j, parts in fixed}
                    current = current.derivative() if k else current
                    for wave, value in current.terms.items():
                        row[2, 0, self.waves.setdefault(wave, len(self.waves))] = self._parts(value)
                    if kind:
                        row[1, -k, operator.width + i] = self._parts(self.ring.rational(-1))
                    found.append(row)
        return found

    def _parts(self, value: Scalar) -> list[Element]:
        """Return a coefficient at the point, and its derivatives in the unknown parameters there."""
        top, bottom = value.numerator, value.denominator
        a, b = (self.ring.image(part, self.field, self.points) for part in (top, bottom))
        found = [a / b]
        for name in self.measured.unknown:
            place = len(self.ring.constants) + self.ring.parameters.index(name)
            da, db = (self.ring.image(part.derivative(place), self.field, self.points) for part in (top, bottom))
            found.append((da * b - a * db) / (b * b) if da or db else self.field.zero)
        return found


def _order(operator: OperatorMatrix, i: int) -> int:
    return max((len(operator.coefficients(i, j)) - 1 for j in range(operator.width)), default=0)


def _take(rows: Sequence[Sequence[Element]], columns: Sequence[int], prime: int) -> nmod_mat:
    return nmod_mat(len(rows), len(columns), [int(row[k]) for row in rows for k in columns], prime)


def _pivots(echelon: nmod_mat, rank: int) -> list[int]:
    """Return the first column of each row of an echelon form that is not zero."""
    found, k = [], 0
    for r in range(int(rank)):
        while not int(echelon[r, k]):
            k += 1
        found.append(k)
    return found


def _null_space(slopes: Sequence[Sequence[int]], prime: int) -> list[list[int]]:
    """Return the moves that make ``sum_i move_i slopes_i`` vanish, in echelon form."""
    count, length = len(slopes), max(1, len(slopes[0]))
    entries = [slopes[i][k] if slopes[i] else 0 for k in range(length) for i in range(count)]
    space, nullity = nmod_mat(length, count, entries, prime).nullspace()
    if not nullity:
        return []
    basis = nmod_mat(int(nullity), count, [int(space[i, k]) for k in range(int(nullity)) for i in range(count)], prime)
    echelon, _ = basis.rref()
    return [[int(value) for value in row] for row in echelon.tolist()]
