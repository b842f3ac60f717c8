"""Discretization of state spaces between samples and rows: steps under zero-order hold or first-order hold.

`HoldDiscretization` uses Van Loan's method (Van Loan 1978): the exponential of a block matrix contains all terms.

`UniqueSteps` groups equal steps, so each is discretized once; `StepTable` interpolates many different ones by Chebyshev
series in the length of the step. `prepare_schedule` merges rows, samples and start into an `InputSchedule` for any dead
times (delays) of the inputs: the steps from row to row, and the inputs during each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.prior.expm import expm_frechet
from lodekit.support.arguments import Array, IndexArray


class HoldDiscretization:
    """Discretization of a state space for steps of any length, by Van Loan's method.

    F, G: Finite; (..., s, s) and (..., s, m), with any number of leading dimensions for many state spaces at once.
    hold_order: 0 for zero-order hold of all inputs (piecewise constant), 1 if an input is piecewise linear (first-order
        hold).
    """

    def __init__(self, F: Array, G: Array, hold_order: int) -> None:
        self.F, self.G, self.hold_order = F, G, hold_order
        self.n_states, self.n_inputs = int(G.shape[-2]), int(G.shape[-1])
        sizes = np.abs(G).max(-2, initial=0.0)
        # Powers of two: a step is linear in G, and a large G must not reduce the accuracy of F.
        self._input_scales = np.where(sizes > 0, np.exp2(np.ceil(np.log2(np.maximum(sizes, 1e-300)))), 1.0)

    @property
    def width(self) -> int:
        """Number of columns of a step matrix: states, inputs, and slopes of inputs for a first-order hold."""
        return self.n_states + (self.hold_order + 1) * self.n_inputs

    def discretize(self, steps: Array, jacobians: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Return ``[P, P0, P1]`` of each step, shape (..., k, s, width), and derivatives in the parameters, (p, ...).

        Derivatives are those of a single state space. Shapes: steps (k,), jacobians (p, s, s) and (p, s, m).
        """
        s, m, directions = self.n_states, self.n_inputs, None
        if jacobians is not None:
            directions = np.zeros((len(jacobians[0]), len(steps), self.width, self.width))
            directions[:, :, :s, :s] = jacobians[0][:, None] * steps[:, None, None]
            directions[:, :, :s, s : s + m] = (jacobians[1] / self._input_scales)[:, None]
        matrices, factors = self._van_loan_matrix(steps), self._column_factors(steps)
        values, jacobian = expm_frechet(matrices.reshape(-1, self.width, self.width), directions)
        values = values.reshape(matrices.shape)[..., :s, :] * factors
        return values, jacobian[:, :, :s] * (factors if len(jacobian) else 1.0)

    def vjp(self, steps: Array, cotangents: Array) -> tuple[Array, Array]:
        """Return the derivatives of ``sum cotangents * discretize(steps)`` in F, shape (s, s), and in G, (s, m).

        Shapes: steps (k,), cotangents (k, s, width).
        """
        s, directions = self.n_states, np.zeros((1, len(steps), self.width, self.width))
        directions[0, :, :s] = cotangents * self._column_factors(steps)
        # <W, L(X, dX)> = <L(X^T, W), dX> for the derivative L of the exponential.
        _, adjoint = expm_frechet(self._van_loan_matrix(steps).swapaxes(-1, -2), directions)
        in_F, in_G, _ = np.split(adjoint[0][:, :s], [s, s + self.n_inputs], axis=-1)
        return np.einsum("k,kij->ij", steps, in_F), in_G.sum(0) / self._input_scales

    def _van_loan_matrix(self, steps: Array) -> Array:
        s, m = self.n_states, self.n_inputs
        matrix = np.zeros((*self.F.shape[:-2], len(steps), self.width, self.width))
        matrix[..., :s, :s] = self.F[..., None, :, :] * steps[:, None, None]
        matrix[..., :s, s : s + m] = (self.G / self._input_scales[..., None, :])[..., None, :, :]
        if self.hold_order:
            matrix[..., s : s + m, s + m :] = np.eye(m)
        return matrix

    def _column_factors(self, steps: Array) -> Array:
        """Return the factors of the columns of the exponential, shape (..., k, 1, width)."""
        scales = self._input_scales[..., None, :]
        blocks = [np.ones((*scales.shape[:-2], len(steps), self.n_states))]
        blocks += [steps[:, None] ** (order + 1) * scales for order in range(self.hold_order + 1)]
        return np.concatenate(blocks, axis=-1)[..., None, :]


