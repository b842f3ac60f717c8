"""The steps after the parameters: fits and their results, the comparison of all fits, and downloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from importlib.util import find_spec
from typing import Any

import streamlit as st

from lodekit.errors import LodekitError
from lodekit.studio import session_files
from lodekit.studio.components import edit_value, show_figure, show_heading, show_notice, show_table, upload_file
from lodekit.studio.controller import (
    OUTDATED_MESSAGE,
    TASK_LABELS,
    SessionController,
    collect_task,
    read_fit_result,
    start_export,
    start_fit,
    start_subtask,
)
from lodekit.studio.figures import comparison_figure
from lodekit.studio.session import LATENT_KERNELS, NOISE_MODELS, PRIOR_TYPES, to_page_advice
from lodekit.studio.step_data import DATA_FILE_EXTENSIONS, REFUSED_WINDOW
from lodekit.studio.worker import SIMULATION_FILE, SYSTEM_FILE, read_fit_session
from lodekit.support.text import as_sentence, format_percent, round_to_error


def render_fit(controller: SessionController) -> None:
    """Show the fit options, the progress of a fit, and its result."""
    show_heading("Fit")
    own = controller.session
    go, how = st.columns([2, 7], vertical_alignment="center")
    is_refused = bool(st.session_state.get(REFUSED_WINDOW))
    is_disabled = is_refused or not controller.is_ready
    options: dict[str, Any] = {"icon": ":material/play_arrow:", "disabled": is_disabled}
    if go.button("Fit", type="primary", key="fit", width="stretch", **options):
        start_fit(controller)
        st.rerun()
    with how, st.popover("Fit options", icon=":material/tune:"):
        _edit_fit_choices(controller)
    if is_refused:
        show_notice("Correct the window in step 2 before the next fit.", "warning")
    if controller.is_outdated:
        show_notice(OUTDATED_MESSAGE, "warning")
    _show_task(controller, "fit", "free")
    if not own.tray:
        if controller.task is None:
            show_notice("Estimates with intervals, bands, residual tests and the certificate appear here after a fit.")
        return
    name = own.tray[-1]
    if len(own.tray) > 1:
        name = st.segmented_control("Show", own.tray, default=own.tray[-1], key=f"shown-{own.tray[-1]}") or name
    show_result(controller, name)


def _edit_fit_choices(controller: SessionController) -> None:
    own = controller.session.choices

    def choose(widget: Any, label: str, field: str, **more: Any) -> Any:
        return edit_value(widget, label, own[field], field, **more)

    labels = {"channel": "one level for each channel", "shared": "one level for all"}
    labels |= {"latent": "the free functions", "channels": "the channels"}
    radio: dict[str, Any] = {"format_func": labels.__getitem__, "horizontal": True}
    noise = choose(st.radio, "Noise", "noise", options=NOISE_MODELS, **radio)
    prior = choose(st.radio, "Prior on", "prior", options=PRIOR_TYPES, **radio)
    latent = choose(st.selectbox, "Covariance function", "latent", options=LATENT_KERNELS)
    seed = choose(st.number_input, "Random seed of the starting points", "seed", min_value=0, max_value=10**6)
    given, possible = controller.given, controller.possible_given
    if given and controller.session.held_out is not None:
        label, about = "Known channels in the validation window", "The free run predicts all other channels from these."
        options: dict[str, Any] = {"options": possible, "format_func": ", ".join, "help": about}
        chosen = edit_value(st.selectbox, label, given, "given", **options)
        if tuple(chosen) != given:
            controller.change(given=tuple(chosen))
    new = {"noise": noise, "latent": latent, "prior": prior, "seed": int(seed)}
    if new != own:
        controller.change(choices=new)


def _show_task(controller: SessionController, *tasks: str) -> None:
    """Show the progress of a task, or why it failed, if it is one of the given tasks."""
    if controller.task is not None and controller.task.task in tasks:
        _show_progress(controller)
    for trouble in (controller.errors[task] for task in tasks if task in controller.errors):
        show_notice(trouble, "" if trouble == "Cancelled." else "warning")


@st.fragment(run_every=0.4)
def _show_progress(controller: SessionController) -> None:
    """Show the progress of a task, with a button to cancel it."""
    job = controller.task
    if job is None or collect_task(controller):
        st.rerun()
        return
    activity, fraction, seconds = job.progress()
    bar, end = st.columns([8, 2], vertical_alignment="center")
    bar.progress(fraction, text=f"{TASK_LABELS[job.task]}: {activity} ({seconds:.0f} s)")
    if end.button("Cancel", key="cancel", icon=":material/stop:", width="stretch"):
        job.cancel()
        collect_task(controller)
        st.rerun()


def parameter_rows(result: Mapping[str, Any]) -> list[list[Any]]:
    """Return the parameters of a fit as lines of a table, with digits according to their errors."""
    lines = []
    for name, own in result["parameters"].items():
        value, error, (low, high) = own["value"], own["std_error"], own["interval"]
        learned = own["identified"] and own["note"] != "fixed" and None not in (error, low, high)
        step = error if learned else 0.0
        shown = [round_to_error(number, step) for number in (value, low, high) if number is not None]
        cells: list[Any] = [name, (shown[0], value)]
        cells += (
            [(round_to_error(error, error), error), (" to ".join(shown[1:]), (low, high))] if learned else ["–", "–"]
        )
        lines.append([*cells, result["units"].get(name, ""), own["note"]])
    return lines


def show_result(controller: SessionController, name: str) -> None:
    """Show the result of a fit."""
    found = read_fit_result(controller, name)
    if not found or "trouble" in found:
        show_notice(found.get("trouble", "The result of this fit is missing."), "warning")
        return
    _show_badges(name, found)
    now = controller.resolved_session(), controller.parsed.equations
    if changed := session_files.changed_settings(controller.folder / name, *now):
        show_notice(f"{name} was made with other settings: {', '.join(changed)}.", "warning")
    if found["warnings"]:
        show_notice([as_sentence(text) for text in found["warnings"]], "warning")
    left, right = st.columns([6, 7], gap="large")
    with left:
        _show_estimates(controller, found)
        _show_verdicts(found)
        _show_unconstrained_fit(controller, name)
    with right:
        lines = parameter_rows(found)
        words = f"Mean, 95 % band, samples and measurements of {', '.join(found['channels'])}, {name}. "
        words += "; ".join(f"{line[0]} = {line[1][0]}" for line in lines)
        records = list(found["figures"])
        record = str(st.selectbox("Record", records, key=f"record-of-{name}")) if len(records) > 1 else records[0]
        figures = found["figures"][record]
        for tab, (title, figure) in zip(st.tabs(list(figures)), figures.items(), strict=True):
            with tab:
                alt_text = words if title == "Curves" else f"{title} of {', '.join(found['residuals'])}, {name}"
                show_figure(figure, alt_text, f"{title}-{name}-{record}")
                st.caption(figure.get("caption", ""))
    if found["validation"] is not None:
        st.markdown("##### Validation on the held-out data")
        _show_validation(found["validation"], name)
    _validate_on_file(controller, name)
    _simulate_inputs(controller, name, found)


def _show_badges(name: str, result: Mapping[str, Any]) -> None:
    strict = result["certificate"].get("strict")
    verdicts = [(result["converged"], "converged", "poor fit" if result["poor_fit"] else "not converged")]
    verdicts += [] if strict is None else [(strict, "strict", "not strict")]
    marks = [("" if good else "warning", yes if good else no) for good, yes, no in verdicts]
    kind = {"independent": "", "correlated": "warning"}.get(result["residual_verdict"], "plain")
    marks.insert(1, (kind, f"residuals {result['residual_verdict']}"))
    marks = [("plain", name), *marks, ("plain", f"{result['seconds']:.1f} s")]
    st.html("".join(f'<span class="lk-badge {kind}">{escape(text)}</span>' for kind, text in marks))


def _show_estimates(controller: SessionController, result: Mapping[str, Any]) -> None:
    own = controller.session
    is_origin = own.is_simulated and result["source"] == own.file and "\n".join(result["equations"]) == own.truth_of
    truth = own.truth if is_origin else {}
    if rows := parameter_rows(result):
        head, lines = ["parameter", "estimate", "95 % interval", "std error", "truth", "note"], []
        for name, value, error, interval, unit, note in rows:
            known = f"{truth[name]:.6g}" if name in truth else ""
            lines.append([f"{name} in {unit}" if unit else name, value, interval, error, known, note])
        used = [number for number in range(len(head)) if any(line[number] for line in lines)]
        numbers = [place for place, number in enumerate(used) if number in (1, 2, 3, 4)]
        cut = [[line[number] for number in used] for line in lines]
        show_table([head[number] for number in used], cut, numeric_columns=numbers, aria_label="Parameters of the fit")
    others = {**result["shown"], **{f"noise ({name})": value for name, value in result["noise"].items()}}
    cells = [[name, value if isinstance(value, str) else (f"{value:.3g}", value)] for name, value in others.items()]
    cells.append(["log evidence", (f"{result['log_evidence']:.3f}", result["log_evidence"])])
    with st.expander("Noise, lengthscales, evidence, and the summary as text"):
        show_table(["quantity", "value"], cells, numeric_columns=[1], aria_label="Other estimates")
        st.code(result["summary"], language=None)
        st.caption(f"Engine: {result['engine']}.")


def _show_verdicts(result: Mapping[str, Any]) -> None:
    verdicts = [own["verdict"] for own in result["residuals"].values()]
    # Warnings are shown above.
    sentences = [as_sentence(text) for text in verdicts if not any(text in warning for warning in result["warnings"])]
    if sentences:
        show_notice(sentences, "good" if result["residual_verdict"] == "independent" else "")
    own = result["certificate"]
    if "trouble" in own:
        show_notice(own["trouble"])
        return
    verdict = "Yes" if own["strict"] else "Not to rounding accuracy"
    text = (
        f"Do the curves satisfy the equations? {verdict}: the residuals of mean and samples are at most "
        f"{own['residual']:.1g} of the size of the terms (accuracy of this check: {own['uncertainty']:.1g})."
    )
    show_notice(text, "good" if own["strict"] else "warning")
    with st.expander("Certificate"):
        st.code(own["text"], language=None)


def _show_unconstrained_fit(controller: SessionController, name: str) -> None:
    """Show a fit to the same data without the equations, on request."""
    found = read_fit_result(controller, name, "free")
    if not found:
        label = "Compare with a fit without the equations"
        help_text = "Fits a Gaussian process to each channel separately and substitutes its curves into the equations."
        busy = controller.task is not None
        if st.button(label, key=f"free-{name}", icon=":material/help:", help=help_text, disabled=busy):
            start_subtask(controller, name, "free", seed=controller.session.choices["seed"])
            st.rerun()
        return
    if "trouble" in found:
        show_notice(as_sentence(f"without the equations: {found['trouble']}"))
        return
    text = (
        f"Without the equations, the curves of a Gaussian process on each channel have residuals of up to "
        f"{found['violation']:.2g} of the size of the terms; with the equations, {found['ours']:.1g}. Log evidence "
        f"without the equations: {found['log_evidence']:.3f}."
    )
    show_notice(text)


def _show_validation(validation: Mapping[str, Any], name: str) -> None:
    if "trouble" in validation:
        show_notice(validation["trouble"], "warning")
        return
    left, right = st.columns([6, 7], gap="large")
    with left:
        show_notice([as_sentence(text) for text in validation["verdict"]])
        lines = []
        for channel, own in validation["channels"].items():
            percent = own["fit_percent"]
            cell: Any = "–" if percent is None else (f"{percent:.1f} %", percent)
            percents = [each["fit_percent"] for each in own["ahead"].values()]
            steps = [f"{each:.1f} %" if each is not None else "–" for each in percents]
            lines.append([channel, cell, (format_percent(own["coverage"]), own["coverage"]), " / ".join(steps)])
        ahead = list(next(iter(validation["channels"].values()))["ahead"])
        head = ["channel", "fit of the free run", "in 95 % band", f"fit {', '.join(ahead)} rows ahead"]
        show_table(head, lines, numeric_columns=[1, 2, 3], aria_label="Validation")
        given = ", ".join(validation["given"]) or "the initial state only"
        st.caption(to_page_advice(f"Free run from {given}; {validation['start']}."))
    with right:
        source = validation.get("source", "")
        what = f"the measurements of {source}" if source else "the held-out measurements"
        words = f"Free run over {what}; fit {', '.join(_fit_percents(validation))}"
        show_figure(validation["figure"], words, f"validation-{name}-{source}")


def _validate_on_file(controller: SessionController, name: str) -> None:
    """Show how well a fit predicts another file, which the user uploads."""
    st.markdown("##### Validation on another file")
    found = read_fit_result(controller, name, "validate")
    if "channels" in found:
        st.markdown(f"Result for `{found['source']}`")
        _show_validation(found, name)
    _show_task(controller, "validate")
    label = "Upload a record that the fit did not use, with the same column names"
    options: dict[str, Any] = {"disabled": controller.task is not None}
    if (file := upload_file(controller, label, DATA_FILE_EXTENSIONS, f"validate-{name}", **options)) is not None:
        start_subtask(controller, name, "validate", file)
        st.rerun()


START_LABELS = {"steady": "the steady state of the first inputs", "rest": "everything is zero before the start"}
START_LABELS |= {"begin": "the state at the beginning of the record", "end": "the state at the end of the record"}


def _simulate_inputs(controller: SessionController, name: str, result: Mapping[str, Any]) -> None:
    """Show the response of a fit to other inputs, and a form for these."""
    st.markdown("##### Simulation with other inputs")
    if not result.get("inputs"):
        show_notice("Choose the role 'known input' for a column in step 2 and fit again to simulate with other inputs.")
        return
    found = read_fit_result(controller, name, "simulate")
    if "figure" in found:
        what = found["source"] or "steps"
        words = f"Response of {name} to {what}; start: {START_LABELS[found['start']]}."
        show_figure(found["figure"], words, f"simulation-{name}")
        st.caption(f"{words} Mean and 95 % band, without measurement noise.")
        options: dict[str, Any] = {"on_click": "ignore", "icon": ":material/download:", "key": f"get-simulation-{name}"}
        path = controller.folder / name / "simulate" / SIMULATION_FILE
        st.download_button("Simulation (CSV)", path.read_bytes, f"{name}-{SIMULATION_FILE}", "text/csv", **options)
    _show_task(controller, "simulate")
    with st.form(f"inputs-{name}"):
        _edit_simulation(controller, name, result)


def _edit_simulation(controller: SessionController, name: str, result: Mapping[str, Any]) -> None:
    """Show the form for a simulation, and start it if the user submits it; the defaults are those of the record."""
    first, last = result["window"]
    span, steps = float(f"{last - first:.3g}"), dict[str, tuple[float, float]]()

    def number(column: Any, label: str, quantity: str, value: float, **options: Any) -> float:
        unit = result["units"].get(quantity, "")
        options |= {"value": value, "format": "%.6g", "key": f"{label}-{name}"}
        return float(column.number_input(f"{label} ({unit})" if unit else label, **options))

    for channel, (low, high) in result["inputs"].items():
        left, right = st.columns(2)
        before = number(left, f"{channel} before the step", channel, low)
        steps[channel] = before, number(right, f"{channel} after the step", channel, low if steps else high)
    left, right = st.columns(2)
    at = number(left, "Time of the step after the start", "t", 0.1 * span, min_value=0.0)
    duration = number(right, "Duration", "t", span, min_value=1e-9 * span)
    start = st.selectbox("Initial state", list(START_LABELS), format_func=START_LABELS.__getitem__, key=f"state-{name}")
    label = "Instead of steps: a file with times and inputs, in columns named as in the record"
    file = st.file_uploader(label, type=DATA_FILE_EXTENSIONS, key=f"inputs-of-{name}")
    if st.form_submit_button("Simulate response", disabled=controller.task is not None):
        upload = None if file is None else (file.name, file.getvalue())
        request = {"steps": steps, "at": at, "duration": duration, "start": start}
        start_subtask(controller, name, "simulate", upload, **request)
        st.rerun()


def _fit_percents(validation: Mapping[str, Any]) -> list[str]:
    each = validation["channels"].items()
    return [f"{name}: {own['fit_percent']:.1f} %" for name, own in each if own["fit_percent"] is not None]


def render_comparison(controller: SessionController) -> None:
    """Show all fits in one table."""
    show_heading("Compare")
    results = ((name, read_fit_result(controller, name)) for name in controller.session.tray)
    tray = [(name, result) for name, result in results if result and "trouble" not in result]
    if not tray:
        show_notice("All fits are listed here. Change equations, windows or parameters, fit again, and compare.")
        return
    head = ["fit", "equations", "parameters", "fitted to", "log evidence", "validation", "residuals", "certificate"]
    # Evidences are comparable for the same file, window and number of measurements.
    is_comparable = len({(r["source"], tuple(r["window"]), r["observations"]) for _, r in tray}) == 1
    best = max(tray, key=lambda item: float(item[1]["log_evidence"]))[0] if is_comparable and len(tray) > 1 else ""
    other = {name: read_fit_result(controller, name, "validate") for name, _ in tray}
    lines = [_comparison_row(name, result, other[name], is_best=name == best) for name, result in tray]
    show_table(head, lines, numeric_columns=[4], aria_label="All fits of this session")
    if not is_comparable:
        st.caption("Log evidences can be compared only between fits to the same data and window.")
    _show_compared_curves(tray)
    left, right = st.columns([3, 7], vertical_alignment="bottom")
    chosen = left.selectbox("Fit to remove", [name for name, _ in tray], key=f"out-{len(tray)}")
    if right.button("Remove", key="forget", icon=":material/delete:") and chosen:
        controller.remove_fit(str(chosen))
        st.rerun()


def _show_compared_curves(tray: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Show the curves of all fits to the data of the last one in one figure.

    Fits that split the log differently are shown with all their records.
    """
    newest = tray[-1][1]
    record, source = next(iter(newest["figures"])), newest["source"]
    fits = {name: result["figures"] for name, result in tray if result["source"] == source}
    figures = {
        name: [item["Curves"] for own, item in records.items() if own == record or record not in records]
        for name, records in fits.items()
    }
    if len(figures) > 1:
        alt_text = f"Posterior means of {', '.join(figures)} over the measurements"
        show_figure(comparison_figure(figures), alt_text, f"compare-{len(tray)}")
        several = f", record {record}" if len(newest["figures"]) > 1 else ""
        st.caption(f"Posterior means of the fits to {source}{several}. Click a name in the legend to hide its curves.")


