"""The noun hierarchy of WordNet: shipped with the package, from a Princeton ``dict`` folder, or from NLTK.

The three readers give the same :class:`Nouns`. WordNet 3.0 has 82,115 noun synsets, joined by 75,850 hypernym edges
("a dog is a canine") and 8,577 instance edges ("Einstein was a physicist").

A synset has the name that NLTK gives it: the first lemma in lower case, ``n``, and the number of its sense, as in
``dog.n.01``. That number is the position of the synset among the senses of the lemma in ``index.noun``, the most
frequent first. ``data.noun`` alone does not contain it (its ``lex_id`` is another number).
"""

import importlib
import io
import json
import lzma
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ghrq.system import files
from ghrq.system.unpacking import LimitedReader

PathLike = str | os.PathLike[str]

_SHIPPED = resources.files("ghrq.data") / "files" / "wordnet-nouns.json.xz"
_FORMAT = "ghrq wordnet nouns 1"
_GET_DICT = (
    "Debian's package wordnet-base puts the dict files into /usr/share/wordnet, "
    "https://wordnet.princeton.edu has them for download, and ghrq.data.wordnet.load() needs none of them"
)

# The pointers of data.noun that form the hierarchy: hypernym, instance hypernym, and their inverses.
_UP, _UP_INSTANCE = "@", "@i"
_HIERARCHY = {_UP, _UP_INSTANCE, "~", "~i"}


@dataclass(frozen=True, eq=False)
class Nouns:
    """``n`` noun synsets in the order of their offsets, and the ``E`` edges of their hierarchy, sorted."""

    names: tuple[str, ...]
    """NLTK's names: ``dog.n.01``."""
    lemmas: tuple[str, ...]
    """The first lemma of each, as written: ``Albert_Einstein``."""
    glosses: tuple[str, ...]
    """The definition of each, without the examples."""
    offsets: npt.NDArray[np.int32]
    """``(n,)`` their byte offsets in ``data.noun``: WordNet's identifiers."""
    edges: npt.NDArray[np.int32]
    """``(E, 2)`` rows of child and parent."""
    instance: npt.NDArray[np.bool_]
    """``(E,)`` whether the child is an instance of the parent, not a hyponym."""

    def hypernyms(self, instances: bool = True) -> npt.NDArray[np.int32]:
        """The edges ``(E', 2)`` of child and parent, with or without the instances."""
        return self.edges if instances else self.edges[~self.instance]


