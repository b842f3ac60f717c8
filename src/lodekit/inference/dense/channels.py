"""The posterior under the channel prior: means and samples are sums of waves and modes, strict by construction.

Each wave solves the equations exactly, whatever its amplitude; amplitudes follow from the covariance of the waves with
the data, over waves that serve all lags between times and data. Variances need no such care: as functions of time, the
covariances with the data have a band, and are known from a few dozen times.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from lodekit.errors import LodekitError
from lodekit.inference.dense.posterior import DensePosterior
from lodekit.prior.chebyshev import chebyshev_basis, chebyshev_size, chebyshev_transform
from lodekit.prior.compile import Coefficients
from lodekit.prior.conditioned import Conditioned
from lodekit.prior.observables import Observables
from lodekit.prior.panels import Panels, make_panels
from lodekit.prior.points import Point

__all__ = ["ChannelPosterior"]

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
#: Lags up to so many windows get waves; beyond, it is asked whether the prior still knows itself.
_NEAR = 4.0
#: A covariance below this share of the variance is nothing.
_FORGOTTEN = 1e-11
#: No more waves than this; beyond, times are too far from the data.
_MOST = 20_000
#: The golden ratio, whose multiples leave no gap between 0 and 1 for long.
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)
#: So many times at once, so that waves at all of them need not fit into memory.
_BLOCK = 4096


@dataclass(frozen=True)
class ChannelPosterior(DensePosterior):
    """The posterior under the channel prior at given hyperparameters; curves are those of waves.

    Parameters
    ----------
    data, hyper, state
        As in `DensePosterior`.
    """

    _views: dict[Any, _View] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        # Waves are large and soon made again.
        return {**self.__dict__, "_views": {}}

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: waves do not cancel over time."""
        return float(np.finfo(float).eps)

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
        amplitudes, weights = view.update(self.state.alpha[:, None])
        return view.combine(times, amplitudes, weights)[:, :, 0]

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        view = self._look(observables, times)
        scaled = observables.units.scaled_times(times)
        basis = view.basis(scaled)
        total = view.variances[:, None] + np.sum(basis**2 * self.mode_variance(), axis=-1)
        total -= view.explained(scaled, basis)
        # Rounding can leave a tiny negative number where the variance is zero.
        return np.asarray(np.maximum(total, 0.0).T)

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        view = self._look(observables, times)
        scaled = observables.units.scaled_times(times)
        basis = view.basis(scaled)
        count, n = len(basis), len(times)
        D = view.design(scaled)
        total = (D @ D.T).reshape(count, n, count, n)
        if view.reach < np.inf:
            reach = view.reach + observables.longest_window
            total *= (np.abs(scaled[:, None] - scaled[None, :]) <= reach)[None, :, None, :]
        flat = basis.reshape(count * n, -1)
        reduced = view.whitened(scaled, basis).reshape(-1, count * n)
        found = total.reshape(count * n, count * n) + (flat * self.mode_variance()) @ flat.T - reduced.T @ reduced
        np.fill_diagonal(found, np.maximum(np.diag(found), 0.0))
        return found.reshape(count, n, count, n).transpose(1, 0, 3, 2)

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
        view, data = self._look(observables, times, everywhere=True), self.data
        shape = (*view.at_data.shape[1:], size)
        drawn = generator.standard_normal(shape) - 1j * generator.standard_normal(shape)
        drawn *= np.sqrt(view.panels.weights)[:, None]
        weights = generator.standard_normal((len(self.mode_variance()), size))
        weights *= np.sqrt(self.mode_variance())[:, None]
        seen = view.data_design(drawn) + data.pick(self.state.basis) @ weights
        noise = np.sqrt(data.noise.variance(self.hyper.noise) + self.state.added)
        rest = self.state.residual[:, None] - seen - noise[:, None] * generator.standard_normal(seen.shape)
        alpha, _ = lapack.dpotrs(self.state.cholesky, rest, lower=1)
        amplitudes, more = view.update(alpha)
        return view.combine(times, drawn + amplitudes, weights + more).transpose(2, 0, 1)

    def _look(self, observables: Observables, times: Array, *, everywhere: bool = False) -> _View:
        """Return observables on waves as `_make_view` does, for all lags between times and data; the last are kept."""
        coefficients = observables.evaluate(self.hyper.theta)
        scaled, at_data = observables.units.scaled_times(times), self.data.scaled_times
        low, high = float(at_data.min()) - self.data.observables.longest_window, float(at_data.max())
        back, windows = observables.longest_window, _windows(coefficients)
        left, right = min(low, float(scaled.min(initial=low + back)) - back), max(high, float(scaled.max(initial=high)))
        key = (left, right, coefficients.free.tobytes(), coefficients.free.shape, windows.tobytes(), everywhere)
        if key not in self._views:
            self._views.clear()
            self._views[key] = self._make_view(observables, coefficients, right - left, everywhere=everywhere)
        return self._views[key]

    def _make_view(
        self, observables: Observables, coefficients: Coefficients, wanted: float, *, everywhere: bool
    ) -> _View:
        """Return observables on waves that serve lags up to a wanted one, or up to where the prior forgets itself.

        Samples need the former, `everywhere`: they are not zero where the data are forgotten.
        """
        data, hyper = self.data, self.hyper
        measured, asked = self.state.coefficients.free, coefficients.free
        orders = max(measured.shape[-1], asked.shape[-1])
        both = [np.pad(part, ((0, 0), (0, 0), (0, orders - part.shape[-1]))) for part in (measured, asked)]
        channels = data.channels(hyper.theta)
        assert channels is not None  # noqa: S101
        windows = np.concatenate([_windows(self.state.coefficients), _windows(coefficients)])
        intervals = windows if windows.any() else None
        point = Point(np.concatenate(both), channels.free, hyper.lengthscales, hyper.deviations, intervals)
        window = data.lags.length
        length = wanted if everywhere else min(wanted, _NEAR * window)
        while True:
            with np.errstate(all="ignore"):
                panels = make_panels(point, max(length, window))
            if panels is None or len(panels.frequencies) * asked.shape[1] > _MOST:
                raise LodekitError(
                    "expected times closer to the data: the prior remembers very long here, and would need too many "
                    "waves; ask for times within some windows of the data"
                )
            own = Conditioned(panels.frequencies, point)
            view = _View(self, observables, coefficients, panels, own, len(measured))
            if length >= wanted:
                return view
            if view.forgets(length):
                return replace(view, reach=0.5 * length)
            length = min(wanted, 2.0 * length)


