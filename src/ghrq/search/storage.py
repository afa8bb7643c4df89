"""An index as a folder: the tokenizer, arrays in NumPy's format, the ids in Arrow's; all of them can be memory-mapped.

config.json is written last, with the checksums of the other files, and the folder appears as a whole or not at all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ghrq import __version__
from ghrq.data.outputs import replacing
from ghrq.search.lists import Lists
from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.system.pretrained import checksum

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer

CONFIG, TOKENIZER, NAMES = "config.json", "tokenizer", "ids.arrow"
_FORMAT, _VERSION = "ghrq-index", 1
_ARRAYS = ("codes", "numbers", "starts", "norms")
_REMEDY = "save the index again, or fetch it from where it was written"


def save(folder: Path, tokenizer: "Tokenizer", lists: Lists, following: int, force: bool) -> None:
    """Write an index. A folder that holds anything else is never replaced, an index only with ``force``."""
    files.restore(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not _is_index(folder):
            raise UserError(f"{folder} holds other files than an index: name a new folder")
        if not force:
            raise UserError(f"{folder} holds an index already: name a new folder, or replace it with force=True")
    with replacing(folder, replace=force) as draft:
        draft.mkdir()
        tokenizer.save(draft / TOKENIZER)
        for name in _ARRAYS:
            array = getattr(lists, name)
            if array is not None:
                np.save(draft / f"{name}.npy", array, allow_pickle=False)
        table = pa.table({"id": lists.names})
        with pa.OSFile(str(draft / NAMES), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        written = sorted(path for path in draft.iterdir() if path.is_file())
        for path in written:
            files.sync(path)
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "ghrq": __version__,
            "tokenizer": tokenizer.fingerprint,
            "items": len(lists.codes),
            "next": following,
            "depth": lists.depth,
            "sha256": {path.name: files.sha256(path) for path in written},
        }
        files.write_json(draft / CONFIG, {**content, "checksum": checksum(content)})


def load(folder: Path, check: bool) -> "tuple[Tokenizer, Lists, int]":
    """Tokenizer, lists and the number of the next item of a folder that :func:`save` wrote; others are errors."""
    from ghrq.tokenizer import Tokenizer

    files.restore(folder)
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} is no index: CodeIndex.save writes one")
    config = files.read_json(folder / CONFIG, _REMEDY)
    written = config.pop("checksum", None)
    if config.get("format") != _FORMAT:
        raise UserError(f"{folder / CONFIG} is not that of an index: name a folder that CodeIndex.save wrote")
    if config.get("version") != _VERSION:
        raise UserError(
            f"{folder} has version {config.get('version')} of the index, this ghrq reads version {_VERSION}: use the "
            "ghrq that wrote it"
        )
    if written != checksum(config):
        raise UserError(f"{folder / CONFIG} was cut or edited: {_REMEDY}")
    for name, expected in config["sha256"].items():
        if not (folder / name).is_file() or (check and files.sha256(folder / name) != expected):
            raise UserError(f"{folder / name} is missing, damaged or of another index: {_REMEDY}")
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    if tokenizer.fingerprint != config["tokenizer"]:
        raise UserError(f"{folder / TOKENIZER} is not the tokenizer of this index: {_REMEDY}")
    arrays = {name: _mapped(folder / f"{name}.npy") for name in _ARRAYS if f"{name}.npy" in config["sha256"]}
    with _reading(folder / NAMES):
        names = pa.ipc.open_file(pa.memory_map(str(folder / NAMES))).read_all()["id"].combine_chunks()
    lengths = {len(names), len(arrays["codes"]), len(arrays["numbers"]), int(arrays["starts"][-1])}
    if lengths != {config["items"]}:
        raise UserError(f"{folder}: its files do not have {config['items']:,} items each: {_REMEDY}")
    lists = Lists(arrays["codes"], arrays["numbers"], names, arrays.get("norms"), arrays["starts"], config["depth"])
    return tokenizer, lists, config["next"]


def _mapped(path: Path) -> Any:
    with _reading(path):
        return np.load(path, mmap_mode="r", allow_pickle=False)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of a damaged file into one line."""
    try:
        yield
    except (ValueError, OSError, EOFError) as error:  # pyarrow's are among them
        raise UserError(f"{path} is damaged ({error}): {_REMEDY}") from error


def _is_index(folder: Path) -> bool:
    config = folder / CONFIG
    return config.is_file() and files.read_json(config, _REMEDY).get("format") == _FORMAT
