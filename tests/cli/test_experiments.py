"""The commands as a user sees them: help, results, and one clear line for a mistake."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ghrq import __version__, cli
from ghrq.training.recipe import load_recipe

COMMANDS = ["train", "eval", "reproduce", "runs", "recipes"]


@pytest.fixture
def recipe_file(tiny, tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(tiny(steps=4).toml().replace('name = "tiny"\n', ""))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, ghrq):
    code, out, _ = ghrq(command, "--help")
    assert code == 0
    assert f"\n    ghrq {command}" in out  # on a line of its own


def test_version_and_help(ghrq):
    assert ghrq("--version") == (0, f"ghrq {__version__}\n", "")
    code, out, _ = ghrq("--help")
    assert code == 0
    assert all(command in out for command in COMMANDS)


def test_train_then_eval_then_runs(ghrq, recipe_file, tmp_path):
    code, out, err = ghrq("train", recipe_file, "--set", "seed=3")
    assert code == 0
    results = json.loads((tmp_path / "runs" / "small" / "results.json").read_text())
    assert out.splitlines()[0].split() == ["error", f"{results['error']:.6g}"]
    assert out.splitlines()[-1] == "results: runs/small/results.json"
    assert "\x1b" not in out + err
    assert "training small in runs/small" in err

    (tmp_path / "runs" / "small" / "results.json").unlink()
    assert ghrq("eval", "runs/small")[:2] == (0, out)
    assert json.loads((tmp_path / "runs" / "small" / "results.json").read_text()) == results

    assert ghrq("train", recipe_file, "--set", "seed=3")[1] == out.replace("small/", "small-2/")  # a new folder
    assert ghrq("train", "--resume", "runs/small")[:2] == (0, out)

    code, out, _ = ghrq("runs")
    assert code == 0
    header, *lines = out.splitlines()
    assert header.split() == ["run", "task", "state", "stage", "step", "results"]
    assert [line.split()[:3] for line in lines] == [
        [f"runs/{name}", "tiny_task:Tiny", "finished"] for name in ("small", "small-2")
    ]


def test_reproduce_goes_on_where_it_stopped(ghrq, tmp_path):
    arguments = ("reproduce", "tiny_task:Tiny", "--budget", "demo", "--seeds", 2, "--grid", "--jobs", 1)
    code, out, err = ghrq(*arguments)
    assert (code, out.splitlines()[-1]) == (0, "report: runs/tiny-demo/report.html")
    assert [line.split()[0] for line in out.splitlines() if "±" in line] == ["GHRQ", "Euclidean"]
    table = (tmp_path / "runs" / "tiny-demo" / "tables.md").read_text()
    assert [line.split()[1] for line in table.splitlines() if "±" in line] == ["GHRQ", "Euclidean"]
    names = ["ghrq-s0", "euclidean-s0", "ghrq-s1", "euclidean-s1"]
    assert [line for line in err.splitlines() if " of 4: " in line] == [
        f"{count} of 4: {name}" for count, name in enumerate(names, start=1)
    ]
    results = json.loads((tmp_path / "runs" / "tiny-demo" / "euclidean-s1" / "results.json").read_text())
    assert results["axes"] == {"recipe": "demo", "kind": "euclidean", "seed": 1}
    code, _, err = ghrq(*arguments)
    assert code == 0
    assert err.count("is finished") == 4
    assert (tmp_path / "runs" / "tiny-demo" / "tables.md").read_text() == table


def test_reproduce_goes_on_with_runs_of_version_0_1(ghrq, tmp_path):
    """Their recipes have no axes, and the study gives them theirs."""
    arguments = ("reproduce", "tiny_task:Tiny", "--budget", "demo")
    assert ghrq(*arguments)[0] == 0
    folder = tmp_path / "runs" / "tiny-demo" / "ghrq-s0"
    recipe, results = ((folder / name).read_text() for name in ("recipe.toml", "results.json"))
    (folder / "recipe.toml").write_text(recipe.partition("\n[axes]")[0] + "\n" + recipe[recipe.index("[training]") :])
    assert "axes" not in (folder / "recipe.toml").read_text()
    (folder / "results.json").unlink()
    assert ghrq("eval", folder)[0] == 0
    assert json.loads((folder / "results.json").read_text()).keys() == json.loads(results).keys() - {"axes"}
    (folder / "results.json").unlink()
    assert ghrq(*arguments)[0] == 0
    assert (folder / "recipe.toml").read_text() == recipe
    assert (folder / "results.json").read_text() == results


def test_a_run_that_this_version_cannot_read_names_the_way_out(ghrq, recipe_file):
    assert ghrq("train", recipe_file, "--out", "old")[0] == 0
    with Path("old/recipe.toml").open("a") as file:
        file.write("\n[codebook]\nsize = 3\n")
    assert "The run was made by" not in ghrq("eval", "old")[2], "it is of this version"
    environment = Path("old/environment.json")
    environment.write_text(environment.read_text().replace(__version__, "0.0.9"))
    for command in (("train", "--resume", "old"), ("eval", "old")):
        code, _, err = ghrq(*command)
        assert code == 2
        assert "old/recipe.toml: unknown key 'codebook'" in err
        assert f"The run was made by ghrq 0.0.9, this is {__version__}: correct its recipe.toml" in err
    assert "finished" in ghrq("runs", "old")[1]


def test_help_of_reproduce_lists_what_the_studies_offer(ghrq):
    from ghrq.training.task import task_class, task_names

    out = " ".join(ghrq("reproduce", "--help")[1].split())
    assert set(task_names()) >= {"image", "wordnet"}
    for name in task_names():
        study = task_class(name).study
        assert f"{name} --budget " in out
        assert all(dataset in out for dataset in study.datasets)
        for axis in (axis for part in study.parts for axis in part.axes if axis.grid):
            added = f"--grid adds {axis.name} {', '.join(map(str, axis.grid))}"
            assert added.replace(" ", "") in out.replace(" ", "")  # lines break after a hyphen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "expected a recipe or --resume RUN"),
        (["train", "small.toml", "--resume", "runs/x"], "expected a recipe or --resume RUN, one of the two"),
        (["train", "--resume", "runs/x", "--set", "seed=1"], "leave out --set and --out"),
        (["train", "--resume", "gone"], "gone is not a run"),
        (["train", "gone.toml"], "no recipe file gone.toml: check the path, or name a shipped recipe: 'ghrq recipes'"),
        (["train", "/"], "there is no recipe '/'; name a .toml file or a shipped recipe: 'ghrq recipes' lists"),
        (
            ["train", "small.toml", "--set", "task=tiny_task:Tyny"],
            "tiny_task has no class 'Tyny'; did you mean 'Tiny'?",
        ),
        (["reproduce", "tiny_task:Tiny", "--out", "."], "is not empty: choose another with --out"),
        (["reproduce", "tiny_task:Tiny", "--out", "small.toml"], "small.toml is a file"),
        (["train", "small.toml", "--set", "sead=1"], "--set sead=1: unknown key 'sead'; did you mean 'seed'?"),
        (["train", "small.toml", "--out", "small.toml"], "small.toml is a file, a run needs a folder"),
        (["train", "small.toml", "--set", "quantizer.kind=naiv"], "kind must be one of 'calibrated', 'ghrq'"),
        (["train", "small.toml", "--set", "training.trackers=['wandb']"], "pip install wandb"),
        (["eval", "gone"], "gone is not a run"),
        (["runs", "gone"], "there is no folder gone"),
        (["reproduce", "wordnot"], "unknown task 'wordnot'; did you mean 'wordnet'?"),
        (["reproduce", "wordnet", "--budget", "huge"], "--budget huge: expected one of demo, cpu, paper"),
        (["reproduce", "wordnet", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["reproduce", "wordnet", "--dataset", "mnist"], "--dataset mnist: there is only one: leave it out"),
        (["reproduce", "image", "--dataset", "cifar10"], "--dataset cifar10: did you mean 'cifar100'?"),
        (["tran"], "No such command 'tran'"),
    ],
)
def test_mistakes_are_one_message_and_code_2(arguments, message, ghrq, recipe_file):
    code, out, err = ghrq(*arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("toy_import", "import math\nimport missing_package", "line 2: No module named 'missing_package'"),
        ("toy_syntax", "x = 1\n\ndef f(:", "line 3: invalid syntax"),
        ("toy_name", "x = y", "line 1: NameError: name 'y' is not defined"),
        ("toy_empty", "x = 1", None),
    ],
)
def test_a_task_that_cannot_be_imported(module, source, message, ghrq, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{module}.py").write_text(source)
    (tmp_path / "toy.toml").write_text(f'task = "{module}:Toy"')
    told = f"{module}.py {message}" if message else f"{module} has no class 'Toy'; nor any other subclass"
    code, _, err = ghrq("train", "toy.toml")
    assert code == 2
    assert f"{tmp_path / 'toy.toml'}: task '{module}:Toy': {told}" in err
    assert err.count("\n") == 1


@pytest.fixture
def interruptible():
    """Python's own way with Ctrl-C, also where these tests run in the background and SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_data_is_loading(number, ghrq, recipe_file, monkeypatch):
    monkeypatch.setattr("tiny_task.Tiny.__init__", lambda *_: os.kill(os.getpid(), number))
    code, _, err = ghrq("train", recipe_file)
    assert (code, err.splitlines()[-1]) == (128 + number, "error: stopped. To go on: ghrq train --resume runs/small")
    code, _, err = ghrq("reproduce", "tiny_task:Tiny")
    assert (code, err.splitlines()[-1]) == (128 + number, "error: stopped. To go on: the same reproduce command again")
    assert [line.split()[2] for line in ghrq("runs")[1].splitlines()[1:]] == ["interrupted"] * 2


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_outside_of_a_run(number, ghrq, recipe_file, monkeypatch):
    monkeypatch.setattr("ghrq.training.recipe.load_recipe", lambda *_: os.kill(os.getpid(), number))
    before = signal.getsignal(signal.SIGTERM)
    code, _, err = ghrq("train", recipe_file)
    assert (code, err) == (128 + number, "error: stopped\n")
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.usefixtures("interruptible")
def test_a_signal_before_the_command_has_begun(ghrq, monkeypatch):
    monkeypatch.setattr("typer.main.get_command", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert ghrq("runs") == (143, "", "error: stopped\n")


def test_runs_names_what_is_damaged(ghrq, recipe_file):
    ghrq("train", recipe_file)
    Path("runs/small/results.json").write_text("{")
    code, out, _ = ghrq("runs")
    assert code == 0
    assert out.splitlines()[1].split()[:5] == ["runs/small", "tiny_task:Tiny", "damaged", "prior", "2"]
    assert "  results.json is damaged, it is not valid JSON" in out.splitlines()[1]
    code, _, err = ghrq("train", "--resume", "runs/small")
    assert (code, err.count("to replace it: ghrq eval runs/small")) == (2, 1)
    assert ghrq("eval", "runs/small")[0] == 0
    assert ghrq("runs")[1].splitlines()[1].split()[2] == "finished"


def test_debug_shows_where_it_came_from(monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "_debug", False)
    with pytest.raises(ValueError, match="is not a run"):
        cli.main(["--debug", "eval", str(tmp_path)])


def test_a_bug_is_not_hidden(monkeypatch, recipe_file):
    monkeypatch.setattr("ghrq.training.train.open_run", lambda *_, **__: {}["a bug"])
    with pytest.raises(KeyError, match="a bug"):
        cli.main(["train", str(recipe_file)])


def test_recipes_lists_what_is_shipped(ghrq):
    from ghrq.recipes import shipped

    code, out, _ = ghrq("recipes")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line] == list(shipped())


