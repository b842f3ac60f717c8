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
#: About so many rows tell how large rounding errors are.
_SOME = 8192


@dataclass(frozen=True)
class Regression:
    """The regression solved at some hyperparameters.

    Parameters
    ----------
    coefficients : Coefficients
        Of the measured observables.
    grid : Grid
        The nodes that the modes were computed at.
    reached : list of slice
        For each observable, the measurements that modes reach.
    design : array, shape (a, r)
        The modes times their prior deviations, in units of the noise, at these measurements.
    rest : array, shape (m,)
        What the fit leaves of the data, in units of the noise.
    deviations : list of arrays
        Of the noise of each observable, scaled: shape (1,) where it is that of all its measurements.
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
    reached: list[slice]
    design: Array
    rest: Array
    deviations: list[Array]
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
    deviations = [np.sqrt(noise.variance(hyper.noise)) for noise in data.noises]
    known, parts = data.pick(means), data.reached(grid.count)
    design = _design(data, grid, parts, basis, deviations) * data.prior.mode_roots(hyper.mode_deviations)
    rest = np.empty(len(data.values))
    for rows, part, deviation in zip(data.places, known, deviations, strict=True):
        np.subtract(data.values[rows], part, out=rest[rows])
        rest[rows] /= deviation
    target = np.concatenate([rest[part] for part in parts])
    if not np.isfinite(design).all() or not np.isfinite(target).all():
        return None
    R, size = _triangle(design, target), design.shape[1]
    root, image = R[:size, :size], R[:size, size]
    diagonal = np.abs(np.diag(root))
    if not (diagonal > 0).all():
        return None
    mean = np.asarray(solve_triangular(root, image, check_finite=False)) if size else np.zeros(0)
    fitted = design @ mean
    through = float(np.linalg.norm((target - fitted) * fitted))
    for place, own in zip(parts, np.split(fitted, _ends(parts)), strict=True):
        rest[place] -= own
    deviance = float(rest @ rest) + float(mean @ mean) + 2.0 * float(np.log(diagonal).sum())
    # One deviation may be that of all measurements of an observable; there may be no measurement.
    measured = [(rows.stop - rows.start, part) for rows, part in zip(data.places, deviations, strict=True) if len(part)]
    logs = [count * float(np.log(part).mean()) for count, part in measured]
    value = -0.5 * (deviance + 2.0 * sum(logs) + len(rest) * float(np.log(2.0 * np.pi))) + data.log_jacobian
    if not np.isfinite(value):
        return None
    # What relative errors of modes and known functions do to half the deviance.
    through += _carried(data, known, rest, deviations)
    error = 2.0 * _ROUNDING * (through + float(np.linalg.norm(mean)) ** 2 + size + np.sqrt(len(rest)))
    return Regression(values, grid, parts, design, rest, deviations, mean, root, value, error)


def _ends(parts: list[slice]) -> NDArray[np.intp]:
    """Return where one part ends and the next one begins, in all of them together."""
    return np.cumsum([part.stop - part.start for part in parts])[:-1]


def _design(data: ModalData, grid: Grid, parts: list[slice], basis: list[Array], deviations: list[Array]) -> Array:
    """Return the modes at the measurements that they reach, in units of the noise, shape (a, r)."""
    found = []
    for own, index, full, part, deviation in zip(basis, data.index, data.is_full, parts, deviations, strict=True):
        count, modes = part.stop - part.start, grid.spread(own)
        found.append((modes if full else modes[index[:count]]) / deviation[:count, None])
    return np.concatenate(found)


def _carried(data: ModalData, known: list[Array], rest: Array, deviations: list[Array]) -> float:
    """Return what relative errors of known functions and data do to half the deviance, seen on some of the rows."""
    total = 0.0
    for rows, part, deviation in zip(data.places, known, deviations, strict=True):
        step = (rows.stop - rows.start) // _SOME + 1
        values, own, unit = data.values[rows][::step], part[::step], deviation[::step]
        sizes = (np.abs(own) + np.abs(values - own)) / unit
        total += step * float(np.sum((rest[rows][::step] * sizes) ** 2))
    return float(np.sqrt(total))


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
    prior, observables, design, rest = data.prior, data.observables, found.design, found.rest.copy()
    (turned, inverse), ends = _orthogonal(design, found.inverse_root), _ends(found.reached)
    covered = turned @ inverse.T
    left = np.concatenate([rest[part] for part in found.reached])
    # Amplitudes of modes that look nearly alike are large and cancel; what rounding leaves of them is no rest.
    left -= turned @ (turned.T @ left - inverse.T @ found.mean)
    for place, own_rest in zip(found.reached, np.split(left, ends), strict=True):
        rest[place] = own_rest
    slopes = left[:, None] * found.mean - covered
    mode_deviations = prior.sum_groups(np.sum(slopes * design, axis=0))
    noise = np.zeros(len(hyper.noise))
    shares = np.split(np.sum(covered * design, axis=1), ends)
    for rows, part, share, own, deviation in zip(
        data.places, found.reached, shares, data.noises, found.deviations, strict=True
    ):
        noise += own.pull(_in_variances(rest[rows], share, part.stop - part.start, deviation), hyper.noise)
    theta = np.zeros(len(hyper.theta))
    if len(theta):
        gathered = _gather(data, found, np.split(slopes * prior.mode_roots(hyper.mode_deviations), ends))
        theta += observables.pull_modes(found.coefficients, prior.groups, found.grid.nodes, gathered)
        in_means = [data.place(o, rest[r] / found.deviations[o]) for o, r in enumerate(data.places)]
        theta += observables.pull_means(found.coefficients, data.times, in_means)
    none = np.zeros(0)
    return Hyperparameters(theta, none, none, mode_deviations, noise)


def _orthogonal(design: Array, inverse: Array) -> tuple[Array, Array]:
    """Return ``D R^-1``, shape (a, r), and ``R^-1``, with columns made orthogonal a second time.

    Modes that look nearly alike cost digits in them, and would cost as many once more in products.

    Parameters
    ----------
    design : array, shape (a, r)
    inverse : array, shape (r, r)
        ``R^-1``, as it was found.
    """
    turned, again = design @ inverse, inverse
    for start in range(0, len(turned), _ROWS):
        again = np.asarray(np.linalg.qr(np.concatenate([again, turned[start : start + _ROWS]]), mode="r"))
    if not len(turned) or not np.isfinite(again).all() or not np.diag(again).all():
        return turned, inverse
    closer = np.asarray(solve_triangular(again, np.eye(len(again)), check_finite=False))
    return turned @ closer, inverse @ closer


def _in_variances(rest: Array, share: Array, count: int, deviation: Array) -> Array:
    """Return derivatives in the variances of the noise of an observable, shape (m,), or (1,) where they are one."""
    if len(deviation) == 1:
        total = float(rest @ rest) - len(rest) + float(share.sum())
        return np.asarray(0.5 * total / deviation**2)
    diagonal = rest**2 - 1.0
    diagonal[:count] += share
    return np.asarray(0.5 * diagonal / deviation**2)


def _gather(data: ModalData, found: Regression, slopes: list[Array]) -> list[Array]:
    """Return derivatives in the modes of each observable at the nodes, from those in the rows of the design."""
    gathered = []
    for part, index, full, deviation in zip(slopes, data.index, data.is_full, found.deviations, strict=True):
        own = part / deviation[: len(part), None]
        if not full:
            placed = np.zeros((found.grid.count, part.shape[1]))
            np.add.at(placed, index[: len(part)], own)
            own = placed
        gathered.append(found.grid.gather(own))
    return gathered