def chebyshev_order(turns: float) -> int:
    """Return the number of Chebyshev terms for waves up to a frequency, an even number.

    Sizes are rounded up to eighths of an octave, so that nearby points of a search share the matrices of one size.
    """
    # The terms of a wave are Bessel functions J_k(turns), which fall to rounding a little beyond k = turns.
    needed = turns + 6.0 * turns ** (1 / 3) + 14.0
    return 2 * int(np.ceil(2.0 ** (np.ceil(8.0 * np.log2(needed)) / 8.0) / 2.0))


def chebyshev_basis(x: Array, size: int) -> Array:
    """Return ``T_0 ... T_(size - 1)`` at points in [-1, 1], shape (size, n), by their recurrence.

    Shapes: x (n,).
    """
    return np.asarray(np.polynomial.chebyshev.chebvander(x, size - 1).T, dtype=float)


def chebyshev_transform(size: int) -> tuple[Array, Array]:
    """Return the points of a series, shape (size,), and the matrix from values there to its terms, (size, size)."""
    angles = (np.arange(size) + 0.5) * (np.pi / size)
    matrix = np.cos(np.outer(np.arange(size), angles)) * (2.0 / size)
    matrix[0] *= 0.5
    return np.cos(angles), matrix


#: Up to this number of distinct steps, each has its own exponential.
MAX_EXACT_STEPS = 48
#: Nodes of Chebyshev interpolation on one panel of steps.
N_CHEBYSHEV_NODES = 24
#: An interval between rows with more samples than this gets rows at all of them: long sums of jumps lose accuracy.
MAX_EVENTS_PER_STEP = 4
#: So does a step longer than a segment of a linear input by this factor, because its slope would cancel over the step.
MAX_STEP_TO_SEGMENT_RATIO = 1e3
#: The nodes on [-1, 1], and the matrix from values at the nodes to coefficients.
_CHEBYSHEV_NODES, _CHEBYSHEV_TRANSFORM = chebyshev_transform(N_CHEBYSHEV_NODES)


@dataclass(frozen=True, eq=False)
class UniqueSteps:
    """Distinct lengths of steps; lengths that differ only by rounding are equal.

    distinct: shape (u,)
    index: The index of each step's length; (n,).
    """

    distinct: Array
    index: IndexArray

    @classmethod
    def from_steps(cls, steps: Array, tolerance: float) -> Self:
        """Return the distinct lengths; those within a tolerance are replaced by their mean.

        Shapes: steps (n,).

        Examples
        --------
        >>> UniqueSteps.from_steps(np.diff([0.0, 0.1, 0.2, 0.30000000000000004, 0.5]), 1e-15).index.tolist()
        [0, 0, 0, 1]
        """
        if not steps.size:
            return cls(np.zeros(0), np.zeros(0, dtype=np.intp))
        # Equal steps are the common case, and need no sorting.
        if np.ptp(steps) <= 4.0 * tolerance:
            return cls(np.array([steps.mean()]), np.zeros(len(steps), dtype=np.intp))
        order = np.argsort(steps, kind="stable")
        ascending = steps[order]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(ascending) > tolerance) + 1])
        ends = np.concatenate([starts[1:], [len(steps)]])
        widest = (ascending[ends - 1] - ascending[starts]).max()
        if 2 * len(starts) > len(steps) or widest > 8.0 * tolerance:  # hardly any repeated, or a chain of neighbours
            return cls(steps, np.arange(len(steps)))
        index = np.empty(len(steps), dtype=np.intp)
        index[order] = np.repeat(np.arange(len(starts)), ends - starts)
        return cls(np.add.reduceat(ascending, starts) / (ends - starts), index)

    @cached_property
    def counts(self) -> IndexArray:
        """The number of steps of each length."""
        return np.bincount(self.index, minlength=len(self.distinct))

    @property
    def all_distinct(self) -> bool:
        """Whether there are as many lengths as steps."""
        return len(self.distinct) == len(self.index)

    @cached_property
    def _step_groups(self) -> list[IndexArray]:
        order = np.argsort(self.index, kind="stable")
        return np.split(order, np.cumsum(self.counts)[:-1])

    def apply(self, matrices: Array, vectors: Array) -> Array:
        """Return each step's matrix times its vector, shape (..., n, a).

        Shapes: matrices (..., u, a, b), vectors (n, b).
        """
        if len(self.distinct) == 1:
            return np.asarray(vectors @ matrices[..., 0, :, :].swapaxes(-1, -2))
        if self.all_distinct:
            return np.asarray(np.einsum("...nij,nj->...ni", matrices, vectors))
        if len(self.distinct) > MAX_EXACT_STEPS:
            return np.asarray(np.einsum("...nij,nj->...ni", matrices[..., self.index, :, :], vectors))
        products = np.empty((*matrices.shape[:-3], len(self.index), matrices.shape[-2]))
        for number, members in enumerate(self._step_groups):
            products[..., members, :] = vectors[members] @ matrices[..., number, :, :].swapaxes(-1, -2)
        return products

    def sum_outer_products(self, left: Array, right: Array) -> Array:
        """Return the sums of ``left right^T`` over the steps of each length, shape (u, a, b).

        Shapes: left, right (n, a) and (n, b).
        """
        if len(self.distinct) == 1:
            return np.asarray(left.T @ right)[None]
        if self.all_distinct:
            # Steps are the last axis in memory, here and in tables, so that products are of long vectors.
            return np.asarray(np.ascontiguousarray(left.T)[:, None] * np.ascontiguousarray(right.T)).transpose(2, 0, 1)
        return np.stack([left[members].T @ right[members] for members in self._step_groups])


