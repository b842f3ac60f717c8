"""Claims: a fit does not depend on the units of time and of the channels; and it finds what is there to be found.

Units: every system of the catalog is fitted to noisy data, and again in other units: the equations are rewritten
exactly, the data multiplied. Evidence (less the Jacobian) and parameters should be the same; the table shows how far
they are apart.

Optima: plants with random truths in random units are fitted without any start value, and again from the truth. A fit
that ends more than 0.1 of log evidence below the other is poor; a poor fit that does not say so is silent.

    python benchmarks/search.py [--only units|optima] [--plants NAME ...] [--seeds N] [--jobs N] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import lodekit as lk
import plants

#: A fit is poor that ends so far below one that starts at the truth, in log evidence.
POOR = 0.1
#: Factors of time, and of the channels in turn; ties between channels are kept, or not.
SCALINGS = (
    ("time 1e-9", Fraction(1, 10**9), (Fraction(1),), True),
    ("time 86400", Fraction(86400), (Fraction(1),), True),
    ("time 1e9", Fraction(10**9), (Fraction(1),), True),
    ("channels 1e-6, 1e6", Fraction(1), (Fraction(1, 10**6), Fraction(10**6)), True),
    ("all, consistently", Fraction(1, 10**9), (Fraction(10**6), Fraction(1, 1000)), True),
    ("all, each on its own", Fraction(10**9), (Fraction(10**6), Fraction(7, 10**6), Fraction(1, 300)), False),
)
#: Parameters that these data hardly tell, or not at all, are known: rounding would decide about them.
LEFT_OPEN = {"spring_mass_damper": ("m", "c"), "dc_motor": ("K",), "quarter_car": ("ms", "mu"), "cart_pendulum": ("m",)}


def in_other_units(
    example: lk.catalog.Example, unit: Fraction, factors: tuple[Fraction, ...], *, tied: bool
) -> tuple[lk.System, dict[str, Fraction], dict[str, Fraction]]:
    """Return the system for ``unit * t`` and for channels times factors, and the factors of channels and parameters."""
    system, dimensions = example.system, example.system.dimensions()
    scales = {"t": unit}
    for i, name in enumerate(system.channels):
        powers = dimensions.channels[name]
        is_base = not tied or powers == {name: 1}
        scales[name] = factors[i % len(factors)] if is_base else product(powers, scales)
    sizes = {name: product(dimensions[name], scales) for name in system.parameters}
    lines = []
    for i, known in enumerate(system.forcing):
        terms = [
            (str(value), unit**k / scales[name], f"D({name}, {k})" if k else name)
            for j, name in enumerate(system.channels)
            for k, value in enumerate(system.operator.coefficients(i, j))
            if value
        ]
        text = " + ".join(f"({rewrite(value, sizes)})*({factor})*{shape}" for value, factor, shape in terms)
        lines.append(f"{text} = {rewrite(str(known), {**sizes, 't': unit})}")
    parameters = {}
    for name, parameter in system.parameters.items():
        fixed = fixed_value(example, name)
        value = None if fixed is None else float(fixed * sizes[name])
        parameters[name] = lk.Parameter(positive=parameter.positive, fixed=value)
    return lk.System(lines, parameters=parameters, channels=system.channels), scales, sizes


def fixed_value(example: lk.catalog.Example, name: str) -> Fraction | None:
    """Return the true value of a parameter that these data leave open; None for others."""
    return example.values[name] if name in LEFT_OPEN.get(example.name, ()) else None


def product(powers: Mapping[str, Fraction], scales: Mapping[str, Fraction]) -> Fraction:
    total = Fraction(1)
    for name, power in powers.items():
        total *= scales.get(name, Fraction(1)) ** int(power)
    return total


def rewrite(text: str, sizes: Mapping[str, Fraction]) -> str:
    """Return an expression with every name divided by its factor."""
    return re.sub(r"[A-Za-z_]\w*", lambda m: f"({m[0]}/({sizes[m[0]]}))" if m[0] in sizes else m[0], text)


def fit(system: lk.System, times: Any, data: Any) -> tuple[lk.LODEGP, float]:
    start = time.perf_counter()
    gp = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data)
    return gp, time.perf_counter() - start


def compare(example: lk.catalog.Example, points: int, scalings: Any = SCALINGS) -> list[dict[str, Any]]:
    """Return, for each scaling, how far evidence and parameters are from those in the original units."""
    times = np.linspace(0.1, 8.1, points)
    exact = example.solution_at(times)
    noise = 0.02 * exact.std(axis=0) * np.random.default_rng(0).standard_normal(exact.shape)
    data = exact + noise
    system, *_ = in_other_units(example, Fraction(1), (Fraction(1),), tied=True)
    first, seconds = fit(system, times, data)
    rows = []
    for name, unit, factors, tied in scalings:
        other, scales, sizes = in_other_units(example, unit, factors, tied=tied)
        own = np.array([float(scales[channel]) for channel in other.channels])
        gp, elapsed = fit(other, times * float(unit), data * own)
        evidence = gp.log_evidence_ + points * float(np.log(own).sum())
        errors = {
            key: abs(gp.parameters_[key].value / float(sizes[key]) / estimate.value - 1)
            for key, estimate in first.parameters_.items()
            if estimate.identified and estimate.note != "fixed"
        }
        told = [gp.parameters_[key].identified == first.parameters_[key].identified for key in sizes]
        rows.append(
            {
                "system": example.name,
                "scaling": name,
                "evidence": abs(evidence - first.log_evidence_),
                "parameters": max(errors.values(), default=0.0),
                "same_identified": all(told),
                "identified": f"{len(errors)} of {sum(each.note != 'fixed' for each in first.parameters_.values())}",
                "seconds": elapsed,
                "seconds_first": seconds,
            }
        )
    return rows


def units(points: int) -> list[dict[str, Any]]:
    rows = []
    print(f"{'system':<20}{'scaling':<24}{'evidence off by':>16}{'parameters off by':>19}{'identified':>12}{'s':>7}")
    for example in lk.catalog.examples():
        for row in compare(example, points):
            rows.append(row)
            mark = "" if row["same_identified"] else "  DIFFERENT"
            print(
                f"{row['system']:<20}{row['scaling']:<24}{row['evidence']:>16.1e}{row['parameters']:>19.1e}"
                f"{row['identified']:>12}{row['seconds']:>7.2f}{mark}",
                flush=True,
            )
    worst = max(row["parameters"] for row in rows), max(row["evidence"] for row in rows)
    print(f"largest deviation: parameters {worst[0]:.1e} (required: 1e-6), evidence {worst[1]:.1e}")
    return rows


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
            if not told:
                found["said"] = "" if gp.converged_ else "; ".join(gp.warnings_)
                found["off"] = {
                    key: estimate.value / plant.truth[key] - 1
                    for key, estimate in gp.parameters_.items()
                    if estimate.identified and estimate.note != "fixed"
                }
    found["poor"] = not found["found"] > found["told"] - POOR
    return found


def optima(names: Sequence[str], seeds: int, jobs: int) -> list[dict[str, Any]]:
    """Return all fits, and print one line for each plant."""
    rows: list[dict[str, Any]] = []
    print(f"{'plant':<20}{'fits':>6}{'poor':>6}{'silent':>8}{'largest loss':>14}{'better':>8}{'s (median)':>12}")
    for name in names:
        fits = list(Parallel(n_jobs=jobs)(delayed(one)(name, seed) for seed in range(seeds)))
        poor = [fit for fit in fits if fit["poor"]]
        silent = sum(not fit["said"] for fit in poor)
        better = sum(fit["found"] > fit["told"] + POOR for fit in fits)
        worst = max((fit["told"] - fit["found"] for fit in fits), default=0.0)
        seconds = float(np.median([fit.get("found_seconds", math.nan) for fit in fits]))
        print(f"{name:<20}{len(fits):>6}{len(poor):>6}{silent:>8}{worst:>14.2f}{better:>8}{seconds:>12.2f}", flush=True)
        rows += fits
    poor = sum(row["poor"] for row in rows)
    print(f"poor optima: {poor} of {len(rows)} (required: 0 of 200 for each plant)")
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer measurements and fits")
    arguments.add_argument("--only", choices=["units", "optima"], help="one of the two tables")
    arguments.add_argument("--plants", nargs="+", default=list(plants.PLANTS), help="some of the plants")
    arguments.add_argument("--seeds", type=int, default=200, help="how many fits of each plant")
    arguments.add_argument("--jobs", type=int, default=1, help="how many processes")
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    options = arguments.parse_args()
    found: dict[str, Any] = {}
    if options.only != "optima":
        found["units"] = units(15 if options.quick else 30)
    if options.only != "units":
        found["optima"] = optima(options.plants, min(options.seeds, 5 if options.quick else 10**6), options.jobs)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
