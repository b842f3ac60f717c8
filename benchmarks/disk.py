"""Claim: a record of millions of rows with a known input is fitted from a file, in memory that does not grow with it.

A heated body that a white disturbance shakes, logged every second, its heater switched at random every ten minutes on
average. The record is written to a Parquet file, fitted, saved, loaded, and goes on as a stream. Processor times, one
thread, and the largest memory of the process: after its imports, after writing, after the fit, and in the end.

    python benchmarks/disk.py [--rows N] [--linear] [--json FILE]

With --linear the input changes in every row, in straight lines, which is the most that is ever kept of one.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

import lodekit as lk

Array = NDArray[np.float64]
#: Time constant of the body in seconds, what the heater does, the intensity of the disturbance, noise.
TAU, GAIN, SHAKE, NOISE = 900.0, 8.0, 0.004, 0.05
#: Rows that are simulated at the same time, and that the heater stays as it is on average.
PIECE, STAY = 200_000, 600


def write(path: Path, rows: int, *, linear: bool) -> None:
    """Write the record, piece by piece."""
    generator, state, level = np.random.default_rng(0), 0.0, 0.5
    decay = np.exp(-1.0 / TAU)
    kick = SHAKE * np.sqrt(0.5 * TAU * (1.0 - decay**2))
    files = []
    for number, first in enumerate(range(0, rows, PIECE)):
        count = min(PIECE, rows - first)
        switched = generator.random(count) < 1.0 / STAY
        switched[0] = True
        levels = generator.uniform(0.0, 1.0, int(switched.sum()))
        u = levels[np.cumsum(switched) - 1]
        if linear:
            u, last = lfilter([1.0 - np.exp(-1.0 / 60.0)], [1.0, -np.exp(-1.0 / 60.0)], u, zi=[level])
            level = float(last[0])
        pushed = (1.0 - decay) * GAIN * u + kick * generator.standard_normal(count)
        x = np.empty(count)
        x[0] = state
        x[1:] = lfilter([1.0], [1.0, -decay], pushed[:-1], zi=[decay * state])[0]
        state = decay * x[-1] + pushed[-1]
        table = {"t": first + np.arange(float(count)), "x": x + NOISE * generator.standard_normal(count), "u": u}
        files.append(path.with_suffix(f".{number:04d}.part"))
        pl.DataFrame(table).write_parquet(files[-1])
    pl.scan_parquet(files).sink_parquet(path)
    for file in files:
        file.unlink()


def peak() -> float:
    """Return the largest memory of the process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def fit(path: Path, *, linear: bool) -> tuple[lk.LODEGP, float]:
    """Return a fit, and how long it took."""
    plant = lk.System("tau*x' + x = K*u + w", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    begin = time.process_time()
    inputs = {"u": "linear" if linear else "hold"}
    gp = lk.LODEGP(plant, inputs=inputs, disturbances={"w": "white"}, random_state=0).fit(path)
    return gp, time.process_time() - begin


def measure(rows: int, *, linear: bool) -> dict[str, Any]:
    """Return times, memory and what was learned."""
    found: dict[str, Any] = {"rows": rows, "linear": linear, "memory, imports": peak()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.parquet")
        write(path, rows, linear=linear)
        found["memory, written"] = peak()
        gp, found["fit"] = fit(path, linear=linear)
        found["memory, fitted"], found["evaluations"] = peak(), gp.fit_.optimum.n_evaluations
        hyper, engine = gp.fit_.hyperparameters, gp.fit_.setup.engine
        for name, action in (("evidence", engine.value), ("with gradient", engine.evaluate)):
            begin = time.process_time()
            action(hyper)
            found[name] = time.process_time() - begin
        begin = time.process_time()
        gp.save(Path(folder, "model.lodekit"))
        found["saving"] = time.process_time() - begin
        found["size of the model"] = Path(folder, "model.lodekit").stat().st_size / 1e6
        begin = time.process_time()
        stream = lk.LODEGP.load(Path(folder, "model.lodekit")).stream()
        found["loading and stream"] = time.process_time() - begin
        found["stream"] = str(stream)
        found["memory, end"] = peak()
        print(gp.summary())
        for name, true in (("tau", TAU), ("K", GAIN)):
            each = gp.parameters_[name]
            found[name] = [each.value, each.std_error, (each.value - true) / each.std_error]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--linear", action="store_true", help="an input that changes in every row")
    parser.add_argument("--json", type=Path, help="where results go")
    options = parser.parse_args()
    with threadpool_limits(1):
        found = measure(options.rows, linear=options.linear)
    for name, value in found.items():
        print(f"{name}: {value if not isinstance(value, float) else f'{value:.3g}'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
