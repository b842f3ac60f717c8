"""The evidence on waves and modes: exact to a tolerance, at a cost that does not depend on the number of measurements.

Waves and nodes are chosen from the tolerance and the hyperparameters; what waves and data have in common is kept, so
that most evaluations of a search touch small matrices only. Where noise is so low that normal equations would lose the
digits, the same regression is done on a QR factorization of the design.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.engine import Evidence
from lodekit.inference.problem import Hyperparameters, Prior
from lodekit.inference.regression import Normal, Rooted, RootTerm, Slopes, Term, waves_at
from lodekit.inference.spectral_posterior import SpectralPosterior
from lodekit.inference.views import RootView, SpectralData, SummedData, View
from lodekit.prior.compile import RowValues
from lodekit.prior.covariance import free_variance
from lodekit.prior.spectra import MOST_WAVES, ChannelSpectrum, LatentSpectrum, Spectrum, Waves, gaussian_band

__all__ = ["Base", "Evaluation", "Functions", "OutOfReachError", "Solution", "SpectralEngine"]

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
T = TypeVar("T")
_GRIDS = 24
#: The largest error of the evidence by rounding, relative to itself or to the number of measurements.
_LOSS = 2e-9
#: With fewer rows than this share of the waves, the regression is solved over the rows.
_FEW_ROWS = 0.7
#: The smallest noise variance that a difference of sums can show, in scaled units.
_FLOOR = 1e-12


class OutOfReachError(LodekitError):
    """Hyperparameters at which the spectral engine cannot honour its tolerance."""


@dataclass(frozen=True)
class Base:
    """What waves and data have in common, whatever the hyperparameters: waves on nodes, and their products.

    Parameters
    ----------
    waves : Waves
    nodes : list of arrays, shape (q,)
        The different sets of nodes.
    on_nodes : list of arrays, shape (q, 2 f)
        All cosines, then all sines.
    views : list of View, or of RootView
    node_set, gram_of : list of int
        For each view its nodes, and its Gram matrix.
    grams : list of arrays, shape (2 f, 2 f), or for roots their images of the waves, (m, 2 f)
    sums : list of arrays, shape (2 f,)
        For each view, waves times data.
    """

    waves: Waves
    nodes: list[Array]
    on_nodes: list[Array]
    views: Sequence[View | RootView]
    node_set: list[int]
    gram_of: list[int]
    grams: list[Array]
    sums: list[Array]


@dataclass(frozen=True)
class Solution:
    """The regression solved at some hyperparameters.

    Parameters
    ----------
    value : float
        The negative log evidence in scaled units.
    mean : array, shape (d,)
        Of the whitened amplitudes: cosines, sines, modes.
    inverse_root : array, shape (d, d)
        A triangular K with ``K^T K`` their covariance.
    """

    value: float
    mean: Array
    inverse_root: Array
    waves: Waves
    values: RowValues
    channel_values: RowValues | None


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
        by_waves = band * length * max(self.prior.sources, 1) / (2.0 * np.pi * MOST_WAVES)
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
        base = _make_base(waves, views, roots=roots)
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


def _make_base(waves: Waves, views: Any, *, roots: bool) -> Base:
    frequencies = waves.frequencies
    nodes: list[Array] = []
    on_nodes: list[Array] = []
    node_set, gram_of, sums = [], [], []
    grams: list[Array] = []
    weights: list[tuple[int, Array]] = []
    for view in views:
        number = _position(nodes, view.nodes)
        if number == len(nodes):
            nodes.append(view.nodes)
            on_nodes.append(waves_at(frequencies, view.nodes))
        node_set.append(number)
        F = on_nodes[number]
        own = view.root if roots else view.weights
        places = [place for place, (where, _) in enumerate(weights) if where == number]
        place = next((place for place in places if _same(weights[place][1], own)), len(weights))
        if place == len(weights):
            weights.append((number, own))
            grams.append(view.apply(F) if roots else F.T @ (own[:, None] * F))
        gram_of.append(place)
        sums.append(np.zeros(0) if roots else F.T @ view.values)
    return Base(waves, nodes, on_nodes, views, node_set, gram_of, grams, sums)


def _position(known: Sequence[Array], wanted: Array) -> int:
    """Return where an array stands in a list; the length of the list where it does not."""
    return next((i for i, other in enumerate(known) if _same(other, wanted)), len(known))


def _same(first: Array, second: Array) -> bool:
    return first is second or (first.shape == second.shape and bool(np.array_equal(first, second)))


@dataclass(frozen=True)
class Functions:
    """Modes, scaled by their deviations, and means of all observables on some nodes, with derivatives."""

    modes: list[Array]
    d_modes: list[Array]
    means: list[Array]
    d_means: list[Array]


class Evaluation:
    """One evaluation of the evidence: everything that depends on the hyperparameters."""

    def __init__(
        self, engine: SpectralEngine, hyper: Hyperparameters, *, length: float | None = None, order: int = 0
    ) -> None:
        self.engine, self.hyper, self.prior = engine, hyper, engine.prior
        self.values = self.prior.rows.evaluate(hyper.theta)
        self.channel_values = None if self.prior.channels is None else self.prior.channels.evaluate(hyper.theta)
        self.channels = None if self.channel_values is None else self.channel_values.free
        self._length, self._order = length, order

    @property
    def _arguments(self) -> tuple[Array, Array | None, Array, Array]:
        return self.values.free, self.channels, self.hyper.lengthscales, self.hyper.deviations

    def _noise(self, row: int) -> float:
        """Return the learned noise variance of an observable in scaled units."""
        return float((self.hyper.noise[self.prior.noise_group[row]] / self.prior.rows.scales[row]) ** 2)

    def precision(self, view: View | RootView) -> float:
        """Return what the weights of a view are multiplied by."""
        return 1.0 / self._noise(view.row) if view.learned else 1.0

    def _accuracy(self, views: list[View]) -> float:
        """Return the tolerance of the covariance: relative to itself, and small against the noise."""
        ratio = 1.0
        for view in views:
            noise = self._noise(view.row) if view.learned else max(view.count, 1) / float(view.weights.sum())
            ratio = min(ratio, noise / max(self._prior_variance[view.row], 1e-300))
        exact = self.engine.tolerance * max(ratio, 1e-30)
        return float(10.0 ** (2.0 * np.floor(0.5 * np.log10(exact)))) if exact > 0 else 1e-40

    @property
    def _prior_variance(self) -> Array:
        free = self.values.free
        if self.prior.channels is not None:
            return np.ones(len(free))
        total = np.zeros(len(free))
        for number, latent in enumerate(self.prior.latents):
            ell, deviation = float(self.hyper.lengthscales[number]), float(self.hyper.deviations[number])
            total += free_variance(latent, free[:, number], ell, deviation)
        return total

    def prepare(self) -> tuple[Waves, int]:
        """Return the waves and the number of nodes; raise where the hyperparameters are out of reach."""
        engine, values = self.engine, self.values
        numbers = (values.free, self.hyper.lengthscales, self.hyper.deviations, self.hyper.noise, *values.factors)
        channels = np.zeros(0) if self.channels is None else self.channels
        if not all(np.isfinite(part).all() for part in (*numbers, channels)) or (self.hyper.noise <= 0).any():
            raise OutOfReachError("the prior is not finite at these values; check units and starting values")
        low, high = engine.data.window
        length = high - low if self._length is None else self._length
        eps = self._accuracy(engine.data.views(128))
        free = self.values.free
        if self._order >= free.shape[-1]:
            free = np.concatenate([free, np.zeros((*free.shape[:2], self._order + 1 - free.shape[-1]))], axis=-1)
        waves = self._waves(free, eps, length) if free.shape[1] else Waves((), (), ())
        if sum(waves.counts) > MOST_WAVES:
            raise OutOfReachError(
                f"the spectral engine needs {sum(waves.counts)} waves here, and takes at most {MOST_WAVES}: the window "
                "is very long against the lengthscales, or the system keeps its memory very long; take a shorter window"
            )
        return waves, engine.nodes(values, float(np.max(waves.frequencies, initial=0.0)))

    def _waves(self, free: Array, eps: float, length: float) -> Waves:
        """Return waves for a window; those of the channel prior are dear to find, so the last ones are tried first."""
        spectrum, rest = self.engine.spectrum, self._arguments[1:]
        if not isinstance(spectrum, ChannelSpectrum):
            return spectrum.waves(free, *rest, eps, length)
        key = ("waves", length, free.shape)
        last = self.engine._kept.get(key)
        channels, lengthscales, deviations = rest
        assert channels is not None  # noqa: S101
        if last is not None and spectrum.serves(last, free, channels, lengthscales, deviations, eps, length):
            return last
        found = spectrum.waves(free, *rest, eps, length)
        self.engine._kept[key] = found
        return found

    def turned(self, waves: Waves) -> tuple[Array, Array]:
        """Return the coefficients of the observables on the whitened waves: real and imaginary parts."""
        coefficients = self.engine.spectrum.coefficients(waves, *self._arguments)
        return coefficients.real, coefficients.imag

    def functions(self, base: Base, *, slopes: bool) -> list[Functions]:
        """Return for each set of nodes the modes (scaled by their deviations) and means of all observables."""
        scaling = self.prior.rows.scaling
        roots = np.repeat(self.hyper.mode_deviations, [group.size for group in self.prior.groups])
        found = []
        for nodes in base.nodes:
            basis, d_basis = self.prior.rows.mode_basis(self.values, self.prior.groups, nodes, slopes=slopes)
            means, d_means = self.prior.rows.means(self.values, scaling.start + scaling.span * nodes)
            found.append(Functions([part * roots for part in basis], [p * roots for p in d_basis], means, d_means))
        return found

    def terms(self, base: Base, functions: Sequence[Functions]) -> list[Term]:
        """Return what each view adds to the normal equations."""
        found = []
        for number, view in enumerate(base.views):
            assert isinstance(view, View)  # noqa: S101
            own = functions[base.node_set[number]]
            waves, mean = base.on_nodes[base.node_set[number]], own.means[view.row]
            rest, on_waves, square = view.values, base.sums[number], view.square
            if self.prior.rows.has_mean:
                rest = view.values - view.weights * mean
                on_waves = waves.T @ rest
                square += -2.0 * float(view.values @ mean) + float(view.weights @ mean**2)
            found.append(
                Term(
                    view.row,
                    self.prior.noise_group[view.row] if view.learned else -1,
                    view.count,
                    self.precision(view),
                    waves,
                    base.grams[base.gram_of[number]],
                    on_waves,
                    view.weights,
                    rest,
                    own.modes[view.row],
                    square,
                )
            )
        return found

    def _root_terms(self, base: Base, functions: Sequence[Functions]) -> list[RootTerm]:
        found = []
        for number, view in enumerate(base.views):
            assert isinstance(view, RootView)  # noqa: S101
            own = functions[base.node_set[number]]
            found.append(
                RootTerm(
                    view.row,
                    self.prior.noise_group[view.row] if view.learned else -1,
                    view.count,
                    self.precision(view),
                    base.grams[base.gram_of[number]],
                    view.apply(own.modes[view.row]),
                    view.target - view.apply(own.means[view.row]),
                    view.rest,
                )
            )
        return found

    def _prepared(self) -> tuple[Waves, int, Array, Array] | None:
        """Return waves, number of nodes and the coefficients of the observables; None where these are not finite."""
        prepared = self.prepare()
        a, b = self.turned(prepared[0])
        return (*prepared, a, b) if np.isfinite(a).all() and np.isfinite(b).all() else None

    def value(self, *, slopes: bool) -> tuple[float, Evidence | None] | None:
        """Return the negative log evidence in scaled units, and all of it with its gradient on request.

        None where nothing is finite. Where rows are few against waves, the regression is solved over the rows.
        """
        prepared = self._prepared()
        if prepared is None:
            return None
        waves, nodes, a, b = prepared
        size = 2 * a.shape[1] + sum(group.size for group in self.prior.groups)
        data, count = self.engine.data, nodes // 2 + 1
        if data.rows_of_root(count) > _FEW_ROWS * size or count > data.finest_root:
            found = self._solve(waves, nodes, a, b, slopes=slopes)
            return None if found is None else (found[0].value, found[1])
        base = self.engine.base(waves, nodes, roots=True)
        functions = self.functions(base, slopes=slopes)
        rooted = Rooted(a, b, self._root_terms(base, functions), len(self.hyper.noise))
        dual = rooted.solve_dual()
        if dual is None or not np.isfinite(dual.twice):
            return None
        value = 0.5 * (dual.twice + self.constants(base))
        return value, self.gradient(base, functions, value, rooted.slopes(dual)) if slopes else None

    def solution(self) -> Solution | None:
        """Return the solved regression; None where nothing is finite."""
        prepared = self._prepared()
        found = None if prepared is None else self._solve(*prepared, slopes=False)
        return None if found is None else found[0]

    def _solve(
        self, waves: Waves, nodes: int, a: Array, b: Array, *, slopes: bool
    ) -> tuple[Solution, Evidence | None] | None:
        """Solve by normal equations; by a QR factorization where these would lose digits."""
        base = self.engine.base(waves, nodes, roots=False)
        functions = self.functions(base, slopes=slopes)
        noises = len(self.hyper.noise)
        normal = Normal(np, a, b, self.terms(base, functions), noises)
        regression: Normal | Rooted = normal
        solved = normal.solve()
        twice = np.nan if solved is None else float(solved.twice)
        precise = self.engine.is_precise(float(normal.largest), float(sum(normal.squares)), normal.size, twice)
        if not precise and nodes // 2 < self.engine.data.finest_root:
            base = self.engine.base(waves, nodes, roots=True)
            functions = self.functions(base, slopes=slopes)
            regression = Rooted(a, b, self._root_terms(base, functions), noises)
            solved = regression.solve()
        if solved is None or not np.isfinite(solved.twice) or not np.isfinite(solved.mean).all():
            return None
        value = 0.5 * (float(solved.twice) + self.constants(base))
        solution = Solution(value, solved.mean, solved.root, waves, self.values, self.channel_values)
        return solution, self.gradient(base, functions, value, regression.slopes(solved)) if slopes else None

    def constants(self, base: Base) -> float:
        """Return the part of twice the evidence that depends on counts and noise alone."""
        total = 0.0
        for view in base.views:
            total += view.count * (np.log(2.0 * np.pi) - np.log(self.precision(view))) - view.log_weights
        return total

    def gradient(self, base: Base, functions: Sequence[Functions], value: float, slopes: Slopes) -> Evidence:
        """Return the gradient: derivatives in waves, modes and means pulled back to everything that is learned."""
        free, channels, lengthscales, deviations = self._arguments
        theta = np.zeros(len(self.hyper.theta))
        in_modes = np.zeros(sum(group.size for group in self.prior.groups))
        for number, view in enumerate(base.views):
            own = functions[base.node_set[number]]
            Y, on_mean = slopes.modes[number], slopes.means[number]
            if isinstance(view, RootView):
                Y, on_mean = view.transposed(Y), view.transposed(on_mean)
            in_modes += np.sum(Y * own.modes[view.row], axis=0)
            theta += np.einsum("pqr,qr->p", own.d_modes[view.row], Y)
            if self.prior.rows.has_mean:
                theta += own.d_means[view.row] @ on_mean
        in_lengthscales, in_deviations = np.zeros(len(lengthscales)), np.zeros(len(deviations))
        if free.shape[1]:
            pulled = self.engine.spectrum.pull(base.waves, free, channels, lengthscales, deviations, slopes.waves)
            theta += np.einsum("polk,olk->p", self.values.d_free, pulled.free)
            if pulled.channels is not None and self.channel_values is not None:
                theta += np.einsum("polk,olk->p", self.channel_values.d_free, pulled.channels)
            in_lengthscales, in_deviations = pulled.log_lengthscales, pulled.log_deviations
        starts = np.concatenate([[0], np.cumsum([group.size for group in self.prior.groups])[:-1]]).astype(int)
        in_modes = np.add.reduceat(in_modes, starts) if len(in_modes) else in_modes
        noise = np.asarray(slopes.noise, dtype=float)
        return Evidence(value - self.engine.jacobian, theta, in_lengthscales, in_deviations, in_modes, noise)
