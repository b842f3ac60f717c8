"""A basis of the free functions as users write it: expressions in the channels, or a matrix of operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import ScalarRing
from lodekit.errors import EquationError
from lodekit.system.choice import Choice
from lodekit.system.forms import LinearForm
from lodekit.system.grammar import parse_equations, parse_expression
from lodekit.system.matrices import equations_from_operator_matrix, to_rows
from lodekit.system.tree import Equation, Number, drop_names
from lodekit.system.writing import format_form, format_row

__all__ = ["Basis", "choose", "read_basis", "without_inputs"]


@dataclass(frozen=True)
class Basis:
    """What was said about the free functions, as trees.

    Parameters
    ----------
    rows : tuple of Equation
        One expression in the channels for each free function; or one row of a matrix for each channel, written as an
        expression in the names of its columns.
    columns : tuple of str
        These names; empty for expressions in the channels.
    """

    rows: tuple[Equation, ...]
    columns: tuple[str, ...] = ()


def read_basis(
    given: Any, channels: Sequence[str], parameters: Sequence[str], symbol: Any = None
) -> tuple[Basis | None, tuple[str, ...]]:
    """Return a basis as trees, and notes on how numbers were read.

    Parameters
    ----------
    given : str, sequence of str, matrix, or None
        Expressions, or the free columns, or a whole V.
    channels, parameters : sequence of str
        All names.
    symbol : sympy.Symbol or str, optional
        The operator symbol of a matrix; by default the one symbol that is not a parameter.
    """
    if given is None:
        return None, ()
    if isinstance(given, str):
        given = [given]
    if isinstance(given, bytes | Mapping | set):
        raise EquationError(f"expected a basis as a list of expressions or a matrix, got {type(given).__name__}")
    if not hasattr(given, "shape") and isinstance(given, Sequence):
        if not given:
            raise EquationError("expected at least one expression as a basis; leave basis= out for the minimal one")
        if all(isinstance(text, str) for text in given):
            return Basis(tuple(_expression(text) for text in given)), ()
    rows = to_rows(given, "the basis", (len(channels), None))
    names = _column_names(len(rows[0]), (*channels, *parameters))
    lines, notes = equations_from_operator_matrix(rows, names, parameters, symbol, name="the basis")
    return Basis(tuple(parse_equations(lines)), tuple(names)), notes


def _expression(text: str) -> Equation:
    return Equation(parse_expression(text), None, " ".join(text.split("#", 1)[0].split()))


def _column_names(count: int, taken: Sequence[str]) -> list[str]:
    letter = "column"
    while any(name.startswith(letter) for name in taken):
        letter += "_"
    return [f"{letter}{i + 1}" for i in range(count)]


def choose(
    basis: Basis, forms: Sequence[LinearForm], ring: ScalarRing, channels: Sequence[str], variable: str
) -> tuple[Basis, Choice]:
    """Return a basis with a text for each of its rows, and the choice that it makes.

    Parameters
    ----------
    basis : Basis
        Rows without text get one.
    forms : sequence of LinearForm
        Its rows, read.
    ring : ScalarRing
        Of the coefficients.
    channels : sequence of str
        Their names.
    variable : str
        What d is called.
    """
    names = basis.columns or channels
    rows = []
    for row, form in zip(basis.rows, forms, strict=True):
        if form.known:
            raise EquationError(
                f"expected expressions in the channels as a basis, got the known function of time {form.known} in "
                f"{row.text!r}; leave it out"
            )
        text = row.text or (format_row(form, names) if basis.columns else format_form(form, names))
        rows.append(Equation(row.left, row.right, text))
    entries = [[form.channels.get(name, []) for name in names] for form in forms]
    matrix = OperatorMatrix.from_scalars(ring, entries, len(names), variable)
    texts = () if basis.columns else tuple(row.text for row in rows)
    return Basis(tuple(rows), basis.columns), Choice(matrix, texts)


def without_inputs(
    equations: Sequence[Equation], basis: Basis | None, inputs: Collection[str]
) -> tuple[list[Equation], Basis | None]:
    """Return equations and what is left of a chosen basis where some channels are zero.

    Parameters
    ----------
    equations : sequence of Equation
        Those that say nothing then are left out.
    basis : Basis, optional
        Of expressions, those of which nothing is left are left out.
    inputs : collection of str
        The channels.
    """
    if basis is not None and basis.columns:
        raise EquationError(
            "the basis was chosen as a matrix, which holds for free inputs only; expected expressions in the channels, "
            "or none: try system.with_basis(None)"
        )
    left = _drop(() if basis is None else basis.rows, inputs)
    return _drop(equations, inputs), Basis(tuple(left)) if left else None


def _drop(equations: Sequence[Equation], names: Collection[str]) -> list[Equation]:
    found = []
    for equation in equations:
        if not equation.mentions(names):
            found.append(equation)
            continue
        left, *right = (drop_names(side, names) for side in equation.sides)
        if left is not None or any(side is not None for side in right):
            zero = Number(equation.left.place, Fraction(0))
            other = (right[0] or zero) if right else None
            found.append(Equation(left or zero, other, ""))
    return found
