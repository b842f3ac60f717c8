"""What a system has to say while files and tables for it are read.

The basis functions of all modes together, seen through observables or averages of these, with derivatives.

Observables, from their texts to arrays: coefficients on the free functions, modes and means, in scaled units.

The equations applied to functions in closed form, with the derivatives that the model itself has for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import Scalar
from lodekit.data.inputs import InputSignal
from lodekit.data.records import Scaling
from lodekit.prior.compile import (
    CoefficientArrays,
    Coefficients,
    CompiledFactor,
    CompiledObservables,
    ScalarFunctions,
    SignalFunctions,
    compile_observables,
    match_array,
)
from lodekit.prior.disturbances import CompiledDisturbances, compile_disturbances
from lodekit.prior.input_response.mean import InputResponse, compile_input_response
from lodekit.prior.kernels import group_by_window
from lodekit.prior.modes import (
    ModeGroup,
    balance_companion,
    companion_matrix,
    exponential_basis,
    fundamental_basis,
    fundamental_basis_vjp,
    fundamental_basis_with_jacobian,
)
from lodekit.support.interval_means import averaging_time, parse_interval
from lodekit.system.dimensions import make_unit_check
from lodekit.system.grammar import Expression, Number, Product, drop_names, parse_expression
from lodekit.system.linear import LinearFormBuilder
from lodekit.system.signals import ExponentialPolynomial
from lodekit.system.system import System


def table_checks(system: System, declared: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the checks that readers of tables make for a system: of what columns are, and of units that they tell.

    They are arguments of `lodekit.data.sources.ReadOptions`, which knows no system.
    """
    return {"check": ObservableCompiler(system).parse, "check_units": make_unit_check(system, declared)}


Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModeBasis:
    """The basis functions of groups of modes.

    factors: Of the annihilators, to which the groups refer.
    span: The unit of scaled time, in the user's.
    """

    factors: Sequence[CompiledFactor]
    span: float

    def values(
        self, xp: Any, arrays: CoefficientArrays, groups: Sequence[ModeGroup], times: Any, window: float = 0.0
    ) -> Any:
        """Return the basis functions, shape (..., o, n, r).

        Shapes: times (..., n).
        """
        if not groups:
            shape = np.broadcast_shapes(tuple(times.shape[:-1]), tuple(arrays.free.shape[:-3]))
            count = arrays.free.shape[-3]
            return xp.zeros((*shape, count, times.shape[-1], 0), dtype=times.dtype, device=times.device)
        found = []
        for group in groups:
            factor = self.factors[group.factor]
            operators = arrays.mode_columns[factor.column]
            if group.root is None:
                matrix = companion_matrix(xp, arrays.factors[group.factor], factor.multiplicity)
                found.append(fundamental_basis(xp, times, operators, matrix, window))
            else:
                root = group.root * self.span
                found.append(exponential_basis(xp, times, operators, root, factor.multiplicity, window))
        return xp.concat(found, -1)

    def values_with_jacobian(
        self,
        values: Coefficients,
        groups: Sequence[ModeGroup],
        times: Array,
        window: float = 0.0,
        *,
        with_jacobian: bool,
    ) -> tuple[list[Array], list[Array]]:
        """Return for each observable its basis functions, (n, r), and derivatives in the parameters, (p, n, r)."""
        width, count = len(values.table[1]), len(values.free)
        if not groups:
            return [np.zeros((len(times), 0))] * count, [np.zeros((width, len(times), 0))] * count
        if not with_jacobian:
            basis = self.values(np, values.values, groups, times, window)
            return list(basis), list(np.zeros((count, width, *basis.shape[1:])))
        parts, d_parts = [], []
        for group in groups:
            factor = self.factors[group.factor]
            operators = values.values.mode_columns[factor.column], values.jacobian.mode_columns[factor.column]
            if group.root is None:
                own = values.values.factors[group.factor], values.jacobian.factors[group.factor]
                found, d_found = fundamental_basis_with_jacobian(
                    times, *operators, balance_companion(*own, factor.multiplicity), window
                )
            else:
                root = group.root * self.span
                # Linear in the operators: their derivatives take their place.
                found, d_found = (
                    exponential_basis(np, times, own, root, factor.multiplicity, window) for own in operators
                )
            parts.append(found)
            d_parts.append(d_found)
        return list(np.concat(parts, -1)), list(np.concat(d_parts, -1).swapaxes(0, 1))

    def vjp(
        self,
        values: Coefficients,
        groups: Sequence[ModeGroup],
        times: Array,
        weights: Sequence[Array],
        window: float = 0.0,
    ) -> Array:
        """Return derivatives in the parameters of a weighted sum of the basis functions, shape (p,).

        Shapes: weights (n, r).
        """
        total, start = np.zeros(len(values.table[1])), 0
        for group in groups:
            factor, own = self.factors[group.factor], slice(start, start + group.size)
            operators = values.values.mode_columns[factor.column], values.jacobian.mode_columns[factor.column]
            slopes = np.stack([part[:, own] for part in weights])
            if group.root is None:
                parts = values.values.factors[group.factor], values.jacobian.factors[group.factor]
                total += fundamental_basis_vjp(
                    times, *operators, balance_companion(*parts, factor.multiplicity), slopes, window
                )
            else:
                root = group.root * self.span
                changes = exponential_basis(np, times, operators[1], root, factor.multiplicity, window)
                total += np.tensordot(changes, slopes, 3)
            start += group.size
        return total


