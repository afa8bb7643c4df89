"""Attention for many short sequences that share prefixes.

A *group* is a tree of tokens: all prefixes of all targets of one source, each prefix once. A token attends to its
ancestors and to the group's context. One matrix product for a whole group, with a mask for tokens that are no
ancestors, is many times faster than one product per sequence of four tokens, and a shared prefix is computed once.

Groups differ in size: they are sorted by size and collected into blocks, padded to the largest group of a block. The
rows of a block are ordered by position, so that the heads of all groups are one batch of matrices without a copy.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# A block has this many groups (the last one perhaps fewer) ...
_FEWEST, _MOST = 8, 64
# ... and ends where a group would be padded to more than this times its size.
_PADDING = 1.1


class TreeLayout(NamedTuple):
    """The rows of all tokens and of all groups' contexts, block after block."""

    places: int
    """The number of rows, padding included."""
    place: Tensor
    """``(R,)`` int64: the row of each token."""
    context: Tensor
    """``(G·context,)`` int64: the rows of the groups' contexts in the order of the blocks, position by position."""
    masks: list[Tensor]
    """For each block of ``b`` groups ``(b, 1, P, Q)``: 0.0 where a place attends to a key, else minus infinity."""


def layout(group: Tensor, ancestors: Tensor, num_groups: int, context: int) -> TreeLayout:
    """Lay out ``R`` tokens: ``group (R,)`` int64, ``ancestors (2, A)`` int64 pairs (token, one it attends to).

    Contexts are ``num_groups·context`` rows, those of a group next to each other. In a block of at most P tokens a
    group, the keys are ``context`` rows and then P. A token attends to its whole context and to what ``ancestors``
    says, which includes itself if it is to.
    """
    device = group.device
    size = torch.bincount(group, minlength=num_groups)
    order = size.argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(num_groups, device=device)
    by_group = group.argsort(stable=True)
    slot = torch.empty_like(group)
    before = (size.cumsum(0) - size).index_select(0, group.index_select(0, by_group))
    slot[by_group] = torch.arange(group.shape[0], device=device) - before

    most = int(size[order[0]])
    attends = torch.zeros(num_groups, most, context + most, dtype=torch.bool, device=device)
    # Padding attends to the context as well, so that its weights are finite; its result is not used.
    attends[:, :, :context] = True
    token, seen = ancestors
    attends[rank[group[token]], slot[token], context + slot[seen]] = True
    mask = torch.zeros(attends.shape, device=device).masked_fill_(~attends, -torch.inf)

    rows = order.unsqueeze(1) * context + torch.arange(context, device=device)
    base, stride = torch.empty_like(order), torch.empty_like(order)
    masks, contexts, places = [], [], 0
    for first, last, longest in _blocks(size[order]):
        b = last - first
        base[first:last], stride[first:last] = places + torch.arange(b, device=device), b
        masks.append(mask[first:last, :longest, : context + longest].unsqueeze(1).contiguous())
        contexts.append(rows[first:last].t().flatten())
        places += longest * b
    rank = rank[group]
    return TreeLayout(places, base[rank] + slot * stride[rank], torch.cat(contexts), masks)


def _blocks(sizes: Tensor) -> list[tuple[int, int, int]]:
    """First group, the one after the last, and the largest size of each block; ``sizes`` are in falling order."""
    rising = sizes.flip(0).cpu()
    count, first, blocks = len(rising), 0, []
    while first < count:
        longest = int(rising[count - 1 - first])
        large_enough = count - int(torch.searchsorted(rising, longest / _PADDING))
        last = min(max(large_enough, first + _FEWEST), first + _MOST, count)
        blocks.append((first, last, longest))
        first = last
    return blocks


def attend(q: Tensor, kv: Tensor, context: Tensor, masks: list[Tensor], heads: int) -> Tensor:
    """Attention in all blocks -> ``(places, width)``.

    Args:
        q: ``(places, width)`` queries; in a block of b groups and P positions ``P·b`` rows, position by position.
        kv: ``(places, 2·width)`` keys and values; in a row, head by head a key and a value.
        context: ``(·, 2·width)`` keys and values of the contexts, in the order of the blocks.
        masks: of the blocks ``(b, 1, P, Q)``; if there is one block only, ``(1, 1, P, Q)`` serves all its groups.
        heads: number of heads.

    """
    results = []
    for mask, rows, own, before in zip(masks, *_split(masks, q, kv, context), strict=True):
        p, length = mask.shape[2:]
        query, (key, value) = _matrices(rows, p, heads), _matrices(torch.cat((before, own)), length, heads).chunk(2, 2)
        products = torch.bmm(query, key.mT)
        scores = torch.add(mask, products.view(-1, heads, p, length), alpha=query.shape[2] ** -0.5)
        found = torch.bmm(scores.softmax(-1).view(products.shape).to(q.dtype), value)
        results.append(found.transpose(0, 1).reshape(rows.shape))
    return torch.cat(results)


def _split(masks: list[Tensor], q: Tensor, kv: Tensor, context: Tensor) -> list[tuple[Tensor, ...]]:
    """The rows of each block."""
    if len(masks) == 1:
        return [(q,), (kv,), (context,)]
    own = [m.shape[0] * m.shape[2] for m in masks]
    before = [m.shape[0] * (m.shape[3] - m.shape[2]) for m in masks]
    return [q.split(own), kv.split(own), context.split(before)]


def _matrices(rows: Tensor, length: int, heads: int) -> Tensor:
    """``length·b`` rows, position by position, as matrices ``(b·heads, length, ·)``; a view."""
    return rows.view(length, -1, rows.shape[1] // heads).transpose(0, 1)
