"""What all steps of the page share: its style, headings, tables, figures and notices.

Elements that Streamlit lacks: an editor and a slider that tell at once what is done with them, and MathML or SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np
import streamlit as st
from PIL import Image

from lodekit.studio.figures import apply_theme

#: The steps, from top to bottom, with what each is for.
STEPS = {
    "System": "Type equations; what they imply is said at once.",
    "Data": "Drop a file, or simulate one; brush what is fitted, and what is kept for validation.",
    "Parameters": "What you know of each; move a slider and the curve follows.",
    "Fit": "Everything else is learned, with intervals, a verdict and a proof.",
    "Compare": "Every fit of this session, side by side.",
    "Take away": "Model, report, predictions, and the lines that do the same without this page.",
}
PAGE_STYLE = """
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
DARK_PAGE_STYLE = (
    "<style>:root { --accent: #56b4e9; --warn: #e69f00; --good: #2fbf95; } .lk-badge { color: #10151a; }</style>"
)
PLOTLY_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["lasso2d", "autoScale2d"],
    "plotlyServerURL": "",
    "responsive": True,
}


def configure_page() -> None:
    """Begin the page: its title, its style, and links to the steps."""
    st.set_page_config(page_title="lodekit studio", page_icon=_page_icon(), layout="wide")
    st.html(PAGE_STYLE + (DARK_PAGE_STYLE if is_dark() else ""))
    links = "".join(
        f'<li><a href="#step-{number}"><b>{number}</b>{escape(name)}</a></li>' for number, name in enumerate(STEPS, 1)
    )
    st.html(
        '<div class="lk-brand"><h1>lodekit studio</h1><span>equations in, provably strict solutions out</span></div>'
        f'<nav aria-label="Steps"><ol class="lk-steps">{links}</ol></nav>'
    )


@st.cache_resource
def _page_icon() -> Any:
    """Return the picture of the page: a damped oscillation, drawn here so that nothing is fetched."""
    x, y = np.meshgrid(np.linspace(0, 4, 64), np.linspace(1, -1, 64))
    near = np.abs(y - 0.85 * np.exp(-0.5 * x) * np.cos(2.4 * x)) < 0.16
    picture = np.zeros((64, 64, 4), dtype=np.uint8)
    picture[near] = (0, 114, 178, 255)
    return Image.fromarray(picture)


def is_dark() -> bool:
    """Return whether the page is dark."""
    return bool(st.context.theme.get("type") == "dark")


def show_heading(name: str) -> None:
    """Show the heading of a step, by its name."""
    number = list(STEPS).index(name) + 1
    st.html(
        f'<div class="lk-head" id="step-{number}"><h2><b>{number}</b>{escape(name)}</h2>'
        f"<p>{escape(STEPS[name])}</p></div>"
    )


def show_notice(text: str | Sequence[str], kind: str = "") -> None:
    """Show a notice; lines that belong under each other, such as carets, stay so."""
    role = ' role="alert"' if kind == "warning" else ""
    if not isinstance(text, str):
        body = "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in text) + "</ul>"
    else:
        first, _, rest = text.partition("\n")
        body = escape(first) + (f"<pre>{escape(rest)}</pre>" if rest else "")
    st.html(f'<div class="lk-note {kind}"{role}>{body}</div>')


def show_figure(figure: Mapping[str, Any], alt_text: str, key: str, **options: Any) -> Any:
    """Show a figure with words that say what is in it, for those who cannot see it."""
    drawn = apply_theme(figure, dark=is_dark())
    height = drawn["layout"].get("height", 400)
    return st.plotly_chart(
        _unvalidated_figure(drawn),
        theme=None,
        key=key,
        alt=alt_text,
        config=PLOTLY_CONFIG,
        height=int(height),
        **options,
    )


