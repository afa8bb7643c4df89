"""The module inside a fitted tokenizer, and its settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.nets.mlp import MLP
from ghrq.quantizer import KINDS, ResidualQuantizer
from ghrq.quantizer.kinds import Kind
from ghrq.system import memory
from ghrq.system.checks import at_least, count_stages, inside, is_bool, one_of
from ghrq.system.pretrained import digest
from ghrq.system.settings import Precision
from ghrq.tokenizer.standard import Standard

EngineName = Literal["kmeans", "autoencoder", "rq-vae"]

# Small groups of embeddings are meaningful: only codes that are almost never used are revived. Codes that begin at
# random are mostly far from all vectors: those of an RQ-VAE are revived sooner.
_REVIVE_BELOW, _REVIVE_RANDOM_BELOW = 0.01, 0.1


# With k-means, larger ones only cost error: docs/results/calibrated.md. The losses of a network are in units of the
# ball, so that their weight depends on the radius.
_KMEANS_RADIUS, _NETWORK_RADIUS = 0.3, 0.5


@dataclass(frozen=True)
class Settings:
    """The parameters of :class:`ghrq.Tokenizer`, checked."""

    kind: Kind
    num_stages: int
    codebook_size: int | list[int]
    engine: EngineName
    curvature: float
    standardize: bool
    iterations: int
    hidden: Sequence[int]
    latent_dim: int
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    radius: float | None = 0.5  # was so in the files of ghrq 0.1.0, which do not have it, nor the next ones
    quantizer_weight: float = 0.1
    commitment_weight: float = 0.25
    codebook_rate: float | None = None
    reconstruction_weight: float = 1.0
    balance: bool = False
    refine: int = 0
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        one_of("kind", self.kind, tuple(KINDS))
        one_of("engine", self.engine, get_args(EngineName))
        one_of("precision", self.precision, get_args(Precision))
        for name in ("iterations", "latent_dim", "epochs", "batch_size"):
            at_least(name, getattr(self, name), 1, whole=True)
        object.__setattr__(self, "num_stages", count_stages(self.codebook_size, self.num_stages))
        if isinstance(self.codebook_size, Sequence):
            object.__setattr__(self, "codebook_size", list(self.codebook_size))  # as JSON has it
        for name in ("curvature", "learning_rate", "quantizer_weight", "commitment_weight", "reconstruction_weight"):
            at_least(name, getattr(self, name), 0)
        if self.codebook_rate is not None:
            at_least("codebook_rate", self.codebook_rate, 0)
        at_least("seed", self.seed, 0, whole=True)
        usual = _KMEANS_RADIUS if self.engine == "kmeans" else _NETWORK_RADIUS
        radius = usual if self.radius is None else self.radius
        inside("radius", radius, 0.0, 1.0)
        object.__setattr__(self, "radius", radius)
        at_least("refine", self.refine, 0, whole=True)
        if self.refine and (self.balance or self.engine != "kmeans"):
            with_ = "balance=True" if self.balance else f"engine={self.engine!r}"
            raise ValueError(f"refine={self.refine} is of plain k-means and does not go with {with_}: leave one out")
        for name in ("standardize", "balance"):
            is_bool(name, getattr(self, name))
        if self.balance and self.engine == "rq-vae":
            raise ValueError('balance=True is of k-means, which engine="rq-vae" does not start from: leave one out')
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence):
            raise ValueError(f"hidden must be a list of layer sizes such as (512, 256, 128), got {self.hidden!r}")
        for size in self.hidden:
            at_least("each size of hidden", size, 1, whole=True)
        object.__setattr__(self, "hidden", tuple(self.hidden))  # so that equal lists and tuples compare equal


class LinearPlusMLP(MLP):
    """``direct · x`` plus an :class:`MLP` that begins at 0: ``(..., sizes[0])`` -> ``(..., sizes[-1])``.

    So it begins as any linear map that ``direct (sizes[-1], sizes[0])`` is set to.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(sizes)
        self.direct = nn.Parameter(torch.zeros(sizes[-1], sizes[0]))
        last = self[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both."""
        return F.linear(x, self.direct) + super().forward(x)


class Model(nn.Module):
    """Vectors -> standardised -> encoder -> quantizer, and back.

    With ``engine="kmeans"`` encoder and decoder are the identity, with ``"rq-vae"`` plain MLPs. ``seen ()``
    counts the rows it was fitted on.
    """

    seen: Tensor

    def __init__(self, features: int, settings: Settings) -> None:
        super().__init__()
        network, plain = settings.engine != "kmeans", settings.engine == "rq-vae"
        made = MLP if plain else LinearPlusMLP
        sizes = [features, *settings.hidden, settings.latent_dim]
        if network:
            weights = features * settings.latent_dim + sum(given * to for given, to in pairwise(sizes))
            told = f"networks of hidden={settings.hidden}, latent_dim={settings.latent_dim}"
            memory.check_room(2 * 4 * weights, told, "lower one of them")
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.standard = Standard(features)
        self.encoder: nn.Module = made(sizes) if network else nn.Identity()
        self.decoder: nn.Module = made(sizes[::-1]) if network else nn.Identity()
        # Scale control in flat space, too, where it only changes units: so losses have the same weight everywhere.
        self.quantizer = ResidualQuantizer(
            settings.latent_dim if network else features,
            settings.codebook_size,
            settings.num_stages,
            settings.kind,
            settings.curvature,
            settings.commitment_weight,
            codebook_update="gradient" if network else "ema",
            revive_below=_REVIVE_RANDOM_BELOW if plain else _REVIVE_BELOW,
            radius=None if plain else settings.radius,
        )

    def latent(self, x: Tensor) -> Tensor:
        """The input of the quantizer: ``x (n, features)`` -> ``(n, dim)`` float32."""
        return self.encoder(self.standard(x))

    def vectors(self, z: Tensor) -> Tensor:
        """Decode the quantizer's vectors ``(..., dim)`` -> ``(..., features)`` float32."""
        return self.standard.undo(self.decoder(z))

    def fingerprint(self) -> str:
        """A SHA-256 of the parameters: equal if codes mean the same, whenever and wherever the model was made."""
        rq = self.quantizer
        weights = {name: tensor for name, tensor in self.state_dict().items() if name != "seen"}
        return digest(f"{rq.curvature!r} {rq.aggregation}", weights)

    def _load_from_state_dict(self, state_dict: dict[str, Any], *args: Any) -> None:
        networks = {
            f"{name}.direct": part.direct for name, part in self.named_children() if isinstance(part, LinearPlusMLP)
        }
        if not networks.keys() & state_dict.keys():  # of ghrq 0.1.0, whose networks had no linear part
            state_dict.update({name: torch.zeros_like(direct) for name, direct in networks.items()})
        super()._load_from_state_dict(state_dict, *args)
