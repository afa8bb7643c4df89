"""The explorer: a tokenizer's codes as a hyperbolic browser, one HTML file that opens offline and loads nothing."""

import base64
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ghrq import __version__
from ghrq.quantizer import ResidualQuantizer
from ghrq.report.explorer_tree import SILENT, CodeTree, code_tree
from ghrq.report.template import render, safe
from ghrq.report.words import count
from ghrq.system.progress import Progress

MOST_ITEMS = 200_000
"""More are sampled: a page has to stay small enough to open."""

_FOLDER = Path(__file__).parent / "explorer"

# Characters of a label on the page; the labels that have a colour of their own.
_LONGEST, _COLOURED = 200, 12

# Control characters, and those that have no width or change the direction of the text around them.
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Explored:
    """The codes of one tokenizer."""

    name: str
    codes: npt.NDArray[Any]
    """``(N, m)`` of all items, without a tie-break token."""
    quantizer: ResidualQuantizer


@dataclass(frozen=True, eq=False)
class ItemTexts:
    """What is shown of the items, ``(n,)`` each."""

    labels: Sequence[str | None]
    ids: Sequence[str] | None = None
    """Beside the labels, if those are not the ids."""
    id_name: str = "id"
    colours: Sequence[str | None] | None = None
    """Labels to colour by; a path ``a > b > c`` counts by its first levels."""
    colour_name: str = ""


def sample(items: int) -> npt.NDArray[np.int64]:
    """The rows that are shown, ascending: all, or :data:`MOST_ITEMS` at random, always the same ones."""
    if items <= MOST_ITEMS:
        return np.arange(items)
    return np.sort(np.random.default_rng(0).choice(items, MOST_ITEMS, replace=False))


def explorer_page(
    explored: Sequence[Explored],
    shown: npt.NDArray[np.int64],
    texts: ItemTexts,
    title: str,
    progress: Progress = SILENT,
) -> str:
    """The page of one tokenizer, or of two to compare, as HTML.

    Args:
        explored: the codes of the same items by each tokenizer.
        shown: ``(n,)`` the rows that are on the page, see :func:`sample`.
        texts: of these rows.
        title: on top of the page.
        progress: shows how far it is.

    """
    trees = [code_tree(each.codes, shown, each.quantizer, progress) for each in explored]
    first = trees[0].order  # texts are in the order of the first tree, so that its own order is 0, 1, 2, …
    place = np.empty_like(first)
    place[first] = np.arange(len(first))
    items = len(explored[0].codes)
    columns: dict[str, npt.NDArray[Any] | list[str]] = {"labels": [visible(texts.labels[row]) for row in first]}
    if texts.ids is not None:
        columns["ids"] = [visible(texts.ids[row]) for row in first]
    header: dict[str, Any] = {"title": visible(title), "id": visible(texts.id_name), "colour": None}
    if texts.colours is not None:
        numbers, header["colour"] = _colours(texts.colours)
        header["colour"]["name"] = visible(texts.colour_name)
        columns["colour"] = numbers[first]
    header["trees"] = []
    for number, (each, tree) in enumerate(zip(explored, trees, strict=True)):
        header["trees"].append(_about(each, tree))
        columns |= {f"{number}.{name}": column for name, column in _columns(tree, place).items()}
    names = [visible(each.name) for each in explored]
    notes = []
    if len(shown) < items:
        notes = [f"{len(shown):,} of {items:,} items are on this page, a random sample. Numbers of items count all."]
    return _html(header, columns, names, count(items, "item"), _subtitle(explored), notes)


