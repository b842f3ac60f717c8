"""Measurements as the spectral engine sees them: weights on nodes, or a root of these where noise is low.

A `NodeSums` stands for all measurements of one observable under one kind of noise. The nodes of few measurements are
their own times; those of many are Chebyshev nodes, and the weights there make sums over nodes equal to sums over the
data for every function smooth enough. Normal equations square the condition; `RootSums` do not: they are a triangular
factor of the data, so that the length of its image of a function is the length of the function over the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from lodekit.data.noise import EXACT
from lodekit.data.observations import Series
from lodekit.data.statistics import DEGREE, Cell, Statistics, nodes_of, quadrature
from lodekit.data.units import Units

__all__ = ["NodeSums", "RawData", "RootSums", "SpectralData", "SummedData"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NodeSums:
    """Sums over the data as sums over nodes, in scaled units.

    Parameters
    ----------
    observable : int
        Its number.
    learned : bool
        Whether the noise of these measurements is learned; their weights `w` are one then.
    count : int
        How many measurements.
    log_weights : float
        The sum of the logarithms of their weights.
    square : float
        ``sum w y^2``.
    nodes : array, shape (q,)
        Scaled times.
    weights, values : arrays, shape (q,)
        ``sum_q weights g = sum_t w g`` and ``sum_q values g = sum_t w y g`` for every smooth g.
    times : array, shape (q,), optional
        The nodes in the user's time, to the last digit, where they are measurements: an input may jump there.
    """

    observable: int
    learned: bool
    count: int
    log_weights: float
    square: float
    nodes: Array
    weights: Array
    values: Array
    times: Array | None = None


@dataclass(frozen=True)
class RootSums:
    """A factor of the data: ``|root g - target|^2 + rest = sum_t w (g - y)^2`` for every smooth g, given on the nodes.

    All in scaled units.

    Parameters
    ----------
    observable, learned, count, log_weights
        As in `NodeSums`.
    nodes : array, shape (q,)
        Scaled times.
    root : array, shape (m, q), or (q,) for a diagonal
        Takes a function on the nodes to its image.
    target : array, shape (m,)
        The image of the data.
    rest : float
        The weighted sum of squares that no smooth function reaches.
    times : array, shape (q,), optional
        As in `NodeSums`.
    """

    observable: int
    learned: bool
    count: int
    log_weights: float
    nodes: Array
    root: Array
    target: Array
    rest: float
    times: Array | None = None

    def apply(self, functions: Array) -> Array:
        """Return the image of functions on the nodes, shape (q, ...) to (m, ...)."""
        if self.root.ndim == 1:
            return self.root.reshape(-1, *[1] * (functions.ndim - 1)) * functions
        return np.asarray(self.root @ functions)

    def transposed(self, images: Array) -> Array:
        """Return the transposed of `apply`."""
        return self.apply(images) if self.root.ndim == 1 else np.asarray(self.root.T @ images)


class SpectralData(Protocol):
    """Measurements as sums over nodes and roots of these, in whatever form they are kept."""

    @property
    def window(self) -> tuple[float, float]:
        """The scaled times between which all measurements lie."""

    @property
    def rounding(self) -> float:
        """The relative error of sums over the data."""

    @property
    def finest(self) -> int:
        """The largest number of nodes."""

    @property
    def finest_root(self) -> int:
        """The largest number of nodes for which a root is made; beyond, it would be too dear."""

    def node_sums(self, count: int) -> list[NodeSums]:
        """Return sums over `count` nodes; over the measurements themselves where these are the nodes."""

    def root_size(self, count: int) -> int:
        """Return how many rows the roots of `count` nodes have in all."""

    def root_sums(self, count: int) -> list[RootSums]:
        """Return roots of the sums over `count` nodes."""


def _weights(learned: bool, item: Series, scale: float) -> tuple[Array, float]:
    """Return the weights of measurements in scaled units, and the sum of their logarithms."""
    if learned:
        return np.ones(len(item.times)), 0.0
    weights = np.where(item.exact, EXACT**-2.0, (scale / np.where(item.exact, 1.0, item.std)) ** 2)
    return weights, float(np.log(weights).sum())


@dataclass(frozen=True)
class RawData:
    """Few measurements: every one is a node.

    Parameters
    ----------
    series : sequence of Series
        One for each observable, in the order of the units.
    units : Units
        Of the scaled problem.
    rounding : float
        The relative error of sums over the data.
    finest, finest_root : int
        The largest number of nodes, for sums and for roots; more than can be asked for.
    """

    series: Sequence[Series]
    units: Units
    rounding: float = 2e-16
    finest: int = 1 << 30
    finest_root: int = 1 << 30

    @cached_property
    def window(self) -> tuple[float, float]:
        """The scaled times between which all measurements lie."""
        times = np.concatenate([self.units.scaled_times(item.times) for item in self.series])
        return float(times.min()), float(times.max())

    def node_sums(self, count: int) -> list[NodeSums]:
        """Return sums over nodes; these are the measurements, whatever the `count`."""
        return self._node_sums

    @cached_property
    def _node_sums(self) -> list[NodeSums]:
        found = []
        for observable, (item, scale) in enumerate(zip(self.series, self.units.scales, strict=True)):
            for learned, part in item.split():
                weights, logs = _weights(learned, part, scale)
                values = part.values / scale
                nodes = self.units.scaled_times(part.times)
                square = float(np.sum(weights * values**2))
                found.append(
                    NodeSums(
                        observable, learned, len(nodes), logs, square, nodes, weights, weights * values, part.times
                    ),
                )
        return found

    def root_size(self, count: int) -> int:
        """Return the number of measurements, whatever the `count` of nodes."""
        return sum(len(item.times) for item in self.series)

    def root_sums(self, count: int) -> list[RootSums]:
        """Return diagonal roots over the measurements, whatever the `count` of nodes."""
        found = []
        for observable, (item, scale) in enumerate(zip(self.series, self.units.scales, strict=True)):
            for learned, part in item.split():
                weights, logs = _weights(learned, part, scale)
                nodes, root = self.units.scaled_times(part.times), np.sqrt(weights)
                target = root * part.values / scale
                found.append(RootSums(observable, learned, len(nodes), logs, nodes, root, target, 0.0, part.times))
        return found


@dataclass(frozen=True)
class SummedData:
    """Many measurements: sums over them.

    Parameters
    ----------
    statistics : Statistics
        The sums, in the user's units.
    units : Units
        Of the scaled problem.
    names : sequence of str
        The observables, in the order of the units.
    rounding : float
        The relative error of sums over the data.
    finest, finest_root : int
        The largest number of nodes, for sums and for roots; beyond, a root would be too dear.
    """

    statistics: Statistics
    units: Units
    names: Sequence[str]
    rounding: float = 2e-15
    finest: int = 2 * DEGREE + 1
    finest_root: int = 1200
    _cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def window(self) -> tuple[float, float]:
        """The scaled times between which all measurements lie."""
        scaled = self.units.scaled_times(np.array([self.statistics.start, self.statistics.stop]))
        return float(scaled[0]), float(scaled[1])

    def node_sums(self, count: int) -> list[NodeSums]:
        """Return sums over `count` Chebyshev nodes; cells with the same moments share their weights."""
        if count in self._cache:
            return list(self._cache[count])
        low, high = self.window
        found: list[NodeSums] = []
        shared: list[tuple[Array, Array]] = []
        for observable, scale, unit, known, cell in self._cells():
            same = [own for moments, own in shared if np.array_equal(moments, cell.moments)]
            weights = same[0] if same else quadrature(cell.moments, count)[1]
            if not same:
                shared.append((cell.moments, weights))
            plain = cell.about(0.0)
            nodes, values = quadrature(plain.products, count)
            found.append(
                NodeSums(
                    observable,
                    not known,
                    cell.count,
                    cell.log_weights + cell.count * np.log(unit),
                    plain.square * unit / scale**2,
                    low + 0.5 * (nodes + 1.0) * (high - low),
                    weights if unit == 1.0 else weights * unit,
                    values * (unit / scale),
                )
            )
        self._cache[count] = found
        return found

    def _cells(self) -> Iterator[tuple[int, float, float, bool, Cell]]:
        """Yield each cell after its observable, its scale, the unit of its weights, and whether its noise is known."""
        for (name, known), cell in self.statistics.cells.items():
            observable = self.names.index(name)
            scale = float(self.units.scales[observable])
            yield observable, scale, scale**2 if known else 1.0, known, cell

    def root_size(self, count: int) -> int:
        """Return the number of rows of all roots: `count` for each cell."""
        return count * len(self.statistics.cells)

    def root_sums(self, count: int) -> list[RootSums]:
        """Return roots of the sums over `count` Chebyshev nodes.

        Chebyshev polynomials are nearly orthogonal over the data, so their sums have a safe root. An error of the sums
        is an error of the weights of the data, relative to these, and nothing magnifies it.
        """
        if ("roots", count) in self._cache:
            return list(self._cache["roots", count])
        low, high = self.window
        x = nodes_of(count)
        from_nodes = _polynomials(x, count).T * (2.0 / count)
        from_nodes[0] *= 0.5
        nodes = low + 0.5 * (x + 1.0) * (high - low)
        found: list[RootSums] = []
        shared: list[tuple[Array, _Factor, Array]] = []
        for observable, scale, unit, known, cell in self._cells():
            same = [item for item in shared if np.array_equal(item[0], cell.moments)]
            factor = same[0][1] if same else _factor(cell.moments, count)
            root = same[0][2] if same else factor.matrix.T @ from_nodes
            if not same:
                shared.append((cell.moments, factor, root))
            target = factor.solve(cell.products[:count])
            rest = max(cell.square - float(target @ target), 0.0)
            logs = cell.log_weights + cell.count * np.log(unit)
            # The reference is a constant function; only what is left beside it has to be found by a difference.
            target = target + cell.reference * root.sum(axis=1)
            own = root if unit == 1.0 else root * scale
            found.append(
                RootSums(
                    observable,
                    not known,
                    cell.count,
                    logs,
                    nodes,
                    own,
                    target * (np.sqrt(unit) / scale),
                    rest * unit / scale**2,
                )
            )
        self._cache["roots", count] = found
        return found


@dataclass(frozen=True)
class _Factor:
    """L with ``L L^T = C``, triangular or, where C is singular, scaled eigenvectors; `scales` are their lengths."""

    matrix: Array
    scales: Array | None = None

    def solve(self, right: Array) -> Array:
        """Return x with ``L x = right``; what the data do not see is zero."""
        if self.scales is None:
            return np.asarray(solve_triangular(self.matrix, right, lower=True))
        seen = self.scales > 0
        return np.asarray(np.where(seen, (self.matrix.T @ right) / np.where(seen, self.scales, 1.0) ** 2, 0.0))


def _factor(moments: Array, count: int) -> _Factor:
    """Return a root of the products of Chebyshev polynomials over the data; ``T_j T_k`` is the mean of two others."""
    j, k = np.indices((count, count))
    gram = 0.5 * (moments[j + k] + moments[np.abs(j - k)])
    try:
        return _Factor(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        # Fewer measurements than polynomials, or large gaps: what the data do not see is left out.
        values, vectors = np.linalg.eigh(gram)
        scales = np.sqrt(np.where(values > 1e-14 * values[-1], values, 0.0))
        return _Factor(vectors * scales, scales)


def _polynomials(x: Array, count: int) -> Array:
    """Return the Chebyshev polynomials of degree below the count, shape (n, count)."""
    return np.cos(np.arccos(x)[:, None] * np.arange(count))
