"""Simulated plants that held inputs drive, with known truth: networks, step tests with dead time, hold or linear.

Outputs are made by exact steps with matrix exponentials; nothing here uses the responses of the library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.fitting.lbfgs import maximize_lbfgs

Array = NDArray[np.float64]
NOISE, ROWS = 0.03, 400
#: A search from nothing has found the optimum where its log evidence is no lower than this, beside one from the truth.
SAME = 0.1
DELAY = 2.3


@dataclass(frozen=True)
class Plant:
    """A state space with its equations.

    Parameters
    ----------
    name : str
    equations : list of str
    values : dict of str to float
        True parameters; all positive.
    states : list of str
        Channels that are the states, in order; those that are no channels are empty.
    F, G : arrays, shapes (s, s) and (s, 1)
    hidden : str
        The state that is not measured.
    """

    name: str
    equations: list[str]
    values: dict[str, float]
    states: list[str]
    F: Array
    G: Array
    hidden: str

    def system(self, starts: dict[str, float] | None = None) -> lk.System:
        """Return the system, with values to start from where they are given."""
        made = {n: lk.Parameter(positive=True, start=None if starts is None else starts[n]) for n in self.values}
        return lk.System(self.equations, parameters=made)


def chain(size: int, generator: np.random.Generator) -> Plant:
    """Return a chain of stores: the input feeds the first one, the last one loses to the outside."""
    rate = {f"p{i}": float(generator.lognormal(0.0, 0.5)) for i in range(2, size + 1)}
    rate |= {f"q{i}": float(generator.lognormal(0.0, 0.5)) for i in range(1, size + 1)}
    rate["b"] = float(generator.lognormal(0.0, 0.5))
    F, equations = np.zeros((size, size)), []
    for i in range(1, size + 1):
        terms = []
        if i > 1:
            terms.append(f"p{i}*(x{i - 1} - x{i})")
            F[i - 1, i - 2] += rate[f"p{i}"]
            F[i - 1, i - 1] -= rate[f"p{i}"]
        right = f"(x{i + 1} - x{i})" if i < size else f"(0 - x{i})"
        terms.append(f"q{i}*{right}")
        F[i - 1, i - 1] -= rate[f"q{i}"]
        if i < size:
            F[i - 1, i] += rate[f"q{i}"]
        equations.append(f"x{i}' = " + " + ".join(terms) + (" + b*u" if i == 1 else ""))
    names = [f"x{i}" for i in range(1, size + 1)]
    hidden = names[int(generator.integers(1, size - 1))] if size > 2 else names[0]
    G = np.zeros((size, 1))
    G[0] = rate["b"]
    return Plant(f"chain of {size}", equations, rate, names, F, G, hidden)


def oscillator(size: int, generator: np.random.Generator) -> Plant:
    """Return a mass on a spring, with an actuator where there are three states, or coupled to another with four."""
    k, c = float(generator.lognormal(0.0, 0.4)), float(0.3 * generator.lognormal(0.0, 0.4))
    b = float(generator.lognormal(0.0, 0.4))
    if size == 2:
        F, G = np.array([[0.0, 1.0], [-k, -c]]), np.array([[0.0], [b]])
        return Plant("oscillator", ["x' = v", "v' = b*u - k*x - c*v"], {"k": k, "c": c, "b": b}, ["x", "v"], F, G, "v")
    if size == 3:
        tau = float(0.7 * generator.lognormal(0.0, 0.3))
        F = np.array([[0.0, 1.0, 0.0], [-k, -c, b], [0.0, 0.0, -1 / tau]])
        equations = ["x'' = b*w - k*x - c*x'", "tau*w' + w = u"]
        values = {"k": k, "c": c, "b": b, "tau": tau}
        return Plant("actuated", equations, values, ["x", "", "w"], F, np.array([[0.0], [0.0], [1 / tau]]), "w")
    s, r, d = (float(generator.lognormal(0.0, 0.4)) for _ in range(3))
    d *= 0.3
    F = np.zeros((4, 4))
    F[0, 1] = F[2, 3] = 1.0
    F[1], F[3] = [-k - s, -c, s, 0.0], [r, 0.0, -r, -d]
    equations = ["x'' = b*u - k*x - c*x' + s*(y - x)", "y'' = r*(x - y) - d*y'"]
    values = {"k": k, "c": c, "b": b, "s": s, "r": r, "d": d}
    return Plant("two masses", equations, values, ["x", "", "y", ""], F, np.array([[0.0], [b], [0.0], [0.0]]), "y")


def draw_plant(seed: int) -> Plant:
    """Return one of the random plants: 2 to 5 states, stores or masses."""
    generator = np.random.default_rng([seed, 1])
    size = 2 + seed % 4
    return oscillator(size, generator) if size < 5 and seed // 4 % 2 else chain(size, generator)


def steps(generator: np.random.Generator, rows: int, shortest: int, longest: int) -> Array:
    """Return an input that is set to random levels at random times."""
    found: list[float] = []
    while len(found) < rows:
        found += [float(generator.uniform(-1.0, 1.0))] * int(generator.integers(shortest, longest + 1))
    return np.array(found[:rows])


def respond(F: Array, G: Array, h: float, u: Array, start: Array, kind: str = "hold") -> Array:
    """Return states at equal steps, shape (n, s), for an input that is held, or straight, between its samples."""
    size = len(F)
    block = np.zeros((size + 2, size + 2))
    block[:size, :size], block[:size, size], block[size, size + 1] = F, G[:, 0], 1.0
    whole, found = expm(h * block), [start]
    for now, after in pairwise(u.tolist()):
        slope = (after - now) / h if kind == "linear" else 0.0
        found.append(whole[:size, :size] @ found[-1] + whole[:size, size] * now + whole[:size, size + 1] * slope)
    return np.array(found)


def covered(gp: lk.LODEGP, truth: dict[str, float]) -> dict[str, bool]:
    """Return for each parameter whether its interval holds the truth."""
    return {n: bool(gp.parameters_[n].interval[0] <= truth[n] <= gp.parameters_[n].interval[1]) for n in truth}


def run_plant(seed: int) -> dict[str, Any]:
    """Fit a random plant from nothing and from the truth."""
    plant, generator = draw_plant(seed), np.random.default_rng([seed, 2])
    roots = np.linalg.eigvals(plant.F)
    slowest = 1.0 / np.min(np.abs(roots.real))
    h = 10.0 * slowest / ROWS
    u = steps(generator, ROWS, 4, 40)
    free = respond(plant.F, plant.G, h, u, np.zeros(len(plant.F)))
    x = respond(plant.F, plant.G, h, u, free.std(axis=0) * generator.standard_normal(len(plant.F)))
    seen = {n: x[:, j] for j, n in enumerate(plant.states) if n and n != plant.hidden}
    data = {n: values + NOISE * values.std() * generator.standard_normal(ROWS) for n, values in seen.items()}
    t = h * np.arange(ROWS)
    with threadpool_limits(1):
        begin = time.process_time()
        gp = lk.LODEGP(plant.system(), inputs={"u": "hold"}, random_state=seed).fit(t, {**data, "u": u})
        seconds = time.process_time() - begin
        best = lk.LODEGP(plant.system(plant.values), inputs={"u": "hold"}, random_state=seed).fit(t, {**data, "u": u})
    below = best.log_evidence_ - gp.log_evidence_
    return {
        "plant": plant.name, "seed": seed, "below": below, "seconds": seconds, "covered": covered(gp, plant.values),
        "values": plant.values, "found": {n: gp.parameters_[n].value for n in plant.values},
    }  # fmt: skip


def run_delay(seed: int) -> dict[str, Any]:
    """Fit a step test with dead time."""
    generator = np.random.default_rng([seed, 3])
    rows, K, tau = 100, float(generator.lognormal(0.0, 0.5)), float(8.0 * generator.lognormal(0.0, 0.4))
    u = np.zeros(rows)
    u[10:], u[60:] = 1.0, 0.4
    fine = 10
    held = np.repeat(u, fine)
    late = np.concatenate([np.zeros(int(DELAY * fine)), held])[: rows * fine]
    y = respond(np.array([[-1 / tau]]), np.array([[K / tau]]), 1.0 / fine, late, np.zeros(1))[::fine, 0]
    y += NOISE * K * generator.standard_normal(rows)
    free = lk.Parameter(positive=True)
    system = lk.System("tau*y' + y = K*delay(u, T)", parameters={"tau": free, "K": free, "T": free})
    with threadpool_limits(1):
        begin = time.process_time()
        gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=seed).fit(np.arange(float(rows)), {"y": y, "u": u})
        seconds = time.process_time() - begin
    truth = {"tau": tau, "K": K, "T": DELAY}
    found = {n: gp.parameters_[n].value for n in truth}
    return {"seed": seed, "covered": covered(gp, truth), "found": found, "truth": truth, "seconds": seconds}


def nested_record(seed: int) -> tuple[Array, dict[str, Array], dict[str, float], float]:
    """Return times, data and truth of a lag with a dead time of 0 to 3 samples, and the intensity of a disturbance."""
    generator, fine = np.random.default_rng([seed, 9]), 10
    rows = int(generator.choice([500, 1000, 2000, 5000]))
    T = float(generator.choice([0.0, 0.1, 0.3, 0.7, 1.0, 1.4, 2.2, 3.0]))
    tau, K = 10.0 ** generator.uniform(0.3, 1.5), 1.7 * generator.choice([-1.0, 1.0])
    offset, intensity = generator.uniform(-5.0, 60.0), 0.5 * (seed // 2 % 2)
    u = generator.uniform(size=rows) if seed % 2 else np.repeat(generator.uniform(size=rows // 20 + 1), 20)[:rows]
    late = np.concatenate([np.full(round(T * fine), u[0]), np.repeat(u, fine)])[: rows * fine]
    decay = np.exp(-1.0 / (fine * tau))
    pushed = (1.0 - decay) * K * late + intensity / tau / np.sqrt(fine) * generator.standard_normal(len(late))
    y = np.append(K * u[0], lfilter([1.0], [1.0, -decay], pushed, zi=[decay * K * u[0]])[0][:-1])[::fine]
    y = y + offset + 10.0 ** generator.uniform(-2.0, -0.5) * generator.standard_normal(rows)
    return np.arange(float(rows)), {"y": y, "u": u}, {"tau": tau, "K": K, "T": T, "y0": offset}, intensity


def fit_nested(seed: int, random_state: int, *, delayed: bool = True) -> lk.LODEGP:
    """Return the fit of such a record, with or without a dead time in the model."""
    times, data, _, intensity = nested_record(seed)
    parameters = {"tau": lk.Parameter(positive=True), "K": lk.Parameter(), "y0": lk.Parameter()}
    if delayed:
        parameters["T"] = lk.Parameter(bounds=(0.0, 10.0))
    text = f"tau*y' = K*{'delay(u, T)' if delayed else 'u'} + y0 - y" + (" + w" if intensity else "")
    disturbances = {"w": "white"} if intensity else None
    system = lk.System(text, parameters=parameters)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances=disturbances, random_state=random_state)
    return gp.fit(times, data)


def run_nested(seed: int) -> dict[str, Any]:
    """Fit a record with a dead time, also without one, and from 20 starts without any heuristics."""
    generator, (times, _, values, _) = np.random.default_rng([seed, 10]), nested_record(seed)
    with threadpool_limits(1):
        fits = [fit_nested(seed, k) for k in range(4)]
        nested = fit_nested(seed, 0, delayed=False)
        setup, hyper = fits[0].fit_.setup, fits[0].fit_.hyperparameters
        truth, best = np.array([values[name] for name in setup.layout.names]), -np.inf
        where = setup.layout.names.index("T")
        for k in range(20):
            theta = truth * np.exp(min(k, 1) * generator.standard_normal(4))
            theta[where] = np.clip(theta[where], 1e-3, 9.0)
            start = setup.layout.pack(replace(hyper, theta=theta))
            best = max(best, maximize_lbfgs(setup.objective, start).value)
    found = [gp.fit_.optimum.value for gp in fits]
    return {
        "seed": seed, "rows": len(times), "delay": values["T"], "found": [gp.parameters_["T"].value for gp in fits],
        "below_nested": nested.fit_.optimum.value - min(found), "below_best": max(best, *found) - min(found),
    }  # fmt: skip


def draw_compartments(seed: int) -> tuple[str, Array, Array, dict[str, float], list[dict[str, float]]]:
    """Return equations, times, concentrations and exact initial values of a dose, and all true parameter values.

    Even seeds: one compartment with absorption, which can be exchanged with elimination, so that there is a second set
    of values. Odd seeds: two compartments, every other time with absorption.
    """
    generator, dose = np.random.default_rng([seed, 11]), 10.0 ** (seed % 3 - 1)
    ka, k, k12, k21 = (generator.lognormal([0.8, -1.5, 0.0, -0.7], 0.4)).tolist()
    V, rows = float(10.0 ** generator.integers(-1, 3)), int(generator.integers(7, 15))
    start, first = {"A": dose, "C": 0.0}, np.array([dose, 0.0, 0.0])
    F = np.array([[-ka, 0.0, 0.0], [ka / V, -k - k12, k21], [0.0, k12, -k21]])
    if seed % 2 == 0:
        F = F[:2, :2] + np.array([[0.0, 0.0], [0.0, k12]])
        text, pairs = "A' = -ka*A; V*C' = ka*A - Cl*C", [(ka, k, V), (k, ka, V * k / ka)]
        truths = [{"ka": a, "Cl": b * volume, "V": volume} for a, b, volume in pairs]
    elif seed % 4 == 1:
        F, first, start = F[1:, 1:], np.array([dose / V, 0.0]), {"A": dose, "P": 0.0}
        text, truths = (
            "A' = -(k + k12)*A + k21*P; P' = k12*A - k21*P; V*C = A",
            [{"k": k, "k12": k12, "k21": k21, "V": V}],
        )
    else:
        rows, start = max(rows, 11), start | {"P": 0.0}
        text = "A' = -ka*A; V*C' = ka*A - Cl*C - Q*C + Q*P; V2*P' = Q*C - Q*P"
        truths = [{"ka": ka, "V": V, "Cl": k * V, "Q": k12 * V, "V2": k12 * V / k21}]
    speeds = np.abs(np.linalg.eigvals(F).real)
    t = np.geomspace(0.15 / speeds.max(), 2.5 / speeds.min(), rows) * generator.uniform(0.9, 1.1, rows)
    curve = np.array([(expm(F * time) @ first[: len(F)])[0 if seed % 4 == 1 else 1] for time in t])
    noise = float(generator.choice([0.01, 0.02, 0.05, 0.1])) * curve.max()
    return text, t, curve + noise * generator.standard_normal(rows), start, truths


def run_compartments(seed: int) -> dict[str, Any]:
    """Fit concentrations after a dose, with exact initial values, from nothing and from the truth."""
    text, t, measured, start, truths = draw_compartments(seed)

    def fit(starts: dict[str, float] | None) -> lk.LODEGP:
        made = {n: lk.Parameter(positive=True, start=None if starts is None else starts[n]) for n in truths[0]}
        data = lk.Observations([(0.0, name, value, 0.0) for name, value in start.items()]).add(t, "C", measured)
        return lk.LODEGP(lk.System(text, parameters=made), random_state=seed).fit(data)

    with threadpool_limits(1):
        begin = time.process_time()
        gp = fit(None)
        seconds = time.process_time() - begin
        below = max(fit(truth).log_evidence_ for truth in truths) - gp.log_evidence_
    found = {name: gp.parameters_[name].value for name in truths[0]}
    explained = 1.0 - float(np.var(measured - gp.predict(t, "C")) / np.var(measured))
    # The truth is the solution that is nearest to the estimate.
    truth = min(truths, key=lambda truth: sum(np.log(found[name] / value) ** 2 for name, value in truth.items()))
    inside = {n: held for n, held in covered(gp, truth).items() if gp.parameters_[n].identified}
    return {"seed": seed, "explained": explained, "below": below, "covered": inside, "found": found, "seconds": seconds}


def run_kind(seed: int) -> dict[str, Any]:
    """Let the evidence decide what an input does between its samples."""
    generator = np.random.default_rng([seed, 4])
    rows, kind = 150, ("hold", "linear")[seed % 2]
    a, c = (float(generator.lognormal(0.0, 0.4)) for _ in range(2))
    F, G = np.array([[0.0, 1.0], [-a, -(a + 1.0) * c]]), np.array([[0.0], [a * 2.0]])
    u = np.cumsum(generator.standard_normal(rows)) * 0.3 if seed // 2 % 2 else generator.standard_normal(rows)
    y = respond(F, G, 0.3, u, np.zeros(2), kind)[:, 0]
    y += NOISE * y.std() * generator.standard_normal(rows)
    free = lk.Parameter(positive=True)
    system = lk.System("y'' + d*y' + k*y = b*u", parameters=dict.fromkeys("dkb", free))
    with threadpool_limits(1):
        begin = time.process_time()
        gp = lk.LODEGP(system, inputs={"u": "auto"}, random_state=seed).fit(0.3 * np.arange(rows), {"y": y, "u": u})
        seconds = time.process_time() - begin
    chosen = gp.fit_.measurements.inputs["u"].kind
    return {"seed": seed, "right": chosen == kind, "by": gp.fit_.hold_preference["u"], "seconds": seconds}


def run_all(run: Callable[[int], dict[str, Any]], seeds: int, jobs: int) -> list[dict[str, Any]]:
    return list(Parallel(n_jobs=jobs)(delayed(run)(seed) for seed in range(seeds)))


def share(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return in how many of all cases each interval holds the truth, and all together."""
    names = sorted({name for row in rows for name in row["covered"]})
    found = {n: float(np.mean([row["covered"][n] for row in rows if n in row["covered"]])) for n in names}
    return {**found, "all": float(np.mean([held for row in rows for held in row["covered"].values()]))}


