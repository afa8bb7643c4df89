"""The file table.json in the folder of a tokenizer: the columns that it was fitted on."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ghrq.system.errors import UserError
from ghrq.system.files import read_json, write_json
from ghrq.system.inputs import InputFile
from ghrq.system.pretrained import digest

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer

TABLE_FILE = "table.json"

_REMEDY = "remove it, and give --column and --id"


class Columns(NamedTuple):
    """The columns of a table, as :func:`ghrq.data.tables.open_table` takes them."""

    column: str | None = None
    id: str | None = None


def write(folder: Path, tokenizer: "Tokenizer", columns: Columns) -> None:
    """Write the file, with a checksum and the fingerprint of the tokenizer it belongs to."""
    content = columns._asdict() | {"tokenizer": tokenizer.fingerprint}
    write_json(folder / TABLE_FILE, content | {"sha256": digest(content)})


def read(folder: Path, tokenizer: "Tokenizer") -> Columns:
    """The columns, or none if there is no such file. Files of ghrq 0.1.0 have no checksum."""
    path = folder / TABLE_FILE
    if not path.exists():
        return Columns()
    InputFile(path)
    content = read_json(path, _REMEDY)
    written, of = content.pop("sha256", None), content.get("tokenizer")
    if not set(content) <= {"column", "id", "tokenizer"}:
        raise UserError(f"{path} is damaged, it has unknown keys: {_REMEDY}")
    if (written or of) and written != digest(content):
        raise UserError(f"{path} is damaged or was edited, it has another checksum: {_REMEDY}")
    if of is not None and of != tokenizer.fingerprint:
        raise UserError(f"{path} is of another tokenizer: {_REMEDY}")
    columns = Columns(content.get("column"), content.get("id"))
    if not all(name is None or isinstance(name, str) for name in columns):
        raise UserError(f"{path} is damaged, column and id have to be names: {_REMEDY}")
    return columns
