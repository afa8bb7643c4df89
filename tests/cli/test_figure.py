"""ghrq figure: the figures of the paper from runs and tokenizers, and one clear line for a mistake."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import ghrq as library
from finished_runs import finished, finished_audio
from ghrq import ball
from ghrq.quantizer.cascade import aggregate, residual
from ghrq.report.aggregation_figure import _outside, aggregation_figure, project
from ghrq.report.code_source import CodeSource


def fitted(folder, dim=6, kind="ghrq"):
    x = np.random.default_rng(0).normal(size=(600, dim)).astype(np.float32)
    library.Tokenizer(kind=kind, num_stages=4, codebook_size=16).fit(x).save(folder)
    return folder


def test_hops_in_a_plane_are_those_of_the_quantizer():
    """With two dimensions nothing is projected: distances are those of the codes themselves."""
    parts = 0.4 * torch.randn(4, 2, dtype=torch.float64).clamp(-1, 1)
    z = aggregate(list(parts), 1.0, "nested").point
    hops = project(parts, z, 3)
    assert hops.kept == pytest.approx(1.0)
    for order in ("nested", "chained"):
        r = z
        for q in parts[:3]:
            r = residual(r, q, 1.0, order)
        for i, stop in enumerate(hops.stops[order][1:]):
            expected = aggregate([*parts[:3], r][: i + 1], 1.0, order).point
            assert float(ball.distance(stop, hops.z)) == pytest.approx(float(ball.distance(expected, z)), abs=1e-9)
            assert float(stop.norm()) == pytest.approx(float(expected.norm()), abs=1e-12)
    assert torch.allclose(hops.stops["nested"][-1], hops.z, atol=1e-12), "it telescopes"
    assert not torch.allclose(hops.stops["chained"][-1], hops.z, atol=1e-3)


def test_the_caption_has_the_distances_in_all_dimensions():
    quantizer = library.ResidualQuantizer(5, 8, 4, "ghrq").eval()
    with torch.no_grad():
        quantizer.codebooks.mul_(1.5)
    codes = torch.randint(8, (50, 4))
    caption = aggregation_figure(CodeSource(quantizer, codes, "50 tuples")).caption
    books = quantizer.codebooks.detach().double()
    parts = [book[codes[:, i]] for i, book in enumerate(books)]
    z = aggregate(parts, 1.0, "nested").point
    r = z
    for q in parts[:3]:
        r = residual(r, q, 1.0, "chained")
    missed = ball.distance(aggregate([*parts[:3], r], 1.0, "chained").point, z).median()
    assert f"Median over 50 tuples: {float(missed):.3g}, " in caption
    assert re.search(r"keeps most of these, \d+% of their squared length", caption)


@pytest.mark.parametrize("after", [(0.4, 0.5), (0.0, -0.4), (0.6, 0.3), (0.2, 0.8)])
def test_a_stop_is_named_beside_its_lines(after):
    before, stop, after = torch.zeros(2), torch.tensor([0.1, 0.4]), torch.tensor(after)
    placed = torch.tensor(_outside(before, stop, after)["xytext"])
    assert float(placed.norm()) == pytest.approx(6.0, rel=1e-4)
    for other in (before, after):
        assert float(torch.cosine_similarity(placed, other - stop, dim=0)) < 1e-3


@pytest.mark.slow
def test_vector_graphics_by_the_ending(ghrq, tmp_path):
    fitted(tmp_path / "tok")
    finished_audio(tmp_path / "runs" / "a", kind="ghrq")
    finished_audio(tmp_path / "runs" / "b", kind="euclidean")
    for arguments in (["1", "--run", "tok"], ["2"], ["3", "--run", "runs"]):
        code, out, _ = ghrq("figure", *arguments, "--out", "f.svg")
        assert (code, out.startswith("figure  f.svg\n")) == (0, True)
        root = ElementTree.parse(tmp_path / "f.svg").getroot()
        assert root.tag.endswith("svg")
        assert not list(root.iter("{http://www.w3.org/2000/svg}image")), "no pixels"
    text = (tmp_path / "f.svg").read_text()
    assert all(f">{word}<" in text for word in ("GHRQ", "Euclidean", "PESQ", "SI-SDR in dB"))
    assert ghrq("figure", "2", "--out", "f.pdf")[0] == 0
    assert (tmp_path / "f.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1"], "figure 1 needs one run or tokenizer: --run runs/mine"),
        (["1", "--run", "flat", "--run", "flat"], "figure 1 needs one run"),
        (["2", "--run", "flat"], "figure 2 needs no run"),
        (["3"], "figure 3 needs runs"),
        (["3", "--run", "image"], "none of these is a run of the task 'audio'"),
        (["1", "--run", "gone"], "there is no folder gone"),
        (["1", "--run", "image"], "image has no codes to draw (it is no tokenizer"),
        (["1", "--run", "flat"], "this quantizer is Euclidean"),
        (["2", "--out", "f.png"], "cannot tell the format of f.png"),
    ],
)
def test_mistakes_are_one_line(ghrq, tmp_path, arguments, message):
    if "flat" in arguments:
        fitted(tmp_path / "flat", kind="euclidean")
    if "image" in arguments:
        finished(tmp_path / "image")
    out = () if "--out" in arguments else ("--out", "f.svg")
    code, printed, err = ghrq("figure", *arguments, *out)
    assert (code, printed, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "f.svg").exists()


def test_figure_3_is_paler_for_smaller_dimensions_and_tells_what_it_leaves_out(ghrq, tmp_path):
    for name, dim in (("a", 32), ("b", 128), ("c", 64)):
        finished_audio(tmp_path / "runs" / name, overrides=[f"codec.dim={dim}"])
    (finished_audio(tmp_path / "runs" / "begun", kind="naive").folder / "results.json").unlink()
    code, out, _ = ghrq("figure", "3", "--run", "runs", "--out", "f.svg")
    assert (code, out.splitlines()[0]) == (0, "left out  runs/begun: no results yet")
    svg = (tmp_path / "f.svg").read_text()
    strength = list(dict.fromkeys(map(float, re.findall(r"stroke-opacity: ([\d.]+)", svg))))
    assert strength == pytest.approx([0.35 + 0.65 / 3, 0.35 + 0.65 * 2 / 3], abs=1e-5), "32, then 64; 128 is full"
