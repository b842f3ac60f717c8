"""THE one place where exact becomes float: coefficient arrays of observables, with derivatives in the parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, fmpz
from flint import ctx as flint_context
from numpy.typing import NDArray

from lodekit.algebra.finite_field import Element
from lodekit.algebra.modes import enclose_roots, mode_factors
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.errors import EquationError
from lodekit.prior.arrays import constant
from lodekit.prior.means import CompiledSignal, append_signal
from lodekit.system.delays import need_inputs
from lodekit.system.signals import Signal
from lodekit.system.system import System

__all__ = [
    "CoefficientArrays",
    "Coefficients",
    "CompiledFactor",
    "CompiledObservables",
    "ScalarTable",
    "SignalTable",
    "compile_observables",
]

Array = NDArray[np.float64]
#: Precision of the balls in which coefficients are summed before they become floats: far more than their 53 bits, so
#: that what cancels among constants such as sqrt(2) costs none of these.
_BITS = 256


class ScalarTable:
    """Many field elements as float functions of the parameters, with derivatives.

    Parameters
    ----------
    ring : ScalarRing
    scalars : sequence of Scalar
        Their order is that of the values.
    """

    def __init__(self, ring: ScalarRing, scalars: Sequence[Scalar]) -> None:
        count = len(ring.constants)
        with flint_context.workprec(_BITS):
            constants = [value.enclose() for value in ring.constants]
            rows = [_float_terms(ring, scalar, count, constants) for scalar in scalars]
        monomials = sorted({exponents for parts in rows for part in parts for exponents in part})
        index = {exponents: i for i, exponents in enumerate(monomials)}
        self._exponents = np.array(monomials, dtype=np.float64).reshape(len(monomials), len(ring.parameters))
        self._top = np.zeros((len(rows), len(monomials)))
        self._bottom = np.zeros((len(rows), len(monomials)))
        for i, (top, bottom) in enumerate(rows):
            for target, part in ((self._top, top), (self._bottom, bottom)):
                for exponents, value in part.items():
                    target[i, index[exponents]] = value
        self._is_constant = not self._exponents.any()
        # For each parameter the exponents of the derivative, its own lowered by one.
        self._lowered = np.maximum(self._exponents - np.eye(len(ring.parameters))[:, None, :], 0.0)

    @property
    def occurring(self) -> Array:
        """One for each element that is not zero for all values of the parameters, zero for others, shape (s,)."""
        return np.asarray(self._top.any(axis=1), dtype=float)

    @cached_property
    def _constant(self) -> tuple[Array, Array]:
        values = self._top.sum(axis=1) / self._bottom.sum(axis=1) if len(self._top) else np.zeros(0)
        return values, np.zeros((len(self._lowered), len(values)))

    def evaluate(self, theta: Array) -> tuple[Array, Array]:
        """Return values, shape (s,), and their derivatives, shape (p, s)."""
        if self._is_constant:
            return self._constant
        values, bottom = self._fractions(np, theta)
        slopes = self._exponents.T * np.multiply.reduce(theta**self._lowered, axis=2)
        return values, (slopes @ self._top.T - values * (slopes @ self._bottom.T)) / bottom

    def evaluate_many(self, theta: Array) -> tuple[Array, Array]:
        """Return values at many points, shape (n, s), and derivatives in logarithms of the parameters, (n, p, s).

        Parameters
        ----------
        theta : array, shape (n, p)
        """
        monomials = np.prod(theta[:, None, :] ** self._exponents, axis=2)
        bottom = monomials @ self._bottom.T
        values = (monomials @ self._top.T) / bottom
        slopes = self._exponents.T * monomials[:, None, :]
        return values, (slopes @ self._top.T - values[:, None] * (slopes @ self._bottom.T)) / bottom[:, None]

    def evaluate_with(self, xp: Any, theta: Any) -> Any:
        """Return the values alone in any array library, shape (..., s); some differentiate them themselves.

        Parameters
        ----------
        xp : module
            The array library of the parameters.
        theta : array, shape (..., p)
        """
        return self._fractions(xp, theta)[0]

    def _fractions(self, xp: Any, theta: Any) -> tuple[Any, Any]:
        """Return values and denominators, shape (..., s)."""
        monomials = xp.prod(theta[..., None, :] ** constant(xp, self._exponents, theta), -1)
        bottom = monomials @ constant(xp, self._bottom.T, theta)
        return (monomials @ constant(xp, self._top.T, theta)) / bottom, bottom


def _float_terms(
    ring: ScalarRing, scalar: Scalar, count: int, constants: Sequence[object]
) -> tuple[dict[tuple[int, ...], float], dict[tuple[int, ...], float]]:
    """Return numerator and denominator as floats by parameter monomial, both divided by one number so that they fit."""
    balls = [_collect(ring, part, count, constants) for part in (scalar.numerator, scalar.denominator)]
    scale = max((abs(value.mid()) for part in balls for value in part.values()), default=arb(1))
    return tuple({key: float((value / scale).mid()) for key, value in part.items()} for part in balls)  # type: ignore[return-value]


def _collect(
    ring: ScalarRing, element: Element, count: int, constants: Sequence[object]
) -> dict[tuple[int, ...], Element]:
    found: dict[tuple[int, ...], Element] = {}
    for exponents, coefficient in ring.terms(element).items():
        term = arb(fmpz(coefficient))
        for value, exponent in zip(constants, exponents[:count], strict=True):
            if exponent:
                term = term * value**exponent  # type: ignore[operator]
        key = exponents[count:]
        found[key] = found[key] + term if key in found else term
    return found


@dataclass(frozen=True)
class CompiledFactor:
    """A factor of an annihilator d_i: its own signal variance, its own basis functions.

    Parameters
    ----------
    column : int
        Which mode column it belongs to.
    multiplicity : int
    coefficients : slice
        Where the coefficients of the factor stand in the table, lowest power first; monic.
    roots : tuple of complex, or None
        The exponents with imaginary part >= 0, where no parameter stands inside; in the user's time.
    """

    column: int
    multiplicity: int
    coefficients: slice
    roots: tuple[complex, ...] | None


class SignalTable:
    """Known functions of time, ready for floats.

    Parameters
    ----------
    ring : ScalarRing
    signals : sequence of Signal
    """

    def __init__(self, ring: ScalarRing, signals: Sequence[Signal]) -> None:
        scalars: list[Scalar] = []
        self._signals = [append_signal(signal, scalars) for signal in signals]
        self._table = ScalarTable(ring, scalars)

    def evaluate(self, theta: Array, times: Array) -> list[Array]:
        """Return each signal at `times` of the user, with parameter values `theta`."""
        return [values for values, _ in self.evaluate_slopes(theta, times)]

    def evaluate_slopes(self, theta: Array, times: Array) -> list[tuple[Array, Array]]:
        """Return each signal at `times` of the user, (n,), and its derivatives in the parameters `theta`, (p, n)."""
        table = self._table.evaluate(theta)
        return [signal.evaluate(times, *table) for signal in self._signals]


@dataclass(frozen=True)
class CoefficientArrays:
    """A table of values taken apart, in any array library; leading dimensions are those of the table.

    Parameters
    ----------
    free : array, shape (..., o, q, k)
        The observables on the free functions, lowest power of d first.
    columns : list of arrays, shape (..., o, k)
        The same on each mode column.
    factors : list of arrays, shape (..., d + 1)
        The coefficients of each factor, monic.
    """

    free: Any
    columns: list[Any]
    factors: list[Any]


@dataclass(frozen=True)
class Coefficients:
    """The coefficient arrays of observables at given parameter values, and their derivatives.

    Parameters
    ----------
    values : CoefficientArrays
    slopes : CoefficientArrays
        Derivatives in the parameters: one more dimension, the first.
    table : (array, array)
        What both were taken from, shapes (s,) and (p, s).
    driven : (array, array), optional
        The numbers of the response to known inputs, and their derivatives, where there are inputs.
    windows : array, shape (o,)
        The interval over which each observable is averaged, which ends at its times; zero where it is none. None where
        no observable is averaged.
    disturbed : (array, array), optional
        The numbers of the response to disturbances, and their derivatives, where there are some.
    """

    values: CoefficientArrays
    slopes: CoefficientArrays
    table: tuple[Array, Array]
    driven: tuple[Array, Array] | None = None
    windows: Array | None = None
    disturbed: tuple[Array, Array] | None = None

    def take(self, which: NDArray[np.intp]) -> Coefficients:
        """Return the coefficients of some observables, as if they were not averaged."""
        values, slopes = (
            CoefficientArrays(part.free[..., which, :, :], [own[..., which, :] for own in part.columns], part.factors)
            for part in (self.values, self.slopes)
        )
        return Coefficients(values, slopes, self.table)

    @property
    def free(self) -> Array:
        """The observables on the free functions, shape (o, q, k)."""
        return self.values.free  # type: ignore[no-any-return]

    @property
    def d_free(self) -> Array:
        """Their derivatives, shape (p, o, q, k)."""
        return self.slopes.free  # type: ignore[no-any-return]

    @property
    def columns(self) -> list[Array]:
        """The observables on each mode column, shape (o, k)."""
        return self.values.columns

    @property
    def factors(self) -> list[Array]:
        """The coefficients of each factor, lowest power first."""
        return self.values.factors


@dataclass(frozen=True)
class CompiledObservables:
    """Observables of a system, ready for floats.

    Parameters
    ----------
    parameters : tuple of str
        The order of parameter values.
    table : ScalarTable
    free_shape : (int, int, int)
        Observables, free functions, coefficients (lowest power of d first).
    column_shapes : list of (int, int)
        Observables and coefficients, for each mode column.
    factors : tuple of CompiledFactor
    signals : tuple of CompiledSignal
        The particular solution, for each observable.
    """

    parameters: tuple[str, ...]
    table: ScalarTable
    free_shape: tuple[int, int, int]
    column_shapes: tuple[tuple[int, int], ...]
    factors: tuple[CompiledFactor, ...]
    signals: tuple[CompiledSignal, ...]

    def take_apart(self, xp: Any, table: Any) -> CoefficientArrays:
        """Return coefficient arrays from the values of the table, or from their derivatives.

        Parameters
        ----------
        xp : module
            The array library of the table.
        table : array, shape (..., s)
        """
        leading = tuple(table.shape[:-1])
        start = math.prod(self.free_shape)
        free, columns = xp.reshape(table[..., :start], (*leading, *self.free_shape)), []
        for shape in self.column_shapes:
            stop = start + math.prod(shape)
            columns.append(xp.reshape(table[..., start:stop], (*leading, *shape)))
            start = stop
        return CoefficientArrays(free, columns, [table[..., factor.coefficients] for factor in self.factors])

    def evaluate(self, theta: Array) -> Coefficients:
        """Return all coefficient arrays and their derivatives at parameter values."""
        values, slopes = self.table.evaluate(theta)
        return Coefficients(self.take_apart(np, values), self.take_apart(np, slopes), (values, slopes))


def compile_observables(system: System, operators: OperatorMatrix, known: Sequence[Signal] = ()) -> CompiledObservables:
    """Return observables ready for floats.

    Parameters
    ----------
    system : System
    operators : OperatorMatrix
        Each row holds the operators of one observable on the channels.
    known : sequence of Signal
        Known functions of time that are added to each observable; none by default.
    """
    delayed = need_inputs(system.channels)
    if delayed:
        raise EquationError(
            f"{delayed[0]!r} is delayed in the equations, so it must be a known input, such as "
            f"inputs={{{delayed[0]!r}: 'hold'}}"
        )
    ring, parametrization = system.operator.ring, system.parametrization
    scalars: list[Scalar] = []
    zero = ring.rational(0)

    def append(matrix: OperatorMatrix) -> int:
        """Add all coefficients of a matrix, padded to one length; return the length."""
        entries = matrix.entries()
        length = max((len(entry) for row in entries for entry in row), default=0) or 1
        for row in entries:
            for entry in row:
                scalars.extend([*entry, *([zero] * (length - len(entry)))])
        return length

    count = len(operators.rows)
    length = append(operators @ parametrization.free)
    free_shape = (count, parametrization.free.width, length)
    column_shapes = tuple((count, append(operators @ mode.column)) for mode in parametrization.modes)
    factors = []
    for part in mode_factors(ring, [mode.annihilator for mode in parametrization.modes]):
        start = len(scalars)
        scalars.extend(Scalar(ring, value, part.polynomial[-1]) for value in part.polynomial)
        roots = None
        if not any(ring.involves_parameters(value) for value in part.polynomial):
            roots = tuple(root for root, _ in enclose_roots(ring, part.polynomial) if root.imag >= 0)
        factors.append(CompiledFactor(part.mode, part.multiplicity, slice(start, len(scalars)), roots))
    signals = []
    for i in range(count):
        total = known[i] if known else Signal(ring)
        for channel, signal in enumerate(system.particular_solution):
            total = total + signal.apply(operators.coefficients(i, channel))
        signals.append(append_signal(total, scalars))
    return CompiledObservables(
        ring.parameters, ScalarTable(ring, scalars), free_shape, column_shapes, tuple(factors), tuple(signals)
    )
