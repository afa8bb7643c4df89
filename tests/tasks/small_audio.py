"""A recipe of the audio task that is trained in seconds, on notes that stand in for voices."""

from pathlib import Path

import numpy as np
import soundfile

from ghrq.tasks.audio.recipe import AudioRecipe
from ghrq.training.recipe import load_recipe

SMALL = [
    "codec.dim=16", "codec.frame.hidden=16", "quantizer.codebook_size=32", "quantizer.num_stages=3",
    "optimizer.steps=8", "optimizer.batch=2", "optimizer.crop=0.25", "optimizer.start_crops=24",
    "optimizer.validate_every=4", "optimizer.validation_crops=3", "evaluation.files=2", "evaluation.seconds=1",
    "evaluation.beam=2", "evaluation.coder_minutes=0.1", "training.trackers=[]", "training.log_every=2",
]  # fmt: skip


def small(source: Path, *settings: str) -> AudioRecipe:
    recipe = load_recipe("audio/cpu", [*SMALL, f"data.source={source}", *settings])
    assert isinstance(recipe, AudioRecipe)
    return recipe


def write_voices(folder: Path, speakers: int = 6, files: int = 2, seconds: float = 1.5) -> Path:
    """``SPEAKER/N.wav``: harmonics of a note that glides, and a little noise."""
    chance = np.random.default_rng(0)
    for speaker in range(speakers):
        (folder / f"speaker{speaker}").mkdir(parents=True)
        for number in range(files):
            time = np.arange(int(16_000 * seconds)) / 16_000
            pitch = (90 + 25 * speaker) * (1 + 0.2 * np.sin(2 * np.pi * time * chance.uniform(1, 3)))
            phase = 2 * np.pi * np.cumsum(pitch) / 16_000
            sound = sum(np.sin(k * phase) / k for k in range(1, 12)) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))
            sound = 0.1 * sound + 0.002 * chance.standard_normal(len(time))
            soundfile.write(folder / f"speaker{speaker}" / f"{number}.wav", sound, 16_000)
    return folder
