"""One geodesic step and parallel transport along it, for optimisers.

The definitions are :func:`ball.expmap` and :func:`ball.transport`. Gain over them: 40 times in a step of RiemannianAdam
(benchmarks/tricks.py), because one set of inner products per row serves both.
"""

import torch
from torch import Tensor

from ghrq.geometry import ball, numerics


class Geodesic:
    """The geodesic that leaves ``x (..., d)`` with velocity ``rate · v``: its ``end`` and the transport along it.

    Both are linear combinations of x and v, with coefficients from the inner products of each row. With
    ``κ v = tanh(t) v / (√c‖v‖)``, ``t = √c λ_x‖rate · v‖ / 2`` and ``D = 1 + 2cκ⟨x,v⟩ + c‖x‖² tanh²(t)``, the end is
    ``x + (1 - c‖x‖²)(tanh²(t) x + κ v) / D``. ``alpha`` is the gap of ``x``, if the caller has it.
    """

    def __init__(
        self, x: Tensor, v: Tensor, c: Tensor, *, rate: float | Tensor = 1.0, alpha: Tensor | None = None
    ) -> None:
        dtype = numerics.result_type(x, v)
        self.x, self.v, self.c = numerics.computable(x), numerics.computable(v), c
        self.alpha = ball.gap(x, c) if alpha is None else alpha
        self.xv, self.vv = dot(self.x, self.v), numerics.square_norm(v)
        square = c * self.vv * (rate / self.alpha).square()
        self.kappa = rate / self.alpha * numerics.tanhc(square)
        self.tanh2, sech2 = c * self.vv * self.kappa.square(), numerics.sech2(square)
        plain = 1.0 + 2.0 * c * self.kappa * self.xv + (1.0 - self.alpha) * self.tanh2
        # The inner product is rounded to its type; the Cauchy-Schwarz inequality gives a lower bound of D.
        self.d = torch.maximum(plain, ((sech2 + self.alpha * self.tanh2) / 2.0).square())
        share = self.alpha / self.d
        end = torch.addcmul(self.x, self.v, (share * self.kappa).to(self.v.dtype))
        add_scaled_(end, share * self.tanh2, self.x)
        beta = share * sech2  # the gap of the end, before rounding
        with torch.no_grad():
            radius = (c * numerics.square_norm(end)).sqrt()
            bound = ball.max_radius(dtype) - 4.0 * torch.finfo(radius.dtype).eps  # the radius is rounded, too
            shrink, rounding = (bound / radius).clamp(max=1.0), 1.0 - radius.clamp(max=bound).square() - beta
        self.end, self.beta = end.mul_(shrink.to(end.dtype)).to(dtype), beta + rounding

    def carry(self, w: Tensor, out: Tensor | None = None) -> Tensor:
        """Parallel transport of ``w (..., d)`` to the end of the geodesic; ``out`` may be ``w``."""
        u, same = numerics.computable(w), w is self.v
        xw, vw = (self.xv, self.vv) if same else (dot(self.x, u), dot(self.v, u))
        h = (xw + (1.0 - self.alpha) * self.kappa * vw) / self.d
        of_x, of_v = 2.0 * self.c * (self.kappa * vw - h * self.tanh2), -2.0 * self.c * h * self.kappa
        ratio = self.beta / self.alpha
        moved = torch.mul(u, (ratio * (1.0 + of_v) if same else ratio).to(u.dtype), out=out)
        if not same:
            add_scaled_(moved, ratio * of_v, self.v)
        return add_scaled_(moved, ratio * of_x, self.x).to(w.dtype)


def dot(u: Tensor, v: Tensor) -> Tensor:
    """``⟨u, v⟩`` as ``(..., 1)``, in the type of its arguments."""
    return (u * v).sum(-1, keepdim=True)


def scaled(u: Tensor, factor: Tensor) -> Tensor:
    """``factor · u`` for a float64 factor ``(..., 1)``, without a float64 copy of ``u (..., d)``."""
    wide = numerics.computable(u)
    return (wide * factor.to(wide.dtype)).to(u.dtype)


def add_scaled_(x: Tensor, factor: Tensor, u: Tensor) -> Tensor:
    """``x + factor · u``, in place."""
    return x.addcmul_(u, factor.to(u.dtype))
