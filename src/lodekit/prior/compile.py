"""Conversion of exact coefficients to floats: coefficient arrays of observables, with derivatives in the parameters.

This is the only place where exact algebra becomes floating point. `ScalarFunctions` evaluates field elements,
`CompiledSignal` known functions of time (particular solutions), and `CompiledObservables` the operators on free
functions and modes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from flint import arb, ctx as flint_context, fmpz

from lodekit.algebra.modes import factor_annihilators, isolate_roots
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.polynomials import Polynomial
from lodekit.algebra.realization import ScalarMatrix, observable_rows
from lodekit.algebra.scalars import Scalar, ScalarRing, multiply_powers
from lodekit.errors import AlgebraError
from lodekit.prior.expm import exponential_moments
from lodekit.prior.kernels import match_array
from lodekit.prior.modes import ModeGroup
from lodekit.support.arguments import Array, IndexArray
from lodekit.system.delays import check_delayed_inputs
from lodekit.system.signals import ExponentialPolynomial, combine_signals
from lodekit.system.system import System


def split_table(xp: Any, table: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Return the consecutive arrays of given shapes in the last dimension of a table."""
    parts, stop, leading = [], 0, tuple(table.shape[:-1])
    for shape in shapes:
        start, stop = stop, stop + math.prod(shape)
        parts.append(table[..., start:stop].reshape(leading + shape))
    return parts


@dataclass(frozen=True)
class CompiledSignal:
    """A known function of time: terms ``c t^k exp(r t) cos or sin(w t)``.

    powers: k of each term.
    sines: Whether a term is a sine.
    coefficients: The slice of the table with c, r, w of each term in turn.
    """

    powers: tuple[int, ...]
    sines: tuple[bool, ...]
    coefficients: slice

    @classmethod
    def append(cls, signal: ExponentialPolynomial, scalars: list[Scalar]) -> CompiledSignal:
        """Append the coefficients of a signal to a list, and return the compiled signal."""
        start, waves = len(scalars), list(signal.terms)
        for wave, value in signal.terms.items():
            scalars.extend((value, wave.rate, wave.frequency))
        powers, sines = tuple(wave.power for wave in waves), tuple(wave.sine for wave in waves)
        return cls(powers, sines, slice(start, len(scalars)))

    def values(self, xp: Any, times: Any, table: Any) -> Any:
        """Return the signal in any array library, shape (..., n).

        Shapes: times (..., n), table (..., s).
        """
        shape = np.broadcast_shapes(tuple(times.shape), (*table.shape[:-1], 1))
        total = xp.zeros(shape, dtype=table.dtype, device=table.device)
        for i, (power, sine) in enumerate(zip(self.powers, self.sines, strict=True)):
            c, r, w = (table[..., self.coefficients.start + 3 * i + k, None] for k in range(3))
            total = total + c * times**power * xp.exp(r * times) * (xp.sin if sine else xp.cos)(w * times)
        return total

    def evaluate(self, times: Array, values: Array, jacobian: Array, window: float = 0.0) -> tuple[Array, Array]:
        """Return the signal, shape (n,), and its derivatives in the parameters, shape (p, n).

        With a window, the mean over intervals that start at the times. With the complex rate ``l = r + i w`` it is a
        sum over the powers of ``v`` in ``(s + v)^k e^(l v)``, times ``e^(l s)``; the next power is the derivative in l.

        Shapes: times (n,), values, jacobian (s,) and (p, s).
        """
        coefficients, slopes = values[self.coefficients], jacobian[:, self.coefficients]
        if self._is_constant(coefficients, slopes):
            constant = np.full(len(times), coefficients[::3].sum())
            return constant, np.repeat(slopes[:, ::3].sum(axis=1)[:, None], len(times), axis=1)
        total, gradient = np.zeros(len(times)), np.zeros((len(jacobian), len(times)))
        for i, (power, sine) in enumerate(zip(self.powers, self.sines, strict=True)):
            c, rate = coefficients[3 * i], complex(*coefficients[3 * i + 1 : 3 * i + 3])
            means, wave = exponential_moments(rate, window, power + 1) if window else [1.0], np.exp(rate * times)
            value, slope = (
                wave * sum(comb(k, j) * mean * times ** (k - j) for j, mean in enumerate(means[: k + 1]))
                for k in (power, power + 1)
            )
            part, in_rate, in_frequency = (v.imag if sine else v.real for v in (value, slope, 1j * slope))
            total += c * part
            dc, dr, dw = slopes[:, 3 * i : 3 * i + 3].T
            gradient += np.outer(dc, part) + np.outer(c * dr, in_rate) + np.outer(c * dw, in_frequency)
        return total, gradient

    def _is_constant(self, coefficients: Array, slopes: Array) -> bool:
        """Return whether all terms are constant in time for all values of the parameters."""
        rates, d_rates = (part.reshape(-1, 3)[:, 1:] for part in (coefficients, slopes))
        return not (any(self.powers) or any(self.sines) or rates.any() or d_rates.any())

    def vjp(self, times: Array, values: Array, jacobian: Array, weights: Array, window: float = 0.0) -> Array:
        """Return derivatives in the parameters of the sum of weights times the signal, shape (p,).

        Shapes: weights (n,).
        """
        slopes = jacobian[:, self.coefficients]
        if self._is_constant(values[self.coefficients], slopes):
            return np.asarray(slopes[:, ::3].sum(axis=1) * weights.sum())
        return np.asarray(self.evaluate(times, values, jacobian, window)[1] @ weights)

    @property
    def n_terms(self) -> int:
        """Number of terms."""
        return len(self.powers)


