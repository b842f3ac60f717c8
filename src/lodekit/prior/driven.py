"""The response to known inputs, from rest at the start of the record: a mean, with derivatives in the parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import Scalar
from lodekit.data.inputs import InputSignal
from lodekit.prior.compile import ScalarTable
from lodekit.prior.responses.matrices import StateMatrices, integrate, observe
from lodekit.prior.responses.response import Response, ResponsePlan
from lodekit.system.system import System

__all__ = ["Drive", "Driven", "compile_drive"]

Array = NDArray[np.float64]
Places = NDArray[np.intp]
_MATRICES = ("F", "G", "H", "D", "D1")
#: Plans of responses at so many sets of times are kept.
_KEPT = 2


@dataclass(frozen=True)
class Drive:
    """Observables of a state space, ready for floats.

    Parameters
    ----------
    table : ScalarTable
        All numbers: those of the state space, then those of the observables on its channels and on its inputs.
    shapes : dict of str to tuple of int
        Of the matrices F, G, H, D and D1, and of the delays.
    on_channels, on_inputs : (int, int, int)
        Shapes of the coefficients of the observables: order of the derivative, observable, channel or input.
    inputs : tuple of str
        The channel of each input: those of the state space, then those that drive nothing by themselves.
    """

    table: ScalarTable
    shapes: dict[str, tuple[int, ...]]
    on_channels: tuple[int, int, int]
    on_inputs: tuple[int, int, int]
    inputs: tuple[str, ...]

    def matrices(self, table: tuple[Array, Array]) -> tuple[StateMatrices, StateMatrices]:
        """Return the state space of the observables, and its derivatives in the parameters.

        Parameters
        ----------
        table : (array, array)
            The numbers and their derivatives, shapes (s,) and (p, s).
        """
        values, on_channels, on_inputs = self._take_apart(table[0])
        slopes, d_on_channels, d_on_inputs = self._take_apart(table[1])
        return observe(values, slopes, (on_channels, d_on_channels), (on_inputs, d_on_inputs))

    def delays(self, table: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return by how much later each input acts, shape (m,), and derivatives in the parameters, (p, m).

        Parameters
        ----------
        table : (array, array)
            The numbers and their derivatives.
        """
        start = sum(math.prod(self.shapes[name]) for name in _MATRICES)
        stop, missing = start + self.shapes["delays"][0], self._missing
        values, slopes = (_widen(part[..., start:stop], missing) for part in table)
        # Inputs cannot act ahead: what asks for that has no response.
        return np.where(values < 0.0, np.nan, values), slopes

    @property
    def _missing(self) -> int:
        """How many of the inputs are no inputs of the state space."""
        return len(self.inputs) - self.shapes["G"][1]

    def _take_apart(self, table: Array) -> tuple[StateMatrices, Array, Array]:
        leading, start, found = table.shape[:-1], 0, []
        for shape in (*(self.shapes[name] for name in (*_MATRICES, "delays")), self.on_channels, self.on_inputs):
            stop = start + math.prod(shape)
            found.append(table[..., start:stop].reshape(*leading, *shape))
            start = stop
        F, G, H, D, D1, _, on_channels, on_inputs = found
        G, D, D1 = (_widen(part, self._missing) for part in (G, D, D1))
        return StateMatrices(F, G, H, D, D1), on_channels, on_inputs


def _widen(matrix: Array, columns: int) -> Array:
    """Return a matrix with so many more columns of zeros."""
    return np.concatenate([matrix, np.zeros((*matrix.shape[:-1], columns))], axis=-1) if columns else matrix


