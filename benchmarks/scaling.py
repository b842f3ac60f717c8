"""Claim: beyond one pass over the data, a fit on waves costs the same for a thousand measurements and for any number.

Fit time and peak memory against the number of points, each fit in a process of its own, until a limit of time or of
memory ends a method. GPyTorch (the paper's 300 Adam steps; ~ where these are extrapolated from 10) has the same kernel,
once with Cholesky, once with preconditioned conjugate gradients (BBMM, its own choice beyond 800 rows). Its other ways
are closed to a kernel like this: interpolation on a grid (SKI) wants one stationary kernel for all channels, KeOps a
symbolic formula. scikit-learn has one channel. Memory is read from /proc: Linux. On a busy machine try --threads 1:
threads that wait for each other slow all but the spectral engine, up to ten times.

    python benchmarks/scaling.py [--largest N] [--stream ROWS] [--dask ROWS] [--json FILE] [--plot FILE]

With --dask, two workers of a local Dask cluster generate the rows and sum over them; no row is written or sent.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import resource
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import lodekit as lk
from dense import make_gpytorch_model
from lodekit.data.observations import parse_observations
from lodekit.data.records import Measurements
from lodekit.data.sources import load_data
from lodekit.data.statistics import CHEBYSHEV_DEGREE, Statistics, chebyshev_angles, nufft_backend
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
Found = dict[str, Any]
Run = Callable[[], Found]
Task = Callable[[], Run]  # gets ready (imports, data, a small fit to warm up), and returns what is timed
HEATING = lk.catalog.heating()
say = partial(print, flush=True)
NOISE = 0.02
ADAM_STEPS, FEWEST_STEPS, FILE_ROWS, PARTITION_ROWS = 300, 10, 2_500_000, 1_000_000
#: Fits that are timed with few rows and with many: example, start relative to the true values, share of missing cells.
CASES = {
    "heating": (HEATING, None, 0.0),
    "four oscillating states": (lk.catalog.two_mass(), None, 0.0),
    "given starting values": (HEATING, 1.2, 0.0),
    "missing values": (HEATING, None, 0.1),
}
PACKAGES = ("numpy", "scipy", "finufft", "ducc0", "torch", "gpytorch", "scikit-learn", "polars")


def simulate(
    points: int, seed: int = 0, low: float = -5.0, high: float = 5.0, case: str = "heating"
) -> tuple[Array, Array]:
    example, _, missing = CASES[case]
    generator = np.random.default_rng(seed)
    times, table = np.sort(generator.uniform(low, high, points)), NOISE * generator.standard_normal((points, 3))
    table += example.solution_at(times)
    table[generator.uniform(size=table.shape) < missing] = np.nan
    return times, table


def describe(gp: lk.LODEGP) -> Found:
    parameters = {name: [e.value, e.std_error] for name, e in gp.parameters_.items()}
    return {
        "parameters": parameters,
        "noise": gp.noise_["shared"],
        "loss": -float(gp.log_evidence_) / gp.fit_.setup.engine.size,
    }


def fit_lodekit(engine: str, points: int, case: str = "heating") -> Run:
    example, factor, _ = CASES[case]
    system = example.system
    if factor is not None:
        starts = {name: lk.Parameter(positive=True, start=factor * value) for name, value in example.values.items()}
        system = lk.System(system.equations, parameters=starts)

    def fit(times: Array, table: Array) -> Found:
        return describe(lk.LODEGP(system, noise="shared", engine=engine, random_state=0).fit(times, table))

    fit(*simulate(2000 if engine == "spectral" else 20, case=case))
    return partial(fit, *simulate(points, case=case))


def fit_gpytorch(cholesky: bool, limit: float, points: int) -> Run:
    import torch
    from gpytorch import likelihoods, mlls, settings

    # By default small problems have no preconditioner, and end at a = 1, b = 0.5.
    least, rank = settings.min_preconditioning_size(1), settings.max_preconditioner_size(100)

    def fit(times: Array, table: Array, steps: int = ADAM_STEPS) -> Found:
        torch.manual_seed(0)
        x, y = torch.asarray(times)[:, None], torch.asarray(table)
        likelihood = likelihoods.MultitaskGaussianLikelihood(num_tasks=3).double()
        model = make_gpytorch_model(x, y, likelihood).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        mll = mlls.ExactMarginalLogLikelihood(likelihood, model)
        start, done, slow = time.perf_counter(), 0, False
        with settings.max_cholesky_size(1 << 30 if cholesky else 1), least, rank:
            while done < steps and not slow:
                optimizer.zero_grad()
                loss = -mll(model(x), y)
                loss.backward()
                optimizer.step()
                done += 1
                slow = done == FEWEST_STEPS and (time.perf_counter() - start) * steps / done > limit
        seconds = (time.perf_counter() - start) * steps / done
        a, b = torch.exp(model.covar_module.logs.detach())[:2].tolist()
        found = {"seconds": seconds, "estimated": slow, "loss": float(loss.detach())}
        return {**found, "parameters": {"a": [a, None], "b": [b, None]}}

    fit(*simulate(20), steps=2)
    return partial(fit, *simulate(points))


def fit_sklearn(points: int) -> Run:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

    def fit(times: Array, table: Array) -> Found:
        gp = GaussianProcessRegressor(RBF() + WhiteKernel()).fit(times[:, None], table[:, 0])
        return {"loss": -gp.log_marginal_likelihood_value_ / len(times)}

    fit(*simulate(20))
    return partial(fit, *simulate(points))


def fastest(runs: Mapping[Any, Callable[[], Any]], seconds: float) -> dict[Any, float]:
    """Time some functions in turn, so that a busy machine slows all of them alike; the best of many times each."""
    found, end = dict.fromkeys(runs, np.inf), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def measure_evaluation(most: int, seconds: float) -> Run:
    """One evidence with gradient on one core, at the same hyperparameters for few points and for many."""
    runs = {}
    values = (np.array([3.0, 1.0]), np.array([0.4]), np.array([1.0]), np.zeros(0), np.array([NOISE]))
    for points in (1000, most):
        measurements = Measurements.from_observations(
            parse_observations(HEATING.system.channels, *simulate(points), None)
        )
        engine = build_setup(HEATING.system, FitSettings(engine="spectral", noise="shared"), measurements).engine
        runs["few" if points == 1000 else "many"] = partial(engine.evaluate, Hyperparameters(*values))

    def measure() -> Found:
        with threadpool_limits(1, user_api="blas"):
            found = fastest(runs, seconds)
        return {**found, "ratio": found["many"] / found["few"]}

    return measure


def measure_statistics(points: int, seconds: float) -> Run:
    """All sums over three channels, against one bare transform for each column of numbers."""
    measurements = Measurements.from_observations(parse_observations(HEATING.system.channels, *simulate(points), None))
    series, (start, stop) = measurements.series, measurements.window
    angles = chebyshev_angles(series[0].times, start, stop)
    strengths = [np.ones(len(angles), dtype=complex), *(item.values.astype(complex) for item in series)]
    library, modes = importlib.import_module(nufft_backend()), 2 * (2 * CHEBYSHEV_DEGREE) + 1
    ducc0 = {"coord": angles[:, None], "forward": False, "epsilon": 3e-15, "nthreads": 0}

    def bare() -> None:
        for strength in strengths:
            if nufft_backend() == "finufft":
                library.nufft1d1(angles, strength, modes, eps=1e-15, isign=1, spread_sort=0)
            else:
                library.nufft.nu2u(points=strength, out=np.empty(modes, dtype=complex), **ducc0)

    def measure() -> Found:
        found = fastest({"whole": partial(Statistics.of, start, stop, series), "transforms": bare}, seconds)
        return {**found, "backend": nufft_backend(), "ratio": found["whole"] / found["transforms"]}

    return measure


def fit_files(pattern: str) -> Run:
    def fit() -> Found:
        start = time.perf_counter()
        found = describe(lk.LODEGP(HEATING.system, noise="shared", random_state=0).fit(pattern))
        middle = time.perf_counter()
        rows = load_data(pattern, channels=HEATING.system.channels).measurements.size // 3
        return {**found, "rows": rows, "seconds": middle - start, "pass_seconds": time.perf_counter() - middle}

    return fit


def memory_of(name: str) -> float:
    """VmRSS, or VmHWM (its peak), of this process in megabytes."""
    return 1.024e-3 * int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])


def work(sender: Connection, task: Task, gigabytes: float, threads: int | None) -> None:
    """Run a task in this process: get ready, say so, run, and send what was found."""
    warnings.simplefilter("ignore")
    try:
        run = task()
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        taken = resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (taken + int(1e9 * gigabytes), resource.RLIM_INFINITY))
        before = memory_of("VmRSS")
        sender.send(None)
        start, own = time.perf_counter(), time.process_time()
        with threadpool_limits(threads):
            found = run()
        found = {"seconds": time.perf_counter() - start, "processor_seconds": time.process_time() - own, **found}
        sender.send({**found, "before_mb": before, "fit_mb": memory_of("VmHWM") - before})
    except Exception as error:  # whatever a library raises: it has stopped, and this is why
        full = isinstance(error, MemoryError) or "not enough memory" in str(error)
        name = "memory" if full else "refused" if isinstance(error, lk.LodekitError) else type(error).__name__
        sender.send({"stopped": name, "why": f"over {gigabytes:g} GB" if full else str(error)[:300]})


def run_alone(task: Task, seconds: float, gigabytes: float, threads: int | None = None) -> Found:
    """Run a task in a process of its own, within limits of time and memory."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])  # imported once for all processes
    receiver, sender = server.Pipe(duplex=False)
    process = server.Process(target=work, args=(sender, task, gigabytes, threads), daemon=True)
    process.start()
    sender.close()
    late = {"stopped": "time", "why": f"over {seconds:g} s"}
    try:
        found: Found = receiver.recv() or (receiver.recv() if receiver.poll(seconds) else late)
    except EOFError:
        process.join()
        found = {"stopped": "crashed", "why": f"exit code {process.exitcode}"}
    finally:
        process.kill()
        process.join()
    return found | late if found.get("seconds", 0.0) > seconds else found


