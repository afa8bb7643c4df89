"""Which codes may be drawn, and how often they are."""

import pytest
import torch

from ghrq.nets.draw import check_draw, draw, restrict

LOGITS = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.97, 0.01, 0.01, 0.01]]).double().log()


def kept(top_k, top_p, logits=LOGITS):
    return [row.nonzero().flatten().tolist() for row in restrict(logits, top_k, top_p).isfinite()]


def test_top_k_keeps_the_k_most_probable():
    assert kept(0, 1.0) == kept(4, 1.0) == kept(9, 1.0) == [[0, 1, 2, 3]] * 2
    assert kept(2, 1.0)[0] == [1, 3]
    assert kept(1, 1.0) == [[1], [0]]
    assert [len(row) for row in kept(2, 1.0)] == [2, 2]  # equal logits do not make it three


def test_top_p_keeps_the_fewest_that_have_p_together():
    assert kept(0, 0.39) == [[1], [0]]
    assert kept(0, 0.41) == [[1, 3], [0]]
    assert kept(0, 0.71)[0] == [1, 2, 3]
    assert kept(0, 0.91)[0] == [0, 1, 2, 3]
    assert kept(0, 1e-9) == [[1], [0]]
    # After top-k the shares are those among the codes left: 4/7 and 3/7 here.
    assert kept(2, 0.56)[0] == [1]
    assert kept(2, 0.58)[0] == [1, 3]


def test_what_is_kept_is_unchanged():
    left = restrict(LOGITS, 3, 0.95)
    assert torch.equal(left[left.isfinite()], LOGITS[left.isfinite()])


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 3, 1.0), (1.5, 0, 0.8)]
)
def test_codes_are_drawn_as_often_as_they_should(temperature, top_k, top_p):
    count = 200_000
    logits = torch.randn(12)
    drawn = draw(logits.expand(count, -1), temperature, top_k, top_p)
    expected = count * restrict(logits[None] / temperature, top_k, top_p).softmax(-1)[0].double()
    seen = drawn.bincount(minlength=12).double()
    possible = expected > 0
    assert seen[~possible].sum() == 0
    deviation = (seen - expected)[possible].abs() / expected[possible].sqrt()
    assert deviation.max() < 4.5


@pytest.mark.parametrize(("number", "code"), [(0.0, 1), (1.0 - 2.0**-24, 3)])
def test_impossible_codes_are_never_drawn_even_by_extreme_numbers(monkeypatch, number, code):
    # The least and the greatest number that torch.rand gives come once in 16 million draws: too seldom to wait for.
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.full(shape, number))
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, -3.0, -torch.inf]])
    assert draw(logits).tolist() == [code]


def test_temperature_zero_takes_the_best_and_a_generator_repeats():
    logits = torch.randn(50, 30)
    assert torch.equal(draw(logits, 0.0), logits.argmax(-1))
    assert torch.equal(draw(logits, 1e-4), logits.argmax(-1))

    def some(seed):
        return draw(logits, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(some(3), some(3))
    assert not torch.equal(some(3), some(4))


@pytest.mark.parametrize(
    ("options", "name"),
    [((-1.0, 0, 1.0), "temperature"), ((1.0, -1, 1.0), "top_k"), ((1.0, 1.5, 1.0), "top_k")]
    + [((1.0, 0, p), "top_p") for p in (0.0, 1.1, float("nan"))],
)
def test_mistakes_are_named(options, name):
    with pytest.raises(ValueError, match=name):
        check_draw(*options)
