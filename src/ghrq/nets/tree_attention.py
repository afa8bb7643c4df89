"""Attention among many short sequences that share their beginnings, fast where sequences have a few tokens each.

A *group* is a tree of tokens: all prefixes of all targets of one source, each prefix once. A token attends to its own
ancestors and to the group's context. One product of matrices for a whole group, with what is not an ancestor masked
out, is many times faster than one product for each sequence of four tokens, and a shared prefix is computed once.

Groups differ in size: they are sorted by it and laid side by side in blocks, padded to the largest of a block. In a
block rows go position by position, so that the heads of all groups are one batch of matrices without a copy.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# A block has this many groups (the last one perhaps fewer) ...
_FEWEST, _MOST = 8, 64
# ... and ends where a group would be padded to more than this times its size.
_PADDING = 1.1


class Layout(NamedTuple):
    """The places of all tokens and of all groups' contexts, block after block."""

    places: int
    """How many rows there are, padding included."""
    place: Tensor
    """``(R,)`` int64: where each token is."""
    context: Tensor
    """``(G·context,)`` int64: the rows of the groups' contexts in the order of the blocks, position by position."""
    masks: list[Tensor]
    """For each block of ``b`` groups ``(b, 1, P, Q)``: 0.0 where a place attends to a key, else minus infinity."""


def layout(group: Tensor, ancestors: Tensor, num_groups: int, context: int) -> Layout:
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
    # Padding attends to the context as well, so that its weights are numbers; nobody reads its result.
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
    return Layout(places, base[rank] + slot * stride[rank], torch.cat(contexts), masks)


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
        heads: how many.

    """
    return _Attention.apply(q, kv, context, masks, heads)


class _Attention(torch.autograd.Function):
    """Results and gradients go straight to their places; autograd would copy each of them twice more."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, context: Tensor, masks: list[Tensor], heads: int) -> Tensor:
        """Block by block; the weights are kept for the way back."""
        result, weights = torch.empty_like(q), []
        for mask, rows, own, before, out in zip(masks, *_split(masks, q, kv, context, result), strict=True):
            (p, length), both = mask.shape[2:], torch.cat((before, own))
            query, (key, value) = _matrices(rows, p, heads), _matrices(both, length, heads).chunk(2, dim=2)
            products = torch.bmm(query, key.mT)
            scores = torch.add(mask, products.view(-1, heads, p, length), alpha=query.shape[2] ** -0.5)
            weights.append(scores.softmax(-1).view(products.shape).to(q.dtype))
            _matrices(out, p, heads).copy_(torch.bmm(weights[-1], value))
        ctx.save_for_backward(q, kv, context)
        ctx.masks, ctx.heads, ctx.weights = masks, heads, weights
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Of ``softmax(q kᵀ) v``, block by block."""
        masks, heads = ctx.masks, ctx.heads
        of_q, of_kv, of_context = results = [torch.empty_like(t) for t in ctx.saved_tensors]
        parts = *_split(masks, *ctx.saved_tensors, grad.contiguous()), *_split(masks, *results)
        for mask, weight, rows, own, before, g_rows, of_rows, of_own, of_before in zip(
            masks, ctx.weights, *parts, strict=True
        ):
            (p, length), both = mask.shape[2:], torch.cat((before, own))
            query, (key, value) = _matrices(rows, p, heads), _matrices(both, length, heads).chunk(2, dim=2)
            g, e = _matrices(g_rows, p, heads), query.shape[2]
            of_products = torch._softmax_backward_data(torch.bmm(g, value.mT), weight, -1, weight.dtype).mul_(e**-0.5)
            _matrices(of_rows, p, heads).copy_(torch.bmm(of_products, key))
            of_key, of_value = torch.bmm(of_products.mT, query), torch.bmm(weight.mT, g)
            for target, positions in ((of_before, slice(length - p)), (of_own, slice(length - p, length))):
                if target.numel():
                    place = _matrices(target, positions.stop - (positions.start or 0), heads)
                    place[:, :, :e].copy_(of_key[:, positions])
                    place[:, :, e:].copy_(of_value[:, positions])
        return of_q, of_kv, of_context, None, None


def _split(masks: list[Tensor], q: Tensor, kv: Tensor, context: Tensor, *more: Tensor) -> list[tuple[Tensor, ...]]:
    """The rows of each block; ``more`` are split like ``q``."""
    if len(masks) == 1:
        return [(t,) for t in (q, kv, context, *more)]
    own = [m.shape[0] * m.shape[2] for m in masks]
    before = [m.shape[0] * (m.shape[3] - m.shape[2]) for m in masks]
    return [q.split(own), kv.split(own), context.split(before), *(t.split(own) for t in more)]


def _matrices(rows: Tensor, length: int, heads: int) -> Tensor:
    """``length·b`` rows, position by position, as matrices ``(b·heads, length, ·)``; a view."""
    return rows.view(length, -1, rows.shape[1] // heads).transpose(0, 1)