def compare(largest: int, seconds: float, gigabytes: float, threads: int | None) -> list[Found]:
    methods: dict[str, Callable[[int], Run]] = {}
    for engine in ("spectral", "dense"):
        methods[f"lodekit, {engine}"] = partial(fit_lodekit, engine)
    if importlib.util.find_spec("gpytorch"):
        methods["GPyTorch, Cholesky"] = partial(fit_gpytorch, True, seconds)
        methods["GPyTorch, conj. gradients"] = partial(fit_gpytorch, False, seconds)
    if importlib.util.find_spec("sklearn"):
        methods["scikit-learn, one channel"] = fit_sklearn
    say(f"{'':26} {'points':>7} {'seconds':>9} {'fit MB':>8} {'before':>7} {'loss':>8}  a, b (truth 3, 1)")
    rows: list[Found] = []
    for method, task in methods.items():
        for points in [step * 10**power for power in range(2, 10) for step in (1, 3) if step * 10**power <= largest]:
            found = run_alone(partial(task, points), seconds, gigabytes, threads)
            rows.append({"method": method, "points": points, **found})
            line, estimated = f"{method:26} {points:7.0e} ", found.get("estimated", False)
            if "seconds" in found:
                line += f"{'~' * estimated + format(found['seconds'], '.3g'):>9} {found['fit_mb']:8.1f} "
                line += f"{found['before_mb']:7.0f} " + ("" if estimated else f"{found['loss']:8.4f}  ")
            if "parameters" in found and not estimated:
                line += ", ".join(f"{value:.4f}" for value, _ in found["parameters"].values())
            say(line + (f"  stopped: {found['stopped']}, {found['why']}" if "stopped" in found else ""))
            if "stopped" in found:
                break
    return rows


