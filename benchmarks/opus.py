"""Opus on the recordings and by the scores that audio codecs of ghrq are judged by: an outside reference.

    GHRQ_DATA=FOLDER python benchmarks/opus.py
    python benchmarks/opus.py --source LibriSpeech --kbps 6 8 12 --files 64 --seconds 8

Prints a row for each bitrate: what was asked for, what the packets have, the scores.
"""

import argparse

from ghrq.data.audio.speech import load_speech
from ghrq.metrics.audio import Pair, means, scores
from ghrq.metrics.opus import opus
from ghrq.system.progress import make_progress
from ghrq.tasks.audio.evaluation import evaluation_waves
from ghrq.tasks.audio.recipe import AudioEvaluation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="", help="folder of recordings, by default that of GHRQ_DATA")
    parser.add_argument("--kbps", type=float, nargs="+", default=[6.0, 8.0, 12.0])
    parser.add_argument("--files", type=int, default=AudioEvaluation().files)
    parser.add_argument("--seconds", type=float, default=AudioEvaluation().seconds)
    parser.add_argument("--rate", type=int, default=16_000, help="sample rate in Hz")
    given = parser.parse_args()
    settings = AudioEvaluation(files=given.files, seconds=given.seconds)
    waves = evaluation_waves(load_speech(given.source).test, given.rate, settings)
    seconds = sum(len(wave) for wave in waves) / given.rate
    print(f"{len(waves)} recordings, {seconds:.0f} s")
    print("| Opus, kbit/s | of its packets | PESQ | STOI | SI-SDR | mel |\n|---|---|---|---|---|---|")
    for kbps in given.kbps:
        coded = [opus(wave, given.rate, kbps) for wave in waves]
        pairs = [Pair(wave, one.wave) for wave, one in zip(waves, coded, strict=True)]
        found = means(scores(pairs, given.rate, make_progress()))
        real = sum(one.bits for one in coded) / seconds / 1000.0
        print(
            f"| {kbps:g} | {real:.2f} | {found['pesq']:.2f} | {found['stoi']:.3f} | {found['si_sdr']:.1f} "
            f"| {found['mel']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
