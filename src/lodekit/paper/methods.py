"""Four methods to learn from the paper's data: the paper's, two of lodekit, and an unconstrained multitask GP.

The paper's method and the baseline train in GPyTorch: Adam, 300 steps of 0.1, hyperparameters from random starts.
lodekit uses its own optimiser, with the paper's prior on free functions, or with a prior on the channels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.paper.experiments import PaperExperiment, load_published_results
from lodekit.support.arguments import Array


@dataclass(frozen=True)
class TrainedModel:
    """A trained model of any method.

    mean, std: From times to the posterior mean, and to its standard deviation, both of shape (n, channels).
    covariance: From times to the prior covariance of all channels, shape (n channels, n channels); None for a prior
        on the channels, which consists of waves and has no such matrix.
    loss: Negative log evidence per value of the data.
    seconds: Processor time of construction and training, which other load on the machine hardly changes.
    hyperparameters: The noise variance, and means of signal variances and lengthscales; as in the paper, the raw values
        (logarithms or inverse softplus) are averaged and then transformed.
    gp: The model in lodekit; None for the baseline.
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


def train(experiment: PaperExperiment, method: str, seed: int, *, noisy: bool = True) -> TrainedModel:
    """Return a model trained on one data set."""
    return train_batch(experiment, method, (seed,), noisy=noisy)[0]


def train_batch(
    experiment: PaperExperiment, method: str, seeds: Sequence[int], *, noisy: bool = True
) -> list[TrainedModel]:
    """Return models trained on several data sets, each equal to the result of `train` up to rounding.

    GPyTorch models are trained as one batch: the losses are added, and neither their gradients nor the elementwise
    steps of Adam mix. Three data sets take little longer than one, so the seconds of each, an equal share, are less
    than those of separate training: use `train` to compare times.
    """
    if method not in METHODS:
        raise LodekitError(f"expected one of {', '.join(METHODS)}, got {method!r}")
    if not seeds:
        raise LodekitError("expected the seeds of one data set at least, got none")
    tables = [experiment.data(seed, noisy=noisy) for seed in seeds]
    if method in NATIVE_METHODS:
        return METHODS[method](experiment, tables, seeds)
    require_gpytorch()
    with use_one_torch_thread():
        return METHODS[method](experiment, tables, seeds)