def load(file: PathLike | None = None) -> Nouns:
    """The nouns of WordNet 3.0 as shipped with the package, or those of a ``file`` that :func:`save` wrote."""
    source = _SHIPPED if file is None else Path(file)
    remedy = "install ghrq again" if file is None else "name a file that ghrq.data.wordnet.save wrote, or a dict folder"
    try:
        packed = source.read_bytes()
        with lzma.open(io.BytesIO(packed)) as unpacked:
            content = files.parse_json(LimitedReader(unpacked, Path(str(source)), len(packed)).read(sys.maxsize))
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {_FORMAT!r}")
        lemmas, glosses, senses = content["lemmas"], content["glosses"], content["senses"]
        if not all(isinstance(text, str) for text in (*lemmas, *glosses)):
            raise ValueError("its lemmas and glosses are not all texts")
        if not all(isinstance(number, int) for number in senses):
            raise ValueError("its senses are not all integers")
        offsets, parents = (np.array(content[name], dtype=np.int32) for name in ("offsets", "parents"))
        counts, instance = np.array(content["parent_counts"]), np.array(content["instance"], dtype=bool)
        size = len(offsets)
        if not len(lemmas) == len(glosses) == len(senses) == len(counts) == size:
            raise ValueError("its columns are of different lengths")
        if not len(parents) == len(instance) == counts.sum():
            raise ValueError("its edges are of different numbers")
        if len(parents) and not 0 <= parents.min() <= parents.max() < size:
            raise ValueError("an edge leads to a synset that does not exist")
        edges = np.stack((np.repeat(np.arange(size, dtype=np.int32), counts), parents), axis=1)
    except FileNotFoundError:
        raise FileNotFoundError(f"no WordNet nouns at {source}: {remedy}") from None
    except (lzma.LZMAError, EOFError, ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{source} is damaged or no file of WordNet nouns ({error}): {remedy}") from error
    return Nouns(_names(lemmas, senses), tuple(lemmas), tuple(glosses), offsets, edges, instance)


def save(nouns: Nouns, file: PathLike) -> None:
    """Write ``nouns`` as one compact file, JSON under xz, for :func:`load`."""
    content = {
        "format": _FORMAT,
        "lemmas": nouns.lemmas,
        "senses": _senses(nouns),
        "offsets": nouns.offsets.tolist(),
        "parent_counts": np.bincount(nouns.edges[:, 0], minlength=len(nouns.names)).tolist(),
        "parents": nouns.edges[:, 1].tolist(),
        "instance": nouns.instance.astype(int).tolist(),
        "glosses": nouns.glosses,
    }
    text = json.dumps(content, separators=(",", ":"))
    Path(file).write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def from_dict(folder: PathLike) -> Nouns:
    """Read ``data.noun`` and ``index.noun`` of a Princeton ``dict`` folder.

    Each may be plain or compressed (``data.noun.xz``), with line ends of either kind. Where ``index.noun`` is
    missing, ``data.noun`` must be that of WordNet 3.0: its sense numbers then come from the shipped file.
    """
    data = _dict_file(folder, "data.noun")
    if data is None:
        raise FileNotFoundError(f"no data.noun or data.noun.xz in {os.fspath(folder)!r}: {_GET_DICT}")
    lemmas: list[str] = []
    glosses: list[str] = []
    offsets: list[int] = []
    pointers: list[tuple[int, int, int, str]] = []  # line, child's row, target's offset, symbol
    for number, line in _lines(data):
        try:
            offset, lemma, targets, gloss = _synset(line)
            if offsets and offset <= offsets[-1]:
                raise ValueError(f"offset {offset} does not come after {offsets[-1]}")
        except (ValueError, IndexError) as error:
            raise _bad_line(data, number, "a noun synset", line, error) from error
        pointers += ((number, len(offsets), target, symbol) for symbol, target in targets)
        offsets.append(offset)
        lemmas.append(lemma)
        glosses.append(gloss)
    if not offsets:
        raise ValueError(f"no synset in {data}: {_GET_DICT}")
    places = np.array(offsets, dtype=np.int32)
    targets_at = np.array([target for _, _, target, _ in pointers], dtype=np.int64)
    lost = np.flatnonzero(~np.isin(targets_at, places))
    if len(lost):
        number, _, target, _ = pointers[lost[0]]
        raise ValueError(
            f"{data}, line {number}: points to synset {target:08d}, which is not in the file; "
            f"the file is cut off or mixed from two versions: get it again ({_GET_DICT})"
        )
    up = [(row, target, symbol == _UP_INSTANCE) for _, row, target, symbol in pointers if symbol in (_UP, _UP_INSTANCE)]
    names = _names(lemmas, _index_senses(folder, lemmas, places))
    return _nouns(names, lemmas, glosses, places, up)


def from_nltk(corpus: Any = None) -> Nouns:
    """Read the nouns of an NLTK ``WordNetCorpusReader``, by default ``nltk.corpus.wordnet``, which is WordNet 3.0."""
    if corpus is None:
        try:
            corpus = importlib.import_module("nltk.corpus").wordnet
        except ImportError as error:
            message = "reading WordNet from NLTK needs NLTK: pip install nltk; or use ghrq.data.wordnet.load()"
            raise ImportError(message) from error
    try:
        synsets = sorted(corpus.all_synsets("n"), key=lambda synset: synset.offset())
    except LookupError as error:
        raise FileNotFoundError(
            "NLTK has no WordNet corpus here: run python -m nltk.downloader wordnet, or use ghrq.data.wordnet.load(), "
            "which needs no download"
        ) from error
    up = [
        (row, parent.offset(), instance)
        for row, synset in enumerate(synsets)
        for instance, parents in ((False, synset.hypernyms()), (True, synset.instance_hypernyms()))
        for parent in parents
    ]
    return _nouns(
        tuple(synset.name() for synset in synsets),
        [synset.lemma_names()[0] for synset in synsets],
        [synset.definition() for synset in synsets],
        np.array([synset.offset() for synset in synsets], dtype=np.int32),
        up,
    )


def _nouns(
    names: tuple[str, ...],
    lemmas: list[str],
    glosses: list[str],
    offsets: npt.NDArray[np.int32],
    up: list[tuple[int, int, bool]],
) -> Nouns:
    """Build the result; ``up`` has the child's row, the parent's offset, and whether it is an instance."""
    table = np.array(up, dtype=np.int64).reshape(-1, 3)
    edges = np.stack((table[:, 0], np.searchsorted(offsets, table[:, 1])), axis=1).astype(np.int32)
    # NLTK gives the parents of a synset in no fixed order.
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    return Nouns(names, tuple(lemmas), tuple(glosses), offsets, edges[order], table[order, 2].astype(bool))


def _names(lemmas: list[str], senses: list[int]) -> tuple[str, ...]:
    return tuple(f"{lemma.lower()}.n.{sense:02d}" for lemma, sense in zip(lemmas, senses, strict=True))


def _senses(nouns: Nouns) -> list[int]:
    return [int(name.rpartition(".")[2]) for name in nouns.names]


def _synset(line: str) -> tuple[int, str, list[tuple[str, int]], str]:
    """Offset, first lemma, hierarchy pointers (symbol and offset) and definition of one line of ``data.noun``.

    The line: offset, file, type, number of words (hexadecimal), word and lex_id of each, number of pointers, symbol,
    offset, type and source/target of each, then a bar and the gloss.
    """
    head, bar, gloss = line.partition("|")
    fields = head.split()
    if not bar or fields[2] != "n":
        raise ValueError("no gloss" if not bar else f"type {fields[2]!r}, not 'n'")
    first = 4 + 2 * int(fields[3], 16)
    symbols, targets, types = fields[first + 1 :: 4], fields[first + 2 :: 4], fields[first + 3 :: 4]
    if len(fields) != first + 1 + 4 * int(fields[first]):
        raise ValueError(f"{fields[first]} pointers announced, other number found")
    pointers = [
        (symbol, int(target))
        for symbol, target, kind in zip(symbols, targets, types, strict=True)
        if symbol in _HIERARCHY and kind == "n"
    ]
    # Examples are in quotation marks; they are removed with their separators.
    definition = re.sub('".*?"', "", gloss).strip().strip("; ")
    return int(fields[0]), fields[4], pointers, definition


def _index_senses(folder: PathLike, lemmas: list[str], offsets: npt.NDArray[np.int32]) -> list[int]:
    """The sense number of each synset for its first lemma."""
    index = _dict_file(folder, "index.noun")
    if index is None:
        shipped = load()
        if not np.array_equal(shipped.offsets, offsets) or list(shipped.lemmas) != lemmas:
            raise FileNotFoundError(
                f"no index.noun or index.noun.xz in {os.fspath(folder)!r}, and its data.noun is not that of WordNet "
                "3.0, whose sense numbers are known: put the index.noun of the same version beside it"
            )
        return _senses(shipped)
    numbers: dict[tuple[str, int], int] = {}
    for line_number, line in _lines(index):
        # Lemma, type, number of senses, number of pointers and their symbols, two counts, the senses' offsets.
        try:
            fields = line.split()
            count = int(fields[2])
            if fields[1] != "n" or len(fields) != 6 + int(fields[3]) + count:
                raise ValueError(f"{count} senses announced, other number found")
            numbers.update(((fields[0], int(offset)), place) for place, offset in enumerate(fields[-count:], start=1))
        except (ValueError, IndexError) as error:
            raise _bad_line(index, line_number, "a noun's senses", line, error) from error
    try:
        return [numbers[lemma.lower(), offset] for lemma, offset in zip(lemmas, offsets.tolist(), strict=True)]
    except KeyError as error:
        lemma, offset = error.args[0]
        raise ValueError(
            f"{index} has no sense {offset:08d} of {lemma!r}, which data.noun has; "
            f"the file is cut off or of another version: get both again ({_GET_DICT})"
        ) from None


def _dict_file(folder: PathLike, name: str) -> Path | None:
    return next((path for path in (Path(folder, name), Path(folder, f"{name}.xz")) if path.is_file()), None)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a dict file with their numbers from 1, without the licence at the top."""
    raw = path.read_bytes()
    try:
        text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}): get it again ({_GET_DICT})") from error
    if not text.endswith("\n"):
        count = text.count("\n") + 1
        raise ValueError(f"{path}, line {count}: the file is cut off here: get it again ({_GET_DICT})")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith(" "):
            yield number, line


def _bad_line(path: Path, number: int, wanted: str, line: str, error: Exception) -> ValueError:
    return ValueError(
        f"{path}, line {number}: not {wanted} in Princeton's format ({error}): {line[:60]!r}...; "
        f"get the file again ({_GET_DICT})"
    )
