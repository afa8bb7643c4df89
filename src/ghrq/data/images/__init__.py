"""Real images as tensors of bytes: MNIST, Fashion-MNIST, CIFAR-100, scikit-learn's digits, a folder of images.

Examples:
    >>> train = ghrq.data.images.load("digits", split="train")
    >>> train.pixels.dtype, train.pixels.shape[1:], len(train.label_names)
    (torch.uint8, torch.Size([1, 8, 8]), 10)

A data set is searched in the folder ``source``; without one in ``GHRQ_DATA``, where Debian's packages put it, and in
the cache; it is downloaded only on request.

"""

from ghrq.data.images.folder import read_image
from ghrq.data.images.image_set import Images, Split
from ghrq.data.images.sets import NAMES, load
from ghrq.data.images.splits import ImageSplits, load_splits

__all__ = ["NAMES", "ImageSplits", "Images", "Split", "load", "load_splits", "read_image"]
