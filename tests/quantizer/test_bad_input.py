"""The user's mistakes: an error that says what was given and what is expected, before anything changes."""

import warnings

import numpy as np
import pytest
import torch

from ghrq import ResidualQuantizer, ball
from ghrq.optim import RiemannianAdam
from ghrq.quantizer import KINDS


def quantizer(**settings):
    return ResidualQuantizer(8, 16, 3, **settings)


def state(rq):
    return {name: tensor.clone() for name, tensor in rq.state_dict().items()}


@pytest.mark.parametrize("method", ["forward", "quantize", "encode", "initialize", "diagnose", "stage_losses"])
@pytest.mark.parametrize(
    ("z", "message"),
    [
        (torch.zeros(5, 7), r"\(\.\.\., 8\).*\(5, 7\)"),
        (torch.tensor(1.0), r"\(\.\.\., 8\)"),
        (torch.zeros(5, 8, dtype=torch.int64), "int64"),
        (torch.full((5, 8), float("nan")), "NaN or infinite values in 5 of 5"),
        (torch.zeros(5, 8).index_fill(0, torch.tensor(3), float("inf")), r"1 of 5 vectors, the first at index \(3,\)"),
    ],
)
def test_vectors(method, z, message):
    rq = quantizer(scale_control=True)
    before = state(rq)
    with pytest.raises(ValueError, match=message):
        getattr(rq, method)(z)
    assert all(torch.equal(before[name], tensor) for name, tensor in rq.state_dict().items())


def test_huge_but_finite_vectors_are_no_mistake():
    rq = quantizer(kind="ghrq")  # in units of the encoder, as in flat space, the squares of the losses overflow
    z = torch.full((5, 8), 3e38)
    output = rq(z)
    assert output.z_hat.isfinite().all()
    assert output.loss.isfinite()


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (torch.tensor([[0, 16, 0]]), "from 0 to 15.*got 16"),
        (torch.tensor([[0, -2, 0]]), "got -2"),
        (torch.zeros(2, 4, dtype=torch.int64), r"depth 1 to 3.*\(2, 4\)"),
        (torch.zeros(2, 0, dtype=torch.int64), "depth 1 to 3"),
        (torch.zeros(2, 3), "integer codes, got torch.float32"),
    ],
)
@pytest.mark.parametrize("method", ["decode", "prefixes"])
def test_codes(method, codes, message):
    with pytest.raises(ValueError, match=message):
        getattr(quantizer(), method)(codes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"curvature": [1.0]}, "curvature must be a number"),
        ({"codebook_dim": 2.5}, "codebook_dim must be a whole number, got 2.5"),
        ({"decay": "0.9"}, "decay must be a number"),
        ({"kind": "ghqr"}, "'calibrated', 'ghrq', 'hra-only', 'dhste-only', 'naive', 'euclidean', got 'ghqr'"),
        ({"curvature": -1.0}, "curvature must be 0 or above, got -1.0"),
        ({"curvature": float("nan")}, "got nan"),
        ({"aggregation": "left"}, "'nested', 'chained', got 'left'"),
        ({"gradient": "none"}, "'transport', 'identity'"),
        ({"commitment": "all"}, "'first', 'every'"),
        ({"codebook_update": "sgd"}, "'gradient', 'ema'"),
        ({"codebook_dim": -2}, "codebook_dim must be at least 1, got -2"),
        ({"decay": 1.5}, "decay must be"),
        ({"revive_below": 2.0}, "revive_below must be"),
        ({"commitment_weight": -0.1}, "commitment_weight must be"),
    ],
)
def test_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        quantizer(**settings)


@pytest.mark.parametrize("sizes", [(0, 16, 3), (8, 0, 3), (8, 16, 0)])
def test_sizes(sizes):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        ResidualQuantizer(*sizes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"depth": 4}, "1 to num_stages=3, got 4"), ({"beam": 0}, "at least 1, got 0"), ({"depth": 1.5}, "whole number")],
)
def test_search(settings, message):
    with pytest.raises(ValueError, match=message):
        quantizer().encode(torch.zeros(2, 8), **settings)