@dataclass(frozen=True)
class Observables:
    """Observables compiled and scaled: coefficients, basis functions of the modes and means at any parameters.

    input_response: The response to known inputs, where there are some.
    intervals: The interval over which each observable is averaged, in the user's time, zero where it is none; it ends
        at the time of a value. None where no observable is averaged; (o,).
    disturbances: The response to disturbances, where there are some.
    """

    compiled: CompiledObservables
    units: Scaling
    input_response: InputResponse | None = None
    intervals: Array | None = None
    disturbances: CompiledDisturbances | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.units.scales)

    def with_time_origin(self, start: float, inputs: Mapping[str, InputSignal]) -> Observables:
        """Return the same observables with another time zero, and with other inputs where there are some."""
        driven = None if self.input_response is None else self.input_response.with_time_origin(start, inputs)
        return replace(self, units=replace(self.units, start=start), input_response=driven)

    def evaluate(self, theta: Array) -> Coefficients:
        """Return coefficient arrays in scaled time and units, with derivatives in the parameters."""
        values, slopes = self.compiled.table.evaluate(theta)
        driven = None if self.input_response is None else self.input_response.evaluate(theta)
        disturbed = None if self.disturbances is None else self.disturbances.table.evaluate(theta)
        parts = self.split(np, values), self.split(np, slopes), (values, slopes)
        return Coefficients(*parts, driven, self.windows, disturbed)

    @cached_property
    def windows(self) -> Array | None:
        """The interval over which each observable is averaged, in scaled time; None where there is none."""
        return None if self.intervals is None else self.intervals / self.units.time_scale

    @property
    def longest_window(self) -> float:
        """The longest interval over which an observable is averaged, in scaled time; zero where there is none."""
        return 0.0 if self.windows is None else float(self.windows.max())

    def split(self, xp: Any, table: Any) -> CoefficientArrays:
        """Return coefficient arrays in scaled time and units, from the values of the table or from their derivatives.

        Shapes: table (..., s).
        """
        raw = self.compiled.split(xp, table)
        free, columns, factors = self._unit_factors
        return CoefficientArrays(
            raw.free * match_array(xp, free, table),
            [part * match_array(xp, units, table) for part, units in zip(raw.mode_columns, columns, strict=True)],
            [part * match_array(xp, units, table) for part, units in zip(raw.factors, factors, strict=True)],
        )

    @cached_property
    def _unit_factors(self) -> tuple[Array, list[Array], list[Array]]:
        """What coefficients are multiplied by: k derivatives in scaled time are span^k derivatives in the user's."""
        span = self.units.time_scale

        def powers(length: int) -> Array:
            return span ** -np.arange(length, dtype=float)

        free = powers(self.compiled.free_shape[-1]) / self.units.scales[:, None, None]
        columns = [powers(length) / self.units.scales[:, None] for _, length in self.compiled.column_shapes]
        lengths = [factor.coefficients.stop - factor.coefficients.start for factor in self.compiled.factors]
        return free, columns, [np.ascontiguousarray(powers(length)[::-1] ** -1.0) for length in lengths]

    @property
    def _basis(self) -> ModeBasis:
        return ModeBasis(self.compiled.factors, self.units.time_scale)

    def mode_values(self, xp: Any, arrays: CoefficientArrays, groups: Sequence[ModeGroup], times: Any) -> Any:
        """Return the basis functions of the modes, seen through the observables, shape (..., o, n, r).

        Shapes: times (..., n).
        """
        return self._basis.values(xp, arrays, groups, times)

    def mode_basis(
        self, values: Coefficients, groups: Sequence[ModeGroup], times: Array, *, with_jacobian: bool
    ) -> tuple[list[Array], list[Array]]:
        """Return for each observable its basis functions, (n, r), and derivatives in the parameters, (p, n, r).

        Shapes: times (n,).
        """
        if values.windows is None:
            return self._basis.values_with_jacobian(values, groups, times, with_jacobian=with_jacobian)
        basis, d_basis = [np.zeros((0, 0))] * self.count, [np.zeros((0, 0, 0))] * self.count
        for window, rows in group_by_window(values.windows):
            parts = self._basis.values_with_jacobian(
                values.select(rows), groups, times - window, window, with_jacobian=with_jacobian
            )
            for row, own, d_own in zip(rows, *parts, strict=True):
                basis[row], d_basis[row] = own, d_own
        return basis, d_basis

    def mode_basis_vjp(
        self, values: Coefficients, groups: Sequence[ModeGroup], times: Array, weights: Sequence[Array]
    ) -> Array:
        """Return derivatives in the parameters of a weighted sum of the basis functions, shape (p,).

        Shapes: times (n,), weights (n, r).
        """
        if values.windows is None:
            return self._basis.vjp(values, groups, times, weights)
        total = np.zeros(len(values.table[1]))
        for window, rows in group_by_window(values.windows):
            own = [weights[row] for row in rows]
            total += self._basis.vjp(values.select(rows), groups, times - window, own, window)
        return total

    def exponents(
        self, values: Coefficients, groups: Sequence[ModeGroup], *, include_signals: bool = True
    ) -> NDArray[np.complex128]:
        """Return the exponents of all modes and particular solutions in scaled time."""
        span = self.units.time_scale
        found: list[complex] = []
        for group in groups:
            if group.root is not None:
                found.append(group.root * span)
            elif np.isfinite(values.factors[group.factor]).all():
                found += list(np.roots(values.factors[group.factor][::-1]))
            else:
                found.append(np.inf)
        for signal in self.compiled.signals if include_signals else ():
            rates = values.table[0][signal.coefficients].reshape(-1, 3)[:, 1:] * span
            found += list(rates[:, 0] + 1j * rates[:, 1])
        return np.array(found, dtype=complex)

    @cached_property
    def has_mean(self) -> bool:
        """Whether any observable has a particular solution, or a response to inputs, that is not zero."""
        return self.input_response is not None or any(signal.n_terms for signal in self.compiled.signals)

    def mean_values(self, xp: Any, table: Any, times: Any) -> Any:
        """Return the particular solution in scaled units, shape (..., o, n).

        Shapes: table (..., s), times (..., n).
        """
        signals = [signal.values(xp, times, table) for signal in self.compiled.signals]
        return xp.stack(signals, -2) / match_array(xp, self.units.scales[:, None], table)

    def means(
        self, values: Coefficients, times: Array, *, with_jacobian: bool = True
    ) -> tuple[list[Array], list[Array]]:
        """Return all that is known in scaled units at the user's times, (n,), and derivatives, (p, n).

        That is the particular solution, and the response to known inputs.

        Shapes: times (n,).
        """
        scales = self.units.scales
        if not self.has_mean:
            zero, flat = np.zeros(len(times)), np.zeros((len(values.free_jacobian), len(times)))
            return [zero] * len(scales), [flat] * len(scales)
        table = values.table if with_jacobian else (values.table[0], values.table[1][:0])
        found = [self._particular_solution(number, times, table) for number in range(self.count)]
        if not with_jacobian:
            found = [(v, np.zeros((len(values.free_jacobian), 1))) for v, _ in found]
        if self.input_response is not None and values.input_response_table is not None:
            response, d_response = self.input_response.respond(
                values.input_response_table, times, with_jacobian=with_jacobian
            )
            responses = zip(self.compiled.signals, found, response, d_response, strict=True)
            found = [(v + r, d + e) if signal.n_terms else (r, e) for signal, (v, d), r, e in responses]
        return [v / s for (v, _), s in zip(found, scales, strict=True)], [
            d / s for (_, d), s in zip(found, scales, strict=True)
        ]

    def _window(self, number: int) -> float:
        """Return the interval over which an observable is averaged, in the user's time."""
        return 0.0 if self.intervals is None else float(self.intervals[number])

    def _particular_solution(self, number: int, times: Array, table: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return the particular solution of an observable, or its average, (n,), and derivatives, (p, n)."""
        signal, window = self.compiled.signals[number], self._window(number)
        return signal.average(times - window, *table, window) if window else signal.evaluate(times, *table)

    def mean_vjp(self, values: Coefficients, times: Array, weights: Sequence[Array]) -> Array:
        """Return derivatives in the parameters of a weighted sum of all that is known, shape (p,).

        It never holds derivatives at all times.

        Shapes: times (n,), weights (n,).
        """
        total = np.zeros(len(values.free_jacobian))
        own = [weight / scale for weight, scale in zip(weights, self.units.scales, strict=True)]
        for number, (signal, weight) in enumerate(zip(self.compiled.signals, own, strict=True)):
            if signal.n_terms and not self._window(number):
                total += signal.vjp(times, *values.table, weight)
            elif signal.n_terms:
                total += self._particular_solution(number, times, values.table)[1] @ weight
        if self.input_response is not None and values.input_response_table is not None:
            total += self.input_response.vjp(values.input_response_table, times, np.stack(own))
        return total


@dataclass(frozen=True)
class ObservableCompiler:
    """Reads linear differential expressions in the channels of a system.

    inputs: Channels that are known for all times; the prior is that of the others.
    disturbances: Channels that drive the others and have processes of their own, and the kinds of these.
    """

    system: System
    inputs: Mapping[str, InputSignal] = field(default_factory=dict)
    disturbances: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def undriven_system(self) -> System:
        """The system of the channels that respond, where nothing drives them."""
        names = (*self.inputs, *self.disturbances)
        return self.system.given(names) if names else self.system

    def _set_to_zero(
        self, names: Sequence[str], expressions: Sequence[Expression]
    ) -> tuple[System, OperatorMatrix, list[ExponentialPolynomial]]:
        """Return the system with zero in the place of some channels, and expressions on the others."""
        is_all = len(names) == len(self.inputs) + len(self.disturbances)
        own = self.undriven_system if is_all else self.system.given(names, are_all=False) if names else self.system
        return own, *_read_operators(own, [drop_names(each, names) for each in expressions] if names else expressions)

    def parse(self, observables: Sequence[str]) -> tuple[OperatorMatrix, list[ExponentialPolynomial]]:
        """Return the operators on the channels, and the known functions of time beside them; before any averaging."""
        return _read_operators(self.system, [_parse_observable(text) for text in observables])

    def are_equivalent(self, first: str, second: str) -> bool:
        """Return whether two texts mean the same observable."""
        return averaging_time(first) == averaging_time(second) and self.parse([first]) == self.parse([second])

    @staticmethod
    def intervals(observables: Sequence[str]) -> Array | None:
        """Return the interval over which each observable is averaged; None where none is."""
        found = np.array([averaging_time(text) for text in observables])
        return found if found.any() else None

    def compile(self, observables: Sequence[str], units: Scaling) -> Observables:
        """Return observables compiled and scaled."""
        parsed, every = [_parse_observable(text) for text in observables], (*self.inputs, *self.disturbances)
        intervals, driven, disturbed = self.intervals(observables), None, None
        # Names that are no channels are found here, among all that there are.
        _read_operators(self.system, parsed if every else [])
        if self.inputs:
            own, matrix, _ = self._set_to_zero(tuple(self.disturbances), parsed)
            driven = InputResponse(
                compile_input_response(own, matrix, self.inputs), dict(self.inputs), units.start, intervals
            )
        if self.disturbances:
            own, matrix, _ = self._set_to_zero(tuple(self.inputs), parsed)
            disturbed = compile_disturbances(own, matrix, observables, self.disturbances)
        return Observables(compile_observables(*self._set_to_zero(every, parsed)), units, driven, intervals, disturbed)

    def compile_unscaled(self, observables: Sequence[str], units: Scaling) -> Observables:
        """Return observables in the user's own units, over the time of other units."""
        return self.compile(observables, units.unscaled(len(observables)))


def _parse_observable(text: str) -> Expression:
    """Return an observable, or what it is an average of, times the length of the interval for a total."""
    found = parse_interval(text)
    if found is None:
        return parse_expression(text)
    inner = parse_expression(found.expression)
    if not found.is_total:
        return inner
    return Product(inner.place, (("*", Number(inner.place, found.factor)), ("*", inner)))


def _read_operators(
    system: System, expressions: Sequence[Expression | None]
) -> tuple[OperatorMatrix, list[ExponentialPolynomial]]:
    """Return expressions as operators on the channels of a system, with what is known in them; None for zero."""
    operator = system.operator
    reader = LinearFormBuilder(operator.ring, system.channels)
    entries, known = [], []
    for expression in expressions:
        form = None if expression is None else reader.form(expression)
        entries.append([[] for _ in system.channels] if form is None else reader.operators(form))
        known.append(ExponentialPolynomial(operator.ring) if form is None else form.affine_term)
    return OperatorMatrix.from_scalars(operator.ring, entries, operator.width, operator.variable), known


@dataclass(frozen=True)
class EquationResiduals:
    """The terms ``a_ijk(theta) f_j^(k)`` of all equations, ``sum_jk a_ijk f_j^(k) = b_i``.

    derivatives: The channels and orders of derivatives that occur.
    terms: Equation, position in `derivatives`, coefficient.
    """

    system: System
    derivatives: list[tuple[int, int]]
    terms: list[tuple[int, int, Scalar]]

    @property
    def observables(self) -> list[str]:
        """The derivatives as expressions."""
        channels = self.system.channels
        return [f"D({channels[j]}, {k})" if k else channels[j] for j, k in self.derivatives]

    def residual(self, theta: Array, times: Array, values: Array, *, relative: bool) -> Array:
        """Return ``A(d) f - b`` from the values of all derivatives.

        Shapes: theta (p,), times (n,), values (s, n, derivatives).
        Returns array, shape (s, n, equations) (s, n, equations).
        """
        total, size = self._sums(theta, times, values)
        return total / np.where(size > 0, size, 1.0) if relative else total

    def magnitudes(self, theta: Array, times: Array, values: Array) -> Array:
        """Return the sums of the sizes of the terms, as `residual` divides by them, shape (s, n, equations)."""
        return self._sums(theta, times, values)[1]

    @cached_property
    def _functions(self) -> tuple[ScalarFunctions, SignalFunctions]:
        """The coefficients and the right sides: made once, and asked at the parameters of each of many curves."""
        ring = self.system.operator.ring
        return ScalarFunctions(ring, [value for *_, value in self.terms]), SignalFunctions(ring, self.system.forcing)

    def _sums(self, theta: Array, times: Array, values: Array) -> tuple[Array, Array]:
        """Return ``A(d) f - b`` and the sum of the sizes of its terms, both of shape (s, n, equations)."""
        table, sides = self._functions
        coefficients, _ = table.evaluate(theta)
        total = np.zeros((*values.shape[:2], len(self.system.equations)))
        size = np.zeros_like(total)
        for (equation, position, _), coefficient in zip(self.terms, coefficients, strict=True):
            part = coefficient * values[:, :, position]
            total[:, :, equation] += part
            size[:, :, equation] += np.abs(part)
        for equation, side in enumerate(sides.evaluate(theta, times)):
            total[:, :, equation] -= side
            size[:, :, equation] += np.abs(side)
        return total, size


def build_equation_residuals(system: System) -> EquationResiduals:
    """Return the terms of the equations of a system."""
    operator = system.operator
    found = [(i, (j, k), value) for i, j, k, value in operator.terms()]
    derivatives = sorted({pair for _, pair, _ in found})
    return EquationResiduals(system, derivatives, [(i, derivatives.index(pair), value) for i, pair, value in found])