def _windows(coefficients: Coefficients) -> Array:
    """Return the intervals over which observables are averaged, zero where they are not."""
    return np.zeros(len(coefficients.free)) if coefficients.windows is None else coefficients.windows


@dataclass(frozen=True)
class _View:
    """Observables on the waves of some panels, beside those that were measured."""

    posterior: ChannelPosterior
    #: What is asked for, and its coefficients.
    observables: Observables
    coefficients: Coefficients
    panels: Panels
    #: The density at the frequencies of the waves: of all that was measured, and behind `split` of what is asked for.
    own: Conditioned
    split: int
    #: How far from the data the prior still knows of them.
    reach: float = np.inf

    @property
    def at_data(self) -> ComplexArray:
        """What was measured on whitened waves, shape (o, q, f)."""
        return self.own.coefficients[: self.split]

    @property
    def asked(self) -> ComplexArray:
        """What is asked for on whitened waves, shape (o, q, f)."""
        return self.own.coefficients[self.split :]

    @cached_property
    def variances(self) -> Array:
        """The prior variance of what is asked for, without the modes, shape (o,)."""
        return np.asarray(np.sum(np.abs(self.asked) ** 2, axis=1) @ self.panels.weights)

    def forgets(self, length: float) -> bool:
        """Return whether all covariances are nothing in the second half of a length."""
        # Lags without a common period, so that no oscillation is zero at all of them.
        lags = length * (0.5 + 0.5 * np.modf(np.arange(1, 257) * _GOLDEN)[0])
        power = np.sum(np.abs(self.own.coefficients) ** 2, axis=1) * self.panels.weights
        total = power.sum(axis=1)
        shares = power[total > 0] / total[total > 0, None]
        turned = np.exp(1j * np.outer(self.panels.frequencies, lags))
        return bool(np.abs((shares @ turned).real).max(initial=0.0) < _FORGOTTEN)

    def basis(self, scaled: Array) -> Array:
        """Return the basis functions of the modes at scaled times, shape (o, n, r)."""
        groups = self.posterior.data.groups
        return np.stack(self.observables.mode_basis(self.coefficients, groups, scaled, slopes=False)[0])

    def _is_far(self, scaled: Array) -> NDArray[np.bool_]:
        at_data = self.posterior.data.scaled_times
        data, back = self.posterior.data.observables.longest_window, self.observables.longest_window
        distance = np.maximum(at_data.min() - data - scaled, scaled - back - at_data.max())
        return np.asarray(distance > self.reach)

    @cached_property
    def _data_waves(self) -> ComplexArray:
        """Waves at the times of the data, shape (n, f)."""
        return np.asarray(np.exp(1j * np.outer(self.posterior.data.scaled_times, self.panels.frequencies)))

    def update(self, alpha: Array) -> tuple[ComplexArray, Array]:
        """Return ``cov(amplitudes, data) alpha``, shape (q, f, s), and the same for the weights of the modes, (r, s).

        Parameters
        ----------
        alpha : array, shape (data, s)
        """
        posterior, scattered = self.posterior, self.posterior.data.place(alpha)
        on_waves = np.conj(self._data_waves).T @ scattered
        amplitudes = np.einsum("oqf,ofs->qfs", np.conj(self.at_data), on_waves) * self.panels.weights[:, None]
        weights = sum(
            (part.T @ own for part, own in zip(posterior.state.basis, scattered, strict=True)),
            np.zeros((len(posterior.mode_variance()), alpha.shape[1])),
        )
        return amplitudes, posterior.mode_variance()[:, None] * weights

    def data_design(self, amplitudes: ComplexArray) -> Array:
        """Return what was measured of waves with some amplitudes, shape (data, s) from (q, f, s)."""
        data = self.posterior.data
        turned = np.einsum("oqf,qfs->ofs", self.at_data, amplitudes)
        return np.concatenate(
            [(self._data_waves[index] @ own).real for own, index in zip(turned, data.index, strict=True)]
        )

    def combine(self, times: Array, amplitudes: ComplexArray, weights: Array) -> Array:
        """Return observables of functions in their units, the particular solution added, shape (n, o, s).

        Parameters
        ----------
        times : array, shape (n,)
            In the user's units.
        amplitudes : array, shape (q, f, s)
        weights : array, shape (r, s)
            Of the modes.
        """
        means, _ = self.observables.means(self.coefficients, times, slopes=False)
        turned = np.einsum("oqf,qfs->fos", self.asked, amplitudes)
        f, o, s = turned.shape
        real, imaginary = turned.real.reshape(f, -1), turned.imag.reshape(f, -1)
        found = []
        for start in range(0, len(times), _BLOCK):
            part = self.observables.units.scaled_times(times[start : start + _BLOCK])
            angle = np.outer(part, self.panels.frequencies)
            waves = np.cos(angle) @ real - np.sin(angle) @ imaginary
            waves[self._is_far(part)] = 0.0
            found.append(waves.reshape(-1, o, s) + np.einsum("onr,rs->nos", self.basis(part), weights))
        total = np.concatenate(found) if found else np.zeros((0, o, s))
        return np.asarray(total + np.stack(means, axis=1)[:, :, None])

    def design(self, scaled: Array) -> Array:
        """Return what is asked for on whitened cosines and sines, shape (o n, 2 q f)."""
        waves = np.exp(1j * np.outer(scaled, self.panels.frequencies)) * np.sqrt(self.panels.weights)
        found = waves[None, :, None, :] * self.asked[:, None]
        return np.ascontiguousarray(found).view(float).reshape(found.shape[0] * found.shape[1], -1)

    def _cross(self, scaled: Array) -> Array:
        """Return the covariance of the data with what is asked for, without the modes, shape (data, o, n)."""
        data = self.posterior.data
        P = np.einsum("dqf,oqf->dof", self.at_data, np.conj(self.asked)) * self.panels.weights
        waves = np.exp(-1j * np.outer(self.panels.frequencies, scaled))
        own = np.concatenate([self._data_waves.real, -self._data_waves.imag], axis=1)
        found = np.empty((data.size, P.shape[1], len(scaled)))
        for d, index in enumerate(data.index):
            for o in range(P.shape[1]):
                turned = P[d, o][:, None] * waves
                block = own @ np.concatenate([turned.real, turned.imag])
                found[data.edges[d] : data.edges[d + 1], o] = block[index]
        return found

    def whitened(self, scaled: Array, basis: Array) -> Array:
        """Return ``L^-1 cov(data, observables)``, shape (data, o, n).

        Where times are many, waves are taken at a few of them, from which all others follow.

        Parameters
        ----------
        scaled : array, shape (n,)
            Scaled times.
        basis : array, shape (o, n, r)
            Basis functions of the modes there.
        """
        posterior, n = self.posterior, len(scaled)
        low, high = float(scaled.min(initial=np.inf)), float(scaled.max(initial=-np.inf))
        size = chebyshev_size(0.5 * float(self.panels.highs[-1]) * max(high - low, 0.0)) if n else 0
        if self.reach < np.inf or n <= size:
            near = ~self._is_far(scaled)
            found = np.zeros((posterior.data.size, len(basis), n))
            found[:, :, near] = self._solve(self._cross(scaled[near]))
        else:
            points, matrix = chebyshev_transform(size)
            # The same time over and over is an interval, too.
            middle, half = 0.5 * (low + high), max(0.5 * (high - low), float(np.finfo(float).tiny))
            known = self._solve(self._cross(middle + half * points))
            terms = chebyshev_basis(np.clip((scaled - middle) / half, -1.0, 1.0), size)
            found = (known.reshape(-1, size) @ matrix.T @ terms).reshape(*known.shape[:2], n)
        if basis.shape[-1]:
            stacked = posterior.data.pick(posterior.state.basis)
            reduced = self._solve((stacked * posterior.mode_variance())[:, :, None])[:, :, 0]
            found += np.einsum("dr,onr->don", reduced, basis)
        return found

    def _solve(self, values: Array) -> Array:
        flat = values.reshape(len(values), -1)
        found = solve_triangular(self.posterior.state.cholesky, flat, lower=True, check_finite=False)
        return np.asarray(found).reshape(values.shape)

    def explained(self, scaled: Array, basis: Array) -> Array:
        """Return the variance that the data take away, shape (o, n)."""
        found = []
        for start in range(0, len(scaled), _BLOCK):
            part = slice(start, start + _BLOCK)
            reduced = self.whitened(scaled[part], basis[:, part])
            found.append(np.einsum("don,don->on", reduced, reduced))
        return np.concatenate(found, axis=1) if found else np.zeros((len(basis), 0))
