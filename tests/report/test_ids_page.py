"""The page on semantic IDs: one file, the numbers of its Quality, and only what was measured."""

import re

import matplotlib as mpl
import numpy as np
import pytest
import torch
from test_page import Balanced

import ghrq
from ghrq.metrics.quality import quality
from ghrq.report import ids_figures
from ghrq.report.figures import PALE, STYLE
from ghrq.report.ids_examples import ItemExamples
from ghrq.report.ids_page import write_page
from ghrq.system.errors import UserError

ITEMS = 300


@pytest.fixture(scope="module")
def measured():
    """Everything at once: vectors, a quantizer, a tie-break token and labels of two levels with odd names."""
    torch.manual_seed(0)
    chance = np.random.default_rng(0)
    coarse = chance.integers(4, size=ITEMS)
    fine = coarse * 3 + chance.integers(3, size=ITEMS)
    X = (4.0 * chance.normal(size=(4, 6))[coarse] + chance.normal(size=(12, 6))[fine]).astype(np.float32)
    X += 0.1 * chance.normal(size=X.shape).astype(np.float32)
    rq = ghrq.ResidualQuantizer(6, 8, 2, scale_control=True)
    rq.initialize(torch.from_numpy(X))
    codes = rq.encode(torch.from_numpy(X)).numpy()
    same = (codes[:, None] == codes[None]).all(2)
    codes = np.concatenate((codes, np.tril(same, -1).sum(1, keepdims=True)), axis=1)
    return quality(codes, X, rq, {"in $ and <more>": coarse, "x^2$": fine}, neighbours=5, sample=100)


@pytest.fixture(scope="module")
def drawn(measured, tmp_path_factory):
    """The page and the axes of its plots by their name, as they are drawn."""
    axes_of, draw_figure = {}, ids_figures.draw_figure

    def keep(name, title, caption, height, draw):
        def draw_and_keep(axes):
            axes_of[name] = axes
            draw(axes)

        return draw_figure(name, title, caption, height, draw_and_keep)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids_figures, "draw_figure", keep)
        html = write_page(measured, tmp_path_factory.mktemp("page")).read_text("utf-8")
    with mpl.rc_context(STYLE):
        for axes in axes_of.values():
            axes.figure.draw_without_rendering()
    return html, axes_of


def texts(html):
    """What is to read, without the style sheet and the tags."""
    body = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_the_page_is_one_well_formed_file_that_loads_nothing(measured, tmp_path):
    path = write_page(measured, tmp_path / "a" / "b")
    assert path == tmp_path / "a" / "b" / "quality.html"
    assert [entry.name for entry in path.parent.iterdir()] == ["quality.html"]
    html = path.read_text("utf-8")
    parsed = Balanced(re.sub(r"<!--.*?-->", "", html, flags=re.DOTALL))
    assert all(load.startswith(("#", "data:")) for load in parsed.loads)
    assert not re.search(r"@import|url\((?!#)|<script", html)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert "prefers-color-scheme: dark" in html


def test_the_page_says_what_was_measured(measured, tmp_path):
    html = write_page(measured, tmp_path).read_text("utf-8")
    read = texts(html)
    assert f"{ITEMS} items, 2 codes of 8 each and a tie-break token" in read
    assert "100.0% of the items have an ID of their own" in read
    assert f"without it, there are {100 * measured.uniqueness[1]:.1f}% as many IDs as items" in read
    assert f"and the most crowded one has {measured.largest_group[1]}." in read
    assert measured.uniqueness[1] < 1.0
    near, lost = measured.neighbours, measured.reconstruction
    assert f"keep {100 * (1 - lost.relative[-1]):.1f}% of the variance" in read
    assert f"Neighbours share {near.mean_length:.2f} first codes" in read
    assert "were found for 100 of them" in read
    for value in [100 * v for v in lost.relative + near.shared] + [v for of in measured.labels for v in of.codes.ami]:
        assert f"{value:.2f}" in read or f"{value:.3f}" in read
    for of in measured.labels:
        for m in range(2):
            row = (of.codes.ami, of.codes.ari, of.codes.nmi, of.shuffled.nmi, of.codes.purity, of.shuffled.purity)
            assert " ".join(f"{values[m]:z.3f}" for values in row) in read
    assert "in $ and &lt;more&gt;" in read


