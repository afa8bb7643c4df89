"""Filled tables: what is bold, what is left out, and that console text, Markdown and HTML say the same."""

import math
import sys
from html.parser import HTMLParser

import pytest

from ghrq.report import template
from ghrq.report.grid import Block, Column, Grid, Row
from ghrq.report.results import Measured
from ghrq.system.errors import UserError

COLUMNS = (
    Column("recall", best="highest"),
    Column("error", spec=".3g", best="lowest"),
    Column("paper", aside=True),
)


class Cells(HTMLParser):
    """The rows of a table: texts, and which of them are bold."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.bold, self._open = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data
            if "strong" in self._open:
                self.bold.append(data)


def table(*rows, columns=COLUMNS, compete=True):
    return Grid("A | title", "A caption.", columns, [Block("recipe `best`", rows, compete)])


def markdown_rows(given):
    lines = [line for line in given.markdown().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_spread_is_the_deviation_of_a_sample_and_shown_only_where_there_is_one():
    assert Measured((80.0, 82.0, 84.0)).show(".1f") == "82.0 ± 2.0"
    assert Measured((82.0,)).show(".1f") == "82.0"
    assert Measured((82.0, 82.0)).show("+.1f") == "+82.0 ± 0.0"
    assert Measured((1e-30, 3e-30)).show(".3g") == "2e-30 ± 1.4e-30"
    assert Measured().show(".1f") == "–"
    assert math.isnan(Measured().mean)


def test_what_is_not_a_number_does_not_count():
    assert Measured.of([None, math.nan, 1.0, 3, "4", True], 2.0).values == (2.0, 6.0)
    assert not Measured.of([None, math.inf])


def test_the_best_of_a_block_is_bold_with_all_that_look_the_same():
    rows = markdown_rows(
        table(
            Row("a", [Measured((80.0,)), Measured((0.5, 0.7)), Measured((1.0,))]),
            Row("b", [Measured((80.04,)), Measured((0.2,)), Measured((9.0,))]),
            Row("c", [Measured((79.0,)), None, None], note="1 of 2 diverged"),
        )
    )
    assert rows[3:] == [
        ["a", "**80.0**", "0.6 ± 0.14", "1.0"],
        ["b", "**80.0**", "**0.2**", "9.0"],
        ["c (1 of 2 diverged)", "79.0", "–", "–"],
    ]


def test_nothing_is_bold_alone_or_without_competition():
    one = Row("a", [Measured((80.0,)), Measured((0.5,)), Measured((1.0,))])
    other = Row("b", [Measured((70.0,)), Measured((0.4,)), Measured((1.0,))])
    assert "**8" not in table(one).markdown()
    assert "**8" not in table(one, other, compete=False).markdown()
    assert "**80.0**" in table(one, other).markdown()


def test_blocks_compete_apart_and_columns_to_compare_with_show_no_spread():
    blocks = [
        Block(title, [Row("a", [Measured((high, high + 1)), None, Measured((1.0, 3.0))]), Row("b", [low, None, None])])
        for title, high, low in (("x", 80.0, Measured((10.0,))), ("y", 50.0, Measured((60.0,))))
    ]
    rows = markdown_rows(Grid("t", "c", COLUMNS, blocks))
    assert rows[0] == ["", "recall", "paper"], "the column without any number is left out"
    assert rows[3:5] == [["a", "**80.5 ± 0.7**", "2.0"], ["b", "10.0", "–"]]
    assert rows[6:8] == [["a", "50.5 ± 0.7", "2.0"], ["b", "**60.0**", "–"]]


def test_html_says_what_markdown_says():
    given = table(
        Row("a <b>", [Measured((80.0,)), "diverged", Measured((1.0,))], "#0072b2"),
        Row("c", [Measured((81.0, 83.0)), Measured((0.2,)), None]),
        Row("d", [Measured((9.0,)), Measured((0.1,)), None]),
    )
    html = Cells(given.html())
    markdown = markdown_rows(given)
    plain = [[cell.strip("*").replace("`", "") for cell in row] for row in (markdown[0], *markdown[2:])]
    assert [row[0].strip() for row in html.rows] == [row[0].replace("**", "") for row in plain]
    assert [row[1:] for row in html.rows if len(row) > 1] == [row[1:] for row in plain if any(row[1:])]
    assert html.bold == ["82.0 ± 1.4", "0.1"]
    assert "<b>" not in given.html()
    assert "a &lt;b&gt;" in given.html()


def test_a_bar_in_a_cell_does_not_break_the_table():
    assert "| a \\| b |" in table(Row("a | b", [Measured((1.0,)), None, None])).markdown()


def test_an_entry_too_few_is_an_error():
    with pytest.raises(ValueError, match=r"row 'a' of table .* has 1 entries, expected 3"):
        table(Row("a", [None]))


def test_console_text_is_aligned_and_marks_the_best():
    given = table(Row("a", [Measured((80.0,)), None, None]), Row("longer", [Measured((9.0, 11.0)), None, None]))
    assert given.text().splitlines() == [
        "A | title",
        "",
        "                   recall",
        "*recipe best*",
        "a                  *80.0*",
        "longer         10.0 ± 1.4",
    ]


def test_console_text_wraps_headings_and_no_entries():
    columns = [Column("Fréchet distance, classifier"), Column("MSE × 1000")]
    rows = [Row("GHRQ", [Measured((1234.5, 1234.5)), Measured((5.0,))])]
    assert Grid("A title", "", columns, [Block("", rows)]).text().splitlines()[2:] == [
        "           Fréchet  MSE × 1000",
        "         distance,",
        "        classifier",
        "GHRQ  1234.5 ± 0.0         5.0",
    ]


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**a** *b* `c` <d>", "<strong>a</strong> <em>b</em> <code>c</code> &lt;d&gt;"),
        ("**Bold.** r_N and 2*3*4", "<strong>Bold.</strong> r_N and 2<em>3</em>4"),
        ('<script>x</script> &amp; "q"', "&lt;script&gt;x&lt;/script&gt; &amp;amp; &quot;q&quot;"),
        ("![x](http://a.b/c.png) [y](http://a.b)", "![x](http://a.b/c.png) [y](http://a.b)"),
        ("`a < b`", "<code>a &lt; b</code>"),
    ],
)
def test_markdown_is_bold_emphasis_and_code_and_all_else_is_text(text, html):
    assert template.inline_markdown(text) == html


@pytest.mark.parametrize(("module", "cached"), [("jinja2", "_environment"), ("markdown_it", "_markdown")])
def test_without_a_package_the_extra_is_named(module, cached, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    getattr(template, cached).cache_clear()
    with pytest.raises(UserError, match=rf"{module}.*ghrq\[train\]"):
        table(Row("a", [None] * 3)).html()
    monkeypatch.undo()
    assert "<table>" in table(Row("a", [None] * 3)).html()
