"""Elements that Streamlit lacks: an editor and a slider that tell at once what is done with them, and MathML or SVG."""

from __future__ import annotations

from typing import Any

import streamlit as st

__all__ = ["draw_html", "edit_equations", "slide"]

_HTML = """
<label for="lk-equations">Equations, one a line</label>
<textarea id="lk-equations" rows="5" spellcheck="false" autocapitalize="off" autocomplete="off" autocorrect="off"
  aria-describedby="lk-equations-help"></textarea>
<div id="lk-equations-help">x' is the derivative in time. Names that multiply others are taken for parameters.</div>
"""
_CSS = """
label { display: block; font-size: .875rem; margin-bottom: .3rem; }
textarea { width: 100%; box-sizing: border-box; resize: vertical; padding: .7rem .8rem; border-radius: .5rem;
  font: .98rem/1.6 ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; color: var(--st-text-color);
  background: var(--st-secondary-background-color); border: 1px solid var(--st-border-color); white-space: pre;
  overflow-x: auto; }
textarea:focus { outline: 2px solid var(--st-primary-color); outline-offset: 0; }
#lk-equations-help { font-size: .8rem; opacity: .7; margin-top: .15rem; }
"""
#: A pause of so many milliseconds after a stroke, so that a fast typist is not answered letter by letter.
_PAUSE = 40
_JS = """
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
  area.oninput = () => {
    fit();
    clearTimeout(area.timer);
    area.timer = setTimeout(() => area.send(), PAUSE);
  };
}
""".replace("PAUSE", str(_PAUSE))


@st.cache_resource
def _component() -> Any:
    return st.components.v2.component("lodekit_equations", html=_HTML, css=_CSS, js=_JS)


def edit_equations(text: str, key: str) -> str:
    """Show the editor, and return what is in it.

    Parameters
    ----------
    text : str
        What stands there at first.
    key : str
        Another key makes another editor, with another first text.
    """
    found = _component()(data={"text": text}, default={"text": text}, key=key, on_text_change=lambda: None)
    return str(found.text if found.text is not None else text)


@st.cache_resource
def _canvas() -> Any:
    body = "parentElement.querySelector('div').innerHTML = data.html;"
    script = f"export default function ({{ parentElement, data }}) {{ {body} }}"
    return st.components.v2.component("lodekit_canvas", html="<div></div>", js=script, isolate_styles=False)


def draw_html(html: str, key: str) -> None:
    """Show HTML as it is, MathML and SVG included; whoever makes it has escaped all that people typed.

    Parameters
    ----------
    html : str
    key : str
        A name that no other element of the page has.
    """
    _canvas()(data={"html": html}, key=key)


_SLIDER_HTML = """
<label><span></span> <output></output><input type="range"></label>
"""
_SLIDER_CSS = """
label { display: block; font-size: .875rem; color: var(--st-text-color); }
output { float: right; color: var(--st-primary-color); font-variant-numeric: tabular-nums; }
input { width: 100%; margin: .45rem 0 .2rem; accent-color: var(--st-primary-color); cursor: pointer; }
input:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 3px; border-radius: 4px; }
"""
#: Values are sent while the slider moves, but not more often than the page can answer.
_SLIDER_JS = """
export default function ({ parentElement, data, setStateValue }) {
  const [name, shown, input] = ["span", "output", "input"].map(tag => parentElement.querySelector(tag));
  const tell = value => { shown.textContent = Number(Number(value).toPrecision(4)); };
  name.textContent = data.label;
  input.setAttribute("aria-label", data.label);
  input.send = () => { input.last = performance.now(); setStateValue("value", Number(input.value)); };
  // What the page says counts, unless somebody is moving it.
  if (!(performance.now() - (input.moved ?? -1e9) < 700)) {
    Object.assign(input, { min: data.low, max: data.high, step: data.step });
    input.value = data.value;
    tell(data.value);
  }
  input.oninput = () => {
    tell(input.value);
    input.moved = performance.now();
    [input.timer, input.resting].forEach(clearTimeout);
    input.resting = setTimeout(() => { input.moved = -1e9; setStateValue("rest", Date.now()); }, 900);
    const rest = 60 - (performance.now() - (input.last ?? -1e9));
    if (rest <= 0) input.send(); else input.timer = setTimeout(() => input.send(), rest);
  };
}
"""


@st.cache_resource
def _slider() -> Any:
    return st.components.v2.component("lodekit_slider", html=_SLIDER_HTML, css=_SLIDER_CSS, js=_SLIDER_JS)


def slide(label: str, low: float, high: float, value: float, key: str) -> tuple[float, float]:
    """Show a slider that tells its value while it moves; return that, and when it has last come to rest.

    Parameters
    ----------
    label : str
    low, high, value : float
        Where it ends, and where it stands.
    key : str
        A name that no other element of the page has.
    """
    data = {"label": label, "low": low, "high": high, "step": (high - low) / 400, "value": value}
    told: dict[str, Any] = {"on_value_change": lambda: None, "on_rest_change": lambda: None}
    found = _slider()(data=data, default={"value": value, "rest": 0}, key=key, **told)
    return float(found.value if found.value is not None else value), float(found.rest or 0)
