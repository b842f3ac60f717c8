"""Claim: a planned experiment states the standard errors that fits to such data scatter by, and say.

One line for each parameter of each system: what was planned, the scatter of estimates over simulated data sets, their
ratio, and the middle one of the standard errors that the fits stated.

    python benchmarks/plans.py [--count N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import lodekit as lk
from lodekit.results.simulation import simulate


def positive(*names: str) -> dict[str, lk.Parameter]:
    return {name: lk.Parameter(positive=True) for name in names}


def compare(title: str, planned: dict[str, float], fits: list[lk.LODEGP]) -> list[dict[str, Any]]:
    rows = []
    for name, error in planned.items():
        values = [gp.parameters_[name].value for gp in fits]
        stated = float(np.median([gp.bse[name] for gp in fits]))
        scatter = float(np.std(values, ddof=1))
        print(f"{title:<28}{name:>5}{error:>12.4g}{scatter:>12.4g}{error / scatter:>8.2f}{stated:>12.4g}")
        rows.append({"system": title, "parameter": name, "ratio": error / scatter, "stated": stated / scatter})
    return rows


def decay(count: int, generator: np.random.Generator) -> list[dict[str, Any]]:
    system, t = lk.System("x' = -a*x", parameters=positive("a")), np.arange(0, 10, 0.5)
    found = lk.plan_experiment(system, t, {"a": 0.3}, noise={"x": 0.02}, start={"x": 1.0})
    curves = np.exp(-0.3 * t) + 0.02 * generator.standard_normal((count, len(t)))
    return compare("free decay", found.std_errors, [lk.LODEGP(system, random_state=0).fit(t, x) for x in curves])


def plant(count: int, generator: np.random.Generator) -> list[dict[str, Any]]:
    system = lk.System("tau*T' + T - Ta = K*Q", parameters={**positive("tau", "K"), "Ta": lk.Parameter()})
    t, assumed = np.arange(0, 600, 10.0), {"tau": 80.0, "K": 0.5, "Ta": 20.0}
    steps = ([0.0, 60.0, 360.0], [0.0, 60.0, 20.0])
    found = lk.plan_experiment(system, t, assumed, noise={"T": 0.2}, inputs={"Q": steps}, start={"T": 20.0})
    rise = [np.where(t < at, 0.0, 1 - np.exp(-np.maximum(t - at, 0.0) / 80)) for at in steps[0][1:]]
    truth, heater = 20.0 + 30.0 * rise[0] - 20.0 * rise[1], np.where(t < 60, 0.0, np.where(t < 360, 60.0, 20.0))
    model = lk.LODEGP(system, inputs={"Q": "hold"}, random_state=0).get_params()
    fits = [
        lk.LODEGP(**model).fit(t, {"T": truth + 0.2 * noise, "Q": heater})
        for noise in generator.standard_normal((count, len(t)))
    ]
    return compare("one time constant, stepped", found.std_errors, fits)


def heating(count: int, generator: np.random.Generator) -> list[dict[str, Any]]:
    system, t, values = lk.catalog.heating().system, np.linspace(0, 10, 40), {"a": 3.0, "b": 1.0}
    noise = dict.fromkeys(system.channels, 0.05)
    found = lk.plan_experiment(system, t, values, noise=noise, lengthscale=2.0, draws=101)
    drawn = simulate(system, t, values, lengthscale=2.0, size=count, random_state=int(generator.integers(1000)))
    data = drawn + 0.05 * generator.standard_normal(drawn.shape)
    return compare(
        "heating, random inputs", found.std_errors, [lk.LODEGP(system, random_state=0).fit(t, y) for y in data]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="Data sets for each system.")
    parser.add_argument("--json", type=Path, help="write the ratios to this file")
    options = parser.parse_args()
    count = options.count
    print(f"{count} data sets each\n{'':<28}{'':>5}{'planned':>12}{'scatter':>12}{'ratio':>8}{'stated':>12}")
    rows = [row for case in (decay, plant, heating) for row in case(count, np.random.default_rng(0))]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
