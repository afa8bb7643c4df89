"""The map between items and their code tuples, in memory and as a Parquet file."""

import importlib
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.data.arrays import as_rows
from ghrq.ids.collisions import Policy
from ghrq.ids.growth import NewItems, Rules, Section, check_agreement, grow, policy_of
from ghrq.ids.prefix_search import PrefixSearch
from ghrq.ids.trie import PrefixTrie
from ghrq.ids.tuples import Codes
from ghrq.ids.vocabulary import Vocabulary
from ghrq.system.checks import are_integers, at_least
from ghrq.system.errors import UserError, require

if TYPE_CHECKING:
    from ghrq.quantizer import ResidualQuantizer

Ids = Sequence[str] | Sequence[int] | npt.NDArray[Any]

# Rows of a file read at once.
_ROWS_READ = 2**16


class IdTokenizer(Protocol):
    """What a catalogue needs of a fitted :class:`ghrq.Tokenizer`."""

    tie_break_size_: int

    @property
    def fingerprint(self) -> str:
        """Tells tokenizers apart."""

    @property
    def quantizer_(self) -> "ResidualQuantizer":
        """The quantizer."""

    def encode(self, X: Any, /) -> npt.NDArray[np.int64]:  # noqa: N803
        """Codes."""

    def latent(self, X: Any, /) -> Tensor:  # noqa: N803
        """The quantizer's input."""

    def vocabulary(self, collisions: Policy, /) -> Vocabulary:
        """Sizes of the codes."""


class Neighbours(NamedTuple):
    """The neighbours of ``B`` items: those of the b-th are ``ids[indptr[b]:indptr[b + 1]]``."""

    indptr: Tensor
    """``(B + 1,)`` int64."""
    ids: npt.NDArray[Any]
    """Sorted by the number of shared first codes, most first; equal ones by distance, see :class:`Catalogue`."""
    shared: Tensor
    """int64: how many first codes each shares with its item, at least 1."""


