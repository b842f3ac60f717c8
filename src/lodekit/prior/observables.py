"""Observables, from texts to arrays: coefficients on free functions, modes and means, in scaled units.

`ObservableCompiler` parses linear differential expressions and interval averages. `Observables` evaluates the compiled
result and its derivatives in the parameters: coefficient arrays, basis functions of the modes and the prior mean.
`EquationResiduals` substitutes functions into the equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from lodekit.algebra.operators import OperatorMatrix
from lodekit.data.inputs import InputSignal
from lodekit.data.records import Scaling
from lodekit.errors import EquationError
from lodekit.prior import modes
from lodekit.prior.compile import (
    CoefficientArrays,
    Coefficients,
    CompiledObservables,
    ScalarFunctions,
    SignalFunctions,
    compile_observables,
)
from lodekit.prior.disturbances import CompiledDisturbances, compile_disturbances, realize_disturbance_response
from lodekit.prior.expm import expm_action
from lodekit.prior.input_response.mean import InputResponse, compile_input_response
from lodekit.prior.kernels import group_by_window, match_array
from lodekit.support.arguments import Array, ComplexArray, IndexArray
from lodekit.support.interval_means import averaging_time, parse_interval
from lodekit.system.dimensions import check_column_units
from lodekit.system.grammar import Expression, Number, Product, drop_names, parse_expression
from lodekit.system.linear import LinearFormBuilder
from lodekit.system.signals import ExponentialPolynomial
from lodekit.system.system import System


def table_checks(system: System, declared: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the checks of column names and units for a system, as arguments of `lodekit.data.sources.ReadOptions`."""
    check_units = partial(check_column_units, system, declared or {})
    return {"check": ObservableCompiler(system).parse, "check_units": check_units}


