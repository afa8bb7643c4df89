"""One HTML file that holds everything it shows: it opens offline, on a laptop or a phone, in light or dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ghrq import __version__
from ghrq.report.figures import Figure, Gallery
from ghrq.report.grid import Grid
from ghrq.report.template import render, safe
from ghrq.system import files


class PagePiece(Protocol):
    """A part of a section: a table, a figure, examples."""

    def html(self) -> str:
        """As HTML, complete in itself."""


@dataclass(frozen=True)
class PageSection:
    """A heading, paragraphs, and pieces."""

    title: str
    pieces: Sequence[PagePiece | None] = ()
    """``None`` is left out, and so is a section without any piece and paragraph."""
    text: Sequence[str] = ()
    """Paragraphs in Markdown."""

    def shown(self) -> list[PagePiece]:
        """The pieces that are there; an empty gallery is not."""
        return [p for p in self.pieces if p is not None and not (isinstance(p, Gallery) and not p.figures)]


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    lead: Sequence[str]
    """Paragraphs on top, in Markdown."""
    sections: Sequence[PageSection]

    def html(self) -> str:
        """The file to open in a browser."""
        sections = [
            (f"section-{i}", section, [safe(piece.html()) for piece in section.shown()])
            for i, section in enumerate((s for s in self.sections if s.text or s.shown()), start=1)
        ]
        return render("page", page=self, sections=sections, footer=f"Written by ghrq {__version__}.")

    def markdown(self) -> str:
        """The title, the paragraphs on top, and all tables."""
        tables = [piece.markdown() for piece in self._pieces() if isinstance(piece, Grid)]
        return "\n".join([f"# {self.title}\n", *(f"{paragraph}\n" for paragraph in self.lead), *tables])

    def write(self, folder: Path) -> Path:
        """Write report.html, tables.md and figures/ into ``folder``, each file atomically; returns report.html."""
        shown = [piece for gallery in self._pieces() if isinstance(gallery, Gallery) for piece in gallery.figures]
        html = self.html()
        remedy = "once the cause is gone, the same command writes it without training again"
        with files.telling(f"the report into {folder}", remedy):
            (folder / "figures").mkdir(parents=True, exist_ok=True)
            for figure in (piece for piece in shown if isinstance(piece, Figure)):
                figure.save(folder / "figures")
            files.write(folder / "tables.md", self.markdown())
            files.write(folder / "report.html", html)
        return folder / "report.html"

    def _pieces(self) -> list[PagePiece]:
        return [piece for section in self.sections for piece in section.shown()]
