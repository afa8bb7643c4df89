"""A curvature that is a parameter of the quantizer."""

import copy
import warnings

import pytest
import torch
from torch import Tensor

from ghrq import ResidualQuantizer, ball
from ghrq.optim import RiemannianAdam
from ghrq.quantizer import KINDS

CURVED = tuple(kind for kind in KINDS if kind != "euclidean")


def made(kind: str = "calibrated", **settings: object) -> tuple[ResidualQuantizer, Tensor]:
    """A quantizer with a learned curvature, started from k-means on the vectors ``(256, 6)`` that come with it."""
    torch.manual_seed(0)
    rq = ResidualQuantizer(6, 8, 3, kind, curvature="learn", revive_below=0.0, **settings).double()
    z = torch.randn(256, 6, dtype=torch.float64) * 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rq.initialize(z)
    return rq, z


def by_hand(rq: ResidualQuantizer, z: Tensor, codes: Tensor, c: float) -> tuple[Tensor, float]:
    """ẑ and loss of given codes under curvature c, from the functions of the ball alone."""
    parts = [rq.codebooks[i][codes[:, i]].detach() for i in range(codes.shape[1])]
    r, squared = ball.expmap0(z, c), 0.0
    for q in parts:
        squared += float(ball.distance(r, q, c).square().mean())
        r = ball.mobius_sub(q, r, c) if rq.aggregation == "nested" else ball.mobius_add(r, -q, c)
    if rq.aggregation == "nested":
        total = parts[-1]
        for q in parts[-2::-1]:
            total = ball.mobius_add(q, total, c)
    else:
        total = parts[0]
        for q in parts[1:]:
            total = ball.mobius_add(total, q, c)
    unit = 0.25 if rq.units == "encoder" else 1.0
    return ball.logmap0(total, c), (1.0 + rq.commitment_weight) * squared * unit


@pytest.mark.parametrize("kind", CURVED)
def test_gradient_is_the_derivative_at_fixed_codes(kind: str) -> None:
    rq, z = made(kind)
    z_hat, codes, loss = rq(z)
    target = torch.randn_like(z)
    ((z_hat - target).square().sum() + loss).backward()
    c, step = rq.curvature, 1e-6 * rq.curvature
    values = []
    for moved in (c + step, c - step):
        hat, value = by_hand(rq, z, codes, moved)
        values.append(float((hat - target).square().sum()) + value)
    slope = (values[0] - values[1]) / (2.0 * step)
    assert rq.learned is not None
    raw = float(rq.learned.isp_c.detach())
    wanted = slope / (1.0 + torch.tensor(-raw).exp().item())  # the derivative of softplus
    assert float(rq.learned.isp_c.grad) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("kind", ["calibrated", "ghrq", "naive"])
def test_encoder_and_codes_learn_as_with_a_fixed_curvature(kind: str) -> None:
    rq, z = made(kind)
    fixed = ResidualQuantizer(
        6, 8, 3, kind, rq.curvature, revive_below=0.0, codebook_update="gradient", scale_control=False
    ).double()
    fixed.codebooks.data.copy_(rq.codebooks.data)
    results = []
    for module in (rq, fixed):
        x = z.clone().requires_grad_()
        z_hat, codes, loss = module(x)
        (z_hat.square().sum() + loss).backward()
        results.append((z_hat, codes, loss, x.grad, module.codebooks.grad))
    for learned, wanted in zip(*results, strict=True):
        torch.testing.assert_close(learned, wanted, rtol=1e-12, atol=1e-14)


def test_starts_where_the_radius_says_and_depends_on_no_units() -> None:
    torch.manual_seed(0)
    z = torch.randn(512, 6)
    first, second = (ResidualQuantizer(6, 8, 2, "calibrated", curvature="learn", radius=0.4) for _ in range(2))
    first(z)
    second(1000.0 * z)
    assert first.diagnose(z).radius["median"] == pytest.approx(0.4, abs=1e-3)
    assert first.curvature == pytest.approx(1e6 * second.curvature, rel=1e-3)
    before = first.curvature
    first(5.0 * z)
    assert first.curvature == before  # after the start it only learns


