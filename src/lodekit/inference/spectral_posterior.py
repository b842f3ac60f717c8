"""The posterior on waves and modes: any observable anywhere, strict by construction.

The posterior is a normal distribution of amplitudes; observables are exact combinations of waves and modes. Where a
time is so far from the data that a free function knows nothing of them, it keeps its prior, and no wave needs to reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.evaluation import Solution, point_of
from lodekit.inference.problem import Hyperparameters, Rows
from lodekit.inference.regression import turn_columns, waves_at
from lodekit.prior.compile import RowValues
from lodekit.prior.covariance import free_block
from lodekit.prior.spectra import Waves

if TYPE_CHECKING:
    from lodekit.inference.spectral import SpectralEngine

__all__ = ["SpectralPosterior"]

Array = NDArray[np.float64]
_BLOCK = 4096


@dataclass(frozen=True)
class SpectralPosterior:
    """A prior with data, at given hyperparameters.

    Parameters
    ----------
    engine : SpectralEngine
    hyper : Hyperparameters
    """

    engine: SpectralEngine
    hyper: Hyperparameters
    _solutions: dict[tuple[float, int], Solution] = field(default_factory=dict, compare=False, repr=False)

    @property
    def value(self) -> float:
        """The negative log evidence in the user's units."""
        return self.engine.value(self.hyper)

    def warnings(self) -> list[str]:
        """Return what a user should know about the accuracy of the answer."""
        return self.engine.warnings(self.hyper)

    def mean(self, rows: Rows, times: Array) -> Array:
        """Return the posterior mean of observables, shape (n, o)."""
        view = self._look(rows, times)
        found = [view.combine(part, view.solution.mean[:, None])[:, :, 0] for part in _blocks(times)]
        return np.concatenate(found) if found else np.zeros((0, len(rows.scales)))

    def variance(self, rows: Rows, times: Array) -> Array:
        """Return the posterior variance of observables, shape (n, o)."""
        view = self._look(rows, times)
        found = []
        for part in _blocks(times):
            functions, far = view.functions(part)
            total = np.stack([np.sum((D @ view.solution.inverse_root.T) ** 2, axis=1) for D in functions], axis=1)
            found.append(total + far.astype(float) @ view.prior_variances().T)
        return np.concatenate(found) if found else np.zeros((0, len(rows.scales)))

    def covariance(self, rows: Rows, times: Array) -> Array:
        """Return the posterior covariance of observables, shape (n, o, n, o)."""
        view = self._look(rows, times)
        functions, far = view.functions(times)
        stacked = np.stack(functions, axis=1)
        reduced = stacked.reshape(-1, stacked.shape[-1]) @ view.solution.inverse_root.T
        count = len(functions)
        total = (reduced @ reduced.T).reshape(len(times), count, len(times), count)
        return total + view.far_covariance(times, far) if far.any() else total

    def sample(self, rows: Rows, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o)."""
        view = self._look(rows, times, everywhere=True)
        solution = view.solution
        drawn = generator.standard_normal((len(solution.mean), size))
        amplitudes = solution.mean[:, None] + solution.inverse_root.T @ drawn
        found = [view.combine(part, amplitudes) for part in _blocks(times)]
        total = np.concatenate(found) if found else np.zeros((0, len(rows.scales), size))
        return total.transpose(2, 0, 1)

    def _look(self, rows: Rows, times: Array, *, everywhere: bool = False) -> _Look:
        """Return observables on waves that are exact wherever they are needed."""
        values = rows.evaluate(self.hyper.theta)
        order = values.free.shape[-1] - 1
        first = self._solve(0.0, order)
        low, high = self.engine.data.window
        scaled = rows.scaling.time(times)
        reach = np.inf if everywhere else max(first.waves.reach, default=0.0)
        left = min(low, max(float(scaled.min(initial=low)), low - reach))
        right = max(high, min(float(scaled.max(initial=high)), high + reach))
        beyond = (right - left) - (high - low)
        if beyond > 0:
            # A few lengths serve all requests.
            beyond = float(2.0 ** (np.ceil(2.0 * np.log2(beyond)) / 2.0))
            beyond = min(beyond, 2.0 * reach)
        try:
            solution = self._solve(beyond, order) if beyond > 0 else first
        except LodekitError as problem:
            raise LodekitError(f"expected times closer to the data: {problem}") from None
        return _Look(self, rows, values, solution, everywhere)

    def _solve(self, beyond: float, order: int) -> Solution:
        key = (beyond, order)
        if key not in self._solutions:
            low, high = self.engine.data.window
            self._solutions[key] = self.engine.solve(self.hyper, high - low + beyond, order)
        return self._solutions[key]


def _blocks(times: Array) -> Iterator[Array]:
    for start in range(0, len(times), _BLOCK):
        yield times[start : start + _BLOCK]


@dataclass(frozen=True)
class _Look:
    """Observables on the waves and modes of a solution."""

    posterior: SpectralPosterior
    rows: Rows
    values: RowValues
    solution: Solution
    everywhere: bool

    @property
    def waves(self) -> Waves:
        return self.solution.waves

    @cached_property
    def coefficients(self) -> NDArray[np.complex128]:
        point = point_of(self.values, self.solution.channel_values, self.posterior.hyper)
        return self.posterior.engine.spectrum.coefficients(self.waves, point)

    def functions(self, times: Array) -> tuple[list[Array], NDArray[np.bool_]]:
        """Return all waves and modes seen through each observable, (n, d), and where sources are far, (n, sources)."""
        low, high = self.posterior.engine.data.window
        scaled = self.rows.scaling.time(times)
        distance = np.maximum(np.maximum(low - scaled, scaled - high), 0.0)
        far = distance[:, None] > np.array(self.waves.reach)[None, :]
        if self.everywhere:
            far[:] = False
        waves = waves_at(self.waves.frequencies, scaled)
        if far.any():
            away = np.repeat(far, self.waves.counts, axis=1)
            waves[np.concatenate([away, away], axis=1)] = 0.0
        basis, _ = self.rows.mode_basis(self.values, self.posterior.engine.prior.groups, scaled, slopes=False)
        roots = self.posterior.engine.prior.mode_roots(self.posterior.hyper.mode_deviations)
        found = [
            np.concatenate([turn_columns(np, waves, own.real, own.imag), part * roots], axis=1)
            for own, part in zip(self.coefficients, basis, strict=True)
        ]
        return found, far

    def combine(self, times: Array, amplitudes: Array) -> Array:
        """Return observables of functions in the user's units, the particular solution added, shape (n, o, s)."""
        functions, _ = self.functions(times)
        means, _ = self.rows.means(self.values, times)
        return np.stack([D @ amplitudes + m[:, None] for D, m in zip(functions, means, strict=True)], axis=1)

    def prior_variances(self) -> Array:
        """Return the prior variance of each observable due to each source, shape (o, sources)."""
        power = np.abs(self.coefficients) ** 2
        edges = np.concatenate([[0], np.cumsum(self.waves.counts)]).astype(int)
        parts = [power[:, i:j].sum(axis=1) for i, j in pairwise(edges)]
        return np.stack(parts, axis=1) if parts else np.zeros((len(power), 0))

    def far_covariance(self, times: Array, far: NDArray[np.bool_]) -> Array:
        """Return the prior covariance where at least one of two times is far, shape (n, o, n, o)."""
        prior, hyper = self.posterior.engine.prior, self.posterior.hyper
        scaled = self.rows.scaling.time(times)
        count, n = len(self.rows.scales), len(times)
        total = np.zeros((n, count, n, count))
        if prior.channels is None:
            for number, latent in enumerate(prior.latents):
                own = self.values.free[:, number]
                ell, deviation = hyper.lengthscales[number], hyper.deviations[number]
                block = free_block(np, latent, scaled, scaled, own, own, ell, deviation)
                either = far[:, None, number] | far[None, :, number]
                total += block.transpose(1, 0, 3, 2) * either[:, None, :, None]
            return total
        lag = scaled[:, None] - scaled[None, :]
        near = (far[:, None, 0] | far[None, :, 0]) & (np.abs(lag) <= self.waves.reach[0])
        coefficients, frequencies = self.coefficients, self.waves.frequencies
        rows, columns = np.nonzero(near)
        products = np.einsum("of,pf->opf", coefficients, np.conj(coefficients))
        for start in range(0, len(rows), _BLOCK):
            i, j = rows[start : start + _BLOCK], columns[start : start + _BLOCK]
            turned = np.exp(1j * np.outer(lag[i, j], frequencies))
            total[i, :, j, :] = np.einsum("nf,opf->nop", turned, products).real
        return total
