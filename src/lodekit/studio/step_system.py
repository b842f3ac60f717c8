"""The first step: equations, and what they imply."""

from __future__ import annotations

from html import escape

import streamlit as st

from lodekit.errors import LodekitError
from lodekit.studio.desk import Desk
from lodekit.studio.drawing import describe_exponents, draw_exponents
from lodekit.studio.editor import draw_html, edit_equations
from lodekit.studio.frame import heading, notice, show_table
from lodekit.studio.values import Outline
from lodekit.studio.words import Analysis
from lodekit.wording import count, sentence

__all__ = ["show_system"]

_OWN = "your own"


@st.fragment
def show_system(desk: Desk) -> None:
    """Show the editor, and what the equations in it imply.

    Parameters
    ----------
    desk : Desk
    """
    heading("System")
    left, right = st.columns([5, 6], gap="large")
    with left:
        _choose_example(desk)
        rested = _edit(desk)
    with right:
        reading, analysis = desk.reading, desk.analysis
        if reading.is_empty:
            notice("Type equations, or take an example: x' = -a*x + u, say, is a room that cools and is heated.")
        elif analysis is None or reading.outline is None:
            notice(reading.trouble, "warning")
        else:
            _explain(reading.outline, analysis, reading.taken)
    if analysis is not None:
        _go_deeper(desk, analysis)
    if rested and desk.room.last("shown") != desk.signature:
        # The steps below are about other equations now; they follow when nobody types any more.
        st.rerun()


def _choose_example(desk: Desk) -> None:
    ready = desk.samples
    names = [_OWN, *ready]
    now = desk.session.example if desk.example is not None else _OWN
    chosen = st.selectbox(
        "Begin with an example",
        names,
        index=names.index(now),
        format_func=lambda name: name if name == _OWN else f"{name.replace('_', ' ')}: {ready[name].story}",
        key=f"example-{desk.session.edition}-{now}",
    )
    if chosen not in (now, _OWN):
        desk.take_example(chosen)
        st.rerun()


def _edit(desk: Desk) -> bool:
    """Show the editor, and return whether somebody has just stopped typing."""
    own = desk.session
    text, rest = edit_equations(own.equations, key=f"equations-{own.edition}")
    declared = st.text_input(
        "Parameters, as far as they are not told by the equations",
        own.declared,
        key=f"declared-{own.edition}",
        max_chars=2000,
        help="Unknown constants, separated by commas. Every other name is a channel: a function of time.",
    )
    desk.change(equations=text, declared=declared)
    before = st.session_state.get("typed", rest)
    st.session_state["typed"] = rest
    return bool(rest != before or declared != own.declared)


def _explain(system: Outline, analysis: Analysis, taken: tuple[str, ...]) -> None:
    numbered = "".join(
        f'<div><span class="number">{number}</span>{text}</div>' for number, text in enumerate(analysis.equations, 1)
    )
    typeset = f'<div class="lk-equations" role="group" aria-label="The equations, typeset">{numbered}</div>'
    word = "controllable" if analysis.is_controllable else "not controllable"
    kind = "" if analysis.is_controllable else "warning"
    free = analysis.free_functions
    freedom = count(free, "free function") if free else "nothing free"
    badge = f'<span class="lk-badge {kind}">{word}</span>' if free else ""
    listed = "".join(f"<li>{escape(text)}</li>" for text in (*analysis.sentences, *analysis.notes))
    words = f'<div class="lk-note" role="status"><ul>{listed}</ul></div>'
    draw_html(f'{typeset}<p>{badge}<span class="lk-badge plain">{freedom}</span></p>{words}', "analysis")
    if taken:
        st.caption(f"Taken for parameters: {', '.join(taken)}. Channels: {', '.join(system.channels)}.")


def _go_deeper(desk: Desk, analysis: Analysis) -> None:
    """Show exponents, dimensions, inputs, and the proof."""
    left, right = st.columns([3, 8], gap="large")
    with left:
        _show_plane(desk, analysis)
    with right:
        if analysis.dimensions:
            listed = [[name, text] for name, text in analysis.dimensions.items()]
            show_table(["parameter", "its dimension, as the equations imply it"], listed, words="Dimensions")
        if analysis.inputs:
            shown = "; ".join(", ".join(names) for names in analysis.inputs[:12])
            more = f"; and {len(analysis.inputs) - 12} more" if len(analysis.inputs) > 12 else ""
            st.markdown(f"**Possible inputs** (what could be chosen freely): {shown}{more}.")
        if st.toggle("Smith form and proof", key="proof"):
            found = desk.proof()
            st.code(found.text, language=None, wrap_lines=False)
            if found.trouble:
                notice(found.trouble, "warning")
            else:
                notice([f"Proved: {line}" for line in found.proved], "good")


def _show_plane(desk: Desk, analysis: Analysis) -> None:
    known = tuple(item.assignment.channel for item in desk.safe_matches if item.assignment.kind)
    known = known or (analysis.inputs[-1] if analysis.inputs else ())
    values = desk.values()
    try:
        poles, fixed = desk.exponents(known)
    except LodekitError as problem:
        st.caption(sentence(f"exponents are not determined here: {desk.say(problem)}"))
        return
    if not poles and not fixed:
        return
    words = describe_exponents(poles, fixed)
    at = ", ".join(f"{name} = {value:.4g}" for name, value in values.items())
    what = [f"× poles, with {', '.join(known)} known"] if poles else []
    what += ["● modes that nothing can influence"] if fixed and analysis.free_functions else []
    caption = "; ".join(what or ["● modes"]) + (f"; at {at}" if at else "")
    draw_html(
        f'<div class="lk-plane">{draw_exponents(poles, fixed)}<p>{escape(caption)}</p><p>{escape(words)}.</p></div>',
        "plane",
    )
