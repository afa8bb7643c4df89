"""The folder of a run: never overwritten, never half there, and its state is what it says."""

import json
import os
import shlex

import pytest

from ghrq.system import files
from ghrq.system.errors import StoppedError, UserError
from ghrq.training.run import Run, free_folder
from ghrq.training.run_list import runs
from ghrq.training.train import complete_run, train


def test_create_and_open(tiny, tmp_path):
    folder = tmp_path / "deep" / "run"
    assert Run.create(folder, tiny(seed=4)).recipe == tiny(seed=4)
    assert sorted(path.name for path in folder.iterdir()) == ["environment.json", "recipe.toml"]
    assert os.listdir(folder.parent) == ["run"]
    assert Run.open(folder).recipe == tiny(seed=4)
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["seed"] == 4
    assert {"python", "torch", "ghrq"} <= environment["versions"].keys()
    assert environment["machine"]["processes"] == 1


def test_nothing_is_overwritten(tiny, tmp_path):
    Run.create(tmp_path / "run", tiny())
    with pytest.raises(UserError, match=r"is a run already: choose another folder, or go on: ghrq train --resume"):
        Run.create(tmp_path / "run", tiny())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="is not empty: choose another"):
        Run.create(tmp_path / "other", tiny())
    assert (tmp_path / "other" / "thesis.txt").read_text() == "precious"
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UserError, match="is a file, a run needs a folder"):
        Run.create(tmp_path / "file", tiny())
    with pytest.raises(UserError, match=r"cannot make the run folder .*: Not a directory"):
        Run.create(tmp_path / "file" / "run", tiny())
    (tmp_path / "empty").mkdir()
    assert Run.create(tmp_path / "empty", tiny()).recipe == tiny()


def test_another_recipe_is_not_gone_on_with(tiny, tmp_path):
    Run.create(tmp_path / "run", tiny(steps=3))
    assert Run.open_or_create(tmp_path / "run", tiny(steps=3)).recipe == tiny(steps=3)
    with pytest.raises(UserError, match=r"another recipe: optimizer\.steps, seed differ"):
        Run.open_or_create(tmp_path / "run", tiny(steps=4, seed=1))
    with pytest.raises(UserError, match=r"is not a run: it has no recipe\.toml"):
        Run.open(tmp_path)


def test_a_recipe_edited_in_the_run_is_not_gone_on_with(tiny, tmp_path):
    """Its first steps would have other settings than the rest. What has no effect on the results may be changed."""
    run = Run.create(tmp_path / "run", tiny(steps=3))
    files.write(run.folder / "recipe.toml", tiny(steps=4).model_copy(update={"name": "other"}).toml())
    with pytest.raises(UserError, match=r"recipe\.toml was changed since the run was begun: optimizer\.steps was 3\."):
        complete_run(Run.open(run.folder))
    files.write(run.folder / "recipe.toml", tiny(steps=3).model_copy(update={"name": "other"}).toml())
    assert complete_run(Run.open(run.folder)) == Run.open(run.folder).results


def test_free_folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert free_folder(tmp_path, "a") == tmp_path / "a-3"
    assert free_folder(tmp_path, "b") == tmp_path / "b"


def test_metrics_are_cut_back_to_a_step(tiny, tmp_path):
    run = Run.create(tmp_path / "run", tiny())
    for stage, step in (("one", 5), ("one", 10), ("two", 5), ("two", 10)):
        run.log({"stage": stage, "step": step, "loss": float("nan") if step == 5 else 0.1})
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "two", "st')  # killed in the midst of a line
    assert [line["step"] for line in run.metrics("two")] == [5, 10]
    run.cut_metrics("two", 7)
    assert [(line["stage"], line["step"]) for line in run.metrics()] == [("one", 5), ("one", 10), ("two", 5)]
    assert all(json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines())
    assert run.metrics()[0]["loss"] is None  # NaN is no JSON


