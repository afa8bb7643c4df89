"""Commands for a table of embeddings: fit a tokenizer, encode, decode, inspect. Heavy imports are inside them."""

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ghrq.cli.options import Force, out_option, sizes_option
from ghrq.cli.tables import (
    IDS_FILE,
    TABLE_FILE,
    BadRows,
    Column,
    IdColumn,
    Ids,
    Items,
    TokenizerFolder,
    errors_name,
    load_tokenizer,
    match_ids,
    mention_ids,
    open_items,
    print_facts,
    unchecked,
)
from ghrq.data.outputs import check_output, check_own_page, lock_file, replacing
from ghrq.report.console import columns
from ghrq.system.errors import UserError, counted, shell
from ghrq.system.files import telling, write_json
from ghrq.system.progress import make_progress

if TYPE_CHECKING:
    from ghrq.data.tables import Matched, OnBad, VectorTable
    from ghrq.metrics.prefix_words import PrefixWords
    from ghrq.metrics.quality import Quality

# Titles whose words are counted; of more, a random sample.
_TITLES = 200_000

Kind = Literal["ghrq", "calibrated", "naive", "euclidean", "hra-only", "dhste-only"]
Policy = Literal["append", "reassign", "none"]

_Collisions = Annotated[
    Policy,
    typer.Option(help="Items with equal codes: 'append' a tie-break token, 'reassign' to free codes, or 'none'."),
]


def fit(
    items: Items,
    out: Annotated[Path, out_option("Folder for the tokenizer and the IDs of these items.")],
    column: Column = None,
    id_column: IdColumn = None,
    kind: Annotated[Kind, typer.Option(help="The quantizer.")] = "ghrq",
    stages: Annotated[
        int | None, typer.Option(min=1, help="Codes of each ID; by default 4, or as many as --codes has sizes.")
    ] = None,
    codes: Annotated[
        Any, sizes_option("Codes to choose from in each stage: 256, or one number for each stage, 64,256,1024.")
    ] = "256",
    balance: Annotated[
        bool, typer.Option("--balance", help="Balanced k-means: codes of a stage are used about equally often.")
    ] = False,
    refine: Annotated[
        int,
        typer.Option(
            min=0,
            help="Rounds that fit the codebooks of all stages together, 3 are enough: vectors are decoded more "
            "exactly, best with a beam search. For compression; not with --balance.",
        ),
    ] = 0,
    engine: Annotated[
        Literal["kmeans", "autoencoder"],
        typer.Option(
            help="kmeans, or autoencoder: an RQ-VAE, which fits this table more closely, and items that come later "
            "no better, in about five times the time."
        ),
    ] = "kmeans",
    epochs: Annotated[int | None, typer.Option(min=1, help="Of the autoencoder: passes over the table.")] = None,
    latent_dim: Annotated[
        int | None, typer.Option(min=1, help="Of the autoencoder: size of the vectors it quantizes.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(min=0.0, help="Of the autoencoder.")] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Median radius of the vectors on the ball, between 0 and 1: small is close to flat. By default 0.3, "
            "of an autoencoder 0.5.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same table and seed, same IDs.")] = 0,
    collisions: _Collisions = "append",
    on_bad: BadRows = "stop",
    force: Annotated[bool, typer.Option("--force", help="Replace a tokenizer that is there, with its IDs.")] = False,
) -> None:
    """Learn short hierarchical IDs for a table of embeddings. A large table is sampled for it.

    \b
    Examples:
      ghrq fit items.parquet --column embedding --id item_id --out tok/
      ghrq fit vectors.npy --stages 3 --codes 512 --kind euclidean --out tok/
      ghrq fit items.parquet --codes 1024,256,64 --out tok/    # sizes by level; 'ghrq advise' recommends some
    """  # noqa: D301
    from ghrq.data.tables import open_table, write_skipped
    from ghrq.ids.tuples import count_distinct
    from ghrq.system.checks import largest_size
    from ghrq.tokenizer import Tokenizer, bulk, table_file

    progress = make_progress()
    network: dict[str, Any] = {"epochs": epochs, "latent_dim": latent_dim, "learning_rate": learning_rate}
    given = {name: value for name, value in network.items() if value is not None}
    if given and engine == "kmeans":
        raise UserError(f"--{next(iter(given)).replace('_', '-')} is of the autoencoder: give --engine autoencoder too")
    if isinstance(codes, list) and stages not in (None, len(codes)):
        told = ",".join(map(str, codes))
        raise UserError(
            f"--codes {told} has {len(codes)} sizes, but --stages is {stages}: leave --stages out, or give one "
            "size a stage"
        )
    _check_folder(out, items, force)
    table = open_table(items, column, id_column or None, on_bad=on_bad, progress=progress)
    mention_ids(table, id_column, progress)
    vectors = bulk.sample(table, largest_size(codes), seed, progress)
    with errors_name(items):
        tokenizer = Tokenizer(
            kind=kind,
            num_stages=stages,
            codebook_size=codes,
            engine=engine,
            radius=radius,
            balance=balance,
            refine=refine,
            seed=seed,
            **given,
        )
        tokenizer.fit(vectors)
        error = bulk.reconstruction_error(tokenizer, vectors)
        tokenizer.fit_error_ = bulk.fit_error(tokenizer, vectors)
    found = bulk.encode(tokenizer, table, progress=progress)
    with errors_name(items):
        ids = bulk.resolve(found, collisions, tokenizer, table, widen=True)
    with replacing(out, replace=force) as folder:
        tokenizer.save(folder)
        known = () if items.suffix == ".npy" else (column or table.column, id_column or None)
        table_file.write(folder / TABLE_FILE, table_file.Columns(*known), tokenizer)
        if on_bad == "skip":
            write_skipped(_skipped_file(folder / IDS_FILE), table)
        bulk.write_codes(folder / IDS_FILE, table, ids, tokenizer, collisions, progress)
    again = ("--on-bad", "skip") if on_bad == "skip" else ()
    sampled = "" if len(vectors) == table.rows else f", {len(vectors):,} of them for the fit"
    print_facts(
        ("rows", f"{table.rows:,}{sampled}"),
        *_skipped(table, out / IDS_FILE, on_bad),
        ("distinct tuples", f"{count_distinct(found):,}"),
        *_moved(found, ids, collisions),
        ("reconstruction error", f"{error:.3f} of the variance"),
        ("tokenizer", str(out)),
        ("ids", str(out / IDS_FILE)),
        ("next", shell("ghrq", "inspect", out, out / IDS_FILE, "--items", items, "--out", "report/", *again)),
    )


