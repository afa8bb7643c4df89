"""The residual quantizer: a vector becomes a tuple of codes and the vector that the codes decode to."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn

from ghrq.geometry import ball
from ghrq.geometry.kmeans import kmeans
from ghrq.geometry.manifold import Euclidean, ManifoldParameter, PoincareBall
from ghrq.geometry.nearest import code_table
from ghrq.quantizer import cascade
from ghrq.quantizer.cascade import Aggregation
from ghrq.quantizer.codebook import MovingMidpoints, Usage, forget_moments, initial_codebooks, revive
from ghrq.quantizer.coder import Coder
from ghrq.quantizer.convention import check_convention, convention
from ghrq.quantizer.diagnosis import BOUNDARY_RADIUS
from ghrq.quantizer.routes import Commitment, Gradient, Routed, RowWeights, attached_route, transport_route
from ghrq.quantizer.scale import EncoderScale
from ghrq.system import distributed, memory
from ghrq.system.checks import at_least, check_vectors, from_to, one_of
from ghrq.system.pretrained import Format, Pretrained

Kind = Literal["ghrq", "naive", "euclidean", "hra-only", "dhste-only"]

KINDS: dict[Kind, tuple[Aggregation, Gradient, Commitment]] = {
    "ghrq": ("nested", "transport", "first"),
    "hra-only": ("nested", "identity", "every"),
    "dhste-only": ("chained", "transport", "first"),
    "naive": ("chained", "identity", "every"),
    "euclidean": ("nested", "identity", "first"),
}


class Quantized(NamedTuple):
    """``z_hat, codes, loss = rq(z)``."""

    z_hat: Tensor
    """The shape and type of the input."""
    codes: Tensor
    """``(..., num_stages)`` int64, coarse to fine."""
    loss: Tensor
    """``()`` codebook loss plus weighted commitment loss, to add to the reconstruction loss."""


class ResidualQuantizer(Coder, Pretrained):
    """Quantize vectors into ``num_stages`` codes each, coarse to fine, on the Poincaré ball.

    >>> rq = ResidualQuantizer(dim=32, codebook_size=256, num_stages=4)
    >>> z_hat, codes, loss = rq(torch.randn(8, 100, 32))
    >>> z_hat.shape, codes.shape
    (torch.Size([8, 100, 32]), torch.Size([8, 100, 4]))

    Args:
        dim: size of the vectors.
        codebook_size: codes of each stage.
        num_stages: codes of each vector.
        kind: ``"ghrq"`` (the paper's), ``"naive"``, ``"hra-only"``, ``"dhste-only"`` or ``"euclidean"``: a name for a
            choice of ``aggregation``, ``gradient`` and ``commitment``, each of which can also be given by itself.
        curvature: c of the ball ``{x : c‖x‖² < 1}``. 0, like ``kind="euclidean"``, is the ordinary quantizer of flat
            space, exactly: losses ``‖x - y‖²``, no maps; ``aggregation``, ``gradient``, ``commitment`` and
            ``discount`` make no difference there.
        commitment_weight: β in ``Σ mean d(sg r, q)² + β Σ mean d(r, sg q)²``. Distances are geodesic and squared, the
            sum runs over stages, the mean over vectors. Near the origin of the ball a geodesic is twice as long as
            in flat space, so these losses are 4 times the Euclidean ones there.
        aggregation: ``"nested"`` or ``"chained"``, see :mod:`ghrq.quantizer.cascade`.
        gradient: ``"transport"`` or ``"identity"``, see :mod:`ghrq.quantizer.routes`.
        commitment: which stages pull the encoder: ``"first"`` or ``"every"``; the loss as a number counts all of them.
        discount: ``False`` gives the transported gradient back its factor ``λ_z²`` (for study: it diverges).
        codebook_dim: size of the codes, if not ``dim``: linear maps lead in and out.
        codebook_update: ``"gradient"`` (the codebook loss) or ``"ema"`` (moving midpoints; the codebooks then have no
            gradient and no loss term).
        decay: of the moving averages of usage and midpoints.
        revive_below: in training, codes chosen less often than this, relative to uniform use, move onto random
            residuals of the batch; 0 turns this off. Pass optimisers that keep moments to :meth:`attach`.
        depth_dropout: in training, each entry of the first dimension uses a random number of stages from 1 to
            ``num_stages``: ``z_hat`` is then the decode of that many of its codes.
        scale_control: keep the encoder's median radius at 0.5, see :class:`ghrq.quantizer.scale.EncoderScale`.

    Training mode changes usage, scale, moving midpoints and dead codes in the forward pass, so a step must not run it
    twice: exclude it from gradient checkpointing. Compiled and GPU steps do not check their input for NaN.

    Attributes:
        codebooks: ``(num_stages, codebook_size, codebook_dim)``, a geoopt parameter on the ball; Riemannian
            optimisers (:mod:`ghrq.optim`, ``geoopt.optim``) keep it there, others do not.
        revived: ``(num_stages, codebook_size)`` which codes were revived since the last step of an attached optimiser.

    """

    _format = Format("ghrq-quantizer", "quantizer", plain=True)

    convention: Tensor
    revived: Tensor

    def __init__(
        self,
        dim: int,
        codebook_size: int = 256,
        num_stages: int = 4,
        kind: Kind = "ghrq",
        curvature: float = 1.0,
        commitment_weight: float = 0.25,
        *,
        aggregation: Aggregation | None = None,
        gradient: Gradient | None = None,
        commitment: Commitment | None = None,
        discount: bool = True,
        codebook_dim: int | None = None,
        codebook_update: Literal["gradient", "ema"] = "gradient",
        decay: float = 0.99,
        revive_below: float = 0.1,
        depth_dropout: bool = False,
        scale_control: bool = False,
    ) -> None:
        super().__init__()
        one_of("kind", kind, tuple(KINDS))
        codebook_dim = dim if codebook_dim is None else codebook_dim
        sizes = {"dim": dim, "codebook_size": codebook_size, "num_stages": num_stages, "codebook_dim": codebook_dim}
        for name, number in sizes.items():
            at_least(name, number, 1, whole=True)
        _check_memory(num_stages, codebook_size, codebook_dim, codebook_update == "ema")
        at_least("curvature", curvature, 0)
        at_least("commitment_weight", commitment_weight, 0)
        from_to("decay", decay, 0.0, 1.0)
        from_to("revive_below", revive_below, 0.0, 1.0)
        self.dim, self.codebook_size, self.num_stages = dim, codebook_size, num_stages
        self.codebook_dim = codebook_dim
        self.kind = kind
        self.curvature = 0.0 if kind == "euclidean" else float(curvature)
        defaults = KINDS[kind]
        self.aggregation: Aggregation = one_of("aggregation", aggregation or defaults[0], get_args(Aggregation))
        self.gradient: Gradient = one_of("gradient", gradient or defaults[1], get_args(Gradient))
        self.commitment: Commitment = one_of("commitment", commitment or defaults[2], get_args(Commitment))
        self.discount = discount
        self.commitment_weight = commitment_weight
        self.codebook_update = one_of("codebook_update", codebook_update, ("gradient", "ema"))
        self.revive_below = revive_below
        self.depth_dropout = depth_dropout

        projected = self.codebook_dim != dim
        self.project_in = nn.Linear(dim, self.codebook_dim) if projected else nn.Identity()
        self.project_out = nn.Linear(self.codebook_dim, dim) if projected else nn.Identity()
        manifold = PoincareBall(self.curvature) if self.curvature > 0.0 else Euclidean(ndim=1)
        codebooks = initial_codebooks(num_stages, codebook_size, self.codebook_dim, self.curvature)
        self.codebooks = ManifoldParameter(codebooks, manifold=manifold, requires_grad=codebook_update == "gradient")
        self.usage = Usage(num_stages, codebook_size, decay)
        self.midpoints = MovingMidpoints(codebooks, self.curvature, decay) if codebook_update == "ema" else None
        self.scale = EncoderScale(self.curvature) if scale_control else None
        self.register_buffer("revived", torch.zeros(num_stages, codebook_size, dtype=torch.bool), persistent=False)
        self.register_buffer("convention", convention(self.curvature, self.aggregation))

    # --- training ------------------------------------------------------------------------------------------

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Quantized:
        """Quantize encoder outputs.

        Args:
            z: ``(..., dim)`` any vectors of flat space; the exponential map at the origin takes them to the ball.
            mask: ``(...)`` true for valid vectors. Elsewhere (padding) the output is 0, the codes are meaningless, and
                the vectors have no effect on training.

        Returns:
            ``z_hat (..., dim)`` close to ``z``, ``codes (..., num_stages)``, ``loss ()``.

        ``z_hat`` is ``decode(codes)``: in float64 to the last bit. In float32 the codes are summed in float32 here, in
        float64 there, to keep training steps short. The two agree to about 1e-5 while the distances of a
        tuple's codes from the origin sum to at most 48; codes on the boundary are 17 away.

        """
        check_vectors(z, self.dim, mask)
        if mask is not None:
            z = torch.where(mask.unsqueeze(-1), z, 0.0)
        rows = self._rows(z, mask)
        v = self.project_in(z).reshape(-1, self.codebook_dim)
        with torch.autocast(v.device.type, enabled=False):
            v = self._computable(v)
            if self.scale is not None and self.training:
                self.scale.update(v, rows.weights)
            routed = self._quantize(*self._to_ball(v), rows)
            v_hat = self._from_ball(routed.point, routed.gap)
        z_hat = self.project_out(v_hat.to(z.dtype).reshape(*z.shape[:-1], self.codebook_dim))
        if mask is not None:
            z_hat = torch.where(mask.unsqueeze(-1), z_hat, 0.0)
        return Quantized(z_hat, routed.codes.reshape(*z.shape[:-1], self.num_stages), self._loss(routed))

    def quantize(self, p: Tensor, mask: Tensor | None = None) -> Quantized:
        """:meth:`forward` on points of the ball: ``p (..., codebook_dim)``, no scale control, no linear maps."""
        check_vectors(p, self.codebook_dim, mask)
        if mask is not None:
            p = torch.where(mask.unsqueeze(-1), p, 0.0)
        with torch.autocast(p.device.type, enabled=False):
            points = self._computable(p.reshape(-1, self.codebook_dim))
            points = ball.project(points, self.curvature) if self.curvature > 0.0 else points
            gaps = ball.gap(points.detach(), self.curvature).to(points.dtype)
            routed = self._quantize(points, gaps, self._rows(p, mask))
        codes = routed.codes.reshape(*p.shape[:-1], self.num_stages)
        return Quantized(routed.point.to(p.dtype).reshape(p.shape), codes, self._loss(routed))

    def stage_losses(self, z: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Codebook and commitment loss of each stage, ``(num_stages,)`` each, unweighted; changes no state."""
        check_vectors(z, self.dim, mask)
        if mask is not None:
            z = torch.where(mask.unsqueeze(-1), z, 0.0)
        v = self.project_in(z).reshape(-1, self.codebook_dim)
        with torch.autocast(v.device.type, enabled=False):
            routed = self._route(*self._to_ball(self._computable(v)), self._rows(z, mask, dropout=False))
        return routed.codebook_loss, routed.commitment_loss

    @torch.no_grad()
    def initialize(
        self,
        z: Tensor,
        mask: Tensor | None = None,
        *,
        iterations: int = 10,
        each_stage: Callable[[], object] | None = None,
    ) -> None:
        """Start the codebooks from k-means, stage by stage, on ``z (..., dim)``: at least ``codebook_size`` vectors.

        Sets the encoder scale too. With several processes, those of the first process are used.
        ``each_stage`` is called after each stage: for a progress bar.
        """
        check_vectors(z, self.dim, mask)
        at_least("iterations", iterations, 1, whole=True)
        z = z[mask] if mask is not None else z
        v = self._computable(self.project_in(z).reshape(-1, self.codebook_dim))
        if v.shape[0] < self.codebook_size:
            raise ValueError(
                f"initialize needs at least codebook_size={self.codebook_size} vectors, got {v.shape[0]}: pass more"
            )
        if self.scale is not None:
            self.scale.restart(v)
        r, gap = self._to_ball(v)
        if self.curvature > 0.0 and float(gap.median()) < 1.0 - BOUNDARY_RADIUS**2:
            warnings.warn(
                f"most of these vectors lie beyond radius {BOUNDARY_RADIUS} of the ball, where few codes serve all: "
                "scale them down, or use scale_control=True",
                stacklevel=3,  # past the decorator
            )
        for i in range(self.num_stages):
            self.codebooks[i] = kmeans(r, self.codebook_size, self.curvature, iterations)
            table = code_table(self.codebooks[i : i + 1].to(r.dtype), self.curvature)
            (step,) = cascade.walk(r, gap, table, self.curvature, self.aggregation, 1)
            r = cascade.residual(r, step.code, self.curvature, self.aggregation)
            gap = ball.gap(r, self.curvature).to(r.dtype)
            if each_stage is not None:
                each_stage()
        distributed.broadcast_(self.codebooks.data)
        self.usage.reset()
        if self.midpoints is not None:
            self.midpoints.restart(self.codebooks)

    def attach(self, optimizer: torch.optim.Optimizer) -> torch.utils.hooks.RemovableHandle:
        """Reset the moments of ``optimizer`` for revived codes before each step: they belong to the old positions."""

        def forget(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            forget_moments(optimizer, self.codebooks, self.revived)

        return optimizer.register_step_pre_hook(forget)

    # --- inside --------------------------------------------------------------------------------------------

    def _rows(self, z: Tensor, mask: Tensor | None, dropout: bool = True) -> RowWeights:
        lead = z.shape[:-1]
        count = lead.numel()
        if mask is None:
            weights = torch.full((count,), 1.0 / max(count, 1), device=z.device, dtype=self._dtype(z.dtype))
        else:
            chosen = mask.reshape(-1).to(self._dtype(z.dtype))
            weights = chosen / chosen.sum().clamp(min=1.0)
        depths = None
        if self.depth_dropout and self.training and dropout:
            drawn = torch.randint(1, self.num_stages + 1, lead[:1] or (1,), device=z.device)
            depths = drawn.repeat_interleave(count // max(drawn.numel(), 1))
        return RowWeights(weights, depths)

    def _route(self, points: Tensor, gaps: Tensor, rows: RowWeights) -> Routed:
        given = points, gaps, self.codebooks.to(points.dtype), self._table(points.dtype), self.curvature, rows
        if self.curvature == 0.0 or (self.gradient == "transport" and self.commitment == "first"):
            return transport_route(*given, aggregation=self.aggregation, discount=self.discount)
        return attached_route(
            *given,
            aggregation=self.aggregation,
            gradient=self.gradient,
            commitment=self.commitment,
            discount=self.discount,
        )

    def _quantize(self, points: Tensor, gaps: Tensor, rows: RowWeights) -> Routed:
        routed = self._route(points, gaps, rows)
        if self.training:
            self._learn(routed, rows)
        return routed

    @torch.no_grad()
    def _learn(self, routed: Routed, rows: RowWeights) -> None:
        """Update the state that has no gradient: usage, moving midpoints, dead codes."""
        weights = rows.stages(self.num_stages).mT
        self.usage.update(routed.codes, weights)
        if self.midpoints is not None:
            self.midpoints.update(self.codebooks, routed.codes, routed.residuals, weights)
        frozen = self.midpoints is None and not self.codebooks.requires_grad
        if frozen or self.revive_below == 0.0:
            return
        dead = self.usage.share < self.revive_below
        self.revived.logical_or_(dead)
        if torch.compiler.is_compiling() or bool(dead.any()):
            revive(self.codebooks, dead, routed.residuals, weights)
            self.usage.reset(dead)
            if self.midpoints is not None:
                self.midpoints.restart(self.codebooks, dead)

    def _loss(self, routed: Routed) -> Tensor:
        loss = self.commitment_weight * routed.commitment_loss.sum()
        return loss if self.midpoints is not None else loss + routed.codebook_loss.sum()

    def _saved_config(self) -> dict[str, Any]:
        """The arguments that make the same quantizer, untrained."""
        names = inspect.signature(type(self)).parameters
        stored = {name: getattr(self, name) for name in names if name not in ("decay", "scale_control")}
        return {**stored, "decay": self.usage.decay, "scale_control": self.scale is not None}

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if f"{prefix}convention" in state_dict:
            check_convention(state_dict[f"{prefix}convention"], self.convention)
        manifold = self.codebooks.manifold
        super()._load_from_state_dict(state_dict, prefix, *args)
        if not isinstance(self.codebooks, ManifoldParameter):  # load_state_dict(assign=True)
            self.codebooks = ManifoldParameter(self.codebooks.data, manifold, self.codebooks.requires_grad)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "ResidualQuantizer":
        """Keep statistics in their type, and codes inside the ball when a change of type rounds them."""
        modules = [module for module in (self.usage, self.midpoints, self.scale) if module is not None]
        kept = [(module, name, buffer) for module in modules for name, buffer in module.named_buffers()]
        super()._apply(fn, recurse)
        for module, name, buffer in kept:
            setattr(module, name, buffer.to(getattr(module, name).device))
        if self.curvature > 0.0 and self.codebooks.dtype not in (torch.float32, torch.float64):
            self.codebooks.data = ball.project(self.codebooks.data, self.curvature)
        return self

    def extra_repr(self) -> str:
        """Text for ``print(rq)``."""
        sizes = f"{self.dim}, codebook_size={self.codebook_size}, num_stages={self.num_stages}"
        return f"{sizes}, kind={self.kind!r}, curvature={self.curvature:g}"


def _check_memory(num_stages: int, codebook_size: int, dim: int, midpoints: bool) -> None:
    """Raise an error if there is not the memory to make the codebooks: some 12 bytes a number, 28 with midpoints."""
    if torch.empty(0).device.type == "cpu":
        needed = num_stages * codebook_size * (dim * (28 if midpoints else 12) + 16)
        told = f"{num_stages} codebooks (num_stages) of {codebook_size} codes (codebook_size) of {dim} numbers"
        memory.check_room(needed, told, "lower one of them")