@contextmanager
def use_one_torch_thread() -> Iterator[None]:
    """Limit PyTorch to one thread, like lodekit for matrices of this size, which is the fastest for all methods."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def require_gpytorch() -> None:
    """Raise an error with installation advice if GPyTorch is missing."""
    try:
        import gpytorch  # noqa: F401
    except ImportError:
        raise LodekitError(
            "the paper's method is trained with GPyTorch, which is missing; try: pip install 'lodekit[gpytorch]'"
        ) from None


def _train_lodekit(
    experiment: PaperExperiment, tables: list[Array], seeds: Sequence[int], prior: str = "latent"
) -> list[TrainedModel]:
    return [_train_lodekit_once(experiment, table, seed, prior) for table, seed in zip(tables, seeds, strict=True)]


def _train_lodekit_once(experiment: PaperExperiment, table: Array, seed: int, prior: str) -> TrainedModel:
    begin = time.process_time()
    # One noise level for each channel, like the multitask likelihood of the other methods.
    gp = LODEGP(experiment.system, prior=prior, noise="channel", random_state=seed).fit(experiment.times, table)
    seconds = time.process_time() - begin

    def covariance(times: Array) -> Array:
        from lodekit.integrations.gpytorch import to_gpytorch

        return _prior_covariance(to_gpytorch(gp)[0], times)

    hyper, span = gp.fit_.hyperparameters, gp.fit_.prior.units.time_scale
    return TrainedModel(
        gp.predict,
        lambda times: gp.predict(times, return_std=True)[1],
        covariance if prior == "latent" else None,
        -gp.log_evidence_ / table.size,
        seconds,
        {
            "noise": float(np.mean(hyper.noise_std**2)),
            "signal variance": _geometric_mean(hyper.amplitudes**2),
            "lengthscale": _geometric_mean(hyper.lengthscales) * span,
        },
        {name: estimate.value for name, estimate in gp.parameters_.items()},
        {name: estimate.interval for name, estimate in gp.parameters_.items()},
        gp,
    )


def _geometric_mean(values: Array) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _train_paper(experiment: PaperExperiment, tables: list[Array], seeds: Sequence[int]) -> list[TrainedModel]:
    begin = time.process_time()
    models = [_paper_model(experiment, table, seed) for table, seed in zip(tables, seeds, strict=True)]
    losses = _train_models(models, lambda: _paper_model(experiment, np.stack(tables)))
    seconds = (time.process_time() - begin) / len(models)
    return [_wrap_paper_model(model, loss, seconds) for model, loss in zip(models, losses, strict=True)]


def _paper_model(experiment: PaperExperiment, table: Array, seed: int | None = None) -> Any:
    """Return the paper's model of a table, or of a batch of tables; with a seed, start values are random."""
    import torch
    from gpytorch.constraints import Positive

    from lodekit.integrations.gpytorch import LODEExactGP

    likelihood, (x, y) = _likelihood(table), _to_tensors(experiment, table)
    model = LODEExactGP(
        x, y, likelihood, experiment.paper_system, window=experiment.train_interval, batch_shape=y.shape[:-2]
    ).double()
    kernel, names = model.covar_module, (*model.covar_module.parameter_names, "lengthscales", "deviations")
    # As in the paper, logarithms are learned: of variances instead of standard deviations.
    exponents = {name: 0.5 if name == "deviations" else 1.0 for name in names}
    for name, exponent in exponents.items():
        positive = Positive(
            transform=lambda x, power=exponent: torch.exp(power * x),
            inv_transform=lambda y, power=exponent: torch.log(y) / power,
        )
        kernel.register_constraint(f"raw_{name}", positive)
    # The paper's table of covariances has no variance for modes.
    kernel.set_value("mode_deviations", 1.0)
    kernel.raw_mode_deviations.requires_grad_(False)
    generator = np.random.default_rng((seed or 0) + 10_000)
    for name, exponent in exponents.items() if seed is not None else ():
        # Parameters of the system start at one, as in the authors' program; the paper does not mention this.
        reach = 0.0 if name in kernel.parameter_names else 3.0
        start = generator.uniform(-reach, reach, tuple(kernel.value_of(name).shape))
        kernel.set_value(name, np.exp(exponent * start))
    return model


def _wrap_paper_model(model: Any, loss: float, seconds: float) -> TrainedModel:
    from lodekit.integrations.gpytorch import from_gpytorch

    kernel = model.covar_module
    return TrainedModel(
        *_predictors(model),
        lambda times: _prior_covariance(model, times),
        loss,
        seconds,
        {
            "noise": model.likelihood.noise.item(),
            "signal variance": _geometric_mean(kernel.value_of("deviations").detach().numpy() ** 2),
            "lengthscale": _geometric_mean(kernel.value_of("lengthscales").detach().numpy()),
        },
        {name: kernel.value_of(name).item() for name in kernel.parameter_names},
        gp=from_gpytorch(model),
    )


def _train_baseline(experiment: PaperExperiment, tables: list[Array], seeds: Sequence[int]) -> list[TrainedModel]:
    import torch

    models = []
    with torch.random.fork_rng(devices=[]):
        begin = time.process_time()
        for table, seed in zip(tables, seeds, strict=True):
            # Random start values are drawn when the model is created.
            torch.manual_seed(seed)
            models.append(_multitask_model(experiment, table))
        losses = _train_models(models, lambda: _multitask_model(experiment, np.stack(tables)))
        seconds = (time.process_time() - begin) / len(models)
    return [_wrap_baseline_model(model, loss, seconds) for model, loss in zip(models, losses, strict=True)]


