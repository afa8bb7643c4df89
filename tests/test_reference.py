"""The reference: every public name is on a page of it, and the examples in its docstrings run."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import ghrq
import ghrq.optim
from ghrq import ball

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
MODULES = [name for page in PAGES for name in re.findall(r"^::: (ghrq[\w.]*)$", page.read_text("utf-8"), re.MULTILINE)]


def public_packages():
    """The packages that say what is public in them, and the modules that ``import ghrq`` offers."""
    folder = ROOT / "src" / "ghrq"
    found = [path for path in folder.rglob("__init__.py") if "__all__" in path.read_text("utf-8")]
    names = {".".join(path.parent.relative_to(folder.parent).parts) for path in found}
    return sorted(names - {"ghrq"} | {"ghrq.geometry.ball", "ghrq.optim"})


@pytest.mark.parametrize("package", public_packages())
def test_every_public_package_has_a_place(package):
    assert package in MODULES, f"write '::: {package}' into a page of docs/api"


def test_what_ghrq_offers_is_in_one_of_them():
    documented = {id(getattr(importlib.import_module(name), each)) for name in MODULES for each in _names(name)}
    for name in ghrq.__all__:
        offered = getattr(ghrq, name)
        assert id(offered) in documented or (inspect.ismodule(offered) and offered.__name__ in MODULES), name


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_docstring(module):
    for name in _names(module):
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert (value.__doc__ or "").strip(), f"{module}.{name}"


# Names whose docstring must show how they are used.
MAIN = ["ResidualQuantizer", "Tokenizer", *(f"models.{name}" for name in ghrq.models.__all__)]
MAIN += ["optim.RiemannianAdam", "optim.RiemannianSGD", "ids.Catalogue", "ids.PrefixTrie", "ids.TrieLogitsProcessor"]
MAIN += ["ids.Vocabulary", "ids.resolve", "ids.resolve_append", "ids.resolve_reassign"]
MAIN += [f"ball.{name}" for name in ball.__all__ if "_with_" not in name and "_from_" not in name]
MAIN = [name for name in MAIN if not name.startswith("ball.midpoint_")]


@pytest.mark.parametrize("name", MAIN)
def test_a_main_name_has_an_example_that_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = ghrq
    for part in name.split("."):
        value = getattr(value, part)
    assert ">>>" in value.__doc__, f"{name} has no example"
    _run(inspect.getdoc(value), name)


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_modules_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _run(inspect.getdoc(importlib.import_module(module)) or "", module)


def _names(module):
    return importlib.import_module(module).__all__


def _run(text, name):
    """Run the examples of a docstring, with the names that docs/api/index.md promises."""
    known = {"ghrq": ghrq, "ball": ball, "torch": torch, "np": np, "Path": Path}
    torch.manual_seed(0)
    test = doctest.DocTestParser().get_doctest(text, known, name, None, 0)
    told = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
    assert not failed, "".join(told)