def test_mask():
    with pytest.raises(ValueError, match=r"boolean mask of shape \(4, 5\).*\(5, 4\)"):
        quantizer()(torch.zeros(4, 5, 8), mask=torch.ones(5, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"torch.int64"):
        quantizer()(torch.zeros(4, 5, 8), mask=torch.ones(4, 5, dtype=torch.int64))


def test_things_that_are_not_tensors():
    with pytest.raises(ValueError, match="vectors as a torch tensor, got ndarray"):
        quantizer()(np.zeros((4, 8)))
    with pytest.raises(ValueError, match="codes as a torch tensor, got list"):
        quantizer().decode([[1, 2, 3]])
    with pytest.raises(ValueError, match="a mask as a torch tensor, got list"):
        quantizer()(torch.zeros(2, 8), mask=[True, False])


def test_a_curvature_that_was_learnt_below_zero():
    with pytest.raises(ValueError, match=r"0 or above and finite, got -0.5.*softplus"):
        ball.distance(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor(-0.5))


def test_every_integer_type_is_a_code():
    codes = torch.tensor([[1, 2, 3]])
    for dtype in (torch.uint8, torch.int16, torch.uint16, torch.int32):
        assert torch.equal(quantizer_once().decode(codes.to(dtype)), quantizer_once().decode(codes))


def quantizer_once():
    torch.manual_seed(0)
    return quantizer()


def test_too_few_vectors_to_start_from():
    with pytest.raises(ValueError, match="codebook_size=16 vectors, got 15"):
        quantizer().initialize(torch.randn(15, 8))


@pytest.mark.parametrize("kind", KINDS)
def test_codebooks_are_read_only_under_the_rules_they_were_trained_with(kind):
    saved = quantizer(kind="naive", curvature=0.5).state_dict()
    rq = quantizer(kind=kind)
    with pytest.raises(ValueError, match=r"curvature 0.5 and chained aggregation.*this quantizer"):
        rq.load_state_dict(saved)


def test_points_outside_the_ball_are_pulled_in():
    rq = quantizer().eval()
    inside = ball.project(torch.full((1, 8), 2.0))
    assert torch.equal(rq.quantize(torch.full((1, 8), 2.0)).codes, rq.quantize(inside).codes)


def train(rq, z, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        rq(z).loss.backward()
        optimizer.step()


@pytest.mark.filterwarnings("ignore:.*codes lie outside")
@pytest.mark.parametrize("kind", ["ghrq", "naive"])
def test_codes_far_outside_the_ball_are_an_error_that_names_the_optimiser(kind):
    torch.manual_seed(0)
    rq, z = ResidualQuantizer(8, 16, 2, kind), torch.randn(64, 8) / 3
    with pytest.raises(ValueError, match="RiemannianAdam"):
        train(rq, z, torch.optim.Adam(rq.parameters(), lr=1.0), steps=10)
    for call in (lambda: rq(z), lambda: rq.encode(z), lambda: rq.decode(torch.zeros(1, 2, dtype=torch.int64))):
        with pytest.raises(ValueError, match=r"torch\.optim\.Adam"):
            call()


def test_codes_just_outside_the_ball_are_told_once():
    torch.manual_seed(0)
    rq, z = ResidualQuantizer(8, 16, 2, "ghrq"), torch.randn(64, 8) / 3
    with torch.no_grad():
        rq.codebooks[1, 3] = torch.nn.functional.normalize(torch.randn(8), dim=0) * 1.2
    with pytest.warns(UserWarning, match=r"1 of 32 codes lie outside the ball.*RiemannianAdam"):
        rq(z)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rq(z).z_hat.isfinite().all()
        rq.decode(rq.encode(z))


def test_codes_that_a_riemannian_optimiser_presses_on_the_boundary_are_inside():
    torch.manual_seed(0)
    rq, z = ResidualQuantizer(8, 16, 2, "ghrq"), torch.randn(64, 8) * 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(rq, z, RiemannianAdam(rq.parameters(), lr=1.0), steps=20)


def test_flat_space_says_that_a_curvature_makes_no_difference():
    with pytest.warns(UserWarning, match="curvature=0.5 makes no difference") as told:
        ResidualQuantizer(4, 8, 2, kind="euclidean", curvature=0.5)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for curvature in (None, 0.0, 1.0):
            ResidualQuantizer(4, 8, 2, kind="euclidean", curvature=curvature)
