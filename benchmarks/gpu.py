"""Claim: on a GPU the dense evidence with its gradient costs at most four bare Cholesky factorizations.

Also the largest data that fits, and the same on the CPU. Without PyTorch or a CUDA device only the CPU part runs.

    python benchmarks/gpu.py [--json FILE] [--rows N ...] [--cpu-rows N ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import time
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
from lodekit.inference.dense import DenseEngine
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.dense.torch_evidence import evaluate_on_device
from lodekit.inference.fallback import FallbackEngine
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
HYPER = Hyperparameters(np.array([3.0, 1.0]), np.array([0.4]), np.array([1.0]), np.zeros(0), np.array([0.02]))


def heating_measurements(rows: int) -> tuple[lk.System, Measurements]:
    times = np.linspace(-5, 5, rows // 3)
    generator = np.random.default_rng(0)
    table = np.exp(-0.1 * times**2)[:, None] * np.ones(3) + 0.02 * generator.standard_normal((len(times), 3))
    system = lk.catalog.heating().system
    data = Observations()
    for channel, column in zip(system.channels, table.T, strict=True):
        data = data.add(times, channel, column)
    return system, Measurements.from_observations(data)


def heating_data(rows: int) -> DenseData:
    # The device is the CPU only so that no number of rows is refused; HYPER has one noise level for all channels.
    engine = build_setup(*heating_setup(rows, engine="dense", device="cpu", noise="shared")).engine
    dense = engine.primary if isinstance(engine, FallbackEngine) else engine
    assert isinstance(dense, DenseEngine)
    return dense.data


def heating_setup(rows: int, **options: Any) -> tuple[lk.System, FitSettings, Measurements]:
    system, measurements = heating_measurements(rows)
    return system, FitSettings(**options), measurements


def best(run: Callable[[], Any], wait: Callable[[], None], times: int) -> float:
    found = np.inf
    for _ in range(times):
        wait()
        start = time.perf_counter()
        run()
        wait()
        found = min(found, time.perf_counter() - start)
    return float(found)


def on_gpu(rows: int, repeats: int = 3) -> dict[str, float]:
    import torch

    device = torch.device("cuda")
    data = heating_data(rows)
    size = data.size
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    whole = best(lambda: evaluate_on_device(data, HYPER, device), torch.cuda.synchronize, repeats)
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    times = torch.arange(size, dtype=torch.float64, device=device)
    matrix = torch.exp(-0.5 * (times[:, None] - times[None, :]).abs_())
    matrix.diagonal().add_(1.0)
    bare = best(partial(torch.linalg.cholesky_ex, matrix), torch.cuda.synchronize, repeats)
    return {
        "rows": size,
        "cholesky_seconds": bare,
        "evaluation_seconds": whole,
        "ratio": whole / bare,
        "peak_matrices": peak / (8.0 * size * size),
    }


def largest(start: int) -> dict[str, float]:
    """Return the largest data that fits, to a tenth."""
    import torch

    rows, found = start, {}
    while True:
        try:
            found = on_gpu(rows, 1)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return found
        rows = int(1.1 * rows)


def on_cpu(rows: int) -> dict[str, float]:
    data = heating_data(rows)
    half = np.random.default_rng(0).standard_normal((data.size, 50))
    matrix = np.asfortranarray(half @ half.T + data.size * np.eye(data.size))
    with threadpool_limits(2, user_api="blas"):
        bare = best(lambda: lapack.dpotrf(matrix, lower=1, overwrite_a=0, clean=0), lambda: None, 2)
        whole = best(lambda: DenseEngine(data).evaluate(HYPER), lambda: None, 2)
    return {"rows": data.size, "cholesky_seconds": bare, "evaluation_seconds": whole, "ratio": whole / bare}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[3000, 10_000, 30_000])
    parser.add_argument("--cpu-rows", type=int, nargs="+", default=[3000, 12_000])
    arguments = parser.parse_args()
    found: dict[str, Any] = {"machine": platform.machine(), "gpu": [], "cpu": []}
    if importlib.util.find_spec("torch") and (torch := importlib.import_module("torch")).cuda.is_available():
        found["torch"] = torch.__version__
        found["device"] = torch.cuda.get_device_name()
        print(f"{found['device']}, torch {torch.__version__}")
        print(f"{'rows':>8} {'Cholesky':>10} {'evidence':>10} {'ratio':>6} {'memory':>8}")
        for rows in arguments.rows:
            found["gpu"].append(on_gpu(rows))
            show(found["gpu"][-1])
        found["largest"] = largest(60_000)
        show(found["largest"])
    print("two CPU cores")
    for rows in arguments.cpu_rows:
        found["cpu"].append(on_cpu(rows))
        show(found["cpu"][-1])
    if found["gpu"]:
        cpu, gpu = found["cpu"][-1], found["gpu"][-1]
        # Both grow with the cube of the rows.
        scaled = cpu["evaluation_seconds"] * (gpu["rows"] / cpu["rows"]) ** 3
        found["speedup"] = scaled / gpu["evaluation_seconds"]
        print(f"at {gpu['rows']} rows: {found['speedup']:.0f} times two CPU cores (extrapolated from {cpu['rows']})")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def show(row: dict[str, float]) -> None:
    memory = f"{row['peak_matrices']:8.2f}" if "peak_matrices" in row else ""
    seconds = f"{row['cholesky_seconds']:10.4f} {row['evaluation_seconds']:10.4f}"
    print(f"{row['rows']:8.0f} {seconds} {row['ratio']:6.2f} {memory}")


if __name__ == "__main__":
    main()
