"""The scores of an audio codec on recordings of speakers that it has not heard, at several depths.

    GHRQ_DATA=FOLDER python benchmarks/audio_codec.py                  # the codec that ships with ghrq
    python benchmarks/audio_codec.py --model runs/x/models/codec --source LibriSpeech --beam 1

benchmarks/opus.py gives the scores of Opus on the same recordings, benchmarks/codec_files.py speed and memory.
"""

import argparse

from ghrq.data.audio.speech import load_speech
from ghrq.models import AudioCodec
from ghrq.system.progress import make_progress
from ghrq.tasks.audio.evaluation import evaluate_codec
from ghrq.tasks.audio.recipe import AudioEvaluation


def main() -> None:
    usual = AudioEvaluation()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="speech-16k")
    parser.add_argument("--source", default="", help="folder of recordings, by default that of GHRQ_DATA")
    parser.add_argument("--files", type=int, default=usual.files)
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="of each, at most")
    parser.add_argument("--beam", type=int, default=usual.beam)
    given = parser.parse_args()
    settings = AudioEvaluation(files=given.files, seconds=given.seconds, beam=given.beam)
    codec, recordings = AudioCodec.from_pretrained(given.model), load_speech(given.source).test
    results = evaluate_codec(codec, recordings, settings, make_progress())
    table = results["by_depth"]
    print(f"{given.model}: {results['files']} recordings, {results['seconds']:.0f} s, beam {given.beam}")
    print(
        "| stages | nominal kbit/s | entropy | files | PESQ | STOI | SI-SDR | mel |\n|---|---|---|---|---|---|---|---|"
    )
    names = ("nominal", "entropy", "file", "pesq", "stoi", "si_sdr", "mel")
    for depth, *row in zip(table["depth"], *(table[name] for name in names), strict=True):
        print("| {:.0f} | {:.2f} | {:.2f} | {:.2f} | {:.3f} | {:.3f} | {:.2f} | {:.3f} |".format(depth, *row))
    print(f"files of all stages are {1.0 - table['file'][-1] / table['nominal'][-1]:.1%} smaller than nominal")


if __name__ == "__main__":
    main()
