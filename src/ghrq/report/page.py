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
class Folded:
    """A table that a reader opens: its title is all that is shown before."""

    grid: Grid

    def html(self) -> str:
        """A ``<details>``."""
        return render("folded", title=self.grid.title, piece=safe(self.grid.html()))


@dataclass(frozen=True)
class PageSection:
    """A heading, paragraphs, and pieces."""

    title: str
    pieces: Sequence[PagePiece | None] = ()
    """``None`` is left out, and so is a section without any piece and paragraph."""
    text: Sequence[str] = ()
    """Paragraphs in Markdown."""
    part: bool = False
    """It begins a part of the page: a larger heading, and a line of its own in the contents."""

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
        """The title, the paragraphs on top, the heads of parts, and all tables."""
        found = [f"# {self.title}\n", *(f"{paragraph}\n" for paragraph in self.lead)]
        for section in self.sections:
            if section.part:
                found += [f"# {section.title}\n", *(f"{paragraph}\n" for paragraph in section.text)]
            found += [grid.markdown() for grid in _tables(section)]
        return "\n".join(found)

    def tables(self) -> list[Grid]:
        """All tables, from top to bottom."""
        return [grid for section in self.sections for grid in _tables(section)]

    def write(self, folder: Path) -> Path:
        """Write report.html, tables.md and figures/ into ``folder``, each file atomically; returns report.html."""
        html = self.html()
        remedy = "once the cause is gone, the same command writes it without training again"
        with files.telling(f"the report into {folder}", remedy):
            (folder / "figures").mkdir(parents=True, exist_ok=True)
            for figure in self.figures():
                figure.save(folder / "figures")
            files.write(folder / "tables.md", self.markdown())
            files.write(folder / "report.html", html)
        return folder / "report.html"

    def figures(self) -> list[Figure]:
        """All plots, from top to bottom."""
        galleries = [piece for section in self.sections for piece in section.shown() if isinstance(piece, Gallery)]
        return [figure for gallery in galleries for figure in gallery.figures if isinstance(figure, Figure)]


def _tables(section: PageSection) -> list[Grid]:
    shown = [piece.grid if isinstance(piece, Folded) else piece for piece in section.shown()]
    return [piece for piece in shown if isinstance(piece, Grid)]
