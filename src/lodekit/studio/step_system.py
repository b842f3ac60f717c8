"""The steps for equations and their analysis, and for parameters with sliders and their curve."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from typing import Any

import streamlit as st

from lodekit.errors import LodekitError
from lodekit.studio.components import (
    edit_value,
    equation_editor,
    parameter_sliders,
    render_html,
    show_figure,
    show_heading,
    show_notice,
    show_table,
    store_edit,
)
from lodekit.studio.controller import OUTDATED_MESSAGE, SessionController, start_fit
from lodekit.studio.figures import describe_poles, pole_figure
from lodekit.studio.session import ParameterEntry, ParsedEquations
from lodekit.support.text import as_sentence, format_count

OWN_EQUATIONS = "your own equations"
EMPTY_MESSAGE = """Type equations, or choose an example. For example, x' = -a*x + u describes a heated room; x is its \
temperature above outdoors. If you are new here, load the example with data, and press 'Fit' in step 4."""


@st.fragment
def render_system(controller: SessionController) -> None:
    """Show the editor, and the analysis of the equations in it."""
    show_heading("System")
    left, right = st.columns([5, 6], gap="large")
    with left:
        _choose_example(controller)
        rested = _edit_equations(controller)
    with right:
        parsed = controller.parsed
        if parsed.is_empty:
            _offer_example(controller)
        elif not parsed.equations:
            show_notice(parsed.error, "warning")
        else:
            _show_analysis(parsed)
    if parsed.equations:
        _show_algebra(controller, parsed)
    if rested and st.session_state.get("drawn system") != (controller.system, parsed.equations):
        # The steps below still show other equations; they are updated when the user stops typing.
        st.rerun()


def _offer_example(controller: SessionController) -> None:
    """Tell a new user how to begin."""
    show_notice(EMPTY_MESSAGE)
    label = "Load an example with data"
    if not controller.session.file and st.button(label, key="try", icon=":material/science:", type="primary"):
        controller.set_example("heating")
        st.rerun()


def _choose_example(controller: SessionController) -> None:
    ready = controller.catalog
    names = [OWN_EQUATIONS, *ready]
    now = controller.session.example if controller.example is not None else OWN_EQUATIONS
    labels = {name: f"{name.replace('_', ' ')}: {item['story']}" for name, item in ready.items()}
    options = {"options": names, "format_func": lambda name: labels.get(name, name)}
    # Each value that the user did not choose is a new box, so that a late answer of the browser is not a new choice.
    edition, before = st.session_state.get("example before", (0, now))
    edition += before != now
    st.session_state["example before"] = edition, now
    chosen = edit_value(st.selectbox, "Start with an example", now, f"example-{edition}", **options)
    if chosen not in (now, OWN_EQUATIONS):
        controller.set_example(chosen)
        st.rerun()


def _edit_equations(controller: SessionController) -> bool:
    """Show the editor, and return whether the user has just stopped typing."""
    own = controller.session
    text, rest = equation_editor(own.equations, key="equations")
    label = "Additional parameters (constants such as offsets)"
    about = "Unknown constants, separated by commas, besides those that multiply a channel."
    declared = edit_value(st.text_input, label, own.declared, "declared", max_chars=2000, help=about)
    if (text, declared) != (own.equations, own.declared):
        store_edit(controller, controller.session.with_equations(text, declared))
    before = st.session_state.get("typed", rest)
    st.session_state["typed"] = rest
    return bool(rest != before or declared != own.declared)


def _show_analysis(parsed: ParsedEquations) -> None:
    numbered = "".join(
        f'<div><span class="number">{number}</span>{text}</div>' for number, text in enumerate(parsed.mathml, 1)
    )
    typeset = f'<div class="lk-equations" role="group" aria-label="The equations, typeset">{numbered}</div>'
    word = "controllable" if parsed.is_controllable else "not controllable"
    kind = "" if parsed.is_controllable else "warning"
    free = parsed.free_functions
    freedom = format_count(free, "free function") if free else "no free functions"
    badge = f'<span class="lk-badge {kind}">{word}</span>' if free else ""
    listed = "".join(f"<li>{escape(text)}</li>" for text in (*parsed.sentences, *parsed.notes))
    words = f'<div class="lk-note" role="status"><ul>{listed}</ul></div>'
    render_html(f'{typeset}<p>{badge}<span class="lk-badge plain">{freedom}</span></p>{words}', "analysis")
    if inferred := ", ".join(parsed.inferred_parameters):
        st.caption(f"Recognised as parameters: {inferred}. Channels: {', '.join(parsed.channels)}.")


