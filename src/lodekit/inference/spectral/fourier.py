"""Fourier features: cosines and sines on the nodes of the data, their Gram matrices, and the choice of frequencies.

A differential operator multiplies each wave by a number, ``W(i w)``. Gram matrices over the data depend on no
hyperparameter: a workspace computes them once and caches them for many evaluations.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.engine import SearchLimits, channel_search_limits
from lodekit.inference.spectral.nodes import ChebyshevData, NodeFactor, NodeStatistics, SpectralData
from lodekit.prior.channel_prior.channel_spectrum import ChannelSpectrum
from lodekit.prior.compile import Coefficients
from lodekit.prior.prior import Prior
from lodekit.prior.spectra import MAX_FOURIER_WAVES, FourierFrequencies, FreeFunctionSpectrum, SpectralPoint

Array = NDArray[np.float64]


def fourier_basis(frequencies: Array, times: Array) -> Array:
    """Return all cosines, then all sines, at some times, shape (n, 2 f).

    Shapes: frequencies (f,), times (n,).
    """
    angle, count = np.outer(times, frequencies), len(frequencies)
    found = np.empty((len(times), 2 * count))
    np.cos(angle, out=found[:, :count])
    np.sin(angle, out=found[:, count:])
    return found


def apply_operator(basis: Array, a: Array, b: Array) -> Array:
    """Return ``W(d)`` of all waves: columns (cosines, sines) times the coefficients ``a + i b``, shape (n, 2 f).

    ``W(d) cos = a cos - b sin`` and ``W(d) sin = a sin + b cos``.

    Shapes: basis (n, 2 f), a, b (f,).
    """
    C, S = basis[:, : len(a)], basis[:, len(a) :]
    return np.concatenate([C * a - S * b, S * a + C * b], axis=1)


def to_fourier_amplitudes(amplitudes: Array, a: Array, b: Array) -> Array:
    """Return the amplitudes of plain cosines and sines, given those of ``W(d)`` of them, shape (2 f, n)."""
    return apply_operator(amplitudes.T, a, -b).T


@dataclass(frozen=True)
class GramMatrices:
    """Waves on the nodes of the data, and their products; the same for all hyperparameters that share the waves.

    frequencies: Of the waves.
    nodes: The different sets of nodes, in scaled time; (q,).
    basis_on_nodes: The waves on each set of nodes: all cosines, then all sines; (q, 2 f).
    statistics: The data.
    node_set_index, product_index: For each of the sums its nodes, and its matrix of products.
    products: The weighted products of waves with waves; or the roots' images of the waves; (2 f, 2 f).
    basis_times_data: For each of the sums, waves times data; empty for roots; (2 f,).
    """

    frequencies: FourierFrequencies
    nodes: list[Array]
    basis_on_nodes: list[Array]
    statistics: Sequence[NodeStatistics | NodeFactor]
    node_set_index: list[int]
    product_index: list[int]
    products: list[Array]
    basis_times_data: list[Array]


def compute_gram_matrices(
    frequencies: FourierFrequencies, statistics: Sequence[NodeStatistics | NodeFactor]
) -> GramMatrices:
    """Return waves on the nodes of data, and their products; what several sums share is made once."""
    nodes: list[Array] = []
    on_nodes: list[Array] = []
    node_set, product_of, on_waves = [], [], []
    products: list[Array] = []
    weights: list[tuple[int, Array]] = []
    for item in statistics:
        number = next((i for i, other in enumerate(nodes) if _is_same_array(other, item.nodes)), len(nodes))
        if number == len(nodes):
            nodes.append(item.nodes)
            on_nodes.append(fourier_basis(frequencies.values, item.nodes))
        node_set.append(number)
        F = on_nodes[number]
        if isinstance(item, NodeFactor):
            own, on_data = item.factor, np.zeros(0)
        else:
            own, on_data = item.weights, F.T @ item.weighted_values
        on_waves.append(on_data)
        places = [place for place, (where, _) in enumerate(weights) if where == number]
        place = next((place for place in places if _is_same_array(weights[place][1], own)), len(weights))
        if place == len(weights):
            weights.append((number, own))
            products.append(item.apply(F) if isinstance(item, NodeFactor) else F.T @ (own[:, None] * F))
        product_of.append(place)
    return GramMatrices(frequencies, nodes, on_nodes, statistics, node_set, product_of, products, on_waves)


def _is_same_array(first: Array, second: Array) -> bool:
    return first is second or (first.shape == second.shape and bool(np.array_equal(first, second)))


#: The largest error of the evidence by rounding, relative to itself or to the number of measurements.
_MAX_RELATIVE_EVIDENCE_ERROR = 2e-9


class SpectralToleranceError(LodekitError):
    """Hyperparameters at which the spectral engine cannot honour its tolerance."""


@dataclass(frozen=True)
class SpectralWorkspace:
    """Prior and data on waves, with the products of waves over the data that were made last.

    prior: Of the measured observables.
    data: Sums over the measurements.
    size: The number of measurements.
    log_jacobian: The number that is added to a log density in scaled units to have it in the user's.
    tolerance: The largest error of the covariance, relative to itself and to the noise.
    """

    prior: Prior
    data: SpectralData
    size: int
    log_jacobian: float
    tolerance: float = 1e-10
    _grams: OrderedDict[Any, GramMatrices] = field(default_factory=OrderedDict, compare=False, repr=False)
    _kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_grams": OrderedDict(), "_kept": {}}

    @property
    def spectrum(self) -> FreeFunctionSpectrum | ChannelSpectrum:
        """The prior in frequency."""
        if self.prior.channels is None:
            return FreeFunctionSpectrum(self.prior.kernels)
        return ChannelSpectrum(self.tolerance, self._kept)

    @property
    def search_limits(self) -> SearchLimits:
        """How far a search may take lengthscales.

        The waves of the shortest one are still resolved by the nodes, and not too many.
        """
        data, prior = self.data, self.prior
        low, high = data.window
        # One time alone is as long as its unit.
        length = high - low or 1.0
        band = self.spectrum.bandwidth(prior.observables.compiled.free_shape[-1], 1e-16)
        # `nodes` and `Evaluation.prepare` solved for the lengthscale, with room for what they add; 1.3 is a margin.
        by_nodes = band * length / (0.9 * data.max_nodes - 120.0)
        by_waves = band * length * max(prior.n_processes, 1) / (2.0 * np.pi * 0.5 * MAX_FOURIER_WAVES)
        make = SearchLimits if prior.channels is None else channel_search_limits
        # A lengthscale may shrink by a factor of 6 in one search, which makes an evaluation slower by as much.
        return make(1.3 * max(by_nodes, by_waves), 6.0)

    def choose_frequencies(
        self, point: SpectralPoint, noise_variance: Array, variances: Array, length: float
    ) -> FourierFrequencies:
        """Return waves for a window: the covariance they make is right to the tolerance, or they say what they miss.

        Shapes: noise_variance, variances (o,).
        """
        spectrum = self.spectrum
        if isinstance(spectrum, ChannelSpectrum):
            return spectrum.frequencies(point, noise_variance, length)
        ratio = float(np.min(noise_variance / np.maximum(variances, 1e-300), initial=1.0))
        exact = self.tolerance * max(ratio, 1e-30)
        # In even powers of ten, so that neighbours in a search share their waves.
        eps = float(10.0 ** (2.0 * np.floor(0.5 * np.log10(exact)))) if exact > 0 else 1e-40
        return spectrum.frequencies(point, eps, length)

    def is_precise(self, error: float, deviance: float) -> bool:
        """Return whether a fast way to solve the regression has kept the digits of the log evidence."""
        return bool(error <= _MAX_RELATIVE_EVIDENCE_ERROR * max(self.size, abs(deviance)))

    def count_nodes(self, coefficients: Coefficients, band: float) -> int:
        """Return how many nodes resolve products of waves, modes and particular solutions; raise where sums cannot."""
        if not isinstance(self.data, ChebyshevData):
            # Every measurement is a node.
            return 1
        low, high = self.data.window
        exponents = self.prior.observables.exponents(coefficients, self.prior.groups)
        if not np.isfinite(exponents).all():
            raise SpectralToleranceError("the modes are not finite at these values; check units and starting values")
        fastest = max(band, float(np.max(np.abs(exponents.imag), initial=0.0))) * (high - low)
        steepest = float(np.max(np.abs(exponents.real), initial=0.0)) * (high - low)
        # Beyond so many terms Chebyshev series end: of products of two waves a little above what they turn by in half
        # the window, of decays at the root of what they decay by, times 37, which is -log(1e-16).
        needed = fastest + 14.0 * fastest ** (1 / 3) + 40.0 + 2.0 * np.sqrt(37.0 * steepest)
        if needed > self.data.max_nodes:
            raise SpectralToleranceError(
                f"sums over the data resolve {fastest / np.pi:.0f} half oscillations or a decay by {steepest:.0f} "
                "e-foldings in the window only in part; take a shorter window, at most a few thousand measurements, or "
                "engine='markov' with latent='matern-7/2'"
            )
        # Few different numbers, so that neighbours in a search share their nodes.
        rounded = 64.0 * 2.0 ** (np.ceil(4.0 * np.log2(max(needed, 128.0) / 64.0)) / 4.0)
        return int(min(np.ceil(rounded), self.data.max_nodes))

    def gram_matrices(self, frequencies: FourierFrequencies, nodes: int, *, factored: bool) -> GramMatrices:
        """Return the products of waves over the data; those that were made last are kept."""
        key = (frequencies.cache_key, nodes, factored)
        if key in self._grams:
            self._grams.move_to_end(key)
            return self._grams[key]
        # Single functions need half the nodes of products.
        sums: Sequence[NodeStatistics | NodeFactor]
        sums = self.data.node_factors(nodes // 2 + 1) if factored else self.data.node_statistics(nodes)
        found = self._grams[key] = compute_gram_matrices(frequencies, sums)
        if len(self._grams) > 24:
            self._grams.popitem(last=False)
        return found
