"""Load an image set by its name."""

import numpy as np
import torch

from ghrq.data.images.cifar100 import load_cifar100
from ghrq.data.images.folder import load_folder
from ghrq.data.images.image_set import Images, Split
from ghrq.data.images.mnist import load_mnist
from ghrq.system.errors import UserError, did_you_mean, require

NAMES = ("digits", "mnist", "fashion-mnist", "cifar100", "folder")
"""Image sets that :func:`load` knows."""

_DIGITS_TEST, _DIGITS_SEED = 297, 0


def load(name: str, *, split: Split, source: str = "", download: bool = False, size: int = 32) -> Images:
    """One split of an image set, one of :data:`NAMES`.

    ``source`` is its folder. Without one it is searched in the folder ``GHRQ_DATA``, where Debian's packages put it,
    and in the cache, and with ``download`` it is downloaded into the cache. ``digits`` come with scikit-learn;
    ``folder`` is any folder of images, whose central squares are resized to ``size`` × ``size``.
    """
    if split not in ("train", "test"):
        raise UserError(f"the split {split!r} of {name}: expected 'train' or 'test'")
    if name == "digits":
        return _digits(split)
    if name == "folder":
        return load_folder(split, source, size)
    if name in ("mnist", "fashion-mnist"):
        return load_mnist(split, source, download, fashion=name == "fashion-mnist")
    if name == "cifar100":
        return load_cifar100(split, source, download)
    hint = did_you_mean(name, NAMES, f"expected one of {', '.join(NAMES)}")
    raise UserError(f"there is no image set {name!r}: {hint}")


def _digits(split: Split) -> Images:
    """scikit-learn's 1,797 handwritten digits of 8×8, of which 297 are for testing; 0 to 16 become 0 to 255."""
    digits = require("sklearn.datasets", "image").load_digits()
    # RandomState's numbers are the same in every version of NumPy.
    order = np.random.RandomState(_DIGITS_SEED).permutation(len(digits.target))
    rows = np.sort(order[:_DIGITS_TEST] if split == "test" else order[_DIGITS_TEST:])
    pixels = np.rint(digits.images[rows] * (255 / 16)).astype(np.uint8)
    labels = digits.target[rows].astype(np.int64)
    return Images(torch.from_numpy(pixels).unsqueeze(1), torch.from_numpy(labels), tuple(map(str, range(10))))
