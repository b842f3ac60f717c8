"""Sufficient statistics of the data on quadrature nodes, and a factor of them for low noise.

`NodeStatistics` stands for all measurements of one observable under one kind of noise. A few measurements are nodes
themselves; many are summarised on Chebyshev nodes, with weights such that sums over nodes equal sums over the data for
every function smooth enough. Normal equations square the condition number; a `NodeFactor` does not: it maps a function
on the nodes to a vector whose length is that of the function over the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from lodekit.data.noise import EXACT_NOISE_RATIO
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Scaling
from lodekit.data.statistics import (
    CHEBYSHEV_DEGREE,
    ChebyshevMoments,
    Statistics,
    chebyshev_nodes,
    quadrature_from_moments,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NodeStatistics:
    """Sums over the data as sums over nodes, in scaled units.

    observable: Its number.
    learned: Whether the noise of these measurements is learned; their weights `w` are one then.
    count: How many measurements.
    log_weight_sum: The sum of the logarithms of their weights.
    sum_of_squares: ``sum w y^2``.
    nodes: Scaled times; (q,).
    weights, weighted_values: ``sum_q weights g = sum_t w g`` and ``sum_q values g = sum_t w y g`` for every smooth g;
        (q,).
    times: The nodes in the user's time, to the last digit, where they are measurements: an input may jump there;
        (q,).
    """

    observable: int
    learned: bool
    count: int
    log_weight_sum: float
    sum_of_squares: float
    nodes: Array
    weights: Array
    weighted_values: Array
    times: Array | None = None


@dataclass(frozen=True)
class NodeFactor:
    """A factor of the data: ``|root g - target|^2 + rest = sum_t w (g - y)^2`` for every smooth g, given on the nodes.

    All in scaled units.

    observable, learned, count, log_weights: As in `NodeStatistics`.
    nodes: Scaled times; (q,).
    factor: Takes a function on the nodes to its image; (m, q).
    target: The image of the data; (m,).
    residual_ss: The weighted sum of squares that no smooth function reaches.
    times: As in `NodeStatistics`; (q,).
    """

    observable: int
    learned: bool
    count: int
    log_weight_sum: float
    nodes: Array
    factor: Array
    target: Array
    residual_ss: float
    times: Array | None = None

    def apply(self, functions: Array) -> Array:
        """Return the image of functions on the nodes, shape (q, ...) to (m, ...)."""
        if self.factor.ndim == 1:
            return self.factor.reshape(-1, *[1] * (functions.ndim - 1)) * functions
        return np.asarray(self.factor @ functions)

    def apply_transposed(self, images: Array) -> Array:
        """Return the transposed of `apply`."""
        return self.apply(images) if self.factor.ndim == 1 else np.asarray(self.factor.T @ images)


@dataclass(frozen=True)
class PointData:
    """Few measurements: every one is a node.

    series: One for each observable, in the order of the units.
    units: Of the scaled problem.
    rounding_error: The relative error of sums over the data.
    max_nodes, max_factor_nodes: The largest number of nodes, for sums and for roots; more than can be asked for.
    """

    series: Sequence[TimeSeries]
    units: Scaling
    rounding_error: float = 2e-16
    max_nodes: int = 1 << 30
    max_factor_nodes: int = 1 << 30

    @cached_property
    def window(self) -> tuple[float, float]:
        """The scaled times between which all measurements lie."""
        times = np.concatenate([self.units.scale_times(item.times) for item in self.series])
        return float(times.min()), float(times.max())

    def node_statistics(self, count: int) -> list[NodeStatistics]:
        """Return sums over nodes; these are the measurements, whatever the `count`."""
        return self._node_statistics

    @cached_property
    def _node_statistics(self) -> list[NodeStatistics]:
        found = []
        for observable, (item, scale) in enumerate(zip(self.series, self.units.scales, strict=True)):
            for learned, part in item.split_by_noise():
                std = np.where(part.is_exact, EXACT_NOISE_RATIO * scale, part.std)
                weights = np.ones(len(std)) if learned else (scale / std) ** 2
                values, nodes = part.values / scale, self.units.scale_times(part.times)
                sums = float(np.log(weights).sum()), float(np.sum(weights * values**2))
                numbers = observable, learned, len(nodes), *sums
                found.append(NodeStatistics(*numbers, nodes, weights, weights * values, part.times))
        return found

    def count_factor_rows(self, count: int) -> int:
        """Return the number of measurements, whatever the `count` of nodes."""
        return sum(len(item.times) for item in self.series)

    def node_factors(self, count: int) -> list[NodeFactor]:
        """Return diagonal roots over the measurements, whatever the `count` of nodes."""
        found = []
        for item in self._node_statistics:
            root = np.sqrt(item.weights)
            common = item.observable, item.learned, item.count, item.log_weight_sum, item.nodes, root
            found.append(NodeFactor(*common, item.weighted_values / root, 0.0, item.times))
        return found


@dataclass(frozen=True)
class ChebyshevData:
    """Many measurements: sums over them.

    statistics: The sums, in the user's units.
    units: Of the scaled problem.
    names: The observables, in the order of the units.
    rounding_error: The relative error of sums over the data.
    max_nodes, max_factor_nodes: The largest number of nodes, for sums and for roots; beyond, a root would be too
        dear.
    """

    statistics: Statistics
    units: Scaling
    names: Sequence[str]
    rounding_error: float = 2e-15
    max_nodes: int = 2 * CHEBYSHEV_DEGREE + 1
    max_factor_nodes: int = 1200
    _cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def window(self) -> tuple[float, float]:
        """The scaled times between which all measurements lie."""
        scaled = self.units.scale_times(np.array([self.statistics.start, self.statistics.stop]))
        return float(scaled[0]), float(scaled[1])

    def node_statistics(self, count: int) -> list[NodeStatistics]:
        """Return sums over `count` Chebyshev nodes; cells with the same moments share their weights."""
        if count in self._cache:
            return list(self._cache[count])
        low, high = self.window
        found: list[NodeStatistics] = []
        shared: dict[bytes, Array] = {}
        for observable, scale, unit, known, cell in self._iterate_cells():
            key = cell.weight_moments.tobytes()
            if key not in shared:
                shared[key] = quadrature_from_moments(cell.weight_moments, count)[1]
            weights = shared[key]
            plain = cell.with_reference(0.0)
            nodes, values = quadrature_from_moments(plain.value_moments, count)
            sums = cell.log_weight_sum + cell.count * np.log(unit), plain.sum_of_squares * unit / scale**2
            times = low + 0.5 * (nodes + 1.0) * (high - low)
            arrays = times, weights if unit == 1.0 else weights * unit, values * (unit / scale)
            found.append(NodeStatistics(observable, not known, cell.count, *sums, *arrays))
        self._cache[count] = found
        return found

    def _iterate_cells(self) -> Iterator[tuple[int, float, float, bool, ChebyshevMoments]]:
        """Yield each cell after its observable, its scale, the unit of its weights, and whether its noise is known."""
        for (name, known), cell in self.statistics.cells.items():
            observable = self.names.index(name)
            scale = float(self.units.scales[observable])
            yield observable, scale, scale**2 if known else 1.0, known, cell

    def count_factor_rows(self, count: int) -> int:
        """Return the number of rows of all roots: `count` for each cell."""
        return count * len(self.statistics.cells)

    def node_factors(self, count: int) -> list[NodeFactor]:
        """Return roots of the sums over `count` Chebyshev nodes.

        Chebyshev polynomials are nearly orthogonal over the data, so their sums have a safe root. An error of the sums
        is an error of the weights of the data, relative to these, and nothing magnifies it.
        """
        if ("roots", count) in self._cache:
            return list(self._cache["roots", count])
        low, high = self.window
        x = chebyshev_nodes(count)
        # Chebyshev polynomials on the nodes, one in each row.
        from_nodes = np.cos(np.arccos(x) * np.arange(count)[:, None]) * (2.0 / count)
        from_nodes[0] *= 0.5
        nodes = low + 0.5 * (x + 1.0) * (high - low)
        found: list[NodeFactor] = []
        shared: dict[bytes, tuple[_GramFactor, Array]] = {}
        for observable, scale, unit, known, cell in self._iterate_cells():
            key = cell.weight_moments.tobytes()
            if key not in shared:
                gram_factor = _factorize_chebyshev_gram(cell.weight_moments, count)
                shared[key] = gram_factor, gram_factor.matrix.T @ from_nodes
            factor, root = shared[key]
            target = factor.solve(cell.value_moments[:count])
            rest = max(cell.sum_of_squares - float(target @ target), 0.0)
            logs = cell.log_weight_sum + cell.count * np.log(unit)
            # The reference is a constant function; only what is left beside it has to be found by a difference.
            target = target + cell.reference * root.sum(axis=1)
            arrays = nodes, root if unit == 1.0 else root * scale, target * (np.sqrt(unit) / scale)
            found.append(NodeFactor(observable, not known, cell.count, logs, *arrays, rest * unit / scale**2))
        self._cache["roots", count] = found
        return found


SpectralData = PointData | ChebyshevData


@dataclass(frozen=True)
class _GramFactor:
    """L with ``L L^T = C``: triangular, or, if C is singular, eigenvectors times `eigenvector_scales`."""

    matrix: Array
    eigenvector_scales: Array | None = None

    def solve(self, right: Array) -> Array:
        """Return x with ``L x = right``; what the data do not see is zero."""
        if self.eigenvector_scales is None:
            return np.asarray(solve_triangular(self.matrix, right, lower=True))
        seen = self.eigenvector_scales > 0
        return np.asarray(
            np.where(seen, (self.matrix.T @ right) / np.where(seen, self.eigenvector_scales, 1.0) ** 2, 0.0)
        )


def _factorize_chebyshev_gram(moments: Array, count: int) -> _GramFactor:
    """Return a root of the products of Chebyshev polynomials over the data; ``T_j T_k`` is the mean of two others."""
    j, k = np.indices((count, count))
    gram = 0.5 * (moments[j + k] + moments[np.abs(j - k)])
    try:
        return _GramFactor(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        # Fewer measurements than polynomials, or large gaps: what the data do not see is left out.
        values, vectors = np.linalg.eigh(gram)
        scales = np.sqrt(np.where(values > 1e-14 * values[-1], values, 0.0))
        return _GramFactor(vectors * scales, scales)
