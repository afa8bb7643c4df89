"""A report as it lies beside the runs it is about: report.html, tables.md and figures/."""

from collections.abc import Sequence
from pathlib import Path

from ghrq import __version__
from ghrq.report.figures import Figure, Gallery
from ghrq.report.page import Section, page
from ghrq.report.tables import Table
from ghrq.system import files
from ghrq.system.errors import UserError


def write_report(folder: Path, title: str, subtitle: str, lead: Sequence[str], sections: Sequence[Section]) -> Path:
    """Write all of it into ``folder``, each file whole or not at all; returns report.html. ``lead``: see ``page``."""
    pieces = [piece for section in sections for piece in section.pieces]
    shown = [piece for gallery in pieces if isinstance(gallery, Gallery) for piece in gallery.figures]
    html = page(title, subtitle, lead, sections, f"Written by ghrq {__version__}.")
    markdown = [f"# {title}\n", *(f"{paragraph}\n" for paragraph in lead)]
    markdown += [piece.markdown() for piece in pieces if isinstance(piece, Table)]
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for figure in (piece for piece in shown if isinstance(piece, Figure)):
            figure.save(folder / "figures")
        files.write(folder / "tables.md", "\n".join(markdown))
        files.write(folder / "report.html", html)
    except OSError as error:
        raise UserError(
            f"cannot write the report into {folder}: {error.strerror}; once the cause is gone, the same command "
            "writes it without training again"
        ) from error
    return folder / "report.html"
