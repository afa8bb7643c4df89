"""The retraction, and the optimisers that walk by it, against plain references, geoopt and torch."""

import copy

import pytest
import torch
from torch import Tensor

from ghrq import ball
from ghrq.geometry.manifold import Euclidean, ManifoldParameter, PoincareBall
from ghrq.optim import RiemannianAdam, RiemannianSGD
from points import DTYPES, all_inside, assert_close, ball_of, both_types, curvatures, directions, points

import geoopt  # isort: skip  # after ghrq.geometry.manifold, which imports it without its warnings


# --- the retraction ------------------------------------------------------------------------------------------


@both_types
@curvatures
@pytest.mark.parametrize("depth", [0.5, 0.99, 0.9999])
def test_retraction_is_the_exponential_map(depth: float, c: float, dtype: torch.dtype) -> None:
    m = PoincareBall(torch.tensor(c, dtype=dtype))
    x = directions(400, 8, dtype=dtype) * depth / c**0.5
    for length in (1e-4, 0.1, 1.0, 2.0):
        u = directions(400, 8, dtype=dtype, seed=1)
        u[:50], u[50:100] = -x[:50], x[50:100]  # straight to the centre, and straight away from it
        u = u * (length / c**0.5 / m.norm(x, u, keepdim=True))
        exact = ball.expmap(x.double(), u.double(), m.c.double()).to(dtype)
        ulps = 3 if length <= 1.0 else 8
        assert_close(m.retr(x, u), exact, ulps, c**-0.5)
        end, moved = m.retr_transp(x, u, directions(400, 8, dtype=dtype, seed=2))
        assert torch.equal(end, m.retr(x, u))
        expected = m.transp(x, end, directions(400, 8, dtype=dtype, seed=2))
        # An ulp of the end's coordinates turns the transported vector by an ulp over the end's gap.
        gap = ball.gap(end, m.c).clamp(max=1.0)
        error = (moved - expected).norm(dim=-1, keepdim=True) / expected.norm(dim=-1, keepdim=True)
        assert (error * gap <= 8 * torch.finfo(dtype).eps).all()
        lengths = m.norm(end, moved) / m.norm(x, directions(400, 8, dtype=dtype, seed=2))
        wide = 1.0 if dtype == torch.float32 else float(gap.min())  # float64 has no wider type for the gap
        assert_close(lengths, torch.ones_like(lengths), 40 / wide)


def test_retraction_has_the_gradients_of_the_exponential_map() -> None:
    m = PoincareBall(torch.tensor(1.3, dtype=torch.float64), learnable=True)
    x, u, w = points(20, 4, c=1.3), directions(20, 4, seed=1) * 0.3, directions(20, 4, seed=2)
    x[0], u[1] = 0.0, 0.0
    x.requires_grad_(), u.requires_grad_()
    inputs = (x, u, m.isp_c)
    for ours, reference in [
        (m.retr(x, u), m.expmap(x, u)),
        (m.retr_transp(x, u, w)[1], m.transp(x, m.expmap(x, u), w)),
        (m.retr_transp(x, u, u)[1], m.transp(x, m.expmap(x, u), u)),
    ]:
        actual = torch.autograd.grad((ours * w).sum(), inputs, retain_graph=True)
        expected = torch.autograd.grad((reference * w).sum(), inputs, retain_graph=True)
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, *DTYPES])
@pytest.mark.parametrize("length", [10.0, 1e3, 1e30])
def test_no_step_leaves_the_ball(length: float, dtype: torch.dtype) -> None:
    length = min(length, 0.5 * torch.finfo(dtype).max)
    m = PoincareBall()
    x = torch.cat((points(100, 6, depth=1.0), directions(100, 6) * 0.9999, torch.zeros(1, 6))).to(dtype)
    x = m.projx(x)
    for u in (directions(201, 6, seed=1).to(dtype), -x, x):
        y, v = m.retr_transp(x, length * u, u)
        assert y.dtype == v.dtype == dtype
        assert all_inside(y)
        assert v.isfinite().all()


# --- Adam ----------------------------------------------------------------------------------------------------