class ScalarFunctions:
    """Many field elements as float functions of the parameters, with derivatives.

    scalars: The field elements, in the order of the values.
    """

    def __init__(self, ring: ScalarRing, scalars: Sequence[Scalar]) -> None:
        rows = []
        # Far more than the 53 bits of a float, so that cancellation among constants such as sqrt(2) costs no accuracy.
        with flint_context.workprec(256):
            constants = [value.enclose() for value in ring.constants]
            for scalar in scalars:
                # The coefficients of the monomials in the parameters, as intervals (balls).
                fraction = defaultdict[tuple[int, ...], Any](arb), defaultdict[tuple[int, ...], Any](arb)
                for own, element in zip(fraction, (scalar.numerator, scalar.denominator), strict=True):
                    for exponents, coefficient in ring.terms(element).items():
                        term = multiply_powers(arb(fmpz(coefficient)), constants, exponents)
                        own[exponents[len(constants) :]] += term
                # Divide both by the same number, so that they fit into floats.
                scale = max((abs(value.mid()) for part in fraction for value in part.values()), default=arb(1))
                rows.append([{key: float((v / scale).mid()) for key, v in part.items()} for part in fraction])
        monomials = sorted({exponents for parts in rows for part in parts for exponents in part})
        index = {exponents: i for i, exponents in enumerate(monomials)}
        self._exponents = np.array(monomials, dtype=np.float64).reshape(len(monomials), len(ring.parameters))
        self._numerator, self._denominator = np.zeros((2, len(rows), len(monomials)))
        for i, parts in enumerate(rows):
            for target, part in zip((self._numerator, self._denominator), parts, strict=True):
                for exponents, value in part.items():
                    target[i, index[exponents]] = value
        self._is_constant = not self._exponents.any()
        self._last = b"", (np.zeros(0), np.zeros((0, 0)))
        # For each parameter the exponents of the derivative: its own exponent is lowered by one.
        self._derivative_exponents = np.maximum(self._exponents - np.eye(len(ring.parameters))[:, None, :], 0.0)

    @property
    def nonzero_mask(self) -> Array:
        """One for each element that is not identically zero in the parameters, zero for others, shape (s,)."""
        return np.asarray(self._numerator.any(axis=1), dtype=float)

    @cached_property
    def _constant(self) -> tuple[Array, Array]:
        values = self._numerator.sum(axis=1) / self._denominator.sum(axis=1) if len(self._numerator) else np.zeros(0)
        return values, np.zeros((len(self._derivative_exponents), len(values)))

    def evaluate(self, theta: Array) -> tuple[Array, Array]:
        """Return values, shape (s,), and their derivatives, shape (p, s); the last ones are cached."""
        if self._is_constant:
            return self._constant
        last = self._last
        if last[0] != theta.tobytes():
            values, bottom = self._fractions(np, theta)
            slopes = self._exponents.T * np.multiply.reduce(theta**self._derivative_exponents, axis=2)
            jacobian = (slopes @ self._numerator.T - values * (slopes @ self._denominator.T)) / bottom
            last = self._last = theta.tobytes(), (values, jacobian)
        return last[1]

    def evaluate_many(self, theta: Array) -> tuple[Array, Array]:
        """Return values at many points, shape (n, s), and derivatives in log parameters, (n, p, s).

        Shapes: theta (n, p).
        """
        monomials = np.prod(theta[:, None, :] ** self._exponents, axis=2)
        bottom = monomials @ self._denominator.T
        values = (monomials @ self._numerator.T) / bottom
        slopes = self._exponents.T * monomials[:, None, :]
        return values, (slopes @ self._numerator.T - values[:, None] * (slopes @ self._denominator.T)) / bottom[:, None]

    def evaluate_values(self, xp: Any, theta: Any) -> Any:
        """Return only the values, in any array library, shape (..., s), for automatic differentiation.

        Shapes: theta (..., p).
        """
        return self._fractions(xp, theta)[0]

    def _fractions(self, xp: Any, theta: Any) -> tuple[Any, Any]:
        """Return values and denominators, shape (..., s)."""
        monomials = xp.prod(theta[..., None, :] ** match_array(xp, self._exponents, theta), -1)
        bottom = monomials @ match_array(xp, self._denominator.T, theta)
        return (monomials @ match_array(xp, self._numerator.T, theta)) / bottom, bottom