def _multitask_model(experiment: PaperExperiment, table: Array) -> Any:
    """Return an unconstrained multitask process of a table, or of a batch of tables."""
    import gpytorch

    from lodekit.integrations.gpytorch import ModularExactGP

    likelihood, (x, y) = _likelihood(table), _to_tensors(experiment, table)
    count, batch = table.shape[-1], y.shape[:-2]
    model = ModularExactGP(x, y, likelihood)
    model.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(batch), num_tasks=count)
    # The paper does not state how its tasks are coupled; rank one reproduces its lengthscales and eigenvalues.
    over_time = gpytorch.kernels.RBFKernel(batch_shape=batch)
    model.covar_module = gpytorch.kernels.MultitaskKernel(over_time, count, rank=1, batch_shape=batch)
    return model.double()


def _wrap_baseline_model(model: Any, loss: float, seconds: float) -> TrainedModel:
    import torch

    def covariance(times: Array) -> Array:
        # An explicit product, as GPyTorch takes ten times as long to evaluate it.
        kernel, x = model.covar_module, torch.as_tensor(times)[:, None]
        with torch.no_grad():
            over_time = kernel.data_covar_module(x).to_dense().numpy()
            return np.kron(over_time, kernel.task_covar_module.covar_matrix.to_dense().numpy())

    tasks = model.covar_module.task_covar_module
    return TrainedModel(
        *_predictors(model),
        covariance,
        loss,
        seconds,
        {
            "noise": model.likelihood.noise.item(),
            "signal variance": torch.nn.functional.softplus(tasks.raw_var.mean()).item(),
            "lengthscale": model.covar_module.data_covar_module.lengthscale.item(),
        },
    )


def _to_tensors(experiment: PaperExperiment, table: Array) -> tuple[Any, Any]:
    import torch

    # One column of times for all tables of a batch, since GPyTorch's multitask kernel would repeat its tasks otherwise.
    return torch.as_tensor(experiment.times)[:, None], torch.as_tensor(table)


def _likelihood(table: Array) -> Any:
    import gpytorch
    import torch

    constraint = gpytorch.constraints.GreaterThan(load_published_results()["protocol"]["noise_bound"])
    return gpytorch.likelihoods.MultitaskGaussianLikelihood(
        num_tasks=table.shape[-1], batch_shape=torch.Size(table.shape[:-2]), noise_constraint=constraint
    ).double()


def _train_models(models: list[Any], batched: Callable[[], Any]) -> list[float]:
    """Train models as in the paper, several as one batch from `batched`; return their final losses."""
    import torch

    if len(models) == 1:
        losses = _run_adam(models[0])
    else:
        whole = batched()
        named = [dict(model.named_parameters()) for model in models]
        parts = {name: [own[name] for own in named] for name, _ in whole.named_parameters()}
        with torch.no_grad():
            for name, several in whole.named_parameters():
                several.copy_(torch.stack(parts[name]))
        losses = _run_adam(whole)
        with torch.no_grad():
            for name, several in whole.named_parameters():
                for part, value in zip(parts[name], several, strict=True):
                    part.copy_(value)
    for model in models:
        model.eval()
    return losses


def _run_adam(model: Any) -> list[float]:
    """Train a model, or a batch; return the final loss of each."""
    import gpytorch
    import torch

    protocol = load_published_results()["protocol"]
    model.train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=protocol["learning_rate"])
    loss = torch.zeros(())
    with gpytorch.settings.cholesky_max_tries(8):
        for _ in range(protocol["iterations"]):
            optimizer.zero_grad()
            loss = -evidence(model(*model.train_inputs), model.train_targets)
            loss.sum().backward()
            optimizer.step()
    return [float(value) for value in loss.detach().reshape(-1)]


def _predictors(model: Any) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    import gpytorch
    import torch

    def mean(times: Array) -> Array:
        # GPyTorch's cached weights; its own mean also evaluates the covariance between all times.
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


#: Methods that only need lodekit.
NATIVE_METHODS = ("lodekit", "channels")
METHODS: dict[str, Callable[[PaperExperiment, list[Array], Sequence[int]], list[TrainedModel]]] = {
    "paper": _train_paper,
    "lodekit": _train_lodekit,
    "channels": partial(_train_lodekit, prior="channels"),
    "baseline": _train_baseline,
}
