"""The Poincaré ball as a geoopt manifold.

:class:`PoincareBall` has geoopt's methods over the accurate functions of :mod:`ghrq.geometry.ball`, so that everything
built on geoopt works up to the boundary: float32 points may have the radius ``1 - 1e-7``, where geoopt stops at 0.996.
:mod:`ghrq.optim` has optimisers for it that are faster than geoopt's and start their momentum right.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ghrq.geometry import ball, midpoints, numerics
from ghrq.geometry.geodesic import Geodesic, dot, scaled
from ghrq.geometry.numerics import Curvature

with warnings.catch_warnings():  # geoopt compiles its own mathematics on import, in a deprecated way
    warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
    import geoopt
    from geoopt import Euclidean, ManifoldParameter

__all__ = ["Euclidean", "ManifoldParameter", "PoincareBall", "geoopt"]


class PoincareBall(geoopt.PoincareBall):
    """The ball ``{x : c‖x‖² < 1}`` of sectional curvature ``-c``, for geoopt's parameters and optimisers.

    ``c`` is a number or tensor, at least 0; with ``learnable=True`` it is above 0 and trains as ``softplus(isp_c)``,
    geoopt's parameter. A fixed curvature is kept as it was given, because near the boundary its last digit counts.

    Points and tangent vectors lie along the axis ``dim`` of their tensors and broadcast against each other. Scalars
    such as ``t`` and ``r`` are tensors of shape ``()``, or broadcast with a 1 in that axis. ``project=False``
    leaves out the pull back into the ball, except from exponential maps, which end inside it by themselves.
    """

    reversible = True  # the retraction is the exponential map
    isp_c: Tensor | None
    fixed_c: Tensor

    def __init__(self, c: float | Tensor = 1.0, learnable: bool = False) -> None:
        super().__init__(learnable=learnable)
        given = c if isinstance(c, Tensor) else torch.as_tensor(c)  # a tensor stays on its device
        value = given.detach() + 0.0  # a floating-point copy, without a negative zero
        known = value.device.type != "meta"
        if known and not bool((value > 0.0 if learnable else value >= 0.0).all()):
            raise ValueError(f"the curvature c must be {'above 0 to be learnable' if learnable else '0 or above'}: {c}")
        if learnable:
            self.isp_c = torch.nn.Parameter(value + torch.log(-torch.expm1(-value)))
        else:
            self.isp_c = None
            self.register_buffer("fixed_c", value)

    @property
    def c(self) -> Tensor:
        """The curvature parameter, in the type of the manifold."""
        return self.fixed_c if self.isp_c is None else torch.nn.functional.softplus(self.isp_c)

    def _rows(self, dim: int, tensors: Sequence[Tensor]) -> tuple[int, list[Tensor]]:
        """The axis ``dim`` of the last tensor counted from the end, and all tensors and c with that axis last."""
        axis = dim if dim < 0 else dim - tensors[-1].ndim
        if axis >= 0:
            raise IndexError(f"dim={dim} is out of range for a tensor with {tensors[-1].ndim} dimensions")
        return axis, [_to_last(tensor, axis) for tensor in (*tensors, self.c)]

    def _map(self, function: Callable[..., Tensor], *tensors: Tensor, dim: int, project: bool = False) -> Tensor:
        """``function(*tensors, c)``, which works on the last axis, on the axis ``dim``."""
        axis, rows = self._rows(dim, tensors)
        result = function(*rows)
        if project:
            result = ball.project(result, rows[-1])
        return result.movedim(-1, axis)

    def _reduce(self, function: Callable[..., Tensor], *tensors: Tensor, dim: int, keepdim: bool) -> Tensor:
        """``function(*tensors, c)``, which takes the last axis away, on the axis ``dim``."""
        axis, rows = self._rows(dim, tensors)
        result = function(*rows)
        return result.unsqueeze(axis) if keepdim else result

    # --- points, tangent vectors and distances ---------------------------------------------------------------

    def _check_point_on_manifold(
        self, x: Tensor, *, atol: float = 1e-5, rtol: float = 1e-5, dim: int = -1
    ) -> tuple[bool, str | None]:
        ok = torch.allclose(x, self.projx(x, dim=dim), atol=atol, rtol=rtol)
        return ok, None if ok else "'x' lies outside of the ball of radius 1/√c"

    def projx(self, x: Tensor, *, dim: int = -1) -> Tensor:
        """Pull points on or beyond the boundary back to the largest radius of their type, :func:`ball.max_radius`."""
        return self._map(ball.project, x, dim=dim)

    def lambda_x(self, x: Tensor, *, dim: int = -1, keepdim: bool = False) -> Tensor:
        """``λ_x = 2 / (1 - c‖x‖²)``."""
        return self._reduce(lambda x, c: ball.conformal_factor(x, c).squeeze(-1), x, dim=dim, keepdim=keepdim)

    def egrad2rgrad(self, x: Tensor, u: Tensor, *, dim: int = -1) -> Tensor:
        """The Riemannian gradient ``u / λ_x²`` of a Euclidean one."""
        return self._map(lambda x, u, c: scaled(u, ball.gap(x, c).square() / 4.0), x, u, dim=dim)

    def inner(self, x: Tensor, u: Tensor, v: Tensor | None = None, *, keepdim: bool = False, dim: int = -1) -> Tensor:
        """``⟨u, v⟩_x = λ_x² ⟨u, v⟩``; ``v`` is ``u`` unless given."""
        return self._reduce(_inner_at, x, u, u if v is None else v, dim=dim, keepdim=keepdim)

    def norm(self, x: Tensor, u: Tensor, *, keepdim: bool = False, dim: int = -1) -> Tensor:
        """``‖u‖_x = λ_x ‖u‖``."""
        return self._reduce(_norm_at, x, u, dim=dim, keepdim=keepdim)

    def dist(self, x: Tensor, y: Tensor, *, keepdim: bool = False, dim: int = -1) -> Tensor:
        """``(2/√c) asinh(√c‖y - x‖ / √((1 - c‖x‖²)(1 - c‖y‖²)))``."""
        return self._reduce(ball.distance, x, y, dim=dim, keepdim=keepdim)

    def dist2(self, x: Tensor, y: Tensor, *, keepdim: bool = False, dim: int = -1) -> Tensor:
        """The square of :meth:`dist`."""
        return self.dist(x, y, keepdim=keepdim, dim=dim).square()

    def dist0(self, x: Tensor, *, dim: int = -1, keepdim: bool = False) -> Tensor:
        """The distance from the origin, ``(2/√c) artanh(√c‖x‖)``."""
        return self._reduce(lambda x, c: ball.distance(x.new_zeros(x.shape[-1:]), x, c), x, dim=dim, keepdim=keepdim)

    def dist2plane(
        self,
        x: Tensor,
        p: Tensor,
        a: Tensor,
        *,
        dim: int = -1,
        keepdim: bool = False,
        signed: bool = False,
        scaled: bool = False,
    ) -> Tensor:
        """The distance from ``x`` to the hyperplane through ``p`` across ``a``, ``{y : ⟨log_p(y), a⟩ = 0}``.

        ``asinh(√c w)/√c`` with ``w = 2⟨α δ - c‖δ‖² p, a⟩ / (αβ‖a‖)``, ``δ = x - p``, ``α`` and ``β`` the gaps of ``p``
        and ``x``. ``signed`` keeps the sign of ``w``; ``scaled`` multiplies by ``‖a‖``.
        """

        def distance(x: Tensor, p: Tensor, a: Tensor, c: Tensor) -> Tensor:
            dtype, alpha, beta = numerics.result_type(x, p, a), ball.gap(p, c), ball.gap(x, c)
            x, p, a = (tensor.to(alpha.dtype) for tensor in (x, p, a))
            delta, length = x - p, numerics.norm(a)
            along = (delta * a).sum(-1, keepdim=True) / beta
            along = along - c * numerics.square_norm(delta) * (p * a).sum(-1, keepdim=True) / (alpha * beta)
            w = 2.0 * along / torch.where(length == 0.0, 1.0, length)
            result = (w if signed else w.abs()) * numerics.asinhc(c * w.square())
            return (result * length if scaled else result).squeeze(-1).to(dtype)

        return self._reduce(distance, x, p, a, dim=dim, keepdim=keepdim)

    # --- the gyrogroup ---------------------------------------------------------------------------------------

    def mobius_add(self, x: Tensor, y: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """``x ⊕ y``."""
        return self._map(ball.mobius_add, x, y, dim=dim, project=project)

    def mobius_sub(self, x: Tensor, y: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """``x ⊖ y = x ⊕ (-y)``; the left residual of :func:`ball.mobius_sub` is ``(-x) ⊕ y``."""
        return self.mobius_add(x, -y, dim=dim, project=project)

    def mobius_coadd(self, x: Tensor, y: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """``x ⊞ y``, see :func:`coadd`."""
        return self._map(coadd, x, y, dim=dim, project=project)

    def mobius_cosub(self, x: Tensor, y: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """``x ⊟ y = x ⊞ (-y)``."""
        return self.mobius_coadd(x, -y, dim=dim, project=project)

    def gyration(self, x: Tensor, y: Tensor, z: Tensor, *, dim: int = -1) -> Tensor:
        """``gyr[x, y] z``."""
        return self._map(ball.gyration, x, y, z, dim=dim)

    def antipode(self, x: Tensor, *, dim: int = -1) -> Tensor:
        """The point opposite to ``x``, ``-x``."""
        return -x

    # --- functions of the tangent space at the origin ----------------------------------------------------------

    def mobius_fn_apply(
        self, fn: Callable[..., Tensor], x: Tensor, *args: Any, dim: int = -1, project: bool = True, **kwargs: Any
    ) -> Tensor:
        """``exp_0(fn(log_0(x), ...))``."""
        return self.expmap0(fn(self.logmap0(x, dim=dim), *args, **kwargs), dim=dim)

    def mobius_fn_apply_chain(
        self, x: Tensor, *fns: Callable[..., Tensor], project: bool = True, dim: int = -1
    ) -> Tensor:
        """``exp_0(fn_n(...fn_1(log_0(x))))``; without functions ``x``."""
        if not fns:
            return self.projx(x, dim=dim) if project else x
        return self.mobius_fn_apply(lambda tangent: functools.reduce(lambda v, fn: fn(v), fns, tangent), x, dim=dim)

    def mobius_scalar_mul(self, r: Tensor, x: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """``r ⊗ x = exp_0(r log_0(x))``: r times as far from the origin."""
        return self._map(lambda r, x, c: ball.expmap0(r * ball.logmap0(x, c), c), r, x, dim=dim)

    def mobius_pointwise_mul(self, w: Tensor, x: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """``exp_0(w log_0(x))`` with the elementwise product of ``w (..., d)``."""
        return self.mobius_scalar_mul(w, x, dim=dim)

    def mobius_matvec(self, m: Tensor, x: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """``exp_0(m log_0(x))`` with a matrix ``m (..., e, d)``; its leading axes broadcast against those of ``x``."""

        def matvec(x: Tensor, c: Tensor) -> Tensor:
            tangent = ball.logmap0(x, c)
            product = tangent @ m.mT if m.ndim == 2 else (m @ tangent.unsqueeze(-1)).squeeze(-1)
            return ball.expmap0(product, c)

        return self._map(matvec, x, dim=dim)

    # --- geodesics ---------------------------------------------------------------------------------------------

    def expmap(self, x: Tensor, u: Tensor, *, project: bool = True, dim: int = -1) -> Tensor:
        """``exp_x(u)``: the end of the geodesic that leaves ``x`` with velocity ``u``, after one unit of time."""
        return self._map(ball.expmap, x, u, dim=dim)

    def expmap0(self, u: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """``exp_0(u) = tanh(√c‖u‖) u / (√c‖u‖)``."""
        return self._map(ball.expmap0, u, dim=dim)

    def logmap(self, x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
        """``log_x(y)``: the velocity at ``x`` of the geodesic that reaches ``y`` at time 1."""
        return self._map(ball.logmap, x, y, dim=dim)

    def logmap0(self, x: Tensor, *, dim: int = -1) -> Tensor:
        """``log_0(x) = artanh(√c‖x‖) x / (√c‖x‖)``."""
        return self._map(ball.logmap0, x, dim=dim)

    def geodesic(self, t: Tensor, x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
        """The geodesic from ``x`` at time 0 to ``y`` at time 1: ``exp_x(t log_x(y))``."""
        return self._map(lambda t, x, y, c: ball.expmap(x, t * ball.logmap(x, y, c), c), t, x, y, dim=dim)

    def geodesic_unit(self, t: Tensor, x: Tensor, u: Tensor, *, dim: int = -1, project: bool = True) -> Tensor:
        """The geodesic that leaves ``x`` in the direction of ``u`` with speed 1: ``exp_x(t u / ‖u‖_x)``."""
        length = self.norm(x, u, keepdim=True, dim=dim)
        v = u / torch.where(length == 0.0, 1.0, length)
        return self._map(lambda t, x, v, c: ball.expmap(x, t * v, c), t, x, v, dim=dim)

    def transp(self, x: Tensor, y: Tensor, v: Tensor, *, dim: int = -1) -> Tensor:
        """Parallel transport of ``v`` from ``x`` to ``y``: ``(λ_x/λ_y) gyr[y, -x] v``."""
        return self._map(lambda x, y, v, c: ball.transport(v, x, y, c), x, y, v, dim=dim)

    def transp0(self, y: Tensor, u: Tensor, *, dim: int = -1) -> Tensor:
        """Parallel transport of ``u`` from the origin to ``y``: ``(1 - c‖y‖²) u``."""
        return self._map(lambda y, u, c: scaled(u, ball.gap(y, c)), y, u, dim=dim)

    def transp0back(self, y: Tensor, u: Tensor, *, dim: int = -1) -> Tensor:
        """Parallel transport of ``u`` from ``y`` to the origin: ``u / (1 - c‖y‖²)``."""
        return self._map(lambda y, u, c: scaled(u, 1.0 / ball.gap(y, c)), y, u, dim=dim)

    def retr(self, x: Tensor, u: Tensor, *, dim: int = -1) -> Tensor:
        """``exp_x(u)`` at a tenth of the price of :meth:`expmap`, for the steps of optimisers.

        It is right to an ulp or two of the coordinates up to ``√c‖u‖_x = 2``. On longer ways from the boundary through
        the centre the error grows as ``exp(2√c‖u‖_x)``, but the end is always a point of the ball.
        """
        return self._map(lambda x, u, c: Geodesic(x, u, c).end, x, u, dim=dim)

    def retr_transp(self, x: Tensor, u: Tensor, v: Tensor, *, dim: int = -1) -> tuple[Tensor, Tensor]:
        """The end of :meth:`retr` and the parallel transport of ``v`` along the way there."""
        axis, (x, u, v, c) = self._rows(dim, (x, u, v))
        way = Geodesic(x, u, c)
        return way.end.movedim(-1, axis), way.carry(v).movedim(-1, axis)

    # --- means and the hyperboloid -----------------------------------------------------------------------------

    def weighted_midpoint(
        self,
        xs: Tensor,
        weights: Tensor | None = None,
        *,
        reducedim: Sequence[int] | None = None,
        dim: int = -1,
        keepdim: bool = False,
        lincomb: bool = False,
        posweight: bool = False,
        project: bool = True,
    ) -> Tensor:
        """The gyromidpoint of :func:`ball.midpoint` over the axes ``reducedim`` (default: all but ``dim``).

        ``weights`` have the shape of ``xs`` without the axis ``dim``, or broadcast to it (default: equal), and should
        have one sign; ``posweight`` counts a point of negative weight as its antipode of positive weight.
        ``lincomb`` multiplies the midpoint by the sum of the weights, with ⊗. ``keepdim`` keeps the reduced axes.
        """
        dim = dim if dim < 0 else dim - xs.ndim
        reduced = [axis for axis in range(-xs.ndim, 0) if axis != dim] if reducedim is None else list(reducedim)
        axis, (x, c) = self._rows(dim, (xs,))
        given = None if weights is None else _to_last(weights.unsqueeze(dim), axis)
        w, mass = (term.movedim(-1, axis) for term in ball.midpoint_weights(x, given, c))
        if posweight:  # a midpoint is linear in its weights, and λ is that of the antipode
            w, mass, xs = w.abs(), mass.abs(), torch.where(w < 0.0, -xs, xs)
        s = (mass * xs.to(mass.dtype)).sum(reduced, keepdim=True)
        t = (mass - w).sum(reduced, keepdim=True)
        sign = torch.where(t < 0.0, -1.0, 1.0).to(t.dtype)  # weights count up to a common factor
        middle = self._map(midpoints.from_sums, sign * s, sign * t, dim=dim).to(xs.dtype)
        if lincomb:
            total = w.expand(mass.shape).sum(reduced, keepdim=True)
            middle = self.mobius_scalar_mul(total.to(xs.dtype), middle, dim=dim)
        if project:
            middle = self.projx(middle, dim=dim)
        return middle if keepdim else middle.squeeze(reduced)

    def inv_sproj(self, x: Tensor, *, dim: int = -1) -> Tensor:
        """From the ball up to the hyperboloid in d + 1 dimensions: ``(λx, (λ - 1)/√c)``; c counts as at least 1e-15."""

        def lift(x: Tensor, c: Tensor) -> Tensor:
            factor = ball.conformal_factor(x, c)
            height = (factor - 1.0) / c.clamp(min=1e-15).sqrt().to(x.dtype)
            return torch.cat((factor * x, height.expand(*x.shape[:-1], 1)), dim=-1)

        return self._map(lift, x, dim=dim)

    def sproj(self, x: Tensor, *, dim: int = -1) -> Tensor:
        """From the hyperboloid down to the ball: ``x_{1…d} / (1 + √c x_{d+1})``; c counts as at least 1e-15."""
        return self._map(
            lambda x, c: x[..., :-1] / (1.0 + c.clamp(min=1e-15).sqrt().to(x.dtype) * x[..., -1:]), x, dim=dim
        )


# --- pieces of the methods above -----------------------------------------------------------------------------


def coadd(x: Tensor, y: Tensor, c: Curvature) -> Tensor:
    """Möbius coaddition ``x ⊞ y = x ⊕ gyr[x, -y] y = (β x + α y) / (α + β - αβ)``; it commutes; α, β are the gaps.

    Adding on the right undoes it: ``(x ⊞ (-y)) ⊕ y = x``, as adding on the left undoes ``(-x) ⊕ y``.
    """
    alpha, beta = ball.gap(x, c), ball.gap(y, c)
    denominator = alpha + beta - alpha * beta
    # β x + α y, written so that it keeps its digits for y ≈ -x
    return scaled(x, (beta - alpha) / denominator) + scaled(x + y, alpha / denominator)


def _to_last(tensor: Tensor, axis: int) -> Tensor:
    """The tensor with ``axis < 0`` moved to the end; the axes that a scalar lacks there count as 1."""
    if axis == -1 or tensor.ndim == 0:
        return tensor
    return tensor[(None,) * (-axis - tensor.ndim)].movedim(axis, -1)


def _norm_at(x: Tensor, u: Tensor, c: Tensor) -> Tensor:
    return (2.0 * numerics.norm(u) / ball.gap(x, c)).squeeze(-1).to(numerics.result_type(x, u))


def _inner_at(x: Tensor, u: Tensor, v: Tensor, c: Tensor) -> Tensor:
    factor = 2.0 / ball.gap(x, c)
    product = numerics.square_norm(u) if u is v else dot(u.to(factor.dtype), v.to(factor.dtype))
    return (factor.square() * product).squeeze(-1).to(numerics.result_type(x, u, v))
