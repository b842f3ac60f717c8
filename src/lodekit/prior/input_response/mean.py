"""The response to known inputs, from rest at the start of the record: a prior mean, with derivatives.

`InputResponse` covers one record, or one chunk of a long record: `ChunkStates` propagates states forward and adjoint
states backward from chunk to chunk, so the gradient is that of the whole record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import Scalar
from lodekit.data.inputs import InputSignal
from lodekit.prior.compile import ScalarFunctions, split_table
from lodekit.prior.input_response.response import (
    ResponsePlan,
    StateMatrices,
    StateSpaceResponse,
    append_integrators,
    observable_state_space,
    respond_many,
)
from lodekit.prior.kernels import group_by_window
from lodekit.support.arguments import Array, IndexArray
from lodekit.system.system import System

_MATRIX_NAMES = ("A", "B", "C", "D", "D1")


@dataclass(frozen=True)
class CompiledInputResponse:
    """Observables of a state space, compiled to floats.

    scalars: The scalars of the state space, then those of the observables on its channels and on its inputs.
    shapes: Shapes of the matrices F, G, H, D and D1, and of the delays.
    channel_operator_shape, input_operator_shape: Shapes of the coefficients of the observables: order of the
        derivative, observable, channel or input.
    inputs: The channel of each input: those of the state space, then others that do not drive it.
    """

    scalars: ScalarFunctions
    shapes: dict[str, tuple[int, ...]]
    channel_operator_shape: tuple[int, int, int]
    input_operator_shape: tuple[int, int, int]
    inputs: tuple[str, ...]

    def matrices(self, table: tuple[Array, Array]) -> tuple[StateMatrices, StateMatrices]:
        """Return the state space of the observables, and its derivatives in the parameters."""
        values, on_channels, on_inputs = self._split(table[0])
        slopes, d_on_channels, d_on_inputs = self._split(table[1])
        return observable_state_space(values, slopes, (on_channels, d_on_channels), (on_inputs, d_on_inputs))

    def delays(self, table: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return the delay of each input, shape (m,), and derivatives in the parameters, (p, m)."""
        start = sum(math.prod(self.shapes[name]) for name in _MATRIX_NAMES)
        stop, missing = start + self.shapes["delays"][0], self._n_extra_inputs
        values, slopes = (_append_zero_columns(part[..., start:stop], missing) for part in table)
        # A negative delay is not causal and has no response.
        return np.where(values < 0.0, np.nan, values), slopes

    @property
    def _n_extra_inputs(self) -> int:
        """The number of inputs that are not inputs of the state space."""
        return len(self.inputs) - self.shapes["B"][1]

    def _split(self, table: Array) -> tuple[StateMatrices, Array, Array]:
        shapes = [self.shapes[name] for name in (*_MATRIX_NAMES, "delays")]
        parts = split_table(np, table, [*shapes, self.channel_operator_shape, self.input_operator_shape])
        F, G, H, D, D1, _, on_channels, on_inputs = parts
        G, D, D1 = (_append_zero_columns(part, self._n_extra_inputs) for part in (G, D, D1))
        return StateMatrices(F, G, H, D, D1), on_channels, on_inputs


def _append_zero_columns(matrix: Array, columns: int) -> Array:
    """Return a matrix with additional columns of zeros."""
    return np.concatenate([matrix, np.zeros((*matrix.shape[:-1], columns))], axis=-1) if columns else matrix


def compile_input_response(
    system: System, operators: OperatorMatrix, inputs: Mapping[str, InputSignal]
) -> CompiledInputResponse:
    """Return the response of observables to known inputs, compiled to floats."""
    space = system.state_space({name: signal.kind for name, signal in inputs.items()})
    scalars = list(space.scalars)
    # An input that occurs only with a delay does not drive the states, but may be an observable.
    others = tuple(name for name in inputs if name not in space.inputs)
    shapes = []
    for names in (space.outputs, (*space.inputs, *others)):
        columns = [system.channels.index(name) for name in names]
        shapes.append(_append_coefficients(operators, columns, scalars))
    table = ScalarFunctions(system.operator.ring, scalars)
    return CompiledInputResponse(table, dict(space.shapes), shapes[0], shapes[1], (*space.channels, *others))


