"""The quantizer of a run or tokenizer, with tuples of its codes, for figures of what is inside."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.system.pretrained import CONFIG

# Tuples that are looked at.
_TUPLES = 4096


@dataclass(frozen=True)
class CodeSource:
    """A trained quantizer and tuples of its codes."""

    quantizer: Any
    """A :class:`ghrq.quantizer.ResidualQuantizer`."""
    codes: Tensor
    """``(n, num_stages)`` int64."""
    origin: str
    """Where the tuples come from, for a caption."""


def code_source(folder: Path) -> CodeSource:
    """Of the folder of a tokenizer or of a model, or of a run, which has its model in ``models/`` or ``tokenizer/``."""
    tried = [folder, folder / "tokenizer", *sorted(folder.glob("models/*"))]
    for path in tried:
        files.restore(path)
        found = _model(path) if (path / CONFIG).is_file() else None
        if found is not None:
            return found
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: name a run, or a folder that 'ghrq fit' wrote")
    begun = (folder / "recipe.toml").is_file() and not (folder / "results.json").is_file()
    why = "it is not finished" if begun else "it is no tokenizer, and no model of its has a quantizer"
    raise UserError(f"{folder} has no codes to draw ({why}): name a finished run, or a folder that 'ghrq fit' wrote")


def _model(path: Path) -> CodeSource | None:
    """The model in ``path``; ``None`` if it has no quantizer."""
    from ghrq.models import AudioCodec, HierarchyEmbedding, ImageTokenizer
    from ghrq.tokenizer import Tokenizer

    form = files.read_json(path / CONFIG, "make the model again").get("format")
    if form == Tokenizer._format.name:
        tokenizer = Tokenizer.load(path)
        quantizer: Any = tokenizer.quantizer_
        ids = path / "ids.parquet"
        if ids.is_file():
            codes = _read(ids, quantizer.num_stages)
            return CodeSource(quantizer, codes, f"{len(codes):,} of the IDs in {ids.name}")
        return CodeSource(quantizer, _drawn(quantizer), _DRAWN)
    if form == HierarchyEmbedding._format.name:
        embedding = HierarchyEmbedding.from_pretrained(path).eval()
        codes = embedding.codes()
        return CodeSource(embedding.quantizer, _some(codes), f"{min(len(codes), _TUPLES):,} of its nodes")
    for kind in (ImageTokenizer, AudioCodec):
        if form == kind._format.name:
            quantizer = kind.from_pretrained(path).quantizer
            return CodeSource(quantizer, _drawn(quantizer), _DRAWN)
    return None


_DRAWN = f"{_TUPLES:,} tuples drawn at random from its codebooks, as the run keeps no codes"


def _read(ids: Path, stages: int) -> Tensor:
    import numpy as np

    from ghrq.data.tables import batch_rows, open_codes

    table = open_codes(ids)
    parts = [torch.from_numpy(np.asarray(batch.vectors)) for batch in table.batches(batch_rows(table.dim))]
    return _some(torch.cat(parts)[:, :stages].long())


def _some(codes: Tensor) -> Tensor:
    chosen = torch.randperm(len(codes), generator=torch.Generator().manual_seed(0))[:_TUPLES]
    return codes[chosen]


def _drawn(quantizer: Any) -> Tensor:
    chance = torch.Generator().manual_seed(0)
    return torch.stack([torch.randint(size, (_TUPLES,), generator=chance) for size in quantizer.sizes], dim=1)
