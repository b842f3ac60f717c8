"""Claim: beyond one pass over the data, a fit on waves costs the same for a thousand measurements and for any number.

Fit time and peak memory against the number of points, each fit in a process of its own, until a limit of time or of
memory ends a method. GPyTorch (the paper's 300 Adam steps) has the same kernel, once with Cholesky, once with conjugate
gradients (BBMM, its own choice beyond 800 rows). Its ways beyond are closed to a kernel like this: interpolation on a
grid (SKI) wants one stationary kernel for all channels, KeOps a symbolic formula. scikit-learn has one channel only.

    python benchmarks/scaling.py [--largest N] [--limit S] [--memory GB] [--stream ROWS] [--json FILE] [--plot FILE]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

import lodekit as lk
from lodekit.errors import LodekitError
from lodekit.inference.assembly import make_prior
from lodekit.inference.engines import make_spectral
from lodekit.inference.measurements import Measurements
from lodekit.inference.nufft import backend
from lodekit.inference.observations import read_observations
from lodekit.inference.problem import Hyperparameters
from lodekit.inference.sources import read_stream
from lodekit.inference.statistics import DEGREE, Statistics, _angles

Array = NDArray[np.float64]
Found = dict[str, Any]
Task = Callable[[], Callable[[], Found]]  # gets ready, and returns what is timed
HEATING = lk.catalog.heating()
NOISE = 0.02
ADAM_STEPS, FEWEST_STEPS = 300, 10
FILE_ROWS = 2_500_000
MB = 1e6


def heating_data(points: int, seed: int = 0) -> tuple[Array, Array]:
    generator, t = np.random.default_rng(seed), sympy.Symbol("t")
    times = np.sort(generator.uniform(-5, 5, points))
    table = NOISE * generator.standard_normal((points, 3))
    for column, name in zip(table.T, HEATING.system.channels, strict=True):
        column += sympy.lambdify(t, HEATING.solution[name], "numpy")(times)
    return times, table


def describe(gp: lk.LODEGP) -> Found:
    return {
        "loss": -gp.log_evidence_ / gp._engine.size,
        "parameters": {name: [e.value, e.std_error] for name, e in gp.parameters_.items()},
        "noise": gp.noise_["shared"],
        "converged": gp.converged_,
    }


def fit_lodekit(engine: str, points: int) -> Callable[[], Found]:
    def fit(times: Array, table: Array) -> Found:
        return describe(lk.LODEGP(HEATING.system, engine=engine, random_state=0).fit(times, table))

    fit(*heating_data(2000 if engine == "spectral" else 20))
    return partial(fit, *heating_data(points))


def fit_gpytorch(cholesky: bool, limit: float, points: int) -> Callable[[], Found]:
    import array_api_compat
    import gpytorch
    import torch

    from lodekit.prior.covariance import free_block
    from lodekit.prior.latents import SquaredExponential

    class Kernel(gpytorch.kernels.Kernel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_parameter("logs", torch.nn.Parameter(torch.zeros(4, dtype=torch.float64)))

        def num_outputs_per_input(self, x1: Any, x2: Any) -> int:
            return 3

        def forward(self, x1: Any, x2: Any, diag: bool = False, **_: Any) -> Any:
            a, b, ell, sigma = torch.exp(self.logs)
            zero, one = torch.zeros_like(a), torch.ones_like(a)
            rows = [torch.stack([b, one, zero]), torch.stack([b, zero, zero]), torch.stack([zero, a + b, one])]
            W = torch.stack(rows)
            xp = array_api_compat.array_namespace(W)
            if diag:
                # A stationary process: the variances are those at any one time.
                one_block = free_block(xp, SquaredExponential(), x1[:1, 0], x1[:1, 0], W, W, ell, sigma)
                return one_block.reshape(3, 3).diagonal().repeat(len(x1))
            block = free_block(xp, SquaredExponential(), x1[:, 0], x2[:, 0], W, W, ell, sigma)
            # GPyTorch orders by input first, then by task.
            return block.permute(1, 0, 3, 2).reshape(3 * len(x1), 3 * len(x2))

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=3)
            self.covar_module = Kernel()

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))

    def fit(times: Array, table: Array, steps: int = ADAM_STEPS) -> Found:
        torch.manual_seed(0)
        x, y = torch.asarray(times)[:, None], torch.asarray(table)
        likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=3).double()
        model = Model(x, y, likelihood).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        start, done = time.perf_counter(), 0
        with gpytorch.settings.max_cholesky_size(1 << 30 if cholesky else 1):
            while done < steps:
                optimizer.zero_grad()
                loss = -mll(model(x), y)
                loss.backward()
                optimizer.step()
                done += 1
                if done == FEWEST_STEPS and (time.perf_counter() - start) * steps / done > limit:
                    break
        a, b = torch.exp(model.covar_module.logs.detach())[:2].tolist()
        return {
            "seconds": (time.perf_counter() - start) * steps / done,
            "estimated": done < steps,
            "loss": float(loss.detach()),
            "parameters": {"a": [a, None], "b": [b, None]},
        }

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(*heating_data(20), steps=2)
    return partial(fit, *heating_data(points))


def fit_sklearn(points: int) -> Callable[[], Found]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

    def fit(times: Array, table: Array) -> Found:
        gp = GaussianProcessRegressor(RBF() + WhiteKernel()).fit(times[:, None], table[:, 0])
        return {"loss": -gp.log_marginal_likelihood_value_ / len(times)}

    fit(*heating_data(20))
    return partial(fit, *heating_data(points))


def best(run: Callable[[], Any], seconds: float) -> float:
    found, end = np.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - start)
    return float(found)


def measure_evaluation(seconds: float) -> Callable[[], Found]:
    """One evidence with gradient, its waves known (as most are in a search) or new."""
    model, engines, found = lk.LODEGP(HEATING.system), {}, {}
    for points in (1000, 1_000_000):
        measurements = Measurements.of(read_observations(HEATING.system.channels, *heating_data(points), None))
        prior = make_prior(measurements, model._reader.rows, model._latents(), "shared")
        engines[points] = make_spectral(prior, measurements, model.tolerance)
    values = (np.array([3.0, 1.0]), np.array([0.4]), np.array([1.0]), np.zeros(0), np.array([NOISE]))
    hyper = Hyperparameters(*values)

    def fresh(points: int) -> None:
        engines[points]._bases.clear()
        engines[points].evaluate(hyper)

    def measure() -> Found:
        for points in engines:
            found[f"known_{points}"] = found[f"new_{points}"] = np.inf
        for _ in range(10):  # in turn, so that a busy machine slows both alike
            for points, engine in engines.items():
                found[f"new_{points}"] = min(found[f"new_{points}"], best(partial(fresh, points), seconds / 40))
                again = best(partial(engine.evaluate, hyper), seconds / 40)
                found[f"known_{points}"] = min(found[f"known_{points}"], again)
        ratios = {f"{kind}_ratio": found[f"{kind}_1000000"] / found[f"{kind}_1000"] for kind in ("known", "new")}
        return found | ratios

    return measure


def measure_statistics(seconds: float) -> Callable[[], Found]:
    """All sums over three channels of a million points, against one bare transform for each column of numbers."""
    measurements = Measurements.of(read_observations(HEATING.system.channels, *heating_data(1_000_000), None))
    start, stop = measurements.window
    angles = _angles(measurements.series[0].times, start, stop)
    strengths = [np.ones(len(angles), dtype=complex), *(s.values.astype(complex) for s in measurements.series)]
    modes = 2 * (2 * DEGREE) + 1

    def bare() -> None:
        for strength in strengths:
            if backend() == "finufft":
                import finufft

                finufft.nufft1d1(angles, strength, modes, eps=1e-15, isign=1, spread_sort=0)
            else:
                import ducc0

                out: Any = np.empty(modes, dtype=complex)
                options = {"forward": False, "epsilon": 3e-15, "nthreads": 0, "out": out}
                ducc0.nufft.nu2u(points=strength, coord=angles[:, None], **options)

    def measure() -> Found:
        whole, transforms = np.inf, np.inf
        for _ in range(4):
            whole = min(whole, best(lambda: Statistics.of(start, stop, measurements.series), seconds / 8))
            transforms = min(transforms, best(bare, seconds / 8))
        ratio = whole / transforms
        return {"backend": backend(), "whole": whole, "transforms": transforms, "count": len(strengths), "ratio": ratio}

    return measure


def write_files(folder: Path, rows: int) -> None:
    """Ten groups of files, each over the whole window, so that one group is the same problem with a tenth the rows."""
    import polars

    for group in range(10):
        for number, first in enumerate(range(0, rows // 10, FILE_ROWS)):
            times, table = heating_data(min(FILE_ROWS, rows // 10 - first), seed=1000 * group + number)
            columns = dict(zip(HEATING.system.channels, table.T, strict=True))
            polars.DataFrame({"t": times, **columns}).write_parquet(folder / f"{group}-{number}.parquet")


def fit_files(pattern: str) -> Callable[[], Found]:
    def fit() -> Found:
        start = time.perf_counter()
        gp = lk.LODEGP(HEATING.system, random_state=0).fit(pattern)
        return {"seconds": time.perf_counter() - start, "rows": gp._engine.size // 3, **describe(gp)}

    return fit


def read_files(pattern: str) -> Callable[[], Found]:
    return lambda: {"rows": read_stream(pattern, HEATING.system.channels).size // 3}


def resident(name: str) -> float:
    """VmRSS or VmHWM (its peak) of this process, in bytes; the peak stands for both where there is no /proc."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith(name))
        return 1024.0 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


