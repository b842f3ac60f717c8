"""State-space realization of equations ``P(d) g + R(d) v = 0`` in observer form, without inverting a matrix.

P is brought to its Popov form, with R carried along. A row of degree r then reads ``c_0 + c_1' + ... + c_r^(r) = 0``
where each c_k is a combination of g and v, and its states are the intermediate results of Horner's rule,

    w_1 = c_r,  w_2 = w_1' + c_(r-1),  ...,  w_r' + c_0 = 0.

The number of states is the sum of the row degrees, which includes states that v cannot influence. The coefficients of g
in the c_r are triangular, in the order of the degrees, so g follows from the w_1 and from v. If one derivative of v is
allowed, R may have degree r + 1, and ``w_1 = c_r + c_(r+1)'``.

References
----------
Kailath (1980), Linear Systems, section 6.4; lemma 6.3-11 is the test of properness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lodekit.algebra.polynomials import trim
from lodekit.algebra.reduction import Vector, popov_basis
from lodekit.algebra.scalars import Scalar, ScalarRing

ScalarMatrix = list[list[Scalar]]


@dataclass(frozen=True)
class LeftMatrixFraction:
    """``P(d) g + R(d) v = 0`` with P in Popov form.

    n_outputs, n_inputs: The numbers of functions in g and in v.
    rows: P and R side by side, by the position in g of the highest derivative in a row.
    input_constraints: R of the equations that contain only v.
    """

    ring: ScalarRing
    n_outputs: int
    n_inputs: int
    rows: dict[int, Vector]
    input_constraints: list[Vector]

    def degree(self, pivot: int) -> int:
        """Return the degree of P in the row of a pivot."""
        return len(self.rows[pivot][pivot]) - 1

    def improper_degree(self, pivot: int, input_index: int) -> int:
        """Return by how many derivatives of an input the row of a `pivot` exceeds its degree in g."""
        return len(self.rows[pivot][self.n_outputs + input_index]) - 1 - self.degree(pivot)

    def leading_input_coefficient(self, pivot: int, input_index: int) -> Scalar:
        """Return the factor of the highest derivative of an input in g at position `pivot`.

        It is exact for a row with the largest improper degree and, among these, the largest degree.
        """
        row = self.rows[pivot]
        return Scalar(self.ring, -row[self.n_outputs + input_index][-1], row[pivot][-1])

    def realize(self) -> tuple[dict[str, ScalarMatrix], list[list[list[Scalar]]]]:
        """Return F, G, H, D and D1 of ``x' = F x + G v``, ``g = H x + D v + D1 v'``, and the states as operators.

        Functions in g without a row are zero. Improper degrees must be at most one. The operators act on g and v.
        """
        pivots = list(self.rows)
        first, states = {}, 0
        for pivot in pivots:
            first[pivot], states = states, states + self.degree(pivot)
        outputs = self._output_rows(pivots, first, states)
        slopes: ScalarMatrix = []
        for pivot in pivots:
            for k in range(self.degree(pivot) - 1, -1, -1):
                slope = self._coefficient_row(pivot, k, outputs, states)
                if k:
                    position = first[pivot] + self.degree(pivot) - k
                    slope[position] = slope[position] + self.ring.rational(1)
                slopes.append(slope)
        shift = [row[states + self.n_inputs :] for row in slopes]
        F, G = self._shift_states(slopes, shift, states)
        H, D = self._shift_states(outputs, shift, states)
        operators = [row for pivot in pivots for row in self._state_operators(pivot)]
        # States without any derivative of v in their slope: x = w - shift v.
        for row, shifts in zip(operators, shift, strict=True):
            for place, value in enumerate(shifts, self.n_outputs):
                first_order = row[place][0] if row[place] else self.ring.rational(0)
                row[place] = [first_order - value, *row[place][1:]]
        D1 = [row[states + self.n_inputs :] for row in outputs]
        return {"A": F, "B": G, "C": H, "D": D, "D1": D1}, operators

    def _coefficient(self, pivot: int, column: int, power: int) -> Scalar:
        """Return a coefficient of the row of a pivot, which is made monic."""
        polynomial = self.rows[pivot][column]
        if not 0 <= power < len(polynomial):
            return self.ring.rational(0)
        return Scalar(self.ring, polynomial[power], self.rows[pivot][pivot][-1])

    def _coefficient_row(self, pivot: int, power: int, outputs: ScalarMatrix, states: int) -> list[Scalar]:
        """Return ``-c_k`` of a row in terms of states, v and v', given the rows of g that it needs."""
        total = [self.ring.rational(0)] * (states + 2 * self.n_inputs)
        for column in range(self.n_outputs):
            factor = self._coefficient(pivot, column, power)
            if factor and column in self.rows:
                total = [a - factor * b if b else a for a, b in zip(total, outputs[column], strict=True)]
        for driver in range(self.n_inputs):
            total[states + driver] = total[states + driver] - self._coefficient(pivot, self.n_outputs + driver, power)
        return total

    def _output_rows(self, pivots: Sequence[int], first: dict[int, int], states: int) -> ScalarMatrix:
        """Return g in terms of states, v and v'."""
        width = states + 2 * self.n_inputs
        outputs = [[self.ring.rational(0)] * width for _ in range(self.n_outputs)]
        # At its degree, a row contains only functions whose rows have a larger degree.
        for pivot in sorted(pivots, key=self.degree, reverse=True):
            degree = self.degree(pivot)
            total = self._coefficient_row(pivot, degree, outputs, states)
            if degree:
                total[first[pivot]] = total[first[pivot]] + self.ring.rational(1)
            for driver in range(self.n_inputs):
                place = states + self.n_inputs + driver
                total[place] = total[place] - self._coefficient(pivot, self.n_outputs + driver, degree + 1)
            outputs[pivot] = total
        return outputs

    def _shift_states(self, rows: ScalarMatrix, shift: ScalarMatrix, states: int) -> tuple[ScalarMatrix, ScalarMatrix]:
        """Return the factors of x and of v for rows in terms of w and v, where ``w = x + shift v``."""
        left = [row[:states] for row in rows]
        right = [row[states : states + self.n_inputs] for row in rows]
        for row, inputs in zip(left, right, strict=True):
            for factor, shifted in zip(row, shift, strict=True):
                for j, value in enumerate(shifted) if factor else ():
                    inputs[j] = inputs[j] + factor * value
        return left, right

    def _state_operators(self, pivot: int) -> list[list[list[Scalar]]]:
        """Return the states of a row as operators on g and v, by Horner's rule."""
        degree, width = self.degree(pivot), self.n_outputs + self.n_inputs
        states: list[list[list[Scalar]]] = []
        kept = [column for column in range(width) if column in self.rows or column >= self.n_outputs]
        current: list[list[Scalar]] = [[] for _ in range(width)]
        for column in kept:
            current[column] = [self._coefficient(pivot, column, k) for k in (degree, degree + 1)]
        for k in range(degree - 1, -1, -1):
            states.append([trim(list(entry)) for entry in current])
            for column in kept:
                current[column] = [self._coefficient(pivot, column, k), *current[column]]
        return states


