"""The commands for a person's own pictures: ``ghrq image encode`` and ``ghrq image decode``."""

from pathlib import Path
from typing import Annotated

import typer

from ghrq.report.console import columns

_Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of the task image.")]

app = typer.Typer(help="Pictures to codes and back, with a trained tokenizer.", no_args_is_help=True)


@app.command()
def encode(
    run: _Run,
    picture: Annotated[Path, typer.Argument(help="Any picture that Pillow reads; it keeps its size.")],
    out: Annotated[Path, typer.Option(help="File for the codes, .npz.")],
) -> None:
    """Turn a picture into codes: a tuple for each square of 4 × 4 pixels.

    \b
    Example:
      ghrq image encode runs/image-cifar100-cpu/ghrq-s0 cat.jpg --out cat.npz
    """  # noqa: D301
    from ghrq.data.tables import check_output
    from ghrq.tasks.image.files import encode_file, load_tokenizer

    check_output(out, formats=(".npz",), inputs=[picture])
    tokenizer = load_tokenizer(run)
    codes, (height, width) = encode_file(tokenizer, picture, out)
    rq = tokenizer.quantizer
    bits = codes.numel() * (rq.codebook_size - 1).bit_length()
    print(
        columns(
            [
                ("picture", f"{width} × {height}, {tokenizer.encoder.channels} channels"),
                (
                    "codes",
                    f"{codes.shape[1]} × {codes.shape[0]} positions × {codes.shape[2]} codes of {rq.codebook_size}",
                ),
                ("size", f"{bits / 8 / 1024:.1f} KiB as plain bits, {bits / (height * width):.2f} bits a pixel"),
                ("written to", str(out)),
            ]
        )
    )


@app.command()
def decode(
    run: _Run,
    codes: Annotated[Path, typer.Argument(help="A file that 'ghrq image encode' wrote with the same run.")],
    out: Annotated[Path, typer.Option(help="File for the picture, such as .png.")],
    depth: Annotated[int | None, typer.Option(help="Use only so many first codes: the coarse version.")] = None,
) -> None:
    """Turn codes back into a picture, at any depth.

    \b
    Example:
      ghrq image decode runs/image-cifar100-cpu/ghrq-s0 cat.npz --depth 2 --out coarse.png
    """  # noqa: D301
    from ghrq.data.tables import check_output
    from ghrq.tasks.image.files import decode_file, load_tokenizer

    check_output(out, formats=(".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tiff"), inputs=[codes])
    found = decode_file(load_tokenizer(run), codes, out, depth)
    print(columns([("picture", f"{found.size[1]} × {found.size[0]}"), ("written to", str(out))]))
