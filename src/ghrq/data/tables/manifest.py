"""What a file of IDs says of itself: the tokenizer that made it, counts, sizes and checksums. Only Parquet has room.

A file has the items in use first, then the retired ones, marked by the column ``retired``. Retired items keep their
IDs: nobody else gets them, and who comes back has the old one.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ghrq import __version__
from ghrq.data.tables.duplicates import letters
from ghrq.system import files, pretrained
from ghrq.system.errors import UserError
from ghrq.system.inputs import one_line

KEY = b"ghrq"
"""The key of Parquet's metadata that holds the manifest, a JSON object."""

RETIRED_COLUMN = "retired"

_FORMAT, _VERSION = "ghrq-ids", 1

# Of a complete manifest; a given one has the first three.
_TYPES: dict[str, type] = {
    "tokenizer": str,
    "collisions": str,
    "sizes": list,
    "format": str,
    "version": int,
    "ghrq": str,
    "rows": int,
    "retired": int,
    "content": str,
    "retired_content": str,
}
_SHARED = ("tokenizer", "collisions", "sizes")

_REMEDY = "fetch the file again from where it was written, or encode the items again"


class Content:
    """A checksum of rows in their order, however they are split into batches."""

    def __init__(self) -> None:
        self.rows, self._kind = 0, ""
        self._lengths, self._letters, self._arrays = (hashlib.sha256() for _ in range(3))

    def add(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        """Add ``ids (n,)``, an Arrow array of text or whole numbers, and their codes ``(n, width)``."""
        self.rows += len(ids)
        if pa.types.is_integer(ids.type):
            self._kind = "number"
            self._letters.update(np.ascontiguousarray(ids.to_numpy(zero_copy_only=False)).data)
        else:
            self._kind = "text"
            bounds, data = letters(ids)
            self._lengths.update(np.diff(bounds).data)
            self._letters.update(data.data)
        self._arrays.update(np.ascontiguousarray(arrays, dtype=np.int32).data)

    def digest(self) -> str:
        """64 hexadecimal digits."""
        parts = (self._lengths, self._letters, self._arrays)
        return hashlib.sha256(" ".join([self._kind, *(part.hexdigest() for part in parts)]).encode()).hexdigest()


def describe(tokenizer: str, collisions: str, sizes: Sequence[int]) -> dict[str, Any]:
    """What is known of IDs before they are written: for :class:`ghrq.data.tables.TableLayout`.

    ``tokenizer`` is its fingerprint, ``collisions`` how equal tuples are resolved, ``sizes`` the number of codes of
    each column.
    """
    return {"tokenizer": tokenizer, "collisions": collisions, "sizes": list(sizes)}


def complete(given: dict[str, Any], live: Content, retired: Content) -> dict[str, Any]:
    """The manifest to write: ``given`` by :func:`describe`, and what was counted while the rows were written."""
    content = {
        **given,
        "format": _FORMAT,
        "version": _VERSION,
        "ghrq": __version__,
        "rows": live.rows,
        "retired": retired.rows,
        "content": live.digest(),
        "retired_content": retired.digest(),
    }
    return {**content, "sha256": pretrained.checksum(content)}


def read(path: Path, metadata: dict[bytes, bytes] | None, schema: Any, rows: int) -> dict[str, Any]:
    """The manifest of a file, checked against itself and the number of ``rows``; empty if there is none."""
    text = (metadata or {}).get(KEY)
    if text is None:
        if has_retired(schema):
            raise UserError(
                f"{path} has a column {RETIRED_COLUMN!r}, but its manifest was cut off: another program rewrote it; "
                f"{_REMEDY}"
            )
        return {}
    try:
        found = files.parse_json(text)
    except ValueError as error:
        raise UserError(f"{path}: its manifest is damaged ({one_line(error)}): {_REMEDY}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: its manifest is damaged, it is no JSON object: {_REMEDY}")
    if isinstance(found.get("version"), int) and found["version"] > _VERSION:
        raise UserError(
            f"{path} has version {found['version']} of the manifest, this ghrq reads version {_VERSION}: "
            "use the ghrq that wrote it, or a newer one"
        )
    written = found.pop("sha256", None)
    fits = all(isinstance(found.get(key), kind) for key, kind in _TYPES.items())
    if not fits or written != pretrained.checksum(found):
        raise UserError(f"{path}: its manifest was cut or edited: {_REMEDY}")
    if found["rows"] + found["retired"] != rows or (found["retired"] > 0) != has_retired(schema):
        expected = f"{found['rows']:,} items and {found['retired']:,} retired ones"
        raise UserError(f"{path} was cut or edited: it has {rows:,} rows, its manifest says {expected}; {_REMEDY}")
    return found


def check_made_by(manifest: dict[str, Any], fingerprint: str, where: Path | str) -> bool:
    """Raise an error if another tokenizer made these IDs. Returns whether the manifest says which one did."""
    made_by = manifest.get("tokenizer")
    if made_by is not None and made_by != fingerprint:
        raise UserError(
            f"{where} holds IDs of the tokenizer {str(made_by)[:12]}, but this one is {fingerprint[:12]}: name the "
            "tokenizer that made them, or encode the items again"
        )
    return made_by is not None


def shared(manifests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the manifest of one part says of a table of several parts: counts and checksums are of each part alone."""
    return manifests[0] if len(manifests) == 1 else {k: manifests[0][k] for k in _SHARED if k in manifests[0]}


def has_retired(schema: Any) -> bool:
    """Whether a file has the column that marks retired items; a column of ids may have the same name."""
    place = schema.get_field_index(RETIRED_COLUMN)
    return place >= 0 and bool(pa.types.is_boolean(schema.field(place).type))


def check_content(path: Path, expected: str, found: Content) -> None:
    """Raise an error unless the rows that were read are those that were written."""
    if found.digest() != expected:
        raise UserError(f"{path} was edited: its rows have another checksum than its manifest says; {_REMEDY}")
