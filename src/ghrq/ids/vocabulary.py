"""The tokens of IDs for a language model: special tokens, then the codes of each stage, then the tie-break token."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ghrq.ids.tuples import Codes
from ghrq.system.checks import at_least
from ghrq.system.errors import UserError

SPECIAL = ("pad", "bos", "eos")
"""Special tokens, numbered from 0: padding, beginning and end of a sequence."""


@dataclass(frozen=True)
class Vocabulary:
    """Which token stands for which code: code ``k`` of stage ``i`` is the token ``offsets[i] + k``.

    Examples:
        >>> words = ghrq.ids.Vocabulary.of([256, 256, 16], tie_break=True)
        >>> words.offsets, words.tie_break, words.special, words.size
        ((3, 259, 515), 16, {'pad': 0, 'bos': 1, 'eos': 2}, 531)
        >>> words.tokens(torch.tensor([[7, 0, 1]]))
        tensor([[ 10, 259, 516]])

    """

    sizes: tuple[int, ...]
    """Number of codes of each stage; the last is the tie-break token, if there is one."""
    offsets: tuple[int, ...]
    """The token of code 0 of each stage."""
    tie_break: int | None
    """Number of codes of the tie-break token: the most items that can share a tuple. ``None`` without such a token."""
    special: dict[str, int]
    """The tokens ``pad``, ``bos`` and ``eos``."""
    size: int
    """Number of all tokens: the vocabulary size of the language model."""

    @classmethod
    def of(cls, sizes: Sequence[int], tie_break: bool) -> "Vocabulary":
        """Special tokens from 0 on, then the stages without gaps. ``tie_break``: the last is that token."""
        for size in sizes:
            at_least("the size of a stage", size, 1, whole=True)
        *offsets, end = accumulate(sizes, initial=len(SPECIAL))
        special = {name: token for token, name in enumerate(SPECIAL)}
        return cls(tuple(sizes), tuple(offsets), sizes[-1] if tie_break else None, special, end)

    def tokens(self, codes: Codes) -> Tensor:
        """The tokens of ``codes (n, m)``, m up to the number of stages: ``(n, m)`` int64. Other codes are errors."""
        given = torch.as_tensor(codes)
        self._check(given, "codes", offsets=[0] * len(self.sizes))
        return given.long() + self._starts(given)

    def codes(self, tokens: Codes) -> Tensor:
        """The codes of ``tokens (n, m)``, without special tokens: ``(n, m)`` int64. Other tokens are errors."""
        given = torch.as_tensor(tokens)
        self._check(given, "tokens", offsets=self.offsets)
        return given.long() - self._starts(given)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON."""
        return asdict(self)

    def _starts(self, given: Tensor) -> Tensor:
        return torch.tensor(self.offsets[: given.shape[1]], device=given.device)

    def _check(self, given: Tensor, what: str, offsets: Sequence[int]) -> None:
        if given.dim() != 2 or not 1 <= given.shape[1] <= len(self.sizes):
            raise UserError(f"expected {what} of shape (n, 1 to {len(self.sizes)}), got shape {tuple(given.shape)}")
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise UserError(f"expected integer {what}, got {given.dtype}")
        for stage, (column, start, size) in enumerate(zip(given.unbind(1), offsets, self.sizes, strict=False)):
            wrong = ((column < start) | (column >= start + size)).nonzero()
            if not len(wrong):
                continue
            row, last = int(wrong[0]), self.tie_break is not None and stage == len(self.sizes) - 1
            remedy = "use the tokenizer that made them"
            if last:
                remedy = "raise the tokenizer's tie_break_size_ before you train on these tokens, or use reassign"
            raise UserError(
                f"row {row}, {'the tie-break token' if last else f'stage {stage + 1}'}: expected {what} from {start} "
                f"to {start + size - 1}, got {int(column[row])}: {remedy}"
            )
