"""The small classifier: shapes, learning on real digits, and the same numbers from the same seed."""

import pytest
import torch
from sklearn.datasets import load_digits

from ghrq.nets.classifier import SmallClassifier, accuracy, train


def digits():
    """1,797 digits of 8×8, the first 1,400 to train."""
    data = load_digits()
    images = torch.as_tensor(data.images * 255 / 16).round().byte().unsqueeze(1)
    return images, torch.as_tensor(data.target)


def trained(epochs, seed=1):
    torch.manual_seed(0)
    classifier, (images, labels) = SmallClassifier(1, 10), digits()
    train(classifier, images[:1400], labels[:1400], epochs=epochs, batch=64, seed=seed)
    return classifier


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 17, 30)])
def test_any_size_gives_logits_and_128_features(channels, height, width):
    classifier = SmallClassifier(channels, 7)
    images = torch.randint(256, (5, channels, height, width), dtype=torch.uint8)
    assert classifier(images).shape == (5, 7)
    assert classifier.features(images).shape == (5, 128)
    torch.testing.assert_close(classifier.head(classifier.features(images)), classifier(images))


@pytest.mark.slow
def test_it_learns_digits():
    classifier, (images, labels) = trained(6), digits()
    assert not classifier.training
    assert accuracy(classifier, images[1400:], labels[1400:], batch=100) > 0.9
    assert accuracy(SmallClassifier(1, 10), images[1400:], labels[1400:]) < 0.5


def test_the_accuracy_is_the_share_of_right_answers():
    classifier, (images, labels) = trained(1), digits()
    guessed = classifier(images).argmax(1)
    assert accuracy(classifier, images, guessed) == 1.0
    assert accuracy(classifier, images, (guessed + 1) % 10) == 0.0
    assert accuracy(classifier.train(), images, labels) == pytest.approx((guessed == labels).float().mean().item())
    assert classifier.training


def test_the_same_seed_gives_the_same_network():
    first, again, other = (trained(1, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_every_parameter_learns():
    classifier, (images, labels) = SmallClassifier(1, 10), digits()
    torch.nn.functional.cross_entropy(classifier(images[:64]), labels[:64]).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in classifier.parameters())


def test_too_few_classes_are_an_error():
    with pytest.raises(ValueError, match="2 classes, got 1 and 1"):
        SmallClassifier(1, 1)
