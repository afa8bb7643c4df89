"""A Transformer encoder and decoder from the code tuple of one item to the code tuples of others."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.nets.layer import Layer, check_sizes, layers_of, without_autocast
from ghrq.nets.tree_attention import attend, layout
from ghrq.system.checks import check_codes, stage_sizes

# Sources per attention matrix of the encoder: one tuple alone would give products of 4×4 matrices.
_SIDE_BY_SIDE = 8


class PrefixTrees(NamedTuple):
    """The distinct prefixes of all targets of each of ``B`` sources, shortest first: ``R`` nodes of ``B`` trees."""

    token: Tensor
    """``(R,)`` int64: the last token of each prefix, as a row of the decoder's table."""
    source: Tensor
    """``(R,)`` int64."""
    ancestors: Tensor
    """``(2, A)`` int64: pairs (node, its ancestor or itself)."""
    node_of: list[Tensor]
    """For each stage ``(T,)`` int64: the node whose output predicts the target's code, counted within its depth."""
    sizes: list[int]
    """The number of nodes of each depth."""


def prefixes(targets: Tensor, source_of: Tensor, num_sources: int, codebook_size: int) -> PrefixTrees:
    """The trees of ``targets (T, N)``; ``source_of (T,)`` are their sources. The root of a tree is the start token."""
    device, node = targets.device, source_of
    tokens, sources = [torch.zeros_like(node[:1]).expand(num_sources)], [torch.arange(num_sources, device=device)]
    lines, node_of, start = [sources[0].unsqueeze(0)], [node], num_sources
    for stage in range(targets.shape[1] - 1):
        distinct, node = torch.unique(node * codebook_size + targets[:, stage], return_inverse=True)
        parent = distinct // codebook_size
        tokens.append(1 + stage * codebook_size + distinct % codebook_size)
        sources.append(sources[-1].index_select(0, parent))
        own = torch.arange(start, start + distinct.shape[0], device=device)
        lines.append(torch.cat((lines[-1].index_select(1, parent), own.unsqueeze(0))))
        node_of.append(node)
        start += distinct.shape[0]
    pairs = [torch.stack((line[-1].expand_as(line), line)).flatten(1) for line in lines]
    return PrefixTrees(
        torch.cat(tokens), torch.cat(sources), torch.cat(pairs, dim=1), node_of, [len(t) for t in tokens]
    )


class Search(NamedTuple):
    """The state of the decoder for ``B`` sources during a search."""

    table: Tensor
    """``(·, width)`` the rows of the decoder's tokens."""
    projected: tuple[Tensor, Tensor]
    """The same as queries, and as keys and values, of its first layer."""
    seen: list[Tensor]
    """For each layer ``(Q·B, 2·width)`` keys and values: of the source, then of all prefixes so far, in their order."""


