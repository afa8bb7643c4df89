"""The network of a recommender, and the catalogue that it holds."""

from functools import cached_property
from typing import Annotated, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ghrq.ids import PrefixTrie
from ghrq.models.followers import Followers
from ghrq.nets.causal_encoder import CausalEncoder
from ghrq.nets.code_decoder import CodeDecoder
from ghrq.nets.t5_generator import T5Generator
from ghrq.system.errors import UserError
from ghrq.system.settings import Count, Positive, Section

Input = Literal["codes", "text", "item"]
Output = Literal["codes", "items"]
Generator = Literal["states", "t5"]

# Known items that a new item is compared with. Of 1, 5 and 20, 5 found most new items of Amazon Beauty's validation.
_NEAREST = 5


class RecommenderConfig(Section):
    """What makes a :class:`Recommender`."""

    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    """Of the items; the number of an item is its place here."""
    titles: tuple[str, ...] = ()
    """Of the items, or none."""
    sizes: tuple[Positive, ...] = ()
    """Number of codes of each stage of the IDs; the last may be a tie-break token. Empty without codes."""
    text_dim: Count = 0
    """Size of the items' text vectors; 0 without."""
    components: Positive = 256
    """The text vectors are reduced to so many principal components."""
    inputs: tuple[Input, ...] = ("codes", "text", "item")
    """What an item of a history is the sum of: embeddings of its codes, a map of its text, an embedding of its own."""
    outputs: tuple[Output, ...] = ("codes", "items")
    """What it predicts: the codes of the next item, the next item as a whole, or both."""
    generator: Generator = "states"
    """``states``: a causal Transformer over items gives states, and an MLP for each stage predicts codes of them.
    ``t5``: the T5 of transformers over the codes of the items, as in the paper; inputs and outputs are codes alone."""
    history: Positive = 50
    """Last items of a history that it looks at."""
    width: Positive = 128
    layers: Positive = 2
    heads: Positive = 4
    feedforward: Positive = 256
    hidden: Positive = 256
    """Inner width of the networks that predict the codes."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.3
    pairs: Count = 0
    """Pairs of items, one after the other in training, that its memory has; 0 without a memory."""
    memory_share: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of the memory in the probability of an item, the rest is the item head's."""
    memory_decay: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The memory weights an item by this to the power of the number of items after it."""
    memory_codes: Annotated[float, Field(ge=0)] = 0.25
    """Weight of the codes' log-probability beside that of the item with the memory."""
    memory_text: Annotated[float, Field(ge=0)] = 2.0
    """Weight of the cosine of an item's text with that of the history beside both."""
    memory_repeats: Annotated[float, Field(gt=0, lt=1)] | None = None
    """How likely the next item is one of the history, as the memory has it. None: as the item head says."""