def compile_drive(system: System, operators: OperatorMatrix, inputs: Mapping[str, InputSignal]) -> Drive:
    """Return the response of observables to known inputs, ready for floats.

    Parameters
    ----------
    system : System
        With the inputs among its channels.
    operators : OperatorMatrix
        Each row holds the operators of one observable on the channels.
    inputs : dict of str to InputSignal
        The channels that are known.
    """
    space = system.state_space({name: signal.kind for name, signal in inputs.items()})
    scalars = list(space.scalars)
    # What only occurs with a delay drives nothing by itself, but may be looked at.
    others = tuple(name for name in inputs if name not in space.inputs)
    shapes = []
    for names in (space.outputs, (*space.inputs, *others)):
        columns = [system.channels.index(name) for name in names]
        shapes.append(_append(operators, columns, scalars))
    table = ScalarTable(system.operator.ring, scalars)
    return Drive(table, dict(space.shapes), shapes[0], shapes[1], (*space.channels, *others))


def _append(operators: OperatorMatrix, columns: list[int], scalars: list[Scalar]) -> tuple[int, int, int]:
    """Add the coefficients of observables on some channels, lowest derivative first; return their shape."""
    rows = [[operators.coefficients(i, j) for j in columns] for i in range(len(operators.rows))]
    length = max((len(entry) for row in rows for entry in row), default=0) or 1
    zero = operators.ring.rational(0)
    for k in range(length):
        scalars.extend(entry[k] if k < len(entry) else zero for row in rows for entry in row)
    return length, len(rows), len(columns)


