"""Claim: plants that known inputs drive are fitted from nothing, as well as by hand-made least squares, and fast.

records     Real records (lamp, TCLab, school heating), where their folder exists: beside least-squares simulations.
kinds       Hold or linear, chosen by evidence: right in at least 95 of 100 simulated records.
delays      200 step tests with a dead time of 2.3 samples: intervals hold the truth in 90 to 98 %.
nested      200 records, dead times of 0 to 3 samples, 500 to 5000 rows, with and without disturbances: no fit of four
            seeds ends below the same model without a dead time, or below the best of 20 starts.
compartments  200 data sets after a dose, one or two compartments with exact initial values, 7 to 14 measurements: none
            explains nothing or misses the optimum of a search from the truth; intervals hold the truth in 92 to 97 %.
plants      Random plants of 2 to 5 states with a hidden one: the optimum of a search that starts at the truth is found
            from nothing in at least 95 %, and intervals hold the truth in 90 to 98 %.
speed       From nothing to a summary: 1000 rows, second order, offset and dead time, below 2 s; a million rows, below a
            minute, with the values of least squares by `scipy.signal.lfilter`; nothing stays from an earlier fit.
evaluation  The log evidence with its gradient, 100 000 regular rows: at most 20 times the time of `lfilter`.
response    The response with its gradient costs a few times what `scipy.signal.lfilter` costs over the same arrays.

Times are of the processor: other work on the machine does not count.

    python benchmarks/greybox.py [--part PART ...] [--seeds N] [--largest N] [--jobs N] [--folder FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter, ss2tf

from greybox_plants import print_compartments, print_delays, print_kinds, print_nested, print_plants
from greybox_records import print_records
from greybox_speed import best, print_evaluations, print_speed
from lodekit.data.inputs import HoldType, InputSignal
from lodekit.prior.input_response.response import ResponsePlan, StateMatrices, StateSpaceResponse
from lodekit.support.threads import single_threaded_blas

STEP = 0.1
#: Two of four states are seen: a chain of lags with a little feedback.
F = np.array([[-1.0, 0.2, 0.0, 0.1], [0.8, -0.5, 0.1, 0.0], [0.0, 1.0, -2.0, 0.3], [0.0, 0.0, 0.5, -0.2]])
PLANT = StateMatrices(F, np.array([[1.0], [0.0], [0.5], [0.0]]), np.eye(4)[2:], *np.zeros((2, 2, 1)))
PARAMETERS = 8


def response_ratio(rows: int, kind: HoldType, grid: str) -> dict[str, Any]:
    """Time values and gradient on a grid: regular, with a delay that moves at each evaluation, or irregular."""
    generator = np.random.default_rng(0)
    times = STEP * np.arange(rows)
    signal = InputSignal(times, generator.standard_normal(rows), kind)
    asked = np.sort(times + generator.uniform(-0.4, 0.4, rows) * STEP) if grid == "irregular" else times
    plan = ResponsePlan([signal], asked, asked[0])
    weights = generator.standard_normal((2, rows))
    slopes = StateMatrices(*(generator.standard_normal((PARAMETERS, *part.shape)) for part in vars(PLANT).values()))
    delays = iter(2.3 * STEP + 1e-6 * np.arange(1000.0))

    def evaluate() -> None:
        delay = np.array([next(delays)]) if grid == "delay" else None
        response = StateSpaceResponse(plan, PLANT, delay)
        assert response.values.shape == (2, rows)
        response.gradient(weights, slopes, None if delay is None else np.ones((PARAMETERS, 1)))

    numerators, denominator = ss2tf(PLANT.F, PLANT.G, PLANT.H, PLANT.D)
    poles = np.poly(np.exp(STEP * np.roots(denominator)))

    def filter_both() -> None:
        for numerator in numerators:
            lfilter(numerator, poles, signal.values)

    repeats = max(3, min(20, 2_000_000 // rows))
    evaluate()
    bare, whole = best(filter_both, repeats), best(evaluate, repeats)
    return {"rows": rows, "kind": kind, "grid": grid, "lfilter_seconds": bare, "seconds": whole, "ratio": whole / bare}


def print_responses(largest: int) -> list[dict[str, Any]]:
    print(
        f"response with gradient in {PARAMETERS} parameters, 4 states, 2 outputs, 1 input; lfilter of order 4 twice = 1"
    )
    found = []
    with single_threaded_blas():
        for rows in sorted({min(rows, largest) for rows in (1_000, 10_000, 100_000, 1_000_000)}):
            for grid in ("regular", "delay", "irregular"):
                for kind in ("hold", "linear"):
                    line = response_ratio(rows, kind, grid)
                    found.append(line)
                    print(
                        f"{rows:>8} rows, {grid:<9} {kind:<6}: {1e3 * line['seconds']:8.2f} ms = {line['ratio']:6.1f} "
                        f"times lfilter, {1e9 * line['seconds'] / rows:7.0f} ns a row",
                        flush=True,
                    )
    return found


PARTS = ("records", "kinds", "delays", "nested", "compartments", "plants", "speed", "evaluation", "response")
RUNS = {
    "kinds": print_kinds,
    "delays": print_delays,
    "nested": print_nested,
    "compartments": print_compartments,
    "plants": print_plants,
}
#: How many simulated records each part has, unless it is said otherwise.
SEEDS = {"kinds": 100, "delays": 200, "nested": 200, "compartments": 200, "plants": 20}


def run_part(name: str, options: argparse.Namespace) -> Any:
    if name == "records":
        return print_records(options.folder)
    if name in SEEDS:
        return RUNS[name](options.seeds or SEEDS[name], options.jobs)
    return {"speed": print_speed, "evaluation": print_evaluations, "response": print_responses}[name](options.largest)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    arguments.add_argument("--part", choices=PARTS, nargs="+", default=PARTS, help="only these")
    arguments.add_argument("--seeds", type=int, help="how many simulated records")
    arguments.add_argument("--largest", type=int, default=1_000_000, help="rows, for times")
    arguments.add_argument("--jobs", type=int, default=1, help="how many of them at the same time")
    arguments.add_argument("--folder", type=Path, default=Path("../shared/data"), help="where real records are")
    options = arguments.parse_args()
    found = {name: run_part(name, options) for name in options.part}
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
