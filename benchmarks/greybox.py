"""Claim: the response to a known input, with its gradient, costs a few times what filtering the same arrays costs.

The yardstick is `scipy.signal.lfilter` of order 4 over the same arrays, once for each output. Times are of the
processor: other work on the machine does not count; everything is a ratio within one run.

    python benchmarks/greybox.py [--json FILE] [--part response]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter, ss2tf

from lodekit.data.inputs import InputKind, InputSignal
from lodekit.prior.responses.matrices import StateMatrices
from lodekit.prior.responses.response import ResponsePlan
from lodekit.threads import one_thread

STEP = 0.1
#: Two of four states are seen: a chain of lags with a little feedback.
F = np.array([[-1.0, 0.2, 0.0, 0.1], [0.8, -0.5, 0.1, 0.0], [0.0, 1.0, -2.0, 0.3], [0.0, 0.0, 0.5, -0.2]])
PLANT = StateMatrices.of(F, np.array([[1.0], [0.0], [0.5], [0.0]]), np.eye(4)[2:], np.zeros((2, 1)))
PARAMETERS = 8


def best(run: Callable[[], Any], times: int) -> float:
    found = np.inf
    for _ in range(times):
        start = time.process_time()
        run()
        found = min(found, time.process_time() - start)
    return float(found)


def response_ratio(rows: int, kind: InputKind, grid: str) -> dict[str, Any]:
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
        response = plan.respond(PLANT, delay)
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


def print_responses() -> list[dict[str, Any]]:
    print(
        f"response with gradient in {PARAMETERS} parameters, 4 states, 2 outputs, 1 input; lfilter of order 4 twice = 1"
    )
    found = []
    with one_thread():
        for rows in (1_000, 10_000, 100_000, 1_000_000):
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


PARTS: dict[str, Callable[[], Any]] = {"response": print_responses}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    arguments.add_argument("--part", choices=sorted(PARTS), help="only this one")
    options = arguments.parse_args()
    found = {name: run() for name, run in PARTS.items() if options.part in (None, name)}
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
