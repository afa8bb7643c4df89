"""The numbers of a trained codec: quality and bitrate at several depths, on recordings of other speakers."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ghrq.data.audio.speech import Recording, read
from ghrq.metrics.audio import Pair, entropies, means, scores
from ghrq.models.audio_codec import AudioCodec
from ghrq.models.audio_stream import EncodeStream
from ghrq.models.bitstream import header_of, writing
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
    """Kilobits a second at each depth: ``nominal``, ``entropy`` of each stage by itself, and of ``file``s.

    ``codes (frames, num_stages)`` are those of recordings. The entropy is that of all of them together. Files are
    written, header and checksums included.
    """
    size, kilo = codec.config.codes, codec.frame_rate / 1000.0
    bits = entropies(torch.cat(list(codes)), size)
    frames = sum(len(each) for each in codes)
    found = {
        "nominal": [kilo * depth * float(np.log2(size)) for depth in depths],
        "entropy": [kilo * float(bits[:depth].sum()) for depth in depths],
        "file": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sound.ghrq"
        for depth in depths:
            total = 0
            for each in codes:
                write_codes(path, codec, each[:, :depth])
                total += path.stat().st_size
            found["file"].append(8.0 * total * kilo / frames)
    return found


def write_codes(path: Path, codec: AudioCodec, codes: Tensor) -> None:
    """A file of ``codes (frames, depth)``, replaced if there is one."""
    header = header_of(codec, codes.shape[1], 1, codec.config.sample_rate)
    path.unlink(missing_ok=True)
    with writing(path, header, codec.tables) as writer:
        writer.write(codes.unsqueeze(0))
        writer.finish(len(codes) * codec.hop)


def fit_tables(
    codec: AudioCodec, recordings: Sequence[Recording], seconds: float, beam: int, progress: Progress
) -> None:
    """Make the tables of the entropy coder from codes of ``recordings``: at most ``seconds`` of them, evenly spread.

    Of long recordings, the beginnings. With 0 seconds there are no tables.
    """
    if not seconds:
        return
    total = sum(recording.seconds for recording in recordings)
    count = min(len(recordings), max(1, int(len(recordings) * seconds / total)))
    chosen = [recordings[i] for i in np.linspace(0, len(recordings) - 1, count).round().astype(int)]
    share = min(1.0, seconds / sum(recording.seconds for recording in chosen))
    rate, frame = codec.config.sample_rate, 1.0 / codec.frame_rate
    codes = []
    with progress.patient_bar("codes for the coder", count, "files") as bar:
        for recording in chosen:
            wave = read(recording, rate, max(frame, share * recording.seconds))
            stream = EncodeStream(codec, beam=beam)  # in blocks: a recording may be hours long
            codes.append(torch.cat((stream.push(wave.unsqueeze(0)), stream.finish()), dim=1)[0].numpy())
            bar.advance()
    codec.tables.fit(codes)
