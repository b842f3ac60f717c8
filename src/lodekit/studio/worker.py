"""The process of one background task: it reads a request from a folder, and writes progress and result there.

The server sends the name of the folder on standard input after the modules are loaded.
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

from lodekit.data.observations import Observations
from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.report.document import MAX_SHOWN_RECORDS
from lodekit.report.panels import ReportContext, round_values
from lodekit.report.time_series import channels_figure, residual_plots
from lodekit.results.equation_residuals import EquationEvaluator, compute_curve_residuals
from lodekit.results.fit import Fit
from lodekit.results.summary import displayed_hyperparameters
from lodekit.studio.figures import add_sample_traces, validation_figure
from lodekit.studio.session import user_message
from lodekit.support.arguments import Array
from lodekit.support.files import MODEL_FILE, write_atomically
from lodekit.support.progress import listening
from lodekit.system.delays import undelayed_name
from lodekit.system.dimensions import derive_units
from lodekit.system.files import read_system_file
from lodekit.system.system import System
from lodekit.workflow.pipeline import (
    FitRun,
    compute_results,
    explain_missing_results,
    fit_file,
    fit_to_dict,
    read_model,
)

REQUEST_FILE, RESULT_FILE, PROGRESS_FILE = "request.json", "result.json", "progress.json"


def run_task(folder: Path) -> None:
    """Run the task of a folder, and write its result there: the values, or an error message."""
    try:
        wanted = json.loads((folder / REQUEST_FILE).read_text(encoding="utf-8"))
        with listening(_progress_writer(folder)):
            found = TASK_FUNCTIONS[wanted["task"]](folder, wanted)
    except Exception as problem:
        found = {"trouble": user_message(problem, folder)}
    write_atomically(folder / RESULT_FILE, json.dumps(found, ensure_ascii=False))


def _progress_writer(folder: Path) -> Callable[[str, int, int | None], None]:
    """Return a function that writes progress to a folder, at most ten times a second."""
    last = 0.0

    def tell(words: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 0.1:
            last = now
            part = folder / f"{PROGRESS_FILE}.part"
            part.write_text(json.dumps({"words": words, "done": done, "total": total}), encoding="utf-8")
            part.replace(folder / PROGRESS_FILE)

    return tell


def _run_fit(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit, and return everything that the page shows about the fit."""
    began = time.monotonic()
    product = fit_file(read_system_file(folder / request["system"]), folder / request["data"], **request["options"])
    gp = product.gp
    gp.save(folder / MODEL_FILE)
    _progress_writer(folder)("checking the curves", 0, None)
    windows = [part.measurements.window for part in gp.fit_.record_fits]
    return {
        **fit_to_dict(product),
        "summary": gp.summary(),
        "shown": displayed_hyperparameters(gp.fit_),
        "source": product.source,
        "command": request["command"],
        "code": request["code"],
        "window": [min(first for first, _ in windows), max(last for _, last in windows)],
        "units": {**derive_units(gp.system, gp.labels_["units"]), **gp.labels_["units"]},
        "equations": list(gp.system.equations),
        "channels": list(gp.system.plain_channels),
        "figures": {
            record: _record_figures(gp, product.source, part)
            for record, part in zip(gp.records_[:MAX_SHOWN_RECORDS], gp.fit_.record_fits, strict=False)
        },
        "certificate": _certify(gp),
        "independent": gp.diagnose().is_independent,
        "validation": None if request["held_out"] is None else _validate(gp, folder, request),
        "seconds": time.monotonic() - began,
    }


