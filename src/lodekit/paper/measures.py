"""What the paper measures on a trained model, and what can be measured exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.paper.experiments import Experiment
from lodekit.paper.methods import Trained, train
from lodekit.prior.equations import equation_terms

__all__ = ["Outcome", "closed_form_errors", "count_eigenvalues", "difference_residual", "measure", "ode_error"]

Array = NDArray[np.float64]
_STEP = 1e-3
_POINTS = 1000
_THRESHOLD = 1e-6


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
    strict_error : float or None
        The median relative residual in closed form at the learned parameters; None without a closed form.
    absolute_error : float or None
        The mean absolute residual in closed form at the learned parameters; None without a closed form.
    eigenvalues : int
        How many of the prior covariance at a thousand points are above 1e-6.
    hyperparameters, parameters, intervals : dict
    seconds : float
    """

    train_rmse: float
    eval_rmse: float
    loss: float
    ode_error: list[float]
    strict_error: float | None
    absolute_error: float | None
    eigenvalues: int
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
    strict, absolute = closed_form_errors(experiment, trained)
    return Outcome(
        errors[0],
        errors[1],
        trained.loss,
        ode_error(experiment, trained.mean),
        strict,
        absolute,
        count_eigenvalues(trained.covariance(np.linspace(*experiment.evaluate, _POINTS))),
        trained.hyperparameters,
        trained.parameters,
        trained.intervals,
        trained.seconds,
    )


def ode_error(experiment: Experiment, mean: Callable[[Array], Array]) -> list[float]:
    """Return each equation's mean absolute error by forward differences of a `mean`, 1000 points of an `experiment`.

    As the paper describes it: at the true parameters, and the first difference passes a low-pass filter before it is
    differenced again (which one, the paper does not say; here it is a Butterworth filter).
    """
    return [float(value) for value in np.mean(np.abs(difference_residual(experiment, mean)), axis=0)]


def difference_residual(experiment: Experiment, mean: Callable[[Array], Array]) -> Array:
    """Return what forward differences of a `mean` leave of an `experiment`'s equations, shape (n, equations)."""
    equations = equation_terms(experiment.system)
    order = max(k for _, k in equations.derivatives)
    grid = np.linspace(*experiment.evaluate, _POINTS // (order + 1))
    shifted = np.concatenate([grid + k * _STEP for k in range(order + 1)])
    values = mean(shifted).reshape(order + 1, len(grid), -1)
    derivatives = [values[0]]
    if order >= 1:
        derivatives.append((values[1] - values[0]) / _STEP)
    if order >= 2:
        following = (values[2] - values[1]) / _STEP
        derivatives.append((_smooth(following) - _smooth(derivatives[1])) / _STEP)
    features = np.stack([derivatives[k][:, j] for j, k in equations.derivatives], axis=-1)[None]
    numbers = np.array([experiment.parameters[name] for name in experiment.system.operator.ring.parameters])
    return np.asarray(equations.residual(numbers, grid, features, relative=False)[0])


def _smooth(values: Array) -> Array:
    from scipy.signal import butter, filtfilt

    return np.asarray(filtfilt(*butter(3, 0.5), values, axis=0))


def closed_form_errors(experiment: Experiment, trained: Trained) -> tuple[float | None, float | None]:
    """Return the median relative and the mean absolute residual in closed form; None where there is no closed form.

    Parameters
    ----------
    experiment : Experiment
    trained : Trained
    """
    if trained.gp is None:
        return None, None
    everywhere = np.linspace(*experiment.evaluate, 200)
    relative = np.abs(trained.gp.residual(everywhere, relative=True))
    return float(np.median(relative)), float(np.mean(np.abs(trained.gp.residual(everywhere))))


def count_eigenvalues(covariance: Array, threshold: float = _THRESHOLD) -> int:
    """Return how many eigenvalues of a `covariance` matrix are above a `threshold`.

    A Cholesky factorization with pivots stops when the trace of what remains is far below the threshold: no
    eigenvalue has then moved by more than that trace, and only a small matrix is left to decompose.

    Examples
    --------
    >>> count_eigenvalues(np.diag([1.0, 1e-3, 1e-9, 0.0]))
    2
    """
    from scipy.linalg.lapack import dpstrf

    size = len(covariance)
    # The rounding errors of the factorization are the smallest remainder that can be asked for.
    floor = size * np.finfo(float).eps * float(np.max(np.diag(covariance)))
    if floor > 0.1 * threshold:
        raise LodekitError(
            f"expected eigenvalues of a size that lets {threshold:g} be seen, got up to {floor / 2e-16:.0e}"
        )
    tolerance = max(1e-3 * threshold / size, floor / size)
    factor, _, rank, _ = dpstrf(covariance, tol=tolerance, lower=1)
    columns = np.tril(factor[:, :rank])
    return int(np.sum(np.linalg.eigvalsh(columns.T @ columns) > threshold))
