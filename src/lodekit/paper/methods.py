"""Three ways to learn from the paper's data: the paper's own, lodekit's, and an unconstrained multitask process.

The paper's way and the baseline train in GPyTorch: Adam, 300 steps of 0.1, hyperparameters from random starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.residuals import equation_terms
from lodekit.model import LODEGP
from lodekit.paper.experiments import Experiment, published

__all__ = ["METHODS", "Outcome", "run"]

Array = NDArray[np.float64]
Mean = Callable[[Array], Array]
_STEP = 1e-3
_POINTS = 1000


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
        For each equation the mean absolute error by finite differences, as in the paper.
    strict_error : float
        The median relative residual in closed form, where there is one; else NaN.
    parameters : dict of str to float
    seconds : float
    """

    train_rmse: float
    eval_rmse: float
    loss: float
    ode_error: list[float]
    strict_error: float
    parameters: dict[str, float]
    seconds: float

    def plain(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def run(experiment: Experiment, method: str, seed: int, *, noisy: bool = True) -> Outcome:
    """Train once and measure."""
    table = experiment.data(seed, noisy=noisy)
    begin = time.perf_counter()
    mean, loss, parameters, strict = METHODS[method](experiment, table, seed)
    seconds = time.perf_counter() - begin
    errors = []
    for interval in (experiment.train, experiment.evaluate):
        times = np.linspace(*interval, _POINTS)
        errors.append(float(np.sqrt(np.mean((mean(times) - experiment.truth(times)) ** 2))))
    theta = {**experiment.parameters, **parameters}
    return Outcome(errors[0], errors[1], loss, ode_error(experiment, mean, theta), strict, parameters, seconds)


def ode_error(experiment: Experiment, mean: Mean, theta: dict[str, float]) -> list[float]:
    """Return the mean absolute error of each equation by forward differences of a mean, a thousand points in all.

    As the paper describes it: the first difference passes a low-pass filter before it is differenced again.
    """
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
    numbers = np.array([theta[name] for name in experiment.system.operator.ring.parameters])
    residual = equations.residual(numbers, grid, features, relative=False)[0]
    return [float(value) for value in np.mean(np.abs(residual), axis=0)]


def _smooth(values: Array) -> Array:
    from scipy.signal import butter, filtfilt

    return np.asarray(filtfilt(*butter(3, 0.5), values, axis=0))


def _native(experiment: Experiment, table: Array, seed: int) -> tuple[Mean, float, dict[str, float], float]:
    # A noise level for each channel, as the multitask likelihood of the other two has.
    gp = LODEGP(experiment.system, noise="channel", random_state=seed).fit(experiment.times, table)
    parameters = {name: estimate.value for name, estimate in gp.parameters_.items()}
    everywhere = np.linspace(*experiment.evaluate, 200)
    strict = float(np.median(np.abs(gp.residual(everywhere, relative=True))))
    return (lambda times: np.asarray(gp.predict(times))), -gp.log_evidence_ / table.size, parameters, strict


def _train(model: Any, likelihood: Any, table: Any) -> tuple[Mean, float]:
    """Train as the paper does; return the posterior mean and the last loss."""
    import gpytorch
    import torch

    protocol = published()["protocol"]
    model.train()
    likelihood.train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=protocol["learning_rate"])
    loss = torch.zeros(())
    with gpytorch.settings.cholesky_max_tries(8):
        for _ in range(protocol["iterations"]):
            optimizer.zero_grad()
            loss = -evidence(model(*model.train_inputs), table)
            loss.backward()
            optimizer.step()
    model.eval()
    likelihood.eval()

    def mean(times: Array) -> Array:
        with torch.no_grad(), gpytorch.settings.cholesky_max_tries(8):
            return np.asarray(model(torch.as_tensor(times)[:, None]).mean.numpy())

    return mean, float(loss.detach())


def _likelihood(count: int) -> Any:
    import gpytorch

    constraint = gpytorch.constraints.GreaterThan(1e-10)
    return gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=count, noise_constraint=constraint).double()


def _paper(experiment: Experiment, table: Array, seed: int) -> tuple[Mean, float, dict[str, float], float]:
    import torch

    from lodekit.integrations.gpytorch import LODEExactGP, from_gpytorch

    generator = np.random.default_rng(seed + 10_000)
    likelihood, y = _likelihood(table.shape[1]), torch.as_tensor(table)
    model = LODEExactGP(torch.as_tensor(experiment.times), y, likelihood, experiment.system).double()
    kernel = model.covar_module
    for name in (*kernel._names, "lengthscales", "deviations", "mode_deviations"):
        shape = tuple(kernel.value_of(name).shape)
        kernel.set_value(name, np.exp(generator.uniform(-3.0, 3.0, shape)))
    mean, loss = _train(model, likelihood, y)
    parameters = {name: kernel.value_of(name).item() for name in kernel._names}
    gp = from_gpytorch(model)
    everywhere = np.linspace(*experiment.evaluate, 200)
    return mean, loss, parameters, float(np.median(np.abs(gp.residual(everywhere, relative=True))))


def _baseline(experiment: Experiment, table: Array, seed: int) -> tuple[Mean, float, dict[str, float], float]:
    import gpytorch
    import torch

    count = table.shape[1]
    torch.manual_seed(seed)

    class Multitask(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=count)
            self.covar_module = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), count, rank=count)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood, y = _likelihood(count), torch.as_tensor(table)
    model = Multitask(torch.as_tensor(experiment.times)[:, None], y, likelihood).double()
    mean, loss = _train(model, likelihood, y)
    return mean, loss, {}, float("nan")


METHODS: dict[str, Callable[[Experiment, Array, int], tuple[Mean, float, dict[str, float], float]]] = {
    "paper": _paper,
    "lodekit": _native,
    "baseline": _baseline,
}
