"""Operator matrices, state spaces and bases of the free functions from SymPy, NumPy, lists or text.

Floats are read by their shortest decimal form: 0.1 is 1/10. A chosen basis is checked exactly and replaces the minimal
one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import islice
from numbers import Rational, Real
from typing import Any

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.parametrization import (
    Parametrization,
    change_basis_by_rows,
    change_basis_by_transformation,
    left_inverse,
    singular_basis_factors,
    transformed_diagonal,
)
from lodekit.algebra.scalars import Element, Scalar, ScalarRing, format_sum
from lodekit.algebra.smith import diagonalize, invariant_factors_of_diagonal
from lodekit.errors import EquationError, Place, VerificationError
from lodekit.system import grammar
from lodekit.system.linear import (
    LinearFormBuilder,
    extend_ring_by_constants,
    format_equation,
    format_observable,
    list_operator_terms,
)
from lodekit.system.parameters import candidate_names, parse_names
from lodekit.system.signals import ExponentialPolynomial, LinearForm

FLOAT_NOTE = "floats were read by their shortest decimal form: 0.1 is exactly 1/10"
_MATRIX_LABEL = "the operator matrix"
_NO_PLACE = Place("", 0, 0)
_OPERATOR_SYMBOL = "\u2202"  # cannot be typed as a name


class MatrixEntryParser:
    """Converts numbers, texts and SymPy expressions to expression trees, and records whether any was a float."""

    def __init__(self) -> None:
        self.saw_float = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for users on how their numbers were read."""
        return (FLOAT_NOTE,) if self.saw_float else ()

    def parse(self, value: Any) -> grammar.Expression:
        """Return a number, a text or a SymPy expression as an expression tree."""
        if isinstance(value, str):
            return grammar.parse_expression(value)
        if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
            raise EquationError(f"expected a number or an expression, got {value!r}")
        if isinstance(value, Rational):
            return _number_node(Fraction(int(value.numerator), int(value.denominator)))
        if isinstance(value, Real | Decimal):
            return self._parse_float(value)
        if hasattr(value, "free_symbols"):
            return self._parse_sympy(value)
        shown = value if type(value).__module__ == "numpy" else type(value).__name__
        raise EquationError(f"expected a finite real number or an expression, got {shown}")

    def _parse_float(self, value: Any) -> grammar.Expression:
        if not math.isfinite(value):
            raise EquationError(f"expected a finite real number, got {value}")
        self.saw_float = self.saw_float or not isinstance(value, Decimal)
        # str() of a NumPy scalar is the shortest form for its own precision, float32 included.
        exact = Decimal(str(value))
        if abs(exact.adjusted()) > grammar.MAX_DIGITS:
            raise EquationError(f"expected a number with a decimal exponent up to {grammar.MAX_DIGITS}, got {value}")
        return _number_node(Fraction(exact))

    def _parse_sympy(self, value: Any) -> grammar.Expression:
        import sympy

        match value:
            case sympy.Rational():
                return _number_node(Fraction(int(value.p), int(value.q)))
            case sympy.Float():
                return self._parse_float(float(value))
            case sympy.Symbol():
                return grammar.Name(_NO_PLACE, str(value.name))
            case sympy.Add():
                return grammar.Sum(_NO_PLACE, tuple(("+", self._parse_sympy(term)) for term in value.args))
            case sympy.Mul():
                return grammar.Product(_NO_PLACE, tuple(("*", self._parse_sympy(factor)) for factor in value.args))
            case sympy.Pow() if value.exp.is_Rational and value.exp.q <= 2:
                base = self._parse_sympy(value.base)
                if value.exp.q == 2:
                    base = grammar.Call(_NO_PLACE, "sqrt", (base,))
                return grammar.Power(_NO_PLACE, base, _number_node(Fraction(int(value.exp.p))), has_parentheses=False)
            case sympy.exp() | sympy.sin() | sympy.cos():
                return grammar.Call(_NO_PLACE, type(value).__name__, (self._parse_sympy(value.args[0]),))
        if value is sympy.pi:
            return grammar.Name(_NO_PLACE, "pi")
        if value is sympy.E:
            return grammar.Call(_NO_PLACE, "exp", (_number_node(Fraction(1)),))
        raise EquationError(
            f"cannot read {value} as a coefficient; expected rational expressions in the parameters, and pi, sqrt, "
            "exp, sin or cos of numbers"
        )


