"""What all steps of the page share: its style, headings, tables, figures and notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import streamlit as st
from PIL import Image

from lodekit.studio.drawing import on_ground

__all__ = ["STEPS", "begin_page", "heading", "is_dark", "notice", "show", "show_table"]

#: The steps, from top to bottom, with what each is for.
STEPS = {
    "System": "Type equations; what they imply is said at once.",
    "Data": "Drop a file, or simulate one; brush what is fitted, and what is kept for validation.",
    "Parameters": "What you know of each; move a slider and the curve follows.",
    "Fit": "Everything else is learned, with intervals, a verdict and a proof.",
    "Compare": "Every fit of this session, side by side.",
    "Take away": "Model, report, predictions, and the lines that do the same without this page.",
}
_STYLE = """
<style>
:root { --accent: #0072b2; --warn: #d55e00; --good: #009e73; }
.block-container { max-width: 74rem; padding: 2.2rem 1.6rem 6rem; }
[data-testid="stHeader"] { background: transparent; pointer-events: none; }
[data-testid="stHeader"] * { pointer-events: auto; }
[data-stale="true"], [data-stale="true"] * { opacity: 1 !important; transition: none !important; }
.lk-brand { display: flex; flex-wrap: wrap; align-items: baseline; gap: .2rem .9rem; margin: 0 0 .2rem; }
.lk-brand h1 { font-size: 1.9rem; line-height: 1.2; margin: 0; padding: 0; font-weight: 700; }
.lk-brand span { opacity: .72; }
ol.lk-steps.lk-steps { display: flex; flex-wrap: wrap; gap: .35rem; margin: .5rem 0 0; padding: 0; list-style: none; }
.lk-steps li { margin: 0; padding: 0; }
.lk-steps a { display: inline-block; padding: .12rem .7rem; border-radius: 1rem; text-decoration: none;
  font-size: .9rem;
  color: inherit; border: 1px solid color-mix(in srgb, currentColor 22%, transparent); }
.lk-steps a:hover, .lk-steps a:focus-visible { border-color: var(--accent); color: var(--accent); }
.lk-steps b { color: var(--accent); margin-right: .3rem; }
.lk-head { margin: 1.2rem 0 .2rem; padding-bottom: .3rem; scroll-margin-top: 1rem;
  border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent); }
.lk-head h2 { font-size: 1.35rem; margin: 0; padding: 0; font-weight: 650; }
.lk-head h2 b { color: var(--accent); margin-right: .55rem; }
.lk-head p { margin: .1rem 0 0; font-size: .92rem; opacity: .72; }
.lk-note { border-left: 4px solid var(--accent); padding: .55rem .9rem; margin: .3rem 0; border-radius: 0 6px 6px 0;
  background: color-mix(in srgb, var(--accent) 9%, transparent); overflow-wrap: anywhere; }
.lk-note.warning { border-color: var(--warn); background: color-mix(in srgb, var(--warn) 11%, transparent); }
.lk-note.good { border-color: var(--good); background: color-mix(in srgb, var(--good) 11%, transparent); }
.lk-note ul { margin: 0; padding-left: 1.1rem; }
.lk-note pre { margin: .4rem 0 0; padding: 0; background: none; white-space: pre; overflow-x: auto; font-size: .86rem;
  font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; }
