"""How a recommender ranks items: by the codes that it generates, by whole items, by both, and with its memory."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.data.ragged import Ragged
from ghrq.models.followers import decayed
from ghrq.models.recommender_network import RecommenderNetwork
from ghrq.nets.code_decoder import CodeDecoder
from ghrq.system.checks import at_least, one_of
from ghrq.system.errors import UserError, counted
from ghrq.system.progress import Progress

Way = Literal["codes", "reranked", "items", "hybrid", "memory"]

WAYS: tuple[Way, ...] = get_args(Way)

# Scores of all items for so many requests are in memory at once, at most; so many requests; and so many items of
# their histories, each history filled to the longest of them.
_SCORES, _REQUESTS, _CELLS = 2**24, 256, 2**22
# Codes of histories, repeated for each prefix that a search of T5 keeps.
_REPEATED = 2**18


class Ranked(NamedTuple):
    """The best items of B requests, the best first."""

    items: Tensor
    """``(B, k)`` int64 item numbers."""
    scores: Tensor
    """``(B, k)``: log-probabilities; by ``hybrid`` and ``memory`` the sum of two."""


class _Candidates(NamedTuple):
    """Scores ``(B, M)`` of some items for each request, minus infinity for those that may not be recommended."""

    items: Tensor | None
    """``(B, M)`` int64; None if these are all items."""
    by_codes: Tensor
    """Log-probabilities of the codes."""
    by_items: Tensor | None
    """Log-probabilities of the items."""
    recalled: Tensor | None
    """What the memory makes of ``by_items``."""


class RecommenderRanking(RecommenderNetwork):
    """A network that ranks all items of its catalogue. See :class:`RecommenderNetwork` for the arguments."""

    @property
    def ways(self) -> list[Way]:
        """How it can rank, the best way last."""
        ways: list[Way] = [*self.config.outputs]
        if len(ways) == 2:
            ways = ["codes", "reranked", "items", "hybrid"]
        return ways if self.memory is None else [*ways, "memory"]

    def rank(
        self,
        histories: Tensor | Ragged,
        k: int = 10,
        *,
        by: Way | None = None,
        exclude_seen: bool = True,
        allowed: Tensor | None = None,
        beam: int = 50,
        fewer: bool = False,
        progress: Progress | None = None,
    ) -> Ranked:
        """The k best next items of ``histories (B, H)`` int64 item numbers, the newest last; -1 is left out.

        Where few histories are much longer than the others, give them as :class:`ghrq.data.ragged.Ragged`: then no
        memory depends on the longest.

        ``by``:

        ``"codes"``     the log-probability of an item's codes;
        ``"items"``     the log-probability of the item as a whole;
        ``"hybrid"``    the sum of both;
        ``"reranked"``  by codes the best ``beam`` items, and these in the order of ``"items"``;
        ``"memory"``    as ``"hybrid"``, where the probability of an item is mixed with how often it came after the
                        items of the history in training, texts near those of the history count, and items of the
                        history are as likely as repeats were in training.

        Args:
            histories: see above; all items are excluded, the last ``config.history`` are looked at.
            k: number of items, at most as many as are allowed.
            by: see above; by default the last of :attr:`ways`.
            exclude_seen: whether to leave out the items of the history.
            allowed: bool, the items that may be recommended: ``(n,)``, or ``(B, n)`` for each request its own.
            beam: width of the beam search over codes, at least k; ``"hybrid"`` looks at so many of the best items by
                codes and as many by items, ``"memory"`` at as many of the memory too. 0 scores all items exactly, which
                takes several times as long.
            fewer: where fewer than k items are allowed, end the list with -1 and scores of -∞; else it is an error.
            progress: shows a bar.

        """
        by = by or self.ways[-1]
        return self.rank_by_each(
            histories, k, [by], exclude_seen=exclude_seen, allowed=allowed, beam=beam, fewer=fewer, progress=progress
        )[by]

    @torch.no_grad()
    def rank_by_each(
        self,
        histories: Tensor | Ragged,
        k: int,
        ways: Sequence[Way],
        *,
        exclude_seen: bool = True,
        allowed: Tensor | None = None,
        beam: int = 50,
        fewer: bool = False,
        progress: Progress | None = None,
    ) -> dict[Way, Ranked]:
        """As :meth:`rank`, by several ways, which share the states and one search over codes."""
        for by in ways:
            self._check_request(k, by)
        at_least("beam", beam, 0, whole=True)
        given = self._checked(histories)
        length, k = k, min(k, len(self)) if fewer else k
        size = min(_REQUESTS, _SCORES // len(self))
        if self.config.generator == "t5":
            size = min(size, _REPEATED // (max(beam or len(self), k) * self.config.history * len(self.config.sizes)))
        # Histories of about equal length together: little is padding then.
        pieces = given.pieces(max(1, size), _CELLS)
        training, parts = self.training, []
        self.eval()
        try:
            vectors = None if set(ways) == {"codes"} else self._vectors
            with (progress or Progress()).patient_bar(f"ranking by {', '.join(ways)}", len(given), "users") as bar:
                for rows in pieces:
                    part = given.take(rows).left_filled().to(self.codes.device)
                    some = allowed if allowed is None or allowed.dim() == 1 else allowed[rows]
                    mask = self._mask(part, 0 if fewer else k, exclude_seen, some)
                    parts.append(self._rank(part, k, ways, mask, beam, vectors))
                    bar.advance(len(part))
        finally:
            self.train(training)
        if not parts:
            return {way: Ranked(given.values.new_empty(0, length), torch.empty(0, length)) for way in ways}
        back = torch.cat(pieces).argsort()
        ranked = {
            way: Ranked(*(torch.cat(found).cpu()[back] for found in zip(*(part[way] for part in parts), strict=True)))
            for way in ways
        }
        return {way: _ended(found, length) for way, found in ranked.items()} if fewer else ranked

    def _rank(
        self,
        histories: Tensor,
        k: int,
        ways: Sequence[Way],
        mask: Tensor | None,
        beam: int,
        vectors: Tensor | None,
    ) -> dict[Way, Ranked]:
        found: dict[Way, Ranked] = {}
        states = self._last_states(histories)
        by_items = None if vectors is None else (states @ vectors.T).log_softmax(-1)
        recalled = None
        if by_items is not None and "memory" in ways:
            recalled = _masked(self._recalled(histories, by_items), mask)
            if "codes" not in self.config.outputs:
                found["memory"] = _top(recalled, k)
        by_items = None if by_items is None else _masked(by_items, mask)
        if by_items is not None and "items" in ways:
            found["items"] = _top(by_items, k)
        if "codes" not in self.config.outputs:
            return found
        if set(ways) == {"items"}:
            return found
        if not beam:
            every = _Candidates(None, _masked(self._all_by_codes(states), mask), by_items, recalled)
            return found | {way: _top(scores, k) for way, scores in self._scores(every).items() if way in ways}
        width = min(max(beam, k), len(self))
        search = self.decoder.search(states, width, self.trie, None if mask is None else self.trie.restrict(mask))
        items = self.trie.first_item(search.nodes)
        if by_items is None or set(ways) <= {"codes", "items"}:
            return found | {"codes": Ranked(items[:, :k], search.scores[:, :k])}
        several = self._candidates(states, items, search.scores, by_items, recalled, ways)
        assert several.items is not None
        for way, scores in self._scores(several).items():
            if way in ways:
                # The others of the list are for ways that come later: none depends on what else is asked for.
                most = {"codes": width, "reranked": width, "hybrid": 2 * width, "memory": 3 * width}[way]
                found[way] = _top(scores[:, :most], k, several.items[:, :most])
        return found

    def _candidates(
        self,
        states: Tensor,
        items: Tensor,
        scores: Tensor,
        by_items: Tensor,
        recalled: Tensor | None,
        ways: Sequence[Way],
    ) -> "_Candidates":
        """``items (B, width)``, found by codes with ``scores``, as many of the best by items, and of the memory."""
        width = items.shape[1]
        others = [by_items.topk(width).indices] if not set(ways) <= {"codes", "reranked", "items"} else []
        if recalled is not None:
            others.append(recalled.topk(width).indices)
        if others:
            more = torch.cat(others, dim=1)
            owner = torch.arange(len(more), device=more.device).repeat_interleave(more.shape[1])
            assert isinstance(self.decoder, CodeDecoder)  # T5 has no scores of items
            flat = more.flatten()
            own = self.decoder.log_probability(states, self.codes[flat], self._paths[flat], self.trie, owner)
            items, scores = torch.cat((items, more), dim=1), torch.cat((scores, own.view_as(more)), dim=1)
        # Of equal items the first counts: a search that finds too few repeats its best.
        ordered, order = items.sort(dim=1, stable=True)
        twice = torch.zeros_like(items, dtype=torch.bool)
        twice.scatter_(1, order[:, 1:], ordered[:, 1:] == ordered[:, :-1])
        known = by_items.gather(1, items).masked_fill_(twice, -torch.inf)
        scores = scores.masked_fill(known.isneginf(), -torch.inf)
        return _Candidates(items, scores, known, None if recalled is None else recalled.gather(1, items))

    def _scores(self, given: "_Candidates") -> dict[Way, Tensor]:
        """What each way ranks by, ``(B, M)``."""
        scores: dict[Way, Tensor] = {"codes": given.by_codes}
        if given.by_items is not None:
            scores |= {"reranked": given.by_items, "hybrid": given.by_items + given.by_codes}
            if given.recalled is not None:
                scores["memory"] = given.recalled + self.config.memory_codes * given.by_codes
        return scores

    def _recalled(self, histories: Tensor, by_items: Tensor) -> Tensor:
        """``(B, n)``: log-probabilities of items, mixed with those of the memory, and how near their texts are.

        An item that does not occur in the training data follows nothing, and its own vector was never learned: it is as
        likely as the items with the nearest texts are on average, if that is more.
        """
        assert self.memory is not None
        config = self.config
        followed = self.memory.probabilities(histories, config.memory_decay)
        chance = by_items.exp() * (1.0 - config.memory_share) + followed * config.memory_share
        new, near = self._nearest_known
        if len(new):
            chance[:, new] = torch.maximum(chance[:, new], chance[:, near].mean(-1))
        scores = chance.log()
        if config.memory_repeats is not None:
            scores += _repeated(chance, self._seen(histories), config.memory_repeats)
        if config.text_dim and config.memory_text:
            weight = decayed(histories, config.memory_decay)
            texts = F.embedding_bag(histories.clamp(min=0), self._directions, per_sample_weights=weight, mode="sum")
            scores += config.memory_text * (F.normalize(texts, dim=1) @ self._directions.T)
        return scores

    def _all_by_codes(self, states: Tensor) -> Tensor:
        """``(B, n)``: the log-probabilities of the codes of all items."""
        return self.decoder.all_log_probabilities(states, self.trie)[:, self._paths[:, -1]]

    def _last_states(self, histories: Tensor) -> Tensor:
        """What the decoder needs of ``histories (B, H)``, where -1 is left out.

        The states ``(B, width)`` after the last items, or for T5 the codes ``(B, T, num_stages)`` of these items.
        """
        there = histories >= 0
        # Stable: the items keep their order, and the padding comes last.
        ended = histories.gather(1, (~there).long().argsort(dim=1, stable=True))
        count = there.sum(1)
        first = (count - self.config.history).clamp(min=0)
        length = int((count - first).max())
        place = (first.unsqueeze(1) + torch.arange(length, device=ended.device)).clamp(max=ended.shape[1] - 1)
        items = ended.gather(1, place)
        if self.config.generator == "t5":
            return self.codes_of(items)
        states = self.states(items)
        return states[torch.arange(len(states), device=states.device), count - first - 1]

    def _mask(self, histories: Tensor, k: int, exclude_seen: bool, allowed: Tensor | None) -> Tensor | None:
        """Which items may be recommended, ``(B, n)`` or ``(n,)``, at least k; None for all."""
        mask = None if allowed is None else allowed.to(histories.device)
        if exclude_seen:
            unseen = ~self._seen(histories)
            mask = unseen if mask is None else unseen & mask
        fewest = len(self) if mask is None else int(mask.sum(-1).min())
        if fewest < k:
            why = " allowed" + " and not in the history" * exclude_seen if mask is not None else ""
            there = f"there {'is' if fewest == 1 else 'are'} only {counted(fewest, 'item')}{why}"
            raise UserError(f"k={k}, but {there}: ask for fewer, or allow more")
        return mask

    def _seen(self, histories: Tensor) -> Tensor:
        """Bool ``(B, n)``: the items of ``histories (B, H)``."""
        seen = torch.zeros(len(histories), len(self) + 1, dtype=torch.bool, device=histories.device)
        return seen.scatter_(1, histories.where(histories >= 0, len(self)), True)[:, :-1]

    def _check_request(self, k: int, by: Way) -> None:
        at_least("k", k, 1, whole=True)
        one_of("by", by, WAYS)
        if by not in self.ways:
            missing = "items" if "items" not in self.config.outputs else "codes"
            lacks = "has no memory" if by == "memory" else f"predicts no {missing}"
            raise UserError(f"by={by!r}, but this model {lacks}: use by={self.ways[-1]!r}")

    def _checked(self, histories: Tensor | Ragged) -> Ragged:
        """The items of each history; all are of the catalogue, and there is one at least."""
        if isinstance(histories, Tensor) and histories.dim() != 2:
            raise ValueError(f"expected histories of shape (B, H), got shape {tuple(histories.shape)}")
        given = Ragged.of(histories.cpu()) if isinstance(histories, Tensor) else histories.without_negative()
        largest = int(given.values.max()) if len(given.values) else -1
        if largest >= len(self):
            raise UserError(
                f"item number {largest} is not one of 0 to {len(self) - 1}: the histories belong to "
                "another catalogue than the model"
            )
        empty = (given.lengths == 0).nonzero().squeeze(1).tolist()
        if empty:
            raise UserError(
                f"{len(empty):,} of {len(given):,} histories have no item that the model knows, the first is "
                f"number {empty[0]} (from 0): leave such users out, or recommend what is popular"
            )
        return given


def _repeated(chance: Tensor, seen: Tensor, share: float) -> Tensor:
    """``(B, n)``, what to add to ``chance.log()``: items that are ``seen (B, n)`` then have ``share`` of the sum."""
    tiny = torch.finfo(chance.dtype).tiny
    old = (chance * seen).sum(1, keepdim=True).clamp(min=tiny)
    new = (chance * ~seen).sum(1, keepdim=True).clamp(min=tiny)
    return torch.where(seen, (share / old).log(), ((1.0 - share) / new).log())


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill_(~mask, -torch.inf)


def _top(scores: Tensor, k: int, items: Tensor | None = None) -> Ranked:
    """The k best of ``scores (B, m)``, which are of ``items (B, m)`` or of all."""
    best, place = scores.topk(k)
    return Ranked(place if items is None else items.gather(1, place), best)


def _ended(ranked: Ranked, length: int) -> Ranked:
    """Lists of ``length``: -1 stands for items that may not be recommended, and at the end for those there are not."""
    missing = (0, length - ranked.items.shape[1])
    items = ranked.items.masked_fill(ranked.scores.isneginf(), -1)
    return Ranked(F.pad(items, missing, value=-1), F.pad(ranked.scores, missing, value=-torch.inf))
