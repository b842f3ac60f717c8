"""One evaluation of the log evidence on waves and modes: everything that depends on the hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.engine import Evidence
from lodekit.inference.spectral.functions import Functions
from lodekit.inference.spectral.grams import Grams
from lodekit.inference.spectral.nodes import NodeSums, RootSums
from lodekit.inference.spectral.regression import NormalEquations, Slopes, Solved, Term
from lodekit.inference.spectral.roots import Dual, RootEquations, RootTerm
from lodekit.inference.spectral.workspace import OutOfReachError, Workspace
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_variance
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.points import Point
from lodekit.prior.spectra import MOST_WAVES, Frequencies

__all__ = ["Evaluation", "Solution", "evaluate", "log_evidence", "solve"]

Array = NDArray[np.float64]
#: Where the design has fewer rows than this share of its columns, the regression is solved over these. Where rounding
#: in sums of squares is too much for a deviance of so much for each measurement, normal equations are not tried.
_FEW_ROWS, _POOR = 0.7, 30.0


@dataclass(frozen=True)
class Solution:
    """The regression solved at some hyperparameters.

    Parameters
    ----------
    value : float
        The log evidence in scaled units.
    mean : array, shape (d,)
        Of the whitened amplitudes: cosines, sines, modes.
    inverse_root : array, shape (d, d)
        A square K with ``K^T K`` their covariance.
    frequencies : Frequencies
        Of the waves.
    channels : Coefficients or None
        Of all channels, where the prior stands on these.
    error : float
        About how large an error rounding, and what waves miss, make in the log evidence.
    """

    value: float
    mean: Array
    inverse_root: Array
    frequencies: Frequencies
    channels: Coefficients | None
    error: float


class Evaluation:
    """One evaluation of the log evidence: everything that depends on the hyperparameters.

    Parameters
    ----------
    workspace : Workspace
        Prior and data.
    hyper : Hyperparameters
        Where to evaluate.
    length : float, optional
        Of the window that waves serve, in scaled time; that of the data by default.
    order : int
        The highest derivative of free functions that will be asked for, beside those of the data.
    """

    def __init__(
        self, workspace: Workspace, hyper: Hyperparameters, *, length: float | None = None, order: int = 0
    ) -> None:
        self.workspace, self.hyper, self.prior = workspace, hyper, workspace.prior
        self.coefficients = self.prior.observables.evaluate(hyper.theta)
        self.channels = None if self.prior.channels is None else self.prior.channels.evaluate(hyper.theta)
        self.point = Point.at(self.coefficients, self.channels, hyper)
        self._length, self._order = length, order

    def precision(self, sums: NodeSums | RootSums) -> float:
        """Return what the weights of measurements are multiplied by: one over the learned variance, scaled; or one."""
        return self.prior.noise.precision(sums.observable, self.hyper.noise, learned=sums.learned)

    def _noise(self, several: Sequence[NodeSums]) -> Array:
        """Return the variance of the noise of each observable, scaled: the least one, or that of a mean weight."""
        found = np.full(self.prior.observables.count, np.inf)
        for sums in several:
            noise = max(sums.count, 1) / float(sums.weights.sum())
            if sums.learned:
                noise = self.prior.noise.variance(sums.observable, self.hyper.noise)
            found[sums.observable] = min(found[sums.observable], noise)
        return found

    def _prior_variance(self) -> Array:
        """Return the prior variance of the observables, by independent processes."""
        free, total = self.coefficients.free, np.zeros(len(self.coefficients.free))
        for number, latent in enumerate(self.prior.latents if self.prior.channels is None else ()):
            ell, deviation = float(self.hyper.lengthscales[number]), float(self.hyper.deviations[number])
            total += free_variance(latent, free[:, number], ell, deviation, self.coefficients.windows)
        return total

    def prepare(self, most: int = MOST_WAVES) -> tuple[Frequencies, int]:
        """Return the frequencies and the number of nodes; raise where the hyperparameters are out of reach.

        Parameters
        ----------
        most : int
            How many waves are taken at most.
        """
        workspace, coefficients, point, noise = self.workspace, self.coefficients, self.point, self.hyper.noise
        numbers = (point.free, point.channels, point.lengthscales, point.deviations, noise, *coefficients.factors)
        if not all(np.isfinite(part).all() for part in numbers) or (noise <= 0).any():
            raise OutOfReachError("the prior is not finite at these values; check units and starting values")
        low, high = workspace.data.window
        # Averages reach back before their times.
        length = (high - low if self._length is None else self._length) + self.prior.observables.longest_window
        # Few nodes are enough: the sum of the weights is that over the data on any number of them.
        noises = self._noise(workspace.data.node_sums(128))
        missing = self._order + 1 - point.free.shape[-1]
        if missing > 0:
            point = replace(point, free=np.pad(point.free, ((0, 0), (0, 0), (0, missing))))
        frequencies = Frequencies((), (), ())
        if point.free.shape[1]:
            frequencies = workspace.frequencies(point, noises, self._prior_variance(), length)
        if sum(frequencies.counts) > most:
            other = "latent='matern-7/2'" if self.prior.channels is None else "prior='latent'"
            raise OutOfReachError(
                f"the spectral engine needs more waves here than it takes ({most}): the window is very long against "
                f"the lengthscales; take a shorter window, or {other}"
            )
        return frequencies, workspace.nodes(coefficients, float(np.max(frequencies.values, initial=0.0)))

    def turned(self, frequencies: Frequencies) -> tuple[Array, Array]:
        """Return the coefficients of the observables on the whitened waves: real and imaginary parts, shape (o, f)."""
        found = self.workspace.spectrum.coefficients(frequencies, self.point)
        return found.real, found.imag

    def functions(self, grams: Grams, *, slopes: bool) -> list[Functions]:
        """Return for each set of nodes the modes (times their deviations) and means of all observables.

        Parameters
        ----------
        grams : Grams
            Has the sets of nodes.
        slopes : bool
            Whether derivatives in the parameters are wanted.
        """
        observables, groups = self.prior.observables, self.prior.groups
        roots, found = self.prior.mode_roots(self.hyper.mode_deviations), []
        for number, nodes in enumerate(grams.nodes):
            basis, d_basis = observables.mode_basis(self.coefficients, groups, nodes, slopes=slopes)
            exact = grams.sums[grams.node_set.index(number)].times
            times = exact if exact is not None else self.prior.units.user_times(nodes)
            means, d_means = observables.means(self.coefficients, times, slopes=slopes)
            found.append(Functions([part * roots for part in basis], [p * roots for p in d_basis], means, d_means))
        return found

    def terms(self, grams: Grams, functions: Sequence[Functions]) -> list[Term]:
        """Return what the measurements of each observable add to the normal equations.

        Parameters
        ----------
        grams : Grams
            Of sums over nodes.
        functions : sequence of Functions
            One for each set of nodes.
        """
        found = []
        for number, sums in enumerate(grams.sums):
            assert isinstance(sums, NodeSums)  # noqa: S101
            own = functions[grams.node_set[number]]
            waves, mean = grams.on_nodes[grams.node_set[number]], own.means[sums.observable]
            rest, on_waves, square = sums.values, grams.on_waves[number], sums.square
            if self.prior.observables.has_mean:
                rest = sums.values - sums.weights * mean
                on_waves = waves.T @ rest
                square += -2.0 * float(sums.values @ mean) + float(sums.weights @ mean**2)
            found.append(
                Term(
                    sums.observable,
                    self.prior.noise.group_of(sums.observable, learned=sums.learned),
                    sums.count,
                    self.precision(sums),
                    waves,
                    grams.products[grams.product_of[number]],
                    on_waves,
                    sums.weights,
                    rest,
                    own.modes[sums.observable],
                    square,
                )
            )
        return found

    def _root_terms(self, grams: Grams, functions: Sequence[Functions]) -> list[RootTerm]:
        """Return what the measurements of each observable add to the design, as in `terms`, from their roots."""
        found = []
        for number, sums in enumerate(grams.sums):
            assert isinstance(sums, RootSums)  # noqa: S101
            own = functions[grams.node_set[number]]
            found.append(
                RootTerm(
                    sums.observable,
                    self.prior.noise.group_of(sums.observable, learned=sums.learned),
                    sums.count,
                    self.precision(sums),
                    grams.products[grams.product_of[number]],
                    sums.apply(own.modes[sums.observable]),
                    sums.target - sums.apply(own.means[sums.observable]),
                    sums.rest,
                )
            )
        return found

    def _prepared(self, most: int = MOST_WAVES) -> tuple[Frequencies, int, Array, Array] | None:
        """Return frequencies, number of nodes, coefficients of the observables; None where these are not finite."""
        prepared = self.prepare(most)
        a, b = self.turned(prepared[0])
        return (*prepared, a, b) if np.isfinite(a).all() and np.isfinite(b).all() else None

    def value(self, *, slopes: bool) -> tuple[float, float, Hyperparameters | None] | None:
        """Return the log evidence in scaled units, its error, and its gradient on request; None where it is not finite.

        Where the design has few rows against its columns, the regression is solved over the rows.

        Parameters
        ----------
        slopes : bool
            Whether the gradient is wanted.
        """
        # A search keeps away from the limit: what it finds can be evaluated again, on waves found afresh.
        prepared = self._prepared(int(0.7 * MOST_WAVES) if slopes else MOST_WAVES)
        if prepared is None:
            return None
        frequencies, nodes, a, b = prepared
        size = 2 * a.shape[1] + sum(group.size for group in self.prior.groups)
        data, count = self.workspace.data, nodes // 2 + 1
        if data.root_size(count) > _FEW_ROWS * size or count > data.finest_root:
            found = self._solve(frequencies, nodes, a, b, slopes=slopes)
            return None if found is None else (found[0].value, found[0].error, found[1])
        grams = self.workspace.grams(frequencies, nodes, roots=True)
        functions = self.functions(grams, slopes=slopes)
        rooted = RootEquations(a, b, self._root_terms(grams, functions), len(self.hyper.noise))
        solved: Dual | Solved | None = rooted.solve_dual()
        if solved is None or not self.workspace.is_precise(solved.error, solved.deviance):
            solved = rooted.solve()
        if solved is None or not np.isfinite(solved.deviance):
            return None
        value = -0.5 * (solved.deviance + self.constants(grams))
        gradient = self.gradient(grams, functions, rooted.slopes(solved)) if slopes else None
        return value, 0.5 * solved.error + self._missed(frequencies, value), gradient

    def _missed(self, frequencies: Frequencies, value: float) -> float:
        """Return what waves that are missed may change in a log evidence: for each measurement, variance over noise."""
        return frequencies.missed * (self.workspace.size + abs(value))

    def solution(self) -> Solution | None:
        """Return the solved regression, with the posterior of the amplitudes; None where nothing is finite."""
        prepared = self._prepared()
        found = None if prepared is None else self._solve(*prepared, slopes=False)
        return None if found is None else found[0]

    def _solve(
        self, frequencies: Frequencies, nodes: int, a: Array, b: Array, *, slopes: bool
    ) -> tuple[Solution, Hyperparameters | None] | None:
        """Return the regression solved by normal equations, or by a QR factorization where these would lose digits."""
        workspace, noises = self.workspace, len(self.hyper.noise)
        has_roots, rounding = nodes // 2 < workspace.data.finest_root, workspace.data.rounding
        squares = sum(self.precision(sums) * sums.square for sums in workspace.data.node_sums(nodes))
        is_lost = has_roots and not workspace.is_precise(rounding * squares, _POOR * workspace.size)
        for roots in (True,) if is_lost else (False, True)[: 1 + has_roots]:
            grams = workspace.grams(frequencies, nodes, roots=roots)
            functions = self.functions(grams, slopes=slopes)
            regression: NormalEquations | RootEquations
            if roots:
                regression = RootEquations(a, b, self._root_terms(grams, functions), noises)
            else:
                regression = NormalEquations(np, a, b, self.terms(grams, functions), noises)
            solved = regression.solve()
            if solved is not None and isinstance(regression, NormalEquations):
                solved = replace(solved, error=regression.error(solved, rounding))
            if solved is not None and workspace.is_precise(solved.error, float(solved.deviance)):
                break
        if solved is None or not np.isfinite(solved.deviance) or not np.isfinite(solved.mean).all():
            return None
        value = -0.5 * (float(solved.deviance) + self.constants(grams))
        own = (frequencies, self.channels, 0.5 * solved.error + self._missed(frequencies, value))
        solution = Solution(value, solved.mean, solved.root, *own)
        return solution, self.gradient(grams, functions, regression.slopes(solved)) if slopes else None

    def constants(self, grams: Grams) -> float:
        """Return the part of the deviance that depends on counts and noise alone."""
        return float(sum(s.count * np.log(2.0 * np.pi / self.precision(s)) - s.log_weights for s in grams.sums))

    def gradient(self, grams: Grams, functions: Sequence[Functions], slopes: Slopes) -> Hyperparameters:
        """Return the gradient of the log evidence: derivatives in waves, modes and means, by the chain rule.

        Parameters
        ----------
        grams : Grams
            The sums and the sets of nodes that the slopes belong to.
        functions : sequence of Functions
            One for each set of nodes.
        slopes : Slopes
            Derivatives of half the deviance.
        """
        theta = np.zeros(len(self.hyper.theta))
        in_modes = np.zeros(sum(group.size for group in self.prior.groups))
        for number, sums in enumerate(grams.sums):
            own = functions[grams.node_set[number]]
            Y, on_mean = slopes.modes[number], slopes.means[number]
            if isinstance(sums, RootSums):
                Y, on_mean = sums.transposed(Y), sums.transposed(on_mean)
            in_modes += np.sum(Y * own.modes[sums.observable], axis=0)
            theta += np.einsum("pqr,qr->p", own.d_modes[sums.observable], Y)
            if self.prior.observables.has_mean:
                theta += own.d_means[sums.observable] @ on_mean
        pulled = self.workspace.spectrum.pull(grams.frequencies, self.point, slopes.waves)
        theta += np.einsum("polk,olk->p", self.coefficients.d_free, pulled.free)
        if self.channels is not None:
            theta += np.einsum("polk,olk->p", self.channels.d_free, pulled.channels)
        modes, noise = self.prior.sum_groups(in_modes), np.asarray(slopes.noise, dtype=float)
        found = Hyperparameters(theta, pulled.log_lengthscales, pulled.log_deviations, modes, noise)
        return found.map(np.negative)


def evaluate(workspace: Workspace, hyper: Hyperparameters) -> Evidence:
    """Return the log evidence in the user's units and its gradient; minus infinity where that is out of reach.

    Parameters
    ----------
    workspace : Workspace
        Prior and data.
    hyper : Hyperparameters
        Where to evaluate.
    """
    try:
        with np.errstate(all="ignore"):
            found = Evaluation(workspace, hyper).value(slopes=True)
    except OutOfReachError:
        found = None
    if found is None or found[2] is None:
        return Evidence.impossible(hyper)
    return Evidence(found[0] + workspace.log_jacobian, found[2], found[1])


def log_evidence(workspace: Workspace, hyper: Hyperparameters) -> tuple[float, float]:
    """Return the log evidence in the user's units alone, with its error; minus infinity where it is out of reach.

    Parameters
    ----------
    workspace, hyper
        As in `evaluate`.
    """
    try:
        with np.errstate(all="ignore"):
            found = Evaluation(workspace, hyper).value(slopes=False)
    except OutOfReachError:
        found = None
    return (-np.inf, 0.0) if found is None else (found[0] + workspace.log_jacobian, found[1])


def solve(workspace: Workspace, hyper: Hyperparameters, length: float | None = None, order: int = 0) -> Solution:
    """Return the solved regression, on waves fit for a longer window and higher derivatives; raise where there is none.

    Parameters
    ----------
    workspace, hyper
        As in `evaluate`.
    length, order
        As in `Evaluation`.
    """
    with np.errstate(all="ignore"):
        found = Evaluation(workspace, hyper, length=length, order=order).solution()
    if found is None:
        raise LodekitError("the covariance of the data is not finite at these values; check units and starting values")
    return found
