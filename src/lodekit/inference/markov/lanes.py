"""Many blocks side by side: they come last in all arrays, and rows begin where a line of the cache does.

Processors load 64 bytes at once, and half as fast where these lie in two lines of the cache. Rows of blocks, of which
there are as many as it happens to be, would begin anywhere. So they are filled up with blocks that have nothing to say.
What does not depend on hyperparameters is made once: `Places`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Places", "empty", "fill_up", "multiply", "put_first", "put_last", "put_side_by_side", "zeros"]

Array = NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)
Numbers = NDArray[np.intp]
#: Numbers in a line of the cache.
_LINE = 8


@dataclass(frozen=True)
class Places:
    """The places of some blocks that share nothing, side by side, with what was measured there.

    Parameters
    ----------
    blocks : int
        How many of the u blocks have something to say.
    times : array, shape (p + 1, u)
        Since the start of the block, that of the following block included.
    observed, numbers : arrays of int, shape (p, w, u)
        The numbers of the observables, and those of the measurements; -1 for none.
    """

    blocks: int
    times: Array
    observed: Numbers
    numbers: Numbers

    @classmethod
    def of(cls, steps: Array, observed: Numbers, numbers: Numbers) -> Places:
        """Return some blocks, filled up.

        Parameters
        ----------
        steps : array, shape (u, p + 1)
            The lengths of the steps to each place, and to the following block.
        observed, numbers : arrays of int, shape (u, p, w)
        """
        times = np.cumsum(put_last(fill_up(steps)), axis=0)
        both = (np.ascontiguousarray(fill_up(part, -1).transpose(1, 2, 0)) for part in (observed, numbers))
        return cls(len(steps), times, *both)

    @cached_property
    def seen(self) -> tuple[Numbers, ...]:
        """The numbers of all observables of the first measurement at each place, of the second, and so on."""
        every = (np.unique(self.observed[:, j]) for j in range(self.observed.shape[1]))
        return tuple(own[own >= 0] for own in every)


def empty(*shape: int) -> Array:
    """Return room for numbers, the first at the beginning of a line of the cache.

    Parameters
    ----------
    *shape : int
    """
    size = prod(shape)
    whole = np.empty(size + _LINE)
    first = -(whole.__array_interface__["data"][0] // whole.itemsize) % _LINE
    return whole[first : first + size].reshape(shape)


def zeros(*shape: int) -> Array:
    """Return zeros, the first at the beginning of a line of the cache.

    Parameters
    ----------
    *shape : int
    """
    found = empty(*shape)
    found[...] = 0.0
    return found


def fill_up(values: NDArray[Number], rest: int = 0) -> NDArray[Number]:
    """Return something of each block, with so many blocks more that they fill lines of the cache.

    Parameters
    ----------
    values : array, shape (u, ...)
    rest : int
        What the others have.

    Examples
    --------
    >>> fill_up(np.ones(3)).tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    more = -len(values) % _LINE
    return np.concatenate([values, np.full((more, *values.shape[1:]), rest, dtype=values.dtype)])


def put_side_by_side(values: Array) -> Array:
    """Return the first dimension, that of blocks, as the last one, filled up with zeros to lines of the cache.

    Parameters
    ----------
    values : array, shape (u, ...)

    Examples
    --------
    >>> put_side_by_side(np.ones((3, 2)))[1].tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    count = len(values)
    found = empty(*values.shape[1:], count + -count % _LINE)
    found[..., :count], found[..., count:] = np.moveaxis(values, 0, -1), 0.0
    return found


def put_first(values: Array) -> Array:
    """Return the last dimension, that of blocks, as the first one."""
    return np.ascontiguousarray(np.moveaxis(values, -1, 0))


def put_last(values: Array) -> Array:
    """Return the first dimension, that of blocks, as the last one."""
    return np.ascontiguousarray(np.moveaxis(values, 0, -1))


def multiply(first: Array, second: Array) -> Array:
    """Return products of matrices, blocks last.

    Parameters
    ----------
    first, second : arrays, shapes (i, j, b) and (j, k, b)
    """
    return np.asarray(np.einsum("ijb,jkb->ikb", first, second))
