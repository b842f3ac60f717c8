"""Log evidence of a Gaussian process in Fourier features (reduced-rank regression), with its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.spectral.fourier import GramMatrices, SpectralToleranceError, SpectralWorkspace
from lodekit.inference.spectral.nodes import NodeFactor, NodeStatistics
from lodekit.inference.spectral.regression import DevianceGradient, NormalEquations, QRLeastSquares, RegressionTerm
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.prior import Hyperparameters
from lodekit.prior.spectra import MAX_FOURIER_WAVES, FourierFrequencies, SpectralPoint

Array = NDArray[np.float64]


#: For each observable on one set of nodes: modes times their prior standard deviations, (q, r), and their Jacobian,
#: (p, q, r); means, (q,), and their Jacobian, (p, q).
ModesAndMeans = tuple[list[Array], list[Array], list[Array], list[Array]]


#: The dual form is used if the design has fewer rows than this share of its columns.
_MAX_DUAL_ROW_RATIO = 0.7


@dataclass(frozen=True)
class SpectralSolution:
    """The regression solved at given hyperparameters.

    value, error: The log evidence in the user's units, and its estimated rounding and truncation error.
    mean: Of the whitened amplitudes: cosines, sines, modes; (d,).
    covariance_root: A square K with ``K^T K`` their covariance; None in the dual form; (d, d).
    frequencies: Of the waves.
    channels: Coefficients of all channels under the channel prior.
    gradient: Of the log evidence, on request.
    """

    value: float
    error: float
    mean: Array
    covariance_root: Any
    frequencies: FourierFrequencies
    channels: Coefficients | None
    gradient: Hyperparameters | None


class SpectralEvaluation:
    """One evaluation of the log evidence: everything that depends on the hyperparameters.

    workspace: Prior and data.
    hyper: Where to evaluate.
    length: Of the window that waves serve, in scaled time; that of the data by default.
    order: The highest derivative of free functions that will be asked for, beside those of the data.
    """

    def __init__(
        self, workspace: SpectralWorkspace, hyper: Hyperparameters, *, length: float | None = None, order: int = 0
    ) -> None:
        self.workspace, self.hyper, self.prior = workspace, hyper, workspace.prior
        self.coefficients = self.prior.observables.evaluate(hyper.theta)
        self.channels = None if self.prior.channels is None else self.prior.channels.evaluate(hyper.theta)
        self.point = SpectralPoint.from_hyperparameters(self.coefficients, self.channels, hyper)
        self._length, self._order = length, order

    def precision(self, sums: NodeStatistics | NodeFactor) -> float:
        """Return what the weights of measurements are multiplied by: one over the learned variance, scaled; or one."""
        return self.prior.noise.precision(sums.observable, self.hyper.noise_std, learned=sums.learned)

    def _noise_variances(self, several: Sequence[NodeStatistics]) -> Array:
        """Return the variance of the noise of each observable, scaled: the least one, or that of a mean weight."""
        found = np.full(self.prior.observables.count, np.inf)
        for sums in several:
            noise = max(sums.count, 1) / float(sums.weights.sum())
            if sums.learned:
                noise = self.prior.noise.variance(sums.observable, self.hyper.noise_std)
            found[sums.observable] = min(found[sums.observable], noise)
        return found

    def _prior_variance(self) -> Array:
        """Return the prior variance of the observables, by independent processes."""
        free, total = self.coefficients.free, np.zeros(len(self.coefficients.free))
        for number, latent in enumerate(self.prior.kernels if self.prior.channels is None else ()):
            ell, deviation = float(self.hyper.lengthscales[number]), float(self.hyper.amplitudes[number])
            total += free_function_variance(latent, free[:, number], ell, deviation, self.coefficients.windows)
        return total

    def choose_resolution(self, max_frequencies: int = MAX_FOURIER_WAVES) -> tuple[FourierFrequencies, int]:
        """Return the frequencies and the number of nodes; raise where the hyperparameters are out of reach."""
        workspace, coefficients, point, noise = self.workspace, self.coefficients, self.point, self.hyper.noise_std
        numbers = (point.free, point.channels, point.lengthscales, point.deviations, noise, *coefficients.factors)
        if not all(np.isfinite(part).all() for part in numbers) or (noise <= 0).any():
            raise SpectralToleranceError("the prior is not finite at these values; check units and starting values")
        low, high = workspace.data.window
        # Averages reach back before their times.
        length = (high - low if self._length is None else self._length) + self.prior.observables.longest_window
        # Few nodes are enough: the sum of the weights is that over the data on any number of them.
        noises = self._noise_variances(workspace.data.node_statistics(128))
        missing = self._order + 1 - point.free.shape[-1]
        if missing > 0:
            point = replace(point, free=np.pad(point.free, ((0, 0), (0, 0), (0, missing))))
        frequencies = FourierFrequencies((), (), ())
        if point.free.shape[1]:
            frequencies = workspace.choose_frequencies(point, noises, self._prior_variance(), length)
        if sum(frequencies.counts) > max_frequencies:
            other = "latent='matern-7/2'" if self.prior.channels is None else "prior='latent'"
            raise SpectralToleranceError(
                f"the spectral engine needs more waves here than it takes ({max_frequencies}): the window is very long "
                f"against the lengthscales; take a shorter window, or {other}"
            )
        return frequencies, workspace.count_nodes(coefficients, float(np.max(frequencies.values, initial=0.0)))

    def _modes_and_means(self, grams: GramMatrices, *, with_gradient: bool) -> list[ModesAndMeans]:
        """Return for each set of nodes the modes (times their deviations) and means of all observables."""
        observables, groups = self.prior.observables, self.prior.groups
        roots, found = self.prior.mode_std(self.hyper.mode_amplitudes), list[ModesAndMeans]()
        for number, nodes in enumerate(grams.nodes):
            basis, d_basis = observables.mode_basis(self.coefficients, groups, nodes, with_jacobian=with_gradient)
            exact = grams.statistics[grams.node_set_index.index(number)].times
            times = exact if exact is not None else self.prior.units.unscale_times(nodes)
            means, d_means = observables.means(self.coefficients, times, with_jacobian=with_gradient)
            found.append(([part * roots for part in basis], [part * roots for part in d_basis], means, d_means))
        return found

    def _terms(self, grams: GramMatrices, functions: Sequence[ModesAndMeans]) -> list[RegressionTerm]:
        """Return the contributions of all observables to the normal equations, or to the design of the QR form."""
        found = []
        for number, sums in enumerate(grams.statistics):
            place, o = grams.node_set_index[number], sums.observable
            level = self.prior.noise.level_index(o, learned=sums.learned)
            basis, product = grams.basis_on_nodes[place], grams.products[grams.product_index[number]]
            modes, mean = functions[place][0][o], functions[place][2][o]
            common = o, level, sums.count, self.precision(sums)
            if isinstance(sums, NodeFactor):
                target = sums.target - sums.apply(mean)
                found.append(RegressionTerm(*common, product, sums.apply(modes), target, sums.residual_ss))
                continue
            target, on_waves, square = sums.weighted_values, grams.basis_times_data[number], sums.sum_of_squares
            if self.prior.observables.has_mean:
                target = sums.weighted_values - sums.weights * mean
                on_waves = basis.T @ target
                square += -2.0 * float(sums.weighted_values @ mean) + float(sums.weights @ mean**2)
            found.append(RegressionTerm(*common, basis, modes, target, square, sums.weights, product, on_waves))
        return found

    def solve(self, *, with_gradient: bool = False, needs_covariance: bool = False) -> SpectralSolution | None:
        """Return the solved regression; None if it is not finite.

        If the design has few rows compared with its columns, the dual form is cheapest, but has no covariance.
        Otherwise normal equations are, unless they would lose too many digits: then a QR factorization is used.
        """
        # A search stays below the limit, so that its result can be evaluated again on frequencies chosen afresh.
        frequencies, nodes = self.choose_resolution(
            int(0.7 * MAX_FOURIER_WAVES) if with_gradient else MAX_FOURIER_WAVES
        )
        coefficients = self.workspace.spectrum.coefficients(frequencies, self.point)
        if not np.isfinite(coefficients).all():
            return None
        workspace, data, noises = self.workspace, self.workspace.data, len(self.hyper.noise_std)
        size = 2 * coefficients.shape[1] + sum(group.size for group in self.prior.groups)
        count, rounding = nodes // 2 + 1, data.rounding_error
        has_factors = count <= data.max_factor_nodes
        if not needs_covariance and has_factors and data.count_factor_rows(count) <= _MAX_DUAL_ROW_RATIO * size:
            methods = ["dual", "qr"]
        else:
            squares = sum(self.precision(sums) * sums.sum_of_squares for sums in data.node_statistics(nodes))
            # Normal equations are hopeless if rounding of sums exceeds a deviance of 30 per measurement.
            is_hopeless = has_factors and not workspace.is_precise(rounding * squares, 30.0 * workspace.size)
            methods = ["qr"] if is_hopeless else ["normal", "qr"][: 1 + has_factors]
        regression: NormalEquations | QRLeastSquares
        for method in methods:
            grams = workspace.gram_matrices(frequencies, nodes, factored=method != "normal")
            functions = self._modes_and_means(grams, with_gradient=with_gradient)
            shared = coefficients.real, coefficients.imag, self._terms(grams, functions), noises
            regression = NormalEquations(*shared, rounding) if method == "normal" else QRLeastSquares(*shared)
            solved = regression.solve(dual=method == "dual")
            if solved is not None and workspace.is_precise(solved.error, solved.deviance):
                break
        if solved is None or not np.isfinite(solved.deviance) or not np.isfinite(solved.mean).all():
            return None
        value = -0.5 * (solved.deviance + self._log_normalization(grams))
        # Omitted frequencies change the log evidence by their variance over that of the noise, for each measurement.
        error = 0.5 * solved.error + frequencies.truncation_error * (workspace.size + abs(value))
        gradient = self._gradient(grams, functions, regression.gradient(solved)) if with_gradient else None
        return SpectralSolution(
            value + workspace.log_jacobian,
            error,
            solved.mean,
            solved.covariance_root,
            frequencies,
            self.channels,
            gradient,
        )

    def _log_normalization(self, grams: GramMatrices) -> float:
        """Return the part of the deviance that depends on counts and noise alone."""
        return float(
            sum(s.count * np.log(2.0 * np.pi / self.precision(s)) - s.log_weight_sum for s in grams.statistics)
        )

    def _gradient(
        self, grams: GramMatrices, functions: Sequence[ModesAndMeans], deviance_gradient: DevianceGradient
    ) -> Hyperparameters:
        """Return the gradient of the log evidence: derivatives in waves, modes and means, by the chain rule."""
        theta = np.zeros(len(self.hyper.theta))
        in_modes = np.zeros(sum(group.size for group in self.prior.groups))
        for number, sums in enumerate(grams.statistics):
            modes, modes_jacobian, _, means_jacobian = functions[grams.node_set_index[number]]
            Y, on_mean = deviance_gradient.modes[number], deviance_gradient.means[number]
            if isinstance(sums, NodeFactor):
                Y, on_mean = sums.apply_transposed(Y), sums.apply_transposed(on_mean)
            in_modes += np.sum(Y * modes[sums.observable], axis=0)
            theta += np.einsum("pqr,qr->p", modes_jacobian[sums.observable], Y)
            if self.prior.observables.has_mean:
                theta += means_jacobian[sums.observable] @ on_mean
        pulled = self.workspace.spectrum.vjp(grams.frequencies, self.point, deviance_gradient.fourier_coefficients)
        theta += np.einsum("polk,olk->p", self.coefficients.free_jacobian, pulled.free)
        if self.channels is not None:
            theta += np.einsum("polk,olk->p", self.channels.free_jacobian, pulled.channels)
        amplitudes, noise = self.prior.sum_over_groups(in_modes), deviance_gradient.noise
        found = Hyperparameters(theta, pulled.log_lengthscales, pulled.log_amplitudes, amplitudes, noise)
        return found.map(np.negative)


def evaluate_spectral(
    workspace: SpectralWorkspace, hyper: Hyperparameters, *, with_gradient: bool = False
) -> SpectralSolution | None:
    """Return the log evidence, with its gradient on request; None if the hyperparameters are out of reach."""
    try:
        with np.errstate(all="ignore"):
            return SpectralEvaluation(workspace, hyper).solve(with_gradient=with_gradient)
    except SpectralToleranceError:
        return None


def solve_spectral(
    workspace: SpectralWorkspace, hyper: Hyperparameters, length: float | None = None, order: int = 0
) -> SpectralSolution:
    """Return the posterior of the amplitudes, for a longer window and higher derivatives; raise if it is not finite."""
    with np.errstate(all="ignore"):
        found = SpectralEvaluation(workspace, hyper, length=length, order=order).solve(needs_covariance=True)
    if found is None:
        raise LodekitError("the covariance of the data is not finite at these values; check units and starting values")
    return found
