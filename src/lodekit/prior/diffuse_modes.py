"""Diffuse prior of initial states, with the restricted likelihood (REML) correction of the evidence.

If known inputs drive all measured channels, the modes are the response to initial states. A learned amplitude would
imply that states start near rest; a fixed one would, through the determinant of the evidence, favour parameters at
which modes are less visible or nearly collinear. So the amplitudes depend on the parameters: each mode may be many
times larger than the data, and the effect of the determinant is removed. In the limit of a diffuse prior this is the
restricted likelihood of a regression, with a prior that is flat on the functions that the modes span.

If modes are nearly collinear, as those of two weakly coupled channels are, one amplitude is not wide in all
directions. Amplitudes then grow until the least visible direction is wide too, and the cost is returned as a correction
of the evidence. Where modes are collinear up to rounding, a direction is lost, and the evidence would jump: a barrier
keeps searches away. Only modes that are collinear for all parameter values, by algebra or for lack of measurements, are
not counted as dimensions.

Each mode costs the logarithm of the arbitrary prior width. So the reported evidence uses a unit information prior: as
wide as the error of one prediction, centred at the estimate (Kass and Wasserman 1995). With n measurements it is the
likelihood at the best initial states minus log(n)/2 for each mode, the criterion of Schwarz (BIC). It differs by the
logarithm of that error from the optimised evidence, which remains the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from scipy.linalg import lapack

from lodekit.prior.compile import Coefficients
from lodekit.prior.modes import ModeGroup, mode_group_index, mode_matrix
from lodekit.prior.observables import Observables
from lodekit.support.arguments import Array, IndexArray
from lodekit.support.recent import RecentResults

#: The amplitude of modes relative to the data: an input far from zero at the start, such as a pressure in Pa, requires
#: modes far larger than all changes in the record.
DIFFUSE_SCALE = 10_000.0
#: The prior standard deviation of the least visible direction of the modes, relative to the data, is at least this.
MIN_DIFFUSE_SCALE = 100.0
#: Amplitudes grow for collinear modes down to the first tolerance; below the second, all is rounding. Modes that are
#: collinear for all parameter values have the last one.
_GROWTH_TOLERANCE, _ROUNDING_TOLERANCE, _COLLINEAR_TOLERANCE = 1e-12, 1e-15, 1e-6
#: The height of the barrier: more than the evidence gains if a direction is lost with the least noise.
_BARRIER = float(np.log(MIN_DIFFUSE_SCALE / 1e-12))
#: Basis functions, (n, k), and their two regularized QR factors, shapes (n, k) and (k, k).
_BasisFactor = tuple[Array, tuple[Array, Array], tuple[Array, Array]]


def subsample_rows(count: int, n_initial: int = 16, n_later: int = 32) -> tuple[IndexArray, Array]:
    """Return the indices of some rows, denser at the start, and the number of rows that each represents."""
    later = np.geomspace(n_initial, max(count, n_initial + 1), n_later).astype(int)
    places = np.unique(np.concatenate([np.arange(min(count, n_initial)), np.minimum(later, count - 1)]))
    edges = np.concatenate([[0.0], 0.5 * (places[1:] + places[:-1] + 1), [float(count)]])
    return places, np.diff(edges)


def _regularized_qr(values: Array, tolerance: float) -> tuple[Array, Array]:
    """Return the first n rows of Q, and R, of values above a multiple of the identity, so that R has an inverse.

    Shapes: values (n, k).
    """
    Q, R = np.linalg.qr(np.concatenate([values, tolerance * np.eye(values.shape[1])]))
    return Q[: len(values)], R


def _invert_upper_triangular(root: Array) -> Array:
    """Return the inverse of an upper triangular matrix; infinite if it is singular."""
    if not np.diag(root).all():
        return np.full(root.shape, np.inf)
    # LAPACK prints a warning for a matrix without rows.
    return np.asarray(lapack.dtrtri(root)[0]) if len(root) else root


@dataclass(frozen=True, eq=False)
class _DiffuseScaling:
    """The diffuse amplitudes at some values of the parameters, with intermediate results.

    coefficients: Coefficients of the measured observables.
    bases: For each record, the basis of the modes, one array for each observable.
    log_amplitudes: The logarithms of the amplitudes; (g,).
    mean_squares: Mean squares of the modes of each group in the measurements; one if they are zero; (g,).
    visible_index: Basis functions that affect a measurement; (k,).
    factors: For each record, these basis functions.
    log_determinant: The sum of the log determinants of all records.
    mean_inverse_trace: The squared ratio of the average to the least visible direction.
    correction: The restricted likelihood correction of the evidence.
    """

    coefficients: Coefficients
    bases: list[list[Array]]
    log_amplitudes: Array
    mean_squares: Array
    visible_index: IndexArray
    factors: list[_BasisFactor]
    log_determinant: float = 0.0
    mean_inverse_trace: float = 0.0
    correction: float = 0.0


@dataclass(frozen=True)
class DiffuseModes:
    """Amplitudes of modes that depend on the parameters.

    observables: The measured observables.
    times: Some scaled times of each record, from its start.
    counts: The number of measurements that each time represents, for each record; (o, n).
    scales: Scales of the data in scaled units; (o,).
    unknown_share: The share of all modes that exact values do not determine.
    """

    observables: Observables
    groups: tuple[ModeGroup, ...]
    times: tuple[Array, ...]
    counts: tuple[Array, ...]
    scales: Array
    unknown_share: float = 1.0
    _scalings: RecentResults = field(default_factory=RecentResults, init=False, compare=False, repr=False)

    @property
    def width(self) -> float:
        """The amplitude of modes relative to the data; modes that exact values determine need not be wide."""
        return DIFFUSE_SCALE if self.unknown_share else 10.0

    @cached_property
    def weights(self) -> list[Array]:
        """The share of the measurements of a record that each time represents, over the mean square of the data."""
        return [each / (each.sum() * len(self.scales) * self.scales[:, None] ** 2) for each in self.counts]

    def proper_prior_offset(self, theta: Array, noise_std: Array) -> float:
        """Return the change of the log evidence of a record under a unit information prior of the modes.

        Shapes: theta (p,), noise_std (o,).
        """
        scaling = self._evaluate(theta)
        relative_noise = np.maximum(noise_std, 1e-12 * self.scales) / self.scales
        per_mode = np.log(self.width) - np.mean(np.log(relative_noise))
        total = len(scaling.visible_index) * float(per_mode) + scaling.correction / len(self.times)
        return self.unknown_share * total

    def log_amplitudes(self, theta: Array) -> Array:
        """Return the logarithms of the amplitudes at parameter values, shape (g,)."""
        return self._evaluate(theta).log_amplitudes

    def restricted_likelihood_correction(self, theta: Array) -> float:
        """Return the REML correction of the log evidence of all records."""
        return self.unknown_share * self._evaluate(theta).correction

    def vjp(self, theta: Array, cotangents: Array, correction_weight: float = 0.0) -> Array:
        """Return derivatives in the parameters of a weighted sum of the log amplitudes, shape (p,).

        Shapes: theta (p,), cotangents (g,).
        """
        look, each, total = self._evaluate(theta), self._group_index, np.zeros(len(theta))
        if not look.bases:
            return total
        sizes = np.array([group.size for group in self.groups])
        with np.errstate(all="ignore"):
            pulled = self._factor_vjp(look, float(cotangents.sum()), self.unknown_share * correction_weight)
            in_squares = -0.5 * cotangents
            for own, (values, _, _) in zip(pulled, look.factors, strict=True):
                np.add.at(in_squares, each[look.visible_index], -0.5 * np.sum(own * values, axis=0))
            in_squares = (in_squares / (look.mean_squares * sizes * len(self.times)))[each]
            is_hidden = np.ones(len(each), dtype=bool)
            is_hidden[look.visible_index] = False
            in_squares[is_hidden] = 0.0
            scale = 1.0 / np.sqrt(look.mean_squares[each[look.visible_index]])
            for number, (basis, own) in enumerate(zip(look.bases, pulled, strict=True)):
                weights = self.weights[number][:, :, None]
                slanted = [2.0 * w * (part * in_squares) for w, part in zip(weights, basis, strict=True)]
                for part, w, more in zip(slanted, weights, np.split(own, len(basis)), strict=True):
                    part[:, look.visible_index] += np.sqrt(w) * more * scale
                total += self.observables.mode_basis_vjp(look.coefficients, self.groups, self.times[number], slanted)
        return total

    def _factor_vjp(self, scaling: _DiffuseScaling, cotangent: float, correction_weight: float) -> list[Array]:
        """Return derivatives in each record's basis functions, for the sum of log amplitudes and for the correction."""
        count, share = len(self.times), self._determinant_share(scaling.visible_index)
        wider = self._are_modes_distinct * (MIN_DIFFUSE_SCALE / self.width) ** 2
        in_widening = 0.5 * (cotangent + correction_weight * len(scaling.visible_index) * count)
        in_spread = in_widening * wider / (1.0 + wider * scaling.mean_inverse_trace)
        in_log = -share * cotangent - 0.5 * correction_weight + 2.0 * share * in_spread * scaling.mean_inverse_trace
        in_trace = in_spread * float(np.exp(2.0 * share * scaling.log_determinant)) / count
        gradients = []
        for _, (Q, R), (rounding_Q, rounding_R) in scaling.factors:
            inverse = _invert_upper_triangular(R)
            inner = in_log * np.eye(len(R)) - in_trace * (inverse.T @ inverse)
            last = _invert_upper_triangular(rounding_R)
            rounding = correction_weight * (0.5 * np.eye(len(R)) + self._barrier * (last.T @ last))
            gradients.append(np.asarray(2.0 * (Q @ (inner @ inverse.T) + rounding_Q @ (rounding @ last.T))))
        return gradients

    @cached_property
    def _are_modes_distinct(self) -> bool:
        """Whether modes are linearly independent at generic parameter values, in all records.

        Different factors have independent modes, and a measurement that shows one mode of a factor shows all, unless
        there are too few measurements, or a record has none.
        """
        compiled, count = self.observables.compiled, sum(group.size for group in self.groups)
        if any(group.multiplicity > 1 for group in self.groups):
            return False
        if any(np.count_nonzero(weights) < count or not weights.any(axis=1).all() for weights in self.weights):
            return False
        # Factors that agree at arbitrary irrational numbers are identical.
        theta = np.sqrt(1.0 + 0.37 * np.arange(1, len(compiled.parameters) + 1))
        values = self.observables.evaluate(theta)
        if any(group.has_state_matrix for group in self.groups):
            # Distinct eigenvalues, and eigenvectors that are visible in a measurement (Popov-Belevitch-Hautus test).
            matrix = mode_matrix(np, values.factors[0], compiled.factors[0])
            rates, vectors = np.linalg.eig(matrix)
            gaps = np.abs(np.subtract.outer(rates, rates))[~np.eye(len(rates), dtype=bool)]
            shown = np.abs(values.mode_columns[0] @ vectors).max(axis=0)
            return bool(gaps.min(initial=np.inf) > 1e-9 * np.abs(rates).max() and shown.min() > 1e-9 * shown.max())
        return len({tuple(np.round(each / np.abs(each).max(), 9)) for each in values.factors}) == len(values.factors)

    @property
    def _barrier(self) -> float:
        """The factor of the inverse squared singular values of the modes in the barrier."""
        return self._are_modes_distinct * _BARRIER * _ROUNDING_TOLERANCE**2

    @property
    def _group_index(self) -> IndexArray:
        """The index of the group of each basis function."""
        return np.array(mode_group_index(self.groups), dtype=np.intp)

    def _determinant_share(self, visible_index: IndexArray) -> float:
        """Return the share of the log determinant that is subtracted from each log amplitude."""
        return 0.5 / max(len(visible_index) * len(self.times), 1)

    def _evaluate(self, theta: Array) -> _DiffuseScaling:
        """Return the amplitudes with intermediate results; the last ones are cached."""
        with np.errstate(all="ignore"):
            return self._scalings.find(theta.tobytes(), partial(self._compute_scaling, theta))

    def _fallback_scaling(self, values: Coefficients) -> _DiffuseScaling:
        """Return constant amplitudes if modes are not finite, or decay instantly; the engine reports the problem."""
        ones = np.ones(len(self.groups))
        return _DiffuseScaling(values, [], np.log(self.width) * ones, ones, np.zeros(0, dtype=np.intp), [])

    def _compute_scaling(self, theta: Array) -> _DiffuseScaling:
        values, each = self.observables.evaluate(theta), self._group_index
        rates = np.abs(self.observables.exponents(values, self.groups, include_signals=False))
        if not (rates < 1e15).all():
            return self._fallback_scaling(values)
        evaluate = partial(self.observables.mode_basis, values, self.groups, with_jacobian=False)
        bases = [evaluate(times)[0] for times in self.times]
        weighted = [
            np.concatenate([part * np.sqrt(w)[:, None] for part, w in zip(own, weights, strict=True)])
            for own, weights in zip(bases, self.weights, strict=True)
        ]
        diagonal = np.mean([np.sum(own**2, axis=0) for own in weighted], axis=0)
        squares = np.array([float(np.mean(diagonal[each == g])) for g in range(len(self.groups))])
        # Omit modes that are not visible in any measurement.
        kept, squares = np.flatnonzero(squares[each] != 0.0), np.where(squares == 0.0, 1.0, squares)
        scale = 1.0 / np.sqrt(squares[each[kept]])
        parts = [own[:, kept] * scale for own in weighted]
        if not all(np.isfinite(own).all() for own in parts):
            return self._fallback_scaling(values)
        limits = (_GROWTH_TOLERANCE, _ROUNDING_TOLERANCE) if self._are_modes_distinct else (_COLLINEAR_TOLERANCE,) * 2
        factors = [(own, _regularized_qr(own, limits[0]), _regularized_qr(own, limits[1])) for own in parts]
        roots = np.array([[regularized[1], rounding[1]] for _, regularized, rounding in factors])
        first, last = 2.0 * np.log(np.abs(np.diagonal(roots, axis1=2, axis2=3))).sum(axis=(0, 2))
        # Half the log determinant, distributed over all modes, so that it cancels in the evidence.
        even = self._determinant_share(kept) * float(first)
        traces = np.array([[np.sum(_invert_upper_triangular(R) ** 2) for R in pair] for pair in roots])
        spread = float(np.exp(2.0 * even) * np.mean(traces[:, 0]))
        wider = 0.5 * float(np.log1p(self._are_modes_distinct * (MIN_DIFFUSE_SCALE / self.width) ** 2 * spread))
        correction = len(kept) * len(self.times) * wider + 0.5 * (last - first) - self._barrier * np.sum(traces[:, 1])
        logs = np.log(self.width) - 0.5 * np.log(squares) - even + wider
        return _DiffuseScaling(values, bases, logs, squares, kept, factors, float(first), spread, float(correction))
