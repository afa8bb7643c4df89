"""Sizes by stage: as many small quantizers as there are stages, one after the other."""

import math
from itertools import product

import pytest
import torch

from ghrq import ResidualQuantizer, ball
from ghrq.geometry.manifold import ManifoldParameter
from ghrq.optim import RiemannianAdam
from ghrq.quantizer import KINDS, QuantizerConfig
from ghrq.quantizer.cascade import aggregate, residual

DIM, SIZES = 6, [5, 16, 3]


def quantizer(kind="ghrq", sizes=SIZES, **settings):
    return ResidualQuantizer(DIM, sizes, kind=kind, **settings)


def beyond(rq):
    """``(num_stages, largest size)`` the rows that are no codes."""
    return torch.arange(max(rq.sizes)) >= torch.tensor(rq.sizes).unsqueeze(1)


def test_an_int_and_a_list_are_read_back_as_given():
    even, uneven = ResidualQuantizer(DIM, 16, 3), quantizer()
    assert (even.codebook_size, even.sizes, even.num_stages) == (16, (16, 16, 16), 3)
    assert (uneven.codebook_size, uneven.sizes, uneven.num_stages) == (SIZES, (5, 16, 3), 3)
    assert uneven.codebooks.shape == (3, 16, DIM)
    assert isinstance(uneven.codebooks, ManifoldParameter)
    assert "codebook_size=[5, 16, 3], num_stages=3" in repr(uneven)
    assert ResidualQuantizer(DIM).num_stages == 4


@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_those_of_a_plain_search_in_each_stages_own_codes(kind):
    rq = quantizer(kind).double().eval()
    # Vectors next to 0, where the rows beyond a stage's size lie: there they would be the nearest.
    z = torch.randn(200, DIM).double() * torch.logspace(-4, 0, 200).unsqueeze(1).double()
    c, r, codes, parts = rq.curvature, rq.points(z), [], []
    for book, size in zip(rq.codebooks.detach(), SIZES, strict=True):
        codes.append(ball.pairwise_distance(r, book[:size], c).argmin(1))
        parts.append(book[codes[-1]])
        r = residual(r, parts[-1], c, rq.aggregation)
    found = rq.encode(z)
    assert torch.equal(found, torch.stack(codes, dim=1))
    total = aggregate(parts, c, rq.aggregation)
    torch.testing.assert_close(rq.decode(found), rq._from_ball(*total))
    assert torch.equal(rq.encode(z, depth=2), found[:, :2])


@pytest.mark.parametrize("kind", ["calibrated", "naive", "euclidean"])
def test_a_wide_beam_finds_the_best_of_all_tuples(kind):
    rq = quantizer(kind).double().eval()
    z = torch.randn(20, DIM).double() * 0.3
    every = torch.tensor(list(product(*map(range, SIZES))))
    codes, distance = rq.candidates(z, 1000)
    assert codes.shape == (20, math.prod(SIZES), 3)
    assert torch.equal(codes[7].unique(dim=0), every)
    far = torch.stack([rq.distance(row.expand(len(every), -1), every) for row in z])
    torch.testing.assert_close(distance[:, 0], far.amin(1))
    assert torch.equal(rq.encode(z, beam=1000), every[far.argmin(1)])


def test_a_list_of_equal_sizes_is_the_int():
    results = []
    for sizes in (16, [16, 16, 16]):
        torch.manual_seed(0)
        rq = ResidualQuantizer(DIM, sizes, 3, kind="calibrated", decay=0.5, revive_below=0.5)
        rq.initialize(torch.randn(300, DIM))
        results.append((rq(torch.randn(64, DIM)), rq.state_dict()))
    (one, state), (other, same) = results
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert state.keys() == same.keys()
    assert all(torch.equal(state[name], same[name]) for name in state)
    quantizer(sizes=[16] * 3, kind="calibrated").load_state_dict(state)


