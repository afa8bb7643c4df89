"""The residual quantizer: a vector becomes a tuple of codes and the vector that the codes decode to."""

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from ghrq.geometry.manifold import Euclidean, ManifoldParameter, PoincareBall
from ghrq.quantizer.cascade import Aggregation
from ghrq.quantizer.codebook import (
    MovingMidpoints,
    Usage,
    check_memory,
    forget_moments,
    initial_codebooks,
)
from ghrq.quantizer.curvature import LearnedCurvature
from ghrq.quantizer.depth import DepthDropout
from ghrq.quantizer.diagnosis import BOUNDARY_RADIUS, few_codes
from ghrq.quantizer.kinds import ELSEWHERE, FEW_CODES, KINDS, Kind, Update, chosen_axes
from ghrq.quantizer.learner import Learner
from ghrq.quantizer.refit import refined_codebooks
from ghrq.quantizer.routes import Commitment, Gradient, Units
from ghrq.quantizer.scale import (
    FAST_DECAY,
    OVERSHOOT,
    SLOW_DECAY,
    EncoderMean,
    EncoderScale,
    heaviest_weight,
    target_radius,
)
from ghrq.quantizer.start import kmeans_codebooks
from ghrq.system import distributed
from ghrq.system.checks import (
    at_least,
    count_stages,
    from_to,
    is_bool,
    known_arguments,
    largest_size,
    one_of,
    stage_sizes,
)
from ghrq.system.pretrained import Format, Pretrained

# A start warns if more of its vectors lie near the boundary.
_FAR_SHARE = 0.1


