"""The Poincaré ball as a geoopt manifold, and Riemannian optimisers that are as fast as the ball allows.

:class:`PoincareBall` has geoopt's methods over the accurate functions of :mod:`ghrq.ball`, so that everything built
on geoopt works up to the boundary: float32 points may have the radius ``1 - 1e-7``, where geoopt stops at 0.996.
:class:`RiemannianAdam` and :class:`RiemannianSGD` take the same arguments and keep the same state as geoopt's.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ghrq import ball, numerics

with warnings.catch_warnings():  # geoopt compiles its own mathematics on import, in a deprecated way
    warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
    import geoopt
    from geoopt import Euclidean, ManifoldParameter

__all__ = ["Euclidean", "ManifoldParameter", "PoincareBall", "RiemannianAdam", "RiemannianSGD"]


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
        value = torch.as_tensor(c).detach() + 0.0  # a floating-point copy, without a negative zero
        if not bool((value > 0.0 if learnable else value >= 0.0).all()):
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
        return self._map(lambda x, u, c: _scale(u, ball.gap(x, c).square() / 4.0), x, u, dim=dim)

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
        """``x ⊞ y = x ⊕ gyr[x, -y] y = (β x + α y) / (α + β - αβ)``, the commutative addition; α, β are the gaps."""

        def coadd(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
            alpha, beta = ball.gap(x, c), ball.gap(y, c)
            denominator = alpha + beta - alpha * beta
            # β x + α y, written so that it keeps its digits for y ≈ -x
            return _scale(x, (beta - alpha) / denominator) + _scale(x + y, alpha / denominator)

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
        return self._map(lambda y, u, c: _scale(u, ball.gap(y, c)), y, u, dim=dim)

    def transp0back(self, y: Tensor, u: Tensor, *, dim: int = -1) -> Tensor:
        """Parallel transport of ``u`` from ``y`` to the origin: ``u / (1 - c‖y‖²)``."""
        return self._map(lambda y, u, c: _scale(u, 1.0 / ball.gap(y, c)), y, u, dim=dim)

    def retr(self, x: Tensor, u: Tensor, *, dim: int = -1) -> Tensor:
        """``exp_x(u)`` at a tenth of the price of :meth:`expmap`, for the steps of optimisers.

        It is right to an ulp or two of the coordinates up to ``√c‖u‖_x = 2``. On longer ways from the boundary through
        the centre the error grows as ``exp(2√c‖u‖_x)``, but the end is always a point of the ball.
        """
        return self._map(lambda x, u, c: _Geodesic(x, u, c).end, x, u, dim=dim)

    def retr_transp(self, x: Tensor, u: Tensor, v: Tensor, *, dim: int = -1) -> tuple[Tensor, Tensor]:
        """The end of :meth:`retr` and the parallel transport of ``v`` along the way there."""
        axis, (x, u, v, c) = self._rows(dim, (x, u, v))
        way = _Geodesic(x, u, c)
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
        factor = 2.0 / self._map(ball.gap, xs, dim=dim)
        w = torch.ones_like(factor) if weights is None else weights.unsqueeze(dim).to(factor.dtype)
        if posweight:
            xs, w = torch.where(w < 0.0, -xs, xs), w.abs()
        s = (w * factor * xs.to(factor.dtype)).sum(reduced, keepdim=True)
        t = (w * (factor - 1.0)).sum(reduced, keepdim=True)
        sign = torch.where(t < 0.0, -1.0, 1.0).to(t.dtype)  # weights count up to a common factor
        middle = self._map(ball.midpoint_from_sums, sign * s, sign * t, dim=dim).to(xs.dtype)
        if lincomb:
            total = (w * torch.ones_like(factor)).sum(reduced, keepdim=True)
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


class RiemannianAdam(geoopt.optim.RiemannianAdam):
    """geoopt's Riemannian Adam, with a shorter way to the same numbers for points on a :class:`PoincareBall`.

    There the second moment is one number a row, and the step is parallel to the first moment, so that a row's inner
    products say where both of them go.
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient once; returns what ``closure`` does."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                steps = [self._advance(point, group) for point in group["params"] if point.grad is not None]
                if group["stabilize"] is not None and any(step % group["stabilize"] == 0 for step in steps):
                    self.stabilize_group(group)
        return loss

    def _advance(self, point: Tensor, group: dict[str, Any]) -> int:
        state, (beta1, beta2) = self.state[point], group["betas"]
        if not state:
            state["step"] = 0
            for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if group["amsgrad"] else 2]:
                state[name] = torch.zeros_like(point)
        state["step"] += 1
        step, mean, square = int(state["step"]), state["exp_avg"], state["exp_avg_sq"]
        gradient, manifold, alpha = _gradient(point, group), _manifold(point), None
        row: Any = ...
        if isinstance(manifold, PoincareBall):
            row, alpha = (..., slice(1)), ball.gap(point, manifold.c)
            factor = alpha.square() / 4.0
            inner = factor * numerics.square_norm(gradient, torch.promote_types(gradient.dtype, torch.float32))
            _add_(mean.mul_(beta1), (1.0 - beta1) * factor, gradient)
        else:
            gradient = manifold.egrad2rgrad(point, gradient)
            inner = manifold.component_inner(point, gradient)
            mean.mul_(beta1).add_(gradient, alpha=1.0 - beta1)
        variance = (beta2 * square[row] + (1.0 - beta2) * inner).to(square.dtype)
        square.copy_(variance)
        if group["amsgrad"]:
            variance = torch.maximum(state["max_exp_avg_sq"][row], variance)
            state["max_exp_avg_sq"].copy_(variance)
        rate = -group["lr"] / (1.0 - beta1**step) / ((variance / (1.0 - beta2**step)).sqrt() + group["eps"])
        _move(point, mean, rate, mean, alpha)
        return step


