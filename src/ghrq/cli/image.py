"""The commands on image files: ``ghrq image encode`` and ``ghrq image decode``."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ghrq.cli.options import Force, out_option
from ghrq.report.console import columns
from ghrq.system.errors import UserError

if TYPE_CHECKING:
    from ghrq.models import ImageTokenizer
    from ghrq.models.image_files import ImageCodes
    from ghrq.system.progress import Progress

_Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of an image tokenizer, or of an image run.")]
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")

# Failed files that an error lists with the reason.
_LISTED = 10

# Times the tokenizer's own error. With tokenizers of digits, test images stay below 4; photos, noise and inverted
# digits have 8 to 55.
_FAR_WORSE = 5.0

app = typer.Typer(
    help="""Images to codes and back, with a trained tokenizer.

    \b
    Example:
      ghrq image encode runs/image-cifar100-cpu/ghrq-s0 cat.jpg --out cat.npz
      ghrq image decode runs/image-cifar100-cpu/ghrq-s0 cat.npz --depth 2 --out coarse.png
    """,
    no_args_is_help=True,
)


@app.command()
def encode(
    model: _Model,
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGE...",
            help="Any format that Pillow reads; of an animation, the first frame. Images keep their size.",
        ),
    ],
    out: Annotated[Path, out_option("File for the codes, .npz; or a folder, as for several images.")],
    force: Force = False,
) -> None:
    """Turn images into codes: a tuple for each square of 4 × 4 pixels.

    \b
    Examples:
      ghrq image encode runs/image-cifar100-cpu/ghrq-s0 cat.jpg --out cat.npz
      ghrq image encode runs/image-cifar100-cpu/ghrq-s0 holiday/*.jpg --out codes
    """  # noqa: D301
    from ghrq.models.image_files import encode_file

    outputs = _outputs(images, out, (".npz",), force)
    tokenizer, errors = _tokenizer(model), dict[Path, float]()

    def work(image: Path, to: Path, progress: "Progress") -> "ImageCodes":
        found, errors[image] = encode_file(tokenizer, image, to, progress)
        return found

    try:
        codes, (height, width) = _each(work, images, outputs, "encoding")
    finally:
        _warn(errors, tokenizer.config.test_error)
    rq = tokenizer.quantizer
    bits = codes[..., 0].numel() * sum((size - 1).bit_length() for size in rq.sizes)
    colours = "grey" if tokenizer.encoder.channels == 1 else "colour"
    found = [
        ("image", f"{width} × {height}, {colours}"),
        ("codes", f"{codes.shape[1]} × {codes.shape[0]} positions × {codes.shape[2]} codes of {rq.codebook_size}"),
        ("size", f"{-(-bits // 8):,} bytes as plain bits, {bits / (height * width):.2f} bits a pixel"),
    ]
    of = "the image" if len(images) == 1 else "the images, on average"
    own = tokenizer.config.test_error
    known = (
        "unknown for this model until 'ghrq eval' of its run"
        if own is None
        else f"{own:.2g} for the images it was tested on"
    )
    lost = ("error", f"{sum(errors.values()) / len(errors):.2g} for {of}, {known} (mean squared, pixels from 0 to 1)")
    _print_written(found, outputs, lost)


@app.command()
def decode(
    model: _Model,
    codes: Annotated[
        list[Path], typer.Argument(metavar="CODES...", help="Files that 'ghrq image encode' wrote with the same model.")
    ],
    out: Annotated[Path, out_option("File for the image, such as .png; or a folder, as for several.")],
    depth: Annotated[int | None, typer.Option(help="Number of first codes to use, from 1: fewer are coarser.")] = None,
    force: Force = False,
) -> None:
    """Turn codes back into images, at any depth.

    \b
    Examples:
      ghrq image decode runs/image-cifar100-cpu/ghrq-s0 cat.npz --depth 2 --out coarse.png
      ghrq image decode runs/image-cifar100-cpu/ghrq-s0 codes/*.npz --out images
    """  # noqa: D301
    from ghrq.models.image_files import decode_file

    outputs = _outputs(codes, out, _IMAGES, force)
    tokenizer = _tokenizer(model)
    found = _each(partial(decode_file, tokenizer, depth=depth), codes, outputs, "decoding")
    _print_written([("image", f"{found.size[1]} × {found.size[0]}")], outputs)


def _outputs(inputs: Sequence[Path], out: Path, formats: tuple[str, ...], force: bool) -> list[Path]:
    """The output of each input: the file ``out`` of a single one, else a file in the folder ``out``, new or not.

    A file that is there is an error without ``force``.
    """
    from ghrq.data.outputs import check_output

    if len(inputs) == 1 and not out.is_dir() and out.suffix:
        check_output(out, formats=formats, inputs=inputs, replace=force)
        return [out]
    if not out.is_dir() and (out.suffix.lower() in formats or os.path.lexists(out)):
        if len(inputs) == 1:
            raise UserError(f"--out {out} is no folder: name one, or a file that ends in {formats[0]}")
        raise UserError(f"--out {out} is one file for {len(inputs)} inputs: name a folder")
    outputs = [out / f"{path.stem}{formats[0]}" for path in inputs]
    for place, output in enumerate(outputs):
        if output in outputs[:place]:
            both = f"{inputs[outputs.index(output)]} and {inputs[place]}"
            raise UserError(f"{both} would both be written to {output}: do them one at a time")
    check_output(out, formats=None)
    if out.is_dir():
        for output in outputs:
            check_output(output, formats=formats, inputs=inputs, replace=force)
    return outputs


def _tokenizer(model: Path) -> "ImageTokenizer":
    """The tokenizer in a model folder, or that of a run."""
    from ghrq.cli.models import load_model
    from ghrq.models import ImageTokenizer

    return load_model(model, ImageTokenizer, "image", "tokenizer")


def _each(
    work: "Callable[[Path, Path, Progress], ImageCodes]", inputs: Sequence[Path], outputs: Sequence[Path], label: str
) -> "ImageCodes":
    """Process all files, with a progress bar if it takes long. Returns the last result.

    A file that fails does not stop the others; the error comes at the end.
    """
    from ghrq.system.progress import Progress, make_progress

    progress = make_progress()
    of_files, of_one = (progress, Progress()) if len(inputs) > 1 else (Progress(), progress)
    folder, failed = outputs[0].parent, []
    made = not folder.exists()
    folder.mkdir(exist_ok=True)  # only now, after wrong models and names were refused
    with of_files.patient_bar(label, len(inputs), unit="files") as bar:
        for one, to in zip(inputs, outputs, strict=True):
            try:
                found = work(one, to, of_one)
            except UserError as error:
                failed.append(str(error))
            bar.advance()
    if made and len(failed) == len(inputs):
        folder.rmdir()
    if failed:
        several = [f"{len(inputs) - len(failed)} of {len(inputs)} files written"] if len(inputs) > 1 else []
        reasons = list(dict.fromkeys(failed))
        raise UserError("\n  ".join([*several, *reasons[:_LISTED], *(["…"] if len(reasons) > _LISTED else [])]))
    return found


def _warn(errors: dict[Path, float], own: float | None) -> None:
    """Name the images of which the codes hold little: an image unlike the training images comes back as noise."""
    far = {path: error / own for path, error in errors.items() if own and error > _FAR_WORSE * own}
    for path, times in list(far.items())[:_LISTED]:
        print(
            f"warning: {path} comes back with {times:.0f} times the error of the tokenizer's test images: it is unlike "
            "them, and its codes hold little of it; decode it to see",
            file=sys.stderr,
        )
    if len(far) > _LISTED:
        print(f"warning: so do {len(far) - _LISTED:,} more", file=sys.stderr)


def _print_written(found: list[tuple[str, str]], outputs: Sequence[Path], *always: tuple[str, str]) -> None:
    """Print what was written; for a single file also what is ``found`` in it."""
    if len(outputs) == 1:
        print(columns([*found, *always, ("written to", str(outputs[0]))]))
    else:
        print(columns([("written to", str(outputs[0].parent)), ("files", f"{len(outputs):,}"), *always]))