def _show_algebra(controller: SessionController, parsed: ParsedEquations) -> None:
    """Show exponents, dimensions, inputs, and the proof."""
    left, right = st.columns([3, 8], gap="large")
    with left:
        _show_poles(controller, parsed)
    with right:
        if parsed.dimensions:
            listed = [[name, text] for name, text in parsed.dimensions.items()]
            show_table(["parameter", "dimension implied by the equations"], listed, aria_label="Dimensions")
        if parsed.inputs:
            shown = "; ".join(", ".join(names) for names in parsed.inputs[:12])
            more = f"; and {len(parsed.inputs) - 12} more" if len(parsed.inputs) > 12 else ""
            st.markdown(f"**Possible inputs** (channels that can be chosen freely): {shown}{more}.")
        if st.toggle("Smith form and proof", key="proof"):
            text, proved, error = controller.proof()
            st.code(text, language=None, wrap_lines=False)
            if error:
                show_notice(error, "warning")
            else:
                show_notice([f"Proved: {line}" for line in proved], "good")


def _show_poles(controller: SessionController, parsed: ParsedEquations) -> None:
    known = tuple(item.assignment.channel for item in controller.matches_or_empty if item.assignment.kind)
    known = known or (parsed.inputs[-1] if parsed.inputs else ())
    values = controller.values()
    try:
        poles, fixed = controller.poles_and_modes(known)
    except LodekitError as problem:
        show_notice(as_sentence(f"the poles cannot be determined: {controller.error_message(problem)}"))
        return
    if not poles and not fixed:
        return
    at = ", ".join(f"{name} = {value:.4g}" for name, value in values.items())
    what = [f"× poles (inputs: {', '.join(known)})"] if poles else []
    what += ["● uncontrollable modes"] if fixed and parsed.free_functions else []
    caption = "; ".join(what or ["● modes"]) + (f"; at {at}" if at else "")
    show_figure(pole_figure(poles, fixed), describe_poles(poles, fixed), "plane")
    st.caption(caption)


def render_parameters(controller: SessionController) -> None:
    """Show the constraints and priors of the parameters, and the curve at the slider values."""
    show_heading("Parameters")
    system = controller.system
    if system is None:
        show_notice("Parameters appear here once there are equations.")
        return
    if not system.parameters:
        show_notice("These equations have no parameters to estimate.")
    _show_sliders_and_curve(controller, tuple(system.parameters))
    if system.parameters:
        _edit_parameters(controller, tuple(system.parameters))


@st.fragment
def _show_sliders_and_curve(controller: SessionController, names: tuple[str, ...]) -> None:
    """Show only the sliders and the curve, so that the curve is updated immediately."""
    sliders, curve = st.columns([5, 7], gap="large") if names else (st.container(), st.container())
    rested = False
    with sliders:
        if names:
            rested = _show_sliders(controller, names)
            _offer_fit(controller)
    with curve:
        _show_curve(controller)
    if rested:
        # The rest of the page is updated when a slider has stopped.
        st.rerun()