def train(optimizer: torch.optim.Optimizer, parameters: list[Tensor], steps: int, seed: int = 0) -> list[Tensor]:
    """What the parameters are after each of some steps, whose gradients depend on the parameters and on the step."""
    history = []
    for step in range(seed, seed + steps):
        for i, p in enumerate(parameters):
            p.grad = torch.sin(3 * p.detach() + i) + 0.1 * step
        optimizer.step()
        history += [p.detach().clone() for p in parameters]
    return history


@both_types
@pytest.mark.parametrize(
    "options", [{}, {"amsgrad": True}, {"weight_decay": 0.1}, {"betas": (0.5, 0.9)}, {"stabilize": 2}]
)
def test_adam_takes_geoopts_steps(options: dict, dtype: torch.dtype) -> None:
    def parameters() -> list[Tensor]:
        m = PoincareBall(torch.tensor(1.5, dtype=dtype))
        return [
            ManifoldParameter(points(3, 20, 6, c=1.5, dtype=dtype), manifold=m),
            ManifoldParameter(points(6, c=1.5, dtype=dtype, seed=1), manifold=m),
            ManifoldParameter(directions(5, 4, dtype=dtype), manifold=geoopt.Sphere()),
            ManifoldParameter(directions(5, 4, dtype=dtype), manifold=Euclidean(ndim=1)),
            torch.nn.Parameter(directions(5, 4, dtype=dtype, seed=2)),
            torch.nn.Parameter(torch.tensor(0.3, dtype=dtype)),
        ]

    ours, theirs = parameters(), parameters()
    lean = RiemannianAdam(ours, lr=0.05, **options)
    plain = geoopt.optim.RiemannianAdam(theirs, lr=0.05, **options)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-13
    for mine, other in zip(train(lean, ours, 8), train(plain, theirs, 8), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
    for mine, other in zip(ours, theirs, strict=True):
        assert lean.state[mine].keys() == plain.state[other].keys()
        for key, value in plain.state[other].items():
            if isinstance(value, Tensor):
                assert lean.state[mine][key].dtype == value.dtype
                torch.testing.assert_close(lean.state[mine][key], value, rtol=50 * tolerance, atol=tolerance)
            else:
                assert lean.state[mine][key] == value


def test_adam_resumes_from_its_state() -> None:
    def fresh() -> tuple[RiemannianAdam, ManifoldParameter]:
        p = ManifoldParameter(points(20, 6), manifold=ball_of(1.0))
        return RiemannianAdam([p], lr=0.1, amsgrad=True), p

    optimizer, p = fresh()
    train(optimizer, [p], 3)
    other, q = fresh()
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with torch.no_grad():
        q.copy_(p)
    for a, b in zip(train(optimizer, [p], 3, seed=7), train(other, [q], 3, seed=7), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", [RiemannianAdam, RiemannianSGD])
def test_optimisers_leave_the_gradient_alone_and_call_the_closure(kind: type) -> None:
    p = ManifoldParameter(points(20, 6), manifold=ball_of(1.0))
    idle = ManifoldParameter(points(20, 6), manifold=ball_of(1.0))
    optimizer = kind([p, idle], lr=0.1, weight_decay=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = p.manifold.dist2(p, torch.full((6,), 0.1, dtype=torch.float64)).sum()
        loss.backward()
        closure.gradient = p.grad.clone()
        return loss

    before = p.detach().clone()
    losses = [optimizer.step(closure).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert not torch.equal(p, before)
    assert torch.equal(p.grad, closure.gradient)
    assert torch.equal(idle, points(20, 6))
    p.grad = p.detach().to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()


@pytest.mark.parametrize("kind", [RiemannianAdam, RiemannianSGD])
def test_optimisers_stabilize_as_often_as_they_are_told(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    p = ManifoldParameter(points(20, 6), manifold=ball_of(1.0))
    optimizer, calls = kind([p], lr=0.1, stabilize=3), []
    monkeypatch.setattr(optimizer, "stabilize_group", calls.append)
    train(optimizer, [p], 7)
    assert len(calls) == 2
    monkeypatch.undo()
    with torch.no_grad():
        p[0] = 2.0
    optimizer.stabilize()
    assert all_inside(p.detach())


ON_THE_BALL = [
    (RiemannianAdam, {}),
    (RiemannianAdam, {"amsgrad": True}),
    (geoopt.optim.RiemannianAdam, {}),
    (RiemannianSGD, {}),
    (RiemannianSGD, {"momentum": 0.9}),
    (RiemannianSGD, {"momentum": 0.9, "nesterov": True}),
    (geoopt.optim.RiemannianSGD, {"momentum": 0.9}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), ON_THE_BALL)
@pytest.mark.parametrize("dtype", [torch.bfloat16, *DTYPES])
@pytest.mark.parametrize("lr", [1.0, 1e3])
def test_no_learning_rate_leads_out_of_the_ball(lr: float, dtype: torch.dtype, kind: type, options: dict) -> None:
    m = PoincareBall()
    start = torch.cat((points(60, 5), directions(60, 5, seed=1) * 0.9999, torch.zeros(1, 5))).to(dtype)
    p = ManifoldParameter(m.projx(start), manifold=m)
    target = points(121, 5, seed=3).to(dtype)
    optimizer = kind([p], lr=lr, **options)
    for step in range(30):
        optimizer.zero_grad()
        if step == 10:
            p.grad = torch.zeros_like(p)
        else:
            m.dist2(p, target).sum().backward()
        optimizer.step()
        assert p.isfinite().all()
        assert all_inside(p.detach())


@pytest.mark.parametrize(("kind", "options"), ON_THE_BALL[:-1])  # the first step of the last is λ² too long
def test_a_float32_step_at_radius_0_9999_is_the_float64_step(kind: type, options: dict) -> None:
    def step(dtype: torch.dtype) -> Tensor:
        m = ball_of(1.0, dtype)
        p = ManifoldParameter((directions(200, 8).float() * 0.9999).to(dtype), manifold=m)
        optimizer = kind([p], lr=0.05, **options)
        m.dist2(p, (directions(200, 8, seed=1) * 0.5).float().to(dtype)).sum().backward()
        optimizer.step()
        return p.detach()

    start = directions(200, 8).float() * 0.9999
    single, double = step(torch.float32), step(torch.float64)
    assert (single.double() - double).norm(dim=-1).max() < 2e-7
    m = ball_of(1.0)
    assert m.dist(start.double(), double).min() > 0.04  # it did move, by more than float32 cannot tell
    assert m.dist(single.double(), double).max() < 2e-3


def test_learning_reaches_a_target_at_the_boundary() -> None:
    m = PoincareBall()
    p = ManifoldParameter(points(50, 8, dtype=torch.float32, depth=0.3), manifold=m)
    target = directions(50, 8, dtype=torch.float32, seed=1) * 0.9999
    optimizer = RiemannianAdam([p], lr=0.5, betas=(0.9, 0.9))
    for step in range(300):
        optimizer.param_groups[0]["lr"] = 0.5 * 0.98**step
        optimizer.zero_grad()
        m.dist2(p, target).sum().backward()
        optimizer.step()
    assert m.dist(p, target).max() < 2e-3


# --- SGD -----------------------------------------------------------------------------------------------------


def textbook_add(x: Tensor, y: Tensor, c: float) -> Tensor:
    xy, x2, y2 = x @ y, x @ x, y @ y
    return ((1 + 2 * c * xy + c * y2) * x + (1 - c * x2) * y) / (1 + 2 * c * xy + c**2 * x2 * y2)


def textbook_exp(x: Tensor, v: Tensor, c: float) -> Tensor:
    length = v.norm()
    if length == 0:
        return x
    return textbook_add(x, torch.tanh(c**0.5 * length / (1 - c * x @ x)) * v / (c**0.5 * length), c)


def textbook_transport(v: Tensor, x: Tensor, y: Tensor, c: float) -> Tensor:
    """(λ_x/λ_y) gyr[y, -x] v, the gyration by its definition on a short multiple of v."""
    short = 1e-3 * v / v.norm()
    turned = textbook_add(-textbook_add(y, -x, c), textbook_add(y, textbook_add(-x, short, c), c), c)
    return turned * (v.norm() / 1e-3) * (1 - c * y @ y) / (1 - c * x @ x)


@curvatures
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.8, "dampening": 0.3},
        {"momentum": 0.9, "weight_decay": 0.05},
        {"weight_decay": 0.05},
    ],
)
def test_sgd_against_a_plain_reference(options: dict, c: float) -> None:
    momentum, dampening = options.get("momentum", 0.0), options.get("dampening", 0.0)
    p = ManifoldParameter(points(6, 4, c=c, depth=0.8), manifold=ball_of(c))
    optimizer = RiemannianSGD([p], lr=0.2, **options)
    xs, buffers = list(points(6, 4, c=c, depth=0.8)), [None] * 6
    for step in range(5):
        gradients = directions(6, 4, seed=100 + step) * 2.0
        p.grad = gradients.clone()
        optimizer.step()
        for i, x in enumerate(xs):
            g = gradients[i] + options.get("weight_decay", 0.0) * x
            g = g * ((1 - c * x @ x) / 2) ** 2
            if momentum:
                buffers[i] = g if buffers[i] is None else momentum * buffers[i] + (1 - dampening) * g
                g = g + momentum * buffers[i] if options.get("nesterov") else buffers[i]
            xs[i] = textbook_exp(x, -0.2 * g, c)
            if momentum:
                buffers[i] = textbook_transport(buffers[i], x, xs[i], c)
        torch.testing.assert_close(p.detach(), torch.stack(xs), rtol=0, atol=1e-12)
        if momentum:
            torch.testing.assert_close(
                optimizer.state[p]["momentum_buffer"], torch.stack(buffers), rtol=1e-10, atol=1e-11
            )


SGD_OPTIONS = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01},
]