@dataclass(frozen=True)
class Driven:
    """Observables of a state space that known inputs drive, from rest at a time.

    Parameters
    ----------
    drive : Drive
    signals : dict of str to InputSignal
        What drives it, by channel.
    start : float
        When it is at rest, in the user's time.
    intervals : array, shape (o,), optional
        The interval over which each observable is averaged, in the user's time, zero where it is none. An average is
        the difference of an integral, which is one more state, at the end and at the beginning of the interval.
    """

    drive: Drive
    signals: Mapping[str, InputSignal]
    start: float
    intervals: Array | None = None
    #: What was made last, by the identity of times and numbers: engines pass the same arrays again and again.
    _plans: list[tuple[Array, ResponsePlan, Places | None]] = field(default_factory=list, compare=False, repr=False)
    _last: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": [], "_last": {}}

    def starting_at(self, start: float, signals: Mapping[str, InputSignal]) -> Driven:
        """Return the same observables with other inputs, from rest at another time.

        Parameters
        ----------
        start : float
            In the user's time.
        signals : dict of str to InputSignal
        """
        return Driven(self.drive, dict(signals), start, self.intervals)

    def evaluate(self, theta: Array) -> tuple[Array, Array]:
        """Return all numbers at values of the parameters, (s,), and their derivatives, (p, s)."""
        return self.drive.table.evaluate(theta)

    def respond(self, table: tuple[Array, Array], times: Array, *, slopes: bool) -> tuple[Array, Array]:
        """Return the response in the user's units, shape (o, n), and derivatives in the parameters, (o, p, n).

        Parameters
        ----------
        table : (array, array)
            What `evaluate` returns.
        times : array, shape (n,)
            In the user's unit, in any order.
        slopes : bool
            Whether the derivatives are wanted; they are zero otherwise, and one for all times.
        """
        found, places = self._response(table, self._asked(times))
        values, count = found.values, len(table[1])
        values = values if places is None else values[:, places]
        if not slopes or not count:
            values = self._averaged(values, len(times))
            return values, np.zeros((len(values), count, 1))
        changes = found.jacobian(*self._slopes(table)).swapaxes(0, 1)
        changes = changes if places is None else changes[..., places]
        return self._averaged(values, len(times)), self._averaged(changes, len(times))

    def pull(self, table: tuple[Array, Array], times: Array, weights: Array) -> Array:
        """Return derivatives in the parameters of the sum of weights times the response, shape (p,).

        Parameters
        ----------
        table : (array, array)
            What `evaluate` returns.
        times : array, shape (n,)
            In the user's unit, in any order.
        weights : array, shape (o, n)
        """
        found, places = self._response(table, self._asked(times))
        weights = self._spread(weights)
        if places is not None:
            sums = np.zeros((len(weights), len(found.plan.times)))
            np.add.at(sums.T, places, weights.T)
            weights = sums
        return found.gradient(weights, *self._slopes(table))

    @cached_property
    def _lengths(self) -> list[tuple[float, NDArray[np.intp]]]:
        """The different intervals, and which observables are averaged over each."""
        if self.intervals is None:
            return []
        lengths = np.unique(self.intervals[self.intervals > 0])
        return [(float(length), np.flatnonzero(self.intervals == length)) for length in lengths]

    def _asked(self, times: Array) -> Array:
        """Return the times, and after them when the intervals begin that end there; the last ones are kept."""
        if not self._lengths:
            return times
        last = self._last.get("asked")
        if last is None or last[0] is not times:
            every = np.concatenate([times, *(times - length for length, _ in self._lengths)])
            last = self._last["asked"] = (times, every)
        return np.asarray(last[1])

    def _averaged(self, values: Array, count: int) -> Array:
        """Return observables from their integrals at all that is asked for, shape (o, ..., n)."""
        if not self._lengths:
            return values
        found = values[..., :count].copy()
        for number, (length, rows) in enumerate(self._lengths, 1):
            found[rows] -= values[rows, ..., number * count : (number + 1) * count]
            found[rows] /= length
        return found

    def _spread(self, weights: Array) -> Array:
        """Return weights of all that is asked for, from those of the observables: the transposed of `_averaged`."""
        if not self._lengths:
            return weights
        parts = [weights.copy()]
        for length, rows in self._lengths:
            parts[0][rows] /= length
            parts.append(np.zeros_like(weights))
            parts[-1][rows] = -parts[0][rows]
        return np.concatenate(parts, axis=1)

    def corners(self, theta: Array) -> Array:
        """Return the times at which some input jumps or has a corner, ascending.

        Parameters
        ----------
        theta : array, shape (p,)
            Values of the parameters, on which delays depend.
        """
        delays, _ = self.drive.delays(self.evaluate(theta))
        found = []
        for name, delay in zip(self.drive.inputs, delays, strict=True):
            signal = self.signals[name]
            # Held inputs jump where their value changes, linear ones have corners where their slope does.
            is_held = signal.kind == "hold"
            after = signal.values if is_held else signal.slopes_at(signal.times)
            before = after[:1] if is_held else np.zeros(1)
            found.append(signal.times[np.diff(after, prepend=before) != 0] + delay)
        return np.unique(np.concatenate(found))

    def _slopes(self, table: tuple[Array, Array]) -> tuple[StateMatrices, Array | None]:
        d_delays = self.drive.delays(table)[1]
        return self._matrices(table)[1], d_delays if d_delays.any() else None

    def _matrices(self, table: tuple[Array, Array]) -> tuple[StateMatrices, StateMatrices]:
        """Return the state space and its derivatives; the last ones are kept."""
        last = self._last.get("matrices")
        if last is None or last[0] is not table[0]:
            both = self.drive.matrices(table)
            if self._lengths:
                both = integrate(*both, np.concatenate([rows for _, rows in self._lengths]))
            last = self._last["matrices"] = (table[0], *both)
        return last[1], last[2]

    def _response(self, table: tuple[Array, Array], times: Array) -> tuple[Response, Places | None]:
        """Return the response at some times, and where these stand in it; the last one is kept."""
        last = self._last.get("response")
        if last is None or last[0] is not table[0] or last[1] is not times:
            plan, places = self._plan(times)
            found = plan.respond(self._matrices(table)[0], self.drive.delays(table)[0])
            last = self._last["response"] = (table[0], times, found, places)
        return last[2], last[3]

    def _plan(self, times: Array) -> tuple[ResponsePlan, Places | None]:
        """Return what does not depend on parameters at some times, and where these stand; the last few are kept."""
        for known, plan, places in self._plans:
            if known is times:
                return plan, places
        ordered, places = times, None
        if not (np.diff(times) > 0).all():
            ordered, places = np.unique(times, return_inverse=True)
        plan = ResponsePlan([self.signals[name] for name in self.drive.inputs], ordered, self.start)
        self._plans.append((times, plan, places))
        del self._plans[:-_KEPT]
        return plan, places