def _show_sliders(controller: SessionController, names: tuple[str, ...]) -> bool:
    """Show the sliders, and return whether one has just stopped."""
    revision, sliders = controller.session.revision, []
    units = controller.parameter_units
    centres: dict[str, float] = controller.get_or_compute("centres", (revision, names), controller.values)
    for name in names:
        entry = controller.session.entry(name)
        low, high = slider_range(entry, centres[name])
        label = f"{name} in {units[name]}" if name in units else name
        # A typed value may be outside the range.
        limits = {"low": min(low, entry.value), "high": max(high, entry.value), "value": entry.value}
        sliders.append({"name": name, "label": label, **limits})
    values, rest = parameter_sliders(sliders, key=f"s-{'-'.join(names)}")
    before = st.session_state.get(f"seen-{names}", (values, rest))
    st.session_state[f"seen-{names}"] = (values, rest)
    for name in names:
        entry = controller.session.entry(name)
        value = values.get(name, entry.value)
        if value not in (before[0].get(name, value), entry.value):
            store_edit(controller, controller.session.with_entry(replace(entry, value=value)))
    return bool(rest != before[1])


@st.fragment
def _edit_parameters(controller: SessionController, names: tuple[str, ...]) -> None:
    """Show the options of each parameter, one per line."""
    changed = False
    for name in names:
        changed |= _edit_parameter(controller, name)
    st.caption("Options of each parameter: value, fixed (known), positive, bounds, and a normal or lognormal prior.")
    if changed:
        st.rerun()


def _edit_parameter(controller: SessionController, name: str) -> bool:
    """Show the options of one parameter, and return whether they were changed."""
    own = controller.session.entry(name)
    head, typed, fixed, sign, bounds, prior = st.columns([1, 3, 2, 2, 3, 4], vertical_alignment="center")
    head.markdown(f"`{name}`")
    hidden: dict[str, Any] = {"label_visibility": "collapsed"}
    short, low = {**hidden, "max_chars": 60}, {"placeholder": "bounds, 0.1 to 10"}
    shape = {"placeholder": "prior, normal(5, 1)"}
    new = replace(
        own,
        value=edit_value(typed.number_input, f"Value of {name}", own.value, f"v-{name}", format="%.6g", **hidden),
        is_fixed=edit_value(fixed.checkbox, "fixed", own.is_fixed, f"f-{name}"),
        is_positive=edit_value(sign.checkbox, "\\> 0", own.is_positive, f"p-{name}"),
        bounds=edit_value(bounds.text_input, f"Bounds of {name}", own.bounds, f"b-{name}", **short, **low),
        prior=edit_value(prior.text_input, f"Prior of {name}", own.prior, f"q-{name}", **short, **shape),
    )
    if new != own:
        controller.session = controller.session.with_entry(new)
    try:
        # A value must be inside the bounds.
        new.parameter(starts=True)
    except LodekitError as problem:
        show_notice(controller.error_message(problem), "warning")
    return new != own


def slider_range(entry: ParameterEntry, centre: float) -> tuple[float, float]:
    """Return the range of a slider: the bounds, or three times the value to either side of it.

    A positive parameter ranges from a tenth of the value to three times the value.
    """
    size = abs(centre) or 1.0
    low, high = (0.1 * size, 3.0 * size) if entry.is_positive else (centre - 3.0 * size, centre + 3.0 * size)
    try:
        bounds = entry.parameter().bounds
    except LodekitError:
        bounds = None
    if bounds is not None:
        pairs = zip(bounds, (low, high), strict=True)
        low, high = (edge if edge is not None and math.isfinite(edge) else own for edge, own in pairs)
    return (low, high) if low < high else (low, low + size)


def _offer_fit(controller: SessionController) -> None:
    about = OUTDATED_MESSAGE if controller.is_outdated else "Start the search at the values of the sliders."
    options: dict[str, Any] = {"icon": ":material/play_arrow:", "disabled": not controller.is_ready, "help": about}
    if st.button("Fit from here", key="fit-from-here", **options):
        start_fit(controller, starts=True)
        st.rerun()


def _show_curve(controller: SessionController) -> None:
    if not controller.is_measured:
        show_notice("The curve at the values of the sliders appears here once a channel has a column in step 2.")
        return
    try:
        figure, words, log_evidence = controller.curve_figure()
    except LodekitError as problem:
        show_notice(controller.error_message(problem), "warning")
        return
    evidence = f"log evidence **{log_evidence:.3f}**, with guesses of the noise levels"
    st.markdown(f"Curve at these parameter values; {evidence}.")
    show_figure(figure, words, "curve")
