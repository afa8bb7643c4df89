"""An entropy coder on integers alone, so that a file has the same bytes and the same codes on every machine.

It is the range variant of asymmetric numeral systems (Duda, arXiv 1311.2540) with a state of 48 bits and words of 16.
A table gives each code an interval of the integers below ``TOTAL``; a code costs ``log2(TOTAL / width)`` bits. The
coder is a stack: what is encoded last is decoded first. So codes are pushed from the last to the first, and words come
out in the order of decoding. To decode the first codes, the words of later ones are not needed: a stream may be cut
after any code.

The loops are plain Python: about half a microsecond a code, a few hundredths of the time of the networks. A stream
costs one state, about a byte more than its codes; with many lanes side by side each would.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

BITS = 16
TOTAL = 1 << BITS
"""The sum of all widths of a table."""

STATE_WORDS = 3
"""Words of the state, at the beginning of a stream."""

# A state is at least this large, except at the end of a stream, and below it times 2^16.
_LEAST_BITS = 32
_LEAST = 1 << _LEAST_BITS
_MASK = TOTAL - 1

Words = npt.NDArray[np.uint16]


class RangeEncoder:
    """Codes to words. Begins with the last codes of the stream."""

    def __init__(self) -> None:
        self._state, self._words = 0, list[int]()

    def push(self, starts: Sequence[int], widths: Sequence[int]) -> int:
        """Put codes before all others, given by the intervals of their tables. Returns how many words that made."""
        state, words, before = self._state, self._words, len(self._words)
        for start, width in zip(reversed(starts), reversed(widths), strict=True):
            if state >> _LEAST_BITS >= width:
                words.append(state & _MASK)
                state >>= BITS
            state = (state // width << BITS) + state % width + start
        self._state = state
        return len(words) - before

    def finish(self) -> Words:
        """The stream: the state in :data:`STATE_WORDS` words, high ones first, then the words of the codes."""
        state = [(self._state >> BITS * place) & _MASK for place in reversed(range(STATE_WORDS))]
        return np.array([*state, *reversed(self._words)], dtype=np.uint16)


class RangeDecoder:
    """Words to codes, from the first code of the stream on."""

    def __init__(self, words: Words) -> None:
        given = words.tolist()
        self._state = 0
        for word in given[:STATE_WORDS]:
            self._state = self._state << BITS | word
        self._left = given[: STATE_WORDS - 1 : -1]  # the next word is the last of the list

    def pop(
        self, tables: Sequence[Mapping[int, Sequence[int]]], groups: Sequence[int], classes: Sequence[int]
    ) -> list[int]:
        """As many codes as there are ``groups``.

        The table of a code is ``tables[group][class of the code before]``, the class being 0 for the first. A table has
        the starts of the intervals of all codes, and :data:`TOTAL` as a last element.
        """
        state, left, found, before = self._state, self._left, list[int](), 0
        for group in groups:
            table = tables[group][before]
            slot = state & _MASK
            code = bisect_right(table, slot) - 1
            start = table[code]
            state = (table[code + 1] - start) * (state >> BITS) + slot - start
            if state < _LEAST and left:
                state = state << BITS | left.pop()
            found.append(code)
            before = classes[code]
        self._state = state
        return found

    @property
    def words_left(self) -> int:
        """Words that were not needed yet."""
        return len(self._left)

    @property
    def is_at_end(self) -> bool:
        """Whether all codes that were encoded are decoded: a damaged stream rarely ends like this."""
        return not self._left and self._state == 0
