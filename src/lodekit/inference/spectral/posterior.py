"""Posterior of any observable from Fourier features and modes.

The posterior is a normal distribution of amplitudes, and observables are linear combinations of waves and modes that
satisfy the equations exactly. At times so far from the data that a free function is uncorrelated with them, the prior
is used, so that waves need not represent these times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lodekit.data.records import check_exact_residuals
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.engine import BasePosterior
from lodekit.inference.spectral.regression import apply_operator, fourier_basis, to_fourier_amplitudes
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_function_covariance
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters
from lodekit.prior.spectra import FourierFrequencies, SpectralPoint
from lodekit.support.arguments import Array, ComplexArray, Mask

if TYPE_CHECKING:
    from lodekit.inference.spectral.engine import SpectralEngine

#: Number of times that are evaluated together, which limits memory.
_CHUNK_TIMES = 4096


@dataclass(frozen=True)
class SpectralPosterior(BasePosterior):
    """The posterior at given hyperparameters, as a normal distribution of the amplitudes of waves and modes.

    engine: Prior and data.
    """

    engine: SpectralEngine
    hyper: Hyperparameters
    _solutions: dict[tuple[float, int], tuple[Array, Array, FourierFrequencies]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self._evidence[0]

    @property
    def error(self) -> float:
        """The estimated rounding error of the log evidence."""
        return self._evidence[1]

    @property
    def window(self) -> tuple[float, float]:
        """The scaled time window of the data, including the averaging intervals, which begin before their times."""
        low, high = self.engine.window
        return low - self.engine.prior.observables.longest_window, high

    @cached_property
    def _evidence(self) -> tuple[float, float]:
        return self.engine.value_with_error(self.hyper)

    @cached_property
    def channels(self) -> Coefficients | None:
        """The coefficients of all channels under the channel prior."""
        channels = self.engine.prior.channels
        return None if channels is None else channels.evaluate(self.hyper.theta)

    def warnings(self) -> list[str]:
        """Return warnings about the accuracy; empty if there are none."""
        found = []
        hyper, engine = self.hyper, self.engine
        levels = hyper.noise_std**2 / engine.prior.noise.level_scales[: len(hyper.noise_std)] ** 2
        # The smallest variance that a difference of sums resolves.
        if not engine.is_pointwise and (levels < 1e-12).any():
            found.append(
                "the estimated noise is below the rounding errors of sums over the data; fit a few thousand "
                "measurements to estimate it"
            )
        if float(np.min(hyper.lengthscales, initial=np.inf)) < 1.01 * engine.search_limits.min_lengthscale:
            found.append(
                "a lengthscale is at the shortest one that the spectral engine resolves; fit shorter pieces of the "
                "data, or use engine='dense' or latent='matern-7/2'"
            )
        return found

    def check_exact_values(self) -> None:
        """Raise if the posterior does not meet exact values; sums contain none."""
        series = self.engine.measurements.series
        if self.engine.is_pointwise and any(item.is_exact.any() for item in series):
            observables = self.engine.prior.observables
            for o, item in enumerate(series):
                residuals = self.mean(observables, item.times)[:, o] - item.values / observables.units.scales[o]
                check_exact_residuals(item.times[item.is_exact], residuals[item.is_exact])

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """
        view = self._build_design(observables, times)
        found = [view.evaluate_observables(part, view.mean[:, None])[:, :, 0] for part in _split_times(times)]
        return np.concatenate(found) if found else np.zeros((0, observables.count))

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        view = self._build_design(observables, times)
        found = []
        for part in _split_times(times):
            functions, far = view.design_matrices(part)
            total = np.stack([np.sum((D @ view.covariance_root.T) ** 2, axis=1) for D in functions], axis=1)
            found.append(total + far.astype(float) @ view.prior_variances().T)
        return np.concatenate(found) if found else np.zeros((0, observables.count))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        view = self._build_design(observables, times)
        functions, far = view.design_matrices(times)
        stacked = np.stack(functions, axis=1)
        reduced = stacked.reshape(-1, stacked.shape[-1]) @ view.covariance_root.T
        count = len(functions)
        total: Array = (reduced @ reduced.T).reshape(len(times), count, len(times), count)
        return total + view.covariance_beyond_range(times, far) if far.any() else total

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return samples of observables from the posterior, shape (size, n, o)."""
        view = self._build_design(observables, times, whole_range=True)
        drawn = generator.standard_normal((len(view.mean), size))
        amplitudes = view.mean[:, None] + view.covariance_root.T @ drawn
        found = [view.evaluate_observables(part, amplitudes) for part in _split_times(times)]
        total = np.concatenate(found) if found else np.zeros((0, observables.count, size))
        return total.transpose(2, 0, 1)

    def _build_design(self, observables: Observables, times: Array, *, whole_range: bool = False) -> _FourierDesign:
        """Return observables on waves for all times with `whole_range`, else for times correlated with the data."""
        coefficients = observables.evaluate(self.hyper.theta)
        order = coefficients.free.shape[-1] - 1
        solution = self._cached_solution(0.0, order)
        low, high = self.window
        scaled, back = observables.units.scale_times(times), observables.longest_window
        reach = np.inf if whole_range else max(solution[2].correlation_range, default=0.0)
        try:
            beyond = 0.0
            while (wanted := self._window_extension(scaled, back, reach)) > beyond:
                # The window may be too short to determine the correlation range: extend it in steps.
                beyond = wanted if reach < np.inf or whole_range else min(wanted, max(4.0 * beyond, high - low))
                solution = self._cached_solution(beyond, order)
                reach = reach if whole_range else max(solution[2].correlation_range, default=0.0)
        except LodekitError as problem:
            raise LodekitError(f"expected times closer to the data: {problem}") from None
        missed = solution[2].truncation_error
        if missed > max(1e-7, self.engine.tolerance):
            raise AccuracyError(
                "expected times closer to the data: here, the truncation error of the channel prior is "
                f"{missed:.1g} of the noise"
            )
        return _FourierDesign(self, observables, coefficients, *solution, whole_range)

    def _window_extension(self, scaled: Array, longest_window: float, correlation_range: float) -> float:
        """Return the length by which the window of the waves must exceed that of the data, for scaled times.

        Shapes: scaled (n,).
        """
        low, high = self.window
        reach = correlation_range + longest_window
        left = min(low, max(float(scaled.min(initial=low + longest_window)) - longest_window, low - reach))
        right = max(high, min(float(scaled.max(initial=high)), high + reach))
        beyond = (right - left) - (high - low)
        # Rounded to few distinct lengths, so that requests share solutions.
        rounded = float(2.0 ** (np.ceil(2.0 * np.log2(beyond)) / 2.0)) if beyond > 0 else 0.0
        return min(rounded, 2.0 * reach)

    def _cached_solution(self, extension: float, order: int) -> tuple[Array, Array, FourierFrequencies]:
        """Return the regression on waves for a window longer by `extension`, scaled, and derivatives up to `order`."""
        key = (extension, order)
        if key not in self._solutions:
            low, high = self.engine.window
            self._solutions[key] = self.engine.solve_amplitudes(self.hyper, high - low + extension, order)
        return self._solutions[key]


def _split_times(times: Array) -> Iterator[Array]:
    """Yield times in chunks that limit memory."""
    for start in range(0, len(times), _CHUNK_TIMES):
        yield times[start : start + _CHUNK_TIMES]


@dataclass(frozen=True)
class _FourierDesign:
    """Observables on the waves and modes of a solution: mean and covariance root of their amplitudes, (d,), (d, d)."""

    posterior: SpectralPosterior
    observables: Observables
    coefficients: Coefficients
    mean: Array
    covariance_root: Array
    frequencies: FourierFrequencies
    whole_range: bool

    @cached_property
    def fourier_coefficients(self) -> ComplexArray:
        """The coefficients of the observables on whitened waves, shape (o, f)."""
        point = SpectralPoint.from_hyperparameters(self.coefficients, self.posterior.channels, self.posterior.hyper)
        return self.posterior.engine.spectrum.coefficients(self.frequencies, point)

    def design_matrices(self, times: Array) -> tuple[list[Array], Mask]:
        """Return the design of each observable, (n, d), and at which times processes are far, (n, processes)."""
        waves, modes, far = self._basis_and_modes(times)
        found = [
            np.concatenate([apply_operator(waves, own.real, own.imag), part], axis=1)
            for own, part in zip(self.fourier_coefficients, modes, strict=True)
        ]
        return found, far

    def evaluate_observables(self, times: Array, amplitudes: Array) -> Array:
        """Return observables of functions in their units, with the particular solution, shape (n, o, s)."""
        waves, modes, _ = self._basis_and_modes(times)
        means, _ = self.observables.means(self.coefficients, times, with_jacobian=False)
        own, rest = np.split(amplitudes, [waves.shape[1]])
        found = []
        for turn, part, mean in zip(self.fourier_coefficients, modes, means, strict=True):
            # The coefficients are applied to the amplitudes, which are far fewer numbers than the waves at all times.
            found.append(waves @ to_fourier_amplitudes(own, turn.real, turn.imag) + part @ rest + mean[:, None])
        return np.stack(found, axis=1)

    def _basis_and_modes(self, times: Array) -> tuple[Array, list[Array], Mask]:
        """Return waves, (n, 2 f), observables of modes, (n, m), and at which times processes are far."""
        low, high = self.posterior.window
        scaled = self.observables.units.scale_times(times)
        # An average is far from the data if its whole interval is.
        distance = np.maximum(np.maximum(low - scaled, scaled - self.observables.longest_window - high), 0.0)
        far = distance[:, None] > np.array(self.frequencies.correlation_range)[None, :]
        if self.whole_range:
            far[:] = False
        waves = fourier_basis(self.frequencies.values, scaled)
        if far.any():
            away = np.repeat(far, self.frequencies.counts, axis=1)
            waves[np.concatenate([away, away], axis=1)] = 0.0
        prior = self.posterior.engine.prior
        basis, _ = self.observables.mode_basis(self.coefficients, prior.groups, scaled, with_jacobian=False)
        roots = prior.mode_std(self.posterior.hyper.mode_amplitudes)
        return waves, [part * roots for part in basis], far

    def prior_variances(self) -> Array:
        """Return the prior variance of each observable due to each process, shape (o, processes)."""
        power = np.abs(self.fourier_coefficients) ** 2
        edges = np.concatenate([[0], np.cumsum(self.frequencies.counts)]).astype(int)
        parts = [power[:, i:j].sum(axis=1) for i, j in pairwise(edges)]
        return np.stack(parts, axis=1) if parts else np.zeros((len(power), 0))

    def covariance_beyond_range(self, times: Array, far: Mask) -> Array:
        """Return the prior covariance of pairs with at least one time far from the data, shape (n, o, n, o)."""
        prior, hyper = self.posterior.engine.prior, self.posterior.hyper
        scaled = self.observables.units.scale_times(times)
        count, n = self.observables.count, len(times)
        total = np.zeros((n, count, n, count))
        if prior.channels is None:
            for number, latent in enumerate(prior.kernels):
                own = self.coefficients.free[:, number]
                ell, deviation = hyper.lengthscales[number], hyper.amplitudes[number]
                windows = self.coefficients.windows, self.coefficients.windows
                block = free_function_covariance(np, latent, scaled, scaled, own, own, ell, deviation, windows)
                either = far[:, None, number] | far[None, :, number]
                total += block.transpose(1, 0, 3, 2) * either[:, None, :, None]
            return total
        lag = scaled[:, None] - scaled[None, :]
        reach = self.frequencies.correlation_range[0] + self.observables.longest_window
        near = (far[:, None, 0] | far[None, :, 0]) & (np.abs(lag) <= reach)
        on_waves, frequencies = self.fourier_coefficients, self.frequencies.values
        rows, columns = np.nonzero(near)
        products = np.einsum("of,pf->opf", on_waves, np.conj(on_waves))
        for start in range(0, len(rows), _CHUNK_TIMES):
            i, j = rows[start : start + _CHUNK_TIMES], columns[start : start + _CHUNK_TIMES]
            turned = np.exp(1j * np.outer(lag[i, j], frequencies))
            total[i, :, j, :] = np.einsum("nf,opf->nop", turned, products).real
        return total
