"""A causal Transformer over sequences of vectors: the state at a place knows what came before and the place itself."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.nets.layer import Layer, check_sizes, layers_of


class CausalEncoder(nn.Module):
    """Transformer ``(B, T, width)`` -> ``(B, T, width)``, norms first in each branch. Padding is at the end.

    Args:
        width: of the vectors; a multiple of ``heads``.
        length: the longest T.
        layers: number of layers.
        heads: of each attention.
        feedforward: the inner width of the feed-forward networks.
        dropout: on the input and on the output of every branch.

    """

    def __init__(self, width: int, length: int, layers: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        check_sizes(width=width, heads=heads, dropout=dropout, length=length, layers=layers, feedforward=feedforward)
        self.heads = heads
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, feedforward, dropout, layers, "gelu") for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """The states of ``x (B, T, width)``. Padding at the end of a sequence changes no state before it."""
        count, length = x.shape[:2]
        x = self.dropout(x + self.positions[:length])
        for layer in layers_of(self.layers):
            q, kv = layer.project(x)
            q = q.view(count, length, self.heads, -1).transpose(1, 2)
            k, v = kv.view(count, length, self.heads, -1).transpose(1, 2).chunk(2, dim=-1)
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = layer.finish(x, found.transpose(1, 2).flatten(2))
        return self.norm(x)