class StepTable:
    """Step matrices of all lengths, from one or several lists of lengths, at given parameter values."""

    def __init__(self, hold: HoldDiscretization, *unique_steps: UniqueSteps) -> None:
        self.hold, self.unique_steps = hold, unique_steps
        distinct = self._distinct = np.concatenate([steps.distinct for steps in unique_steps])
        #: Steps with their own exponential; for panels of the others: members, weights, and indices of the nodes.
        self._exact: IndexArray = np.arange(len(distinct))
        self._panels: list[tuple[IndexArray | slice, Array, slice]] = []
        self._nodes = distinct
        is_interpolated = len(distinct) > MAX_EXACT_STEPS and hold.n_states
        at_nodes = self._build_panels() if is_interpolated else hold.discretize(distinct)[0]
        #: The matrix of each step, shape (u, s, width).
        self.matrices = self._interpolate_steps(at_nodes[None])[0]

    def jacobian(self, d_F: Array, d_G: Array) -> Array:
        """Return the derivatives of all steps, shape (p, u, s, width).

        Shapes: d_F, d_G (p, s, s) and (p, s, m).
        """
        return self._interpolate_steps(self.hold.discretize(self._nodes, (d_F, d_G))[1])

    def vjp(self, cotangents: Array) -> tuple[Array, Array]:
        """Return the derivatives of ``sum cotangents * matrices`` in F and G.

        Shapes: cotangents (u, s, width).
        """
        at_nodes = np.zeros((len(self._nodes), *cotangents.shape[1:]))
        at_nodes[: len(self._exact)] = cotangents[self._exact]
        for members, weights, nodes in self._panels:
            flat = cotangents[members].transpose(1, 2, 0).reshape(-1, weights.shape[1])
            in_nodes = (flat @ weights.T @ _CHEBYSHEV_TRANSFORM[: len(weights)]).T
            at_nodes[nodes] = in_nodes.reshape(N_CHEBYSHEV_NODES, *cotangents.shape[1:])
        return self.hold.vjp(self._nodes, at_nodes)

    def _interpolate_steps(self, at_nodes: Array) -> Array:
        """Return the matrices of all steps from those at the nodes, shape (p, u, s, width)."""
        if not self._panels:
            return at_nodes
        many, shape = len(at_nodes), at_nodes.shape[2:]
        found = np.empty((many, *shape, len(self._distinct)))
        found[..., self._exact] = np.moveaxis(at_nodes[:, : len(self._exact)], 1, -1)
        for members, weights, nodes in self._panels:
            flat = at_nodes[:, nodes].reshape(many, N_CHEBYSHEV_NODES, -1)
            coefficients = (_CHEBYSHEV_TRANSFORM[: len(weights)] @ flat).swapaxes(1, 2)
            found[..., members] = (coefficients @ weights).reshape(many, *shape, -1)
        return np.moveaxis(found, -1, 1)

    def _build_panels(self) -> Array:
        """Split the lengths into panels until all are interpolated to rounding; return the matrices at all nodes."""
        distinct = self._distinct
        # Frequent steps are not interpolated, as their errors would add up.
        is_frequent = np.concatenate([steps.counts for steps in self.unique_steps]) >= 64
        exact, others = [np.flatnonzero(is_frequent)], np.flatnonzero(~is_frequent)
        pending = [(distinct[others].min(), distinct[others].max(), others)] if others.size else []
        accepted: list[tuple[IndexArray, Array, Array, Array]] = []
        while pending:
            exact += [members for _, _, members in pending if len(members) <= N_CHEBYSHEV_NODES]
            pending = [panel for panel in pending if len(panel[2]) > N_CHEBYSHEV_NODES]
            nodes = np.array([0.5 * (low + high) + 0.5 * (high - low) * _CHEBYSHEV_NODES for low, high, _ in pending])
            found = self.hold.discretize(nodes.ravel())[0] if pending else np.zeros((0, 0, 0))
            halves = []
            for number, (low, high, members) in enumerate(pending):
                values = found[number * N_CHEBYSHEV_NODES : (number + 1) * N_CHEBYSHEV_NODES]
                middle = 0.5 * (low + high)
                needed = self._count_coefficients(values)
                if needed or not low < middle < high:
                    points = np.clip((distinct[members] - middle) / max(0.5 * (high - low), 1e-300), -1.0, 1.0)
                    basis = chebyshev_basis(points, needed or N_CHEBYSHEV_NODES)
                    accepted.append((members, basis, nodes[number], values))
                else:
                    below = distinct[members] <= middle
                    halves += [(low, middle, members[below]), (middle, high, members[~below])]
            pending = [panel for panel in halves if len(panel[2])]
        # In the order of the steps: without panels, these are all steps.
        self._exact = np.sort(np.concatenate(exact))
        for number, (members, weights, _, _) in enumerate(accepted):
            start = len(self._exact) + number * N_CHEBYSHEV_NODES
            place = slice(None) if len(members) == len(distinct) else members
            self._panels.append((place, weights, slice(start, start + N_CHEBYSHEV_NODES)))
        exact_steps = distinct[self._exact]
        self._nodes = np.concatenate([exact_steps, *(nodes for _, _, nodes, _ in accepted)])
        return np.concatenate([self.hold.discretize(exact_steps)[0], *(values for _, _, _, values in accepted)])

    def _count_coefficients(self, values: Array) -> int:
        """Return the number of coefficients above rounding for steps at nodes, (nodes, s, width); zero if too many."""
        sizes = np.abs(np.tensordot(_CHEBYSHEV_TRANSFORM, values, axes=1)).max(axis=1)
        largest = np.abs(values).max(axis=(0, 1))
        s, m = self.hold.n_states, self.hold.n_inputs
        blocks = [slice(0, s), *(slice(s + k * m, s + (k + 1) * m) for k in range(self.hold.hold_order + 1))]
        # Relative to the rounding error of the largest value; coefficients beyond the last two are smaller still.
        ratios = [
            sizes[:, block].max(axis=1, initial=0.0) / max(2e-15 * largest[block].max(initial=0.0), 1e-300)
            for block in blocks
        ]
        relative = np.max(ratios, axis=0)
        if (relative[-2:] > 1.0).any():
            return 0
        # Three guard coefficients, as those of derivatives decay slightly later.
        return min(N_CHEBYSHEV_NODES, int(np.flatnonzero(relative > 0.1).max(initial=0)) + 4)


