"""The file table.json in the folder of a tokenizer: the columns that it was fitted on."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ghrq.system import pretrained
from ghrq.system.errors import UserError
from ghrq.system.files import read_json, write_json

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer

_REMEDY = "remove it, and give --column and --id"


class Columns(NamedTuple):
    """The columns of a table, as :func:`ghrq.data.tables.open_table` takes them."""

    column: str | None = None
    id: str | None = None


def write(path: Path, columns: Columns, tokenizer: "Tokenizer") -> None:
    """Write the file, with a checksum and the fingerprint of the tokenizer it belongs to."""
    content = {**columns._asdict(), "tokenizer": tokenizer.fingerprint}
    write_json(path, {**content, "sha256": pretrained.checksum(content)})


def read(path: Path, tokenizer: "Tokenizer") -> Columns:
    """The columns, or none if there is no such file. Files of ghrq 0.1.0 have neither checksum nor fingerprint."""
    if not path.exists():
        return Columns()
    content = read_json(path, _REMEDY)
    written = content.pop("sha256", None)
    if not set(content) <= {*Columns._fields, "tokenizer"}:
        raise UserError(f"{path} is damaged, it has unknown keys: {_REMEDY}")
    made_by = content.get("tokenizer")
    if (written is not None or made_by is not None) and written != pretrained.checksum(content):
        raise UserError(f"{path} is damaged or was edited, it has another checksum: {_REMEDY}")
    if made_by not in (None, tokenizer.fingerprint):
        raise UserError(f"{path} is of another tokenizer: {_REMEDY}")
    columns = Columns(content.get("column"), content.get("id"))
    if not all(name is None or isinstance(name, str) for name in columns):
        raise UserError(f"{path} is damaged, column and id are no names: {_REMEDY}")
    return columns
