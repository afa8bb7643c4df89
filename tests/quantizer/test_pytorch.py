"""Being a good PyTorch citizen: compile, export, ONNX, state, types, autocast, torch.func, the Hub."""

import copy
import inspect
import json
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.func import functional_call, grad

from ghrq import ResidualQuantizer
from ghrq.geometry.manifold import ManifoldParameter, PoincareBall
from ghrq.optim import RiemannianSGD
from ghrq.quantizer import KINDS
from ghrq.quantizer.depth import DepthDropout

DIM = 8
OPTIONS = [
    {},
    {"codebook_update": "ema"},
    {"codebook_dim": 4, "scale_control": True, "depth_dropout": True},
    {"codebook_update": "ema", "codebook_size": [8, 32, 16]},
]


def quantizer(kind="ghrq", stages=3, codebook_size=32, **settings):
    return ResidualQuantizer(DIM, codebook_size, stages, kind=kind, **settings)


def vectors(n=200, scale=0.4):
    return torch.randn(n, DIM) * scale


def train_step(step, z, seed):
    torch.manual_seed(seed)
    leaf = z.clone().requires_grad_()
    output = step(leaf)
    (output.loss + output.z_hat.square().sum()).backward()
    return (*output, leaf.grad)


def assert_same_training(rq, backend, **tolerance):
    compiled_rq = copy.deepcopy(rq)
    torch.compiler.reset()
    compiled = torch.compile(compiled_rq, fullgraph=True, backend=backend)
    z = vectors()
    for seed in range(3):
        for a, b in zip(train_step(rq, z, seed), train_step(compiled, z, seed), strict=True):
            torch.testing.assert_close(a, b, **tolerance)
    for name, tensor in rq.state_dict().items():
        torch.testing.assert_close(compiled_rq.state_dict()[name], tensor, **tolerance, msg=name)
    rq.eval()
    compiled_rq.eval()
    with torch.no_grad():
        for a, b in zip(rq(z), compiled(z), strict=True):
            torch.testing.assert_close(a, b, **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("settings", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["ghrq", "naive", "euclidean"])
def test_compiles_without_a_graph_break(kind, settings):
    # A third stage is traced as the second is, which takes seconds, unless depths are drawn or sizes differ.
    stages = 3 if settings.keys() & {"depth_dropout", "codebook_size"} else 2
    # A decay this low and a threshold this high make dead codes come back within three steps.
    rq = quantizer(kind, stages, decay=0.5, revive_below=0.4, **settings)
    assert_same_training(rq, "aot_eager", rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [True, [1, 3], DepthDropout(full=0.5, learning="all")], ids=str)
def test_one_compiled_step_serves_batches_of_several_sizes(dropout):
    rq = quantizer(depth_dropout=dropout)
    twin = copy.deepcopy(rq)
    torch.compiler.reset()
    compiled = torch.compile(rq, fullgraph=True, dynamic=True, backend="aot_eager")
    for seed, rows in enumerate((64, 40, 24)):
        z = vectors(rows)
        for a, b in zip(train_step(compiled, z, seed), train_step(twin, z, seed), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the inductor backend needs a C++ compiler, and there is none")
def test_compiles_to_machine_code():
    assert_same_training(ResidualQuantizer(DIM, 16, 2), "inductor", rtol=1e-4, atol=1e-5)


class Encode(nn.Module):
    def __init__(self, rq):
        super().__init__()
        self.rq = rq

    def forward(self, z):
        return self.rq.encode(z)


class Decode(Encode):
    def forward(self, codes):
        return self.rq.decode(codes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ghrq", {}),
        ("naive", {"codebook_dim": 4, "scale_control": True}),
        ("euclidean", {}),
        ("calibrated", {"codebook_size": [8, 32, 16]}),
    ],
)
def test_exports_encode_and_decode_and_onnx_runtime_gives_the_same_numbers(kind, settings, tmp_path):
    import onnxruntime

    rq = quantizer(kind, **settings)
    rq(vectors())
    rq.eval()
    z = vectors()
    codes, z_hat = rq.encode(z), rq.decode(rq.encode(z))
    rows = torch.export.Dim("rows", min=2, max=2**20)
    for module, given, expected in ((Encode(rq), z, codes), (Decode(rq), codes, z_hat)):
        program = torch.export.export(module, (given,), dynamic_shapes=({0: rows},))
        torch.testing.assert_close(program.module()(given[:77]), expected[:77], rtol=1e-6, atol=1e-6)
        path = tmp_path / "model.onnx"
        torch.onnx.export(program, dynamo=True, verbose=False).save(path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {session.get_inputs()[0].name: given[:55].numpy()})
        np.testing.assert_allclose(found, expected[:55].numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_exports_the_whole_module_for_any_batch(tmp_path):
    import onnxruntime

    rq = quantizer("calibrated")
    rq(vectors())
    rq.eval()
    z, rows = vectors(), torch.export.Dim("rows", min=2, max=2**20)
    program = torch.export.export(rq, (z,), dynamic_shapes={"z": {0: rows}})
    path = tmp_path / "model.onnx"
    torch.onnx.export(program, dynamo=True, verbose=False).save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for count in (200, 77, 333):
        z = vectors(count)
        expected = rq(z)
        z_hat, codes, loss = session.run(None, {session.get_inputs()[0].name: z.numpy()})
        for found in (program.module()(z), (torch.from_numpy(z_hat), torch.from_numpy(codes), torch.tensor(loss))):
            torch.testing.assert_close(found[0], expected.z_hat, rtol=1e-5, atol=1e-6)
            assert torch.equal(found[1], expected.codes)
            torch.testing.assert_close(found[2], expected.loss, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("settings", OPTIONS, ids=str)
def test_state_survives_a_round_trip(settings, tmp_path):
    rq, other = quantizer(**settings), quantizer(**settings)
    rq(vectors())
    safetensors.torch.save_model(rq, tmp_path / "rq.safetensors")
    safetensors.torch.load_model(other, tmp_path / "rq.safetensors")
    z = vectors()
    assert torch.equal(rq.eval().encode(z), other.eval().encode(z))
    again = quantizer(**settings)
    again.load_state_dict(rq.state_dict())
    assert torch.equal(again.eval().encode(z), rq.encode(z))


def test_state_that_is_assigned_stays_on_the_ball():
    rq = quantizer()
    rq.load_state_dict(rq.state_dict(), assign=True)
    assert isinstance(rq.codebooks, ManifoldParameter)
    assert isinstance(rq.codebooks.manifold, PoincareBall)


def test_can_be_built_without_memory():
    with torch.device("meta"):
        assert quantizer().codebooks.device.type == "meta"


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("settings", [*OPTIONS, {"curvature": "learn"}, {"centre": True}], ids=str)
def test_built_without_memory_it_loads_its_state(settings, assign):
    z, settings = vectors(), {"kind": "calibrated", **settings}
    rq = quantizer(**settings)
    rq(z)
    with torch.device("meta"):
        other = quantizer(**settings)
    if not assign:
        other.to_empty(device="cpu")
    other.load_state_dict(rq.state_dict(), assign=assign)
    assert not any(tensor.is_meta for tensor in (*other.parameters(), *other.buffers(), other.codebooks.manifold.c))
    assert torch.equal(other.eval().encode(z), rq.eval().encode(z))
    assert all(torch.equal(a, b) for a, b in zip(other(z), rq(z), strict=True))
    for each in (rq.train(), other.train()):
        torch.manual_seed(0)
        each(z.clone().requires_grad_()).loss.backward()
        RiemannianSGD([each.codebooks], lr=0.1).step()
    assert torch.equal(other.codebooks, rq.codebooks)


def test_without_memory_it_still_refuses_another_convention():
    with torch.device("meta"):
        rq = quantizer(curvature=0.5)
    with pytest.raises(ValueError, match="trained with curvature 1"):
        rq.load_state_dict(quantizer().state_dict(), assign=True)


def test_a_second_derivative_is_refused_rather_than_wrong():
    z = vectors().requires_grad_()
    (g,) = torch.autograd.grad(quantizer()(z).z_hat.square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        g.sum().backward()


@pytest.mark.parametrize("kind", ["ghrq", "calibrated", "euclidean", "naive"])
def test_a_second_derivative_of_the_loss_is_refused_too(kind):
    """The incoming gradient is a constant there."""
    z = vectors().requires_grad_()
    loss = quantizer(kind)(z).loss + z.square().sum()
    (g,) = torch.autograd.grad(loss, z, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        g.sum().backward()


def test_a_copy_is_a_copy():
    rq = quantizer()
    other = copy.deepcopy(rq)
    assert isinstance(other.codebooks, ManifoldParameter)
    assert isinstance(other.codebooks.manifold, PoincareBall)
    rq(vectors()).loss.backward()
    RiemannianSGD(rq.parameters(), lr=0.1).step()
    assert not torch.equal(rq.codebooks, other.codebooks)


def test_goes_to_the_hub_and_back(tmp_path):
    rq = quantizer("dhste-only", curvature=0.7, scale_control=True)
    rq(vectors())
    rq.eval().save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} >= {"config.json", "model.safetensors"}
    other = ResidualQuantizer.from_pretrained(tmp_path)
    assert (other.kind, other.curvature, other.aggregation) == ("dhste-only", 0.7, "chained")
    z = vectors()
    assert torch.equal(other.encode(z), rq.encode(z))
    assert torch.equal(other.decode(rq.encode(z)), rq.decode(rq.encode(z)))


def test_a_folder_of_the_first_version_still_loads(tmp_path):
    """It was saved by huggingface_hub's mixin: the arguments as they were given, no format, no checksum."""
    rq = quantizer("dhste-only", curvature=0.7, scale_control=True).eval()
    config = {"dim": rq.dim, "codebook_size": rq.codebook_size, "num_stages": rq.num_stages, "kind": "dhste-only"}
    config |= {"curvature": 0.7, "scale_control": True, "aggregation": None, "codebook_dim": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "README.md").write_text("a model card")
    safetensors.torch.save_file(rq.state_dict(), tmp_path / "model.safetensors")
    other, z = ResidualQuantizer.from_pretrained(tmp_path), vectors()
    assert torch.equal(other.encode(z), rq.encode(z))


def test_all_arguments_come_back(tmp_path):
    given = {"dim": 6, "codebook_size": 9, "num_stages": 2, "kind": "naive", "curvature": 0.5, "commitment_weight": 0.3}
    given |= {"aggregation": "nested", "gradient": "transport", "commitment": "discounted", "discount": False}
    given |= {"units": "ball", "radius": 0.7, "centre": True, "channel_dim": 1, "temperature": 0.5}
    given |= {"codebook_dim": 4, "codebook_update": "ema", "decay": 0.9, "revive_below": 0.2}
    given |= {"depth_dropout": {"depths": [1, 2], "full": 0.5, "learning": "all"}, "scale_control": True}
    assert given.keys() == inspect.signature(ResidualQuantizer).parameters.keys()
    ResidualQuantizer(**given).save_pretrained(tmp_path / "rq")
    assert ResidualQuantizer.from_pretrained(tmp_path / "rq")._saved_config() == given


def test_double_agrees_with_float():
    rq, z = quantizer().eval(), vectors()
    wide = copy.deepcopy(rq).double()
    assert wide(z.double()).z_hat.dtype == torch.float64
    assert torch.equal(wide.encode(z.double()), rq.encode(z))
    torch.testing.assert_close(wide(z.double()).z_hat.float(), rq(z).z_hat, rtol=2e-6, atol=1e-6)
    assert rq(z.double()).z_hat.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    rq, z = quantizer().eval(), vectors().to(dtype)
    expected = rq(z.float())
    output = rq(z)
    assert output.z_hat.dtype == dtype
    assert output.loss.dtype == torch.float32
    assert torch.equal(output.codes, expected.codes)
    assert torch.equal(output.z_hat, expected.z_hat.to(dtype))
    assert torch.equal(rq.encode(z), expected.codes)
    with torch.no_grad():
        rq.codebooks[0] = torch.nn.functional.normalize(rq.codebooks[0], dim=-1) * 0.99999
    low = copy.deepcopy(rq).to(dtype)
    assert low.codebooks.double().norm(dim=-1).max().item() < 1.0
    assert low.usage.share.dtype == torch.float32
    assert low(z).z_hat.dtype == dtype
    assert low.decode(low.encode(z)).dtype == dtype


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_does_not_reach_the_ball(kind):
    rq, z = quantizer(kind, codebook_update="gradient"), vectors().requires_grad_()
    outside = rq(z)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = rq(z)
        codes = rq.encode(z)
    for a, b in zip(outside, inside, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(codes, outside.codes)


def test_torch_func_gives_the_gradients_of_autograd():
    rq, z = quantizer().eval(), vectors().requires_grad_()
    parameters, buffers = dict(rq.named_parameters()), dict(rq.named_buffers())

    def loss(parameters, z):
        output = functional_call(rq, (parameters, buffers), (z,))
        return output.loss + output.z_hat.square().sum()

    loss(parameters, z).backward()
    to_parameters, to_z = grad(loss, argnums=(0, 1))(parameters, z)
    torch.testing.assert_close(to_parameters["codebooks"], rq.codebooks.grad)
    torch.testing.assert_close(to_z, z.grad)


def test_importing_prints_no_warnings():
    import subprocess
    import sys

    result = subprocess.run([sys.executable, "-W", "always", "-c", "import ghrq"], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
