"""Resolve collisions: items that got the same code tuple.

``append``    add a token that numbers the items of a tuple, as in the paper: 0, 1, 2, …;
``reassign``  one item keeps the tuple, the others move to the nearest free tuples: all IDs keep their length;
``none``      the items share the tuple.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.ids.tuples import Codes, tuple_keys
from ghrq.system.checks import at_least, check_codes, is_tensor, one_of
from ghrq.system.errors import UserError

if TYPE_CHECKING:
    from ghrq.quantizer import ResidualQuantizer

Policy = Literal["append", "reassign", "none"]
"""What to do with items that share a tuple: a last token, another tuple, or nothing. See :func:`resolve`."""
VectorsOf = Callable[[Tensor], Tensor]

# Number of beam searches before the systematic assignment, and how much wider each is than the one before. Items that
# find no free tuple in both are copies of each other: a third search would find the same taken tuples.
_SEARCHES, _WIDER = 2, 4

# Vectors, and candidate tuples, in memory at once.
_ROWS, _TUPLES = 2**16, 2**20

# Published IDs that are compared with new ones at once.
_TAKEN = 2**22


def resolve(
    codes: Codes,
    policy: Policy,
    *,
    vectors_of: VectorsOf | None = None,
    quantizer: "ResidualQuantizer | None" = None,
    size: int | None = None,
) -> Tensor:
    """Resolve collisions among ``codes (n, N)``, a tensor or an array, by a named policy.

    Examples:
        >>> ghrq.ids.resolve(torch.tensor([[5, 1], [2, 2], [5, 1]]), "append")
        tensor([[5, 1, 0],
                [2, 2, 0],
                [5, 1, 1]])

    Returns:
        ``"append"``: ``(n, N + 1)``, see :func:`resolve_append` (and ``size`` there); ``"reassign"``: ``(n, N)``, see
        :func:`resolve_reassign`, which needs ``vectors_of`` and ``quantizer``; ``"none"``: the codes unchanged.

    """
    one_of("policy", policy, get_args(Policy))
    if policy == "append":
        return resolve_append(codes, size)
    if policy == "none":
        return torch.as_tensor(codes)
    if vectors_of is None or quantizer is None:
        raise ValueError("policy 'reassign' needs vectors_of and quantizer: it searches for the nearest free tuples")
    return resolve_reassign(codes, vectors_of, quantizer)


def resolve_append(codes: Codes, size: int | None = None, *, taken: Codes | None = None, fill: bool = False) -> Tensor:
    """Add a token that distinguishes the items of a tuple: ``codes (n, N)`` -> ``(n, N + 1)``.

    The token counts the items of a tuple from 0 in the order of their rows.

    Examples:
        >>> ghrq.ids.resolve_append(torch.tensor([[5, 1], [2, 2], [5, 1]]))[:, -1]
        tensor([0, 0, 1])

    Args:
        codes: ``(n, N)`` integers.
        size: number of codes of the token, such as a tokenizer's ``tie_break_size_``. More items of a tuple are a
            :class:`UserError`. By default there is no limit.
        taken: ``(m, N + 1)`` IDs that other items have already. The tokens of a tuple continue after its highest one.
        fill: take the lowest tokens that are free instead, in gaps between those of ``taken``, too.

    """
    if size is not None:
        at_least("size", size, 1, whole=True)
    codes = _checked(codes)
    given = codes.new_empty((0, codes.shape[1] + 1)) if taken is None else _checked(taken)
    if given.shape[1] != codes.shape[1] + 1:
        raise ValueError(f"expected taken IDs of {codes.shape[1] + 1} codes, got shape {tuple(given.shape)}")
    token = _next_tokens(codes, _with_tuples_of(codes, given), fill)
    if size is not None and len(token) and int(token.max()) >= size:
        row, over = int(token.argmax()), codes[token >= size]
        shared = f"the tuple {codes[row].tolist()}"
        if len(given):
            tuples = len(over.unique(dim=0))
            told = "1 new item finds" if len(over) == 1 else f"{len(over):,} of the {len(codes):,} new items find"
            where = f"in {shared}" if tuples == 1 else f"in {tuples:,} tuples, such as {shared}"
            raise UserError(
                f"{told} no free token {where}: the tie-break token has {size} codes. Leave out items with equal "
                "vectors, retire items and later give their IDs again (reuse), or fit again with more stages"
            )
        raise UserError(
            f"{int(token[row]) + 1:,} items share {shared}, but the tie-break token has {size} "
            "codes: remove items with equal vectors, use the policy 'reassign', or fit again with more stages"
        )
    return torch.cat((codes, token.to(codes.dtype).unsqueeze(1)), dim=1)


def _with_tuples_of(codes: Tensor, taken: Tensor) -> Tensor:
    """The rows of ``taken (m, N + 1)`` whose tuple is among ``codes (n, N)``, in their order, piece by piece.

    Of 100 million published IDs, few have the tuple of a new item. Where keys do not fit into 64 bits: all rows.
    """
    most = max((int(each.max()) for each in (codes, taken[:, :-1]) if each.numel()), default=0)
    if (most + 1) ** codes.shape[1] >= 2**63 or not len(codes):
        return taken
    names = tuple_keys(codes, most + 1).unique()
    parts = []
    for part in taken.split(_TAKEN):
        key = tuple_keys(part[:, :-1], most + 1)
        place = torch.searchsorted(names, key).clamp_(max=len(names) - 1)
        parts.append(part[names[place] == key])
    return torch.cat(parts)


def _next_tokens(codes: Tensor, taken: Tensor, fill: bool) -> Tensor:
    """The tokens ``(n,)`` int64 of :func:`resolve_append`."""
    firsts = torch.cat((taken[:, :-1], codes.to(taken.dtype)))
    held, key = tuple_keys(firsts, int(firsts.max()) + 1 if firsts.numel() else 1).split((len(taken), len(codes)))
    names, group = torch.unique(key, return_inverse=True)
    order = group.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = _places(group[order])
    here = torch.isin(held, names)
    owner, token = torch.searchsorted(names, held[here]), taken[here, -1].long()
    if fill:
        width = int(token.max()) + 1 if len(token) else 1
        return _nth_free((owner * width + token).sort().values, width, group, place)
    return place + torch.zeros_like(names).scatter_reduce_(0, owner, token + 1, "amax")[group]


@torch.no_grad()
def resolve_reassign(
    codes: Codes, vectors_of: VectorsOf, quantizer: "ResidualQuantizer", *, beam: int = 8, taken: Codes | None = None
) -> Tensor:
    """Give every item a tuple of its own, of the same length: ``codes (n, N)`` -> ``(n, N)``, all distinct.

    Of the items of a tuple, the one nearest to the decoded tuple keeps it. For each of the others a beam search finds
    the nearest tuples; of all pairs of an item and a free tuple, the nearest pair is assigned first. Items left over
    search once more with a wider beam. Items still left over (thousands of copies of one vector) get the free last
    codes nearest to their own, and then any free tuple that shares as many first codes as possible with theirs. Ties
    go to the lowest row, so the result is deterministic. Memory is proportional to ``n``, time to the number of
    colliding items.

    Examples:
        >>> z = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> rq = ghrq.ResidualQuantizer(8, codebook_size=16, num_stages=2).eval()
        >>> _ = rq.initialize(z)
        >>> ids = ghrq.ids.resolve_reassign(rq.encode(z), lambda rows: z[rows], rq)
        >>> len(ids.unique(dim=0))
        200

    Args:
        codes: ``(n, N)`` integers, N the quantizer's ``num_stages``.
        vectors_of: returns the quantizer's input vectors ``(m, dim)`` of ``rows (m,)`` int64, ascending; called only
            with rows that collide.
        quantizer: the one that made the codes.
        beam: width of the first search.
        taken: ``(m, N)`` distinct tuples that other items have already, and keep.

    Raises:
        ValueError: if there are more items than tuples.

    """
    codes, sizes, stages = _checked(codes), quantizer.sizes, quantizer.num_stages
    given = codes[:0] if taken is None else _checked(taken).to(codes.device)
    at_least("beam", beam, 1, whole=True)
    for each in (codes, given):
        check_codes(each, stages, sizes)
        if each.shape[1] != stages:
            raise ValueError(f"expected codes of {stages} stages as the quantizer has, got shape {tuple(each.shape)}")
    fixed, count = len(given), len(given) + len(codes)
    if count > math.prod(sizes):
        of = quantizer.codebook_size
        raise ValueError(
            f"{count} items cannot have an ID each: {stages} stages of {of} codes make {math.prod(sizes)} tuples. "
            "Use more stages or codes, or the policy 'append'"
        )

    def vectors_of_all(rows: Tensor) -> Tensor:
        return vectors_of(rows - fixed)

    assignment = _Assignment.of(torch.cat((given.long(), codes.long())), sizes)
    waiting, group = _all_but_the_nearest(assignment.codes, fixed, vectors_of_all, quantizer)
    assignment.settled[waiting] = False
    for _ in range(_SEARCHES):
        # A beam finds tuples for at most as many copies of one vector as it is wide.
        searching = waiting[_places(group) < beam].sort().values
        for rows in _pieces(searching, min(_ROWS, _TUPLES // beam)):
            found, distance = quantizer.candidates(_vectors(vectors_of_all, rows, quantizer), beam)
            assignment.assign_nearest(rows, found.to(codes.device), distance.to(codes.device))
        left = ~assignment.settled[waiting]
        waiting, group, beam = waiting[left], group[left], beam * _WIDER
    rows = waiting.sort().values
    book = quantizer.codebooks[-1, : sizes[-1]].detach().to(codes.device)
    _nearest_last_codes(assignment, rows, book, quantizer.curvature)
    _any_free(assignment, rows[~assignment.settled[rows]])
    return assignment.codes[fixed:].to(codes.dtype)


class _Assignment(NamedTuple):
    """The tuples of all items while they are reassigned; both tensors are changed in place."""

    codes: Tensor
    """``(n, N)``: the final tuple of a settled item, else the one that it has to give up."""
    settled: Tensor
    """``(n,)`` bool."""
    sizes: tuple[int, ...]
    """Number of codes of each stage."""

    @classmethod
    def of(cls, codes: Tensor, size: int | Sequence[int]) -> "_Assignment":
        sizes = tuple(size) if isinstance(size, Sequence) else (size,) * codes.shape[1]
        return cls(codes.clone(), torch.ones(len(codes), dtype=torch.bool, device=codes.device), sizes)

    def settle(self, rows: Tensor, tuples: Tensor) -> None:
        """Give ``rows (m,)`` the ``tuples (m, N)``."""
        self.codes[rows] = tuples
        self.settled[rows] = True

    def assign_nearest(self, rows: Tensor, found: Tensor, distance: Tensor) -> None:
        """Assign free tuples to ``rows (m,)``, where possible one of its ``found (m, b, N)`` (nearest first) to each.

        Greedy: the nearest pair of an item and a free tuple first, then the nearest of the rest. Computed as deferred
        acceptance: each item proposes to its tuples in order, a tuple accepts the nearest proposal so far and may drop
        it for a nearer one. The result does not depend on the order of the proposals.
        """
        count, width = distance.shape
        keys = tuple_keys(torch.cat((self.codes[self.settled], found.flatten(0, 1))), self.sizes)
        taken, wanted = keys.split((len(keys) - count * width, count * width))
        names, wanted = torch.unique(wanted, return_inverse=True)
        wanted = wanted.view(count, width)
        # A taken tuple accepts no proposal.
        nearest = torch.where(torch.isin(names, taken), -torch.inf, torch.inf).to(distance.dtype)
        holder = torch.full_like(names, count)
        place = torch.zeros_like(rows)
        asking = torch.arange(count, device=rows.device)
        while len(asking):
            name, near = wanted[asking, place[asking]], distance[asking, place[asking]]
            had, was = holder[name], nearest[name]
            nearest.scatter_reduce_(0, name, near, "amin")
            now = nearest[name]
            holder[name[now < was]] = count
            best = near == now
            holder.scatter_reduce_(0, name[best], asking[best], "amin")
            has = holder[name]
            lost = torch.cat((asking[has != asking], had[(had != count) & (had != has)].unique()))
            place[lost] += 1
            asking = lost[place[lost] < width]
        got = holder[holder < count]
        self.settle(rows[got], found[got, place[got]])


def _all_but_the_nearest(
    codes: Tensor, fixed: int, vectors_of: VectorsOf, quantizer: "ResidualQuantizer"
) -> tuple[Tensor, Tensor]:
    """The items that share a tuple, except the one that keeps it: rows ``(m,)``, and their tuples.

    One of the first ``fixed`` items keeps its tuple, else the item nearest to the decoded tuple does. Sorted by the
    number of the tuple ``(m,)``, then by distance to it.
    """
    _, group, counts = torch.unique(tuple_keys(codes, quantizer.sizes), return_inverse=True, return_counts=True)
    rows = (counts[group[fixed:]] > 1).nonzero().squeeze(1) + fixed
    distance = torch.empty(len(rows), dtype=torch.float64, device=codes.device)
    for part, target in zip(_pieces(rows, _ROWS), _pieces(distance, _ROWS), strict=True):
        vectors = _vectors(vectors_of, part, quantizer)
        target.copy_(quantizer.distance(vectors, codes[part].to(vectors.device)))
    rows = rows[distance.argsort(stable=True)]
    rows = rows[group[rows].argsort(stable=True)]
    kept = torch.zeros_like(counts, dtype=torch.bool)
    kept[group[:fixed]] = True
    rows = rows[(_places(group[rows]) > 0) | kept[group[rows]]]
    return rows, group[rows]


def _nearest_last_codes(assignment: _Assignment, rows: Tensor, book: Tensor, c: float) -> None:
    """Change only the last code of ``rows (m,)``, to the free codes nearest to it in ``book (K, d)``.

    Adding the other codes on the left is an isometry: the distance of two such tuples is that of their last codes.
    """
    if not len(rows):
        return
    settled, waiting = _prefixes(assignment, rows, assignment.codes.shape[1] - 1)
    size = assignment.sizes[-1]
    free = size - torch.bincount(settled, minlength=int(settled.max()) + 1)
    order = waiting.argsort(stable=True)
    able = rows[order[_places(waiting[order]) < free[waiting[order]]]]
    for part in _pieces(able, _TUPLES // size):
        own, index = assignment.codes[part, -1].unique(return_inverse=True)
        distance, last = ball.pairwise_distance(book[own].double(), book.double(), c).sort(dim=1, stable=True)
        first = assignment.codes[part, :-1].unsqueeze(1).expand(-1, size, -1)
        assignment.assign_nearest(part, torch.cat((first, last[index].unsqueeze(-1)), dim=-1), distance[index])


def _any_free(assignment: _Assignment, rows: Tensor) -> None:
    """Assign all of ``rows (m,)``: each to the first free tuple among those with the longest prefix in common with its.

    The tuples under one prefix are numbered by their last L codes.
    """
    stages, sizes = assignment.codes.shape[1], assignment.sizes
    for length in range(2, stages + 1):
        if not len(rows):
            return
        # Never much larger than n: under a prefix with room for all n items no item is left over.
        width = math.prod(sizes[-length:])
        settled, waiting = _prefixes(assignment, rows, stages - length)
        here = torch.isin(settled, waiting)
        number = tuple_keys(assignment.codes[assignment.settled][here, -length:], sizes[-length:])
        taken = (settled[here] * width + number).sort().values
        order = waiting.argsort(stable=True)
        rows, waiting = rows[order], waiting[order]
        number = _nth_free(taken, width, waiting, _places(waiting))
        fits = number < width
        tuples = assignment.codes[rows[fits]]
        for stage in range(stages - 1, stages - length - 1, -1):
            tuples[:, stage] = number[fits] // math.prod(sizes[stage + 1 :]) % sizes[stage]
        assignment.settle(rows[fits], tuples)
        rows = rows[~fits].sort().values


def _nth_free(taken: Tensor, width: int, group: Tensor, place: Tensor) -> Tensor:
    """The free number of each ``group (m,)`` that has ``place (m,)`` others before it: ``(m,)`` int64.

    ``taken (k,)``, ascending, are ``group * width + number`` of the numbers that are not free, below ``width``. The
    free ones before the taken number T are ``T`` minus the taken ones before it; binary search on that finds the r-th.
    """
    owner, most = taken // width, width + int(place.max()) + 1 if len(place) else width
    before = torch.arange(len(taken), device=taken.device) - torch.searchsorted(owner, owner)
    free = owner * most + taken % width - before
    skipped = torch.searchsorted(free, group * most + place, right=True)
    return place + skipped - torch.searchsorted(owner, group)


def _prefixes(assignment: _Assignment, rows: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Numbers of the prefixes of ``depth`` codes: of the settled tuples, and of the tuples of ``rows (m,)``."""
    firsts = torch.cat((assignment.codes[assignment.settled, :depth], assignment.codes[rows, :depth]))
    numbers = torch.unique(tuple_keys(firsts, assignment.sizes[:depth]), return_inverse=True)[1]
    settled, waiting = numbers.split((len(numbers) - len(rows), len(rows)))
    return settled, waiting


