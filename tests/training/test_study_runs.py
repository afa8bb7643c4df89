"""Studies: which runs follow from the axes, and what they carry."""

import pytest

from ghrq.system.errors import UserError
from ghrq.training import Axis, Part, Study, key_axis
from tiny_task import RECIPES

KINDS = key_axis("kind", "quantizer.kind", ["ghrq", "naive"], grid=["euclidean"])
SIZES = Axis(
    "size",
    {"small/1": {"quantizer.codes": 4, "optimizer.batch": 8}},
    grid={"large/2": {"quantizer.codes": 32, "optimizer.batch": 64}},
)


def test_the_main_values_and_every_value_with_grid():
    study = Study([Part(f"{RECIPES}/{{budget}}.toml", [KINDS, SIZES])])
    assert [run.name for run in study.plan("demo")] == ["ghrq-small-1-s0", "naive-small-1-s0"]
    planned = study.plan("demo", seeds=2, grid=True)
    assert len({run.name for run in planned}) == len(planned) == 2 * 3 * 2
    last = planned[-1]
    assert last.axes == {"recipe": "demo", "kind": "euclidean", "size": "large/2", "seed": 1}
    assert last.recipe.axes == last.axes
    assert (last.recipe.name, last.recipe.seed) == ("euclidean-large-2-s1", 1)
    assert (last.recipe.quantizer.kind, last.recipe.quantizer.codes) == ("euclidean", 32)
    assert (last.recipe.optimizer.batch, last.recipe.optimizer.steps) == (64, 4)


def test_several_recipes_show_in_the_names():
    parts = [Part(f"{RECIPES}/{{budget}}.toml", [KINDS]), Part(f"{RECIPES}/{{dataset}}.toml", budgets=["cpu"])]
    study = Study(parts, datasets=["slow", "cpu"])
    assert [run.name for run in study.plan("cpu", dataset="slow")] == ["cpu-ghrq-s0", "cpu-naive-s0", "slow-s0"]
    assert [run.name for run in study.plan("demo", dataset="slow")] == ["demo-ghrq-s0", "demo-naive-s0"]


def test_a_user_changes_keys_that_are_not_the_study_s():
    study = Study([Part(f"{RECIPES}/{{budget}}.toml", [KINDS])])
    assert {run.recipe.optimizer.steps for run in study.plan("demo", overrides=["optimizer.steps=3"])} == {3}
    for override, owner in (("quantizer.kind=naive", "the axis 'kind'"), ("seed=3", "the option --seeds")):
        with pytest.raises(UserError, match=f"--set {override}: in a study {owner} sets"):
            study.plan("demo", overrides=[override])


def test_what_a_user_can_choose():
    parts = [Part("a/{budget}", [KINDS, SIZES], budgets=["cpu"]), Part("b/{budget}", [KINDS], budgets=["demo"])]
    study = Study(parts, datasets=["mnist", "cifar100"])
    offered = "--budget demo, cpu; --dataset mnist, cifar100; --grid adds kind euclidean; --grid adds size large/2"
    assert study.summary() == offered
    assert study.dataset(None) == "mnist"
    assert Study(parts).dataset(None) == ""
    for dataset, message in (("cifar10", "did you mean 'cifar100'"), ("words", "known are mnist, cifar100")):
        with pytest.raises(UserError, match=f"--dataset {dataset}: {message}"):
            study.dataset(dataset)
    with pytest.raises(UserError, match="there is only one: leave it out"):
        Study(parts).dataset("mnist")
    with pytest.raises(UserError, match="--budget paper: expected one of demo, cpu"):
        study.plan("paper")


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([("a", "x"), ("b", "x")], "the axes 'a' and 'b' of r.toml both set 'x'"),
        ([("a", "x"), ("a", "y")], "has the name 'a', which is taken"),
        ([("seed", "x")], "has the name 'seed', which is taken"),
    ],
)
def test_axes_that_contradict_each_other(axes, message):
    with pytest.raises(ValueError, match=message):
        Part("r.toml", [key_axis(name, key, [1, 2]) for name, key in axes])
