"""One HTML file that holds everything it shows: it opens offline, on a laptop or a phone, in light or dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ghrq.report.template import render, safe


class Piece(Protocol):
    """What a section is made of: a table, a figure, examples."""

    def html(self) -> str:
        """As HTML, complete in itself."""


@dataclass(frozen=True)
class Section:
    """A heading, some words, and what there is to see."""

    title: str
    text: Sequence[str] = ()
    """Paragraphs, with ``**bold**`` and ```code```."""
    pieces: Sequence[Piece] = ()


def page(title: str, subtitle: str, lead: Sequence[str], sections: Sequence[Section], footer: str = "") -> str:
    """The whole page; ``lead`` are the paragraphs on top, ``sections`` without anything in them are left out."""
    shown = [
        (f"section-{i}", section, [safe(piece.html()) for piece in section.pieces])
        for i, section in enumerate((s for s in sections if s.text or s.pieces), start=1)
    ]
    return render("page", title=title, subtitle=subtitle, lead=lead, sections=shown, footer=footer)
