"""IDs in the forms that other programs read.

========== ============================================== ==========================================================
llm        ``.jsonl`` with texts ``<a_12><b_200>…``       and the list of all such tokens, to add to a tokenizer
offsets    ``.parquet`` with a range of integers a level  and the :class:`ghrq.ids.Vocabulary`
cornac     ``.json`` ``{"id": [12, 200, …]}``             Cornac's LETTER (``precomputed_semantic_ids``) and DiffGRM
grid       ``.pt`` tensor ``(levels, items)``             GRID's ``semantic_id_path``
minionerec ``.index.json`` ``{"id": ["<a_12>", …]}``      MiniOneRec's ``sid_index_path``
csv, jsonl as ``ghrq encode`` writes them
duckdb     ``.duckdb`` with a table ``ids``
========== ============================================== ==========================================================

Retired items are left out everywhere.
"""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from ghrq.data.outputs import replacing
from ghrq.ids.tuples import count_distinct
from ghrq.ids.vocabulary import Vocabulary
from ghrq.system import files
from ghrq.system.errors import UserError, require
from ghrq.system.progress import Progress

if TYPE_CHECKING:
    from ghrq.data.tables import VectorTable

Format = Literal["llm", "offsets", "cornac", "grid", "minionerec", "csv", "jsonl", "duckdb"]

SUFFIXES: dict[Format, str] = {
    "llm": ".jsonl",
    "offsets": ".parquet",
    "cornac": ".json",
    "grid": ".pt",
    "minionerec": ".index.json",
    "csv": ".csv",
    "jsonl": ".jsonl",
    "duckdb": ".duckdb",
}
"""How the name of the file has to end."""

_BESIDE: dict[Format, str] = {"llm": ".tokens.json", "offsets": ".vocabulary.json", "grid": ".items.csv"}

_LETTERS = "abcdefghijklmnopqrstuvwxyz"

# Levels that MiniOneRec joins to one ID, and rows at once.
_JOINED, _ROWS = 3, 2**16

Fact = tuple[str, str]


class Levels(NamedTuple):
    """What is known of the columns of codes."""

    sizes: list[int]
    tie_break: bool
    """Whether the last is the tie-break token."""
    known: bool
    """From the manifest; else the largest codes that occur decide."""


def export(table: "VectorTable", to: Format, out: Path, progress: Progress | None = None) -> list[Fact]:
    """Write the IDs of ``table`` to ``out`` in a form of another program. Returns what to say of it."""
    from ghrq.data.tables import check_ids

    check_ids(table)
    writers: dict[str, Callable[[VectorTable, Path, Progress], list[Fact]]] = {
        "llm": _llm,
        "offsets": _offsets,
        "cornac": _cornac,
        "grid": _grid,
        "minionerec": _minionerec,
        "duckdb": _duckdb,
    }
    return writers.get(to, _plain)(table, out, progress or Progress())


def outputs(to: Format, out: Path) -> list[Path]:
    """The files that :func:`export` may write: ``out``, and one beside it for some forms."""
    return [out, out.with_suffix(_BESIDE[to])] if to in _BESIDE else [out]


def tokens(levels: Levels) -> list[str]:
    """All tokens of IDs, level by level: ``<a_0>``, ``<a_1>``, …, ``<b_0>``, …"""
    return [f"<{letter}_{code}>" for letter, size in zip(_LETTERS, levels.sizes, strict=False) for code in range(size)]


def levels_of(table: "VectorTable") -> Levels:
    """Sizes of the columns of codes; a file without a manifest is read for it."""
    if "sizes" in table.manifest:
        return Levels(table.manifest["sizes"], table.manifest["collisions"] == "append", True)
    most = np.max([codes.max(axis=0) for _, codes in table.batches(_ROWS)], axis=0)
    return Levels((most + 1).tolist(), False, False)


