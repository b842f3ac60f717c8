"""Claims: correlated residuals are called so, and intervals that are widened for them cover the truth more often.

Plants with a held input, 300 rows, errors of 0.05: independent ones, and autoregressions of several strengths. The
widening was chosen on a lag of first order; an oscillator and a lag with dead time were not looked at then. Prints one
row for each kind of error.

With ``--levels``: short records of models with a free function or a disturbance, fitted with these, so that everything
is learned. Innovations of the true model are white: tests at 5 % should reject about 5 %. Where a lag is missing, they
should find it.

    python benchmarks/residual_verdicts.py [--records N] [--kinds KIND ...] [--plants NAME ...] [--json FILE]
    python benchmarks/residual_verdicts.py --levels [--records N] [--jobs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

import lodekit as lk
from disturbances import discretise

Array = NDArray[np.float64]
ROWS, STEP, NOISE = 300, 0.5, 0.05
KINDS = ["independent", "AR(1) 0.5", "AR(1) 0.8", "AR(1) 0.95", "AR(2), oscillating", "slow and white"]


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
    if kind == "AR(2), oscillating":
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


def draw(F: Array, L: Array, G: Array, u: Array, generator: np.random.Generator) -> Array:
    """Return states at equal steps, shape (n, s), of ``x' = F x + G u + L w`` with white noise w and a held input."""
    size = len(F)
    flow, noise = discretise(F, L, STEP)
    drive = np.zeros((size + 1, size + 1))
    drive[:size, :size], drive[:size, size] = F, G
    push = expm(STEP * drive)[:size, size]
    values, vectors = np.linalg.eigh(noise)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    states, found = np.zeros(size), []
    # What comes before is not measured: free functions have forgotten that they began at rest.
    for held in np.concatenate([np.zeros(200), u]):
        found.append(states)
        states = flow @ states + push * held + root @ generator.standard_normal(size)
    return np.array(found)[200:]


def free_record(seed: int, rows: int, *, missing: bool) -> tuple[lk.LODEGP, Array, dict[str, Array]]:
    """Return a model with a Matern-5/2 function, times and data; where a lag is missing, y is measured through it."""
    generator, rate = np.random.default_rng([seed, 8]), np.sqrt(5.0) / 4.0
    F = np.zeros((4, 4))
    F[0, 1] = F[1, 2] = 1.0
    F[2, :3] = [-(rate**3), -3 * rate**2, -3 * rate]
    F[3, [0, 3]] = [1 / 1.5, -1 / 1.5]
    L = np.array([0.0, 0.0, np.sqrt(16.0 / 3.0 * rate**5), 0.0])
    x = draw(F, L, np.zeros(4), np.zeros(rows), generator)
    clean = {"y": x[:, 3] if missing else x[:, 0], "u": x[:, 1] + 0.4 * x[:, 0]}
    data: dict[str, Array] = {}
    for name, own in clean.items():
        data[name] = own + NOISE * float(own.std()) * generator.standard_normal(rows)
    system = lk.System("y' + a*y = u", parameters={"a": lk.Parameter(positive=True)})
    gp = lk.LODEGP(system, latent="matern-5/2", noise="channel", engine="markov", random_state=seed)
    return gp, np.linspace(0.0, STEP * (rows - 1), rows), data


