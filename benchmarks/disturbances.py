"""Claims: disturbances make intervals honest, and predictions of real records cover what they say.

The lamp record beside a textbook Kalman filter with its own search; the school's heating, predicted one hour and a day
ahead over the week that was not fitted; and simulated plants with a disturbance of realistic size, fitted with it and
without it: how often intervals of parameters hold the truth. Buildings with two to four states, as many white
disturbances and three inputs: processor time and gradients of a fit, beside one plain Kalman filter in NumPy, and
whether random starts lead to a better optimum.

    python benchmarks/disturbances.py [--parts lamp school plants buildings] [--records FOLDER] [--seeds N] [--jobs N]
        [--starts N] [--json FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm, solve_continuous_lyapunov
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import buildings
import lodekit as lk
from greybox_plants import respond, run_all, steps
from greybox_records import HOURS, LAMP, POSITIVE, SCHOOL, school_system, timed

Array = NDArray[np.float64]
ROWS = 400
#: Deviations of the noise, and of what the disturbance makes of what is measured, against the response to the input.
NOISE, SIZE = 0.03, 0.2
#: Hours of half a week, and how far ahead the school is predicted, with the hours before that this takes.
HALF, LEADS = 84, {"1 h": 11, "24 h": 34}
#: An optimum is better if its log evidence is higher by so many nats.
BETTER = 0.1
#: The variance of an initial state of which nothing is known.
WIDE = 1e8


def discretise(F: Array, L: Array, h: float) -> tuple[Array, Array]:
    """Return the transition over a step, and the covariance of the noise (of Van Loan)."""
    size = len(F)
    block = np.zeros((2 * size, 2 * size))
    block[:size, :size], block[size:, size:], block[:size, size:] = -F, F.T, np.outer(L, L)
    whole = expm(h * block)
    flow = whole[size:, size:].T
    return flow, flow @ whole[:size, size:]


def kalman(F: Array, G: Array, ratio: float, u: Array, y: Array, h: float) -> tuple[float, Array, Array, float]:
    """Return the diffuse log likelihood, innovations, gain and offset, and the deviation of the disturbance.

    ``x' = F x + G (K u + y0 + w)`` with white noise w, and y is the last state with noise that has `ratio` times its
    deviation. A textbook filter goes over the rows; K, y0 and all deviations are the best ones, by least squares. Of
    the first state nothing is known: the log likelihood is that of Durbin and Koopman, with the logarithm of its
    variance taken out.
    """
    size, count = len(F), len(y)
    flow, noise = discretise(F, G, h)
    block = np.zeros((size + 1, size + 1))
    block[:size, :size], block[:size, size] = F, G
    drive = np.outer(expm(h * block)[:size, size], np.ones(3))
    inputs = np.stack([np.zeros(count), u, np.ones(count)], axis=1)
    M, P = np.zeros((size, 3)), WIDE * np.eye(size)
    errors, S = np.zeros((count, 3)), np.zeros(count)
    errors[:, 0] = y
    for k in range(count):
        S[k] = P[-1, -1] + ratio**2
        errors[k] -= M[-1]
        gain = P[:, -1] / S[k]
        M = flow @ (M + np.outer(gain, errors[k])) + drive * inputs[k]
        P = flow @ (P - np.outer(gain, P[-1])) @ flow.T + noise
    white = errors / np.sqrt(S)[:, None]
    best = np.linalg.lstsq(-white[:, 1:], white[:, 0], rcond=None)[0]
    left = white[:, 0] + white[:, 1:] @ best
    level = float(left @ left) / (count - size)
    value = -0.5 * (float(np.log(2 * np.pi * S * level).sum()) + count - size) + 0.5 * size * np.log(WIDE * level)
    return float(value), np.asarray(left / np.sqrt(level)), np.asarray(best, dtype=float), float(np.sqrt(level))


def lags(values: Array) -> tuple[Array, Array]:
    """Return the system of lags one after the other: the first is driven, the last is measured."""
    rates = 1.0 / values
    F = np.diag(-rates) + np.diag(rates[1:], -1)
    return F, np.concatenate([rates[:1], np.zeros(len(rates) - 1)])


def witness(p: Array, u: Array, y: Array, h: float) -> tuple[float, Array, Array, float]:
    """Return what `kalman` says at logarithms of time constants and of the ratio of deviations."""
    return kalman(*lags(np.exp(p[:-1])), float(np.exp(p[-1])), u, y, h)


def ljung_box(values: Array, count: int) -> tuple[float, float]:
    """Return the correlation of neighbours, and the statistic of Ljung and Box over so many lags."""
    n = len(values)
    own = np.array([values[k:] @ values[: n - k] for k in range(1, count + 1)]) / (values @ values)
    return float(own[0]), float(n * (n + 2) * np.sum(own**2 / (n - np.arange(1, count + 1))))


def lamp_system(count: int) -> lk.System:
    """Return one lag or two, with a disturbance that acts as the lamp does."""
    free = lk.Parameter()
    values = {"K": free, "y0": free, "tau": POSITIVE}
    if count == 1:
        return lk.System("tau*y' + y - y0 = K*u + w", parameters=values)
    return lk.System(["tau*x' + x - y0 = K*u + w", "s*y' + y = x"], parameters={**values, "s": POSITIVE})


def lamp(folder: Path) -> dict[str, Any]:
    """Return log likelihoods and correlations of the lamp record with one lag and with two, beside the witness."""
    t, u, y = np.loadtxt(folder / LAMP).T
    found: dict[str, Any] = {}
    for count, start in ((1, [4.15, -12.0]), (2, [3.9, 1.6, -5.9])):

        def loss(p: Array) -> float:
            return -witness(p, u, y, t[1] - t[0])[0]

        best = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-4}).x
        value, innovations, gains, _ = witness(best, u, y, t[1] - t[0])
        told = ljung_box(innovations, 20)
        print(f"lamp, {count} of lags, textbook: log likelihood {value:.2f}, tau {np.exp(best[:-1])}, K and y0 {gains}")
        print(f"      innovations: lag 1 {told[0]:.2f}, Ljung-Box {told[1]:.0f} over 20 lags (31 at 95 %)")
        gp = lk.LODEGP(lamp_system(count), inputs={"u": "hold"}, disturbances={"w": "white"}, random_state=0)
        _, seconds = timed(partial(gp.fit, t, {"u": u, "y": y}))
        values = {name: each.value for name, each in gp.parameters_.items()}
        own = gp.fit_.fitted_record.innovations
        also = (float("nan"), float("nan")) if own is None else ljung_box(own["y"][1], 20)
        print(f"      lodekit: log evidence {gp.log_evidence_:.2f} (within 10), {values}, {seconds:.1f} s")
        print(f"      innovations: lag 1 {also[0]:.2f}, Ljung-Box {also[1]:.0f}")
        print(f"      {gp.diagnose().sentences[0]}", flush=True)
        found[str(count)] = {
            "witness": value, "told": told, "best": np.exp(best).tolist(), "evidence": gp.log_evidence_,
            "values": values, "own": also, "verdict": gp.diagnose().sentences[0], "seconds": seconds,
        }  # fmt: skip
    return found


def lamp_table(found: dict[str, Any]) -> list[str]:
    """Return log likelihoods and correlations of innovations as a table."""
    lines = [
        "| | textbook filter | log evidence | correlation of innovations at lag 1 |",
        "| --- | ---: | ---: | ---: |",
    ]
    for count, name in (("1", "one lag"), ("2", "two lags")):
        row = found[count]
        lines.append(f"| {name} | {row['witness']:.1f} | {row['evidence']:.1f} | {row['own'][0]:.2f} |")
    return lines


def school(folder: Path, kinds: Sequence[str] = ("white", "matern-1/2")) -> dict[str, Any]:
    """Return errors and coverage of predictions one hour and a day ahead, over hours that were not fitted.

    First over the last days, by both kinds of disturbance; then, by the likelier one, over each half of a week before
    from a fit to all before it: errors a day ahead go together, and five days say little of them.
    """
    with (folder / SCHOOL).open() as file:
        rows = [[float(row[name]) for name in ("Ph", "Ta", "Ti")] for row in csv.DictReader(file)]
    data = np.array(rows).T
    last, found = data.shape[1] - HOURS, {}
    for kind in kinds:
        found[kind] = predict_school(data, last, HOURS, kind)
    best = max(kinds, key=lambda kind: float(found[kind]["evidence"]))
    halves = [predict_school(data, last - number * HALF, HALF, best) for number in (5, 4, 3, 2, 1)]
    hours = [HALF] * len(halves) + [HOURS]
    for lead in LEADS:
        shares = [each["ahead"][lead]["coverage"] for each in (*halves, found[best])]
        before, pooled = float(np.mean(shares[:-1])), float(np.average(shares, weights=hours))
        told = f"{100 * before:.1f} % in the 95 % band, with the last days {100 * pooled:.1f} %"
        print(f"        {lead} ahead over the weeks before: {told}")
        found[f"weeks, {lead}"] = {"halves": shares, "before": before, "pooled": pooled}
    return {**found, "halves": halves, "best": best}


def school_table(found: dict[str, Any]) -> list[str]:
    """Return the predictions of the school by the likelier disturbance as a table."""
    lines = ["| fitted | predicted | an hour ahead | a day ahead |", "| --- | --- | --- | --- |"]
    last = found[found["best"]]["ahead"]
    parts = [(each["ahead"], f"{3.5 * (number + 3):g} days", "3.5 days") for number, each in enumerate(found["halves"])]
    for ahead, fitted, predicted in (*parts, (last, "28 days", "last five days")):
        cells = [f"{100 * ahead[lead]['coverage']:.1f} %, {ahead[lead]['rmse']:.2f} K" for lead in LEADS]
        lines.append(f"| {fitted} | {predicted} | {' | '.join(cells)} |")
    pooled = [f"{100 * found[f'weeks, {lead}']['pooled']:.1f} %" for lead in LEADS]
    return [*lines, f"| | all 540 hours | {' | '.join(pooled)} |"]


def predict_school(data: Array, cut: int, hours: int, kind: str) -> dict[str, Any]:
    """Return errors and coverage over some hours, from a fit to all before them."""
    names, t = ("Ph", "Ta", "Ti"), np.arange(float(data.shape[1]))
    gp = lk.LODEGP(
        school_system(disturbed=True),
        inputs={"Ph": "hold", "Ta": "hold"},
        disturbances={"w": kind, "v": "white"},
        random_state=0,
    )
    _, seconds = timed(partial(gp.fit, t[:cut], dict(zip(names, data[:, :cut], strict=True))))
    gp.label(units={"t": "h"})
    told: dict[int | str, Any] = {}
    for step, before in LEADS.items():
        # Ten hours tell where a record begins, and are not counted: so much before.
        some = slice(cut - before, cut + hours)
        later = dict(zip(names, data[:, some], strict=True))
        told |= gp.validate(t[some], later, ahead=(step,))["Ti"].ahead
    print(f"school, {kind}, {cut} hours: log evidence {gp.log_evidence_:.2f}, {seconds:.1f} s")
    print(f"        {gp.diagnose().sentences[0]}")
    for lead, each in told.items():
        held = f"{100 * each.coverage:.1f} % in the 95 % band (90 to 98)"
        print(f"        {lead} ahead over the next {hours} hours: RMSE {each.rmse:.3f}, {held}", flush=True)
    values = {name: each.value for name, each in gp.parameters_.items()}
    return {
        "ahead": {str(k): each.to_dict() for k, each in told.items()}, "values": values, "seconds": seconds,
        "evidence": gp.log_evidence_,
    }  # fmt: skip


@dataclass(frozen=True)
class Plant:
    """A state space with its equations, in which e disturbs.

    Parameters
    ----------
    name : str
    equations : list of str
    truth : dict of str to float
        Parameters; those that may be negative begin with a y.
    F, G, L : arrays, shapes (s, s), (s, 1) and (s,)
        How states move, what the input does, and where the disturbance acts.
    seen : dict of str to int
        What is measured: which state.
    offset : float
        What is added to measurements.
    """

    name: str
    equations: list[str]
    truth: dict[str, float]
    F: Array
    G: Array
    L: Array
    seen: dict[str, int]
    offset: float = 0.0

    def system(self, *, disturbed: bool) -> lk.System:
        """Return the system, with the disturbance or without it."""
        made = {name: lk.Parameter(positive=not name.startswith("y")) for name in self.truth}
        texts = self.equations if disturbed else [text.replace(" + e", "") for text in self.equations]
        return lk.System(texts, parameters=made)


def draw_plant(seed: int) -> Plant:
    """Return one of four kinds, in random units of time and of what is measured: four decades of each."""
    generator = np.random.default_rng([seed, 6])
    tau, gain = 10.0 ** generator.uniform(-1.0, 3.0), 10.0 ** generator.uniform(-2.0, 2.0)
    ratio, damping = float(generator.uniform(0.15, 0.6)), float(generator.uniform(0.15, 0.6))
    k, c = tau**-2, 2.0 * damping / tau
    b = gain * k
    kind = seed % 4
    if kind == 0:
        truth = {"tau": tau, "K": gain, "y0": gain * float(generator.normal())}
        F, G, L = np.array([[-1 / tau]]), np.array([[gain / tau]]), np.array([1 / tau])
        return Plant("lag", ["tau*y' + y - y0 = K*u + e"], truth, F, G, L, {"y": 0}, truth["y0"])
    if kind == 1:
        F, G = np.array([[0.0, 1.0], [-k, -c]]), np.array([[0.0], [b]])
        truth = {"k": k, "c": c, "b": b}
        return Plant("oscillator", ["x'' + c*x' + k*x = b*u + e"], truth, F, G, np.array([0.0, 1.0]), {"x": 0})
    if kind == 2:
        s = ratio * tau
        F, G = np.array([[0.0, 1.0, 0.0], [-k, -c, b], [0.0, 0.0, -1 / s]]), np.array([[0.0], [0.0], [1 / s]])
        truth = {"k": k, "c": c, "b": b, "s": s}
        texts = ["x'' + c*x' + k*x = b*v + e", "s*v' + v = u"]
        return Plant("actuated", texts, truth, F, G, np.array([0.0, 1.0, 0.0]), {"x": 0})
    p, q = ratio / tau, 1.0 / tau
    F, G = np.array([[-p, p], [q, -q - p]]), np.array([[gain / tau], [0.0]])
    truth = {"p": p, "q": q, "b": gain / tau}
    texts = ["x' = p*(z - x) + b*u + e", "z' = q*(x - z) - p*z"]
    return Plant("two stores", texts, truth, F, G, np.array([1.0, 0.0]), {"x": 0, "z": 1})


def simulate(plant: Plant, seed: int) -> tuple[Array, dict[str, Array]]:
    """Return times, and what is measured of a plant with its input: exact steps of the disturbed system."""
    generator, size = np.random.default_rng([seed, 7]), len(plant.F)
    h = 12.0 / np.min(np.abs(np.linalg.eigvals(plant.F).real)) / ROWS
    u = steps(generator, ROWS, 4, 40)
    free = respond(plant.F, plant.G, h, u, np.zeros(size))
    places = list(plant.seen.values())
    settled = np.diag(solve_continuous_lyapunov(plant.F, -np.outer(plant.L, plant.L)))
    L = plant.L * SIZE / np.sqrt(np.mean(settled[places] / free.var(axis=0)[places]))
    flow, noise = discretise(plant.F, L, h)
    scales = np.sqrt(np.maximum(np.diag(noise), 0.0))
    # States that the disturbance does not reach have no noise.
    safe = np.where(scales > 1e-12 * scales.max(), scales, np.inf)
    values, vectors = np.linalg.eigh(noise / np.outer(safe, safe))
    root = scales[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    x, shift = free.copy(), np.zeros(size)
    for k in range(ROWS):
        x[k] += shift
        shift = flow @ shift + root @ generator.standard_normal(size)
    seen = {name: plant.offset + x[:, place] for name, place in plant.seen.items()}
    data = {name: own + NOISE * own.std() * generator.standard_normal(ROWS) for name, own in seen.items()}
    return h * np.arange(ROWS), {**data, "u": u}


def run_plant(seed: int) -> dict[str, Any]:
    """Fit a random plant that something unknown disturbs, with that and without it."""
    plant = draw_plant(seed)
    t, data = simulate(plant, seed)
    found: dict[str, Any] = {"plant": plant.name, "seed": seed, "truth": plant.truth}
    with threadpool_limits(1):
        for key in ("with", "without"):
            begin, disturbances = time.process_time(), {"e": "white"} if key == "with" else None
            gp = lk.LODEGP(
                plant.system(disturbed=key == "with"),
                inputs={"u": "hold"},
                disturbances=disturbances,
                noise="channel",
                random_state=seed,
            ).fit(t, data)
            checks = gp.fit_.diagnosis.checks
            plain = replace(gp.fit_, diagnosis=replace(gp.fit_.diagnosis, widening={}))
            found[key] = {
                "covered": _covered(gp.fit_, plant.truth),
                "before": _covered(plain, plant.truth),
                "seconds": time.process_time() - begin,
                "evidence": gp.log_evidence_,
                "correlated": any(check.is_correlated for check in checks),
                "tests": [check.whiteness.p_value < 0.05 for check in checks if check.whiteness is not None],
                "found": {name: [each.value, *each.interval] for name, each in gp.parameters_.items()},
                "open": [name for name, each in gp.parameters_.items() if not each.identified],
            }
    return found


def _covered(fit: Any, truth: dict[str, float]) -> dict[str, bool]:
    """Return for each parameter that is identified whether its interval holds the truth."""
    own = {name: fit.estimates[name] for name in truth}
    return {n: bool(each.interval[0] <= truth[n] <= each.interval[1]) for n, each in own.items() if each.identified}


def plants(seeds: int, jobs: int) -> list[dict[str, Any]]:
    """Return simulated plants: how often intervals hold the truth, with the disturbance and without it."""
    rows = run_all(run_plant, seeds, jobs)
    for key in ("with", "without"):
        own = [row[key] for row in rows]
        seconds = np.mean([each["seconds"] for each in own])
        called = 100 * np.mean([each["correlated"] for each in own])
        tests = 100 * np.mean([test for each in own for test in each["tests"]])
        held = [100 * np.mean([each for row in own for each in row[what].values()]) for what in ("covered", "before")]
        print(f"{len(rows)} plants, fitted {key} disturbances: intervals hold the truth in {held[0]:.1f} %", end="")
        print(f"{' (90 to 98)' if key == 'with' else f', before they are widened {held[1]:.1f} %'};", end="")
        print(f" {called:.0f} % called correlated, tests at 5 % reject {tests:.1f} %; {seconds:.1f} s each", flush=True)
        for name in sorted({row["plant"] for row in rows}):
            some = [row[key]["covered"] for row in rows if row["plant"] == name]
            shares = {n: f"{100 * np.mean([each[n] for each in some if n in each]):.0f} %" for n in some[0]}
            print(f"    {name}: {shares}", flush=True)
    return rows


def fit_buildings(seeds: int, starts: int) -> list[dict[str, Any]]:
    """Return what fits of simulated buildings take, and what random starts find."""
    rows = []
    for seed in range(seeds):
        for n_states in buildings.EQUATIONS:
            row = buildings.fit_building(buildings.make_building(n_states, seed), starts)
            rows.append({"states": n_states, "seed": seed, **row})
            seconds = [row[name] for name in ("fit_seconds", "seconds")]
            loops = [f"{each / row['loop_seconds']:.0f}" for each in seconds]
            print(f"building, {n_states} states, {seed}: fit {seconds[0]:.1f} s = {loops[0]} plain filters", end=", ")
            print(f"{row['gradients_fit']} gradients; with summary {seconds[1]:.1f} s = {loops[1]}", end=", ")
            print(f"{row['gradients']} gradients; random starts {row['best_of_random_starts'] - row['objective']:+.3f}")
    missed = sum(row["best_of_random_starts"] > row["objective"] + BETTER for row in rows)
    print(f"random starts find a better optimum in {missed} of {len(rows)} buildings", flush=True)
    return rows


def main() -> None:
    """Print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=["lamp", "school", "plants"])
    parser.add_argument("--records", type=Path, default=Path("../shared/data"), help="folder of real records")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--starts", type=int, default=0, help="random starts for each building")
    parser.add_argument("--json", type=Path, help="where results go")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    runs: dict[str, tuple[str, Callable[[Path], Any]]] = {"lamp": (LAMP, lamp), "school": (SCHOOL, school)}
    for part in given.parts:
        if part == "plants":
            found[part] = plants(given.seeds, given.jobs)
        elif part == "buildings":
            found[part] = fit_buildings(given.seeds, given.starts)
        elif (given.records / runs[part][0]).exists():
            with threadpool_limits(1):
                found[part] = runs[part][1](given.records)
        else:
            print(f"{part}: skipped, no {given.records / runs[part][0]}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