def _llm(table: "VectorTable", out: Path, progress: Progress) -> list[Fact]:
    levels, beside = levels_of(table), out.with_suffix(_BESIDE["llm"])
    _check_letters(table)
    key, encode = json.dumps(_id_name(table, ["tokens"])), json.JSONEncoder(ensure_ascii=False).encode
    rows = (
        f'{{{key}: {encode(name)}, "tokens": "{text}"}}\n'.encode()
        for ids, codes in _batches(table, progress)
        for name, text in zip(ids.to_pylist(), _texts(codes, "").to_pylist(), strict=True)
    )
    with files.telling(out):
        files.write(out, rows)
        files.write_json(beside, tokens(levels))
    return [*_sizes(table, levels), ("tokens to add", f"{sum(levels.sizes):,}, listed in {beside}")]


def _offsets(table: "VectorTable", out: Path, progress: Progress) -> list[Fact]:
    from ghrq.data.tables import TableLayout, open_writer

    levels, beside = levels_of(table), out.with_suffix(_BESIDE["offsets"])
    words = Vocabulary.of(levels.sizes, levels.tie_break)
    layout = TableLayout(table.id_name, "tokens", table.dim, np.int32, table.rows)
    with open_writer(out, layout) as writer:
        for ids, codes in _batches(table, progress):
            writer.write(ids, words.tokens(codes).numpy())
    with files.telling(beside):
        files.write_json(beside, words.to_dict())
    return [
        *_sizes(table, levels),
        ("offsets", ", ".join(map(str, words.offsets))),
        ("vocabulary", f"{words.size:,} tokens with pad, bos and eos, described in {beside}"),
    ]


def _cornac(table: "VectorTable", out: Path, progress: Progress) -> list[Fact]:
    _write_object(table, out, progress, _lists)
    how = "LETTER(precomputed_semantic_ids=…) or DiffGRM(item_sids=…), rows in the order of eval_method.global_iid_map"
    return [("for", how)]


def _minionerec(table: "VectorTable", out: Path, progress: Progress) -> list[Fact]:
    if table.dim < _JOINED:
        raise UserError(
            f"{table.path} has {table.dim} codes an item, and MiniOneRec skips items of less than {_JOINED}: fit with "
            f"--stages {_JOINED} and --collisions reassign"
        )
    _check_letters(table)
    _write_object(table, out, progress, lambda codes: _texts(codes, '", "', '["', '"]'))
    facts = [("for", f"sid_index_path; the name before {SUFFIXES['minionerec']} is that of the data set")]
    if table.dim > _JOINED:
        firsts = np.concatenate([codes[:, :_JOINED] for _, codes in table.batches(_ROWS)])
        shared = len(firsts) - count_distinct(firsts)
        share = f"{shared:,} of {len(firsts):,} items have those of an earlier one"
        text = f"MiniOneRec joins the first {_JOINED} codes only, and {share}"
        facts.append(("note", f"{text}: fit with --stages {_JOINED} and --collisions reassign for distinct ones"))
    return facts


def _grid(table: "VectorTable", out: Path, progress: Progress) -> list[Fact]:
    codes, ids = np.empty((table.rows, table.dim), dtype=np.int64), []
    first = 0
    for names, part in _batches(table, progress):
        codes[first : first + len(part)] = part
        ids.append(names)
        first += len(part)
    pa = require("pyarrow", "tokenizer")
    names = pa.chunked_array(ids).combine_chunks()
    facts = [("for", f"semantic_id_path, with num_hierarchies={table.dim}")]
    order = np.argsort(names.to_numpy()) if pa.types.is_integer(names.type) else None
    if order is not None and np.array_equal(names.to_numpy()[order], np.arange(len(order))):
        codes = codes[order]
    else:
        beside = out.with_suffix(_BESIDE["grid"])
        with replacing(beside) as draft, draft.open("wb") as file:
            columns = {"number": np.arange(len(names)), _id_name(table, ["number"]): names}
            require("pyarrow.csv", "tokenizer").write_csv(pa.table(columns), file)
        facts.append(("items", f"numbered from 0 in the order of the file, listed in {beside}"))
    content = io.BytesIO()
    torch.save(torch.from_numpy(codes).T.contiguous(), content)  # a tensor alone: read with weights_only=True
    with files.telling(out):
        files.write(out, content.getvalue())
    return facts


