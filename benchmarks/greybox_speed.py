"""How long fits and evaluations of driven plants take: a thousand rows to a million, beside what SciPy needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import least_squares
from scipy.signal import cont2discrete, lfilter, ss2tf

import lodekit as lk
from greybox_plants import steps
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.prior.prior import Hyperparameters
from lodekit.support.threads import single_threaded_blas

Array = NDArray[np.float64]
POSITIVE, FREE = lk.Parameter(positive=True), lk.Parameter()
#: Second order with an offset and a dead time; and two lags of which the first is hidden.
DELAYED = (
    "a*y'' + d*y' + y - y0 = K*delay(u, T)",
    {"a": POSITIVE, "d": POSITIVE, "K": FREE, "y0": FREE, "T": POSITIVE},
)
LAGS = ("p*h' = K*u - h; q*y' = h + c - y", {"p": POSITIVE, "q": POSITIVE, "K": POSITIVE, "c": FREE})
STEP, NOISE = 0.5, 0.05
#: Four states, two of them measured, nine parameters, and a tenth where the input comes later.
NETWORK = ["a*w' = b*x - w", "g*x' = w - c*x + d*y", "e*y' = x - y + f*z", "k*z' = y - z + K*{u}"]
VALUES = {"a": 1.0, "b": 0.5, "c": 1.5, "d": 0.3, "e": 1.2, "f": 0.4, "g": 2.0, "k": 0.8, "K": 2.0}


def driven_record(rows: int, *, lags: bool = False) -> tuple[Array, Array, Array]:
    """Return times, an input and a noisy output: second order, gain 2, offset 5, dead time of 2.3 steps.

    Parameters
    ----------
    rows : int
    lags : bool
        Whether it is two lags of 3 and 0.8 instead, and no dead time.
    """
    generator, fine = np.random.default_rng(0), 10
    u = steps(generator, rows, 10, 60)
    late = np.concatenate([np.full(0 if lags else 23, u[0]), np.repeat(u, fine)])[: rows * fine]
    a, d = (2.4, 3.8) if lags else (5.0, 3.0)
    F, G = np.array([[0.0, 1.0], [-1.0 / a, -d / a]]), np.array([[0.0], [2.0 / a]])
    numerator, denominator = ss2tf(*cont2discrete((F, G, np.eye(1, 2), np.zeros((1, 1))), STEP / fine, "zoh")[:4])
    y = 5.0 + lfilter(numerator[0], denominator, late)[::fine] + NOISE * generator.standard_normal(rows)
    return STEP * np.arange(float(rows)), u, y


def simulate(values: Array, u: Array) -> Array:
    """Return the output of the delayed plant by filters: jumps between samples act in two parts.

    Parameters
    ----------
    values : array, shape (7,)
        a, d, K, y0 and T, and the state at the start beside that of the first input.
    u : array, shape (n,)
    """
    a, d, gain, offset, delay = values[:5].tolist()
    whole = int(delay // STEP)
    first = delay - whole * STEP  # of each step, the input before the jump
    block = np.array([[0.0, 1.0, 0.0], [-1.0 / a, -d / a, gain / a], [0.0, 0.0, 0.0]])
    early, late = expm(first * block), expm((STEP - first) * block)
    P = late[:2, :2] @ early[:2, :2]
    G = np.stack([late[:2, :2] @ early[:2, 2], late[:2, 2]], axis=1)
    held = np.concatenate([np.full(whole + 1, u[0]), u])
    found = np.full(len(u), offset)
    for column, signal in ((0, held[: len(u)]), (1, held[1 : len(u) + 1])):
        numerator, denominator = ss2tf(P, G[:, [column]], np.eye(1, 2), np.zeros((1, 1)))
        found += lfilter(numerator[0], denominator, signal)
    numerator, denominator = ss2tf(P, values[5:, None], np.eye(1, 2), np.zeros((1, 1)))
    return np.asarray(found + lfilter(numerator[0][1:], denominator, np.eye(1, len(u))[0]))


def by_least_squares(u: Array, y: Array, start: Array) -> Array:
    """Return the values at which a simulation with free initial states comes closest to an output.

    Parameters
    ----------
    u, y : arrays, shape (n,)
    start : array, shape (5,)
        Values to start from: a, d, K, y0 and T.
    """
    begin, scales = np.append(start, [0.0, 0.0]), np.append(np.abs(start), [1.0, 1.0])
    found = least_squares(lambda x: simulate(x, u) - y, begin, x_scale=scales, xtol=1e-14, ftol=1e-14, gtol=1e-14)
    return np.asarray(found.x[:5])


def fit_long(equations: tuple[str, Mapping[str, lk.Parameter]], record: tuple[Array, Array, Array]) -> dict[str, Any]:
    """Fit a record from nothing to the summary.

    Parameters
    ----------
    equations : (str, dict of str to Parameter)
    record : (array, array, array)
        Times, input and output.
    """
    t, u, y = record
    with single_threaded_blas():
        start = time.process_time()
        system = lk.System(equations[0], parameters=dict(equations[1]))
        gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": u})
        gp.summary()
        seconds = time.process_time() - start
    kept = gp.parameters_
    return {
        "rows": len(t),
        "seconds": seconds,
        "values": {name: each.value for name, each in kept.items()},
        "errors": {name: each.std_error for name, each in kept.items()},
    }


def print_speed(largest: int) -> list[dict[str, Any]]:
    found = []
    for name, equations, rows, most in (
        ("dead time", DELAYED, 1_000, 2.0),
        ("dead time", DELAYED, 100_000, 60.0),
        ("dead time", DELAYED, 1_000_000, 60.0),
        ("two lags", LAGS, 1_000_000, 60.0),
    ):
        if rows > largest:
            continue
        record = driven_record(rows, lags=name == "two lags")
        line = {"plant": name, **fit_long(equations, record)}
        values = ", ".join(f"{key} {value:.4g}" for key, value in line["values"].items())
        text = f"{name:<9} {rows:>8} rows: {line['seconds']:6.2f} s to the summary (below {most:g}); {values}"
        if name == "dead time":
            own, errors = (np.array([line[key][n] for n in DELAYED[1]]) for key in ("values", "errors"))
            other = by_least_squares(*record[1:], 1.01 * own)
            line["from_least_squares"] = float(np.abs((own - other) / errors).max())
            text += f"; {line['from_least_squares']:.1g} standard errors from least squares"
        print(text, flush=True)
        found.append(line)
    return found


def best(run: Callable[[], Any], times: int) -> float:
    found = np.inf
    for _ in range(times):
        start = time.process_time()
        run()
        found = min(found, time.process_time() - start)
    return float(found)


def evaluation_ratio(rows: int, grid: str) -> dict[str, Any]:
    """Time the log evidence with its gradient: rows are regular, with a delay that moves each time, or irregular.

    Parameters
    ----------
    rows : int
    grid : {"regular", "delay", "irregular"}
    """
    generator, step = np.random.default_rng(0), 0.1
    times = step * np.arange(rows)
    u, (w, x) = generator.standard_normal(rows), generator.standard_normal((2, rows))
    if grid == "irregular":
        times = np.sort(times + generator.uniform(-0.4, 0.4, rows) * step)
    values = VALUES | ({"T": 0.23} if grid == "delay" else {})
    text = [line.format(u="delay(u, T)" if grid == "delay" else "u") for line in NETWORK]
    system = lk.System(text, parameters=dict.fromkeys(values, POSITIVE))
    seen = Measurements.from_observations(Observations().add(times, "w", w).add(times, "x", x).add(times, "u", u))
    engine = build_setup(system, FitSettings(inputs={"u": "hold"}), seen.with_known_inputs({"u": "hold"})).engine
    names, none = engine.prior.observables.compiled.parameters, np.zeros(0)
    theta = np.array([values[name] for name in names])
    others = none, none, np.ones(len(engine.prior.groups)), np.ones(2)
    # A search never comes to the same point twice.
    factors = iter(1.0 + 1e-7 * np.arange(1000.0))

    def evaluate() -> None:
        assert np.isfinite(engine.evaluate(Hyperparameters(theta * next(factors), *others)).value)

    poles = np.poly(np.exp(-step * np.array([0.1, 0.5, 1.4, 1.8])))

    def filter_both() -> None:
        for numerator in np.eye(2, 5):
            lfilter(numerator, poles, u)

    repeats = max(5, min(30, 3_000_000 // rows))
    evaluate()
    bare, whole = best(filter_both, repeats), best(evaluate, repeats)
    return {"rows": rows, "grid": grid, "lfilter_seconds": bare, "seconds": whole, "ratio": whole / bare}


def print_evaluations(largest: int) -> list[dict[str, Any]]:
    print("log evidence with gradient, 4 states, 2 outputs, 1 held input; lfilter of order 4 twice = 1")
    found = []
    with single_threaded_blas():
        for grid in ("regular", "delay", "irregular"):
            for rows in sorted({min(rows, largest) for rows in (10_000, 100_000, 1_000_000)}):
                line = evaluation_ratio(rows, grid)
                found.append(line)
                print(
                    f"{rows:>8} rows, {grid:<9}: {1e3 * line['seconds']:8.2f} ms = {line['ratio']:6.1f} times lfilter, "
                    f"{1e9 * line['seconds'] / rows:7.0f} ns a row",
                    flush=True,
                )
    return found
