"""The log evidence of modes beside known functions: a Bayesian linear regression with a handful of columns.

With D the modes at the measurements, r the data without all that is known, both in units of the noise, and amplitudes
that are standard normal, ``A = I + D^T D`` and ``-2 log evidence = |r - D mu|^2 + |mu|^2 + log|A| + constants``. A QR
factorization of D above the identity, beside r above zero, gives all of it without squaring the condition, and takes
time in proportion to the number of measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from lodekit.inference.engine import Evidence
from lodekit.inference.modal.data import Grid, ModalData
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["Regression", "evaluate", "solve"]

Array = NDArray[np.float64]
#: So many rows are factorized at once.
_ROWS = 16384
#: The relative error of an entry of the design, of the known functions and of the factorization, in practice.
_ROUNDING = 2e-15


@dataclass(frozen=True)
class Regression:
    """The regression solved at some hyperparameters.

    Parameters
    ----------
    coefficients : Coefficients
        Of the measured observables.
    grid : Grid
        The nodes that the modes were computed at.
    reached : list of int arrays
        For each observable, the measurements that modes reach.
    design : array, shape (a, r)
        The modes times their prior deviations, in units of the noise, at these measurements.
    rest : array, shape (m,)
        What the fit leaves of the data, in units of the noise.
    deviations : array, shape (m,)
        Of the noise, scaled.
    mean : array, shape (r,)
        Of the amplitudes.
    root : array, shape (r, r)
        Upper triangular R with ``R^T R = A``.
    value : float
        The log evidence in the user's units.
    error : float
        About how large an error rounding makes in it.
    """

    coefficients: Coefficients
    grid: Grid
    reached: list[NDArray[np.intp]]
    design: Array
    rest: Array
    deviations: Array
    mean: Array
    root: Array
    value: float
    error: float

    @property
    def inverse_root(self) -> Array:
        """``R^-1``: the covariance of the amplitudes is its product with its transposed."""
        return np.asarray(solve_triangular(self.root, np.eye(len(self.root)), check_finite=False))


def solve(data: ModalData, hyper: Hyperparameters) -> Regression | None:
    """Return the regression solved; None where something is not finite.

    Parameters
    ----------
    data : ModalData
    hyper : Hyperparameters
    """
    with np.errstate(all="ignore"):
        return _solve(data, hyper)


def _solve(data: ModalData, hyper: Hyperparameters) -> Regression | None:
    observables, groups = data.observables, data.prior.groups
    values = observables.evaluate(hyper.theta)
    if not all(np.isfinite(part).all() for part in (*values.factors, *values.columns)):
        return None
    grid = data.grid(values)
    basis, _ = observables.mode_basis(values, groups, grid.nodes, slopes=False)
    means, _ = observables.means(values, data.times, slopes=False)
    deviations = np.sqrt(data.noise.variance(hyper.noise))
    roots = data.prior.mode_roots(hyper.mode_deviations)
    known = data.pick(means)
    parts = data.reached(grid.count)
    reached = np.concatenate(parts)
    modes = [grid.spread(part)[index[: len(own)]] for part, index, own in zip(basis, data.index, parts, strict=True)]
    design = np.concatenate(modes) * (roots / deviations[reached, None])
    target = (data.values - known) / deviations
    if not np.isfinite(design).all() or not np.isfinite(target).all():
        return None
    R = _triangle(design, target[reached])
    size = len(roots)
    root, image = R[:size, :size], R[:size, size]
    diagonal = np.abs(np.diag(root))
    if not (diagonal > 0).all():
        return None
    mean = np.asarray(solve_triangular(root, image, check_finite=False)) if size else np.zeros(0)
    fitted, rest = design @ mean, target.copy()
    rest[reached] -= fitted
    deviance = float(rest @ rest) + float(mean @ mean) + 2.0 * float(np.log(diagonal).sum())
    constants = 2.0 * float(np.log(deviations).sum()) + len(target) * float(np.log(2.0 * np.pi))
    value = -0.5 * (deviance + constants) + data.log_jacobian
    if not np.isfinite(value):
        return None
    # What relative errors of modes and known functions do to half the deviance.
    through = float(np.linalg.norm(rest * (np.abs(known) / deviations + np.abs(target))))
    through += float(np.linalg.norm(rest[reached] * fitted))
    error = 2.0 * _ROUNDING * (through + float(np.linalg.norm(mean)) ** 2 + size + np.sqrt(len(target)))
    return Regression(values, grid, parts, design, rest, deviations, mean, root, value, error)


def _triangle(design: Array, target: Array) -> Array:
    """Return the triangular factor of the design above the identity, the target above zero beside it."""
    size = design.shape[1]
    R = np.eye(size, size + 1)
    for start in range(0, len(target), _ROWS):
        rows = slice(start, start + _ROWS)
        R = np.asarray(np.linalg.qr(np.concatenate([R, np.column_stack([design[rows], target[rows]])]), mode="r"))
    return R


def evaluate(data: ModalData, hyper: Hyperparameters) -> Evidence:
    """Return the log evidence and its gradient; minus infinity where something is not finite.

    Parameters
    ----------
    data : ModalData
    hyper : Hyperparameters
    """
    with np.errstate(all="ignore"):
        found = _solve(data, hyper)
        if found is None:
            return Evidence.impossible(hyper)
        gradient = _gradient(data, hyper, found)
    if not all(np.isfinite(part).all() for part in gradient.parts):
        return Evidence.impossible(hyper)
    return Evidence(found.value, gradient, found.error)


def _gradient(data: ModalData, hyper: Hyperparameters, found: Regression) -> Hyperparameters:
    """Return the derivatives of the log evidence, in closed form.

    Minus half the deviance has the derivative ``r mu^T - D A^-1`` in the design, and the rest in the known functions.
    """
    prior, observables, design, rest = data.prior, data.observables, found.design, found.rest
    reached, inverse = np.concatenate(found.reached), found.inverse_root
    covered = design @ (inverse @ inverse.T)
    slopes = rest[reached, None] * found.mean - covered
    mode_deviations = prior.sum_groups(np.sum(slopes * design, axis=0))
    diagonal = rest**2 - 1.0
    diagonal[reached] += np.sum(covered * design, axis=1)
    noise = data.noise.pull(0.5 * diagonal / found.deviations**2, hyper.noise)
    theta = np.zeros(len(hyper.theta))
    if len(theta):
        in_modes = slopes * (prior.mode_roots(hyper.mode_deviations) / found.deviations[reached, None])
        parts = np.split(in_modes, np.cumsum([len(own) for own in found.reached])[:-1])
        gathered = []
        for part, index in zip(parts, data.index, strict=True):
            placed = np.zeros((found.grid.count, part.shape[1]))
            np.add.at(placed, index[: len(part)], part)
            gathered.append(found.grid.gather(placed))
        theta += observables.pull_modes(found.coefficients, prior.groups, found.grid.nodes, gathered)
        theta += observables.pull_means(found.coefficients, data.times, data.place(rest / found.deviations))
    none = np.zeros(0)
    return Hyperparameters(theta, none, none, mode_deviations, noise)
