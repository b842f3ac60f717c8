"""Modes that are left open: deviations so wide that data alone tell initial states, and that favour no parameters.

Where known inputs drive all that was measured, modes are what initial states make. A deviation that is learned for them
says that states begin near rest, which nobody has said. A fixed one would, by the determinant of the evidence, favour
parameters at which modes are seen less, or look alike. So deviations follow the parameters: each mode may make many
times the data, and what the determinant would say of the parameters is taken back. In the limit of wide deviations this
is the restricted likelihood of a regression, with a prior that is flat on the functions that modes make of the record,
whatever basis they have.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
#: Modes that are closer to each other than this look alike for ever.
_ALIKE = 1e-12
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
    inverses : list of arrays, shape (k, k)
        For each record, the inverse of the mean products of these basis functions.
    shares : list of arrays, shape (k,)
        For each record, the diagonal of the product of both: one, unless some look alike.
    """

    values: Coefficients
    bases: list[list[Array]]
    logs: Array
    squares: Array
    kept: NDArray[np.intp]
    inverses: list[Array]
    shares: list[Array]


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
        each = np.log(_WIDE) + np.mean(np.log(self.sizes / np.maximum(errors, _ALIKE * self.sizes)))
        return float(len(self._look(theta).kept) * each)

    def log_deviations(self, theta: Array) -> Array:
        """Return the logarithms of the deviations at values of the parameters, shape (g,)."""
        return self._look(theta).logs

    def pull(self, theta: Array, slopes: Array) -> Array:
        """Return derivatives in the parameters of a weighted sum of the logarithms, shape (p,).

        Parameters
        ----------
        theta : array, shape (p,)
        slopes : array, shape (g,)
            The weights.
        """
        look, each = self._look(theta), self._each
        if not look.bases:
            return np.zeros(len(theta))
        sizes = np.array([group.size for group in self.groups])
        with np.errstate(all="ignore"):
            total, share = np.zeros(len(look.values.table[1])), self._share(look.kept) * float(slopes.sum())
            in_logs = -0.5 * slopes
            for own in look.shares:
                np.add.at(in_logs, each[look.kept], share * own)
            in_squares = np.zeros(len(each))
            in_squares[look.kept] = (in_logs / (look.squares * sizes * len(self.times)))[each[look.kept]]
            for number, (basis, inverse) in enumerate(zip(look.bases, look.inverses, strict=True)):
                in_gram = np.diag(in_squares)
                in_gram[np.ix_(look.kept, look.kept)] -= share * inverse
                weights = 2.0 * self.weights[number][:, :, None]
                pulled = [w * (part @ in_gram) for w, part in zip(weights, basis, strict=True)]
                total += self.observables.pull_modes(look.values, self.groups, self.times[number], pulled)
        return total

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
        return _Look(values, [], np.full(count, np.log(_WIDE)), np.ones(count), np.zeros(0, dtype=np.intp), [], [])

    def _make_look(self, theta: Array) -> _Look:
        values, each = self.observables.evaluate(theta), self._each
        rates = np.abs(self.observables.exponents(values, self.groups, signals=False))
        if not (rates < _FASTEST).all():
            return self._give_up(values)
        bases = [self.observables.mode_basis(values, self.groups, times, slopes=False)[0] for times in self.times]
        pairs = [zip(own, weights, strict=True) for own, weights in zip(bases, self.weights, strict=True)]
        grams = [sum((part.T * w) @ part for part, w in each) for each in pairs]
        diagonal = np.mean([np.diag(gram) for gram in grams], axis=0)
        squares = np.array([float(np.mean(diagonal[each == g])) for g in range(len(self.groups))])
        # What no measurement shows has no size of its own.
        kept, squares = np.flatnonzero(squares[each] != 0.0), np.where(squares == 0.0, 1.0, squares)
        logs, inverses, shares = np.log(_WIDE) - 0.5 * np.log(squares), [], []
        scale = 1.0 / np.sqrt(squares[each[kept]])
        for gram in grams:
            alike = gram[np.ix_(kept, kept)] * np.outer(scale, scale)
            if not np.isfinite(alike).all():
                return self._give_up(values)
            held = alike + _ALIKE * np.eye(len(kept))
            # Half the logarithm of the determinant, by all modes together, so that the evidence does not know of it.
            logs = logs - self._share(kept) * np.linalg.slogdet(held)[1]
            inverse = np.linalg.inv(held)
            inverses.append(inverse * np.outer(scale, scale))
            shares.append(np.sum(inverse * alike, axis=1))
        return _Look(values, bases, logs, squares, kept, inverses, shares)
