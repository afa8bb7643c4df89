"""ghrq report as a user meets it: every format says the same numbers, and one clear line for a mistake."""

import json
import re
import statistics
from pathlib import Path

import pytest

from finished_runs import finished, finished_audio
from ghrq.report.runs import RunsReport
from ghrq.training.gather import gather
from ghrq.training.run import Run

MSE = {("ghrq", 0): 0.002, ("ghrq", 1): 0.003, ("euclidean", 0): 0.001}
OURS = [1000 * MSE["ghrq", seed] for seed in (0, 1)]
SHOWN = f"{statistics.fmean(OURS):.3f} ± {statistics.stdev(OURS):.3f}"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Three runs of a task and one of another."""
    folder = tmp_path_factory.mktemp("runs")
    for (kind, seed), mse in MSE.items():
        finished(folder / f"{kind}-{seed}", kind=kind, seed=seed, mse=mse, overrides=["tokenizer.epochs=3"])
    finished_audio(folder / "spoken")
    return RunsReport.of(gather([folder]))


def test_the_page_has_the_papers_figure_ours_and_the_spread_and_plots(report):
    html = report.write("html")
    assert re.search(rf"GHRQ</th><td>{SHOWN}</td><td class=\"aside\">0.647</td>", html)
    for title in ("Codes used at all", "Codes used alike", "Radii against the boundary", "Residual error by depth"):
        assert html.count(f">{title}<") >= 2, "in the drawing of each task"
    assert "Loss of the quantizer" in html
    told = r"<code>tokenizer.epochs</code> is 3, not \d+"
    assert re.search(rf"Runs of <code>image/mnist-cpu</code> have other settings than it: {told}\.", html)


def test_several_tasks_are_parts_of_one_page_and_share_no_name(report):
    html = report.write("html")
    assert re.findall(r'class="part">\s*<h2>(.*?)</h2>', html) == ["Images as codes: mnist", "Speech as codes"]
    for pattern in (r'\bid="([^"]+)"', r'role="region" aria-label="([^"]+)"'):
        found = re.findall(pattern, html)
        assert len(found) == len(set(found))


def test_markdown_and_json_say_the_same(report):
    markdown = report.write("markdown")
    assert f"| GHRQ | {SHOWN} | 0.647 |" in markdown
    assert "| Euclidean | **1.000** | 0.477 |" in markdown
    assert "| `quantizer.kind` | ghrq | euclidean |" in markdown
    assert "| `tokenizer.epochs` | 3 |" in markdown
    task = json.loads(report.write("json"))["tasks"][0]
    table = next(each for each in task["tables"] if each["title"].startswith("Reconstruction"))
    assert table["columns"] == ["MSE × 1000", "the paper"]
    cell = table["rows"][0]["cells"][0]
    assert (cell["text"], cell["values"]) == (SHOWN, OURS)
    assert (cell["mean"], cell["spread"]) == (statistics.fmean(OURS), statistics.stdev(OURS))
    assert {run["settings"]["quantizer.kind"] for run in task["runs"]} == {"ghrq", "euclidean"}
    assert all(run["environment"]["versions"]["torch"] for run in task["runs"])
    assert task["runs"][0]["results"]["quantizer"]["residual_error"]


def test_latex_is_ascii_and_balanced(report):
    latex = report.write("latex")
    assert latex.isascii()
    assert f"GHRQ & {SHOWN.replace('±', '$' + chr(92) + 'pm$')} & 0.647" in latex
    bare = re.sub(r"\\[\\{}&%$#_]", "", re.sub(r"(?m)^%.*|\{%$", "{", latex))
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", bare, re.S)
    assert len(tables) == sum(len(page.tables()) for page in report.parts)
    for table in tables:
        assert table.count("{") == table.count("}")
        assert all(line.count("$") % 2 == 0 for line in table.splitlines())
        columns, body = re.search(r"\\begin\{tabular\}\{(lr*)\}(.*)\\end\{tabular\}", table, re.S).groups()
        rows = [row for row in body.splitlines() if "&" in row or (row and row[0] != "\\")]
        assert {row.count("&") + 1 for row in rows} == {len(columns)}


def test_text_that_means_something_to_latex():
    from ghrq.report.latex import inline

    assert inline("50 % of `a_b` & **x²** <é> \\ {ẑ} 1·2") == (
        r"50 \% of \texttt{a\_b} \& \textbf{x$^2$} \textless{}\'{e}\textgreater{} \textbackslash{} \{\^{z}\} 1$\cdot$2"
    )
    assert inline("語") == "[U+8A9E]"


@pytest.fixture
def own(tiny, tmp_path):
    """Runs of a task that is not part of ghrq."""
    for seed in (0, 1):
        Run.create(tmp_path / "own" / f"s{seed}", tiny(seed)).write_results({"error": 0.25 + seed, "prior": 1.5})
    return ["own", "--task", "tiny_task:Tiny"]


def test_by_the_ending_of_the_file_or_printed(ghrq, own):
    code, out, _ = ghrq("report", *own, "--format", "markdown")
    assert (code, "| GHRQ | 0.75 ± 0.71 | 1.5 ± 0 |" in out) == (0, True)
    for name, begin in (("r.html", "<!doctype html>"), ("r.md", "# Tiny"), ("r.tex", "% Needs"), ("r.json", "{")):
        code, out, _ = ghrq("report", *own, "--out", name)
        assert (code, out.split()) == (0, ["runs", "2", "report", name])
        assert Path(name).read_text().startswith(begin)


def test_unfinished_runs_of_a_folder_are_left_out_and_told(ghrq, own):
    Path("own/s1/results.json").unlink()
    code, out, _ = ghrq("report", *own, "--out", "r.html")
    assert (code, "left out  own/s1: no results yet" in out) == (0, True)
    assert "<strong>Left out:</strong> <code>s1</code>" in Path("r.html").read_text()


def test_it_replaces_only_what_is_named(ghrq, own):
    assert ghrq("report", *own)[0] == 0
    before = Path("report.html").read_bytes()
    code, _, err = ghrq("report", "own/s0", *own[1:])
    assert (code, err.count("\n")) == (2, 1)
    assert "report.html already" in err
    assert Path("report.html").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone"], "gone is not a run (there is no such folder)"),
        (["empty"], "empty is not a run (it has no recipe.toml"),
        (["begun"], "begun has no results.json, so it is not finished: ghrq train --resume begun"),
        (["damaged"], "results.json is damaged"),
        (["good", "--out", "r.pdf"], "cannot tell the format of r.pdf"),
        (["good", "--out", "r.md", "--format", "json"], "--format json does not fit r.md, which is markdown"),
        (["good", "--out", "gone/r.html"], "there is no folder gone"),
        (["other"], "add --task surprise:Mine"),
    ],
)
def test_mistakes_are_one_line(ghrq, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    for name in ("good", "begun", "damaged", "other"):
        finished(tmp_path / name)
    (tmp_path / "begun" / "results.json").unlink()
    (tmp_path / "damaged" / "results.json").write_text("{")
    recipe = tmp_path / "other" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('task = "image"', 'task = "surprise:Mine"'))
    code, out, err = ghrq("report", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