def _comparison_row(name: str, result: Mapping[str, Any], other: Mapping[str, Any], *, is_best: bool) -> list[Any]:
    parameters = []
    for parameter, value, error, _, _, note in parameter_rows(result):
        spread = f" ± {error[0]}" if isinstance(error, tuple) else ""
        parameters.append(f"{parameter} = {value[0]}{spread}{f' ({note})' if note else ''}")
    span = result.get("span") or "{:.4g} to {:.4g}".format(*result["window"])
    done = [found for found in (result["validation"] or {}, other) if "channels" in found]
    validated = "\n".join(line for found in done for line in (found.get("source", ""), *_fit_percents(found)) if line)
    validated = validated or ("not possible" if result["validation"] else "no held-out data")
    evidence = (f"{result['log_evidence']:.3f}{' ★' if is_best else ''}", result["log_evidence"])
    own = result["certificate"]
    verdict = "unknown" if "trouble" in own else f"{'' if own['strict'] else 'not '}strict, {own['residual']:.0e}"
    return [
        name if result["converged"] else f"{name} (poor fit)" if result["poor_fit"] else f"{name} (not converged)",
        "\n".join(result["equations"]),
        "\n".join(parameters) or "none",
        f"{result['source']}\n{span}\n{result['observations']} values",
        evidence,
        validated,
        result["residual_verdict"],
        verdict,
    ]


