"""Elements that all steps of the page share: headings, tables, figures, notices, an equation editor and sliders."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import streamlit as st

from lodekit.studio.controller import SessionController
from lodekit.studio.figures import apply_theme
from lodekit.studio.session import StudioSession, to_page_advice
from lodekit.support.html import PLOTLY_CONFIG, read_asset

#: The steps, from top to bottom, with their purpose.
STEPS = {
    "System": "Enter the equations; their analysis is shown immediately.",
    "Data": "Upload a file or simulate data; select the windows for the fit and for validation.",
    "Parameters": "Set constraints and priors; move a slider to see the curve at other values.",
    "Fit": "Estimates with intervals, residual tests and a certificate.",
    "Compare": "All fits of this session, side by side.",
    "Download": "The report, all files, and commands that reproduce the fit without this page.",
}
DARK_PAGE_STYLE = """<style>:root { --accent: #56b4e9; --warn: #e69f00; --good: #2fbf95; --page: #12171c; }
.lk-badge { color: #10151a; }</style>"""
#: A damped oscillation.
PAGE_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><path d="M2 8C10 8 14 56 26 46S36 22 46 28\
 54 40 62 34" fill="none" stroke="#0072b2" stroke-width="8"/></svg>"""
#: Windows are selected with boxes here.
SELECTION_CONFIG = {**PLOTLY_CONFIG, "modeBarButtonsToRemove": ["lasso2d", "autoScale2d"]}


def _read_assets(name: str, *extensions: str) -> dict[str, str]:
    """Return files of the package by extension: styles, scripts and HTML."""
    return {extension: read_asset(f"{name}.{extension}") for extension in extensions}


def configure_page() -> None:
    """Set title and style of the page, and show links to the steps."""
    st.set_page_config(page_title="lodekit studio", page_icon=PAGE_ICON, layout="wide")
    st.html(f"<style>{read_asset('studio.css')}</style>{DARK_PAGE_STYLE if is_dark() else ''}")
    links = "".join(
        f'<li><a href="#step-{number}"><b>{number}</b>{escape(name)}</a></li>' for number, name in enumerate(STEPS, 1)
    )
    st.html('<div class="lk-brand"><h1>lodekit studio</h1><span>fit linear ODEs to measurements</span></div>')
    # An element of its own, which stays at the top while the page scrolls.
    st.html(f'<nav aria-label="Steps"><ol class="lk-steps">{links}</ol></nav>')


def is_dark() -> bool:
    """Return whether the page has a dark theme."""
    return bool(st.context.theme.get("type") == "dark")


def show_heading(name: str) -> None:
    """Show the heading of a step, by its name."""
    number = list(STEPS).index(name) + 1
    st.html(
        f'<div class="lk-head" id="step-{number}"><h2><b>{number}</b>{escape(name)}</h2>'
        f"<p>{escape(STEPS[name])}</p></div>"
    )


def show_notice(text: str | Sequence[str], kind: str = "") -> None:
    """Show a notice; the second and later lines, such as carets, keep their layout."""
    role = "alert" if kind == "warning" else "status"
    if not isinstance(text, str):
        body = "<ul>" + "".join(f"<li>{escape(to_page_advice(each))}</li>" for each in text) + "</ul>"
    else:
        first, _, rest = to_page_advice(text).partition("\n")
        body = escape(first) + (f"<pre>{escape(rest)}</pre>" if rest else "")
    st.html(f'<div class="lk-note {kind}" role="{role}">{body}</div>')


def show_figure(figure: Mapping[str, Any], alt_text: str, key: str, **options: Any) -> Any:
    """Show a figure with a description for screen readers."""
    from plotly.basedatatypes import BaseFigure

    themed = apply_theme(figure, dark=is_dark())
    # Skip Plotly's validation, which takes ten times as long as drawing and sending the figure.
    unchecked = BaseFigure.__new__(BaseFigure)
    unchecked.to_dict = lambda: themed
    height = int(themed["layout"].get("height", 400))
    options |= {"theme": None, "key": key, "alt": alt_text, "config": SELECTION_CONFIG, "height": height}
    return st.plotly_chart(unchecked, **options)


def show_table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], *, numeric_columns: Sequence[int] = (), aria_label: str = ""
) -> None:
    """Show a table."""
    places = [' class="number"' if number in numeric_columns else "" for number in range(len(head))]
    top = "".join(f'<th scope="col"{place}>{escape(name)}</th>' for name, place in zip(head, places, strict=True))
    # On a phone each cell is a line with its heading.
    places = [f'{place} data-label="{escape(name)}"' for name, place in zip(head, places, strict=True)]
    body = "".join(
        "<tr>" + "".join(_format_cell(cell, place) for cell, place in zip(line, places, strict=True)) + "</tr>"
        for line in rows
    )
    label = f' aria-label="{escape(aria_label)}"' if aria_label else ""
    st.html(f'<div class="lk-wide"><table{label}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>')


def _format_cell(cell: Any, attributes: str) -> str:
    """Return a cell of a table: a text, and the value in full precision, if there is one, as its title."""
    if isinstance(cell, tuple):
        shown, whole = cell
        # Numbers stay in one piece, and intervals may have two lines.
        number = escape(str(shown)).replace(" to ", " to <wbr>")
        return f'<td{attributes} title="{escape(repr(whole))}">{number}</td>'
    # Dates and numbers such as 1e-9 are not broken at their hyphens.
    text = re.sub(r"\w+(-\d+)+", r"<nobr>\g<0></nobr>", escape(str(cell)).replace("\n", "<br>"))
    return f"<td{attributes}>{text}</td>"


@st.cache_resource
def _editor_component() -> Any:
    return st.components.v2.component("lodekit_equations", **_read_assets("studio_editor", "html", "css", "js"))


def equation_editor(text: str, key: str) -> tuple[str, float]:
    """Show the editor; return its text, and the time when the user last stopped typing.

    Each text that does not come from this editor is a new edition; typed text applies to its edition only.
    """
    edition, before = st.session_state.get(f"{key} before", (0, text))
    edition += before != text
    callbacks: dict[str, Any] = {"on_typed_change": lambda: None, "on_rest_change": lambda: None}
    data, default = {"text": text, "edition": edition}, {"typed": None, "rest": 0}
    state = _editor_component()(data=data, default=default, key=key, **callbacks)
    if state.typed and state.typed["edition"] == edition:
        text = str(state.typed["text"])
    st.session_state[f"{key} before"] = edition, text
    return text, float(state.rest or 0)


def edit_value(widget: Callable[..., Any], label: str, value: Any, key: str, **options: Any) -> Any:
    """Show a value of the session in a widget; return the value that the user chose.

    The widget follows the session if another tab or a computation changes the value.
    """
    state = st.session_state
    if key not in state or state.get(f"{key} before") != value:
        state[key] = value
    state[f"{key} before"] = value
    return widget(label, key=key, **options)


def upload_file(
    controller: SessionController, label: str, extensions: Sequence[str], key: str, **options: Any
) -> tuple[str, bytes] | None:
    """Return the name and the content of a file that the user has just uploaded; None if there is none."""
    uploaded = controller.uploaded_ids
    file = st.file_uploader(label, type=list(extensions), key=f"{key}-{len(uploaded)}", **options)
    if file is None or file.file_id in uploaded:
        return None
    uploaded.append(file.file_id)
    return file.name, file.getvalue()


def store_edit(controller: SessionController, session: StudioSession) -> None:
    """Store an edit of this tab; the rest of the page is redrawn when the user stops typing or moving."""
    if st.session_state.get("drawn") == controller.state:
        st.session_state["drawn"] = session, controller.task
    controller.session = session


@st.fragment(run_every=1.0)
def follow_other_tabs(controller: SessionController) -> None:
    """Redraw the page if the session was changed in another tab, or if an entry was sent while the page changed.

    Streamlit drops the run of a fragment that has moved on the page meanwhile; the entry would wait for the next one.
    """
    state = st.session_state
    waiting = {key: state[key] for key in state if state.get(f"{key} before", state[key]) != state[key]}
    known, state["waiting"] = state.get("waiting"), waiting
    if state.get("drawn") != controller.state or (waiting and waiting != known):
        st.rerun()


@st.cache_resource
def _html_component() -> Any:
    script = """export default function ({ parentElement, data }) { const box = parentElement.querySelector("div");
      if (data.live) box.setAttribute("aria-live", data.live);
      if (box.shown !== data.html) box.innerHTML = box.shown = data.html; }"""
    return st.components.v2.component("lodekit_canvas", html="<div></div>", js=script, isolate_styles=False)


def render_html(html: str, key: str, *, live: str = "") -> None:
    """Show HTML without changes, MathML and SVG included; the caller has escaped everything that users typed.

    live: ``"polite"`` if screen readers announce changes.
    """
    _html_component()(data={"html": html, "live": live}, key=key)


@st.cache_resource
def _slider_component() -> Any:
    return st.components.v2.component(
        "lodekit_sliders", html='<div class="lk-sliders"></div>', **_read_assets("studio_sliders", "css", "js")
    )


def parameter_sliders(sliders: Sequence[dict[str, Any]], key: str) -> tuple[dict[str, float], float]:
    """Show sliders that report their values while they move; return these, and the time when one last stopped.

    Each slider has ``name``, ``label``, ``low``, ``high`` and ``value``.
    """
    items = [{**slider, "step": (slider["high"] - slider["low"]) / 400} for slider in sliders]
    start = {slider["name"]: slider["value"] for slider in sliders}
    callbacks: dict[str, Any] = {"on_places_change": lambda: None, "on_rest_change": lambda: None}
    state = _slider_component()(data={"items": items}, default={"places": start, "rest": 0}, key=key, **callbacks)
    values = {str(name): float(value) for name, value in dict(state.places or start).items()}
    return values, float(state.rest or 0)
