"""The process in which long work is done: it reads what is wanted from a folder, and writes what came of it there.

Whoever starts it says the folder on standard input; until then it has loaded all that it needs, and waits.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.certificate.measure import measure_curve
from lodekit.certificate.written import WrittenEquations
from lodekit.data.observations import Observations
from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.fitted import Fit
from lodekit.model import LODEGP
from lodekit.progress import listening
from lodekit.report.curves import draw_curves
from lodekit.report.subject import Subject
from lodekit.rereading import read_record
from lodekit.studio.drawing import add_samples, draw_validation
from lodekit.studio.troubles import say_trouble
from lodekit.summary import shown_values
from lodekit.system.delays import channel_of
from lodekit.system.files import read_system_file
from lodekit.system.system import System
from lodekit.workflow import MODEL, Product, compute_results, describe_fit, fit_file, read_model

__all__ = ["PROGRESS", "REQUEST", "RESULT", "main", "run"]

Array = NDArray[np.float64]
REQUEST, RESULT, PROGRESS = "request.json", "result.json", "progress.json"
#: How many functions are drawn from the posterior, to be shown.
_SAMPLES = 3


def run(folder: Path) -> None:
    """Do what a folder asks for, and write what came of it there: a result, or what went wrong in words.

    Parameters
    ----------
    folder : Path
        With ``request.json``, and all that it names.
    """
    try:
        wanted = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        with listening(_teller(folder)):
            found = _TASKS[wanted["task"]](folder, wanted)
    except Exception as problem:
        found = {"trouble": say_trouble(problem, folder)}
    write_file(folder / RESULT, json.dumps(found, ensure_ascii=False))


def _teller(folder: Path) -> Callable[[str, int, int | None], None]:
    """Return a function that writes progress to a folder, a few times a second at most."""
    last = 0.0

    def tell(words: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 0.1:
            last = now
            part = folder / f"{PROGRESS}.part"
            part.write_text(json.dumps({"words": words, "done": done, "total": total}), encoding="utf-8")
            part.replace(folder / PROGRESS)

    return tell


def _fit(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Fit, and return all that is shown of a fit."""
    began = time.monotonic()
    product = fit_file(
        read_system_file(folder / wanted["system"]),
        folder / wanted["data"],
        dt=wanted["dt"],
        window=tuple(wanted["window"]),
        random_state=wanted["seed"],
        **wanted["options"],
    )
    gp = product.gp
    gp.save(folder / MODEL)
    tell = _teller(folder)
    tell("looking at the curves", 0, None)
    held = wanted["held_out"]
    return {
        **describe_fit(product),
        "summary": gp.summary(),
        "shown": shown_values(gp.fit_),
        "source": product.source,
        "command": wanted["command"],
        "window": list(gp.fit_.measurements.window),
        "units": dict(gp.labels_["units"]),
        "equations": list(gp.system.equations),
        "channels": list(gp.system.plain_channels),
        "figures": _draw(gp, product.source),
        "certificate": _certify(gp),
        "independent": gp.diagnose().is_independent,
        "validation": None if held is None else _validate(gp, folder, wanted),
        "seconds": time.monotonic() - began,
    }


def _draw(gp: LODEGP, name: str) -> dict[str, Any]:
    """Return for each record the plot of every observable, with functions drawn from the posterior."""
    return {record: _draw_record(gp, name, part) for record, part in zip(gp.records_, gp.fit_.parts, strict=True)}


