"""How often residuals are called correlated, and how often intervals cover the truth before and after widening.

A plant of first order with a held input, ``tau*y' + y - y0 = K*u``, 300 rows, errors of 0.05: independent ones, and
autoregressions of several strengths. Prints one row for each kind of error.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

import lodekit as lk

Array = NDArray[np.float64]
TRUTH = {"tau": 4.0, "K": 2.0, "y0": 1.0}
ROWS, STEP, NOISE = 300, 0.5, 0.05


def errors(kind: str, generator: np.random.Generator) -> Array:
    """Return errors of unit variance, in expectation."""
    white = generator.standard_normal(ROWS + 500)
    if kind == "independent":
        return white[500:]
    if kind.startswith("AR(1)"):
        rho = float(kind.split()[1])
        return np.asarray(lfilter([np.sqrt(1 - rho**2)], [1.0, -rho], white)[500:])
    if kind == "AR(2) swinging":
        return np.asarray(lfilter([0.28], [1.0, -1.8 * np.cos(0.5), 0.81], white)[500:])
    slow = np.asarray(lfilter([np.sqrt(1 - 0.81)], [1.0, -0.9], white)[500:])
    return np.asarray((slow + generator.standard_normal(ROWS)) / np.sqrt(2.0))


def record(kind: str, seed: int) -> tuple[Array, Array, Array]:
    """Return times, output and input of one simulated record."""
    generator = np.random.default_rng(seed)
    times = np.linspace(0.0, STEP * (ROWS - 1), ROWS)
    u = np.repeat(generator.integers(0, 2, ROWS // 10), 10).astype(float)
    decay = np.exp(-STEP / TRUTH["tau"])
    drive = np.concatenate([[0.3], (1 - decay) * TRUTH["K"] * u[:-1]])
    y = TRUTH["y0"] + np.asarray(lfilter([1.0], [1.0, -decay], drive), dtype=float)
    return times, y + NOISE * errors(kind, generator), u


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100, help="for each kind of error")
    parser.add_argument("--kinds", nargs="*", default=None)
    given = parser.parse_args()
    system = lk.System(
        "tau*y' + y - y0 = K*u",
        parameters={"tau": lk.Parameter(positive=True), "K": lk.Parameter(), "y0": lk.Parameter()},
    )
    kinds = ["independent", "AR(1) 0.5", "AR(1) 0.8", "AR(1) 0.95", "AR(2) swinging", "slow and white"]
    print(f"{'errors':<18}{'called correlated':>18}   intervals that cover the truth, before and after, of tau, K, y0")
    for kind in given.kinds or kinds:
        called, covered = 0, np.zeros((2, len(TRUTH)))
        for seed in range(given.records):
            times, y, u = record(kind, seed)
            gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times, {"y": y, "u": u})
            called += gp.fit_.diagnosis.checks[0].is_correlated
            plain = replace(gp.fit_, diagnosis=replace(gp.fit_.diagnosis, widening={}))
            for row, fit in enumerate((plain, gp.fit_)):
                for column, (name, value) in enumerate(TRUTH.items()):
                    low, high = fit.estimates[name].interval
                    covered[row, column] += low <= value <= high
        shares = "   ".join(" ".join(f"{share:4.0%}" for share in row / given.records) for row in covered)
        print(f"{kind:<18}{called / given.records:>18.0%}   {shares}", flush=True)


if __name__ == "__main__":
    main()
