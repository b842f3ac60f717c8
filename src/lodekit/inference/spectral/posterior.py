"""The posterior on waves and modes: any observable anywhere, strict by construction.

The posterior is a normal distribution of amplitudes; observables are exact combinations of waves and modes. Where a
time is so far from the data that a free function knows nothing of them, it keeps its prior, and no wave needs to reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.data.contradictions import check_met
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.spectral.evaluation import Solution, log_evidence, solve
from lodekit.inference.spectral.nodes import RawData, SummedData
from lodekit.inference.spectral.waves import turn_back, turn_columns, waves_at
from lodekit.inference.spectral.workspace import Workspace
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_block
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables
from lodekit.prior.points import Point
from lodekit.prior.spectra import Frequencies

__all__ = ["SpectralPosterior"]

Array = NDArray[np.float64]
#: So many times at once, so that waves at all of them need not fit into memory.
_BLOCK = 4096
#: What waves may miss of covariances, in units of the noise, where curves are asked for; the tolerance where that is
#: more: waves are made no better than it says.
_MISSED = 1e-7
#: The smallest noise variance that a difference of sums can show, in scaled units.
_FLOOR = 1e-12


@dataclass(frozen=True)
class SpectralPosterior:
    """The posterior at given hyperparameters, as a normal distribution of the amplitudes of waves and modes.

    Parameters
    ----------
    workspace : Workspace
        Prior and data.
    hyper : Hyperparameters
    """

    workspace: Workspace
    hyper: Hyperparameters
    _solutions: dict[tuple[float, int], Solution] = field(default_factory=dict, compare=False, repr=False)

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self._evidence[0]

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""
        return self._evidence[1]

    @property
    def window(self) -> tuple[float, float]:
        """The scaled times of which the data say something: averages begin before their times."""
        low, high = self.workspace.data.window
        return low - self.workspace.prior.observables.longest_window, high

    @cached_property
    def _evidence(self) -> tuple[float, float]:
        return log_evidence(self.workspace, self.hyper)

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: amplitudes do not cancel."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""
        found = []
        hyper, workspace = self.hyper, self.workspace
        levels = hyper.noise**2 / workspace.prior.noise.units[: len(hyper.noise)] ** 2
        if isinstance(workspace.data, SummedData) and (levels < _FLOOR).any():
            found.append(
                "the learned noise is below what sums over the data can tell from rounding; fit a few thousand "
                "measurements to see it"
            )
        if len(hyper.lengthscales) and float(np.min(hyper.lengthscales)) < 1.01 * workspace.limits.shortest:
            found.append(
                "a lengthscale sits at the shortest one that the spectral engine resolves; fit shorter pieces of the "
                "data, or use engine='dense' or latent='matern-7/2'"
            )
        return found

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met; sums have none."""
        data = self.workspace.data
        if isinstance(data, RawData) and any(item.exact.any() for item in data.series):
            observables = self.workspace.prior.observables
            curves = [self.mean(observables, item.times)[:, o] for o, item in enumerate(data.series)]
            check_met(data.series, observables.units.scales, curves)

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Parameters
        ----------
        observables : Observables
            Compiled, o of them; their units are those of the answer.
        times : array, shape (n,)
            In the user's units.
        """
        view = self._look(observables, times)
        found = [view.combine(part, view.solution.mean[:, None])[:, :, 0] for part in _blocks(times)]
        return np.concatenate(found) if found else np.zeros((0, observables.count))

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        view = self._look(observables, times)
        found = []
        for part in _blocks(times):
            functions, far = view.functions(part)
            total = np.stack([np.sum((D @ view.solution.inverse_root.T) ** 2, axis=1) for D in functions], axis=1)
            found.append(total + far.astype(float) @ view.prior_variances().T)
        return np.concatenate(found) if found else np.zeros((0, observables.count))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        view = self._look(observables, times)
        functions, far = view.functions(times)
        stacked = np.stack(functions, axis=1)
        reduced = stacked.reshape(-1, stacked.shape[-1]) @ view.solution.inverse_root.T
        count = len(functions)
        total = (reduced @ reduced.T).reshape(len(times), count, len(times), count)
        return total + view.far_covariance(times, far) if far.any() else total

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o).

        Parameters
        ----------
        observables, times
            As in `mean`.
        size : int
            How many functions.
        generator : numpy.random.Generator
        """
        view = self._look(observables, times, everywhere=True)
        solution = view.solution
        drawn = generator.standard_normal((len(solution.mean), size))
        amplitudes = solution.mean[:, None] + solution.inverse_root.T @ drawn
        found = [view.combine(part, amplitudes) for part in _blocks(times)]
        total = np.concatenate(found) if found else np.zeros((0, observables.count, size))
        return total.transpose(2, 0, 1)

    def _look(self, observables: Observables, times: Array, *, everywhere: bool = False) -> _Look:
        """Return observables on waves that reach as far as the times need: `everywhere`, or as far as the data do."""
        coefficients = observables.evaluate(self.hyper.theta)
        order = coefficients.free.shape[-1] - 1
        first = self._solve(0.0, order)
        low, high = self.window
        scaled, back = observables.units.scaled_times(times), observables.longest_window
        reach = np.inf if everywhere else max(first.frequencies.reach, default=0.0)
        try:
            beyond, solution = 0.0, first
            while (wanted := self._beyond(scaled, back, reach)) > beyond:
                # Where the window is too short to tell how long the prior remembers, a longer one may tell.
                beyond = wanted if reach < np.inf or everywhere else min(wanted, max(4.0 * beyond, high - low))
                solution = self._solve(beyond, order)
                reach = reach if everywhere else max(solution.frequencies.reach, default=0.0)
        except LodekitError as problem:
            raise LodekitError(f"expected times closer to the data: {problem}") from None
        if solution.frequencies.missed > max(_MISSED, self.workspace.tolerance):
            raise AccuracyError(
                "expected times closer to the data: so far out, waves miss a part of the prior of the channels that is "
                f"{solution.frequencies.missed:.1g} of the noise; ask for times within a few windows of the data"
            )
        return _Look(self, observables, coefficients, solution, everywhere)

    def _beyond(self, scaled: Array, back: float, reach: float) -> float:
        """Return by how much waves must reach further than the data, for scaled times.

        Parameters
        ----------
        scaled : array, shape (n,)
            The times that are asked for.
        back : float
            How far averages reach back before these.
        reach : float
            Beyond which the prior keeps nothing of the data.
        """
        low, high = self.window
        left = min(low, max(float(scaled.min(initial=low + back)) - back, low - reach - back))
        right = max(high, min(float(scaled.max(initial=high)), high + reach + back))
        beyond = (right - left) - (high - low)
        # A few lengths serve all requests.
        rounded = float(2.0 ** (np.ceil(2.0 * np.log2(beyond)) / 2.0)) if beyond > 0 else 0.0
        return min(rounded, 2.0 * (reach + back))

    def _solve(self, beyond: float, order: int) -> Solution:
        """Return the regression on waves for a window longer by `beyond`, scaled, and derivatives up to `order`."""
        key = (beyond, order)
        if key not in self._solutions:
            low, high = self.workspace.data.window
            self._solutions[key] = solve(self.workspace, self.hyper, high - low + beyond, order)
        return self._solutions[key]


