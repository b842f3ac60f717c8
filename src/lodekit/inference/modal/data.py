"""Measurements as the modal engine sees them: all different times, and the modes there, by interpolation of few.

Modes are as smooth as their exponents are small: polynomials on panels of the time axis, through a few nodes each, give
them at any number of times to rounding. The way back, from derivatives at all times to derivatives at the nodes, is the
transposed of the same sparse matrix; so derivatives in the parameters are only ever made at the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.sparse import csr_array

from lodekit.data.noise import MeasurementNoise
from lodekit.data.observations import Series
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior

__all__ = ["Grid", "ModalData"]

Array = NDArray[np.float64]
#: Nodes of a panel, and how far a mode may turn or decay on half of one: the error is below 1e-13 then.
_NODES, _TURN = 12, 0.8
#: Up to this many times, modes are computed at each of them.
_FEW = 400
#: So many grids are kept.
_KEPT = 2


@dataclass(frozen=True)
class Grid:
    """Nodes from which functions at all times are had.

    Parameters
    ----------
    nodes : array, shape (k,)
        Scaled times.
    matrix : sparse array, shape (n, k), or None
        Takes functions on the nodes to all times; None where the nodes are these.
    """

    nodes: Array
    matrix: Any

    def spread(self, functions: Array) -> Array:
        """Return functions at all times, shape (n, ...), from those on the nodes, (k, ...)."""
        if self.matrix is None:
            return functions
        flat = self.matrix @ functions.reshape(len(functions), -1)
        return np.asarray(flat).reshape(-1, *functions.shape[1:])

    def gather(self, slopes: Array) -> Array:
        """Return derivatives in functions on the nodes, shape (k, ...), from those at all times, (n, ...)."""
        if self.matrix is None:
            return slopes
        flat = self.matrix.T @ slopes.reshape(len(slopes), -1)
        return np.asarray(flat).reshape(-1, *slopes.shape[1:])


def make_grid(times: Array, panels: int) -> Grid:
    """Return nodes on panels of one length, and the interpolation to some times.

    Parameters
    ----------
    times : array, shape (n,)
        Scaled.
    panels : int
        How many; none for the times themselves.
    """
    if not panels:
        return Grid(times, None)
    low, width = float(times.min()), float(np.ptp(times)) / panels
    points = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    nodes = low + width * (np.arange(panels)[:, None] + 0.5 * (1.0 + points))
    panel = np.minimum(((times - low) / width).astype(np.int64), panels - 1)
    position = 2.0 * ((times - low) / width - panel) - 1.0
    inverse = np.linalg.inv(chebyshev.chebvander(points, _NODES - 1))
    values = chebyshev.chebvander(position, _NODES - 1) @ inverse
    places = (_NODES * panel[:, None] + np.arange(_NODES)).ravel()
    starts = _NODES * np.arange(len(times) + 1)
    return Grid(nodes.ravel(), csr_array((values.ravel(), places, starts), shape=(len(times), nodes.size)))


@dataclass(frozen=True)
class ModalData:
    """Measurements in memory with their prior, as the modal engine sees them.

    Parameters
    ----------
    prior : Prior
        Of the measured observables; it has no free functions.
    times : array, shape (n,)
        All different times, in the user's units, ascending.
    index : list of int arrays
        For each observable, which times it was measured at.
    values : array, shape (m,)
        All measurements, scaled, observable after observable.
    noise : MeasurementNoise
        Of all measurements.
    log_jacobian : float
        The number that is added to a log density in scaled units to have it in the user's.
    """

    prior: Prior
    times: Array
    index: list[NDArray[np.intp]]
    values: Array
    noise: MeasurementNoise
    log_jacobian: float
    _grids: dict[int, Grid] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_grids": {}}

    @classmethod
    def of(cls, prior: Prior, series: Sequence[Series]) -> ModalData:
        """Return measurements in memory with their prior.

        Parameters
        ----------
        prior : Prior
            Of the measured observables.
        series : sequence of Series
            One for each observable of the prior, in its order.
        """
        times = np.unique(np.concatenate([item.times for item in series]))
        index = [np.searchsorted(times, item.times) for item in series]
        scaled = [item.values / scale for item, scale in zip(series, prior.units.scales, strict=True)]
        jacobian = prior.units.log_jacobian([len(item.times) for item in series])
        noise = MeasurementNoise.of(prior.noise, series)
        return cls(prior, times, index, np.concatenate(scaled), noise, jacobian)

    @property
    def observables(self) -> Observables:
        """The measured observables, compiled and scaled."""
        return self.prior.observables

    @cached_property
    def scaled_times(self) -> Array:
        """All different times, scaled."""
        return self.prior.units.scaled_times(self.times)

    @cached_property
    def edges(self) -> NDArray[np.intp]:
        """Where the measurements of each observable begin among all, and the end."""
        return np.cumsum([0, *(len(index) for index in self.index)]).astype(np.intp)

    def pick(self, functions: Sequence[Array]) -> Array:
        """Return functions at all times, one for each observable, at the measurements: shape (m, ...).

        Parameters
        ----------
        functions : sequence of arrays, shape (n, ...)
        """
        return np.concatenate([part[index] for part, index in zip(functions, self.index, strict=True)])

    def place(self, values: Array) -> list[Array]:
        """Return sums over the measurements at each time, for each observable: the transposed of `pick`.

        Parameters
        ----------
        values : array, shape (m, ...)
        """
        found = []
        for o, index in enumerate(self.index):
            own = values[self.edges[o] : self.edges[o + 1]]
            if len(index) == len(self.times) and not (np.diff(index) != 1).any():
                found.append(own)
                continue
            total = np.zeros((len(self.times), *values.shape[1:]))
            np.add.at(total, index, own)
            found.append(total)
        return found

    def grid(self, coefficients: Coefficients) -> Grid:
        """Return nodes that are close enough for the modes at some values of the parameters.

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables; they hold the exponents of the modes.
        """
        panels, count = 0, len(self.times)
        if count > _FEW:
            rates = self.observables.exponents(coefficients, self.prior.groups, signals=False)
            turn = float(np.max(np.abs(rates), initial=0.0)) * float(np.ptp(self.scaled_times)) / (2.0 * _TURN)
            if turn * _NODES < 0.25 * count:
                # Powers of two, so that neighbours in a search share them.
                panels = 1 << max(0, int(np.ceil(np.log2(max(turn, 1.0)))))
        if panels not in self._grids:
            while len(self._grids) >= _KEPT:
                self._grids.pop(next(iter(self._grids)))
            self._grids[panels] = make_grid(self.scaled_times, panels)
        return self._grids[panels]
