"""Run folders with results, made without training: a recipe that ships, and a real quantizer's diagnosis."""

from functools import cache

import torch

from ghrq import ResidualQuantizer
from ghrq.training.recipe import load_recipe
from ghrq.training.run import Run


@cache
def diagnosis(kind="ghrq", seed=0):
    torch.manual_seed(seed)
    z = torch.randn(256, 4)
    quantizer = ResidualQuantizer(4, 8, 3, kind)
    quantizer.initialize(z)
    return quantizer.diagnose(z).to_dict()


def finished(folder, recipe="image/mnist-cpu", kind="ghrq", seed=0, mse=0.002, overrides=()):
    """A finished run, as ``ghrq train`` leaves it: without axes."""
    given = [f"quantizer.kind={kind}", f"seed={seed}", *overrides]
    run = Run.create(folder, load_recipe(recipe, given))
    for epoch in range(1, 4):
        run.log(
            {"stage": "tokenizer", "step": epoch, "epoch": epoch, "quantizer": 1.0 / epoch, "seconds": 60.0 * epoch}
        )
    depths = [8 * mse, 4 * mse, 2 * mse, mse]
    run.write_results({"mse": mse, "mse_by_depth": depths, "quantizer": diagnosis(kind, seed)})
    return run


def finished_audio(folder, kind="ghrq", seed=0, overrides=()):
    run = Run.create(folder, load_recipe("audio/cpu", [f"quantizer.kind={kind}", f"seed={seed}", *overrides]))
    by_depth = {
        "nominal": [0.5, 1.0, 6.0],
        "entropy": [0.4, 0.9, 5.5],
        "file": [0.5, 1.0, 5.6],
        "mel": [2.0, 1.5, 1.0 + seed],
        "pesq": [1.1, 1.3, 2.0],
        "stoi": [0.5, 0.7, 0.9],
        "si_sdr": [-8.0, -1.0, 4.0],
    }
    scores = {name: values[-1] for name, values in by_depth.items() if name in ("mel", "pesq", "stoi", "si_sdr")}
    run.write_results({**scores, "by_depth": by_depth, "quantizer": diagnosis(kind, seed)})
    return run
