"""The equations as they are written, evaluated on curves: from the text itself, past the algebra and its tables.

Every expression becomes a jet, its value with its derivatives in time, made from the derivatives of the channels. So
nothing here can hide a fault of the operator matrix, of compiled coefficients or of signals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.system.grammar import parse_expression
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
    children,
    walk,
)

__all__ = ["Jet", "WrittenEquations"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Jet:
    """A function of time with its derivatives, and the size of the terms that each is a sum of.

    Parameters
    ----------
    values, sizes : arrays, shape (k, ...)
        The function first, then its derivatives; sizes add where values may cancel.
    """

    values: Array
    sizes: Array

    @classmethod
    def of(cls, values: Array) -> Jet:
        """Return the jet of something that is no sum."""
        return cls(values, np.abs(values))

    @classmethod
    def constant(cls, value: float, length: int) -> Jet:
        """Return the jet of a constant `value`, with so many entries as `length` says."""
        filled = np.zeros((length, 1, 1))
        filled[0] = value
        return cls.of(filled)

    def __add__(self, other: Jet) -> Jet:
        count = min(len(self.values), len(other.values))
        return Jet(self.values[:count] + other.values[:count], self.sizes[:count] + other.sizes[:count])

    def __neg__(self) -> Jet:
        return Jet(-self.values, self.sizes)

    def __mul__(self, other: Jet) -> Jet:
        return Jet(_leibniz(self.values, other.values), _leibniz(self.sizes, other.sizes))

    def derivative(self, order: int) -> Jet:
        """Return the jet of a derivative."""
        return Jet(self.values[order:], self.sizes[order:])

    def reciprocal(self) -> Jet:
        """Return one over a constant."""
        return Jet.constant(1.0 / self.number(), len(self.values))

    def apply(self, function: str) -> Jet:
        """Return exp, sin, cos or sqrt of a constant, or of a straight line in time."""
        if not np.any(self.values[1:]):
            return Jet.constant(float(getattr(np, function)(self.number())), len(self.values))
        argument, slope = self.values[0], self.values[1]
        parts = []
        for order in range(len(self.values)):
            if function == "exp":
                parts.append(np.exp(argument) * slope**order)
            else:
                turn = 0.5 * math.pi * (order + (function == "cos"))
                parts.append(np.sin(argument + turn) * slope**order)
        return Jet.of(np.stack(parts))

    def number(self) -> float:
        """Return the value of a constant."""
        if np.any(self.values[1:]) or self.values[0].size != 1:
            raise LodekitError("expected a constant where an equation divides or takes a power")
        return float(self.values[0].item())


def _leibniz(first: Array, second: Array) -> Array:
    count = min(len(first), len(second))
    return np.stack(
        [sum(math.comb(k, i) * first[i] * second[k - i] for i in range(k + 1)) * np.ones(1) for k in range(count)]
    )


@dataclass(frozen=True)
class WrittenEquations:
    """Equations as the user wrote them, ready to be evaluated on curves.

    Parameters
    ----------
    equations : sequence of Equation
        As parsed, in the order of the system.
    channels : sequence of str
        With delayed ones, such as ``delay(u, T)``, where these occur.
    parameters : mapping of str to float
        Values of the parameters.
    """

    equations: Sequence[Equation]
    channels: Sequence[str]
    parameters: Mapping[str, float]

    @property
    def order(self) -> int:
        """The largest number of derivatives that one expression can ask for."""
        return max((self._depth(side) for equation in self.equations for side in equation.sides), default=0)

    def apply(self, times: Array, curves: Array) -> tuple[Array, Array]:
        """Return left minus right of every equation, and the sum of the sizes of its terms, both (e, s, n).

        Parameters
        ----------
        times : array, shape (n,)
        curves : array, shape (order + 1, s, n, channels)
            The channels of s functions and their derivatives.
        """
        found = []
        for equation in self.equations:
            jet = self._jet(equation.left, times, curves)
            if equation.right is not None:
                jet = jet + -self._jet(equation.right, times, curves)
            found.append(jet)
        shape = curves.shape[1:3]
        values = np.stack([np.broadcast_to(jet.values[0], shape) for jet in found])
        return values, np.stack([np.broadcast_to(jet.sizes[0], shape) for jet in found])

    def _depth(self, node: Expression) -> int:
        """Return how many derivatives an expression asks of the channels in it, at most."""
        return self._order(node) + max((self._depth(child) for child in children(node)), default=0)

    def _order(self, node: Expression) -> int:
        match node:
            case Derivative():
                return node.order
            case Power() if node.grouped and isinstance(node.exponent, Number) and self._has_channel(node.base):
                return int(node.exponent.value)
            case Call(function="D"):
                return int(_number(node.arguments[1])) if len(node.arguments) == 2 else 1
            case Call(function="diff"):
                numbers = [int(_number(a)) for a in node.arguments[1:] if isinstance(a, Number)]
                names = sum(isinstance(a, Name) for a in node.arguments[1:])
                return names - len(numbers) + sum(numbers)
            case _:
                return 0

    def _has_channel(self, node: Expression) -> bool:
        return any(isinstance(part, Name) and part.name in self.channels for part in walk(node))

    def _jet(self, node: Expression, times: Array, curves: Array) -> Jet:
        order = self._order(node)
        match node:
            case Number():
                return Jet.constant(float(node.value), len(curves))
            case Name():
                return self._name(node.name, times, curves)
            case Negative():
                return -self._jet(node.operand, times, curves)
            case Sum():
                parts = [(sign, self._jet(term, times, curves)) for sign, term in node.terms]
                total = parts[0][1] if parts[0][0] == "+" else -parts[0][1]
                for sign, part in parts[1:]:
                    total = total + (part if sign == "+" else -part)
                return total
            case Product():
                total = self._jet(node.factors[0][1], times, curves)
                for operator, factor in node.factors[1:]:
                    jet = self._jet(factor, times, curves)
                    total = total * (jet.reciprocal() if operator == "/" else jet)
                return total
            case Power() if not order:
                return self._power(node, times, curves)
            case Derivative():
                return self._jet(node.operand, times, curves).derivative(order)
            case Power():
                return self._jet(node.base, times, curves).derivative(order)
            case Call():
                return self._call(node, times, curves)

    def _call(self, node: Call, times: Array, curves: Array) -> Jet:
        if node.function == "delay":
            return self._delayed(node.arguments[1], times, curves)._jet(node.arguments[0], times, curves)
        inner = self._jet(node.arguments[0], times, curves)
        return inner.derivative(self._order(node)) if node.function in ("D", "diff") else inner.apply(node.function)

    def _delayed(self, time: Expression, times: Array, curves: Array) -> WrittenEquations:
        """Return the same equations where the names of channels mean these channels at an earlier time."""
        late = self._jet(time, times, curves).number()
        channels = [""] * len(self.channels)
        for place, name in enumerate(self.channels):
            call = parse_expression(name) if name.startswith("delay(") else None
            if isinstance(call, Call) and isinstance(call.arguments[0], Name):
                own = self._jet(call.arguments[1], times, curves).number()
                if math.isclose(own, late, rel_tol=1e-9):
                    channels[place] = call.arguments[0].name
        return replace(self, channels=channels)

    def _power(self, node: Power, times: Array, curves: Array) -> Jet:
        exponent = round(self._jet(node.exponent, times, curves).values[0].item())
        base, total = self._jet(node.base, times, curves), Jet.constant(1.0, len(curves))
        base = base if exponent >= 0 else base.reciprocal()
        for _ in range(abs(exponent)):
            total = total * base
        return total

    def _name(self, name: str, times: Array, curves: Array) -> Jet:
        if name in self.parameters:
            return Jet.constant(self.parameters[name], len(curves))
        if name in self.channels:
            return Jet.of(curves[..., list(self.channels).index(name)])
        if name not in ("t", "pi"):
            raise LodekitError(f"expected {name!r} among the channels {', '.join(filter(None, self.channels))}")
        if name == "t":
            line = np.zeros((len(curves), 1, len(times)))
            line[0] = times
            line[1:2] = 1.0
            return Jet.of(line)
        return Jet.constant(math.pi, len(curves))


def _number(node: Expression) -> float:
    if not isinstance(node, Number):
        raise LodekitError("expected a whole number as the order of a derivative")
    return float(node.value)