def encode(
    tokenizer: TokenizerFolder,
    items: Items,
    out: Annotated[Path, out_option("File for the IDs: .parquet, .csv, .jsonl, or .npy (codes only).")],
    column: Column = None,
    id_column: IdColumn = None,
    collisions: _Collisions = "append",
    on: Annotated[
        Literal["local", "ray"], typer.Option(help="'ray': on the cluster of RAY_ADDRESS, or on all local cores.")
    ] = "local",
    batch: Annotated[
        int | None, typer.Option(min=1, help="Rows encoded at once; by default about 8 MB of vectors.")
    ] = None,
    on_bad: BadRows = "stop",
    force: Force = False,
    engine: Annotated[Literal["local", "ray"] | None, typer.Option(hidden=True)] = None,
) -> None:
    """Give every row of a table its ID. Columns are those of the fit if not given.

    Collisions are resolved among the rows of this table only: encode all items that need distinct IDs together.

    \b
    Examples:
      ghrq encode tok/ items.parquet --out ids.parquet
      ghrq encode tok/ items.csv --column 'emb_*' --id sku --out ids.csv --collisions reassign
      ghrq encode tok/ items.parquet --out ids.parquet --on-bad skip   # lists them in ids.parquet.skipped.csv
      RAY_ADDRESS=head:6379 ghrq encode tok/ items.parquet --out ids.parquet --on ray
    """  # noqa: D301
    from ghrq.data.tables import FORMATS, write_skipped
    from ghrq.ids.tuples import count_distinct
    from ghrq.tokenizer import bulk

    check_output(out, FORMATS, [items], replace=force)
    if on_bad == "skip":
        check_output(_skipped_file(out), (".csv",), [items], replace=force)
    model, progress = load_tokenizer(tokenizer), make_progress()
    table = open_items(tokenizer, model, items, column, id_column, on_bad=on_bad)
    mention_ids(table, id_column, progress)
    found = bulk.encode(model, table, on=engine or on, batch=batch, progress=progress)
    with errors_name(items):
        codes = bulk.resolve(found, collisions, model, table)
    if on_bad == "skip":
        write_skipped(_skipped_file(out), table)
    bulk.write_codes(out, table, codes, model, collisions, progress)
    if collisions == "append":
        counted = f"{int((codes[:, -1] == 0).sum()):,} distinct tuples; a last token numbers items with equal ones"
    else:
        counted = f"{count_distinct(codes):,} distinct tuples"
    skipped = _skipped(table, out, on_bad)
    print_facts(
        ("rows", f"{table.rows:,}"), *skipped, ("codes", counted), *_moved(found, codes, collisions), ("ids", str(out))
    )


