"""How often residuals are called correlated, and how often intervals cover the truth before and after widening.

Plants with a held input, 300 rows, errors of 0.05: independent ones, and autoregressions of several strengths. The
widening was chosen on a lag of first order; an oscillator and a lag with dead time were not looked at then. Prints one
row for each kind of error.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.signal import lfilter

import lodekit as lk

Array = NDArray[np.float64]
ROWS, STEP, NOISE = 300, 0.5, 0.05
KINDS = ["independent", "AR(1) 0.5", "AR(1) 0.8", "AR(1) 0.95", "AR(2) swinging", "slow and white"]


@dataclass(frozen=True)
class Plant:
    """Equations, true values, and matrices of ``x' = F x + G u`` with y the first state, and a dead time."""

    equations: str
    truth: dict[str, float]
    F: Array
    G: Array
    rest: float = 0.0
    delay: float = 0.0


PLANTS = {
    "lag": Plant(
        "tau*y' + y - y0 = K*u", {"tau": 4.0, "K": 2.0, "y0": 1.0}, np.array([[-0.25]]), np.array([0.5]), rest=1.0
    ),
    "oscillator": Plant(
        "y'' + c*y' + k*y = b*u",
        {"c": 0.3, "k": 0.5, "b": 1.0},
        np.array([[0.0, 1.0], [-0.5, -0.3]]),
        np.array([0.0, 1.0]),
    ),
    "dead time": Plant(
        "tau*y' + y = K*delay(u, T)",
        {"tau": 4.0, "K": 2.0, "T": 1.15},
        np.array([[-0.25]]),
        np.array([0.5]),
        delay=1.15,
    ),
}


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


def march(plant: Plant, states: Array, held: float, step: float) -> Array:
    """Return states a step later under an input that is held."""
    size = len(plant.F)
    block = np.zeros((size + 1, size + 1))
    block[:size, :size], block[:size, size] = plant.F, plant.G
    flow = expm(step * block)
    return np.asarray(flow[:size, :size] @ states + flow[:size, size] * held)


def record(plant: Plant, kind: str, seed: int) -> tuple[Array, Array, Array]:
    """Return times, output and input of one simulated record."""
    generator = np.random.default_rng(seed)
    times = np.linspace(0.0, STEP * (ROWS - 1), ROWS)
    u = np.repeat(generator.integers(0, 2, ROWS // 10), 10).astype(float)
    whole = int(plant.delay // STEP)
    part = plant.delay - whole * STEP
    states = np.zeros(len(plant.F))
    states[0] = 0.3
    y = []
    for k in range(ROWS):
        y.append(plant.rest + states[0])
        # Within a step a late input has its older value first.
        for held, length in ((u[max(k - whole - 1, 0)], part), (u[max(k - whole, 0)], STEP - part)):
            states = march(plant, states, held, length) if length else states
    return times, np.array(y) + NOISE * errors(kind, generator), u


def cover(plant: Plant, kind: str, records: int) -> tuple[float, Array]:
    """Return the share of fits that are called correlated, and of intervals that cover, before and after widening."""
    positive = {"tau", "c", "k", "T"}
    parameters = {name: lk.Parameter(positive=name in positive) for name in plant.truth}
    system = lk.System(plant.equations, parameters=parameters)
    called, covered = 0, np.zeros((2, len(plant.truth)))
    for seed in range(records):
        times, y, u = record(plant, kind, seed)
        gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times, {"y": y, "u": u})
        called += gp.fit_.diagnosis.checks[0].is_correlated
        plain = replace(gp.fit_, diagnosis=replace(gp.fit_.diagnosis, widening={}))
        for row, fit in enumerate((plain, gp.fit_)):
            for column, (name, value) in enumerate(plant.truth.items()):
                low, high = fit.estimates[name].interval
                covered[row, column] += low <= value <= high
    return called / records, covered / records


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100, help="for each kind of error")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--plants", nargs="*", default=list(PLANTS))
    given = parser.parse_args()
    for name in given.plants:
        plant = PLANTS[name]
        print(f"{name}: {plant.equations}; intervals that cover {', '.join(plant.truth)}, before and after widening")
        print(f"{'errors':<18}{'called correlated':>18}")
        for kind in given.kinds:
            called, covered = cover(plant, kind, given.records)
            shares = "   ".join(" ".join(f"{share:4.0%}" for share in row) for row in covered)
            print(f"{kind:<18}{called:>18.0%}   {shares}", flush=True)


if __name__ == "__main__":
    main()
