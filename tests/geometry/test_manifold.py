"""The ball as a geoopt manifold: geoopt's contract, curvatures, and its promises at the boundary."""

import copy
import subprocess
import sys

import pytest
import safetensors.torch
import torch
from torch import Tensor

from ghrq import ball
from ghrq.geometry.manifold import ManifoldParameter, PoincareBall
from points import DTYPES, all_inside, ball_of, both_types, curvatures, directions, points

import geoopt  # isort: skip  # after ghrq.geometry.manifold, which imports it without its warnings


# --- geoopt's contract ---------------------------------------------------------------------------------------


def every_call(m: PoincareBall, dim: int, dtype: torch.dtype) -> dict[str, Tensor | tuple[Tensor, ...]]:
    """Every public geometric method, on tensors whose vectors lie along ``dim``."""

    def place(tensor: Tensor) -> Tensor:
        return tensor.movedim(-1, dim)

    c = float(m.c)
    x, y, z = (place(points(3, 4, 5, c=c, dtype=dtype, seed=seed)) for seed in range(3))
    u, v = (place(directions(3, 4, 5, dtype=dtype, seed=seed)) * 0.1 for seed in (4, 5))
    r = place(torch.rand(3, 4, 1, dtype=dtype, generator=torch.Generator().manual_seed(6)))
    matrix = directions(5, 5, dtype=dtype, seed=7)
    weights = torch.rand(3, 4, dtype=dtype, generator=torch.Generator().manual_seed(8))
    reducedim = [axis for axis in range(3) if axis != dim % 3]
    calls = {
        "dist": m.dist(x, y, dim=dim, keepdim=True),
        "dist2": m.dist2(x, y, dim=dim, keepdim=True),
        "dist0": m.dist0(x, dim=dim, keepdim=True),
        "dist2plane": m.dist2plane(x, y, u, dim=dim, keepdim=True, signed=True),
        "lambda_x": m.lambda_x(x, dim=dim, keepdim=True),
        "inner": m.inner(x, u, v, dim=dim, keepdim=True),
        "norm": m.norm(x, u, dim=dim, keepdim=True),
        "projx": m.projx(2 * x / x.norm(dim=dim, keepdim=True), dim=dim),
        "proju": m.proju(x, u, dim=dim),
        "egrad2rgrad": m.egrad2rgrad(x, u, dim=dim),
        "mobius_add": m.mobius_add(x, y, dim=dim),
        "mobius_sub": m.mobius_sub(x, y, dim=dim),
        "mobius_coadd": m.mobius_coadd(x, y, dim=dim),
        "mobius_cosub": m.mobius_cosub(x, y, dim=dim),
        "mobius_scalar_mul": m.mobius_scalar_mul(r, x, dim=dim),
        "mobius_pointwise_mul": m.mobius_pointwise_mul(u, x, dim=dim),
        "mobius_matvec": m.mobius_matvec(matrix, x, dim=dim),
        "mobius_fn_apply": m.mobius_fn_apply(torch.sin, x, dim=dim),
        "mobius_fn_apply_chain": m.mobius_fn_apply_chain(x, torch.sin, torch.cos, dim=dim),
        "gyration": m.gyration(x, y, z, dim=dim),
        "antipode": m.antipode(x, dim=dim),
        "geodesic": m.geodesic(r, x, y, dim=dim),
        "geodesic_unit": m.geodesic_unit(r, x, u, dim=dim),
        "expmap": m.expmap(x, u, dim=dim),
        "expmap0": m.expmap0(u, dim=dim),
        "logmap": m.logmap(x, y, dim=dim),
        "logmap0": m.logmap0(x, dim=dim),
        "transp": m.transp(x, y, u, dim=dim),
        "transp0": m.transp0(x, u, dim=dim),
        "transp0back": m.transp0back(x, u, dim=dim),
        "retr": m.retr(x, u, dim=dim),
        "retr_transp": m.retr_transp(x, u, v, dim=dim),
        "expmap_transp": m.expmap_transp(x, u, v, dim=dim),
        "transp_follow_retr": m.transp_follow_retr(x, u, v, dim=dim),
        "transp_follow_expmap": m.transp_follow_expmap(x, u, v, dim=dim),
        "weighted_midpoint": m.weighted_midpoint(x, weights, reducedim=reducedim, dim=dim, keepdim=True),
        "sproj": m.sproj(m.inv_sproj(x, dim=dim), dim=dim),
        "inv_sproj": m.inv_sproj(x, dim=dim),
    }
    if dim == -1:  # these know only the last axis
        calls |= {
            "component_inner": m.component_inner(x, u),
            "random": m.random(3, 4),
            "random_normal": m.random_normal(3, 4, std=2.0),
            "wrapped_normal": m.wrapped_normal(3, 5, mean=x[:, 0]),
            "origin": m.origin(3, 4),
            "check": torch.tensor(
                [
                    m.check_point(x),
                    m.check_vector(u),
                    m.check_point_on_manifold(x),
                    m.check_vector_on_tangent(x, u),
                    not m.check_point_on_manifold(2 * x / x.norm(dim=-1, keepdim=True) / c**0.5),
                ]
            ),
        }
        m.assert_check_point(x)
        m.assert_check_vector(u)
        m.assert_check_point_on_manifold(x)
        m.assert_check_vector_on_tangent(x, u)
        calls |= dict.fromkeys((n for n in dir(m) if n.startswith(("check_", "assert_check_"))), calls["check"])
    return calls


