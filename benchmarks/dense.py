"""Claim: the closed-form gradient costs little more than the Cholesky factorization, in time and in memory.

Everything is a ratio within one run. The comparison with GPyTorch needs the extra `gpytorch`; it is left out without.
There the three fits of the paper are made by lodekit and by the paper's procedure.

    python benchmarks/dense.py [--rows N] [--seeds N] [--json FILE]
"""

from __future__ import annotations

import argparse
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
from lodekit.paper.experiments import PaperExperiment, experiments
from lodekit.paper.methods import train
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
HEATING = lk.catalog.heating()
#: Processor time for the fastest of many repetitions; evaluations get twice as much, fits half of it.
SECONDS = 2.0


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
        bare = best(lambda: lapack.dpotrf(matrix, lower=1, overwrite_a=0, clean=0), SECONDS, time.process_time)
        whole = best(lambda: engine.evaluate(hyper), 2.0 * SECONDS, time.process_time)
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


def compare_with_adam(experiment: PaperExperiment, seed: int) -> dict[str, float]:
    """Return how a whole fit compares with the paper's procedure, 300 Adam steps in GPyTorch, on the same model.

    Processor times of one thread. Both results are compared by lodekit's log evidence and by its objective, which adds
    a weak prior of the noise levels: gains are those of lodekit's result over that of Adam, in nats.
    """
    table = experiment.data(seed)

    def fit() -> lk.LODEGP:
        return lk.LODEGP(experiment.paper_system, noise="channel", random_state=seed).fit(experiment.times, table)

    gp, adam = fit(), train(experiment, "paper", seed)
    with threadpool_limits(1):
        seconds = best(fit, 0.5 * SECONDS, time.process_time)
    assert adam.gp is not None
    theirs, objective = adam.gp.fit_, gp.fit_.setup.objective
    return {
        "fit_seconds": seconds,
        "adam_seconds": adam.seconds,
        "ratio": adam.seconds / seconds,
        "evidence_gain": gp.log_evidence_ - theirs.log_evidence,
        "objective_gain": gp.fit_.optimum.value - objective.value(objective.layout.pack(theirs.hyperparameters)),
        "fit_loss": -gp.log_evidence_ / table.size,
        "adam_loss": adam.loss,
    }


def compare_paper_fits(seeds: int) -> list[dict[str, Any]]:
    """Return medians over data sets for each system of the paper, and the least gain."""
    rows = []
    for name, experiment in experiments().items():
        found = [compare_with_adam(experiment, seed) for seed in range(seeds)]
        row: dict[str, Any] = {key: float(np.median([each[key] for each in found])) for key in found[0]}
        row |= {"system": name, "least_gain": min(each["objective_gain"] for each in found), "data_sets": found}
        rows.append(row)
        print(
            f"{name:<11} {seeds} data sets: a whole fit {1e3 * row['fit_seconds']:.0f} ms, 300 Adam steps in GPyTorch "
            f"{row['adam_seconds']:.2f} s of processor time: {row['ratio']:.0f} times faster; loss "
            f"{row['fit_loss']:.3f} against {row['adam_loss']:.3f}; objective higher by {row['least_gain']:.3f} nats "
            "at least",
            flush=True,
        )
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=3000)
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    arguments.add_argument("--seeds", type=int, default=3, help="data sets of each system of the paper; 0: none")
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
    if options.seeds and importlib.util.find_spec("gpytorch"):
        rows["adam"] = compare_paper_fits(options.seeds)
    else:
        print("gpytorch is not installed or no data sets: the comparison with Adam is left out")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
