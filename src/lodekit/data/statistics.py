"""Additive sufficient statistics: Chebyshev moments of the data, from which the evidence and its gradient follow.

Every function that the likelihood compares with the data is smooth over the time window, hence a short sum of Chebyshev
polynomials, and so are products of two such functions. The sums ``sum w T_k(x)`` and ``sum w y T_k(x)`` over all
measurements therefore determine the evidence to rounding error for all parameter values. They are one type 1
non-uniform FFT in ``arccos(x)`` (by finufft, or by ducc0 where finufft has no wheels), and they add over chunks, files
and workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.fft import dct

from lodekit.data.observations import Observations, TimeSeries
from lodekit.errors import DataError, LodekitError
from lodekit.support.arguments import Array, ComplexArray, IndexArray, check_count


@cache
def nufft_backend() -> str:
    """Return the name of the library that computes the transform."""
    for name in ("finufft", "ducc0"):
        if find_spec(name) is not None:
            return name
    raise LodekitError("no non-uniform Fourier transform is installed; try: pip install finufft, or ducc0")


def cosine_transform(angles: Array, strengths: Sequence[Array], degree: int) -> Array:
    """Return ``sum_t c_t cos(k a_t)`` for k up to the degree, shape (strengths, degree + 1).

    Real strengths are transformed in pairs, as the real and the imaginary part of a complex transform.

    Shapes: angles (n,), strengths (n,).
    """
    if len(angles) * (degree + 1) <= 200_000:  # the direct sum is faster, and exact
        waves = np.cos(np.outer(np.arange(degree + 1), angles))
        return np.stack([waves @ strength for strength in strengths])
    found = np.empty((len(strengths), degree + 1))
    for first in range(0, len(strengths), 2):
        pair = strengths[first : first + 2]
        joined = pair[0] + 1j * pair[1] if len(pair) == 2 else pair[0].astype(complex)
        sums = _nonuniform_fft(angles, joined, degree)
        # The sums are even in k for cosines, as angles a and -a are equivalent.
        even = 0.5 * (sums[degree:] + sums[degree::-1])
        found[first] = even.real
        if len(pair) == 2:
            found[first + 1] = even.imag
    return found


def _nonuniform_fft(angles: Array, strengths: ComplexArray, degree: int) -> ComplexArray:
    """Return ``sum_t c_t exp(i k a_t)`` for k from minus the degree to the degree."""
    count = 2 * degree + 1
    if nufft_backend() == "finufft":
        import finufft

        # The grid is small, so sorting the points first does not pay off.
        return np.asarray(finufft.nufft1d1(angles, strengths, count, eps=1e-15, isign=1, spread_sort=0))
    import ducc0

    sums: Any = np.empty(count, dtype=complex)
    ducc0.nufft.nu2u(points=strengths, coord=angles[:, None], forward=False, epsilon=3e-15, nthreads=0, out=sums)
    return np.asarray(sums)


#: Degree for single functions; products of two have twice this degree. It resolves about 600 oscillations in a window.
CHEBYSHEV_DEGREE = 2048
#: The number of bins of a thumbnail: more than a figure can show.
_N_BINS = 512


@dataclass(frozen=True)
class ChebyshevMoments:
    """Moments of one observable whose noise is estimated (weight one) or known (weight 1/std^2).

    log_weight_sum: The sum of the logarithms of the weights.
    reference: A value subtracted from all values, so that a large offset does not cost digits.
    sum_of_squares: ``sum w (y - reference)^2``.
    weight_moments: ``sum w T_k(x)``; (2 degree + 1,).
    value_moments: ``sum w (y - reference) T_k(x)``; (degree + 1,).
    bins: Counts, sums of times and sums of values in equal parts of the window, for start values; (3,
        bins).
    """

    count: int
    log_weight_sum: float
    reference: float
    sum_of_squares: float
    weight_moments: Array
    value_moments: Array
    bins: Array

    def with_reference(self, reference: float) -> ChebyshevMoments:
        """Return the same sums with another reference."""
        shift = self.reference - reference
        if not shift:
            return self
        products = self.value_moments + shift * self.weight_moments[: len(self.value_moments)]
        weight, value = float(self.weight_moments[0]), float(self.value_moments[0])
        square = self.sum_of_squares + 2.0 * shift * value + shift**2 * weight
        return replace(self, reference=reference, sum_of_squares=square, value_moments=products)

    def __add__(self, other: ChebyshevMoments) -> ChebyshevMoments:
        if len(self.weight_moments) != len(other.weight_moments):
            degrees = " and ".join(str(len(cell.value_moments) - 1) for cell in (self, other))
            raise DataError(f"expected sums over polynomials of one degree, got {degrees}; use one degree for all")
        first, second = vars(self), vars(other.with_reference(self.reference))
        total = {name: value + second[name] for name, value in first.items()}
        return ChebyshevMoments(**{**total, "reference": self.reference})


@dataclass(frozen=True)
class Statistics:
    """Additive sufficient statistics of measurements in a time window.

    Parameters
    ----------
    start, stop : float
        The window, in the user's time.
    cells : dict of (str, bool) to ChebyshevMoments
        Moments by observable, and whether the noise is known.

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
    cells: Mapping[tuple[str, bool], ChebyshevMoments]

    def __post_init__(self) -> None:
        if not (np.isfinite(self.start) and np.isfinite(self.stop) and self.start < self.stop):
            raise DataError(f"expected a window of time with start < stop, got {self.start} to {self.stop}")

    @classmethod
    def empty(cls, start: float, stop: float) -> Statistics:
        """Return the statistics of no measurements, the zero of addition.

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
    def of(
        cls, start: float, stop: float, data: Observations | Iterable[TimeSeries], degree: int = CHEBYSHEV_DEGREE
    ) -> Statistics:
        """Return the statistics of measurements; all times must be in the window.

        Parameters
        ----------
        start, stop : float
            The window, in the user's time.
        data : Observations, or series
            Measurements with noise above zero.
        degree : int
            Degree of the polynomials that represent single functions: more than two per oscillation in the window.
        """
        total = cls.empty(start, stop)
        check_count("degree", degree)
        items = data.series if isinstance(data, Observations) else data
        series = list(items) if isinstance(items, Iterable) else [items]
        if wrong := [item for item in series if not isinstance(item, TimeSeries)]:
            raise DataError(f"expected Observations, or series of measurements, got {type(wrong[0]).__name__}")
        for group in _group_by_times(series):
            for first in range(0, len(group[0].times), 1 << 21):  # chunks bound the memory
                part = [item.select(slice(first, first + (1 << 21))) for item in group]
                total = total + _group_statistics(total.start, total.stop, part, degree)
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

        A polynomial on one window is a polynomial of the same degree on the other, so this is exact.

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
            nodes, weights = quadrature_from_moments(sums, len(sums))
            times = self.start + 0.5 * (nodes + 1.0) * (self.stop - self.start)
            return np.asarray(cosine_transform(chebyshev_angles(times, start, stop), [weights], len(sums) - 1)[0])

        cells = {}
        for key, cell in self.cells.items():
            filled = cell.bins[:, cell.bins[0] > 0]
            where = _bin_index(filled[1] / filled[0], start, stop)
            bins = np.stack([np.bincount(where, part, minlength=_N_BINS) for part in filled]).astype(float)
            weights, products = move(cell.weight_moments), move(cell.value_moments)
            cells[key] = replace(cell, weight_moments=weights, value_moments=products, bins=bins)
        return Statistics(float(start), float(stop), cells)

    @property
    def size(self) -> int:
        """Number of measurements."""
        return sum(cell.count for cell in self.cells.values())

    @property
    def observables(self) -> tuple[str, ...]:
        """The measured observables, in order of first appearance."""
        return tuple(dict.fromkeys(name for name, _ in self.cells))

    def thumbnail(self) -> list[TimeSeries]:
        """Return means over equal parts of the window, one series for each observable.

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
            found.append(TimeSeries(name, times[filled] / n, values[filled] / n, np.full(len(n), np.nan)))
        return found

    def arrays(self) -> dict[str, Array]:
        """Return plain arrays with all contents except the names, for storage.

        Examples
        --------
        >>> sorted(Statistics.of(0.0, 1.0, Observations().add([0.0, 0.5], "x", [1.0, 2.0])).arrays())
        ['bins_0', 'moments_0', 'products_0', 'sums_0']
        """
        found: dict[str, Array] = {}
        for i, cell in enumerate(self.cells.values()):
            found |= {f"moments_{i}": cell.weight_moments, f"products_{i}": cell.value_moments, f"bins_{i}": cell.bins}
            found[f"sums_{i}"] = np.array([cell.count, cell.log_weight_sum, cell.reference, cell.sum_of_squares])
        return found

    @classmethod
    def from_arrays(
        cls, window: Sequence[float], keys: Sequence[Sequence[object]], arrays: Mapping[str, Array]
    ) -> Statistics:
        """Restore statistics from `arrays`.

        Parameters
        ----------
        window : (float, float)
        keys : sequence of (str, bool)
            Keys of the cells, in order.
        arrays : dict of str to array

        Examples
        --------
        >>> sums = Statistics.of(0.0, 1.0, Observations().add([0.0, 0.5], "x", [1.0, 2.0]))
        >>> Statistics.from_arrays((0.0, 1.0), list(sums.cells), sums.arrays()).size
        2
        """
        cells = {}
        for i, (name, known) in enumerate(keys):
            count, log_weights, reference, square = map(float, arrays[f"sums_{i}"])
            moments = (arrays[f"{key}_{i}"] for key in ("moments", "products", "bins"))
            cells[str(name), bool(known)] = ChebyshevMoments(int(count), log_weights, reference, square, *moments)
        return cls(float(window[0]), float(window[1]), cells)


