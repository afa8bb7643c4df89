"""Discriminators: what they look at, and their losses against plain formulas."""

import pytest
import torch

from ghrq.nets.discriminators import (
    DiscriminatorConfig,
    Discriminators,
    PeriodDiscriminator,
    ScaleDiscriminator,
    adversarial_loss,
    discriminator_loss,
    feature_loss,
)

SMALL = DiscriminatorConfig(windows=(64, 32), filters=2, periods=(2, 3), period_channels=2, scales=2, scale_channels=2)


def test_the_default_has_those_of_the_paper():
    with torch.device("meta"):
        every = Discriminators(DiscriminatorConfig()).every
    assert [each.spectrum.window for each in every[:5]] == [2048, 1024, 512, 256, 128]
    assert [each.period for each in every[5:10]] == [2, 3, 5, 7, 11]
    assert [each.halvings for each in every[10:]] == [0, 1, 2]


@pytest.mark.parametrize("samples", [1000, 1001, 400])
def test_all_judge_any_length(samples):
    torch.manual_seed(0)
    judged = Discriminators(SMALL)(torch.randn(3, samples))
    assert len(judged) == 6
    assert all(layers[-1].shape[:2] == (3, 1) for layers in judged)
    assert [len(layers) for layers in judged] == [6, 6, 6, 6, 7, 7]


def test_a_period_sees_each_column_alone():
    torch.manual_seed(0)
    judge, wave = PeriodDiscriminator(3, 2), torch.randn(1, 600, requires_grad=True)
    judge(wave)[-1][..., 1].sum().backward()
    assert wave.grad.view(200, 3).abs().sum(0).nonzero().flatten().tolist() == [1]


def test_a_lower_rate_does_not_hear_high_tones():
    judge = ScaleDiscriminator(2, 2)
    high = torch.tensor([1.0, -1.0]).repeat(400).unsqueeze(0)
    torch.testing.assert_close(judge(high)[-1][..., 2:-2], judge(torch.zeros(1, 800))[-1][..., 2:-2])


def test_losses_by_hand():
    layers = lambda inner, judged: [torch.tensor(inner), torch.tensor(judged)]  # noqa: E731
    real = [layers([2.0, 2.0], [3.0, 0.5]), layers([1.0, -1.0], [-1.0])]
    fake = [layers([1.0, 3.0], [-3.0, 0.5]), layers([1.0, 0.0], [0.0])]
    assert discriminator_loss(real, fake).item() == pytest.approx(((0.0 + 0.5) / 2 + (0.0 + 1.5) / 2 + 2.0 + 1.0) / 2)
    assert adversarial_loss(fake).item() == pytest.approx(((4.0 + 0.5) / 2 + 1.0) / 2)
    assert feature_loss(real, fake).item() == pytest.approx((1.0 / 2.0 + 0.5 / 1.0) / 2)


def test_feature_matching_does_not_teach_the_discriminator_by_the_real_sound():
    real = [[torch.ones(3, requires_grad=True), torch.zeros(1)]]
    fake = [[torch.zeros(3, requires_grad=True), torch.zeros(1)]]
    feature_loss(real, fake).backward()
    assert real[0][0].grad is None
    assert fake[0][0].grad is not None


def test_none_at_all_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        Discriminators(DiscriminatorConfig(windows=(), periods=(), scales=0))
