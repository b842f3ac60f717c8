"""Model comparison: log evidence of the true system and of wrong ones, and the latent force model of the appendix.

The paper proposes a search over systems as future work; this is its first step: a few systems that a user might
consider are fitted to the data, and compared by their log evidence.

The latent force model (Alvarez, Luengo and Lawrence 2009) is compared with two LODE-GPs on the three-tank system, with
all hyperparameters equal to one, as in the paper. With ``D = B = 0`` it integrates two forces, ``f' = S u``, so its
covariance is a double integral of theirs from time zero; the inputs are marginalised, and the original ones are used
for the ODE error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lodekit.model import LODEGP
from lodekit.paper.experiments import PaperExperiment, find_experiment, load_report_texts
from lodekit.paper.methods import require_gpytorch
from lodekit.paper.metrics import ode_error
from lodekit.support.arguments import Array
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

#: The name of the system behind the data.
TRUE_SYSTEM = "the system itself"
#: Prefix of the names of systems that lack an equation: these are not wrong, but less informative.
FEWER_EQUATIONS = "no equation"


def alternative_systems(experiment: PaperExperiment) -> dict[str, System]:
    """Return systems of the same channels that contradict the data, or that have fewer equations, by name."""
    found = {}
    for name, text in load_report_texts()["alternatives"][experiment.name].items():
        letters = [letter for letter in experiment.system.parameters if f"-{letter}*" in text]
        parameters = {letter: Parameter(positive=True) for letter in letters}
        found[name] = System(text, parameters=parameters, channels=experiment.system.channels)
    return found


def compare_systems(experiment: PaperExperiment, seed: int) -> dict[str, float]:
    """Return the log evidence of each system on the noisy data of an `experiment` with a `seed`, by name."""
    table, systems = experiment.data(seed), {TRUE_SYSTEM: experiment.system, **alternative_systems(experiment)}
    return {
        name: float(LODEGP(system, noise="channel", random_state=seed).fit(experiment.times, table).log_evidence_)
        for name, system in systems.items()
    }


#: S in f' = S u: the first pipe fills the first two tanks, the second pipe the last two.
_SENSITIVITY_MATRIX = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def integrated_covariance(first: Array, second: Array) -> Array:
    """Return ``int_0^t1 int_0^t2 exp(-(x - y)^2) dx dy`` in closed form, shape (n1, n2).

    Shapes: first, second (n1,) and (n2,).

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


def _latent_force_ode_error(experiment: PaperExperiment, values: Array, noise_std: float) -> list[float]:
    """Return the ODE error of each equation for three tanks driven by two latent forces.

    Shapes: values (n, 3).
    """
    coupling, times = _SENSITIVITY_MATRIX @ _SENSITIVITY_MATRIX.T, experiment.times
    K = np.kron(coupling, integrated_covariance(times, times)) + noise_std**2 * np.eye(values.size)
    alpha = np.linalg.solve(K, values.T.ravel())

    def mean(t: Array) -> Array:
        return np.asarray((np.kron(coupling, integrated_covariance(t, times)) @ alpha).reshape(3, -1).T)

    return _tank_ode_error(experiment, mean)


def compare_latent_force(seed: int, *, noisy: bool = True) -> dict[str, list[float]]:
    """Return each equation's ODE error for three models on the three-tank data of a `seed`, `noisy` or exact."""
    require_gpytorch()
    experiment = find_experiment("three_tank")
    table = experiment.data(seed, noisy=noisy)
    # Exact data are given enough noise for a Cholesky factorization.
    noise = experiment.noise_std if noisy else 1e-6
    marginalized = _unit_lodegp(experiment, table[:, :3], noise)
    return {
        "lfm": _latent_force_ode_error(experiment, table[:, :3], noise),
        "marginalized_lodegp": _tank_ode_error(experiment, lambda times: marginalized.predict(times)[:, :3]),
        "full_lodegp": ode_error(experiment, _unit_lodegp(experiment, table, noise).predict),
    }


def noise_sensitivity() -> tuple[Array, Array]:
    """Return the smallest and largest ODE errors of the latent force model on noise-free data over its noise levels."""
    experiment = find_experiment("three_tank")
    table = experiment.data(0, noisy=False)[:, :3]
    errors = [_latent_force_ode_error(experiment, table, noise) for noise in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)]
    return np.min(errors, axis=0), np.max(errors, axis=0)


def _tank_ode_error(experiment: PaperExperiment, tanks: Callable[[Array], Array]) -> list[float]:
    """Return the ODE error of each equation for the mean of the tanks, with the original inputs."""

    def mean(times: Array) -> Array:
        return np.concatenate([tanks(times), experiment.exact_solution(times)[:, 3:]], axis=1)

    return ode_error(experiment, mean)


def _unit_lodegp(experiment: PaperExperiment, table: Array, noise_std: float) -> Any:
    """Return a LODE-GP of the first channels, with all lengthscales and amplitudes equal to one."""
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