@dataclass(frozen=True)
class Observables:
    """Observables compiled and scaled: coefficients, basis functions of the modes and means at any parameters.

    input_response: The response to known inputs, if there are any.
    intervals: The interval over which each observable is averaged, in the user's time, ending at the time of a value;
        zero for instantaneous values. None if no observable is averaged; (o,).
    disturbances: The response to disturbances, if there are any.
    """

    compiled: CompiledObservables
    units: Scaling
    input_response: InputResponse | None = None
    intervals: Array | None = None
    disturbances: CompiledDisturbances | None = None

    @property
    def count(self) -> int:
        """Number of observables."""
        return len(self.units.scales)

    def with_time_origin(self, start: float, inputs: Mapping[str, InputSignal]) -> Observables:
        """Return the same observables with another time zero, and other inputs if there are any."""
        response = None if self.input_response is None else self.input_response.with_time_origin(start, inputs)
        return replace(self, units=replace(self.units, start=start), input_response=response)

    def evaluate(self, theta: Array) -> Coefficients:
        """Return coefficient arrays in scaled time and units, with derivatives in the parameters."""
        values, slopes = self.compiled.table.evaluate(theta)
        response = None if self.input_response is None else self.input_response.evaluate(theta)
        disturbed = None if self.disturbances is None else self.disturbances.table.evaluate(theta)
        arrays = self.split(np, values), self.split(np, slopes)
        return Coefficients(*arrays, (values, slopes), response, self.windows, disturbed)

    @cached_property
    def windows(self) -> Array | None:
        """The interval over which each observable is averaged, in scaled time; None if none is."""
        return None if self.intervals is None else self.intervals / self.units.time_scale

    @property
    def longest_window(self) -> float:
        """The longest interval over which an observable is averaged, in scaled time; zero if none is."""
        return 0.0 if self.windows is None else float(self.windows.max())

    def split(self, xp: Any, table: Any) -> CoefficientArrays:
        """Return coefficient arrays in scaled time and units, from the values of the table or from their derivatives.

        Shapes: table (..., s).
        """
        raw = self.compiled.split(xp, table)
        free, *others = self._unit_factors
        columns, factors = (
            [part * match_array(xp, unit, table) for part, unit in zip(parts, units, strict=True)]
            for parts, units in zip((raw.mode_columns, raw.factors), others, strict=True)
        )
        return CoefficientArrays(raw.free * match_array(xp, free, table), columns, factors)

    @cached_property
    def _unit_factors(self) -> tuple[Array, list[Array], list[Array]]:
        """Unit factors of the coefficients: k derivatives in scaled time are span^k derivatives in the user's."""
        span, scales = self.units.time_scale, self.units.scales
        free = span ** -np.arange(float(self.compiled.free_shape[-1])) / scales[:, None, None]
        counts = [factor.coefficients.stop - factor.coefficients.start for factor in self.compiled.factors]
        if any(factor.has_state_matrix for factor in self.compiled.factors):
            return free, [np.ones(self.compiled.column_shapes[0]) / scales[:, None]], [np.full(counts[0], span)]
        columns = [span ** -np.arange(float(length)) / scales[:, None] for _, length in self.compiled.column_shapes]
        return free, columns, [span ** np.arange(count - 1.0, -1.0, -1.0) for count in counts]

    def mode_values(
        self, xp: Any, arrays: CoefficientArrays, groups: Sequence[modes.ModeGroup], times: Any, window: float = 0.0
    ) -> Any:
        """Return the basis functions of the modes, or their averages, in terms of observables, shape (..., o, n, r).

        Shapes: times (..., n).
        """
        parts = []
        for group in groups:
            operators = arrays.mode_columns[group.column]
            if group.root is None:
                matrix = modes.mode_matrix(xp, arrays.factors[group.factor], group)
                parts.append(modes.fundamental_basis(xp, times, operators, matrix, group, window))
            else:
                root = group.root * self.units.time_scale
                parts.append(modes.exponential_basis(xp, times, operators, root, group.multiplicity, window))
        if parts:
            return xp.concat(parts, -1)
        leading = np.broadcast_shapes(tuple(times.shape[:-1]), tuple(arrays.free.shape[:-3]))
        shape = (*leading, arrays.free.shape[-3], times.shape[-1], 0)
        return xp.zeros(shape, dtype=times.dtype, device=times.device)

    def mode_basis(
        self, values: Coefficients, groups: Sequence[modes.ModeGroup], times: Array, *, with_jacobian: bool
    ) -> tuple[list[Array], list[Array]]:
        """Return for each observable its basis functions, (n, r), and derivatives in the parameters, (p, n, r).

        Shapes: times (n,).
        """
        basis, d_basis = [np.zeros((0, 0))] * self.count, [np.zeros((0, 0, 0))] * self.count
        for window, rows, selected in _split_by_window(values):
            if with_jacobian and groups:
                parts = self._mode_basis_with_jacobian(selected, groups, times - window, window)
            else:
                part = self.mode_values(np, selected.values, groups, times - window, window)
                parts = part, np.zeros((len(part), len(values.table[1]), *part.shape[1:]))
            for row, value, derivative in zip(rows, *parts, strict=True):
                basis[row], d_basis[row] = value, derivative
        return basis, d_basis

    def _mode_basis_with_jacobian(
        self, values: Coefficients, groups: Sequence[modes.ModeGroup], times: Array, window: float
    ) -> tuple[Array, Array]:
        """Return the basis functions, shape (o, n, r), and derivatives in the parameters, (o, p, n, r)."""
        parts, d_parts = [], []
        for group in groups:
            operators, matrix = self._mode_terms(values, group)
            if matrix is not None:
                outputs = modes.output_rows_with_jacobian(*operators, matrix, group, window)
                part, d_part = expm_action(*outputs, *matrix, times)
            else:
                # The basis is linear in the operators, so their derivatives replace them.
                part, d_part = (self._exponential_basis(times, W, group, window) for W in operators)
            parts.append(part)
            d_parts.append(d_part)
        return np.concat(parts, -1), np.concat(d_parts, -1).swapaxes(0, 1)

    def _exponential_basis(self, times: Array, operators: Array, group: modes.ModeGroup, window: float) -> Array:
        assert group.root is not None  # noqa: S101
        root = group.root * self.units.time_scale
        return np.asarray(modes.exponential_basis(np, times, operators, root, group.multiplicity, window))

    def _mode_terms(
        self, values: Coefficients, group: modes.ModeGroup
    ) -> tuple[tuple[Array, Array], modes.ModeMatrix | None]:
        """Return operators with derivatives, and the state matrix unless the root is fixed."""
        both = values.values, values.jacobian
        operators = both[0].mode_columns[group.column], both[1].mode_columns[group.column]
        if group.root is not None:
            return operators, None
        factor, d_factor = (part.factors[group.factor] for part in both)
        return operators, modes.mode_matrix_with_jacobian(factor, d_factor, group)

    def mode_basis_vjp(
        self, values: Coefficients, groups: Sequence[modes.ModeGroup], times: Array, weights: Sequence[Array]
    ) -> Array:
        """Return derivatives in the parameters of a weighted sum of the basis functions, shape (p,).

        Shapes: times (n,), weights (n, r).
        """
        total = np.zeros(len(values.table[1]))
        for window, rows, selected in _split_by_window(values):
            start = 0
            for group in groups:
                operators, matrix = self._mode_terms(selected, group)
                cotangents = np.stack([weights[row][:, start : start + group.size] for row in rows])
                if matrix is not None:
                    total += modes.fundamental_basis_vjp(times - window, *operators, matrix, group, cotangents, window)
                else:
                    jacobian = self._exponential_basis(times - window, operators[1], group, window)
                    total += np.tensordot(jacobian, cotangents, 3)
                start += group.size
        return total

    def exponents(
        self, values: Coefficients, groups: Sequence[modes.ModeGroup], *, include_signals: bool = True
    ) -> ComplexArray:
        """Return the exponents of all modes and particular solutions in scaled time."""
        span = self.units.time_scale
        exponents: list[complex] = []
        for group in groups:
            if group.root is not None:
                exponents.append(group.root * span)
                continue
            matrix = modes.mode_matrix(np, values.factors[group.factor], replace(group, multiplicity=1))
            is_finite = bool(np.isfinite(matrix).all())
            exponents += list(matrix[0] if len(matrix) == 1 else np.linalg.eigvals(matrix)) if is_finite else [np.inf]
        for signal in self.compiled.signals if include_signals else ():
            rates = values.table[0][signal.coefficients].reshape(-1, 3)[:, 1:] * span
            exponents += list(rates[:, 0] + 1j * rates[:, 1])
        return np.array(exponents, dtype=complex)

    @cached_property
    def has_mean(self) -> bool:
        """Whether any observable has a nonzero particular solution or a response to inputs."""
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
        """Return the prior mean of each observable in scaled units, (n,), and derivatives, (p, n), at the user's times.

        The mean is the particular solution plus the response to known inputs.

        Shapes: times (n,).
        """
        scales = self.units.scales
        if not self.has_mean:
            zero, flat = np.zeros(len(times)), np.zeros((len(values.free_jacobian), len(times)))
            return [zero] * len(scales), [flat] * len(scales)
        table = values.table if with_jacobian else (values.table[0], values.table[1][:0])
        parts = [
            signal.evaluate(times - window, *table, window)
            for signal, window in zip(self.compiled.signals, self._intervals, strict=True)
        ]
        if not with_jacobian:
            parts = [(v, np.zeros((len(values.free_jacobian), 1))) for v, _ in parts]
        if self.input_response is not None and values.input_response_table is not None:
            both = self.input_response.respond(values.input_response_table, times, with_jacobian=with_jacobian)
            responses = zip(self.compiled.signals, parts, *both, strict=True)
            parts = [(v + r, d + e) if signal.n_terms else (r, e) for signal, (v, d), r, e in responses]
        scaled = [(v / s, d / s) for (v, d), s in zip(parts, scales, strict=True)]
        return [v for v, _ in scaled], [d for _, d in scaled]

    @cached_property
    def _intervals(self) -> list[float]:
        """The interval over which each observable is averaged, in the user's time; zero for instantaneous values."""
        return [0.0] * self.count if self.intervals is None else self.intervals.tolist()

    def mean_vjp(self, values: Coefficients, times: Array, weights: Sequence[Array]) -> Array:
        """Return derivatives in the parameters of a weighted sum of the means, shape (p,).

        Derivatives at all times are never stored at once for constant signals and input responses.

        Shapes: times (n,), weights (n,).
        """
        total = np.zeros(len(values.free_jacobian))
        scaled = [weight / scale for weight, scale in zip(weights, self.units.scales, strict=True)]
        for signal, weight, window in zip(self.compiled.signals, scaled, self._intervals, strict=True):
            if signal.n_terms:
                total += signal.vjp(times - window, *values.table, weight, window)
        if self.input_response is not None and values.input_response_table is not None:
            total += self.input_response.vjp(values.input_response_table, times, np.stack(scaled))
        return total


