"""What a quantizer returns."""

from typing import NamedTuple

from torch import Tensor


class Quantized(NamedTuple):
    """``z_hat, codes, loss = rq(z)``."""

    z_hat: Tensor
    """The shape and type of the input."""
    codes: Tensor
    """``(..., num_stages)`` int64, coarse to fine."""
    loss: Tensor
    """``()`` codebook loss plus weighted commitment loss, to add to the reconstruction loss."""


class QuantizedDetails(NamedTuple):
    """``rq(z, details=True)``: :class:`Quantized` and what is behind it."""

    z_hat: Tensor
    codes: Tensor
    loss: Tensor
    codebook_loss: Tensor
    """``(num_stages,)`` of each stage, unweighted."""
    commitment_loss: Tensor
    """``(num_stages,)`` of each stage, unweighted."""
    depths: Tensor | None
    """``(...)`` the number of stages that each vector's ``z_hat`` uses; None without depth dropout."""
