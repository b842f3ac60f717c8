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
from lodekit.prior.modes import ModeGroup, group_of_each
from lodekit.prior.observables import Observables

__all__ = ["OpenModes", "some_of"]

Array = NDArray[np.float64]
#: How many times larger than the data modes may be: an input that is far from zero at the beginning, such as a pressure
#: in Pa, asks for modes that are far larger than all that happens in the record.
_WIDE = 10_000.0
#: How many times of a record tell what modes make of it: so many at its start, and so many of all others.
_FIRST, _OTHERS = 16, 32
#: Also the direction in which modes are seen least may make so many times the data.
_LEAST = 100.0
#: Nearer to each other than the first, deviations of modes grow no more; below the second, all is rounding.
_NEAR, _ROUNDING = 1e-12, 1e-15
#: The same where modes may be alike at all values of the parameters.
_ALIKE = 1e-6
#: An error of predictions is no smaller than this, in the size of the data.
_EXACT = 1e-12
#: Modes that are faster than this, in the time of a record, are gone at once.
_FASTEST = 1e15


def some_of(count: int) -> tuple[NDArray[np.intp], Array]:
    """Return the places of some times, closer to each other at the start, and for how many of all each stands.

    Parameters
    ----------
    count : int
        How many times there are.
    """
    later = np.geomspace(_FIRST, max(count, _FIRST + 1), _OTHERS).astype(int)
    places = np.unique(np.concatenate([np.arange(min(count, _FIRST)), np.minimum(later, count - 1)]))
    edges = np.concatenate([[0.0], 0.5 * (places[1:] + places[:-1] + 1), [float(count)]])
    return places, np.diff(edges)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Basis functions of one record that measurements show, each over its size.

    Parameters
    ----------
    values : array, shape (n, k)
        At all observables and times, each times the root of its weight.
    first, last : (array, array), shapes (n, k) and (k, k)
        The first n rows of Q, and R, of their QR factorization with a little of the identity below them, so that R has
        an inverse however much alike they look; with still less of it for the second.
    """

    values: Array
    first: tuple[Array, Array]
    last: tuple[Array, Array]

    @classmethod
    def of(cls, values: Array, near: float, least: float) -> _Columns:
        """Return basis functions with their factors.

        Parameters
        ----------
        values : array, shape (n, k)
        near, least : float
            How much of the identity is below them.
        """
        below, found = np.eye(values.shape[1]), list[tuple[Array, Array]]()
        for each in (near, least):
            turn, root = np.linalg.qr(np.concatenate([values, each * below]))
            found.append((turn[: len(values)], root))
        return cls(values, *found)

    @property
    def logs(self) -> tuple[float, float]:
        """The logarithms of the determinants of both products ``R^T R``."""
        first, second = (2.0 * float(np.sum(np.log(np.abs(np.diag(root))))) for _, root in (self.first, self.last))
        return first, second

    @property
    def trace(self) -> float:
        """The trace of the inverse of the first product."""
        return float(np.sum(_inverse(self.first[1]) ** 2))

    def pull(self, in_log: float, in_last: float, in_trace: float) -> Array:
        """Return derivatives in the basis functions, shape (n, k), of a weighted sum of these three numbers.

        Parameters
        ----------
        in_log, in_last, in_trace : float
            The weights.
        """
        (turn, root), (other, last) = self.first, self.last
        inverse = _inverse(root)
        inner = in_log * np.eye(len(root)) - in_trace * (inverse.T @ inverse)
        return np.asarray(2.0 * (turn @ (inner @ inverse.T) + in_last * (other @ _inverse(last).T)))


def _inverse(root: Array) -> Array:
    """Return the inverse of an upper triangular matrix; not finite where there is none."""
    if not np.diag(root).all():
        return np.full(root.shape, np.inf)
    return np.asarray(solve_triangular(root, np.eye(len(root)), check_finite=False))


@dataclass(frozen=True, eq=False)
class _Look:
    """What deviations are made of at some values of the parameters.

    Parameters
    ----------
    values : Coefficients
        Of what was measured.
    bases : list of lists of arrays
        For each record, the basis of the modes, one array for each observable.
    logs : array, shape (g,)
        The logarithms of the deviations.
    squares : array, shape (g,)
        Mean squares of the modes of each group; one where no measurement shows any.
    kept : int array, shape (k,)
        Basis functions that measurements show.
    columns : list of _Columns
        For each record, these basis functions.
    total : float
        The logarithms of the determinants of all records.
    spread : float
        By how much narrower than on average the least direction would be, squared.
    correction : float
        What is given back beside the evidence.
    """

    values: Coefficients
    bases: list[list[Array]]
    logs: Array
    squares: Array
    kept: NDArray[np.intp]
    columns: list[_Columns]
    total: float = 0.0
    spread: float = 0.0
    correction: float = 0.0


@dataclass(frozen=True)
class OpenModes:
    """Deviations of modes that follow the parameters.

    Parameters
    ----------
    observables : Observables
        What was measured.
    groups : tuple of ModeGroup
    times : tuple of arrays
        Some times of each record, scaled, from its start on.
    weights : tuple of arrays, shape (o, n)
        For which share of all measurements of a record each of them stands, over the mean square of the data.
    sizes : array, shape (o,)
        Of the data, scaled.
    """

    observables: Observables
    groups: tuple[ModeGroup, ...]
    times: tuple[Array, ...]
    weights: tuple[Array, ...]
    sizes: Array
    _last: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}

    @classmethod
    def of(
        cls,
        observables: Observables,
        groups: tuple[ModeGroup, ...],
        times: Sequence[Array],
        counts: Sequence[Array],
        sizes: Array,
    ) -> OpenModes:
        """Return the deviations for what was measured at some times.

        Parameters
        ----------
        observables : Observables
        groups : tuple of ModeGroup
        times : sequence of arrays
            Some times of each record, scaled, from its start on, ascending: at the places that `some_of` tells.
        counts : sequence of arrays
            For how many of all times each of them stands.
        sizes : array, shape (o,)
            Of the data, scaled.
        """
        shares = tuple(each / (each.sum() * len(sizes) * sizes[:, None] ** 2) for each in counts)
        return cls(observables, groups, tuple(times), shares, sizes)

    def allowance(self, theta: Array, errors: Array) -> float:
        """Return how much larger the log evidence of a record is if modes know as much as one measurement does.

        Parameters
        ----------
        theta : array, shape (p,)
        errors : array, shape (o,)
            Of predictions of one measurement from all before, scaled.
        """
        look = self._look(theta)
        each = np.log(_WIDE) + np.mean(np.log(self.sizes / np.maximum(errors, _EXACT * self.sizes)))
        return float(len(look.kept) * each) + look.correction / len(self.times)

    def log_deviations(self, theta: Array) -> Array:
        """Return the logarithms of the deviations at values of the parameters, shape (g,)."""
        return self._look(theta).logs

    def correction(self, theta: Array) -> float:
        """Return what is to be added to the log evidence of all records: what wider deviations cost there."""
        return self._look(theta).correction

    def pull(self, theta: Array, slopes: Array, share: float = 0.0) -> Array:
        """Return derivatives in the parameters of a weighted sum of the logarithms, shape (p,).

        Parameters
        ----------
        theta : array, shape (p,)
        slopes : array, shape (g,)
            The weights.
        share : float
            The weight of the correction in this sum.
        """
        look, each = self._look(theta), self._each
        total = np.zeros(len(theta))
        if not look.bases:
            return total
        sizes = np.array([group.size for group in self.groups])
        with np.errstate(all="ignore"):
            pulled = self._pull_columns(look, float(slopes.sum()), share)
            in_squares = -0.5 * slopes
            for own, columns in zip(pulled, look.columns, strict=True):
                np.add.at(in_squares, each[look.kept], -0.5 * np.sum(own * columns.values, axis=0))
            in_squares = (in_squares / (look.squares * sizes * len(self.times)))[each]
            hidden = np.setdiff1d(np.arange(len(each)), look.kept)
            in_squares[hidden] = 0.0
            scale = 1.0 / np.sqrt(look.squares[each[look.kept]])
            for number, (basis, own) in enumerate(zip(look.bases, pulled, strict=True)):
                weights = self.weights[number][:, :, None]
                slanted = [2.0 * w * (part * in_squares) for w, part in zip(weights, basis, strict=True)]
                for part, w, more in zip(slanted, weights, np.split(own, len(basis)), strict=True):
                    part[:, look.kept] += np.sqrt(w) * more * scale
                total += self.observables.pull_modes(look.values, self.groups, self.times[number], slanted)
        return total

    def _pull_columns(self, look: _Look, slope: float, share: float) -> list[Array]:
        """Return derivatives in the columns of each record, of all logarithms together and the correction."""
        count, own = len(self.times), self._share(look.kept)
        wider = self._is_apart * (_LEAST / _WIDE) ** 2
        in_spread = 0.5 * (slope + share * len(look.kept) * count) * wider / (1.0 + wider * look.spread)
        in_log = -own * slope - 0.5 * share + 2.0 * own * in_spread * look.spread
        in_trace = in_spread * float(np.exp(2.0 * own * look.total)) / count
        return [columns.pull(in_log, 0.5 * share, in_trace) for columns in look.columns]

    @cached_property
    def _is_apart(self) -> bool:
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
    def _each(self) -> NDArray[np.intp]:
        """The number of the group of each basis function."""
        return np.array(group_of_each(self.groups), dtype=np.intp)

    def _share(self, kept: NDArray[np.intp]) -> float:
        """Return which share of a logarithm of a determinant each mode takes back."""
        return 0.5 / max(len(kept) * len(self.times), 1)

    def _look(self, theta: Array) -> _Look:
        """Return what deviations are made of; the last one is kept."""
        last = self._last.get("look")
        if last is None or not np.array_equal(last[0], theta):
            with np.errstate(all="ignore"):
                last = self._last["look"] = (theta.copy(), self._make_look(theta))
        return last[1]

    def _give_up(self, values: Coefficients) -> _Look:
        """Return deviations where modes are not finite, or gone at once: an engine will say what it can."""
        count = len(self.groups)
        return _Look(values, [], np.full(count, np.log(_WIDE)), np.ones(count), np.zeros(0, dtype=np.intp), [])

    def _make_look(self, theta: Array) -> _Look:
        values, each = self.observables.evaluate(theta), self._each
        rates = np.abs(self.observables.exponents(values, self.groups, signals=False))
        if not (rates < _FASTEST).all():
            return self._give_up(values)
        bases = [self.observables.mode_basis(values, self.groups, times, slopes=False)[0] for times in self.times]
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
            return self._give_up(values)
        limits = (_NEAR, _ROUNDING) if self._is_apart else (_ALIKE, _ALIKE)
        columns = [_Columns.of(own, *limits) for own in parts]
        first, last = np.sum([own.logs for own in columns], axis=0)
        # Half the logarithm of the determinant, by all modes together, so that the evidence does not know of it.
        even = self._share(kept) * float(first)
        spread = float(np.exp(2.0 * even) * np.mean([own.trace for own in columns]))
        wider = 0.5 * float(np.log1p(self._is_apart * (_LEAST / _WIDE) ** 2 * spread))
        correction = len(kept) * len(self.times) * wider + 0.5 * float(last - first)
        logs = np.log(_WIDE) - 0.5 * np.log(squares) - even + wider
        return _Look(values, bases, logs, squares, kept, columns, float(first), spread, correction)