def _split_by_window(values: Coefficients) -> list[tuple[float, IndexArray, Coefficients]]:
    """Return the distinct averaging windows, the observables with each, and their coefficients."""
    if values.windows is None:
        return [(0.0, np.arange(len(values.free)), values)]
    return [(window, rows, values.select(rows)) for window, rows in group_by_window(values.windows)]


@dataclass(frozen=True)
class ObservableCompiler:
    """Parser and compiler of linear differential expressions in the channels of a system.

    inputs: Channels that are known for all times; the prior applies to the others.
    disturbances: Kinds of the random channels that drive the others, by name.
    """

    system: System
    inputs: Mapping[str, InputSignal] = field(default_factory=dict)
    disturbances: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def undriven_system(self) -> System:
        """The system of the remaining channels with all inputs and disturbances set to zero."""
        names = (*self.inputs, *self.disturbances)
        return self.system.given(names) if names else self.system

    def _set_to_zero(
        self, names: Sequence[str], expressions: Sequence[Expression]
    ) -> tuple[System, OperatorMatrix, list[ExponentialPolynomial]]:
        """Return the system with some channels set to zero, and expressions on the others."""
        is_all = len(names) == len(self.inputs) + len(self.disturbances)
        system = self.undriven_system if is_all else self.system.given(names, are_all=False) if names else self.system
        return system, *_read_operators(system, [drop_names(each, names) for each in expressions])

    @cached_property
    def _disturbance_states(self) -> CompiledObservables | None:
        """The states that disturbances drive, as observables of the modes; None if there are free functions."""
        if self.undriven_system.free_functions:
            return None
        system, every = self._set_to_zero(tuple(self.inputs), [])[0], (*self.inputs, *self.disturbances)
        states = [parse_expression(text) for text in realize_disturbance_response(system, self.disturbances).states]
        return compile_observables(*self._set_to_zero(every, states)[:2])

    def parse(self, observables: Sequence[str]) -> tuple[OperatorMatrix, list[ExponentialPolynomial]]:
        """Return operators on the channels and known functions of time, before any averaging."""
        found = _read_operators(self.system, [_parse_observable(text) for text in observables])
        rows = {row for row, *_ in found[0].terms()}
        if constant := [text for row, text in enumerate(observables) if row not in rows]:
            kind = ", which is a parameter" if constant[0] in self.system.parameters else ""
            channels = ", ".join(self.system.plain_channels)
            raise EquationError(f"expected values of a channel ({channels}), got values of {constant[0]}{kind}")
        return found

    def are_equivalent(self, first: str, second: str) -> bool:
        """Return whether two texts mean the same observable."""
        return averaging_time(first) == averaging_time(second) and self.parse([first]) == self.parse([second])

    @staticmethod
    def intervals(observables: Sequence[str]) -> Array | None:
        """Return the interval over which each observable is averaged; None if none is."""
        intervals = np.array([averaging_time(text) for text in observables])
        return intervals if intervals.any() else None

    def compile(self, observables: Sequence[str], units: Scaling) -> Observables:
        """Return observables compiled and scaled."""
        parsed, every = [_parse_observable(text) for text in observables], (*self.inputs, *self.disturbances)
        intervals, response, disturbed = self.intervals(observables), None, None
        # Report unknown names while all channels are still present.
        _read_operators(self.system, parsed if every else [])
        if self.inputs:
            system, matrix, _ = self._set_to_zero(tuple(self.disturbances), parsed)
            state_space = compile_input_response(system, matrix, self.inputs)
            response = InputResponse(state_space, dict(self.inputs), units.start, intervals)
        if self.disturbances:
            system, matrix, _ = self._set_to_zero(tuple(self.inputs), parsed)
            disturbed = compile_disturbances(system, matrix, observables, self.disturbances)
            disturbed = replace(disturbed, states=self._disturbance_states)
        compiled = compile_observables(*self._set_to_zero(every, parsed))
        return Observables(compiled, units, response, intervals, disturbed)

    def compile_unscaled(self, observables: Sequence[str], units: Scaling) -> Observables:
        """Return observables in the user's units, with the time scaling of given units."""
        return self.compile(observables, units.unscaled(len(observables)))