def _unvalidated_figure(figure: dict[str, Any]) -> Any:
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
    head: Sequence[str], rows: Sequence[Sequence[Any]], *, numeric_columns: Sequence[int] = (), aria_label: str = ""
) -> None:
    """Show a table."""
    places = [' class="number"' if number in numeric_columns else "" for number in range(len(head))]
    top = "".join(f'<th scope="col"{place}>{escape(name)}</th>' for name, place in zip(head, places, strict=True))
    body = "".join(
        "<tr>" + "".join(_format_cell(cell, place) for cell, place in zip(line, places, strict=True)) + "</tr>"
        for line in rows
    )
    label = f' aria-label="{escape(aria_label)}"' if aria_label else ""
    st.html(f'<div class="lk-wide"><table{label}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>')


def _format_cell(cell: Any, attributes: str) -> str:
    """Return a cell of a table: a text, with the whole number that it stands for, where there is one, as its title."""
    if isinstance(cell, tuple):
        shown, whole = cell
        return f'<td{attributes} title="{escape(repr(whole))}">{escape(str(shown))}</td>'
    return f"<td{attributes}>{escape(str(cell)).replace(chr(10), '<br>')}</td>"


EDITOR_HTML = """
<label for="lk-equations">Equations, one a line</label>
<textarea id="lk-equations" rows="5" spellcheck="false" autocapitalize="off" autocomplete="off" autocorrect="off"
  aria-describedby="lk-equations-help"></textarea>
<div id="lk-equations-help">x' is the derivative in time. Names that multiply others are taken for parameters.</div>
"""
EDITOR_CSS = """
label { display: block; font-size: .875rem; margin-bottom: .3rem; }
textarea { width: 100%; box-sizing: border-box; resize: vertical; padding: .7rem .8rem; border-radius: .5rem;
  font: .98rem/1.6 ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; color: var(--st-text-color);
  background: var(--st-secondary-background-color); border: 1px solid var(--st-border-color); white-space: pre;
  overflow-x: auto; }
textarea:focus { outline: 2px solid var(--st-primary-color); outline-offset: 0; }
#lk-equations-help { font-size: .8rem; opacity: .7; margin-top: .15rem; }
"""
#: Pauses of so many milliseconds after a stroke: so that a fast typist is not answered letter by letter, and before the
#: steps below follow.
TYPING_DEBOUNCE_MS, TYPING_IDLE_MS = 25, 600
EDITOR_JS = """
export default function (component) {
  const { parentElement, data, setStateValue } = component;
  const area = parentElement.querySelector("textarea");
  const fit = () => { area.rows = Math.min(Math.max(area.value.split("\\n").length + 1, 4), 16); };
  if (area.dataset.begun !== "yes") {
    area.dataset.begun = "yes";
    area.value = data.text;
    fit();
  }
  // What was typed last is sent whatever happens to the page meanwhile, so the timer outlives a new drawing of it.
  area.send = () => setStateValue("text", area.value);
  area.rest = () => { setStateValue("rest", Date.now()); area.dataset.rests = "yes"; };
  area.oninput = () => {
    fit();
    area.dataset.rests = "no";
    [area.timer, area.resting].forEach(clearTimeout);
    area.timer = setTimeout(() => area.send(), PAUSE);
    area.resting = setTimeout(() => area.rest(), REST);
  };
}
""".replace("PAUSE", str(TYPING_DEBOUNCE_MS)).replace("REST", str(TYPING_IDLE_MS))


@st.cache_resource
def _editor_component() -> Any:
    return st.components.v2.component("lodekit_equations", html=EDITOR_HTML, css=EDITOR_CSS, js=EDITOR_JS)


def equation_editor(text: str, key: str) -> tuple[str, float]:
    """Show the editor; return what is in it, and when somebody has last stopped typing."""
    told: dict[str, Any] = {"on_text_change": lambda: None, "on_rest_change": lambda: None}
    found = _editor_component()(data={"text": text}, default={"text": text, "rest": 0}, key=key, **told)
    return str(found.text if found.text is not None else text), float(found.rest or 0)