class Catalogue:
    """Items and their codes: look-up both ways, neighbours by shared prefix, a Parquet file.

    Examples:
        >>> catalogue = ghrq.ids.Catalogue(["apple", "pear", "nail"], torch.tensor([[0, 1], [0, 2], [3, 1]]))
        >>> catalogue.codes_of(["nail"])
        tensor([[3, 1]])
        >>> catalogue.ids_of(torch.tensor([[0, 2], [0, 1]])).tolist()
        ['pear', 'apple']
        >>> catalogue.under([0]).tolist()
        ['apple', 'pear']
        >>> catalogue.neighbours(["apple"], 5).ids.tolist()
        ['pear']
        >>> "plum" in catalogue, catalogue["nail"].tolist(), list(catalogue)
        (False, [3, 1], ['apple', 'pear', 'nail'])

    Args:
        ids: ``n`` distinct strings or whole numbers: a list, a numpy array or what numpy can convert.
        codes: ``(n, num_stages)`` integers, a tensor or an array.
        name: of the ids' column in a file.
        vectors: ``(n, d)``, a point for each item: its embedding (which is most precise), or its decoded codes,
            ``tokenizer.decode(codes)``; any array that :class:`ghrq.Tokenizer` accepts, memory-mapped ones too. Among
            neighbours with equally many shared codes, those at the smallest Euclidean distance come first. Without
            vectors, they come in the order of the catalogue. Vectors are not saved.
        tokenizer: the :class:`ghrq.Tokenizer` that made the codes; a file then says so.

    Attributes:
        ids: numpy array ``(n,)``.
        codes: tensor ``(n, num_stages)`` int64.
        retired: the catalogue of retired items, or ``None``: they keep their IDs, but are found by no method.
        manifest: which tokenizer made the IDs, how collisions are resolved, and the number of codes of each column;
            empty if that is not known.

    """

    def __init__(
        self,
        ids: Ids,
        codes: Codes,
        name: str = "id",
        vectors: Any = None,
        tokenizer: IdTokenizer | None = None,
    ) -> None:
        self.ids, self.name = _plain_ids(ids), name
        if name == "codes":
            raise ValueError("the ids cannot be called 'codes': that is the name of the other column")
        tuples = torch.as_tensor(codes)
        if tuples.dim() != 2 or len(tuples) != len(self.ids):
            raise ValueError(
                f"expected codes of shape ({len(self.ids)}, num_stages) for {len(self.ids)} ids, "
                f"got shape {tuple(tuples.shape)}"
            )
        if tuples.is_floating_point() or tuples.dtype == torch.bool:
            raise ValueError(f"expected integer codes, got {tuples.dtype}")
        self.codes = tuples.long()
        sizes = (self.codes.amax(0) + 1).clamp(min=1).tolist() if tuples.numel() else 1
        self._trie = PrefixTrie(self.codes, sizes)
        self._rows = dict(zip(self.ids.tolist(), range(len(self.ids)), strict=True))
        if len(self._rows) < len(self.ids):
            _name_duplicate(self.ids)
        points = None if vectors is None else as_rows(vectors)
        if points is not None and points.count != len(self.ids):
            raise ValueError(f"expected {len(self.ids)} vectors, one for each item, got {points.count}")
        self._search = PrefixSearch(self.codes, self._trie, points)
        self.retired: Catalogue | None = None
        self.manifest: dict[str, Any] = {} if tokenizer is None else self._made_by(tokenizer)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str | int]:
        """The ids, in the order of the catalogue."""
        return iter(self._rows)

    def __contains__(self, item: object) -> bool:
        return item in self._rows

    def __getitem__(self, item: str | int) -> Tensor:
        """The codes ``(num_stages,)`` of one item. An unknown one is a KeyError."""
        return self.codes[self.rows_of(np.array([item], dtype=object))[0]]

    def __repr__(self) -> str:
        stages = self.codes.shape[1]
        return f"<Catalogue of {len(self):,} items with {stages} code{'' if stages == 1 else 's'} each>"

    def to_pandas(self) -> Any:
        """A pandas frame: the ids as its index, and the columns ``code_1``, ``code_2``, …"""
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise UserError("to_pandas needs pandas, which is not installed: pip install pandas") from error
        columns = [f"code_{stage + 1}" for stage in range(self.codes.shape[1])]
        return pandas.DataFrame(self.codes.cpu().numpy(), pandas.Index(self.ids, name=self.name), columns)

    def rows_of(self, ids: Ids) -> Tensor:
        """The rows ``(m,)`` int64 of the m items ``ids``. An unknown one is a KeyError."""
        queries = _plain_ids(ids).tolist()
        rows = list(map(self._rows.get, queries))
        if None in rows:
            raise KeyError(
                f"{rows.count(None)} of {len(rows)} items are not in the catalogue, whose ids are like "
                f"{next(iter(self._rows))!r}; the first is {queries[rows.index(None)]!r}"
            )
        return torch.tensor(rows, dtype=torch.int64, device=self.codes.device)

    def codes_of(self, ids: Ids) -> Tensor:
        """The tuples ``(m, num_stages)`` of the m items ``ids``. An unknown one is a KeyError."""
        return self.codes[self.rows_of(ids)]

    def ids_of(self, codes: Tensor | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The item of each of ``codes (m, num_stages)``: ``(m,)``.

        A tuple that no item has is a KeyError; one that several items share is a ValueError: use :meth:`under`.
        """
        tuples = are_integers("codes", codes).to(self.codes.device)
        if tuples.dim() != 2:
            raise ValueError(f"expected codes of shape (m, {self._trie.num_stages}), got shape {tuple(tuples.shape)}")
        found = self._trie.items(tuples)
        count = found.indptr.diff()
        if bool((count == 0).any()):
            unknown = tuples[count == 0]
            raise KeyError(
                f"{len(unknown)} of {len(tuples)} tuples belong to no item, the first is {unknown[0].tolist()}"
            )
        if bool((count > 1).any()):
            first = int((count > 1).nonzero()[0])
            raise ValueError(
                f"{int(count[first])} items share the tuple {tuples[first].tolist()}: under() lists them, "
                "and ghrq.ids.resolve gives every item a tuple of its own"
            )
        return self.ids[found.items.cpu().numpy()]

    def under(self, prefix: Sequence[int] | Tensor) -> npt.NDArray[Any]:
        """All items whose tuple starts with ``prefix`` (up to num_stages codes), in the order of the catalogue."""
        wanted = are_integers("codes", prefix).to(self.codes.device)
        if wanted.dim() != 1:
            raise ValueError(f"expected one prefix, a sequence of codes, got shape {tuple(wanted.shape)}")
        node, known = self._trie.walk(wanted)
        if not known:
            return self.ids[:0]
        if not len(wanted):
            return self.ids
        depth = self._search.depths[len(wanted) - 1]
        return self.ids[depth.order[depth.indptr[node] : depth.indptr[node + 1]].cpu().numpy()]

    def neighbours(self, ids: Ids, k: int) -> Neighbours:
        """For each of the B items ``ids``, up to ``k`` others that share at least its first code.

        Sorted by the number of shared codes, most first; equal ones by the distance of their vectors, and without
        vectors in the order of the catalogue.
        """
        at_least("k", k, 1, whole=True)
        queries = self.rows_of(ids)
        count, rows, shared = self._search.nearest(queries, k)
        return Neighbours(torch.nn.functional.pad(count.cumsum(0), (1, 0)), self.ids[rows.cpu().numpy()], shared)

    def extend(self, tokenizer: IdTokenizer, ids: Ids, X: Any, *, reuse: bool = False) -> "Catalogue":  # noqa: N803
        """A catalogue with more items. No ID of this one moves, and no two items have the same (``none`` excepted).

        Items that are here already keep their IDs, retired ones come back to theirs. An item that is here with another
        vector keeps its ID, too, with a warning.

        Args:
            tokenizer: the :class:`ghrq.Tokenizer` that made the IDs; another one is a :class:`UserError`, and without a
                manifest one that gives most items that are here already other codes.
            ids: of ``k`` items.
            X: ``(k, d)`` their vectors.
            reuse: the IDs of retired items may be given again; who lost its ID that way is not known any more.

        """
        pa = require("pyarrow", "tokenizer")
        manifest = self._made_by(tokenizer)
        given, vectors, codes = _plain_ids(ids), as_rows(X), tokenizer.encode(X)
        if len(given) != len(codes):
            raise ValueError(f"expected {len(given)} vectors, one for each item, got {len(codes)}")
        if len(set(given.tolist())) < len(given):
            _name_duplicate(given)

        def vectors_of(rows: Tensor) -> Tensor:
            return tokenizer.latent(vectors.take(rows.numpy()))

        old = self.retired
        none = Section(lambda: (), np.empty((0, self.codes.shape[1]), dtype=np.int64))
        rules = Rules(manifest["collisions"], tokenizer.quantizer_, tokenizer.tie_break_size_, reuse)
        new = NewItems(pa.array(given), codes, vectors_of)
        nobody = pa.array([], new.ids.type)
        growth = grow(self._section(), none if old is None else old._section(), new, nobody, rules)
        if len(growth.changed):
            first = given[growth.changed[0]]
            if not self.manifest:
                check_agreement(growth, "this catalogue", repr(first))
            warnings.warn(
                f"{len(growth.changed)} items have another vector than when they were published, the first is "
                f"{first!r}: they keep their IDs",
                stacklevel=2,
            )
        parts = [(self.ids[growth.kept], self.codes[torch.from_numpy(growth.kept)])]
        if old is not None:
            parts.append((old.ids[growth.back], old.codes[torch.from_numpy(growth.back)]))
        parts.append((given[growth.fresh], torch.from_numpy(growth.codes.astype(np.int64))))
        larger = self._joined(parts, manifest)
        if old is not None and growth.still.any():
            larger.retired = self._joined([(old.ids[growth.still], old.codes[torch.from_numpy(growth.still)])], {})
        return larger

    def retire(self, ids: Ids) -> "Catalogue":
        """A catalogue without these items. They keep their IDs: nobody gets them, and who comes back has the old one.

        Items that are retired already stay so; unknown ones are a KeyError.
        """
        if not self.manifest:
            raise UserError("only a catalogue that knows its tokenizer can keep retired items: Catalogue(tokenizer=…)")
        old = self.retired
        left = [item for item in _plain_ids(ids).tolist() if old is None or item not in old]
        stay = torch.ones(len(self), dtype=torch.bool)
        stay[self.rows_of(left)] = False
        if not stay.any():
            raise UserError(f"all {len(self):,} items would be retired: a catalogue needs at least one in use")
        smaller = self._joined([(self.ids[stay.numpy()], self.codes[stay])], self.manifest)
        gone = [] if old is None else [(old.ids, old.codes)]
        gone += [] if stay.all() else [(self.ids[~stay.numpy()], self.codes[~stay])]
        smaller.retired = self._joined(gone, {}) if gone else None
        return smaller

    def _made_by(self, tokenizer: IdTokenizer) -> dict[str, Any]:
        """The manifest of a catalogue of ``tokenizer``; if this one is of another, that is an error."""
        from ghrq.data.tables import manifest

        known = getattr(self, "manifest", {})
        manifest.check_made_by(known, tokenizer.fingerprint, "this catalogue")
        stages, width = tokenizer.quantizer_.num_stages, self.codes.shape[1]
        if width not in (stages, stages + 1):
            raise UserError(
                f"the catalogue has {width} codes an item, the tokenizer {stages}: use the one that made it"
            )
        policy = policy_of(known, self.codes.cpu().numpy(), stages)
        sizes = tokenizer.vocabulary(policy).sizes
        if bool((self.codes >= torch.tensor(sizes, device=self.codes.device)).any()):
            raise UserError(
                f"the catalogue has codes that the tokenizer does not have, whose sizes are {tuple(sizes)}: use the "
                "one that made it"
            )
        return manifest.describe(tokenizer.fingerprint, policy, sizes)

    def _section(self) -> Section:
        pa = require("pyarrow", "tokenizer")
        return Section(lambda: [pa.array(self.ids)], self.codes.cpu().numpy())

    def _joined(self, parts: Sequence[tuple[Any, Tensor]], manifest: dict[str, Any]) -> "Catalogue":
        """A catalogue of several ids and codes, under this one's name."""
        ids, codes = zip(*parts, strict=True)
        # numpy would make int64 and uint64 to floats
        same = len({each.dtype for each in ids}) == 1
        names = np.concatenate(ids if same else [each.astype(object) for each in ids])
        joined = Catalogue(names, torch.cat(codes), self.name)
        joined.manifest = manifest
        return joined

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file atomically: the ids under their name, ``codes`` as fixed-size lists.

        A catalogue that knows its tokenizer also writes a manifest, and its retired items with a column ``retired``.
        """
        pa = require("pyarrow", "tokenizer")
        from ghrq.data.tables import CODES_COLUMN, TableLayout, open_writer

        gone = self.retired
        about, width = self.manifest or None, self.codes.shape[1]
        layout = TableLayout(self.name, CODES_COLUMN, width, np.int32, len(self), about, gone is not None)
        with open_writer(Path(path), layout, ".parquet") as writer:
            writer.write(pa.array(self.ids), self.codes.cpu().numpy())
            if gone is not None:
                writer.write(pa.array(gone.ids), gone.codes.cpu().numpy(), retired=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str], vectors: Any = None) -> "Catalogue":
        """Read a Parquet file of ids and codes: the first column that is not ``codes`` has the ids.

        A file that was cut or edited since ghrq wrote it is a :class:`UserError`. ``vectors``: in the order of the
        file, see :class:`Catalogue`.
        """
        require("pyarrow", "tokenizer")
        from ghrq.data.tables.manifest import describe
        from ghrq.data.tables.sources import ParquetSource

        if not Path(path).exists():
            raise UserError(f"there is no file {path}: check the name")
        source = ParquetSource(Path(path))
        names = [name for name in source.schema.names if name != "codes"]
        if len(names) == len(source.schema.names) or not names:
            raise UserError(f"{path}: expected a column of ids and a column 'codes', got {source.schema.names}")
        live = _read(source, names[0], retired=False)
        retired = _read(source, names[0], retired=True) if source.manifest.get("retired") else None
        try:
            catalogue = cls(*live, names[0], vectors)
            catalogue.retired = None if retired is None else cls(*retired, names[0])
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error
        if source.manifest:
            catalogue.manifest = describe(*(source.manifest[key] for key in ("tokenizer", "collisions", "sizes")))
        return catalogue


def _read(source: Any, name: str, retired: bool) -> tuple[Any, npt.NDArray[np.int32]]:
    """Ids ``(n,)`` and codes ``(n, width)`` of the items in use, or of the retired ones."""
    pa = require("pyarrow", "tokenizer")
    from ghrq.data.tables import CODES_COLUMN, VectorTable

    table = VectorTable(source, CODES_COLUMN, name, None, np.int32, retired=retired)
    ids, codes = zip(*table.batches(_ROWS_READ), strict=True)
    return pa.chunked_array(ids).to_numpy(), np.concatenate(codes)


def _plain_ids(ids: Ids) -> npt.NDArray[Any]:
    """Ids as an array of Python strings or of int64 (uint64 if needed); other types are refused, not converted."""
    if isinstance(ids, str):
        raise ValueError(f"expected a sequence of ids, got the string {ids!r}: pass a list")
    # Without dtype=object, numpy would convert numbers in a list with strings to strings.
    array = np.asarray(ids, dtype=object if isinstance(ids, list | tuple) else None)
    if array.ndim != 1:
        raise ValueError(f"expected ids as a sequence, one for each item, got shape {array.shape}")
    kinds = set(map(type, array.tolist()))
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        for dtype in (np.int64, np.uint64):
            try:
                return np.array(array.tolist(), dtype=dtype)
            except OverflowError:
                continue
        raise ValueError("expected ids as strings or as whole numbers of 64 bits: convert them to strings")
    if all(issubclass(kind, str) for kind in kinds):
        return array.astype(object)
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"expected ids as strings or as whole numbers, all of one kind, got {found}")


def _name_duplicate(ids: npt.NDArray[Any]) -> None:
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    again = int(np.flatnonzero(first[inverse] != np.arange(len(ids)))[0])
    rows = np.flatnonzero(inverse == inverse[again])
    listed = ", ".join(map(str, rows[:10])) + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")
    raise UserError(
        f"the ids must be different, but {ids.tolist()[again]!r} is in rows {listed} (from 0): "
        "remove or rename the duplicates"
    )