def _plain(table: "VectorTable", out: Path, progress: Progress) -> list[Fact]:
    from ghrq.data.tables import CODES_COLUMN, TableLayout, open_writer

    layout = TableLayout(table.id_name, CODES_COLUMN, table.dim, np.int32, table.rows)
    with open_writer(out, layout) as writer:
        for ids, codes in _batches(table, progress):
            writer.write(ids, codes)
    return [("note", "this format has no room for a manifest: the tokenizer is not named, and edits are not found")]


def _duckdb(table: "VectorTable", out: Path, progress: Progress) -> list[Fact]:
    duckdb, pa = require("duckdb", "tokenizer"), require("pyarrow", "tokenizer")
    names = [f"code_{level + 1}" for level in range(table.dim)]
    names = [_id_name(table, names), *names]

    with replacing(out) as draft:
        connection = duckdb.connect(str(draft))
        try:
            command = "CREATE TABLE ids AS"
            for ids, codes in _batches(table, progress):
                columns = [ids, *(pa.array(np.ascontiguousarray(column)) for column in codes.T)]
                connection.register("batch", pa.table(columns, names=names))
                connection.execute(f"{command} SELECT * FROM batch")
                command = "INSERT INTO ids"
        finally:
            connection.close()
    return [("table", f"ids ({', '.join(names)})")]


def _id_name(table: "VectorTable", others: list[str]) -> str:
    """What to call the ids beside ``others``; names that differ only in case are one name to SQL."""
    name = str(table.id_name)
    return "id" if name.lower() in others else name


def _batches(table: "VectorTable", progress: Progress) -> Iterator[tuple[Any, Any]]:
    with progress.patient_bar("exporting", table.rows, "rows") as bar:
        for ids, codes in table.batches(_ROWS):
            yield ids, codes
            bar.advance(len(codes))


def _write_object(table: "VectorTable", out: Path, progress: Progress, values: Callable[[Any], Any]) -> None:
    """Write a JSON object with an entry for each item; ``values`` gives its texts, an Arrow array."""
    encode = json.JSONEncoder(ensure_ascii=False).encode

    def pieces() -> Iterator[bytes]:
        before = "{\n"
        for ids, codes in _batches(table, progress):
            for name, value in zip(ids.to_pylist(), values(codes).to_pylist(), strict=True):
                yield f"{before}{encode(str(name))}: {value}".encode()
                before = ",\n"
        yield b"\n}\n"

    with files.telling(out):
        files.write(out, pieces())


def _texts(codes: Any, between: str, before: str = "", after: str = "") -> Any:
    """``<a_12>`` and so on of ``codes (n, levels)``, joined: an Arrow array ``(n,)`` of text."""
    pa, pc = require("pyarrow", "tokenizer"), require("pyarrow.compute", "tokenizer")
    parts: list[Any] = [before]
    for level, column in enumerate(codes.T):
        opening = f"{between if level else ''}<{_LETTERS[level]}_"
        parts += [opening, pa.array(np.ascontiguousarray(column)).cast(pa.string()), ">"]
    return pc.binary_join_element_wise(*parts, after, "")


def _lists(codes: Any) -> Any:
    """``[12, 200]`` and so on of ``codes (n, levels)``: an Arrow array ``(n,)`` of text."""
    pa, pc = require("pyarrow", "tokenizer"), require("pyarrow.compute", "tokenizer")
    numbers = [pa.array(np.ascontiguousarray(column)).cast(pa.string()) for column in codes.T]
    return pc.binary_join_element_wise("[", pc.binary_join_element_wise(*numbers, ", "), "]", "")


def _check_letters(table: "VectorTable") -> None:
    if table.dim > len(_LETTERS):
        raise UserError(f"{table.path} has {table.dim} codes an item, letters are for {len(_LETTERS)}: use offsets")


def _sizes(table: "VectorTable", levels: Levels) -> list[Fact]:
    shown = " x ".join(map(str, levels.sizes))
    if levels.known:
        return [("sizes", shown)]
    text = f"those of the codes that occur, as {table.path.name} has no manifest; items that come later may need more"
    return [("sizes", f"{shown}: {text}")]
