"""Cascades of 4 to 32 stages against 60 digits."""

import pytest
import torch

import oracle
from ghrq import ResidualQuantizer, ball
from ghrq.geometry.nearest import code_table
from ghrq.quantizer.cascade import walk

TOLERANCE = 3e-6


def deep_quantizer(aggregation, stages, d, radius, c):
    rq = ResidualQuantizer(d, 8, stages, curvature=c, aggregation=aggregation).eval()
    with torch.no_grad():
        directions = torch.nn.functional.normalize(torch.randn(stages, 8, d), dim=-1)
        rq.codebooks.copy_(directions * radius * torch.rand(stages, 8, 1) / c**0.5)
    return rq


@pytest.mark.parametrize("aggregation", ["nested", "chained"])
@pytest.mark.parametrize("stages", [4, 16, 32])
@pytest.mark.parametrize(("d", "radius", "c"), [(3, 0.5, 1.0), (16, 0.9, 0.3), (64, 0.99, 5.0)])
def test_decode_and_prefixes_are_right_wherever_they_lead(aggregation, stages, d, radius, c):
    # 32 codes of radius 0.99 end at distances of 100 and more, where no float32 point of the ball is: the vectors
    # of flat space that decode hands out are right there too.
    rq = deep_quantizer(aggregation, stages, d, radius, c)
    codes = torch.randint(8, (3, stages))
    together = oracle.nested_sum if aggregation == "nested" else oracle.chained_sum
    c = oracle.mpf(c)
    for row, z_hat, prefixes in zip(codes, rq.decode(codes), rq.prefixes(codes), strict=True):
        parts = [oracle.exact(rq.codebooks[i, code]) for i, code in enumerate(row)]
        for depth in {1, stages // 2, stages}:
            expected = oracle.logmap0(together(parts[:depth], c), c)
            assert oracle.relative_error(prefixes[depth - 1], expected) < TOLERANCE
            if depth == stages:
                assert oracle.relative_error(z_hat, expected) < TOLERANCE


@pytest.mark.parametrize("aggregation", ["nested", "chained"])
def test_the_walk_tracks_the_residual(aggregation):
    rq = deep_quantizer(aggregation, 8, 16, 0.5, 1.0)
    z = ball.expmap0(torch.randn(4, 16))
    steps = list(walk(z, ball.gap(z).float(), code_table(rq.codebooks, 1.0), 1.0, aggregation, 8))
    follow = oracle.hra_residuals if aggregation == "nested" else oracle.naive_residuals
    for row in range(4):
        codes = [oracle.exact(step.code[row]) for step in steps]
        expected = follow(oracle.exact(z[row]), codes, oracle.mpf(1))
        for step, residual in zip(steps, expected, strict=False):
            assert oracle.relative_error(step.residual[row], residual) < TOLERANCE
            assert oracle.relative_error(step.gap[row], oracle.gap(residual, oracle.mpf(1))) < 2e-5


def test_float32_telescopes_at_32_stages_and_the_naive_order_drifts():
    for aggregation, together in (("nested", oracle.nested_sum), ("chained", oracle.chained_sum)):
        rq = deep_quantizer(aggregation, 32, 16, 0.5, 1.0)
        z = 0.99 * torch.nn.functional.normalize(torch.randn(20, 16), dim=-1)
        *_, last = walk(z, ball.gap(z).float(), code_table(rq.codebooks, 1.0), 1.0, aggregation, 32)
        codes = torch.stack(
            [s.chosen for s in walk(z, ball.gap(z).float(), code_table(rq.codebooks, 1.0), 1.0, aggregation, 32)],
            dim=-1,
        )
        errors = []
        for row in range(20):
            parts = [oracle.exact(rq.codebooks[i, code]) for i, code in enumerate(codes[row])]
            follow = ball.mobius_sub(last.code, last.residual) if aggregation == "nested" else None
            rest = follow if follow is not None else ball.mobius_add(last.residual, -last.code)
            again = together([*parts, oracle.exact(rest[row])], oracle.mpf(1))
            errors.append(float(oracle.distance(again, oracle.exact(z[row]), oracle.mpf(1))))
        if aggregation == "nested":
            assert max(errors) < 1e-4
        else:
            assert min(errors) > 0.1
