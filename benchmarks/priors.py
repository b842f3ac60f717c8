"""Claim: which prior is the better default, that on free functions (the paper's) or that on channels.

Every catalog system, many noisy data sets each: log evidence, log density of held-out measurements between the data,
root mean square error beyond the data (in units of the channels' spread), error of the parameters, seconds of a fit,
and seconds of a prediction at 1000 times with deviations. A second table has the ratios of both times.

    python benchmarks/priors.py [--json FILE] [--seeds N] [--jobs N] [--systems NAME ...]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import lodekit as lk

PRIORS = ("latent", "channels")
COUNT, NOISE = 30, 0.05


def one(name: str, seed: int) -> list[dict[str, Any]]:
    example = {item.name: item for item in lk.catalog.examples()}[name]
    generator = np.random.default_rng(seed)
    # Data over a window of ten, held-out points between them, and a fifth of the window beyond.
    times = np.sort(generator.uniform(0.0, 10.0, 2 * COUNT))
    beyond = np.linspace(10.0, 12.0, 21)[1:]
    truth = example.solution_at(times)
    spread = np.maximum(truth.std(axis=0), 1e-9 * np.abs(truth).max() + 1e-300)
    noise = NOISE * spread
    table = truth + noise * generator.standard_normal(truth.shape)
    learn, hold = np.arange(0, 2 * COUNT, 2), np.arange(1, 2 * COUNT, 2)
    found = []
    for prior in PRIORS:
        row: dict[str, Any] = {"system": name, "seed": seed, "prior": prior}
        try:
            with threadpool_limits(1, user_api="blas"):
                start = time.perf_counter()
                gp = lk.LODEGP(example.system, prior=prior, noise="channel", random_state=seed)
                gp.fit(times[learn], table[learn])
                row["fit"] = time.perf_counter() - start
                start = time.perf_counter()
                gp.predict(np.linspace(0.0, 12.0, 1000), return_std=True)
                row["predict"] = time.perf_counter() - start
                # Densities are compared in units of the channels' spread.
                row["evidence"] = gp.log_evidence_ + float(np.sum(np.log(spread))) * len(learn)
                row["held_out"] = gp.score(times[hold], table[hold]) + float(np.mean(np.log(spread)))
                error = (gp.predict(beyond) - example.solution_at(beyond)) / spread
                row["beyond"] = float(np.sqrt(np.mean(error**2)))
                errors = [
                    abs(gp.parameters_[key].value / float(value) - 1.0)
                    for key, value in example.values.items()
                    if float(value)
                ]
                row["parameters"] = float(np.median(errors)) if errors else None
        except lk.LodekitError as problem:
            row["failed"] = str(problem)
        found.append(row)
    return found


def medians(rows: list[dict[str, Any]], name: str, prior: str, key: str) -> float:
    values = [row[key] for row in rows if row["system"] == name and row["prior"] == prior and row.get(key) is not None]
    return float(np.median(values)) if values else float("nan")


def wins(rows: list[dict[str, Any]], name: str, key: str, sign: float) -> str:
    """In how many data sets the channel prior is the better one."""
    pairs: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["system"] == name and row.get(key) is not None:
            pairs.setdefault(row["seed"], {})[row["prior"]] = row[key]
    both = [pair for pair in pairs.values() if len(pair) == len(PRIORS)]
    better = sum(1 for pair in both if sign * (pair["channels"] - pair["latent"]) > 0)
    return f"{better}/{len(both)}" if both else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--systems", nargs="+", default=[item.name for item in lk.catalog.examples()])
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    columns = (("evidence", 1.0), ("held_out", 1.0), ("beyond", -1.0), ("parameters", -1.0), ("fit", -1.0))
    print(f"{'median: latent, channels (wins)':20}" + "".join(f"{key:>28}" for key, _ in columns))
    for name in arguments.systems:
        parts = Parallel(n_jobs=arguments.jobs)(delayed(one)(name, seed) for seed in range(arguments.seeds))
        rows += [row for part in parts for row in part]
        cells = [
            f"{medians(rows, name, 'latent', key):10.4g} {medians(rows, name, 'channels', key):9.4g} "
            f"{wins(rows, name, key, sign):>6}"
            for key, sign in columns
        ]
        failed = sum(1 for row in rows if row["system"] == name and "failed" in row)
        print(f"{name:20}" + " ".join(cells) + (f"  {failed} failed" if failed else ""), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    print_times(rows, arguments.systems)


def print_times(rows: list[dict[str, Any]], names: list[str]) -> None:
    """Medians of both times under both priors, and the medians of their ratios within a data set."""
    print(f"\n{'median seconds':20}" + "".join(f"{key:>34}" for key in ("fit: latent, channels, ratio", "predict")))
    for name in names:
        cells = []
        for key in ("fit", "predict"):
            pairs: dict[int, dict[str, float]] = {}
            for row in rows:
                if row["system"] == name and key in row:
                    pairs.setdefault(row["seed"], {})[row["prior"]] = row[key]
            ratios = [pair["channels"] / pair["latent"] for pair in pairs.values() if len(pair) == len(PRIORS)]
            ratio = float(np.median(ratios)) if ratios else float("nan")
            cells.append(
                f"{medians(rows, name, 'latent', key):14.3f} {medians(rows, name, 'channels', key):9.3f}{ratio:9.1f}"
            )
        print(f"{name:20}" + " ".join(cells))


if __name__ == "__main__":
    main()
