"""Simulated plants with a disturbance: whether intervals hold the truth, and how often one is found that is not there.

A lag with a known input, its state driven by white noise, measured with noise. Intervals of a fit that knows of the
disturbance are compared with those of a fit that does not; and where there is none, p-values of the test at the
boundary should fall below any level no more often than that.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

import lodekit as lk

Array = NDArray[np.float64]
TRUTH = {"a": 0.3, "K": 2.0}
WAYS = ("with", "without", "least squares")
STEP, NOISE = 0.5, 0.1
LEVELS = (0.01, 0.05, 0.1, 0.2)
SYSTEM = "x' = -a*x + K*u + w"


def simulate(count: int, intensity: float, seed: int) -> tuple[Array, dict[str, Array]]:
    """Return times and data of one plant; steps of the state are exact."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.standard_normal(count // 10 + 1), 10)[:count]
    a, decay = TRUTH["a"], np.exp(-TRUTH["a"] * STEP)
    deviation = intensity * np.sqrt((1.0 - decay**2) / (2.0 * a))
    x = np.zeros(count)
    x[0] = generator.standard_normal()
    for k in range(count - 1):
        x[k + 1] = decay * x[k] + TRUTH["K"] * u[k] * (1.0 - decay) / a + deviation * generator.standard_normal()
    return np.linspace(0.0, STEP * (count - 1), count), {"x": x + NOISE * generator.standard_normal(count), "u": u}


def covered(gp: lk.LODEGP) -> dict[str, bool]:
    """Return whether the interval of each parameter holds the truth."""
    return {name: gp.intervals()[name][0] <= value <= gp.intervals()[name][1] for name, value in TRUTH.items()}


def look(count: int, intensity: float, seed: int) -> dict[str, Any]:
    """Return what fits of one plant say."""
    t, data = simulate(count, intensity, seed)
    system = lk.System(SYSTEM, parameters=list(TRUTH))
    known: dict[str, Any] = {"inputs": {"u": "hold"}, "random_state": 0}
    gp = lk.LODEGP(system, disturbances={"w": "white"}, **known).fit(t, data)
    plain = lk.LODEGP(system.given(["w"]), **known).fit(t, data)
    errors = {name: each.std_error for name, each in gp.parameters_.items()}
    # As least squares would say it: correlated residuals do not widen anything.
    bare = {
        name: abs(each.value - TRUTH[name]) <= 1.96 * each.std_error / plain.fit_.diagnosis.widening.get(name, 1.0)
        for name, each in plain.parameters_.items()
    }
    deviation = gp.disturbances_["w"]
    return {
        "with": covered(gp),
        "without": covered(plain),
        "least squares": bare,
        "errors": errors,
        "deviation": deviation.deviation,
        "error": deviation.std_error,
        "converged": bool(gp.converged_),
    }


def look_for_nothing(count: int, kind: str, seed: int) -> float:
    """Return the p-value of a disturbance that is not there."""
    t, data = simulate(count, 0.0, seed)
    system = lk.System(SYSTEM, parameters=list(TRUTH))
    gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances={"w": kind}, random_state=0).fit(t, data)
    return gp.disturbances_["w"].p_value


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    run = Parallel(n_jobs=given.jobs)
    every = run(delayed(look)(given.rows, 0.4, seed) for seed in range(given.seeds))
    for name in TRUTH:
        shares = {
            way: float(np.mean([each[way][name] for each in every])) for way in ("with", "without", "least squares")
        }
        found[name] = shares
        print(f"{name}: intervals hold the truth in", ", ".join(f"{way}: {share:.1%}" for way, share in shares.items()))
    deviations = np.array([each["deviation"] for each in every])
    found["deviation"] = [float(deviations.mean()), float(deviations.std())]
    found["converged"] = float(np.mean([each["converged"] for each in every]))
    print(
        f"intensity {deviations.mean():.3f} +- {deviations.std():.3f} (truth 0.4), converged {found['converged']:.1%}"
    )
    for kind in ("white", "matern-1/2", "matern-3/2"):
        values = np.array(run(delayed(look_for_nothing)(given.rows, kind, seed) for seed in range(given.seeds)))
        found[kind] = {str(level): float(np.mean(values < level)) for level in LEVELS}
        print(f"{kind}: p-values of nothing below", ", ".join(f"{k}: {v:.1%}" for k, v in found[kind].items()))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
