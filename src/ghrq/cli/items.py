"""Commands for a table of embeddings: fit a tokenizer, encode, decode, inspect. Heavy imports are inside them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ghrq.cli.options import out_option
from ghrq.data.outputs import check_output, replacing
from ghrq.report.console import columns
from ghrq.system.errors import UserError, shell
from ghrq.system.files import read_json, restore, write_json
from ghrq.system.progress import make_progress

if TYPE_CHECKING:
    from ghrq.data.tables import VectorTable
    from ghrq.tokenizer import Tokenizer

Kind = Literal["ghrq", "naive", "euclidean", "hra-only", "dhste-only"]
Policy = Literal["append", "reassign", "none"]

TABLE_FILE = "table.json"
"""In the folder of a tokenizer: the columns it was fitted on."""
IDS_FILE = "ids.parquet"
"""In the folder of a tokenizer: the IDs of the items it was fitted on."""

_Items = Annotated[Path, typer.Argument(help="Embeddings: .parquet (or a folder of parts), .npy, .csv, .jsonl (.gz).")]
_TokenizerFolder = Annotated[Path, typer.Argument(metavar="TOKENIZER", help="A folder that 'ghrq fit' wrote.")]
_Ids = Annotated[Path, typer.Argument(help="IDs that 'ghrq encode' wrote.")]
_Column = Annotated[
    str | None,
    typer.Option(help="The vectors: a column of lists, or columns of numbers as a,b,c or a pattern 'emb_*'."),
]
_Id = Annotated[
    str | None, typer.Option("--id", help="The column of the ids, text or whole numbers; '' numbers the rows.")
]
_Collisions = Annotated[
    Policy,
    typer.Option(help="Items with equal codes: 'append' a tie-break token, 'reassign' to free codes, or 'none'."),
]


def fit(
    items: _Items,
    out: Annotated[Path, out_option("Folder for the tokenizer and the IDs of these items.")],
    column: _Column = None,
    id_column: _Id = None,
    kind: Annotated[Kind, typer.Option(help="The quantizer.")] = "ghrq",
    stages: Annotated[int, typer.Option(min=1, help="Codes of each ID.")] = 4,
    codes: Annotated[int, typer.Option(min=1, help="Codes to choose from in each stage.")] = 256,
    engine: Annotated[
        Literal["kmeans", "autoencoder"],
        typer.Option(
            help="kmeans, or autoencoder: an RQ-VAE, which fits this table more closely, and items that come later "
            "no better, in about four times the time."
        ),
    ] = "kmeans",
    epochs: Annotated[int | None, typer.Option(min=1, help="Of the autoencoder: passes over the table.")] = None,
    latent_dim: Annotated[
        int | None, typer.Option(min=1, help="Of the autoencoder: size of the vectors it quantizes.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(min=0.0, help="Of the autoencoder.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same table and seed, same IDs.")] = 0,
    collisions: _Collisions = "append",
    force: Annotated[bool, typer.Option("--force", help="Replace a tokenizer that is there, with its IDs.")] = False,
) -> None:
    """Learn short hierarchical IDs for a table of embeddings. A large table is sampled for it.

    \b
    Examples:
      ghrq fit items.parquet --column embedding --id item_id --out tok/
      ghrq fit vectors.npy --stages 3 --codes 512 --kind euclidean --out tok/
    """  # noqa: D301
    from ghrq.data.tables import open_table
    from ghrq.ids.tuples import count_distinct
    from ghrq.tokenizer import Tokenizer, bulk

    progress = make_progress()
    network: dict[str, Any] = {"epochs": epochs, "latent_dim": latent_dim, "learning_rate": learning_rate}
    given = {name: value for name, value in network.items() if value is not None}
    if given and engine == "kmeans":
        raise UserError(f"--{next(iter(given)).replace('_', '-')} is of the autoencoder: give --engine autoencoder too")
    _check_folder(out, items, force)
    table = open_table(items, column, id_column or None)
    vectors = bulk.sample(table, codes, seed, progress)
    with _errors_name(items):
        tokenizer = Tokenizer(kind=kind, num_stages=stages, codebook_size=codes, engine=engine, seed=seed, **given)
        tokenizer.fit(vectors)
        error = bulk.reconstruction_error(tokenizer, vectors)
    found = bulk.encode(tokenizer, table, progress=progress)
    with _errors_name(items):
        ids = bulk.resolve(found, collisions, tokenizer, table)
    with replacing(out, replace=force) as folder:
        tokenizer.save(folder)
        remembered = {} if items.suffix == ".npy" else {"column": column or table.column, "id": id_column or None}
        write_json(folder / TABLE_FILE, remembered)
        bulk.write_codes(folder / IDS_FILE, table, ids, progress)
    sampled = "" if len(vectors) == table.rows else f", {len(vectors):,} of them for the fit"
    _print(
        ("rows", f"{table.rows:,}{sampled}"),
        ("distinct tuples", f"{count_distinct(found):,}"),
        *_moved(found, ids, collisions),
        ("reconstruction error", f"{error:.3f} of the variance"),
        ("tokenizer", str(out)),
        ("ids", str(out / IDS_FILE)),
        ("next", shell("ghrq", "inspect", out, out / IDS_FILE, "--items", items, "--out", "report/")),
    )


def encode(
    tokenizer: _TokenizerFolder,
    items: _Items,
    out: Annotated[Path, out_option("IDs by extension: .parquet, .csv, .jsonl, or .npy (codes only).")],
    column: _Column = None,
    id_column: _Id = None,
    collisions: _Collisions = "append",
    on: Annotated[
        Literal["local", "ray"], typer.Option(help="'ray': on the cluster of RAY_ADDRESS, or on all local cores.")
    ] = "local",
    batch: Annotated[int | None, typer.Option(min=1, help="Rows at once; by default some MB of them.")] = None,
    engine: Annotated[Literal["local", "ray"] | None, typer.Option(hidden=True)] = None,
) -> None:
    """Give every row of a table its ID. Columns are those of the fit if not given.

    Collisions are resolved among the rows of this table only: encode all items that need distinct IDs together.

    \b
    Examples:
      ghrq encode tok/ items.parquet --out ids.parquet
      ghrq encode tok/ items.csv --column 'emb_*' --id sku --out ids.csv --collisions reassign
      RAY_ADDRESS=head:6379 ghrq encode tok/ items.parquet --out ids.parquet --on ray
    """  # noqa: D301
    from ghrq.data.tables import FORMATS
    from ghrq.ids.tuples import count_distinct
    from ghrq.tokenizer import bulk

    check_output(out, FORMATS, [items])
    model = _load(tokenizer)
    table = _open_items(tokenizer, items, column, id_column)
    progress = make_progress()
    found = bulk.encode(model, table, on=engine or on, batch=batch, progress=progress)
    with _errors_name(items):
        codes = bulk.resolve(found, collisions, model, table)
    bulk.write_codes(out, table, codes, progress)
    if collisions == "append":
        counted = f"{int((codes[:, -1] == 0).sum()):,} distinct tuples, items of one distinguished by a last token"
    else:
        counted = f"{count_distinct(codes):,} distinct tuples"
    _print(("rows", f"{table.rows:,}"), ("codes", counted), *_moved(found, codes, collisions), ("ids", str(out)))


def decode(
    tokenizer: _TokenizerFolder,
    ids: _Ids,
    out: Annotated[Path, out_option("Vectors by extension: .npy, .parquet, .csv or .jsonl.")],
    depth: Annotated[int | None, typer.Option(min=1, help="Number of first codes to use: fewer are coarser.")] = None,
) -> None:
    """Decode IDs into vectors. A tie-break token is ignored.

    \b
    Examples:
      ghrq decode tok/ ids.parquet --out vectors.npy
      ghrq decode tok/ ids.parquet --depth 2 --out coarse.parquet
    """  # noqa: D301
    from ghrq.data.tables import FORMATS, open_codes
    from ghrq.tokenizer import bulk

    check_output(out, FORMATS, [ids])
    model = _load(tokenizer)
    table = open_codes(ids)
    used = bulk.decode(model, table, out, depth, make_progress())
    shape = f"{table.rows:,} x {model.n_features_in_}"
    _print(("vectors", shape), ("codes used", str(used)), ("written to", str(out)))


def inspect(
    tokenizer: _TokenizerFolder,
    ids: _Ids,
    out: Annotated[Path, out_option("Folder for quality.json and the page quality.html.")],
    items: Annotated[
        Path | None, typer.Option(help="The table that was encoded, for measures of vectors and labels.")
    ] = None,
    column: _Column = None,
    id_column: _Id = None,
    labels: Annotated[
        str | None, typer.Option(help="A column of labels of --items; a path 'a > b > c' counts level by level.")
    ] = None,
) -> None:
    """Measure how good IDs are: usage, collisions, reconstruction, agreement with neighbours and labels.

    \b
    Examples:
      ghrq inspect tok/ tok/ids.parquet --out report/
      ghrq inspect tok/ ids.parquet --items items.parquet --labels category --out report/
    """  # noqa: D301
    from ghrq.data.tables import open_codes
    from ghrq.metrics.quality import quality
    from ghrq.report.ids_page import write_page
    from ghrq.tokenizer import bulk

    check_output(out, formats=None)
    if items is None and (labels is not None or column is not None or id_column is not None):
        raise UserError("--labels, --column and --id need the table that was encoded: give it with --items")
    model, codes = _load(tokenizer), open_codes(ids)
    progress = make_progress()
    with bulk.all_vectors(codes, out.parent, progress) as all_codes:
        if items is None:
            with _errors_name(ids):
                measured = quality(all_codes, tokenizer=model)
        else:
            table = _open_items(tokenizer, items, column, id_column, labels)
            bulk.check_same_rows(codes, table)
            names = None if labels is None else table.labels()
            separator = " > " if names is not None and any(name and " > " in name for name in names) else None
            with bulk.all_vectors(table, out.parent, progress) as vectors, _errors_name(ids):
                measured = quality(all_codes, vectors, model, names, separator=separator)
    page = write_page(measured, out)
    write_json(out / "quality.json", measured.to_dict())
    print(columns([tuple(row) for row in measured.summary()]))
    print(f"page: {page}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (fit, encode, decode, inspect):
        app.command()(command)


def _moved(before: Any, after: Any, policy: Policy) -> list[tuple[str, str]]:
    """How many items ``reassign`` moved: those share fewer codes with their neighbours."""
    return [("moved to free tuples", f"{int((before != after).any(axis=1).sum()):,}")] if policy == "reassign" else []


def _load(folder: Path) -> "Tokenizer":
    from ghrq.tokenizer import Tokenizer

    restore(folder)
    if not folder.is_dir():
        raise UserError(f"there is no tokenizer {folder}: 'ghrq fit' makes one")
    with _errors_name(folder):
        return Tokenizer.load(folder)


def _open_items(
    tokenizer: Path, items: Path, column: str | None, id_column: str | None, labels: str | None = None
) -> "VectorTable":
    """The table with the given columns, or else those of the fit."""
    from ghrq.data.tables import open_table

    known = (tokenizer / TABLE_FILE).is_file() and items.suffix != ".npy"
    remembered = read_json(tokenizer / TABLE_FILE, "remove it, and give --column") if known else {}
    chosen = remembered.get("id") if id_column is None else id_column or None
    return open_table(items, column or remembered.get("column"), chosen, labels)


def _check_folder(out: Path, items: Path, force: bool) -> None:
    """Raise an error unless a tokenizer may be written there: only ``force`` replaces one, and nothing other files."""
    from ghrq.system.pretrained import CONFIG, WEIGHTS, check_replaceable

    check_output(out, formats=None, inputs=[items])
    check_replaceable(out, "tokenizer", force, (CONFIG, WEIGHTS, TABLE_FILE, IDS_FILE), "--force")


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Turn a ValueError of the library into one line that names ``path``."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        text = " ".join(str(error).split())
        raise UserError(text if str(path) in text else f"{path}: {text}") from error


def _print(*rows: tuple[str, str]) -> None:
    print(columns(rows))