def decode(
    tokenizer: TokenizerFolder,
    ids: Ids,
    out: Annotated[Path, out_option("File for the vectors: .npy, .parquet, .csv or .jsonl.")],
    depth: Annotated[int | None, typer.Option(min=1, help="Number of first codes to use: fewer are coarser.")] = None,
    force: Force = False,
) -> None:
    """Decode IDs into vectors. A tie-break token is ignored.

    \b
    Examples:
      ghrq decode tok/ ids.parquet --out vectors.npy
      ghrq decode tok/ ids.parquet --depth 2 --out coarse.parquet
    """  # noqa: D301
    from ghrq.data.tables import FORMATS, open_codes
    from ghrq.tokenizer import bulk

    check_output(out, FORMATS, [ids], replace=force)
    model = load_tokenizer(tokenizer)
    table = open_codes(ids)
    used = bulk.decode(model, table, out, depth, make_progress())
    shape = f"{table.rows:,} x {model.n_features_in_}"
    print_facts(("vectors", shape), ("codes used", str(used)), *unchecked(table), ("written to", str(out)))


def inspect(
    tokenizer: TokenizerFolder,
    ids: Ids,
    out: Annotated[Path, out_option("Folder for quality.json and the page quality.html.")],
    items: Annotated[
        Path | None, typer.Option(help="A table of the items, for measures of vectors and labels.")
    ] = None,
    column: Column = None,
    id_column: IdColumn = None,
    labels: Annotated[
        str | None, typer.Option(help="A column of labels of --items; a path 'a > b > c' counts level by level.")
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="A column of --items with titles; the page shows items by them.")
    ] = None,
    counts: Annotated[
        str | None, typer.Option(help="A column of --items with numbers: how popular each is. Head and tail apart.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="TOKENIZER IDS", help="Another tokenizer and its IDs of the same items, side by side."),
    ] = None,
    on_bad: BadRows = "stop",
) -> None:
    """Measure how good IDs are: usage, collisions, reconstruction, agreement with neighbours and labels.

    The page has a verdict, one sentence of advice, and the items that share an ID or a prefix; with titles, the words
    of each prefix; with counts, popular and rare items apart; and, if you like, another tokenizer beside this one.

    \b
    Examples:
      ghrq inspect tok/ tok/ids.parquet --out report/
      ghrq inspect tok/ ids.parquet --items items.parquet --title name --labels category --out report/
      ghrq inspect tok/ ids.parquet --items items.parquet --compare flat/ flat/ids.parquet --out report/
    """  # noqa: D301
    import numpy as np

    from ghrq.data.tables import check_ids, match_items, open_codes
    from ghrq.metrics.popularity import popularity_slices
    from ghrq.metrics.quality import quality, row_errors
    from ghrq.report.ids_examples import ItemExamples
    from ghrq.report.ids_more import compared_section, popularity_section, words_section
    from ghrq.report.ids_page import left_out, write_page
    from ghrq.report.ids_provenance import provenance
    from ghrq.report.ids_verdict import judge
    from ghrq.report.page import PageSection
    from ghrq.tokenizer import bulk

    check_output(out, formats=None)
    check_own_page(out / "quality.html")
    if items is None and any(given is not None for given in (labels, title, column, id_column, counts)):
        raise UserError(
            "--labels, --counts, --title, --column and --id need the table of the items: give it with --items"
        )
    model, codes = load_tokenizer(tokenizer), open_codes(ids)
    bulk.check_made_by(codes, model)
    if codes.has_ids:
        check_ids(codes)
    progress, table, matched, vectors, names = make_progress(), None, None, None, None
    more, told = list[PageSection](), dict[str, Any]()
    with ExitStack() as stack:
        all_codes = stack.enter_context(bulk.all_vectors(codes, out.parent, progress))
        if items is not None:
            table = open_items(tokenizer, model, items, column, id_column, labels, on_bad, title)
            matched = match_items(codes, table, progress=progress)
            names = None if labels is None else matched.labels()
            vectors = stack.enter_context(bulk.all_vectors(table, out.parent, progress, matched.order))
        separator = " > " if names is not None and any(name and " > " in name for name in names) else None
        with errors_name(ids):
            measured = quality(all_codes, vectors, model, names, separator=separator)
        examples = ItemExamples.of(all_codes, measured.stages, (matched or codes).names, vectors)
        bare = np.asarray(all_codes[:, : measured.stages], dtype=np.int64)
        if compare is not None:
            other, codes_of_other = load_tokenizer(compare[0]), open_codes(compare[1])
            bulk.check_made_by(codes_of_other, other)
            order = match_ids(codes, codes_of_other, progress)
            others = stack.enter_context(bulk.all_vectors(codes_of_other, out.parent, progress))[order]
            with errors_name(compare[1]):
                beside = quality(others, vectors, other, names, separator=separator)
            more.append(compared_section(_by_name({tokenizer: measured, compare[0]: beside})))
            told["compared"] = {"tokenizer": str(compare[0]), "ids": str(compare[1]), **beside.to_dict()}
        if title is not None and matched is not None:
            words = _words(bare, matched)
            more.append(words_section(words))
            told["words"] = [asdict(each) for each in words]
        if counts is not None and items is not None and matched is not None:
            popularity = open_items(tokenizer, model, items, column, id_column, counts, on_bad)
            popular = matched._replace(table=popularity).labels()
            with errors_name(items):
                slices = popularity_slices(bare, _numbers(popular, items, counts), row_errors(bare, vectors, model))
            more.append(popularity_section(slices, counts))
            told["popularity"] = [asdict(each) for each in slices]
    facts, verdict = provenance(tokenizer, model, codes, table), judge(measured)
    page = write_page(measured, out, provenance=facts, examples=examples, more=more)
    with telling(out / "quality.json"):
        write_json(
            out / "quality.json",
            measured.to_dict() | {"verdict": verdict.to_dict(), "provenance": facts} | told,
        )
    print(columns([tuple(row) for row in measured.summary()]))
    for line in (*left_out(measured), f"verdict: {verdict.verdict}. {verdict.advice}", f"page: {page}"):
        print(line)