class TupleTranslator(nn.Module):
    """Transformer from a source tuple ``(N,)`` of codes to target tuples: their probabilities, code after code.

    Each stage has its own slice of one token table, which source, target and output share; the logits of a stage are
    over that stage's codes only. Norms come first in each branch. A decoder layer attends once, to the source's tokens
    and the target's prefix together. Each distinct prefix of a source's targets is computed once, so all targets of a
    source belong in one batch; a batch of some 256 sources keeps its tensors in the cache. Under autocast it works in
    the type of its parameters.

    Args:
        num_stages: N, the length of a tuple.
        codebook_size: K, the number of codes of each stage: one for all, or one for each.
        width: of the token vectors; a multiple of ``heads``.
        layers: number of layers of the encoder, and of the decoder.
        heads: of each attention.
        feedforward: the inner width of the feed-forward networks.
        dropout: on the output of every branch; in steps of 1/256.

    """

    def __init__(
        self,
        num_stages: int,
        codebook_size: int | Sequence[int],
        width: int = 256,
        layers: int = 4,
        heads: int = 8,
        feedforward: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_sizes(width=width, heads=heads, dropout=dropout, layers=layers, feedforward=feedforward)
        self.sizes = stage_sizes(codebook_size, num_stages)
        self.num_stages, self.codebook_size, self.width, self.heads = num_stages, max(self.sizes), width, heads
        self.tokens = nn.Parameter(torch.randn(num_stages, self.codebook_size, width) * width**-0.5)
        self.start = nn.Parameter(torch.randn(1, width) * width**-0.5)
        self.source_positions = nn.Parameter(torch.randn(num_stages, 1, width) * width**-0.5)
        self.target_positions = nn.Parameter(torch.randn(num_stages, 1, width) * width**-0.5)
        self.encoder = nn.ModuleList(Layer(width, feedforward, dropout, layers) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, feedforward, dropout, layers) for _ in range(layers))
        self.source_norm, self.target_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        # Keys and values of the source for all layers of the decoder in one product.
        self.memory = nn.Linear(width, layers * 2 * width, bias=False)
        nn.init.normal_(self.memory.weight, std=width**-0.5)

    def forward(self, source: Tensor, targets: Tensor, source_of: Tensor) -> Tensor:
        """The loss: mean negative log-probability of a code, in nats, over all targets and stages; a scalar.

        ``source (B, N)`` int64, ``targets (T, N)`` int64, ``source_of (T,)`` int64: which source each target is of.
        """
        return -self.log_probability(source, targets, source_of).mean() / self.num_stages

    @without_autocast
    def log_probability(self, source: Tensor, targets: Tensor, source_of: Tensor) -> Tensor:
        """``(T,)``: the log-probability of each whole target tuple; arguments as in :meth:`forward`."""
        self._check(source, targets, source_of)
        tree = prefixes(targets, source_of, source.shape[0], self.codebook_size)
        where = layout(tree.source, tree.ancestors, source.shape[0], self.num_stages)
        memory = self._encode(source).index_select(0, where.context).split(2 * self.width, dim=1)
        token = tree.token.new_zeros(where.places).index_copy_(0, where.place, tree.token)
        table = self._target_table()
        x, (q, kv) = _look_up(token, table, self._project(self.decoder, table))
        for index, layer in enumerate(layers_of(self.decoder)):
            q, kv = layer.project(x) if index else (q, kv)
            x = layer.finish(x, attend(q, kv, memory[index], where.masks, self.heads))
        total = x.new_zeros(targets.shape[0])
        for stage, (place, node) in enumerate(zip(where.place.split(tree.sizes), tree.node_of, strict=True)):
            logits = self._logits(x.index_select(0, place), stage)
            chosen = logits.view(-1).index_select(0, node * self.sizes[stage] + targets[:, stage])
            total = total + chosen - logits.logsumexp(-1).index_select(0, node)
        return total

    @without_autocast
    def begin(self, source: Tensor) -> Search:
        """Read ``source (B, N)`` int64, ready for :meth:`grow`."""
        self._check(source, source, torch.arange(len(source), device=source.device))
        table = self._target_table()
        memory = self._encode(source).view(*source.shape, -1).transpose(0, 1).flatten(0, 1)
        return Search(table, self._project(self.decoder, table), list(memory.split(2 * self.width, dim=1)))

    @without_autocast
    def grow(self, state: Search, codes: Tensor | None, stage: int, seen: Tensor) -> Tensor:
        """Log-probabilities ``(B, M, sizes[stage])`` of the codes of ``stage`` after M prefixes of each source.

        Args:
            state: of :meth:`begin`; the prefixes are added to it.
            codes: ``(B, M)`` int64, the last code of each prefix; None for the start of all, where M is 1.
            stage: of the codes to come: how long the prefixes are.
            seen: ``(B, M, Q + M)`` bool: which tokens of the source, earlier prefixes and these a prefix consists of.

        """
        b, m = seen.shape[:2]
        token = seen.new_zeros(b, dtype=torch.int64) if codes is None else self._token(codes, stage - 1).t().flatten()
        mask = torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -torch.inf).unsqueeze(1)
        x, (q, kv) = _look_up(token, state.table, state.projected)
        for index, layer in enumerate(layers_of(self.decoder)):
            q, kv = layer.project(x) if index else (q, kv)
            x = layer.finish(x, attend(q, kv, state.seen[index], [mask], self.heads))
            state.seen[index] = torch.cat((state.seen[index], kv))
        return self._logits(x, stage).log_softmax(-1).view(m, b, -1).transpose(0, 1)

    def _encode(self, source: Tensor) -> Tensor:
        """Keys and values ``(B·N, layers·2·width)`` of sources ``(B, N)`` for the decoder."""
        count, stages = source.shape
        groups = -(-count // _SIDE_BY_SIDE)
        together = F.pad(source, (0, 0, 0, groups * _SIDE_BY_SIDE - count)).view(groups, _SIDE_BY_SIDE, stages)
        token = self._token(together, torch.arange(stages, device=source.device)).flatten(1).t().flatten()
        whose = torch.arange(_SIDE_BY_SIDE, device=source.device).repeat_interleave(stages)
        apart = whose != whose.unsqueeze(1)
        mask = torch.zeros(1, 1, *apart.shape, device=source.device).masked_fill_(apart, -torch.inf)
        table = torch.cat((self.start, (self.tokens + self.source_positions).flatten(0, 1)))
        x, (q, kv) = _look_up(token, table, self._project(self.encoder, table))
        for index, layer in enumerate(layers_of(self.encoder)):
            q, kv = layer.project(x) if index else (q, kv)
            x = layer.finish(x, attend(q, kv, kv[:0], [mask], self.heads))
        memory = self.memory(self.source_norm(x))
        return memory.view(len(whose), groups, -1).transpose(0, 1).flatten(0, 1)[: count * stages]

    def _token(self, codes: Tensor, stage: int | Tensor) -> Tensor:
        """Codes as rows of a table, of which the start token is the first."""
        return codes + (1 + stage * self.codebook_size)

    def _target_table(self) -> Tensor:
        """``(1 + (N-1)·K, width)``: the start token and all codes that another one may follow."""
        codes = self.tokens[:-1] + self.target_positions[1:]
        return torch.cat((self.start + self.target_positions[0], codes.flatten(0, 1)))

    @staticmethod
    def _project(layers: nn.ModuleList, table: Tensor) -> tuple[Tensor, Tensor]:
        """The first layer's projections of all rows of the table, instead of every token of a batch."""
        return layers_of(layers)[0].project(table)

    def _logits(self, x: Tensor, stage: int) -> Tensor:
        return self.target_norm(x) @ self.tokens[stage, : self.sizes[stage]].mT

    def _check(self, source: Tensor, targets: Tensor, source_of: Tensor) -> None:
        for name, codes in (("source", source), ("targets", targets)):
            check_codes(codes, self.num_stages, self.sizes)
            if codes.dim() != 2 or codes.shape[1] != self.num_stages or not len(codes):
                raise ValueError(f"expected {name} of shape (·, {self.num_stages}), got shape {tuple(codes.shape)}")
        if source_of.shape != targets.shape[:1]:
            raise ValueError(
                f"expected source_of of shape ({len(targets)},), a source for each target, "
                f"got shape {tuple(source_of.shape)}"
            )
        if source_of.device.type == "cpu" and not 0 <= int(source_of.min()) <= int(source_of.max()) < len(source):
            raise ValueError(
                f"source_of must be from 0 to {len(source) - 1}: there are {len(source)} sources, "
                f"got {int(source_of.min())} to {int(source_of.max())}"
            )


def _look_up(token: Tensor, table: Tensor, projected: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    q, kv = projected
    return F.embedding(token, table), (F.embedding(token, q), F.embedding(token, kv))