def test_a_tensor_is_where_it_starts() -> None:
    rq = ResidualQuantizer(6, 8, 2, "calibrated", curvature=torch.tensor(0.3))
    rq(torch.randn(64, 6))
    assert rq.curvature == pytest.approx(0.3, rel=1e-6)


def test_it_learns_and_codes_stay_on_its_ball() -> None:
    rq, z = made()
    optimizer = RiemannianAdam(rq.parameters(), lr=0.05)
    start = rq.curvature
    for _ in range(40):
        z_hat, _, loss = rq(z)
        optimizer.zero_grad()
        ((z_hat - z).square().mean() + loss).backward()
        optimizer.step()
    rq(z)
    assert abs(rq.curvature / start - 1.0) > 0.1
    assert bool((rq.curvature * rq.codebooks.square().sum(-1) < 1.0).all())
    assert f"curvature={rq.curvature:g}" in repr(rq)
    assert rq.diagnose(z).curvature == rq.curvature


def test_saved_loaded_copied_and_frozen(tmp_path: object) -> None:
    rq, z = made()
    rq, z = rq.float(), z.float()
    with torch.no_grad():
        rq.learned.isp_c.add_(0.7)
    rq.eval().save_pretrained(tmp_path)
    loaded = ResidualQuantizer.from_pretrained(tmp_path)
    assert loaded.curvature == rq.curvature
    torch.testing.assert_close(loaded(z).z_hat, rq(z).z_hat, rtol=0.0, atol=0.0)
    twin = copy.deepcopy(rq)
    assert twin.codebooks.manifold is twin.learned
    twin.freeze()
    assert not twin.learned.isp_c.requires_grad
    with pytest.raises(ValueError, match="a learned curvature"):
        ResidualQuantizer(6, 8, 3, "calibrated", scale_control=False).load_state_dict(rq.state_dict(), strict=False)


def test_exported_with_its_curvature() -> None:
    rq, z = made()
    rq = rq.float().eval()
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(rq, (z.float(),), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(program.module()(z[:7].float())[0], rq(z[:7].float()).z_hat)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"curvature": "learnt"}, "learnt"),
        ({"curvature": torch.ones(2)}, r"\(2,\)"),
        ({"curvature": torch.tensor(0.3), "radius": 0.5}, "give one of them"),
        ({"curvature": "learn", "kind": "euclidean"}, "flat space"),
        ({"curvature": "learn", "codebook_update": "ema"}, "gradient"),
        ({"curvature": "learn", "scale_control": True}, "leave it out"),
    ],
)
def test_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ResidualQuantizer(6, 8, 3, **settings)


def test_compiled_steps_follow_the_curvature() -> None:
    rq, z = made()
    twin = copy.deepcopy(rq)
    compiled = torch.compile(rq, backend="eager")
    for _ in range(3):
        for module in (rq, twin):
            with torch.no_grad():
                module.learned.isp_c.add_(0.5)
        torch.testing.assert_close(compiled(z).loss, twin(z).loss, rtol=0.0, atol=0.0)
    compiled(z).loss.backward()
    assert float(rq.learned.isp_c.grad) != 0.0


def test_codes_are_inside_after_the_last_step() -> None:
    rq, _ = made()
    with torch.no_grad():
        rq.learned.isp_c.add_(8.0)
    rq.eval()
    assert bool((rq.curvature * rq.codebooks.square().sum(-1) < 1.0).all())


@pytest.mark.parametrize("size", [1e4, 1.0, 1e-4, 1e-6])
def test_adam_steps_are_in_units_of_the_learned_ball(size):
    torch.manual_seed(0)
    rq, z = ResidualQuantizer(8, 16, 3, curvature="learn"), torch.randn(500, 8)
    rq.initialize(z * size)
    before = (rq.decode(rq.encode(z * size)) / size - z).square().mean()
    optimizer = RiemannianAdam(rq.parameters(), lr=1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        rq(torch.randn(100, 8) * size).loss.backward()
        optimizer.step()
    assert (rq.decode(rq.encode(z * size)) / size - z).square().mean() < 1.05 * before
