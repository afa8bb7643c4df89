"""Look up items and IDs in a file that is too large for memory: one pass over it answers any number of questions."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.ids.growth import id_list, places
from ghrq.ids.trie import PrefixTrie
from ghrq.ids.tuples import tuple_keys
from ghrq.system.checks import are_integers
from ghrq.system.errors import UserError, require
from ghrq.system.progress import make_progress

# Rows read at once.
_ROWS = 2**18


class CatalogueFile:
    """The look-ups of :class:`ghrq.ids.Catalogue` on a file of IDs, with the same results, in memory for one batch.

    Every call reads the file once: ask for many items at a time. Retired items are left out.

    >>> catalogue = CatalogueFile("ids.parquet")
    >>> catalogue.ids_of(catalogue.codes_of(["apple", "nail"]))
    array(['apple', 'nail'], dtype=object)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        require("pyarrow", "tokenizer")
        from ghrq.data.tables import open_codes

        self.path = Path(path)
        self._table = open_codes(self.path)
        self._table.require_ids()

    def __len__(self) -> int:
        return self._table.rows

    def codes_of(self, ids: Any) -> Tensor:
        """The tuples ``(m, num_stages)`` int64 of the m items ``ids``. An unknown one is a KeyError."""
        pc = require("pyarrow.compute", "tokenizer")
        if not len(ids):
            return torch.zeros(0, self._table.dim, dtype=torch.int64)
        asked = id_list(ids)
        wanted = asked.unique()
        codes = torch.zeros(len(wanted), self._table.dim, dtype=torch.int64)
        known = np.zeros(len(wanted), dtype=bool)
        for names, part in self._batches():
            rows = places([names], wanted)
            here = rows >= 0
            codes[torch.from_numpy(here)] = torch.from_numpy(part[rows[here]].astype(np.int64))
            known |= here
        if not known.all():
            first = wanted[int(np.flatnonzero(~known)[0])].as_py()
            raise KeyError(
                f"{int((~known).sum())} of {len(wanted)} items are not in {self.path}; the first is {first!r}"
            )
        return codes[torch.from_numpy(pc.index_in(asked, value_set=wanted).to_numpy().astype(np.int64))]

    def ids_of(self, codes: Tensor | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The item of each of ``codes (m, num_stages)``: ``(m,)``.

        A tuple that no item has is a KeyError; one that several items share is a ValueError.
        """
        tuples = are_integers("codes", codes).cpu()
        if tuples.dim() != 2 or tuples.shape[1] != self._table.dim:
            raise ValueError(f"expected codes of shape (m, {self._table.dim}), got shape {tuple(tuples.shape)}")
        outside = tuples[(tuples < 0).any(1)]
        if len(outside):
            raise KeyError(f"the tuple {outside[0].tolist()} belongs to no item: codes are 0 or above")
        if not len(tuples):
            return np.array([], dtype=object)
        trie = PrefixTrie(tuples, (tuples.amax(0) + 1).tolist())
        found: list[Any] = []
        owners: list[npt.NDArray[np.int64]] = []
        for names, part in self._batches():
            leaf, known = trie.walk(torch.from_numpy(part).long())
            rows = np.flatnonzero(known.numpy())
            found.append(names.take(rows))
            owners.append(leaf.numpy()[rows])
        owner, asked = np.concatenate(owners), trie.walk(tuples)[0].numpy()
        count = np.bincount(owner, minlength=trie.num_tuples)[asked]
        if (count == 0).any():
            unknown = tuples[torch.from_numpy(count == 0)]
            raise KeyError(
                f"{len(unknown)} of {len(tuples)} tuples belong to no item, the first is {unknown[0].tolist()}"
            )
        if (count > 1).any():
            row = int(np.flatnonzero(count > 1)[0])
            raise ValueError(f"{count[row]} items share the tuple {tuples[row].tolist()}: under() lists them")
        names = require("pyarrow", "tokenizer").concat_arrays(found)
        return names.take(owner.argsort()[asked]).to_numpy(zero_copy_only=False)

    def under(self, prefix: Sequence[int] | Tensor) -> npt.NDArray[Any]:
        """All items whose tuple starts with ``prefix``, in the order of the file."""
        wanted = are_integers("codes", prefix).cpu().numpy()
        if wanted.ndim != 1 or len(wanted) > self._table.dim:
            raise ValueError(f"expected one prefix of at most {self._table.dim} codes, got shape {wanted.shape}")
        found = [names.filter(_mask((part[:, : len(wanted)] == wanted).all(axis=1))) for names, part in self._batches()]
        return require("pyarrow", "tokenizer").concat_arrays(found).to_numpy(zero_copy_only=False)

    def count_distinct(self, depth: int | None = None) -> int:
        """The number of different tuples, or of different first ``depth`` codes; memory holds 8 bytes an item."""
        depth = self._table.dim if depth is None else depth
        if not 1 <= depth <= self._table.dim:
            raise ValueError(f"depth must be from 1 to {self._table.dim}, got {depth}")
        sizes = self._sizes()[:depth]
        if math.prod(sizes) >= 2**63:
            raise UserError(f"{depth} codes of sizes {sizes} do not fit into 64 bits: give a smaller depth")
        keys, first = np.empty(len(self), dtype=np.int64), 0
        for _, part in self._batches():
            keys[first : first + len(part)] = tuple_keys(part[:, :depth], sizes).numpy()
            first += len(part)
        keys.sort()
        return 1 + int(np.count_nonzero(keys[1:] != keys[:-1]))

    def _sizes(self) -> list[int]:
        known = self._table.manifest.get("sizes")
        if known is not None:
            return list(known)
        return (np.max([part.max(axis=0) for _, part in self._batches()], axis=0) + 1).tolist()

    def _batches(self) -> Any:
        with make_progress().patient_bar(f"reading {self.path.name}", len(self), "rows") as bar:
            for names, part in self._table.batches(_ROWS):
                yield names, part
                bar.advance(len(part))


def _mask(values: npt.NDArray[np.bool_]) -> Any:
    return require("pyarrow", "tokenizer").array(values)
