"""Measurements that contradict each other, or that a fit has seen already, are refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.data.observations import Series
from lodekit.errors import DataError

__all__ = ["check_exact_values", "check_later", "check_met", "check_missed"]

#: Curves that miss an exact value by so much, in units of its observable, do not meet it.
_MISSED = 1e-3


def check_later(old: Measurements, new: Measurements) -> None:
    """Raise where new measurements of an observable lie among old ones: another record, or the same data once more.

    Other observables may be measured at the same times, and times without measurements may be filled in.

    Parameters
    ----------
    old, new : Measurements
        Where only sums are kept, averages over small parts of their window tell when something was measured.

    Examples
    --------
    >>> from lodekit.data.observations import Observations
    >>> old = Measurements.of(Observations().add([0.0, 1.0, 2.0], "x", [1.0, 2.0, 3.0]))
    >>> check_later(old, Measurements.of(Observations().add([2.0, 3.0], "x", [2.9, 4.0])))
    """
    known = {item.observable: item for item in old.shown}
    for item in new.shown:
        before = known.get(item.observable)
        if before is None or not len(item.times):
            continue
        first, last = float(item.times[0]), float(item.times[-1])
        among = (before.times > first) & (before.times < last)
        again = set(zip(before.times.tolist(), before.values.tolist(), strict=True)) & set(
            zip(item.times.tolist(), item.values.tolist(), strict=True)
        )
        if among.any() or again:
            shown = f"t = {min(again)[0]:g}, with the same value" if again else f"t = {before.times[among][0]:g}"
            raise DataError(
                f"expected new measurements: {item.observable} was measured before between t = {first:g} and {last:g}, "
                f"for example at {shown}. Leave out what the fit has seen already; where these are values of the same "
                "record in between, call fit with all measurements; another record, whose time starts anew, is added "
                "under a name of its own: record=NAME"
            )


def check_exact_values(series: Sequence[Series]) -> None:
    """Raise where exact values contradict each other."""
    for item in series:
        exact = item.take(item.exact)
        seen: dict[float, float] = {}
        for time, value in zip(exact.times.tolist(), exact.values.tolist(), strict=True):
            if seen.setdefault(time, value) != value:
                raise DataError(
                    f"{item.observable} has two different exact values at t = {time}: {seen[time]} and {value}; give "
                    "them a noise_std above zero"
                )


def check_missed(times: NDArray[np.float64], missed: NDArray[np.float64]) -> None:
    """Raise where curves miss exact values, which then contradict each other or the equations.

    Parameters
    ----------
    times : array, shape (m,)
        Of the exact values, in the user's units.
    missed : array, shape (m,)
        By how much the curves miss them, in units of their observables.

    Examples
    --------
    >>> check_missed(np.array([0.0, 1.0]), np.array([1e-9, 1e-8]))
    """
    missed = np.where(np.isfinite(missed), np.abs(missed), np.inf)
    if len(missed) and missed.max() >= _MISSED:
        raise DataError(
            f"the exact values contradict each other or the equations, for example at t = "
            f"{times[int(np.argmax(missed))]:g}; give them a noise_std above zero"
        )


def check_met(series: Sequence[Series], scales: NDArray[np.float64], found: Sequence[NDArray[np.float64]]) -> None:
    """Raise where curves do not meet exact values, which then contradict each other or the equations.

    Parameters
    ----------
    series : sequence of Series
        The measurements of each observable.
    scales : array, shape (o,)
        Their units.
    found : sequence of arrays
        The curve of each observable at its measurements, in these units.
    """
    for item, scale, curve in zip(series, scales, found, strict=True):
        exact = item.exact
        check_missed(item.times[exact], curve[exact] - item.values[exact] / scale)
