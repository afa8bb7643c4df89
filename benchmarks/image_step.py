"""What the quantizer adds to a training step of the image tokenizer, against the same step without any quantizer.

    pip install -e '.[image]'
    python benchmarks/image_step.py                  # CIFAR-100's shape and MNIST's
    python benchmarks/image_step.py --repeats 21

The networks, the loss and the optimiser are those of the recipes `image/cifar100-cpu` and `image/mnist-cpu`; without a
quantizer the decoder gets what the encoder gives. Contenders take turns, medians are reported. First with memory as the
system hands it out, then kept by the process, as `ghrq train` does.
"""

import argparse
from collections.abc import Callable

import timing
import torch
import torch.nn.functional as F

from ghrq.models.image_tokenizer import ImageTokenizer, ImageTokenizerConfig, as_floats
from ghrq.optim import RiemannianAdam
from ghrq.system.memory import keep_freed
from ghrq.tasks.image.recipe import ImageRecipe
from ghrq.training.recipe import load_recipe

KINDS = ("ghrq", "naive", "euclidean")
SHAPES = {"cifar100": (256, 3, 32, 32), "mnist": (256, 1, 28, 28)}


def step_of(tokenizer: ImageTokenizer, recipe: ImageRecipe, pixels: torch.Tensor, quantize: bool) -> Callable[[], None]:
    optimizer = RiemannianAdam(tokenizer.parameters(), lr=recipe.tokenizer.rate)
    tokenizer.quantizer.attach(optimizer)
    tokenizer.train()

    def step() -> None:
        if quantize:
            loss = tokenizer(pixels)["loss"]
        else:
            x = as_floats(pixels)
            loss = F.mse_loss(tokenizer.decoder(tokenizer.vectors(x), (x.shape[2], x.shape[3])), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def measure(name: str, repeats: int) -> dict[str, float]:
    """Seconds of a step, by contender."""
    torch.manual_seed(0)
    # Smooth images: the encoder's outputs on noise are unlike those on real images.
    coarse = torch.rand(SHAPES[name][0], SHAPES[name][1], 6, 6)
    pixels = (255 * F.interpolate(coarse, SHAPES[name][2:], mode="bicubic").clamp(0, 1)).byte()
    steps = {}
    for kind in ("none", *KINDS):
        recipe = load_recipe(f"image/{name}-cpu", [f"quantizer.kind={'ghrq' if kind == 'none' else kind}"])
        assert isinstance(recipe, ImageRecipe)
        settings = recipe.tokenizer.model_dump(include={"dim", "pixel_range"})
        config = ImageTokenizerConfig(channels=pixels.shape[1], quantizer=recipe.quantizer, **settings)
        tokenizer = ImageTokenizer(config)
        with torch.no_grad():
            tokenizer.quantizer.initialize(tokenizer.vectors(as_floats(pixels)))
        steps[kind] = step_of(tokenizer, recipe, pixels, kind != "none")
    return timing.medians(timing.interleaved(steps, repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repeats", type=timing.positive, default=15, help="timed steps of each contender (%(default)s)"
    )
    threads = torch.get_num_threads()
    parser.add_argument("--threads", type=timing.positive, default=threads, help="for everyone (%(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(timing.describe(timing.machine(arguments.threads)))
    print("\n| step | no quantizer | " + " | ".join(KINDS) + " |")
    print("| --- | ---: | " + "---: | " * len(KINDS))
    for memory in ("", ", memory kept"):
        if memory and not keep_freed():
            return
        for name in SHAPES:
            found = measure(name, arguments.repeats)
            ratios = [f"{found[kind] / found['none']:.2f}" for kind in KINDS]
            print(f"| {name}{memory} | {1000 * found['none']:.0f} ms | " + " | ".join(ratios) + " |", flush=True)


if __name__ == "__main__":
    main()