@dataclass(frozen=True, eq=False)
class _PiecewiseInput:
    """A signal in the time of a schedule: piece i is between breaks i - 1 and i; the outer pieces are unbounded."""

    breaks: Array
    levels: Array  # of held pieces; for linear ones, at the breaks
    slopes: Array
    is_held: bool

    @cached_property
    def changes(self) -> Array:
        """At each break: jumps of held pieces, kinks of linear ones."""
        return np.diff(self.levels if self.is_held else self.slopes)

    @cached_property
    def shortest_segment(self) -> Array:
        """The length of the shorter piece beside each break; infinite if its slope is zero, as for held signals."""
        gaps = np.full(len(self.slopes), np.inf)
        gaps[1:-1] = np.where(self.slopes[1:-1] != 0, np.diff(self.breaks), np.inf)
        return np.asarray(np.minimum(gaps[:-1], gaps[1:]))

    def evaluate(self, times: Array, breaks: Array, first: IndexArray) -> tuple[Array, Array]:
        """Return value and slope at rows for delayed breaks; `first`: the first row of each piece except the first."""
        counts = np.diff(first, prepend=0, append=len(times))
        if self.is_held:
            return np.repeat(self.levels, counts), np.zeros(len(times))
        return np.interp(times, breaks, self.levels), np.repeat(self.slopes, counts)


