"""Innovations: what each measurement adds to those before it, in units of what was to be expected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.evidence import factorize, prepare
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["DenseTurns", "take_in_turn"]

Array = NDArray[np.float64]
#: An error of the log evidence, for each measurement, below which innovations keep some digits.
_HARMLESS = 1e-4


@dataclass(frozen=True, eq=False)
class DenseTurns:
    """Measurements one after the other: each is its mean, plus what those before and itself bring.

    Parameters
    ----------
    times : array, shape (n,)
        Of the measurements, in their turn.
    observables : array of int, shape (n,)
        The number of the observable of each.
    root : array, shape (n, n)
        Lower triangular; a row times the innovations is a measurement without its mean, in the user's units.
    innovations : array, shape (n,)
        Independent and standard normal where the model holds.
    """

    times: Array
    observables: NDArray[np.intp]
    root: Array
    innovations: Array

    @property
    def deviations(self) -> Array:
        """The deviation of each from its prediction from those before, in the user's units, shape (n,)."""
        return np.diag(self.root)

    def ahead(self, place: int, known: int) -> tuple[float, float]:
        """Return a measurement minus its prediction from the first `known` ones, and the deviation of that.

        Parameters
        ----------
        place : int
            The number of the measurement.
        known : int
            How many are known.
        """
        later = self.root[place, known : place + 1]
        return float(later @ self.innovations[known : place + 1]), float(np.sqrt(later @ later))

    def predict(self, places: NDArray[np.intp], known: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return some measurements minus predictions of them from the first ones, and the deviations of that.

        Both in the user's units, shape (k,).

        Parameters
        ----------
        places, known : arrays of int, shape (k,)
            As in `ahead`.
        """
        both = zip(places.tolist(), known.tolist(), strict=True)
        found = np.array([self.ahead(place, count) for place, count in both]).reshape(len(places), 2)
        return found[:, 0], found[:, 1]


def take_in_turn(data: DenseData, hyper: Hyperparameters, first: frozenset[int] = frozenset()) -> DenseTurns | None:
    """Return measurements in the order of time; None where rounding hides what each one adds.

    Parameters
    ----------
    data : DenseData
        Measurements with their prior, noise above zero.
    hyper : Hyperparameters
    first : set of int
        Numbers of observables whose measurements all come before the others.
    """
    numbers = np.repeat(np.arange(len(data.index)), [len(index) for index in data.index])
    times = np.concatenate([data.times[index] for index in data.index])
    order = np.lexsort((numbers, times, ~np.isin(numbers, list(first))))
    pair = _modal_root(data, hyper) if not data.latents and data.prior.channels is None else _dense_root(data, hyper)
    if pair is None:
        return None
    # Any root of the covariance will do: a QR factorization of its rows is a triangular one, in the order of time.
    upper = np.asarray(np.linalg.qr(pair[0][order].T, mode="r"))
    root = upper.T * np.sign(np.diag(upper))
    found = solve_triangular(root, pair[1][order], lower=True, check_finite=False)
    if not np.isfinite(found).all():
        return None
    scales = np.asarray(data.observables.units.scales)[numbers[order]]
    return DenseTurns(times[order], numbers[order], scales[:, None] * root, found)


def _modal_root(data: DenseData, hyper: Hyperparameters) -> tuple[Array, Array] | None:
    """Return a root of the covariance where only modes and noise are random, and the measurements without their means.

    It is made of modes and deviations themselves: squares of modes that are far larger than the noise would hide it.
    """
    with np.errstate(all="ignore"):
        prepared = prepare(data, hyper, slopes=False)
    if prepared is None:
        return None
    modes = data.pick(prepared.basis)
    whole = np.hstack([modes * data.prior.mode_roots(hyper.mode_deviations), np.diag(np.sqrt(prepared.noise))])
    return (whole, prepared.residual) if np.isfinite(whole).all() else None


def _dense_root(data: DenseData, hyper: Hyperparameters) -> tuple[Array, Array] | None:
    """Return a root of the covariance, and measurements without their means; None where rounding hides the noise."""
    state = factorize(data, hyper)
    if state is None or not state.error < _HARMLESS * data.size:
        return None
    return np.tril(state.cholesky), state.residual
