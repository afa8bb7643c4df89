"""What to do with items that got the same tuple of codes.

``append``    one more token tells the items of a tuple apart, as in the paper: 0 for the first, 1, 2, … for the next;
``reassign``  one of them keeps the tuple, the others move to the next best one that is free: all IDs keep one length;
``none``      they share it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.ids.trie import Codes
from ghrq.system.checks import at_least, check_codes, is_tensor, one_of

if TYPE_CHECKING:
    from ghrq.quantizer import ResidualQuantizer

Policy = Literal["append", "reassign", "none"]
VectorsOf = Callable[[Tensor], Tensor]

# Beam searches before the systematic choice, and how many times as wide as the first the second is. Items that find
# nothing free among so many tuples are copies of each other, and a third search would find the copies' tuples again.
_SEARCHES, _WIDER = 2, 4

# Vectors, and candidate tuples, that are held at a time.
_ROWS, _TUPLES = 2**16, 2**20


def resolve(
    codes: Codes,
    policy: Policy,
    *,
    vectors_of: VectorsOf | None = None,
    quantizer: "ResidualQuantizer | None" = None,
) -> Tensor:
    """Settle collisions among ``codes (n, N)``, a tensor or an array, by a named policy.

    Returns:
        ``"append"``: ``(n, N + 1)``, see :func:`resolve_append`; ``"reassign"``: ``(n, N)``, see
        :func:`resolve_reassign`, which needs ``vectors_of`` and ``quantizer``; ``"none"``: the codes as they are.

    """
    one_of("policy", policy, get_args(Policy))
    if policy == "append":
        return resolve_append(codes)
    if policy == "none":
        return torch.as_tensor(codes)
    if vectors_of is None or quantizer is None:
        raise ValueError("policy 'reassign' needs vectors_of and quantizer: it looks for the next best tuples")
    return resolve_reassign(codes, vectors_of, quantizer)


def resolve_append(codes: Codes) -> Tensor:
    """Tell the items of one tuple apart by one more token: ``codes (n, N)`` -> ``(n, N + 1)``.

    The token is 0, 1, 2, … among the items of a tuple in the order of their rows, so 0 for an item alone; its
    codebook size is its maximum plus one.
    """
    codes = torch.as_tensor(codes)
    _check_shape(codes)
    key = _keys(codes, int(codes.max()) + 1 if codes.numel() else 1)
    order = key.argsort(stable=True)
    token = torch.empty_like(order)
    token[order] = _places(key[order])
    return torch.cat((codes, token.to(codes.dtype).unsqueeze(1)), dim=1)


@torch.no_grad()
def resolve_reassign(codes: Codes, vectors_of: VectorsOf, quantizer: "ResidualQuantizer", *, beam: int = 8) -> Tensor:
    """Give every item a tuple of its own, of the same length: ``codes (n, N)`` -> ``(n, N)``, all distinct.

    Of the items of one tuple the one nearest to what the tuple stands for keeps it. The others move: a beam search
    finds the tuples nearest to each, and of all pairs of an item and a free tuple that it found, the nearest pair is
    settled first. Who gets nothing searches once more, with a wider beam. Copies of one vector by the thousand, which
    no beam serves, get the free last codes nearest to their tuple's, and when there are none left, any free tuple that
    shares as many first codes as possible with theirs. Ties go to the lowest row: the result is a function of the
    input alone. Memory is in proportion to ``n``, time to the items that collide.

    Args:
        codes: ``(n, N)`` integers, N the quantizer's ``num_stages``.
        vectors_of: the vectors ``(m, dim)``, as they go into ``quantizer``, of ``rows (m,)`` int64 in rising order;
            asked only for rows that collide.
        quantizer: where the codes come from.
        beam: width of the first search.

    Raises:
        ValueError: if there are more items than tuples.

    """
    codes = torch.as_tensor(codes)
    size, stages = quantizer.codebook_size, quantizer.num_stages
    _check_shape(codes)
    check_codes(codes, stages, size)
    at_least("beam", beam, 1, whole=True)
    if codes.shape[1] != stages:
        raise ValueError(f"expected codes of {stages} stages as the quantizer has, got shape {tuple(codes.shape)}")
    if len(codes) > size**stages:
        raise ValueError(
            f"{len(codes)} items cannot have an ID each: {stages} stages of {size} codes make {size**stages} tuples. "
            "Use more stages or codes, or the policy 'append'"
        )
    draft = _Draft.of(codes.long(), size)
    waiting = _all_but_the_nearest(draft.codes, vectors_of, quantizer)
    draft.settled[waiting.rows] = False
    for _ in range(_SEARCHES):
        # A beam serves no more copies of one vector than it is wide.
        searching = waiting.rows[_places(waiting.group) < beam].sort().values
        for rows in _pieces(searching, min(_ROWS, _TUPLES // beam)):
            found, distance = quantizer.candidates(_vectors(vectors_of, rows, quantizer), beam)
            draft.share_out(rows, found.to(codes.device), distance.to(codes.device))
        waiting = waiting.where(~draft.settled[waiting.rows])
        beam *= _WIDER
    rows = waiting.rows.sort().values
    _nearest_last_codes(draft, rows, quantizer.codebooks[-1].detach().to(codes.device), quantizer.curvature)
    _any_free(draft, rows[~draft.settled[rows]])
    return draft.codes.to(codes.dtype)


class _Waiting(NamedTuple):
    """Items that need another tuple, in the order of their tuples, and of one tuple the nearest first."""

    rows: Tensor
    """``(m,)``"""
    group: Tensor
    """``(m,)`` the same number for items that have the same tuple, rising."""

    def where(self, mask: Tensor) -> "_Waiting":
        return _Waiting(self.rows[mask], self.group[mask])


class _Draft(NamedTuple):
    """Tuples under way; both tensors are changed in place."""

    codes: Tensor
    """``(n, N)``: of a settled item its own tuple, else the one that it has to give up."""
    settled: Tensor
    """``(n,)`` bool."""
    size: int

    @classmethod
    def of(cls, codes: Tensor, size: int) -> "_Draft":
        return cls(codes.clone(), torch.ones(len(codes), dtype=torch.bool, device=codes.device), size)

    def settle(self, rows: Tensor, tuples: Tensor) -> None:
        """Give ``rows (m,)`` the ``tuples (m, N)``."""
        self.codes[rows] = tuples
        self.settled[rows] = True

    def share_out(self, rows: Tensor, found: Tensor, distance: Tensor) -> None:
        """Give ``rows (m,)`` one each of the free tuples among ``found (m, b, N)``, the nearest first, where they can.

        The nearest pair of an item and a free tuple is settled first, then the nearest of what is left. Every item asks
        for its tuples one after the other and a tuple goes to the nearest who asked so far, who may lose it again:
        whatever the order of asking, that ends the same.
        """
        count, width = distance.shape
        keys = _keys(torch.cat((self.codes[self.settled], found.flatten(0, 1))), self.size)
        taken, wanted = keys.split((len(keys) - count * width, count * width))
        names, wanted = torch.unique(wanted, return_inverse=True)
        wanted = wanted.view(count, width)
        # Nobody is nearer to a tuple that is taken.
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


def _all_but_the_nearest(codes: Tensor, vectors_of: VectorsOf, quantizer: "ResidualQuantizer") -> _Waiting:
    """The items that share a tuple, without the one of each tuple that is nearest to what the tuple stands for."""
    _, group, counts = torch.unique(_keys(codes, quantizer.codebook_size), return_inverse=True, return_counts=True)
    rows = (counts[group] > 1).nonzero().squeeze(1)
    distance = torch.empty(len(rows), dtype=torch.float64, device=codes.device)
    for part, target in zip(_pieces(rows, _ROWS), _pieces(distance, _ROWS), strict=True):
        vectors = _vectors(vectors_of, part, quantizer)
        target.copy_(quantizer.distance(vectors, codes[part].to(vectors.device)))
    rows = rows[distance.argsort(stable=True)]
    rows = rows[group[rows].argsort(stable=True)]
    shared = _Waiting(rows, group[rows])
    return shared.where(_places(shared.group) > 0)


def _nearest_last_codes(draft: _Draft, rows: Tensor, book: Tensor, c: float) -> None:
    """Let ``rows (m,)`` change their last code only, to the free ones nearest to it in ``book (K, d)``.

    What comes before the last code is added on the left, an isometry: as far as two last codes are from each other,
    so far are the two tuples.
    """
    if not len(rows):
        return
    settled, waiting = _prefixes(draft, rows, draft.codes.shape[1] - 1)
    free = draft.size - torch.bincount(settled, minlength=int(settled.max()) + 1)
    order = waiting.argsort(stable=True)
    able = rows[order[_places(waiting[order]) < free[waiting[order]]]]
    for part in _pieces(able, _TUPLES // draft.size):
        own, index = draft.codes[part, -1].unique(return_inverse=True)
        distance, last = ball.pairwise_distance(book[own].double(), book.double(), c).sort(dim=1, stable=True)
        first = draft.codes[part, :-1].unsqueeze(1).expand(-1, draft.size, -1)
        draft.share_out(part, torch.cat((first, last[index].unsqueeze(-1)), dim=-1), distance[index])


def _any_free(draft: _Draft, rows: Tensor) -> None:
    """Settle all of ``rows (m,)``: each on the first free tuple that shares as many first codes with its as any does.

    Under one prefix there are ``K^L`` tuples, numbered by their last L codes. So many are free before the taken tuple
    T as ``T`` less the taken ones before it, which tells by binary search where the r-th free one is.
    """
    stages = draft.codes.shape[1]
    for length in range(2, stages + 1):
        if not len(rows):
            return
        # Never far above n: under a prefix that has room for all n items nobody is left.
        width = draft.size**length
        settled, waiting = _prefixes(draft, rows, stages - length)
        here = torch.isin(settled, waiting)
        number = _keys(draft.codes[draft.settled][here, -length:], draft.size)
        taken = (settled[here] * width + number).sort().values
        prefix = taken // width
        before = torch.arange(len(taken), device=taken.device) - torch.searchsorted(prefix, prefix)
        free = prefix * (width + 1) + taken % width - before
        order = waiting.argsort(stable=True)
        rows, waiting = rows[order], waiting[order]
        place = _places(waiting)
        skipped = torch.searchsorted(free, waiting * (width + 1) + place, right=True)
        number = place + skipped - torch.searchsorted(prefix, waiting)
        fits = number < width
        tuples = draft.codes[rows[fits]]
        for stage in range(stages - 1, stages - length - 1, -1):
            tuples[:, stage] = number[fits] // draft.size ** (stages - 1 - stage) % draft.size
        draft.settle(rows[fits], tuples)
        rows = rows[~fits].sort().values


def _prefixes(draft: _Draft, rows: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Numbers of the prefixes of ``depth`` codes: of the settled tuples, and of those that ``rows (m,)`` give up."""
    firsts = torch.cat((draft.codes[draft.settled, :depth], draft.codes[rows, :depth]))
    numbers = torch.unique(_keys(firsts, draft.size), return_inverse=True)[1]
    settled, waiting = numbers.split((len(numbers) - len(rows), len(rows)))
    return settled, waiting


def _keys(codes: Tensor, size: int) -> Tensor:
    """One integer for each row of ``codes (n, m)``, in the order of the tuples: equal for equal ones."""
    key, bound = torch.zeros(len(codes), dtype=torch.int64, device=codes.device), 1
    for column in codes.unbind(1):
        if bound * size >= 2**63:  # only those that occur are numbered on
            names, key = torch.unique(key, return_inverse=True)
            bound = len(names)
        key, bound = key * size + column, bound * size
    return key


def _places(group: Tensor) -> Tensor:
    """The place of each element among its equals: ``group (m,)`` rising -> 0, 1, 2, … for each value."""
    return torch.arange(len(group), device=group.device) - torch.searchsorted(group, group)


def _pieces(values: Tensor, length: int) -> tuple[Tensor, ...]:
    """``values (n, ...)`` in pieces of ``length`` or less; none of nothing."""
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


def _check_shape(codes: Tensor) -> None:
    is_tensor("codes", codes)
    if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
        raise ValueError(f"expected integer codes, got {codes.dtype}")
    if codes.dim() != 2 or codes.shape[1] == 0:
        raise ValueError(f"expected codes of shape (n, num_stages), got shape {tuple(codes.shape)}")
