"""Prior and data for all evaluations: choices of waves and nodes, and products that are made once and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.engine import SearchLimits, channel_limits
from lodekit.inference.spectral.grams import Grams, make_grams
from lodekit.inference.spectral.nodes import NodeSums, RootSums, SpectralData, SummedData
from lodekit.prior.channel_spectrum import ChannelSpectrum
from lodekit.prior.compile import Coefficients
from lodekit.prior.points import Point
from lodekit.prior.prior import Prior
from lodekit.prior.spectra import MOST_WAVES, Frequencies, LatentSpectrum, Spectrum

__all__ = ["OutOfReachError", "Workspace"]

Array = NDArray[np.float64]
#: So many products of waves over the data are kept.
_GRAMS = 24
#: By what factor a lengthscale may shrink in one search: an evaluation gets dearer by it, but not too dear.
_STRIDE = 6.0
#: The largest error of the evidence by rounding, relative to itself or to the number of measurements.
_LOSS = 2e-9


class OutOfReachError(LodekitError):
    """Hyperparameters at which the spectral engine cannot honour its tolerance."""


@dataclass(frozen=True)
class Workspace:
    """Prior and data on waves, with the products of waves over the data that were made last.

    Parameters
    ----------
    prior : Prior
        Of the measured observables.
    data : SpectralData
        Sums over the measurements.
    size : int
        The number of measurements.
    log_jacobian : float
        The number that is added to a log density in scaled units to have it in the user's.
    tolerance : float
        The largest error of the covariance, relative to itself and to the noise.
    """

    prior: Prior
    data: SpectralData
    size: int
    log_jacobian: float
    tolerance: float = 1e-10
    _grams: OrderedDict[Any, Grams] = field(default_factory=OrderedDict, compare=False, repr=False)
    _kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_grams": OrderedDict(), "_kept": {}}

    @property
    def spectrum(self) -> Spectrum:
        """The prior in frequency."""
        if self.prior.channels is None:
            return LatentSpectrum(self.prior.latents)
        return ChannelSpectrum(self.tolerance, self._kept)

    @property
    def limits(self) -> SearchLimits:
        """How far a search may take lengthscales.

        The waves of the shortest one are still resolved by the nodes, and not too many.
        """
        data, prior = self.data, self.prior
        low, high = data.window
        # One time alone is as long as its unit.
        length = high - low or 1.0
        band = self.spectrum.band(prior.observables.compiled.free_shape[-1], 1e-16)
        # `nodes` and `Evaluation.prepare` solved for the lengthscale, with room for what they add; 1.3 is a margin.
        by_nodes = band * length / (0.9 * data.finest - 120.0)
        by_waves = band * length * max(prior.processes, 1) / (2.0 * np.pi * 0.5 * MOST_WAVES)
        make = SearchLimits if prior.channels is None else channel_limits
        return make(1.3 * max(by_nodes, by_waves), _STRIDE)

    def frequencies(self, point: Point, noise: Array, variances: Array, length: float) -> Frequencies:
        """Return waves for a window: the covariance they make is right to the tolerance, or they say what they miss.

        Parameters
        ----------
        point : Point
            Operators and hyperparameters.
        noise, variances : arrays, shape (o,)
            Variances of the observables: of their noise, and of the prior, which that of the channels finds itself.
        length : float
            Of the window, in scaled time.
        """
        spectrum = self.spectrum
        if isinstance(spectrum, ChannelSpectrum):
            return spectrum.frequencies(point, noise, length)
        assert isinstance(spectrum, LatentSpectrum)  # noqa: S101
        ratio = float(np.min(noise / np.maximum(variances, 1e-300), initial=1.0))
        exact = self.tolerance * max(ratio, 1e-30)
        # In even powers of ten, so that neighbours in a search share their waves.
        eps = float(10.0 ** (2.0 * np.floor(0.5 * np.log10(exact)))) if exact > 0 else 1e-40
        return spectrum.frequencies(point, eps, length)

    def is_precise(self, error: float, deviance: float) -> bool:
        """Return whether a fast way to solve the regression has kept the digits of the log evidence.

        Parameters
        ----------
        error : float
            Of the deviance, by rounding.
        deviance : float
            -2 log evidence without constants.
        """
        return bool(error <= _LOSS * max(self.size, abs(deviance)))

    def nodes(self, coefficients: Coefficients, band: float) -> int:
        """Return how many nodes resolve products of waves, modes and particular solutions; raise where sums cannot.

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables; they hold the exponents of the modes.
        band : float
            The highest frequency of the waves, in scaled time.
        """
        if not isinstance(self.data, SummedData):
            # Every measurement is a node.
            return 1
        low, high = self.data.window
        exponents = self.prior.observables.exponents(coefficients, self.prior.groups)
        if not np.isfinite(exponents).all():
            raise OutOfReachError("the modes are not finite at these values; check units and starting values")
        fastest = max(band, float(np.max(np.abs(exponents.imag), initial=0.0))) * (high - low)
        steepest = float(np.max(np.abs(exponents.real), initial=0.0)) * (high - low)
        # Beyond so many terms Chebyshev series end: of products of two waves a little above what they turn by in half
        # the window, of decays at the root of what they decay by, times 37, which is -log(1e-16).
        needed = fastest + 14.0 * fastest ** (1 / 3) + 40.0 + 2.0 * np.sqrt(37.0 * steepest)
        if needed > self.data.finest:
            raise OutOfReachError(
                f"sums over the data resolve {fastest / np.pi:.0f} half oscillations or a decay by {steepest:.0f} "
                "e-foldings in the window only in part; take a shorter window, at most a few thousand measurements, or "
                "engine='markov' with latent='matern-7/2'"
            )
        # Few different numbers, so that neighbours in a search share their nodes.
        rounded = 64.0 * 2.0 ** (np.ceil(4.0 * np.log2(max(needed, 128.0) / 64.0)) / 4.0)
        return int(min(np.ceil(rounded), self.data.finest))

    def grams(self, frequencies: Frequencies, nodes: int, *, roots: bool) -> Grams:
        """Return the products of waves over the data; those that were made last are kept.

        Parameters
        ----------
        frequencies : Frequencies
            Of the waves.
        nodes : int
            How many nodes, for products of two functions.
        roots : bool
            Whether the data are taken by their roots, on half the nodes.
        """
        key = (frequencies.key, nodes, roots)
        if key in self._grams:
            self._grams.move_to_end(key)
            return self._grams[key]
        # Single functions need half the nodes of products.
        sums: Sequence[NodeSums | RootSums]
        sums = self.data.root_sums(nodes // 2 + 1) if roots else self.data.node_sums(nodes)
        found = self._grams[key] = make_grams(frequencies, sums)
        while len(self._grams) > _GRAMS:
            self._grams.popitem(last=False)
        return found