.lk-wide { overflow-x: auto; }
.lk-wide table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; margin: .3rem 0; }
.lk-wide th, .lk-wide td { padding: .34rem 1.1rem .34rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
.lk-wide th { font-weight: 600; opacity: .75; }
.lk-wide td.number, .lk-wide th.number { text-align: right; white-space: nowrap; }
.lk-equations { display: grid; gap: .75rem; padding: .4rem 0; overflow-x: auto; }
.lk-equations > div { display: flex; align-items: center; gap: 1.1rem; }
.lk-equations + p { margin: .55rem 0 .8rem; }
.lk-equations .number { opacity: .6; font-size: .9rem; }
.lk-equations math { margin: 0; width: max-content; font-size: 1.2rem;
  font-family: "Cambria Math", "STIX Two Math", "Latin Modern Math", "DejaVu Math TeX Gyre", math; }
.lk-equations .parameter { color: var(--accent); }
.lk-equations .word { font-style: italic; }
.lk-equations mfrac > * { padding: .14em .1em; }
.lk-plane svg { width: 100%; max-width: 15rem; height: auto; display: block; }
.lk-plot svg { width: 100%; height: auto; display: block; }
.lk-plot p { margin: 0 0 .2rem; }
.lk-plane p { margin: .1rem 0; font-size: .86rem; opacity: .75; }
.lk-badge { display: inline-block; padding: .05rem .6rem; border-radius: 1rem; font-size: .85rem; font-weight: 600;
  color: #fff; background: var(--good); margin: 0 .4rem .3rem 0; }
.lk-badge.warning { background: var(--warn); }
.lk-badge.plain { background: #5a6b7b; color: #fff; }
[class*="st-key-v-"] [data-testid^="stNumberInputStep"] { display: none; }
a:focus-visible, button:focus-visible, textarea:focus-visible, input:focus-visible { outline: 2px solid var(--accent); }
@media (max-width: 640px) {
  .block-container { padding: 1.4rem .9rem 4rem; }
  .lk-brand h1 { font-size: 1.5rem; }
  .lk-wide th, .lk-wide td { padding-right: .7rem; }
}
</style>
"""
_DARK_STYLE = (
    "<style>:root { --accent: #56b4e9; --warn: #e69f00; --good: #2fbf95; } .lk-badge { color: #10151a; }</style>"
)
_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["lasso2d", "autoScale2d"],
    "plotlyServerURL": "",
    "responsive": True,
}


def begin_page() -> None:
    """Begin the page: its title, its style, and links to the steps."""
    st.set_page_config(page_title="lodekit studio", page_icon=_icon(), layout="wide")
    st.html(_STYLE + (_DARK_STYLE if is_dark() else ""))
    links = "".join(
        f'<li><a href="#step-{number}"><b>{number}</b>{escape(name)}</a></li>' for number, name in enumerate(STEPS, 1)
    )
    st.html(
        '<div class="lk-brand"><h1>lodekit studio</h1><span>equations in, provably strict solutions out</span></div>'
        f'<nav aria-label="Steps"><ol class="lk-steps">{links}</ol></nav>'
    )


@st.cache_resource
def _icon() -> Any:
    """Return the picture of the page: a damped oscillation, drawn here so that nothing is fetched."""
    x, y = np.meshgrid(np.linspace(0, 4, 64), np.linspace(1, -1, 64))
    near = np.abs(y - 0.85 * np.exp(-0.5 * x) * np.cos(2.4 * x)) < 0.16
    picture = np.zeros((64, 64, 4), dtype=np.uint8)
    picture[near] = (0, 114, 178, 255)
    return Image.fromarray(picture)


def is_dark() -> bool:
    """Return whether the page is dark."""
    return bool(st.context.theme.get("type") == "dark")


def heading(name: str) -> None:
    """Show the heading of a step, by its name."""
    number = list(STEPS).index(name) + 1
    st.html(
        f'<div class="lk-head" id="step-{number}"><h2><b>{number}</b>{escape(name)}</h2>'
        f"<p>{escape(STEPS[name])}</p></div>"
    )


def notice(text: str | Sequence[str], kind: str = "") -> None:
    """Show a notice; lines that belong under each other, such as carets, stay so.

    Parameters
    ----------
    text : str or sequence of str
        Of several, each becomes an item of a list.
    kind : {"", "warning", "good"}
    """
    role = ' role="alert"' if kind == "warning" else ""
    if not isinstance(text, str):
        body = "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in text) + "</ul>"
    else:
        first, _, rest = text.partition("\n")
        body = escape(first) + (f"<pre>{escape(rest)}</pre>" if rest else "")
    st.html(f'<div class="lk-note {kind}"{role}>{body}</div>')


def show(figure: Mapping[str, Any], words: str, key: str, **options: Any) -> Any:
    """Show a figure with words that say what is in it, for those who cannot see it.

    Parameters
    ----------
    figure : dict
        With data and layout, in the colours of the report.
    words : str
    key : str
        A name that no other figure of the page has.
    **options
        Of `st.plotly_chart`.
    """
    drawn = on_ground(figure, dark=is_dark())
    height = drawn["layout"].get("height", 400)
    return st.plotly_chart(_ready(drawn), theme=None, key=key, alt=words, config=_CONFIG, height=int(height), **options)


def _ready(figure: dict[str, Any]) -> Any:
    """Return a figure that Plotly does not check again: that takes ten times as long as to make and to send it."""
    from plotly.basedatatypes import BaseFigure

    class Ready(BaseFigure):  # type: ignore[misc, unused-ignore]
        """A figure that is made already."""

        def __init__(self) -> None:
            """Make nothing."""

        def to_dict(self) -> dict[str, Any]:
            """Return the figure as it is."""
            return figure

    return Ready()


def show_table(
    head: Sequence[str], lines: Sequence[Sequence[Any]], *, numbers: Sequence[int] = (), words: str = ""
) -> None:
    """Show a table.

    Parameters
    ----------
    head : sequence of str
        The names of its columns.
    lines : sequence of sequences
        Cells: a text, or a pair of a text and the whole number that it stands for.
    numbers : sequence of int
        Columns that are set to the right.
    words : str
        What the table is, for those who cannot see it.
    """
    places = [' class="number"' if number in numbers else "" for number in range(len(head))]
    top = "".join(f'<th scope="col"{place}>{escape(name)}</th>' for name, place in zip(head, places, strict=True))
    body = "".join(
        "<tr>" + "".join(_show_cell(cell, place) for cell, place in zip(line, places, strict=True)) + "</tr>"
        for line in lines
    )
    label = f' aria-label="{escape(words)}"' if words else ""
    st.html(f'<div class="lk-wide"><table{label}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>')


def _show_cell(cell: Any, place: str) -> str:
    """Return a cell of a table: a text, with the whole number that it stands for, where there is one, as its title."""
    if isinstance(cell, tuple):
        shown, whole = cell
        return f'<td{place} title="{escape(repr(whole))}">{escape(str(shown))}</td>'
    return f"<td{place}>{escape(str(cell)).replace(chr(10), '<br>')}</td>"
