"""A small image classifier; its features suit generated digits better than those of a network for photographs."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.system.progress import Progress


class ClassifierFeatures(nn.Module):
    """Images ``(B, channels, height, width)`` uint8 -> features ``(B, 128)`` float32, for any height and width."""

    num_features = 128

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_convolution(channels, 32, kernel=5, stride=2),
            *_convolution(32, 64, kernel=3, stride=2),
            *_convolution(64, 128, kernel=3, stride=2),
        )
        self.last = nn.Linear(128 * 4, self.num_features)

    def forward(self, images: Tensor) -> Tensor:
        """See the class."""
        x = images.to(self.last.weight.dtype) / 255.0
        x = self.layers(x.contiguous(memory_format=torch.channels_last))
        # Four quadrants of the image, so that the position of a stroke matters.
        return F.relu(self.last(F.adaptive_avg_pool2d(x, 2).flatten(1)))


class SmallClassifier(nn.Module):
    """Images ``(B, channels, height, width)`` uint8 -> logits ``(B, classes)``.

    ``features`` is the network without its last layer, ``(B, 128)``: a module that
    :func:`ghrq.metrics.generation.collect` takes. :func:`train` trains it.
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        if channels < 1 or classes < 2:
            raise ValueError(f"expected at least 1 channel and 2 classes, got {channels} and {classes}")
        self.features = ClassifierFeatures(channels)
        self.head = nn.Linear(ClassifierFeatures.num_features, classes)

    def forward(self, images: Tensor) -> Tensor:
        """See the class."""
        return self.head(self.features(images))


def train(
    classifier: SmallClassifier,
    images: Tensor,
    labels: Tensor,
    *,
    epochs: int = 3,
    batch: int = 256,
    rate: float = 4e-3,
    seed: int = 42,
    progress: Progress | None = None,
) -> None:
    """Train on images ``(n, channels, height, width)`` uint8 with ``labels (n,)`` int64: AdamW, one cycle of rates.

    For MNIST the defaults are enough for 99 % of the test set. Only the order of the images is random, given by
    ``seed``.
    """
    chance = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(images) // batch)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.2)
    classifier.train()
    with (progress or Progress()).bar("classifier", steps, unit="steps") as bar:
        for _ in range(epochs):
            for part in torch.randperm(len(images), generator=chance).split(batch):
                loss = F.cross_entropy(classifier(images[part]), labels[part])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.advance(1, f"loss {loss.item():.3f}")
    classifier.eval()


@torch.no_grad()
def accuracy(classifier: SmallClassifier, images: Tensor, labels: Tensor, *, batch: int = 1024) -> float:
    """Share of images whose largest logit is that of their label, from 0 to 1."""
    training = classifier.training
    classifier.eval()
    parts = zip(images.split(batch), labels.split(batch), strict=True)
    right = sum(int((classifier(x).argmax(1) == y).sum()) for x, y in parts)
    classifier.train(training)
    return right / len(images)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    # Channels last is faster, measured for MNIST. Not by contiguous(), which leaves one channel as it is.
    weight = convolution.weight.data
    convolution.weight.data = torch.empty_like(weight, memory_format=torch.channels_last).copy_(weight)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
