"""A tokenizer as a folder: config.json and model.safetensors, there whole or not at all, and checked when read.

config.json has the checksum of the weights; the weights' header has that of what config.json says. So neither of them
can change, or be taken from another tokenizer, without being noticed.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from ghrq.system import files
from ghrq.system.errors import UserError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT, VERSION = "ghrq-tokenizer", 1

_REMEDY = "fetch or fit the tokenizer anew"


def save(folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Write a tokenizer under a temporary name, and give it its own when all is there. Replaces an older one."""
    if folder.exists():
        _check_replaceable(folder)
    config = {"format": FORMAT, "version": VERSION, **files.plain(config)}
    with files.telling(folder):
        _write(folder, config, weights)


def _write(folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with files.draft(folder) as draft:
        draft.mkdir()
        tensors = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
        # Not save_file: that makes files which nobody else may read, and its errors are not those of the disk.
        files.write(draft / WEIGHTS, safetensors.torch.save(tensors, metadata={"config": _digest(config)}))
        config["sha256"] = {WEIGHTS: _sha256(draft / WEIGHTS)}
        files.write_json(draft / CONFIG, config)


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what :func:`save` wrote; a :class:`UserError` if that is not what is there."""
    for path in (folder, folder / CONFIG, folder / WEIGHTS):
        if not path.exists():
            raise UserError(f"{path} is missing: a tokenizer is a folder with {CONFIG} and {WEIGHTS}; {_REMEDY}")
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:  # JSON's and Unicode's
        raise UserError(f"{path} is damaged ({error}): {_REMEDY}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise UserError(f"{path} does not describe a tokenizer: its format is not {FORMAT!r}")
    if config.get("version") != VERSION:
        raise UserError(
            f"{path} has version {config.get('version')} of the format, this ghrq reads version {VERSION}: "
            "use the ghrq that wrote it, or fit the tokenizer anew"
        )
    sums = config.pop("sha256", None)
    path = folder / WEIGHTS
    if not isinstance(sums, dict) or sums.get(WEIGHTS) != _sha256(path):
        raise UserError(f"{path} is damaged or of another tokenizer: its checksum is not that in {CONFIG}; {_REMEDY}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}): {_REMEDY}") from error
    if metadata.get("config") != _digest(config):
        raise UserError(f"{folder / CONFIG} is not what was written together with {WEIGHTS}: {_REMEDY}")
    return config, weights


def _check_replaceable(folder: Path) -> None:
    """Only a tokenizer, or an empty folder, makes room for a new one: nobody's other files go with it."""
    if not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder for the tokenizer")
    others = sorted(path.name for path in folder.iterdir() if path.name not in (CONFIG, WEIGHTS))
    if others:
        raise UserError(f"{folder} holds other files, such as {others[0]}: name a new folder, or remove them first")


def _digest(config: dict[str, Any]) -> str:
    """The checksum of what a config says, however it is laid out."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
