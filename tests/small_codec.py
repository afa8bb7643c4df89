"""A small audio codec with random weights in all layers, for tests."""

import torch

from ghrq.models.audio_codec import AudioCodec, AudioCodecConfig
from ghrq.nets.frame_codec import FrameCodecConfig
from ghrq.quantizer import QuantizerConfig


def small_codec(causal=False, stages=4, codes=64):
    torch.manual_seed(0)
    frame = FrameCodecConfig(hop=20, hidden=16, kernel=5, causal=causal)
    quantizer = QuantizerConfig(kind="calibrated", codebook_size=codes, num_stages=stages)
    codec = AudioCodec(AudioCodecConfig(sample_rate=8000, dim=8, frame=frame, quantizer=quantizer))
    with torch.no_grad():
        for name, parameter in codec.network.named_parameters():
            if "outer" in name:  # a block that starts at zero would not look around
                parameter.normal_(0.0, 0.3)
        wave = speech_like(20_000).unsqueeze(0)
        codec.network.start(wave)
        codec.quantizer.initialize(codec.latents(wave).flatten(0, 1))
    return codec.eval()


def speech_like(samples, seed=0):
    """Noise of changing loudness and colour, ``(samples,)``."""
    chance = torch.Generator().manual_seed(seed)
    noise = torch.randn(samples, generator=chance)
    smooth = torch.nn.functional.avg_pool1d(noise.view(1, 1, -1), 5, 1, 2, count_include_pad=False)[0, 0]
    loudness = torch.sin(torch.arange(samples) / 900.0).abs() ** 2
    return (0.3 * loudness * (noise * torch.sin(torch.arange(samples) / 3000.0).abs() + smooth)).clamp(-1, 1)