def test_recipes_shows_all_keys_of_one(ghrq, tmp_path):
    code, out, _ = ghrq("recipes", "wordnet/demo")
    assert code == 0
    (tmp_path / "again.toml").write_text(out)
    assert load_recipe(tmp_path / "again.toml") == load_recipe("wordnet/demo")
    code, _, err = ghrq("recipes", "wordnet/dem")
    assert code == 2
    assert "wordnet/demo" in err


def test_missing_accelerate_names_the_extra(recipe_file, ghrq, monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    code, _, err = ghrq("train", recipe_file, "--out", "other")
    assert code == 2
    assert "this needs accelerate, which is not installed: pip install 'ghrq[train]'" in err
    assert not Path("other").exists()


@pytest.mark.slow
def test_the_command_line_itself_does_not_import_torch():
    """``ghrq/__init__.py`` aside: the package is entered without running it."""
    script = """
        import importlib.util, sys, types
        package = types.ModuleType("ghrq")
        package.__path__ = list(importlib.util.find_spec("ghrq").submodule_search_locations)
        package.__version__ = "0"
        sys.modules["ghrq"] = package
        from ghrq.cli import main
        for command in (["--help"], ["train", "--help"], ["recipes"]):
            try:
                main(command)
            except SystemExit as end:
                assert end.code == 0
        import ghrq.recipes, ghrq.training, ghrq.training.recipe, ghrq.training.run, ghrq.training.study
        heavy = {"torch", "accelerate", "geoopt", "tensorboard", "matplotlib", "scipy"} & set(sys.modules)
        assert not heavy, heavy
    """
    # find_spec of the top package alone does not import it
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True)


