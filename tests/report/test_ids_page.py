"""The page on semantic IDs: one file, the numbers of its Quality, and only what was measured."""

import re

import numpy as np
import pytest
import torch
from test_page import Balanced

import ghrq
from ghrq.errors import UserError
from ghrq.ids.quality import quality
from ghrq.report.ids_page import write_page

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
    assert "Stage 2 uses only 12% of its codes." in read
    assert "Stage 1 uses" not in read


def test_a_folder_that_cannot_be_written_is_said_plainly(measured, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write quality\.html into .*file"):
        write_page(measured, tmp_path / "file")