def chebyshev_nodes(count: int) -> Array:
    """Return the Chebyshev nodes in (-1, 1), ascending."""
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)


def quadrature_from_moments(moments: Array, count: int) -> tuple[Array, Array]:
    """Return nodes in (-1, 1) and weights with ``sum_q v_q g(x_q) = sum_t c_t g(x_t)`` for g of degree below count."""
    padded = np.zeros(count)
    padded[: min(count, len(moments))] = moments[:count]
    # v_q = (m_0 + 2 sum_k m_k T_k(x_q)) / count; T_k(-x) = (-1)^k T_k(x) puts the nodes in ascending order.
    padded[1::2] *= -1.0
    return chebyshev_nodes(count), dct(padded, type=3) / count


def chebyshev_angles(times: Array, start: float, stop: float) -> Array:
    """Return ``arccos(x)`` of times in a window, with x from -1 to 1; raise if a time is outside.

    Shapes: times (n,).
    """
    x = (times - start) * (2.0 / (stop - start)) - 1.0
    # The first and last time may lie outside by rounding.
    if len(x) and not (x.min() >= -1.0 - 1e-9 and x.max() <= 1.0 + 1e-9):
        outside = times[(x < -1.0) | (x > 1.0)][0]
        raise DataError(f"expected times between {start} and {stop}, got {outside}")
    return np.arccos(np.clip(x, -1.0, 1.0, out=x), out=x)