def _blocks(times: Array) -> Iterator[Array]:
    """Yield times in pieces that keep matrices small."""
    for start in range(0, len(times), _BLOCK):
        yield times[start : start + _BLOCK]


@dataclass(frozen=True)
class _Look:
    """Observables on the waves and modes of a solution."""

    posterior: SpectralPosterior
    observables: Observables
    coefficients: Coefficients
    solution: Solution
    everywhere: bool

    @property
    def frequencies(self) -> Frequencies:
        return self.solution.frequencies

    @cached_property
    def on_waves(self) -> NDArray[np.complex128]:
        """The coefficients of the observables on whitened waves, shape (o, f)."""
        point = Point.at(self.coefficients, self.solution.channels, self.posterior.hyper)
        return self.posterior.workspace.spectrum.coefficients(self.frequencies, point)

    def functions(self, times: Array) -> tuple[list[Array], NDArray[np.bool_]]:
        """Return waves and modes seen through each observable, (n, d), and where processes are far, (n, processes)."""
        waves, modes, far = self._apart(times)
        found = [
            np.concatenate([turn_columns(np, waves, own.real, own.imag), part], axis=1)
            for own, part in zip(self.on_waves, modes, strict=True)
        ]
        return found, far

    def combine(self, times: Array, amplitudes: Array) -> Array:
        """Return observables of functions in their units, the particular solution added, shape (n, o, s)."""
        waves, modes, _ = self._apart(times)
        means, _ = self.observables.means(self.coefficients, times, slopes=False)
        own, rest = np.split(amplitudes, [waves.shape[1]])
        found = []
        for turn, part, mean in zip(self.on_waves, modes, means, strict=True):
            # Waves at many times are many more numbers than their amplitudes: these are turned.
            found.append(waves @ turn_back(np, own, turn.real, turn.imag) + part @ rest + mean[:, None])
        return np.stack(found, axis=1)

    def _apart(self, times: Array) -> tuple[Array, list[Array], NDArray[np.bool_]]:
        """Return waves, (n, 2 f), modes seen through each observable, (n, m), and where processes are far."""
        low, high = self.posterior.window
        scaled = self.observables.units.scaled_times(times)
        # An average is far where all of its interval is.
        distance = np.maximum(np.maximum(low - scaled, scaled - self.observables.longest_window - high), 0.0)
        far = distance[:, None] > np.array(self.frequencies.reach)[None, :]
        if self.everywhere:
            far[:] = False
        waves = waves_at(self.frequencies.values, scaled)
        if far.any():
            away = np.repeat(far, self.frequencies.counts, axis=1)
            waves[np.concatenate([away, away], axis=1)] = 0.0
        prior = self.posterior.workspace.prior
        basis, _ = self.observables.mode_basis(self.coefficients, prior.groups, scaled, slopes=False)
        roots = prior.mode_roots(self.posterior.hyper.mode_deviations)
        return waves, [part * roots for part in basis], far

    def prior_variances(self) -> Array:
        """Return the prior variance of each observable due to each process, shape (o, processes)."""
        power = np.abs(self.on_waves) ** 2
        edges = np.concatenate([[0], np.cumsum(self.frequencies.counts)]).astype(int)
        parts = [power[:, i:j].sum(axis=1) for i, j in pairwise(edges)]
        return np.stack(parts, axis=1) if parts else np.zeros((len(power), 0))

    def far_covariance(self, times: Array, far: NDArray[np.bool_]) -> Array:
        """Return the prior covariance where at least one of two times is far, shape (n, o, n, o)."""
        prior, hyper = self.posterior.workspace.prior, self.posterior.hyper
        scaled = self.observables.units.scaled_times(times)
        count, n = self.observables.count, len(times)
        total = np.zeros((n, count, n, count))
        if prior.channels is None:
            for number, latent in enumerate(prior.latents):
                own = self.coefficients.free[:, number]
                ell, deviation = hyper.lengthscales[number], hyper.deviations[number]
                windows = self.coefficients.windows, self.coefficients.windows
                block = free_block(np, latent, scaled, scaled, own, own, ell, deviation, windows)
                either = far[:, None, number] | far[None, :, number]
                total += block.transpose(1, 0, 3, 2) * either[:, None, :, None]
            return total
        lag = scaled[:, None] - scaled[None, :]
        reach = self.frequencies.reach[0] + self.observables.longest_window
        near = (far[:, None, 0] | far[None, :, 0]) & (np.abs(lag) <= reach)
        on_waves, frequencies = self.on_waves, self.frequencies.values
        rows, columns = np.nonzero(near)
        products = np.einsum("of,pf->opf", on_waves, np.conj(on_waves))
        for start in range(0, len(rows), _BLOCK):
            i, j = rows[start : start + _BLOCK], columns[start : start + _BLOCK]
            turned = np.exp(1j * np.outer(lag[i, j], frequencies))
            total[i, :, j, :] = np.einsum("nf,opf->nop", turned, products).real
        return total
