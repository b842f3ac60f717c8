"""Residuals of the written equations on curves: independent evaluation of the text, and Chebyshev differentiation.

Each expression becomes a jet, its value with its time derivatives, evaluated from the text itself, so that errors of
the operator algebra or of compiled coefficients are detected. Curves that are known by their values only are
differentiated by Chebyshev polynomials on pieces of the time axis, twice, on two sets of nodes without a common time;
the difference bounds the truncation and rounding errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.support.arguments import Array
from lodekit.system import grammar

#: A relative residual above this is larger than rounding errors.
STRICT_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Jet:
    """A function of time with its derivatives, and for each the sum of the absolute values of its terms.

    values, term_sizes: The function first, then its derivatives; (k, ...).
    """

    values: Array
    term_sizes: Array

    @classmethod
    def from_values(cls, values: Array) -> Jet:
        """Return the jet of a function that is not a sum."""
        return cls(values, np.abs(values))

    @classmethod
    def constant(cls, value: float, length: int) -> Jet:
        """Return the jet of a constant, with `length` entries."""
        filled = np.zeros((length, 1, 1))
        filled[0] = value
        return cls.from_values(filled)

    def __add__(self, other: Jet) -> Jet:
        count = min(len(self.values), len(other.values))
        return Jet(self.values[:count] + other.values[:count], self.term_sizes[:count] + other.term_sizes[:count])

    def __neg__(self) -> Jet:
        return Jet(-self.values, self.term_sizes)

    def __mul__(self, other: Jet) -> Jet:
        return Jet(_leibniz(self.values, other.values), _leibniz(self.term_sizes, other.term_sizes))

    def derivative(self, order: int) -> Jet:
        """Return the jet of a derivative."""
        return Jet(self.values[order:], self.term_sizes[order:])

    def reciprocal(self) -> Jet:
        """Return one over a constant."""
        return Jet.constant(1.0 / self.constant_value(), len(self.values))

    def apply(self, function: str) -> Jet:
        """Return exp, sin, cos or sqrt of a constant, or of a straight line in time."""
        if not np.any(self.values[1:]):
            return Jet.constant(float(getattr(np, function)(self.constant_value())), len(self.values))
        argument, slope = self.values[0], self.values[1]
        if function == "exp":
            return Jet.from_values(np.stack([np.exp(argument) * slope**k for k in range(len(self.values))]))
        phases = (0.5 * math.pi * (k + (function == "cos")) for k in range(len(self.values)))
        return Jet.from_values(np.stack([np.sin(argument + phase) * slope**k for k, phase in enumerate(phases)]))

    def constant_value(self) -> float:
        """Return the value of a constant."""
        if np.any(self.values[1:]) or self.values[0].size != 1:
            raise LodekitError("expected a constant where an equation divides or takes a power")
        return float(self.values[0].item())


def _leibniz(first: Array, second: Array) -> Array:
    count = min(len(first), len(second))
    terms = [[math.comb(k, i) * first[i] * second[k - i] for i in range(k + 1)] for k in range(count)]
    return np.stack([sum(each) * np.ones(1) for each in terms])


@dataclass(frozen=True)
class EquationEvaluator:
    """Equations as the user wrote them, for evaluation on curves.

    equations: The parsed equations, in the order of the system.
    channels: The channels, including delayed ones that occur, such as ``delay(u, T)``.
    parameters: Values of the parameters.
    """

    equations: Sequence[grammar.Equation]
    channels: Sequence[str]
    parameters: Mapping[str, float]

    @property
    def order(self) -> int:
        """The largest number of derivatives that an expression may need."""
        sides = (side for equation in self.equations for side in equation.sides)
        return max(map(self._max_derivative_order, sides), default=0)

    def evaluate(self, times: Array, curves: Array) -> tuple[Array, Array]:
        """Return left minus right side of each equation, and the sum of the sizes of its terms, both (e, s, n).

        Shapes: times (n,), curves (order + 1, s, n, channels).
        """
        values, sizes = np.empty((2, len(self.equations), *curves.shape[1:3]))
        for i, equation in enumerate(self.equations):
            jet = self._jet(equation.left, times, curves)
            if equation.right is not None:
                jet = jet + -self._jet(equation.right, times, curves)
            values[i], sizes[i] = jet.values[0], jet.term_sizes[0]
        return values, sizes

    def _max_derivative_order(self, node: grammar.Expression) -> int:
        """Return the highest order of derivatives of channels that an expression needs."""
        return self._derivative_order(node) + max(map(self._max_derivative_order, grammar.children(node)), default=0)

    def _derivative_order(self, node: grammar.Expression) -> int:
        match node:
            case grammar.Power() if (
                node.has_parentheses and isinstance(node.exponent, grammar.Number) and self._has_channel(node.base)
            ):
                return int(node.exponent.value)
            case grammar.Call(function="D"):
                return int(_integer_order(node.arguments[1])) if len(node.arguments) == 2 else 1
            case grammar.Call(function="diff"):
                numbers = [int(_integer_order(a)) for a in node.arguments[1:] if isinstance(a, grammar.Number)]
                names = sum(isinstance(a, grammar.Name) for a in node.arguments[1:])
                return names - len(numbers) + sum(numbers)
            case _:
                return 0

    def _has_channel(self, node: grammar.Expression) -> bool:
        return any(isinstance(part, grammar.Name) and part.name in self.channels for part in grammar.walk(node))

    def _jet(self, node: grammar.Expression, times: Array, curves: Array) -> Jet:
        order = self._derivative_order(node)
        match node:
            case grammar.Number():
                return Jet.constant(float(node.value), len(curves))
            case grammar.Name():
                return self._name(node.name, times, curves)
            case grammar.Sum():
                parts = [(sign, self._jet(term, times, curves)) for sign, term in node.terms]
                total = parts[0][1] if parts[0][0] == "+" else -parts[0][1]
                for sign, part in parts[1:]:
                    total = total + (part if sign == "+" else -part)
                return total
            case grammar.Product():
                total = self._jet(node.factors[0][1], times, curves)
                for operator, factor in node.factors[1:]:
                    jet = self._jet(factor, times, curves)
                    total = total * (jet.reciprocal() if operator == "/" else jet)
                return total
            case grammar.Power() if not order:
                return self._power(node, times, curves)
            case grammar.Power():
                return self._jet(node.base, times, curves).derivative(order)
            case grammar.Call():
                return self._call(node, times, curves)

    def _call(self, node: grammar.Call, times: Array, curves: Array) -> Jet:
        if node.function == "delay":
            return self._delayed(node.arguments[1], times, curves)._jet(node.arguments[0], times, curves)
        inner = self._jet(node.arguments[0], times, curves)
        if node.function in ("D", "diff"):
            return inner.derivative(self._derivative_order(node))
        return inner.apply(node.function)

    def _delayed(self, time: grammar.Expression, times: Array, curves: Array) -> EquationEvaluator:
        """Return the same equations in which names of channels refer to their values at an earlier time."""
        late = self._jet(time, times, curves).constant_value()
        channels = [""] * len(self.channels)
        for place, name in enumerate(self.channels):
            call = grammar.parse_expression(name) if name.startswith("delay(") else None
            if isinstance(call, grammar.Call) and isinstance(call.arguments[0], grammar.Name):
                own = self._jet(call.arguments[1], times, curves).constant_value()
                if math.isclose(own, late, rel_tol=1e-9):
                    channels[place] = call.arguments[0].name
        return replace(self, channels=channels)

    def _power(self, node: grammar.Power, times: Array, curves: Array) -> Jet:
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
            return Jet.from_values(curves[..., list(self.channels).index(name)])
        if name not in ("t", "pi"):
            raise LodekitError(f"expected {name!r} among the channels {', '.join(filter(None, self.channels))}")
        if name == "t":
            line = np.zeros((len(curves), 1, len(times)))
            line[0] = times
            line[1:2] = 1.0
            return Jet.from_values(line)
        return Jet.constant(math.pi, len(curves))


def _integer_order(node: grammar.Expression) -> float:
    if not isinstance(node, grammar.Number):
        raise LodekitError("expected a whole number as the order of a derivative")
    return float(node.value)


#: Degrees of the two polynomials on each piece.
CHEBYSHEV_DEGREES = (20, 31)


@dataclass(frozen=True)
class ChebyshevPieces:
    """Pieces of the time axis, each around the times at which it gives derivatives.

    times: Times at which derivatives are requested; (n,).
    piece_index: The piece that each time belongs to; (n,).
    low, high: The ends of the pieces; (p,).
    """

    times: Array
    piece_index: NDArray[np.int64]
    low: Array
    high: Array

    @property
    def nodes(self) -> Array:
        """All times at which the curve must be known, those of the lower degree first."""
        return np.concatenate([self._nodes(degree).ravel() for degree in CHEBYSHEV_DEGREES])

    def split(self, values: Array) -> list[Array]:
        """Return values at all nodes by piece, shapes (p, degree + 1, channels), for each degree.

        Shapes: values (nodes, channels).
        """
        count, channels = len(self.low), values.shape[-1]
        parts = zip(np.split(values, [count * (CHEBYSHEV_DEGREES[0] + 1)]), CHEBYSHEV_DEGREES, strict=True)
        return [part.reshape(count, degree + 1, channels) for part, degree in parts]

    def with_probes(self) -> ChebyshevPieces:
        """Return the same pieces with a few more times in each, after all others."""
        probes = self.low[:, None] + (self.high - self.low)[:, None] * np.linspace(0.25, 0.75, 5)
        owner = np.repeat(np.arange(len(self.low)), probes.shape[1])
        times, index = np.append(self.times, probes.ravel()), np.append(self.piece_index, owner)
        return replace(self, times=times, piece_index=index)

    def _nodes(self, degree: int) -> Array:
        points = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
        middle, half = 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)
        return np.asarray(middle[:, None] + half[:, None] * points)

    def derivatives(self, values: Array, order: int) -> tuple[Array, Array]:
        """Return all derivatives up to an order, twice, both of shape (order + 1, s, n, channels).

        Shapes: values (s, nodes, channels).
        """
        low, high = CHEBYSHEV_DEGREES
        first, second = np.split(values, [len(self.low) * (low + 1)], axis=1)
        return self._differentiate(first, low, order), self._differentiate(second, high, order)

    def _differentiate(self, values: Array, degree: int, order: int) -> Array:
        size, channels, count = len(values), values.shape[-1], len(self.low)
        middle, half = 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)
        # Far from time zero nodes are rounded to floating-point numbers; the polynomial uses the rounded nodes.
        points = (self._nodes(degree) - middle[:, None]) / half[:, None]
        shaped = values.reshape(size, count, degree + 1, channels).transpose(1, 2, 0, 3).reshape(count, degree + 1, -1)
        solved = np.linalg.solve(chebyshev.chebvander(points, degree), shaped)
        # Coefficients first: (degree + 1, s, pieces, channels).
        coefficients = solved.reshape(count, degree + 1, size, channels).transpose(1, 2, 0, 3)
        position = (self.times - middle[self.piece_index]) / half[self.piece_index]
        vander = chebyshev.chebvander(position, degree)
        found = []
        for k in range(order + 1):
            own = coefficients[:, :, self.piece_index]
            value = np.einsum("nk,ksnc->snc", vander[:, : len(own)], own)
            found.append(value * half[self.piece_index][:, None] ** -k)
            coefficients = chebyshev.chebder(coefficients)
        return np.stack(found)


def split_time_axis(times: Array, length: float, breaks: Sequence[float] | Array = ()) -> ChebyshevPieces:
    """Return pieces of about one length for all times, each between two neighbouring breaks.

    Without breaks a piece extends beyond its times on both sides, because a polynomial is most accurate in its middle.

    Shapes: times (n,).
    """
    inner = np.unique(np.asarray(breaks, dtype=float))
    if not len(inner):
        index = np.floor((times - times.min()) / length).astype(np.int64)
        numbers, owner = np.unique(index, return_inverse=True)
        low = times.min() + (numbers - 0.5) * length
        return ChebyshevPieces(times, owner, low, low + 2.0 * length)
    edges = np.concatenate([[min(times.min(), inner[0]) - length], inner, [max(times.max(), inner[-1]) + length]])
    gap = np.searchsorted(edges, times, side="right") - 1
    parts = np.maximum(np.ceil((edges[gap + 1] - edges[gap]) / length), 1.0)
    share = (edges[gap + 1] - edges[gap]) / parts
    index = np.minimum(np.floor((times - edges[gap]) / share), parts - 1.0)
    ends = np.stack([edges[gap] + index * share, edges[gap] + (index + 1) * share])
    (low, high), owner = np.unique(ends, axis=1, return_inverse=True)
    return ChebyshevPieces(times, owner.ravel(), low, high)


@dataclass(frozen=True)
class CurveResiduals:
    """Equation residuals of curves, relative to the largest sum of the sizes of the terms of each equation.

    times: Times at which the equations were evaluated; (n,).
    residuals: The largest relative residual of all curves, at each time, in each equation; (n, e).
    errors: Difference of two numerical derivatives, which bounds the error of the residual; (n, e).
    length: Length of the pieces on which derivatives were computed.
    """

    times: Array
    residuals: Array
    errors: Array
    length: float

    @property
    def max_residuals(self) -> Array:
        """The largest relative residual of each equation, shape (e,)."""
        return np.asarray(np.max(self.residuals, axis=0, initial=0.0))

    @property
    def max_errors(self) -> Array:
        """The largest error of the residuals of each equation, shape (e,)."""
        return np.asarray(np.max(self.errors, axis=0, initial=0.0))

    @property
    def residual(self) -> float:
        """The largest relative residual of all equations."""
        return float(np.max(self.residuals, initial=0.0))

    @property
    def uncertainty(self) -> float:
        """The error of `residual`."""
        return float(np.max(self.errors, initial=0.0))


def concatenate_residuals(parts: Sequence[CurveResiduals]) -> CurveResiduals:
    """Return the residuals of several curves, each at its own times, as one."""
    times = np.concatenate([part.times for part in parts])
    residuals = np.concatenate([part.residuals for part in parts])
    errors = np.concatenate([part.errors for part in parts])
    return CurveResiduals(times, residuals, errors, min(part.length for part in parts))


def compute_curve_residuals(
    evaluator: EquationEvaluator, curve: Callable[[Array], Array], times: Array, max_length: float, breaks: Array
) -> CurveResiduals:
    """Return the equation residuals of a curve at some times.

    Pieces become shorter until the two derivatives agree best; only their difference determines the length, never the
    residual.

    Shapes: times (n,).
    """
    best: CurveResiduals | None = None
    problem: LodekitError | None = None
    known: tuple[ChebyshevPieces, Array] | None = None
    for pieces, length in _halve_pieces(times, max_length, breaks):
        try:
            known = pieces, _evaluate_at_nodes(pieces, curve, known)
            found = _compute_piece_residuals([evaluator], pieces, known[1][None], length)
        except LodekitError as raised:
            # A long piece extends far beyond the times, where the curve may not be finite.
            problem = raised
            continue
        if best is None or found.uncertainty < best.uncertainty:
            best = found
        elif found.uncertainty > (10.0 if best.uncertainty < STRICT_TOLERANCE else 1e3) * best.uncertainty:
            # Once pieces are short enough, only rounding errors grow; if the error is still large, continue.
            break
    if best is None:
        raise problem or LodekitError(
            "expected times that differ in floating-point numbers; subtract their origin, for example the first date"
        )
    return best


def _evaluate_at_nodes(
    pieces: ChebyshevPieces, curve: Callable[[Array], Array], previous: tuple[ChebyshevPieces, Array] | None
) -> Array:
    """Return the curve at the nodes of pieces, (nodes, channels); values of unchanged pieces are reused."""
    if previous is None:
        return curve(pieces.nodes)
    old_pieces, old_values = previous
    place = np.minimum(np.searchsorted(old_pieces.low, pieces.low), len(old_pieces.low) - 1)
    is_new = (old_pieces.low[place] != pieces.low) | (old_pieces.high[place] != pieces.high)
    new = replace(pieces, low=pieces.low[is_new], high=pieces.high[is_new])
    new_values = curve(new.nodes) if is_new.any() else old_values[:0]
    found = []
    for own, old in zip(new.split(new_values), old_pieces.split(old_values), strict=True):
        part = old[place]
        part[is_new] = own
        found.append(part.reshape(-1, part.shape[-1]))
    return np.concatenate(found)


def compute_sample_residuals(
    sample: Callable[[Array], tuple[Array, Sequence[EquationEvaluator]]],
    times: Array,
    lengths: Sequence[float],
    breaks: Array,
) -> CurveResiduals:
    """Return the equation residuals of samples; all values come from one call, because another would differ.

    Shapes: times (n,).
    """
    choices = [split_time_axis(times, length, breaks) for length in lengths]
    nodes = [pieces.nodes for pieces in choices]
    drawn, written = sample(np.concatenate(nodes))
    values = np.split(drawn, np.cumsum([len(part) for part in nodes])[:-1], axis=1)
    found = [_compute_piece_residuals(written, *item) for item in zip(choices, values, lengths, strict=True)]
    return min(found, key=lambda item: item.uncertainty)


def compute_derivative_residuals(
    evaluators: Sequence[EquationEvaluator], times: Array, curves: Array
) -> CurveResiduals:
    """Return the equation residuals of functions with known derivatives, not computed from their values.

    Shapes: times (n,), curves (order + 1, s, n, channels).
    """
    evaluated = [each.evaluate(times, curves[:, i : i + 1]) for i, each in enumerate(evaluators)]
    values, sizes = (np.concatenate([part[k] for part in evaluated], axis=1) for k in (0, 1))
    scale = np.max(sizes, axis=(1, 2))
    residuals = np.max(np.abs(values), axis=1).T / np.where(scale > 0, scale, 1.0)
    if not np.isfinite(residuals).all():
        raise LodekitError("derivatives in the equations do not exist, or are too large for floating-point numbers")
    return CurveResiduals(times, residuals, np.zeros_like(residuals), 0.0)


def _halve_pieces(times: Array, max_length: float, breaks: Array) -> Iterator[tuple[ChebyshevPieces, float]]:
    for number in range(14 + 1):
        length = max_length / 2.0**number
        pieces = split_time_axis(times, length, breaks)
        crowded = 1e-3 * length < np.finfo(float).eps * np.abs(pieces.high).max()
        if crowded or (number and len(pieces.nodes) > 200_000):
            return
        yield pieces, length


def _compute_piece_residuals(
    evaluators: Sequence[EquationEvaluator], pieces: ChebyshevPieces, values: Array, length: float
) -> CurveResiduals:
    """Return the equation residuals of each curve on pieces, from its values at their nodes.

    Values have shape (s, nodes, channels); there are s sets of equations.
    """
    # All terms may vanish at one time, so residuals are relative to the largest terms at all times and probes.
    probed = pieces.with_probes()
    evaluated = [
        [each.evaluate(probed.times, part[:, i : i + 1]) for i, each in enumerate(evaluators)]
        for part in probed.derivatives(values, evaluators[0].order)
    ]
    rough, fine = (np.concatenate([residuals for residuals, _ in found], axis=1) for found in evaluated)
    sizes = np.concatenate([size for _, size in evaluated[1]], axis=1)
    scale = np.max(sizes, axis=(1, 2))
    scale = np.where(scale > 0, scale, 1.0)
    count = len(pieces.times)
    residuals, errors = (np.max(np.abs(part[..., :count]), axis=1).T / scale for part in (fine, fine - rough))
    if not (np.isfinite(residuals).all() and np.isfinite(errors).all()):
        raise LodekitError("the curves are too large for floating-point numbers there; use a shorter time span")
    return CurveResiduals(pieces.times, residuals, errors, length)
