"""The loop does what it says: clipping, schedules, validation, precision, and a clear end when a loss is not finite."""

import itertools
import json
import math

import pytest
import torch
from torch import nn

from ghrq.system.errors import DivergedError, StoppedError, UserError
from ghrq.system.progress import Progress
from ghrq.training.checkpoint import load_checkpoint, newest_step
from ghrq.training.loop import Stage, fit
from ghrq.training.run import Run
from ghrq.training.run_list import runs
from ghrq.training.study import PlannedRun
from ghrq.training.train import evaluate, run_study, train


class Pull(nn.Module):
    """Its gradient is the batch itself."""

    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(2))
        self.seen_types = set()

    def forward(self, batch):
        self.seen_types.add(torch.mm(batch, batch.mT).dtype)
        value = -(batch * self.x).sum(-1).mean()
        return {"loss": value, "twice": 2 * value, "training": torch.tensor(float(self.training))}


def pull(**changes):
    model = Pull()
    settings = {
        "name": "pull",
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1.0),
        "batches": lambda step: itertools.repeat(torch.tensor([[3.0, 4.0]])),
        "steps": 4,
        "steps_per_epoch": 2,
    }
    return Stage(**settings | changes)


@pytest.fixture
def run_stage(tiny, tmp_path):
    count = itertools.count()

    def run(stage, **training):
        recipe = tiny(**training)
        made = Run.create(tmp_path / f"run-{next(count)}", recipe)
        fit(stage, made, recipe.training, Progress())
        return made

    return run


def test_steps_and_metrics(run_stage):
    stage = pull(steps=5)
    run = run_stage(stage, log_every=2)
    assert stage.model.x.tolist() == [15.0, 20.0]
    assert not stage.model.training
    lines = [{key: value for key, value in line.items() if key != "seconds"} for line in run.metrics()]
    assert lines == [  # the loss is -25 times the number of steps before; each line is the mean since the last
        {"stage": "pull", "step": 2, "epoch": 1.0, "loss": -12.5, "twice": -25.0, "training": 1.0, "lr": 1.0},
        {"stage": "pull", "step": 4, "epoch": 2.0, "loss": -62.5, "twice": -125.0, "training": 1.0, "lr": 1.0},
        {"stage": "pull", "step": 5, "epoch": 2.5, "loss": -100.0, "twice": -200.0, "training": 1.0, "lr": 1.0},
    ]
    assert newest_step(run.checkpoints("pull")) == 5


def test_clipping_is_applied(run_stage):
    stage = pull(steps=1)
    run_stage(stage, clip=0.5)
    torch.testing.assert_close(stage.model.x.data, torch.tensor([0.3, 0.4]))
    stage = pull(steps=1, clip=2.5)  # a stage's own comes first
    run_stage(stage, clip=0.5)
    torch.testing.assert_close(stage.model.x.data, torch.tensor([1.5, 2.0]))
    stage = pull(steps=1, clip=math.inf)
    run_stage(stage, clip=0.5)
    assert stage.model.x.tolist() == [3.0, 4.0]


def test_the_scheduler_steps_once_a_step(run_stage):
    stage = pull(steps=3)
    stage.scheduler = torch.optim.lr_scheduler.ExponentialLR(stage.optimizer, 0.5)
    run = run_stage(stage, log_every=1)
    assert stage.model.x.tolist() == [3 * 1.75, 4 * 1.75]
    assert [line["lr"] for line in run.metrics()] == [0.5, 0.25, 0.125]


@pytest.mark.parametrize(("own", "general", "kind"), [(None, "bf16", "bf16"), ("bf16", "fp32", "bf16")])
def test_bf16_where_asked(run_stage, own, general, kind):
    stage = pull(precision=own)
    run_stage(stage, precision=general)
    assert stage.model.seen_types == {torch.bfloat16}
    assert stage.model.x.dtype == torch.float32
    stage = pull(precision="fp32")
    run_stage(stage, precision=general)
    assert stage.model.seen_types == {torch.float32}


