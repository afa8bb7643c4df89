"""The numbers of a trained codec: quality and bitrate at several depths, on recordings of other speakers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ghrq.data.audio.speech import Recording, read
from ghrq.metrics.audio import Pair, entropies, means, scores
from ghrq.models.audio_codec import AudioCodec
from ghrq.system.progress import Progress
from ghrq.tasks.audio.recipe import AudioEvaluation

_DEPTHS = (1, 2, 4, 8)


def depths_of(num_stages: int) -> list[int]:
    """The depths that are measured: 1, 2, 4, 8 and all stages."""
    return [*(depth for depth in _DEPTHS if depth < num_stages), num_stages]


def evaluate_codec(
    codec: AudioCodec, recordings: Sequence[Recording], settings: AudioEvaluation, progress: Progress
) -> dict[str, Any]:
    """Scores by depth against the bitrates, and the diagnosis of the quantizer.

    The codes of a recording are searched once, at full depth; fewer stages are the first codes.
    """
    rate = codec.config.sample_rate
    waves = evaluation_waves(recordings, rate, settings)
    with progress.patient_bar("encoding", len(waves), "files") as bar:
        codes = []
        for wave in waves:
            codes.append(codec.encode(wave, beam=settings.beam))
            bar.advance()
    depths = depths_of(codec.quantizer.num_stages)
    by_depth: dict[str, list[float]] = {"depth": [float(depth) for depth in depths], **bitrates(codec, codes, depths)}
    for depth in depths:
        pairs = (
            Pair(wave, codec.decode(found[:, :depth], len(wave))) for wave, found in zip(waves, codes, strict=True)
        )
        for name, value in means(scores(pairs, rate, progress, len(waves))).items():
            by_depth.setdefault(name, []).append(value)
    with torch.no_grad():
        z = torch.cat([codec.latents(wave.unsqueeze(0))[0] for wave in waves])
    return {
        **{name: by_depth[name][-1] for name in ("mel", "pesq", "stoi", "si_sdr")},
        "seconds": sum(len(wave) for wave in waves) / rate,
        "files": len(waves),
        "by_depth": by_depth,
        "quantizer": codec.quantizer.diagnose(z).to_dict(),
    }


def evaluation_waves(recordings: Sequence[Recording], rate: int, settings: AudioEvaluation) -> list[Tensor]:
    """What codecs are judged on: the beginnings ``(T,)`` of some recordings, evenly spread."""
    places = np.linspace(0, len(recordings) - 1, min(settings.files, len(recordings))).round().astype(int)
    return [read(recordings[i], rate, settings.seconds) for i in places]


def bitrates(codec: AudioCodec, codes: Sequence[Tensor], depths: Sequence[int]) -> dict[str, list[float]]:
    """Kilobits a second at each depth, ``nominal`` and ``entropy`` of each stage by itself.

    The entropy is that of the ``codes (frames, num_stages)`` of all recordings together.
    """
    size, kilo = codec.quantizer.codebook_size, codec.frame_rate / 1000.0
    bits = entropies(torch.cat(list(codes)), size)
    return {
        "nominal": [kilo * depth * float(np.log2(size)) for depth in depths],
        "entropy": [kilo * float(bits[:depth].sum()) for depth in depths],
    }