class ResidualQuantizer(Learner, Pretrained):
    """Quantize vectors into ``num_stages`` codes each, coarse to fine, on the Poincaré ball.

    Examples:
        >>> rq = ghrq.ResidualQuantizer(dim=32, codebook_size=256, num_stages=4)
        >>> z_hat, codes, loss = rq(torch.randn(8, 100, 32))
        >>> z_hat.shape, codes.shape
        (torch.Size([8, 100, 32]), torch.Size([8, 100, 4]))
        >>> rq.decode(codes[..., :2]).shape  # from the first two codes: the coarse version
        torch.Size([8, 100, 32])

    Args:
        dim: size of the vectors.
        codebook_size: codes of each stage: one number for all, or a list with one for each, ``[64, 256, 1024]``.
        num_stages: codes of each vector; by default as many as there are sizes, or 4.
        kind: ``"calibrated"`` (ours), ``"ghrq"`` (the paper's), ``"naive"``, ``"hra-only"``, ``"dhste-only"`` or
            ``"euclidean"``: a name for a choice of ``aggregation``, ``gradient``, ``commitment``, ``units``,
            ``codebook_update`` and ``radius``, each of which can also be given by itself.
        curvature: c of the ball ``{x : c‖x‖² < 1}``. By default it follows the data if the kind has a ``radius``,
            and is 1 if not. A number fixes it. 0, like ``kind="euclidean"``, is the ordinary quantizer of flat space,
            exactly: losses ``‖x - y‖²``, no maps; ``aggregation``, ``gradient``, ``commitment`` and ``discount`` make
            no difference there. ``"learn"`` makes it a parameter, ``rq.learned.isp_c``, that starts where the first
            vectors have the median ``radius``; a tensor ``()`` starts at its value. See
            :class:`ghrq.quantizer.curvature.LearnedCurvature`.
        commitment_weight: β in ``Σ mean d(sg r, q)² + β Σ mean d(r, sg q)²``. Distances are geodesic and squared, the
            sum runs over stages, the mean over vectors.
        aggregation: ``"nested"`` or ``"chained"``, see :mod:`ghrq.quantizer.cascade`.
        gradient: ``"transport"`` or ``"identity"``, see :mod:`ghrq.quantizer.routes`.
        commitment: which stages pull the encoder: ``"first"`` or ``"every"``, or the first one by a ``"discounted"``
            gradient, see :mod:`ghrq.quantizer.routes`; the loss as a number counts all stages.
        units: of the losses and of the transported gradient. ``"encoder"``: those of ``z``, in which the quantizer is
            the Euclidean one at the origin and as c → 0. ``"ball"``: those of the paper, in which distances near the
            origin are twice as long (losses 4 times as large), times the encoder scale.
        discount: ``False`` gives the transported gradient back its factor ``λ_z²`` (for study: it diverges).
        codebook_dim: size of the codes, if not ``dim``: linear maps lead in and out. They are parameters, so give the
            optimiser ``rq.parameters()`` too.
        codebook_update: ``"gradient"`` (the codebook loss; the paper's kinds) or ``"ema"`` (moving midpoints; the
            codebooks then have no gradient and no loss term; ``"calibrated"``).
        decay: of the moving averages of usage and midpoints; by default 0.99, but 0.95 with up to 256 moving midpoints
            of ``"calibrated"``.
        revive_below: in training, codes chosen less often than this, relative to uniform use, move onto random
            residuals of the batch; 0 turns this off. Pass optimisers that keep moments to :meth:`attach`.
        depth_dropout: in training, each entry of the first dimension uses a random number of stages: from 1 to
            ``num_stages``, or one of a list such as ``[1, 2, 4]``; more in :class:`ghrq.quantizer.depth.DepthDropout`.
            ``z_hat`` is then the decode of that many of its codes. Draws come from ``rq.generator``.
        radius: keep the median radius of the encoder's points on the ball at this value, by a multiplier that follows
            the data (:class:`ghrq.quantizer.scale.EncoderScale`). Small ones are close to flat space.
        scale_control: True or False turns that on or off; ``"calibrated"`` has it on.
        centre: subtract a moving mean of the encoder's outputs first and add it last. An offset that all vectors have
            in common then takes up no room on the ball.
        temperature: above 0, training draws codes at random, nearer ones more often, see
            :func:`ghrq.geometry.nearest.sample`. Draws come from ``rq.generator``.
        channel_dim: where vectors have their ``dim`` numbers: -1, or 1 for images ``(B, dim, H, W)`` and signals
            ``(B, dim, T)``. Codes are ``(B, H, W, num_stages)`` either way.

    Training mode changes usage, scale, moving midpoints and dead codes in the forward pass, so a step must not run it
    twice: exclude it from gradient checkpointing. Compiled and GPU steps do not check their input for NaN.

    Attributes:
        sizes: codes of each stage, a tuple.
        codebooks: ``(num_stages, codebook_size, codebook_dim)``, a geoopt parameter on the ball; Riemannian
            optimisers (:mod:`ghrq.optim`, ``geoopt.optim``) keep it there, others do not. With sizes by stage it has
            the largest; rows beyond the size of a stage are 0 and never chosen.
        generator: a ``torch.Generator`` for the draws of training, by default torch's own. A compiled step needs that.
        revived: ``(num_stages, codebook_size)`` which codes were revived since the last step of an attached optimiser.

    """

    _format = Format("ghrq-quantizer", "quantizer", plain=True)

    @known_arguments(ELSEWHERE)
    def __init__(
        self,
        dim: int,
        codebook_size: int | Sequence[int] = 256,
        num_stages: int | None = None,
        kind: Kind = "calibrated",
        curvature: float | Tensor | Literal["learn"] | None = None,
        commitment_weight: float = 0.25,
        *,
        aggregation: Aggregation | None = None,
        gradient: Gradient | None = None,
        commitment: Commitment | None = None,
        units: Units | None = None,
        discount: bool = True,
        codebook_dim: int | None = None,
        codebook_update: Update | None = None,
        decay: float | None = None,
        revive_below: float = 0.1,
        depth_dropout: bool | Sequence[int] | DepthDropout = False,
        radius: float | None = None,
        scale_control: bool | None = None,
        centre: bool = False,
        temperature: float = 0.0,
        channel_dim: int = -1,
    ) -> None:
        super().__init__()
        one_of("kind", kind, tuple(KINDS))
        codebook_dim = dim if codebook_dim is None else codebook_dim
        for name, flag in (("discount", discount), ("centre", centre)):
            is_bool(name, flag)
        if scale_control is not None:
            is_bool("scale_control", scale_control)
        for name, number in (("dim", dim), ("codebook_dim", codebook_dim)):
            at_least(name, number, 1, whole=True)
        num_stages, largest = count_stages(codebook_size, num_stages), largest_size(codebook_size)
        at_least("commitment_weight", commitment_weight, 0)
        at_least("temperature", temperature, 0)
        if decay is not None:
            from_to("decay", decay, 0.0, 1.0)
        from_to("revive_below", revive_below, 0.0, 1.0)
        self.dim, self.num_stages = dim, num_stages
        self.codebook_size = list(codebook_size) if isinstance(codebook_size, Sequence) else codebook_size
        self.codebook_dim = codebook_dim
        self.kind = kind
        axes, self._curvature = chosen_axes(kind, curvature, codebook_update, scale_control, radius)
        if kind == "euclidean" and curvature not in (None, 0, 1):
            told = f'kind="euclidean" is flat space: curvature={curvature} makes no difference'
            warnings.warn(told, stacklevel=3)
        self.aggregation: Aggregation = one_of("aggregation", aggregation or axes.aggregation, get_args(Aggregation))
        self.gradient: Gradient = one_of("gradient", gradient or axes.gradient, get_args(Gradient))
        self.commitment: Commitment = one_of("commitment", commitment or axes.commitment, get_args(Commitment))
        self.units: Units = one_of("units", units or axes.units, get_args(Units))
        self.codebook_update: Update = one_of("codebook_update", codebook_update or axes.update, get_args(Update))
        self.discount = discount
        self.commitment_weight = commitment_weight
        self.revive_below = revive_below
        self.temperature = temperature
        self.depth_dropout = DepthDropout.of(depth_dropout)
        if self.depth_dropout is not None:
            self.depth_dropout.check(num_stages)
        self.generator: torch.Generator | None = None
        self.frozen = False
        if channel_dim not in (-1, 1):
            raise ValueError(f"channel_dim must be -1 or 1, got {channel_dim!r}")
        self.channel_dim = channel_dim
        self.radius = target_radius(radius, scale_control, axes.radius, self._curvature, self.units)
        self.learned = None
        if isinstance(curvature, Tensor | str):
            self.learned = LearnedCurvature(curvature, self.radius or 0.0)

        moving = self.codebook_update == "ema"
        if decay is None:
            decay = axes.decay if moving and largest <= FEW_CODES else SLOW_DECAY
        check_memory(num_stages, largest, codebook_dim, moving)
        self.sizes = sizes = stage_sizes(codebook_size, num_stages)
        projected = self.codebook_dim != dim
        self.project_in = nn.Linear(dim, self.codebook_dim) if projected else nn.Identity()
        self.project_out = nn.Linear(self.codebook_dim, dim) if projected else nn.Identity()
        # A curvature is a number, which it would not be on the meta device.
        c = torch.tensor(self.curvature, device="cpu")
        manifold = self.learned or (PoincareBall(c) if self.curvature > 0.0 else Euclidean(ndim=1))
        codebooks = initial_codebooks(sizes, self.codebook_dim, self.curvature)
        self.codebooks = ManifoldParameter(
            codebooks, manifold=manifold, requires_grad=self.codebook_update == "gradient"
        )
        self._told_outside = moving  # moving midpoints are always inside, if on the edge
        self.usage = Usage(sizes, decay)
        heaviest = heaviest_weight(self.radius) if self.units == "encoder" else math.inf
        self.midpoints = MovingMidpoints(codebooks, sizes, self.curvature, decay, heaviest) if moving else None
        pace = (SLOW_DECAY,) if self.units == "ball" else (FAST_DECAY, OVERSHOOT)
        self.scale = None
        if self.radius is not None and self.learned is None:
            self.scale = EncoderScale(self.curvature, self.radius, *pace)
        self.mean = EncoderMean(self.codebook_dim) if centre else None
        self.register_buffer("revived", torch.zeros(num_stages, largest, dtype=torch.bool), persistent=False)
        self.register_buffer("convention", self._own_convention().to(codebooks.device))

    @torch.no_grad()
    def initialize(
        self,
        z: Tensor,
        mask: Tensor | None = None,
        *,
        iterations: int = 10,
        each_stage: Callable[[], object] | None = None,
        balance: bool = False,
        refine: int = 0,
    ) -> list[float]:
        """Start the codebooks from k-means, stage by stage, on ``z (..., dim)``: at least as many vectors as codes.

        Sets the encoder scale too. With several processes, those of the first process are used.
        ``each_stage`` is called after each stage and each round: for a progress bar. ``balance`` takes centres of
        groups of nearly equal size (:mod:`ghrq.geometry.balance`), so that codes are chosen nearly equally often; a
        vector still gets its nearest code. ``refine`` is for lower errors: k-means with a beam, and then so many
        rounds that fit all stages together, see :mod:`ghrq.quantizer.refit`; it does not go with ``balance``.

        Returns:
            The perplexity of each stage; a warning says if one uses less than a tenth of its codes.

        """
        z = self._vectors(z, mask)
        at_least("iterations", iterations, 1, whole=True)
        at_least("refine", refine, 0, whole=True)
        if refine and balance:
            raise ValueError(f"refine={refine} moves codes whatever their share: leave out balance or refine")
        z = z[mask] if mask is not None else z
        v = self._computable(self.project_in(z).reshape(-1, self.codebook_dim))
        if v.shape[0] < max(self.sizes):
            raise ValueError(
                f"initialize needs at least codebook_size={max(self.sizes)} vectors, got {v.shape[0]}: pass more"
            )
        for average in (self.mean, self.scale):
            if average is not None:
                average.clear()
        self._follow(v, torch.full_like(v[:, 0], 1.0 / len(v)))
        if self.scale is not None:
            self.scale.unlimit()
        r, gap = self._to_ball(v)
        beyond = float((gap < 1.0 - BOUNDARY_RADIUS**2).float().mean()) if self.curvature > 0.0 else 0.0
        if beyond > _FAR_SHARE:
            remedy = "scale them down, or set a radius" if self.radius is None else "set a lower radius"
            warnings.warn(
                f"{beyond:.0%} of these vectors lie beyond radius {BOUNDARY_RADIUS} of the ball, where few codes serve "
                f"all: {remedy} (that of calibrated is 0.15)",
                stacklevel=3,  # past the decorator
            )
        space = self.curvature, self.aggregation
        if refine:
            start = refined_codebooks(r, gap, self.sizes, *space, iterations, refine, each_stage)
        else:
            start = kmeans_codebooks(r, gap, self.sizes, *space, iterations, each_stage, balance)
        self.codebooks.copy_(start.codebooks)
        distributed.broadcast_(self.codebooks.data)
        self.usage.reset()
        if self.midpoints is not None:
            self.midpoints.restart(self.codebooks)
        if few_codes(start.perplexity, self.sizes):  # only then are the distinct vectors counted
            warnings.warn(few_codes(start.perplexity, self.sizes, len(v.unique(dim=0))), stacklevel=3)
        return start.perplexity

    def freeze(self, frozen: bool = True) -> Self:
        """Stop (or, with ``False``, resume) all learning of codes, scale and mean; the encoder still gets gradients."""
        self.frozen = frozen
        self.codebooks.requires_grad_(not frozen and self.midpoints is None)
        if self.learned is not None:
            self.learned.requires_grad_(not frozen)
        return self

    def attach(self, optimizer: torch.optim.Optimizer) -> torch.utils.hooks.RemovableHandle:
        """Reset the moments of ``optimizer`` for revived codes before each step: they belong to the old positions."""

        def forget(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            forget_moments(optimizer, self.codebooks, self.revived)

        return optimizer.register_step_pre_hook(forget)

    def _saved_config(self) -> dict[str, Any]:
        """The arguments that make the same quantizer, untrained."""
        names = inspect.signature(type(self)).parameters
        derived = {
            "decay": self.usage.decay,
            "curvature": self.curvature if self.learned is None else "learn",
            "scale_control": None if self.learned is not None else self.scale is not None,
            "centre": self.mean is not None,
            "depth_dropout": False if self.depth_dropout is None else self.depth_dropout.to_config(),
        }
        return {name: derived.get(name, getattr(self, name, None)) for name in names}

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)
