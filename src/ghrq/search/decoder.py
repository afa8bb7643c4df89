"""From codes to vectors, as search needs it: around a centre, and as a plain sum where the tokenizer is flat."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ghrq.system.errors import UserError

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer

Codes = npt.NDArray[np.integer]


class Sum(NamedTuple):
    """A flat tokenizer: the decoded vector minus the centre is ``Σ_i book_i[code_i]``."""

    books: Tensor
    """``(Σ sizes, d)`` float32: the codebooks of all stages, one after the other, in units of the vectors."""
    offsets: npt.NDArray[np.int32]
    """``(N,)`` where the book of each stage starts."""

    def numbers(self, codes: Codes) -> Tensor:
        """``codes (n, m)`` -> ``(n, m)`` int32, their rows in ``books``."""
        return torch.from_numpy(np.add(codes, self.offsets[: codes.shape[1]], dtype=np.int32, casting="unsafe"))


class Decoder:
    """Decodes the IDs of ``tokenizer`` into vectors, minus their ``centre (d,)``.

    Distances are computed around the centre, as ``‖q‖² - 2⟨q, x⟩ + ‖x‖²`` loses its digits far from the origin.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._model, self.quantizer = tokenizer.model_, tokenizer.quantizer_
        self.centre = self._model.standard.mean.float()
        self.sum = self._as_sum()

    @torch.no_grad()
    def __call__(self, codes: Codes) -> Tensor:
        """``codes (n, m)``, m up to the number of stages -> ``(n, d)`` float32."""
        if self.sum is not None:
            return F.embedding_bag(self.sum.numbers(codes), self.sum.books, mode="sum")
        z = self.quantizer.decode(torch.from_numpy(codes.astype(np.int64)))
        return self._model.vectors(z) - self.centre

    def check(self, codes: Codes, where: str) -> Codes:
        """The codes ``(n, N)`` of IDs ``(n, N)`` or, with a tie-break token, ``(n, N + 1)``; others are errors."""
        sizes = np.array(self.quantizer.sizes)
        if codes.ndim != 2 or codes.shape[1] not in (len(sizes), len(sizes) + 1):
            raise UserError(
                f"{where}: expected {len(sizes)} codes an item, and perhaps a tie-break token, got shape "
                f"{codes.shape}: use the tokenizer that made the IDs"
            )
        if codes.dtype.kind not in "iu":
            raise UserError(f"{where}: expected integer codes, got {codes.dtype}: pass what tokenizer.encode returns")
        codes = codes[:, : len(sizes)]
        wrong = np.flatnonzero(((codes < 0) | (codes >= sizes)).any(axis=1))
        if len(wrong):
            raise UserError(
                f"{where}: row {wrong[0]} has codes {codes[wrong[0]].tolist()}, but the sizes of the tokenizer are "
                f"{sizes.tolist()}: use the one that made the IDs"
            )
        return codes.astype(np.min_scalar_type(int(sizes.max()) - 1), copy=False)

    def _as_sum(self) -> Sum | None:
        """In flat space without a network, everything between the codes and the vectors is linear."""
        rq, standard = self.quantizer, self._model.standard
        if rq.curvature > 0.0 or not isinstance(self._model.decoder, nn.Identity):
            return None
        sizes = rq.sizes
        books = torch.cat([rq.codebooks[stage, :size] for stage, size in enumerate(sizes)]).detach().double()
        unit = standard.scale if rq.scale is None else standard.scale / rq.scale().double()
        offsets = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int32)
        return Sum((books * unit).float().contiguous(), offsets)