def test_no_method_reaches_geoopts_mathematics(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"geoopt's own {name} was used")

    monkeypatch.setattr(geoopt.manifolds.stereographic.manifold, "math", Forbidden())
    with pytest.raises(AssertionError, match="geoopt's own"):
        geoopt.PoincareBall().dist(torch.zeros(2), torch.zeros(2))
    calls = every_call(ball_of(1.0), -1, torch.float64)
    assert calls["check"].all()
    methods = {n for n in dir(geoopt.PoincareBall) if not n.startswith("_")} - set(dir(torch.nn.Module))
    not_geometry = {"pack_point", "unpack_tensor", "device", "dtype", "name", "ndim", "reversible", "radius", "c", "k"}
    assert methods - not_geometry == set(calls) - {"check"}


@both_types
@pytest.mark.parametrize("dim", [0, 1, -2, -3])
def test_vectors_may_lie_along_any_axis(dim: int, dtype: torch.dtype) -> None:
    m = ball_of(1.5, dtype)
    expected, actual = every_call(m, -1, dtype), every_call(m, dim, dtype)
    assert len(actual) > 35
    for name, values in actual.items():
        pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (values, expected[name])), strict=True)
        for value, reference in pairs:
            torch.testing.assert_close(value, reference.movedim(-1, dim), msg=f"{name}: {{}}".format)


def test_reductions_drop_the_axis_they_are_given() -> None:
    m, x, y = ball_of(1.0), points(3, 4, 5), points(3, 4, 5, seed=1)
    reference = m.dist(x, y)
    assert reference.shape == (3, 4)
    torch.testing.assert_close(m.dist(x.movedim(-1, 1), y.movedim(-1, 1), dim=1), reference)
    torch.testing.assert_close(m.norm(x.movedim(-1, 0), y.movedim(-1, 0), dim=0), m.norm(x, y))
    # As geoopt's layer of hyperplanes calls it: (B, d, 1) against (d, planes).
    planes = points(7, 5, seed=2)
    distances = m.dist2plane(x[:, 0].unsqueeze(-1), planes.mT, planes.mT, dim=-2, signed=True)
    torch.testing.assert_close(distances, m.dist2plane(x[:, 0].unsqueeze(1), planes, planes, signed=True))
    with pytest.raises(IndexError):
        m.dist(x, y, dim=3)


@curvatures
def test_agrees_with_geoopt_in_the_middle_of_the_ball(c: float) -> None:
    theirs = geoopt.PoincareBall(torch.tensor(c, dtype=torch.float64))
    ours, reference = every_call(ball_of(c), -1, torch.float64), every_call(theirs, -1, torch.float64)
    different = {
        "projx",  # the larger ball is the point
        "retr",  # geoopt's is of first order, x + u
        "retr_transp",
        "transp_follow_retr",
        "inner",  # geoopt multiplies (..., 1) by what it reduced
        "random",
        "random_normal",
        "wrapped_normal",
    }
    for name in reference.keys() - different:
        torch.testing.assert_close(ours[name], reference[name], rtol=1e-8, atol=1e-10, msg=f"{name}: {{}}".format)