def _read_pieces(signal: InputSignal, start: float, sign: float) -> _PiecewiseInput:
    """Return a signal in the time ``sign * (t - start)``."""
    breaks, values = sign * (signal.times - start), signal.values
    if sign < 0:
        breaks, values = breaks[::-1], values[::-1]
    if signal.kind == "linear":
        slopes = np.concatenate([[0.0], np.diff(values) / np.diff(breaks), [0.0]])
        return _PiecewiseInput(breaks, values, slopes, is_held=False)
    levels = np.concatenate([values[:1], values]) if sign > 0 else np.concatenate([values, values[-1:]])
    # Samples without a change are not breaks.
    is_jump = np.diff(levels) != 0
    levels = np.concatenate([levels[:1], levels[1:][is_jump]])
    return _PiecewiseInput(breaks[is_jump], levels, np.zeros(len(levels)), is_held=True)


#: The times of rows, ascending from the start (row 0 at time zero); the index of the requested rows; steps.
_ScheduleRows = tuple[Array, IndexArray | slice, UniqueSteps]


@dataclass(frozen=True, eq=False)
class InputSchedule:
    """Steps forwards or backwards from the start, in the time ``sign * (t - start)``.

    Events are jumps of held inputs and kinks of linear ones that happen between rows.

    sign: 1 forwards, -1 backwards.
    requested_index: The requested rows, counted from the start as row 0; a slice if all are requested; (k,).
    steps: The n steps between rows.
    step_inputs: Values of the inputs at the start of each step, and their slopes for a first-order hold; (n, width).
    jumps: Jumps of held inputs exactly at the start of each step; None if there are none; (n, m).
    event_steps: The step of each event; (e,).
    event_lags: The time from each event to the end of its step.
    event_inputs: The input of each event, or m more if its slope changes; (e,).
    event_sizes: The change at each event; (e,).
    feedthrough_inputs: Values of the inputs at the requested rows, from the right, and their slopes there, in the
        user's time; (2, m, k).
    """

    sign: float
    requested_index: IndexArray | slice
    steps: UniqueSteps
    step_inputs: Array
    jumps: Array | None
    event_steps: IndexArray
    event_lags: UniqueSteps
    event_inputs: IndexArray
    event_sizes: Array
    feedthrough_inputs: Array

    def forcing(self, at_steps: Array, at_events: Array) -> Array:
        """Return the forcing by inputs in each step, shape (..., n, s), from input matrices or their derivatives.

        Shapes: at_steps (..., u, s, width), at_events (..., e, s, width).
        """
        forcing = self.steps.apply(at_steps, self.step_inputs)
        if len(self.event_steps):
            self.add_events(forcing, self.event_lags.apply(at_events, self.event_changes))
        return forcing

    def add_events(self, forcing: Array, parts: Array) -> None:
        """Add the forcing by events, shape (..., e, s), to their steps, (..., n, s)."""
        step, count = self.event_steps, forcing.shape[-2]
        if self.has_single_events:
            forcing[..., step, :] += parts
            return
        for index in np.ndindex(*forcing.shape[:-2], forcing.shape[-1]):
            place = (*index[:-1], slice(None), index[-1])
            forcing[place] += np.bincount(step, weights=parts[place], minlength=count)

    @cached_property
    def event_changes(self) -> Array:
        """The changes of values and slopes at each event, one of which is nonzero, shape (e, width)."""
        changes = np.zeros((len(self.event_steps), self.step_inputs.shape[1]))
        changes[np.arange(len(changes)), self.event_inputs] = self.event_sizes
        return changes

    @cached_property
    def has_single_events(self) -> bool:
        """Whether each step has at most one event."""
        return bool((np.diff(self.event_steps) > 0).all())

    @cached_property
    def uniform_inputs(self) -> tuple[Array, IndexArray, IndexArray] | None:
        """All inputs of each step, shape (n, c), if steps are equal and there are few kinds of events; None otherwise.

        The first columns are `step_inputs`; each further column contains the events of one lag and one input, which
        are the second and third result.
        """
        count, width = self.step_inputs.shape
        # More than four kinds of events would need too many columns.
        if len(self.steps.distinct) != 1 or len(self.event_lags.distinct) > 4:
            return None
        kinds = self.event_lags.index * width + self.event_inputs
        lags, places = np.divmod(np.flatnonzero(np.bincount(kinds)), width)
        if not len(lags):
            return self.step_inputs, lags, places
        if len(lags) > 4:
            return None
        inputs = np.zeros((count, width + len(lags)))
        inputs[:, :width] = self.step_inputs
        for number, kind in enumerate((lags * width + places).tolist()):
            members = kinds == kind if len(lags) > 1 else slice(None)
            step, sizes, column = self.event_steps[members], self.event_sizes[members], inputs[:, width + number]
            if self.has_single_events:
                column[step] = sizes
            else:
                column += np.bincount(step, sizes, minlength=count)
        return inputs, lags, places


