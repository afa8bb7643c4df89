"""ghrq report as a user meets it: every format says the same numbers, and one clear line for a mistake."""

import json
import re
import statistics
from pathlib import Path

import pytest

from finished_runs import finished, finished_audio
from ghrq.report import latex
from ghrq.report.grid import Block, Column, Grid, Row
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
    text = report.write("latex")
    assert text.isascii()
    assert f"GHRQ & {SHOWN.replace('±', '$' + chr(92) + 'pm$')} & 0.647" in text
    bare = re.sub(r"\\[\\{}&%$#_]", "", re.sub(r"(?m)^%.*|\{%$", "{", text))
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", bare, re.S)
    captions = [table for table in tables if not re.search(r"\\caption\{.*, part \d+ of \d+\.\}", table)]
    assert len(captions) == sum(len(page.tables()) for page in report.parts)
    for table in tables:
        assert table.count("{") == table.count("}")
        assert all(line.count("$") % 2 == 0 for line in table.splitlines())
        columns, body = re.search(r"\\begin\{tabular\}\{(l[lr]*)\}(.*)\\end\{tabular\}", table, re.S).groups()
        rows = [row for row in body.splitlines() if "&" in row or (row and row[0] != "\\")]
        assert {row.count("&") + 1 for row in rows} == {len(columns)}


def test_every_command_of_latex_is_of_the_packages_that_are_named(report):
    """Such a file was compiled and looked at; this asserts what that needs, where there is no LaTeX."""
    text = report.write("latex")
    assert text.startswith(r"% Needs \usepackage{booktabs} and \usepackage{graphicx}")
    kernel = r"""begin end centering setlength belowcaptionskip caption ifdim width linewidth else fi shortstack strut
        multicolumn textbf emph texttt pm times ldots oplus"""
    packages = {"booktabs": "toprule midrule bottomrule addlinespace", "graphicx": "resizebox"}
    text = re.sub(r"(?m)^%.*", "", text)
    assert set(re.findall(r"\\([A-Za-z]+)", text)) - set(" ".join([kernel, *packages.values()]).split()) == set()
    assert set(re.findall(r"\\begin\{(\w+)\}", text)) == {"table", "tabular"}


def test_latex_fits_on_the_page(report):
    """Without it, tables of seven columns ran over the edge of the paper, and those of all settings over its foot."""
    text = report.write("latex")
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.S)
    for table in tables:
        assert table.count(r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%") == 1
        assert table.split(r"\midrule")[1].count(r" \\") <= 33
    assert r"\caption{Settings of all runs, part 2 of 2.}" in text
    for key in ("training.log\\_every", "tokenizer.batch", "evaluation.seconds"):
        assert text.count(rf"\texttt{{{key}}} & ") >= 1, "no row is lost"
    assert r"\shortstack[r]{\strut residual \\ \strut error, \\ \strut depth 1}" in text


def test_the_parts_of_a_long_table_name_their_block():
    rows = [Row(f"r{i}", [str(i)]) for i in range(70)]
    given = Grid("T", "Note.", [Column("n")], [Block("", rows[:10]), Block("a_b", rows[10:])])
    parts = latex.table(given).split(r"\begin{table}")[1:]
    assert [re.search(r"\\caption\{(.*)\}", part)[1] for part in parts] == [
        "T. Note.", "T, part 2 of 3.", "T, part 3 of 3.",
    ]  # fmt: skip
    assert [part.count(r"\multicolumn{2}{l}{\textbf{a\_b}} \\") for part in parts] == [1, 1, 1]
    assert re.findall(r"(?m)^r(\d+) & ", latex.table(given)) == [str(i) for i in range(70)]


def test_numbers_are_on_the_right_and_words_on_the_left():
    columns = [Column(name) for name in ("number", "word", "mixed")]
    rows = [Row("[2, 2]", ["-1.5 ± 0.2", "a-b", "--set"]), Row("*x", ["**3e-05**", "–", "7"]), Row("y", [None] * 3)]
    table = latex.table(Grid("T", "", columns, [Block("", rows)]))
    assert r"\begin{tabular}{lrll}" in table
    # A row that begins with [ or * would be an option of the row before it; two hyphens would be a dash.
    assert r"{}[2, 2] & $-$1.5 $\pm$ 0.2 & a-b & -{}-set \\" in table
    assert r"{}*x & \textbf{3e-05} & -- & 7 \\" in table


def test_text_that_means_something_to_latex():
    assert latex.inline("50 % of `a_b` & **x²** <é> \\ {ẑ} 1·2") == (
        r"50 \% of \texttt{a\_b} \& \textbf{x$^2$} \textless{}\'{e}\textgreater{} \textbackslash{} \{\^{z}\} 1$\cdot$2"
    )
    assert latex.inline("#~^$|") == r"\#\textasciitilde{}\textasciicircum{}\$\textbar{}"
    assert latex.inline("x ⊕ y ± 1 × 2\u00a0−3") == r"x $\oplus$ y $\pm$ 1 $\times$ 2~$-$3"
    assert latex.inline("語") == "[U+8A9E]"


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
