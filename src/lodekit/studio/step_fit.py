"""The fourth step: fits in a process of their own, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

import streamlit as st

from lodekit.rounding import digits
from lodekit.studio.desk import Desk
from lodekit.studio.fits import begin_free, collect, read_fit, try_fit
from lodekit.studio.frame import heading, notice, show, show_table
from lodekit.studio.session import LATENTS, NOISES, PRIORS
from lodekit.wording import sentence, show_share

__all__ = ["list_parameters", "show_fit"]

_TASKS = {"fit": "Fitting", "free": "Fitting without the equations", "deliver": "Writing report and predictions"}


def show_fit(desk: Desk) -> None:
    """Show how to fit, how far a fit has come, and what came of it.

    Parameters
    ----------
    desk : Desk
    """
    heading("Fit")
    own = desk.session
    go, how = st.columns([2, 7], vertical_alignment="center")
    ready = desk.system is not None and own.file != "" and desk.room.job is None
    if go.button("Fit", type="primary", icon=":material/play_arrow:", key="fit", disabled=not ready, width="stretch"):
        try_fit(desk)
        st.rerun()
    with how, st.popover("How it is fitted", icon=":material/tune:"):
        _choose(desk)
    if desk.room.job is not None:
        _watch(desk)
    for task in ("fit", "free", "deliver"):
        if trouble := desk.room.trouble.get(task):
            notice(trouble, "" if trouble == "Cancelled." else "warning")
    if not own.tray:
        if desk.room.job is None:
            notice("Parameters with intervals, bands, residual verdict and certificate appear here after a fit.")
        return
    name = own.tray[-1]
    if len(own.tray) > 1:
        name = st.segmented_control("Show", own.tray, default=own.tray[-1], key=f"shown-{own.tray[-1]}") or name
    show_result(desk, name)


def _choose(desk: Desk) -> None:
    own = desk.session.choices
    revision = desk.session.revision
    noise = st.radio(
        "Noise",
        NOISES,
        index=NOISES.index(own.noise),
        key=f"noise-{revision}",
        format_func={"channel": "a level for each channel", "shared": "one level for all"}.__getitem__,
        horizontal=True,
    )
    prior = st.radio(
        "Smooth are",
        PRIORS,
        index=PRIORS.index(own.prior),
        key=f"prior-{revision}",
        format_func={"latent": "the free functions", "channels": "the channels"}.__getitem__,
        horizontal=True,
    )
    latent = st.selectbox("Covariance", LATENTS, index=LATENTS.index(own.latent), key=f"latent-{revision}")
    seed = st.number_input("Seed of the starts", 0, 10**6, own.seed, key=f"seed-{revision}")
    given, possible = desk.given, desk.possible_given
    if given and desk.session.held_out is not None:
        chosen = st.selectbox(
            "Known over the held-out part",
            possible,
            index=possible.index(given),
            key=f"given-{revision}",
            format_func=", ".join,
            help="The free run predicts all other channels from these.",
        )
        if tuple(chosen) != given:
            desk.change(given=tuple(chosen))
    new = replace(own, noise=str(noise), prior=str(prior), latent=str(latent), seed=int(seed))
    if new != own:
        desk.change(choices=new)


@st.fragment(run_every=0.4)
def _watch(desk: Desk) -> None:
    """Show how far a task has come, with a button that ends it."""
    job = desk.room.job
    if job is None or collect(desk):
        st.rerun()
        return
    now = job.progress()
    bar, end = st.columns([8, 2], vertical_alignment="center")
    text = f"{_TASKS[job.task]}: {now.words} ({now.seconds:.0f} s)"
    bar.progress(now.share, text=text)
    if end.button("Cancel", key="cancel", icon=":material/stop:", width="stretch"):
        job.cancel()
        collect(desk)
        st.rerun()


def list_parameters(found: Mapping[str, Any]) -> list[list[Any]]:
    """Return the parameters of a fit as lines of a table, with as many digits as their errors leave.

    Parameters
    ----------
    found : dict
        What came of a fit.
    """
    lines = []
    for name, own in found["parameters"].items():
        value, error, (low, high) = own["value"], own["std_error"], own["interval"]
        learned = own["identified"] and own["note"] != "fixed" and None not in (error, low, high)
        count = digits(value, error if error is not None else 0.0, 5)
        cells: list[Any] = [name, (f"{value:.{count}g}", value)]
        cells += [(f"{error:.3g}", error)] if learned else ["–"]
        cells += [(f"{low:.{count}g} to {high:.{count}g}", (low, high))] if learned else ["–"]
        lines.append([*cells, found["units"].get(name, ""), own["note"]])
    return lines


def show_result(desk: Desk, name: str) -> None:
    """Show all that came of a fit.

    Parameters
    ----------
    desk : Desk
    name : str
        Of the fit.
    """
    found = read_fit(desk, name)
    if not found or "trouble" in found:
        notice(found.get("trouble", "Nothing is left of this fit."), "warning")
        return
    _badges(name, found)
    if found["warnings"]:
        notice(found["warnings"], "warning")
    left, right = st.columns([6, 7], gap="large")
    with left:
        _show_numbers(desk, found)
        _show_verdicts(found)
        _show_free(desk, name)
    with right:
        lines = list_parameters(found)
        words = f"Mean, 95 % band, samples and measurements of {', '.join(found['channels'])}, {name}. "
        words += "; ".join(f"{line[0]} = {line[1][0]}" for line in lines)
        record = _choose_record(list(found["figures"]), name)
        show(found["figures"][record], words, f"channels-{name}-{record}")
        st.caption("The mean of all curves that fit, the band in which 95 % of them lie, and samples; without noise.")
    if found["validation"] is not None:
        _show_validation(found["validation"], name)


def _choose_record(records: list[str], name: str) -> str:
    """Return which of several records is shown, chosen by its name."""
    if len(records) < 2:
        return records[0]
    return str(st.selectbox("Record", records, key=f"record-of-{name}"))


def _badges(name: str, found: Mapping[str, Any]) -> None:
    strict = found["certificate"].get("strict")
    marks = [
        ("plain", name),
        ("" if found["converged"] else "warning", "converged" if found["converged"] else "failed"),
    ]
    good = found["independent"]
    marks.append(("" if good else "warning", "residuals independent" if good else "residuals correlated"))
    if strict is not None:
        marks.append(("" if strict else "warning", "strict" if strict else "not strict"))
    marks.append(("plain", f"{found['seconds']:.1f} s"))
    st.html("".join(f'<span class="lk-badge {kind}">{escape(text)}</span>' for kind, text in marks))


def _show_numbers(desk: Desk, found: Mapping[str, Any]) -> None:
    own = desk.session
    is_origin = own.is_simulated and found["source"] == own.file and "\n".join(found["equations"]) == own.truth_of
    truth = own.truth if is_origin else {}
    lines = list_parameters(found)
    if lines:
        head = ["parameter", "estimate", "std error", "95 % interval", "unit", "note"]
        if truth:
            head.append("truth")
            lines = [[*line, f"{truth[line[0]]:.6g}" if line[0] in truth else ""] for line in lines]
        used = [number for number in range(len(head)) if any(line[number] for line in lines)]
        numbers = [place for place, number in enumerate(used) if number in (1, 2, 3, 6)]
        cut = [[line[number] for number in used] for line in lines]
        show_table([head[number] for number in used], cut, numbers=numbers, words="Parameters of the fit")
    others = {**found["shown"], **{f"noise ({name})": value for name, value in found["noise"].items()}}
    others["log evidence"] = found["log_evidence"]
    with st.expander("Noise, lengthscales, evidence, and the summary as text"):
        forms = {"log evidence": ".3f"}
        cells = [
            [
                name,
                value if isinstance(value, str) else (format(value, forms.get(name, ".5g")), value),
            ]
            for name, value in others.items()
        ]
        show_table(["quantity", "value"], cells, numbers=[1], words="What else was learned")
        st.code(found["summary"], language=None)
        st.caption(f"Engine: {found['engine']}.")


def _show_verdicts(found: Mapping[str, Any]) -> None:
    sentences = [sentence(own["verdict"]) for own in found["residuals"].values()]
    if sentences:
        notice(sentences, "good" if found["independent"] else "warning")
    own = found["certificate"]
    if "trouble" in own:
        notice(own["trouble"], "warning")
        return
    verdict = "Yes" if own["strict"] else "Not to rounding"
    text = (
        f"Do the curves satisfy the equations? {verdict}: the mean and samples leave over at most "
        f"{own['residual']:.1g} of the size of the terms; measuring it can be wrong by {own['uncertainty']:.1g}."
    )
    notice(text, "good" if own["strict"] else "warning")
    with st.expander("What was proved"):
        st.code(own["text"], language=None)


def _show_free(desk: Desk, name: str) -> None:
    """Show what a process without the equations makes of the same data, on request."""
    found = read_fit(desk, name, "free")
    if not found:
        label = "What if the equations were not known?"
        help_text = "Fits an unconstrained Gaussian process to each channel, and puts its curves into the equations."
        busy = desk.room.job is not None
        if st.button(label, key=f"free-{name}", icon=":material/help:", help=help_text, disabled=busy):
            begin_free(desk, name)
            st.rerun()
        return
    if "trouble" in found:
        notice(sentence(f"without the equations: {found['trouble']}"))
        return
    text = (
        f"Without the equations, a Gaussian process on each channel leaves over up to {found['violation']:.2g} of the "
        f"size of the terms of an equation; with them it is {found['ours']:.1g}. Log evidence without: "
        f"{found['log_evidence']:.3f}."
    )
    notice(text)


def _show_validation(found: Mapping[str, Any], name: str) -> None:
    st.markdown("##### Validation on what was held out")
    if "trouble" in found:
        notice(found["trouble"], "warning")
        return
    left, right = st.columns([6, 7], gap="large")
    with left:
        notice([sentence(text) for text in found["verdict"]])
        lines = []
        for channel, own in found["channels"].items():
            percent = own["fit_percent"]
            cell: Any = "–" if percent is None else (f"{percent:.1f} %", percent)
            percents = [each["fit_percent"] for each in own["ahead"].values()]
            steps = [f"{each:.1f} %" if each is not None else "–" for each in percents]
            lines.append([channel, cell, (show_share(own["coverage"]), own["coverage"]), " / ".join(steps)])
        ahead = list(next(iter(found["channels"].values()))["ahead"])
        head = ["channel", "free run, fit", "in 95 % band", f"ahead by {', '.join(ahead)} lines"]
        show_table(head, lines, numbers=[1, 2], words="Validation")
        st.caption(f"Free run from {', '.join(found['given']) or 'the initial state alone'}; {found['start']}.")
    with right:
        percents = [
            f"{c}: {o['fit_percent']:.1f} %" for c, o in found["channels"].items() if o["fit_percent"] is not None
        ]
        show(
            found["figure"], f"Free run over the held-out measurements; fit {', '.join(percents)}", f"validation-{name}"
        )
