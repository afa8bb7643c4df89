"""How far a network for signals looks around."""

from typing import NamedTuple


class Context(NamedTuple):
    """The frames around a frame that it depends on. A chunk with so many frames around gives what the whole gives."""

    left: int
    right: int

    def around(self, other: "Context") -> "Context":
        """What is enough for both."""
        return Context(max(self.left, other.left), max(self.right, other.right))
