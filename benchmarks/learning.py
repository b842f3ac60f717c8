"""Claim: learning finds the good optimum every time, parameters are accurate, and their intervals cover the truth.

Simulated data with the noise of the paper. Every line prints what is required beside what was measured.

    python benchmarks/learning.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lodekit as lk

Array = NDArray[np.float64]


def fit(example: lk.catalog.Example, times: Array, noise: float, seed: int) -> tuple[lk.LODEGP, Array, float]:
    exact = example.solution_at(times)
    data = exact + noise * np.random.default_rng(seed).standard_normal(exact.shape)
    start = time.perf_counter()
    gp = lk.LODEGP(example.system, noise="shared", random_state=seed).fit(times, data)
    return gp, exact, time.perf_counter() - start


def rmse(gp: lk.LODEGP, example: lk.catalog.Example, times: Array) -> float:
    """The error against the exact solution at 1000 points of the training interval."""
    dense = np.linspace(times[0], times[-1], 1000)
    return float(np.sqrt(np.mean((gp.predict(dense) - example.solution_at(dense)) ** 2)))


def optima(name: str, example: lk.catalog.Example, times: Array, noise: float, seeds: int) -> dict[str, Any]:
    losses, errors, seconds = [], [], []
    for seed in range(seeds):
        gp, exact, elapsed = fit(example, times, noise, seed)
        losses.append(-gp.log_evidence_ / exact.size)
        errors.append(rmse(gp, example, times))
        seconds.append(elapsed)
    return {
        "system": name,
        "seeds": seeds,
        "loss_worst": max(losses),
        "loss_median": float(np.median(losses)),
        "rmse_worst": max(errors),
        "rmse_median": float(np.median(errors)),
        "seconds_median": float(np.median(seconds)),
    }


def coverage(name: str, example: lk.catalog.Example, times: Array, noise: float, seeds: int) -> dict[str, Any]:
    inside: dict[str, int] = dict.fromkeys(example.values, 0)
    errors: dict[str, list[float]] = {key: [] for key in example.values}
    for seed in range(seeds):
        gp, _, _ = fit(example, times, noise, 1000 + seed)
        for key, value in example.values.items():
            low, high = gp.parameters_[key].interval
            inside[key] += low < float(value) < high
            errors[key].append(abs(gp.parameters_[key].value / float(value) - 1))
    return {
        "system": name,
        "seeds": seeds,
        "coverage": {key: count / seeds for key, count in inside.items()},
        "median_relative_error": {key: float(np.median(values)) for key, values in errors.items()},
    }


def hidden_room(seeds: int) -> dict[str, Any]:
    """Two rooms: ambient temperature and one exchange coefficient unknown, the second room never observed."""
    example, times = lk.catalog.two_room(), np.linspace(0, 60, 80)
    exact = example.solution_at(times)
    parameters = {
        "a": lk.Parameter(positive=True),
        "b": lk.Parameter(fixed=0.1),
        "c": lk.Parameter(fixed=0.2),
        "Ta": lk.Parameter(),
    }
    system = lk.System(list(example.system.equations), parameters=parameters, channels=example.system.channels)
    inside, errors, hidden = 0, [], []
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        data = {name: exact[:, j] + 0.05 * generator.standard_normal(80) for j, name in ((0, "T1"), (2, "q"))}
        gp = lk.LODEGP(system, noise="shared", random_state=seed).fit(times, data)
        low, high = gp.parameters_["Ta"].interval
        inside += low < 8.0 < high
        errors.append(abs(gp.parameters_["Ta"].value - 8.0))
        hidden.append(float(np.sqrt(np.mean((gp.predict(times, "T2") - exact[:, 1]) ** 2))))
    return {
        "system": "two rooms, one unobserved",
        "seeds": seeds,
        "coverage_Ta": inside / seeds,
        "median_error_Ta": float(np.median(errors)),
        "median_rmse_hidden_room": float(np.median(hidden)),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a few seeds only")
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    arguments.add_argument("--seeds", type=int, help="how many data sets of each kind")
    options = arguments.parse_args()
    few, many = (options.seeds, options.seeds) if options.seeds else (3, 10) if options.quick else (20, 200)
    rows = []
    for name, example, times, noise, wanted in (
        ("bipendulum", lk.catalog.bipendulum(), np.linspace(1, 6, 25), 0.012, "loss < -2.0 and RMSE < 0.012 in all"),
        ("heating", lk.catalog.heating(), np.linspace(-5, 5, 25), 0.02, ""),
        ("three tank", lk.catalog.three_tank(), np.linspace(1, 6, 25), 0.08, "median RMSE at most 0.023"),
    ):
        row = optima(name, example, times, noise, few)
        rows.append(row)
        print(
            f"{name:<12} {few} seeds: loss worst {row['loss_worst']:.3f}, median {row['loss_median']:.3f}; RMSE worst "
            f"{row['rmse_worst']:.4f}, median {row['rmse_median']:.4f}; {row['seconds_median']:.2f} s a fit  {wanted}",
            flush=True,
        )
    for name, example, times, noise, wanted in (
        ("heating", lk.catalog.heating(), np.linspace(-5, 5, 25), 0.02, "within 3 %; coverage 90 to 99 %"),
        ("free decay", lk.catalog.free_decay(), np.linspace(0, 8, 40), 0.02, ""),
    ):
        row = coverage(name, example, times, noise, many)
        rows.append(row)
        shown = "; ".join(
            f"{key}: error {100 * row['median_relative_error'][key]:.2f} %, coverage {100 * row['coverage'][key]:.1f} %"
            for key in example.values
        )
        print(f"{name:<12} {many} seeds: {shown}  {wanted}", flush=True)
    row = hidden_room(few)
    rows.append(row)
    print(
        f"two rooms, one unobserved, {few} seeds: Ta off by {row['median_error_Ta']:.2f} in the median, coverage "
        f"{100 * row['coverage_Ta']:.0f} %, hidden room RMSE {row['median_rmse_hidden_room']:.3f}"
    )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