def test_random_points() -> None:
    m = PoincareBall(2.0)
    torch.manual_seed(0)
    x = m.random(2000, 4, std=1.0)
    assert isinstance(x, geoopt.ManifoldTensor)
    assert x.manifold is m
    assert m.check_point_on_manifold(x)
    tangent = m.logmap0(x)
    assert abs(tangent.std().item() - 0.5) < 0.02
    far = m.random(2000, 4, std=1e4)
    assert (far.double().norm(dim=-1) < 2**-0.5).all()
    assert torch.equal(m.origin(3, 4), torch.zeros(3, 4))


def test_works_inside_geoopts_compound_manifolds() -> None:
    m, x, y = ball_of(1.0), points(10, 4), points(10, 4, seed=1)
    scaled = geoopt.Scaled(m, 2.0)
    torch.testing.assert_close(scaled.dist(x, y), 2.0 * m.dist(x, y))
    torch.testing.assert_close(scaled.expmap(x, scaled.logmap(x, y)), y)
    torch.testing.assert_close(scaled.dist0(scaled.expmap0(x)), scaled.norm(torch.zeros_like(x), x))
    product = geoopt.StereographicProductManifold((m, 4), (ball_of(0.5), 4))
    pair = torch.cat((x, y), dim=-1)
    torch.testing.assert_close(product.dist0(pair) ** 2, m.dist0(x) ** 2 + ball_of(0.5).dist0(y) ** 2)
    assert product.reversible  # as the retraction is the exponential map
    assert isinstance(m, geoopt.PoincareBall)
    assert isinstance(m, geoopt.Stereographic)


# --- the curvature -------------------------------------------------------------------------------------------


def test_a_fixed_curvature_is_kept_to_the_last_digit() -> None:
    for c in (1e-6, 0.1, 1.0, 2.0, 3.7):
        assert PoincareBall(c).c == torch.tensor(c)
        assert PoincareBall(torch.tensor(c, dtype=torch.float64)).c == torch.tensor(c, dtype=torch.float64)
    assert PoincareBall(2).c.dtype == torch.get_default_dtype()
    assert not list(PoincareBall(1.0).parameters())


def test_a_learnable_curvature_gets_its_gradient() -> None:
    for c in (1e-4, 0.7, 1.0, 30.0):
        m = PoincareBall(torch.tensor(c, dtype=torch.float64), learnable=True)
        torch.testing.assert_close(m.c.detach(), torch.tensor(c, dtype=torch.float64))
        x, y, u = points(20, 4, c=c), points(20, 4, c=c, seed=1), directions(20, 4, seed=2)

        def loss(m: PoincareBall, x: Tensor = x, y: Tensor = y, u: Tensor = u) -> Tensor:
            return m.dist(x, y).sum() + m.dist2plane(x, y, u).sum() + m.retr(x, u).sum() + m.mobius_coadd(x, y).sum()

        (gradient,) = torch.autograd.grad(loss(m), m.isp_c)
        h = 1e-6 * c
        numeric = (loss(ball_of(c + h)) - loss(ball_of(c - h))) / (2 * h) * torch.sigmoid(m.isp_c.detach())
        torch.testing.assert_close(gradient, numeric.detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("c", "learnable"), [(-1.0, False), (0.0, True), (-1.0, True), (float("nan"), False)])
def test_curvatures_that_are_refused(c: float, learnable: bool) -> None:
    with pytest.raises(ValueError, match="curvature"):
        PoincareBall(c, learnable=learnable)


def test_the_tensor_of_the_caller_stays_as_it_is() -> None:
    c = torch.tensor(1.5)
    m = PoincareBall(c)
    c.fill_(9.0)
    assert m.c == 1.5
    assert PoincareBall(torch.tensor(2.0), learnable=True).c.requires_grad


@pytest.mark.parametrize("learnable", [False, True])
def test_copies_types_and_files(learnable: bool, tmp_path) -> None:
    class Model(torch.nn.Module):
        def __init__(self, c: float) -> None:
            super().__init__()
            self.manifold = PoincareBall(c, learnable=learnable)
            self.codes = ManifoldParameter(points(5, 3, c=c, dtype=torch.float32), manifold=self.manifold)

    model = Model(2.0)
    twin = copy.deepcopy(model)
    assert twin.codes.manifold is twin.manifold is not model.manifold
    assert torch.equal(twin.manifold.c, model.manifold.c)
    assert torch.equal(twin.codes, model.codes)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = Model(1.0)
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other.manifold.c, model.manifold.c)
    assert torch.equal(other.codes, model.codes)
    model.double()
    assert model.manifold.c.dtype == model.manifold.dtype == model.codes.dtype == torch.float64
    assert isinstance(model.codes, ManifoldParameter)
    assert model.codes.manifold is model.manifold
    assert model.manifold.random(2, 3).dtype == torch.float64


