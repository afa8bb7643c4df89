"""A recommender of next items: it ranks by the codes that it generates, by whole items, or by both."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.data.ragged import last_of_each
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

        """
        if isinstance(histories, str) or any(isinstance(history, str) for history in histories):
            raise UserError("histories must be a list of lists of keys, got a text: write [[key, key, …], …]")
        lengths = torch.tensor([len(history) for history in histories], dtype=torch.int64)
        numbers = self.numbers(chain.from_iterable(histories), skip_unknown)
        mask = None
        if allowed is not None:
            mask = torch.zeros(len(self) + 1, dtype=torch.bool)  # the last is for unknown ones, whose number is -1
            mask[self.numbers(allowed, skip_unknown, what="allowed items")] = True
            mask = mask[:-1]
        ranked = self.rank(left_filled(numbers, lengths), k, by=by, exclude_seen=exclude_seen, allowed=mask, beam=beam)
        keys, titles = self.config.keys, self.config.titles
        return [
            [Recommended(keys[i], titles[i] if titles else "", s) for i, s in zip(items, scores, strict=True)]
            for items, scores in zip(ranked.items.tolist(), ranked.scores.tolist(), strict=True)
        ]

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
        if codes.shape != (len(keys), len(old.sizes)):
            raise UserError(
                f"the model needs IDs ({len(keys)}, {len(old.sizes)}) for the new items, one of {len(old.sizes)} codes "
                f"each with the tie-break token, got {tuple(codes.shape)}"
            )
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
        if self.memory is not None:
            larger.memory = self.memory.extended(len(keys))
            weights |= {f"memory.{name}": value for name, value in larger.memory.state_dict().items()}
        if "item_embedding.weight" in fresh:
            own = torch.zeros(len(keys), old.width, device=self.codes.device)
            weights["item_embedding.weight"] = torch.cat((self.item_embedding.weight, own))
        larger.load_state_dict(weights)
        return larger.eval()


def left_filled(numbers: Tensor, lengths: Tensor) -> Tensor:
    """Histories of different ``lengths (B,)``, one after the other in ``numbers``, as ``(B, longest)``."""
    return last_of_each(numbers, lengths, max(1, int(lengths.max())) if len(lengths) else 1)
