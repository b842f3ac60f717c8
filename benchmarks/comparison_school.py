"""Claim: the school's heating, by lodekit and by the tool that the record comes with (pip install darkgreybox lmfit).

Both fit the model TiTeThRia to all but the last five days and run freely over these, from the measured temperature,
with the walls as they were. darkgreybox is run twice: one search from the start values of its tutorial (all ones),
and the pipeline of its tutorial, which fits every day by itself first and trains from each of these.
The record is not part of the project:

    python benchmarks/comparison_school.py [FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lodekit as lk
from greybox_records import HOURS, SCHOOL, school_system

Array = NDArray[np.float64]
#: What the pipeline of the tutorial lets through: fits of a day that are off by less than two degrees.
SURVIVAL = 2.0


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def by_lodekit(Ph: Array, Ta: Array, Ti: Array) -> dict[str, Any]:
    """No start values; one fit."""
    begin, t, cut = time.process_time(), np.arange(float(len(Ti))), len(Ti) - HOURS
    gp = lk.LODEGP(school_system(), inputs={"Ph": "hold", "Ta": "hold"}, random_state=0)
    gp.fit(t[:cut], {"Ph": Ph[:cut], "Ta": Ta[:cut], "Ti": Ti[:cut]})
    seconds = time.process_time() - begin
    walls = gp.simulate(t[cut:], {"Ph": (t, Ph), "Ta": (t, Ta)}, start="end", observable="Te")[0]
    start = {"Ti": float(Ti[cut]), "Th": float(Ti[cut]), "Te": float(walls)}
    run = gp.simulate(t[cut:], {"Ph": (t[cut:], Ph[cut:]), "Ta": (t[cut:], Ta[cut:])}, start=start, observable="Ti")
    return {
        "fitted": rms(gp.predict(t[:cut], "Ti") - Ti[:cut]),
        "run": rms(run - Ti[cut:]),
        "seconds": seconds,
        "values": {name: found.value for name, found in gp.parameters_.items()},
        "intervals": {name: list(found.interval) for name, found in gp.parameters_.items() if found.identified},
        "not identified": [name for name, found in gp.parameters_.items() if not found.identified],
    }


def by_darkgreybox(Ph: Array, Ta: Array, Ti: Array, *, days: int) -> dict[str, Any]:
    """One search from ones, or a search for each of so many days and a training from each that survives."""
    from darkgreybox.models import TiTeThRia

    begin, cut = time.process_time(), len(Ti) - HOURS

    def search(first: int, last: int, values: dict[str, float]) -> Any:
        fixed = {"Ti0": Ti[first], "Th0": Ti[first], "Ch": 2.55, "Rih": 0.65}
        start = {name: {"value": value, "vary": False} for name, value in fixed.items()}
        start["Te0"] = {"value": Ti[first] - 2, "vary": True, "min": 10, "max": 25}
        start |= {name: {"value": values.get(name, 1)} for name in ("Ci", "Ce", "Rie", "Rea", "Ria")}
        given = {"Ph": Ph[first:last], "Ta": Ta[first:last]}
        try:
            return TiTeThRia(start, rec_duration=1).fit(given, Ti[first:last], method="nelder")
        except ValueError:
            # Its Euler steps of an hour diverge where a time constant is shorter; the tool drops such fits, too.
            return None

    def error(model: Any, first: int, last: int) -> float:
        return rms(model.predict({"Ph": Ph[first:last], "Ta": Ta[first:last]}).Z - Ti[first:last])

    starts: list[dict[str, float]] = [{}] if not days else []
    for day in range(days):
        first, last = 24 * day, 24 * day + 24
        found = search(first, last, {})
        if found is not None and error(found, first, last) < SURVIVAL:
            starts.append({name: found.params[name].value for name in ("Ci", "Ce", "Rie", "Rea", "Ria")})
    trained_all = [model for start in starts if (model := search(0, cut, start)) is not None]
    seconds = time.process_time() - begin
    if not trained_all:
        return {"fitted": None, "run": None, "seconds": seconds, "searches": len(starts) + days}
    best = min(trained_all, key=lambda model: error(model, 0, cut))
    trained = best.predict({"Ph": Ph[:cut], "Ta": Ta[:cut]})
    begun = {"Ti0": Ti[cut], "Th0": Ti[cut], "Te0": trained.var["Te"][-1]}
    run = best.predict({"Ph": Ph[cut:], "Ta": Ta[cut:]}, begun)
    return {
        "fitted": rms(trained.Z - Ti[:cut]),
        "run": rms(run.Z - Ti[cut:]),
        "seconds": seconds,
        "searches": len(starts) + days,
        "values": {name: best.params[name].value for name in ("Ci", "Ce", "Rie", "Rea", "Ria")},
        "errors": {name: best.params[name].stderr for name in ("Ci", "Ce", "Rie", "Rea", "Ria")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("../shared/data"))
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    record = given.folder / SCHOOL
    if not record.exists():
        print(f"skipped, no {record}")
        return
    Ph, Ti, Ta = np.loadtxt(record, delimiter=",", skiprows=1, usecols=(1, 2, 3)).T
    runs: dict[str, Callable[[], dict[str, Any]]] = {"lodekit": lambda: by_lodekit(Ph, Ta, Ti)}
    if importlib.util.find_spec("darkgreybox") is None:
        print("darkgreybox is not installed")
    else:
        days = (len(Ti) - HOURS) // 24
        runs["darkgreybox, one search"] = lambda: by_darkgreybox(Ph, Ta, Ti, days=0)
        runs["darkgreybox, its pipeline"] = lambda: by_darkgreybox(Ph, Ta, Ti, days=days)
    results = {}
    for name, run in runs.items():
        row = results[name] = run()
        print(f"{name}: {row}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
