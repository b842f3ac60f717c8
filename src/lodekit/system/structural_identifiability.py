"""Structural identifiability: the parameters that noise-free measurements of some channels determine.

Unmeasured channels are eliminated from the prolonged system, that is the equations, the observables and their
derivatives. The remaining input-output relations, in echelon form, contain all information of the data; directions of
the parameters that do not change their coefficients are unidentifiable. The derivatives of the coefficients are exact,
at a random point of a large prime field: results at this point hold generically.

Scale and sign symmetries: under ``c -> s_c c`` for unmeasured channels and ``p -> s_p p`` for parameters, all terms of
an equation must scale in the same way: a linear system over the rationals for the logarithms of the scales. The same
system modulo two gives the signs that can change together.

`input_output_coefficients` brings the input-output relations to their monic Popov form, which is unique: parameter
values with equal coefficients give equal behaviour of the measured quantities, for all inputs and initial states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from flint import nmod_mat

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import sample_points
from lodekit.algebra.reduction import ELIMINATION_SHIFT, Vector, popov_basis
from lodekit.algebra.scalars import Element, FiniteField, Scalar, ScalarRing
from lodekit.support.units import format_powers
from lodekit.system.delays import undelayed_name
from lodekit.system.dimensions import reduced_echelon_form
from lodekit.system.signals import ExponentialPolynomial, ExponentialTerm, combine_signals
from lodekit.system.state_space import eliminate_channels

if TYPE_CHECKING:
    from lodekit.system.system import System


_JetColumn = tuple[int, int, int]
_JetRow = dict[_JetColumn, list[Element]]


@dataclass(frozen=True)
class IdentifiabilityProblem:
    """A system, its measured observables, and its unknown parameters.

    observables: A row for each measured observable: the operator on the channels.
    known_signals: The known functions of time that are added to the operators.
    unknown_parameters: Parameters that must be identified from data, in order. All others are known.
    """

    system: System
    observables: OperatorMatrix
    known_signals: Sequence[ExponentialPolynomial]
    unknown_parameters: tuple[str, ...]

    @cached_property
    def channel_indices(self) -> tuple[int | None, ...]:
        """The index of the channel of each observable; None if the observable is not a channel."""
        indices: list[int | None] = []
        for row, signal in zip(self.observables.entries(), self.known_signals, strict=True):
            used = [j for j, values in enumerate(row) if any(values)]
            alone = len(used) == 1 and [value.as_fraction() for value in row[used[0]]] == [1] and not signal
            indices.append(used[0] if alone else None)
        return tuple(indices)

    @cached_property
    def measured_channels(self) -> frozenset[int]:
        """The indices of the measured channels, and of their delayed ones."""
        names = self.system.channels
        measured = {names[j] for j in self.channel_indices if j is not None}
        return frozenset(j for j, name in enumerate(names) if name in measured or undelayed_name(name) in measured)

    @cached_property
    def max_relation_order(self) -> int:
        """A bound on the order of input-output relations.

        Elimination multiplies at most by determinants, whose order is bounded by the sum of all orders.
        """
        return sum([*_row_orders(self.system.operator), *_row_orders(self.observables)])

    @property
    def unmeasured_channels(self) -> tuple[str, ...]:
        """The channels that are not measured."""
        return tuple(name for j, name in enumerate(self.system.channels) if j not in self.measured_channels)


def find_unidentifiable_directions(problem: IdentifiabilityProblem) -> list[dict[str, Fraction | None]] | None:
    """Return directions in which parameters can change without changing any measurement; None if too large."""
    if not problem.unknown_parameters:
        return []
    operator = problem.system.operator
    highest = 2 * problem.max_relation_order + 1 + max(_row_orders(operator), default=0)
    if (operator.width + len(problem.observables.rows)) * (highest + 1) > 1500:  # larger matrices take too long
        return None
    found: list[tuple[int, list[list[int]]]] = []
    for field, points in islice(sample_points(problem.system.operator.ring, seed=7), 2):
        found.append((field.prime, _find_null_directions(problem, field, points)))
        if not found[0][1]:
            return []
    (prime, first), (other_prime, second) = found
    if len(first) != len(second):
        # One of the points is a special one, which is too rare to try a third.
        return None
    directions = []
    for one, two in zip(first, second, strict=True):
        direction: dict[str, Fraction | None] = {}
        for name, a, b in zip(problem.unknown_parameters, one, two, strict=True):
            if a or b:
                value = _reconstruct_fraction(a, prime)
                direction[name] = value if value == _reconstruct_fraction(b, other_prime) else None
        directions.append(direction)
    return directions


def _reconstruct_fraction(value: int, prime: int, largest: int = 12) -> Fraction | None:
    """Return the small fraction that equals a number modulo a prime (rational reconstruction), or None."""
    for bottom in range(1, largest + 1):
        top = (value * bottom + prime // 2) % prime - prime // 2
        if abs(top) <= largest:
            return Fraction(top, bottom)
    return None


def _find_null_directions(
    problem: IdentifiabilityProblem, field: FiniteField, points: Sequence[Element]
) -> list[list[int]]:
    """Return directions of the unknown parameters that change no relation, in echelon form, as numbers modulo p.

    The unknowns of the prolonged system are derivatives of channels (to be eliminated), then derivatives of
    observables, highest first, then known functions of time. So rows of the echelon form that start with an
    observable are relations between measured quantities only, of lowest order.
    """
    ring, point, prime = problem.system.operator.ring, list(points), field.prime
    places = {name: len(ring.constants) + k for k, name in enumerate(ring.parameters)}
    for name, parameter in problem.system.parameters.items():
        if parameter.fixed is not None and name not in problem.unknown_parameters:
            fixed = Fraction(parameter.fixed)
            point[places[name]] = field.integer(fixed.numerator) / field.integer(fixed.denominator)

    def evaluate(value: Scalar) -> list[Element]:
        """Return a coefficient at the point, and its derivatives in the unknown parameters."""
        parts = value.numerator, value.denominator
        a, b = (ring.map_to_finite_field(part, field, point) for part in parts)
        found = [a / b]
        for name in problem.unknown_parameters:
            slopes = (part.derivative(places[name]) for part in parts)
            da, db = (ring.map_to_finite_field(slope, field, point) for slope in slopes)
            found.append((da * b - a * db) / (b * b) if da or db else field.zero)
        return found

    rows, time_functions = _prolong(problem, evaluate)
    columns = sorted({column for row in rows for column in row})
    index = {column: k for k, column in enumerate(columns)}
    matrix = _build_matrix(rows, index, 0, prime)
    pivots, chosen = _pivot_columns(*matrix.rref()), _pivot_columns(*matrix.transpose().rref())
    others = sorted(set(range(len(columns))) - set(pivots))
    if not others:
        return _left_null_space_modulo([[] for _ in problem.unknown_parameters], prime)
    table = matrix.tolist()
    square = _take_columns([table[r] for r in chosen], pivots, prime)
    values = square.solve(_take_columns([table[r] for r in chosen], others, prime))
    # Relations between measured quantities: rows that start with an observable. Relations of high order are omitted, as
    # further derivatives could simplify them.
    shown = [r for r, k in enumerate(pivots) if columns[k][0] == 1 and -columns[k][1] <= problem.max_relation_order]
    signals = [(i, columns[k][2]) for i, k in enumerate(others) if columns[k][0] == 2]
    seen = {place for i, place in signals if any(int(values[r, i]) for r in shown)}
    visible = [wave for wave, place in time_functions.items() if place in seen]
    scalars = [value for wave in visible for value in (wave.rate, wave.frequency)]
    gradients = [evaluate(value) for value in (*scalars, *(name.time for name in problem.system.delayed_channels))]
    inverse = square.inv().tolist()
    weights = _take_columns([inverse[r] for r in shown], range(len(chosen)), prime)
    slopes: list[list[int]] = []
    for number in range(1, len(problem.unknown_parameters) + 1):
        table = _build_matrix([rows[r] for r in chosen], index, number, prime).tolist()
        change = weights * (_take_columns(table, others, prime) - _take_columns(table, pivots, prime) * values)
        slopes.append([int(value) for value in change.entries()] + [int(gradient[number]) for gradient in gradients])
    return _left_null_space_modulo(slopes, prime)


def _prolong(
    problem: IdentifiabilityProblem, evaluate: Callable[[Scalar], list[Element]]
) -> tuple[list[_JetRow], dict[ExponentialTerm, int]]:
    """Return the equations and observables with their derivatives as rows, and indices of known functions of time.

    Columns are (kind, minus the order, index); each entry includes its derivatives in the parameters.
    """
    system, ring = problem.system, problem.system.operator.ring
    time_functions: dict[ExponentialTerm, int] = {}
    rows: list[_JetRow] = []
    for kind, operator, signals in (
        (0, system.operator, [signal.scale(ring.rational(-1)) for signal in system.forcing]),
        (1, problem.observables, problem.known_signals),
    ):
        for i, signal in enumerate(signals):
            if kind and problem.channel_indices[i] is not None:
                continue
            coefficients = [
                (order, j, evaluate(value))
                for j in range(operator.width)
                for order, value in enumerate(operator.coefficients(i, j))
                if value
            ]
            derivative = signal
            for k in range(2 * problem.max_relation_order + 1):
                row = {(int(j in problem.measured_channels), -(n + k), j): parts for n, j, parts in coefficients}
                for wave, value in derivative.terms.items():
                    row[2, 0, time_functions.setdefault(wave, len(time_functions))] = evaluate(value)
                if kind:
                    row[1, -k, operator.width + i] = evaluate(ring.rational(-1))
                rows.append(row)
                derivative = derivative.derivative()
    return rows, time_functions


def _build_matrix(rows: Sequence[_JetRow], index: Mapping[_JetColumn, int], number: int, prime: int) -> nmod_mat:
    """Return the values of rows as a matrix, or their derivatives in the parameter with a number counted from one."""
    matrix = nmod_mat(len(rows), len(index), prime)
    for r, row in enumerate(rows):
        for column, parts in row.items():
            matrix[r, index[column]] = parts[number]
    return matrix


def _row_orders(operator: OperatorMatrix) -> list[int]:
    return [max((len(entry) - 1 for entry in row), default=0) for row in operator.rows]


def _take_columns(rows: Sequence[Sequence[Element]], columns: Sequence[int], prime: int) -> nmod_mat:
    return nmod_mat(len(rows), len(columns), [int(row[k]) for row in rows for k in columns], prime)


def _pivot_columns(echelon: nmod_mat, rank: int) -> list[int]:
    """Return the column of the first nonzero entry of each row of an echelon form."""
    return [next(k for k, value in enumerate(row) if int(value)) for row in echelon.tolist()[: int(rank)]]


def _left_null_space_modulo(jacobian: Sequence[Sequence[int]], prime: int) -> list[list[int]]:
    """Return the directions with ``sum_i direction_i slopes_i = 0``, in echelon form."""
    count, length = len(jacobian), max(1, len(jacobian[0]))
    entries = [jacobian[i][k] if jacobian[i] else 0 for k in range(length) for i in range(count)]
    space, nullity = nmod_mat(length, count, entries, prime).nullspace()
    if not nullity:
        return []
    basis = nmod_mat(int(nullity), count, [int(space[i, k]) for k in range(int(nullity)) for i in range(count)], prime)
    echelon, _ = basis.rref()
    return [[int(value) for value in row] for row in echelon.tolist()]


#: The exponents of one term: of symbols by name, of a channel, and of the scale of its equation.
_Exponents = dict[str, int]


def _monomial_exponents(ring: ScalarRing, values: Sequence[tuple[Scalar, _Exponents]]) -> Iterator[_Exponents]:
    """Yield the exponents of all monomials of coefficients, cleared of fractions, plus those given with each."""
    bottom = ring.common_multiple(value.denominator for value, _ in values if value)
    for value, beside in values:
        whole = Scalar(ring, value.numerator * ring.divide(bottom, value.denominator)).numerator if value else ring.zero
        for exponents in ring.terms(whole):
            powers = zip(ring.parameters, exponents[len(ring.constants) :], strict=True)
            yield {**beside, **{name: beside.get(name, 0) + power for name, power in powers if power}}


def _exponent_rows(problem: IdentifiabilityProblem) -> tuple[list[_Exponents], list[_Exponents]]:
    """Return the terms of all equations and observables, and those of rates, frequencies and delays.

    The former must scale like their equation, the latter must not change their scale.
    """
    system, ring = problem.system, problem.system.operator.ring
    lines: list[_Exponents] = []
    inside: list[_Exponents] = []
    rows = [(system.operator, system.forcing, True), (problem.observables, problem.known_signals, False)]
    for operator, signals, free in rows:
        for i, signal in enumerate(signals):
            if not free and problem.channel_indices[i] is not None:
                continue
            columns = enumerate(map(undelayed_name, system.channels))
            values = [(value, {name: 1}) for j, name in columns for value in operator.coefficients(i, j)]
            for wave, value in signal.terms.items():
                # A rate may not change. A frequency may only change its sign, which also changes the sign of the sine,
                # like an additional factor.
                inside += _monomial_exponents(ring, [(wave.rate, {})])
                mark = f"frequency {wave.frequency}"
                if wave.frequency:
                    inside += [{**term, mark: -1} for term in _monomial_exponents(ring, [(wave.frequency, {})])]
                values.append((value, {mark: 1} if wave.frequency and wave.sine else {}))
            # The scale of an equation is arbitrary; the scale of a measured observable is one.
            scale = {f"equation {i}": -1} if free else {}
            lines += [{**term, **scale} for term in _monomial_exponents(ring, values)]
    # Like a rate, a delay may not change.
    inside += _monomial_exponents(ring, [(name.time, {}) for name in system.delayed_channels])
    return lines, inside


def find_scale_symmetries(problem: IdentifiabilityProblem) -> list[dict[str, Fraction]]:
    """Return scalings of unknown parameters that do not change the measurements, as powers of one number."""
    lines, inside = _exponent_rows(problem)
    # Frequencies and rates keep their magnitude, so the marks of frequencies are ignored here.
    lines = [{n: p for n, p in line.items() if not n.startswith("frequency ")} for line in (*lines, *inside)]
    equations = sorted({name for line in lines for name in line if name.startswith("equation ")})
    names = [*equations, *problem.unmeasured_channels, *problem.unknown_parameters]
    unknown, space = problem.unknown_parameters, _rational_null_space(names, lines)
    ways = ({name: power for name, power in way.items() if name in unknown} for way in space)
    return [way for way in ways if way]


def _rational_null_space(names: Sequence[str], lines: Sequence[Mapping[str, int]]) -> list[dict[str, Fraction]]:
    """Return a basis of the exponents that satisfy all lines; names that are not listed have none."""
    exact = [{name: Fraction(line.get(name, 0)) for name in names} for line in lines]
    rows = {next(iter(row)): row for row in reduced_echelon_form(names, exact)}
    return [
        {free: Fraction(1), **{pivot: -row[free] for pivot, row in rows.items() if free in row}}
        for free in names
        if free not in rows
    ]


def find_sign_symmetries(problem: IdentifiabilityProblem, flippable: Collection[str]) -> list[frozenset[str]]:
    """Return sets of parameters whose signs can change together without changing the measurements.

    They generate all such changes. Unmeasured channels may change their signs as well.
    """
    lines, inside = _exponent_rows(problem)
    lines = [*lines, *inside]
    marks = sorted({name for line in lines for name in line if name.startswith(("equation ", "frequency "))})
    flipped = [name for name in problem.unknown_parameters if name in flippable]
    names = [*marks, *problem.unmeasured_channels, *flipped]
    if not flipped:
        return []
    entries = [line.get(name, 0) % 2 for line in lines for name in names]
    space, nullity = nmod_mat(max(len(lines), 1), len(names), entries or [0] * len(names), 2).nullspace()
    if not nullity:
        return []
    signs = space.tolist()[len(names) - len(flipped) :]
    echelon, _ = _take_columns(signs, range(int(nullity)), 2).transpose().rref()
    groups = (frozenset(n for n, value in zip(flipped, row, strict=True) if int(value)) for row in echelon.tolist())
    return [group for group in groups if group]


def find_identifiable_combinations(
    problem: IdentifiabilityProblem, directions: Sequence[Mapping[str, Fraction | None]]
) -> list[str] | None:
    """Return identifiable combinations of unidentifiable parameters, such as ``k/m``; None if they are not simple."""
    alone = {name for way in directions if len(way) == 1 for name in way}
    rest = [way for way in directions if len(way) > 1]
    names = [name for name in problem.unknown_parameters if any(name in way for way in rest)]
    if not rest:
        return []
    if all(value is not None for way in rest for value in way.values()):
        return format_invariants(names, rest, are_powers=False)
    scalings = [{n: p for n, p in way.items() if n not in alone} for way in find_scale_symmetries(problem)]
    independent: list[dict[str, Fraction]] = []
    for way in scalings:
        if way and len(reduced_echelon_form(names, [*independent, way])) > len(independent):
            independent.append(way)
    return format_invariants(names, independent, are_powers=True) if len(independent) == len(rest) else None


def format_invariants(
    names: Sequence[str], directions: Sequence[Mapping[str, Fraction | None]], *, are_powers: bool
) -> list[str]:
    """Return the invariants along directions of parameters, as sums, or as products if directions are exponents."""
    invariants = _clear_denominators(_rational_null_space(names, _clear_denominators(directions)))
    if not are_powers:
        return [_format_parameter_sum(way, names) for way in invariants]
    # The first factor in the numerator, in the order of the names, comes first.
    ordered = [sorted(way.items(), key=lambda item: (item[1] < 0, names.index(item[0]))) for way in invariants]
    return [format_powers({name: Fraction(power) for name, power in way}) for way in ordered]


def _clear_denominators(directions: Sequence[Mapping[str, Fraction | None]]) -> list[dict[str, int]]:
    """Return integer multiples of the directions."""
    whole = []
    for way in directions:
        values = {name: value or Fraction(0) for name, value in way.items()}
        bottom = math.prod(value.denominator for value in values.values())
        whole.append({name: int(value * bottom) for name, value in values.items()})
    return whole


def _format_parameter_sum(weights: Mapping[str, int], names: Sequence[str]) -> str:
    """Return a sum of parameters as text, in the order of the names, with a positive first term."""
    ordered, text = sorted(weights.items(), key=lambda item: names.index(item[0])), ""
    for name, value in ((name, value if ordered[0][1] > 0 else -value) for name, value in ordered):
        size = name if abs(value) == 1 else f"{abs(value)}*{name}"
        text += (" - " if value < 0 else " + ") + size if text else size
    return text


def input_output_coefficients(problem: IdentifiabilityProblem) -> list[Scalar]:
    """Return the parameter functions that determine the behaviour of the measured quantities.

    These are the coefficients of the relations and of known functions of time in them, the rates and frequencies of
    these functions, and the delays.
    """
    system, ring = problem.system, problem.system.operator.ring
    # The equations, with a column for each observable that is not a channel.
    others, own = [i for i, place in enumerate(problem.channel_indices) if place is None], problem.observables
    width, zero = system.operator.width, list[Scalar]()
    entries = [[*row, *[zero] * len(others)] for row in system.operator.entries()]
    for k, i in enumerate(others):
        shown = [[ring.rational(-1)] if k == n else zero for n in range(len(others))]
        entries.append([*(own.coefficients(i, j) for j in range(width)), *shown])
    sides = [*system.forcing, *(problem.known_signals[i].scale(ring.rational(-1)) for i in others)]
    hidden = set(range(width)) - problem.measured_channels
    joined = OperatorMatrix.from_scalars(ring, entries, width + len(others))
    count = len(joined.rows)
    # The combination that gives each relation is carried along, for the right-hand sides.
    rows: list[Vector] = [
        [*row, *([bottom] if i == k else [] for k in range(count))]
        for i, (row, bottom) in enumerate(zip(joined.rows, joined.denominators, strict=True))
    ]
    shifts = [ELIMINATION_SHIFT if j in hidden else 0 for j in range(joined.width)]
    basis, _ = popov_basis(ring, rows, [*shifts, *[None] * count])
    coefficients: list[Scalar] = []
    for leading, row in ((row[pivot][-1], row) for pivot, row in basis.items() if pivot not in hidden):
        monic = [[Scalar(ring, value, leading) for value in entry] for entry in row]
        coefficients += [value for entry in monic[: joined.width] for value in entry]
        for wave, value in combine_signals(ring, monic[joined.width :], sides).terms.items():
            coefficients += [value, wave.rate, wave.frequency]
    coefficients += [name.time for name in system.delayed_channels]
    return [value for value in dict.fromkeys(coefficients) if value.as_fraction() is None]


def find_implied_equations(
    system: System, channels: Collection[str]
) -> tuple[OperatorMatrix, list[ExponentialPolynomial]]:
    """Return both sides of the implied equations between some channels; the columns of other channels are zero.

    The delayed channels of a remaining channel remain as well.

    Examples
    --------
    >>> import lodekit as lk
    >>> operator, known = find_implied_equations(lk.System("x' = v; v' = -k*x", parameters=["k"]), ["x"])
    >>> [[str(value) for value in operator.coefficients(0, 0)], operator.coefficients(0, 1)]
    [['k', '0', '1'], []]
    """
    hidden = [j for j, name in enumerate(system.channels) if undelayed_name(name) not in channels]
    return eliminate_channels(system.operator, system.forcing, hidden)
