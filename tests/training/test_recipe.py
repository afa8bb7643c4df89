"""Recipes: what they inherit, what --set changes, and that every mistake is named with its remedy."""

import math
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghrq.recipes import shipped, summary
from ghrq.system.errors import UserError
from ghrq.training.recipe import load_recipe
from ghrq.training.task import task_class, task_names
from tiny_task import Tiny, TinyRecipe

TASK = 'task = "tiny_task:Tiny"\n'


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_defaults_are_filled_in_and_stored(write):
    recipe = load_recipe(write("small.toml", TASK))
    assert isinstance(recipe, TinyRecipe)
    assert (recipe.name, recipe.seed, recipe.quantizer.kind, recipe.training.clip) == ("small", 0, "ghrq", math.inf)
    assert tomllib.loads(recipe.toml())["quantizer"] == {"kind": "ghrq", "codes": 16, "noise": True}
    assert load_recipe(write("again.toml", recipe.toml())) == recipe


@given(st.floats(min_value=0, exclude_min=True), st.floats(), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_stored_recipe_reads_back_exactly(tmp_path_factory, clip, rate, label):
    recipe = TinyRecipe(
        task="tiny_task:Tiny",
        name="a 'name' with \"quotes\", ünïcode",
        axes={"kind": label, "size": 3, "a key, quoted": "x"},
        optimizer={"rate": rate},
        training={"clip": clip, "trackers": ("tensorboard", "wandb")},
    )
    path = tmp_path_factory.getbasetemp() / "stored.toml"
    path.write_text(recipe.toml(), encoding="utf-8")
    assert repr(load_recipe(path)) == repr(recipe)  # NaN is not equal to itself


def test_extends_merges_tables_deeply(write):
    write("base/one.toml", TASK + 'name = "one"\nseed = 3\n[optimizer]\nrate = 0.5\nsteps = 7\n')
    write("two.toml", 'extends = "base/one.toml"\n[optimizer]\nsteps = 8\n[training]\nlog_every = 2\n')
    recipe = load_recipe(write("three.toml", 'extends = "two.toml"\n[quantizer]\nkind = "naive"\n'))
    assert recipe.name == "three"  # not inherited: it names the run
    assert (recipe.seed, recipe.optimizer.rate, recipe.optimizer.steps) == (3, 0.5, 8)
    assert (recipe.quantizer.kind, recipe.training.log_every) == ("naive", 2)


def test_a_circle_is_named(write):
    write("b.toml", 'extends = "c.toml"\n')
    write("c.toml", 'extends = "b.toml"\n')
    path = write("a.toml", 'extends = "b.toml"\n')
    with pytest.raises(UserError, match=r"circle: \S+b\.toml → \S+c\.toml → \S+b\.toml$"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("seed=7", "seed", 7),
        ("quantizer.kind=naive", "quantizer.kind", "naive"),
        ('quantizer.kind="naive"', "quantizer.kind", "naive"),
        ("optimizer.rate=1", "optimizer.rate", 1.0),
        ("optimizer.rate = 1e-3", "optimizer.rate", 1e-3),
        ("training.clip=inf", "training.clip", math.inf),
        ('training.trackers=["tensorboard"]', "training.trackers", ("tensorboard",)),
        ("quantizer.noise=false", "quantizer.noise", False),
        ("name=a=b", "name", "a=b"),
        ("name=2024-05-01", "name", "2024-05-01"),
    ],
)
def test_set(write, override, key, value):
    found = load_recipe(write("x.toml", TASK), [override])
    for part in key.split("."):
        found = getattr(found, part)
    assert (found, type(found)) == (value, type(value))