def equations_from_operator_matrix(
    matrix: Any, channels: Sequence[str], parameters: Sequence[str], symbol: Any = None, *, name: str = _MATRIX_LABEL
) -> tuple[list[str], tuple[str, ...]]:
    """Return one equation for each row of a matrix of polynomials in the operator symbol, and notes."""
    rows = to_matrix_rows(matrix, name, (None, None))
    if not rows:
        raise EquationError(f"expected at least one row in {name}")
    if len(rows[0]) != len(channels):
        raise EquationError(f"expected one channel for each of the {len(rows[0])} columns, got {len(channels)}")
    reader = MatrixEntryParser()
    trees = [[reader.parse(entry) for entry in row] for row in rows]
    operator = _find_operator_name(trees, parameters, symbol)
    for tree in (tree for row in trees for tree in row):
        _check_names(tree, (*parameters, operator))
        if any(isinstance(node, grammar.Call) and operator in grammar.find_names(node) for node in grammar.walk(tree)):
            raise EquationError(f"expected polynomials in {operator} as entries of {name}, got a function of it")
    renamed = {operator: grammar.Name(_NO_PLACE, _OPERATOR_SYMBOL)}
    trees = [[grammar.replace_names(tree, renamed) for tree in row] for row in trees]
    known = [parameter for parameter in parameters if parameter != operator]

    def attempt(ring: ScalarRing) -> list[str]:
        values = LinearFormBuilder(ring, ())
        lines = []
        for row in trees:
            scalars = [values.scalar(tree, "coefficients") for tree in row]
            entries = [_split_by_operator_power(ring, value, operator, name) for value in scalars]
            form = LinearForm(dict(zip(channels, entries, strict=True)), ExponentialPolynomial(ring))
            lines.append(format_equation(form, channels))
        return lines

    return extend_ring_by_constants((*known, _OPERATOR_SYMBOL), attempt)[1], reader.notes


def _check_names(tree: grammar.Expression, known: Sequence[str]) -> None:
    for name in set(grammar.find_names(tree)) - {"pi", *known}:
        raise EquationError(f"a matrix entry mentions {name!r}, which is not a parameter; declare it in parameters=")


def _find_operator_name(trees: Sequence[Sequence[grammar.Expression]], parameters: Sequence[str], symbol: Any) -> str:
    if symbol is not None:
        return str(getattr(symbol, "name", symbol))
    unknown = sorted({name for row in trees for tree in row for name in grammar.find_names(tree)} - {"pi", *parameters})
    if len(unknown) > 1:
        raise EquationError(
            f"expected one symbol for d/dt beside the parameters, got {', '.join(unknown)}; declare the others as "
            "parameters, or name it with symbol="
        )
    return unknown[0] if unknown else "d"


def _split_by_operator_power(ring: ScalarRing, value: Scalar, operator: str, matrix: str) -> list[Scalar]:
    """Split a field element by the powers of the operator symbol, which must not occur in the denominator."""
    index = ring.names.index(_OPERATOR_SYMBOL)
    if any(exponents[index] for exponents in ring.terms(value.denominator)):
        raise EquationError(f"expected polynomials in {operator} as entries of {matrix}")
    split: dict[int, dict[tuple[int, ...], int]] = {}
    for exponents, coefficient in ring.terms(value.numerator).items():
        rest = (*exponents[:index], 0, *exponents[index + 1 :])
        split.setdefault(exponents[index], {})[rest] = coefficient
    order = max(split, default=-1)
    if order > grammar.MAX_DERIVATIVE_ORDER:
        raise EquationError(f"expected derivatives of order at most {grammar.MAX_DERIVATIVE_ORDER}, got {order}")
    return [Scalar(ring, ring.from_terms(split.get(k, {})), value.denominator) for k in range(order + 1)]


def parse_blocks(A: Any, B: Any, C: Any, D: Any) -> dict[str, list[list[Any]]]:
    """Return the blocks of a state space by their letters, as rows of entries whose shapes fit together."""
    rows = to_matrix_rows(A, "A", (None, None))
    size = len(rows)
    blocks = {"A": to_matrix_rows(A, "A", (size, size))}
    blocks["B"] = [[] for _ in range(size)] if B is None else to_matrix_rows(B, "B", (size, None))
    width = len(blocks["B"][0]) if size else 0
    blocks["C"] = [] if C is None else to_matrix_rows(C, "C", (None, size))
    if C is None and D is not None:
        blocks["C"] = [[0] * size for _ in to_matrix_rows(D, "D", (None, width))]
    height = len(blocks["C"])
    blocks["D"] = [[0] * width] * height if D is None else to_matrix_rows(D, "D", (height, width))
    if not size:
        raise EquationError("expected at least one state, got an empty matrix A")
    return blocks