def _append_coefficients(operators: OperatorMatrix, columns: list[int], scalars: list[Scalar]) -> tuple[int, int, int]:
    """Append the coefficients of observables on some channels, lowest derivative first; return their shape."""
    rows = [[operators.coefficients(i, j) for j in columns] for i in range(len(operators.rows))]
    length = max((len(entry) for row in rows for entry in row), default=0) or 1
    zero = operators.ring.rational(0)
    for k in range(length):
        scalars.extend(entry[k] if k < len(entry) else zero for row in rows for entry in row)
    return length, len(rows), len(columns)


@dataclass(frozen=True)
class InputResponse:
    """Observables of a state space driven by known inputs, from rest at the start.

    signals: The inputs, by channel.
    start: The time at which the states are zero, or at which the chunk starts, in the user's time.
    intervals: The interval over which each observable is averaged, in the user's time, zero for point values. An
        average is the difference of an integral, an additional state, between the ends of the interval; (o,).
    chunk_states: The states at the boundaries of chunks if this is one chunk of a record, `chunk_index`; None for a
        whole record. Chunks have no averages, and their gradients must be computed from the last chunk to the first.
    """

    compiled: CompiledInputResponse
    signals: Mapping[str, InputSignal]
    start: float
    intervals: Array | None = None
    chunk_states: ChunkStates | None = field(default=None, compare=False, repr=False)
    chunk_index: int = 0
    #: The last results, by the identity of the arrays: engines pass the same arrays repeatedly.
    _plans: list[tuple[Array, ResponsePlan, IndexArray | slice]] = field(
        default_factory=list, compare=False, repr=False
    )
    _last: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": [], "_last": {}}

    def with_time_origin(self, start: float, signals: Mapping[str, InputSignal]) -> InputResponse:
        """Return the same observables with other inputs, from rest at another time."""
        return InputResponse(self.compiled, dict(signals), start, self.intervals)

    def evaluate(self, theta: Array) -> tuple[Array, Array]:
        """Return all scalars at parameter values, (s,), and their derivatives, (p, s)."""
        return self.compiled.scalars.evaluate(theta)

    def respond(self, table: tuple[Array, Array], times: Array, *, with_jacobian: bool) -> tuple[Array, Array]:
        """Return the response in the user's units, shape (o, n), and derivatives in the parameters, (o, p, n).

        The derivatives are zero, (o, p, 1), if they are not requested, and in a chunk, which has only gradients.

        Shapes: times (n,).
        """
        response, places = self._response(table, self._requested_times(times))
        parts = [response.values]
        if with_jacobian and len(table[1]) and self.chunk_states is None:
            parts.append(response.jacobian(*self._jacobians(table)).swapaxes(0, 1))
        values, *jacobian = (self._average(part[..., places], len(times)) for part in parts)
        return values, jacobian[0] if jacobian else np.zeros((len(values), len(table[1]), 1))

    def respond_many(self, theta: Array, times: Array) -> Array:
        """Return the response without averages at k parameter values with the same delays, shape (k, o, n).

        Shapes: theta (k, p), times (n,).
        """
        values = self.compiled.scalars.evaluate_values(np, theta)
        table, (plan, places) = (values, np.zeros((0, *values.shape))), self._plan(times)
        matrices, delays = self.compiled.matrices(table)[0], self.compiled.delays(table)[0]
        return respond_many(plan, matrices, delays[0])[..., places]

    def vjp(self, table: tuple[Array, Array], times: Array, cotangents: Array) -> Array:
        """Return derivatives in the parameters of the sum of weights times the response, shape (p,).

        Those of a chunk include the effect on all later chunks.

        Shapes: times (n,), cotangents (o, n).
        """
        response, places = self._response(table, self._requested_times(times))
        cotangents = self._average_vjp(cotangents)
        weights = np.zeros((len(cotangents), len(response.plan.times)))
        if isinstance(places, slice):
            weights[:, places] = cotangents
        else:
            np.add.at(weights.T, places, cotangents.T)
        adjoints = {} if self.chunk_states is None else self.chunk_states.adjoints
        final_adjoint = adjoints[self.chunk_index + 1] if self._has_next_chunk else None
        gradient, adjoints[self.chunk_index] = response.gradient(weights, *self._jacobians(table), final_adjoint)
        return gradient

    @property
    def _has_next_chunk(self) -> bool:
        return self.chunk_states is not None and self.chunk_index + 1 < len(self.chunk_states.starts)

    @cached_property
    def _averaging_groups(self) -> list[tuple[float, IndexArray]]:
        """The distinct intervals, and the observables averaged over each."""
        groups = [] if self.intervals is None else group_by_window(self.intervals)
        return [(length, rows) for length, rows in groups if length > 0]

    def _requested_times(self, times: Array) -> Array:
        """Return the times, followed by the starts of the intervals that end there; the last ones are cached."""
        if not self._averaging_groups:
            return times
        last = self._last.get("asked")
        if last is None or last[0] is not times:
            every = np.concatenate([times, *(times - length for length, _ in self._averaging_groups)])
            last = self._last["asked"] = (times, every)
        return np.asarray(last[1])

    def _average(self, values: Array, count: int) -> Array:
        """Return observables from their integrals at all requested times, shape (o, ..., n)."""
        if not self._averaging_groups:
            return values
        found = values[..., :count].copy()
        for number, (length, rows) in enumerate(self._averaging_groups, 1):
            found[rows] -= values[rows, ..., number * count : (number + 1) * count]
            found[rows] /= length
        return found

    def _average_vjp(self, weights: Array) -> Array:
        """Return weights at all requested times from those of the observables: the transpose of `_average`."""
        if not self._averaging_groups:
            return weights
        parts = [weights.copy()]
        for length, rows in self._averaging_groups:
            parts[0][rows] /= length
            parts.append(np.zeros_like(weights))
            parts[-1][rows] = -parts[0][rows]
        return np.concatenate(parts, axis=1)

    def breakpoints(self, theta: Array) -> Array:
        """Return the times at which an input jumps or has a kink, ascending.

        Shapes: theta (p,).
        """
        delays, _ = self.compiled.delays(self.evaluate(theta))
        found = []
        for name, delay in zip(self.compiled.inputs, delays, strict=True):
            signal = self.signals[name]
            # Held inputs jump at changes of their value, linear ones have kinks at changes of their slope.
            is_held = signal.kind == "hold"
            after = signal.values if is_held else signal.derivative_at(signal.times)
            before = after[:1] if is_held else np.zeros(1)
            found.append(signal.times[np.diff(after, prepend=before) != 0] + delay)
        return np.unique(np.concatenate(found))

    def _jacobians(self, table: tuple[Array, Array]) -> tuple[StateMatrices, Array | None]:
        d_delays = self.compiled.delays(table)[1]
        return self._matrices(table)[1], d_delays if d_delays.any() else None

    def _matrices(self, table: tuple[Array, Array]) -> tuple[StateMatrices, StateMatrices]:
        """Return the state space and its derivatives; the last ones are cached."""
        last = self._last.get("matrices")
        if last is None or last[0] is not table[0]:
            both = self.compiled.matrices(table)
            if self._averaging_groups:
                both = append_integrators(*both, np.concatenate([rows for _, rows in self._averaging_groups]))
            last = self._last["matrices"] = (table[0], *both)
        return last[1], last[2]

    def _response(self, table: tuple[Array, Array], times: Array) -> tuple[StateSpaceResponse, IndexArray | slice]:
        """Return the response at some times, and the indices of these in it; the last one is cached."""
        last = self._last.get("response")
        if last is None or last[0] is not table[0] or last[1] is not times:
            if self.chunk_states is None:
                plan, places = self._plan(times)
                response = StateSpaceResponse(plan, self._matrices(table)[0], self.compiled.delays(table)[0])
            else:
                initial_state = self.chunk_states.state_at_start(self.chunk_index, table)
                response, places = self.respond_from(table, times, initial_state)
                self.chunk_states.states[self.chunk_index + 1] = response.final_state
            last = self._last["response"] = (table[0], times, response, places)
        return last[2], last[3]

    def _plan(self, times: Array) -> tuple[ResponsePlan, IndexArray | slice]:
        """Return the part of a response that depends on no parameter, and the indices of the times; both are cached."""
        for known, plan, places in self._plans:
            if known is times:
                return plan, places
        ordered, places = _sort_times(times)
        plan = ResponsePlan([self.signals[name] for name in self.compiled.inputs], ordered, self.start)
        self._plans.append((times, plan, places))
        del self._plans[:-2]
        return plan, places

    def respond_from(
        self, table: tuple[Array, Array], times: Array, initial_state: Array
    ) -> tuple[StateSpaceResponse, IndexArray | slice]:
        """Return the response of a chunk from an initial state, at some times and at its end, and their indices.

        Shapes: initial_state (s,).
        """
        delays = self.compiled.delays(table)[0]
        ends = self.chunk_states.starts[self.chunk_index + 1 : self.chunk_index + 2] if self.chunk_states else []
        ordered, places = _sort_times(np.append(times, ends))
        places = slice(0, len(times)) if isinstance(places, slice) else places[: len(times)]
        last = float(ordered[-1]) if len(ordered) else self.start
        # With a margin for rounding: an additional sample at either end changes nothing.
        first = self.start - float(np.nanmax(delays, initial=0.0))
        room = 1e-9 * (last - first) + 4.0 * float(np.spacing(max(abs(first), abs(last))))
        signals = [self.signals[name].restricted_to(first - room, last + room) for name in self.compiled.inputs]
        plan = ResponsePlan(signals, ordered, self.start)
        return StateSpaceResponse(plan, self._matrices(table)[0], delays, initial_state), places