def _multiply_row(row: list[Scalar], matrix: ScalarMatrix, width: int, zero: Scalar) -> list[Scalar]:
    """Return a row times a matrix with the given number of columns."""
    product = [zero] * width
    for value, line in zip(row, matrix, strict=True):
        if value:
            product = [total + value * entry if entry else total for total, entry in zip(product, line, strict=True)]
    return product


def observable_rows(
    entries: Sequence[Sequence[Scalar]], matrices: Sequence[ScalarMatrix], zero: Scalar
) -> tuple[list[Scalar], ScalarMatrix]:
    """Return an observable as a row on the states, and rows on derivatives of the inputs.

    With ``g = H x + D v + D1 v'``, each further derivative maps H to H F, and H G becomes the coefficient of v.
    """
    F, G, H, *feedthrough = matrices
    size, count = len(F), len(feedthrough[0][0]) if feedthrough[0] else 0
    X, W = [zero] * size, ScalarMatrix()
    for c, entry in enumerate(entries):
        h, V = H[c], [list(feed[c]) for feed in feedthrough]
        for number, value in enumerate(entry):
            if number:
                V, h = [_multiply_row(h, G, count, zero), *V], _multiply_row(h, F, size, zero)
            if not value:
                continue
            X = [total + value * own for total, own in zip(X, h, strict=True)]
            W += [[zero] * count for _ in range(len(V) - len(W))]
            for k, row in enumerate(V):
                W[k] = [total + value * own for total, own in zip(W[k], row, strict=True)]
    return X, W


def resolvent_fraction(
    F: Sequence[Sequence[Scalar]], row: Sequence[Scalar], column: Sequence[Scalar]
) -> tuple[list[Scalar], list[Scalar]]:
    """Return N and D, lowest powers first, with ``row (d - F)^-1 column = N(d)/D(d)``; they may share factors.

    Faddeev-LeVerrier algorithm: ``adj(d - F) = sum_k M_k d^(n-k)``, ``M_1 = 1``, ``M_(k+1) = F M_k + c_(n-k)`` and the
    coefficients ``c_(n-k) = -tr(F M_k)/k`` of D, which is monic.
    """
    size, ring = len(F), row[0].ring
    zero, one = ring.rational(0), ring.rational(1)

    def dot(first: Sequence[Scalar], second: Sequence[Scalar]) -> Scalar:
        return sum((a * b for a, b in zip(first, second, strict=True) if a and b), zero)

    top, bottom = [], [one]
    # The list contains the columns of M_k.
    current = [[one if i == j else zero for i in range(size)] for j in range(size)]
    for k in range(1, size + 1):
        top.append(dot(row, [dot(entries, column) for entries in zip(*current, strict=True)]))
        current = [[dot(line, entries) for line in F] for entries in current]
        value = sum((current[i][i] for i in range(size)), zero) * ring.rational(Fraction(-1, k))
        for i in range(size):
            current[i][i] = current[i][i] + value
        bottom.append(value)
    return top[::-1], bottom[::-1]


def reduce_to_left_fraction(ring: ScalarRing, rows: Sequence[Vector], n_outputs: int) -> LeftMatrixFraction:
    """Return the equations with P in Popov form."""
    width = len(rows[0]) if rows else n_outputs
    shifts: list[int | None] = [0] * n_outputs + [None] * (width - n_outputs)
    basis, vanished = popov_basis(ring, rows, shifts)
    constraints = [vector[n_outputs:] for vector in vanished if any(vector)]
    return LeftMatrixFraction(ring, n_outputs, width - n_outputs, basis, constraints)
