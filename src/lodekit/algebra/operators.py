"""Matrices over Q(parameters)[d], d = d/dt: the operator matrix of a system and its transformations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from lodekit.algebra.polynomials import add, clear_denominators, format_polynomial, multiply, scale
from lodekit.algebra.reduction import Vector
from lodekit.algebra.scalars import Element, Scalar, ScalarRing

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class OperatorMatrix:
    """An m x n matrix over K[d], stored as polynomials without fractions and one denominator for each row.

    ring: The ring of the coefficients.
    rows: Numerators, m lists of n polynomials.
    denominators: One for each row, nonzero.
    width: n, needed if there are no rows.
    variable: The name of d in texts and in SymPy.
    """

    ring: ScalarRing
    rows: list[Vector]
    denominators: list[Element]
    width: int
    variable: str = "d"

    @classmethod
    def from_vectors(
        cls,
        ring: ScalarRing,
        rows: Sequence[Vector],
        width: int,
        variable: str = "d",
        denominators: Sequence[Element] = (),
    ) -> OperatorMatrix:
        """Return the matrix with these rows, each in lowest terms with its denominator."""
        below = list(denominators) or [ring.one] * len(rows)
        reduced = [_cancel_row_content(ring, row, bottom) for row, bottom in zip(rows, below, strict=True)]
        return cls(ring, [row for row, _ in reduced], [bottom for _, bottom in reduced], width, variable)

    @classmethod
    def from_scalars(
        cls, ring: ScalarRing, entries: Sequence[Sequence[Sequence[Scalar]]], width: int, variable: str = "d"
    ) -> OperatorMatrix:
        """Return the matrix whose entries are given as field elements."""
        cleared = [clear_denominators(ring, row) for row in entries]
        return cls.from_vectors(ring, [row for _, row in cleared], width, variable, [below for below, _ in cleared])

    @classmethod
    def identity(cls, ring: ScalarRing, size: int, variable: str = "d") -> OperatorMatrix:
        """Return the identity matrix of this `size` over `ring`; d is called `variable`."""
        rows = [[[ring.one] if i == j else [] for j in range(size)] for i in range(size)]
        return cls(ring, rows, [ring.one] * size, size, variable)

    @classmethod
    def diagonal(cls, ring: ScalarRing, values: Sequence[Scalar], variable: str = "d") -> OperatorMatrix:
        """Return the square matrix over `ring` with field elements, the `values`, on its diagonal; d is `variable`."""
        size = len(values)
        rows: list[Vector] = [[[v.numerator] if i == j else [] for j in range(size)] for i, v in enumerate(values)]
        return cls(ring, rows, [value.denominator for value in values], size, variable)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self.rows), self.width

    def columns(self) -> list[Vector]:
        """Return the columns of the numerators, which describe the matrix only if all denominators are one."""
        return [[row[j] for row in self.rows] for j in range(self.width)]

    def take_rows(self, indices: Sequence[int]) -> OperatorMatrix:
        """Return the matrix of the chosen rows."""
        return replace(self, rows=[self.rows[i] for i in indices], denominators=[self.denominators[i] for i in indices])

    def take_columns(self, indices: Sequence[int]) -> OperatorMatrix:
        """Return the matrix of the chosen columns."""
        rows = [[row[j] for j in indices] for row in self.rows]
        return OperatorMatrix.from_vectors(self.ring, rows, len(indices), self.variable, self.denominators)

    def vstack(self, other: OperatorMatrix) -> OperatorMatrix:
        """Return this matrix on top of another."""
        return replace(self, rows=self.rows + other.rows, denominators=self.denominators + other.denominators)

    def hstack(self, other: OperatorMatrix) -> OperatorMatrix:
        """Return this matrix to the left of another."""
        entries = [first + second for first, second in zip(self.entries(), other.entries(), strict=True)]
        return OperatorMatrix.from_scalars(self.ring, entries, self.width + other.width, self.variable)

    def transpose(self) -> OperatorMatrix:
        """Return the transposed matrix."""
        columns = [[self.coefficients(i, j) for i in range(len(self.rows))] for j in range(self.width)]
        return OperatorMatrix.from_scalars(self.ring, columns, len(self.rows), self.variable)

    def entries(self) -> list[list[list[Scalar]]]:
        """Return all entries as coefficient lists of field elements."""
        return [[self.coefficients(i, j) for j in range(self.width)] for i in range(len(self.rows))]

    def weights_of_rows(self, weights: Vector) -> list[list[Scalar]]:
        """Return operators on the rows, given operators on the rows without their denominators."""
        pairs = zip(weights, self.denominators, strict=True)
        return [[Scalar(self.ring, c * bottom) for c in weight] for weight, bottom in pairs]

    def __matmul__(self, other: OperatorMatrix) -> OperatorMatrix:
        ring = self.ring
        common = ring.common_multiple(other.denominators)
        right = [
            [scale(ring, entry, ring.divide(common, bottom)) for entry in row]
            for row, bottom in zip(other.rows, other.denominators, strict=True)
        ]
        rows: list[Vector] = [[[] for _ in range(other.width)] for _ in self.rows]
        for row, result in zip(self.rows, rows, strict=True):
            for factor, right_row in zip(row, right, strict=True):
                for j, entry in enumerate(right_row) if factor else ():
                    if entry:
                        result[j] = add(result[j], multiply(ring, factor, entry))
        denominators = [ring.reduce(bottom * common) for bottom in self.denominators]
        return OperatorMatrix.from_vectors(ring, rows, other.width, self.variable, denominators)

    def __add__(self, other: OperatorMatrix) -> OperatorMatrix:
        ring, rows, denominators = self.ring, [], []
        pairs = (self.rows, self.denominators, other.rows, other.denominators)
        for first, below, second, under in zip(*pairs, strict=True):
            rows.append([add(scale(ring, p, under), scale(ring, q, below)) for p, q in zip(first, second, strict=True)])
            denominators.append(ring.reduce(below * under))
        return OperatorMatrix.from_vectors(ring, rows, self.width, self.variable, denominators)

    def __neg__(self) -> OperatorMatrix:
        return replace(self, rows=[[[-value for value in entry] for entry in row] for row in self.rows])

    def __sub__(self, other: OperatorMatrix) -> OperatorMatrix:
        return self + (-other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OperatorMatrix):
            return NotImplemented
        return self.shape == other.shape and not (self - other).is_nonzero()

    __hash__ = None  # type: ignore[assignment]

    def is_nonzero(self) -> bool:
        """Return whether any entry is not zero."""
        return any(entry for row in self.rows for entry in row)

    def coefficients(self, i: int, j: int) -> list[Scalar]:
        """Return the coefficients of the entry in row `i` and column `j` as field elements, lowest power of d first."""
        return [Scalar(self.ring, value, self.denominators[i]) for value in self.rows[i][j]]

    def terms(self) -> list[tuple[int, int, int, Scalar]]:
        """Return row, column, power of d and coefficient of all nonzero terms, in this order."""
        places = product(range(len(self.rows)), range(self.width))
        return [(i, j, k, value) for i, j in places for k, value in enumerate(self.coefficients(i, j)) if value]

    def degree(self, column: int) -> int:
        """Return the degree in d of a column; -1 for a column of zeros."""
        return max((len(row[column]) - 1 for row in self.rows), default=-1)

    def format_entry(self, i: int, j: int) -> str:
        """Return the entry in row `i` and column `j` as text."""
        return format_polynomial(self.coefficients(i, j), self.variable)

    def to_lists(self) -> list[list[str]]:
        """Return all entries as text."""
        return [[self.format_entry(i, j) for j in range(self.width)] for i in range(len(self.rows))]

    def __str__(self) -> str:
        cells = self.to_lists()
        if not cells or not self.width:
            return f"[{len(cells)} x {self.width} matrix]"
        widths = [max(len(row[j]) for row in cells) for j in range(self.width)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(f"[ {line} ]" for line in lines)

    @cached_property
    def sympy(self) -> sympy.ImmutableMatrix:
        """The matrix for SymPy, in the symbol named by `variable` and the parameters' names."""
        import sympy

        entries = [polynomial_to_sympy(entry, self.variable) for row in self.entries() for entry in row]
        return sympy.ImmutableMatrix(len(self.rows), self.width, entries)


