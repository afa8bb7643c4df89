"""Declared tables, filled from the outcomes of a study."""

from dataclasses import fields
from pathlib import Path

import pytest

from ghrq.report import Baseline, Column, Table
from ghrq.report.curves import line_names
from ghrq.report.results import StudyResults, value_at
from ghrq.report.tables import default_table
from ghrq.report.words import what_came_out
from ghrq.training.study import Outcome

MSE = Column("MSE", "mse", ".3f", best="lowest")


def outcome(kind, seed=0, *, mse=None, error="", **axes):
    """A run with an error that follows from kind and seed, or one that diverged."""
    value = {"ghrq": 0.5, "naive": 0.75, "euclidean": 0.625}.get(kind, 1.0) + 0.01 * seed if mse is None else mse
    results = {"mse": value, "recall": {"free": 0.25}, "by_depth": [4.0, value], "baseline": {"mse": 0.7}}
    labels = {"recipe": "demo", "kind": kind, **axes, "seed": seed}
    return Outcome(labels, Path(f"{kind}-s{seed}"), {} if error else results, error)


def rows(table, outcomes):
    """The cells of the Markdown: headings, then rows."""
    grid = table.fill(StudyResults(outcomes))
    lines = [line for line in grid.markdown().splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [split[0], *split[2:]]


def test_the_smallest_declaration_has_mean_and_spread_over_seeds():
    table = Table("Error", columns=(MSE,))
    given = [outcome(kind, seed) for seed in (1, 0) for kind in ("euclidean", "mine", "ghrq")]
    assert rows(table, given) == [
        ["", "MSE"],
        ["GHRQ", "**0.505 ± 0.007**"],
        ["Euclidean", "0.630 ± 0.007"],
        ["mine", "1.005 ± 0.007"],
    ]


def test_without_a_declaration_all_top_level_numbers_are_shown():
    given = [outcome("ghrq"), outcome("naive")]
    assert rows(default_table(StudyResults(given)), given) == [
        ["", "mse"],
        ["GHRQ", "0.5"],
        ["naive hyperbolic", "0.75"],
    ]


def test_without_kinds_the_rows_are_the_axis_on_which_runs_differ():
    given = [Outcome({"recipe": "demo", "width": width, "seed": 0}, Path(), {"mse": width}) for width in (8, 16)]
    assert rows(Table("t", [MSE]), given) == [["", "MSE"], ["width 8", "**8.000**"], ["width 16", "16.000"]]
    assert rows(Table("t", [MSE]), given[:1]) == [["", "MSE"], ["demo", "8.000"]]


def test_numbers_are_shown_with_the_name_of_their_axis():
    study = StudyResults([outcome(kind, dim=dim) for dim in (8, 16) for kind in ("ghrq", "naive")])
    grid = Table("t", [MSE]).fill(study)
    assert [block.title for block in grid.blocks] == ["dim 8", "dim 16"]
    assert [text[: text.index(" MSE")] for text in what_came_out(grid)] == [
        "**What came out with dim 8.**",
        "**What came out with dim 16.**",
    ]
    assert line_names(study.groups)[0] == "GHRQ, dim 8"
    across = Table("t", [MSE], across="dim", paper={"ghrq": {"dim 8": 0.2}}).fill(study)
    assert [column.title for column in across.columns] == ["dim 8", "the paper", "dim 16"]


@pytest.mark.parametrize("declared", [Table, Column])
def test_help_explains_every_field(declared):
    explained = declared.__doc__.partition("Args:")[2]
    assert all(f"\n        {each.name}: " in explained for each in fields(declared))


def test_runs_that_differ_on_an_axis_are_never_averaged():
    given = [outcome(kind, size=size) for size in ("s", "l") for kind in ("ghrq", "naive")]
    found = rows(Table("t", [MSE]), given)
    assert [row[0] for row in found[1:]] == ["**s**", "GHRQ", "naive hyperbolic", "**l**", "GHRQ", "naive hyperbolic"]
    found = rows(Table("t", [MSE], blocks=["recipe"], only={"size": ["l"]}), given)
    assert [row[0] for row in found[1:]] == ["**recipe `demo`**", "GHRQ", "naive hyperbolic"]


def test_published_figures_are_beside_ours_by_row_labels_and_column():
    paper = {("mnist", "ghrq"): {"MSE": 0.1}, ("cifar", "ghrq"): {"MSE": 9.0}, "naive": {"other": 1.0}}
    table = Table("t", [MSE], paper=paper)
    given = [outcome(kind, seed, dataset="mnist") for kind in ("ghrq", "naive") for seed in (0, 1)]
    assert rows(table, given) == [
        ["", "MSE", "the paper"],
        ["GHRQ", "**0.505 ± 0.007**", "0.100"],
        ["naive hyperbolic", "0.755 ± 0.007", "–"],
    ]
    assert rows(table, [outcome("ghrq", dataset="digits")])[0] == ["", "MSE"], "none of them is published"
    unmeasured = Table("t", [MSE, Column("other", "missing")], paper=paper)
    assert rows(unmeasured, [outcome("naive")])[0] == ["", "MSE"], "there is no number of ours to stand beside"


def test_labels_of_an_axis_as_columns():
    table = Table("t", [MSE], across="size", only={"size": ["s", "l", "xl"]}, paper={"ghrq": {"l": 0.2}})
    given = [outcome("ghrq", size="l"), outcome("ghrq", size="s", mse=2.0), outcome("naive", size="l")]
    given.append(outcome("euclidean", size="l", error="nan"))
    assert rows(table, given) == [
        ["", "s", "l", "the paper"],
        ["GHRQ", "2.000", "**0.500**", "0.200"],
        ["naive hyperbolic", "–", "0.750", "–"],
        ["Euclidean", "–", "diverged", "–"],
    ]
    two = Table("t", [MSE, Column("recall", "recall.free", factor=100.0)], across="size")
    assert rows(two, given)[0] == ["", "l, MSE", "l, recall", "s, MSE", "s, recall"]


def test_diverged_runs_are_named():
    given = [outcome("ghrq"), outcome("ghrq", 1, error="nan"), outcome("naive", error="nan")]
    assert rows(Table("t", [MSE, Column("recall", "recall.free", ".2f")]), given)[1:] == [
        ["GHRQ (1 of 2 diverged)", "0.500", "0.25"],
        ["naive hyperbolic", "diverged", "–"],
    ]
    assert Table("t", [MSE]).fill(StudyResults(given[2:])) is None


def test_baselines_do_not_compete():
    no_model = Baseline("constant", lambda results: {"mse": results["baseline"]["mse"]}, "no model")
    table = Table("t", [MSE, Column("recall", "recall.free", ".2f")], baselines=["random", no_model])
    given = [outcome(kind, seed) for kind in ("random", "ghrq", "naive") for seed in (0, 1)]
    given = [outcome("random", 0, mse=0.1), *given[1:]]
    found = rows(table, given)
    assert found[1][1] == "**0.505 ± 0.007**"
    assert [row[:2] for row in found[3:]] == [
        ["**to compare with**", ""],
        ["random codes", "0.555 ± 0.643"],
        ["constant (no model)", "0.700"],
    ]
    assert found[-1][2] == "–", "what the baseline lacks"
    several = [outcome(kind, recipe=recipe) for recipe in ("a", "b") for kind in ("ghrq", "random")]
    assert [row[0] for row in rows(table, several)[-3:]] == [
        "random codes (recipe a)",
        "random codes (recipe b)",
        "constant (no model)",
    ]


def test_blocks_without_the_needed_rows_are_left_out():
    table = Table("t", [MSE], blocks=["recipe"], only={"kind": ["ghrq", "hra-only"]}, needs=["hra-only"])
    given = [outcome("ghrq", recipe="a"), outcome("naive", recipe="a"), outcome("ghrq", recipe="b")]
    assert table.fill(StudyResults(given)) is None
    found = rows(table, [*given, outcome("hra-only", recipe="b")])
    assert [row[0] for row in found[1:]] == ["**recipe `b`**", "GHRQ", "HRA only"]


def test_a_list_becomes_columns_and_a_function_a_number():
    columns = [
        Column("depth {}", "by_depth.*", ".2f"),
        Column("last", "by_depth.-1", ".2f"),
        Column("sum", lambda results: sum(results["by_depth"]), ".2f", factor=10.0),
        Column("none", lambda results: results["missing"]["key"]),
    ]
    assert rows(Table("t", columns, note=lambda study: f"{len(study.groups)} group"), [outcome("ghrq")]) == [
        ["", "depth 1", "depth 2", "last", "sum"],
        ["GHRQ", "4.00", "0.50", "0.50", "45.00"],
    ]


@pytest.mark.parametrize("path", ["missing", "mse.deeper", "by_depth.7", "by_depth.x", ""])
def test_what_is_not_there_is_none(path):
    assert value_at(outcome("ghrq").results, path) is None


def test_a_note_may_be_a_function_of_the_study():
    grid = Table("t", [MSE], note=lambda study: f"Of {len(study.outcomes)} runs.").fill(StudyResults([outcome("ghrq")]))
    assert grid.markdown().endswith("\n\nOf 1 runs.\n")
