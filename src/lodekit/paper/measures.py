"""What the paper measures on a trained model, and how far its curves are from satisfying the equations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.certificate.measure import measure_curve
from lodekit.certificate.written import WrittenEquations
from lodekit.errors import LodekitError
from lodekit.paper.experiments import Experiment
from lodekit.paper.methods import Trained, train
from lodekit.prior.equations import equation_terms

__all__ = ["Outcome", "count_eigenvalues", "difference_residual", "measure", "measured_error", "ode_error"]

Array = NDArray[np.float64]
#: As in the paper: the step of differences, at how many times curves are evaluated, and which eigenvalues count.
_STEP, _POINTS, _THRESHOLD = 1e-3, 1000, 1e-6
#: At how many times of the evaluation interval the returned curve is put into the equations.
_MEASURED = 41


@dataclass(frozen=True)
class Outcome:
    """What one training run gave.

    Parameters
    ----------
    train_rmse, eval_rmse : float
        Against the noise-free truth at a thousand points of each interval.
    loss : float
        Negative log evidence for each number of the data.
    ode_error : list of float
        For each equation, at the true parameters, the mean absolute error by finite differences, as in the paper.
    measured_error : float
        The largest relative residual of the returned mean, differentiated by interpolation, at the learned parameters.
    eigenvalues : int or None
        How many of the prior covariance at a thousand points are above 1e-6; None where there is no such matrix.
    hyperparameters, parameters, intervals : dict
    seconds : float
    """

    train_rmse: float
    eval_rmse: float
    loss: float
    ode_error: list[float]
    measured_error: float
    eigenvalues: int | None
    hyperparameters: dict[str, float]
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    seconds: float

    def plain(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def measure(experiment: Experiment, method: str, seed: int, *, noisy: bool = True) -> Outcome:
    """Return the outcome of one training run.

    Parameters
    ----------
    experiment : Experiment
        System, data and test points.
    method : str
        How it is trained, one of `METHODS`.
    seed : int
        Of the data set.
    noisy : bool
        Whether the data have noise.
    """
    trained = train(experiment, method, seed, noisy=noisy)
    errors = []
    for interval in (experiment.train, experiment.evaluate):
        times = np.linspace(*interval, _POINTS)
        errors.append(float(np.sqrt(np.mean((trained.mean(times) - experiment.truth(times)) ** 2))))
    prior = trained.covariance
    return Outcome(
        errors[0],
        errors[1],
        trained.loss,
        ode_error(experiment, trained.mean),
        measured_error(experiment, trained),
        None if prior is None else _count(prior(np.linspace(*experiment.evaluate, _POINTS))),
        trained.hyperparameters,
        trained.parameters,
        trained.intervals,
        trained.seconds,
    )


def _count(covariance: Array) -> int | None:
    """Return how many eigenvalues are above the threshold; None where rounding hides it, as without noise it may."""
    try:
        return count_eigenvalues(covariance)
    except LodekitError:
        return None


def ode_error(experiment: Experiment, mean: Callable[[Array], Array]) -> list[float]:
    """Return each equation's mean absolute error by forward differences of a `mean`, 1000 points of an `experiment`.

    As in the paper: at the true parameters. What the paper does not say is at which of the points t, t + h, t + 2h
    of a second difference the functions themselves are taken; at the one in the middle, where the difference is a
    central one, the exact solution of the bipendulum has the published error, and nowhere else. The paper passes first
    differences through a low-pass filter before they are differenced again. No filter of those that we have tried
    leaves the exact solution its published error, so there is none here.
    """
    return [float(value) for value in np.mean(np.abs(difference_residual(experiment, mean)), axis=0)]


def difference_residual(experiment: Experiment, mean: Callable[[Array], Array]) -> Array:
    """Return what forward differences of a `mean` leave of an `experiment`'s equations, shape (n, equations)."""
    equations = equation_terms(experiment.system)
    order = max(k for _, k in equations.derivatives)
    # So many times in all, those that differences are taken to included.
    grid = np.linspace(*experiment.evaluate, _POINTS // (order + 1))
    shifted = np.concatenate([grid + k * _STEP for k in range(order + 1)])
    values = mean(shifted).reshape(order + 1, len(grid), -1)
    place = max(0, order - 1)
    derivatives = [values[place]]
    if order >= 1:
        derivatives.append((values[place + 1] - values[place]) / _STEP)
    if order >= 2:
        derivatives.append((values[2] - 2 * values[1] + values[0]) / _STEP**2)
    features = np.stack([derivatives[k][:, j] for j, k in equations.derivatives], axis=-1)[None]
    return np.asarray(equations.residual(_truth(experiment), grid + place * _STEP, features, relative=False)[0])


def _truth(experiment: Experiment) -> Array:
    return np.array([experiment.parameters[name] for name in experiment.system.operator.ring.parameters])


def measured_error(experiment: Experiment, trained: Trained) -> float:
    """Return the largest residual of a returned mean, for each equation relative to its largest terms.

    The measure of the certificate: the mean is taken as it is given to users, differentiated by polynomials and put
    into the equations as they are written, at the learned parameters where there are some. Nothing is known of where
    the mean came from, so the same measure does for any model.

    Parameters
    ----------
    experiment : Experiment
    trained : Trained
    """
    system = experiment.system
    values = {name: trained.parameters.get(name, experiment.parameters[name]) for name in system.parameters}
    written = WrittenEquations(system.written, system.channels, values)
    times = np.linspace(*experiment.evaluate, _MEASURED)
    span = experiment.train[1] - experiment.train[0]
    return measure_curve(written, trained.mean, times, span, np.zeros(0)).residual


def count_eigenvalues(covariance: Array, threshold: float = _THRESHOLD) -> int:
    """Return how many eigenvalues of a `covariance` matrix are above a `threshold`.

    A Cholesky factorization with pivots stops when the trace of what remains is far below the threshold: no
    eigenvalue has then moved by more than that trace, and only a small matrix is left to decompose.

    Examples
    --------
    >>> count_eigenvalues(np.diag([1.0, 1e-3, 1e-9, 0.0]))
    2
    """
    size = len(covariance)
    # The rounding errors of the factorization are the smallest remainder that can be asked for.
    largest = size * float(np.max(np.diag(covariance)))
    floor = float(np.finfo(float).eps) * largest
    if floor > 0.1 * threshold:
        raise LodekitError(f"expected eigenvalues of a size that lets {threshold:g} be seen, got up to {largest:.0e}")
    least = max(1e-3 * threshold, floor)
    left, columns = np.diag(covariance).copy(), np.zeros((0, size))
    # Only the columns of the pivots are touched: LAPACK's routine updates the whole of a large matrix of small rank.
    while len(columns) < size and np.sum(left) > least:
        pivot = int(np.argmax(left))
        column = (covariance[pivot] - columns[:, pivot] @ columns) / np.sqrt(left[pivot])
        columns = np.vstack([columns, column])
        left = np.maximum(left - column**2, 0.0)
        left[pivot] = 0.0
    return int(np.sum(np.linalg.eigvalsh(columns @ columns.T) > threshold))