def demand(task: Task, gigabytes: float) -> Found:
    found = run_alone(task, 3600.0, gigabytes)
    if "stopped" in found:
        raise SystemExit(f"{task} stopped: {found['stopped']}, {found['why']}")
    return found


def measure_growth(case: str, points: int, repeats: int, gigabytes: float) -> Found:
    """Fit a thousand points and many, in turn; the best of several: other work on the machine delays single fits."""
    tasks = {
        name: partial(fit_lodekit, "spectral", count, case) for name, count in (("thousand", 1000), ("million", points))
    }
    runs = [{name: demand(task, gigabytes) for name, task in tasks.items()} for _ in range(repeats)]
    found: Found = {name: min((run[name] for run in runs), key=lambda run: run["seconds"]) for name in tasks}
    for key, measured in (("longer", "seconds"), ("longer_processor", "processor_seconds")):
        few, many = (min(run[name][measured] for run in runs) for name in tasks)
        found[key] = many - few
    wall, own = found["longer"], found["longer_processor"]
    say(
        f"{case}, {points} points in three channels: fit in {found['million']['seconds']:.2f} s, {wall:.2f} s longer "
        f"than 1000 points ({own:.2f} s of processor time; required: at most 1)"
    )
    return found


def measure_claims(points: int, seconds: float, gigabytes: float) -> Found:
    # Without repetitions the other cases would show nothing new.
    names = list(CASES) if seconds else ["heating"]
    cases = {case: measure_growth(case, points, 3 if seconds else 1, gigabytes) for case in names}
    thousand, million = (cases["heating"][name] for name in ("thousand", "million"))
    for name, (value, error) in million["parameters"].items():
        say(f"  {name} = {value:.5f} +- {error:.5f} (truth {float(HEATING.values[name]):g})")
    say(f"  noise {million['noise']:.5f} (truth {NOISE:g})")
    one = demand(partial(measure_evaluation, points, seconds), gigabytes)
    times = f"{1e3 * one['few']:.2f} ms at 1000, {1e3 * one['many']:.2f} ms at {points} points per channel"
    say(f"evidence with gradient: {times}: ratio {one['ratio']:.2f} (required: at most 1.5)")
    sums = demand(partial(measure_statistics, points, seconds), gigabytes)
    ratio = f"{sums['ratio']:.2f} times 4 transforms by {nufft_backend()}"
    say(f"statistics of 3 x {points} points: {ratio} (required: at most 3)")
    return {
        "points": points,
        "thousand": thousand,
        "million": million,
        "longer": cases["heating"]["longer"],
        "cases": cases,
        "growth": million["seconds"] / thousand["seconds"],
        "evaluation": one,
        "statistics": sums,
    }