def _bin_index(times: Array, start: float, stop: float) -> IndexArray:
    scaled = (times - start) * (_N_BINS / (stop - start))
    return np.clip(scaled, 0, _N_BINS - 1).astype(np.intp)


def _group_by_times(series: Iterable[TimeSeries]) -> list[list[TimeSeries]]:
    """Return groups of series with equal times and equal noise, either known or estimated."""
    groups: list[tuple[bool, list[TimeSeries]]] = []
    for learned, item in (part for whole in series for part in whole.split_by_noise()):
        for is_learned, group in groups:
            first, is_new = group[0], item.observable not in [other.observable for other in group]
            has_same_times = first.times is item.times or np.array_equal(first.times, item.times)
            # The standard deviation of estimated noise is NaN.
            if is_new and learned is is_learned and has_same_times and (learned or np.array_equal(first.std, item.std)):
                group.append(item)
                break
        else:
            groups.append((learned, [item]))
    return [group for _, group in groups]


def _group_statistics(start: float, stop: float, group: Sequence[TimeSeries], degree: int) -> Statistics:
    """Return the statistics of series that share their times and their known noise."""
    times, std = group[0].times, group[0].std
    known = bool(group[0].has_known_noise[0])
    if known and not (std > 0).all():
        raise DataError("sums over the data need noise above zero; exact values belong to the dense engine")
    with np.errstate(over="ignore", invalid="ignore"):
        weights = std**-2.0 if known else np.ones(len(times))
        centred = [item.values - item.values[0] for item in group]
        weighted = [weights * values if known else values for values in centred]
        squares = [float(np.einsum("i,i", *pair)) for pair in zip(weighted, centred, strict=True)]
    if not np.isfinite([np.sum(weights), *squares]).all():
        names = ", ".join(item.observable for item in group)
        raise DataError(f"expected values of {names}, and noise, whose squares are finite floats; change their units")
    where = _bin_index(times, start, stop)
    counts, moments_of_time = np.bincount(where, minlength=_N_BINS), np.bincount(where, times, minlength=_N_BINS)
    sums = cosine_transform(chebyshev_angles(times, start, stop), [weights, *weighted], 2 * degree)
    cells, log_weight_sum = {}, float(np.log(weights).sum()) if known else 0.0
    for item, square, products in zip(group, squares, sums[1:], strict=True):
        bins = np.stack([counts, moments_of_time, np.bincount(where, item.values, minlength=_N_BINS)]).astype(float)
        moments, reference = (sums[0], products[: degree + 1].copy(), bins), float(item.values[0])
        cells[item.observable, known] = ChebyshevMoments(len(times), log_weight_sum, reference, square, *moments)
    return Statistics(start, stop, cells)
