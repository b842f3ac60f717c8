"""Background tasks: each reads a request from a folder, and writes progress and result there."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import Observations
from lodekit.data.preview import preview_table
from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.report.document import MAX_SHOWN_RECORDS
from lodekit.report.panels import ReportContext, round_values, validation_figure
from lodekit.report.time_series import channels_figure, residual_plots
from lodekit.results.equation_residuals import EquationEvaluator, compute_curve_residuals
from lodekit.results.fit import Fit
from lodekit.results.summary import displayed_hyperparameters
from lodekit.results.validation import Validation
from lodekit.studio.data_files import match_channels
from lodekit.studio.figures import add_sample_traces, curves_figure
from lodekit.studio.session import StudioSession, find_time_column, session_from_dict, user_message
from lodekit.support.arguments import Array
from lodekit.support.files import MODEL_FILE, write_atomically
from lodekit.support.progress import listening
from lodekit.system.delays import undelayed_name
from lodekit.system.files import read_system_file
from lodekit.system.system import System
from lodekit.workflow import pipeline
from lodekit.workflow.new_data import read_inputs

REQUEST_FILE, RESULT_FILE, PROGRESS_FILE = "request.json", "result.json", "progress.json"
SYSTEM_FILE, SIMULATION_FILE = "system.toml", "simulation.csv"


def read_fit_session(folder: Path) -> StudioSession:
    """Return the session as it was when a fit started, from the folder of the fit."""
    return session_from_dict(json.loads((folder / REQUEST_FILE).read_text(encoding="utf-8"))["session"])


def find_fitted_file(folder: Path, session: StudioSession) -> Path:
    """Return the path of the data of a fit; those of a reopened session are only in the folder of the session."""
    return next((path for path in (folder / session.file, folder.parent / session.file) if path.is_file()), folder)


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
    session = read_fit_session(folder)
    product = pipeline.fit_file(read_system_file(folder / SYSTEM_FILE), folder / session.file, **session.fit_options)
    gp = product.gp
    gp.save(folder / MODEL_FILE)
    _progress_writer(folder)("checking the curves", 0, None)
    windows = [part.measurements.window for part in gp.fit_.record_fits]
    window = [min(first for first, _ in windows), max(last for _, last in windows)]
    # A simulation begins with a step of the first input, which is more likely a heater than the weather if it is held.
    inputs = sorted(gp.fit_.measurements.inputs.items(), key=lambda item: item[1].kind != "hold")
    return {
        **pipeline.fit_to_dict(product),
        "summary": gp.summary(),
        "shown": displayed_hyperparameters(gp.fit_),
        "source": product.source,
        "command": request["command"],
        "code": request["code"],
        "window": window,
        "span": gp.fit_.clock.format_times(*window).replace(" and ", " to "),
        "inputs": {n: [float(u.values.min()), float(u.values.max())] for n, u in inputs},
        "units": gp.fit_.units,
        "equations": list(gp.system.equations),
        "channels": list(gp.system.plain_channels),
        "figures": {
            record: _record_figures(gp, product.source, part)
            for record, part in zip(gp.records_[:MAX_SHOWN_RECORDS], gp.fit_.record_fits, strict=False)
        },
        "certificate": _certify(gp),
        "residual_verdict": gp.diagnose().verdict,
        "validation": session.held_out and _validation_result(gp, folder / session.file, session),
        "seconds": time.monotonic() - began,
    }


def _record_figures(gp: LODEGP, name: str, fit: Fit) -> dict[str, Any]:
    """Return figures of a record by name: curves with samples, residuals, and their autocorrelations."""
    own = LODEGP.from_fit(fit)
    subject = ReportContext(own, gp.labels_["units"], name, {}, fit.setup.default_window)
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
    if not found.mean.residuals.shape[1]:
        return {"trouble": "White noise drives every equation, so curves cannot be substituted into any of them."}
    return {"text": str(found), "residual": found.residual, "uncertainty": found.uncertainty, "strict": found.is_strict}


def _validate(gp: LODEGP, path: Path, session: StudioSession) -> tuple[str, Validation]:
    """Return how well the held-out part of the data, or all of another file, is predicted, with a title."""
    options: dict[str, Any] = {"dt": session.dt, "split_gaps": session.split_gaps, "given": session.given or None}
    if session.held_out and len(gp.fit_.record_fits) > 1 and not session.split_gaps:
        raise LodekitError("expected one record for validation, got several in this file; use a file with one of them")
    span = f", {gp.fit_.clock.format_times(*session.held_out)}" if session.held_out else ""
    title = f"{path.name}{span}".replace(" and ", " to ")
    return title, gp.validate(path, window=session.held_out or (None, None), **options)


def _validation_result(gp: LODEGP, path: Path, session: StudioSession) -> dict[str, Any]:
    """Return a validation as plain values, with its figure and text, or the message why there is none."""
    try:
        title, found = _validate(gp, path, session)
    except LodekitError as problem:
        return {"trouble": user_message(problem, path.parent)}
    text = f"Validation: {title}\n{found!r}"
    return {**found.to_dict(), "text": text, "figure": validation_figure(found, gp.labels_["units"])}


def _validate_file(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return how well the record in a file is predicted by a fit."""
    session, path = read_fit_session(folder.parent), folder / request["data"]
    gp = pipeline.read_model(folder / MODEL_FILE)
    found = _validation_result(gp, path, replace(session, held_out=None))
    own = find_fitted_file(folder.parent, session)
    if "trouble" in found and own.is_file():
        preview = preview_table(own, time_column=find_time_column(session.assignments))
        columns = [item.assignment.column for item in match_channels(preview, gp.system, session.assignments)]
        used = ", ".join(filter(None, [preview.time.name if preview.time else "", *columns]))
        advice = f"rename the column in the file; the fit used the columns {used}"
        found["trouble"] = re.sub("(use|try|map it:) (--map|columns=).*", lambda _: advice, found["trouble"])
    return {"source": path.name, **found}