def test_the_last_set_wins(write):
    assert load_recipe(write("x.toml", TASK + "seed = 1\n"), ["seed=2", "seed=3"]).seed == 3


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("sed = 3", [], r"x\.toml: unknown key 'sed'; did you mean 'seed'\?"),
        ("[quantizer]\nknd = 1", [], r"x\.toml: unknown key 'quantizer\.knd'; did you mean 'quantizer\.kind'\?"),
        ("", ["optimizer.stepz=3"], r"--set optimizer\.stepz=3: unknown key .*; did you mean 'optimizer\.steps'\?"),
        ("", ["kind=naive"], r"--set kind=naive: unknown key 'kind'; did you mean 'quantizer\.kind'\?"),
        ("", ["quantizer.zzz=1"], r"unknown key 'quantizer\.zzz'; 'quantizer' has the keys kind, codes, noise"),
        ("", ["optimzer.rate=1"], r"unknown key 'optimzer'; did you mean 'optimizer'\?"),
        ("", ["optimizer.steps=many"], r'--set optimizer\.steps=many: optimizer\.steps = "many": expected .*integer'),
        ('seed = "1"', [], r'x\.toml: seed = "1": expected a valid integer'),
        ("seed = true", [], r"x\.toml: seed = true: expected a valid integer"),
        ("", ["training.precision=fp16"], r"training\.precision = \"fp16\": expected 'fp32' or 'bf16'"),
        ("", ["training.log_every=0"], r"training\.log_every = 0: expected greater than or equal to 1"),
        ("", ["name=../../up"], r'name = "\.\./\.\./up": expected a name without / and \\'),
        ("", ["quantizer=3"], r"quantizer = 3: expected a table, for example quantizer\.kind=\.\.\."),
        ("", ["training.trackers=[wandb]"], r"""quote all of it.*: --set 'training\.trackers=\["wandb"\]'"""),
        ("", ["training.trackers=[wandb"], r"""is not valid TOML; .*--set 'training\.trackers=\["wandb"\]'"""),
        ("", ["seed.x=1"], r"--set seed\.x=1: seed = .*: expected a valid integer"),
        ("", ["seed"], "--set seed: expected key=value"),
        ("", [".seed=1"], "expected key=value"),
        ("seed = = 1", [], r"x\.toml is not valid TOML: .*line 2"),
        ('extends = ["a", "b"]', [], r"x\.toml: extends = .*expected the path or name of one recipe"),
        ('extends = "gone.toml"', [], r"x\.toml: there is no recipe file \S+gone\.toml"),
        (
            "",
            ["axes.kind=[1]"],
            r"^--set \S+: axes\.kind = \[1\]: expected a valid string, or a[^\n]*$",
        ),
    ],
)
def test_mistakes(write, text, overrides, message):
    with pytest.raises(UserError, match=message):
        load_recipe(write("x.toml", TASK + text), overrides)


def test_a_mistake_in_an_inherited_file_names_that_file(write):
    write("base.toml", TASK + "[optimizer]\nrat = 1\n")
    with pytest.raises(UserError, match=r"base\.toml: unknown key 'optimizer\.rat'; did you mean 'optimizer\.rate'"):
        load_recipe(write("top.toml", 'extends = "base.toml"\n[optimizer]\nsteps = 3\n'))


def test_all_mistakes_are_told_at_once(write):
    with pytest.raises(UserError) as told:
        load_recipe(write("x.toml", TASK + "sed = 1\n"), ["optimizer.steps=x"])
    assert len(str(told.value).splitlines()) == 2


def test_unknown_recipes_and_tasks(write, tmp_path):
    with pytest.raises(UserError, match=r"there is no recipe 'nowhere/demo'.*'ghrq recipes' lists"):
        load_recipe("nowhere/demo")
    with pytest.raises(UserError, match=r"there is no recipe file \S*gone\.toml"):
        load_recipe(tmp_path / "gone.toml")
    with pytest.raises(UserError, match="the key 'task' is missing"):
        load_recipe(write("x.toml", "seed = 1\n"))
    with pytest.raises(UserError, match=r"x\.toml: unknown task 'wordnets'; did you mean 'wordnet'\?"):
        load_recipe(write("x.toml", 'task = "wordnets"\n'))
    with pytest.raises(UserError, match="there is no module 'nothing_here'"):
        task_class("nothing_here:Task")
    with pytest.raises(UserError, match=r"'Autoencoder' of tiny_task is not a subclass of ghrq\.training\.task\.Task"):
        task_class("tiny_task:Autoencoder")


def test_a_task_of_ones_own_is_found_by_module_or_in_the_current_folder(tmp_path, monkeypatch):
    assert task_class("tiny_task:Tiny") is Tiny
    (tmp_path / "my_own_task.py").write_text("from tiny_task import Tiny\nclass Mine(Tiny): pass\n")
    monkeypatch.setattr("sys.path", [place for place in __import__("sys").path if place])
    monkeypatch.chdir(tmp_path)
    assert task_class("my_own_task:Mine").__name__ == "Mine"


