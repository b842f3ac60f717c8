"""The evidence on waves and modes: exact to a tolerance, at a cost that does not depend on the number of measurements.

Waves and nodes are chosen from the tolerance and the hyperparameters; what waves and data have in common is kept, so
that most evaluations of a search touch small matrices only. Where noise is so low that normal equations would lose the
digits, the same regression is done on a QR factorization of the design.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.bases import Base, make_base
from lodekit.inference.engine import Evidence
from lodekit.inference.evaluation import Evaluation, OutOfReachError, Solution
from lodekit.inference.problem import Hyperparameters, Prior
from lodekit.inference.spectral_posterior import SpectralPosterior
from lodekit.inference.views import SpectralData, SummedData
from lodekit.prior.compile import RowValues
from lodekit.prior.spectra import MOST_WAVES, ChannelSpectrum, LatentSpectrum, Spectrum, Waves, gaussian_band

__all__ = ["SpectralEngine"]

Array = NDArray[np.float64]
T = TypeVar("T")
_GRIDS = 24
#: The largest error of the evidence by rounding, relative to itself or to the number of measurements.
_LOSS = 2e-9
#: The smallest noise variance that a difference of sums can show, in scaled units.
_FLOOR = 1e-12


@dataclass(frozen=True)
class SpectralEngine:
    """Evidence and posterior on waves.

    Parameters
    ----------
    prior : Prior
    data : SpectralData
    size : int
        Number of measurements.
    jacobian : float
        The logarithm that turns a density in scaled units into one in the user's units.
    tolerance : float
    """

    prior: Prior
    data: SpectralData
    size: int
    jacobian: float
    tolerance: float = 1e-10
    _bases: OrderedDict[Any, Base] = field(default_factory=OrderedDict, compare=False, repr=False)
    _kept: dict[Any, Waves] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bases": OrderedDict(), "_kept": {}}

    @property
    def spectrum(self) -> Spectrum:
        """The prior in frequency."""
        return LatentSpectrum() if self.prior.channels is None else ChannelSpectrum()

    @property
    def shortest(self) -> float:
        """The shortest lengthscale: its waves are still resolved by the nodes, and not too many."""
        low, high = self.data.window
        length = high - low
        band = gaussian_band(self.prior.rows.compiled.free_shape[-1], 1e-16)
        by_nodes = band * length / (0.9 * self.data.finest - 120.0)
        by_waves = band * length * max(self.prior.sources, 1) / (2.0 * np.pi * 0.5 * MOST_WAVES)
        return 1.3 * max(by_nodes, by_waves)

    @property
    def stride(self) -> float:
        """A factor that makes an evaluation dearer, but not too dear."""
        return 6.0

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the negative log evidence and its gradient; infinite where it is not finite."""
        with np.errstate(all="ignore"):
            found = _reached(lambda: Evaluation(self, hyper).value(slopes=True))
        return Evidence.infinite(hyper) if found is None or found[1] is None else found[1]

    def value(self, hyper: Hyperparameters) -> float:
        """Return the negative log evidence alone."""
        with np.errstate(all="ignore"):
            found = _reached(lambda: Evaluation(self, hyper).value(slopes=False))
        return np.inf if found is None else found[0] - self.jacobian

    def solve(self, hyper: Hyperparameters, length: float | None = None, order: int = 0) -> Solution:
        """Return the solved regression, on waves fit for a longer window and higher derivatives."""
        with np.errstate(all="ignore"):
            found = Evaluation(self, hyper, length=length, order=order).solution()
        if found is None:
            raise LodekitError(
                "the covariance of the data is not finite at these values; check units and starting values"
            )
        return found

    def posterior(self, hyper: Hyperparameters) -> SpectralPosterior:
        """Return the posterior; raise where it is not finite."""
        return SpectralPosterior(self, hyper)

    def powers(self, values: RowValues) -> tuple[Array, Array]:
        """Return mean squares of data and mode functions over the nodes."""
        prior = self.prior
        count = len(prior.rows.scales)
        total, weight = np.zeros(count), np.zeros(count)
        modes: list[Array] = [np.zeros(0)] * count
        try:
            nodes = self.nodes(values, 0.0)
        except OutOfReachError:
            nodes = 1024
        for view in self.data.views(nodes):
            scaling = prior.rows.scaling
            means, _ = prior.rows.means(values, scaling.start + scaling.span * view.nodes)
            m = means[view.row]
            total[view.row] += view.square - 2.0 * float(view.values @ m) + float(view.weights @ m**2)
            weight[view.row] += float(view.weights.sum())
            basis, _ = prior.rows.mode_basis(values, prior.groups, view.nodes, slopes=False)
            modes[view.row] = np.mean(basis[view.row] ** 2, axis=0)
        target = np.maximum(total, 0.0) / np.where(weight > 0, weight, 1.0)
        return np.where(target > 0, target, 1.0), np.mean(modes, axis=0) if prior.groups else np.zeros(0)

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return what is out of reach, if anything."""
        try:
            with np.errstate(all="ignore"):
                Evaluation(self, hyper).prepare()
        except OutOfReachError as problem:
            return str(problem)
        return ""

    def warnings(self, hyper: Hyperparameters) -> list[str]:
        """Return what a user should know about the accuracy of the answer."""
        found = []
        levels = hyper.noise**2 / self.prior.noise_units[: len(hyper.noise)] ** 2
        if isinstance(self.data, SummedData) and (levels < _FLOOR).any():
            found.append(
                "the learned noise is below what sums over the data can tell from rounding; fit a few thousand "
                "measurements to see it"
            )
        if len(hyper.lengthscales) and float(np.min(hyper.lengthscales)) < 1.01 * self.shortest:
            found.append(
                "a lengthscale sits at the shortest one that the spectral engine resolves; fit shorter pieces of the "
                "data, or use engine='dense'"
            )
        return found

    def is_precise(self, largest: float, squares: float, size: int, twice: float) -> bool:
        """Whether normal equations keep the digits of the evidence; the arguments say how much had to cancel."""
        loss = self.data.rounding * (largest * max(size, 1) + squares)
        return bool(loss <= _LOSS * max(self.size, abs(twice)))

    def nodes(self, values: RowValues, band: float) -> int:
        """Return how many nodes resolve products of waves up to a frequency, of modes and of particular solutions."""
        if not isinstance(self.data, SummedData):
            # Every measurement is a node.
            return 1
        low, high = self.data.window
        exponents = self.prior.rows.exponents(values, self.prior.groups)
        if not np.isfinite(exponents).all():
            raise OutOfReachError("the modes are not finite at these values; check units and starting values")
        fastest = max(band, float(np.max(np.abs(exponents.imag), initial=0.0))) * (high - low)
        steepest = float(np.max(np.abs(exponents.real), initial=0.0)) * (high - low)
        needed = fastest + 14.0 * fastest ** (1 / 3) + 40.0 + 2.0 * np.sqrt(37.0 * steepest)
        if needed > self.data.finest:
            raise OutOfReachError(
                f"sums over the data resolve {fastest / np.pi:.0f} half oscillations or a decay by {steepest:.0f} "
                "e-foldings in the window only in part; take a shorter window, or at most a few thousand measurements"
            )
        rounded = 64.0 * 2.0 ** (np.ceil(4.0 * np.log2(max(needed, 128.0) / 64.0)) / 4.0)
        return int(min(np.ceil(rounded), self.data.finest))

    def base(self, waves: Waves, nodes: int, *, roots: bool) -> Base:
        """Return what waves and data have in common."""
        key = (waves.steps, waves.counts, nodes, roots)
        if key in self._bases:
            self._bases.move_to_end(key)
            return self._bases[key]
        # Single functions need half the nodes of products.
        views: Any = self.data.roots(nodes // 2 + 1) if roots else self.data.views(nodes)
        base = make_base(waves, views, roots=roots)
        self._bases[key] = base
        while len(self._bases) > _GRIDS:
            self._bases.popitem(last=False)
        return base


def _reached(run: Callable[[], T]) -> T | None:
    """Return what a function returns; None where it is out of reach."""
    try:
        return run()
    except OutOfReachError:
        return None