def _sort_times(times: Array) -> tuple[Array, IndexArray | slice]:
    """Return times in strictly ascending order, and the indices of the given ones in them."""
    return (times, slice(None)) if (np.diff(times) > 0).all() else np.unique(times, return_inverse=True)


@dataclass(frozen=True, eq=False)
class ChunkStates:
    """States and adjoint states at the boundaries between chunks of a record.

    compiled: Observables of a state space.
    signals: The inputs in the whole record, by channel.
    starts: The start of each chunk, in the user's time; states are at rest at the first one.
    initial_state: Maps the scalars to the states at the start of the first chunk, if rows before it were omitted.
    """

    compiled: CompiledInputResponse
    signals: Mapping[str, InputSignal]
    starts: Sequence[float]
    initial_state: Callable[[Array], Array] | None = None
    #: States and adjoint states at the start of chunks, at the last values of the parameters.
    states: dict[int, Array] = field(default_factory=dict, repr=False)
    adjoints: dict[int, Array] = field(default_factory=dict, repr=False)
    _last: dict[str, Any] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "states": {}, "adjoints": {}, "_last": {}}

    def chunk(self, number: int) -> InputResponse:
        """Return the observables in one chunk."""
        start = float(self.starts[number])
        return InputResponse(self.compiled, self.signals, start, chunk_states=self, chunk_index=number)

    def reset_if_changed(self, table: Array) -> None:
        """Clear the cache if the parameters have changed."""
        key = table.tobytes()
        if self._last.get("key") != key:
            self._last["key"] = key
            self.states.clear()
            self.adjoints.clear()

    def state_at_start(self, number: int, table: tuple[Array, Array]) -> Array:
        """Return the states at the start of a chunk, propagated through earlier chunks if necessary."""
        self.reset_if_changed(table[0])
        nearest = max((known for known in self.states if known <= number), default=0)
        if nearest not in self.states:
            size = self.compiled.shapes["A"][0]
            self.states[0] = np.zeros(size) if self.initial_state is None else self.initial_state(table[0])
        for place in range(nearest, number):
            response, _ = self.chunk(place).respond_from(table, np.zeros(0), self.states[place])
            self.states[place + 1] = response.final_state
        return self.states[number]
