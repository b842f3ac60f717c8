"""Sufficient statistics of the data on quadrature nodes, and a factor of them for low noise.

`NodeStatistics` represents all measurements of one observable under one kind of noise. A few measurements are nodes
themselves; many are summarised on Chebyshev nodes, with weights such that sums over nodes equal sums over the data for
all sufficiently smooth functions. Normal equations square the condition number; a `NodeFactor` does not: it maps a
function on the nodes to a vector with the norm of the function over the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from lodekit.data.noise import EXACT_NOISE_RATIO
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Scaling
from lodekit.data.statistics import ChebyshevMoments, Statistics, chebyshev_nodes, quadrature_from_moments
from lodekit.support.arguments import Array


@dataclass(frozen=True)
class NodeStatistics:
    """Sums over the data as sums over nodes, in scaled units.

    observable: The number of the observable.
    learned: Whether the noise of these measurements is estimated; their weights `w` are one then.
    count: Number of measurements.
    log_weight_sum: The sum of the logarithms of their weights.
    sum_of_squares: ``sum w y^2``.
    nodes: Scaled times; (q,).
    weights, weighted_values: ``sum_q weights g = sum_t w g`` and ``sum_q values g = sum_t w y g`` for every smooth g;
        (q,).
    times: The exact nodes in the user's time if they are measurements, because an input may jump there; otherwise
        None; (q,).
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

    observable, learned, count, log_weight_sum: As in `NodeStatistics`.
    nodes: Scaled times; (q,).
    factor: Maps a function on the nodes to its image; (m, q), or the diagonal of a diagonal factor, (q,).
    target: The image of the data; (m,).
    residual_ss: The weighted residual sum of squares that no smooth function can reduce.
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
        """Return the transpose of `apply`: shape (m, ...) to (q, ...)."""
        return self.apply(images) if self.factor.ndim == 1 else np.asarray(self.factor.T @ images)


def point_statistics(series: Sequence[TimeSeries], units: Scaling) -> list[NodeStatistics]:
    """Return statistics in which each measurement is a node, given one series for each observable."""
    statistics = []
    for observable, (item, scale) in enumerate(zip(series, units.scales, strict=True)):
        for learned, part in item.split_by_noise():
            std = np.where(part.is_exact, EXACT_NOISE_RATIO * scale, part.std)
            weights = np.ones(len(std)) if learned else (scale / std) ** 2
            values, nodes = part.values / scale, units.scale_times(part.times)
            sums = float(np.log(weights).sum()), float(np.sum(weights * values**2))
            numbers = observable, learned, len(nodes), *sums
            statistics.append(NodeStatistics(*numbers, nodes, weights, weights * values, part.times))
    return statistics


def point_factors(statistics: Sequence[NodeStatistics]) -> list[NodeFactor]:
    """Return diagonal factors of statistics in which each measurement is a node."""
    factors = []
    for item in statistics:
        root = np.sqrt(item.weights)
        common = item.observable, item.learned, item.count, item.log_weight_sum, item.nodes, root
        factors.append(NodeFactor(*common, item.weighted_values / root, 0.0, item.times))
    return factors


def _iterate_cells(
    statistics: Statistics, units: Scaling, names: Sequence[str]
) -> Iterator[tuple[int, float, float, bool, ChebyshevMoments]]:
    """Yield for each cell its observable, scale, unit of weights, whether its noise is estimated, and the cell."""
    for (name, known), cell in statistics.cells.items():
        observable = names.index(name)
        scale = float(units.scales[observable])
        yield observable, scale, scale**2 if known else 1.0, not known, cell


def _scale_nodes(statistics: Statistics, units: Scaling, nodes: Array) -> Array:
    """Return nodes between -1 and 1 as scaled times in the window of the data."""
    low, high = units.scale_times(np.array([statistics.start, statistics.stop]))
    return np.asarray(low + 0.5 * (nodes + 1.0) * (high - low))


