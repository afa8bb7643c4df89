"""Which items came after which in training: a recommender without training, and the memory of a trained one."""

from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor, nn

from ghrq.data.ragged import starts
from ghrq.ids.trie import ranges
from ghrq.system.checks import at_least

if TYPE_CHECKING:  # it reads tables, which a model does not need
    from ghrq.data.interactions import Interactions


class Followers(nn.Module):
    """How often each item follows each other one, a sparse matrix by rows.

    Args:
        items: number of items.
        pairs: number of pairs of items, one after the other, that are known.

    """

    starts: Tensor
    """int64 ``(m + 1,)``: item i has the places ``starts[i]`` to before ``starts[i + 1]``."""
    items: Tensor
    """int64 ``(p,)``: the items that follow."""
    weights: Tensor
    """float32 ``(p,)``."""

    def __init__(self, items: int, pairs: int) -> None:
        super().__init__()
        self.register_buffer("starts", torch.zeros(items + 1, dtype=torch.int64))
        self.register_buffer("items", torch.zeros(pairs, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(pairs))

    @classmethod
    def counted(cls, train: "Interactions", window: int = 20) -> Self:
        """Count the pairs of items at most ``window`` places apart in a history: a pair g places apart counts 1/g."""
        at_least("window", window, 1, whole=True)
        count, owner, item = len(train.items), train.owners().numpy(), train.sequence.numpy()
        keys, weights = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for gap in range(1, min(window, int(train.lengths.max()) - 1) + 1):
            together = owner[gap:] == owner[:-gap]
            keys.append(item[:-gap][together] * count + item[gap:][together])
            weights.append(np.full(len(keys[-1]), 1.0 / gap))
        pairs, number = np.unique(np.concatenate(keys), return_inverse=True)
        sums = np.bincount(number, np.concatenate(weights), minlength=len(pairs))
        table = cls(count, len(pairs))
        table.starts.copy_(torch.from_numpy(starts(np.bincount(pairs // count, minlength=count))))
        table.items.copy_(torch.from_numpy(pairs % count))
        table.weights.copy_(torch.from_numpy(sums))
        return table

    def sums(self, row: Tensor, item: Tensor, weight: Tensor, rows: int) -> Tensor:
        """``(rows, m)``: for each row the sum of what follows its items.

        The e-th entry is ``item[e]`` of row ``row[e]``, whose followers count ``weight[e]`` times; all ``(E,)``.
        """
        first = self.starts[item]
        entry, pair = ranges(first, self.starts[item + 1] - first)
        sums = torch.zeros(rows, len(self.starts) - 1, device=self.starts.device)
        place = row[entry] * sums.shape[1] + self.items[pair]
        sums.view(-1).index_add_(0, place, weight[entry] * self.weights[pair])
        return sums

    def probabilities(self, histories: Tensor, decay: float) -> Tensor:
        """``(B, m)``: the shares of what followed the items of ``histories (B, H)``, the newest last; -1 is left out.

        Items are weighted by ``decay`` to the power of the number of items after them. Rows of items that nothing
        followed are 0.
        """
        weight = decayed(histories, decay)
        there = weight > 0  # of a long history few: 0.5 to the power of 150 is 0 in float32
        row, weight = there.nonzero()[:, 0], weight[there]
        sums = self.sums(row, histories[there], weight, len(histories))
        return sums / sums.sum(1, keepdim=True).clamp(min=torch.finfo().tiny)

    def extended(self, count: int) -> Self:
        """The same with ``count`` more items, which nothing follows and which follow nothing."""
        larger = type(self)(len(self.starts) - 1 + count, len(self.items)).to(self.starts.device)
        larger.starts.copy_(torch.cat((self.starts, self.starts[-1:].expand(count))))
        larger.items.copy_(self.items)
        larger.weights.copy_(self.weights)
        return larger


def decayed(histories: Tensor, decay: float) -> Tensor:
    """The weights of the items of ``histories (B, H)``, the newest last: ``decay`` to the power of how many follow.

    0 for -1, which is no item.
    """
    there = histories >= 0
    age = there.flip(1).cumsum(1).flip(1) - 1
    return torch.tensor(decay, device=histories.device).pow(age) * there
