"""What modes and means are on nodes in time.

One evaluation of the log evidence on waves and modes: everything that depends on the hyperparameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.engine import Evidence
from lodekit.inference.spectral.fourier import GramMatrices, SpectralToleranceError, SpectralWorkspace
from lodekit.inference.spectral.nodes import NodeFactor, NodeStatistics
from lodekit.inference.spectral.regression import (
    DesignTerm,
    DevianceGradient,
    DualSolution,
    NormalEquations,
    NormalSolution,
    NormalTerm,
    QRLeastSquares,
)
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.prior import Hyperparameters
from lodekit.prior.spectra import MAX_FOURIER_WAVES, FourierFrequencies, SpectralPoint

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModesAndMeans:
    """Modes and means of all observables on one set of nodes, in scaled units; each list has one array per observable.

    modes: The basis functions of the modes, times their prior deviations; (q, r).
    modes_jacobian: Their derivatives in the parameters; (p, q, r).
    means: The particular solution; (q,).
    means_jacobian: Its derivatives in the parameters; (p, q).
    """

    modes: list[Array]
    modes_jacobian: list[Array]
    means: list[Array]
    means_jacobian: list[Array]


#: Where the design has fewer rows than this share of its columns, the regression is solved over these. Where rounding
#: in sums of squares is too much for a deviance of so much for each measurement, normal equations are not tried.
_MAX_DUAL_ROW_RATIO, _MAX_NORMAL_DEVIANCE = 0.7, 30.0


@dataclass(frozen=True)
class SpectralSolution:
    """The regression solved at some hyperparameters.

    value: The log evidence in scaled units.
    mean: Of the whitened amplitudes: cosines, sines, modes; (d,).
    covariance_root: A square K with ``K^T K`` their covariance; (d, d).
    frequencies: Of the waves.
    channels: Of all channels, where the prior stands on these.
    error: About how large an error rounding, and what waves miss, make in the log evidence.
    """

    value: float
    mean: Array
    covariance_root: Array
    frequencies: FourierFrequencies
    channels: Coefficients | None
    error: float


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
                f"the spectral engine needs more waves here than it takes ({max_frequencies}): the window is very long against "
                f"the lengthscales; take a shorter window, or {other}"
            )
        return frequencies, workspace.count_nodes(coefficients, float(np.max(frequencies.values, initial=0.0)))

    def fourier_coefficients(self, frequencies: FourierFrequencies) -> tuple[Array, Array]:
        """Return the coefficients of the observables on the whitened waves: real and imaginary parts, shape (o, f)."""
        found = self.workspace.spectrum.coefficients(frequencies, self.point)
        return found.real, found.imag

    def modes_and_means(self, grams: GramMatrices, *, with_gradient: bool) -> list[ModesAndMeans]:
        """Return for each set of nodes the modes (times their deviations) and means of all observables."""
        observables, groups = self.prior.observables, self.prior.groups
        roots, found = self.prior.mode_std(self.hyper.mode_amplitudes), []
        for number, nodes in enumerate(grams.nodes):
            basis, d_basis = observables.mode_basis(self.coefficients, groups, nodes, with_jacobian=with_gradient)
            exact = grams.statistics[grams.node_set_index.index(number)].times
            times = exact if exact is not None else self.prior.units.unscale_times(nodes)
            means, d_means = observables.means(self.coefficients, times, with_jacobian=with_gradient)
            found.append(ModesAndMeans([part * roots for part in basis], [p * roots for p in d_basis], means, d_means))
        return found

    def normal_terms(self, grams: GramMatrices, functions: Sequence[ModesAndMeans]) -> list[NormalTerm]:
        """Return what the measurements of each observable add to the normal equations."""
        found = []
        for number, sums in enumerate(grams.statistics):
            assert isinstance(sums, NodeStatistics)  # noqa: S101
            own = functions[grams.node_set_index[number]]
            waves, mean = grams.basis_on_nodes[grams.node_set_index[number]], own.means[sums.observable]
            rest, on_waves, square = sums.weighted_values, grams.basis_times_data[number], sums.sum_of_squares
            if self.prior.observables.has_mean:
                rest = sums.weighted_values - sums.weights * mean
                on_waves = waves.T @ rest
                square += -2.0 * float(sums.weighted_values @ mean) + float(sums.weights @ mean**2)
            found.append(
                NormalTerm(
                    sums.observable,
                    self.prior.noise.level_index(sums.observable, learned=sums.learned),
                    sums.count,
                    self.precision(sums),
                    waves,
                    grams.products[grams.product_index[number]],
                    on_waves,
                    sums.weights,
                    rest,
                    own.modes[sums.observable],
                    square,
                )
            )
        return found

    def _design_terms(self, grams: GramMatrices, functions: Sequence[ModesAndMeans]) -> list[DesignTerm]:
        """Return what the measurements of each observable add to the design, as in `terms`, from their roots."""
        found = []
        for number, sums in enumerate(grams.statistics):
            assert isinstance(sums, NodeFactor)  # noqa: S101
            own = functions[grams.node_set_index[number]]
            found.append(
                DesignTerm(
                    sums.observable,
                    self.prior.noise.level_index(sums.observable, learned=sums.learned),
                    sums.count,
                    self.precision(sums),
                    grams.products[grams.product_index[number]],
                    sums.apply(own.modes[sums.observable]),
                    sums.target - sums.apply(own.means[sums.observable]),
                    sums.residual_ss,
                )
            )
        return found

    def _finite_resolution(
        self, max_frequencies: int = MAX_FOURIER_WAVES
    ) -> tuple[FourierFrequencies, int, Array, Array] | None:
        """Return frequencies, number of nodes, coefficients of the observables; None where these are not finite."""
        prepared = self.choose_resolution(max_frequencies)
        a, b = self.fourier_coefficients(prepared[0])
        return (*prepared, a, b) if np.isfinite(a).all() and np.isfinite(b).all() else None

    def log_evidence(self, *, with_gradient: bool) -> tuple[float, float, Hyperparameters | None] | None:
        """Return the log evidence in scaled units, its error, and its gradient on request; None where it is not finite.

        Where the design has few rows against its columns, the regression is solved over the rows.
        """
        # A search keeps away from the limit: what it finds can be evaluated again, on waves found afresh.
        prepared = self._finite_resolution(int(0.7 * MAX_FOURIER_WAVES) if with_gradient else MAX_FOURIER_WAVES)
        if prepared is None:
            return None
        frequencies, nodes, a, b = prepared
        size = 2 * a.shape[1] + sum(group.size for group in self.prior.groups)
        data, count = self.workspace.data, nodes // 2 + 1
        if data.count_factor_rows(count) > _MAX_DUAL_ROW_RATIO * size or count > data.max_factor_nodes:
            found = self._solve_regression(frequencies, nodes, a, b, with_gradient=with_gradient)
            return None if found is None else (found[0].value, found[0].error, found[1])
        grams = self.workspace.gram_matrices(frequencies, nodes, factored=True)
        functions = self.modes_and_means(grams, with_gradient=with_gradient)
        rooted = QRLeastSquares(a, b, self._design_terms(grams, functions), len(self.hyper.noise_std))
        solved: DualSolution | NormalSolution | None = rooted.solve_dual()
        if solved is None or not self.workspace.is_precise(solved.error, solved.deviance):
            solved = rooted.solve()
        if solved is None or not np.isfinite(solved.deviance):
            return None
        value = -0.5 * (solved.deviance + self.log_normalization(grams))
        gradient = self.gradient(grams, functions, rooted.gradient(solved)) if with_gradient else None
        return value, 0.5 * solved.error + self._truncation_error(frequencies, value), gradient

    def _truncation_error(self, frequencies: FourierFrequencies, value: float) -> float:
        """Return what waves that are missed may change in a log evidence: for each measurement, variance over noise."""
        return frequencies.truncation_error * (self.workspace.size + abs(value))

    def solve(self) -> SpectralSolution | None:
        """Return the solved regression, with the posterior of the amplitudes; None where nothing is finite."""
        prepared = self._finite_resolution()
        found = None if prepared is None else self._solve_regression(*prepared, with_gradient=False)
        return None if found is None else found[0]

    def _solve_regression(
        self, frequencies: FourierFrequencies, nodes: int, a: Array, b: Array, *, with_gradient: bool
    ) -> tuple[SpectralSolution, Hyperparameters | None] | None:
        """Return the regression solved by normal equations, or by a QR factorization where these would lose digits."""
        workspace, noises = self.workspace, len(self.hyper.noise_std)
        has_roots, rounding = nodes // 2 < workspace.data.max_factor_nodes, workspace.data.rounding_error
        squares = sum(self.precision(sums) * sums.sum_of_squares for sums in workspace.data.node_statistics(nodes))
        is_lost = has_roots and not workspace.is_precise(rounding * squares, _MAX_NORMAL_DEVIANCE * workspace.size)
        for roots in (True,) if is_lost else (False, True)[: 1 + has_roots]:
            grams = workspace.gram_matrices(frequencies, nodes, factored=roots)
            functions = self.modes_and_means(grams, with_gradient=with_gradient)
            regression: NormalEquations | QRLeastSquares
            if roots:
                regression = QRLeastSquares(a, b, self._design_terms(grams, functions), noises)
            else:
                regression = NormalEquations(np, a, b, self.normal_terms(grams, functions), noises)
            solved = regression.solve()
            if solved is not None and isinstance(regression, NormalEquations):
                solved = replace(solved, error=regression.rounding_error(solved, rounding))
            if solved is not None and workspace.is_precise(solved.error, float(solved.deviance)):
                break
        if solved is None or not np.isfinite(solved.deviance) or not np.isfinite(solved.mean).all():
            return None
        value = -0.5 * (float(solved.deviance) + self.log_normalization(grams))
        own = (frequencies, self.channels, 0.5 * solved.error + self._truncation_error(frequencies, value))
        solution = SpectralSolution(value, solved.mean, solved.covariance_root, *own)
        return solution, self.gradient(grams, functions, regression.gradient(solved)) if with_gradient else None

    def log_normalization(self, grams: GramMatrices) -> float:
        """Return the part of the deviance that depends on counts and noise alone."""
        return float(
            sum(s.count * np.log(2.0 * np.pi / self.precision(s)) - s.log_weight_sum for s in grams.statistics)
        )

    def gradient(
        self, grams: GramMatrices, functions: Sequence[ModesAndMeans], deviance_gradient: DevianceGradient
    ) -> Hyperparameters:
        """Return the gradient of the log evidence: derivatives in waves, modes and means, by the chain rule."""
        theta = np.zeros(len(self.hyper.theta))
        in_modes = np.zeros(sum(group.size for group in self.prior.groups))
        for number, sums in enumerate(grams.statistics):
            own = functions[grams.node_set_index[number]]
            Y, on_mean = deviance_gradient.modes[number], deviance_gradient.means[number]
            if isinstance(sums, NodeFactor):
                Y, on_mean = sums.apply_transposed(Y), sums.apply_transposed(on_mean)
            in_modes += np.sum(Y * own.modes[sums.observable], axis=0)
            theta += np.einsum("pqr,qr->p", own.modes_jacobian[sums.observable], Y)
            if self.prior.observables.has_mean:
                theta += own.means_jacobian[sums.observable] @ on_mean
        pulled = self.workspace.spectrum.vjp(grams.frequencies, self.point, deviance_gradient.fourier_coefficients)
        theta += np.einsum("polk,olk->p", self.coefficients.free_jacobian, pulled.free)
        if self.channels is not None:
            theta += np.einsum("polk,olk->p", self.channels.free_jacobian, pulled.channels)
        modes, noise = self.prior.sum_over_groups(in_modes), np.asarray(deviance_gradient.noise, dtype=float)
        found = Hyperparameters(theta, pulled.log_lengthscales, pulled.log_amplitudes, modes, noise)
        return found.map(np.negative)


def evaluate_spectral(workspace: SpectralWorkspace, hyper: Hyperparameters) -> Evidence:
    """Return the log evidence in the user's units and its gradient; minus infinity where that is out of reach."""
    try:
        with np.errstate(all="ignore"):
            found = SpectralEvaluation(workspace, hyper).log_evidence(with_gradient=True)
    except SpectralToleranceError:
        found = None
    if found is None or found[2] is None:
        return Evidence.infeasible(hyper)
    return Evidence(found[0] + workspace.log_jacobian, found[2], found[1])


def spectral_log_evidence(workspace: SpectralWorkspace, hyper: Hyperparameters) -> tuple[float, float]:
    """Return the log evidence in the user's units alone, with its error; minus infinity where it is out of reach."""
    try:
        with np.errstate(all="ignore"):
            found = SpectralEvaluation(workspace, hyper).log_evidence(with_gradient=False)
    except SpectralToleranceError:
        found = None
    return (-np.inf, 0.0) if found is None else (found[0] + workspace.log_jacobian, found[1])


def solve_spectral(
    workspace: SpectralWorkspace, hyper: Hyperparameters, length: float | None = None, order: int = 0
) -> SpectralSolution:
    """Return the solved regression, on waves fit for a longer window and higher derivatives; raise where there is none."""
    with np.errstate(all="ignore"):
        found = SpectralEvaluation(workspace, hyper, length=length, order=order).solve()
    if found is None:
        raise LodekitError("the covariance of the data is not finite at these values; check units and starting values")
    return found
