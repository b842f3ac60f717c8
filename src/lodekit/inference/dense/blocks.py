"""Symmetric matrices over all measurements, and their blocks over pairs of observables."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.dense.data import DenseData

__all__ = ["mirror", "take_blocks"]

Array = NDArray[np.float64]


@lru_cache(maxsize=8)
def _above_diagonal(size: int) -> NDArray[np.bool_]:
    # In the order of LAPACK's matrices.
    return np.asfortranarray(np.triu(np.ones((size, size), dtype=bool), 1))


def mirror(matrix: Array) -> None:
    """Copy the lower triangle onto the upper one, in place and in panels, so that no second matrix is needed."""
    size, panel = len(matrix), 256
    if size <= panel:
        np.copyto(matrix, matrix.T, where=_above_diagonal(size))
        return
    for start in range(0, size, panel):
        stop = min(start + panel, size)
        block = np.tril(matrix[start:stop, start:stop], -1)
        matrix[start:stop, start:stop] = np.tril(matrix[start:stop, start:stop]) + block.T
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T


def take_blocks(data: DenseData, G: Array) -> Array:
    """Return a symmetric matrix over all measurements as one row for each pair of observables, shape (o o, n n).

    Parameters
    ----------
    data : DenseData
    G : array
    """
    edges, count, n = data.edges, len(data.index), len(data.times)
    if data.is_full:
        # G is symmetric, and its transpose lies in the order that is cheap to take apart.
        return G.T.reshape(count, n, count, n).transpose(0, 2, 1, 3).reshape(count * count, n * n)
    blocks = np.zeros((count * count, n * n))
    for i in range(count):
        for j in range(count):
            spread = blocks[i * count + j].reshape(n, n)
            part = G[edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
            np.add.at(spread, np.ix_(data.index[i], data.index[j]), part)
    return blocks