class RiemannianSGD(geoopt.optim.RiemannianSGD):
    """Riemannian stochastic gradient descent with momentum, in the sense of ``torch.optim.SGD``.

    geoopt starts the momentum buffer from the Euclidean gradient, which is ``λ_x²`` times too long; here it starts
    from the first Riemannian gradient. From then on it is transported along with its point.
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient once; returns what ``closure`` does."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                group["step"] = group.get("step", 0) + 1
                for point in group["params"]:
                    if point.grad is not None:
                        self._advance(point, group)
                if group["stabilize"] is not None and group["step"] % group["stabilize"] == 0:
                    self.stabilize_group(group)
        return loss

    def _advance(self, point: Tensor, group: dict[str, Any]) -> None:
        gradient, manifold, momentum = _gradient(point, group), _manifold(point), group["momentum"]
        alpha = ball.gap(point, manifold.c) if isinstance(manifold, PoincareBall) else None
        direction = manifold.egrad2rgrad(point, gradient) if alpha is None else _scale(gradient, alpha.square() / 4.0)
        buffer = None
        if momentum > 0.0:
            buffer = self.state[point].get("momentum_buffer")
            if buffer is None:
                buffer = self.state[point]["momentum_buffer"] = direction.clone()
            else:
                buffer.mul_(momentum).add_(direction, alpha=1.0 - group["dampening"])
            direction = direction.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        if isinstance(manifold, Euclidean):
            point.add_(direction, alpha=-group["lr"])  # as torch rounds it
        else:
            _move(point, direction, -group["lr"], buffer, alpha)


# --- pieces of the methods above -----------------------------------------------------------------------------

_EUCLIDEAN = Euclidean()


class _Geodesic:
    """The geodesic that leaves ``x (..., d)`` with the velocity ``rate · v``: where it ends and what it carries there.

    Both are sums of the vectors at hand, with coefficients that follow from the inner products of each row. With
    ``κ v = tanh(t) v / (√c‖v‖)``, ``t = √c λ_x‖rate · v‖ / 2`` and ``D = 1 + 2cκ⟨x,v⟩ + c‖x‖² tanh²(t)``, the end is
    ``x + (1 - c‖x‖²)(tanh²(t) x + κ v) / D``. ``alpha`` is the gap of ``x``, from callers that know it already.
    """

    def __init__(
        self, x: Tensor, v: Tensor, c: Tensor, *, rate: float | Tensor = 1.0, alpha: Tensor | None = None
    ) -> None:
        dtype = numerics.result_type(x, v)
        self.x, self.v, self.c = numerics.computable(x), numerics.computable(v), c
        self.alpha = ball.gap(x, c) if alpha is None else alpha
        self.xv, self.vv = _dot(self.x, self.v), numerics.square_norm(v)
        square = c * self.vv * (rate / self.alpha).square()
        self.kappa = rate / self.alpha * numerics.tanhc(square)
        self.tanh2, sech2 = c * self.vv * self.kappa.square(), numerics.sech2(square)
        plain = 1.0 + 2.0 * c * self.kappa * self.xv + (1.0 - self.alpha) * self.tanh2
        # The inner product has only the digits of its type; Cauchy and Schwarz know how small D can be.
        self.d = torch.maximum(plain, ((sech2 + self.alpha * self.tanh2) / 2.0).square())
        share = self.alpha / self.d
        end = torch.addcmul(self.x, self.v, (share * self.kappa).to(self.v.dtype))
        _add_(end, share * self.tanh2, self.x)
        beta = share * sech2  # the gap of the end, before rounding
        with torch.no_grad():
            radius = (c * numerics.square_norm(end)).sqrt()
            bound = ball.max_radius(dtype) - 4.0 * torch.finfo(radius.dtype).eps  # the radius is rounded, too
            shrink, rounding = (bound / radius).clamp(max=1.0), 1.0 - radius.clamp(max=bound).square() - beta
        self.end, self.beta = end.mul_(shrink.to(end.dtype)).to(dtype), beta + rounding

    def carry(self, w: Tensor, out: Tensor | None = None) -> Tensor:
        """Parallel transport of ``w (..., d)`` to the end of the geodesic; ``out`` may be ``w``."""
        u, same = numerics.computable(w), w is self.v
        xw, vw = (self.xv, self.vv) if same else (_dot(self.x, u), _dot(self.v, u))
        h = (xw + (1.0 - self.alpha) * self.kappa * vw) / self.d
        of_x, of_v = 2.0 * self.c * (self.kappa * vw - h * self.tanh2), -2.0 * self.c * h * self.kappa
        ratio = self.beta / self.alpha
        moved = torch.mul(u, (ratio * (1.0 + of_v) if same else ratio).to(u.dtype), out=out)
        if not same:
            _add_(moved, ratio * of_v, self.v)
        return _add_(moved, ratio * of_x, self.x).to(w.dtype)


def _move(point: Tensor, v: Tensor, rate: float | Tensor, carried: Tensor | None, alpha: Tensor | None) -> None:
    """Move ``point`` by the velocity ``rate · v``, and ``carried`` along with it, both in their places."""
    manifold = _manifold(point)
    if isinstance(manifold, PoincareBall):
        way = _Geodesic(point, v, manifold.c, rate=rate, alpha=alpha)
        end = way.end
        if carried is not None:
            way.carry(carried, out=carried)
    elif carried is not None:
        end, moved = manifold.retr_transp(point, rate * v, carried)
        carried.copy_(moved)
    else:
        end = manifold.retr(point, rate * v)
    point.copy_(end)


def _manifold(point: Tensor) -> Any:
    return point.manifold if isinstance(point, geoopt.ManifoldTensor) else _EUCLIDEAN


def _gradient(point: Tensor, group: dict[str, Any]) -> Tensor:
    """The gradient of the loss plus ``½ weight_decay ‖x‖²``, in a tensor not to be written to."""
    gradient = point.grad
    if gradient is None or gradient.is_sparse:
        raise RuntimeError("sparse gradients need geoopt's SparseRiemannianAdam or SparseRiemannianSGD")
    return gradient.add(point, alpha=group["weight_decay"]) if group["weight_decay"] else gradient


def _to_last(tensor: Tensor, axis: int) -> Tensor:
    """The tensor with ``axis < 0`` moved to the end; the axes that a scalar lacks there count as 1."""
    if axis == -1 or tensor.ndim == 0:
        return tensor
    return tensor[(None,) * (-axis - tensor.ndim)].movedim(axis, -1)


def _dot(u: Tensor, v: Tensor) -> Tensor:
    """``⟨u, v⟩`` as ``(..., 1)``, quickly: with the digits of the type of its arguments."""
    return (u * v).sum(-1, keepdim=True)


def _norm_at(x: Tensor, u: Tensor, c: Tensor) -> Tensor:
    return (2.0 * numerics.norm(u) / ball.gap(x, c)).squeeze(-1).to(numerics.result_type(x, u))


def _inner_at(x: Tensor, u: Tensor, v: Tensor, c: Tensor) -> Tensor:
    factor = 2.0 / ball.gap(x, c)
    dot = numerics.square_norm(u) if u is v else _dot(u.to(factor.dtype), v.to(factor.dtype))
    return (factor.square() * dot).squeeze(-1).to(numerics.result_type(x, u, v))


def _scale(u: Tensor, factor: Tensor) -> Tensor:
    """``factor · u`` for a float64 factor ``(..., 1)``, without a float64 copy of ``u (..., d)``."""
    wide = numerics.computable(u)
    return (wide * factor.to(wide.dtype)).to(u.dtype)


def _add_(x: Tensor, factor: Tensor, u: Tensor) -> Tensor:
    """``x + factor · u`` in the place of x, likewise."""
    return x.addcmul_(u, factor.to(u.dtype))