class RecommenderNetwork(nn.Module):
    """From the items of histories to states, and from states to codes and items.

    Args:
        config: sizes, keys and titles.
        codes: ``(n, num_stages)`` integers, all distinct; by default zeros, to be loaded.
        vectors: ``(n, text_dim)`` text vectors of the items, which are reduced to their principal components.
        known: ``(n,)`` bool, the items that occur in the training data; by default all.

    """

    codes: Tensor
    text: Tensor
    text_mean: Tensor
    text_map: Tensor
    known: Tensor

    def __init__(
        self,
        config: RecommenderConfig,
        codes: Tensor | None = None,
        vectors: Tensor | None = None,
        known: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        count, stages, width = len(config.keys), len(config.sizes), config.width
        _check_parts(config)
        # Tables with small entries, scaled: the optimiser's steps are as large for them as for a large table. An item
        # that is rare has few steps.
        self._scale = width**0.5
        self.register_buffer("codes", torch.zeros(count, stages, dtype=torch.int64) if codes is None else codes.long())
        if codes is not None:
            _check_codes(codes, config)
        self.register_buffer("known", torch.ones(count, dtype=torch.bool) if known is None else known)
        components = min(config.components, config.text_dim)
        self.register_buffer("text", torch.zeros(count, components))
        self.register_buffer("text_mean", torch.zeros(config.text_dim))
        self.register_buffer("text_map", torch.zeros(config.text_dim, components))
        if vectors is not None:
            self._reduce(vectors.float())
        if config.generator == "t5":
            self.decoder: CodeDecoder | T5Generator = T5Generator(
                config.sizes, width, config.layers, config.heads, config.feedforward, config.dropout
            )
        else:
            self._make_layers(config)
        self.memory = Followers(count, config.pairs) if config.pairs else None
        self.register_load_state_dict_post_hook(RecommenderNetwork._forget)

    def _make_layers(self, config: RecommenderConfig) -> None:
        """The layers from items to states, and from states to codes."""
        count, components, width = len(config.keys), self.text.shape[1], config.width
        if "codes" in config.inputs:
            self.code_embedding = _small(nn.Embedding(sum(config.sizes), width), self._scale)
        if "text" in config.inputs:
            self.text_layer = nn.Linear(components, width, bias=False)
            nn.init.normal_(self.text_layer.weight, std=0.05 * components**-0.5)
        if "item" in config.inputs:
            self.item_embedding = _small(nn.Embedding(count, width), self._scale)
            with torch.no_grad():
                self.item_embedding.weight[~self.known] = 0.0
        self.encoder = CausalEncoder(
            width, config.history, config.layers, config.heads, config.feedforward, config.dropout
        )
        if "codes" in config.outputs:
            self.decoder = CodeDecoder(width, config.sizes, config.hidden)

    def __len__(self) -> int:
        """The number of items."""
        return len(self.config.keys)

    def embed(self, items: Tensor, drop: float = 0.0) -> Tensor:
        """The input vectors ``(..., width)`` of ``items (...)``; a share ``drop`` without their own embedding."""
        parts = []
        if "codes" in self.config.inputs:
            parts.append(self._scale * self.code_embedding(self.codes[items] + self._offsets).sum(-2))
        if "text" in self.config.inputs:
            parts.append(self.text_layer(self.text[items]))
        if "item" in self.config.inputs:
            own = self._scale * self.item_embedding(items)
            if drop:
                own = own * (torch.rand(items.shape, device=items.device) >= drop).unsqueeze(-1)
            parts.append(own)
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]

    def states(self, items: Tensor, drop: float = 0.0) -> Tensor:
        """The states ``(B, T, width)`` after each item of ``items (B, T)``, where -1 is padding at the end."""
        return self.encoder(self.embed(items.clamp(min=0), drop))

    def codes_of(self, items: Tensor) -> Tensor:
        """The codes ``(..., num_stages)`` of ``items (...)``, -1 for -1."""
        return self.codes[items.clamp(min=0)].masked_fill((items < 0).unsqueeze(-1), -1)

    @cached_property
    def trie(self) -> PrefixTrie:
        """The IDs of all items."""
        return PrefixTrie(self.codes, self.config.sizes)

    @cached_property
    def _paths(self) -> Tensor:
        """``(n, num_stages + 1)``: the nodes of each item's prefixes."""
        return self.trie.path(self.codes)

    @cached_property
    def _offsets(self) -> Tensor:
        sizes = torch.tensor(self.config.sizes, device=self.codes.device)
        return sizes.cumsum(0) - sizes

    @cached_property
    def _directions(self) -> Tensor:
        """``(n, components)``: the texts of all items with length 1."""
        return F.normalize(self.text, dim=1)

    @cached_property
    def _nearest_known(self) -> tuple[Tensor, Tensor]:
        """The items that do not occur in the training data ``(m,)``, and for each those that do with the nearest texts.

        ``(m, _NEAREST)``. No items where there are no texts.
        """
        known = self.known.nonzero().squeeze(1)
        count = min(_NEAREST, len(known))
        new = (~self.known).nonzero().squeeze(1) if self.text.shape[1] and count else known[:0]
        parts = [(self._directions[part] @ self._directions[known].T).topk(count).indices for part in new.split(1024)]
        return new, known[torch.cat(parts)] if parts else known.new_empty(0, count)

    @cached_property
    def _vectors(self) -> Tensor:
        """``(n, width)``: the input vectors of all items, kept until the weights change."""
        return self.embed(torch.arange(len(self), device=self.codes.device))

    def train(self, mode: bool = True) -> Self:
        """Set the mode. What was computed of the weights is computed anew after training."""
        if mode:
            self._forget()
        return super().train(mode)

    def _forget(self, *_: object) -> None:
        for name in ("trie", "_paths", "_offsets", "_directions", "_nearest_known", "_vectors"):
            self.__dict__.pop(name, None)

    def _apply(self, *args: object, **kwargs: object) -> Self:
        self._forget()  # it is on the device of the codes
        return super()._apply(*args, **kwargs)

    @torch.no_grad()
    def _reduce(self, vectors: Tensor) -> None:
        """Keep the principal components of the text vectors, scaled to a mean square of 1."""
        self.text_mean.copy_(vectors.mean(0))
        centred = vectors - self.text_mean
        axes = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, : self.text_map.shape[1]]
        # The sign of an eigenvector is arbitrary: the largest entry is made positive.
        axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
        scale = (centred @ axes).square().mean().sqrt().clamp(min=1e-12)
        self.text_map.copy_(axes / scale)
        self.text.copy_(centred @ self.text_map)


def _small(embedding: nn.Embedding, scale: float) -> nn.Embedding:
    nn.init.normal_(embedding.weight, std=0.02 / scale)
    return embedding


def _check_parts(config: RecommenderConfig) -> None:
    if not config.inputs or not config.outputs:
        raise ValueError("a recommender needs at least one of inputs and one of outputs")
    if config.generator == "t5" and (config.inputs, config.outputs) != (("codes",), ("codes",)):
        raise ValueError("generator t5 has codes alone as inputs and as outputs")
    if not config.sizes and "codes" in (*config.inputs, *config.outputs):
        raise ValueError("inputs or outputs name codes, but there are no codes: leave them out, or give sizes")
    if not config.text_dim and "text" in config.inputs:
        raise ValueError("inputs name text, but the items have no text vectors: leave it out, or give text_dim")
    if config.pairs and "items" not in config.outputs:
        raise ValueError("a memory goes with the output 'items': name it, or leave out pairs")
    if config.titles and len(config.titles) != len(config.keys):
        raise ValueError(f"expected a title for each of {len(config.keys)} items, got {len(config.titles)}")


def _check_codes(codes: Tensor, config: RecommenderConfig) -> None:
    if codes.shape != (len(config.keys), len(config.sizes)):
        raise UserError(
            f"the model has {len(config.keys):,} items with IDs of {len(config.sizes)} codes, got IDs of shape "
            f"{tuple(codes.shape)}: the model and the catalogue do not belong together"
        )
    for stage, size in enumerate(config.sizes):
        high = int(codes[:, stage].max())
        if high >= size:
            last = stage == len(config.sizes) - 1
            what = "the tie-break token" if last else f"stage {stage + 1}"
            remedy = (
                "train with a larger ids.tie_break" if last else "use the tokenizer that the model was trained with"
            )
            raise UserError(f"{what} of an ID has code {high}, but the model knows {size} (0 to {size - 1}): {remedy}")
    if config.sizes and len(torch.unique(codes, dim=0)) < len(codes):
        raise UserError(
            "several items have the same ID, so that generated codes would not name one: resolve collisions first "
            "(ghrq.ids.resolve, ghrq encode --collisions append)"
        )
