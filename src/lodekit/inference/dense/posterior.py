"""The posterior: means, covariances and samples of any observable, strict by construction.

Means and samples are computed for the free functions and their derivatives, and for the weights of the modes;
observables are then exact combinations of these. So the equations hold to rounding, whatever the condition of the data.
Samples follow Matheron's rule: a draw from the prior, corrected by the data as the mean is; nothing nearly singular
is ever factorized.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from lodekit.data.contradictions import check_missed
from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.evidence import Factorization
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import Observed, free_variance, prior_block
from lodekit.prior.draws import draw_latent, windows_of
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables
from lodekit.prior.windows import window_stack

__all__ = ["DensePosterior", "Paths"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Paths:
    """Functions, s at once: derivatives of the free functions at n times, and weights of the modes.

    Parameters
    ----------
    stacks : list of arrays, shape (w, order, n, s)
        For each free function its derivatives in scaled time, the lowest first: averages over each of w intervals.
    weights : array, shape (r, s)
        Of the r basis functions of the modes.
    """

    stacks: list[Array]
    weights: Array


@dataclass(frozen=True)
class DensePosterior:
    """The posterior at given hyperparameters, from a Cholesky factor of the covariance of the data.

    Parameters
    ----------
    data : DenseData
        Measurements with their prior.
    hyper : Hyperparameters
    state : Factorization
        Of the covariance of the data, at these hyperparameters.
    """

    data: DenseData
    hyper: Hyperparameters
    state: Factorization

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.state.value + self.data.log_jacobian

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""
        return self.state.error

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data.

        The mean is a sum of covariances times `alpha`; each rounds on its own, in proportion to the prior deviations.
        """
        state, data = self.state, self.data
        free = sum(
            free_variance(
                latent,
                state.coefficients.free[:, k],
                self.hyper.lengthscales[k],
                self.hyper.deviations[k],
                state.coefficients.windows,
            )
            for k, latent in enumerate(data.latents)
        ) + np.zeros(len(data.index))
        by_modes = [np.sum(part**2 * self.mode_variance(), axis=1) for part in state.basis]
        deviations = np.sqrt(data.pick([own + modes for own, modes in zip(free, by_modes, strict=True)]))
        size = float(np.abs(state.residual).max(initial=0.0))
        spread = np.finfo(float).eps * float(deviations.max(initial=0.0) * np.linalg.norm(deviations * state.alpha))
        return spread / size if size > 0 else 0.0

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""
        return []

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met: they contradict each other or the equations."""
        data = self.data
        exact = data.noise.exact
        if not exact.any():
            return
        with np.errstate(all="ignore"):
            mean = self.mean(data.observables, data.times)
        met = data.pick(list(mean.T))
        times = data.times[np.concatenate(data.index)[exact]]
        check_missed(times, met[exact] - data.values[exact])

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Parameters
        ----------
        observables : Observables
            Compiled, o of them; their units are those of the answer.
        times : array, shape (n,)
            In the user's units.
        """
        values = observables.evaluate(self.hyper.theta)
        paths = self._update(self.state.alpha[:, None], times, values)
        return self._combine(observables, values, times, paths)[:, :, 0]

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        values = observables.evaluate(self.hyper.theta)
        scaled = observables.units.scaled_times(times)
        basis, _ = observables.mode_basis(values, self.data.groups, scaled, slopes=False)
        count, n = len(basis), len(times)
        prior = self._prior_covariance(values, basis, scaled, values, basis, scaled)
        reduced = self._whitened(observables, values, basis, times)
        total = prior.reshape(count * n, count * n) - reduced.T @ reduced
        # Rounding can leave tiny negative numbers where the variance is zero.
        np.fill_diagonal(total, np.maximum(np.diag(total), 0.0))
        return total.reshape(count, n, count, n).transpose(1, 0, 3, 2)

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        values = observables.evaluate(self.hyper.theta)
        scaled = observables.units.scaled_times(times)
        basis, _ = observables.mode_basis(values, self.data.groups, scaled, slopes=False)
        count, n = len(basis), len(times)
        total = np.zeros((count, n))
        for number, latent in enumerate(self.data.latents):
            ell, deviation = self.hyper.lengthscales[number], self.hyper.deviations[number]
            total += free_variance(latent, values.free[:, number], ell, deviation, values.windows)[:, None]
        mode_variance = self.mode_variance()
        for i in range(count):
            total[i] += np.sum(basis[i] ** 2 * mode_variance, axis=1)
        reduced = self._whitened(observables, values, basis, times)
        total -= np.sum(reduced**2, axis=0).reshape(count, n)
        # Rounding can leave a tiny negative number where the variance is zero.
        return np.maximum(total, 0.0).T

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
        values = observables.evaluate(self.hyper.theta)
        order = max(values.free.shape[-1], self.state.coefficients.free.shape[-1])
        data = self.data
        sides = [(self.state.coefficients, data.times), (values, times)]
        # Each interval of an observable asks for averages at all its times.
        asked = [(window, at) for own, at in sides for window, _ in windows_of(own)]
        scaled = data.observables.units.scaled_times(np.concatenate([at for _, at in asked]))
        windows = np.concatenate([np.full(len(at), window) for window, at in asked])
        count, places = len(data.times), len(windows_of(self.state.coefficients))
        draws = []
        for number, latent in enumerate(data.latents):
            ell, deviation = self.hyper.lengthscales[number], self.hyper.deviations[number]
            drawn = draw_latent(latent, scaled, order, ell, deviation, size, generator, windows)
            first, second = np.split(drawn, [count * places], axis=1)
            draws.append(
                (
                    first.reshape(order, places, count, size).swapaxes(0, 1),
                    second.reshape(order, -1, len(times), size).swapaxes(0, 1),
                )
            )
        weights = generator.standard_normal((len(self.mode_variance()), size)) * np.sqrt(self.mode_variance())[:, None]
        at_data = Paths([first for first, _ in draws], weights)
        seen = self._combine_scaled(self.state.coefficients, self.state.basis, at_data)
        drawn = data.pick(list(seen.swapaxes(0, 1)))
        noise = np.sqrt(data.noise.variance(self.hyper.noise))
        rest = self.state.residual[:, None] - drawn - noise[:, None] * generator.standard_normal(drawn.shape)
        alpha, _ = lapack.dpotrs(self.state.cholesky, rest, lower=1)
        update, wanted = self._update(alpha, times, values), values.free.shape[-1]
        stacks = [draw[:, :wanted] + part for (_, draw), part in zip(draws, update.stacks, strict=True)]
        total = Paths(stacks, weights + update.weights)
        return self._combine(observables, values, times, total).transpose(2, 0, 1)

    def mode_variance(self) -> Array:
        """Return the prior variance of the weight of each basis function of the modes, shape (r,)."""
        return self.data.prior.mode_variance(self.hyper.mode_deviations)

    def _update(self, alpha: Array, times: Array, values: Coefficients) -> Paths:
        """Return ``cov(latent, data) alpha``: what the data add to free functions and weights of the modes.

        Parameters
        ----------
        alpha : array, shape (data, s)
        times : array, shape (n,)
            In the user's units.
        values : Coefficients
            Of the observables that are wanted: as many derivatives, over the same intervals.
        """
        data, hyper, order = self.data, self.hyper, values.free.shape[-1]
        measured, scattered = self.state.coefficients, data.place(alpha)
        units = data.observables.units
        lag = units.scaled_times(times)[:, None] - units.scaled_times(data.times)[None, :]
        stacks = []
        for number, latent in enumerate(data.latents):
            own = measured.free[:, number]
            length = own.shape[-1]
            ell, deviation = hyper.lengthscales[number], hyper.deviations[number]
            latent.check_order(2 * (order - 1))
            stack = np.zeros((len(windows_of(values)), order, len(times), alpha.shape[1]))
            for place, (asked, _) in enumerate(windows_of(values)):
                for window, rows in windows_of(measured):
                    h = window_stack(latent, lag, float(ell), (asked, window), order + length - 2)
                    for b in range(length):
                        folded = (-1.0) ** b * np.tensordot(own[rows, b], scattered[rows], axes=1)
                        for a in range(order):
                            stack[place, a] += deviation**2 * ell ** (-(a + b)) * (h[a + b] @ folded)
            stacks.append(stack)
        weights = np.zeros((len(self.mode_variance()), alpha.shape[1]))
        for o in range(len(data.index)):
            weights += self.state.basis[o].T @ scattered[o]
        return Paths(stacks, self.mode_variance()[:, None] * weights)

    def _combine(self, observables: Observables, values: Coefficients, times: Array, paths: Paths) -> Array:
        """Return observables of functions in their units, the particular solution added, shape (n, o, s)."""
        basis, _ = observables.mode_basis(values, self.data.groups, observables.units.scaled_times(times), slopes=False)
        means, _ = observables.means(values, times, slopes=False)
        total = self._combine_scaled(values, basis, paths)
        return total + np.stack(means, axis=1)[:, :, None]

    @staticmethod
    def _combine_scaled(values: Coefficients, basis: list[Array], paths: Paths) -> Array:
        """Return observables of functions without the particular solution, shape (n, o, s)."""
        total = np.stack([part @ paths.weights for part in basis], axis=1)
        for number, stack in enumerate(paths.stacks):
            own = values.free[:, number]
            for place, (_, rows) in enumerate(windows_of(values)):
                total[:, rows] += np.einsum("oa,ans->nos", own[rows], stack[place, : own.shape[-1]])
        return np.asarray(total)

    def _prior_covariance(
        self, first: Coefficients, basis1: list[Array], s1: Array, second: Coefficients, basis2: list[Array], s2: Array
    ) -> Array:
        """Return the prior covariance of two sets of observables, shape (o1, n1, o2, n2)."""
        sides = (
            Observed(s1, first.free, np.stack(basis1), first.windows),
            Observed(s2, second.free, np.stack(basis2), second.windows),
        )
        hyper, prior = self.hyper, self.data.prior
        roots = prior.mode_roots(hyper.mode_deviations)
        return np.asarray(prior_block(np, prior.latents, *sides, hyper.lengthscales, hyper.deviations, roots))

    def _whitened(self, observables: Observables, values: Coefficients, basis: list[Array], times: Array) -> Array:
        """Return ``L^-1 cov(data, observables)``, shape (data, o * n)."""
        data = self.data
        scaled, at_data = observables.units.scaled_times(times), observables.units.scaled_times(data.times)
        cross = self._prior_covariance(self.state.coefficients, self.state.basis, at_data, values, basis, scaled)
        flat = data.pick(list(cross)).reshape(data.size, -1)
        return np.asarray(solve_triangular(self.state.cholesky, flat, lower=True, check_finite=False))
