"""Checkpoints hold everything, exactly; damage is noticed; the two newest stay."""

import random
import shutil
import subprocess

import geoopt
import numpy as np
import pytest
import torch
from torch import nn

from ghrq import ResidualQuantizer
from ghrq.geometry.manifold import ManifoldParameter, PoincareBall
from ghrq.optim import RiemannianAdam, RiemannianSGD
from ghrq.training import checkpoint as checkpoints
from ghrq.training.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    load_checkpoint,
    newest_checkpoint,
    newest_step,
    non_finite,
    save_checkpoint,
)
from ghrq.training.randomness import random_state, seed_everything, set_random_state

schedulers = torch.optim.lr_scheduler

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "lbfgs-like groups": lambda p: torch.optim.RMSprop([{"params": p, "lr": 0.02, "note": "x"}], centered=True),
    "riemannian adam": lambda p: RiemannianAdam(p, lr=0.01, stabilize=2),
    "riemannian sgd": lambda p: RiemannianSGD(p, lr=0.01, momentum=0.9, stabilize=3),
    "geoopt adam": lambda p: geoopt.optim.RiemannianAdam(p, lr=0.01, amsgrad=True),
    "geoopt sgd": lambda p: geoopt.optim.RiemannianSGD(p, lr=0.01, momentum=0.9),
}

SCHEDULERS = {
    "none": lambda o: None,
    "milestones": lambda o: schedulers.MultiStepLR(o, [2, 5]),
    "one cycle": lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
    "warm-up": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.1, total_iters=2), schedulers.CosineAnnealingLR(o, 8)], [2]
    ),
    "lambda": lambda o: schedulers.LambdaLR(o, lambda step: 0.9**step),
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.linear.weight
        self.rq = ResidualQuantizer(4, 8, 2, scale_control=True)
        self.point = ManifoldParameter(torch.randn(3, 4) * 0.1, manifold=PoincareBall(1.0))
        self.unused = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        output = self.rq(self.linear(x))
        return (self.tied(output.z_hat) - x).square().mean() + output.loss + self.point.square().sum()


def build(optimizer, scheduler):
    model = Model()
    made = OPTIMIZERS[optimizer](list(model.parameters()))
    return model, made, SCHEDULERS[scheduler](made)


def advance(model, optimizer, scheduler, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 4) * random.random() * np.random.rand())
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("optimizer", "scheduler"),
    [(name, "none") for name in OPTIMIZERS] + [("adamw", name) for name in SCHEDULERS if name != "none"],
)
def test_goes_on_to_the_bit(optimizer, scheduler, tmp_path):
    parts = build(optimizer, scheduler)
    advance(*parts, 3)
    saved = save_checkpoint(tmp_path, Checkpoint.of(3, *parts, [random_state()], {"x": [1.5, (2, None)]}))
    expected = advance(*parts, 4)

    torch.rand(5)
    random.random()
    np.random.rand(3)
    found = load_checkpoint(saved)
    again = build(optimizer, scheduler)
    again[0].load_state_dict(found.model)
    found.restore(*again[1:])
    set_random_state(found.random[0])
    assert (found.step, found.loop) == (3, {"x": [1.5, (2, None)]})
    assert advance(*again, 4) == expected
    for one, other in zip(parts[0].state_dict().items(), again[0].state_dict().items(), strict=True):
        assert one[0] == other[0]
        assert torch.equal(one[1], other[1])
    assert again[1].param_groups[0]["lr"] == parts[1].param_groups[0]["lr"]


def test_state_in_another_type_stays_in_it(tmp_path):
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.state[parameter] = {"wide": torch.tensor([1 / 3], dtype=torch.float64), "seen": torch.tensor([True])}
    model = nn.ParameterList([parameter])
    path = save_checkpoint(tmp_path, Checkpoint.of(1, model, optimizer, None, [], {}))
    fresh = torch.optim.SGD([parameter], lr=0.1)
    load_checkpoint(path).restore(fresh, None)
    assert fresh.state[parameter]["wide"].item() == 1 / 3
    assert fresh.state[parameter]["seen"].dtype == torch.bool


@pytest.fixture
def saved(tmp_path):
    parts = build("adamw", "none")
    for step in (1, 2, 3):
        advance(*parts, 1)
        save_checkpoint(tmp_path, Checkpoint.of(step, *parts, [random_state()], {}))
    return tmp_path


def test_the_two_newest_stay(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["step-00000002", "step-00000003"]
    assert newest_step(saved) == 3


def test_no_pickle_and_readable_by_others(saved):
    (files,) = {tuple(sorted(path.name for path in folder.iterdir())) for folder in saved.iterdir()}
    assert files == ("SHA256SUMS", "model.safetensors", "state.json", "training.safetensors")
    if shutil.which("sha256sum"):
        folder = saved / "step-00000003"
        assert subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder).returncode == 0


@pytest.mark.parametrize("file", ["SHA256SUMS", "model.safetensors", "state.json", "training.safetensors"])
@pytest.mark.parametrize("damage", ["a bit", "cut short", "gone"])
def test_damage_is_noticed_and_the_one_before_is_taken(file, damage, saved):
    path = saved / "step-00000003" / file
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        content[len(content) // 3] ^= 1
        path.write_bytes(content if damage == "a bit" else content[: len(content) // 2])
    told = []
    assert newest_checkpoint(saved, told.append).step == 2
    assert len(told) == 1
    assert "step-00000003 is damaged" in told[0]
    assert "Errno" not in told[0]
    assert (f"is damaged: {file} is missing" in told[0]) == (damage == "gone")
    shutil.rmtree(saved / "step-00000002")
    with pytest.raises(DamagedCheckpointError, match=r"no checkpoint in .* is good"):
        newest_checkpoint(saved, told.append)


def test_no_checkpoint_is_no_error(tmp_path):
    assert newest_checkpoint(tmp_path / "nothing", pytest.fail) is None
    assert newest_step(tmp_path / "nothing") is None


def test_a_step_that_comes_again_replaces_its_checkpoint(saved):
    (saved / "step-00000003" / "state.json").write_text("{}")
    save_checkpoint(saved, Checkpoint.of(3, *build("adamw", "none"), [], {}))
    assert newest_checkpoint(saved, pytest.fail).step == 3


def test_a_failed_save_leaves_nothing_behind(saved, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.files, "write", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(saved, Checkpoint.of(4, *build("adamw", "none"), [], {}))
    assert sorted(path.name for path in saved.iterdir()) == ["step-00000002", "step-00000003"]
    assert newest_checkpoint(saved, pytest.fail).step == 3


def test_what_cannot_be_saved_is_named(tmp_path):
    parts = build("adamw", "none")
    with pytest.raises(TypeError, match=r"loop\.deep\.1 is of type object"):
        save_checkpoint(tmp_path, Checkpoint.of(1, *parts, [], {"deep": [1, object()]}))


def test_non_finite():
    model = Model()
    assert non_finite(model) == []
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    assert non_finite(model) == []
    model.mask[0] = torch.nan
    model.linear.bias.data[1] = torch.inf
    assert non_finite(model) == ["linear.bias", "mask"]


def test_seeds_for_different_purposes_differ():
    def draw(seed, purpose):
        seed_everything(seed, purpose)
        return torch.rand(()).item(), np.random.rand(), random.random()

    assert draw(0, "a") == draw(0, "a")
    for i in range(3):
        assert len({draw(*key)[i] for key in ((0, "a"), (0, "b"), (1, "a"))}) == 3
