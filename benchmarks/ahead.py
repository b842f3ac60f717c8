"""Claims: bands of predictions ahead hold what they say, where the model holds and where its disturbance is unsteady.

A lag with a held input and a white disturbance, 400 rows, fitted with it; then another 400 rows are predicted one row,
ten and fifty rows ahead. The disturbance has one intensity, or is four times as strong by day as by night, or has heavy
tails; or the model is wrong: the disturbance is not white, but lasts for three rows or for sixteen, or the input passes
another lag that the model does not have. Prints how many measurements 95 % bands hold, at the learned values alone and
as they are given.

With ``--textbook`` a filter of the textbook with a search of its own takes the place of the fit: a tenth of the time,
for many plants. What bands make of its errors is the same.

With ``--weeks``: how far from 95 % a week of the school's heating may be where nothing is wrong. Its model at learned
values makes weeks, and is what predicts them an hour and a day ahead.

    python benchmarks/ahead.py [--plants N] [--jobs N] [--kinds KIND ...] [--textbook] [--weeks N]
        [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

import lodekit as lk
from disturbances import discretise
from greybox_records import HOURS
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.fitting.setup import build_setup
from lodekit.inference.innovations import Horizon, create_filter, forecast_errors
from lodekit.inference.selection import ENGINES
from lodekit.results.forecast import BURN_IN_ROWS
from lodekit.uncertainty.forecast_errors import calibrate_error_scale, fit_garch

Array = NDArray[np.float64]
ROWS, STEP, TAU, GAIN, NOISE = 400, 0.5, 4.0, 2.0, 0.03
LEADS = (1, 10, 50)
#: For how long disturbances last that are not white, in the unit of time; and the lag that the model does not have.
LASTING, HIDDEN = {"short-lived": 1.5, "lasting": 8.0}, 1.5
TITLES = {
    "steady": "one intensity",
    "day and night": "four times as strong by day as by night",
    "heavy tails": "heavy tails (four degrees of freedom)",
    "short-lived": "not white: it lasts for three rows",
    "lasting": "not white: it lasts for sixteen rows",
    "lag left out": "white, but the input passes a lag that the model does not have",
}
KINDS = tuple(TITLES)


def record(kind: str, generator: np.random.Generator, rows: int) -> tuple[Array, dict[str, Array]]:
    """Return times and data of a plant; exact but for the size of the disturbance, which is held over a step."""
    u = np.repeat(generator.integers(0, 2, rows // 10), 10).astype(float)
    decay = np.exp(-STEP / TAU)
    push = generator.standard_normal(rows) if kind != "heavy tails" else generator.standard_t(4, rows) / np.sqrt(2.0)
    if kind == "day and night":
        push *= np.where(np.arange(rows) // 24 % 2, 0.35, 1.4)
    if kind in LASTING:
        kept = np.exp(-STEP / LASTING[kind])
        push = lfilter([np.sqrt(1 - kept**2)], [1.0, -kept], push)
    if kind == "lag left out":
        kept = np.exp(-STEP / HIDDEN)
        driving = lfilter([1 - kept], [1.0, -kept], u)
    else:
        driving = u
    y = np.zeros(rows)
    for k in range(rows - 1):
        y[k + 1] = decay * y[k] + GAIN * (1 - decay) * driving[k] + 0.12 * push[k]
    return STEP * np.arange(float(rows)), {"y": y + NOISE * generator.standard_normal(rows), "u": u}


def cover(kind: str, seed: int) -> list[list[float]]:
    """Return which share of later rows is in bands of the model, and in those that are given, for each lead."""
    generator = np.random.default_rng([seed, KINDS.index(kind)])
    positive = lk.Parameter(positive=True)
    system = lk.System("tau*y' + y = K*u + w", parameters={"tau": positive, "K": positive})
    t, data = record(kind, generator, 2 * ROWS)
    first, later = ({name: values[part] for name, values in data.items()} for part in (slice(ROWS), slice(ROWS, None)))
    with threadpool_limits(1):
        gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances={"w": "white"}, random_state=0).fit(t[:ROWS], first)
        given = gp.validate(t[ROWS:], later, ahead=LEADS)["y"].ahead
        kept = Measurements.from_observations(
            Observations().add(t[ROWS:], "y", later["y"]).add(t[ROWS:], "u", later["u"])
        )
        kept = kept.with_known_inputs({"u": "hold"})
        own = build_setup(system, gp.fit_.settings, kept).prior
        hyper = replace(gp.fit_.hyperparameters, mode_amplitudes=np.full(1, 1e4))
        turns = create_filter(ENGINES["markov"], own, kept.series)(hyper)
    assert turns is not None
    found = []
    for lead in LEADS:
        errors, deviations = (part[10 + lead :] for part in forecast_errors(turns, [(0, Horizon(lead))])[0])
        found.append([float(np.mean(np.abs(errors) <= 1.96 * deviations)), given[lead].coverage])
    return found


class Textbook:
    """A filter for the lag with a white disturbance, at logarithms of tau, K and the deviations of pushes and noise."""

    def __init__(self, point: Array, u: Array, y: Array) -> None:
        self.decay = float(np.exp(-STEP / np.exp(point[0])))
        self.pushes = float(np.exp(point[1])) * (1 - self.decay) * u
        self.push, self.noise = (float(np.exp(2 * each)) for each in point[2:])
        self.y, mean, variance = y, 0.0, 1e4
        rows = []
        for value, pushed in zip(y.tolist(), self.pushes.tolist(), strict=True):
            error, whole = value - mean, variance + self.noise
            mean, variance = mean + variance / whole * error, variance * self.noise / whole
            rows.append((error, whole, mean, variance))
            mean, variance = self.decay * mean + pushed, self.decay**2 * variance + self.push
        self.errors, self.variances, self.means, self.left = np.array(rows).T

    @property
    def loss(self) -> float:
        """Minus the log likelihood, but for a constant; the first row tells where the record begins."""
        return 0.5 * float(np.sum(np.log(self.variances[1:]) + self.errors[1:] ** 2 / self.variances[1:]))

    @property
    def innovations(self) -> Array:
        """Errors one row ahead over their deviations; the first ones as if nothing had been seen."""
        found = self.errors / np.sqrt(self.variances)
        found[:BURN_IN_ROWS] = np.clip(found[:BURN_IN_ROWS], -1.0, 1.0)
        return np.asarray(found)

    def ahead(self, lead: int) -> tuple[Array, Array]:
        """Return errors so many rows ahead and their variances, from the row on that knows more than ten."""
        count = len(self.y) - lead
        mean, variance = self.means[:count], self.left[:count]
        for k in range(lead):
            mean, variance = self.decay * mean + self.pushes[k : k + count], self.decay**2 * variance + self.push
        return (self.y[lead:] - mean)[BURN_IN_ROWS:], (variance + self.noise)[BURN_IN_ROWS:]


def cover_by_textbook(kind: str, seed: int) -> list[list[float]]:
    """Return what `cover` does, for a fit by the textbook."""
    t, data = record(kind, np.random.default_rng([seed, KINDS.index(kind)]), 2 * ROWS)
    first, later = ((data["u"][part], data["y"][part]) for part in (slice(ROWS), slice(ROWS, None)))
    start = np.log([TAU, GAIN, 0.12, NOISE])
    best = minimize(lambda p: Textbook(p, *first).loss, start, method="L-BFGS-B", bounds=[(-6.0, 6.0)] * 4).x
    curvature = differentiate(lambda p: Textbook(p, *first).loss, best)
    values, vectors = np.linalg.eigh(curvature)
    # Three numbers beside the noise bend curves; of what nothing is known, a factor of 20 is one deviation.
    share = (ROWS - 3) / ROWS
    roots = (vectors / np.sqrt(np.maximum(values, 1.0 / 9.0) * share)).T
    fitted, kept = (Textbook(best, *part) for part in (first, later))
    unsteadiness = fit_garch([t[:ROWS]], [fitted.innovations])
    found = []
    for lead in LEADS:
        parts = []
        for part, own in ((first, fitted), (later, kept)):
            both = [[Textbook(best + sign * root, *part).ahead(lead)[0] for sign in (0.1, -0.1)] for root in roots]
            moved = np.sum([((above - below) / 0.2) ** 2 for above, below in both], axis=0)
            sizes = unsteadiness.filter_variance(t[:ROWS], own.innovations)[BURN_IN_ROWS : ROWS - lead]
            parts.append((*own.ahead(lead), moved, sizes))
        errors, variances, moved, sizes = parts[0]
        wide = np.sqrt(variances / share)
        spread = calibrate_error_scale([errors / wide], [sizes], [moved / wide**2], lead)
        errors, variances, moved, sizes = parts[1]
        given = spread.forecast_std(sizes, variances / share, moved)
        found.append([float(np.mean(np.abs(errors) <= 1.96 * each)) for each in (np.sqrt(variances), given)])
    return found


def differentiate(f: Callable[[Array], float], x: Array, step: float = 2e-3) -> Array:
    """Return the matrix of second derivatives."""
    units = step * np.eye(len(x))
    found = [[f(x + a + b) - f(x + a - b) - f(x - a + b) + f(x - a - b) for a in units] for b in units]
    return np.array(found) / (4.0 * step**2)


def school_weeks(count: int, rows: int = HOURS) -> dict[int, Array]:
    """Return the shares of weeks that 95 % bands hold an hour and a day ahead, where the model makes them."""
    Ci, Ce, Rie, Ria, Rea, Ch, Rih = 127.64, 392.68, 0.063165, 8.0783, 0.58689, 2.55, 0.65
    length, w, v, noise = 1.2003, 11.305, 23.74, 0.024074
    F = np.zeros((4, 4))
    F[0] = [-(1 / Rie + 1 / Ria + 1 / Rih) / Ci, 1 / Rie / Ci, 1 / Rih / Ci, 1 / Ci]
    F[1, :2] = [1 / Rie / Ce, -(1 / Rie + 1 / Rea) / Ce]
    F[2, [0, 2]] = [1 / Rih / Ch, -1 / Rih / Ch]
    F[3, 3] = -1 / length
    flow, first = discretise(F, np.array([0.0, 0.0, 0.0, w * np.sqrt(2 / length)]), 1.0)
    Q = first + discretise(F, np.array([0.0, v / Ce, 0.0, 0.0]), 1.0)[1]
    generator, root = np.random.default_rng(0), np.linalg.cholesky(Q + 1e-14 * np.eye(4))
    P, x, m = np.diag([1.0, 1.0, 1.0, w**2]), np.zeros((4, count)), np.zeros((4, count))
    x[3] = w * generator.standard_normal(count)
    seen, kept = [], []
    # A filter that has forgotten where it began.
    for _ in range(300 + rows):
        y = x[0] + noise * generator.standard_normal(count)
        gain = P[:, 0] / (P[0, 0] + noise**2)
        m, P = m + np.outer(gain, y - m[0]), P - np.outer(gain, P[0])
        seen.append(y)
        kept.append((m, P))
        x, m, P = flow @ x + root @ generator.standard_normal((4, count)), flow @ m, flow @ P @ flow.T + Q
    found = {}
    for lead in (1, 24):
        far, spread = np.eye(4), np.zeros((4, 4))
        for _ in range(lead):
            far, spread = flow @ far, flow @ spread @ flow.T + Q
        inside = []
        for row in range(300, 300 + rows):
            mean, own = kept[row - lead]
            deviation = np.sqrt((far @ own @ far.T + spread)[0, 0] + noise**2)
            inside.append(np.abs(seen[row] - (far @ mean)[0]) <= 1.96 * deviation)
        found[lead] = np.mean(inside, axis=0)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plants", type=int, default=100, help="for each kind")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--textbook", action="store_true", help="a filter of the textbook in place of the fit")
    parser.add_argument("--weeks", type=int, default=0, help="weeks of the school's model alone")
    parser.add_argument("--json", type=Path, help="write the table to this file")
    given = parser.parse_args()
    weeks: dict[int, dict[str, float]] = {}
    table = ["| disturbance | one row ahead | ten rows ahead | fifty rows ahead |", "| --- | --- | --- | --- |"]
    if given.weeks:
        for lead, own in school_weeks(given.weeks).items():
            above, inside = np.mean(own > 0.98), np.mean((own >= 0.9) & (own <= 0.98))
            text = f"{above:.0%} of all weeks above 98 %, {inside:.0%} in 90 to 98 %"
            print(f"{lead:>3} h ahead: {own.mean():.1%} on the whole; {text}")
            weeks[lead] = {"mean": float(own.mean()), "above": float(above), "inside": float(inside)}
    for kind in given.kinds if not given.weeks else ():
        run = delayed(cover_by_textbook if given.textbook else cover)
        shares = np.array(Parallel(n_jobs=given.jobs)(run(kind, seed) for seed in range(given.plants)))
        # Of records apart, the middle nine tenths.
        low, high = np.quantile(shares[:, :, 1], [0.05, 0.95], axis=0)
        cells = [f"{100 * plain:.1f} → {100 * covered:.1f} %" for plain, covered in shares.mean(axis=0)]
        table.append(f"| {TITLES[kind]} | {' | '.join(cells)} |")
        for number, lead in enumerate(LEADS):
            plain, covered = shares[:, number].mean(axis=0)
            apart = f"single records {low[number]:.0%} to {high[number]:.0%}"
            print(f"{kind:<16}{lead:>3} ahead: model {plain:.1%}, given {covered:.1%} ({apart})", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"table": table, "weeks": weeks}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
