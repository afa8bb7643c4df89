"""A prior over grids of code tuples: one Transformer over the positions, one over the stages of each position.

``p(codes) = Π_t Π_d p(code_{t,d} | all tuples before t, code_{t,1} … code_{t,d-1})``, positions t in raster order.

The codes so far enter as the vector that the quantizer decodes them to (its :meth:`prefixes`), not as an embedding of
the codes: the prior sees the geometry of the codes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.nets.draw import check_draw, draw
from ghrq.nets.layer import Layer, check_sizes, layers_of, without_autocast
from ghrq.quantizer import ResidualQuantizer
from ghrq.system.checks import at_least, check_codes, check_vectors, stage_sizes


class RQTransformer(nn.Module):
    """The probabilities of grids of code tuples, tuple after tuple and stage after stage.

    With prefix reconstructions ``ẑ_{t,d}`` (``ẑ_{t,N}`` the full one), place embeddings ``p``, stage embeddings ``s``::

        h_t      = spatial(x_1 … x_t),        x_1 = start (or that of the class) + p_1,  x_t = A ẑ_{t-1,N} + p_t
        logits_d = head_d(depth(y_1 … y_d)),  y_1 = h_t + s_1,                           y_d = B ẑ_{t,d-1} + s_d

    Each stage has a head of its own. All positions and stages are learnt in parallel. Norms come first in each branch;
    gelu; under autocast it works in the type of its parameters. Call :meth:`standardize` before training.

    Args:
        dim: of the quantizer's vectors.
        codebook_size: K, the number of codes of each stage: one for all, or one for each.
        num_stages: N, the length of a tuple.
        positions: T, the number of tuples of a grid.
        width: of the Transformers; a multiple of ``heads``. Their feed-forward networks are 4 times as wide.
        spatial_layers: of the Transformer over positions.
        depth_layers: of the Transformer over stages.
        heads: of each attention.
        dropout: on the output of every branch; in steps of 1/256.
        classes: number of classes of grids; 0 without labels.

    """

    centre: Tensor
    spread: Tensor

    def __init__(
        self,
        dim: int,
        codebook_size: int | Sequence[int],
        num_stages: int,
        positions: int,
        *,
        width: int = 256,
        spatial_layers: int = 4,
        depth_layers: int = 4,
        heads: int = 8,
        dropout: float = 0.1,
        classes: int = 0,
    ) -> None:
        super().__init__()
        sizes = {"dim": dim, "positions": positions, "spatial_layers": spatial_layers, "depth_layers": depth_layers}
        check_sizes(width=width, heads=heads, dropout=dropout, **sizes)
        at_least("classes", classes, 0, whole=True)
        self.sizes = stage_sizes(codebook_size, num_stages)
        self.dim, self.codebook_size, self.num_stages, self.positions = dim, codebook_size, num_stages, positions
        self.width, self.attention_heads, self.classes = width, heads, classes

        def layers(count: int) -> nn.ModuleList:
            return nn.ModuleList(Layer(width, 4 * width, dropout, count, "gelu") for _ in range(count))

        self.register_buffer("centre", torch.zeros(dim))
        self.register_buffer("spread", torch.ones(()))
        self.start = nn.Parameter(torch.randn(max(1, classes), width) * 0.02)
        self.places = nn.Parameter(torch.randn(positions, width) * 0.02)
        self.stages = nn.Parameter(torch.randn(num_stages, width) * 0.02)
        self.spatial_input, self.depth_input = (nn.Linear(dim, width, bias=False) for _ in range(2))
        self.spatial, self.depth = layers(spatial_layers), layers(depth_layers)
        self.spatial_norm, self.depth_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        # Small, so that the initial loss is that of uniform codes.
        self.heads = nn.Parameter(torch.randn(num_stages, width, max(self.sizes)) * 0.02)

    @torch.no_grad()
    def standardize(self, prefixes: Tensor) -> None:
        """Standardize inputs by the mean and spread of ``prefixes (..., dim)``; both are saved with the model.

        The length of the quantizer's vectors depends on its kind and encoder; that of the embeddings of positions and
        stages does not. One spread for all directions keeps angles unchanged.
        """
        check_vectors(prefixes, self.dim, None)
        rows = prefixes.reshape(-1, self.dim).double()
        centre = rows.mean(0)
        spread = (rows - centre).square().mean().sqrt()
        if not spread > 0.0:
            raise ValueError(f"expected prefixes that differ, got {len(rows)} equal ones")
        self.centre.copy_(centre)
        self.spread.copy_(spread)

    @without_autocast
    def forward(self, prefixes: Tensor, codes: Tensor, labels: Tensor | None = None) -> Tensor:
        """Mean cross-entropy of each stage ``(N,)`` in nats; their sum is that of a tuple.

        ``prefixes (B, T, N, dim)`` are the quantizer's :meth:`prefixes` of ``codes (B, T, N)`` int64, ``labels (B,)``
        int64 the classes, if the model has any.
        """
        check_codes(codes, self.num_stages, self.sizes)
        if codes.shape != prefixes.shape[:-1]:
            raise ValueError(
                f"expected a code for each prefix, got prefixes {tuple(prefixes.shape)} and codes {tuple(codes.shape)}"
            )
        logits = self._logits(prefixes, labels)
        wanted = codes.flatten(0, 1).t().flatten().long()
        losses = F.cross_entropy(logits.flatten(0, 1), wanted, reduction="none")
        return losses.view(self.num_stages, -1).mean(1)

    @without_autocast
    def logits(self, prefixes: Tensor, labels: Tensor | None = None) -> Tensor:
        """``(B, T, N, K)``: of each code, given those before it; arguments as in :meth:`forward`.

        K is that of the largest stage; beyond the codes of a stage they are minus infinity.
        """
        logits = self._logits(prefixes, labels)
        return logits.view(self.num_stages, *prefixes.shape[:2], -1).permute(1, 2, 0, 3)

    @without_autocast
    @torch.no_grad()
    def sample(
        self,
        count: int,
        quantizer: ResidualQuantizer,
        *,
        labels: Tensor | None = None,
        temperature: float | Sequence[float] = 1.0,
        top_k: int | Sequence[int] = 0,
        top_p: float | Sequence[float] = 1.0,
        generator: torch.Generator | None = None,
        batch: int = 256,
        progress: Callable[[int], object] | None = None,
    ) -> Tensor:
        """``count`` grids of codes ``(count, T, N)`` int64 of ``quantizer``, ``batch`` at a time. Dropout is off.

        ``labels (count,)`` int64 are the classes, if the model has any. ``temperature``, ``top_k`` and ``top_p`` of
        :func:`ghrq.nets.draw.draw` are one for all stages or one for each; ``generator`` is by default torch's own.
        ``progress`` is called with the number of grids just made.
        """
        at_least("count", count, 1, whole=True)
        at_least("batch", batch, 1, whole=True)
        if (quantizer.dim, quantizer.sizes) != (self.dim, self.sizes):
            raise ValueError(
                f"expected a quantizer of dim={self.dim}, codebook_size={self.codebook_size}, "
                f"num_stages={self.num_stages} as the model has, got "
                f"{(quantizer.dim, quantizer.codebook_size, quantizer.num_stages)}"
            )
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        by_name = (self._for_each_stage(name, value) for name, value in given.items())
        options: list[tuple[float, int, float]] = list(zip(*by_name, strict=True))
        for option in options:
            check_draw(*option)
        starts = self._starts(labels, count)
        training = self.training
        self.eval()
        parts = []
        try:
            for part in starts.split(batch):
                parts.append(self._sample(part, quantizer, options, generator))
                if progress is not None:
                    progress(len(part))
        finally:
            self.train(training)
        return torch.cat(parts)

    # --- inside --------------------------------------------------------------------------------------------

    def _logits(self, prefixes: Tensor, labels: Tensor | None) -> Tensor:
        """``(N, B·T, K)``: the order in which each stage's head is one product."""
        check_vectors(prefixes, self.dim, None)
        if prefixes.dim() != 4 or prefixes.shape[1:3] != (self.positions, self.num_stages) or not len(prefixes):
            raise ValueError(
                f"expected prefixes of shape (B, {self.positions}, {self.num_stages}, {self.dim}), "
                f"got shape {tuple(prefixes.shape)}"
            )
        prefixes = self._standard(prefixes)
        starts = self._starts(labels, len(prefixes)).unsqueeze(1)
        x = torch.cat((starts, self.spatial_input(prefixes[:, :-1, -1])), dim=1) + self.places
        h = self.spatial_norm(self._causal(self.spatial, x)).view(-1, 1, self.width)
        y = torch.cat((h, self.depth_input(prefixes[:, :, :-1].flatten(0, 1))), dim=1) + self.stages
        logits = torch.bmm(self.depth_norm(self._causal(self.depth, y)).transpose(0, 1), self.heads)
        if len(set(self.sizes)) == 1:
            return logits
        beyond = torch.arange(logits.shape[-1]) >= torch.tensor(self.sizes).view(-1, 1, 1)
        return logits.masked_fill(beyond.to(logits.device), -torch.inf)

    def _standard(self, prefixes: Tensor) -> Tensor:
        return (prefixes.to(self.places.dtype) - self.centre) / self.spread

    def _causal(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        """All layers on sequences ``x (B, L, width)``, each row attending to itself and those before it."""
        for layer in layers_of(layers):
            q, kv = layer.project(x)
            k, v = self._split(kv, 2)
            attended = F.scaled_dot_product_attention(self._split(q, 1)[0], k, v, is_causal=True)
            x = layer.finish(x, attended.transpose(1, 2).flatten(2))
        return x

    def _split(self, rows: Tensor, parts: int) -> Tensor:
        """``rows (B, L, parts·width)`` by heads: ``(parts, B, heads, L, ·)``."""
        return rows.unflatten(2, (parts, self.attention_heads, -1)).permute(2, 0, 3, 1, 4)

    def _starts(self, labels: Tensor | None, count: int) -> Tensor:
        """The inputs of the first position: ``(count, width)``."""
        if not self.classes:
            if labels is not None:
                raise ValueError("this model has no classes, got labels: make it with classes=… or leave them out")
            return self.start.expand(count, -1)
        if labels is None:
            raise ValueError(f"this model has {self.classes} classes: give labels of shape ({count},)")
        if labels.shape != (count,) or labels.dtype.is_floating_point or labels.dtype == torch.bool:
            raise ValueError(
                f"expected whole-number labels of shape ({count},), got {labels.dtype} of shape {tuple(labels.shape)}"
            )
        if labels.device.type == "cpu" and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise ValueError(
                f"labels must be from 0 to {self.classes - 1}, got {int(labels.min())} to {int(labels.max())}"
            )
        return F.embedding(labels.long(), self.start)

    def _for_each_stage(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, Sequence):
            return [value] * self.num_stages
        if len(value) != self.num_stages:
            raise ValueError(
                f"{name} must be one number or one for each of the {self.num_stages} stages, got {len(value)}"
            )
        return list(value)

    def _sample(
        self,
        x: Tensor,
        quantizer: ResidualQuantizer,
        options: Sequence[tuple[float, int, float]],
        generator: torch.Generator | None,
    ) -> Tensor:
        """Grids ``(B, T, N)`` after starts ``x (B, width)``; ``options`` of :func:`draw` for each stage."""
        codes = torch.empty(len(x), self.positions, self.num_stages, dtype=torch.int64, device=x.device)
        # Keys and values so far; those of the stages are overwritten at each position.
        heads = self.attention_heads
        before, above = (
            [x.new_zeros(2, len(x), heads, length, self.width // heads) for _ in layers]
            for layers, length in ((self.spatial, self.positions), (self.depth, self.num_stages))
        )
        for position in range(self.positions):
            x = self._step(self.spatial, before, x + self.places[position], position)
            y = self.spatial_norm(x)
            for stage in range(self.num_stages):
                y = self._step(self.depth, above, y + self.stages[stage], stage)
                logits = self.depth_norm(y) @ self.heads[stage, :, : self.sizes[stage]]
                codes[:, position, stage] = draw(logits, *options[stage], generator)
                prefix = self._standard(quantizer.decode(codes[:, position, : stage + 1]))
                y = self.depth_input(prefix)
            x = self.spatial_input(prefix)
        return codes

    def _step(self, layers: nn.ModuleList, memories: list[Tensor], x: Tensor, place: int) -> Tensor:
        """All layers on the row at ``place`` of each sequence: ``x (B, width)``; its keys and values are cached."""
        x = x.unsqueeze(1)
        for layer, memory in zip(layers_of(layers), memories, strict=True):
            q, kv = layer.project(x)
            memory[:, :, :, place] = self._split(kv, 2).squeeze(3)
            k, v = memory[:, :, :, : place + 1]
            attended = F.scaled_dot_product_attention(self._split(q, 1)[0], k, v)
            x = layer.finish(x, attended.transpose(1, 2).flatten(2))
        return x.squeeze(1)
