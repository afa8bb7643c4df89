"""Riemannian optimisers with fast steps on the ball: the same arguments and state as geoopt's."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ghrq.geometry import ball, numerics
from ghrq.geometry.geodesic import Geodesic, add_scaled_, scaled
from ghrq.geometry.manifold import Euclidean, PoincareBall, geoopt

__all__ = ["RiemannianAdam", "RiemannianSGD"]

_EUCLIDEAN = Euclidean()


class RiemannianAdam(geoopt.optim.RiemannianAdam):
    """geoopt's Riemannian Adam, with a fast step for points on a :class:`PoincareBall`.

    There the second moment is one number per row, and the step is parallel to the first moment, so that the inner
    products of a row determine the new point and the transported moment.

    On a ball whose curvature c is learnt, ``lr`` is in units of the ball's radius ``1/√c`` and not an absolute length:
    c follows the size of the vectors, and steps that do not would throw the codes of small vectors about.

    Examples:
        >>> rq = ghrq.ResidualQuantizer(8, codebook_size=16, num_stages=2, codebook_update="gradient")
        >>> optimizer = ghrq.optim.RiemannianAdam(rq.parameters(), lr=1e-2)
        >>> _ = rq.attach(optimizer)  # codes that are revived forget their moments
        >>> rq(torch.randn(64, 8)).loss.backward()
        >>> optimizer.step()

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
        if isinstance(manifold, Euclidean) and not group["amsgrad"]:
            # torch's Adam, in place: for a large embedding table memory traffic dominates.
            mean.lerp_(gradient, 1.0 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
            grown = 1.0 - beta1**step
            spread = square.sqrt().mul_(grown * (1.0 - beta2**step) ** -0.5).add_(grown * group["eps"])
            point.addcdiv_(mean, spread, value=-group["lr"])
            return step
        row: Any = ...
        if isinstance(manifold, PoincareBall):
            row, alpha = (..., slice(1)), ball.gap(point, manifold.c)
            factor = alpha.square() / 4.0
            inner = factor * numerics.square_norm(gradient, torch.promote_types(gradient.dtype, torch.float32))
            add_scaled_(mean.mul_(beta1), (1.0 - beta1) * factor, gradient)
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
        if isinstance(manifold, PoincareBall) and manifold.isp_c is not None:
            rate = rate / manifold.c.sqrt()
        _move(point, mean, rate, mean, alpha)
        return step


class RiemannianSGD(geoopt.optim.RiemannianSGD):
    """Riemannian stochastic gradient descent with momentum, in the sense of ``torch.optim.SGD``.

    geoopt starts the momentum buffer from the Euclidean gradient, which is ``λ_x²`` times too long; here it starts
    from the first Riemannian gradient. From then on it is transported along with its point.

    Examples:
        >>> from ghrq.geometry.manifold import ManifoldParameter, PoincareBall
        >>> point = ManifoldParameter(torch.tensor([[0.5, 0.0]]), manifold=PoincareBall(1.0))
        >>> optimizer = ghrq.optim.RiemannianSGD([point], lr=0.1)
        >>> ball.distance(point, torch.zeros(2)).square().sum().backward()
        >>> optimizer.step()
        >>> bool(point.norm() < 0.5)  # nearer to the origin
        True

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
        direction = manifold.egrad2rgrad(point, gradient) if alpha is None else scaled(gradient, alpha.square() / 4.0)
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


def _move(point: Tensor, v: Tensor, rate: float | Tensor, carried: Tensor | None, alpha: Tensor | None) -> None:
    """Move ``point`` by the velocity ``rate · v``, and ``carried`` along with it, both in their places."""
    manifold = _manifold(point)
    if isinstance(manifold, PoincareBall):
        way = Geodesic(point, v, manifold.c, rate=rate, alpha=alpha)
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
    """The gradient of the loss plus ``½ weight_decay ‖x‖²``, in a tensor that must not be changed."""
    gradient = point.grad
    if gradient is None or gradient.is_sparse:
        raise RuntimeError("sparse gradients need geoopt's SparseRiemannianAdam or SparseRiemannianSGD")
    return gradient.add(point, alpha=group["weight_decay"]) if group["weight_decay"] else gradient
