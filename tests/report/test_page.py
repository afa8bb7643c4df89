"""The page: one file, whole in itself."""

import re
from html.parser import HTMLParser

from ghrq.report.examples import Example, Examples
from ghrq.report.figures import ChartBar, Gallery, bars
from ghrq.report.grid import Block, Column, Grid, Row
from ghrq.report.page import Page, PageSection
from ghrq.report.results import Measured

VOID = {"meta", "link", "br", "img", "input"}


class Balanced(HTMLParser):
    """Every tag is closed in its turn; collects links and loads."""

    def __init__(self, html):
        super().__init__()
        self.open, self.links, self.loads, self.ids = [], [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.loads += [given[name] for name in ("src", "href", "xlink:href") if tag != "a" and name in given]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def example():
    return Example("dog <1>", "a member & more", [43, 114, 81, 10], [["wolf", "fox"], ["wolf"], []])


def whole_page():
    table = Grid("T", "c", [Column("x")], [Block("", [Row("a", [Measured((1.0,))])])])
    figure = bars("f", "F", "c", "x", [ChartBar("ghrq", Measured((50.0,)))], "m", {})
    sections = [
        PageSection("Numbers", [table, None, Gallery([figure])], ("With **words**.",)),
        PageSection("Empty", [Gallery([]), None]),
        PageSection("To look at", [Examples("GHRQ `best`", [example()])]),
    ]
    return Page("A & title", "below", ["**First.** 1 < 2"], sections).html()


def test_the_page_is_well_formed_and_loads_nothing():
    parsed = Balanced(whole_page())
    assert all(load.startswith(("#", "data:")) for load in parsed.loads)
    assert not re.search(r"@import|url\((?!#)", whole_page())
    assert {link.removeprefix("#") for link in parsed.links} == {"section-1", "section-2"} <= set(parsed.ids)


def test_text_is_escaped_once_and_empty_sections_are_left_out():
    html = whole_page()
    assert "<title>A &amp; title</title>" in html
    assert "<strong>First.</strong> 1 &lt; 2" in html
    assert "&amp;lt;" not in html
    assert "Empty" not in html
    assert html.index("With <strong>words</strong>.") < html.index("<table>") < html.index("<svg")


def test_the_page_is_for_phones_and_dark_rooms():
    html = whole_page()
    assert 'name="viewport"' in html
    assert "prefers-color-scheme: dark" in html
    assert "overflow-x: auto" in html


def test_an_example_shows_each_depth_with_its_codes():
    html = example().html()
    rows = re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", html, re.DOTALL)
    codes = [re.findall(r">([\d·]+)<", row) for row, _ in rows]
    assert codes == [["43", "·", "·", "·"], ["43", "114", "·", "·"], ["43", "114", "81", "·"]]
    names = [re.sub(r"<[^>]+>", "", names) for _, names in rows]
    assert names == ["wolf; fox", "wolf", "no other"]
    assert "dog &lt;1&gt;" in html
    assert "a member &amp; more" in html
