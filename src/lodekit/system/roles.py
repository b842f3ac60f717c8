"""Which name plays which role in the equations: channels, and channels that look like undeclared parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lodekit.system.tree import (
    Call,
    Derivative,
    Equation,
    Expression,
    Name,
    Negative,
    Number,
    Power,
    Product,
    Sum,
    walk,
    walk_equation,
)

__all__ = ["coefficient_names", "find_channels", "lonely_names", "single_names"]


def find_channels(equations: Iterable[Equation], parameters: Sequence[str]) -> list[str]:
    """Return the names in `equations` that are not `parameters`, t or pi, in the order of their first appearance."""
    found: dict[str, None] = {}
    others = {"t", "pi", *parameters}
    for equation in equations:
        for node in walk_equation(equation):
            if isinstance(node, Name) and node.name not in others:
                found[node.name] = None
    return list(found)


def lonely_names(equations: Iterable[Equation], channels: Sequence[str]) -> list[str]:
    """Return the `channels` that stand once only in the `equations`, and there undifferentiated beside a derivative.

    A slip in a name makes one, and so does a constant that was not declared; an unknown input may be meant, too.
    """
    count, beside = dict.fromkeys(channels, 0), set[str]()
    for equation in equations:
        every = list(walk_equation(equation))
        names = [node.name for node in every if isinstance(node, Name) and node.name in count]
        for name in names:
            count[name] += 1
        moved = [node for node in every if isinstance(node, Derivative) or _is_derivative(node)]
        inside = {part.name for node in moved for part in walk(node) if isinstance(part, Name)}
        beside |= set(names) - inside if moved else set()
    return [name for name in channels if count[name] == 1 and name in beside]


def single_names(equations: Iterable[Equation], channels: Sequence[str]) -> list[str]:
    """Return the `channels` that stand once only in the `equations`, and not for themselves on one side of one.

    What stands for itself, as y does in y = x + w, is defined there.
    """
    count, defined = dict.fromkeys(channels, 0), set[str]()
    for equation in equations:
        for side in (each for each in (equation.left, equation.right) if each is not None):
            defined |= {side.name} if isinstance(side, Name) else set()
            for node in walk(side):
                if isinstance(node, Name) and node.name in count:
                    count[node.name] += 1
    return [name for name in channels if count[name] == 1 and name not in defined]


def _is_derivative(node: Expression) -> bool:
    if isinstance(node, Power):
        return node.grouped and isinstance(node.exponent, Number)
    return isinstance(node, Call) and node.function in ("D", "diff")


def coefficient_names(equations: Sequence[Equation], channels: Sequence[str]) -> list[str]:
    """Return the `channels` that look like parameters which were not declared.

    Throughout the `equations` they are never differentiated and only ever multiply, divide or enter functions.
    """
    plain: set[str] = set()
    for equation in equations:
        for side in equation.sides:
            _collect_plain(side, plain, set(channels), as_coefficient=False)
    return [name for name in channels if name not in plain]


def _collect_plain(node: Expression, plain: set[str], channels: set[str], *, as_coefficient: bool) -> None:
    """Collect the channels that occur as a term of their own, or differentiated."""
    match node:
        case Name():
            if not as_coefficient:
                plain.add(node.name)
        case Negative():
            _collect_plain(node.operand, plain, channels, as_coefficient=as_coefficient)
        case Sum():
            for _, term in node.terms:
                _collect_plain(term, plain, channels, as_coefficient=as_coefficient)
        case Product():
            mentioned = [_mentions(factor, channels) for _, factor in node.factors]
            total = sum(mentioned)
            for (operator, factor), own in zip(node.factors, mentioned, strict=True):
                inside = as_coefficient or operator == "/" or total > own
                _collect_plain(factor, plain, channels, as_coefficient=inside)
        case Power():
            derivative = node.grouped and isinstance(node.exponent, Number)
            _collect_plain(node.base, plain, channels, as_coefficient=not derivative)
            _collect_plain(node.exponent, plain, channels, as_coefficient=True)
        case Derivative():
            _collect_plain(node.operand, plain, channels, as_coefficient=False)
        case Call():
            for position, argument in enumerate(node.arguments):
                inside = node.function not in ("D", "diff") and (node.function != "delay" or position > 0)
                _collect_plain(argument, plain, channels, as_coefficient=inside)
        case Number():
            pass


def _mentions(node: Expression, channels: set[str]) -> bool:
    return any(isinstance(part, Name) and part.name in channels for part in walk(node))
