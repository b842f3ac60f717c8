"""One evaluation of the evidence on waves and modes: everything that depends on the hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.bases import Base
from lodekit.inference.engine import Evidence
from lodekit.inference.problem import Hyperparameters
from lodekit.inference.regression import Normal, Rooted, RootTerm, Slopes, Term
from lodekit.inference.views import RootView, View
from lodekit.prior.compile import RowValues
from lodekit.prior.covariance import free_variance
from lodekit.prior.spectra import MOST_WAVES, ChannelSpectrum, Point, Waves

if TYPE_CHECKING:
    from lodekit.inference.spectral import SpectralEngine

__all__ = ["Evaluation", "Functions", "OutOfReachError", "Solution", "point_of"]

Array = NDArray[np.float64]
#: With fewer rows than this share of the waves, the regression is solved over the rows.
_FEW_ROWS = 0.7


class OutOfReachError(LodekitError):
    """Hyperparameters at which the spectral engine cannot honour its tolerance."""


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
class Functions:
    """Modes, scaled by their deviations, and means of all observables on some nodes, with derivatives."""

    modes: list[Array]
    d_modes: list[Array]
    means: list[Array]
    d_means: list[Array]


def point_of(values: RowValues, channel_values: RowValues | None, hyper: Hyperparameters) -> Point:
    """Return what the spectrum of the prior depends on, for some observables."""
    channels = np.zeros((0, 0, 0)) if channel_values is None else channel_values.free
    return Point(values.free, channels, hyper.lengthscales, hyper.deviations)


class Evaluation:
    """One evaluation of the evidence: everything that depends on the hyperparameters."""

    def __init__(
        self, engine: SpectralEngine, hyper: Hyperparameters, *, length: float | None = None, order: int = 0
    ) -> None:
        self.engine, self.hyper, self.prior = engine, hyper, engine.prior
        self.values = self.prior.rows.evaluate(hyper.theta)
        self.channel_values = None if self.prior.channels is None else self.prior.channels.evaluate(hyper.theta)
        self._length, self._order = length, order
        # A search keeps away from the limit, so that what it finds can be evaluated again, on waves found afresh.
        self._most = MOST_WAVES

        self.point = point_of(self.values, self.channel_values, hyper)

    def _noise(self, row: int) -> float:
        """Return the learned noise variance of an observable in scaled units."""
        return float((self.hyper.noise[self.prior.noise_group[row]] / self.prior.rows.scales[row]) ** 2)

    def precision(self, view: View | RootView) -> float:
        """Return what the weights of a view are multiplied by."""
        return 1.0 / self._noise(view.row) if view.learned else 1.0

    def _accuracy(self, views: list[View]) -> float:
        """Return the tolerance of the covariance: relative to itself, and small against the noise."""
        ratio, variance = 1.0, self._prior_variance()
        for view in views:
            noise = self._noise(view.row) if view.learned else max(view.count, 1) / float(view.weights.sum())
            ratio = min(ratio, noise / max(variance[view.row], 1e-300))
        exact = self.engine.tolerance * max(ratio, 1e-30)
        return float(10.0 ** (2.0 * np.floor(0.5 * np.log10(exact)))) if exact > 0 else 1e-40

    def _prior_variance(self) -> Array:
        """Return the prior variance of the observables; that of the channel prior is taken as that of the data."""
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
        point, noise = self.point, self.hyper.noise
        numbers = (point.free, point.channels, point.lengthscales, point.deviations, noise, *values.factors)
        if not all(np.isfinite(part).all() for part in numbers) or (noise <= 0).any():
            raise OutOfReachError("the prior is not finite at these values; check units and starting values")
        low, high = engine.data.window
        length = high - low if self._length is None else self._length
        eps = self._accuracy(engine.data.views(128))
        missing = self._order + 1 - point.free.shape[-1]
        if missing > 0:
            point = replace(point, free=np.pad(point.free, ((0, 0), (0, 0), (0, missing))))
        waves = self._waves(point, eps, length) if point.free.shape[1] else Waves((), (), ())
        if sum(waves.counts) > self._most:
            raise OutOfReachError(
                f"the spectral engine needs {sum(waves.counts)} waves here, and takes at most {self._most}: the window "
                "is very long against the lengthscales, or the system keeps its memory very long; take a shorter window"
            )
        return waves, engine.nodes(values, float(np.max(waves.frequencies, initial=0.0)))

    def _waves(self, point: Point, eps: float, length: float) -> Waves:
        """Return waves for a window; those of the channel prior are dear to find, so the last ones are tried first."""
        spectrum = self.engine.spectrum
        if not isinstance(spectrum, ChannelSpectrum):
            return spectrum.waves(point, eps, length)
        key = (length, point.free.shape)
        last = self.engine._kept.get(key)
        if last is not None and spectrum.serves(last, point, eps, length):
            return last
        found = spectrum.waves(point, eps, length)
        self.engine._kept[key] = found
        return found

    def turned(self, waves: Waves) -> tuple[Array, Array]:
        """Return the coefficients of the observables on the whitened waves: real and imaginary parts."""
        coefficients = self.engine.spectrum.coefficients(waves, self.point)
        return coefficients.real, coefficients.imag

    def functions(self, base: Base, *, slopes: bool) -> list[Functions]:
        """Return for each set of nodes the modes (scaled by their deviations) and means of all observables."""
        scaling = self.prior.rows.scaling
        roots = self.prior.mode_roots(self.hyper.mode_deviations)
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
        self._most = int(0.7 * MOST_WAVES) if slopes else MOST_WAVES
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
        pulled = self.engine.spectrum.pull(base.waves, self.point, slopes.waves)
        theta += np.einsum("polk,olk->p", self.values.d_free, pulled.free)
        if self.channel_values is not None:
            theta += np.einsum("polk,olk->p", self.channel_values.d_free, pulled.channels)
        modes, noise = self.prior.sum_groups(in_modes), np.asarray(slopes.noise, dtype=float)
        return Evidence(
            value - self.engine.jacobian, theta, pulled.log_lengthscales, pulled.log_deviations, modes, noise
        )