def disturbed_record(seed: int, rows: int, *, missing: bool) -> tuple[lk.LODEGP, Array, dict[str, Array]]:
    """Return a lag with a white disturbance; where another one is missing, y is measured through it."""
    generator = np.random.default_rng([seed, 9])
    u = np.repeat(generator.integers(0, 2, rows // 10 + 1), 10)[:rows].astype(float)
    F, G = np.array([[-0.25, 0.0], [1 / 1.5, -1 / 1.5]]), np.array([0.5, 0.0])
    x = draw(F, np.array([0.2, 0.0]), G, u, generator)
    y = x[:, int(missing)]
    data: dict[str, Array] = {"y": y + NOISE * float(y.std()) * generator.standard_normal(rows), "u": u}
    positive = lk.Parameter(positive=True)
    system = lk.System("tau*y' + y = K*u + w", parameters={"tau": positive, "K": positive})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances={"w": "white"}, random_state=seed)
    return gp, np.linspace(0.0, STEP * (rows - 1), rows), data


MODELS = {"free function": free_record, "disturbance": disturbed_record}


def judge(model: str, seed: int, rows: int, missing: bool) -> dict[str, Any]:
    """Return p-values of both tests for each observable, and whether the fit is called correlated."""
    with threadpool_limits(1):
        gp, times, data = MODELS[model](seed, rows, missing=missing)
        checks = gp.fit(times, data).fit_.diagnosis.checks
    tests = [check.whiteness for check in checks if check.whiteness is not None and check.whiteness.innovations]
    return {
        "ljung": [each.p_value for each in tests],
        "periodogram": [each.periodogram_p_value for each in tests],
        "called": any(check.is_correlated for check in checks),
    }


def print_levels(records: int, jobs: int, rows: int) -> dict[str, Any]:
    """Print how often innovations of true models, and of some that miss a lag, are rejected."""
    titles = ("model", "Ljung-Box", "periodogram", "called correlated", "called correlated if a lag is missing")
    found: dict[str, Any] = {"table": [f"| {' | '.join(titles)} |", "| --- |" + " --- |" * 4]}
    print(f"{records} records of {rows} rows: tests of innovations at 5 % reject (2 to 9 % where nothing is missing)")
    for model in MODELS:
        cells: list[Any] = []
        for missing in (False, True):
            # A share of all is found by a few as well.
            count = min(records, 40) if missing else records
            own = Parallel(n_jobs=jobs)(delayed(judge)(model, seed, rows, missing) for seed in range(count))
            ljung, period = (np.mean([p < 0.05 for row in own for p in row[key]]) for key in ("ljung", "periodogram"))
            called = np.mean([row["called"] for row in own])
            title = f"{model}, {'a lag is missing' if missing else 'true'}"
            print(f"  {title:<34} Ljung-Box {ljung:.1%}, periodogram {period:.1%}, called correlated {called:.1%}")
            found[title] = own
            cells += [called] if missing else [ljung, period, called]
        found["table"].append(f"| {model} | {' | '.join(f'{100 * share:.1f} %' for share in cells)} |")
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100, help="for each kind of error")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--plants", nargs="*", default=list(PLANTS))
    parser.add_argument("--levels", action="store_true", help="tests of innovations alone")
    parser.add_argument("--jobs", type=int, default=1, help="with --levels")
    parser.add_argument("--rows", type=int, default=150, help="of each record, with --levels")
    parser.add_argument("--json", type=Path, help="where results go")
    given = parser.parse_args()
    if given.levels:
        found = print_levels(given.records, given.jobs, given.rows)
        if given.json:
            given.json.write_text(json.dumps(found, indent=2) + "\n")
        return
    tables = {}
    for name in given.plants:
        plant = PLANTS[name]
        lines = [
            f"| errors | called correlated | {' | '.join(plant.truth)} |",
            "| --- | --- |" + " --- |" * len(plant.truth),
        ]
        print(f"{name}: {plant.equations}; intervals that cover {', '.join(plant.truth)}, before and after widening")
        print(f"{'errors':<18}{'called correlated':>18}")
        for kind in given.kinds:
            called, covered = cover(plant, kind, given.records)
            shares = "   ".join(" ".join(f"{share:4.0%}" for share in row) for row in covered)
            print(f"{kind:<18}{called:>18.0%}   {shares}", flush=True)
            cells = " | ".join(f"{100 * before:.0f} → {100 * after:.0f} %" for before, after in covered.T)
            lines.append(f"| {kind} | {100 * called:.0f} % | {cells} |")
        tables[name] = lines
    if given.json:
        given.json.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