def _places(group: Tensor) -> Tensor:
    """Position of each element among equal ones: ``group (m,)`` ascending -> 0, 1, 2, … for each value."""
    return torch.arange(len(group), device=group.device) - torch.searchsorted(group, group)


def _pieces(values: Tensor, length: int) -> tuple[Tensor, ...]:
    """``values (n, ...)`` in pieces of at most ``length``; no piece if empty."""
    return values.split(max(1, length)) if len(values) else ()


def _vectors(vectors_of: VectorsOf, rows: Tensor, quantizer: "ResidualQuantizer") -> Tensor:
    vectors = vectors_of(rows)
    is_tensor("the vectors that vectors_of gives", vectors)
    if vectors.shape != (len(rows), quantizer.dim):
        raise ValueError(
            f"expected vectors_of to give {len(rows)} vectors of size {quantizer.dim} for as many rows, "
            f"got shape {tuple(vectors.shape)}"
        )
    return vectors.to(quantizer.codebooks.device)


def _checked(given: Codes) -> Tensor:
    """The codes as a tensor ``(n, num_stages)`` of integers."""
    codes = torch.as_tensor(given)
    if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
        raise ValueError(f"expected integer codes, got {codes.dtype}")
    if codes.dim() != 2 or codes.shape[1] == 0:
        raise ValueError(f"expected codes of shape (n, num_stages), got shape {tuple(codes.shape)}")
    return codes
