"""The explorer's page: one file that loads nothing, and labels that are only ever text."""

import base64
import hashlib
import json
import re
import zlib

import numpy as np
import pytest
from explored import small_codes
from test_page import Balanced

from ghrq.report import explorer_page as page
from ghrq.report.explorer_page import ItemTexts, bundle, explorer_page, pack, sample, visible

NASTY = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a\u202egnp.exe",
    "\u200b\u200b",
    "x" * 9999,
]


def unpack(html):
    """Header and columns of a page."""
    data = zlib.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', html)[1]))
    size = int.from_bytes(data[:4], "little")
    header, offset, columns = json.loads(data[4 : 4 + size]), -(-(4 + size) // 8) * 8, {}
    for name, kind, length in header["columns"]:
        block = data[offset : offset + length]
        columns[name] = block.decode().split("\n") if kind == "text" else np.frombuffer(block, "<" + kind)
        offset += -(-length // 8) * 8
    assert offset == len(data)
    return header, columns


@pytest.fixture(scope="module")
def explored():
    return small_codes()


@pytest.fixture(scope="module")
def html(explored):
    labels = [NASTY[row] if row < len(NASTY) else f"item {row}" for row in range(400)]
    colours = [f"top {row % 2} > sub {row % 40}" if row else None for row in range(400)]
    texts = ItemTexts(labels, [f"id-{row}" for row in range(400)], "sku", colours, "<b>category</b>")
    return explorer_page([explored], np.arange(400), texts, "Codes of <i>shop</i>")


def test_the_page_is_well_formed_and_loads_nothing(html):
    parsed = Balanced(html)
    assert parsed.loads == ["data:,"]
    assert not parsed.links
    assert not re.search(r"@import|url\(|https?://|fetch\(|XMLHttpRequest|import\(", html)
    assert "<title>Codes of &lt;i&gt;shop&lt;/i&gt;</title>" in html


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(html):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1].replace("&#39;", "'")
    script = re.search(r'<script type="module">(.*?)</script>', html, re.DOTALL)[1]
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "base-uri 'none'"
    )


def test_labels_are_data_never_markup(html):
    assert html.count("<script") == 2
    assert not any(text[:20] in html for text in NASTY[:2])
    header, columns = unpack(html)
    assert set(columns["labels"]) >= {NASTY[0], NASTY[1], "agnp.exe", "(no label)"}
    assert max(map(len, columns["labels"])) == 200
    assert header["colour"]["name"] == "<b>category</b>"


def test_texts_belong_to_their_codes(html, explored):
    header, columns = unpack(html)
    assert header["id"] == "sku"
    assert sorted(columns["ids"]) == sorted(f"id-{row}" for row in range(400))
    np.testing.assert_array_equal(columns["0.order"], np.arange(400))
    leaves = np.repeat(np.arange(len(columns["0.leaf_items"])), columns["0.leaf_items"])
    rows = np.array([int(name[3:]) for name in columns["ids"]])
    for leaf in np.unique(leaves):
        assert len(np.unique(explored.codes[rows[leaves == leaf]], axis=0)) == 1


def test_a_path_of_categories_is_coloured_by_its_first_levels(html):
    header, columns = unpack(html)
    assert header["colour"] | {"name": ""} == {
        "name": "",
        "names": ["top 1", "top 0"],
        "counts": [200, 199],
        "other": 1,
    }
    rows = [int(name[3:]) for name in columns["ids"]]
    assert columns["colour"].tolist() == [2 if row == 0 else 1 - row % 2 for row in rows]


def test_two_tokenizers_share_the_texts(explored):
    other = small_codes("euclidean", codes=5, stages=2, name="flat")
    labels = [f"item {row}" for row in range(400)]
    html = explorer_page([explored, other], np.arange(400), ItemTexts(labels), "both")
    header, columns = unpack(html)
    assert [tree["stages"] for tree in header["trees"]] == [3, 2]
    leaf = np.repeat(np.arange(len(columns["1.leaf_items"])), columns["1.leaf_items"])
    for place, item in enumerate(columns["1.order"][:50]):
        row = int(columns["labels"][item][5:])
        first = int(columns["labels"][columns["1.order"][np.flatnonzero(leaf == leaf[place])[0]]][5:])
        assert (other.codes[row] == other.codes[first]).all()
    assert "Move together" in html
    assert 'id="disk-1"' in html


def test_more_items_than_a_page_holds_are_sampled_and_it_says_so(explored, monkeypatch):
    monkeypatch.setattr(page, "MOST_ITEMS", 100)
    shown = sample(400)
    assert len(shown) == 100 == len(np.unique(shown))
    np.testing.assert_array_equal(shown, sample(400))
    html = explorer_page([explored], shown, ItemTexts([f"item {row}" for row in shown]), "t")
    assert "100 of 400 items are on this page, a random sample." in html
    _, columns = unpack(html)
    assert len(columns["labels"]) == 100
    assert columns["0.count"][0] == 400


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, "(no label)"),
        ("", "(no label)"),
        (" \n\t ", "(no label)"),
        ("\u200b\ufeff\u2060", "(no label)"),
        ("two\r\nlines\x00", "two lines"),
        ("\u202eright\u202c\u2067x\u2069", "rightx"),
        ("क्\u200dष 👩\u200d🚀", "क्\u200dष 👩\u200d🚀"),  # joiners that make letters and pictures stay
        ("y" * 201, "y" * 199 + "…"),
    ],
)
def test_visible_texts(text, shown):
    assert visible(text) == shown


def test_columns_are_in_the_smallest_type():
    packed = zlib.decompress(pack({}, {"a": np.array([0, 255]), "b": np.array([70000]), "c": np.zeros(1, np.float32)}))
    header = json.loads(packed[4 : 4 + int.from_bytes(packed[:4], "little")])
    assert header["columns"] == [["a", "u1", 2], ["b", "u4", 4], ["c", "f4", 4]]


def test_the_bundle_has_every_module_once_and_no_import_left():
    script = bundle()
    modules = sorted(path.stem for path in page._FOLDER.glob("*.js"))
    assert sorted(re.findall(r"^const (\w+)_js = \(\(\) => \{$", script, re.MULTILINE)) == modules
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert "</" not in script
