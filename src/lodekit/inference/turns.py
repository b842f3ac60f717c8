"""Measurements in their turn, as engines take them: innovations, and predictions from some rows or some time before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Lead", "Turns", "errors_ahead"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


class Turns(Protocol):
    """Measurements one after the other, in the order of time; at one time, in the order of observables."""

    @property
    def times(self) -> Array:
        """When they were made, in the user's units, shape (m,)."""

    @property
    def observables(self) -> Numbers:
        """The number of the observable of each, shape (m,)."""

    @property
    def innovations(self) -> Array:
        """Each minus its prediction from those before, over the deviation of that: standard normal, shape (m,)."""

    @property
    def deviations(self) -> Array:
        """The deviation of each from that prediction, in the user's units, shape (m,)."""

    def predict(self, places: Numbers, known: Numbers) -> tuple[Array, Array]:
        """Return some measurements minus predictions of them from the first ones, and the deviations of that.

        Both in the user's units, shape (k,).

        Parameters
        ----------
        places : array of int, shape (k,)
            Which, by their turn.
        known : array of int, shape (k,)
            How many are known for each.
        """


@dataclass(frozen=True)
class Lead:
    """How far ahead predictions are.

    Parameters
    ----------
    steps : int
        So many rows of the observable itself.
    time : float, optional
        So much time in place of that, in the user's units.
    """

    steps: int = 1
    time: float | None = None

    def known(self, times: Array, own: Array) -> Numbers:
        """Return how many measurements are known for each row of an observable.

        Parameters
        ----------
        times : array, shape (m,)
            Of all measurements, ascending.
        own : array, shape (n,)
            Of those of the observable.

        Examples
        --------
        >>> t = np.array([0.0, 0.0, 1.0, 2.0, 2.0])
        >>> Lead(1).known(t, t[[0, 3]]).tolist(), Lead(time=1.0).known(t, t[[0, 3]]).tolist()
        ([0, 2], [0, 3])
        """
        if self.time is not None:
            # A difference of times has the errors of both.
            near = 4.0 * np.spacing(np.abs(times).max(initial=0.0))
            return np.asarray(np.searchsorted(times, own - self.time + near, side="right"), dtype=np.intp)
        found = np.zeros(len(own), dtype=np.intp)
        found[self.steps :] = np.searchsorted(times, own[: max(len(own) - self.steps, 0)], side="right")
        return found


def errors_ahead(turns: Turns, observable: int, lead: Lead, first: int = 0) -> tuple[Array, Array]:
    """Return measurements of an observable minus predictions some rows or time ahead, and the deviations of these.

    Each is predicted from all that was measured up to the time of the row so many rows before, other observables at
    that time included, or up to so long before; the first rows from the prior.

    Parameters
    ----------
    turns : Turns
    observable : int
        Its number.
    lead : Lead
    first : int
        How many measurements come before all others, and are known in any case.
    """
    own = np.flatnonzero(turns.observables == observable)
    known = first + lead.known(turns.times[first:], turns.times[own])
    return turns.predict(own, np.minimum(known, own))
