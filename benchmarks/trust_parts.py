"""The parts of `trust.py`: what is tried, what came out as numbers, in lines for people, and as tables for the docs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import calibration
import lodekit as lk
import trust_numerics
import units
from torture_cases import CASES

Figures = dict[str, Any]
FUZZED, LEVELS = ("texts", "tables", "models", "kills"), calibration.SHARES
OFFENCES = trust_numerics.OFFENCES


@dataclass(frozen=True)
class Part:
    """One thing that is shown.

    Parameters
    ----------
    title : str
    tasks : callable
        From options to what can be done at the same time.
    work : callable
        From a task to what was found; it runs in a process of its own.
    gather : callable
        From all that was found to figures; ``bad`` among them counts what must not be.
    table : callable
        From figures to lines of Markdown.
    """

    title: str
    tasks: Callable[[argparse.Namespace], list[Any]]
    work: Callable[[Any], list[Any]]
    gather: Callable[[list[Any]], Figures]
    table: Callable[[Figures], list[str]]


def do(name: str, task: Any) -> tuple[list[Any], float]:
    """Return what one task of a part finds, with one thread and without warnings, and the seconds of processors."""
    begin = sum(os.times()[:4])
    with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
        warnings.simplefilter("ignore")
        found = PARTS[name].work(task)
    return found, sum(os.times()[:4]) - begin


def _with_seeds(check: Callable[[int], Iterator[str]]) -> Callable[[int], list[str]]:
    """Return a check that says at which seed something is that must not be, so that it can be had again."""

    def work(seed: int) -> list[str]:
        try:
            return [f"{text} (seed {seed})" if text.startswith(OFFENCES) else text for text in check(seed)]
        except Exception as problem:
            return [f"WRONG: {type(problem).__name__} (seed {seed}): {problem}"]

    return work


def _systems(options: argparse.Namespace) -> list[str]:
    return options.systems or [example.name for example in lk.catalog.examples()]


def _sorted_counts(found: list[str]) -> Figures:
    """Return how often each answer was given, and those that must not be, in full."""
    counts = Counter(text.split(":")[0] for text in found)
    bad = [text for text in found if text.startswith(OFFENCES)]
    return {"total": len(found), "counts": dict(sorted(counts.items())), "problems": bad, "bad": len(bad)}


def _rows(head: str, rows: Sequence[Sequence[object]]) -> list[str]:
    width = head.count("|") + 1
    return [f"| {head} |", "|" + " --- |" * width, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def _table_of_counts(figures: Figures) -> list[str]:
    rows = [(what.lower(), f"{count:,}") for what, count in figures["counts"].items()]
    return _rows("result | count", [*rows, ("wrong", figures["bad"])])


def _try_torture(name: str) -> list[Any]:
    return [[name, trust_numerics.torture(name)]]


def _gather_torture(found: list[Any]) -> Figures:
    order = list(CASES)
    rows = sorted(found, key=lambda row: order.index(row[0]))
    bad = [f"{name}: {what}" for name, what in rows if what.startswith("WRONG")]
    refused = sum(what.startswith("refused") for _, what in rows)
    counts = {"refused": refused, "right": len(rows) - refused - len(bad)}
    return {"total": len(rows), "counts": counts, "cases": dict(rows), "problems": bad, "bad": len(bad)}


def _table_of_cases(figures: Figures) -> list[str]:
    return _rows("case | result", [(name, what.split(";")[0]) for name, what in figures["cases"].items()])


def _try_units(task: tuple[str, float, int]) -> list[Any]:
    name, noise, points = task
    return units.compare(calibration.find(name), points, noise)


def _gather_units(rows: list[Any]) -> Figures:
    bad = [row for row in rows if not units.is_same(row)]
    worst = {key: max((row[key] for row in rows), default=0.0) for key in ("evidence", "parameters", "curves")}
    by_scaling: Figures = {}
    for name in dict.fromkeys(row["scaling"] for row in rows):
        own = [row for row in rows if row["scaling"] == name]
        by_scaling[name] = {
            "fits": len(own),
            "same": sum(map(units.is_same, own)),
            **{key: max(row[key] for row in own) for key in worst},
        }
    problems = [
        f"{row['system']}, noise {row['noise']:g}, {row['scaling']}: evidence {row['evidence']:.1e}, parameters "
        f"{row['parameters']:.1e}, curves {row['curves']:.1e}"
        + ("" if row["same_identified"] else ", others are identified")
        + ("" if row["same_converged"] else ", convergence differs")
        for row in bad
    ]
    counts = {"another answer": len(bad), "the same answer": len(rows) - len(bad)}
    return {
        "total": len(rows),
        "counts": counts,
        "scalings": by_scaling,
        "worst": worst,
        "problems": problems,
        "bad": len(bad),
    }


def _table_of_units(figures: Figures) -> list[str]:
    rows = [
        (name, f"{own['same']} of {own['fits']}", *(f"{own[key]:.1e}" for key in figures["worst"]))
        for name, own in figures["scalings"].items()
    ]
    head = "units | same results | difference of the evidence | of parameters | of curves"
    others = (
        ["", "Different results:", "", *(f"- {text}" for text in figures["problems"])] if figures["problems"] else []
    )
    return [*_rows(head, rows), *others]


def _try_calibration(task: tuple[str, int]) -> list[Any]:
    return [calibration.one(*task, "plants")]


def _gather_calibration(found: list[Any]) -> Figures:
    systems: Figures = {}
    for name in dict.fromkeys(fit["system"] for fit in sorted(found, key=lambda fit: str(fit["system"]))):
        fits = sorted((fit for fit in found if fit["system"] == name), key=lambda fit: int(fit["seed"]))
        row = calibration.summarise(name, fits, "plants")
        systems[name] = _coverage(fits) | {"poor": row["poor"], "told": row["told"]}
        systems[name]["verdict"] = calibration.verdict(row)
    return {"total": len(found), "systems": systems, "all": _coverage(found), "counts": {}, "problems": [], "bad": 0}


def _coverage(fits: list[Any]) -> Figures:
    """Return coverage at all levels, and its binomial errors for as many data sets."""
    bands = {
        place: np.mean([fit[f"{place}, uncertain"][:-1] for fit in fits], axis=0).tolist()
        for place in calibration.PLACES
    }
    held = [each["held"] for fit in fits for each in fit["intervals"].values() if each["identified"]]
    share = np.array(LEVELS)
    return {
        "data_sets": len(fits),
        "bands": bands,
        "intervals": np.mean(held, axis=0).tolist() if held else None,
        "interval_count": len(held),
        "errors": np.sqrt(share * (1.0 - share) / len(fits)).tolist(),
    }


def _percents(shares: Sequence[float] | None) -> str:
    return "" if shares is None else " / ".join(f"{100 * share:.1f}" for share in shares)


def _table_of_calibration(figures: Figures) -> list[str]:
    rows = [
        (
            name,
            own["data_sets"],
            _percents(own["bands"]["inside"]),
            _percents(own["bands"]["beyond"]),
            _percents(own["intervals"]),
            _percents(own["errors"]),
        )
        for name, own in [*figures["systems"].items(), ("**all**", figures["all"])]
    ]
    head = "system | data sets | bands inside the data | bands beyond them | intervals | binomial error"
    return _rows(head, rows)


def _split_input(options: argparse.Namespace) -> list[Any]:
    """Return counts for as many processes as there may be, each with a seed of its own."""
    jobs = max(1, min(options.jobs, 16))
    shares = {name: [len(part) for part in np.array_split(range(getattr(options, name)), jobs)] for name in FUZZED}
    return [(seed, {name: shares[name][seed] for name in FUZZED}) for seed in range(jobs)]


def _try_input(task: tuple[int, dict[str, int]]) -> list[Any]:
    seed, counts = task
    words = [word for name, count in counts.items() for word in (f"--{name}", str(count))]
    with tempfile.TemporaryDirectory() as place:
        target = Path(place, "found.json")
        script = Path(__file__).with_name("trust_input.py")
        done = subprocess.run(
            [sys.executable, script, *words, "--seed", str(seed), "--json", target],
            capture_output=True,
            text=True,
            check=False,
        )
        if not target.exists():
            raise RuntimeError(done.stdout + done.stderr)
        rows = json.loads(target.read_text(encoding="utf-8"))
    return [{"rows": rows, "shown": [line.strip() for line in done.stdout.splitlines() if line.startswith("    ")]}]


def _gather_input(found: list[Any]) -> Figures:
    rows: dict[str, Counter[str]] = {name: Counter() for name in FUZZED}
    for each in found:
        for name, own in each["rows"].items():
            rows[name].update({key: value for key, value in own.items() if key != "seconds"})
    counts = {f"{name} {key}": rows[name][key] for name in FUZZED for key in ("read", "refused") if name != "kills"}
    counts["kills survived"] = rows["kills"]["survived"]
    return {
        "total": sum(own["count"] for own in rows.values()),
        "rows": {name: dict(own) for name, own in rows.items()},
        "counts": counts,
        "problems": [line for each in found for line in each["shown"]],
        "bad": sum(own["offences"] for own in rows.values()),
    }


def _table_of_input(figures: Figures) -> list[str]:
    titles = {"texts": "texts of equations", "tables": "tables", "models": "saved models"}
    rows = [
        (title, *(f"{figures['rows'][name].get(key, 0):,}" for key in ("count", "read", "refused", "offences")))
        for name, title in titles.items()
    ]
    kills = figures["rows"]["kills"]
    return [
        *_rows("input | cases | read | refused | other results", rows),
        "",
        f"After {kills['survived']} of {kills['count']} kills all files were complete; in {kills['with a part left']} "
        "cases a part of a new file was left, which the next write removed.",
    ]


PARTS: dict[str, Part] = {
    "evidences": Part(
        "evidences compared with 50 and 90 digits, four for each point",
        lambda options: list(range(options.evidences)),
        _with_seeds(trust_numerics.check_evidence),
        _sorted_counts,
        _table_of_counts,
    ),
    "channels": Part(
        "evidences under the channel prior compared with extended precision, four for each point",
        lambda options: list(range(options.evidences // 2)),
        _with_seeds(trust_numerics.check_channel_evidence),
        _sorted_counts,
        _table_of_counts,
    ),
    "fits": Part(
        "fits, engines compared with each other",
        lambda options: list(range(options.fits // 2)),
        _with_seeds(trust_numerics.compare_engines),
        _sorted_counts,
        _table_of_counts,
    ),
    "torture": Part(
        "numerically difficult cases",
        # The longest come last in the list.
        lambda options: list(reversed(options.cases or list(CASES))),
        _try_torture,
        _gather_torture,
        _table_of_cases,
    ),
    "units": Part(
        "fits in other units",
        lambda options: [
            (name, noise, options.points) for name in _systems(options) for noise in units.NOISES[: options.noises]
        ],
        _try_units,
        _gather_units,
        _table_of_units,
    ),
    "calibration": Part(
        "data sets of random plants, coverage of bands and intervals",
        lambda options: [(name, seed) for name in _systems(options) for seed in range(options.data_sets)],
        _try_calibration,
        _gather_calibration,
        _table_of_calibration,
    ),
    "input": Part("mutated inputs and killed writes", _split_input, _try_input, _gather_input, _table_of_input),
}
