"""The third step: what is known of each parameter, and a curve that follows its slider."""

from __future__ import annotations

import math
from dataclasses import replace

import streamlit as st

from lodekit.errors import LodekitError
from lodekit.studio.desk import Desk
from lodekit.studio.drawing import draw_mean
from lodekit.studio.frame import heading, notice, show
from lodekit.studio.session import Entry

__all__ = ["show_parameters"]


@st.fragment
def show_parameters(desk: Desk) -> None:
    """Show what is known of the parameters, and the curve at the values of their sliders.

    Parameters
    ----------
    desk : Desk
    """
    heading("Parameters")
    system = desk.system
    if system is None:
        notice("Parameters appear here as soon as there are equations.")
        return
    if not system.parameters:
        notice("These equations have no parameters: nothing of them is to be learned.")
    table, curve = st.columns([6, 7], gap="large") if system.parameters else (st.container(), st.container())
    with table:
        for name in system.parameters:
            _show_entry(desk, name)
        if system.parameters:
            st.caption("Below each slider: whether it is fixed, or positive; bounds; a prior, normal or lognormal.")
            _offer_fit(desk)
    with curve:
        _show_curve(desk)


def _show_entry(desk: Desk, name: str) -> None:
    """Show one parameter: its slider, and in a row below what is known of it."""
    own, revision = desk.session.entry(name), desk.session.revision
    low, high = slider_ends(own, desk.room.keep(f"centre {name}", revision, lambda: own.value))
    dimension = desk.analysis.dimensions.get(name, "") if desk.analysis else ""
    shown = f"{name} in {dimension}" if dimension and dimension not in ("1", "cannot be told") else name
    slide, typed = st.columns([7, 3], vertical_alignment="bottom")
    start = min(max(own.value, low), high)
    step = (high - low) / 400
    value = slide.slider(shown, low, high, start, step=step, format="%.4g", key=f"s-{revision}-{name}")
    key, hidden = f"v-{revision}-{name}-{own.value}", "collapsed"
    exact = typed.number_input(f"Value of {name}", value=own.value, format="%.6g", key=key, label_visibility=hidden)
    fixed, sign, bounds, prior = st.columns([2, 2, 3, 4], vertical_alignment="center")
    text = {"max_chars": 60, "label_visibility": hidden}
    new = replace(
        own,
        is_fixed=fixed.checkbox("fixed", own.is_fixed, key=f"f-{revision}-{name}"),
        is_positive=sign.checkbox("\\> 0", own.is_positive, key=f"p-{revision}-{name}"),
        bounds=bounds.text_input(
            f"Bounds of {name}", own.bounds, placeholder="0.1 to 10", key=f"b-{revision}-{name}", **text
        ),
        prior=prior.text_input(
            f"Prior of {name}", own.prior, placeholder="normal(5, 1)", key=f"q-{revision}-{name}", **text
        ),
    )
    before = st.session_state.get(f"seen-{revision}-{name}", start)
    if value != before:
        new = replace(new, value=value)
    elif exact != own.value:
        new = replace(new, value=exact)
    st.session_state[f"seen-{revision}-{name}"] = value
    if new != own:
        desk.room.session = desk.session.with_entry(new)
    try:
        new.parameter()
    except LodekitError as problem:
        notice(desk.say(problem), "warning")


def slider_ends(entry: Entry, centre: float) -> tuple[float, float]:
    """Return from where to where a slider goes: its bounds, or five times either way around a value.

    Parameters
    ----------
    entry : Entry
    centre : float
        Where the slider stood at first.

    Examples
    --------
    >>> slider_ends(Entry("k", is_positive=True), 2.0), slider_ends(Entry("k", bounds="1 to 3"), 2.0)
    ((0.2, 6.0), (1.0, 3.0))
    """
    size = abs(centre) or 1.0
    low, high = (0.1 * size, 3.0 * size) if entry.is_positive else (centre - 3.0 * size, centre + 3.0 * size)
    try:
        bounds = entry.parameter().bounds
    except LodekitError:
        bounds = None
    if bounds is not None:
        low, high = (edge if math.isfinite(edge) else own for edge, own in zip(bounds, (low, high), strict=True))
    return (low, high) if low < high else (low, low + size)


def _offer_fit(desk: Desk) -> None:
    go = st.button(
        "Fit from here",
        key="fit-from-here",
        icon=":material/play_arrow:",
        disabled=desk.room.job is not None or desk.session.file == "",
        help="Begin the search for the best values where the sliders stand.",
    )
    if go:
        desk.try_fit(starts=True)
        st.rerun()


def _show_curve(desk: Desk) -> None:
    if not desk.session.file:
        notice("With data, the curve at these values is drawn here, and follows the sliders.")
        return
    system = desk.system
    try:
        warm = desk.warm()
        names = list(system.parameters) if system else []
        curve = warm.curve(desk.session.values(names))
    except LodekitError as problem:
        notice(desk.say(problem), "warning")
        return
    known = list(warm.setup.measurements.inputs)
    figure = draw_mean(curve.names, curve.times, curve.mean, warm.points, units=warm.units, known=known)
    values = ", ".join(f"{name} = {value:.6g}" for name, value in desk.session.values(names).items())
    st.markdown(f"Posterior mean at these values; log evidence **{curve.log_evidence:.3f}**")
    words = f"Posterior mean of {', '.join(curve.names)} over the measurements, at {values or 'no parameters'}; "
    show(figure, f"{words}log evidence {curve.log_evidence:.3f}", "curve")