@both_types
@pytest.mark.parametrize("options", SGD_OPTIONS)
def test_sgd_on_euclidean_parameters_is_torchs(options: dict, dtype: torch.dtype) -> None:
    start = directions(30, 5, dtype=dtype)
    for ours in (torch.nn.Parameter(start.clone()), ManifoldParameter(start.clone(), manifold=Euclidean())):
        theirs = torch.nn.Parameter(start.clone())
        mine = train(RiemannianSGD([ours], lr=0.1, **options), [ours], 6)
        other = train(torch.optim.SGD([theirs], lr=0.1, **options), [theirs], 6)
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))


@both_types
@pytest.mark.parametrize("options", SGD_OPTIONS)
def test_sgd_on_a_flat_ball_is_torchs_at_a_quarter_of_the_rate(options: dict, dtype: torch.dtype) -> None:
    ours = ManifoldParameter(directions(30, 5, dtype=dtype) * 3.0, manifold=PoincareBall(0.0).to(dtype))
    theirs = torch.nn.Parameter(directions(30, 5, dtype=dtype) * 3.0)
    mine = train(RiemannianSGD([ours], lr=0.4, **options), [ours], 6)
    other = train(torch.optim.SGD([theirs], lr=0.1, **options), [theirs], 6)
    for a, b in zip(mine, other, strict=True):
        assert_close(a, b, 2)


