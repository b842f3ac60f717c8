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
from greybox_plants import steps
from lodekit.report import make_report
from lodekit.support.threads import single_threaded_blas

Array = NDArray[np.float64]
Record = tuple[Array, dict[str, Array]]
POSITIVE = lk.Parameter(positive=True)
LAG = {"tau": POSITIVE, "K": lk.Parameter(), "y0": lk.Parameter()}
BUILDING = "Ci*Ti' = (Te - Ti)*g + Ph + A*Is + w1; Ce*Te' = (Ti - Te)*g + (Ta - Te)*h + w2"


def simulate(slopes: Callable[[Array, int], Array], start: Array, shocks: Array) -> Array:
    """Return states, (n, s), by Euler's method with several steps per row, driven by white noise, (n, steps, s)."""
    h, states, found = 1.0 / shocks.shape[1], start, []
    for k, row in enumerate(shocks):
        found.append(states)
        for shock in row:
            states = states + h * slopes(states, k) + np.sqrt(h) * shock
    return np.array(found)


def lag_record(seed: int, rows: int, *, disturbance: float = 0.0, smooth: bool = False) -> Record:
    """Return a first-order lag: time constant 10, gain 2, offset 5."""
    generator, times = np.random.default_rng(seed), np.arange(float(rows))
    u = np.sin(0.11 * times + seed) + 0.5 * np.cos(0.23 * times) if smooth else steps(generator, rows, 10, 40)
    shocks = disturbance * generator.standard_normal((rows, 20, 1))
    y = simulate(lambda x, k: (5.0 + 2.0 * u[k] - x) / 10.0, np.array([5.0]), shocks)[:, 0]
    noise = 0.02 * generator.standard_normal((2, rows))
    return times, {"y": y + noise[0], "u": u + smooth * noise[1]}


def building_record(seed: int, rows: int) -> Record:
    """Return a building with two states, hourly."""
    generator, times = np.random.default_rng(seed), np.arange(float(rows))
    Ta = 5.0 + 4.0 * np.sin(times * np.pi / 12.0) + 0.1 * np.cumsum(generator.standard_normal(rows))
    Ph = np.where(times // 7 % 2, 6.0, 0.0) * generator.uniform(0.6, 1.0, rows)
    Is = np.clip(np.sin((times - 6.0) * np.pi / 12.0), 0.0, None) * generator.uniform(0.2, 1.0, rows)

    def slopes(x: Array, k: int) -> Array:
        flow = 1.25 * (x[1] - x[0])
        return np.array([(flow + Ph[k] + 1.5 * Is[k]) / 2.0, (0.25 * (Ta[k] - x[1]) - flow) / 20.0])

    shocks = np.array([0.1, 0.05]) * generator.standard_normal((rows, 20, 2))
    Ti = simulate(slopes, np.array([18.0, 15.0]), shocks)[:, 0]
    return times, {"Ti": Ti + 0.05 * generator.standard_normal(rows), "Ph": Ph, "Is": Is, "Ta": Ta}


def cases(rows: int) -> dict[str, tuple[lk.LODEGP, list[Record], dict[str, Any]]]:
    """Estimators, records to fit and to validate, and options of `validate`, by name."""

    def lag(text: str, **options: Any) -> lk.LODEGP:
        return lk.LODEGP(lk.System(text, parameters=LAG), random_state=0, **options)

    held, white = {"inputs": {"u": "hold"}}, {"w": "white"}
    names, channels = ("Ci", "Ce", "g", "h", "A"), ("Ph", "Is", "Ta")
    system = lk.System(BUILDING, parameters=dict.fromkeys(names, POSITIVE))
    whites = {"w1": "white", "w2": "white"}
    building = lk.LODEGP(system, inputs=dict.fromkeys(channels, "hold"), disturbances=whites, random_state=0)
    free = [lag_record(seed, rows, smooth=True) for seed in (1, 2)]
    known, disturbed = ([lag_record(seed, rows, disturbance=size) for seed in (1, 2)] for size in (0.0, 0.05))
    return {
        "free input": (lag("tau*y' + y - y0 = K*u"), free, {"given": "u"}),
        "known input": (lag("tau*y' + y - y0 = K*u", **held), known, {}),
        "disturbance": (lag("tau*y' + y - y0 = K*u + w", **held, disturbances=white), disturbed, {}),
        "building": (building, [building_record(seed, rows) for seed in (1, 2)], {}),
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
