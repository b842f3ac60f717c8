"""The third step: what is known of each parameter, and a curve that follows its slider."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import streamlit as st

from lodekit.errors import LodekitError
from lodekit.studio.desk import Desk
from lodekit.studio.editor import Slider, draw_html, slide
from lodekit.studio.fits import try_fit
from lodekit.studio.frame import heading, notice
from lodekit.studio.session import Entry

__all__ = ["show_parameters"]


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
    _move(desk, tuple(system.parameters))
    if system.parameters:
        _tell(desk, tuple(system.parameters))


@st.fragment
def _move(desk: Desk, names: tuple[str, ...]) -> None:
    """Show sliders beside the curve; nothing else, so that it follows at once."""
    sliders, curve = st.columns([5, 7], gap="large") if names else (st.container(), st.container())
    rested = False
    with sliders:
        if names:
            rested = _show_sliders(desk, names)
            _offer_fit(desk)
    with curve:
        _show_curve(desk)
    if rested:
        # The rest of the page follows when a slider has come to rest.
        st.rerun()


def _show_sliders(desk: Desk, names: tuple[str, ...]) -> bool:
    """Show the sliders, and return whether one has just come to rest."""
    revision, sliders = desk.session.revision, []
    dimensions = desk.analysis.dimensions if desk.analysis else {}
    centres: dict[str, float] = desk.room.keep("centres", (revision, names), desk.values)
    for name in names:
        entry, dimension = desk.session.entry(name), dimensions.get(name, "")
        low, high = slider_ends(entry, centres[name])
        label = f"{name} in {dimension}" if dimension not in ("", "1", "cannot be told") else name
        # A value that was typed may lie outside.
        sliders.append(Slider(name, label, min(low, entry.value), max(high, entry.value), entry.value))
    values, rest = slide(sliders, key=f"s-{revision}-{'-'.join(names)}")
    before = st.session_state.get(f"seen-{revision}", (values, rest))
    st.session_state[f"seen-{revision}"] = (values, rest)
    for own in sliders:
        value = values.get(own.name, own.value)
        if value not in (before[0].get(own.name, value), own.value):
            desk.room.session = desk.session.with_entry(replace(desk.session.entry(own.name), value=value))
    return bool(rest != before[1])


@st.fragment
def _tell(desk: Desk, names: tuple[str, ...]) -> None:
    """Show what is known of each parameter, one a line."""
    changed = False
    for name in names:
        changed |= _show_entry(desk, name)
    st.caption("Value; known and not learned, or only positive; bounds; a prior, normal or lognormal.")
    if changed:
        st.rerun()


def _show_entry(desk: Desk, name: str) -> bool:
    """Show what is known of one parameter, and return whether it was changed."""
    own, revision = desk.session.entry(name), desk.session.revision
    head, typed, fixed, sign, bounds, prior = st.columns([1, 3, 2, 2, 3, 4], vertical_alignment="center")
    head.markdown(f"`{name}`")
    text: dict[str, Any] = {"label_visibility": "collapsed"}
    key = f"v-{revision}-{name}-{own.value}"
    short = {**text, "max_chars": 60}
    new = replace(
        own,
        value=float(typed.number_input(f"Value of {name}", value=own.value, format="%.6g", key=key, **text)),
        is_fixed=fixed.checkbox("fixed", own.is_fixed, key=f"f-{revision}-{name}"),
        is_positive=sign.checkbox("\\> 0", own.is_positive, key=f"p-{revision}-{name}"),
        bounds=bounds.text_input(
            f"Bounds of {name}", own.bounds, placeholder="bounds, 0.1 to 10", key=f"b-{revision}-{name}", **short
        ),
        prior=prior.text_input(
            f"Prior of {name}", own.prior, placeholder="prior, normal(5, 1)", key=f"q-{revision}-{name}", **short
        ),
    )
    if new != own:
        desk.room.session = desk.session.with_entry(new)
    try:
        new.parameter()
    except LodekitError as problem:
        notice(desk.say(problem), "warning")
    return new != own


def slider_ends(entry: Entry, centre: float) -> tuple[float, float]:
    """Return from where to where a slider goes: its bounds, or three times a value to either side of it.

    What is positive goes from a tenth of the value to three times as much.

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
        try_fit(desk, starts=True)
        st.rerun()


def _show_curve(desk: Desk) -> None:
    if not desk.session.file:
        notice("With data, the curve at these values is drawn here, and follows the sliders.")
        return
    try:
        picture = desk.picture()
    except LodekitError as problem:
        notice(desk.say(problem), "warning")
        return
    text = f"<p>Posterior mean at these values; log evidence <b>{picture.log_evidence:.3f}</b></p>"
    draw_html(f'<div class="lk-plot">{text}{picture.svg}</div>', "curve")