def test_sgd_starts_its_momentum_from_the_riemannian_gradient() -> None:
    first = {}
    for kind in (RiemannianSGD, geoopt.optim.RiemannianSGD):
        p = ManifoldParameter(directions(20, 5) * 0.9, manifold=ball_of(1.0))
        optimizer = kind([p], lr=0.1, momentum=0.9)
        p.grad = directions(20, 5, seed=1)
        optimizer.step()
        first[kind] = ball_of(1.0).dist(p.detach(), directions(20, 5) * 0.9)
    # lr ‖rgrad‖ = lr ‖egrad‖ / λ; geoopt adds momentum times the Euclidean gradient to that.
    expected = torch.full((20,), 0.1 * (1 - 0.81) / 2, dtype=torch.float64)
    torch.testing.assert_close(first[RiemannianSGD], expected)
    assert (first[geoopt.optim.RiemannianSGD] > 5 * expected).all()


def test_sgd_walks_on_other_manifolds() -> None:
    for options in SGD_OPTIONS:
        p = ManifoldParameter(directions(10, 4), manifold=geoopt.Sphere())
        train(RiemannianSGD([p], lr=0.1, stabilize=2, **options), [p], 5)
        torch.testing.assert_close(p.detach().norm(dim=-1), torch.ones(10, dtype=torch.float64))