def prepare_schedule(
    signals: Sequence[InputSignal], start: float, times: Array, sign: float, hold_order: int
) -> Callable[[Array], InputSchedule]:
    """Return a function from delays, (m,), to the schedule of all times on one side of the start.

    Shapes: times (k,), ascending if the sign is 1, descending if it is -1, none beyond the start.
    """
    requested = sign * (times - start)
    largest = max([abs(start), *np.abs(times[-1:]), *(abs(signal.times[[0, -1]]).max() for signal in signals)])
    tolerance = 4.0 * float(np.finfo(float).eps * largest)
    pieces = [_read_pieces(signal, start, sign) for signal in signals]
    rows = _rows_at_times(requested, tolerance)
    longest = 1.001 * float(rows[2].distinct.max(initial=0.0))
    # Bounds for all delays, which save the search for crowded steps and short segments for each set of delays.
    shortest = min((piece.shortest_segment.min(initial=np.inf) for piece in pieces), default=np.inf)
    n_events = sum(longest // np.diff(piece.breaks).min(initial=np.inf) + 1 for piece in pieces)
    has_few_breaks = n_events <= MAX_EVENTS_PER_STEP and MAX_STEP_TO_SEGMENT_RATIO * shortest >= longest
    return partial(_build_schedule, rows, requested, pieces, tolerance, has_few_breaks, sign, hold_order)


def _build_schedule(
    rows: _ScheduleRows,
    requested: Array,
    pieces: Sequence[_PiecewiseInput],
    tolerance: float,
    has_few_breaks: bool,
    sign: float,
    hold_order: int,
    delays: Array,
) -> InputSchedule:
    """Return the schedule of inputs with given delays, (m,)."""
    tolerance = max(tolerance, 4.0 * float(np.finfo(float).eps * np.abs(delays).max(initial=0.0)))
    all_breaks = [piece.breaks + sign * delay for piece, delay in zip(pieces, delays.tolist(), strict=True)]
    rows = rows if has_few_breaks else _insert_break_rows(rows, requested, pieces, all_breaks, tolerance)
    row_times, requested_index, row_steps = rows
    count, m = len(row_times) - 1, len(pieces)
    step_inputs, feedthrough = np.zeros((count, (hold_order + 1) * m)), np.zeros((2, m, len(requested)))
    jumps: Array | None = None
    none = np.zeros(0, dtype=np.intp)
    events: list[tuple[IndexArray, Array, IndexArray, Array]] = [(none, np.zeros(0), none, np.zeros(0))]
    for column, (piece, breaks) in enumerate(zip(pieces, all_breaks, strict=True)):
        # The first row at or after each break; breaks that differ from a row only by rounding are at that row.
        row = np.searchsorted(row_times, breaks - tolerance)
        ahead = row_times[np.minimum(row, count)] - breaks
        on_row = np.abs(ahead) <= tolerance
        value, slope = before = piece.evaluate(row_times, breaks, row)
        if any_on_row := bool(on_row.any()):
            before = piece.evaluate(row_times, breaks, np.minimum(row + on_row, count + 1))
        step_inputs[:, column] = value[:-1]
        if not piece.is_held:
            step_inputs[:, m + column] = slope[:-1]
        elif any_on_row:
            jumps = np.zeros((count, m)) if jumps is None else jumps
            jumps[:, column] = (value - before[0])[:-1]
        from_right = (value, slope) if sign > 0 else before
        for part, factor, values in zip(feedthrough, (1.0, sign), from_right, strict=True):
            part[column] = factor * values[requested_index]
        is_event = (piece.changes != 0) & (row > 0) & (row <= count) & ~on_row
        place = np.full(np.count_nonzero(is_event), column if piece.is_held else m + column)
        events.append((row[is_event] - 1, ahead[is_event], place, piece.changes[is_event]))
    steps, lags, places, sizes = (np.concatenate(part) for part in zip(*events, strict=True))
    changes = steps, UniqueSteps.from_steps(lags, tolerance), places, sizes
    return InputSchedule(sign, requested_index, row_steps, step_inputs, jumps, *changes, feedthrough)


def _rows_at_times(requested: Array, tolerance: float) -> _ScheduleRows:
    """Return the start and all times as rows."""
    numbers = np.cumsum(np.concatenate([[0.0], requested[:-1]]) < requested, dtype=np.intp)
    times = np.zeros(numbers[-1] + 1 if len(requested) else 1)
    times[numbers] = requested
    index: IndexArray | slice = numbers
    if len(numbers) == len(times) and numbers[0] == 0:
        index = slice(0, None)
    elif len(numbers) == len(times) - 1:
        index = slice(1, None)
    return times, index, UniqueSteps.from_steps(np.diff(times), tolerance)


def _insert_break_rows(
    rows: _ScheduleRows,
    requested: Array,
    pieces: Sequence[_PiecewiseInput],
    all_breaks: Sequence[Array],
    tolerance: float,
) -> _ScheduleRows:
    """Return rows with additional ones at delayed breaks if a step has many breaks, or two breaks are very close."""
    times = rows[0]
    breaks = np.concatenate([np.zeros(0), *all_breaks])
    shortest = np.concatenate([np.zeros(0), *(piece.shortest_segment for piece in pieces)])
    inside = (breaks > tolerance) & (breaks < times[-1] - tolerance)
    breaks, shortest = breaks[inside], shortest[inside]
    step = np.searchsorted(times, breaks) - 1
    is_crowded = np.bincount(step, minlength=len(times)) > MAX_EVENTS_PER_STEP
    is_steep = MAX_STEP_TO_SEGMENT_RATIO * shortest < np.diff(times)[step]
    chosen = np.flatnonzero(is_crowded[step] | is_steep)
    if not len(chosen):
        return rows
    chosen = chosen[np.argsort(breaks[chosen], kind="stable")]
    # Both ends of a steep piece must stay, however short it is.
    extra, min_distance = breaks[chosen], np.where(is_steep[chosen], 0.0, tolerance)
    step = np.searchsorted(times, extra)
    distance = np.minimum(times[step] - extra, extra - times[step - 1])
    extra = extra[(distance > min_distance) & (np.diff(extra, prepend=-1.0) > min_distance)]
    times = np.sort(np.concatenate([times, extra]))
    return times, np.searchsorted(times, requested), UniqueSteps.from_steps(np.diff(times), tolerance)