@st.cache_resource
def _html_component() -> Any:
    body = "parentElement.querySelector('div').innerHTML = data.html;"
    script = f"export default function ({{ parentElement, data }}) {{ {body} }}"
    return st.components.v2.component("lodekit_canvas", html="<div></div>", js=script, isolate_styles=False)


def render_html(html: str, key: str) -> None:
    """Show HTML as it is, MathML and SVG included; whoever makes it has escaped all that people typed."""
    _html_component()(data={"html": html}, key=key)


SLIDER_CSS = """
label { display: block; font-size: .875rem; color: var(--st-text-color); margin-bottom: .55rem; }
output { float: right; color: var(--st-primary-color); font-variant-numeric: tabular-nums; }
input { width: 100%; margin: .45rem 0 .2rem; accent-color: var(--st-primary-color); cursor: pointer; }
input:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 3px; border-radius: 4px; }
"""
#: Values are sent while a slider moves, but not more often than the page can answer: milliseconds between two of them,
#: and until a slider has come to rest.
SLIDER_THROTTLE_MS, SLIDER_IDLE_MS = 50, 900
SLIDER_JS = """
export default function ({ parentElement, data, setStateValue }) {
  const box = parentElement.querySelector(".lk-sliders");
  const number = value => Number(Number(value).toPrecision(6));
  box.send = () => { box.last = performance.now(); setStateValue("places", { ...box.values }); };
  box.rest = () => { box.moved = null; setStateValue("rest", Date.now()); };
  if (box.childElementCount !== data.items.length) {
    box.replaceChildren(...data.items.map(() => {
      const label = document.createElement("label");
      label.append(document.createElement("span"), document.createElement("output"), document.createElement("input"));
      label.lastChild.type = "range";
      return label;
    }));
    box.values = {};
    box.moved = null;
  }
  data.items.forEach((item, place) => {
    const [name, shown, input] = box.children[place].children;
    name.textContent = item.label;
    input.setAttribute("aria-label", item.label);
    // What the page says counts, unless somebody is moving it.
    if (box.moved !== item.name) {
      Object.assign(input, { min: item.low, max: item.high, step: item.step });
      input.value = item.value;
      box.values[item.name] = item.value;
      shown.textContent = number(item.value);
    }
    input.oninput = () => {
      shown.textContent = number(input.value);
      box.values[item.name] = Number(input.value);
      box.moved = item.name;
      [box.timer, box.resting].forEach(clearTimeout);
      box.resting = setTimeout(() => box.rest(), STILL);
      const wait = EVERY - (performance.now() - (box.last ?? -1e9));
      if (wait <= 0) box.send(); else box.timer = setTimeout(() => box.send(), wait);
    };
  });
}
""".replace("EVERY", str(SLIDER_THROTTLE_MS)).replace("STILL", str(SLIDER_IDLE_MS))


@dataclass(frozen=True)
class Slider:
    """One of several sliders.

    name, label: What moves, and what stands above it.
    low, high, value: Where it ends, and where it stands.
    """

    name: str
    label: str
    low: float
    high: float
    value: float


@st.cache_resource
def _slider_component() -> Any:
    return st.components.v2.component(
        "lodekit_sliders", html='<div class="lk-sliders"></div>', css=SLIDER_CSS, js=SLIDER_JS
    )


def parameter_sliders(sliders: Sequence[Slider], key: str) -> tuple[dict[str, float], float]:
    """Show sliders that tell their values while they move; return those, and when one has last come to rest."""
    items = [{**asdict(own), "step": (own.high - own.low) / 400} for own in sliders]
    start = {own.name: own.value for own in sliders}
    told: dict[str, Any] = {"on_places_change": lambda: None, "on_rest_change": lambda: None}
    found = _slider_component()(data={"items": items}, default={"places": start, "rest": 0}, key=key, **told)
    values = {str(name): float(value) for name, value in dict(found.places or start).items()}
    return values, float(found.rest or 0)
