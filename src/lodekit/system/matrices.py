"""Other ways in: operator matrices and state spaces, from SymPy, NumPy or plain lists, as equations.

Floats are read by their shortest decimal form: 0.1 is 1/10, as its writer meant it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import TYPE_CHECKING, Any

from lodekit.errors import EquationError, Place
from lodekit.system.grammar import MAX_ORDER, parse_expression
from lodekit.system.tree import Call, Derivative, Equation, Expression, Name, Number, Power, Product, Sum, walk

if TYPE_CHECKING:
    import sympy

__all__ = ["equations_from_operator_matrix", "equations_from_state_space"]

FLOAT_NOTE = "floats were read by their shortest decimal form: 0.1 is exactly 1/10"
_NOWHERE = Place("", 0, 0)


class EntryReader:
    """Reads matrix entries as expressions, and remembers whether any was a float."""

    def __init__(self) -> None:
        self.saw_float = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What users should know about how their numbers were read."""
        return (FLOAT_NOTE,) if self.saw_float else ()

    def read(self, value: Any) -> Expression:
        """Return a number, a text or a SymPy expression as an expression tree."""
        if isinstance(value, str):
            return parse_expression(value)
        if isinstance(value, bool):
            raise EquationError(f"expected a number or an expression as matrix entry, got {value!r}")
        if isinstance(value, Integral | Rational):
            return _number(Fraction(int(value.numerator), int(value.denominator)))
        if isinstance(value, Decimal):
            return self._float(value)
        if isinstance(value, Real) or type(value).__module__ == "numpy":
            return self._float(value)
        if hasattr(value, "free_symbols"):
            return self._sympy(value)
        raise EquationError(f"expected a number or an expression as matrix entry, got {type(value).__name__}")

    def _float(self, value: Any) -> Expression:
        if not isinstance(value, Real | Decimal) or not math.isfinite(value):
            raise EquationError(f"expected finite real numbers in the matrix, got {value}")
        self.saw_float = self.saw_float or not isinstance(value, Decimal)
        # str() of a NumPy scalar is the shortest form for its own precision, float32 included.
        return _number(Fraction(str(value)))

    def _sympy(self, value: Any) -> Expression:
        import sympy

        match value:
            case sympy.Rational():
                return _number(Fraction(int(value.p), int(value.q)))
            case sympy.Float():
                return self._float(float(value))
            case sympy.Symbol():
                return Name(_NOWHERE, value.name)
            case sympy.Add():
                return Sum(_NOWHERE, tuple(("+", self._sympy(term)) for term in value.args))
            case sympy.Mul():
                return Product(_NOWHERE, tuple(("*", self._sympy(factor)) for factor in value.args))
        if value is sympy.pi:
            return Name(_NOWHERE, "pi")
        if value is sympy.E:
            return Call(_NOWHERE, "exp", (_number(Fraction(1)),))
        if isinstance(value, sympy.Pow) and value.exp.is_Rational and value.exp.q <= 2:
            base = self._sympy(value.base)
            if value.exp.q == 2:
                base = Call(_NOWHERE, "sqrt", (base,))
            return Power(_NOWHERE, base, _number(Fraction(int(value.exp.p))), grouped=False)
        if isinstance(value, sympy.exp | sympy.sin | sympy.cos):
            return Call(_NOWHERE, type(value).__name__, (self._sympy(value.args[0]),))
        raise EquationError(
            f"cannot read {value} as a coefficient; expected rational expressions in the parameters, and pi, sqrt, "
            "exp, sin or cos of numbers"
        )


def equations_from_operator_matrix(
    matrix: Any, channels: Sequence[str], parameters: Sequence[str], symbol: Any = None
) -> tuple[list[Equation], tuple[str, ...]]:
    """Return one equation for each row of a SymPy matrix in the operator symbol, and notes."""
    import sympy

    try:
        operator = sympy.Matrix(matrix)
    except (TypeError, ValueError) as problem:
        raise EquationError(f"expected a SymPy matrix of operators: {problem}") from None
    if operator.cols != len(channels):
        raise EquationError(f"expected one channel for each of the {operator.cols} columns, got {len(channels)}")
    if operator.rows == 0:
        raise EquationError("expected at least one row in the operator matrix")
    d = _operator_symbol(operator, parameters, symbol)
    reader, equations = EntryReader(), []
    for i in range(operator.rows):
        terms: list[tuple[str, Expression]] = []
        for j, channel in enumerate(channels):
            for order, coefficient in _powers(operator[i, j], d):
                terms.append(("+", _term(reader.read(coefficient), channel, order)))
        equations.append(_equation(terms))
    return equations, reader.notes


