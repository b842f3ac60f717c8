"""One self-contained HTML page: style, tables and figures inside, nothing fetched."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from lodekit import cards

__all__ = ["Page", "escape", "plot_text"]

#: The page may run what is inside it, and fetch nothing.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)

_STYLE = """
:root { color-scheme: light; --ink: #1b2733; --soft: #5a6b7b; --line: #dbe2e8; --wash: #f5f7f9; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; }
body { font: 16px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .7rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.6rem 0 .4rem; }
p { margin: .5rem 0; max-width: 46rem; }
.lead, .note, figcaption { color: var(--soft); }
.note, figcaption { font-size: .9rem; }
.warning, .good { border-left: 4px solid #d55e00; padding: .6rem .9rem; margin: .7rem 0; max-width: 46rem; }
.warning { background: #fdf3ec; }
.good { border-color: #009e73; background: #edf7f3; }
.warning ul, .good ul { margin: 0; padding-left: 1.2rem; max-width: none; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; margin: .6rem 0; }
th, td { padding: .32rem .9rem .32rem 0; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
td + td { white-space: nowrap; }
td.text, th.text { text-align: left; }
td + td.text { white-space: normal; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; }
pre, code { font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; font-size: .88rem; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; }
pre { overflow-x: auto; }
ul { margin: .5rem 0; padding-left: 1.3rem; max-width: 46rem; }
li { margin: .2rem 0; }
h1, p, li, figcaption { overflow-wrap: anywhere; }
.plot { width: 100%; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--accent); }
math { font-family: "Cambria Math", "STIX Two Math", "Latin Modern Math", "DejaVu Math TeX Gyre", math; }
math { font-size: 1.12rem; }
mfrac > * { padding: .14em .1em; }
.equations { display: grid; gap: .7rem; margin: .8rem 0; padding: .3rem 0; overflow-x: auto; }
.equations > div { display: flex; align-items: center; gap: 1.2rem; }
.equations .number { color: var(--soft); font-size: .9rem; min-width: 1.6rem; }
.equations math { margin: 0; width: max-content; }
.parameter { color: var(--accent); }
.word { font-style: italic; }
@media (max-width: 40rem) {
  main { padding: 1.4rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  table { font-size: .8rem; }
  th, td { padding-right: .5rem; }
  th:last-child, td:last-child { padding-right: 0; }
  td + td { white-space: normal; }
}
@media print {
  main { max-width: none; padding: 0; }
  h2 { break-after: avoid; }
  figure, table { break-inside: avoid; }
  pre { white-space: pre-wrap; }
  .modebar-container { display: none; }
}
"""


#: Fingers scroll the page and do not zoom; paper has its own width.
_START = """
const plots = [...document.querySelectorAll(".plot")];
for (const place of plots) {
  const figure = JSON.parse(document.getElementById(place.id + "-data").textContent);
  if (matchMedia("(pointer: coarse)").matches) figure.layout.dragmode = false;
  if (matchMedia("(max-width: 40rem)").matches) figure.config.displayModeBar = false;
  Plotly.newPlot(place, figure.data, figure.layout, figure.config);
}
addEventListener("beforeprint", () => plots.forEach((place) => Plotly.relayout(place, { width: 680 })));
addEventListener("afterprint", () => plots.forEach((place) => Plotly.relayout(place, { width: null, autosize: true })));
"""
_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "plotlyServerURL": "",
    "responsive": True,
    "showSendToCloud": False,
    "typesetMath": False,
}


def plot_text(text: str) -> str:
    """Return text as a label of a plot, escaped where Plotly would read tags, or ``%{...}`` as a value.

    Examples
    --------
    >>> plot_text("<b>m/s</b> %{x}")
    '&lt;b&gt;m/s&lt;/b&gt; %&#123;x}'
    """
    return escape(text, quote=False).replace("{", "&#123;")


def _plotly_script() -> str:
    """Return the text of plotly.js: its basic bundle, which is part of this package (see docs/dependencies.md)."""
    text = (files("lodekit") / "assets" / "plotly-basic.min.js").read_text(encoding="utf-8")
    return text.replace("</script", "<\\/script")


class Page:
    """An HTML page that grows section by section; text is escaped unless its argument is called `html`.

    Parameters
    ----------
    title : str
        Of the window, and at the top of the page.
    lead : str
        What stands below it; nothing where empty.

    Examples
    --------
    >>> page = Page("Tanks & pipes", "Two tanks")
    >>> page.section("Result")
    >>> page.table(["name", "value"], [["a < b", "3"]])
    >>> "a &lt; b" in page.text() and "<h1>Tanks &amp; pipes</h1>" in page.text()
    True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self.title = title
        self._head: list[str] = []
        self._plots = 0
        self._body = [f"<h1>{escape(title)}</h1>"]
        if lead:
            self._body.append(f'<p class="lead">{escape(lead)}</p>')

    def head(self, html: str) -> None:
        """Add HTML to the head of the page, as it is: scripts and styles."""
        self._head.append(html)

    def html(self, html: str) -> None:
        """Add HTML to the body of the page, as it is."""
        self._body.append(html)

    def section(self, title: str, level: int = 2) -> None:
        """Add the heading of a section with a `title`; its `level` is 1 to 6."""
        self._body.append(f"<h{level}>{escape(title)}</h{level}>")

    def paragraph(self, text: str, kind: str = "") -> None:
        """Add a `text` as a paragraph; its `kind` is lead, note, warning, good, or empty."""
        self._body.append(cards.paragraph(text, kind))

    def items(self, texts: Iterable[str], kind: str = "") -> None:
        """Add `texts` as a list; its `kind` is warning, good, or empty."""
        listed = cards.listed(texts)
        self._body.append(f'<div class="{kind}">{listed}</div>' if kind else listed)

    def details(self, summary: str, html: str) -> None:
        """Add `html` that stays folded under a `summary` until the reader asks for it."""
        self._body.append(f"<details><summary>{escape(summary)}</summary>{html}</details>")

    def code(self, text: str) -> None:
        """Add text in which every space counts."""
        self._body.append(f"<pre>{escape(text)}</pre>")

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = ()) -> None:
        """Add a table with a `head` and `rows`; the columns numbered in `text` hold words and not numbers.

        Columns in which nothing stands are left out.
        """
        self._body.append(cards.table(head, rows, text))

    def image(self, png: bytes, caption: str) -> None:
        """Add a picture with a `caption`; the bytes of the `png` become part of the page."""
        source = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
        self._body.append(
            f'<figure><img src="{source}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
        )

    def plot(self, data: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], caption: str) -> None:
        """Add an interactive plot.

        Plotly's script becomes part of the page, once.

        Parameters
        ----------
        data : sequence of dict
            Traces, as Plotly wants them.
        layout : dict
            Has a height, and `plot_text` has made every label in it.
        caption : str
            What stands below the plot.
        """
        self._plots += 1
        name = f"plot-{self._plots}"
        content = json.dumps({"data": data, "layout": layout, "config": _CONFIG}, allow_nan=False)
        content = content.replace("<", "\\u003c")
        self._body.append(
            f'<figure><div class="plot" id="{name}" style="min-height:{layout["height"]}px"></div>'
            f'<script type="application/json" id="{name}-data">{content}</script>'
            "<noscript><p>This plot needs JavaScript.</p></noscript>"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def text(self) -> str:
        """Return the whole page as HTML."""
        scripts = [f"<script>{_plotly_script()}</script>", f"<script>{_START}</script>"] if self._plots else []
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{_STYLE}</style>",
                *self._head,
                "</head>\n<body>\n<main>",
                *self._body,
                "</main>",
                *scripts,
                "</body>\n</html>\n",
            ]
        )