def _draw_record(gp: LODEGP, name: str, fit: Fit) -> dict[str, Any]:
    own = LODEGP.from_fit(fit)
    subject = Subject(own, gp.labels_["units"], name, {}, fit.measurements.surroundings)
    data, layout = draw_curves(subject)
    times = subject.times[:: max(len(subject.times) // 200, 1)]
    names = [name for name in subject.names if name not in fit.measurements.inputs]
    try:
        drawn = own.sample(times, _SAMPLES, random_state=0, observable=names)
    except LodekitError:
        # Priors that are too rough to be drawn at many times have no samples here.
        return {"data": data, "layout": layout}
    return {"data": add_samples(data, subject.names, names, times, np.asarray(drawn)), "layout": layout}


def _certify(gp: LODEGP) -> dict[str, Any]:
    try:
        found = gp.certificate()
    except LodekitError as problem:
        return {"trouble": str(problem)}
    return {
        "text": str(found),
        "residual": found.residual,
        "uncertainty": found.uncertainty,
        "strict": found.is_strict,
        "proved": list(found.identities),
    }


def _validate(gp: LODEGP, folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return how well the part of the data that was held out is predicted."""
    if len(gp.fit_.parts) > 1:
        return {"trouble": "expected one record to validate on, got several in this file; give one of them alone"}
    try:
        record = read_record(gp, folder / wanted["data"], None, wanted["dt"], tuple(wanted["held_out"]))
        found = gp.validate(record, given=wanted["given"] or None)
    except LodekitError as problem:
        return {"trouble": say_trouble(problem, folder)}
    figure = draw_validation(found, gp.labels_["units"])
    return {**found.to_dict(), "text": repr(found), "figure": figure}


def _compare_without_equations(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Fit each measured channel by a process of its own, and return how badly its curves violate the equations.

    Of several records it is the first one.
    """
    gp = read_model(folder / MODEL)
    fit = gp.fit_.parts[0]
    inputs, driven = fit.measurements.inputs, fit.prior.observables.driven
    names = [name for name in gp.system.plain_channels if name not in inputs]
    known = [name for name in gp.system.channels if channel_of(name) in inputs]
    measured = {item.observable: item for item in fit.measurements.shown}
    if absent := [name for name in names if name not in measured]:
        raise LodekitError(
            f"{', '.join(absent)} was not measured, and without the equations nothing is known of it; so there is no "
            "curve to put into them"
        )
    mark = "_"
    while any(f"{name}{mark}" in names for name in names):
        mark += "_"
    others = [f"{name}{mark}" for name in names]
    free = System([f"{name} = {other}" for name, other in zip(names, others, strict=True)], channels=[*names, *others])
    rival = LODEGP(free, random_state=wanted["seed"])
    data = Observations()
    for name in names:
        data = data.add(measured[name].times, name, measured[name].values)
    rival.fit(data)
    values = {name: estimate.value for name, estimate in gp.parameters_.items()}
    written, own = WrittenEquations(gp.system.written, gp.system.channels, values), LODEGP.from_fit(fit)

    def curve(at: Array) -> Array:
        # What is known, also at an earlier time, the fit with the equations knows as well.
        parts = [rival.predict(at, names), own.predict(at, known) if known else np.zeros((len(at), 0))]
        order = [*names, *known]
        return np.concatenate(parts, axis=1)[:, [order.index(name) for name in gp.system.channels]]

    times = np.linspace(*fit.measurements.window, 201)
    breaks = np.zeros(0) if driven is None else driven.corners(fit.hyperparameters.theta)
    found = measure_curve(written, curve, times, fit.prior.units.span, breaks)
    return {
        "log_evidence": float(rival.log_evidence_),
        "violation": found.residual,
        "ours": float(gp.certificate(samples=0).residual),
    }


def _deliver(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Write report, predictions and figures of a fit beside its model."""
    product = Product(read_model(folder / MODEL), wanted["source"], wanted["command"], tuple(wanted["notes"]))
    found = compute_results(product, figures=wanted["figures"])
    for name, content in found.contents.items():
        write_file(folder / name, content)
    return {"files": sorted(found.contents), "remarks": list(found.remarks)}


_TASKS: dict[str, Callable[[Path, Mapping[str, Any]], dict[str, Any]]] = {
    "fit": _fit,
    "free": _compare_without_equations,
    "deliver": _deliver,
}


def main() -> None:
    """Wait for the name of a folder, do what it asks for, and end."""
    # Nothing of a computation is printed, whatever a library may want to say.
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    name = sys.stdin.readline().strip()
    if name:
        run(Path(name))


if __name__ == "__main__":
    main()