def render_downloads(controller: SessionController) -> None:
    """Show all downloads."""
    show_heading("Download")
    left, right = st.columns([5, 7], gap="large")
    with left:
        name = _offer_fit_files(controller) if controller.session.tray else ""
        if not name:
            show_notice("After a fit, you can download its report here, and all files: model, predictions and figures.")
        _offer_session(controller)
    with right:
        _show_scripts(controller, name)


def _offer_fit_files(controller: SessionController) -> str:
    """Offer the files of a fit, and return the name of the fit that the user chose."""
    tray = controller.session.tray
    name = str(st.selectbox("Fit to download", tray, index=len(tray) - 1, key=f"take-{len(tray)}-{tray[-1]}"))
    folder, found = controller.folder / name, read_fit_result(controller, name, "files")
    _show_task(controller, "files")
    if not found:
        busy = controller.task is not None
        if st.button("Create report and files", key="files", icon=":material/description:", disabled=busy):
            start_export(controller, name, figures=find_spec("matplotlib") is not None)
            st.rerun()
        return name
    if "trouble" in found:
        show_notice(found["trouble"], "warning")
        return name
    options: dict[str, Any] = {"on_click": "ignore", "icon": ":material/download:"}
    report, pack = folder / "files" / "report.html", partial(session_files.pack_fit, folder, found["files"])
    st.download_button("Report", report.read_bytes, f"{name}.html", "text/html", key=f"get-report-{name}", **options)
    st.download_button("All files (zip)", pack, f"{name}.zip", "application/zip", key=f"get-all-{name}", **options)
    contents = "The zip file contains the script, the system file, the data, the model and the results."
    st.caption(" ".join([contents, *found["remarks"]]))
    return name


