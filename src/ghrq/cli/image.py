"""The commands for a person's own pictures: ``ghrq image encode`` and ``ghrq image decode``."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ghrq.cli.options import out_option
from ghrq.report.console import columns
from ghrq.system.errors import UserError

if TYPE_CHECKING:
    from ghrq.system.progress import Progress
    from ghrq.tasks.image.files import Codes
    from ghrq.tasks.image.models import ImageTokenizer

_Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of the task image.")]
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")

# Files that failed of which an error tells why.
_TOLD = 10

app = typer.Typer(
    help="""Pictures to codes and back, with a trained tokenizer.

    \b
    Example:
      ghrq image encode runs/image-cifar100-cpu/ghrq-s0 cat.jpg --out cat.npz
      ghrq image decode runs/image-cifar100-cpu/ghrq-s0 cat.npz --depth 2 --out coarse.png
    """,
    no_args_is_help=True,
)


@app.command()
def encode(
    run: _Run,
    pictures: Annotated[
        list[Path],
        typer.Argument(
            metavar="PICTURE...",
            help="Any that Pillow reads, of several frames the first. They keep their size; a run on grey sees grey.",
        ),
    ],
    out: Annotated[Path, out_option("File for the codes, .npz; or a folder, as for several pictures.")],
) -> None:
    """Turn pictures into codes: a tuple for each square of 4 × 4 pixels.

    \b
    Examples:
      ghrq image encode runs/image-cifar100-cpu/ghrq-s0 cat.jpg --out cat.npz
      ghrq image encode runs/image-cifar100-cpu/ghrq-s0 holiday/*.jpg --out codes
    """  # noqa: D301
    from ghrq.tasks.image.files import encode_file

    outputs = _outputs(pictures, out, (".npz",))
    tokenizer = _tokenizer(run)
    codes, (height, width) = _each(partial(encode_file, tokenizer), pictures, outputs, "encoding")
    rq = tokenizer.quantizer
    bits = codes.numel() * (rq.codebook_size - 1).bit_length()
    colours = "grey" if tokenizer.encoder.channels == 1 else "colour"
    found = [
        ("picture", f"{width} × {height}, {colours}"),
        ("codes", f"{codes.shape[1]} × {codes.shape[0]} positions × {codes.shape[2]} codes of {rq.codebook_size}"),
        ("size", f"{-(-bits // 8):,} bytes as plain bits, {bits / (height * width):.2f} bits a pixel"),
    ]
    _tell(found, outputs)


@app.command()
def decode(
    run: _Run,
    codes: Annotated[
        list[Path], typer.Argument(metavar="CODES...", help="Files that 'ghrq image encode' wrote with the same run.")
    ],
    out: Annotated[Path, out_option("File for the picture, such as .png; or a folder, as for several.")],
    depth: Annotated[
        int | None, typer.Option(help="Use only the first codes, so many, from 1 up: the coarse version.")
    ] = None,
) -> None:
    """Turn codes back into pictures, at any depth.

    \b
    Examples:
      ghrq image decode runs/image-cifar100-cpu/ghrq-s0 cat.npz --depth 2 --out coarse.png
      ghrq image decode runs/image-cifar100-cpu/ghrq-s0 codes/*.npz --out pictures
    """  # noqa: D301
    from ghrq.tasks.image.files import decode_file

    outputs = _outputs(codes, out, _PICTURES)
    tokenizer = _tokenizer(run)
    found = _each(partial(decode_file, tokenizer, depth=depth), codes, outputs, "decoding")
    _tell([("picture", f"{found.size[1]} × {found.size[0]}")], outputs)


def _outputs(inputs: Sequence[Path], out: Path, formats: tuple[str, ...]) -> list[Path]:
    """Where each goes: one to the file ``out``, several into the folder of that name, which need not be there yet."""
    from ghrq.data.outputs import check_output

    if len(inputs) == 1 and not out.is_dir() and out.suffix:
        check_output(out, formats=formats, inputs=inputs)
        return [out]
    if not out.is_dir() and (out.suffix.lower() in formats or os.path.lexists(out)):
        if len(inputs) == 1:
            raise UserError(f"--out {out} is no folder: name one, or a file that ends in {formats[0]}")
        raise UserError(f"--out {out} is one file for {len(inputs)}: name a folder")
    outputs = [out / f"{path.stem}{formats[0]}" for path in inputs]
    for place, output in enumerate(outputs):
        if output in outputs[:place]:
            both = f"{inputs[outputs.index(output)]} and {inputs[place]}"
            raise UserError(f"{both} would both be written to {output}: do them one at a time")
    check_output(out, formats=None)
    if out.is_dir():
        for output in outputs:
            check_output(output, formats=formats, inputs=inputs)
    return outputs


def _tokenizer(run: Path) -> "ImageTokenizer":
    from ghrq.tasks.image.files import load_tokenizer
    from ghrq.training.run import Run

    tokenizer = load_tokenizer(run)
    opened = Run.open(run)
    if opened.results is None and not opened.checkpoints("prior").is_dir():
        print(f"note: {run} is not finished; once it is trained on, its codes mean something else", file=sys.stderr)
    return tokenizer


def _each(
    work: "Callable[[Path, Path, Progress], Codes]", inputs: Sequence[Path], outputs: Sequence[Path], label: str
) -> "Codes":
    """Do all, under a bar when it takes long: of the files, or of what a single one is made of. The last result.

    One that fails does not keep the others from being done; the error comes at the end.
    """
    from ghrq.system.progress import Progress, make_progress

    progress = make_progress()
    of_files, of_one = (progress, Progress()) if len(inputs) > 1 else (Progress(), progress)
    folder, failed = outputs[0].parent, []
    made = not folder.exists()
    folder.mkdir(exist_ok=True)  # only now that a wrong run or name has been refused
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
        raise UserError("\n  ".join([*several, *reasons[:_TOLD], *(["…"] if len(reasons) > _TOLD else [])]))
    return found


def _tell(found: list[tuple[str, str]], outputs: Sequence[Path]) -> None:
    """What was written: of a single file, what is ``found`` in it, too."""
    if len(outputs) == 1:
        print(columns([*found, ("written to", str(outputs[0]))]))
    else:
        print(columns([("written to", str(outputs[0].parent)), ("files", f"{len(outputs):,}")]))