def test_states(tiny, tmp_path):
    def state():
        (found,) = runs(tmp_path)
        return found.state

    run = Run.create(tmp_path / "nested" / "run", tiny())
    assert state() == "interrupted"
    with run.working():
        assert state() == "running"
        with pytest.raises(UserError, match="another process is working on"), Run.open(run.folder).working():
            pass
        assert state() == "running"
    with pytest.raises(KeyError), run.working():
        raise KeyError("a bug")
    assert state() == "failed"
    status = json.loads((run.folder / "status.json").read_text())
    assert "a bug" in status["traceback"]
    with pytest.raises(StoppedError, match=r"stopped\. To go on: ghrq train --resume") as told, run.working():
        raise KeyboardInterrupt
    assert told.value.exit_code == 130
    assert state() == "interrupted"
    with pytest.raises(StoppedError, match=r"No space left.*ghrq train --resume"), run.working():
        raise OSError(28, "No space left on device")
    assert state() == "failed"
    with pytest.raises(KeyError), run.working(training=False):
        raise KeyError("an evaluation")
    assert "No space left" in run.status["message"]
    run.log({"stage": "two", "step": 1250})  # not saved yet: it will happen again
    for count, (stage, step) in enumerate((("one", 2000), ("two", 900), ("two", 1200))):
        path = run.checkpoints(stage) / f"step-{step:08d}"
        path.mkdir(parents=True)
        os.utime(path, (count, count))
    with run.working():
        run.write_results({"note": "x", "a": 1, "b": 2.5, "c": None, "d": 3, "e": 4})
    assert state() == "finished"
    (found,) = runs(tmp_path)
    assert found[1:] == ("tiny_task:Tiny", "finished", "two", 1200, {"a": 1, "b": 2.5, "d": 3}, {})


def test_a_damaged_file_does_not_hide_other_runs(tiny, tmp_path):
    names = ["environment.json", "recipe.toml", "results.json", "status.json"]
    for name in names:
        run = Run.create(tmp_path / name.replace(".", "-"), tiny())
        (run.folder / name).write_bytes(b'{"x": \xff')
    Run.create(tmp_path / "z-good", tiny())
    *bad, good = runs(tmp_path)
    assert [(found.state, list(found.damaged)) for found in bad] == [("damaged", [name]) for name in names]
    assert (good.state, good.damaged) == ("interrupted", {})
    (tmp_path / "results-json" / "results.json").write_text("[1]")
    assert list(runs(tmp_path)[2].damaged) == ["results.json"]
    with pytest.raises(UserError, match=r"results\.json is damaged, .*: to replace it: ghrq eval \S+results-json"):
        _ = Run.open(tmp_path / "results-json").results
    with pytest.raises(UserError, match=r"environment\.json is damaged, it is not valid JSON .*: remove it"):
        _ = Run.open(tmp_path / "environment-json").environment


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    files.write_json(path, {"x": 1})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_json(path, {"x": 2})
    assert json.loads(path.read_text()) == {"x": 1}
    assert os.listdir(tmp_path) == ["file.json"]


def test_json_takes_what_evaluation_gives():
    import numpy as np
    import torch

    value = {"a": np.float32(0.5), "b": torch.tensor([1, 2]), 3: (np.int64(4), float("inf"), True, None, "x")}
    assert files.plain(value) == {"a": 0.5, "b": [1, 2], "3": [4, None, True, None, "x"]}
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        files.plain({"a": object()})


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path):
    (tmp_path / "report.html").mkdir()
    (tmp_path / "report.html" / "thesis.txt").write_text("precious")
    with pytest.raises(IsADirectoryError):
        files.write(tmp_path / "report.html", "page")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html" / "thesis.txt").read_text() == "precious"


