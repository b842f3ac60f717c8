"""Measurements as the modal engine sees them: all different times, and the modes there, by interpolation of few.

Modes are as smooth as their exponents are small: polynomials on panels of the time axis, through a few nodes each, give
them at any number of times to rounding. The way back, from derivatives at all times to derivatives at the nodes, is the
transposed of the same sparse matrix; so derivatives in the parameters are only ever made at the nodes. Modes that have
died away need no panels, and where all have, no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.sparse import csr_array

from lodekit.data.noise import MeasurementNoise
from lodekit.inference.measured import Measured
from lodekit.prior.compile import Coefficients

__all__ = ["Grid", "ModalData"]

Array = NDArray[np.float64]
#: Nodes of a panel, and how far a mode may turn or decay on half of one: the error is below 1e-13 then.
_NODES, _TURN = 16, 1.8
#: A mode that has decayed by so many e-foldings is gone: it was of the size of the data, or less, at the start.
_GONE = 44.0
#: Nodes are worth while where they are fewer than this share of the times.
_SHARE = 0.5
#: So many grids are kept.
_KEPT = 4


@dataclass(frozen=True)
class Grid:
    """Nodes from which the modes are had at the first of all times; later they are gone.

    Parameters
    ----------
    nodes : array, shape (k,)
        Scaled times.
    matrix : sparse array, shape (a, k), or None
        Takes functions on the nodes to the first a times; None where the nodes are these.
    count : int
        a.
    """

    nodes: Array
    matrix: Any
    count: int

    def spread(self, functions: Array) -> Array:
        """Return functions at the first times, shape (a, r), from those on the nodes, (k, r)."""
        return functions if self.matrix is None else np.asarray(self.matrix @ functions)

    def gather(self, slopes: Array) -> Array:
        """Return derivatives in functions on the nodes, shape (k, r), from those at the first times, (a, r)."""
        return slopes if self.matrix is None else np.asarray(self._transposed @ slopes)

    @cached_property
    def _transposed(self) -> Any:
        return self.matrix.T


def make_grid(times: Array, rates: Sequence[float], lives: Sequence[float]) -> Grid:
    """Return nodes on panels for modes of some rates, and the interpolation to some times.

    Parameters
    ----------
    times : array, shape (n,)
        Scaled, ascending.
    rates, lives : sequences of float
        How fast each mode turns or decays, and how long it lives, from the first time on.

    Examples
    --------
    >>> grid = make_grid(np.linspace(0.0, 1.0, 2000), [30.0], [1.5])
    >>> found = grid.spread(np.exp(-30.0 * grid.nodes)[:, None])[:, 0]
    >>> bool(np.abs(found - np.exp(-30.0 * np.linspace(0.0, 1.0, 2000))).max() < 1e-13)
    True
    """
    low, high = float(times[0]), float(times[-1])
    stop = min(high, low + max(lives, default=0.0))
    count = int(np.searchsorted(times, stop, side="right"))
    edges, most = [low], _SHARE * count / _NODES
    while edges[-1] < stop and len(edges) <= most + 1.0:
        alive = [rate for rate, life in zip(rates, lives, strict=True) if life > edges[-1] - low]
        # No panel is longer than the time in which modes live.
        edges.append(edges[-1] + 2.0 * _TURN / max(*alive, 1e-300, 2.0 * _TURN / max(stop - low, 1e-300)))
    if len(edges) < 2 or len(edges) > most + 1.0:
        return Grid(times[:count], None, count)
    bounds = np.array(edges)
    widths = np.diff(bounds)
    points = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    nodes = bounds[:-1, None] + widths[:, None] * 0.5 * (1.0 + points)
    panel = np.clip(np.searchsorted(bounds, times[:count], side="right") - 1, 0, len(widths) - 1)
    position = 2.0 * (times[:count] - bounds[panel]) / widths[panel] - 1.0
    inverse = np.linalg.inv(chebyshev.chebvander(points, _NODES - 1))
    values = chebyshev.chebvander(position, _NODES - 1) @ inverse
    places = (_NODES * panel[:, None] + np.arange(_NODES)).ravel()
    starts = _NODES * np.arange(count + 1)
    return Grid(nodes.ravel(), csr_array((values.ravel(), places, starts), shape=(count, nodes.size)), count)


@dataclass(frozen=True)
class ModalData(Measured):
    """Measurements in memory with their prior, which has no free functions, as the modal engine sees them.

    `prior`, `times`, `index`, `values`, `noise` and `log_jacobian` are those of `Measured`.
    """

    _grids: dict[Any, Grid] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_grids": {}}

    @cached_property
    def places(self) -> list[slice]:
        """Where the measurements of each observable stand among all."""
        return [slice(low, high) for low, high in pairwise(self.edges.tolist())]

    @cached_property
    def noises(self) -> list[MeasurementNoise]:
        """The noise of each observable: of all its measurements, or of one of them where all have the same."""
        parts = [self.noise.part(rows) for rows in self.places]
        return [part.part(slice(0, 1)) if part.is_even else part for part in parts]

    def pick(self, functions: Sequence[Array]) -> list[Array]:
        """Return functions at all times, one for each observable, at its measurements: each of shape (m, ...).

        Parameters
        ----------
        functions : sequence of arrays, shape (n, ...)
        """
        triples = zip(functions, self.index, self.is_full, strict=True)
        return [part if full else part[index] for part, index, full in triples]

    def place(self, observable: int, values: Array) -> Array:
        """Return sums over measurements of an observable at each time, shape (n,): the transposed of `pick`.

        Parameters
        ----------
        observable : int
            Its number.
        values : array, shape (m,)
        """
        if self.is_full[observable]:
            return values
        return np.bincount(self.index[observable], values, minlength=len(self.times)).astype(float)

    @cached_property
    def is_full(self) -> list[bool]:
        """Whether each observable was measured once at every time."""
        return [len(i) == len(self.times) and not (np.diff(i) != 1).any() for i in self.index]

    def reached(self, count: int) -> list[slice]:
        """Return, for each observable, which of all measurements were made at the first times; `count` of these."""
        ends = [int(np.searchsorted(index, count)) for index in self.index]
        return [slice(rows.start, rows.start + end) for rows, end in zip(self.places, ends, strict=True)]

    def grid(self, coefficients: Coefficients) -> Grid:
        """Return nodes that are close enough for the modes at some values of the parameters.

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables; they hold the exponents of the modes.
        """
        found = self.observables.exponents(coefficients, self.prior.groups, signals=False)
        # In powers of two, so that neighbours in a search share them.
        rates = np.exp2(np.ceil(np.log2(np.maximum(np.abs(found), 1e-3))))
        lives = np.where(found.real < 0, _GONE / np.exp2(np.floor(np.log2(np.maximum(-found.real, 1e-3)))), np.inf)
        # An average sees what was there when its interval began.
        lives = lives + self.observables.longest_window
        key = tuple(sorted(zip(rates.tolist(), lives.tolist(), strict=True)))
        if key not in self._grids:
            while len(self._grids) >= _KEPT:
                self._grids.pop(next(iter(self._grids)))
            self._grids[key] = make_grid(self.scaled_times, rates.tolist(), lives.tolist())
        return self._grids[key]
