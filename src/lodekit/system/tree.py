"""Expression trees of equations: what the grammar produces and the rest of the package reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from lodekit.errors import Place

__all__ = [
    "Call",
    "Derivative",
    "Equation",
    "Expression",
    "Name",
    "Negative",
    "Number",
    "Power",
    "Product",
    "Sum",
    "children",
    "drop_names",
    "replace_names",
    "walk",
    "walk_equation",
]


@dataclass(frozen=True)
class Number:
    """An exact rational `value`; `place` is where it stands in the user's text, as for all expressions."""

    place: Place
    value: Fraction


@dataclass(frozen=True)
class Name:
    """The `name` of a channel, a parameter, a constant or the time, at its `place`."""

    place: Place
    name: str


@dataclass(frozen=True)
class Negative:
    """Minus an `operand`, at its `place`."""

    place: Place
    operand: Expression


@dataclass(frozen=True)
class Sum:
    """`terms` with their signs, ``+`` or ``-``, at their `place`."""

    place: Place
    terms: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Product:
    """`factors` with their operators, ``*`` or ``/``, at their `place`; the first has ``*``."""

    place: Place
    factors: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Power:
    """``base^exponent`` at its `place`; `grouped` tells ``x^(4)`` from ``x^4``."""

    place: Place
    base: Expression
    exponent: Expression
    grouped: bool


@dataclass(frozen=True)
class Derivative:
    """An `operand` with primes, as many as its `order`, at its `place`."""

    place: Place
    operand: Expression
    order: int


@dataclass(frozen=True)
class Call:
    """A reserved `function` applied to `arguments`, at its `place`; ``D`` and ``diff`` included."""

    place: Place
    function: str
    arguments: tuple[Expression, ...]


Expression = Number | Name | Negative | Sum | Product | Power | Derivative | Call


@dataclass(frozen=True)
class Equation:
    """``left = right``, or ``left`` meant to be zero where `right` is None; `text` is how it was written."""

    left: Expression
    right: Expression | None
    text: str

    @property
    def sides(self) -> tuple[Expression, ...]:
        """Both sides, or the only one."""
        return (self.left,) if self.right is None else (self.left, self.right)

    def mentions(self, names: Collection[str]) -> bool:
        """Return whether any of some names stands in the equation."""
        return any(isinstance(node, Name) and node.name in names for node in walk_equation(self))


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions that an expression is made of."""
    if isinstance(expression, Negative | Derivative):
        return (expression.operand,)
    if isinstance(expression, Sum):
        return tuple(term for _, term in expression.terms)
    if isinstance(expression, Product):
        return tuple(factor for _, factor in expression.factors)
    if isinstance(expression, Power):
        return (expression.base, expression.exponent)
    return expression.arguments if isinstance(expression, Call) else ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and everything inside it."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def walk_equation(equation: Equation) -> Iterator[Expression]:
    """Yield everything on both sides of an equation."""
    for side in equation.sides:
        yield from walk(side)


def replace_names(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """Return an `expression` with other expressions, the `values`, in place of some names."""
    match expression:
        case Name():
            return values.get(expression.name, expression)
        case Number():
            return expression
        case Negative() | Derivative():
            return replace(expression, operand=replace_names(expression.operand, values))
        case Sum():
            return replace(expression, terms=tuple((s, replace_names(e, values)) for s, e in expression.terms))
        case Product():
            return replace(expression, factors=tuple((o, replace_names(e, values)) for o, e in expression.factors))
        case Power():
            base, exponent = (replace_names(e, values) for e in (expression.base, expression.exponent))
            return replace(expression, base=base, exponent=exponent)
        case Call():
            return replace(expression, arguments=tuple(replace_names(e, values) for e in expression.arguments))


def drop_names(expression: Expression, names: Collection[str]) -> Expression | None:
    """Return what is left of an `expression` where the functions of some `names` are zero; None for nothing.

    It must be linear in them.
    """
    match expression:
        case Name():
            return None if expression.name in names else expression
        case Number():
            return expression
        case Negative() | Derivative():
            operand = drop_names(expression.operand, names)
            return None if operand is None else replace(expression, operand=operand)
        case Sum():
            terms = [(sign, drop_names(term, names)) for sign, term in expression.terms]
            left = tuple((sign, term) for sign, term in terms if term is not None)
            return replace(expression, terms=left) if left else None
        case Product():
            factors = [(operator, drop_names(factor, names)) for operator, factor in expression.factors]
            kept = tuple((operator, factor) for operator, factor in factors if factor is not None)
            return replace(expression, factors=kept) if len(kept) == len(factors) else None
        case Power():
            base = drop_names(expression.base, names)
            return None if base is None else replace(expression, base=base)
        case Call():
            first = drop_names(expression.arguments[0], names)
            return None if first is None else replace(expression, arguments=(first, *expression.arguments[1:]))
