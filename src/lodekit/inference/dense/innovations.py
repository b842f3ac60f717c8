"""Innovations: what each measurement adds to those before it, in units of what was to be expected."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.evidence import factorize
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["find_innovations"]

Array = NDArray[np.float64]
#: An error of the log evidence, for each measurement, below which innovations keep some digits.
_HARMLESS = 1e-4


def find_innovations(data: DenseData, hyper: Hyperparameters) -> list[Array] | None:
    """Return the innovations of each observable, in the order of its measurements; None where rounding hides them.

    A measurement minus its prediction from all that were made before, and from those of observables before it at the
    same time, divided by the standard deviation of that prediction. Where the model holds they are independent and
    standard normal, however flexible it is; measurements minus the posterior mean are neither.

    Parameters
    ----------
    data : DenseData
        Measurements with their prior, noise above zero.
    hyper : Hyperparameters
    """
    state = factorize(data, hyper)
    if state is None or not state.error < _HARMLESS * data.size:
        return None
    times = np.concatenate([data.times[index] for index in data.index])
    order = np.argsort(times, kind="stable")
    root = np.tril(state.cholesky)[order]
    # The factor that is there has another order: a QR factorization of its rows is one of the same matrix, reordered.
    _, upper = np.linalg.qr(root.T)
    found = np.empty(data.size)
    signs = np.sign(np.diag(upper))
    found[order] = signs * solve_triangular(upper, state.residual[order], trans="T", check_finite=False)
    return np.split(found, data.offsets[1:-1]) if np.isfinite(found).all() else None
