"""Claim: the Markov engine takes time in proportion to the number of rows, and little more for a gradient.

Two free functions of three states each and two outputs, at regular and at irregular times, with values missing; then
one Matern-3/2 process with one output, beside tinygp's quasiseparable solver, celerite2 and a Kalman filter of
statsmodels where these are installed. Times are processor times, the best of some; everything is a ratio within one
run, in one thread. Memory is what is allocated at most beyond the data, for each row.

    python benchmarks/markov.py [--rows N] [--json FILE]
    python benchmarks/markov.py --huge N [--irregular] [--json FILE]

The second form takes N rows of two outputs from a Parquet file, as many as are not kept in memory, and tells the
largest memory of the process: after its imports, after the file was read for the first time, and in the end.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.data.sources import load_data
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.inference.engine import Engine
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
COUPLED = lk.System("x' = -a*x + u; y' = -b*y + x + v", parameters=["a", "b"])
ALONE = lk.System("x' = v")
#: How many rows there are, and from how many on growth is looked at.
ROWS, FITTED = (10_000, 30_000, 100_000, 300_000, 1_000_000), (30_000, 100_000)
#: How often all are timed.
OFTEN = 7
#: Rows of a large file that are written at the same time.
PIECE = 200_000


def make(
    system: lk.System, rows: int, latent: str, *, regular: bool = True, missing: float = 0.0, names: str = "xy"
) -> tuple[Engine, Hyperparameters]:
    """Return an engine on noisy waves, a hundred rows for each unit of time, and hyperparameters that suit them."""
    generator = np.random.default_rng(0)
    times = 0.01 * np.arange(rows) if regular else np.sort(generator.uniform(0.0, 0.01 * rows, rows))
    data = Observations()
    for number, name in enumerate(names):
        values = np.sin((1.0 - 0.3 * number) * times) + 0.1 * generator.standard_normal(rows)
        values[generator.random(rows) < missing] = np.nan
        data = data.add(times, name, values)
    setup = build_setup(
        system, FitSettings(engine="markov", latent=latent, noise="shared"), Measurements.from_observations(data)
    )
    prior, count = setup.prior, setup.prior.n_processes
    lengths = np.full(count, 2.0) / prior.units.time_scale
    theta = np.array([1.0, 0.5])[: len(setup.layout.names)]
    levels = np.full(prior.noise.n_levels, 0.1)
    engine = setup.engine.primary  # type: ignore[attr-defined]
    return engine, Hyperparameters(theta, lengths, np.ones(count), np.ones(len(prior.groups)), levels)


def best_of(actions: dict[str, Callable[[], object]], often: int = OFTEN) -> dict[str, float]:
    """Return the least processor times of some runs in turns, after one to warm up: all meet the same machine."""
    found: dict[str, float] = {}
    for run in range(often + 1):
        for name, action in actions.items():
            start = time.process_time()
            action()
            if run:
                found[name] = min(time.process_time() - start, found.get(name, np.inf))
    return found


def best(action: Callable[[], object], often: int = 3) -> float:
    """Return the least processor time of some runs, after one to warm up."""
    return best_of({"": action}, often)[""]


def peak(action: Callable[[], object]) -> int:
    """Return how many bytes are allocated at most, beyond what is there."""
    tracemalloc.start()
    action()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def innovations(engine: Engine, hyper: Hyperparameters) -> Array:
    """Return what each measurement adds to those before it."""
    found = engine.compute_innovations(hyper)  # type: ignore[attr-defined]
    return np.asarray(found.standardized)


def fit(found: list[dict[str, Any]], kind: str, name: str) -> None:
    """Print how times grow: with which power of the rows, and as a fixed cost and one for each row."""
    if len(found) < 3:
        return
    rows, times = (np.array([each[key] for each in found], dtype=float) for key in ("rows", name))
    power = np.polyfit(np.log(rows), np.log(times), 1)[0]
    last = np.log(times[-1] / times[-2]) / np.log(rows[-1] / rows[-2])
    # Relative errors count: the longest times would say nothing of what is fixed.
    fixed, each = np.linalg.lstsq(np.stack([1.0 / times, rows / times], axis=1), np.ones(len(times)), rcond=None)[0]
    errors = np.abs((fixed + each * rows) / times - 1.0).max()
    print(
        f"{kind:>13} {name}: grows with the power {power:.2f} from {rows[0]:.0f} rows on, {last:.2f} at the end; "
        f"{1e3 * fixed:.1f} ms and {1e6 * each:.3f} us a row, to {100.0 * errors:.0f} %",
        flush=True,
    )


def growth(most: int) -> list[dict[str, Any]]:
    """Return times for more and more rows, regular and not."""
    found: list[dict[str, Any]] = []
    kinds: dict[str, dict[str, Any]] = {
        "regular": {},
        "irregular": {"regular": False},
        "10 % missing": {"missing": 0.1},
    }
    engines = {
        f"{kind:>13} {rows:>9} rows": (kind, rows, *make(COUPLED, rows, "matern-5/2", **options))
        for rows in ROWS
        for kind, options in kinds.items()
        if rows <= most
    }
    values = best_of({name: partial(engine.value, hyper) for name, (_, _, engine, hyper) in engines.items()})
    gradients = best_of({name: partial(engine.evaluate, hyper) for name, (_, _, engine, hyper) in engines.items()})
    for name, (kind, rows, engine, hyper) in engines.items():
        value, gradient, turns = values[name], gradients[name], best(partial(innovations, engine, hyper))
        bytes_each = peak(partial(engine.evaluate, hyper)) / rows
        found.append({"kind": kind, "rows": rows, "value": value, "gradient": gradient, "bytes a row": bytes_each})
        found[-1]["innovations"] = turns
        print(
            f"{name}: evidence {value:.4f} s, with gradient {gradient:.4f} s "
            f"({gradient / value:.1f} times), innovations {turns:.3f} s ({turns / value:.1f} times), "
            f"{bytes_each:.0f} bytes a row",
            flush=True,
        )
    for kind in kinds:
        for name in ("value", "gradient"):
            for first in FITTED:
                fit([each for each in found if each["kind"] == kind and each["rows"] >= first], kind, name)
    regular = {each["rows"]: each for each in found if each["kind"] == "regular"}
    sizes = {(each["kind"], each["rows"]): each for each in found}
    for each in found:
        each["gradient of value"] = each["gradient"] / each["value"]
        if fewer := sizes.get((each["kind"], each["rows"] // 10)):
            each["of a tenth"] = each["gradient"] / fewer["gradient"]
        if each["kind"] != "regular":
            of_value, of_gradient = (each[name] / regular[each["rows"]][name] for name in ("value", "gradient"))
            each["of regular"] = of_gradient
            print(f"{each['kind']:>13} {each['rows']:>9} rows: {of_value:.1f} and {of_gradient:.1f} times the regular")
    return found


def with_tinygp(times: Array, values: Array) -> tuple[Callable[[], object], Callable[[], object], float]:
    """Return the log density of a Matern-3/2 process by tinygp, alone and with its gradient, and its value."""
    jax, jnp, tinygp = (importlib.import_module(name) for name in ("jax", "jax.numpy", "tinygp"))

    jax.config.update("jax_enable_x64", True)

    def log_density(p: Any) -> Any:
        kernel = jnp.exp(2 * p[1]) * tinygp.kernels.quasisep.Matern32(scale=jnp.exp(p[0]))
        return tinygp.GaussianProcess(kernel, times, diag=jnp.exp(2 * p[2])).log_probability(values)

    value, slopes = jax.jit(log_density), jax.jit(jax.value_and_grad(log_density))
    start = jnp.log(jnp.array([2.0, 1.0, 0.1]))

    def run() -> None:
        value(start).block_until_ready()

    def run_with_gradient() -> None:
        slopes(start)[1].block_until_ready()

    return run, run_with_gradient, float(value(start))


def with_celerite(times: Array, values: Array) -> tuple[Callable[[], object], None, float]:
    """Return the log density of a Matern-3/2 process by celerite2, which approximates it by two exponentials."""
    celerite2 = importlib.import_module("celerite2")

    def run() -> float:
        process = celerite2.GaussianProcess(celerite2.terms.Matern32Term(sigma=1.0, rho=2.0))
        process.compute(times, yerr=np.full(len(times), 0.1))
        return float(process.log_likelihood(values))

    return run, None, run()


def with_statsmodels(times: Array, values: Array) -> tuple[Callable[[], object], None, float]:
    """Return the log density of a Matern-3/2 process at regular times by the Kalman filter of statsmodels."""
    kalman_filter = importlib.import_module("statsmodels.tsa.statespace.kalman_filter")

    rate, step = np.sqrt(3.0) / 2.0, times[1] - times[0]
    moved = np.exp(-rate * step) * np.array([[1 + rate * step, step], [-(rate**2) * step, 1 - rate * step]])
    start = np.diag([1.0, rate**2])
    own = kalman_filter.KalmanFilter(k_endog=1, k_states=2)
    own.bind(values[:, None].copy())
    own["design"], own["transition"], own["selection"] = np.array([[1.0, 0.0]]), moved, np.eye(2)
    own["obs_cov"], own["state_cov"] = np.array([[0.01]]), start - moved @ start @ moved.T
    own.initialize_known(np.zeros(2), start)
    return own.loglike, None, float(own.loglike())


OTHERS = {"tinygp": with_tinygp, "celerite2": with_celerite, "statsmodels": with_statsmodels}


def compare(rows: int) -> dict[str, Any]:
    """Return times of one Matern-3/2 process with one output, beside those of others."""
    found: dict[str, Any] = {}
    engine, hyper = make(ALONE, rows, "matern-3/2", names="x")
    # The free function is the channel itself, and in its own unit it has deviation one.
    scale = float(engine.prior.units.scales[0])
    times, values = engine.data.times, engine.data.values * scale  # type: ignore[attr-defined]
    free = float(engine.prior.observables.evaluate(hyper.theta).free[0, 0, 0]) * scale
    hyper = Hyperparameters(hyper.theta, hyper.lengthscales, hyper.amplitudes / abs(free), *hyper.arrays[3:])
    found["lodekit"] = best(lambda: engine.value(hyper)), best(lambda: engine.evaluate(hyper)), engine.value(hyper)
    for name, prepare_it in OTHERS.items():
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed")
            continue
        value, gradient, expected = prepare_it(times, values)
        found[name] = best(value), None if gradient is None else best(gradient), expected
    for name, (value, gradient, expected) in found.items():
        more = "" if gradient is None else f", with gradient {gradient:.3f} s"
        print(f"Matern-3/2, {rows} rows, {name}: log density {expected:.6f}, {value:.3f} s{more}")
    return found


def write_rows(path: Path, rows: int, *, regular: bool) -> None:
    """Write a Parquet file piece by piece, so that the whole of it is never in memory."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    generator, writer, now = np.random.default_rng(0), None, 0.0
    for first in range(0, rows, PIECE):
        count = min(PIECE, rows - first)
        times = 0.01 * np.arange(first, first + count)
        if not regular:
            times = now + np.cumsum(generator.exponential(0.01, count))
            now = float(times[-1])
        noise = 0.1 * generator.standard_normal((2, count))
        table = arrow.table({"t": times, "x": np.sin(times) + noise[0], "y": np.sin(0.7 * times) + noise[1]})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def largest() -> float:
    """Return the most memory that the process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def huge(rows: int, *, regular: bool) -> dict[str, Any]:
    """Return what a file with so many rows takes."""
    found: dict[str, Any] = {"rows": rows, "regular": regular, "imports_mb": largest()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.parquet")
        write_rows(path, rows, regular=regular)
        found["written_mb"] = largest()
        begin = time.process_time()
        measurements = load_data(path, channels=COUPLED.channels).measurements
        found |= {"reading_s": time.process_time() - begin, "read_mb": largest()}
        arguments = FitSettings(engine="markov", latent="matern-5/2", noise="shared")
        begin = time.process_time()
        setup = build_setup(COUPLED, arguments, measurements)
        found["to_disk_s"] = time.process_time() - begin
        prior, count = setup.prior, setup.prior.n_processes
        levels, lengths = np.full(prior.noise.n_levels, 0.1), np.full(count, 2.0) / prior.units.time_scale
        hyper = Hyperparameters(np.array([1.0, 0.5]), lengths, np.ones(count), np.ones(len(prior.groups)), levels)
        engine = setup.engine.primary  # type: ignore[attr-defined]
        found |= {
            "value_s": best(lambda: engine.value(hyper), 1),
            "gradient_s": best(lambda: engine.evaluate(hyper), 1),
        }
        found["end_mb"] = largest()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="the most rows")
    parser.add_argument("--huge", type=int, help="so many rows from a Parquet file, and nothing else")
    parser.add_argument("--irregular", action="store_true", help="with --huge, at irregular times")
    parser.add_argument("--json", type=Path, help="where results go")
    arguments = parser.parse_args()
    found: dict[str, Any]
    with threadpool_limits(1):
        if arguments.huge:
            found = huge(arguments.huge, regular=not arguments.irregular)
            print("  ".join(f"{name} {value:.4g}" for name, value in found.items()))
        else:
            found = {"growth": growth(arguments.rows), "others": compare(min(arguments.rows, 100_000))}
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