SETTINGS = [
    {"kind": "ghrq"},
    {"kind": "naive", "depth_dropout": True},
    {"kind": "calibrated", "depth_dropout": [1, 3], "centre": True, "codebook_dim": 4},
    {"kind": "euclidean", "codebook_update": "ema", "temperature": 0.5},
    {"kind": "ghrq", "curvature": "learn"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("start", ["random", "kmeans"])
def test_training_leaves_rows_beyond_a_size_alone(settings, start):
    rq = quantizer(decay=0.5, revive_below=0.6, **settings)
    none = beyond(rq)
    if start == "kmeans":
        rq.initialize(torch.randn(300, DIM) * 0.4)
    learned = [p for p in rq.parameters() if p.requires_grad]
    optimizer = RiemannianAdam(learned, lr=0.05) if learned else None
    if optimizer is not None:
        rq.attach(optimizer)
    before, revived = rq.codebooks.detach().clone(), 0
    for _ in range(12):
        z_hat, codes, loss = rq(torch.randn(40, DIM) * 0.1)
        assert bool((codes < torch.tensor(SIZES)).all())
        assert not bool(rq.revived[none].any())
        revived += int(rq.revived.any())
        if optimizer is not None:
            (loss + z_hat.square().mean()).backward()
            if rq.codebooks.grad is not None:
                assert not bool(rq.codebooks.grad[none].any())
            optimizer.step()
            optimizer.zero_grad()
    assert revived > 0
    assert not bool(rq.codebooks[none].any())
    assert not bool(rq.usage.share[none].any())
    assert bool((rq.codebooks != before)[~none].any(-1).all() if settings["kind"] != "naive" else True)
    if rq.midpoints is not None:
        assert not bool(rq.midpoints.s[none].any())
        assert not bool(rq.midpoints.t[none].any())


def test_uniform_use_is_a_share_of_one_at_every_stage():
    rq = quantizer(decay=0.0, revive_below=0.0)
    codes = torch.stack([torch.arange(240) % size for size in SIZES], dim=1)
    rq.usage.update(codes, torch.ones(codes.shape) / 240)
    torch.testing.assert_close(rq.usage.share, (~beyond(rq)).float())


def test_usage_and_perplexity_count_the_codes_of_a_stage():
    rq = quantizer("euclidean").eval()
    z = torch.randn(500, DIM)
    rq.initialize(z)
    found, codes = rq.diagnose(z), rq.encode(z)
    for stage, size in enumerate(SIZES):
        share = codes[:, stage].bincount(minlength=size) / len(z)
        assert found.usage[stage] == pytest.approx(float((share > 0).float().mean()))
        assert found.perplexity[stage] == pytest.approx(float(torch.exp(-(share * share.log()).nansum())), rel=1e-5)
    assert found.codebook_size == SIZES
    assert not found.warnings()
    one = rq.diagnose(z[:1].expand(50, -1))  # a perplexity of 1, too little for 16 codes only
    assert "a tenth of the 5, 16, 3 codes is in use (perplexity of stage 2: 1.0)" in one.warnings()[0]


def test_state_comes_back_and_other_sizes_are_refused(tmp_path):
    rq = quantizer("calibrated")
    rq.initialize(torch.randn(300, DIM))
    rq.save_pretrained(tmp_path / "rq")
    again = ResidualQuantizer.from_pretrained(tmp_path / "rq")
    z = torch.randn(50, DIM)
    assert again.codebook_size == SIZES
    assert torch.equal(again.encode(z), rq.eval().encode(z))
    assert not bool(again.codebooks[beyond(again)].any())
    for sizes in ([16, 5, 3], [3, 16, 3], 16):  # all have codebooks of the same shape
        other = ResidualQuantizer(DIM, sizes, 3, kind="calibrated")
        with pytest.raises(ValueError, match=r"trained with .*codebook_size=\[5, 16, 3\], this quantizer has"):
            other.load_state_dict(rq.state_dict())
    with pytest.raises(ValueError, match=r"codebook_size=one for all stages, this .*codebook_size=\[5, 16, 3\]"):
        rq.load_state_dict(ResidualQuantizer(DIM, 16, 3, kind="calibrated").state_dict())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"codebook_size": SIZES, "num_stages": 4}, r"codebook_size=\[5, 16, 3\] has 3 sizes for num_stages=4"),
        ({"codebook_size": [5, 1]}, "each size of codebook_size must be at least 2, got 1"),
        ({"codebook_size": [5, 2.5]}, "each size of codebook_size must be a whole number, got 2.5"),
        ({"codebook_size": []}, "num_stages must be at least 1, got 0"),
        ({"codebook_size": "64"}, "must be a whole number, got '6'"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        ResidualQuantizer(DIM, **given)


def test_codes_beyond_a_stages_size_are_refused():
    rq = quantizer()
    assert rq.decode(torch.tensor([[4, 15, 2], [0, -1, 0]])).shape == (2, DIM)
    with pytest.raises(ValueError, match=r"codes of stage 3 must be from 0 to 2 \(codebook_size=3\).*got 3"):
        rq.decode(torch.tensor([[4, 15, 3]]))
    with pytest.raises(ValueError, match="codes of stage 1 must be from 0 to 4"):
        rq.distance(torch.randn(1, DIM), torch.tensor([[5]]))
    with pytest.raises(ValueError, match="at least codebook_size=16 vectors, got 15"):
        rq.initialize(torch.randn(15, DIM))


def test_a_section_of_a_recipe_has_sizes_too():
    section = QuantizerConfig(codebook_size=SIZES)
    assert (section.codebook_size, section.num_stages) == (SIZES, 3)
    assert section.build(DIM).sizes == tuple(SIZES)
    assert QuantizerConfig(**section.model_dump()) == section
    assert QuantizerConfig().num_stages == 4
    with pytest.raises(ValueError, match=r"3, one for each size of codebook_size=\[5, 16, 3\]"):
        QuantizerConfig(codebook_size=SIZES, num_stages=2)
    for wrong in (1, [5, 1], [], "many", True, 2.5):
        with pytest.raises(ValueError, match="a whole number of at least 2, or a list with one for each stage"):
            QuantizerConfig(codebook_size=wrong)
