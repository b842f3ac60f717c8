"""Small pieces of HTML: notebooks show them in the place of a repr, and pages are made of them.

One self-contained HTML page: style, tables and figures inside, nothing fetched.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

#: The colours and lines of reports; text and ground are those of the notebook, which may be dark.
_CARD_STYLE = """
.lodekit { font: 14px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; max-width: 46rem; padding: .2rem 0; }
.lodekit .title { font-weight: 600; }
.lodekit .soft { opacity: .7; }
.lodekit p { margin: .3rem 0; }
.lodekit ul { margin: .3rem 0; padding-left: 1.2rem; }
.lodekit .wide { overflow-x: auto; }
.lodekit table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; margin: .4rem 0; }
.lodekit th, .lodekit td { padding: .2rem .9rem .2rem 0; text-align: right; vertical-align: top; background: none; }
.lodekit th, .lodekit td { border: 0; border-bottom: 1px solid rgba(128, 128, 128, .35); }
.lodekit th { font-weight: 600; opacity: .7; }
.lodekit th:first-child, .lodekit td:first-child, .lodekit td.text, .lodekit th.text { text-align: left; }
.lodekit .warning { border-left: 4px solid #d55e00; padding: .2rem .7rem; }
.lodekit math { font-size: 1.1em; margin: .25rem 0; width: max-content; }
.lodekit .parameter { color: #0072b2; color: light-dark(#0072b2, #56b4e9); }
.lodekit .word { font-style: italic; }
.lodekit summary { cursor: pointer; opacity: .7; }
"""


def notebook_card(title: str, lead: str = "", parts: Iterable[str] = ()) -> str:
    """Return HTML for a notebook: a title, what it is about, and what is to be shown.

    Examples
    --------
    >>> "x &lt; y" in notebook_card("Tanks", "x < y")
    True
    """
    about = f' <span class="soft">{escape(lead)}</span>' if lead else ""
    body = "".join(part for part in parts if part)
    style = "".join(line for line in _CARD_STYLE.splitlines() if line)
    head = f'<p><span class="title">{escape(title)}</span>{about}</p>'
    return f'<div class="lodekit"><style>{style}</style>{head}{body}</div>'


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Sequence[int] = ()) -> str:
    """Return a table as HTML, without columns in which nothing stands.

    Examples
    --------
    >>> html_table(["name", "value", "note"], [["a", "3", ""]]).count("<th")
    3
    """
    every = [list(line) for line in rows]
    used = [column for column in range(len(header)) if not every or any(line[column] for line in every)]

    def cells(tag: str, line: Sequence[str]) -> str:
        marks = (' class="text"' if column in text_columns else "" for column in used)
        found = (f"<{tag}{mark}>{escape(line[column])}</{tag}>" for column, mark in zip(used, marks, strict=True))
        return f"<tr>{''.join(found)}</tr>"

    body = "".join(cells("td", line) for line in every)
    return f'<div class="wide"><table><thead>{cells("th", header)}</thead><tbody>{body}</tbody></table></div>'


def html_paragraph(text: str, kind: str = "soft") -> str:
    """Return a paragraph as HTML; nothing for no text."""
    return f"{_opening_tag('p', kind)}{escape(text)}</p>" if text else ""


def html_list(texts: Iterable[str], kind: str = "") -> str:
    """Return texts as a list in HTML; nothing where there are none."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"{_opening_tag('ul', kind)}{items}</ul>" if items else ""


def _opening_tag(tag: str, kind: str) -> str:
    return f'<{tag} class="{kind}">' if kind else f"<{tag}>"


#: The page may run what is inside it, and fetch nothing.
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)

_PAGE_STYLE = """
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
_PLOT_SCRIPT = """
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
_PLOTLY_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "plotlyServerURL": "",
    "responsive": True,
    "showSendToCloud": False,
    "typesetMath": False,
}


def escape_plotly(text: str) -> str:
    """Return text as a label of a plot, escaped where Plotly would read tags, or ``%{...}`` as a value.

    Examples
    --------
    >>> escape_plotly("<b>m/s</b> %{x}")
    '&lt;b&gt;m/s&lt;/b&gt; %&#123;x}'
    """
    return escape(text, quote=False).replace("{", "&#123;")


def _plotly_script() -> str:
    """Return the text of plotly.js: its basic bundle, which is part of this package (see docs/dependencies.md)."""
    text = (files("lodekit") / "assets" / "plotly-basic.min.js").read_text(encoding="utf-8")
    return text.replace("</script", "<\\/script")


class HtmlPage:
    """An HTML page that grows section by section; text is escaped unless its argument is called `add_html`.

    title: Of the window, and at the top of the page.
    lead: What stands below it; nothing where empty.

    Examples
    --------
    >>> page = HtmlPage("Tanks & pipes", "Two tanks")
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

    def add_to_head(self, html: str) -> None:
        """Add HTML to the head of the page, as it is: scripts and styles."""
        self._head.append(html)

    def add_html(self, html: str) -> None:
        """Add HTML to the body of the page, as it is."""
        self._body.append(html)

    def add_section(self, title: str, level: int = 2) -> None:
        """Add the heading of a section with a `title`; its `level` is 1 to 6."""
        self._body.append(f"<h{level}>{escape(title)}</h{level}>")

    def add_paragraph(self, text: str, kind: str = "") -> None:
        """Add a `text` as a paragraph; its `kind` is lead, note, warning, good, or empty."""
        self._body.append(html_paragraph(text, kind))

    def add_list(self, texts: Iterable[str], kind: str = "") -> None:
        """Add `texts` as a list; its `kind` is warning, good, or empty."""
        listed = html_list(texts)
        self._body.append(f'<div class="{kind}">{listed}</div>' if kind else listed)

    def add_details(self, summary: str, html: str) -> None:
        """Add `html` that stays folded under a `summary` until the reader asks for it."""
        self._body.append(f"<details><summary>{escape(summary)}</summary>{html}</details>")

    def add_code(self, text: str) -> None:
        """Add text in which every space counts."""
        self._body.append(f"<pre>{escape(text)}</pre>")

    def add_table(self, header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Sequence[int] = ()) -> None:
        """Add a table with a `header` and `rows`; the columns numbered in `text_columns` hold words and not numbers.

        Columns in which nothing stands are left out.
        """
        self._body.append(html_table(header, rows, text_columns))

    def add_image(self, png: bytes, caption: str) -> None:
        """Add a picture with a `caption`; the bytes of the `png` become part of the page."""
        source = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
        self._body.append(
            f'<figure><img src="{source}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
        )

    def add_plot(self, data: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], caption: str) -> None:
        """Add an interactive plot.

        Plotly's script becomes part of the page, once.
        """
        self._plots += 1
        name = f"plot-{self._plots}"
        content = json.dumps({"data": data, "layout": layout, "config": _PLOTLY_CONFIG}, allow_nan=False)
        content = content.replace("<", "\\u003c")
        self._body.append(
            f'<figure><div class="plot" id="{name}" style="min-height:{layout["height"]}px"></div>'
            f'<script type="application/json" id="{name}-data">{content}</script>'
            "<noscript><p>This plot needs JavaScript.</p></noscript>"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def to_html(self) -> str:
        """Return the whole page as HTML."""
        scripts = [f"<script>{_plotly_script()}</script>", f"<script>{_PLOT_SCRIPT}</script>"] if self._plots else []
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{_PAGE_STYLE}</style>",
                *self._head,
                "</head>\n<body>\n<main>",
                *self._body,
                "</main>",
                *scripts,
                "</body>\n</html>\n",
            ]
        )
