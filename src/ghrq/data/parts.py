"""A Parquet file that is written part by part, so that a process that was killed goes on where it was."""

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

from pyarrow import parquet

from ghrq.data.outputs import replacing
from ghrq.system import files
from ghrq.system.errors import UserError, counted
from ghrq.system.pretrained import checksum

_JOB, _NOTE = "job.json", b"ghrq"


class Parts:
    """The finished parts of the file ``out``, in the folder ``out.parts`` beside it until all are there.

    Args:
        out: the file to write.
        schema: of its rows.
        job: everything that decides what is written, ready for JSON.
        replace: whether finished parts of another job are removed; else they are an error.

    """

    def __init__(self, out: Path, schema: Any, job: dict[str, Any], replace: bool = False) -> None:
        target = files.link_target(out)
        self.out, self.schema, self.folder = out, schema, target.with_name(f"{target.name}.parts")
        job = {"job": checksum(job | {"schema": str(schema)})}
        with files.telling(self.folder):
            if self.folder.exists() and not self._is_mine(job):
                if len(self) and not replace:
                    raise UserError(
                        f"{self.folder} has {counted(len(self), 'finished part')} of {out} by another command, or of "
                        "another table: finish that command, name another output, or replace them (replace=True, "
                        "--force)"
                    )
                self.remove()
            self.folder.mkdir(exist_ok=True)
            files.write_json(self.folder / _JOB, job)

    def __len__(self) -> int:
        """The number of parts that are finished, from the first on."""
        count = 0
        while self._path(count).is_file():
            count += 1
        return count

    def add(self, rows: Any, note: dict[str, Any]) -> None:
        """Write the next part, atomically: a record batch, and a ``note`` to keep with it."""
        file = io.BytesIO()
        with parquet.ParquetWriter(file, self.schema, write_page_checksum=True) as writer:
            writer.write_batch(rows)
            writer.add_key_value_metadata({_NOTE.decode(): json.dumps(note)})
        with files.telling(self.out):
            files.write(self._path(len(self)), file.getvalue())

    def notes(self) -> list[dict[str, Any]]:
        """The notes of all parts."""
        return [json.loads(parquet.read_metadata(self._path(part)).metadata[_NOTE]) for part in range(len(self))]

    def join(self) -> None:
        """Write the file of all parts, atomically, and remove them."""
        with replacing(self.out) as temporary, temporary.open("wb") as file:
            with parquet.ParquetWriter(file, self.schema, write_page_checksum=True) as writer:
                for part in range(len(self)):
                    writer.write_table(parquet.read_table(self._path(part)).replace_schema_metadata(None))
            file.flush()
            os.fsync(file.fileno())
        self.remove()

    def remove_if_empty(self) -> None:
        """Remove the folder if no part was finished."""
        if self.folder.exists() and not len(self):
            self.remove()

    def remove(self) -> None:
        """Remove the folder; one that holds anything but parts is an error."""
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else [""]
        if not all(name == _JOB or name.startswith((".", "part-")) for name in names):
            raise UserError(
                f"{self.folder} is not a folder of unfinished parts: the parts of {self.out} are to be written there; "
                "move it away, or name another output"
            )
        shutil.rmtree(self.folder)

    def _path(self, part: int) -> Path:
        return self.folder / f"part-{part:06d}.parquet"

    def _is_mine(self, job: dict[str, Any]) -> bool:
        path = self.folder / _JOB
        return path.is_file() and files.read_json(path, f"remove {self.folder}") == job
