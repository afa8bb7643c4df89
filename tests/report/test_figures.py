"""Figures: files that any reader of SVG takes, and their place on a page."""

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from ghrq import quantizer
from ghrq.report.figures import GRID, INK, PALE, PAPER, ChartBar, ChartLine, Gallery, bars, lines
from ghrq.report.kinds import KINDS
from ghrq.report.results import Measured
from ghrq.system.errors import UserError

SVG = "{http://www.w3.org/2000/svg}"


def some_bars(name="recall"):
    given = [
        ChartBar("ghrq", Measured((80.0, 82.0)), Measured((90.0,))),
        ChartBar("naive", Measured((70.0,)), Measured((95.0,))),
        ChartBar("random", Measured((42.0,))),
    ]
    limits = {"composition": Measured((84.5,)), "popularity": Measured((44.4,))}
    return bars(name, "Found", "A *caption*.", "Recall, %", given, "by tuples", limits)


def some_lines(name="error", **options):
    given = [
        ChartLine("ghrq", [1, 2, 3], [Measured((9.0, 8.0)), Measured((1.0, 1.1)), Measured((0.1, 0.11))]),
        ChartLine("euclidean", [1, 2, 3], [Measured((v,)) for v in (5.0, 2.0, 1.0)], note=" (flat)"),
    ]
    return lines(name, "Error", "Another.", ("codes", "d²(ẑ, z)"), given, **options)


def texts(figure):
    return ["".join(node.itertext()).strip() for node in ElementTree.fromstring(figure.svg).iter(f"{SVG}text")]


def test_bars_tell_their_numbers_in_the_colours_of_their_kinds():
    figure = some_bars()
    assert {"GHRQ", "81.0 ± 1.4", "naive hyperbolic", "70.0", "random codes", "42.0"} <= set(texts(figure))
    assert {"by tuples", "composition 84.5", "popularity 44.4", "Found", "Recall, %"} <= set(texts(figure))
    for kind in ("ghrq", "naive", "random"):
        assert KINDS[kind].colour in figure.svg
    assert KINDS["euclidean"].colour not in figure.svg


def test_bars_are_as_long_as_their_numbers():
    """Ends of the bars, in the units of the figure, lie on one line with the numbers."""
    ends = []
    for kind in ("ghrq", "naive", "random"):
        path = re.search(rf'<path d="([^"]*)"[^>]*style="fill: {KINDS[kind].colour}', some_bars().svg)
        corners = [float(x) for x in re.findall(r"[ML] ([\d.]+) ", path[1])]
        ends.append(max(corners) - min(corners))
    assert ends[0] / ends[1] == pytest.approx(81 / 70, rel=1e-3)
    assert ends[2] / ends[1] == pytest.approx(42 / 70, rel=1e-3)


def test_lines_are_named_and_those_unlike_the_others_dashed():
    figure = some_lines(log=True, depths=True)
    assert {"GHRQ", "Euclidean (flat)", "codes", "d²(ẑ, z)", "1", "2", "3"} <= set(texts(figure))
    dashed = re.findall(r'<path d="[^"]*"[^>]*style="([^"]*stroke-dasharray[^"]*)"', figure.svg)
    assert dashed
    assert all(KINDS["euclidean"].colour in style for style in dashed)


def test_names_that_are_no_kind_have_colours_of_their_own():
    given = [ChartLine(name, [1, 2], [Measured((1.0,)), Measured((2.0,))]) for name in ("small", "large")]
    figure = lines("sizes", "Sizes", "", ("epoch", "loss"), given)
    assert {"small", "large"} <= set(texts(figure))
    assert sum(look.colour in figure.svg for look in KINDS.values()) == 2


def test_every_kind_of_quantizer_has_a_look():
    assert set(quantizer.KINDS) < set(KINDS)


def test_the_same_figure_is_the_same_file(tmp_path):
    path = some_lines().save(tmp_path)
    assert path == tmp_path / "error.svg"
    assert path.read_text("utf-8") == some_lines().svg
    assert [entry.name for entry in tmp_path.iterdir()] == ["error.svg"]


def test_on_a_page_figures_share_no_identifier_and_follow_the_theme():
    html = Gallery([some_bars("one"), some_bars("two"), some_lines("three", depths=True)]).html()
    ids = re.findall(r'\bid="([^"]+)"', html)
    used = re.findall(r'(?:url\(|href=")#([^")]+)', html)
    assert len(ids) == len(set(ids))
    assert used
    assert set(used) <= set(ids)
    assert not any(colour in html for colour in (INK, PALE, GRID, PAPER))
    assert {"--ink", "--paper", "--grid"} <= set(re.findall(r"var\((--\w+)\)", html))
    assert "<?xml" not in html
    assert "A <em>caption</em>." in html


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"matplotlib.*ghrq\[train\]"):
        some_bars()
