"""Four ways to learn from the paper's data: the paper's own, two of lodekit's, and an unconstrained multitask process.

The paper's way and the baseline train in GPyTorch: Adam, 300 steps of 0.1, hyperparameters from random starts. lodekit
takes its own search, with the paper's prior on free functions, or with one on the channels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.paper.experiments import Experiment, published

__all__ = ["METHODS", "NATIVE", "Trained", "need_gpytorch", "one_thread", "train"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trained:
    """A trained model, whatever trained it.

    Parameters
    ----------
    mean, std : function
        From times to the posterior mean, and to its standard deviation, both of shape (n, channels).
    covariance : function or None
        From times to the prior covariance of all channels, shape (n channels, n channels); None for a prior on the
        channels, which is made of waves and has no such matrix.
    loss : float
        Negative log evidence for each number of the data.
    seconds : float
        What construction and training took.
    hyperparameters : dict of str to float
        The noise variance, and means of signal variances and lengthscales; of variances as in the paper, which takes
        the mean of what is learned, logarithms or inverse softplus, and transforms it then.
    parameters : dict of str to float
    intervals : dict of str to (float, float)
    gp : LODEGP, optional
        The model as lodekit sees it; None for the baseline.
    """

    mean: Callable[[Array], Array]
    std: Callable[[Array], Array]
    covariance: Callable[[Array], Array] | None
    loss: float
    seconds: float
    hyperparameters: dict[str, float]
    parameters: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    gp: LODEGP | None = None


def train(experiment: Experiment, method: str, seed: int, *, noisy: bool = True) -> Trained:
    """Return a model that was trained on one data set.

    Parameters
    ----------
    experiment : Experiment
        System and data.
    method : {"paper", "lodekit", "channels", "baseline"}
        How it is trained.
    seed : int
        Of the data set.
    noisy : bool
        Whether the data have noise.
    """
    if method not in METHODS:
        raise LodekitError(f"expected one of {', '.join(METHODS)}, got {method!r}")
    table = experiment.data(seed, noisy=noisy)
    if method in NATIVE:
        return METHODS[method](experiment, table, seed)
    need_gpytorch()
    with one_thread():
        return METHODS[method](experiment, table, seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch take one thread, as lodekit does for matrices of this size: the fastest for all, and the same."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def need_gpytorch() -> None:
    """Raise an error that says what to install where GPyTorch is missing."""
    try:
        import gpytorch  # noqa: F401
    except ImportError:
        raise LodekitError(
            "the paper's way is trained with GPyTorch, which is missing; try: pip install 'lodekit[gpytorch]'"
        ) from None


def _native(experiment: Experiment, table: Array, seed: int, prior: str = "latent") -> Trained:
    begin = time.perf_counter()
    # A noise level for each channel, as the multitask likelihood of the other two has.
    gp = LODEGP(experiment.system, prior=prior, noise="channel", random_state=seed).fit(experiment.times, table)
    seconds = time.perf_counter() - begin

    def covariance(times: Array) -> Array:
        from lodekit.integrations.gpytorch import to_gpytorch

        return _prior_covariance(to_gpytorch(gp)[0], times)

    hyper, span = gp.fit_.hyperparameters, gp.fit_.prior.units.span
    return Trained(
        gp.predict,
        lambda times: gp.predict(times, return_std=True)[1],
        covariance if prior == "latent" else None,
        -gp.log_evidence_ / table.size,
        seconds,
        {
            "noise": float(np.mean(hyper.noise**2)),
            "signal variance": _geometric(hyper.deviations**2),
            "lengthscale": _geometric(hyper.lengthscales) * span,
        },
        {name: estimate.value for name, estimate in gp.parameters_.items()},
        {name: estimate.interval for name, estimate in gp.parameters_.items()},
        gp,
    )


def _channels(experiment: Experiment, table: Array, seed: int) -> Trained:
    return _native(experiment, table, seed, "channels")


def _geometric(values: Array) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _paper(experiment: Experiment, table: Array, seed: int) -> Trained:
    import torch

    from lodekit.integrations.gpytorch import LODEExactGP, from_gpytorch

    begin = time.perf_counter()
    likelihood, y = _likelihood(table.shape[1]), torch.as_tensor(table)
    model = LODEExactGP(torch.as_tensor(experiment.times), y, likelihood, experiment.papers).double()
    kernel = model.covar_module
    generator = np.random.default_rng(seed + 10_000)
    for name in (*kernel.parameter_names, "lengthscales", "deviations"):
        # As in the paper, what is learned are logarithms, those of variances and not of deviations. Parameters of the
        # system start at one, as in the authors' program; the paper does not say.
        power = 0.5 if name == "deviations" else 1.0
        kernel.register_constraint(f"raw_{name}", _exponential(power))
        reach = 0.0 if name in kernel.parameter_names else 3.0
        start = generator.uniform(-reach, reach, tuple(kernel.value_of(name).shape))
        kernel.set_value(name, np.exp(power * start))
    # The paper's table of covariances gives modes no variance of their own.
    kernel.set_value("mode_deviations", 1.0)
    kernel.raw_mode_deviations.requires_grad_(False)
    loss = _optimize(model, likelihood, y)
    seconds = time.perf_counter() - begin
    gp = from_gpytorch(model)
    return Trained(
        *_predictors(model),
        lambda times: _prior_covariance(model, times),
        loss,
        seconds,
        {
            "noise": likelihood.noise.item(),
            "signal variance": _geometric(kernel.value_of("deviations").detach().numpy() ** 2),
            "lengthscale": _geometric(kernel.value_of("lengthscales").detach().numpy()),
        },
        {name: kernel.value_of(name).item() for name in kernel.parameter_names},
        gp=gp,
    )


def _baseline(experiment: Experiment, table: Array, seed: int) -> Trained:
    import gpytorch
    import torch

    count = table.shape[1]

    class Multitask(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=count)
            # The paper does not say how its tasks are coupled; rank one gives its lengthscales and eigenvalues.
            self.covar_module = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), count, rank=1)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        begin = time.perf_counter()
        likelihood, y = _likelihood(count), torch.as_tensor(table)
        model = Multitask(torch.as_tensor(experiment.times)[:, None], y, likelihood).double()
        loss = _optimize(model, likelihood, y)
        seconds = time.perf_counter() - begin

    def covariance(times: Array) -> Array:
        # The product by hand: GPyTorch takes ten times as long to write it out.
        kernel, x = model.covar_module, torch.as_tensor(times)[:, None]
        with torch.no_grad():
            over_time = kernel.data_covar_module(x).to_dense().numpy()
            return np.kron(over_time, kernel.task_covar_module.covar_matrix.to_dense().numpy())

    tasks = model.covar_module.task_covar_module
    return Trained(
        *_predictors(model),
        covariance,
        loss,
        seconds,
        {
            "noise": likelihood.noise.item(),
            "signal variance": torch.nn.functional.softplus(tasks.raw_var.mean()).item(),
            "lengthscale": model.covar_module.data_covar_module.lengthscale.item(),
        },
    )


def _exponential(power: float) -> Any:
    import torch
    from gpytorch.constraints import Positive

    return Positive(transform=lambda x: torch.exp(power * x), inv_transform=lambda y: torch.log(y) / power)


def _likelihood(count: int) -> Any:
    import gpytorch

    constraint = gpytorch.constraints.GreaterThan(published()["protocol"]["noise_bound"])
    return gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=count, noise_constraint=constraint).double()


def _optimize(model: Any, likelihood: Any, table: Any) -> float:
    """Train as the paper does; return the last loss."""
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
    return float(loss.detach())


def _predictors(model: Any) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    import gpytorch
    import torch

    def mean(times: Array) -> Array:
        # GPyTorch's own weights; its own mean writes out the covariance of all times with each other, too.
        x = torch.as_tensor(times)[:, None]
        with torch.no_grad(), gpytorch.settings.cholesky_max_tries(8):
            if model.prediction_strategy is None:
                model(x[:1])
            prior = model.mean_module(x)
            found = model.covar_module(x, model.train_inputs[0]).to_dense() @ model.prediction_strategy.mean_cache
            return np.asarray((prior + found.reshape(prior.shape)).numpy())

    def std(times: Array) -> Array:
        with torch.no_grad(), gpytorch.settings.cholesky_max_tries(8):
            variance = model(torch.as_tensor(times)[:, None]).variance.numpy()
            return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    return mean, std


def _prior_covariance(model: Any, times: Array) -> Array:
    import torch

    with torch.no_grad():
        return np.asarray(model.covar_module(torch.as_tensor(times)[:, None]).to_dense().numpy())


#: Those that need nothing but lodekit.
NATIVE = ("lodekit", "channels")
METHODS: dict[str, Callable[[Experiment, Array, int], Trained]] = {
    "paper": _paper,
    "lodekit": _native,
    "channels": _channels,
    "baseline": _baseline,
}
