"""Claim: returned curves satisfy the equations, with noise or without, by a measure that knows nothing of the model.

Every catalog system, 25 times; largest relative residual of mean and samples, its uncertainty, and how long the
certificate takes beside the fit. Also what the matrix alone would leave, where waves answer instead.

    python benchmarks/certificate.py [--json FILE] [--noise LEVEL ...]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.inference.fallback import FallbackPosterior
from lodekit.results.certificate import compute_mean_residuals


def one(example: lk.catalog.Example, noise: float) -> dict[str, Any]:
    times = np.linspace(-5.0, 5.0, 25) if example.name == "heating" else np.linspace(1.0, 6.0, 25)
    table = example.solution_at(times)
    table = table + noise * table.std(axis=0) * np.random.default_rng(0).standard_normal(table.shape)
    start = time.perf_counter()
    gp = lk.LODEGP(example.system, noise="channel", random_state=0).fit(times, table)
    fitted = time.perf_counter()
    found = gp.certificate()
    done = time.perf_counter()
    posterior = gp.fit_.posterior
    alone = None
    if isinstance(posterior, FallbackPosterior):
        alone = compute_mean_residuals(replace(gp.fit_, posteriors={"0": posterior.primary})).residual
    return {
        "system": example.name,
        "noise": noise,
        "mean": found.mean.residual,
        "samples": None if found.samples is None else found.samples.residual,
        "uncertainty": found.uncertainty,
        "matrix alone": alone,
        "certificate/fit": (done - fitted) / (fitted - start),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.2, 0.02, 1e-3, 0.0])
    parser.add_argument("--systems", nargs="+", help="names in the catalog; all by default")
    options = parser.parse_args()
    rows = []
    print(f"{'system':20} {'noise':>6} {'mean':>8} {'samples':>8} {'± by':>8} {'matrix':>8} {'time/fit':>8}")
    with threadpool_limits(1, user_api="blas"):
        for noise in options.noise:
            for example in lk.catalog.examples():
                if options.systems and example.name not in options.systems:
                    continue
                row = one(example, noise)
                rows.append(row)
                cells = [row[key] for key in ("mean", "samples", "uncertainty", "matrix alone")]
                shown = " ".join(f"{value:8.1e}" if value is not None else f"{'':8}" for value in cells)
                print(f"{row['system']:20} {noise:6g} {shown} {row['certificate/fit']:8.2f}", flush=True)
    largest = {noise: max(row["mean"] for row in rows if row["noise"] == noise) for noise in options.noise}
    print(
        "largest residual of a mean:", ", ".join(f"{value:.1e} at noise {noise:g}" for noise, value in largest.items())
    )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
