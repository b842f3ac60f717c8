"""Linear recurrences ``x[i] = x[i-1] P[i] + w[i]`` over many rows, parallel in blocks of rows.

The contribution of each block to its end, from a zero state at its start, is computed for all blocks at once; the
states at the starts of blocks obey a shorter recurrence of the same kind; finally all blocks are solved in parallel.
With constant P, ``w[i] = v[i] B`` for few inputs v is cheaper than w: B is multiplied into the matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lodekit.support.arguments import Array, IndexArray


def solve_recurrence(
    factors: Array,
    step_index: IndexArray,
    states: Array,
    start: Array,
    *,
    backwards: bool = False,
    block: int | None = None,
) -> None:
    """Replace the forcing of each step by the state after it, in place, for k recurrences with the same matrices.

    Shapes: factors (u, s, s), step_index (n,), states (k, n, s), start (k, s).
    """
    if not states.size:
        return
    if len(factors) == 1:
        solve_constant_recurrence(factors[0], None, states, start, states, backwards=backwards, block=block)
        return
    state = start
    parts = _split_runs(step_index)
    for low, high, is_constant in reversed(parts) if backwards else parts:
        part, index = states[:, low:high], step_index[low:high]
        if is_constant:
            solve_constant_recurrence(factors[index[0]], None, part, state, part, backwards=backwards, block=block)
        else:
            # Consecutive factors are not copied.
            in_order = len(index) <= len(factors) and bool((np.diff(index) == 1).all())
            selected = factors[index[0] : index[0] + len(index)] if in_order else factors[index]
            # The Python loop has one pass for each step of a block; a power of two would be bad for the cache.
            _solve_varying_recurrence(selected, part, state, backwards, 61 if block is None else block)
        state = part[:, 0 if backwards else -1]


def _split_runs(step_index: IndexArray, min_run: int = 512, max_piece: int = 1 << 17) -> list[tuple[int, int, bool]]:
    """Return start and end of long runs of equal steps and of pieces between them, and whether it is a run."""
    changes = np.concatenate([[0], np.flatnonzero(np.diff(step_index)) + 1, [len(step_index)]])
    parts, done = list[tuple[int, int, bool]](), 0
    runs = np.flatnonzero(np.diff(changes) >= min_run)
    for first, last in [*zip(changes[runs].tolist(), changes[runs + 1].tolist(), strict=True), (len(step_index), 0)]:
        parts += [(low, min(low + max_piece, first), False) for low in range(done, first, max_piece)]
        parts += [(first, last, True)] if last else []
        done = last
    return parts


def _split_blocks(count: int, block: int, backwards: bool) -> tuple[slice, slice]:
    """Return the rows of whole blocks, which come first, and the remaining rows."""
    whole = count - count % block
    return (slice(count - whole, None), slice(0, count - whole)) if backwards else (slice(0, whole), slice(whole, None))


def _iterate(factors: Array | Sequence[Array], states: Array, start: Array, backwards: bool) -> None:
    """Solve a short recurrence step by step."""
    state, count = start, states.shape[1]
    for i in range(count - 1, -1, -1) if backwards else range(count):
        states[:, i] += state @ factors[i]
        state = states[:, i]


def solve_recurrences(factors: Array, step_index: IndexArray, start: Array, forcing: Array | None = None) -> Array:
    """Return ``x[i] = P[i] x[i-1] + w[i]`` of k recurrences with different matrices, shape (k, n + 1, s, c).

    Shapes: factors (k, u, s, s), step_index (n,), start (k, s, c), forcing (k, n, s), zero if not given.
    """
    # The recurrences are the last axis in memory, so that products are of long vectors.
    factors, state = (np.ascontiguousarray(np.moveaxis(part, 0, -1)) for part in (factors, start))
    states = np.empty((len(step_index) + 1, *state.shape))
    states[0] = state
    if forcing is not None:
        states[1:] = np.moveaxis(forcing, 0, -1)[:, :, None]
    for i, step in enumerate(step_index.tolist()):
        moved = np.einsum("ijk,jck->ick", factors[step], states[i])
        states[i + 1] = moved if forcing is None else states[i + 1] + moved
    return np.moveaxis(states, -1, 0)


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
    """Solve ``x[i] = x[i-1] P + v[i] B`` for k recurrences with the same constant matrices; B is the identity if None.

    Shapes: factor (s, s), gain (m, s), inputs (k, n, m), start (k, s), states (k, n, s).
    """
    many, count, size = states.shape
    # Products of matrices of about 48 by 48 are fast; a length that is not a power of two suits the cache.
    length = max(4, 48 // max(size, 1)) if block is None else block
    if count < 2 * length:
        _iterate_constant(factor, gain, inputs, start, states, backwards)
        return
    first, rest = _split_blocks(count, length, backwards)
    powers = np.empty((length + 2, size, size))
    powers[0] = np.eye(size)
    for i in range(length):
        np.matmul(powers[i], factor, out=powers[i + 1])
    powers[-1] = 0.0
    apart = np.subtract.outer(np.arange(length), np.arange(length)) * (1 if backwards else -1)
    shaped = (powers if gain is None else gain @ powers)[np.where(apart < 0, -1, apart)]
    inside = shaped.transpose(0, 2, 1, 3).reshape(-1, length * size)
    across = (powers[length:0:-1] if backwards else powers[1:-1]).transpose(1, 0, 2).reshape(size, length * size)
    rows = inputs[:, first].reshape(many, -1, len(inside))
    ends = rows @ (inside[:, :size] if backwards else inside[:, -size:])
    starts = _block_starts(ends, start, backwards)
    later = starts[:, :-1] if backwards else starts[:, 1:]
    solve_constant_recurrence(powers[length], None, later, start, later, backwards=backwards, block=length)
    whole, both = states[:, first], np.concatenate([across, inside])
    chunk = 512  # blocks that fit into the cache
    for low in range(0, rows.shape[1], chunk):
        part = np.concatenate([starts[:, low : low + chunk], rows[:, low : low + chunk]], axis=-1)
        whole[:, low * length : (low + part.shape[1]) * length] = (part @ both).reshape(many, -1, size)
    _iterate_constant(factor, gain, inputs[:, rest], whole[:, 0 if backwards else -1], states[:, rest], backwards)


def _iterate_constant(
    factor: Array, gain: Array | None, inputs: Array, start: Array, states: Array, backwards: bool
) -> None:
    """Solve a short recurrence with constant matrices step by step."""
    states[:] = inputs if gain is None else inputs @ gain
    _iterate([factor] * states.shape[1], states, start, backwards)


def _solve_varying_recurrence(factors: Array, states: Array, start: Array, backwards: bool, block: int) -> None:
    """Solve a recurrence with a matrix for each step, shape (n, s, s): blocks side by side, row by row."""
    many, count, size = states.shape
    if count < 2 * block:
        _iterate(factors, states, start, backwards)
        return
    first, rest = _split_blocks(count, block, backwards)
    # Blocks are the last axis, so that each product is one of long vectors.
    blocks = np.ascontiguousarray(factors[first].reshape(-1, block, size, size).transpose(1, 2, 3, 0))
    rows = np.ascontiguousarray(states[:, first].reshape(many, -1, block, size).transpose(2, 0, 3, 1))
    order = range(block - 1, -1, -1) if backwards else range(block)
    product = np.zeros((size + many, size, blocks.shape[-1]))
    product[:size] = np.eye(size)[:, :, None]
    for i in order:
        product = np.einsum("ajb,jkb->akb", product, blocks[i])
        product[size:] += rows[i]
    starts = _block_starts(product[size:].swapaxes(1, 2), start, backwards)
    over = product[:size].transpose(2, 0, 1)
    inner, later = (over[1:], starts[:, :-1]) if backwards else (over[:-1], starts[:, 1:])
    _solve_varying_recurrence(inner, later, start, backwards, block)
    state = np.ascontiguousarray(starts.swapaxes(1, 2))
    for i in order:
        rows[i] += np.einsum("kib,ijb->kjb", state, blocks[i])
        state = rows[i]
    whole = states[:, first]
    whole[:] = rows.transpose(1, 3, 0, 2).reshape(whole.shape)
    _solve_varying_recurrence(factors[rest], states[:, rest], whole[:, 0 if backwards else -1], backwards, block)


def _block_starts(ends: Array, start: Array, backwards: bool) -> Array:
    """Return the initial state, followed by the contribution of each block but the last to the next one."""
    ordered = [ends[:, 1:], start[:, None]] if backwards else [start[:, None], ends[:, :-1]]
    return np.concatenate(ordered, axis=1)
