"""An audio codec as ONNX files: sound to codes, and codes to sound, of any length."""

from pathlib import Path

import torch
from torch import Tensor, nn

from ghrq.models.audio_codec import AudioCodec
from ghrq.models.onnx_file import write_onnx
from ghrq.system.errors import UserError

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"

# Frames of the examples that the export traces, and the most that a call takes.
_EXAMPLE, _MOST = 3, 2**20


class _Encoder(nn.Module):
    def __init__(self, codec: AudioCodec) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, wave: Tensor) -> Tensor:
        return self.codec.quantizer.encode(self.codec.network.encoder(wave))


class _Decoder(nn.Module):
    def __init__(self, codec: AudioCodec) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, codes: Tensor) -> Tensor:
        return self.codec.waveform(self.codec.quantizer.decode(codes))


def export_onnx(codec: AudioCodec, folder: Path, depth: int | None = None) -> list[Path]:
    """Write ``codec`` to ``folder``, which is made; returns the files.

    ``encoder.onnx``: ``wave (B, frames · hop)`` float32 at the sample rate of the codec, filled with zeros at its end,
    -> ``codes (B, frames, num_stages)`` int64, those of ``codec.encode(wave, beam=1)``.

    ``decoder.onnx``: ``codes (B, frames, depth)`` -> ``wave (B, frames · hop)``, of ``depth`` stages, by default all.
    """
    if codec.config.architecture == "seanet":
        raise UserError(
            "a codec of the architecture seanet cannot be exported: its LSTM in pieces has no dynamic length"
        )
    folder.mkdir(parents=True, exist_ok=True)
    training, device = codec.training, codec.quantizer.codebooks.device
    rows, frames = torch.export.Dim("rows", max=_MOST), torch.export.Dim("frames", max=_MOST)
    wave = torch.zeros(2, _EXAMPLE * codec.hop, device=device)
    codes = torch.zeros(2, _EXAMPLE, depth or codec.quantizer.num_stages, dtype=torch.int64, device=device)
    written = [folder / ENCODER, folder / DECODER]
    codec.eval()
    try:
        write_onnx(_Encoder(codec), {"wave": wave}, ({0: rows, 1: codec.hop * frames},), "codes", written[0])
        write_onnx(_Decoder(codec), {"codes": codes}, ({0: rows, 1: frames},), "wave", written[1])
    finally:
        codec.train(training)
    return written
