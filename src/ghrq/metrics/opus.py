"""Opus as an outside reference: what a well-known codec makes of the same files at a given bitrate.

By libopus, as the wheels of PyAV have it: variable bitrate, its best quality, 20 ms frames. Opus reaches the bitrate
asked for on average over its usual material only, so the bits of the packets are counted. Its delay differs by a sample
or two between its modes; what it decoded is shifted to where it fits best.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ghrq.system.errors import UserError, require

RATES = (8_000, 12_000, 16_000, 24_000, 48_000)
"""The sample rates in Hz that Opus encodes."""
KBPS = (6.0, 510.0)
"""The lowest and the highest bitrate of one channel, in kbit/s."""

_DECODED_RATE = 48_000
_SHIFTS = 2


class OpusCoded(NamedTuple):
    """A signal after Opus."""

    wave: Tensor
    """float32 ``(T,)``, as long as the original."""
    bits: int
    """Of all packets, without a file around them."""


def opus(wave: Tensor, rate: int, kbps: float) -> OpusCoded:
    """Encode and decode a mono signal ``(T,)`` of ``rate`` Hz by Opus at about ``kbps`` kbit/s."""
    if not KBPS[0] <= kbps <= KBPS[1]:
        raise UserError(f"Opus codes at {KBPS[0]:g} to {KBPS[1]:g} kbit/s, got {kbps:g}")
    if rate not in RATES:
        raise UserError(f"Opus encodes {', '.join(map(str, RATES))} Hz, got {rate}: resample first")
    av = require("av", "audio")
    soxr = require("soxr", "audio")
    samples = wave.detach().cpu().numpy().astype(np.float32)
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format = rate, "mono", "flt"
    encoder.bit_rate = round(1000 * kbps)
    encoder.options = {"vbr": "on", "application": "audio", "frame_duration": "20", "compression_level": "10"}
    encoder.open()
    packets = []
    for start in range(0, len(samples), encoder.frame_size):
        part = samples[None, start : start + encoder.frame_size]
        frame = av.AudioFrame.from_ndarray(part, format="flt", layout="mono")
        frame.sample_rate, frame.pts = rate, start
        packets += encoder.encode(frame)
    packets += encoder.encode(None)
    decoder = av.CodecContext.create("libopus", "r")
    decoder.extradata, decoder.sample_rate, decoder.layout = encoder.extradata, _DECODED_RATE, "mono"
    decoder.open()
    # In 16 bits; the decoder leaves out the delay that the encoder's header names.
    frames = [frame.to_ndarray().reshape(-1) for packet in packets for frame in decoder.decode(packet)]
    decoded = np.concatenate(frames).astype(np.float32) / np.float32(2**15)
    back: NDArray[np.float32] = soxr.resample(decoded, _DECODED_RATE, rate) if rate != _DECODED_RATE else decoded
    bits = 8 * sum(packet.size for packet in packets)
    return OpusCoded(torch.from_numpy(_aligned(back, samples)), bits)


def _aligned(decoded: NDArray[np.float32], original: NDArray[np.float32]) -> NDArray[np.float32]:
    """``decoded``, as long as ``original``, at the shift by at most two samples of the largest correlation."""
    padded = np.pad(decoded, (_SHIFTS, _SHIFTS + len(original)))
    shifted = [padded[shift : shift + len(original)] for shift in range(2 * _SHIFTS + 1)]
    return max(shifted, key=lambda candidate: float(candidate @ original)).copy()
