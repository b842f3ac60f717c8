"""The latent force model of the paper's appendix on the three-tank system, beside two LODE-GPs.

All hyperparameters are one, as in the paper. The latent force model (Alvarez, Luengo and Lawrence 2009) with
``D = B = 0`` integrates two white-box forces, ``f' = S u``, so its covariance is a double integral of theirs from time
zero on; the inputs are marginalised, and the original ones stand in for them where the ODE error is computed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.paper.experiments import Experiment, find_experiment
from lodekit.paper.measures import ode_error
from lodekit.paper.methods import need_gpytorch

__all__ = ["LatentForceModel", "compare_models", "integrated_covariance", "sensitivity"]

Array = NDArray[np.float64]
#: S in f' = S u: the first pipe fills the first two tanks, the second pipe the last two.
_SENSITIVITIES = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
#: Noise on exact data: enough for a Cholesky factorization, and far below what is seen.
_TINY = 1e-6


def integrated_covariance(first: Array, second: Array) -> Array:
    """Return ``int_0^t1 int_0^t2 exp(-(x - y)^2) dx dy`` in closed form, shape (n1, n2).

    Parameters
    ----------
    first, second : arrays, shapes (n1,) and (n2,)
        The upper ends t1 and t2.

    Examples
    --------
    >>> round(float(integrated_covariance(np.array([0.01]), np.array([0.02]))[0, 0] / 2e-4), 3)
    1.0
    """
    from scipy.special import erf

    def twice(x: Array) -> Array:
        # The second antiderivative of exp(-x^2).
        return np.asarray(0.5 * np.sqrt(np.pi) * x * erf(x) + 0.5 * np.exp(-(x**2)))

    t1, t2 = first[:, None], second[None, :]
    return twice(t1) + twice(t2) - twice(t1 - t2) - 0.5


class LatentForceModel:
    """Three tanks driven by two latent forces.

    Parameters
    ----------
    times : array, shape (n,)
    values : array, shape (n, 3)
    noise_std : float
    """

    def __init__(self, times: Array, values: Array, noise_std: float) -> None:
        self._times = times
        self._coupling = _SENSITIVITIES @ _SENSITIVITIES.T
        K = np.kron(self._coupling, integrated_covariance(times, times)) + noise_std**2 * np.eye(values.size)
        self._alpha = np.linalg.solve(K, values.T.ravel())

    def mean(self, times: Array) -> Array:
        """Return the posterior mean of the tanks, shape (n, 3)."""
        K = np.kron(self._coupling, integrated_covariance(times, self._times))
        return np.asarray((K @ self._alpha).reshape(3, -1).T)


def compare_models(seed: int, *, noisy: bool = True) -> dict[str, list[float]]:
    """Return each equation's ODE error for three models on the three-tank data of a `seed`, `noisy` or exact."""
    need_gpytorch()
    experiment = find_experiment("three_tank")
    table = experiment.data(seed, noisy=noisy)
    noise = experiment.noise_std if noisy else _TINY
    force = LatentForceModel(experiment.times, table[:, :3], noise)
    marginalized = _lodegp(experiment, table[:, :3], noise)
    full = _lodegp(experiment, table, noise)
    return {
        "lfm": ode_error(experiment, partial(_driven, experiment, force)),
        "marginalized_lodegp": ode_error(
            experiment, lambda times: _with_inputs(experiment, times, marginalized.predict(times)[:, :3])
        ),
        "full_lodegp": ode_error(experiment, full.predict),
    }


def sensitivity() -> tuple[Array, Array]:
    """Return the smallest and largest ODE errors of the latent force model on noise-free data, as its noise varies."""
    experiment = find_experiment("three_tank")
    table = experiment.data(0, noisy=False)[:, :3]
    found = []
    for noise in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        force = LatentForceModel(experiment.times, table, noise)
        found.append(ode_error(experiment, partial(_driven, experiment, force)))
    return np.min(found, axis=0), np.max(found, axis=0)


def _driven(experiment: Experiment, force: LatentForceModel, times: Array) -> Array:
    return _with_inputs(experiment, times, force.mean(times))


def _with_inputs(experiment: Experiment, times: Array, tanks: Array) -> Array:
    return np.concatenate([tanks, experiment.truth(times)[:, 3:]], axis=1)


def _lodegp(experiment: Experiment, table: Array, noise_std: float) -> Any:
    """Return a LODE-GP with all lengthscales and deviations at one; it sees the first channels."""
    import gpytorch
    import torch

    from lodekit.integrations.gpytorch import LODEExactGP, from_gpytorch

    count = table.shape[1]
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(
        num_tasks=count, has_task_noise=False, noise_constraint=gpytorch.constraints.GreaterThan(1e-30)
    ).double()
    likelihood.noise = torch.tensor(noise_std**2, dtype=torch.float64)
    model = LODEExactGP(
        torch.as_tensor(experiment.times),
        torch.as_tensor(table),
        likelihood,
        experiment.system,
        observables=experiment.system.channels[:count],
    ).double()
    for name in ("lengthscales", "deviations", "mode_deviations"):
        model.covar_module.set_value(name, 1.0)
    return from_gpytorch(model)
