"""Elements that Streamlit lacks: an editor and a slider that tell at once what is done with them, and MathML or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import streamlit as st

__all__ = ["Slider", "draw_html", "edit_equations", "slide"]

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
#: Pauses of so many milliseconds after a stroke: so that a fast typist is not answered letter by letter, and before the
#: steps below follow.
_PAUSE, _REST = 25, 600
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
  area.rest = () => { setStateValue("rest", Date.now()); area.dataset.rests = "yes"; };
  area.oninput = () => {
    fit();
    area.dataset.rests = "no";
    [area.timer, area.resting].forEach(clearTimeout);
    area.timer = setTimeout(() => area.send(), PAUSE);
    area.resting = setTimeout(() => area.rest(), REST);
  };
}
""".replace("PAUSE", str(_PAUSE)).replace("REST", str(_REST))


@st.cache_resource
def _component() -> Any:
    return st.components.v2.component("lodekit_equations", html=_HTML, css=_CSS, js=_JS)


def edit_equations(text: str, key: str) -> tuple[str, float]:
    """Show the editor; return what is in it, and when somebody has last stopped typing.

    Parameters
    ----------
    text : str
        What stands there at first.
    key : str
        Another key makes another editor, with another first text.
    """
    told: dict[str, Any] = {"on_text_change": lambda: None, "on_rest_change": lambda: None}
    found = _component()(data={"text": text}, default={"text": text, "rest": 0}, key=key, **told)
    return str(found.text if found.text is not None else text), float(found.rest or 0)


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


_SLIDER_CSS = """
label { display: block; font-size: .875rem; color: var(--st-text-color); margin-bottom: .55rem; }
output { float: right; color: var(--st-primary-color); font-variant-numeric: tabular-nums; }
input { width: 100%; margin: .45rem 0 .2rem; accent-color: var(--st-primary-color); cursor: pointer; }
input:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 3px; border-radius: 4px; }
"""
#: Values are sent while a slider moves, but not more often than the page can answer: milliseconds between two of them,
#: and until a slider has come to rest.
_EVERY, _STILL = 50, 900
_SLIDER_JS = """
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
""".replace("EVERY", str(_EVERY)).replace("STILL", str(_STILL))


@dataclass(frozen=True)
class Slider:
    """One of several sliders.

    Parameters
    ----------
    name, label : str
        What moves, and what stands above it.
    low, high, value : float
        Where it ends, and where it stands.
    """

    name: str
    label: str
    low: float
    high: float
    value: float


@st.cache_resource
def _sliders() -> Any:
    return st.components.v2.component(
        "lodekit_sliders", html='<div class="lk-sliders"></div>', css=_SLIDER_CSS, js=_SLIDER_JS
    )


def slide(sliders: Sequence[Slider], key: str) -> tuple[dict[str, float], float]:
    """Show sliders that tell their values while they move; return those, and when one has last come to rest.

    Parameters
    ----------
    sliders : sequence of Slider
    key : str
        A name that no other element of the page has.
    """
    items = [{**asdict(own), "step": (own.high - own.low) / 400} for own in sliders]
    start = {own.name: own.value for own in sliders}
    told: dict[str, Any] = {"on_places_change": lambda: None, "on_rest_change": lambda: None}
    found = _sliders()(data={"items": items}, default={"places": start, "rest": 0}, key=key, **told)
    values = {str(name): float(value) for name, value in dict(found.places or start).items()}
    return values, float(found.rest or 0)
