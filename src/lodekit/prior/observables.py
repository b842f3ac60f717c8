"""Observables, from their texts to arrays: coefficients on the free functions, modes and means, in scaled units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.operators import OperatorMatrix
from lodekit.data.inputs import InputSignal
from lodekit.data.units import Units
from lodekit.intervals import read_interval, window_of
from lodekit.prior.arrays import constant
from lodekit.prior.basis import ModeBasis
from lodekit.prior.compile import CoefficientArrays, Coefficients, CompiledObservables, compile_observables
from lodekit.prior.disturbed import Disturbed, compile_disturbed
from lodekit.prior.driven import Driven, compile_drive
from lodekit.prior.modes import ModeGroup
from lodekit.prior.windows import distinct_windows
from lodekit.system.grammar import parse_expression
from lodekit.system.linear import Reader
from lodekit.system.signals import Signal
from lodekit.system.system import System
from lodekit.system.tree import Expression, Number, Product, drop_names

__all__ = ["ObservableReader", "Observables"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Observables:
    """Observables compiled and scaled: coefficients, basis functions of the modes and means at any parameters.

    Parameters
    ----------
    compiled : CompiledObservables
    units : Units
    driven : Driven, optional
        The response to known inputs, where there are some.
    intervals : array, shape (o,), optional
        The interval over which each observable is averaged, in the user's time, zero where it is none; it ends at the
        time of a value. None where no observable is averaged.
    disturbed : Disturbed, optional
        The response to disturbances, where there are some.
    """

    compiled: CompiledObservables
    units: Units
    driven: Driven | None = None
    intervals: Array | None = None
    disturbed: Disturbed | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.units.scales)

    def starting_at(self, start: float, inputs: Mapping[str, InputSignal]) -> Observables:
        """Return the same observables with another time zero, and with other inputs where there are some.

        Parameters
        ----------
        start : float
            In the user's time.
        inputs : dict of str to InputSignal
            The same channels.
        """
        driven = None if self.driven is None else self.driven.starting_at(start, inputs)
        return replace(self, units=replace(self.units, start=start), driven=driven)

    def evaluate(self, theta: Array) -> Coefficients:
        """Return coefficient arrays in scaled time and units, with derivatives in the parameters."""
        values, slopes = self.compiled.table.evaluate(theta)
        driven = None if self.driven is None else self.driven.evaluate(theta)
        disturbed = None if self.disturbed is None else self.disturbed.table.evaluate(theta)
        parts = self.take_apart(np, values), self.take_apart(np, slopes), (values, slopes)
        return Coefficients(*parts, driven, self.windows, disturbed)

    @cached_property
    def windows(self) -> Array | None:
        """The interval over which each observable is averaged, in scaled time; None where there is none."""
        return None if self.intervals is None else self.intervals / self.units.span

    @property
    def longest_window(self) -> float:
        """The longest interval over which an observable is averaged, in scaled time; zero where there is none."""
        return 0.0 if self.windows is None else float(self.windows.max())

    def take_apart(self, xp: Any, table: Any) -> CoefficientArrays:
        """Return coefficient arrays in scaled time and units, from the values of the table or from their derivatives.

        Parameters
        ----------
        xp : module
            The array library of the table.
        table : array, shape (..., s)
        """
        raw = self.compiled.take_apart(xp, table)
        free, columns, factors = self._factors
        return CoefficientArrays(
            raw.free * constant(xp, free, table),
            [part * constant(xp, units, table) for part, units in zip(raw.columns, columns, strict=True)],
            [part * constant(xp, units, table) for part, units in zip(raw.factors, factors, strict=True)],
        )

    @cached_property
    def _factors(self) -> tuple[Array, list[Array], list[Array]]:
        """What coefficients are multiplied by: k derivatives in scaled time are span^k derivatives in the user's."""
        span = self.units.span

        def powers(length: int) -> Array:
            return span ** -np.arange(length, dtype=float)

        free = powers(self.compiled.free_shape[-1]) / self.units.scales[:, None, None]
        columns = [powers(length) / self.units.scales[:, None] for _, length in self.compiled.column_shapes]
        lengths = [factor.coefficients.stop - factor.coefficients.start for factor in self.compiled.factors]
        return free, columns, [np.ascontiguousarray(powers(length)[::-1] ** -1.0) for length in lengths]

    @property
    def _basis(self) -> ModeBasis:
        return ModeBasis(self.compiled.factors, self.units.span)

    def mode_values(self, xp: Any, arrays: CoefficientArrays, groups: Sequence[ModeGroup], times: Any) -> Any:
        """Return the basis functions of the modes, seen through the observables, shape (..., o, n, r).

        Parameters
        ----------
        xp : module
            The array library of the arrays.
        arrays : CoefficientArrays
        groups : sequence of ModeGroup
        times : array, shape (..., n)
            Scaled times.
        """
        return self._basis.values(xp, arrays, groups, times)

    def mode_basis(
        self, values: Coefficients, groups: Sequence[ModeGroup], times: Array, *, slopes: bool
    ) -> tuple[list[Array], list[Array]]:
        """Return for each observable its basis functions, (n, r), and derivatives in the parameters, (p, n, r).

        Parameters
        ----------
        values : Coefficients
        groups : sequence of ModeGroup
        times : array, shape (n,)
            Scaled times.
        slopes : bool
            Whether the derivatives are wanted; they are zero otherwise.
        """
        if values.windows is None:
            return self._basis.both(values, groups, times, slopes=slopes)
        basis, d_basis = [np.zeros((0, 0))] * self.count, [np.zeros((0, 0, 0))] * self.count
        for window, rows in distinct_windows(values.windows):
            parts = self._basis.both(values.take(rows), groups, times - window, window, slopes=slopes)
            for row, own, d_own in zip(rows, *parts, strict=True):
                basis[row], d_basis[row] = own, d_own
        return basis, d_basis

    def pull_modes(
        self, values: Coefficients, groups: Sequence[ModeGroup], times: Array, weights: Sequence[Array]
    ) -> Array:
        """Return derivatives in the parameters of a weighted sum of the basis functions, shape (p,).

        Parameters
        ----------
        values : Coefficients
        groups : sequence of ModeGroup
        times : array, shape (n,)
            Scaled times.
        weights : sequence of arrays, shape (n, r)
            One for each observable.
        """
        if values.windows is None:
            return self._basis.pull(values, groups, times, weights)
        total = np.zeros(len(values.table[1]))
        for window, rows in distinct_windows(values.windows):
            own = [weights[row] for row in rows]
            total += self._basis.pull(values.take(rows), groups, times - window, own, window)
        return total

    def exponents(
        self, values: Coefficients, groups: Sequence[ModeGroup], *, signals: bool = True
    ) -> NDArray[np.complex128]:
        """Return the exponents of all modes and particular solutions in scaled time.

        Parameters
        ----------
        values : Coefficients
        groups : sequence of ModeGroup
        signals : bool
            Whether those of particular solutions are wanted, too.
        """
        span = self.units.span
        found: list[complex] = []
        for group in groups:
            if group.root is not None:
                found.append(group.root * span)
            elif np.isfinite(values.factors[group.factor]).all():
                found += list(np.roots(values.factors[group.factor][::-1]))
            else:
                found.append(np.inf)
        for signal in self.compiled.signals if signals else ():
            rates = values.table[0][signal.coefficients].reshape(-1, 3)[:, 1:] * span
            found += list(rates[:, 0] + 1j * rates[:, 1])
        return np.array(found, dtype=complex)

    @cached_property
    def has_mean(self) -> bool:
        """Whether any observable has a particular solution, or a response to inputs, that is not zero."""
        return self.driven is not None or any(signal.count for signal in self.compiled.signals)

    def mean_values(self, xp: Any, table: Any, times: Any) -> Any:
        """Return the particular solution in scaled units, shape (..., o, n).

        Parameters
        ----------
        xp : module
            The array library of the arrays.
        table : array, shape (..., s)
        times : array, shape (..., n)
            In the user's unit.
        """
        signals = [signal.values(xp, times, table) for signal in self.compiled.signals]
        return xp.stack(signals, -2) / constant(xp, self.units.scales[:, None], table)

    def means(self, values: Coefficients, times: Array, *, slopes: bool = True) -> tuple[list[Array], list[Array]]:
        """Return all that is known in scaled units at the user's times, (n,), and derivatives, (p, n).

        That is the particular solution, and the response to known inputs.

        Parameters
        ----------
        values : Coefficients
        times : array, shape (n,)
            In the user's unit.
        slopes : bool
            Whether the derivatives are wanted; they are zero otherwise.
        """
        scales = self.units.scales
        if not self.has_mean:
            zero, flat = np.zeros(len(times)), np.zeros((len(values.d_free), len(times)))
            return [zero] * len(scales), [flat] * len(scales)
        table = values.table if slopes else (values.table[0], values.table[1][:0])
        found = [self._signal(number, times, table) for number in range(self.count)]
        if not slopes:
            found = [(v, np.zeros((len(values.d_free), 1))) for v, _ in found]
        if self.driven is not None and values.driven is not None:
            response, d_response = self.driven.respond(values.driven, times, slopes=slopes)
            responses = zip(self.compiled.signals, found, response, d_response, strict=True)
            found = [(v + r, d + e) if signal.count else (r, e) for signal, (v, d), r, e in responses]
        return [v / s for (v, _), s in zip(found, scales, strict=True)], [
            d / s for (_, d), s in zip(found, scales, strict=True)
        ]

    def _window(self, number: int) -> float:
        """Return the interval over which an observable is averaged, in the user's time."""
        return 0.0 if self.intervals is None else float(self.intervals[number])

    def _signal(self, number: int, times: Array, table: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return the particular solution of an observable, or its average, (n,), and derivatives, (p, n)."""
        signal, window = self.compiled.signals[number], self._window(number)
        return signal.average(times - window, *table, window) if window else signal.evaluate(times, *table)

    def pull_means(self, values: Coefficients, times: Array, weights: Sequence[Array]) -> Array:
        """Return derivatives in the parameters of a weighted sum of all that is known, shape (p,).

        It never holds derivatives at all times.

        Parameters
        ----------
        values : Coefficients
        times : array, shape (n,)
            In the user's unit.
        weights : sequence of arrays, shape (n,)
            One for each observable, for its values in scaled units.
        """
        total = np.zeros(len(values.d_free))
        own = [weight / scale for weight, scale in zip(weights, self.units.scales, strict=True)]
        for number, (signal, weight) in enumerate(zip(self.compiled.signals, own, strict=True)):
            if signal.count and not self._window(number):
                total += signal.pull(times, *values.table, weight)
            elif signal.count:
                total += self._signal(number, times, values.table)[1] @ weight
        if self.driven is not None and values.driven is not None:
            total += self.driven.pull(values.driven, times, np.stack(own))
        return total


@dataclass(frozen=True)
class ObservableReader:
    """Reads linear differential expressions in the channels of a system.

    Parameters
    ----------
    system : System
    inputs : dict of str to InputSignal
        Channels that are known for all times; the prior is that of the others.
    disturbances : dict of str to str
        Channels that drive the others and have processes of their own, and the kinds of these.
    """

    system: System
    inputs: Mapping[str, InputSignal] = field(default_factory=dict)
    disturbances: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def reduced(self) -> System:
        """The system of the channels that respond, where nothing drives them."""
        names = (*self.inputs, *self.disturbances)
        return self.system.given(names) if names else self.system

    def _leave_out(
        self, names: Sequence[str], expressions: Sequence[Expression]
    ) -> tuple[System, OperatorMatrix, list[Signal]]:
        """Return the system with zero in the place of some channels, and expressions on the others."""
        is_all = len(names) == len(self.inputs) + len(self.disturbances)
        own = self.reduced if is_all else self.system.given(names, are_all=False) if names else self.system
        return own, *_read(own, [drop_names(each, names) for each in expressions] if names else expressions)

    def read(self, observables: Sequence[str]) -> tuple[OperatorMatrix, list[Signal]]:
        """Return the operators on the channels, and the known functions of time beside them; before any averaging."""
        return _read(self.system, [_parse(text) for text in observables])

    def are_same(self, first: str, second: str) -> bool:
        """Return whether two texts mean the same observable.

        Parameters
        ----------
        first, second : str
        """
        return window_of(first) == window_of(second) and self.read([first]) == self.read([second])

    @staticmethod
    def intervals(observables: Sequence[str]) -> Array | None:
        """Return the interval over which each observable is averaged; None where none is."""
        found = np.array([window_of(text) for text in observables])
        return found if found.any() else None

    def compile(self, observables: Sequence[str], units: Units) -> Observables:
        """Return observables compiled and scaled.

        Parameters
        ----------
        observables : sequence of str
            Linear differential expressions in the channels.
        units : Units
            Of time, and of each observable.
        """
        parsed, every = [_parse(text) for text in observables], (*self.inputs, *self.disturbances)
        intervals, driven, disturbed = self.intervals(observables), None, None
        # Names that are no channels are found here, among all that there are.
        _read(self.system, parsed if every else [])
        if self.inputs:
            own, matrix, _ = self._leave_out(tuple(self.disturbances), parsed)
            driven = Driven(compile_drive(own, matrix, self.inputs), dict(self.inputs), units.start, intervals)
        if self.disturbances:
            own, matrix, _ = self._leave_out(tuple(self.inputs), parsed)
            disturbed = compile_disturbed(own, matrix, observables, self.disturbances)
        return Observables(compile_observables(*self._leave_out(every, parsed)), units, driven, intervals, disturbed)

    def compile_plain(self, observables: Sequence[str], units: Units) -> Observables:
        """Return observables in the user's own units, over the time of other units.

        Parameters
        ----------
        observables : sequence of str
            Linear differential expressions in the channels.
        units : Units
            Of which only that of time is taken.
        """
        return self.compile(observables, units.plain(len(observables)))


def _parse(text: str) -> Expression:
    """Return an observable, or what it is an average of, times the length of the interval for a total."""
    found = read_interval(text)
    if found is None:
        return parse_expression(text)
    inner = parse_expression(found.expression)
    if not found.is_total:
        return inner
    return Product(inner.place, (("*", Number(inner.place, found.factor)), ("*", inner)))


def _read(system: System, expressions: Sequence[Expression | None]) -> tuple[OperatorMatrix, list[Signal]]:
    """Return expressions as operators on the channels of a system, with what is known in them; None for zero."""
    operator = system.operator
    reader = Reader(operator.ring, system.channels)
    entries, known = [], []
    for expression in expressions:
        form = None if expression is None else reader.form(expression)
        entries.append([[] for _ in system.channels] if form is None else reader.operators(form))
        known.append(Signal(operator.ring) if form is None else form.known)
    return OperatorMatrix.from_scalars(operator.ring, entries, operator.width, operator.variable), known