def work(sender: Connection, task: Task, memory: float) -> None:
    """Run a task in this process: get ready, say so, run, and send what was found."""
    warnings.simplefilter("ignore")
    try:
        run = task()
        if Path("/proc/self/clear_refs").exists():
            Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
            taken = 4096 * int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (taken + int(memory), resource.RLIM_INFINITY))
        before = resident("VmRSS")
        sender.send(None)
        start = time.perf_counter()
        found = run()
        found = {"seconds": time.perf_counter() - start, **found}
        sender.send(found | {"before_mb": before / MB, "fit_mb": (resident("VmHWM") - before) / MB})
    except LodekitError as error:
        sender.send({"stopped": "refused", "why": str(error)})
    except Exception as error:  # whatever a library raises: it has stopped, and this is why
        memory_ran_out = isinstance(error, MemoryError) or "allocate memory" in str(error)
        sender.send({"stopped": "memory" if memory_ran_out else type(error).__name__, "why": str(error)[:300]})


def run_alone(task: Task, limit: float, memory: float) -> Found:
    """Run a task in a process of its own, within limits of time (in seconds) and memory (in bytes)."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=work, args=(sender, task, memory), daemon=True)
    process.start()
    sender.close()
    try:
        found: Found | None = receiver.recv()
        if found is None:
            found = receiver.recv() if receiver.poll(limit) else {"stopped": "time", "why": f"over {limit:g} s"}
    except EOFError:
        process.join()
        found = {"stopped": "crashed", "why": f"exit code {process.exitcode}"}
    finally:
        process.kill()
        process.join()
    assert found is not None  # noqa: S101
    if found.get("seconds", 0.0) > limit:
        found |= {"stopped": "time", "why": f"over {limit:g} s"}
    return found


def methods(limit: float) -> dict[str, Callable[[int], Callable[[], Found]]]:
    found: dict[str, Callable[[int], Callable[[], Found]]] = {
        "lodekit, spectral": partial(fit_lodekit, "spectral"),
        "lodekit, dense": partial(fit_lodekit, "dense"),
    }
    if importlib.util.find_spec("gpytorch") and importlib.util.find_spec("array_api_compat"):
        found["GPyTorch, Cholesky"] = partial(fit_gpytorch, True, limit)
        found["GPyTorch, conjugate gradients"] = partial(fit_gpytorch, False, limit)
    if importlib.util.find_spec("sklearn"):
        found["scikit-learn, one channel"] = fit_sklearn
    return found


def compare(largest: int, limit: float, memory: float) -> list[Found]:
    sizes = [step * 10**power for power in range(2, 10) for step in (1, 3) if step * 10**power <= largest]
    print(f"{'':30} {'n':>9} {'seconds':>9} {'fit MB':>8} {'before':>7} {'loss':>8}  a, b (truth 3, 1)")
    rows: list[Found] = []
    for method, task in methods(limit).items():
        for points in sizes:
            found = run_alone(partial(task, points), limit, memory)
            rows.append({"method": method, "points": points, **found})
            show(rows[-1])
            if "stopped" in found:
                break
    return rows


def show(row: Found) -> None:
    line = f"{row['method']:30} {row['points']:9.0e} "
    if "seconds" in row:
        parameters = ", ".join(f"{value:.4f}" for value, _ in row.get("parameters", {}).values())
        mark = "~" if row.get("estimated") else ""
        line += f"{mark + format(row['seconds'], '.3g'):>9} {row['fit_mb']:8.1f} {row['before_mb']:7.0f} "
        line += f"{row['loss']:8.4f}  {parameters}"
    print(line + (f"  stopped: {row['stopped']}, {row['why']}" if "stopped" in row else ""), flush=True)


def stream(rows: int, memory: float) -> Found:
    """Files larger than one would like to hold in memory; read right after they were written, so from the cache."""
    with tempfile.TemporaryDirectory(prefix="lodekit-scaling-") as folder:
        if shutil.disk_usage(folder).free < 1.5 * 32 * rows:
            raise SystemExit(f"expected {48 * rows / 1e9:.0f} GB free in {folder}; set TMPDIR to another disk")
        start = time.perf_counter()
        write_files(Path(folder), rows)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        print(
            f"files: {rows:.0e} rows, {size / 1e9:.2f} GB, written in {time.perf_counter() - start:.0f} s", flush=True
        )
        found: Found = {"bytes": size}
        for name, pattern in (("tenth", "0-*.parquet"), ("whole", "*.parquet")):
            one = run_alone(partial(fit_files, f"{folder}/{pattern}"), 3600.0, memory)
            read = run_alone(partial(read_files, f"{folder}/{pattern}"), 3600.0, memory)
            found[name] = {**one, "rows_per_second": read["rows"] / read["seconds"], "pass_seconds": read["seconds"]}
            print(
                f"  {one['rows']:.0e} rows: fit {one['seconds']:.1f} s, {found[name]['rows_per_second'] / 1e6:.2f} "
                f"million rows/s in the pass, peak {one['before_mb'] + one['fit_mb']:.0f} MB "
                f"({one['fit_mb']:.0f} MB by the fit)"
            )
        per_row = (found["whole"]["seconds"] - found["tenth"]["seconds"]) / (0.9 * rows)
        found["billion_seconds"] = found["whole"]["seconds"] + per_row * (1e9 - rows)
        found["memory_ratio"] = found["whole"]["fit_mb"] / found["tenth"]["fit_mb"]
        print(f"  ten times the rows: {found['memory_ratio']:.2f} times the memory")
        print(f"  1e9 rows: ~{found['billion_seconds']:.0f} s (an extrapolation, not measured)")
    return found


def plot(found: Found, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows, limits = found["fits"], {"seconds": found["limit_seconds"], "fit_mb": found["memory_gb"] * 1e9 / MB}
    names = list(dict.fromkeys(row["method"] for row in rows))
    # Okabe and Ito: told apart by the colour-blind.
    looks = dict(
        zip(names, zip(("#D55E00", "#E69F00", "#0072B2", "#56B4E9", "#009E73"), "osD^v", strict=True), strict=False)
    )
    pyplot.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = pyplot.subplots(1, 2, figsize=(6.8, 3.1), layout="constrained")
    for panel, key, cause in zip(panels, limits, ("time", "memory"), strict=True):
        for name, (color, marker) in looks.items():
            own = [row for row in rows if row["method"] == name]
            done = [row for row in own if "seconds" in row]
            points, values = (
                [row["points"] for row in done],
                [max(row[key], 0.1 if key == "fit_mb" else 0) for row in done],
            )
            panel.plot(points, values, color=color, marker=marker, markersize=4, label=name, linewidth=1.4)
    figure.savefig(path, dpi=300)
