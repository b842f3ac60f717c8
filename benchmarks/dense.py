"""Claim: the closed-form gradient costs little more than the Cholesky factorization, in time and in memory.

Everything is a ratio within one run. The comparison with GPyTorch needs the extra `gpytorch`; it is left out without.

    python benchmarks/dense.py [--json FILE] [--rows N]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.inference.engine import Engine
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
HEATING = lk.catalog.heating()


def heating_table(times: Array) -> Array:
    return HEATING.solution_at(times) + 0.02 * np.random.default_rng(0).standard_normal((len(times), 3))


def heating_engine(rows: int) -> tuple[Engine, Hyperparameters]:
    times = np.linspace(-5, 5, rows // 3)
    table = heating_table(times)
    data = Observations()
    for channel, column in zip(HEATING.system.channels, table.T, strict=True):
        data = data.add(times, channel, column)
    settings = FitSettings(engine="dense", noise="shared")  # one noise level for all channels, as in `values`
    engine = build_setup(HEATING.system, settings, Measurements.from_observations(data)).engine
    values = (np.array([3.0, 1.0]), np.array([0.4]), np.array([1.0]), np.zeros(0), np.array([0.02]))
    return engine, Hyperparameters(*values)


def best(run: Callable[[], Any], seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    found, end = np.inf, clock() + seconds
    while clock() < end:
        start = clock()
        run()
        found = min(found, clock() - start)
    return float(found)


def cholesky_ratio(rows: int) -> dict[str, float]:
    engine, hyper = heating_engine(rows)
    size = engine.size
    generator = np.random.default_rng(0)
    half = generator.standard_normal((size, 50))
    matrix = np.asfortranarray(half @ half.T + size * np.eye(size))
    # Processor time of one thread: other load would count for one of both times only.
    with threadpool_limits(1):
        bare = best(lambda: lapack.dpotrf(matrix, lower=1, overwrite_a=0, clean=0), 2.0, time.process_time)
        whole = best(lambda: engine.evaluate(hyper), 4.0, time.process_time)
    tracemalloc.start()
    engine.evaluate(hyper)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "rows": size,
        "cholesky_seconds": bare,
        "evaluation_seconds": whole,
        "ratio": whole / bare,
        "peak_matrices": peak / (8.0 * size * size),
    }


def make_gpytorch_model(x: Any, y: Any, likelihood: Any) -> Any:
    """Return the same model in GPyTorch; `scaling.py` takes it as well."""
    import array_api_compat
    import gpytorch
    import torch

    from lodekit.prior.covariance import free_function_covariance
    from lodekit.prior.kernels import SquaredExponential

    class Kernel(gpytorch.kernels.Kernel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_parameter("logs", torch.nn.Parameter(torch.zeros(4, dtype=torch.float64)))

        def num_outputs_per_input(self, x1: Any, x2: Any) -> int:
            return 3

        def forward(self, x1: Any, x2: Any, diag: bool = False, **_: Any) -> Any:
            a, b, ell, sigma = torch.exp(self.logs)
            zero, one = torch.zeros_like(a), torch.ones_like(a)
            W = torch.stack(
                [torch.stack([b, one, zero]), torch.stack([b, zero, zero]), torch.stack([zero, a + b, one])]
            )
            block = partial(free_function_covariance, array_api_compat.array_namespace(W), SquaredExponential())
            if diag:  # a stationary process: the variances are those at any one time
                return block(x1[:1, 0], x1[:1, 0], W, W, ell, sigma).reshape(3, 3).diagonal().repeat(len(x1))
            # GPyTorch orders by input first, then by task.
            full = block(x1[:, 0], x2[:, 0], W, W, ell, sigma).permute(1, 0, 3, 2)
            return full.reshape(3 * len(x1), 3 * len(x2))

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=3)
            self.covar_module = Kernel()

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Model()


def fit_with_adam(times: Array, table: Array, steps: int) -> float:
    """Return the loss after so many Adam steps in GPyTorch."""
    import gpytorch
    import torch

    x, y = torch.asarray(times)[:, None], torch.asarray(table)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=3).double()
    model = make_gpytorch_model(x, y, likelihood)
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def adam_ratio(steps: int) -> dict[str, float]:
    """Adam steps on the same model in GPyTorch against one whole fit, all restarts included."""
    times = np.linspace(-5, 5, 25)
    table = heating_table(times)
    lk.LODEGP(HEATING.system, noise="shared", random_state=0).fit(times, table)
    ours = best(lambda: lk.LODEGP(HEATING.system, noise="shared", random_state=0).fit(times, table), 0.01 * steps)
    gp = lk.LODEGP(HEATING.system, noise="shared", random_state=0).fit(times, table)
    for library in ("array_api_compat", "gpytorch"):  # loaded before the clock starts
        importlib.import_module(library)
    start = time.perf_counter()
    loss = fit_with_adam(times, table, steps)
    theirs = time.perf_counter() - start
    return {
        "fit_seconds": ours,
        "adam_seconds": theirs,
        "ratio": theirs / ours,
        "fit_loss": -gp.log_evidence_ / table.size,
        "adam_loss": loss,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=3000)
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    arguments.add_argument("--steps", type=int, default=300, help="of Adam; 0: none")
    options = arguments.parse_args()
    rows: dict[str, Any] = {}
    for size in sorted({75, min(300, options.rows), options.rows}):
        found = cholesky_ratio(size)
        rows[f"rows_{size}"] = found
        print(
            f"{found['rows']:>6.0f} rows: evaluation with gradient {1e3 * found['evaluation_seconds']:.2f} ms = "
            f"{found['ratio']:.2f} bare Cholesky factorizations; peak memory {found['peak_matrices']:.2f} matrices",
            flush=True,
        )
    if options.steps and importlib.util.find_spec("gpytorch") and importlib.util.find_spec("array_api_compat"):
        found = adam_ratio(options.steps)
        rows["adam"] = found
        print(
            f"heating, 25 points: a whole fit {found['fit_seconds']:.3f} s (loss {found['fit_loss']:.3f}), "
            f"{options.steps} Adam steps in GPyTorch {found['adam_seconds']:.2f} s (loss {found['adam_loss']:.3f}): "
            f"{found['ratio']:.0f} times faster"
        )
    else:
        print("gpytorch is not installed or no steps: the comparison with Adam is left out")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
