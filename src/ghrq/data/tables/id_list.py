"""Read a list of ids: a column of a table, or the lines of a text file."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from ghrq.data.tables import columns
from ghrq.data.tables.table import open_source
from ghrq.data.tables.text import CsvSource
from ghrq.system.errors import UserError
from ghrq.system.inputs import InputFile


def read_ids_column(path: str | Path, name: str) -> Any:
    """All ids of a file, an Arrow array: a column of a table, or the lines of a ``.txt``.

    The column is ``name`` if there is one of that name, else the one that is called as ids usually are, else the only
    column. In CSV an only column of any other name is an error: it may be the first id of a file without a header.
    """
    path = Path(path)
    if path.suffix.lower() == ".txt":
        with InputFile(path).reading("text"):
            lines = path.read_text("utf-8-sig").splitlines()
        return pa.array([line.strip() for line in lines if line.strip()], pa.large_string())
    chosen = _ids_column(path, name)
    source, first, parts = open_source(path, {chosen}), 0, []
    for batch in source.read([chosen]):
        where = columns.Where(path, first, "fix or remove that row")
        parts.append(columns.id_array(where, batch.column(0), chosen))
        first += len(batch)
    if not parts:
        raise UserError(f"{path} is empty: expected at least one id")
    return pa.chunked_array(parts).combine_chunks()


def _ids_column(path: Path, name: str) -> str:
    source = open_source(path, ())
    names = source.schema.names
    if name in names:
        return name
    likely = [column for column in names if column.lower() in columns.USUAL_IDS]
    if len(likely) == 1:
        return likely[0]
    if likely:
        raise UserError(
            f"{path} has the columns {columns.listed(likely)}, which may all be ids, and none is called {name!r}: name "
            "one with --id"
        )
    if len(names) > 1:
        raise UserError(f"{path} has no column {name!r}: name it with --id, one of {columns.listed(names)}")
    if isinstance(source, CsvSource):
        raise UserError(
            f"{path} has one column, with the header {names[0]!r}: if that is an id, call the file .txt; if not, call "
            f"the column {name!r}"
        )
    return names[0]
