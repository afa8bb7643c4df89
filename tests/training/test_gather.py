"""Finished runs from folders: which are found, what they are labelled with, and what is refused."""

import pytest

from finished_runs import finished, finished_audio
from ghrq.recipes import shipped
from ghrq.system.errors import UserError
from ghrq.training.gather import changed, gather
from ghrq.training.run import Run
from ghrq.training.study import BUDGETS
from ghrq.training.task import task_class, task_names


def axes_of(folder):
    return gather([folder]).tasks[0].outcomes[0].axes


def planned():
    """Every run of every shipped study, with one seed."""
    for name in task_names():
        study = task_class(name).study
        for budget in BUDGETS:
            for dataset in study.datasets or ("",):
                try:
                    runs = study.plan(budget, 1, grid=True, dataset=dataset)
                except UserError:
                    continue
                yield from (pytest.param(name, run, id=f"{name}-{dataset}-{budget}-{run.name}") for run in runs)


@pytest.mark.parametrize(("name", "plan"), list(planned()))
def test_labels_follow_from_settings_as_the_study_planned_them(name, plan, tmp_path):
    """What ``reproduce`` writes into a run is what is found of the same run by ``train``, which writes nothing."""
    recipe = plan.recipe.model_copy(update={"axes": {}, "name": f"{name}-{plan.axes['recipe']}"})
    Run.create(tmp_path / "run", recipe).write_results({"x": 1.0})
    assert axes_of(tmp_path / "run") == plan.axes


def test_other_settings_are_other_rows_and_told(tmp_path):
    for seed in (0, 1):
        finished(tmp_path / f"a{seed}", seed=seed)
        finished(tmp_path / f"b{seed}", seed=seed, overrides=["tokenizer.epochs=3", "training.log_every=7"])
    runs = gather([tmp_path]).tasks[0]
    own = next(outcome.axes["tokenizer.epochs"] for outcome in runs.outcomes if outcome.folder.name == "a0")
    assert [outcome.axes["tokenizer.epochs"] for outcome in runs.outcomes] == [own, own, 3, 3]
    assert "training.log_every" not in runs.outcomes[0].axes, "it has no effect"
    assert changed(runs) == {"image/mnist-cpu": {"tokenizer.epochs": (own, 3)}}
    assert "image/mnist-cpu" in shipped()


def test_equal_runs_are_no_two_measurements(tmp_path):
    finished(tmp_path / "a")
    finished(tmp_path / "b")
    with pytest.raises(UserError, match=r"a and .*b have the same recipe and the same seed, .* name one of them"):
        gather([tmp_path])
    assert len(gather([tmp_path / "a", tmp_path / "a"]).tasks[0].outcomes) == 1, "one that is named twice is one"


def test_what_is_not_finished_is_refused_by_name_and_left_out_of_a_folder(tmp_path):
    finished(tmp_path / "runs" / "done")
    begun = finished(tmp_path / "runs" / "begun", seed=1)
    (begun.folder / "results.json").unlink()
    with pytest.raises(UserError, match=r"begun has no results.json, so it is not finished: ghrq train --resume"):
        gather([begun.folder])
    found = gather([tmp_path / "runs"])
    assert [outcome.folder.name for outcome in found.tasks[0].outcomes] == ["done"]
    assert found.left_out == [begun.folder]
    (tmp_path / "runs" / "done" / "results.json").unlink()
    with pytest.raises(UserError, match=r"no run in it is finished, so there is nothing to report"):
        gather([tmp_path / "runs"])


@pytest.mark.parametrize(("name", "why"), [("gone", "there is no such folder"), ("empty", "it has no recipe.toml")])
def test_what_is_no_run_is_refused(tmp_path, name, why):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=rf"{name} is not a run \({why}.*'ghrq runs' lists"):
        gather([tmp_path / name])


def test_a_run_that_diverged_counts(tmp_path):
    finished(tmp_path / "good")
    bad = finished(tmp_path / "bad", kind="naive")
    (bad.folder / "results.json").unlink()
    status = '{"state": "failed", "message": "NaN at step 3", "traceback": "ghrq.system.errors.DivergedError: NaN"}'
    (bad.folder / "status.json").write_text(status)
    outcomes = {outcome.folder.name: outcome for outcome in gather([tmp_path]).tasks[0].outcomes}
    assert outcomes["bad"].error == "NaN at step 3"
    assert not outcomes["good"].error


def test_what_a_kind_sets_besides_its_name_is_told_if_it_differs(tmp_path):
    """The audio study gives ghrq a weight of its own: a run with another one is not a run of the study."""
    weight = next(axis for axis in task_class("audio").study.parts[1].axes if axis.name == "kind").values["ghrq"]
    own = [f"{key}={value}" for key, value in weight.items() if key != "quantizer.kind"]
    assert own
    finished_audio(tmp_path / "own" / "run", overrides=own)
    assert changed(gather([tmp_path / "own"]).tasks[0]) == {}
    finished_audio(tmp_path / "other" / "run", overrides=[*own, "quantizer.weight=0.5"])
    assert changed(gather([tmp_path / "other"]).tasks[0]) == {"audio/cpu": {"quantizer.weight": (1.0, 0.5)}}