def test_of_two_new_runs_in_one_folder_the_first_stays(tiny, tmp_path, monkeypatch):
    Run.create(tmp_path / "run", tiny(seed=1))
    monkeypatch.setattr("ghrq.training.run.check_free", lambda _: None)  # looked before the other was there
    with pytest.raises(UserError, match="cannot make the run folder"):
        Run.create(tmp_path / "run", tiny(seed=2))
    assert Run.open(tmp_path / "run").recipe.seed == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("status.json", '{"state": {"x": 1}}', "its state is not 'failed' or 'interrupted'"),
        ("status.json", '{"state": "running"}', "its state is not 'failed' or 'interrupted'"),
        ("status.json", '{"a":' * 100_000, "it is nested too deeply"),
        ("results.json", '{"mse": ' + "[" * 500 + "]" * 500 + "}", "it is nested too deeply"),
        ("results.json", '{"mse": 1' + "0" * 400 + "}", "it has an integer of more than 300 digits"),
        ("environment.json", '{"versions": [1]}', "its versions are no table"),
        ("recipe.toml", "a = " + "[" * 100_000, "it is nested too deeply"),
        ("recipe.toml", "a." * 50_000 + "a = 1", "it has more than 5,000 dots"),
        ("recipe.toml", "task = 3", "the key 'task' is missing or no text"),
        ("recipe.toml", None, "it is not a regular file"),
        ("results.json", None, "it is not a regular file"),
    ],
)
def test_a_bad_run_is_listed_with_the_reason(name, content, reason, tiny, tmp_path):
    run, good = Run.create(tmp_path / "bad", tiny()), Run.create(tmp_path / "good", tiny())
    (run.folder / name).unlink(missing_ok=True)
    os.mkfifo(run.folder / name) if content is None else (run.folder / name).write_text(content)
    bad, fine = runs(tmp_path)
    assert bad.state == "damaged"
    assert list(bad.damaged) == [name]
    assert bad.damaged[name].count(reason) == 1
    assert "\n" not in bad.damaged[name]
    assert (fine.folder, fine.state) == (good.folder, "interrupted")


def test_checkpoints_with_strange_names_and_dead_links(tiny, tmp_path):
    run = Run.create(tmp_path / "run", tiny())
    stage = run.checkpoints("one")
    (stage / "step-00000003").mkdir(parents=True)
    (stage / "step-²").mkdir()
    other = run.checkpoints("two")
    other.mkdir()
    (other / "step-00000009").symlink_to("nowhere")
    assert runs(tmp_path)[0][3:5] == ("one", 3)


def test_metrics_are_not_written_to_a_pipe(tiny, tmp_path):
    run = Run.create(tmp_path / "run", tiny())
    os.mkfifo(run.folder / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics\.jsonl is not a regular file: remove it"):
        train(tiny(), run.folder, resume=True)


def test_metrics_of_wrong_types_are_left_out(tiny, tmp_path):
    run = Run.create(tmp_path / "run", tiny())
    good = ['{"stage": "one", "step": 1}', '{"note": "of a task"}']
    bad = ['{"stage": ["one"], "step": 2}', '{"stage": "one", "step": "3"}', "[1]", "[" * 100_000]
    (run.folder / "metrics.jsonl").write_bytes("\n".join([*bad, *good]).encode() + b"\n\xff\n")
    assert run.metrics() == [json.loads(line) for line in good]
    run.cut_metrics("one", 5)
    assert (run.folder / "metrics.jsonl").read_text().splitlines() == good


def test_printed_commands_can_be_pasted(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("my run", "it's; rm -rf $HOME", "-x"):
        run = Run.create(name, tiny())
        words = shlex.split(run.go_on)
        assert words[:3] == ["ghrq", "train", "--resume"]
        assert (tmp_path / words[3]).samefile(run.folder)
        assert not words[3].startswith("-")
        with pytest.raises(UserError) as told:
            Run.create(name, tiny())
        assert str(told.value).endswith(run.go_on)
        (run.folder / "results.json").write_text("[")
        with pytest.raises(UserError) as told:
            _ = run.results
        assert shlex.split(str(told.value).partition("to replace it: ")[2])[:2] == ["ghrq", "eval"]


def test_a_run_is_made_through_a_link(tiny, tmp_path):
    (tmp_path / "far").mkdir()
    for name in ("there", "nowhere"):
        (tmp_path / name).symlink_to(tmp_path / "far" / name)
    (tmp_path / "far" / "there").mkdir()
    for name in ("there", "nowhere"):
        Run.create(tmp_path / name, tiny())
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "far" / name / "recipe.toml").is_file()