def _operator_symbol(operator: sympy.Matrix, parameters: Sequence[str], symbol: Any) -> sympy.Symbol:
    import sympy

    if symbol is not None:
        return symbol if isinstance(symbol, sympy.Symbol) else sympy.Symbol(str(symbol))
    unknown = sorted((s for s in operator.free_symbols if s.name not in parameters), key=lambda s: str(s.name))
    if len(unknown) > 1:
        names = ", ".join(str(s) for s in unknown)
        raise EquationError(
            f"expected one symbol for d/dt beside the parameters, got {names}; declare the others as parameters, "
            "or name it with symbol="
        )
    return unknown[0] if unknown else sympy.Dummy("d")


def _powers(entry: sympy.Expr, d: sympy.Symbol) -> list[tuple[int, sympy.Expr]]:
    import sympy

    try:
        polynomial = sympy.Poly(sympy.expand(entry), d)
    except sympy.PolynomialError:
        polynomial = None
    if polynomial is None or any(c.has(d) for c in polynomial.all_coeffs()):
        raise EquationError(f"expected polynomials in {d} as entries of the operator matrix, got {entry}")
    if polynomial.degree() > MAX_ORDER:
        raise EquationError(f"expected derivatives of order at most {MAX_ORDER}, got {polynomial.degree()}")
    return [(powers[0], c) for powers, c in polynomial.terms() if c != 0]


def equations_from_state_space(
    blocks: dict[str, Any], states: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[list[Equation], tuple[str, ...]]:
    """Return ``x' = A x + B u`` and ``y = C x + D u`` as equations, and notes."""
    reader = EntryReader()
    equations = []
    for targets, order, pairs in (
        (states, 1, (("A", states), ("B", inputs))),
        (outputs, 0, (("C", states), ("D", inputs))),
    ):
        for i, target in enumerate(targets):
            terms: list[tuple[str, Expression]] = []
            for block, sources in pairs:
                for j, source in enumerate(sources):
                    entry = reader.read(blocks[block][i][j])
                    if not (isinstance(entry, Number) and entry.value == 0):
                        terms.append(("+", _term(entry, source, 0)))
            equations.append(_equation(terms, _derivative(target, order)))
    return equations, reader.notes


def to_rows(matrix: Any, name: str, shape: tuple[int | None, int | None]) -> list[list[Any]]:
    """Return a matrix given by NumPy, SymPy or nested lists as lists of entries, its shape checked."""
    if hasattr(matrix, "shape") and len(matrix.shape) == 2:
        rows = [[matrix[i, j] for j in range(matrix.shape[1])] for i in range(matrix.shape[0])]
    else:
        try:
            rows = [list(row) for row in matrix]
        except TypeError:
            raise EquationError(f"expected {name} as a matrix (rows of entries), got {type(matrix).__name__}") from None
    widths = {len(row) for row in rows} or {0}
    if len(widths) > 1:
        raise EquationError(f"expected rows of equal length in {name}, got lengths {sorted(widths)}")
    expected = tuple("any" if size is None else size for size in shape)
    actual = (len(rows), widths.pop())
    if any(size is not None and size != got for size, got in zip(shape, actual, strict=True)):
        raise EquationError(f"expected {name} of shape {expected[0]} x {expected[1]}, got {actual[0]} x {actual[1]}")
    return rows


def _number(value: Fraction) -> Number:
    return Number(Place(str(value), 0, len(str(value))), value)


def _derivative(channel: str, order: int) -> Expression:
    name = Name(Place(channel, 0, len(channel)), channel)
    return Derivative(name.place, name, order) if order else name


def _term(coefficient: Expression, channel: str, order: int) -> Expression:
    for node in walk(coefficient):
        if isinstance(node, Name) and node.name == channel:
            raise EquationError(
                f"channel {channel!r} stands in a coefficient of the matrix; it must be a parameter there"
            )
    return Product(_NOWHERE, (("*", coefficient), ("*", _derivative(channel, order))))


def _equation(terms: Sequence[tuple[str, Expression]], left: Expression | None = None) -> Equation:
    total: Expression = Sum(_NOWHERE, tuple(terms)) if terms else _number(Fraction(0))
    if left is None:
        return Equation(total, _number(Fraction(0)), "")
    return Equation(left, total, "")