def _record_figures(gp: LODEGP, name: str, fit: Fit) -> dict[str, Any]:
    """Return figures of a record by name: curves with samples, residuals, and their autocorrelations."""
    own = LODEGP.from_fit(fit)
    subject = ReportContext(own, gp.labels_["units"], name, {}, fit.measurements.extended_window)
    data, layout = channels_figure(subject)
    caption = "Posterior mean, 95 % band and samples, without measurement noise."
    times = subject.curve_times[:: max(len(subject.curve_times) // 200, 1)]
    names = [name for name in subject.observables if name not in fit.measurements.inputs]
    try:
        drawn = own.sample(times, 3, random_state=0, observable=names)
        x = fit.clock.wall_clock_times(round_values(times, 12))
        data = add_sample_traces(data, subject.observables, names, x, np.asarray(drawn))
    except LodekitError:
        # Priors that are too rough for samples at many times have no samples here.
        caption = "Posterior mean and 95 % band, without measurement noise."
    plots = {"Curves": (data, layout, caption), **residual_plots(subject)}
    figures: dict[str, dict[str, Any]] = {
        title: dict(zip(("data", "layout", "caption"), plot, strict=True)) for title, plot in plots.items()
    }
    window = fit.clock.wall_clock_times(fit.measurements.window)
    figures["Curves"] |= {"panels": subject.observables, "window": window}
    return figures


def _certify(gp: LODEGP) -> dict[str, Any]:
    try:
        found = gp.certificate()
    except LodekitError as problem:
        return {"trouble": str(problem)}
    return {"text": str(found), "residual": found.residual, "uncertainty": found.uncertainty, "strict": found.is_strict}


def _validate(gp: LODEGP, folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return how well the held-out part of the data is predicted."""
    options = {name: request["options"][name] for name in ("dt", "split_gaps")}
    if len(gp.fit_.record_fits) > 1 and not options["split_gaps"]:
        return {"trouble": "expected one record for validation, got several in this file; use a file with one of them"}
    try:
        options |= {"window": request["held_out"], "given": request["given"] or None}
        found = gp.validate(folder / request["data"], **options)
    except LodekitError as problem:
        return {"trouble": user_message(problem, folder)}
    figure = validation_figure(found, gp.labels_["units"])
    return {**found.to_dict(), "text": repr(found), "figure": figure}


def _fit_unconstrained(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit each measured channel by a separate process, and return how badly its curves violate the equations.

    With several records, only the first is used.
    """
    gp = read_model(folder / MODEL_FILE)
    fit = gp.fit_.record_fits[0]
    inputs, driven = fit.measurements.inputs, fit.prior.observables.input_response
    names = [name for name in gp.system.plain_channels if name not in inputs]
    known = [name for name in gp.system.channels if undelayed_name(name) in inputs]
    measured = {item.observable: item for item in fit.measurements.plotted_series}
    if absent := [name for name in names if name not in measured]:
        raise LodekitError(
            f"{', '.join(absent)} was not measured, and without the equations its curve is unknown, so it cannot be "
            "substituted into them"
        )
    mark = "_"
    while any(f"{name}{mark}" in names for name in names):
        mark += "_"
    others = [f"{name}{mark}" for name in names]
    free = System([f"{name} = {other}" for name, other in zip(names, others, strict=True)], channels=[*names, *others])
    rival = LODEGP(free, random_state=request["seed"])
    data = Observations()
    for name in names:
        data = data.add(measured[name].times, name, measured[name].values)
    rival.fit(data)
    values = {name: estimate.value for name, estimate in gp.parameters_.items()}
    written, own = EquationEvaluator(gp.system.written, gp.system.channels, values), LODEGP.from_fit(fit)

    def curve(at: Array) -> Array:
        # Known inputs, also delayed ones, are predicted by the model with the equations.
        parts = [rival.predict(at, names), own.predict(at, known, as_frame=False) if known else np.zeros((len(at), 0))]
        order = [*names, *known]
        return np.concatenate(parts, axis=1)[:, [order.index(name) for name in gp.system.channels]]

    times = np.linspace(*fit.measurements.window, 201)
    breaks = np.zeros(0) if driven is None else driven.breakpoints(fit.hyperparameters.theta)
    found = compute_curve_residuals(written, curve, times, fit.prior.units.time_scale, breaks)
    return {
        "log_evidence": float(rival.log_evidence_),
        "violation": found.residual,
        "ours": float(gp.certificate(samples=0).residual),
    }


def _export_results(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Write report, predictions and figures of a fit to the folder of its model."""
    known = request["source"], request["command"], tuple(request["notes"]), request["code"]
    product = FitRun(read_model(folder / MODEL_FILE), *known)
    contents = compute_results(product, figures=request["figures"])
    for name, content in contents.items():
        write_atomically(folder / name, content)
    remarks = explain_missing_results(product.gp, figures=request["figures"])
    return {"files": sorted(contents), "remarks": remarks}


TASK_FUNCTIONS: dict[str, Callable[[Path, Mapping[str, Any]], dict[str, Any]]] = {
    "fit": _run_fit,
    "free": _fit_unconstrained,
    "deliver": _export_results,
}


def main() -> None:
    """Wait for the name of a folder, run its task, and end."""
    # Suppress output during a computation, also that of libraries.
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    name = sys.stdin.readline().strip()
    if name:
        run_task(Path(name))


if __name__ == "__main__":
    main()
