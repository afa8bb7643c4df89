"""A recommender as ONNX files: the encoder of histories, and the decoder from a prefix of codes to the next code.

With the trie of the catalogue (``ghrq.ids.PrefixTrie``, or any table of prefixes) they are all that another runtime
needs for a beam search.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ghrq.models.onnx_file import write_onnx
from ghrq.models.recommender import Recommender
from ghrq.nets.code_decoder import CodeDecoder
from ghrq.system.errors import UserError

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"


class _Encoder(nn.Module):
    def __init__(self, model: Recommender) -> None:
        super().__init__()
        self.model = model

    def forward(self, items: Tensor) -> Tensor:
        return self.model.states(items)


class _Decoder(nn.Module):
    def __init__(self, decoder: CodeDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, states: Tensor, codes: Tensor) -> Tensor:
        return torch.cat(self.decoder.logits(states, codes), dim=1)


def export_onnx(model: Recommender, folder: str | Path) -> list[Path]:
    """Write the parts of ``model`` to ``folder``, which is made; returns the files.

    ``encoder.onnx``: ``items (B, T)`` int64 item numbers, the oldest first, -1 as padding at the end, T up to the
    model's ``history`` -> ``states (B, T, width)``. The state after the last item of a history goes into the decoder.

    ``decoder.onnx``, of a model that generates codes: ``states (B, width)`` and ``codes (B, num_stages - 1)`` int64 ->
    ``logits (B, sum(sizes))``, stage after stage: the logits of a stage depend on the codes before it, so that a search
    gives the codes it has, 0 for later ones, and looks at one stage. The log-probabilities are the log-softmax over
    the codes that an item of the catalogue continues with.
    """
    if model.config.generator == "t5":
        raise UserError("a recommender with the generator t5 is exported by the tools of transformers (optimum)")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    training, config, device = model.training, model.config, model.codes.device
    rows = torch.export.Dim("rows", max=2**20)
    example = torch.zeros(2, min(2, config.history), dtype=torch.int64, device=device)
    length: Any = torch.export.Dim("items", max=config.history) if config.history > 1 else None
    written = [folder / ENCODER]
    model.eval()
    try:
        with torch.no_grad():
            model.embed(example)  # what it caches must not be computed while the export traces it
        write_onnx(_Encoder(model), {"items": example}, ({0: rows, 1: length},), "states", written[0])
        if isinstance(decoder := getattr(model, "decoder", None), CodeDecoder):
            states = torch.zeros(2, config.width, device=device)
            codes = torch.zeros(2, len(config.sizes) - 1, dtype=torch.int64, device=device)
            written.append(folder / DECODER)
            given = {"states": states, "codes": codes}
            write_onnx(_Decoder(decoder), given, ({0: rows}, {0: rows}), "logits", written[1])
    finally:
        model.train(training)
    return written