class SignalFunctions:
    """Known functions of time, compiled to floats."""

    def __init__(self, ring: ScalarRing, signals: Sequence[ExponentialPolynomial]) -> None:
        scalars: list[Scalar] = []
        self._signals = [CompiledSignal.append(signal, scalars) for signal in signals]
        self._scalars = ScalarFunctions(ring, scalars)

    def evaluate(self, theta: Array, times: Array) -> list[tuple[Array, Array]]:
        """Return each signal at the user's `times`, (n,), and its derivatives in the parameters `theta`, (p, n)."""
        table = self._scalars.evaluate(theta)
        return [signal.evaluate(times, *table) for signal in self._signals]


@dataclass(frozen=True)
class CoefficientArrays:
    """The parts of a table of values, in any array library; leading dimensions are those of the table.

    free: The observables on the free functions, lowest power of d first; (..., o, q, k).
    mode_columns: The observables on each mode column; (..., o, k).
    factors: The coefficients of each factor, monic; (..., d + 1).
    """

    free: Any
    mode_columns: list[Any]
    factors: list[Any]

    def select(self, rows: IndexArray) -> CoefficientArrays:
        """Return the arrays of some observables."""
        columns = [own[..., rows, :] for own in self.mode_columns]
        return replace(self, free=self.free[..., rows, :, :], mode_columns=columns)


@dataclass(frozen=True)
class Coefficients:
    """The coefficient arrays of observables at given parameter values, and their derivatives.

    jacobian: Derivatives in the parameters, with an additional first dimension.
    table: The flat arrays of both, shapes (s,) and (p, s).
    input_response_table: The scalars of the response to known inputs and their derivatives; None without inputs.
    windows: The interval over which each observable is averaged, ending at its times; zero for instantaneous values.
        None if no observable is averaged; (o,).
    disturbance_table: The scalars of the response to disturbances and their derivatives; None without any.
    """

    values: CoefficientArrays
    jacobian: CoefficientArrays
    table: tuple[Array, Array]
    input_response_table: tuple[Array, Array] | None = None
    windows: Array | None = None
    disturbance_table: tuple[Array, Array] | None = None

    def select(self, rows: IndexArray) -> Coefficients:
        """Return the coefficients of some observables, without averaging."""
        return Coefficients(self.values.select(rows), self.jacobian.select(rows), self.table)

    @property
    def free(self) -> Array:
        """The observables on the free functions, shape (o, q, k)."""
        return self.values.free  # type: ignore[no-any-return]

    @property
    def free_jacobian(self) -> Array:
        """Their derivatives, shape (p, o, q, k)."""
        return self.jacobian.free  # type: ignore[no-any-return]

    @property
    def mode_columns(self) -> list[Array]:
        """The observables on each mode column, shape (o, k)."""
        return self.values.mode_columns

    @property
    def factors(self) -> list[Array]:
        """The coefficients of each factor, lowest power first."""
        return self.values.factors


