"""Claim: a search finds what is there to be found, whatever the truth and the units.

Plants with random truths in random units (`plants.py`) are fitted without any start value, and again from the truth. A
fit that ends more than 0.1 of log evidence below the other is poor; a poor fit that does not say so is silent.

A second table has plants whose dynamics are much faster than the window, such as 200 oscillations in 1000 rows: each
fit takes some 20 seconds, so there are few of them, and the search from the truth starts with all else as it was found;
a whole fit from there would take minutes. It shows how much of the data the curves explain, too: searches that start
from what is slow end where everything is noise.

    python benchmarks/search.py [--plants NAME ...] [--seeds N] [--jobs N] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import lodekit as lk
import plants
from lodekit.fitting.lbfgs import maximize_lbfgs
from lodekit.results.fit import Fit

#: A fit is poor that ends so far below one that starts at the truth, in log evidence.
POOR = 0.1
#: Plants of the second table, and how many fits of each there are at most.
FAST, FEW = ("fast",), 20


def one(name: str, seed: int) -> dict[str, Any]:
    """Return how a fit without start values compares with one that starts at the truth."""
    plant = plants.make(name, seed)
    found: dict[str, Any] = {"plant": name, "seed": seed, "said": ""}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for told in (False, True):
            key, start = ("told" if told else "found"), time.process_time()
            gp = lk.LODEGP(plant.system(told=told), noise="channel", random_state=seed)
            try:
                gp.fit(plant.observations())
            except lk.LodekitError as problem:
                found |= {key: -math.inf, "said": str(problem)}
                continue
            found |= {key: gp.fit_.optimum.value, f"{key}_seconds": time.process_time() - start}
            if told:
                continue
            found["explained"] = min(gp.fit_.diagnosis.explained_variance.values(), default=math.nan)
            found["said"] = "" if gp.converged_ else "; ".join(gp.warnings_)
            found["off"] = {
                key: estimate.value / plant.truth[key] - 1
                for key, estimate in gp.parameters_.items()
                if estimate.identified and estimate.note != "fixed"
            }
            if name in FAST:
                start = time.process_time()
                found["told"] = from_truth(gp.fit_, plant.truth)
                found["told_seconds"] = time.process_time() - start
                break
    found["loss"] = found["told"] - found["found"]
    found["poor"] = not found["loss"] < POOR
    return found


def from_truth(fit: Fit, truth: Mapping[str, float]) -> float:
    """Return where a search ends that starts at the true parameters, with all else as a fit has found it."""
    x, layout = fit.optimum.x.copy(), fit.layout
    for position, number in enumerate(layout.free_parameters):
        x[position] = layout.transforms[number].inverse(truth[layout.names[number]])
    return maximize_lbfgs(fit.setup.objective, x).value


def optima(names: Sequence[str], seeds: int, jobs: int) -> list[dict[str, Any]]:
    """Return all fits, and print one line for each plant."""
    rows: list[dict[str, Any]] = []
    print(f"{'plant':<20}{'fits':>6}{'poor':>6}{'silent':>8}{'largest loss':>14}{'better':>8}{'s (median)':>12}")
    for name in names:
        fits = list(Parallel(n_jobs=jobs)(delayed(one)(name, seed) for seed in range(seeds)))
        poor = [fit for fit in fits if fit["poor"]]
        silent = sum(not fit["said"] for fit in poor)
        better = sum(fit["found"] > fit["told"] + POOR for fit in fits)
        worst = max((fit["loss"] for fit in fits), default=0.0)
        seconds = float(np.median([fit.get("found_seconds", math.nan) for fit in fits]))
        print(f"{name:<20}{len(fits):>6}{len(poor):>6}{silent:>8}{worst:>14.2f}{better:>8}{seconds:>12.2f}", flush=True)
        rows += fits
    poor = sum(row["poor"] for row in rows)
    print(f"poor optima: {poor} of {len(rows)} (required: 0 of 200 for each plant)")
    return rows


def fast(names: Sequence[str], seeds: int, jobs: int) -> list[dict[str, Any]]:
    """Return fits of plants much faster than their window, and print one line for each plant."""
    rows: list[dict[str, Any]] = []
    print(f"{'fast dynamics':<20}{'fits':>6}{'poor':>6}{'largest loss':>14}{'explained':>11}{'s (median, most)':>20}")
    for name in names:
        fits = list(Parallel(n_jobs=jobs)(delayed(one)(name, seed) for seed in range(seeds)))
        worst = max((fit["loss"] for fit in fits), default=0.0)
        least = min((fit.get("explained", 0.0) for fit in fits), default=math.nan)
        seconds = [fit.get("found_seconds", math.nan) for fit in fits]
        poor = sum(fit["poor"] for fit in fits)
        times = f"{np.median(seconds):.1f}, {np.max(seconds):.1f}"
        print(f"{name:<20}{len(fits):>6}{poor:>6}{worst:>14.2f}{least:>11.1%}{times:>20}", flush=True)
        rows += fits
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer fits")
    arguments.add_argument("--plants", nargs="+", default=list(plants.PLANTS), help="some of the plants")
    arguments.add_argument("--seeds", type=int, default=200, help="how many fits of each plant")
    arguments.add_argument("--jobs", type=int, default=1, help="how many processes")
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    options = arguments.parse_args()
    seeds = min(options.seeds, 5) if options.quick else options.seeds
    rows = optima([name for name in options.plants if name not in FAST], seeds, options.jobs)
    rows += fast([name for name in options.plants if name in FAST], min(seeds, FEW), options.jobs)
    if options.json:
        options.json.write_text(json.dumps({"optima": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