def test_begin_runs_once_and_a_stage_of_no_steps_is_saved(run_stage):
    stage = pull(steps=0)
    stage.begin = lambda _: stage.model.x.data.add_(1.0)
    run = run_stage(stage)
    other = pull(steps=0)
    other.begin = lambda _: pytest.fail("the stage is not new")
    fit(other, run, run.recipe.training, Progress())
    assert other.model.x.tolist() == [1.0, 1.0]


def test_validation_sees_an_eval_model_and_changes_no_random_numbers(run_stage):
    draws = []

    def stage(validate):
        def batches(step):
            while True:  # not how to do it, but it shows where the random numbers go
                draws.append(torch.rand(()).item())
                yield torch.ones(1, 2)

        made = pull(batches=batches, validate=validate)
        made.validate = validate and (lambda: validate(made.model))
        return made

    def look(model):
        assert not torch.is_grad_enabled()
        return {"training": float(model.training), "noise": torch.rand(())}

    torch.manual_seed(3)
    run_stage(stage(None))
    torch.manual_seed(3)
    run = run_stage(stage(look))
    assert draws[:4] == draws[4:]
    lines = [line for line in run.metrics() if "validation/training" in line]
    assert [(line["step"], line["validation/training"]) for line in lines] == [(2, 0.0), (4, 0.0)]


def test_wrong_stages_are_told(run_stage):
    with pytest.raises(ValueError, match=r"name must be of lower-case letters.*got 'Two Words'"):
        pull(name="Two Words")
    with pytest.raises(ValueError, match="got 3 and 0"):
        pull(steps=3, steps_per_epoch=0)
    with pytest.raises(ValueError, match="batches of stage 'pull' end at step 1: expected an endless stream"):
        run_stage(pull(batches=lambda step: iter([torch.ones(1, 2)])))
    stage = pull()
    stage.model.forward = lambda batch: {"lost": batch.sum()}
    with pytest.raises(ValueError, match=r"the key 'loss', got the keys \['lost'\]"):
        run_stage(stage)


def test_a_loss_that_is_not_finite_stops_before_it_harms(tiny, tmp_path):
    # NaN data: the quantizer itself refuses it, so the loss of the second stage is what goes wrong here.
    stage = pull(steps=20)
    stage.batches = lambda step: (torch.full((1, 2), math.inf if i >= 7 else 1.0) for i in itertools.count(step))
    recipe = tiny(log_every=4, checkpoint_every=5)
    run = Run.create(tmp_path / "run", recipe)
    with pytest.raises(DivergedError) as told, run.working():
        fit(stage, run, recipe.training, Progress())
    message = str(told.value)
    assert "stage 'pull' diverged: the loss is not finite at step 8 (loss -inf, twice -inf, training 1)" in message
    assert "The last good checkpoint, step 5, is intact" in message
    assert "training.clip" in message
    assert load_checkpoint(run.checkpoints("pull") / "step-00000005").model["x"].tolist() == [5.0, 5.0]
    assert [(line["step"], line["loss"]) for line in run.metrics()] == [(4, -3.0), (8, None)]
    (found,) = runs(tmp_path)
    assert found.state == "failed"
    assert "diverged" in json.loads((run.folder / "status.json").read_text())["message"]


def test_parameters_that_are_not_finite_are_never_saved(tiny, tmp_path):
    """A finite loss with an infinite gradient, right before a checkpoint is due."""
    stage = pull(steps=20)
    stage.model.x.register_hook(lambda gradient: gradient * math.inf if len(seen) == 7 else gradient)
    seen = []
    stage.batches = lambda step: (seen.append(i) or torch.ones(1, 2) for i in itertools.count(step))
    recipe = tiny(checkpoint_every=3)
    run = Run.create(tmp_path / "run", recipe)
    with pytest.raises(DivergedError, match=r"the loss is not finite at step 8|x not finite at step 7"):
        fit(stage, run, recipe.training, Progress())
    assert newest_step(run.checkpoints("pull")) == 6
    seen.clear()
    recipe = tiny(checkpoint_every=7)
    run = Run.create(tmp_path / "other", recipe)
    stage.model.x.data.zero_()
    with pytest.raises(DivergedError, match=r"x not finite at step 7\. No checkpoint was written before"):
        fit(stage, run, recipe.training, Progress())
    assert newest_step(run.checkpoints("pull")) is None