def test_every_plot_says_how_to_read_it(measured, tmp_path):
    html = write_page(measured, tmp_path).read_text("utf-8")
    plots = re.findall(r'<figure class="plot">.*?<figcaption>(.*?)</figcaption>', html, re.DOTALL)
    assert len(plots) == html.count("<svg ") == 7
    assert len(set(plots)) == 7
    assert all(caption.strip().endswith(".") and len(caption) > 50 for caption in plots)


def test_numbers_stand_on_no_line_and_within_the_axes(drawn):
    numbered = [axes for axes in drawn[1].values() if axes.lines]
    assert len(numbered) == 4
    for axes in numbered:
        assert axes.texts
        paths = [line.get_path().transformed(line.get_transform()) for line in axes.lines]
        boxes = [text.get_window_extent() for text in axes.texts]
        for place, box in enumerate(boxes):
            assert not any(path.intersects_bbox(box.padded(1.0), filled=False) for path in paths)
            assert axes.bbox.contains(box.x0, box.y0)
            assert axes.bbox.contains(box.x1, box.y1)
            assert not box.count_overlaps(boxes[place + 1 :])


def test_a_number_without_room_is_left_out():
    def draw(axes):
        for shift in np.linspace(-40.0, 40.0, 30):
            axes.plot([1, 2, 3], [50.0 + shift, 50.0 - shift, 50.0])
        ids_figures.depth_line(axes, [1.0, 50.0, 99.9], (PALE, "o", "the one with numbers"))
        axes.set(ylim=(0, 100))
        ids_figures.write_numbers(axes, [1.0, 50.0, 99.9], ".1f")
        shown.extend(text.get_text() for text in axes.texts)

    shown = []
    ids_figures.draw_figure("x", "", "", 3.4, draw)
    assert "50.0" not in shown
    assert "99.9" in shown


def test_keys_of_dashed_lines_look_dashed(drawn):
    """On either side of the marker in a legend's key there is room for a dash and a gap."""
    key, marker = mpl.rcParams["legend.handlelength"] * STYLE["legend.fontsize"], STYLE["lines.markersize"]
    patterns = re.findall(r"stroke-dasharray: ([\d.]+),([\d.]+)", drawn[0])
    assert len(patterns) >= 8
    assert all(float(dash) + float(gap) <= (key - marker) / 2 for dash, gap in patterns)


def test_colours_of_the_map_are_on_a_fixed_scale_that_is_shown(drawn, measured):
    axes = drawn[1]["levels"]
    (bar,) = [other for other in axes.figure.axes if other is not axes]
    assert bar.get_ylim() == (0.0, 1.0)
    colours = mpl.colormaps["cividis"].resampled(48)
    for cell, value in zip(axes.patches, (v for of in measured.labels for v in of.codes.ami), strict=True):
        assert cell.get_facecolor() == colours(max(value, 0.0))


def test_the_line_of_random_pairs_is_to_be_seen(drawn):
    axes = drawn[1]["neighbours"]
    random = axes.lines[0]
    assert random.get_color() == PALE
    lowest = random.get_transform().transform((1.0, 0.0))[1]
    assert lowest - axes.bbox.y0 > STYLE["lines.markersize"]


def test_wide_tables_show_that_they_scroll(drawn):
    (rule,) = re.findall(r"^\.scroll \{(.*?)\}", drawn[0], re.DOTALL | re.MULTILINE)
    assert re.search(r"var\(--paper\).*\blocal\b.*var\(--shade\).*\bscroll\b", rule, re.DOTALL)
    assert drawn[0].count("--shade: ") == 2  # light and dark


