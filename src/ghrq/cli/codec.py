"""The commands on sound: ``ghrq codec encode``, ``decode``, ``info``, ``trim``, ``train``, ``listen``."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ghrq.cli.options import Force, out_option
from ghrq.report.console import columns
from ghrq.system.errors import UserError, shell

if TYPE_CHECKING:
    from ghrq.models.audio_codec import AudioCodec
    from ghrq.models.bitstream import Header

SHIPPED = "speech-16k"
"""The model that comes with ghrq."""

_FORMAT = ".ghrq"

# How many candidates the search for codes keeps. 4 sounds a little better, at about a quarter of the speed.
_BEAM, _WIDEST = 1, 1024

# It begins with nothing, as a user does: audio/speech goes on from a codec that is trained already.
_RECIPE = "audio/speech-first"

_Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="A folder of an audio codec or of an audio run, or a name on the Hub; by default "
        f"{SHIPPED}, which comes with ghrq.",
    ),
]

app = typer.Typer(
    help="""Sound to small files and back, with a neural codec of speech.

    \b
    Example:
      ghrq codec encode talk.wav talk.ghrq
      ghrq codec decode talk.ghrq heard.wav
    """,
    no_args_is_help=True,
)


@app.command()
def encode(
    sound: Annotated[Path, typer.Argument(metavar="IN", help="An audio file: WAV, FLAC, OGG, MP3, …; any rate.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new file, .ghrq.")],
    stages: Annotated[
        int | None, typer.Option(help="Codes of a frame, from 1: fewer are smaller and coarser. By default all.")
    ] = None,
    model: _Model = None,
    beam: Annotated[int, typer.Option(min=1, max=_WIDEST, help="Search: more is slower and a little better.")] = _BEAM,
    force: Force = False,
) -> None:
    """Encode an audio file. Each channel is coded by itself.

    \b
    Examples:
      ghrq codec encode talk.wav talk.ghrq
      ghrq codec encode song.flac small.ghrq --stages 4
      ghrq codec encode talk.wav talk.ghrq --model runs/mine --beam 4
    """  # noqa: D301
    from ghrq.models.audio_files import encode_file
    from ghrq.system.progress import make_progress

    _check(out, (_FORMAT,), sound, force)
    codec = _codec(model)
    header = encode_file(codec, sound, out, make_progress(), stages=stages, beam=beam)
    print(columns([*_facts(header, out), ("written to", str(out))]))


@app.command()
def decode(
    file: Annotated[Path, typer.Argument(metavar="IN", help="A .ghrq file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new file, .wav or .flac, 16 bits.")],
    stages: Annotated[int | None, typer.Option(help="Codes of a frame to use, from 1; by default all.")] = None,
    start: Annotated[float, typer.Option("--from", metavar="SECONDS", help="Decode from here on.")] = 0.0,
    stop: Annotated[float | None, typer.Option("--to", metavar="SECONDS", help="Decode up to here.")] = None,
    model: _Model = None,
    force: Force = False,
) -> None:
    """Decode a .ghrq file to an audio file of the original's rate, channels and length.

    \b
    Examples:
      ghrq codec decode talk.ghrq heard.wav
      ghrq codec decode talk.ghrq part.flac --from 30 --to 40
      ghrq codec decode talk.ghrq coarse.wav --stages 2
    """  # noqa: D301
    from ghrq.data.audio.files import WRITTEN
    from ghrq.models.audio_files import Part, decode_file
    from ghrq.system.progress import make_progress

    _check(out, WRITTEN, file, force)
    part = Part(start, math.inf if stop is None else stop)
    found = decode_file(_codec(model), file, out, make_progress(), stages=stages, part=part)
    rows = [("sound", f"{found.samples / found.header.rate:.2f} s, {_format(found.header)}")]
    if found.clipped:
        rows.append(("clipped", f"{found.clipped:,} samples above full scale were cut to it"))
    print(columns([*rows, ("written to", str(out))]))


@app.command()
def info(file: Annotated[Path, typer.Argument(metavar="FILE", help="A .ghrq file.")]) -> None:
    """Show what a .ghrq file holds, and check it for damage. No model is needed.

    \b
    Example:
      ghrq codec info talk.ghrq
    """  # noqa: D301
    from ghrq.models.bitstream import reading
    from ghrq.system.progress import make_progress

    with reading(file) as reader:
        header = reader.header
        with make_progress().patient_bar("checking", header.chunks, "chunks") as bar:
            for _ in reader.raw_chunks():
                bar.advance()
    rows = [
        ("chunks", f"{header.chunks:,}, at most {header.chunk * header.hop / header.codec_rate:g} s each, undamaged"),
        ("model", f"{header.fingerprint.hex()}, at {header.codec_rate:,} Hz"),
    ]
    print(columns([*_facts(header, file), *rows]))


@app.command()
def trim(
    file: Annotated[Path, typer.Argument(metavar="IN", help="A .ghrq file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new file, .ghrq.")],
    stages: Annotated[int, typer.Option(help="Codes of a frame to keep, from 1.")],
    force: Force = False,
) -> None:
    """Make a file smaller by dropping its last stages. Nothing is encoded again, and no model is needed.

    \b
    Example:
      ghrq codec trim talk.ghrq small.ghrq --stages 4
    """  # noqa: D301
    from ghrq.models import bitstream
    from ghrq.system.progress import make_progress

    _check(out, (_FORMAT,), file, force)
    with make_progress().patient_bar("trimming", 0, "chunks") as bar:
        header = bitstream.trim(file, out, stages, bar.advance)
    print(columns([*_facts(header, out), ("written to", str(out))]))


@app.command()
def train(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Recordings, best with a subfolder for each speaker.")
    ],
    out: Annotated[Path, out_option("Folder of the run: give it to --model afterwards.")],
    recipe: Annotated[str, typer.Option(help="A recipe of the task 'audio'; see 'ghrq recipes'.")] = _RECIPE,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
    ] = None,
) -> None:
    """Train a codec on your own recordings: from the beginning, or, as in the second example, from the one that ships.

    The same as 'ghrq train' with data.source.

    \b
    Examples:
      ghrq codec train recordings/ --out runs/mine
      ghrq codec train recordings/ --recipe audio/speech --set start=speech-16k --out runs/tuned
      ghrq codec encode talk.wav talk.ghrq --model runs/mine
    """  # noqa: D301
    from ghrq.cli.experiments import train as train_recipe
    from ghrq.tasks.audio.recipe import AudioRecipe
    from ghrq.training.recipe import load_recipe

    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: name that of your recordings")
    chosen = load_recipe(recipe)
    if not isinstance(chosen, AudioRecipe):
        raise UserError(f"{recipe} is a recipe of the task '{chosen.task}': name one of audio (ghrq recipes)")
    train_recipe(recipe, [f"data.source={folder.absolute()}", *(override or [])], out)
    print(f"next: {shell('ghrq', 'codec', 'encode', 'IN', 'OUT.ghrq', '--model', out)}")


@app.command()
def listen(
    sound: Annotated[Path, typer.Argument(metavar="IN", help="An audio file.")],
    out: Annotated[Path, out_option("The page, .html: one file that needs nothing but a browser.")],
    seconds: Annotated[float, typer.Option(min=0.1, help="Of the sound, from --from on, at most.")] = 20.0,
    start: Annotated[float, typer.Option("--from", metavar="SECONDS", min=0.0, help="Begin here.")] = 0.0,
    model: _Model = None,
    beam: Annotated[int, typer.Option(min=1, max=_WIDEST, help="As for encode.")] = _BEAM,
    force: Force = False,
) -> None:
    """Write a page on which to hear the original and the decoded sound at every depth, and to test yourself blindly.

    \b
    Example:
      ghrq codec listen talk.wav --out listen.html
    """  # noqa: D301
    from ghrq.report.listen import write_page
    from ghrq.system.progress import make_progress

    _check(out, (".html",), sound, force)
    page = write_page(_codec(model), sound, out, make_progress(), start=start, seconds=seconds, beam=beam)
    print(columns([("sound", f"{page.seconds:.2f} s"), ("written to", str(out))]))


def _check(out: Path, formats: tuple[str, ...], given: Path, force: bool) -> None:
    """Raise an error if ``out`` cannot be written, is the input, or would be replaced without ``force``."""
    from ghrq.data.outputs import check_output
    from ghrq.system.inputs import InputFile

    InputFile(given)
    check_output(out, formats, [given], replace=force)


def _codec(model: str | None) -> "AudioCodec":
    """The codec in a model folder, of a run, or by its name; by default the shipped one, whatever folders there are."""
    from ghrq.cli.models import load_model
    from ghrq.models.audio_codec import SHIPPED_CODECS, AudioCodec

    if model is None:
        return AudioCodec.from_pretrained(SHIPPED_CODECS / SHIPPED)
    path = Path(model)
    if path.is_dir() and not (path / "config.json").is_file():
        return load_model(path, AudioCodec, "audio", "codec")
    return AudioCodec.from_pretrained(model)


def _facts(header: "Header", file: Path) -> list[tuple[str, str]]:
    """What a file holds, and its bitrate."""
    size = file.stat().st_size
    rows: list[tuple[str, Any]] = [("sound", f"{header.seconds:.2f} s, {_format(header)}")]
    rows.append(("codes", f"{header.stages} of {header.codes} for each of {header.frames:,} frames"))
    if header.length:
        rate, nominal = 8e-3 * size / header.seconds, header.nominal_bytes
        plain = f", {size / nominal - 1:+.1%} against {nominal:,.0f} plain" if nominal else ""
        rows.append(("size", f"{size:,} bytes, {rate:.2f} kbit/s{plain}"))
    else:
        rows.append(("size", f"{size:,} bytes"))
    return rows


def _format(header: "Header") -> str:
    named = {1: "mono", 2: "stereo"}.get(header.channels, f"{header.channels} channels")
    return f"{header.rate:,} Hz, {named}"
