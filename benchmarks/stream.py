"""Claim: a stream takes a row in the same time for ever, ends where the batch ends, and finds a sensor that drifts.

Speed and agreement: two free functions of three states each and two outputs, at regular and at irregular times, with
ordinary noise and with a millionth of the signal; the batch is the Markov engine on all rows at once. Faults: two
plants, each fitted anew to a healthy record of every stream; then rows come, first healthy ones, which count false
alarms, then those of a sensor that drifts, by a share of its noise in each row, which count delays.

With --known the true parameters and noise are given: what is left of false alarms is not what learning errs by. With
--plain the threshold is that of known parameters. With --truth a textbook filter at all true values, lengthscale and
deviation included, counts false alarms of the second plant: nothing is learned there.

    python benchmarks/stream.py [--rows N] [--streams N] [--rate R] [--known] [--plain] [--jobs N] [--json FILE]
    python benchmarks/stream.py --truth [--streams N] [--rate R]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.linalg import expm
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.results.stream.cusum import cusum_threshold

Array = NDArray[np.float64]
COUPLED = lk.System(
    "x' = -a*x + u; y' = -b*y + x + v", parameters={"a": lk.Parameter(fixed=1.0), "b": lk.Parameter(fixed=0.5)}
)
#: Rows that models are fitted to, healthy ones after that, and those of a fault.
FITTED, HEALTHY, FAULTY = 1000, 3000, 1000
#: Of the sensor that drifts: deviations of its noise in each row.
DRIFTS = (0.01, 0.03, 0.1)
NOISE = 0.05


def agree(rows: int, *, regular: bool = True, noise: float = 0.1) -> dict[str, float]:
    """Return rows in a second, and how far a stream ends from the batch, relative to the largest mean and deviation."""
    generator = np.random.default_rng(0)
    times = 0.01 * np.arange(rows) if regular else np.cumsum(generator.uniform(0.005, 0.015, rows))
    values = {n: np.sin((1.0 - 0.3 * k) * times) + noise * generator.standard_normal(rows) for k, n in enumerate("xy")}
    first = slice(0, 1000)
    gp = lk.LODEGP(COUPLED, latent="matern-5/2", random_state=0, restarts=1)
    gp.fit(times[first], {name: own[first] for name, own in values.items()}, noise)
    stream, begin = gp.stream(), time.process_time()
    columns = [times[1000:].tolist(), *(own[1000:].tolist() for own in values.values())]
    for t, x, y in zip(*columns, strict=True):
        stream.push(t, {"x": x, "y": y})
    speed = (rows - 1000) / (time.process_time() - begin)
    data = Observations()
    for name, own in values.items():
        data = data.add(times, name, own, noise)
    fit, at = gp.fit_, times[-1] + np.array([0.0, 0.5])
    engine = KalmanEngine(KalmanData.from_series(fit.prior, Measurements.from_observations(data).series))
    posterior, observables = engine.posterior(fit.hyperparameters), fit.observables(COUPLED.channels)
    mean, std = posterior.mean(observables, at), np.sqrt(posterior.variance(observables, at))
    own_mean, own_std = stream.predict(at, return_std=True)
    errors = {"mean": np.abs(own_mean - mean).max() / np.abs(mean).max(), "std": np.abs(own_std / std - 1.0).max()}
    found = {"rows": rows, "noise": noise, "regular": regular, "rows a second": speed, **errors}
    kind = "regular" if regular else "irregular"
    print(
        f"{rows} rows, {kind}, noise {noise:g}: {speed:.0f} rows a second; from the batch: mean {errors['mean']:.1e}, "
        f"deviation {errors['std']:.1e}",
        flush=True,
    )
    return found


def heated(rows: int, generator: np.random.Generator) -> tuple[Array, dict[str, Array]]:
    """Two bodies, the first of which is heated by a known power that is switched at random."""
    step, tau, K, s = 1.0, 60.0, 2.0, 20.0
    u = np.repeat(generator.uniform(0.0, 1.0, rows // 40 + 1), 40)[:rows]
    moved = expm(step * np.array([[-1 / tau, 0.0, K / tau], [1 / s, -1 / s, 0.0], [0.0, 0.0, 0.0]]))
    states = np.zeros((rows, 2))
    for k in range(rows - 1):
        states[k + 1] = moved[:2, :2] @ states[k] + moved[:2, 2] * u[k]
    noise = NOISE * generator.standard_normal((2, rows))
    return np.arange(float(rows)), {"T1": states[:, 0] + noise[0], "T2": states[:, 1] + noise[1], "u": u}


def pocket(rows: int, generator: np.random.Generator) -> tuple[Array, dict[str, Array]]:
    """A slow sensor beside a fast one: nothing is known but that one lags behind the other."""
    step, s, length = 1.0, 8.0, 40.0
    rate = np.sqrt(5.0) / length
    F = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-(rate**3), -3 * rate**2, -3 * rate]])
    at_rest = np.array([[1.0, 0.0, -(rate**2) / 3], [0.0, rate**2 / 3, 0.0], [-(rate**2) / 3, 0.0, rate**4]])
    moved = expm(step * F)
    root = np.linalg.cholesky(at_rest - moved @ at_rest @ moved.T)
    states, drawn = np.zeros((rows, 3)), generator.standard_normal((rows, 3))
    states[0] = np.linalg.cholesky(at_rest) @ drawn[0]
    for k in range(1, rows):
        states[k] = moved @ states[k - 1] + root @ drawn[k]
    noise = NOISE * generator.standard_normal((2, rows))
    return np.arange(float(rows)), {"fast": states[:, 0] + s * states[:, 1] + noise[0], "slow": states[:, 0] + noise[1]}


def count_at_truth(streams: int, rate: float) -> None:
    """Print how many false alarms a textbook filter has of the second plant, where everything is known."""
    generator, s, length, k = np.random.default_rng(1), 8.0, 40.0, 0.5
    decay = np.sqrt(5.0) / length
    F = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-(decay**3), -3 * decay**2, -3 * decay]])
    P = np.array([[1.0, 0.0, -(decay**2) / 3], [0.0, decay**2 / 3, 0.0], [-(decay**2) / 3, 0.0, decay**4]])
    H, A = np.array([[1.0, s, 0.0], [1.0, 0.0, 0.0]]), expm(F)
    Q, root = P - A @ P @ A.T, np.linalg.cholesky(P - A @ P @ A.T)
    x, m = generator.standard_normal((streams, 3)) @ np.linalg.cholesky(P).T, np.zeros((streams, 3))
    high, low, alarms, threshold = *np.zeros((2, streams, 2)), np.zeros(streams), cusum_threshold(rate / 2, k)
    for row in range(FITTED + HEALTHY):
        V = H @ P @ H.T + NOISE**2 * np.eye(2)
        e = x @ H.T + NOISE * generator.standard_normal((streams, 2)) - m @ H.T
        if row >= FITTED:
            z = e / np.sqrt(np.diag(V))
            high, low = np.maximum(0.0, high + z - k), np.maximum(0.0, low - z - k)
            crossed = (high > threshold) | (low > threshold)
            high[crossed] = low[crossed] = 0.0
            alarms += crossed.sum(axis=1)
        gain = P @ H.T @ np.linalg.inv(V)
        m, P = (m + e @ gain.T) @ A.T, A @ (P - gain @ V @ gain.T) @ A.T + Q
        x = x @ A.T + generator.standard_normal((streams, 3)) @ root.T
    error = alarms.std() / np.sqrt(streams) / HEALTHY
    print(f"everything known: {alarms.mean() / HEALTHY:.3e} false alarms a row, +- {error:.1e}; stated {rate:.1e}")


#: Simulations, equations, true parameters, arguments, and the sensor that drifts.
PLANTS: dict[str, tuple[Any, str, dict[str, float], dict[str, Any], str]] = {
    "two heated bodies, known heater": (
        heated,
        "tau*T1' + T1 = K*u; s*T2' + T2 = T1",
        {"tau": 60.0, "K": 2.0, "s": 20.0},
        {"inputs": {"u": "hold"}},
        "T2",
    ),
    "a slow sensor beside a fast one": (pocket, "s*slow' + slow = fast", {"s": 8.0}, {"latent": "matern-5/2"}, "fast"),
}


def one(plant: str, seed: int, rate: float, known: bool, plain: bool) -> dict[str, Any]:
    """Return how many false alarms one stream has, and after how many rows each drift is found."""
    simulate, equations, truth, arguments, sensor = PLANTS[plant]
    parameters = {n: lk.Parameter(fixed=v) if known else lk.Parameter(positive=True) for n, v in truth.items()}
    system = lk.System(equations, parameters=parameters)
    generator = np.random.default_rng([seed, len(plant)])
    times, values = simulate(FITTED + HEALTHY + FAULTY, generator)
    with threadpool_limits(1):
        gp = lk.LODEGP(system, random_state=0, restarts=2, **arguments)
        gp.fit(times[:FITTED], {name: own[:FITTED] for name, own in values.items()}, NOISE if known else None)
        stream = gp.stream(false_alarms=rate)
        usual = cusum_threshold(rate / len(stream.observables), 0.5 * stream.shift)
        stream.threshold = usual if plain else stream.threshold
        names, rows = list(values), list(zip(*(own.tolist() for own in values.values()), strict=True))
        for k in range(FITTED, FITTED + HEALTHY):
            stream.push(float(times[k]), dict(zip(names, rows[k], strict=True)))
        found: dict[str, Any] = {"false": stream.alarms, "delays": {}}
        with tempfile.TemporaryDirectory() as folder:
            stream.save(Path(folder, "healthy"))
            copies = [gp.stream(resume=Path(folder, "healthy")) for _ in DRIFTS]
        for copy in copies:
            copy.threshold = stream.threshold
        for drift, own in zip(DRIFTS, copies, strict=True):
            for k in range(FITTED + HEALTHY, len(times)):
                row = dict(zip(names, rows[k], strict=True))
                row[sensor] += drift * NOISE * (k - FITTED - HEALTHY + 1)
                if any(item.alarm for item in own.push(float(times[k]), row).values()):
                    found["delays"][drift] = k - FITTED - HEALTHY + 1
                    break
    return found


def find_faults(streams: int, jobs: int, rate: float, known: bool, plain: bool) -> dict[str, Any]:
    """Return false alarms, shares of faults that were found, and delays."""
    total: dict[str, Any] = {}
    for plant in PLANTS:
        found = Parallel(n_jobs=jobs)(delayed(one)(plant, seed, rate, known, plain) for seed in range(streams))
        alarms, rows = sum(each["false"] for each in found), streams * HEALTHY
        total[plant] = {"false alarms": alarms, "rows": rows, "stated rate": rate}
        print(f"{plant}: {alarms} false alarms in {rows} rows, {alarms / rows:.1e} for each; stated {rate:.1e}")
        for drift in DRIFTS:
            delays = np.array([each["delays"].get(drift, np.inf) for each in found])
            share = float(np.isfinite(delays).mean())
            median, late = (float(np.quantile(delays, q, method="higher")) for q in (0.5, 0.95))
            total[plant][f"drift {drift:g}"] = {"found": share, "median": median, "95 %": late}
            print(
                f"  drift of {drift:g} deviations of noise a row: found {100 * share:.0f} % within {FAULTY} rows, "
                f"after {median:g} rows (median), {late:g} (95 %); the sensor was off by {median * drift:.1f} and "
                f"{late * drift:.1f} deviations then",
                flush=True,
            )
    return total


def fault_table(found: dict[str, Any]) -> list[str]:
    """Return rows until drifts are found, median and 95 %, and false alarms as a table."""
    lines = ["| plant | 0.01 a row | 0.03 a row | 0.1 a row | false alarms |", "| --- | --- | --- | --- | --- |"]
    for plant, own in found.items():
        drifts = [own[f"drift {drift:g}"] for drift in (0.01, 0.03, 0.1)]
        delays = [f"{each['median']:g}, {each['95 %']:g}" for each in drifts]
        lines.append(f"| {plant} | {' | '.join(delays)} | {own['false alarms']} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the longest stream; none for 0")
    parser.add_argument("--streams", type=int, default=100, help="with faults; none for 0")
    parser.add_argument("--rate", type=float, default=1e-4, help="of false alarms, for each row")
    parser.add_argument("--known", action="store_true", help="give the true parameters and noise")
    parser.add_argument("--plain", action="store_true", help="take the threshold of known parameters")
    parser.add_argument("--truth", action="store_true", help="a textbook filter at all true values, and nothing else")
    parser.add_argument("--jobs", type=int, default=1, help="how many streams at the same time")
    parser.add_argument("--json", type=Path, help="where results go")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.truth:
        count_at_truth(options.streams, options.rate)
        return
    if options.rows:
        with threadpool_limits(1):
            found["agreement"] = [
                agree(max(2000, options.rows // 10)),
                agree(max(2000, options.rows // 10), regular=False),
                agree(options.rows),
                agree(options.rows, noise=1e-6),
            ]
    if options.streams:
        found["faults"] = find_faults(options.streams, options.jobs, options.rate, options.known, options.plain)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