@pytest.mark.parametrize(
    "command",
    [
        ("train", "wordnet/demo"),
        ("reproduce", "wordnet"),
        ("image", "encode", "run", "mine.png"),
        ("image", "decode", "run", "mine.npz"),
        ("fit", "items.npy"),
        ("encode", "tokenizer", "items.npy"),
        ("decode", "tokenizer", "ids.npy"),
        ("inspect", "tokenizer", "ids.npy"),
    ],
)
def test_an_empty_out_is_not_the_folder_one_is_in(command: tuple[str, ...], ghrq, tmp_path: Path) -> None:
    code, _, err = ghrq(*command, "--out", "")
    assert code == 2
    assert "Invalid value for '--out': it is empty: name a file or a folder" in err
    assert not list(tmp_path.iterdir())


RECIPES = [sys.executable, "-m", "ghrq", "recipes"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize(
    ("unbuffered", "message"),
    [
        ("", "cannot write to the standard output (No space left on device)"),
        ("1", "[Errno 28] No space left on device\n('ghrq --debug' shows where this came from)"),
    ],
)
def test_a_full_standard_output_is_told_without_a_traceback(unbuffered: str, message: str) -> None:
    variables = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(RECIPES, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=variables)
    assert (done.returncode, done.stderr) == (1, f"error: {message}\n")


@pytest.mark.slow
def test_a_closed_pipe_is_no_news() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(RECIPES, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
