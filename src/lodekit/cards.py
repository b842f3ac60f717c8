"""Small pieces of HTML: notebooks show them in the place of a repr, and pages are made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["card", "listed", "paragraph", "table"]

#: The colours and lines of reports; text and ground are those of the notebook, which may be dark.
_STYLE = """
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


def card(title: str, lead: str = "", parts: Iterable[str] = ()) -> str:
    """Return HTML for a notebook: a title, what it is about, and what is to be shown.

    Parameters
    ----------
    title : str
        Escaped here.
    lead : str
        What follows the title, escaped here.
    parts : iterable of str
        HTML, as it is; what is empty is left out.

    Examples
    --------
    >>> "x &lt; y" in card("Tanks", "x < y")
    True
    """
    about = f' <span class="soft">{escape(lead)}</span>' if lead else ""
    body = "".join(part for part in parts if part)
    style = "".join(line for line in _STYLE.splitlines() if line)
    head = f'<p><span class="title">{escape(title)}</span>{about}</p>'
    return f'<div class="lodekit"><style>{style}</style>{head}{body}</div>'


def table(head: Sequence[str], lines: Iterable[Sequence[str]], text: Sequence[int] = ()) -> str:
    """Return a table as HTML, without columns in which nothing stands.

    Parameters
    ----------
    head : sequence of str
        Escaped here, as are all cells.
    lines : iterable of sequence of str
    text : sequence of int
        Which columns hold words, and not numbers.

    Examples
    --------
    >>> table(["name", "value", "note"], [["a", "3", ""]]).count("<th")
    3
    """
    every = [list(line) for line in lines]
    used = [column for column in range(len(head)) if not every or any(line[column] for line in every)]

    def cells(tag: str, line: Sequence[str]) -> str:
        marks = (' class="text"' if column in text else "" for column in used)
        found = (f"<{tag}{mark}>{escape(line[column])}</{tag}>" for column, mark in zip(used, marks, strict=True))
        return f"<tr>{''.join(found)}</tr>"

    body = "".join(cells("td", line) for line in every)
    return f'<div class="wide"><table><thead>{cells("th", head)}</thead><tbody>{body}</tbody></table></div>'


def paragraph(text: str, kind: str = "soft") -> str:
    """Return a paragraph as HTML; nothing for no text.

    Parameters
    ----------
    text : str
        Escaped here.
    kind : str
        Soft, warning, or another one that the style around it knows; none where empty.
    """
    return f"{_begin('p', kind)}{escape(text)}</p>" if text else ""


def listed(texts: Iterable[str], kind: str = "") -> str:
    """Return texts as a list in HTML; nothing where there are none.

    Parameters
    ----------
    texts : iterable of str
        Escaped here.
    kind : str
        As that of a paragraph.
    """
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"{_begin('ul', kind)}{items}</ul>" if items else ""


def _begin(tag: str, kind: str) -> str:
    return f'<{tag} class="{kind}">' if kind else f"<{tag}>"