def test_a_model_that_stumbles_over_its_own_parameters_has_diverged(tiny, tmp_path):
    """The quantizer refuses NaN with an error of its own; what is told is where it came from."""
    with pytest.raises(DivergedError, match=r"stage 'autoencoder' diverged: (encoder|rq)\..* not finite at step \d"):
        train(tiny(rate=1e38, steps=20), tmp_path / "run")
    with pytest.raises(ValueError, match="z has NaN") as told:  # but NaN in the data is the data's fault
        train(tiny(nan_at=3), tmp_path / "data")
    assert not isinstance(told.value, StoppedError)


def test_a_folder_that_cannot_be_written(tiny, tmp_path):
    stage, recipe = pull(steps=20), tiny(checkpoint_every=4)
    run = Run.create(tmp_path / "run", recipe)
    (run.folder / "checkpoints").write_text("a file in the place of the folder")
    with pytest.raises(
        StoppedError, match=r"could not save step 4 of stage 'pull': .*No checkpoint was written"
    ) as told:
        fit(stage, run, recipe.training, Progress())
    assert f"ghrq train --resume {run.folder}" in str(told.value)


def test_train_gives_the_same_again_and_other_seeds_give_others(tiny, tmp_path):
    results = [train(tiny(seed=seed), tmp_path / str(i)) for i, seed in enumerate((0, 0, 1))]
    assert results[0] == results[1]
    assert results[0]["error"] != results[2]["error"]
    assert results[0] == json.loads((tmp_path / "0" / "results.json").read_text())
    assert evaluate(Run.open(tmp_path / "0")) == results[0]
    with pytest.raises(UserError, match="is a run already"):
        train(tiny(), tmp_path / "0")
    assert train(tiny(), tmp_path / "0", resume=True) == results[0]
    with pytest.raises(UserError, match="another recipe: seed differ"):
        train(tiny(seed=5), tmp_path / "0", resume=True)


def test_what_is_not_trained_is_not_evaluated(tiny, tmp_path):
    run = Run.create(tmp_path / "run", tiny())
    with pytest.raises(
        UserError, match=r"stage 'autoencoder' .* is not finished, 0 of 12 steps: first ghrq train --res"
    ):
        evaluate(run)


def test_a_damaged_checkpoint_costs_only_time(tiny, tmp_path):
    expected = train(tiny(checkpoint_every=5), tmp_path / "good")
    train(tiny(checkpoint_every=5), tmp_path / "bad")
    run = Run.open(tmp_path / "bad")
    (run.folder / "results.json").unlink()
    (run.checkpoints("autoencoder") / "step-00000012" / "model.safetensors").write_bytes(b"rubbish")

    class Notes(Progress):
        def __init__(self):
            self.notes = []

        def note(self, text):
            self.notes.append(text)

    progress = Notes()
    assert train(tiny(checkpoint_every=5), run.folder, resume=True, progress=progress) == expected
    assert any("step-00000012 is damaged" in note for note in progress.notes)
    assert load_checkpoint(run.checkpoints("autoencoder") / "step-00000012").step == 12
    metrics = [[{**line, "seconds": 0} for line in Run.open(tmp_path / name).metrics()] for name in ("good", "bad")]
    assert sorted(map(str, metrics[0])) == sorted(map(str, metrics[1]))


def test_a_diverged_run_does_not_stop_the_others(tiny, tmp_path):
    recipes = {"bad": tiny(rate=1e38), "good": tiny(steps=2)}
    bad, good = run_study([PlannedRun(name, {}, recipe) for name, recipe in recipes.items()], tmp_path, Progress())
    assert "diverged" in bad.error
    assert (bad.results, good.error) == ({}, "")
    assert good.results == json.loads((tmp_path / "good" / "results.json").read_text())
