"""An audio codec as ONNX files: sound to codes, and codes to sound, of any length."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ghrq.models.audio_codec import AudioCodec
from ghrq.models.onnx_file import write_onnx

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


def export_onnx(codec: AudioCodec, folder: str | Path, depth: int | None = None) -> list[Path]:
    """Write ``codec`` to ``folder``, which is made; returns the files.

    ``encoder.onnx``: ``wave (B, frames · hop)`` float32 at the sample rate of the codec, filled with zeros at its end,
    -> ``codes (B, frames, num_stages)`` int64, those of ``codec.encode(wave, beam=1)``.

    ``decoder.onnx``: ``codes (B, frames, depth)`` -> ``wave (B, frames · hop)``, of ``depth`` stages, by default all.

    ``frames`` is any multiple of ``codec.alignment``: 1, or the memory of SEANet's LSTM.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    codec = _plain(codec)
    device, unit = codec.quantizer.codebooks.device, codec.alignment
    rows, units = torch.export.Dim("rows", max=_MOST), torch.export.Dim("units", max=_MOST // unit)
    wave = torch.zeros(2, _EXAMPLE * unit * codec.hop, device=device)
    codes = torch.zeros(2, _EXAMPLE * unit, depth or codec.quantizer.num_stages, dtype=torch.int64, device=device)
    written = [folder / ENCODER, folder / DECODER]
    write_onnx(_Encoder(codec), {"wave": wave}, ({0: rows, 1: unit * codec.hop * units},), "codes", written[0])
    write_onnx(_Decoder(codec), {"codes": codes}, ({0: rows, 1: unit * units},), "wave", written[1])
    return written


def _plain(codec: AudioCodec) -> AudioCodec:
    """The same codec in eval mode, with plain weights: those of weight norm, computed.

    Made anew: a deep copy shares the classes of its layers with the original, from which weight norm would be removed.
    """
    same = AudioCodec(codec.config).to(codec.quantizer.codebooks.device).eval()
    same.load_state_dict(codec.state_dict())
    for layer in same.modules():
        if parametrize.is_parametrized(layer):
            parametrize.remove_parametrizations(layer, "weight")
    return same
