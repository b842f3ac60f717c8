"""How often a disturbance is found that is not there: p-values of the test at the boundary.

A lag with a known input, measured with noise, is fitted with a disturbance that it does not have. P-values should fall
below any level no more often than that level says.
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
STEP, NOISE = 0.5, 0.1
LEVELS = (0.01, 0.05, 0.1, 0.2)
SYSTEM = "x' = -a*x + K*u + w"


def simulate(count: int, seed: int) -> tuple[Array, dict[str, Array]]:
    """Return times and data of one plant; steps of the state are exact."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.standard_normal(count // 10 + 1), 10)[:count]
    a, decay = TRUTH["a"], np.exp(-TRUTH["a"] * STEP)
    x = np.zeros(count)
    x[0] = generator.standard_normal()
    for k in range(count - 1):
        x[k + 1] = decay * x[k] + TRUTH["K"] * u[k] * (1.0 - decay) / a
    return np.linspace(0.0, STEP * (count - 1), count), {"x": x + NOISE * generator.standard_normal(count), "u": u}


def look_for_nothing(count: int, kind: str, seed: int) -> float:
    """Return the p-value of a disturbance that is not there."""
    t, data = simulate(count, seed)
    system = lk.System(SYSTEM, parameters=list(TRUTH))
    gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances={"w": kind}, random_state=0).fit(t, data)
    return gp.disturbances_["w"].p_value


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    run = Parallel(n_jobs=given.jobs)
    for kind in ("white", "matern-1/2", "matern-3/2"):
        values = np.array(run(delayed(look_for_nothing)(given.rows, kind, seed) for seed in range(given.seeds)))
        found[kind] = {str(level): float(np.mean(values < level)) for level in LEVELS}
        print(f"{kind}: p-values of nothing below", ", ".join(f"{k}: {v:.1%}" for k, v in found[kind].items()))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