def visible(text: str | None) -> str:
    """A text as the page shows it: one line, no characters that hide or turn others, not longer than a screen."""
    if text is None:
        return "(no label)"
    # Cut before and after: a text of many megabytes need not be searched.
    text = _INVISIBLE.sub("", _BREAKS.sub(" ", text[: 8 * _LONGEST])).strip()
    return (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…") or "(no label)"


def bundle() -> str:
    """The modules of the page as one script.

    They are joined when a page is written, because that takes these few lines and neither Node nor a generated file:
    each module becomes a function that returns its exports, and an import a look into what another one returned.
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        source = (_FOLDER / f"{name}.js").read_text("utf-8")
        for found in _IMPORT.finditer(source):
            add(found[2])
        exports = ", ".join(found[2] for found in _EXPORT.finditer(source))
        inside = _EXPORT.sub(r"\1 \2", _IMPORT.sub(r"const { \1 } = \2_js;", source))
        done[name] = f"const {name}_js = (() => {{\n{inside}return {{ {exports} }};\n}})();\n"

    add("main")
    return "".join(done.values())


def pack(header: dict[str, Any], columns: dict[str, npt.NDArray[Any] | list[str]]) -> bytes:
    """Header and columns as one deflated block; ``data.js`` reads it.

    Inside: 4 bytes with the length of the header, the header as JSON, then the columns, each from a multiple of 8 bytes
    on. Whole numbers are in the smallest type that holds them, texts have a line each.
    """
    blocks, listed = [], []
    for name, column in columns.items():
        if isinstance(column, list):
            kind, block = "text", "\n".join(column).encode()
        else:
            if column.dtype.kind in "iu":
                column = column.astype(np.min_scalar_type(int(column.max(initial=0))))
            kind, block = column.dtype.str[1:], column.astype(column.dtype.newbyteorder("<")).tobytes()
        listed.append([name, kind, len(block)])
        blocks.append(block)
    head = json.dumps(header | {"columns": listed}, ensure_ascii=False).encode()
    parts = [len(head).to_bytes(4, "little") + head, *blocks]
    return zlib.compress(b"".join(part + bytes(-len(part) % 8) for part in parts), 9)


def _html(
    header: dict[str, Any],
    columns: dict[str, npt.NDArray[Any] | list[str]],
    names: list[str],
    items: str,
    subtitle: str,
    notes: list[str],
) -> str:
    style, script = (_FOLDER / "style.css").read_text("utf-8"), bundle()
    # The browser itself refuses any request and any script but this one.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'"
    )
    return render(
        "explorer",
        policy=policy,
        title=header["title"],
        subtitle=f"{items}, {subtitle}",
        items=items,
        names=names,
        notes=notes,
        style=safe(style),
        script=safe(script),
        data=base64.b64encode(pack(header, columns)).decode(),
        footer=f"Written by ghrq {__version__}. Nothing on this page is loaded from anywhere.",
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _about(explored: Explored, tree: CodeTree) -> dict[str, Any]:
    return {
        "name": visible(explored.name),
        "stages": explored.codes.shape[1],
        "flat": explored.quantizer.curvature == 0.0,
        "near": [list(near.codes.shape) for near in tree.near],
    }


def _columns(tree: CodeTree, place: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    return {
        "children": tree.children,
        "code": tree.code,
        "count": tree.count,
        "distance": tree.distance.astype(np.float32),
        "like": tree.like,
        "order": place[tree.order],
        "leaf_items": tree.leaf_items,
        "used": np.concatenate([near.used for near in tree.near]),
        "near": np.concatenate([near.codes.ravel() for near in tree.near]),
        "away": np.concatenate([near.distances.ravel() for near in tree.near]).astype(np.float32),
    }


def _subtitle(explored: Sequence[Explored]) -> str:
    def one(each: Explored) -> str:
        sizes = [len(np.unique(column)) for column in each.codes.T]
        size = f"{max(sizes)}" if len(set(sizes)) == 1 else f"up to {max(sizes)}"
        return f"{count(len(sizes), 'code')} of {size} ({each.quantizer.kind})"

    return " and ".join(dict.fromkeys(one(each) for each in explored))


def _colours(labels: Sequence[str | None]) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    """The number of each label among the commonest ones, the last number for all others; and their names and counts."""
    paths = ["" if label is None else label for label in labels]
    depth = max(path.count(" > ") for path in paths) + 1
    for level in range(depth, 0, -1):  # the finest level that has few labels
        found = Counter(" > ".join(path.split(" > ")[:level]) for path in paths)
        if len(found) <= _COLOURED or level == 1:
            break
    found.pop("", None)
    names = [name for name, _ in found.most_common(_COLOURED)]
    number = {name: i for i, name in enumerate(names)}
    numbers = np.array([number.get(" > ".join(path.split(" > ")[:level]), len(names)) for path in paths])
    counts = np.bincount(numbers, minlength=len(names) + 1).tolist()
    return numbers, {"names": [visible(name) for name in names], "counts": counts[:-1], "other": counts[-1]}