def name_variables(blocks: Mapping[str, list[list[Any]]], requested: Sequence[Sequence[str] | None]) -> list[list[str]]:
    """Return the names of states, inputs and outputs, checked against the sizes of the blocks."""
    counts = len(blocks["A"]), len(blocks["B"][0]), len(blocks["C"])
    kinds = [*zip(("state", "input", "output"), "xuy", counts, strict=True)]
    names = [
        parse_names(given, role) if given is not None else [f"{letter}{i + 1}" for i in range(count)]
        for given, (role, letter, count) in zip(requested, kinds, strict=True)
    ]
    for given, (role, _, count) in zip(names, kinds, strict=True):
        if len(given) != count:
            raise EquationError(f"expected {count} {role} name{'s' * (count != 1)}, got {len(given)}")
    return names


def equations_from_state_space(
    blocks: dict[str, Any], names: Sequence[Sequence[str]], parameters: Sequence[str]
) -> tuple[list[str], tuple[str, ...]]:
    """Return ``x' = A x + B u`` and ``y = C x + D u`` as equations, and notes; given the names of x, u and y."""
    states, inputs, outputs = names
    reader = MatrixEntryParser()
    trees = {name: [[reader.parse(entry) for entry in row] for row in rows] for name, rows in blocks.items()}
    for rows in trees.values():
        for tree in (tree for row in rows for tree in row):
            _check_names(tree, parameters)
    sources, channels = [*states, *inputs], [*states, *inputs, *outputs]

    def attempt(ring: ScalarRing) -> list[str]:
        values = LinearFormBuilder(ring, ())
        lines = []
        for targets, left, right, derivative in ((states, "A", "B", True), (outputs, "C", "D", False)):
            for i, target in enumerate(targets):
                row = [*trees[left][i], *trees[right][i]]
                scalars = [-values.scalar(tree, f"entries of {left} and {right}") for tree in row]
                total = {source: [value] for source, value in zip(sources, scalars, strict=True)}
                target_term = {target: [ring.rational(0)] * derivative + [ring.rational(1)]}
                form, other = (LinearForm(part, ExponentialPolynomial(ring)) for part in (total, target_term))
                lines.append(format_equation(form + other, channels))
        return lines

    return extend_ring_by_constants(parameters, attempt)[1], reader.notes


def to_matrix_rows(matrix: Any, name: str, shape: tuple[int | None, int | None]) -> list[list[Any]]:
    """Return a matrix as lists of entries after a check of its shape."""
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


def _number_node(value: Fraction) -> grammar.Number:
    # A decimal digit takes 3.3 bits: a cheap limit before conversion to text.
    if max(abs(value.numerator), value.denominator).bit_length() > 4 * grammar.MAX_DIGITS:
        raise EquationError(f"expected a number of at most {grammar.MAX_DIGITS} digits")
    text = str(value)
    return grammar.Number(Place(text, 0, len(text)), value)