def _parse_observable(text: str) -> Expression:
    """Return an observable; for an average its expression, and for a total that times the length of the interval."""
    interval = parse_interval(text)
    if interval is None:
        return parse_expression(text)
    expression, window, is_total = interval
    inner = parse_expression(expression)
    return Product(inner.place, (("*", Number(inner.place, window)), ("*", inner))) if is_total else inner


def _read_operators(
    system: System, expressions: Sequence[Expression | None]
) -> tuple[OperatorMatrix, list[ExponentialPolynomial]]:
    """Return expressions (None for zero) as operators on the channels of a system, with their known parts."""
    operator = system.operator
    reader = LinearFormBuilder(operator.ring, system.channels)
    entries, known = [], []
    for expression in expressions:
        form = None if expression is None else reader.form(expression)
        entries.append([[] for _ in system.channels] if form is None else reader.operators(form))
        known.append(ExponentialPolynomial(operator.ring) if form is None else form.affine_term)
    return OperatorMatrix.from_scalars(operator.ring, entries, operator.width, operator.variable), known


class EquationResiduals:
    """The terms ``a_ijk(theta) f_j^(k)`` of all equations, ``sum_jk a_ijk f_j^(k) = b_i``.

    `derivatives` lists the channels and orders of derivatives that occur; `terms` has an equation, a position in
    `derivatives` and a coefficient for each term.
    """

    def __init__(self, system: System) -> None:
        self.system, all_terms = system, list(system.operator.terms())
        self.derivatives = sorted({(j, k) for _, j, k, _ in all_terms})
        self.terms = [(i, self.derivatives.index((j, k)), value) for i, j, k, value in all_terms]
        ring = system.operator.ring
        self._coefficients = ScalarFunctions(ring, [value for *_, value in all_terms])
        self._forcing = SignalFunctions(ring, system.forcing)

    @property
    def observables(self) -> list[str]:
        """The derivatives as expressions."""
        channels = self.system.channels
        return [f"D({channels[j]}, {k})" if k else channels[j] for j, k in self.derivatives]

    def residual(self, theta: Array, times: Array, values: Array, *, relative: bool) -> Array:
        """Return ``A(d) f - b`` from the values of all derivatives.

        Shapes: theta (p,), times (n,), values (s, n, derivatives).
        Returns an array of shape (s, n, equations).
        """
        total, size = self._sums(theta, times, values)
        return total / np.where(size > 0, size, 1.0) if relative else total

    def magnitudes(self, theta: Array, times: Array, values: Array) -> Array:
        """Return the sums of the absolute values of the terms, shape (s, n, equations)."""
        return self._sums(theta, times, values)[1]

    def _sums(self, theta: Array, times: Array, values: Array) -> tuple[Array, Array]:
        """Return ``A(d) f - b`` and the sum of the sizes of its terms, both of shape (s, n, equations)."""
        coefficients, _ = self._coefficients.evaluate(theta)
        total = np.zeros((*values.shape[:2], len(self.system.equations)))
        size = np.zeros_like(total)
        for (equation, position, _), coefficient in zip(self.terms, coefficients, strict=True):
            part = coefficient * values[:, :, position]
            total[:, :, equation] += part
            size[:, :, equation] += np.abs(part)
        for equation, (side, _) in enumerate(self._forcing.evaluate(theta, times)):
            total[:, :, equation] -= side
            size[:, :, equation] += np.abs(side)
        return total, size
