"""The page is one file that fetches nothing, and text stays text."""

import json
import re
from html.parser import HTMLParser

import pytest

from lodekit.support.html import HtmlPage, escape_plotly

HOSTILE = """</script><script>alert(1)</script><a href="http://evil.example">x</a> %{y} $x$ & "quoted" 'too'"""


class Reader(HTMLParser):
    """Collects tags with their attributes, and text by the tag around it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open, data))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def assert_offline(page: str) -> None:
    reader = Reader(page)
    for tag, attributes in reader.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        for key in ("src", "href", "data", "action", "srcset", "poster"):
            assert (attributes.get(key) or "data:").startswith(("data:", "#")), (tag, attributes)
    for style in (text for tag, text in reader.texts if tag == "style"):
        assert "@import" not in style
        assert "url(" not in style
    policy = next(a["content"] for tag, a in reader.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "form-action 'none'" in policy
    assert "http" not in policy


def full_page() -> HtmlPage:
    page = HtmlPage(HOSTILE, HOSTILE)
    page.add_section(HOSTILE)
    page.add_paragraph(HOSTILE)
    page.add_paragraph(HOSTILE, "warning")
    page.add_list([HOSTILE, "b"], "warning")
    page.add_code(HOSTILE)
    page.add_table([HOSTILE, "n"], [[HOSTILE, "1"]], text_columns=(0,))
    page.add_image(b"png", HOSTILE)
    page.add_details(HOSTILE, "<p>inside</p>")
    for _ in range(2):
        page.add_plot(
            [{"type": "scatter", "name": HOSTILE, "x": [0], "y": [1]}],
            {"height": 200, "title": {"text": escape_plotly(HOSTILE)}},
            HOSTILE,
        )
    return page


def test_text_of_users_never_becomes_markup() -> None:
    reader = Reader(full_page().to_html())
    assert reader.count("a") == 0
    # Two plots with their data, plotly.js, and what starts it.
    assert reader.count("script") == 4
    assert ("h1", HOSTILE) in [(tag, text) for tag, text in reader.texts if tag == "h1"]
    assert not any("onerror" in attributes or "onload" in attributes for _, attributes in reader.tags)


def test_nothing_is_fetched() -> None:
    assert_offline(full_page().to_html())


def test_plotly_is_there_once_and_only_where_it_is_needed() -> None:
    with_plots, without = full_page().to_html(), HtmlPage("Words").to_html()
    assert with_plots.count("plotly.js (basic - minified) v") == 1
    assert "<script" not in without
    assert len(without) < 10_000


def test_data_of_a_plot_come_back_unchanged() -> None:
    found = re.findall(
        r'<script type="application/json" id="plot-\d-data">(.*?)</script>', full_page().to_html(), re.DOTALL
    )
    assert len(found) == 2
    content = json.loads(found[0])
    assert content["data"][0]["name"] == HOSTILE
    assert content["config"]["showSendToCloud"] is False


def test_labels_of_plots_hold_no_tags_and_no_templates() -> None:
    shown = escape_plotly(HOSTILE)
    assert "<" not in shown
    assert ">" not in shown
    assert "%{" not in shown


def test_numbers_that_json_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        HtmlPage("x").add_plot([{"y": [float("nan")]}], {"height": 100}, "")


def test_pages_are_the_same_byte_for_byte() -> None:
    assert full_page().to_html() == full_page().to_html()
