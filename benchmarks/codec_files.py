"""Speed, memory and size of ``ghrq codec`` on a long file and on held-out speech, one core.

    python benchmarks/codec_files.py                          # the shipped model, one hour, speech in GHRQ_DATA
    python benchmarks/codec_files.py --model runs/mine --hours 0.1 --files 8

Times are those of the processor (user and system), so that other work on the machine does not count. The long file is
made of the recordings, again and again; the sizes are of recordings of 10 s and more of the test split.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile

from ghrq.data.audio.speech import load_speech
from ghrq.models.bitstream import reading

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("--model", default="speech-16k")
arguments.add_argument("--hours", type=float, default=1.0)
arguments.add_argument("--beam", type=int, default=None)
arguments.add_argument("--files", type=int, default=32, help="recordings of 10 s and more for the sizes; 0 for none")
given = arguments.parse_args()
beam = () if given.beam is None else ("--beam", str(given.beam))


def run(*command):
    """Processor seconds of ``ghrq codec …``, and the most memory in MB of all such processes so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "ghrq", "codec", *map(str, command)],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024


with tempfile.TemporaryDirectory() as name:
    folder, speech = Path(name), load_speech("").test
    long = folder / "long.wav"
    left = round(given.hours * 3600 * 16_000)
    with soundfile.SoundFile(long, "w", 16_000, 1) as file:
        while left:
            for recording in speech:
                wave = soundfile.read(recording.path, dtype="float32")[0][:left]
                file.write(wave)
                left -= len(wave)
    seconds = soundfile.info(long).duration
    for label, command in (
        ("encode", ("encode", long, folder / "long.ghrq", "--model", given.model, *beam)),
        ("decode", ("decode", folder / "long.ghrq", folder / "back.wav", "--model", given.model)),
    ):
        used, memory = run(*command)
        speed = f"{seconds / used:.0f} times real time"
        print(f"{label}  {seconds:,.0f} s of sound in {used:.1f} s: {speed}, {memory:.0f} MB", flush=True)
    part = ("--from", seconds - 12, "--to", seconds - 2, "--model", given.model)
    used, _ = run("decode", folder / "long.ghrq", folder / "part.wav", *part)
    print(f"seek    10 s near the end in {used:.1f} s, with the start of the program")
    ratios = []
    for i, recording in enumerate([each for each in speech if each.seconds >= 10.0][: given.files]):
        run("encode", recording.path, folder / f"{i}.ghrq", "--model", given.model, *beam)
        with reading(folder / f"{i}.ghrq") as reader:
            ratios.append(reader.size / reader.header.nominal_bytes)
    if ratios:
        print(
            f"size    {100 * (1 - np.mean(ratios)):.1f} % below plain codes ({100 * (1 - max(ratios)):.1f} to "
            f"{100 * (1 - min(ratios)):.1f} %), {len(ratios)} recordings of 10 s and more"
        )