def stream(rows: int, gigabytes: float) -> Found:
    """Fit files that need not fit into memory; they were just written, so they come from the cache of the disk."""
    import polars as pl

    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="lodekit-scaling-") as folder:
        if shutil.disk_usage(folder).free < 48 * rows:
            raise SystemExit(f"expected {48 * rows / 1e9:.0f} GB free in {folder}; set TMPDIR to another disk")
        # Files of one record follow each other in time; the tenth is the same problem with a tenth of the rows.
        for name, total in (("tenth", rows // 10), ("whole", rows)):
            pieces = -(-total // FILE_ROWS)
            edges = np.linspace(-5.0, 5.0, pieces + 1)
            for piece in range(pieces):
                times, table = simulate(total // pieces, piece, edges[piece], edges[piece + 1])
                columns = {"t": times, **dict(zip(HEATING.system.channels, table.T, strict=True))}
                pl.DataFrame(columns).write_parquet(f"{folder}/{name}-{piece:04}.parquet")
        found["gigabytes"] = sum(path.stat().st_size for path in Path(folder).glob("whole-*")) / 1e9
        say(f"{rows:.0e} rows of four columns in Parquet files, {found['gigabytes']:.2f} GB")
        for name in ("tenth", "whole"):
            one = demand(partial(fit_files, f"{folder}/{name}-*.parquet"), gigabytes)
            one["rows_per_second"] = one["rows"] / one["pass_seconds"]
            speed, peak = f"{1e-6 * one['rows_per_second']:.2f} million", f"{one['before_mb'] + one['fit_mb']:.0f} MB"
            say(f"  {one['rows']:.0e} rows: fit in {one['seconds']:.1f} s, pass at {speed} rows/s, peak memory {peak}")
            found[name] = one
    whole, more = found["whole"], found["whole"]["fit_mb"] / found["tenth"]["fit_mb"]
    billion = whole["seconds"] + (1e9 - whole["rows"]) / whole["rows_per_second"]
    say(f"  ten times the rows: {more:.2f} times the memory; 1e9 rows: ~{billion:.0f} s (extrapolated, not measured)")
    return {**found, "memory_ratio": more, "billion_seconds": billion}


def generate_partition(number: int, partitions: int, rows: int, columns: list[str] | None = None) -> Any:
    """Return one of equal parts of a heating record as a DataFrame, its times at random within equal steps."""
    import pandas as pd

    generator = np.random.default_rng(number)
    steps = np.arange(rows) + generator.uniform(size=rows)
    frame = pd.DataFrame({"t": -5.0 + 10.0 / partitions * (number + steps / rows)})
    channels = HEATING.system.channels
    if columns != ["t"]:  # one pass asks for the times only
        table = HEATING.solution_at(frame["t"].to_numpy()) + NOISE * generator.standard_normal((rows, len(channels)))
        frame[list(channels)] = table
    return frame[columns or ["t", *channels]]


def fit_dask(rows: int) -> Found:
    """Fit rows that two processes of a Dask cluster generate, with the defaults; the memory is that of each process."""
    import dask.dataframe
    import distributed

    partitions = max(rows // PARTITION_ROWS, 2)
    own = range(partitions)
    # Processes take longer to start than few rows to sum.
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "processes": rows > PARTITION_ROWS}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        options: dict[str, Any] = {"partitions": partitions, "rows": rows // partitions}
        frame = dask.dataframe.from_map(generate_partition, own, meta=generate_partition(0, 1, 2), **options)
        start, before = time.perf_counter(), time.process_time()
        gp = lk.LODEGP(HEATING.system, random_state=0).fit(frame)
        found: Found = {"rows": partitions * options["rows"], "seconds": time.perf_counter() - start}
        found |= {"client_cpu_seconds": time.process_time() - before, "client_mb": memory_of("VmHWM")}
        found["worker_cpu_seconds"] = list(client.run(time.process_time).values())
        found["worker_mb"] = list(client.run(memory_of, "VmHWM").values())
    say(f"{found['rows']:.0e} rows on a local Dask cluster: {found['seconds']:.0f} s")
    for name in ("worker", "client"):
        say(f"  {name}: {found[f'{name}_cpu_seconds']} s of processor time, peak memory {found[f'{name}_mb']} MB")
    found["parameters"] = {}
    for name, each in gp.parameters_.items():
        error = each.value - float(HEATING.values[name])
        found["parameters"][name] = {"value": each.value, "std_error": each.std_error, "error": abs(error)}
        say(f"  {name} = {each.value:.7f} +- {each.std_error:.1e}, off by {error:.1e}")
    return found


def plot(found: Found, path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(6.8, 3.3), layout=ConstrainedLayoutEngine(wspace=0.06))
    seconds = ("seconds", "time", found["limit_seconds"], 0.0, "fit time (s)")
    megabytes = ("fit_mb", "memory", 1e3 * found["memory_gb"], 1.0, "peak memory of the fit (MB, at least 1)")
    # Okabe and Ito: told apart by the colour-blind.
    looks = [*zip(("#D55E00", "#E69F00", "#0072B2", "#56B4E9", "#009E73"), "osD^v", strict=True)]
    names = dict.fromkeys(row["method"] for row in found["fits"])
    panels = figure.subplots(1, 2, sharex=True)
    for panel, (key, cause, limit, least, label) in zip(panels, (seconds, megabytes), strict=True):
        panel.set(xscale="log", yscale="log", xlabel="points per channel", ylabel=label)
        panel.axhline(limit, color="0.6", linewidth=0.8, linestyle="--")
        panel.annotate("limit", (1, limit), (0, 2), ("axes fraction", "data"), "offset points", color="0.4", ha="right")
        for name, (color, marker) in zip(names, looks, strict=False):
            own = [row for row in found["fits"] if row["method"] == name]
            done = [row for row in own if "seconds" in row]
            x, y = [row["points"] for row in done], [max(row[key], least) for row in done]
            panel.plot(x, y, color=color, marker=marker, markersize=4.5, linewidth=1.4, label=name)
            if done and done[-1].get("estimated"):
                panel.plot(x[-1], y[-1], color=color, marker=marker, markersize=4.5, markerfacecolor="white")
            if done and own[-1] is not done[-1] and own[-1]["stopped"] == cause:
                panel.plot([x[-1], own[-1]["points"]], [y[-1], limit], color=color, linewidth=1.0, linestyle=":")
                panel.plot(own[-1]["points"], limit, "x", color=color, markersize=6, markeredgewidth=1.8)
        panel.plot([], [], "D", color="0.4", markersize=4.5, markerfacecolor="white", label="extrapolated")
        panel.plot([], [], ":x", color="0.4", linewidth=1.0, markeredgewidth=1.8, label="stopped at the limit")
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=300)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000, help="per channel, for the claims; 0: none")
    parser.add_argument("--largest", type=int, default=10_000_000, help="points per channel; 0: no comparison")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one fit")
    parser.add_argument("--memory", type=float, default=16.0, help="gigabytes for one fit")
    parser.add_argument("--threads", type=int, help="for one fit in the comparison; all cores by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each ratio is timed")
    parser.add_argument("--stream", type=int, help="also fit this many rows from files of 32 bytes a row")
    parser.add_argument("--dask", type=int, help="also fit this many rows on a local Dask cluster of two processes")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw time and memory into this file")
    options = parser.parse_args()
    found: Found = {"machine": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    found["versions"] = {d.name: d.version for d in importlib.metadata.distributions() if d.name in PACKAGES}
    found |= {"limit_seconds": options.limit, "memory_gb": options.memory, "threads": options.threads}
    say(f"{found['cores']} cores, load {found['load']:.1f}; limits: {options.limit:g} s, {options.memory:g} GB")
    if options.points:
        found |= measure_claims(options.points, options.seconds, options.memory)
    if options.dask:
        found["dask"] = fit_dask(options.dask)
    if options.stream:
        found["stream"] = stream(options.stream, options.memory)
    found["fits"] = compare(options.largest, options.limit, options.memory, options.threads)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.plot:
        plot(found, options.plot)


if __name__ == "__main__":
    main()
