"""The recursion ``x[i] = x[i-1] P[i] + w[i]`` over many rows, without a loop over them.

Where all steps are equal, ``w[i] = v[i] B`` with few numbers v in a row is cheaper than w: B goes into the matrices.

Rows are cut into blocks. What each block adds to its end, from a state of zero at its start, is found for all blocks at
once; the states at their starts obey a recursion of the same kind that is shorter by the length of a block; and then
all blocks are run through side by side.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Equal steps one after the other, from which on they have a recursion of their own.
MIN_CONSTANT_RUN = 512
#: Different steps that are held in memory at the same time.
PIECE_ROWS = 1 << 17
#: Blocks of equal steps that are multiplied at once: they fit into the cache.
CHUNK_BLOCKS = 512
#: Length of a block of different steps: as many loops in Python as a block has steps, and no power of two.
BLOCK_ROWS = 61


def solve_recurrence(
    factors: Array,
    step_index: Numbers,
    states: Array,
    start: Array,
    *,
    backwards: bool = False,
    block: int | None = None,
) -> None:
    """Replace what is added at each step by the state after it, for k recursions with the same matrices.

    Shapes: factors (u, s, s), step_index (n,), states (k, n, s), start (k, s).
    """
    if not states.size:
        return
    if len(factors) == 1:
        solve_constant_recurrence(factors[0], None, states, start, states, backwards=backwards, block=block)
        return
    now = start
    parts = _split_runs(step_index)
    for low, high, equal in reversed(parts) if backwards else parts:
        own = states[:, low:high]
        if equal:
            solve_constant_recurrence(factors[step_index[low]], None, own, now, own, backwards=backwards, block=block)
        else:
            _solve_varying_recurrence(
                _select_factors(factors, step_index[low:high]),
                own,
                now,
                backwards,
                BLOCK_ROWS if block is None else block,
            )
        now = own[:, 0 if backwards else -1]


def _select_factors(factors: Array, step_index: Numbers) -> Array:
    """Return the factors of some steps, which are no copies where they stand one after the other."""
    in_order = len(step_index) <= len(factors) and bool((np.diff(step_index) == 1).all())
    return factors[step_index[0] : step_index[0] + len(step_index)] if in_order else factors[step_index]


def _split_runs(step_index: Numbers) -> list[tuple[int, int, bool]]:
    """Return where long runs of equal steps, and pieces of what lies between them, begin and end, and which it is."""
    count = len(step_index)
    changes = np.concatenate([[0], np.flatnonzero(np.diff(step_index)) + 1, [count]])
    found, done = [], 0
    for run in np.flatnonzero(np.diff(changes) >= MIN_CONSTANT_RUN).tolist():
        first, last = int(changes[run]), int(changes[run + 1])
        found += [(low, min(low + PIECE_ROWS, first), False) for low in range(done, first, PIECE_ROWS)]
        found.append((first, last, True))
        done = last
    return found + [(low, min(low + PIECE_ROWS, count), False) for low in range(done, count, PIECE_ROWS)]


def _split_blocks(count: int, block: int, backwards: bool) -> tuple[slice, slice]:
    """Return the rows that make whole blocks, which come first, and the rest."""
    whole = count - count % block
    return (slice(count - whole, None), slice(0, count - whole)) if backwards else (slice(0, whole), slice(whole, None))


def _iterate(factors: Array, states: Array, start: Array, backwards: bool) -> None:
    """Run through few steps one by one."""
    now, count = start, states.shape[1]
    for i in range(count - 1, -1, -1) if backwards else range(count):
        states[:, i] += now @ factors[i]
        now = states[:, i]


def solve_constant_recurrence(
    factor: Array,
    gain: Array | None,
    inputs: Array,
    start: Array,
    states: Array,
    *,
    backwards: bool = False,
    block: int | None = None,
) -> None:
    """Find the states of ``x[i] = x[i-1] P + v[i] B`` for k recursions with the same matrices; all steps are equal.

    Shapes: factor (s, s), gain (m, s), inputs (k, n, m), start (k, s), states (k, n, s).
    """
    many, count, size = states.shape
    # Products of matrices of about 48 by 48 are fast; and a length that is no power of two spreads over the cache.
    length = max(4, 48 // max(size, 1)) if block is None else block
    if count < 2 * length:
        _iterate_constant(factor, gain, inputs, start, states, backwards)
        return
    first, rest = _split_blocks(count, length, backwards)
    unit = np.eye(size)
    powers = np.empty((length + 2, size, size))
    powers[0] = unit
    for i in range(length):
        np.matmul(powers[i], factor, out=powers[i + 1])
    powers[-1] = 0.0
    apart = np.arange(length) - np.arange(length)[:, None]
    if backwards:  # from the last row of a block to the first
        apart = -apart
    shaped = (powers if gain is None else gain @ powers)[np.where(apart < 0, -1, apart)]
    inside = shaped.transpose(0, 2, 1, 3).reshape(-1, length * size)
    across = (powers[length:0:-1] if backwards else powers[1:-1]).transpose(1, 0, 2).reshape(size, length * size)
    rows = inputs[:, first].reshape(many, -1, len(inside))
    ends = rows @ (inside[:, :size] if backwards else inside[:, -size:])
    starts = _block_starts(ends, start, backwards)
    later = starts[:, :-1] if backwards else starts[:, 1:]
    solve_constant_recurrence(powers[length], None, later, start, later, backwards=backwards, block=length)
    whole, both = states[:, first], np.concatenate([across, inside])
    for low in range(0, rows.shape[1], CHUNK_BLOCKS):
        own = np.concatenate([starts[:, low : low + CHUNK_BLOCKS], rows[:, low : low + CHUNK_BLOCKS]], axis=-1)
        place = slice(low * length, low * length + own.shape[1] * length)
        whole[:, place] = (own @ both).reshape(many, -1, size)
    now = whole[:, 0 if backwards else -1]
    _iterate_constant(factor, gain, inputs[:, rest], now, states[:, rest], backwards)


def _iterate_constant(
    factor: Array, gain: Array | None, inputs: Array, start: Array, states: Array, backwards: bool
) -> None:
    """Run through few equal steps one by one."""
    count, size = states.shape[1:]
    states[:] = inputs if gain is None else inputs @ gain
    _iterate(np.broadcast_to(factor, (count, size, size)), states, start, backwards)


def _solve_varying_recurrence(factors: Array, states: Array, start: Array, backwards: bool, block: int) -> None:
    """Run through steps that have a matrix each, shape (n, s, s): blocks side by side, row for row."""
    many, count, size = states.shape
    if count < 2 * block:
        _iterate(factors, states, start, backwards)
        return
    first, rest = _split_blocks(count, block, backwards)
    # Blocks come last, so that each product is one of long vectors.
    own = np.ascontiguousarray(factors[first].reshape(-1, block, size, size).transpose(1, 2, 3, 0))
    rows = np.ascontiguousarray(states[:, first].reshape(many, -1, block, size).transpose(2, 0, 3, 1))
    order = range(block - 1, -1, -1) if backwards else range(block)
    product = np.zeros((size + many, size, own.shape[-1]))
    product[:size] = np.eye(size)[:, :, None]
    for i in order:
        product = np.einsum("ajb,jkb->akb", product, own[i])
        product[size:] += rows[i]
    starts = _block_starts(product[size:].swapaxes(1, 2), start, backwards)
    over = product[:size].transpose(2, 0, 1)
    if backwards:
        _solve_varying_recurrence(over[1:], starts[:, :-1], start, backwards, block)
    else:
        _solve_varying_recurrence(over[:-1], starts[:, 1:], start, backwards, block)
    now = np.ascontiguousarray(starts.swapaxes(1, 2))
    for i in order:
        rows[i] += np.einsum("kib,ijb->kjb", now, own[i])
        now = rows[i]
    whole = states[:, first]
    whole[:] = rows.transpose(1, 3, 0, 2).reshape(whole.shape)
    _solve_varying_recurrence(factors[rest], states[:, rest], whole[:, 0 if backwards else -1], backwards, block)


def _block_starts(ends: Array, start: Array, backwards: bool) -> Array:
    """Return the start in front of all blocks, and what each block but the last one adds to the next."""
    ordered = [ends[:, 1:], start[:, None]] if backwards else [start[:, None], ends[:, :-1]]
    return np.concatenate(ordered, axis=1)