def _offer_session(controller: SessionController) -> None:
    st.markdown("**The whole session** in one file: all entries, the data, and every fit")
    own, folder = controller.session, controller.folder
    if obstacle := controller.save_error:
        show_notice(obstacle, "warning")
    else:
        options: dict[str, Any] = {"key": "get-session", "icon": ":material/save:", "on_click": "ignore"}
        pack = partial(session_files.pack_session, own, folder)
        st.download_button("Save session", pack, f"session{session_files.SESSION_SUFFIX}", **options)
    label = f"Reopen a session, up to {session_files.MAX_UPLOAD_BYTES >> 20} MB"
    if (file := upload_file(controller, label, [session_files.SESSION_SUFFIX.lstrip(".")], "open")) is not None:
        controller.errors.pop("session", None)
        try:
            controller.reopen(file[1])
        except LodekitError as problem:
            controller.errors["session"] = controller.error_message(problem)
        st.rerun()
    if trouble := controller.errors.get("session"):
        show_notice(trouble, "warning")


def _show_scripts(controller: SessionController, fit: str) -> None:
    """Show commands and code for a fit, or for the current settings if there is none yet."""
    folder = controller.folder / fit
    if fit:
        own, text = read_fit_session(folder), (folder / SYSTEM_FILE).read_text(encoding="utf-8")
    elif not controller.parsed.equations or not controller.is_measured:
        show_notice("Once there are equations and data, equivalent shell commands and Python code appear here.")
        return
    else:
        own, text = controller.resolved_session(), controller.system_file()
    of_fit = f" for {fit}" if fit else ""
    st.markdown(f"**Equivalent shell commands**{of_fit}, in a folder with the system file and the data file")
    st.code(session_files.generate_shell(own, folder), language="bash", wrap_lines=True)
    st.markdown("**Equivalent Python code**")
    st.code(session_files.generate_script(own, folder), language="python", wrap_lines=True)
    with st.expander(f"System file {SYSTEM_FILE}"):
        st.code(text, language="toml", wrap_lines=True)
