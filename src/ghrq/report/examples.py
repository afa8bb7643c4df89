"""Examples of codes to look at: a thing, its tuple, and who shares the first codes of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ghrq.report.template import render


@dataclass(frozen=True)
class Example:
    """One thing, from the crowd that shares its first code to the few that share more of them."""

    name: str
    detail: str
    codes: Sequence[int]
    sharing: Sequence[Sequence[str]]
    """Who shares the first one, two, … codes, the thing itself left out."""

    def html(self) -> str:
        """A card."""
        depths = [(self.codes[: i + 1], list(names)) for i, names in enumerate(self.sharing)]
        return render("example", example=self, depths=depths)


@dataclass(frozen=True)
class Examples:
    """Cards side by side."""

    title: str
    examples: Sequence[Example]

    def html(self) -> str:
        """All cards, below their title."""
        return render("examples", title=self.title, cards=[example.html() for example in self.examples])
