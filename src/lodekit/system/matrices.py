"""Operator matrices and state spaces, from SymPy, NumPy or plain lists, written out as equations.

Floats are read by their shortest decimal form: 0.1 is 1/10, as its writer meant it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.errors import EquationError, Place
from lodekit.system.forms import LinearForm
from lodekit.system.grammar import MAX_DECIMAL_EXPONENT, MAX_DIGITS, MAX_ORDER, parse_expression
from lodekit.system.linear import Reader, with_constants
from lodekit.system.names import list_names
from lodekit.system.signals import Signal
from lodekit.system.tree import Call, Expression, Name, Number, Power, Product, Sum, replace_names, walk
from lodekit.system.writing import format_row

__all__ = [
    "EntryReader",
    "equations_from_operator_matrix",
    "equations_from_state_space",
    "name_blocks",
    "read_blocks",
    "to_rows",
]

FLOAT_NOTE = "floats were read by their shortest decimal form: 0.1 is exactly 1/10"
_MATRIX = "the operator matrix"
_NOWHERE = Place("", 0, 0)
_OPERATOR = "\u2202"  # no user can type it as a name


class EntryReader:
    """Reads numbers, texts and SymPy expressions as expression trees, and remembers whether any was a float."""

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
        if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
            raise EquationError(f"expected a number or an expression, got {value!r}")
        if isinstance(value, Rational):
            return _number(Fraction(int(value.numerator), int(value.denominator)))
        if isinstance(value, Real | Decimal):
            return self._float(value)
        if hasattr(value, "free_symbols"):
            return self._sympy(value)
        shown = value if type(value).__module__ == "numpy" else type(value).__name__
        raise EquationError(f"expected a finite real number or an expression, got {shown}")

    def _float(self, value: Any) -> Expression:
        if not math.isfinite(value):
            raise EquationError(f"expected a finite real number, got {value}")
        self.saw_float = self.saw_float or not isinstance(value, Decimal)
        # str() of a NumPy scalar is the shortest form for its own precision, float32 included.
        exact = Decimal(str(value))
        if abs(exact.adjusted()) > MAX_DECIMAL_EXPONENT:
            raise EquationError(
                f"expected a number with a decimal exponent of at most {MAX_DECIMAL_EXPONENT}, got {value}"
            )
        return _number(Fraction(exact))

    def _sympy(self, value: Any) -> Expression:
        import sympy

        match value:
            case sympy.Rational():
                return _number(Fraction(int(value.p), int(value.q)))
            case sympy.Float():
                return self._float(float(value))
            case sympy.Symbol():
                return Name(_NOWHERE, str(value.name))
            case sympy.Add():
                return Sum(_NOWHERE, tuple(("+", self._sympy(term)) for term in value.args))
            case sympy.Mul():
                return Product(_NOWHERE, tuple(("*", self._sympy(factor)) for factor in value.args))
            case sympy.Pow() if value.exp.is_Rational and value.exp.q <= 2:
                base = self._sympy(value.base)
                if value.exp.q == 2:
                    base = Call(_NOWHERE, "sqrt", (base,))
                return Power(_NOWHERE, base, _number(Fraction(int(value.exp.p))), grouped=False)
            case sympy.exp() | sympy.sin() | sympy.cos():
                return Call(_NOWHERE, type(value).__name__, (self._sympy(value.args[0]),))
        if value is sympy.pi:
            return Name(_NOWHERE, "pi")
        if value is sympy.E:
            return Call(_NOWHERE, "exp", (_number(Fraction(1)),))
        raise EquationError(
            f"cannot read {value} as a coefficient; expected rational expressions in the parameters, and pi, sqrt, "
            "exp, sin or cos of numbers"
        )


def equations_from_operator_matrix(
    matrix: Any, channels: Sequence[str], parameters: Sequence[str], symbol: Any = None, *, name: str = _MATRIX
) -> tuple[list[str], tuple[str, ...]]:
    """Return one equation for each row of a matrix of polynomials in the operator symbol, and notes.

    Parameters
    ----------
    matrix : matrix
        As `to_rows` takes it.
    channels, parameters : sequence of str
        Names of the columns, and of all symbols but one.
    symbol : sympy.Symbol or str, optional
        The operator symbol; by default the one that is not a parameter.
    name : str
        What the matrix is called in errors.
    """
    rows = to_rows(matrix, name, (None, None))
    if not rows:
        raise EquationError(f"expected at least one row in {name}")
    if len(rows[0]) != len(channels):
        raise EquationError(f"expected one channel for each of the {len(rows[0])} columns, got {len(channels)}")
    reader = EntryReader()
    trees = [[reader.read(entry) for entry in row] for row in rows]
    operator = _operator_name(trees, parameters, symbol)
    for tree in (tree for row in trees for tree in row):
        _check_names(tree, (*parameters, operator))
        if any(isinstance(node, Call) and operator in _names(node) for node in walk(tree)):
            raise EquationError(f"expected polynomials in {operator} as entries of {name}, got a function of it")
    renamed = {operator: Name(_NOWHERE, _OPERATOR)}
    trees = [[replace_names(tree, renamed) for tree in row] for row in trees]
    known = [parameter for parameter in parameters if parameter != operator]

    def attempt(ring: ScalarRing) -> list[str]:
        values = Reader(ring, ())
        lines = []
        for row in trees:
            entries = [_powers(ring, values.scalar(tree, "coefficients"), operator, name) for tree in row]
            form = LinearForm(dict(zip(channels, entries, strict=True)), Signal(ring))
            lines.append(format_row(form, channels))
        return lines

    return with_constants((*known, _OPERATOR), attempt)[1], reader.notes


def _names(tree: Expression) -> set[str]:
    return {node.name for node in walk(tree) if isinstance(node, Name)}


def _check_names(tree: Expression, known: Sequence[str]) -> None:
    for name in _names(tree):
        if name != "pi" and name not in known:
            raise EquationError(
                f"a matrix entry mentions {name!r}, which is not a parameter; declare it in parameters="
            )


def _operator_name(trees: Sequence[Sequence[Expression]], parameters: Sequence[str], symbol: Any) -> str:
    if symbol is not None:
        return str(getattr(symbol, "name", symbol))
    unknown = sorted(set().union(*(_names(tree) for row in trees for tree in row)) - {"pi", *parameters})
    if len(unknown) > 1:
        raise EquationError(
            f"expected one symbol for d/dt beside the parameters, got {', '.join(unknown)}; declare the others as "
            "parameters, or name it with symbol="
        )
    return unknown[0] if unknown else "d"


def _powers(ring: ScalarRing, value: Scalar, operator: str, matrix: str) -> list[Scalar]:
    """Split a field element by the powers of the operator symbol, which must not stand below."""
    index = ring.names.index(_OPERATOR)
    if any(exponents[index] for exponents in ring.terms(value.denominator)):
        raise EquationError(f"expected polynomials in {operator} as entries of {matrix}")
    split: dict[int, dict[tuple[int, ...], int]] = {}
    for exponents, coefficient in ring.terms(value.numerator).items():
        rest = (*exponents[:index], 0, *exponents[index + 1 :])
        split.setdefault(exponents[index], {})[rest] = coefficient
    order = max(split, default=-1)
    if order > MAX_ORDER:
        raise EquationError(f"expected derivatives of order at most {MAX_ORDER}, got {order}")
    return [Scalar(ring, ring.from_terms(split.get(k, {})), value.denominator) for k in range(order + 1)]


def read_blocks(A: Any, B: Any, C: Any, D: Any) -> dict[str, list[list[Any]]]:
    """Return the blocks of a state space by their letters, as rows of entries whose shapes fit together.

    Parameters
    ----------
    A, B, C, D : matrix
        As `to_rows` takes them; None for a missing one of the last three.
    """
    rows = to_rows(A, "A", (None, None))
    size = len(rows)
    blocks = {"A": to_rows(A, "A", (size, size))}
    blocks["B"] = [[] for _ in range(size)] if B is None else to_rows(B, "B", (size, None))
    width = len(blocks["B"][0]) if size else 0
    blocks["C"] = [] if C is None else to_rows(C, "C", (None, size))
    if C is None and D is not None:
        blocks["C"] = [[0] * size for _ in to_rows(D, "D", (None, width))]
    height = len(blocks["C"])
    blocks["D"] = [[0] * width] * height if D is None else to_rows(D, "D", (height, width))
    if not size:
        raise EquationError("expected at least one state, got an empty matrix A")
    return blocks


def name_blocks(
    blocks: Mapping[str, list[list[Any]]],
    states: Sequence[str] | None,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
) -> tuple[list[str], list[str], list[str]]:
    """Return the names of states, inputs and outputs, checked against the sizes of the blocks.

    Parameters
    ----------
    blocks : dict of str to rows
        As `read_blocks` returns them.
    states, inputs, outputs : sequence of str, or None
        None for x1, x2, ..., u1, ... and y1, ....
    """
    kinds = (
        (states, "state", "x", len(blocks["A"])),
        (inputs, "input", "u", len(blocks["B"][0])),
        (outputs, "output", "y", len(blocks["C"])),
    )
    names = [
        list_names(given, role) if given is not None else [f"{letter}{i + 1}" for i in range(count)]
        for given, role, letter, count in kinds
    ]
    for (_, role, _, count), given in zip(kinds, names, strict=True):
        if len(given) != count:
            raise EquationError(f"expected {count} {role} name{'s' * (count != 1)}, got {len(given)}")
    return names[0], names[1], names[2]


def equations_from_state_space(
    blocks: dict[str, Any],
    states: Sequence[str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    parameters: Sequence[str],
) -> tuple[list[str], tuple[str, ...]]:
    """Return ``x' = A x + B u`` and ``y = C x + D u`` as equations, and notes.

    Parameters
    ----------
    blocks : dict of str to rows
        A, B, C and D, as `read_blocks` returns them.
    states, inputs, outputs, parameters : sequence of str
        All names.
    """
    reader = EntryReader()
    trees = {name: [[reader.read(entry) for entry in row] for row in rows] for name, rows in blocks.items()}
    for rows in trees.values():
        for tree in (tree for row in rows for tree in row):
            _check_names(tree, parameters)
    sources, channels = [*states, *inputs], [*states, *inputs, *outputs]

    def attempt(ring: ScalarRing) -> list[str]:
        values = Reader(ring, ())
        lines = []
        for targets, left, right, derivative in ((states, "A", "B", True), (outputs, "C", "D", False)):
            for i, target in enumerate(targets):
                row = [*trees[left][i], *trees[right][i]]
                total = {
                    source: [-values.scalar(tree, f"entries of {left} and {right}")]
                    for source, tree in zip(sources, row, strict=True)
                }
                form = LinearForm(total, Signal(ring))
                one, zero = ring.rational(1), ring.rational(0)
                own = LinearForm({target: [zero, one] if derivative else [one]}, Signal(ring))
                lines.append(format_row(form + own, channels))
        return lines

    return with_constants(parameters, attempt)[1], reader.notes


def to_rows(matrix: Any, name: str, shape: tuple[int | None, int | None]) -> list[list[Any]]:
    """Return a matrix as lists of entries, its shape checked.

    Parameters
    ----------
    matrix : numpy.ndarray, sympy.Matrix, data frame or nested lists
    name : str
        What it is called in errors.
    shape : (int or None, int or None)
        What is expected; None for any size.
    """
    if hasattr(matrix, "to_numpy"):
        matrix = matrix.to_numpy()
    if hasattr(matrix, "shape"):
        if len(matrix.shape) != 2 or not all(isinstance(size, int) for size in matrix.shape):
            raise EquationError(f"expected {name} as a matrix (rows of entries), got shape {matrix.shape}")
        rows = [[matrix[i, j] for j in range(matrix.shape[1])] for i in range(matrix.shape[0])]
    else:
        if isinstance(matrix, str | bytes | dict):
            raise EquationError(f"expected {name} as a matrix (rows of entries), got {type(matrix).__name__}")
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
    # A digit takes 3.3 bits: a cheap bound before any text is made.
    if max(abs(value.numerator), value.denominator).bit_length() > 4 * MAX_DIGITS:
        raise EquationError(f"expected a number of at most {MAX_DIGITS} digits")
    text = str(value)
    return Number(Place(text, 0, len(text)), value)
