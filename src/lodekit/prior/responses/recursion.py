"""The recursion ``x[i] = x[i-1] P[i] + w[i]`` over many rows, without a loop over them.

Rows are cut into blocks. What each block adds to its end, from a state of zero at its start, is found for all blocks at
once; the states at their starts obey a recursion of the same kind that is shorter by the length of a block; and then
all blocks are run through side by side.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["run_through"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Equal steps one after the other, from which on they have a recursion of their own.
_LONG = 512
#: Different steps that are held in memory at the same time.
_PIECE = 1 << 15


def run_through(
    factors: Array, which: Numbers, states: Array, start: Array, *, backwards: bool = False, block: int | None = None
) -> None:
    """Replace what is added at each step by the state after it, for k recursions with the same matrices.

    Parameters
    ----------
    factors : array, shape (u, s, s)
        P, for each different step; states are multiplied with it from the left.
    which : array, shape (n,)
        Which of them each step is.
    states : array, shape (k, n, s)
        w; overwritten with x.
    start : array, shape (k, s)
        The state before the first step.
    backwards : bool
        Whether the last step comes first: ``x[i] = x[i+1] P[i] + w[i]``.
    block : int, optional
        Length of the blocks; chosen where not given.
    """
    if not states.size:
        return
    size = states.shape[-1]
    # Products of matrices of about 48 by 48 are fast; and a length that is no power of two spreads over the cache.
    short, long = (max(4, 48 // size), 61) if block is None else (block, block)
    if len(factors) == 1:
        _run_equal(factors[0], states, start, backwards, short)
        return
    now = start
    parts = _cut_runs(which)
    for low, high, equal in reversed(parts) if backwards else parts:
        own = states[:, low:high]
        if equal:
            _run_equal(factors[which[low]], own, now, backwards, short)
        else:
            _run_different(factors[which[low:high]], own, now, backwards, long)
        now = own[:, 0 if backwards else -1]


def _cut_runs(which: Numbers) -> list[tuple[int, int, bool]]:
    """Return the first and last rows of long runs of equal steps, and of pieces of what lies between them."""
    count = len(which)
    changes = np.concatenate([[0], np.flatnonzero(np.diff(which)) + 1, [count]])
    found, done = [], 0
    for run in np.flatnonzero(np.diff(changes) >= _LONG).tolist():
        first, last = int(changes[run]), int(changes[run + 1])
        found += [(low, min(low + _PIECE, first), False) for low in range(done, first, _PIECE)]
        found.append((first, last, True))
        done = last
    return found + [(low, min(low + _PIECE, count), False) for low in range(done, count, _PIECE)]


def _cut(count: int, block: int, backwards: bool) -> tuple[slice, slice]:
    """Return the rows that make whole blocks, which come first, and the rest."""
    whole = count - count % block
    return (slice(count - whole, None), slice(0, count - whole)) if backwards else (slice(0, whole), slice(whole, None))


def _walk(factors: Array, states: Array, start: Array, backwards: bool) -> None:
    """Run through few steps one by one."""
    now, count = start, states.shape[1]
    for i in range(count - 1, -1, -1) if backwards else range(count):
        states[:, i] += now @ factors[i]
        now = states[:, i]


def _run_equal(factor: Array, states: Array, start: Array, backwards: bool, block: int) -> None:
    """Run through steps that are all the same, shape (s, s): inside blocks by one product with all powers."""
    many, count, size = states.shape
    if count < 2 * block:
        _walk(np.broadcast_to(factor, (count, size, size)), states, start, backwards)
        return
    first, rest = _cut(count, block, backwards)
    whole = states[:, first]
    rows = whole.reshape(many, -1, block * size)
    powers = np.empty((block + 2, size, size))
    powers[0] = np.eye(size)
    for i in range(block):
        np.matmul(powers[i], factor, out=powers[i + 1])
    powers[-1] = 0.0
    apart = np.arange(block) - np.arange(block)[:, None]
    if backwards:  # from the last row of a block to the first
        apart = -apart
    inside = powers[np.where(apart < 0, -1, apart)].transpose(0, 2, 1, 3)
    across = powers[block:0:-1] if backwards else powers[1:-1]
    local = rows @ inside.reshape(block * size, block * size)
    ends = local[:, :, :size] if backwards else local[:, :, -size:]
    starts = _start_blocks(ends, start, backwards)
    _run_equal(powers[block], starts[:, :-1] if backwards else starts[:, 1:], start, backwards, block)
    local += starts @ across.transpose(1, 0, 2).reshape(size, block * size)
    whole[:] = local.reshape(whole.shape)
    _run_equal(factor, states[:, rest], whole[:, 0 if backwards else -1], backwards, block)


def _run_different(factors: Array, states: Array, start: Array, backwards: bool, block: int) -> None:
    """Run through steps that have a matrix each, shape (n, s, s): blocks side by side, row for row."""
    many, count, size = states.shape
    if count < 2 * block:
        _walk(factors, states, start, backwards)
        return
    first, rest = _cut(count, block, backwards)
    whole = states[:, first]
    rows, own = whole.reshape(many, -1, block, size), factors[first].reshape(-1, block, size, size)
    order = range(block - 1, -1, -1) if backwards else range(block)
    product = np.zeros((len(own), size + many, size))
    product[:, :size] = np.eye(size)
    for i in order:
        product = product @ own[:, i]
        product[:, size:] += rows[:, :, i].swapaxes(0, 1)
    starts = _start_blocks(product[:, size:].swapaxes(0, 1), start, backwards)
    over = product[:, :size]
    if backwards:
        _run_different(over[1:], starts[:, :-1], start, backwards, block)
    else:
        _run_different(over[:-1], starts[:, 1:], start, backwards, block)
    now = starts
    for i in order:
        now = rows[:, :, i] + np.einsum("kbi,bij->kbj", now, own[:, i])
        rows[:, :, i] = now
    whole[:] = rows.reshape(whole.shape)
    _run_different(factors[rest], states[:, rest], whole[:, 0 if backwards else -1], backwards, block)


def _start_blocks(ends: Array, start: Array, backwards: bool) -> Array:
    """Return the start in front of all blocks, and what each block but the last one adds to the next."""
    ordered = [ends[:, 1:], start[:, None]] if backwards else [start[:, None], ends[:, :-1]]
    return np.concatenate(ordered, axis=1)
