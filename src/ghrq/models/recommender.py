"""A recommender of next items: it ranks by the codes that it generates, by whole items, or by both."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ghrq.data.ragged import last_of_each
from ghrq.models.recommender_network import RecommenderConfig, RecommenderNetwork
from ghrq.nets.code_decoder import CodeDecoder
from ghrq.system.checks import at_least, one_of
from ghrq.system.errors import UserError
from ghrq.system.pretrained import Format, Pretrained
from ghrq.system.progress import Progress

Way = Literal["codes", "items", "reranked", "hybrid"]

WAYS: tuple[Way, ...] = get_args(Way)

# Scores of all items for so many requests are in memory at once, at most; and so many requests.
_SCORES, _REQUESTS = 2**24, 256
# Codes of histories, repeated for each prefix that a search of T5 keeps.
_REPEATED = 2**18


class Ranked(NamedTuple):
    """The best items of B requests, the best first."""

    items: Tensor
    """``(B, k)`` int64 item numbers."""
    scores: Tensor
    """``(B, k)``: log-probabilities; by ``hybrid`` the sum of two."""


class Recommended(NamedTuple):
    """One recommended item."""

    key: str
    title: str
    """Empty if the model has no titles."""
    score: float


class Recommender(RecommenderNetwork, Pretrained):
    """Predicts the next item of a history, with the catalogue that it was trained on.

    A causal Transformer over the items of a history gives a state. From the state, :class:`CodeDecoder` generates the
    codes of the next item, which never leave the catalogue; and the inner product with each item's input vector ranks
    whole items. An item without any interaction is recommended by its codes and its text.

    >>> model = Recommender.from_pretrained("runs/recommendation-demo/demo-ghrq-s0/models/recommender")
    >>> model.recommend([["B004756YJA", "B004ZT0SSG"]], k=3)[0][0].title

    Args:
        config: sizes, keys and titles.
        codes: ``(n, num_stages)`` integers, all distinct; by default zeros, to be loaded.
        vectors: ``(n, text_dim)`` text vectors of the items, which are reduced to their principal components.
        known: ``(n,)`` bool, the items that occur in the training data; by default all.

    """

    Config = RecommenderConfig
    config: RecommenderConfig
    _format = Format("ghrq-recommender", "recommender")

    def recommend(
        self,
        histories: Sequence[Sequence[str]],
        k: int = 10,
        *,
        by: Way = "hybrid",
        exclude_seen: bool = True,
        allowed: Iterable[str] | None = None,
        beam: int = 50,
        skip_unknown: bool = False,
    ) -> list[list[Recommended]]:
        """The k best next items of each history.

        Args:
            histories: keys of items, the oldest first.
            k: number of items to recommend.
            by: see :meth:`rank`.
            exclude_seen: whether to leave out the items of the history.
            allowed: keys of the items that may be recommended; by default all.
            beam: see :meth:`rank`.
            skip_unknown: whether to ignore items of histories that the model does not know, instead of an error.

        """
        if isinstance(histories, str) or any(isinstance(history, str) for history in histories):
            raise UserError("histories must be a list of lists of keys, got a text: write [[key, key, …], …]")
        lengths = torch.tensor([len(history) for history in histories], dtype=torch.int64)
        numbers = self.numbers(chain.from_iterable(histories), skip_unknown)
        mask = None
        if allowed is not None:
            mask = torch.zeros(len(self), dtype=torch.bool)
            mask[self.numbers(allowed, what="allowed items")] = True
        ranked = self.rank(left_filled(numbers, lengths), k, by=by, exclude_seen=exclude_seen, allowed=mask, beam=beam)
        keys, titles = self.config.keys, self.config.titles
        return [
            [Recommended(keys[i], titles[i] if titles else "", s) for i, s in zip(items, scores, strict=True)]
            for items, scores in zip(ranked.items.tolist(), ranked.scores.tolist(), strict=True)
        ]

    @torch.no_grad()
    def rank(
        self,
        histories: Tensor,
        k: int = 10,
        *,
        by: Way = "hybrid",
        exclude_seen: bool = True,
        allowed: Tensor | None = None,
        beam: int = 50,
        progress: Progress | None = None,
    ) -> Ranked:
        """The k best next items of ``histories (B, H)`` int64 item numbers, the newest last; -1 is left out.

        ``by``:

        ``"codes"``     the log-probability of an item's codes;
        ``"items"``     the log-probability of the item as a whole;
        ``"hybrid"``    the sum of both;
        ``"reranked"``  by codes the best ``beam`` items, and these in the order of ``"items"``.

        Args:
            histories: see above; all items are excluded, the last ``config.history`` are looked at.
            k: number of items, at most as many as are allowed.
            by: see above.
            exclude_seen: whether to leave out the items of the history.
            allowed: bool, the items that may be recommended: ``(n,)``, or ``(B, n)`` for each request its own.
            beam: width of the beam search over codes, at least k; ``"hybrid"`` looks at so many of the best items by
                codes and as many by items. 0 scores all items exactly, which takes several times as long.
            progress: shows a bar.

        """
        self._check_request(histories, k, by)
        self._check_filled(histories)
        size = min(_REQUESTS, _SCORES // len(self))
        if self.config.generator == "t5":
            size = min(size, _REPEATED // (max(beam or len(self), k) * self.config.history * len(self.config.sizes)))
        # Histories of about equal length together: little is padding then.
        order = (histories >= 0).sum(1).argsort(stable=True)
        training, parts = self.training, []
        self.eval()
        try:
            vectors = None if by == "codes" else self._vectors
            with (progress or Progress()).patient_bar(f"ranking by {by}", len(histories), "users") as bar:
                for rows in order.split(max(1, size)) if len(order) else ():
                    part = histories[rows].to(self.codes.device)
                    some = allowed if allowed is None or allowed.dim() == 1 else allowed[rows]
                    mask = self._mask(part, k, exclude_seen, some)
                    parts.append(self._rank(self._last_states(part), k, by, mask, beam, vectors))
                    bar.advance(len(part))
        finally:
            self.train(training)
        if not parts:
            return Ranked(histories.new_empty(0, k), torch.empty(0, k))
        back = order.argsort()
        items, scores = (torch.cat(found).cpu()[back] for found in zip(*parts, strict=True))
        return Ranked(items, scores)

    def _rank(self, states: Tensor, k: int, by: Way, mask: Tensor | None, beam: int, vectors: Tensor | None) -> Ranked:
        by_items = None
        if vectors is not None:
            by_items = _masked((states @ vectors.T).log_softmax(-1), mask)
            if by == "items":
                return _top(by_items, k)
        if not beam:
            by_codes = _masked(self._all_by_codes(states), mask)
            return _top(by_codes if by_items is None else by_codes + by_items, k)
        width = min(max(beam, k), len(self))
        found = self.decoder.search(states, width, self.trie, None if mask is None else self.trie.restrict(mask))
        items, scores = self.trie.first_item(found.nodes), found.scores
        if by_items is None:
            return Ranked(items[:, :k], scores[:, :k])
        lost = scores.isneginf()
        if by == "reranked":
            return _top(by_items.gather(1, items).masked_fill(lost, -torch.inf), k, items)
        other_scores, others = by_items.topk(width)
        flat, owner = others.flatten(), torch.arange(len(others), device=others.device).repeat_interleave(width)
        assert isinstance(self.decoder, CodeDecoder)  # T5 has no scores of items
        own = self.decoder.log_probability(states, self.codes[flat], self._paths[flat], self.trie, owner)
        other_scores = other_scores + own.view_as(others)
        twice = (others.unsqueeze(2) == items.masked_fill(lost, -1).unsqueeze(1)).any(2)
        total = torch.cat((by_items.gather(1, items) + scores, other_scores.masked_fill(twice, -torch.inf)), dim=1)
        return _top(total, k, torch.cat((items, others), dim=1))

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
        """Which items may be recommended, ``(B, n)`` or ``(n,)``; None for all."""
        mask = None if allowed is None else allowed.to(histories.device)
        if exclude_seen:
            seen = torch.zeros(len(histories), len(self) + 1, dtype=torch.bool, device=histories.device)
            seen.scatter_(1, histories.where(histories >= 0, len(self)), True)
            mask = ~seen[:, :-1] if mask is None else ~seen[:, :-1] & mask
        fewest = len(self) if mask is None else int(mask.sum(-1).min())
        if fewest < k:
            why = " that are allowed" + " and not in the history" * exclude_seen if mask is not None else ""
            raise UserError(f"k={k}, but there are only {fewest:,} items{why}: ask for fewer, or allow more")
        return mask

    # --- input ---------------------------------------------------------------------------------------------

    def numbers(self, keys: Iterable[str], skip_unknown: bool = False, what: str = "items of the histories") -> Tensor:
        """Item numbers of ``keys``, int64; -1 for unknown ones if these are skipped, else they are an error."""
        given = list(keys)
        found = torch.tensor([self._places.get(key, -1) for key in given], dtype=torch.int64)
        unknown = list(dict.fromkeys(given[i] for i in (found < 0).nonzero().squeeze(1).tolist()))
        if unknown and not skip_unknown:
            shown = ", ".join(map(repr, unknown[:5])) + (" …" if len(unknown) > 5 else "")
            raise UserError(
                f"{len(unknown):,} {what} are not in the model's catalogue of {len(self):,} items, whose keys are like "
                f"{self.config.keys[0]!r}: {shown}. Correct them, or skip them (skip_unknown=True, --skip-unknown)"
            )
        return found

    @cached_property
    def _places(self) -> dict[str, int]:
        return {key: place for place, key in enumerate(self.config.keys)}

    def _check_request(self, histories: Tensor, k: int, by: Way) -> None:
        at_least("k", k, 1, whole=True)
        one_of("by", by, WAYS)
        for output in ("codes", "items"):
            if output not in self.config.outputs and by != ("items" if output == "codes" else "codes"):
                has = self.config.outputs[0]
                raise UserError(f"by={by!r}, but this model predicts no {output}: use by={has!r}")
        if histories.dim() != 2:
            raise ValueError(f"expected histories of shape (B, H), got shape {tuple(histories.shape)}")

    def _check_filled(self, histories: Tensor) -> None:
        if histories.numel() and int(histories.max()) >= len(self):
            raise UserError(
                f"item number {int(histories.max())} is not one of 0 to {len(self) - 1}: the histories belong to "
                "another catalogue than the model"
            )
        empty = (~(histories >= 0).any(1)).nonzero().squeeze(1).tolist()
        if empty:
            raise UserError(
                f"{len(empty):,} of {len(histories):,} histories have no item that the model knows, the first is "
                f"number {empty[0]} (from 0): leave such users out, or recommend what is popular"
            )

    # --- a larger catalogue --------------------------------------------------------------------------------

    @torch.no_grad()
    def extended(
        self, keys: Sequence[str], codes: Tensor, vectors: Tensor | None = None, titles: Sequence[str] = ()
    ) -> "Recommender":
        """The same model with more items, which it can recommend without training by their codes and texts.

        ``codes (m, num_stages)`` are the IDs of the new ``keys``, ``vectors (m, text_dim)`` their text vectors.
        """
        old, text_dim = self.config, self.config.text_dim
        twice = [key for key in keys if key in self._places]
        if twice or len(set(keys)) < len(keys):
            raise UserError(f"the keys of new items must be new and different, got {(twice or list(keys))[0]!r} again")
        if (vectors is None) != (text_dim == 0) or (vectors is not None and vectors.shape != (len(keys), text_dim)):
            got = "none" if vectors is None else str(tuple(vectors.shape))
            raise UserError(f"the model needs text vectors ({len(keys)}, {text_dim}) for the new items, got {got}")
        every = torch.cat((self.codes, codes.to(self.codes)))
        titles = (*old.titles, *titles, *("",) * (len(keys) - len(titles))) if old.titles or titles else ()
        config = old.model_copy(update={"keys": (*old.keys, *keys), "titles": tuple(titles)})
        with torch.random.fork_rng(devices=[]):
            known = torch.cat((self.known, self.known.new_zeros(len(keys))))
            larger = Recommender(config, every, known=known).to(self.codes.device)
        weights = self.state_dict() | {"codes": every, "known": known}
        fresh = larger.state_dict()
        if vectors is not None:
            weights["text"] = torch.cat((self.text, (vectors.to(self.text) - self.text_mean) @ self.text_map))
        if "item_embedding.weight" in fresh:
            own = torch.zeros(len(keys), old.width, device=self.codes.device)
            weights["item_embedding.weight"] = torch.cat((self.item_embedding.weight, own))
        larger.load_state_dict(weights)
        return larger.eval()


def left_filled(numbers: Tensor, lengths: Tensor) -> Tensor:
    """Histories of different ``lengths (B,)``, one after the other in ``numbers``, as ``(B, longest)``."""
    return last_of_each(numbers, lengths, max(1, int(lengths.max())) if len(lengths) else 1)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill_(~mask, -torch.inf)


def _top(scores: Tensor, k: int, items: Tensor | None = None) -> Ranked:
    """The k best of ``scores (B, m)``, which are of ``items (B, m)`` or of all."""
    best, place = scores.topk(k)
    return Ranked(place if items is None else items.gather(1, place), best)