def chebyshev_statistics(
    statistics: Statistics, units: Scaling, names: Sequence[str], count: int
) -> list[NodeStatistics]:
    """Return statistics on `count` Chebyshev nodes; cells with the same moments share their weights.

    `names` are the observables, in the order of the units.
    """
    result: list[NodeStatistics] = []
    shared: dict[bytes, Array] = {}
    for observable, scale, unit, learned, cell in _iterate_cells(statistics, units, names):
        key = cell.weight_moments.tobytes()
        if key not in shared:
            shared[key] = quadrature_from_moments(cell.weight_moments, count)[1]
        weights, plain = shared[key], cell.with_reference(0.0)
        nodes, values = quadrature_from_moments(plain.value_moments, count)
        sums = cell.log_weight_sum + cell.count * np.log(unit), plain.sum_of_squares * unit / scale**2
        arrays = weights if unit == 1.0 else weights * unit, values * (unit / scale)
        times = _scale_nodes(statistics, units, nodes)
        result.append(NodeStatistics(observable, learned, cell.count, *sums, times, *arrays))
    return result


def chebyshev_factors(statistics: Statistics, units: Scaling, names: Sequence[str], count: int) -> list[NodeFactor]:
    """Return factors of the statistics on `count` Chebyshev nodes.

    Chebyshev polynomials are nearly orthogonal over the data, so their Gram matrix has a well-conditioned factor, and
    errors of the sums are not amplified.
    """
    x = chebyshev_nodes(count)
    # Chebyshev polynomials on the nodes, one in each row.
    from_nodes = np.cos(np.arccos(x) * np.arange(count)[:, None]) * (2.0 / count)
    from_nodes[0] *= 0.5
    nodes = _scale_nodes(statistics, units, x)
    result: list[NodeFactor] = []
    shared: dict[bytes, tuple[Array, Array | None, Array]] = {}
    for observable, scale, unit, learned, cell in _iterate_cells(statistics, units, names):
        key = cell.weight_moments.tobytes()
        if key not in shared:
            L, scales = _factorize_chebyshev_gram(cell.weight_moments, count)
            shared[key] = L, scales, L.T @ from_nodes
        L, scales, root = shared[key]
        # Solve L x = moments; components that the data do not determine are zero.
        if scales is None:
            target = np.asarray(solve_triangular(L, cell.value_moments[:count], lower=True))
        else:
            target = np.zeros(count)
            np.divide(L.T @ cell.value_moments[:count], scales**2, out=target, where=scales > 0)
        residual_ss = max(cell.sum_of_squares - float(target @ target), 0.0)
        logs = cell.log_weight_sum + cell.count * np.log(unit)
        # The reference is a constant function; the moments are those of deviations from it.
        target = target + cell.reference * root.sum(axis=1)
        arrays = nodes, root if unit == 1.0 else root * scale, target * (np.sqrt(unit) / scale)
        result.append(NodeFactor(observable, learned, cell.count, logs, *arrays, residual_ss * unit / scale**2))
    return result


def _factorize_chebyshev_gram(moments: Array, count: int) -> tuple[Array, Array | None]:
    """Return L with ``L L^T`` the Gram matrix of Chebyshev polynomials over the data; ``2 T_j T_k = T_j+k + T_|j-k|``.

    L is triangular, or, if the matrix is singular, eigenvectors times the scales that are returned with it.
    """
    j, k = np.indices((count, count))
    gram = 0.5 * (moments[j + k] + moments[np.abs(j - k)])
    try:
        return np.linalg.cholesky(gram), None
    except np.linalg.LinAlgError:
        # Fewer measurements than polynomials, or large gaps: undetermined components are left out.
        values, vectors = np.linalg.eigh(gram)
        scales = np.sqrt(np.where(values > 1e-14 * values[-1], values, 0.0))
        return vectors * scales, scales