@dataclass(frozen=True)
class FreeFunctionBasis:
    """A choice of the free functions.

    matrix: Rows that compute the free functions from a solution, or the free columns, or a whole V.
    expressions: The rows as expressions; empty if columns were given.
    """

    matrix: OperatorMatrix
    expressions: tuple[str, ...] = ()

    @cached_property
    def definition(self) -> list[str] | list[list[str]]:
        """The choice as plain values: expressions, or rows of entries."""
        return list(self.expressions) or self.matrix.to_lists()

    def apply(self, minimal: Parametrization, channels: Sequence[str]) -> Parametrization:
        """Return the parametrization with the chosen free functions."""
        if not minimal.free.width:
            raise EquationError("a basis was given, but the equations have no free functions; omit basis=")
        if self.expressions:
            return self._apply_rows(minimal, channels)
        width, free = self.matrix.width, minimal.free.width
        if width == free:
            return self._apply_columns(minimal)
        if width == len(channels):
            return self._apply_transformation(minimal)
        raise EquationError(
            f"expected a basis matrix with {free} columns, one for each free function, or a whole V with "
            f"{len(channels)} columns; got {width}"
        )

    def _apply_rows(self, minimal: Parametrization, channels: Sequence[str]) -> Parametrization:
        free = minimal.free.width
        if len(self.expressions) != free:
            count = f"{free} expressions" if free > 1 else "one expression"
            raise EquationError(
                f"expected {count} as a basis, one for each free function, got {len(self.expressions)}: "
                f"{', '.join(self.expressions)}.{_suggest_channels(minimal, channels)}"
            )
        square = self.matrix @ minimal.free
        inverse = left_inverse(square)
        if inverse is None:
            raise EquationError(f"{self._explain_singular(square)}.{_suggest_channels(minimal, channels)}")
        return change_basis_by_rows(minimal, self.matrix, inverse)

    def _explain_singular(self, square: OperatorMatrix) -> str:
        """Return why rows E are not a basis, from E B."""
        ring, shown = square.ring, " and ".join(self.expressions)
        invariants = invariant_factors_of_diagonal(ring, diagonalize(ring, square.rows, square.width).diagonal)
        if len(invariants) < square.width:
            if square.width == 1:
                return f"{shown} cannot be the free function: it depends on no free function"
            return f"{shown} cannot be the free functions: they depend on each other"
        rest = [entry for entry in invariants if len(entry) > 1]
        lost = sum(len(entry) - 1 for entry in rest)
        monic = [[Scalar(ring, value, entry[-1]) for value in entry] for entry in rest]
        equations = " and ".join(dict.fromkeys(f"{format_sum(list_operator_terms(entry, 'z'))} = 0" for entry in monic))
        verb, noun = ("determines", "") if square.width == 1 else ("determine", "s")
        numbers = "a constant" if lost == 1 else f"{lost} constants"
        return f"{shown} {verb} the free function{noun} only up to {numbers} of integration: solutions of {equations}"

    def _apply_columns(self, minimal: Parametrization) -> Parametrization:
        if (minimal.operator @ self.matrix).is_nonzero():
            raise EquationError("the columns of the basis matrix do not solve the equations: A B = 0 does not hold")
        weights = minimal.free_observables @ self.matrix
        VerificationError.unless(minimal.free @ weights == self.matrix, "columns of the kernel are B W")
        inverse = left_inverse(weights)
        if inverse is None:
            raise EquationError(
                "the columns of the basis matrix solve the equations, but do not reach all solutions: they are B W "
                f"with W not invertible over the operators. The minimal basis is B = {minimal.free.to_lists()}"
            )
        return replace(minimal, free=self.matrix, chosen_observables=inverse @ minimal.free_observables)

    def _apply_transformation(self, minimal: Parametrization) -> Parametrization:
        inverse = left_inverse(self.matrix)
        if inverse is None:
            raise EquationError(
                "expected V unimodular, with a determinant that is neither zero nor contains derivatives; it is not"
            )
        diagonal = transformed_diagonal(minimal.operator, self.matrix)
        if diagonal is None:
            raise EquationError("V does not make A diagonal: there is no unimodular U with U A V diagonal")
        return change_basis_by_transformation(minimal, self.matrix, inverse, diagonal)

    def verify(self, parametrization: Parametrization) -> str:
        """Check that a parametrization is the chosen one; return the proved statement."""
        if self.expressions:
            statement = "the free functions are the chosen expressions"
            holds = parametrization.free_observables == self.matrix
        else:
            statement = "the free columns are the chosen ones"
            given = [self.matrix.take_columns([k]) for k in range(self.matrix.width)]
            columns = [parametrization.free.take_columns([j]) for j in range(parametrization.free.width)]
            holds = all(column in given for column in columns)
        VerificationError.unless(holds, statement)
        return statement

    def singular_factors(self, parametrization: Parametrization) -> list[Element]:
        """Return the parameter factors at whose zeros the chosen `parametrization` has no basis."""
        columns = parametrization.free
        if not self.expressions and self.matrix.width != columns.width:
            inverse = left_inverse(self.matrix)
            return singular_basis_factors(self.matrix, () if inverse is None else (inverse,))
        return singular_basis_factors(columns, (parametrization.free_observables,))


