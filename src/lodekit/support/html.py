"""HTML for notebooks and for self-contained report pages, which load nothing from the network."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any


@cache
def read_asset(name: str) -> str:
    """Return the text of a file in the folder ``assets`` of this package (see docs/dependencies.md)."""
    return (files("lodekit") / "assets" / name).read_text(encoding="utf-8")


def replace_advice(content: Any, asset: str) -> Any:
    """Return messages, also in lists and dicts, with advice for another interface.

    Each line of the asset has a pattern and its replacement.
    """
    if isinstance(content, dict):
        return {name: replace_advice(value, asset) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [replace_advice(value, asset) for value in content]
    for line in read_asset(asset).splitlines() if isinstance(content, str) else ():
        pattern, _, advice = line.partition(" =>")
        content = re.sub(pattern, advice.removeprefix(" "), content)
    return content


def read_glossary() -> list[tuple[str, str]]:
    """Return the terms that users see, with their meanings in plain words.

    Examples
    --------
    >>> dict(read_glossary())["nat"]
    'the unit of the log evidence; one nat is a factor of 2.7 in probability.'
    """
    pairs = (line.partition(": ") for line in read_asset("glossary.txt").splitlines())
    return [(term, meaning) for term, _, meaning in pairs]


def glossary_html() -> str:
    """Return the terms that users see with their meanings, collapsed."""
    terms = html_list(f"{term}: {meaning}" for term, meaning in read_glossary())
    return f"<details><summary>What the terms mean</summary>{terms}</details>"


def notebook_card(title: str, lead: str = "", parts: Iterable[str] = ()) -> str:
    """Return the HTML representation of an object in a notebook: title, subtitle and content.

    Examples
    --------
    >>> "x &lt; y" in notebook_card("Tanks", "x < y")
    True
    """
    about = f' <span class="soft">{escape(lead)}</span>' if lead else ""
    style = read_asset("notebook.css").replace("\n", "")
    head = f'<p><span class="title">{escape(title)}</span>{about}</p>'
    return f'<div class="lodekit"><style>{style}</style>{head}{"".join(parts)}</div>'


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Sequence[int] = ()) -> str:
    """Return a table as HTML; empty columns are omitted.

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
    """Return a paragraph as HTML; empty text gives nothing."""
    return f"{_opening_tag('p', kind)}{escape(text)}</p>" if text else ""


def html_list(texts: Iterable[str], kind: str = "") -> str:
    """Return a bulleted list as HTML; an empty list gives nothing."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"{_opening_tag('ul', kind)}{items}</ul>" if items else ""


def _opening_tag(tag: str, kind: str) -> str:
    return f'<{tag} class="{kind}">' if kind else f"<{tag}>"


#: The page may run its embedded scripts, and load nothing.
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)


#: Configuration of Plotly plots; nothing is uploaded.
PLOTLY_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "plotlyServerURL": "",
    "responsive": True,
    "showSendToCloud": False,
    "typesetMath": False,
}


def escape_plotly(text: str) -> str:
    """Return text escaped for a Plotly label, which may contain tags and ``%{...}`` templates.

    Examples
    --------
    >>> escape_plotly("<b>m/s</b> %{x}")
    '&lt;b&gt;m/s&lt;/b&gt; %&#123;x}'
    """
    return escape(text, quote=False).replace("{", "&#123;")


class HtmlPage:
    """An HTML page built section by section; all text is escaped except in `add_html`.

    title: The window title and top heading.
    lead: The subtitle; may be empty.
    style: Additional CSS.
    advice: The asset of `replace_advice` for paragraphs and lists; empty for none.

    Examples
    --------
    >>> page = HtmlPage("Tanks & pipes", "Two tanks")
    >>> page.add_section("Result")
    >>> page.add_table(["name", "value"], [["a < b", "3"]])
    >>> "a &lt; b" in page.to_html() and "<h1>Tanks &amp; pipes</h1>" in page.to_html()
    True
    """

    def __init__(self, title: str, lead: str = "", style: str = "", advice: str = "") -> None:
        self.title, self._style, self._advice = title, style, advice
        self._plots = 0
        self._body = [f"<h1>{escape(title)}</h1>"]
        if lead:
            self._body.append(f'<p class="lead">{escape(lead)}</p>')

    def add_html(self, html: str) -> None:
        """Add unescaped HTML to the body of the page."""
        self._body.append(html)

    def add_section(self, title: str, level: int = 2) -> None:
        """Add the heading of a section with a `title`; its `level` is 1 to 6."""
        self._body.append(f"<h{level}>{escape(title)}</h{level}>")

    def insert_contents(self, place: int) -> None:
        """Insert links to all sections so far before a `place` of the body."""
        links = []
        for number, part in enumerate(self._body):
            if part.startswith("<h2>"):
                self._body[number] = part.replace("<h2>", f'<h2 id="section-{number}">', 1)
                links.append(f'<a href="#section-{number}">{part[4:-5]}</a>')
        self._body.insert(place, f'<nav class="note" aria-label="Contents">{" · ".join(links)}</nav>')

    def adapt(self, text: str) -> str:
        """Return a text with advice for the readers of the page."""
        return str(replace_advice(text, self._advice)) if self._advice else text

    def add_paragraph(self, text: str, kind: str = "") -> None:
        """Add a `text` as a paragraph; its `kind` is lead, note, warning, good, or empty."""
        self._body.append(html_paragraph(self.adapt(text), kind))

    def add_list(self, texts: Iterable[str], kind: str = "") -> None:
        """Add `texts` as a list; its `kind` is warning, good, or empty."""
        listed = html_list(map(self.adapt, texts))
        self._body.append(f'<div class="{kind}">{listed}</div>' if kind else listed)

    def add_details(self, summary: str, html: str) -> None:
        """Add `html` in a collapsed section with a `summary`."""
        self._body.append(f"<details><summary>{escape(summary)}</summary>{html}</details>")

    def add_code(self, text: str) -> None:
        """Add preformatted text."""
        self._body.append(f"<pre>{escape(text)}</pre>")

    def add_table(self, header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Sequence[int] = ()) -> None:
        """Add a table with a `header` and `rows`; `text_columns` are left-aligned, and empty columns are omitted."""
        self._body.append(html_table(header, rows, text_columns))

    def add_image(self, png: bytes, caption: str) -> None:
        """Add a PNG image with a `caption`, embedded in the page."""
        source = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
        text = escape(caption)
        self._body.append(f'<figure><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>')

    def add_plot(self, data: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], caption: str) -> None:
        """Add an interactive plot; the page embeds the Plotly script once."""
        self._plots += 1
        name = f"plot-{self._plots}"
        content = json.dumps({"data": data, "layout": layout, "config": PLOTLY_CONFIG}, allow_nan=False)
        content = content.replace("<", "\\u003c")
        self._body.append(
            f'<figure><div class="plot" id="{name}" style="min-height:{layout["height"]}px"></div>'
            f'<script type="application/json" id="{name}-data">{content}</script>'
            "<noscript><p>This plot needs JavaScript.</p></noscript>"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def to_html(self) -> str:
        """Return the whole page as HTML."""
        scripts = []
        if self._plots:
            plotly = read_asset("plotly-basic.min.js").replace("</script", "<\\/script")
            scripts = [f"<script>{plotly}</script>", f"<script>\n{read_asset('plots.js')}</script>"]
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title>",
                f"<style>\n{read_asset('page.css')}</style>",
                *([f"<style>{self._style}</style>"] if self._style else []),
                "</head>\n<body>\n<main>",
                *self._body,
                "</main>",
                *scripts,
                "</body>\n</html>\n",
            ]
        )