@pytest.mark.parametrize("others", [{}, {"half": np.arange(1000) % 2}])
def test_a_level_of_one_label_is_left_out_with_a_note(others, tmp_path):
    codes = np.stack((np.arange(1000) % 8, np.arange(1000) % 7), axis=1)
    labels = {"all $ alike": np.arange(1000) == 3, **others}
    measured = quality(codes, labels=labels)
    read = texts(write_page(measured, tmp_path).read_text("utf-8"))
    assert "Left out is all $ alike: more than 99.5% of its 1,000 items have the same label." in read
    assert read.count("all $ alike") == 1
    assert ["AMI, half"] * len(others) == [title for title in measured.summary()[0] if title.startswith("AMI")]
    assert ("Agreement with half" in read) == bool(others)


def test_a_rare_label_is_kept(tmp_path):
    """One in a hundred is something to agree with; and groups of few are pure by themselves."""
    codes = np.stack((np.arange(1000) % 8, np.arange(1000) % 7), axis=1)
    read = texts(write_page(quality(codes, labels=np.arange(1000) < 10), tmp_path).read_text("utf-8"))
    assert "Left out" not in read
    assert "Agreement with label" in read
    alone = np.arange(1000)[:, None]
    assert "Left out" not in texts(write_page(quality(alone, labels=alone[:, 0] % 2), tmp_path).read_text("utf-8"))


def test_what_was_not_measured_has_no_section(tmp_path):
    codes = np.array([[0, 0], [0, 1], [1, 1], [1, 1]])
    html = write_page(quality(codes), tmp_path).read_text("utf-8")
    read = texts(html)
    assert "Codes and collisions" in read
    assert not re.search("Codes and vectors|Codes and labels|variance|[Nn]eighbours|AMI", read)
    assert html.count("<svg ") == 3
    assert "50.0% of the items have an ID of their own ; the most crowded ID has 2 of the 4 items." in read


def test_one_column_of_labels_needs_no_map_of_levels(tmp_path):
    codes = np.array([[0, 0], [0, 1], [1, 1], [1, 1]])
    read = texts(write_page(quality(codes, labels=["a", "a", "b", "b"]), tmp_path).read_text("utf-8"))
    assert "Which depth fits which level?" not in read
    assert "Labels agree most at depth 1 with label: adjusted mutual information 1.000" in read


def test_codes_that_are_hardly_used_are_pointed_out(tmp_path):
    rq = ghrq.ResidualQuantizer(3, 16, 2)
    codes = np.stack((np.arange(16), np.arange(16) % 2), axis=1)
    read = texts(write_page(quality(codes, tokenizer=rq), tmp_path).read_text("utf-8"))
    assert "Verdict: good, but with more codes than needed. Fit again with fewer stages, --stages 1:" in read
    assert "stage 2 uses only 12.5% of its codes." in read
    assert "stage 1 uses" not in read


def test_a_folder_that_cannot_be_written_is_said_plainly(measured, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write quality\.html into .*file"):
        write_page(measured, tmp_path / "file")


def test_the_page_says_where_the_ids_come_from_and_shows_items(measured, tmp_path):
    shown = ItemExamples.of(np.zeros((ITEMS, 2), dtype=int), 2, lambda rows: [f"<b>item {row}</b>" for row in rows])
    facts = {"tokenizer": "tok & <more>", "seed": "0"}
    html = write_page(measured, tmp_path, provenance=facts, examples=shown).read_text("utf-8")
    Balanced(html)
    read = texts(html)
    assert "Where these IDs come from tokenizer tok &amp; &lt;more&gt; seed 0" in read
    assert "The tuples that most items share 300 items 0 0 &lt;b&gt;item 0&lt;/b&gt;" in read
    assert "Some items, with others that share exactly their first" in read
    assert read.index("Verdict: ") < read.index("of the items have an ID of their own") < read.index("What was checked")