def _suggest_channels(minimal: Parametrization, channels: Sequence[str]) -> str:
    """Return a sentence with channels that are valid free functions."""
    sets = (chosen for chosen in minimal.input_sets(40) if left_inverse(minimal.free.take_rows(chosen)) is not None)
    names = ["[" + ", ".join(f'"{channels[i]}"' for i in chosen) + "]" for chosen in islice(sets, 5)]
    if not names:
        return " No choice of channels is possible; omit basis=, or give expressions or columns"
    return f" Possible choices among the channels: {' or '.join(names)}"


@dataclass(frozen=True)
class BasisExpressions:
    """A chosen basis of the free functions as expression trees.

    rows: One expression in the channels for each free function; or one row of a matrix for each channel, written as
        an expression in the names of its columns.
    columns: The column names; empty for expressions in the channels.
    """

    rows: tuple[grammar.Equation, ...]
    columns: tuple[str, ...] = ()


def parse_basis(
    basis: Any, channels: Sequence[str], parameters: Sequence[str], symbol: Any = None
) -> tuple[BasisExpressions | None, tuple[str, ...]]:
    """Return a basis as trees, and notes on how numbers were read."""
    if basis is None:
        return None, ()
    if isinstance(basis, str):
        basis = [basis]
    if isinstance(basis, bytes | Mapping | set):
        raise EquationError(f"expected a basis as a list of expressions or a matrix, got {type(basis).__name__}")
    if not hasattr(basis, "shape") and isinstance(basis, Sequence):
        if not basis:
            raise EquationError("expected at least one expression as a basis; leave basis= out for the minimal one")
        if all(isinstance(text, str) for text in basis):
            texts = [" ".join(text.split("#", 1)[0].split()) for text in basis]
            expressions = zip(map(grammar.parse_expression, basis), texts, strict=True)
            return BasisExpressions(tuple(grammar.Equation(tree, None, text) for tree, text in expressions)), ()
    rows = to_matrix_rows(basis, "the basis", (len(channels), None))
    taken = (*channels, *parameters)
    letter = next(each for each in candidate_names("column") if not any(name.startswith(each) for name in taken))
    names = [f"{letter}{i + 1}" for i in range(len(rows[0]))]
    lines, notes = equations_from_operator_matrix(rows, names, parameters, symbol, name="the basis")
    return BasisExpressions(tuple(grammar.parse_equations(lines)), tuple(names)), notes


def build_basis(
    basis: BasisExpressions, forms: Sequence[LinearForm], ring: ScalarRing, channels: Sequence[str], variable: str
) -> tuple[BasisExpressions, FreeFunctionBasis]:
    """Return the basis with a text for each of its rows, and the choice of free functions."""
    names = basis.columns or channels
    rows, entries = [], []
    for row, form in zip(basis.rows, forms, strict=True):
        if form.affine_term:
            known = f"the known function of time {form.affine_term}"
            raise EquationError(
                f"expected expressions in the channels as a basis, got {known} in {row.text!r}; leave it out"
            )
        entries.append([form.channels.get(name, []) for name in names])
        text = row.text or (format_equation(form, names) if basis.columns else format_observable(entries[-1], names))
        rows.append(grammar.Equation(row.left, row.right, text))
    matrix = OperatorMatrix.from_scalars(ring, entries, len(names), variable)
    texts = () if basis.columns else tuple(row.text for row in rows)
    return BasisExpressions(tuple(rows), basis.columns), FreeFunctionBasis(matrix, texts)


def drop_inputs(
    equations: Sequence[grammar.Equation], basis: BasisExpressions | None, inputs: Collection[str]
) -> tuple[list[grammar.Equation], BasisExpressions | None]:
    """Return equations and the rest of a chosen basis if some channels are zero."""
    if basis is not None and basis.columns:
        raise EquationError(
            "the basis was chosen as a matrix, which is only possible without known inputs; expected expressions in "
            "the channels, or none: try system.with_basis(None)"
        )
    left = _drop_channels(() if basis is None else basis.rows, inputs)
    return _drop_channels(equations, inputs), BasisExpressions(tuple(left)) if left else None


def _drop_channels(equations: Sequence[grammar.Equation], names: Collection[str]) -> list[grammar.Equation]:
    remaining = []
    for equation in equations:
        if not equation.mentions(names):
            remaining.append(equation)
            continue
        left, *right = (grammar.drop_names(side, names) for side in equation.sides)
        if left is not None or any(side is not None for side in right):
            zero = grammar.Number(equation.left.place, Fraction(0))
            other = (right[0] or zero) if right else None
            remaining.append(grammar.Equation(left or zero, other, ""))
    return remaining