def test_flat_space_is_the_limit() -> None:
    m, tiny = PoincareBall(0.0).double(), ball_of(1e-12)
    x, y, u = points(20, 4), points(20, 4, seed=1), directions(20, 4, seed=2)
    for method, args in {
        "dist": (x, y),
        "dist2plane": (x, y, u),
        "mobius_add": (x, y),
        "mobius_coadd": (x, y),
        "expmap": (x, u),
        "retr": (x, u),
        "logmap": (x, y),
        "transp": (x, y, u),
        "geodesic": (torch.tensor(0.3, dtype=torch.float64), x, y),
        "weighted_midpoint": (x,),
    }.items():
        flat = getattr(m, method)(*args)
        torch.testing.assert_close(flat, getattr(tiny, method)(*args), msg=method)
        assert flat.isfinite().all()
    torch.testing.assert_close(m.dist(x, y), 2 * (x - y).norm(dim=-1))
    torch.testing.assert_close(m.mobius_coadd(x, y), x + y)
    torch.testing.assert_close(m.weighted_midpoint(x), x.mean(0))
    torch.testing.assert_close(m.weighted_midpoint(x, lincomb=True), x.sum(0))


# --- up to the boundary --------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1.0, 2.5])
def test_float32_at_radius_0_9999(c: float) -> None:
    single, double = ball_of(c, torch.float32), PoincareBall(torch.tensor(c)).double()
    x = (directions(300, 16) * 0.9999 / c**0.5).float()
    y = (directions(300, 16, seed=1) * 0.9999 / c**0.5).float()
    near = (x + 1e-4 * directions(300, 16, seed=2).float() * 0.3).float()
    near = torch.where(near.norm(dim=-1, keepdim=True) < 0.99995 / c**0.5, near, x * 0.9998)
    eps = torch.finfo(torch.float32).eps
    for other in (y, near, -x, 0.5 * x, x):
        exact = double.dist(x.double(), other.double())
        torch.testing.assert_close(single.dist(x, other).double(), exact, rtol=5e-7, atol=0)
        # There and back. Rounding the logarithm turns it by an ulp, and geodesics at an angle part as sinh;
        # rounding the end moves it by an ulp times its conformal factor.
        error = double.dist(single.expmap(x, single.logmap(x, other)).double(), other.double())
        bound = eps * ((c**0.5 * exact).sinh() + double.lambda_x(other.double())) / c**0.5
        assert (error < bound).all()
    theirs = geoopt.PoincareBall(c)
    assert (theirs.projx(x) - x).norm(dim=-1).min() > 3e-3 / c**0.5  # what all of this would be lost to


def test_sums_are_pulled_back_into_the_ball_unless_told_otherwise() -> None:
    m = PoincareBall()
    x, y = m.projx(2 * directions(200, 8).float()), m.projx(2 * directions(200, 8, seed=1).float())
    free = m.mobius_add(x, y, project=False)
    assert not all_inside(free)  # by rounding
    assert all_inside(m.mobius_add(x, y))
    assert torch.equal(m.projx(free), m.mobius_add(x, y))


def test_points_at_the_largest_radius_are_on_the_manifold() -> None:
    for dtype in DTYPES:
        m = ball_of(1.0, dtype)
        x = directions(50, 8, dtype=dtype) * ball.max_radius(dtype)
        assert m.check_point_on_manifold(x, atol=0.0, rtol=torch.finfo(dtype).eps)
        assert m.check_point_on_manifold(directions(50, 8, dtype=dtype) * 0.9999)
        assert not m.check_point_on_manifold(directions(50, 8, dtype=dtype) * 1.001)
        ok, reason = m.check_point_on_manifold(directions(50, 8, dtype=dtype) * 1.001, explain=True)
        assert not ok
        assert "outside" in reason


# --- the import ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_import_is_silent_and_restores_the_filters() -> None:
    program = "import ghrq.geometry.manifold, warnings; warnings.warn('torch.jit.script', DeprecationWarning)"
    run = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    assert run.stderr == "<string>:1: DeprecationWarning: torch.jit.script\n"
