"""Claim: bands and intervals hold the truth as often as they say, inside the data and beyond them.

Catalog systems, 30 times, noise of 5 % of the spread of each channel, many data sets. For each system: how often bands
hold the truth, with the uncertainty of all that was learned and without it, and how often the intervals of the
parameters do; the mean log density of new measurements beside it, which decides what `score` counts.

The truth is the exact solution of the catalog, one for all data sets; with --truth drawn it is another draw from the
prior for each. A model can promise coverage over the latter only. Parameters that the exact solution leaves open, to
first order, are marked.

    python benchmarks/calibration.py [--seeds N] [--jobs N] [--systems NAME ...] [--truth catalog|drawn] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import sympy
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import norm
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.prior.equations import equation_terms
from lodekit.simulation import simulate

Array = NDArray[np.float64]
#: Where each system shows what it does: some periods, or a few times the slowest decay.
WINDOWS = {
    "heating": (-5.0, 5.0),
    "free_decay": (0.0, 8.0),
    "shaken_oscillator": (0.0, 12.0),
    "spring_mass_damper": (0.0, 10.0),
    "two_mass": (0.0, 12.0),
    "coupled_tanks": (0.0, 12.0),
    "compartments": (0.0, 12.0),
    "two_room": (0.0, 40.0),
}
SHARES = (0.5, 0.95, 0.99)
TIMES, NOISE = 30, 0.05


def find(name: str) -> lk.catalog.Example:
    example = lk.catalog.find_example(name)
    assert example is not None, name
    return example


def open_parameters(example: lk.catalog.Example) -> list[str]:
    """Return parameters that can move, perhaps with others, without any change of what the solution leaves over."""
    if not example.values:
        return []
    terms, t = equation_terms(example.system), sympy.Symbol("t")
    times = np.linspace(*WINDOWS.get(example.name, (1.0, 6.0)), 200)
    channels = example.system.channels
    columns = [
        sympy.lambdify(t, example.solution[channels[j]].diff(t, k), "numpy")(times) for j, k in terms.derivatives
    ]
    values = np.stack([np.broadcast_to(column, times.shape) for column in columns], axis=1)[None].astype(float)
    theta = np.array([float(value) for value in example.values.values()])
    # Equations are of low degree in the parameters: a step of one part in a thousand is accurate enough.
    sides = [
        [terms.residual(theta * (1 + h * unit), times, values, relative=False).ravel() for h in (1e-3, -1e-3)]
        for unit in np.eye(len(theta))
    ]
    slopes = np.stack([above - below for above, below in sides], axis=1)
    _, sizes, directions = np.linalg.svd(slopes / np.linalg.norm(slopes, axis=0), full_matrices=False)
    flat = directions[sizes < 1e-6 * sizes[0]]
    return [
        key for key, moves in zip(example.values, np.abs(flat).max(axis=0, initial=0.0), strict=True) if moves > 0.01
    ]


def one(name: str, seed: int, truth_from: str) -> dict[str, Any]:
    """Return how often bands and intervals of one fit hold the truth."""
    example = find(name)
    first, last = WINDOWS.get(name, (1.0, 6.0))
    grids = {"inside": np.linspace(first, last, 41), "beyond": np.linspace(last, last + 0.25 * (last - first), 12)}
    times = np.linspace(first, last, TIMES)
    whole = np.concatenate([times, *grids.values()])
    if truth_from == "catalog":
        solution = example.solution_at(whole)
    else:
        values = {key: float(value) for key, value in example.values.items()}
        length = (last - first) / 5
        solution = simulate(example.system, whole, values, lengthscale=length, random_state=seed)[0]
    exact, *truths = np.split(solution, np.cumsum([TIMES, len(grids["inside"])]))
    noise = NOISE * exact.std(axis=0)
    generator = np.random.default_rng(seed)
    with threadpool_limits(1, user_api="blas"):
        data = exact + noise * generator.standard_normal(exact.shape)
        gp = lk.LODEGP(example.system, noise="channel", random_state=seed).fit(times, data)
        found: dict[str, Any] = {"system": name, "seed": seed, "converged": gp.converged_, "warnings": gp.warnings_}
        for (place, grid), truth in zip(grids.items(), truths, strict=True):
            new = truth + noise * generator.standard_normal(truth.shape)
            levels = np.array([gp.noise_[channel] for channel in example.system.channels])
            for parameters in ("uncertain", "fixed"):
                mean, std = gp.predict(grid, return_std=True, parameters=parameters)
                far = np.abs(truth - mean) / np.maximum(std, 1e-300)
                held = [float(np.mean(far < norm.ppf(0.5 + 0.5 * share))) for share in SHARES]
                density = float(np.mean(norm.logpdf(new, mean, np.hypot(std, levels))))
                found[f"{place}, {parameters}"] = [*held, density]
        found["intervals"] = {
            key: estimate.interval[0] < float(example.values[key]) < estimate.interval[1]
            if (estimate := gp.parameters_[key]).identified
            else None
            for key in example.values
        }
        found["errors"] = {
            key: (estimate.value - float(example.values[key])) / estimate.std_error
            for key, estimate in gp.parameters_.items()
            if estimate.identified and estimate.std_error > 0
        }
    return found


def summarise(name: str, fits: list[dict[str, Any]], truth_from: str) -> dict[str, Any]:
    """Return the means over all data sets of a system."""
    unknown = open_parameters(find(name)) if truth_from == "catalog" else []
    bands = {key: np.mean([fit[key] for fit in fits], axis=0).tolist() for key in fits[0] if ", " in key}
    intervals = {}
    for key in fits[0]["intervals"]:
        known = [fit["intervals"][key] for fit in fits if fit["intervals"][key] is not None]
        errors = [fit["errors"][key] for fit in fits if key in fit["errors"]]
        intervals[key] = {
            "coverage": float(np.mean(known)) if known else None,
            "identified": len(known),
            "bias": float(np.median(errors)) if errors else None,
            "open": key in unknown,
        }
    return {"system": name, "truth": truth_from, "seeds": len(fits), "bands": bands, "intervals": intervals}


def show(row: dict[str, Any]) -> None:
    for place in ("inside", "beyond"):
        cells = []
        for parameters in ("uncertain", "fixed"):
            *held, density = row["bands"][f"{place}, {parameters}"]
            cells.append(" ".join(f"{100 * share:5.1f}" for share in held) + f" {density:8.3f}")
        print(f"{row['system']:20} {place:7} {cells[0]}   {cells[1]}", flush=True)
    for key, item in row["intervals"].items():
        left_open = ", which the exact solution leaves open" if item["open"] else ""
        if item["coverage"] is None:
            print(f"  {key:5} not identified in any data set{left_open}", flush=True)
            continue
        note = "" if item["identified"] == row["seeds"] else f", identified in {item['identified']} of {row['seeds']}"
        bias = item["bias"]
        print(
            f"  {key:5} {100 * item['coverage']:5.1f} %, off by {bias:+.2f} standard errors{note}{left_open}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="how many data sets of each system")
    parser.add_argument("--jobs", type=int, default=1, help="how many fits at the same time")
    parser.add_argument("--systems", nargs="+", help="names in the catalog; all by default")
    parser.add_argument("--truth", choices=("catalog", "drawn"), default="catalog", help="where true curves come from")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    names = options.systems or [example.name for example in lk.catalog.examples()]
    print(f"{'':28} {'all that was learned uncertain':26}   at the learned values")
    print(f"{'system':20} {'':7} {'50 %':>5} {'95 %':>5} {'99 %':>5} {'density':>8}   50 %  95 %  99 %  density")
    rows = []
    for name in names:
        fits = Parallel(n_jobs=options.jobs)(delayed(one)(name, seed, options.truth) for seed in range(options.seeds))
        rows.append(summarise(name, list(fits), options.truth))
        show(rows[-1])
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