def _cancel_row_content(ring: ScalarRing, row: Vector, bottom: Element) -> tuple[Vector, Element]:
    unit = ring.canonical_multiplier(bottom)
    if unit != 1:
        row = [scale(ring, entry, unit) for entry in row]
        bottom = ring.reduce(bottom * unit)
    divisor = ring.content([bottom, *(value for entry in row for value in entry)])
    if divisor != 1:
        row = [[ring.divide(value, divisor) for value in entry] for entry in row]
        bottom = ring.divide(bottom, divisor)
    return row, bottom


def sympy_symbols(ring: ScalarRing) -> list[sympy.Expr]:
    """Return the SymPy expression of each symbol of the ring: constants as numbers, parameters as symbols."""
    import sympy

    symbols: list[sympy.Expr] = []
    for constant in ring.constants:
        argument = sympy.Rational(constant.argument.numerator, constant.argument.denominator)
        argument *= sympy.pi if constant.is_multiple_of_pi else 1
        symbols.append(sympy.pi if constant.kind == "pi" else getattr(sympy, constant.kind)(argument))
    return symbols + [sympy.Symbol(name) for name in ring.parameters]


def element_to_sympy(ring: ScalarRing, element: Element, symbols: list[sympy.Expr]) -> sympy.Expr:
    """Return an `element` of `ring` as a SymPy expression in its `symbols`, the result of `sympy_symbols`."""
    import sympy

    terms = []
    for exponents, value in ring.terms(element).items():
        powers = [symbol**exponent for symbol, exponent in zip(symbols, exponents, strict=True) if exponent]
        terms.append(sympy.Mul(sympy.Integer(value), *powers))
    return sympy.Add(*terms)


def scalar_to_sympy(scalar: Scalar) -> sympy.Expr:
    """Return a field element as a SymPy expression."""
    symbols = sympy_symbols(scalar.ring)
    top, bottom = (element_to_sympy(scalar.ring, part, symbols) for part in (scalar.numerator, scalar.denominator))
    return top / bottom


def polynomial_to_sympy(coefficients: Sequence[Scalar], variable: str) -> sympy.Expr:
    """Return the polynomial with these `coefficients` as a SymPy expression in the symbol named `variable`."""
    import sympy

    d = sympy.Symbol(variable)
    return sympy.Add(*(scalar_to_sympy(value) * d**power for power, value in enumerate(coefficients) if value))
