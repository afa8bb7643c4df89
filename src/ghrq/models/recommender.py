"""A recommender of next items: it ranks by the codes that it generates, by whole items, or by both."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.data.ragged import Ragged
from ghrq.ids.tuples import Codes
from ghrq.models.recommender_growth import Vectors, new_items
from ghrq.models.recommender_network import RecommenderConfig
from ghrq.models.recommender_ranking import RecommenderRanking, Way
from ghrq.system.errors import UserError
from ghrq.system.pretrained import Format, Pretrained


class Recommended(NamedTuple):
    """One recommended item."""

    key: str
    title: str
    """Empty if the model has no titles."""
    score: float


class Recommender(RecommenderRanking, Pretrained):
    """Predicts the next item of a history, with the catalogue that it was trained on.

    A causal Transformer over the items of a history gives a state. From the state, :class:`CodeDecoder` generates the
    codes of the next item, which never leave the catalogue; and the inner product with each item's input vector ranks
    whole items. An item without any interaction is recommended by its codes and its text.

    Examples:
        >>> Config = ghrq.models.Recommender.Config
        >>> codes = torch.tensor([[0, 0], [0, 1], [1, 0]])
        >>> config = Config(keys=["soap", "comb", "brush"], sizes=[2, 2], inputs=["codes", "item"])
        >>> model = ghrq.models.Recommender(config, codes).eval()  # untrained
        >>> sorted(item.key for item in model.recommend([["soap"]], k=2)[0])
        ['brush', 'comb']

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
        by: Way | None = None,
        exclude_seen: bool = True,
        allowed: Iterable[str] | None = None,
        beam: int = 50,
        skip_unknown: bool = False,
        fewer: bool = False,
    ) -> list[list[Recommended]]:
        """The k best next items of each history.

        Args:
            histories: keys of items, the oldest first.
            k: number of items to recommend.
            by: see :meth:`rank`.
            exclude_seen: whether to leave out the items of the history.
            allowed: keys of the items that may be recommended; by default all.
            beam: see :meth:`rank`.
            skip_unknown: whether to ignore items that the model does not know, of histories and of ``allowed``, instead
                of an error.
            fewer: whether lists are shorter where fewer than k items are allowed, instead of an error.

        """
        if not _is_list(histories) or not all(map(_is_list, histories)):
            raise UserError("histories must be a list of lists of keys: write [[key, key, …], …]")
        lengths = torch.tensor([len(history) for history in histories], dtype=torch.int64)
        numbers = self.numbers(chain.from_iterable(histories), skip_unknown)
        mask = None if allowed is None else self.mask_of(allowed, skip_unknown)
        given = Ragged(numbers, lengths)
        ranked = self.rank(given, k, by=by, exclude_seen=exclude_seen, allowed=mask, beam=beam, fewer=fewer)
        keys, titles = self.config.keys, self.config.titles
        return [
            [Recommended(keys[i], titles[i] if titles else "", s) for i, s in zip(items, scores, strict=True) if i >= 0]
            for items, scores in zip(ranked.items.tolist(), ranked.scores.tolist(), strict=True)
        ]

    # --- input ---------------------------------------------------------------------------------------------

    def numbers(self, keys: Iterable[str], skip_unknown: bool = False, what: str = "items of the histories") -> Tensor:
        """Item numbers of ``keys``, int64; -1 for unknown ones if these are skipped, else an error names ``what``."""
        given = list(keys)
        for key in given:
            if not isinstance(key, str):
                raise UserError(f"keys are texts, got {key!r}: this model's are like {self.config.keys[0]!r}")
        found = torch.tensor([self._places.get(key, -1) for key in given], dtype=torch.int64)
        unknown = list(dict.fromkeys(given[i] for i in (found < 0).nonzero().squeeze(1).tolist()))
        if unknown and not skip_unknown:
            shown = ", ".join(map(repr, unknown[:5])) + (" …" if len(unknown) > 5 else "")
            raise UserError(
                f"the model's catalogue of {len(self):,} items, whose keys are like {self.config.keys[0]!r}, lacks "
                f"{len(unknown):,} of the {what}: {shown}. Correct them, or skip them (skip_unknown=True, "
                "--skip-unknown)"
            )
        return found

    def mask_of(self, allowed: Iterable[str], skip_unknown: bool = False, what: str = "allowed items") -> Tensor:
        """``(n,)`` bool: the items whose keys are ``allowed``; unknown ones as in :meth:`numbers`."""
        if isinstance(allowed, str):
            raise UserError(f"allowed must be a list of keys, got the text {allowed!r}: write [{allowed!r}]")
        mask = torch.zeros(len(self) + 1, dtype=torch.bool)  # the last is for unknown ones, whose number is -1
        mask[self.numbers(allowed, skip_unknown, what)] = True
        return mask[:-1]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {key: place for place, key in enumerate(self.config.keys)}

    # --- a larger catalogue --------------------------------------------------------------------------------

    @torch.no_grad()
    def extended(
        self, keys: Sequence[str], codes: Codes, vectors: Vectors | None = None, titles: Sequence[str] = ()
    ) -> "Recommender":
        """The same model with more items, which it can recommend without training by their codes and texts.

        Args:
            keys: of the ``m`` new items.
            codes: ``(m, num_stages)``, their IDs; or ``(m, num_stages - 1)``, as the tokenizer of the run encodes them:
                then each gets the next free tie-break token.
            vectors: ``(m, text_dim)``, their text vectors, by the model that embedded the other items.
            titles: what to show, one for each; by default none.

        """
        old = self.config
        new = new_items(old, self.codes, keys, codes, vectors, titles)
        every = torch.cat((self.codes, new.codes))
        before, after = (old.titles or ("",) * len(self)), (new.titles or ("",) * len(new.keys))
        shown = (*before, *after) if old.titles or new.titles else ()
        config = old.model_copy(update={"keys": (*old.keys, *new.keys), "titles": shown})
        with torch.random.fork_rng(devices=[]):
            known = torch.cat((self.known, self.known.new_zeros(len(keys))))
            larger = Recommender(config, every, known=known).to(self.codes.device)
        weights = self.state_dict() | {"codes": every, "known": known}
        fresh = larger.state_dict()
        if new.vectors is not None:
            weights["text"] = torch.cat((self.text, (new.vectors.to(self.text) - self.text_mean) @ self.text_map))
        if self.memory is not None:
            larger.memory = self.memory.extended(len(keys))
            weights |= {f"memory.{name}": value for name, value in larger.memory.state_dict().items()}
        if "item_embedding.weight" in fresh:
            own = torch.zeros(len(keys), old.width, device=self.codes.device)
            weights["item_embedding.weight"] = torch.cat((self.item_embedding.weight, own))
        larger.load_state_dict(weights)
        return larger.eval()


def _is_list(given: object) -> bool:
    """Whether it has a length and an order: a list, a tuple, an array; neither a text nor a dict."""
    return hasattr(given, "__len__") and hasattr(given, "__getitem__") and not isinstance(given, str | bytes | dict)
