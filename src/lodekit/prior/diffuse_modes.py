"""Modes that are left open: deviations so wide that data alone tell initial states, and that favour no parameters.

Where known inputs drive all that was measured, modes are what initial states make. A deviation that is learned for them
says that states begin near rest, which nobody has said. A fixed one would, by the determinant of the evidence, favour
parameters at which modes are seen less, or look alike. So deviations follow the parameters: each mode may make many
times the data, and what the determinant would say of the parameters is taken back. In the limit of wide deviations this
is the restricted likelihood of a regression, with a prior that is flat on the functions that modes make of the record,
whatever basis they have.

One deviation cannot be wide in all directions where modes look nearly alike, as those of two channels do of which one
hardly acts on the other. Deviations grow then, so that also the least direction is wide, and what that costs is an
amount of its own, which is given back beside the evidence; where modes look alike up to rounding, it is known to less
than one nat. Only what is alike at all values of the parameters, by algebra or for want of measurements, is no
dimension.

How wide is infinite is a matter of taste, but each mode costs its logarithm, and a structure with one mode more is
some ten nats behind, whatever the data say. So the evidence that is shown is another one: a prior of each mode that
knows as much as one measurement does, as wide as the error of one prediction from all before, about where the data have
it (Kass and Wasserman 1995). With n measurements and noise alone that is the likelihood with the best initial states,
and log(n)/2 less for each mode: the criterion of Schwarz. It differs by the logarithm of that error from what is
searched, so nothing is learned from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from lodekit.prior.compile import Coefficients
from lodekit.prior.modes import ModeGroup, mode_group_index
from lodekit.prior.observables import Observables

Array = NDArray[np.float64]
#: How many times larger than the data modes may be: an input that is far from zero at the beginning, such as a pressure
#: in Pa, asks for modes that are far larger than all that happens in the record.
DIFFUSE_SCALE = 10_000.0
#: How many times of a record tell what modes make of it: so many at its start, and so many of all others.
N_INITIAL_ROWS, N_LATER_ROWS = 16, 32
#: Also the direction in which modes are seen least may make so many times the data.
MIN_DIFFUSE_SCALE = 100.0
#: Nearer to each other than the first, deviations of modes grow no more; below the second, all is rounding.
COLLINEARITY_TOLERANCE, ROUNDING_TOLERANCE = 1e-12, 1e-15
#: The same where modes may be alike at all values of the parameters.
STRUCTURAL_COLLINEARITY_TOLERANCE = 1e-6
#: An error of predictions is no smaller than this, in the size of the data.
MIN_RELATIVE_ERROR = 1e-12
#: Modes that are faster than this, in the time of a record, are gone at once.
MAX_MODE_RATE = 1e15


def subsample_rows(count: int) -> tuple[NDArray[np.intp], Array]:
    """Return the places of some times, closer to each other at the start, and for how many of all each stands."""
    later = np.geomspace(N_INITIAL_ROWS, max(count, N_INITIAL_ROWS + 1), N_LATER_ROWS).astype(int)
    places = np.unique(np.concatenate([np.arange(min(count, N_INITIAL_ROWS)), np.minimum(later, count - 1)]))
    edges = np.concatenate([[0.0], 0.5 * (places[1:] + places[:-1] + 1), [float(count)]])
    return places, np.diff(edges)


@dataclass(frozen=True, eq=False)
class _BasisFactor:
    """Basis functions of one record that measurements show, each over its size.

    values: At all observables and times, each times the root of its weight; (n, k).
    regularized_qr, rounding_qr: The first n rows of Q, and R, of their QR factorization with a little of the identity
        below them, so that R has an inverse however much alike they look; with still less of it for the second; (n,
        k) and (k, k).
    """

    values: Array
    regularized_qr: tuple[Array, Array]
    rounding_qr: tuple[Array, Array]

    @classmethod
    def from_values(cls, values: Array, collinearity_tolerance: float, rounding_tolerance: float) -> _BasisFactor:
        """Return basis functions with their factors.

        Shapes: values (n, k).
        """
        below, found = np.eye(values.shape[1]), list[tuple[Array, Array]]()
        for each in (collinearity_tolerance, rounding_tolerance):
            turn, root = np.linalg.qr(np.concatenate([values, each * below]))
            found.append((turn[: len(values)], root))
        return cls(values, *found)

    @property
    def log_determinants(self) -> tuple[float, float]:
        """The logarithms of the determinants of both products ``R^T R``."""
        first, second = (
            2.0 * float(np.sum(np.log(np.abs(np.diag(root))))) for _, root in (self.regularized_qr, self.rounding_qr)
        )
        return first, second

    @property
    def inverse_trace(self) -> float:
        """The trace of the inverse of the first product."""
        return float(np.sum(_invert_upper_triangular(self.regularized_qr[1]) ** 2))

    def vjp(self, in_log: float, in_rounding_log: float, in_trace: float) -> Array:
        """Return derivatives in the basis functions, shape (n, k), of a weighted sum of these three numbers."""
        (turn, root), (other, last) = self.regularized_qr, self.rounding_qr
        inverse = _invert_upper_triangular(root)
        inner = in_log * np.eye(len(root)) - in_trace * (inverse.T @ inverse)
        return np.asarray(
            2.0 * (turn @ (inner @ inverse.T) + in_rounding_log * (other @ _invert_upper_triangular(last).T))
        )


def _invert_upper_triangular(root: Array) -> Array:
    """Return the inverse of an upper triangular matrix; not finite where there is none."""
    if not np.diag(root).all():
        return np.full(root.shape, np.inf)
    return np.asarray(solve_triangular(root, np.eye(len(root)), check_finite=False))


@dataclass(frozen=True, eq=False)
class _DiffuseScaling:
    """What deviations are made of at some values of the parameters.

    coefficients: Of what was measured.
    bases: For each record, the basis of the modes, one array for each observable.
    log_amplitudes: The logarithms of the deviations; (g,).
    mean_squares: Mean squares of the modes of each group; one where no measurement shows any; (g,).
    visible_index: Basis functions that measurements show; (k,).
    factors: For each record, these basis functions.
    log_determinant: The logarithms of the determinants of all records.
    mean_inverse_trace: By how much narrower than on average the least direction would be, squared.
    correction: What is given back beside the evidence.
    """

    coefficients: Coefficients
    bases: list[list[Array]]
    log_amplitudes: Array
    mean_squares: Array
    visible_index: NDArray[np.intp]
    factors: list[_BasisFactor]
    log_determinant: float = 0.0
    mean_inverse_trace: float = 0.0
    correction: float = 0.0


@dataclass(frozen=True)
class DiffuseModes:
    """Deviations of modes that follow the parameters.

    observables: What was measured.
    times: Some times of each record, scaled, from its start on.
    weights: For which share of all measurements of a record each of them stands, over the mean square of the data;
        (o, n).
    scales: Of the data, scaled; (o,).
    """

    observables: Observables
    groups: tuple[ModeGroup, ...]
    times: tuple[Array, ...]
    weights: tuple[Array, ...]
    scales: Array
    _last: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}

    @classmethod
    def from_measurements(
        cls,
        observables: Observables,
        groups: tuple[ModeGroup, ...],
        times: Sequence[Array],
        counts: Sequence[Array],
        scales: Array,
    ) -> DiffuseModes:
        """Return the deviations for what was measured at some times.

        Shapes: scales (o,).
        """
        shares = tuple(each / (each.sum() * len(scales) * scales[:, None] ** 2) for each in counts)
        return cls(observables, groups, tuple(times), shares, scales)

    def proper_prior_offset(self, theta: Array, noise_std: Array) -> float:
        """Return how much larger the log evidence of a record is if modes know as much as one measurement does.

        Shapes: theta (p,), noise_std (o,).
        """
        look = self._evaluate(theta)
        each = np.log(DIFFUSE_SCALE) + np.mean(
            np.log(self.scales / np.maximum(noise_std, MIN_RELATIVE_ERROR * self.scales))
        )
        return float(len(look.visible_index) * each) + look.correction / len(self.times)

    def log_amplitudes(self, theta: Array) -> Array:
        """Return the logarithms of the deviations at values of the parameters, shape (g,)."""
        return self._evaluate(theta).log_amplitudes

    def restricted_likelihood_correction(self, theta: Array) -> float:
        """Return what is to be added to the log evidence of all records: what wider deviations cost there."""
        return self._evaluate(theta).correction

    def vjp(self, theta: Array, cotangents: Array, correction_weight: float = 0.0) -> Array:
        """Return derivatives in the parameters of a weighted sum of the logarithms, shape (p,).

        Shapes: theta (p,), cotangents (g,).
        """
        look, each = self._evaluate(theta), self._group_index
        total = np.zeros(len(theta))
        if not look.bases:
            return total
        sizes = np.array([group.size for group in self.groups])
        with np.errstate(all="ignore"):
            pulled = self._factor_vjp(look, float(cotangents.sum()), correction_weight)
            in_squares = -0.5 * cotangents
            for own, columns in zip(pulled, look.factors, strict=True):
                np.add.at(in_squares, each[look.visible_index], -0.5 * np.sum(own * columns.values, axis=0))
            in_squares = (in_squares / (look.mean_squares * sizes * len(self.times)))[each]
            hidden = np.setdiff1d(np.arange(len(each)), look.visible_index)
            in_squares[hidden] = 0.0
            scale = 1.0 / np.sqrt(look.mean_squares[each[look.visible_index]])
            for number, (basis, own) in enumerate(zip(look.bases, pulled, strict=True)):
                weights = self.weights[number][:, :, None]
                slanted = [2.0 * w * (part * in_squares) for w, part in zip(weights, basis, strict=True)]
                for part, w, more in zip(slanted, weights, np.split(own, len(basis)), strict=True):
                    part[:, look.visible_index] += np.sqrt(w) * more * scale
                total += self.observables.mode_basis_vjp(look.coefficients, self.groups, self.times[number], slanted)
        return total

    def _factor_vjp(self, scaling: _DiffuseScaling, cotangent: float, correction_weight: float) -> list[Array]:
        """Return derivatives in the columns of each record, of all logarithms together and the correction."""
        count, own = len(self.times), self._determinant_share(scaling.visible_index)
        wider = self._are_modes_distinct * (MIN_DIFFUSE_SCALE / DIFFUSE_SCALE) ** 2
        in_spread = (
            0.5
            * (cotangent + correction_weight * len(scaling.visible_index) * count)
            * wider
            / (1.0 + wider * scaling.mean_inverse_trace)
        )
        in_log = -own * cotangent - 0.5 * correction_weight + 2.0 * own * in_spread * scaling.mean_inverse_trace
        in_trace = in_spread * float(np.exp(2.0 * own * scaling.log_determinant)) / count
        return [columns.vjp(in_log, 0.5 * correction_weight, in_trace) for columns in scaling.factors]

    @cached_property
    def _are_modes_distinct(self) -> bool:
        """Whether modes look different at some values of the parameters, and in all records: by algebra, and by count.

        Factors that occur once have modes of their own, and what shows one of these shows all, unless too few
        measurements do, or none in one of the records.
        """
        compiled, count = self.observables.compiled, sum(group.size for group in self.groups)
        if any(each.multiplicity > 1 for each in compiled.factors):
            return False
        if any(np.count_nonzero(weights) < count or not weights.any(axis=1).all() for weights in self.weights):
            return False
        # Two that are the same at numbers which nobody chooses are the same.
        number = len(compiled.parameters)
        factors = self.observables.evaluate(np.sqrt(1.0 + 0.37 * np.arange(1, number + 1))).factors
        return len({tuple(np.round(each / np.abs(each).max(), 9)) for each in factors}) == len(factors)

    @property
    def _group_index(self) -> NDArray[np.intp]:
        """The number of the group of each basis function."""
        return np.array(mode_group_index(self.groups), dtype=np.intp)

    def _determinant_share(self, visible_index: NDArray[np.intp]) -> float:
        """Return which share of a logarithm of a determinant each mode takes back."""
        return 0.5 / max(len(visible_index) * len(self.times), 1)

    def _evaluate(self, theta: Array) -> _DiffuseScaling:
        """Return what deviations are made of; the last one is kept."""
        last = self._last.get("look")
        if last is None or not np.array_equal(last[0], theta):
            with np.errstate(all="ignore"):
                last = self._last["look"] = (theta.copy(), self._compute_scaling(theta))
        return last[1]

    def _fallback_scaling(self, values: Coefficients) -> _DiffuseScaling:
        """Return deviations where modes are not finite, or gone at once: an engine will say what it can."""
        count = len(self.groups)
        return _DiffuseScaling(
            values, [], np.full(count, np.log(DIFFUSE_SCALE)), np.ones(count), np.zeros(0, dtype=np.intp), []
        )

    def _compute_scaling(self, theta: Array) -> _DiffuseScaling:
        values, each = self.observables.evaluate(theta), self._group_index
        rates = np.abs(self.observables.exponents(values, self.groups, include_signals=False))
        if not (rates < MAX_MODE_RATE).all():
            return self._fallback_scaling(values)
        bases = [
            self.observables.mode_basis(values, self.groups, times, with_jacobian=False)[0] for times in self.times
        ]
        heavy = [
            np.concatenate([part * np.sqrt(w)[:, None] for part, w in zip(own, weights, strict=True)])
            for own, weights in zip(bases, self.weights, strict=True)
        ]
        diagonal = np.mean([np.sum(own**2, axis=0) for own in heavy], axis=0)
        squares = np.array([float(np.mean(diagonal[each == g])) for g in range(len(self.groups))])
        # What no measurement shows has no size of its own.
        kept, squares = np.flatnonzero(squares[each] != 0.0), np.where(squares == 0.0, 1.0, squares)
        scale = 1.0 / np.sqrt(squares[each[kept]])
        parts = [own[:, kept] * scale for own in heavy]
        if not all(np.isfinite(own).all() for own in parts):
            return self._fallback_scaling(values)
        limits = (
            (COLLINEARITY_TOLERANCE, ROUNDING_TOLERANCE)
            if self._are_modes_distinct
            else (STRUCTURAL_COLLINEARITY_TOLERANCE, STRUCTURAL_COLLINEARITY_TOLERANCE)
        )
        columns = [_BasisFactor.from_values(own, *limits) for own in parts]
        first, last = np.sum([own.log_determinants for own in columns], axis=0)
        # Half the logarithm of the determinant, by all modes together, so that the evidence does not know of it.
        even = self._determinant_share(kept) * float(first)
        spread = float(np.exp(2.0 * even) * np.mean([own.inverse_trace for own in columns]))
        wider = 0.5 * float(np.log1p(self._are_modes_distinct * (MIN_DIFFUSE_SCALE / DIFFUSE_SCALE) ** 2 * spread))
        correction = len(kept) * len(self.times) * wider + 0.5 * float(last - first)
        logs = np.log(DIFFUSE_SCALE) - 0.5 * np.log(squares) - even + wider
        return _DiffuseScaling(values, bases, logs, squares, kept, columns, float(first), spread, correction)
