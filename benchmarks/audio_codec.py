"""An audio codec on recordings of speakers that it has not heard, beside Opus on the same recordings.

    python benchmarks/audio_codec.py                                # the codec that ships with ghrq
    python benchmarks/audio_codec.py --model runs/x/models/codec    # another one
    python benchmarks/audio_codec.py --opus 6 8 12                  # bitrates of Opus, in kbit/s

Prints PESQ (wide band), STOI, SI-SDR and mel distance at 1, 2, 4, 8 and all stages with the bitrates (nominal, entropy
of each stage by itself, files as written), the size of files against nominal, and how many seconds of sound one core
encodes and decodes in a second. Needs LibriSpeech in GHRQ_DATA, or --source.
"""

import argparse
import time

import numpy as np
import torch

from ghrq.data.audio.speech import load_speech, read
from ghrq.metrics.audio import Pair, means, scores
from ghrq.metrics.opus import opus
from ghrq.models import AudioCodec
from ghrq.system.progress import make_progress
from ghrq.tasks.audio.evaluation import evaluate_codec
from ghrq.tasks.audio.recipe import AudioEvaluation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="speech-16k")
    parser.add_argument("--source", default="", help="a folder of recordings")
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each, at most")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--opus", type=float, nargs="*", default=[6.0, 8.0, 12.0])
    given = parser.parse_args()
    torch.set_num_threads(1)
    codec, progress = AudioCodec.from_pretrained(given.model), make_progress()
    recordings = load_speech(given.source).test
    settings = AudioEvaluation(files=given.files, seconds=given.seconds, beam=given.beam)
    results = evaluate_codec(codec, recordings, settings, progress)
    table = results["by_depth"]
    print(f"{given.model}: {results['files']} files, {results['seconds']:.0f} s, beam {given.beam}")
    print("stages  nominal  entropy     file   PESQ   STOI  SI-SDR    mel   (bitrates in kbit/s)")
    names = ("nominal", "entropy", "file", "pesq", "stoi", "si_sdr", "mel")
    for depth, *row in zip(table["depth"], *(table[name] for name in names), strict=True):
        print("{:6.0f}  {:7.2f}  {:7.2f}  {:7.2f}  {:5.3f}  {:5.3f}  {:6.2f}  {:5.3f}".format(depth, *row))
    saved = 1.0 - table["file"][-1] / table["nominal"][-1]
    print(f"files of all stages are {saved:.1%} smaller than nominal")
    rate = codec.config.sample_rate
    places = np.linspace(0, len(recordings) - 1, results["files"]).round().astype(int)
    waves = [read(recordings[i], rate, given.seconds) for i in places]
    for kbps in given.opus:
        coded = [opus(wave, rate, kbps) for wave in waves]
        found = means(scores((Pair(w, o.wave) for w, o in zip(waves, coded, strict=True)), rate, progress, len(waves)))
        real = sum(o.bits for o in coded) / sum(map(len, waves)) * rate / 1000.0
        row = [found[name] for name in ("pesq", "stoi", "si_sdr", "mel")]
        print("Opus {:g}                   {:7.2f}  {:5.3f}  {:5.3f}  {:6.2f}  {:5.3f}".format(kbps, real, *row))
    speed(codec, torch.cat(waves)[: 60 * rate])


def speed(codec: AudioCodec, wave: torch.Tensor) -> None:
    """Time of this process on one core, so that others on the machine count as little as possible."""
    seconds = len(wave) / codec.config.sample_rate
    for beam in (1, 2, 4):
        start = time.process_time()
        codes = codec.encode(wave, beam=beam)
        print(f"encoding, beam {beam}: {seconds / (time.process_time() - start):.0f} times real time")
    start = time.process_time()
    codec.decode(codes, len(wave))
    print(f"decoding: {seconds / (time.process_time() - start):.0f} times real time")


if __name__ == "__main__":
    main()