def print_plants(seeds: int, jobs: int) -> list[dict[str, Any]]:
    rows = run_all(run_plant, seeds, jobs)
    for row in rows:
        held = f"{sum(row['covered'].values())} of {len(row['covered'])}"
        line = f"{row['seed']:>3} {row['plant']:<12} {row['below']:9.3f} below, intervals hold {held}"
        print(f"  {line}, {row['seconds']:.1f} s")
    met = np.mean([row["below"] < SAME for row in rows])
    inside = 100 * share(rows)["all"]
    print(f"plants: optimum of a search from the truth in {100 * met:.0f} % (at least 95)")
    print(f"        intervals hold the truth in {inside:.1f} % (90 to 98)")
    return rows


def print_delays(seeds: int, jobs: int) -> list[dict[str, Any]]:
    rows = run_all(run_delay, seeds, jobs)
    held = {name: round(100 * value, 1) for name, value in share(rows).items()}
    off = [abs(row["found"]["T"] - DELAY) for row in rows]
    seconds = np.mean([row["seconds"] for row in rows])
    print(f"dead time: {len(rows)} step tests, intervals hold {held} % (90 to 98)")
    print(f"           T off by {np.median(off):.3f} samples, {seconds:.2f} s each")
    return rows


def print_compartments(seeds: int, jobs: int) -> list[dict[str, Any]]:
    rows = run_all(run_compartments, seeds, jobs)
    for row in (row for row in rows if row["explained"] < 0.5 or row["below"] > SAME):
        print(f"  {row}")
    collapsed, missed = sum(row["explained"] < 0.5 for row in rows), sum(row["below"] > SAME for row in rows)
    print(f"compartments: of {len(rows)} data sets, {collapsed} explain nothing and {missed} miss the optimum (0)")
    for name, part in (("one", rows[::2]), ("two", rows[1::2]), ("one or two", rows)):
        held = [inside for row in part for inside in row["covered"].values()]
        print(f"              {name}: {sum(held)} of {len(held)} intervals hold the truth (92 to 97 %)")
    return rows


def print_nested(seeds: int, jobs: int) -> list[dict[str, Any]]:
    rows = run_all(run_nested, seeds, jobs)
    for row in (row for row in rows if max(row["below_nested"], row["below_best"]) > SAME):
        print(f"  {row}")
    worse = [sum(row[name] > SAME for row in rows) for name in ("below_nested", "below_best")]
    print(f"nested: of {len(rows)} records with four seeds each, {worse[0]} end below the model without a dead time")
    print(f"        and {worse[1]} below the best of 20 starts")
    return rows


def print_kinds(seeds: int, jobs: int) -> list[dict[str, Any]]:
    rows = run_all(run_kind, seeds, jobs)
    right = sum(row["right"] for row in rows)
    seconds = np.mean([row["seconds"] for row in rows])
    print(f"hold or linear: right in {right} of {len(rows)} (at least 95 of 100), {seconds:.2f} s each")
    return rows