@dataclass(frozen=True)
class CompiledObservables:
    """Observables of a system, compiled to floats.

    parameters: The order of parameter values.
    free_shape: The numbers of observables, free functions and coefficients (lowest power of d first).
    column_shapes: The numbers of observables and coefficients, for each mode column.
    signals: The particular solution, for each observable.
    """

    parameters: tuple[str, ...]
    table: ScalarFunctions
    free_shape: tuple[int, int, int]
    column_shapes: tuple[tuple[int, int], ...]
    groups: tuple[ModeGroup, ...]
    signals: tuple[CompiledSignal, ...]

    @cached_property
    def factors(self) -> tuple[ModeGroup, ...]:
        """One group for each factor of the annihilators."""
        return tuple({group.factor: group for group in self.groups}.values())

    def split(self, xp: Any, table: Any) -> CoefficientArrays:
        """Return coefficient arrays from the values of the table, or from their derivatives.

        Shapes: table (..., s).
        """
        free, *columns = split_table(xp, table, (self.free_shape, *self.column_shapes))
        return CoefficientArrays(free, columns, [table[..., factor.coefficients] for factor in self.factors])


def compile_observables(
    system: System, operators: OperatorMatrix, known_signals: Sequence[ExponentialPolynomial] = ()
) -> CompiledObservables:
    """Return observables compiled to floats."""
    check_delayed_inputs(system.channels)
    ring, count = system.operator.ring, len(operators.rows)
    scalars: list[Scalar] = []
    zero = ring.rational(0)

    def append(matrix: OperatorMatrix) -> int:
        """Append all coefficients of a matrix, padded to one length; return the length."""
        entries = [entry for row in matrix.entries() for entry in row]
        length = max(map(len, entries), default=0) or 1
        for entry in entries:
            scalars.extend([*entry, *([zero] * (length - len(entry)))])
        return length

    groups, free_shape, factors = list[ModeGroup](), (count, 0, 1), list[tuple[Polynomial, int, int]]()
    column_shapes: tuple[tuple[int, int], ...]
    try:
        parametrization = system.parametrization
        factors = factor_annihilators(ring, [mode.annihilator for mode in parametrization.modes])
    except AlgebraError:
        # The characteristic polynomial of twelve states may have thousands of terms, but their state matrix is sparse.
        if system.free_functions:
            raise
        rows, matrix = _observables_of_states(system, operators)
        scalars.extend(value for row in (*rows, *matrix) for value in row)
        size, start = len(matrix), count * len(matrix)
        column_shapes = ((count, size),)
        groups.append(ModeGroup(0, None, size, 0, 1, slice(start, len(scalars)), has_state_matrix=True))
    else:
        length = append(operators @ parametrization.free)
        free_shape = (count, parametrization.free.width, length)
        column_shapes = tuple((count, append(operators @ mode.column)) for mode in parametrization.modes)
    for index, (polynomial, multiplicity, column) in enumerate(factors):
        start, degree = len(scalars), len(polynomial) - 1
        scalars.extend(Scalar(ring, value, polynomial[-1]) for value in polynomial)
        place = slice(start, len(scalars))
        if any(ring.involves_parameters(value) for value in polynomial):
            groups.append(ModeGroup(index, None, degree * multiplicity, column, multiplicity, place))
            continue
        for root, _ in isolate_roots(ring, polynomial):
            if root.imag >= 0:
                size = multiplicity * (2 if root.imag else 1)
                groups.append(ModeGroup(index, root, size, column, multiplicity, place))
    signals = []
    for i, row in enumerate(operators.entries()):
        total = combine_signals(ring, row, system.particular_solution)
        signals.append(CompiledSignal.append(known_signals[i] + total if known_signals else total, scalars))
    return CompiledObservables(
        ring.parameters, ScalarFunctions(ring, scalars), free_shape, column_shapes, tuple(groups), tuple(signals)
    )


def _observables_of_states(system: System, operators: OperatorMatrix) -> tuple[ScalarMatrix, ScalarMatrix]:
    """Return observables as rows on the states of a system without free functions, and the state matrix."""
    space = system.state_space(())
    columns = [system.channels.index(name) for name in space.outputs]
    matrices = [[list(row) for row in space.exact[name]] for name in ("A", "B", "C", "D", "D1")]
    entries = [[operators.coefficients(i, j) for j in columns] for i in range(len(operators.rows))]
    return [observable_rows(row, matrices, space.ring.rational(0))[0] for row in entries], matrices[0]
