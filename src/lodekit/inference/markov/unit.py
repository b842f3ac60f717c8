"""A process with finitely many states at unit lengthscale and variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.prior.latents import Latent

__all__ = ["Unit", "put_together"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """A process at unit lengthscale and variance, in states that are divided by powers of its rate.

    Parameters
    ----------
    rate : float
        With the unit lengthscale.
    matrix : array, shape (s, s)
        F.
    density : float
        Of the noise that drives the last state.
    covariance : array, shape (s, s)
        Of the states, at any time.
    """

    rate: float
    matrix: Array
    density: float
    covariance: Array

    @cached_property
    def root(self) -> Array:
        """A root of the covariance, lower triangular."""
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=float)

    @classmethod
    def of(cls, latent: Latent) -> Unit:
        """Return the states of a process, which are made once; raise where there are none."""
        if latent not in _MADE:
            _MADE[latent] = cls._make(latent)
        return _MADE[latent]

    @classmethod
    def _make(cls, latent: Latent) -> Unit:
        own = latent.state_space(1.0)
        if own is None:
            raise LodekitError(f"expected a covariance with finitely many states, got {latent.name}")
        size = len(own.matrix)
        rate = float(-own.matrix[-1, 0]) ** (1.0 / size)
        powers = rate ** np.arange(size)
        h = [float(part[0]) for part in latent.stack(np, np.zeros(1), 2 * size - 2)]
        signs = (-1.0) ** np.arange(size)
        orders = np.add.outer(np.arange(size), np.arange(size))
        # Odd derivatives of an even function vanish at zero.
        at_zero = np.where(orders % 2 == 0, np.array(h)[orders] * signs, 0.0)
        matrix = own.matrix * powers / powers[:, None]
        return cls(rate, matrix, own.intensity / powers[-1] ** 2, at_zero / np.outer(powers, powers))


#: The few that were asked for.
_MADE: dict[Latent, Unit] = {}


def put_together(parts: Sequence[Array]) -> Array:
    """Return square matrices along a diagonal.

    Parameters
    ----------
    parts : sequence of arrays, shapes (k, k)

    Examples
    --------
    >>> put_together([np.array([[2.0]]), np.array([[1.0, 3.0], [0.0, 4.0]])]).tolist()
    [[2.0, 0.0, 0.0], [0.0, 1.0, 3.0], [0.0, 0.0, 4.0]]
    """
    edges = np.cumsum([0, *(len(part) for part in parts)]).tolist()
    found = np.zeros((edges[-1], edges[-1]))
    for part, (start, stop) in zip(parts, pairwise(edges), strict=True):
        found[start:stop, start:stop] = part
    return found
