"""The report of a task that declares nothing but its tables, from runs that were really trained."""

import re
from dataclasses import replace

import pytest

from ghrq.report import Column, Table
from ghrq.report.study import console_tables, write_report
from ghrq.system.progress import Progress
from ghrq.training.train import run_study
from tiny_task import Tiny

ERROR = (Table("Error", columns=(Column("MSE", "error", ".3f", best="lowest"),)),)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    planned = []
    for run in Tiny.study.plan("demo", seeds=2, grid=True):
        training = run.recipe.training.model_copy(update={"log_every": 1})
        planned.append(replace(run, recipe=run.recipe.model_copy(update={"training": training})))
    return run_study(planned, folder, Progress())


@pytest.mark.slow
def test_declared_tables_make_a_whole_report(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(Tiny, "tables", ERROR)
    html = write_report(Tiny, trained, tmp_path).read_text("utf-8")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["figures", "report.html", "tables.md"]
    found = re.findall(
        r"^\| (GHRQ|Euclidean) \| \**([\d.]+) ± [\d.]+\** \|$", (tmp_path / "tables.md").read_text(), re.M
    )
    errors = [run.results["error"] for run in trained if run.axes["kind"] == "ghrq"]
    assert [label for label, _ in found] == ["GHRQ", "Euclidean"]
    assert float(found[0][1]) == pytest.approx(sum(errors) / 2, abs=6e-4)
    assert "4 runs with 2 seeds" in html
    assert re.search(r"<strong>What came out.</strong> MSE: .* GHRQ is [\d.]+ (ahead of|behind) Euclidean", html)
    assert html.count("<svg") == len(list((tmp_path / "figures").iterdir())) == 2, "a loss for each of two stages"
    assert [line.split()[0] for line in console_tables(Tiny, trained).splitlines() if "±" in line] == [
        "GHRQ",
        "Euclidean",
    ]


@pytest.mark.slow
def test_without_tables_there_is_one_of_all_numbers(trained, tmp_path):
    write_report(Tiny, trained, tmp_path)
    heading = next(line for line in (tmp_path / "tables.md").read_text().splitlines() if line.startswith("|"))
    assert heading == "|  | error | prior |"


def test_a_study_without_any_result_still_has_a_report(tmp_path):
    assert "no run has come to a result" in write_report(Tiny, [], tmp_path).read_text("utf-8")