def _simulate(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Write the response of a fit to steps of its inputs, or to the inputs in a file, and return it as a figure."""
    gp, start = pipeline.read_model(folder / MODEL_FILE), request["start"]
    fit = gp.fit_.record_fits[-1]
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    signals: dict[str, InputSignal] = {}
    if request["data"]:
        given = read_inputs(gp, folder / request["data"])
        signals |= {name: InputSignal(*samples, kinds[name]) for name, samples in given.items()}
        samples = np.concatenate([signal.times for signal in signals.values()])
        first, last = float(samples.min()), float(samples.max())
    else:
        first = dict(zip(("begin", "end"), fit.measurements.window, strict=True)).get(start, 0.0)
        last, at = first + request["duration"], first + request["at"]
        edges = [first, np.nextafter(at, -np.inf), at] if at > first else [first]
        for name, (before, after) in request["steps"].items():
            signals[name] = InputSignal(edges, [before, before, after][-len(edges) :], kinds[name])
        samples = np.array([at])
    times = np.union1d(samples[(samples >= first) & (samples <= last)], np.linspace(first, last, 401))
    names, record = fit.setup.channels, gp.records_[-1] if start in ("begin", "end") else None
    mean, std = gp.simulate(times, signals, start, names, return_std=True, record=record, as_frame=False)
    table = pipeline.mean_std_table(gp, times, names, mean, std, known_channels=signals)
    write_atomically(folder / SIMULATION_FILE, pipeline.to_csv(table))
    curves = {name: (times, *moments) for name, *moments in zip(names, mean.T, std.T, strict=True)}
    figure = curves_figure(curves, fit.clock, kinds, gp.labels_["units"], label="simulation")
    return {"source": request["data"], "start": start, "record": record, "inputs": [*signals], "figure": figure}


def _fit_unconstrained(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit each measured channel by a separate process, and return how badly its curves violate the equations.

    With several records, only the first is used.
    """
    gp = pipeline.read_model(folder / MODEL_FILE)
    fit = gp.fit_.record_fits[0]
    inputs, driven = fit.measurements.inputs, fit.prior.observables.input_response
    names = [name for name in gp.system.plain_channels if name not in inputs]
    known = [name for name in gp.system.channels if undelayed_name(name) in inputs]
    measured = {item.observable: item for item in fit.measurements.plotted_series}
    if absent := [name for name in names if name not in measured]:
        raise LodekitError(f"the curves of unmeasured channels are unknown ({', '.join(absent)})")
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
    gp, session = pipeline.read_model(folder / MODEL_FILE), read_fit_session(folder.parent)
    held_out = [(find_fitted_file(folder.parent, session), session)] * (session.held_out is not None)
    others = [(folder.parent / "validate" / name, replace(session, held_out=None)) for name in request["validated"]]
    validations, remarks = dict[str, Validation](), list[str]()
    for path, own in (*held_out, *others):
        try:
            title, found = _validate(gp, path, own)
        except LodekitError as problem:
            remarks.append(f"The report has no validation on {path.name}: {user_message(problem, path.parent)}")
        else:
            validations[title] = found
    known = request["source"], request["command"], tuple(request["notes"]), request["code"], validations
    product = pipeline.FitRun(gp, *known)
    contents, reasons = pipeline.compute_results(product, figures=request["figures"])
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return {"files": sorted(contents), "remarks": [*remarks, *reasons]}


TASK_FUNCTIONS: dict[str, Callable[[Path, Mapping[str, Any]], dict[str, Any]]] = {
    "fit": _run_fit,
    "free": _fit_unconstrained,
    "files": _export_results,
    "validate": _validate_file,
    "simulate": _simulate,
}
