"""Additive sufficient statistics: everything the evidence ever asks of the data, in a few thousand numbers.

Every function that meets the data (waves of any frequency, modes at any parameter values, particular solutions) is
smooth over the window, so it is a short sum of Chebyshev polynomials, and so are products of two of them. Hence the
sums ``sum w T_k(x)`` and ``sum w y T_k(x)`` over all measurements determine the evidence and its gradient to rounding.
They are one non-uniform Fourier transform in ``arccos(x)``; they add over chunks, files and workers; and no change of
parameters, lengthscales, frequencies or periods ever asks for another pass over the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from lodekit.arguments import check_count
from lodekit.data.nufft import cosine_sums
from lodekit.data.observations import Observations, Series
from lodekit.errors import DataError

__all__ = ["DEGREE", "Cell", "Statistics", "angles_of", "nodes_of", "quadrature"]

Array = NDArray[np.float64]
#: Up to this degree single functions are kept, up to twice this products of two: about 600 oscillations in a window.
DEGREE = 2048
#: Into so many parts a window is cut for a thumbnail: more than anybody sees in a figure.
_BINS = 512
#: So many measurements are transformed at the same time: memory does not grow with their number.
_CHUNK = 1 << 21


@dataclass(frozen=True)
class Cell:
    """The measurements of one observable whose noise is learned (weight one), or known (weight 1/std^2).

    Parameters
    ----------
    count : int
    log_weights : float
        The sum of the logarithms of the weights.
    reference : float
        What was taken off the values, so that a large offset does not cost digits: one of them.
    square : float
        ``sum w (y - reference)^2``.
    moments : array, shape (2 degree + 1,)
        ``sum w T_k(x)``.
    products : array, shape (degree + 1,)
        ``sum w (y - reference) T_k(x)``.
    bins : array, shape (3, bins)
        Counts, sums of times and sums of values in equal parts of the window: a thumbnail, for start values.
    """

    count: int
    log_weights: float
    reference: float
    square: float
    moments: Array
    products: Array
    bins: Array

    def about(self, reference: float) -> Cell:
        """Return the same sums with another reference."""
        shift = self.reference - reference
        if not shift:
            return self
        products = self.products + shift * self.moments[: len(self.products)]
        square = self.square + 2.0 * shift * float(self.products[0]) + shift**2 * float(self.moments[0])
        return replace(self, reference=reference, square=square, products=products)

    def __add__(self, other: Cell) -> Cell:
        if len(self.moments) != len(other.moments):
            degrees = " and ".join(str(len(cell.products) - 1) for cell in (self, other))
            raise DataError(f"expected sums over polynomials of one degree, got {degrees}; use one degree for all")
        moved = other.about(self.reference)
        return Cell(
            self.count + moved.count,
            self.log_weights + moved.log_weights,
            self.reference,
            self.square + moved.square,
            self.moments + moved.moments,
            self.products + moved.products,
            self.bins + moved.bins,
        )


@dataclass(frozen=True)
class Statistics:
    """Sufficient statistics of measurements inside a window of time; they add.

    Parameters
    ----------
    start, stop : float
        The window, in the user's time.
    cells : dict of (str, bool) to Cell
        By observable, and whether the noise is known.

    Examples
    --------
    >>> total = Statistics.empty(0.0, 10.0)
    >>> for start in range(10):                              # chunk by chunk, from wherever they come
    ...     t = np.linspace(start, start + 1, 500)
    ...     total += Statistics.of(0.0, 10.0, Observations().add(t, "x", np.sin(t)))
    >>> total.size, total.observables
    (5000, ('x',))
    """

    start: float
    stop: float
    cells: Mapping[tuple[str, bool], Cell]

    def __post_init__(self) -> None:
        if not (np.isfinite(self.start) and np.isfinite(self.stop) and self.start < self.stop):
            raise DataError(f"expected a window of time with start < stop, got {self.start} to {self.stop}")

    @classmethod
    def empty(cls, start: float, stop: float) -> Statistics:
        """Return the statistics of no measurements: the zero of the addition.

        Parameters
        ----------
        start, stop : float
            The window, in the user's time.
        """
        try:
            return cls(float(start), float(stop), {})
        except (TypeError, ValueError):
            raise DataError(f"expected a window of time as two numbers, got {start!r} and {stop!r}") from None

    @classmethod
    def of(cls, start: float, stop: float, data: Observations | Iterable[Series], degree: int = DEGREE) -> Statistics:
        """Return the statistics of measurements; all times must lie in the window.

        Parameters
        ----------
        start, stop : float
            The window, in the user's time.
        data : Observations, or series
            Measurements with noise above zero.
        degree : int
            Of the polynomials that stand for single functions: two for each oscillation in the window, and more.
        """
        total = cls.empty(start, stop)
        check_count("degree", degree)
        items = data.series if isinstance(data, Observations) else data
        series = list(items) if isinstance(items, Iterable) else [items]
        if wrong := [item for item in series if not isinstance(item, Series)]:
            raise DataError(f"expected Observations, or series of measurements, got {type(wrong[0]).__name__}")
        for group in _share_times(series):
            for first in range(0, len(group[0].times), _CHUNK):
                part = [item.take(slice(first, first + _CHUNK)) for item in group]
                total = total + _of_group(total.start, total.stop, part, degree)
        return total

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        start, stop = min(self.start, other.start), max(self.stop, other.stop)
        first, second = self.over(start, stop), other.over(start, stop)
        cells = dict(first.cells)
        for key, cell in second.cells.items():
            cells[key] = cells[key] + cell if key in cells else cell
        return Statistics(start, stop, cells)

    def over(self, start: float, stop: float) -> Statistics:
        """Return the same statistics over another window that contains this one.

        A polynomial in one window is a polynomial of the same degree in the other, so nothing is lost.

        Parameters
        ----------
        start, stop : float
            The other window, in the user's time.

        Examples
        --------
        >>> wide = Statistics.of(0.0, 1.0, Observations().add([0.0, 0.5], "x", [1.0, 2.0])).over(-1.0, 3.0)
        >>> wide.start, wide.stop, wide.size
        (-1.0, 3.0, 2)
        """
        if (start, stop) == (self.start, self.stop):
            return self
        if start > self.start or stop < self.stop:
            raise DataError(f"expected a window around {self.start} to {self.stop}, got {start} to {stop}")

        def move(sums: Array) -> Array:
            nodes, weights = quadrature(sums, len(sums))
            times = self.start + 0.5 * (nodes + 1.0) * (self.stop - self.start)
            return np.asarray(cosine_sums(angles_of(times, start, stop), [weights], len(sums) - 1)[0])

        cells = {}
        for key, cell in self.cells.items():
            counts, times, values = cell.bins
            filled = counts > 0
            means = times[filled] / counts[filled]
            where = _bin(means, start, stop)
            sums = [np.bincount(where, part[filled], minlength=_BINS) for part in (counts, times, values)]
            bins = np.stack(sums).astype(float)
            cells[key] = replace(cell, moments=move(cell.moments), products=move(cell.products), bins=bins)
        return Statistics(float(start), float(stop), cells)

    @property
    def size(self) -> int:
        """Number of measurements."""
        return sum(cell.count for cell in self.cells.values())

    @property
    def observables(self) -> tuple[str, ...]:
        """What was measured, in order of first appearance."""
        return tuple(dict.fromkeys(name for name, _ in self.cells))

    def thumbnail(self) -> list[Series]:
        """Return averages over equal parts of the window, one series for each observable.

        Examples
        --------
        >>> sums = Statistics.of(0.0, 1.0, Observations().add([0.0, 0.0, 0.5], "x", [1.0, 2.0, 3.0]))
        >>> sums.thumbnail()[0].values.tolist()
        [1.5, 3.0]
        """
        found = []
        for name in self.observables:
            parts = [cell.bins for (other, _), cell in self.cells.items() if other == name]
            counts, times, values = np.sum(parts, axis=0)
            filled = counts > 0
            n = counts[filled]
            found.append(Series(name, times[filled] / n, values[filled] / n, np.full(len(n), np.nan)))
        return found

    def arrays(self) -> dict[str, Array]:
        """Return plain arrays that hold everything but the names, for storage.

        Examples
        --------
        >>> sorted(Statistics.of(0.0, 1.0, Observations().add([0.0, 0.5], "x", [1.0, 2.0])).arrays())
        ['bins_0', 'moments_0', 'products_0', 'sums_0']
        """
        found = {}
        for i, cell in enumerate(self.cells.values()):
            found[f"moments_{i}"], found[f"products_{i}"], found[f"bins_{i}"] = cell.moments, cell.products, cell.bins
            found[f"sums_{i}"] = np.array([cell.count, cell.log_weights, cell.reference, cell.square])
        return found

    @classmethod
    def from_arrays(
        cls, window: Sequence[float], keys: Sequence[Sequence[object]], arrays: Mapping[str, Array]
    ) -> Statistics:
        """Return what `arrays` took apart.

        Parameters
        ----------
        window : (float, float)
        keys : sequence of (str, bool)
            Of the cells, in order.
        arrays : dict of str to array

        Examples
        --------
        >>> sums = Statistics.of(0.0, 1.0, Observations().add([0.0, 0.5], "x", [1.0, 2.0]))
        >>> Statistics.from_arrays((0.0, 1.0), list(sums.cells), sums.arrays()).size
        2
        """
        cells = {}
        for i, (name, known) in enumerate(keys):
            count, log_weights, reference, square = arrays[f"sums_{i}"]
            cells[str(name), bool(known)] = Cell(
                int(count),
                float(log_weights),
                float(reference),
                float(square),
                arrays[f"moments_{i}"],
                arrays[f"products_{i}"],
                arrays[f"bins_{i}"],
            )
        return cls(float(window[0]), float(window[1]), cells)


def nodes_of(count: int) -> Array:
    """Return the Chebyshev nodes in (-1, 1), ascending."""
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)


def quadrature(sums: Array, count: int) -> tuple[Array, Array]:
    """Return nodes in (-1, 1) and weights with ``sum_q v_q g(x_q) = sum_t c_t g(x_t)`` for g of degree below count.

    Parameters
    ----------
    sums : array
        ``sum_t c_t T_k(x_t)``; those missing up to the count are taken as zero.
    count : int
    """
    padded = np.zeros(count)
    padded[: min(count, len(sums))] = sums[:count]
    # v_q = (m_0 + 2 sum_k m_k T_k(x_q)) / count; T_k(-x) = (-1)^k T_k(x) puts the nodes in ascending order.
    padded[1::2] *= -1.0
    return nodes_of(count), dct(padded, type=3) / count


def angles_of(times: Array, start: float, stop: float) -> Array:
    """Return ``arccos(x)`` of times in a window, with x from -1 to 1; raise where a time lies outside.

    Parameters
    ----------
    times : array, shape (n,)
    start, stop : float
        The window.
    """
    x = (times - start) * (2.0 / (stop - start)) - 1.0
    # The first and the last time may round to something outside.
    if len(x) and not (x.min() >= -1.0 - 1e-9 and x.max() <= 1.0 + 1e-9):
        outside = times[(x < -1.0) | (x > 1.0)][0]
        raise DataError(f"expected times between {start} and {stop}, got {outside}")
    return np.arccos(np.clip(x, -1.0, 1.0, out=x), out=x)


def _bin(times: Array, start: float, stop: float) -> NDArray[np.intp]:
    scaled = (times - start) * (_BINS / (stop - start))
    return np.clip(scaled, 0, _BINS - 1).astype(np.intp)


def _share_times(series: Iterable[Series]) -> list[list[Series]]:
    """Return groups of series with the same times and the same known noise; each has noise of one kind only."""
    groups: list[list[Series]] = []
    for whole in series:
        for _, item in whole.split():
            for group in groups:
                if item.observable not in [other.observable for other in group] and _is_parallel(group[0], item):
                    group.append(item)
                    break
            else:
                groups.append([item])
    return groups


def _is_parallel(first: Series, second: Series) -> bool:
    """Whether two series have the same times and the same known noise."""
    pairs = ((first.times, second.times), (first.std, second.std))
    return all(a is b or np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def _of_group(start: float, stop: float, group: Sequence[Series], degree: int) -> Statistics:
    """Return the statistics of series that share their times and their known noise."""
    times, std = group[0].times, group[0].std
    known = bool(group[0].known[0])
    if known and not (std > 0).all():
        raise DataError("sums over the data need noise above zero; exact values belong to the dense engine")
    with np.errstate(over="ignore", invalid="ignore"):
        weights = std**-2.0 if known else np.ones(len(times))
        sizes = [np.sum(weights)] + [np.einsum("i,i,i", weights, *[item.values - item.values[0]] * 2) for item in group]
    if not np.isfinite(sizes).all():
        names = ", ".join(item.observable for item in group)
        raise DataError(f"expected values of {names}, and noise, of a size that floats can square; change their units")
    where = _bin(times, start, stop)
    counts, moments_of_time = np.bincount(where, minlength=_BINS), np.bincount(where, times, minlength=_BINS)
    centred = [item.values - item.values[0] for item in group]
    weighted = [weights * values if known else values for values in centred]
    sums = cosine_sums(angles_of(times, start, stop), [weights, *weighted], 2 * degree)
    cells = {}
    for item, values, own, products in zip(group, centred, weighted, sums[1:], strict=True):
        bins = np.stack([counts, moments_of_time, np.bincount(where, item.values, minlength=_BINS)]).astype(float)
        cells[item.observable, known] = Cell(
            len(times),
            float(np.log(weights).sum()) if known else 0.0,
            float(item.values[0]),
            float(np.einsum("i,i", own, values)),
            sums[0],
            products[: degree + 1].copy(),
            bins,
        )
    return Statistics(start, stop, cells)
