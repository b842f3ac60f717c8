"""Claims: for 270 rows, `validate` and the report each take at most twice the CPU time of the fit; bands hold.

Four simulated records: a first-order lag with a free input, with a known input, with a white disturbance as well, and a
building with two states, two white disturbances and three known inputs. Each number is the smallest CPU time of several
runs in one process; ratios are relative to the fit of the same record.

With ``--coverage``: which share of measurements the 95 % bands of free runs contain if the model is wrong. Simulated
plants of three kinds, 300 rows fitted and 130 predicted: the input passes a lag that the model does not have, a slow
disturbance drives the plant, or the gain grows with the input; each is fitted with the equations alone and with a white
disturbance. With ``--data FOLDER`` also the last 30 % of real records (lamp, TCLab, school), fitted on the first 70 %.

    python benchmarks/validation.py [--rows N] [--runs N] [--only TEXT] [--json FILE]
    python benchmarks/validation.py --coverage [--plants N] [--data FOLDER] [--only TEXT] [--jobs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.signal import lfilter

import lodekit as lk
from buildings import make_building
from greybox_plants import steps
from greybox_records import LAMP, SCHOOL, TCLAB, lamp_system, school_system, tclab_system
from lodekit.report import make_report
from lodekit.support.threads import single_threaded_blas

Array = NDArray[np.float64]
Record = tuple[Array, dict[str, Array]]
POSITIVE = lk.Parameter(positive=True)
LAG = {"tau": POSITIVE, "K": lk.Parameter(), "y0": lk.Parameter()}


def lag_record(seed: int, rows: int, *, disturbance: float = 0.0, smooth: bool = False) -> Record:
    """Return a first-order lag: time constant 10, gain 2, offset 5."""
    generator, times = np.random.default_rng(seed), np.arange(float(rows))
    u = np.sin(0.11 * times + seed) + 0.5 * np.cos(0.23 * times) if smooth else steps(generator, rows, 10, 40)
    shocks, h, state, y = disturbance * generator.standard_normal((rows, 20)), 1.0 / 20, 5.0, []
    for level, row in zip(u, shocks, strict=True):
        y.append(state)
        for shock in row:  # Euler's method with several steps per row
            state += h * (5.0 + 2.0 * level - state) / 10.0 + np.sqrt(h) * shock
    noise = 0.02 * generator.standard_normal((2, rows))
    return times, {"y": y + noise[0], "u": u + smooth * noise[1]}


def cases(rows: int) -> dict[str, tuple[lk.LODEGP, list[Record], dict[str, Any]]]:
    """Estimators, records to fit and to validate, and options of `validate`, by name."""

    def lag(text: str, **options: Any) -> lk.LODEGP:
        return lk.LODEGP(lk.System(text, parameters=LAG), random_state=0, **options)

    held, white = {"inputs": {"u": "hold"}}, {"w": "white"}
    building = make_building(2, 0, 2 * rows)
    halves = [
        (building.times[part], {name: values[part] for name, values in building.data.items()})
        for part in (slice(0, rows), slice(rows, None))
    ]
    free = [lag_record(seed, rows, smooth=True) for seed in (1, 2)]
    known, disturbed = ([lag_record(seed, rows, disturbance=size) for seed in (1, 2)] for size in (0.0, 0.05))
    return {
        "free input": (lag("tau*y' + y - y0 = K*u"), free, {"given": "u"}),
        "known input": (lag("tau*y' + y - y0 = K*u", **held), known, {}),
        "disturbance": (lag("tau*y' + y - y0 = K*u + w", **held, disturbances=white), disturbed, {}),
        "building": (lk.LODEGP(building.system, **building.options), halves, {}),
    }


def cpu_seconds(function: Callable[..., object], *arguments: Any, **options: Any) -> float:
    begin = time.process_time()
    function(*arguments, **options)
    return time.process_time() - begin


KINDS = ("missing lag", "slow disturbance", "nonlinear gain")
FITTED_ROWS, ALL_ROWS = 300, 430


def wrong_plant(kind: str, seed: int) -> Record:
    """Return a record of a first-order lag with one thing that the model does not have."""
    generator, times = np.random.default_rng([seed, KINDS.index(kind)]), np.arange(float(ALL_ROWS))
    tau, u = 10.0 * np.exp(0.3 * generator.standard_normal()), steps(generator, ALL_ROWS, 10, 40)
    lag = tau * generator.uniform(0.15, 0.5) if kind == "missing lag" else 0.0
    drive = 2.0 * (u + (generator.uniform(0.1, 0.25) * u**2 if kind == "nonlinear gain" else 0.0))
    if kind == "slow disturbance":
        kept = np.exp(-1.0 / (tau * generator.uniform(2.0, 8.0)))
        pushes = np.sqrt(1.0 - kept**2) * generator.standard_normal(ALL_ROWS)
        pushes[0] /= np.sqrt(1.0 - kept**2)
        drive = drive + 2.0 * np.std(u) * generator.uniform(0.1, 0.3) * lfilter([1.0], [1.0, -kept], pushes)
    state, before, y = drive[0], drive[0], []
    for level in drive.tolist():
        y.append(state + 5.0)
        for _ in range(10):  # Euler's method with ten steps per row
            before = before + 0.1 * (level - before) / lag if lag else level
            state += 0.1 * (before - state) / tau
    return times, {"y": y + 0.03 * np.std(y) * generator.standard_normal(ALL_ROWS), "u": u}


def real_records(folder: Path) -> dict[str, tuple[lk.System, Record, tuple[str, ...]]]:
    """Systems, records and measured outputs by name."""
    t, u, y = np.loadtxt(folder / LAMP).T
    s, Q1, Q2, T1, T2 = np.loadtxt(folder / TCLAB, delimiter=",", skiprows=1).T
    with (folder / SCHOOL).open() as file:
        rows = list(csv.DictReader(file))
    heating = {name: np.array([float(row[name]) for row in rows]) for name in ("Ph", "Ta", "Ti")}
    return {
        "lamp": (lamp_system(), (t, {"u": u, "y": y}), ("y",)),
        "TCLab": (tclab_system(), (s, {"Q1": Q1, "Q2": Q2, "T1": T1, "T2": T2}), ("T1", "T2")),
        "school": (school_system(), (np.arange(float(len(rows))), heating), ("Ti",)),
    }


def cover(system: lk.System, record: Record, outputs: tuple[str, ...], fitted: int, **options: Any) -> dict[str, Any]:
    """Return shares in the bands of `validate` and of `simulate(start="end")`, and fits, by output."""
    times, data = record
    inputs = [name for name in data if name not in outputs]
    with single_threaded_blas():
        gp = lk.LODEGP(system, inputs=dict.fromkeys(inputs, "hold"), random_state=0, **options)
        gp.fit(times[:fitted], {name: values[:fitted] for name, values in data.items()})
        later = {name: values[fitted:] for name, values in data.items()}
        found = gp.validate(times[fitted:], later, ahead=(10,) if options else ())
        new = {name: (times, data[name]) for name in inputs}
        run = gp.simulate(times[fitted:], new, start="end", observable=list(outputs), return_std=True)
    shares = {}
    for name, mean, std in zip(outputs, run[0].T, run[1].T, strict=True):
        own, left = found[name], later[name] - mean
        wide = np.sqrt(std**2 + gp.fit_.typical_noise(name) ** 2)
        inside = {"simulate": float(np.mean(np.abs(left) <= 1.96 * wide)), "validate": own.coverage}
        inside |= {f"{step} ahead": each.coverage for step, each in own.ahead.items()}
        width = float(np.median(wide) / np.sqrt(np.mean(left**2)))
        shares[name] = {"rows": len(left), **inside, "width / RMSE": width, "fit": own.fit_percent, "holds": own.holds}
    return shares


def print_coverage(options: argparse.Namespace) -> dict[str, Any]:
    """Print and return the coverage of all cases."""
    results: dict[str, Any] = {}
    records = real_records(options.data) if options.data else {}
    for name, (system, record, outputs) in records.items():
        if options.only in name:
            for output, own in cover(system, record, outputs, int(0.7 * len(record[0]))).items():
                results[f"{name} {output}"] = own
                print(f"{name + ' ' + output:<30}", own, flush=True)
    white: dict[str, dict[str, Any]] = {"equations alone": {}, "white disturbance": {"disturbances": {"w": "white"}}}
    for kind, (title, more) in product(KINDS, white.items()):
        if options.only not in f"{kind}, {title}":
            continue
        system = lk.System(f"tau*y' + y - y0 = K*u{' + w' * bool(more)}", parameters=LAG)
        run = delayed(cover)
        every = Parallel(options.jobs)(
            run(system, wrong_plant(kind, seed), ("y",), FITTED_ROWS, **more) for seed in range(options.plants)
        )
        columns = {key: [each["y"][key] for each in every] for key in every[0]["y"]}
        means = {key: float(np.mean(values)) for key, values in columns.items()}
        inside = sum(0.88 <= share <= 0.99 for share in columns["validate"])
        results[f"{kind}, {title}"] = means | {"plants": len(every), "plants in 88 to 99 %": inside}
        shown = ", ".join(f"{key} {value:.3f}" for key, value in means.items())
        print(f"{kind + ', ' + title:<40}{len(every):>4} plants: {shown}; {inside} in 88 to 99 %", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=270)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="records whose names contain this")
    parser.add_argument("--coverage", action="store_true", help="how often bands of free runs hold")
    parser.add_argument("--plants", type=int, default=34, help="of each kind")
    parser.add_argument("--data", type=Path, help="folder of the real records")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = print_coverage(options) if options.coverage else print_times(options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def print_times(options: argparse.Namespace) -> dict[str, Any]:
    """Print and return CPU times."""
    results = {}
    print(f"{'':<14}{'fit':>8}{'validate':>10}{'report':>8}{'validate / fit':>16}{'report / fit':>14}")
    with single_threaded_blas():
        chosen = {name: case for name, case in cases(options.rows).items() if options.only in name}
        for name, (gp, (record, other), arguments) in chosen.items():
            runs = []
            for _ in range(options.runs):
                fit, validate = cpu_seconds(gp.fit, *record), cpu_seconds(gp.validate, *other, **arguments)
                runs.append((fit, validate, cpu_seconds(make_report, gp)))
            fit, validate, report = map(min, zip(*runs, strict=True))
            ratios = {"validate / fit": validate / fit, "report / fit": report / fit}
            results[name] = {"fit": fit, "validate": validate, "report": report} | ratios
            print(f"{name:<14}{fit:>7.2f}s{validate:>9.2f}s{report:>7.2f}s{validate / fit:>16.2f}{report / fit:>14.2f}")
    return results


if __name__ == "__main__":
    main()
