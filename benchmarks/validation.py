"""Claim: for 270 rows, `validate` and the report each take at most twice the CPU time of the fit.

Four simulated records: a first-order lag with a free input, with a known input, with a white disturbance as well, and a
building with two states, two white disturbances and three known inputs. Each number is the smallest CPU time of several
runs in one process; ratios are relative to the fit of the same record.

    python benchmarks/validation.py [--rows N] [--runs N] [--only TEXT] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lodekit as lk
from buildings import make_building
from greybox_plants import steps
from lodekit.report import make_report
from lodekit.support.threads import single_threaded_blas

Array = NDArray[np.float64]
Record = tuple[Array, dict[str, Array]]
POSITIVE = lk.Parameter(positive=True)
LAG = {"tau": POSITIVE, "K": lk.Parameter(), "y0": lk.Parameter()}


def lag_record(seed: int, rows: int, *, disturbance: float = 0.0, smooth: bool = False) -> Record:
    """Return a first-order lag: time constant 10, gain 2, offset 5."""
    generator, times = np.random.default_rng(seed), np.arange(float(rows))
    u = np.sin(0.11 * times + seed) + 0.5 * np.cos(0.23 * times) if smooth else steps(generator, rows, 10, 40)
    shocks, h, state, y = disturbance * generator.standard_normal((rows, 20)), 1.0 / 20, 5.0, []
    for level, row in zip(u, shocks, strict=True):
        y.append(state)
        for shock in row:  # Euler's method with several steps per row
            state += h * (5.0 + 2.0 * level - state) / 10.0 + np.sqrt(h) * shock
    noise = 0.02 * generator.standard_normal((2, rows))
    return times, {"y": y + noise[0], "u": u + smooth * noise[1]}


def cases(rows: int) -> dict[str, tuple[lk.LODEGP, list[Record], dict[str, Any]]]:
    """Estimators, records to fit and to validate, and options of `validate`, by name."""

    def lag(text: str, **options: Any) -> lk.LODEGP:
        return lk.LODEGP(lk.System(text, parameters=LAG), random_state=0, **options)

    held, white = {"inputs": {"u": "hold"}}, {"w": "white"}
    building = make_building(2, 0, 2 * rows)
    halves = [
        (building.times[part], {name: values[part] for name, values in building.data.items()})
        for part in (slice(0, rows), slice(rows, None))
    ]
    free = [lag_record(seed, rows, smooth=True) for seed in (1, 2)]
    known, disturbed = ([lag_record(seed, rows, disturbance=size) for seed in (1, 2)] for size in (0.0, 0.05))
    return {
        "free input": (lag("tau*y' + y - y0 = K*u"), free, {"given": "u"}),
        "known input": (lag("tau*y' + y - y0 = K*u", **held), known, {}),
        "disturbance": (lag("tau*y' + y - y0 = K*u + w", **held, disturbances=white), disturbed, {}),
        "building": (lk.LODEGP(building.system, **building.options), halves, {}),
    }


def cpu_seconds(function: Callable[..., object], *arguments: Any, **options: Any) -> float:
    begin = time.process_time()
    function(*arguments, **options)
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=270)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="records whose names contain this")
    parser.add_argument("--json", type=Path)
    options, results = parser.parse_args(), {}
    print(f"{'':<14}{'fit':>8}{'validate':>10}{'report':>8}{'validate / fit':>16}{'report / fit':>14}")
    with single_threaded_blas():
        chosen = {name: case for name, case in cases(options.rows).items() if options.only in name}
        for name, (gp, (record, other), arguments) in chosen.items():
            runs = []
            for _ in range(options.runs):
                fit, validate = cpu_seconds(gp.fit, *record), cpu_seconds(gp.validate, *other, **arguments)
                runs.append((fit, validate, cpu_seconds(make_report, gp)))
            fit, validate, report = map(min, zip(*runs, strict=True))
            ratios = {"validate / fit": validate / fit, "report / fit": report / fit}
            results[name] = {"fit": fit, "validate": validate, "report": report} | ratios
            print(f"{name:<14}{fit:>7.2f}s{validate:>9.2f}s{report:>7.2f}s{validate / fit:>16.2f}{report / fit:>14.2f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
