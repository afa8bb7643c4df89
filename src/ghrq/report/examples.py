"""Examples as cards: an item with its tuple and those that share its first codes, or named lists of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ghrq.report.template import render


@dataclass(frozen=True)
class Example:
    """One item, with those that share its first code, its first two codes, and so on."""

    name: str
    detail: str
    codes: Sequence[int]
    sharing: Sequence[Sequence[str]]
    """Names of those that share the first one, two, … codes, without the item itself."""

    def html(self) -> str:
        """A card."""
        depths = [(self.codes[: i + 1], list(names)) for i, names in enumerate(self.sharing)]
        return render("example", example=self, depths=depths)


@dataclass(frozen=True)
class Lists:
    """Named lists of texts, such as what a user bought and what is recommended."""

    name: str
    lists: Sequence[tuple[str, Sequence[str]]]

    def html(self) -> str:
        """A card."""
        return render("lists", card=self)


class Card(Protocol):
    """What is shown side by side with others."""

    def html(self) -> str:
        """As HTML, complete in itself."""


@dataclass(frozen=True)
class Examples:
    """Cards side by side."""

    title: str
    examples: Sequence[Card]

    def html(self) -> str:
        """All cards, below their title."""
        return render("examples", title=self.title, cards=[example.html() for example in self.examples])