def _words(codes: Any, table: "Matched") -> "list[PrefixWords]":
    """What prefixes mean, by the titles of all items, or of a random sample of very many."""
    import numpy as np

    from ghrq.metrics.prefix_words import prefix_words

    rows = np.sort(np.random.default_rng(0).permutation(len(codes))[:_TITLES])
    return prefix_words(codes[rows], table.names(rows))


def _numbers(texts: "list[str | None]", items: Path, column: str) -> Any:
    """A column of numbers; nothing is 0."""
    import numpy as np

    def number(text: str | None) -> float:
        try:
            return float(text or 0.0)
        except ValueError:
            raise UserError(f"{items}: column {column!r} has {text!r}: give --counts a column of numbers") from None

    return np.array([number(text) for text in texts])


def _by_name(measured: "dict[Path, Quality]") -> "dict[str, Quality]":
    """By the names of folders, or by their whole paths if these are equal."""
    short = {path.resolve().name: each for path, each in measured.items()}
    return short if len(short) == len(measured) else {str(path): each for path, each in measured.items()}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (fit, encode, decode, inspect):
        app.command()(command)


def _moved(before: Any, after: Any, policy: Policy) -> list[tuple[str, str]]:
    """How many items ``reassign`` moved: those share fewer codes with their neighbours."""
    return [("moved to free tuples", f"{int((before != after).any(axis=1).sum()):,}")] if policy == "reassign" else []


def _skipped_file(out: Path) -> Path:
    return out.with_name(f"{out.name}.skipped.csv")


def _skipped(table: "VectorTable", out: Path, on_bad: "OnBad") -> list[tuple[str, str]]:
    rows = f"{counted(len(table.skipped), 'row')}, listed in {_skipped_file(out)}"
    return [("skipped", rows)] if on_bad == "skip" else []


def _check_folder(out: Path, items: Path, force: bool) -> None:
    """Raise an error unless a tokenizer may be written there: only ``force`` replaces one, and nothing other files."""
    from ghrq.system.pretrained import CONFIG, WEIGHTS, check_replaceable

    check_output(out, formats=None, inputs=[items])
    beside = (_skipped_file(Path(IDS_FILE)).name, lock_file(Path(IDS_FILE)).name)
    own = (CONFIG, WEIGHTS, TABLE_FILE, IDS_FILE, *beside)
    check_replaceable(out, "tokenizer", force, own, "--force")