def test_a_shipped_task_is_a_module_with_one_class(tmp_path, monkeypatch):
    import ghrq.tasks

    monkeypatch.setattr(ghrq.tasks, "__path__", [*ghrq.tasks.__path__, str(tmp_path)])
    for name, text in (("toy_one", "class One(Tiny): pass"), ("toy_none", ""), ("_helper", "")):
        (tmp_path / f"{name}.py").write_text(f"from tiny_task import Tiny\n{text}\n")
    assert {"toy_one", "toy_none", "wordnet"} <= set(task_names())
    assert "_helper" not in task_names()
    assert task_class("toy_one").__name__ == "One"
    with pytest.raises(TypeError, match=r"ghrq\.tasks\.toy_none must define one subclass of Task, got \[\]"):
        task_class("toy_none")


def test_every_shipped_recipe_is_right_and_says_what_it_is_for():
    for name, path in shipped().items():
        assert load_recipe(name).name == name.replace("/", "-")
        assert summary(path)


def test_a_recipe_shown_has_the_keys_without_a_value_too():
    shown = load_recipe("image/mnist-cpu").described()
    assert "# radius is not set" in shown.split("[quantizer]")[1].split("[")[0]
    assert tomllib.loads(shown) == tomllib.loads(load_recipe("image/mnist-cpu").toml())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["curvature=learn", "update=ema"], "quantizer.update"),
        (["curvature=0.5", "radius=0.3"], "curvature=0.5"),
        (["radius=0.3", "scale_control=false"], "needs scale control"),
    ],
)
def test_what_a_quantizer_refuses_its_recipe_refuses(settings, message):
    overrides = [f"quantizer.{each}" for each in ["kind=calibrated", *settings]]
    with pytest.raises(UserError, match=message):
        load_recipe("image/mnist-cpu", overrides)
    load_recipe("image/mnist-cpu", ["quantizer.kind=calibrated", "quantizer.curvature=0.5"])


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("wordnet/demo", ["kind=none"], r"quantizer\.kind = \"none\": expected 'calibrated'.*, or 'random'"),
        ("image/digits-demo", ["curvature=-1"], r"quantizer\.curvature = -1: expected .* 0, or 'learn'"),
        ("image/digits-demo", ["revive_below=1"], r"quantizer\.revive_below = 1: expected less than 1"),
        ("image/digits-demo", ["decay=1"], r"quantizer\.decay = 1: expected less than 1"),
        ("image/digits-demo", ["weight=inf"], r"quantizer\.weight = inf: expected a finite number"),
        ("image/digits-demo", ["commitment_weight=inf"], r"quantizer\.commitment_weight = inf: .* finite number"),
        ("image/digits-demo", ["depth_dropout.depths=[9]"], r"quantizer\.depth_dropout: .* num_stages=4, got \[9\]"),
        ("image/digits-demo", ["depth_dropout.depths=[]"], r"quantizer\.depth_dropout: .* num_stages=4, got \[\]"),
        ("image/digits-demo", ["radius=0.3", "scale_control=false"], r"quantizer: radius=0\.3 needs [^{]*"),
        (
            "image/digits-demo",
            ["codebook_size=[4,8]"],
            r"quantizer\.num_stages = 4: expected 2, .* quantizer\.codebook_size = \[4, 8\]: "
            r"add --set quantizer\.num_stages=2",
        ),
    ],
)
def test_what_is_wrong_with_a_quantizer_is_one_line_that_names_the_option(name, settings, message):
    overrides = [f"quantizer.{each}" for each in settings]
    with pytest.raises(UserError, match=f"^--set {re.escape(overrides[-1])}: {message}$"):
        load_recipe(name, overrides)


def test_an_empty_list_needs_at_least_one():
    with pytest.raises(UserError, match=r"recommender\.inputs = \[\]: expected at least one$"):
        load_recipe("recommendation/demo", ["recommender.inputs=[]"])


def test_sizes_that_do_not_fit_inherited_stages_are_the_mistake_of_the_file_that_has_them(write):
    text = 'extends = "image/digits-demo"\n[quantizer]\ncodebook_size = [4, 8]\n'
    with pytest.raises(UserError, match=r"x\.toml: .*: set quantizer\.num_stages=2 there too$"):
        load_recipe(write("x.toml", text))
    assert load_recipe(write("y.toml", text + "num_stages = 2\n")).quantizer.num_stages == 2


def test_a_quantizer_is_built_with_the_settings_of_its_recipe():
    overrides = ["kind=calibrated", "curvature=0", "decay=0.9", "depth_dropout.depths=[1,4]"]
    rq = load_recipe("image/digits-demo", [f"quantizer.{each}" for each in overrides]).quantizer.build(4)
    assert (rq.curvature, rq.scale, rq.usage.decay, rq.midpoints.decay) == (0.0, None, 0.9, 0.9)
    assert rq.depth_dropout.depths == (1, 4)
