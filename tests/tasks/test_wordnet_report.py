"""The report of the WordNet task, from results written by hand in the form that the evaluation gives them."""

import re
from dataclasses import replace

import pytest

from ghrq.metrics import baselines, hierarchy, ranking
from ghrq.quantizer.diagnosis import Diagnosis
from ghrq.report.results import StudyResults
from ghrq.report.study import write_report
from ghrq.report.words import what_came_out
from ghrq.system.errors import UserError
from ghrq.system.files import plain
from ghrq.tasks.wordnet import WordNet
from ghrq.tasks.wordnet.report import ENTITY, readable
from ghrq.training.run import Run
from ghrq.training.study import Outcome

SYNSETS = 82_115
COMPOSITION = baselines.Recall(0.801, 0.844, 0.844)
POPULARITY = baselines.Recall(0.416, 0.445, 1.0)
ERRORS = {"ghrq": 0.25, "hra-only": 0.75, "dhste-only": 4.0, "naive": 3.0, "euclidean": 0.125}


def recalls(entity):
    """The free beam is a little worse; all others follow from the one that counts."""
    return {
        beam: ranking.PairRecall(value + 0.05, value + 0.08, value - 0.12, value, value - 0.03, 0.0)._asdict()
        for beam, value in (("constrained", entity), ("free", entity - 0.01))
    }


def similar(shared, random, groups):
    return {
        side: hierarchy.Similarity(value, value, groups, 10 * groups, 0)._asdict()
        for side, value in (("shared", shared), ("random", random))
    }


def result(kind, entity, glove=True):
    """What ``evaluate`` gives: results.json, with ``None`` for NaN."""
    distinct = SYNSETS if kind == "random" else 80_000
    found = {
        "entity_recall": entity,
        "distinct": distinct / SYNSETS,
        "distinct_frequent": 200 if kind == "random" else 193,
        "recall": {"k": 10, "sources": 5000, "pairs": 9261, "beam": 27, **recalls(entity)},
        "baselines": {"popularity": POPULARITY._asdict(), "composition": COMPOSITION._asdict()},
        "distinct_by_depth": [128, 15_000, 70_000, distinct],
        "similarity": {"groups": 0, "largest": 1},
        "examples": [
            {
                "name": "hot_dog.n.02",
                "gloss": "a sausage <in> a roll",
                "codes": [7, 8, 9, 10],
                "sharing": [[f"thing_{i}.n.01" for i in range(12)], ["hot_dog.n.02", "roll.n.03"], ["hot_dog.n.02"]],
                "counts": [40, 2, 1],
            }
        ],
    }
    if kind != "random":
        found["similarity"] = {"groups": 900, "largest": 60, "path": similar(0.15, 0.07, 900)}
        found["similarity"]["wu_palmer"] = similar(0.36, 0.21, 900)
        if glove:
            found["similarity"]["glove"] = similar(float("nan"), 0.06, 800)
        error = ERRORS[kind]
        found["reconstruction"] = ranking.Reconstruction(0.456, 12.25, 500)._asdict()
        found["diagnosis"] = Diagnosis(
            residual_error=[8 * error, 4 * error, 2 * error, error],
            telescoping_error=1e-30 if kind in ("ghrq", "hra-only", "euclidean") else 0.5,
            usage=[1.0] * 4,
            perplexity=[100.0] * 4,
            radius={"median": 0.5, "greatest": 0.98},
            code_radius=[0.3] * 4,
            residual_radius=[0.3] * 4,
            boundary_fraction=0.0,
        ).to_dict()
    return plain(found)


SCORES = {"ghrq": 0.86, "hra-only": 0.85, "dhste-only": 0.7, "naive": 0.8, "euclidean": 0.78, "random": 0.42}


def outcomes(budget, folder, seeds=1, grid=False):
    """An outcome for every run, by name; the second seed is 0.2 % better than the first, the third 0.4 %."""
    found = {}
    for run in WordNet.study.plan(budget, seeds, grid):
        kind = run.axes["kind"]
        lower = 0.3 if run.axes["recipe"] == "cpu" and kind != "random" else 0
        found[run.name] = Outcome(
            run.axes, folder / run.name, result(kind, SCORES[kind] - lower + 0.002 * run.axes["seed"])
        )
    return found


def write(given, folder):
    return write_report(WordNet, given.values(), folder)


def tables(given):
    """The declared tables in Markdown, without figures."""
    study = StudyResults(given.values())
    return "\n".join(grid.markdown() for table in WordNet.tables if (grid := table.fill(study)) is not None)


def came_out(given):
    """What the lead says of the main table."""
    return " ".join(what_came_out(ENTITY.fill(StudyResults(given.values())), unit=" %"))


def table(text, title):
    """A table of the Markdown: its heading, then its rows by label, block by block."""
    part = next(part for part in f"\n{text}".split("\n## ") if part.startswith(title))
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line[:1] == "|"]
    return rows[0], rows[2:]


def figures(folder):
    return sorted(path.stem for path in (folder / "figures").iterdir())


def test_the_demo(tmp_path):
    path = write(outcomes("demo", tmp_path), tmp_path)
    assert path == tmp_path / "report.html"
    assert figures(tmp_path) == ["distinct-demo", "recall-demo", "residual-demo"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["figures", "report.html", "tables.md"]
    text = (tmp_path / "tables.md").read_text("utf-8")
    heading, rows = table(text, "Recall@10, entity level (d16/b128)")
    assert heading[1:5] == ["filtered", "over composition", "filtered, strict", "unfiltered"]
    assert rows == [
        ["**recipe `demo`**", "", "", "", "", "", ""],
        ["GHRQ", "**86.0**", "+1.6", "**83.0**", "**74.0**", "**85.0**", "**73.0**"],
        ["naive hyperbolic", "80.0", "-4.4", "77.0", "68.0", "79.0", "67.0"],
        ["Euclidean", "78.0", "-6.4", "75.0", "66.0", "77.0", "65.0"],
        ["**to compare with**", "", "", "", "", "", ""],
        ["random codes", "42.0", "-42.4", "39.0", "30.0", "41.0", "29.0"],
        ["popularity (no model)", "44.5", "-39.9", "44.5", "41.6", "44.5", "41.6"],
        ["graph composition (no model)", "84.4", "–", "84.4", "80.1", "84.4", "80.1"],
    ]
    assert "Table 8" not in text, "the demo has no ablation"


@pytest.mark.slow
def test_the_page_shows_every_table_and_figure(tmp_path):
    html = write(outcomes("cpu", tmp_path, seeds=2, grid=True), tmp_path).read_text("utf-8")
    titles = re.findall(r"^## (.*)", (tmp_path / "tables.md").read_text("utf-8"), re.MULTILINE)
    assert [title for title in re.findall(r"<h3>([^<]*)</h3>", html) if not title.startswith("GHRQ")] == titles
    assert html.count("<svg") == len(figures(tmp_path)) == 6
    assert "residual-cpu-figure_1" in html
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", html)
    for numbers in re.findall(r"\*\*([\d.]+ ± [\d.]+)\*\*", (tmp_path / "tables.md").read_text("utf-8")):
        assert f"<strong>{numbers}</strong>" in html


def test_table_1_has_every_capacity_beside_the_paper(tmp_path):
    text = tables(outcomes("cpu", tmp_path, seeds=3, grid=True))
    heading, rows = table(text, "Table 1 of the paper")
    assert heading == [
        "",
        "d8/b64",
        "the paper",
        "d8/b128",
        "the paper",
        "d16/b64",
        "the paper",
        "d16/b128",
        "the paper",
    ]
    assert rows[1][0::2] == ["GHRQ", "81.9", "78.7", "83.8", "81.9"]
    assert rows[1][1::2] == ["**60.2 ± 0.2**"] * 4
    naive = next(row for row in rows if row[0] == "naive hyperbolic")
    assert naive[2::2] == ["88.2", "62.3", "86.9", "83.4"]
    assert naive[1] == "54.2 ± 0.2"
    euclidean = next(row for row in rows if row[0] == "Euclidean")
    assert euclidean[2::2] == ["75.8", "75.4", "76.7", "75.9"]
    heading, rows = table(text, "Recall@10, entity level, the other sizes")
    assert [row[0] for row in rows if row[0].startswith("**recipe `best`")] == [
        "**recipe `best`, d8/b64**",
        "**recipe `best`, d8/b128**",
        "**recipe `best`, d16/b64**",
    ]


def test_residual_and_telescoping_errors_are_told_apart(tmp_path):
    text = tables(outcomes("cpu", tmp_path))
    heading, rows = table(text, "Table 7 of the paper")
    assert heading[1:4] == ["residual error d²(ẑ,\u00a0z)", "paper, d²(ẑ\u00a0⊕\u00a0r_N,\u00a0z)", "telescoping error"]
    assert rows[1][:4] == ["GHRQ", "**0.25**", "12.9", "1e-30"]
    assert rows[2][:4] == ["naive hyperbolic", "3", "14.4", "0.5"]
    assert [row[0] for row in rows] == [
        *("**recipe `cpu`**", "GHRQ", "naive hyperbolic"),
        *("**recipe `best`**", "GHRQ", "naive hyperbolic"),
    ]
    _, rows = table(text, "Table 8 of the paper")
    assert [row[:4] for row in rows[1:]] == [
        ["GHRQ", "**0.25**", "12.9", "1e-30"],
        ["HRA only", "0.75", "10.3", "1e-30"],
        ["d-HSTE only", "4", "30.4", "0.5"],
    ], "recipe best has no ablation, so no block"
    assert text.count("logged d²(ẑ ⊕ r_N, z)") == 2


def test_table_2_and_the_embedding(tmp_path):
    text = tables(outcomes("demo", tmp_path))
    _, rows = table(text, "Table 2 of the paper, uniqueness")
    assert rows[1] == ["GHRQ", "**0.974**", "0.967", "**193**", "900", "60"]
    heading, rows = table(text, "Table 2 of the paper, similarity")
    assert heading == ["", "path", "random", "groups", "Wu-Palmer", "random", "groups", "GloVe", "random", "groups"]
    assert rows[1] == ["GHRQ", "0.150", "0.070", "900", "0.360", "0.210", "900", "–", "0.060", "800"]
    assert rows[-1] == ["naive hyperbolic, the paper", "0.078", "–", "–", "0.242", "–", "–", "0.097", "–", "–"]
    _, rows = table(text, "The continuous embedding")
    assert rows[1] == ["GHRQ", "**45.6**", "**12.2**", "0.500", "0.0"]


def test_without_glove_only_the_paper_has_it(tmp_path):
    given = {
        name: replace(outcome, results=result("ghrq", 0.8, glove=False))
        for name, outcome in outcomes("demo", tmp_path).items()
        if outcome.axes["kind"] in ("ghrq", "naive")
    }
    _, rows = table(tables(given), "Table 2 of the paper, similarity")
    assert rows[1][6:] == ["900", "–"]
    assert rows[-1][-1] == "0.097"


@pytest.mark.slow
def test_the_words_follow_the_numbers(tmp_path):
    given = outcomes("cpu", tmp_path, seeds=2)
    text = write(given, tmp_path).read_text("utf-8")
    assert "18 runs with 2 seeds" in text
    assert "5,000 synsets, 9,261 held-out pairs in total" in text
    best = re.search(r"What came out with recipe <code>best</code>(.*?)</p>", text)[1].replace("\u00a0", " ")
    assert "GHRQ 86.1 ± 0.1 %, naive hyperbolic 80.1 ± 0.1 % and Euclidean 78.1 ± 0.1 %" in best
    assert "The best, GHRQ, beats random codes (recipe cpu, 42.1 ± 0.1 %), popularity (no model, 44.5 %) and " in best
    criterion = "more than the joint deviation √(s₁² + s₂²) of 2 seeds"
    assert f"6.0 ahead of naive hyperbolic and 8.0 ahead of Euclidean ({criterion})" in best
    cpu = re.search(r"What came out with recipe <code>cpu</code>(.*?)</p>", text)[1].replace("\u00a0", " ")
    assert "but <strong>not</strong> graph composition (no model, 84.4 %)." in cpu

    for name, outcome in given.items():
        kind, recipe, seed = (outcome.axes[axis] for axis in ("kind", "recipe", "seed"))
        if recipe == "best":
            given[name] = replace(outcome, results=result(kind, 0.8 + 0.005 * seed if kind == "ghrq" else 0.804))
    assert "0.2 behind naive hyperbolic and 0.2 behind Euclidean (within the joint deviation √(" in came_out(given)
    for name, outcome in given.items():
        kind = outcome.axes["kind"]
        given[name] = replace(outcome, results=result(kind, 0.43 if kind == "random" else 0.3))
    told = "does not beat random codes (recipe cpu, 43.0 ± 0.0 %), popularity (no model, 44.5 %) or graph"
    assert told in came_out(given)


def test_one_seed_may_be_chance(tmp_path):
    text = write(outcomes("demo", tmp_path), tmp_path).read_text("utf-8")
    assert "4 runs with 1 seed:" in text
    assert "6.0 ahead of naive hyperbolic and 8.0 ahead of Euclidean (one seed: may be chance)" in text
    assert "±" not in (tmp_path / "tables.md").read_text("utf-8").replace("Mean ± standard deviation", "")


@pytest.mark.slow
def test_runs_that_diverged_or_are_missing(tmp_path):
    given = outcomes("cpu", tmp_path, seeds=2)

    def diverge(name, error):
        given[name] = replace(given[name], results={}, error=error)

    diverge("cpu-naive-d16-b128-s1", "the loss is not finite at step 7")
    for seed in (0, 1):
        diverge(f"cpu-dhste-only-d16-b128-s{seed}", "<nan>")
        del given[f"best-euclidean-d16-b128-s{seed}"]
    text = write(given, tmp_path).read_text("utf-8")
    _, rows = table(tables(given), "Recall@10, entity level")
    block = [row[:3] for row in rows[: next(i for i, row in enumerate(rows) if "best" in row[0])]]
    assert ["naive hyperbolic (1 of 2 diverged)", "50.0", "-34.4"] in block
    assert ["d-HSTE only", "diverged", "–"] in block
    assert [row[0] for row in rows].count("Euclidean") == 1
    assert "<strong>3 runs diverged</strong>" in text
    assert "<code>cpu-naive-d16-b128-s1</code>: the loss is not finite at step 7" in text
    assert "&lt;nan&gt;" in text


@pytest.mark.parametrize("runs", [0, 1])
def test_nothing_came_out(tmp_path, runs):
    given = dict(list(outcomes("demo", tmp_path).items())[:runs])
    text = write({name: replace(outcome, results={}, error="nan") for name, outcome in given.items()}, tmp_path)
    assert "no run has come to a result" in text.read_text("utf-8")
    assert figures(tmp_path) == []


def test_curves_times_and_recipes_come_from_the_folders(tmp_path):
    recipes = {run.name: run.recipe for run in WordNet.study.plan("demo")}
    for name, recipe in recipes.items():
        run = Run.create(tmp_path / name, recipe)
        stages = ("seq2seq",) if recipe.quantizer.kind == "random" else ("embedding", "codes", "seq2seq")
        for stage in stages:
            for step in (1, 2, 3):
                line = {"stage": stage, "step": step, "epoch": step / 3, "loss": 4.0 / step, "seconds": 20.0 * step}
                line |= {"contrast": 3.0 / step} if stage != "seq2seq" else {}
                run.log(line | ({"quantizer": float("nan") if step == 2 else 1.0} if stage == "codes" else {}))
    text = write(outcomes("demo", tmp_path), tmp_path).read_text("utf-8")
    assert {f"curve-{name}-demo-d16-b128" for name in ("contrast", "quantizer", "seq2seq")} <= set(figures(tmp_path))
    assert "Training took 10 min in total" in text
    assert "15\u00a0% of the pairs held out" in text
    _, rows = table((tmp_path / "tables.md").read_text("utf-8"), "The recipes")
    recipe = recipes["demo-ghrq-d16-b128-s0"]
    assert ["minutes a run", "2.5 ± 1.0"] in rows
    assert f"{recipe.optimizer.epochs} with codes" in dict(rows)["epochs"]
    seq2seq = (tmp_path / "figures" / "curve-seq2seq-demo-d16-b128.svg").read_text("utf-8")
    assert "random codes" in seq2seq
    assert "random codes" not in (tmp_path / "figures" / "curve-contrast-demo-d16-b128.svg").read_text("utf-8")


def test_a_run_of_an_older_recipe_still_gets_its_report(tmp_path):
    planned = WordNet.study.plan("demo")[0]
    Run.create(tmp_path / planned.name, planned.recipe)
    path = tmp_path / planned.name / "recipe.toml"
    path.write_text(path.read_text("utf-8").replace("[data]", "[data]\nforgotten = 1"), "utf-8")
    assert "The recipes" not in write(outcomes("demo", tmp_path), tmp_path).read_text("utf-8")


def test_examples_are_readable(tmp_path):
    text = write(outcomes("demo", tmp_path), tmp_path).read_text("utf-8")
    card = text[text.index('<article class="card">') : text.index("</article>")]
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", card)).replace(" ,", ",")
    assert "hot dog (2) a sausage &lt;in&gt; a roll 7 8 9 10" in words
    assert "thing 10; thing 11; and 27 more" in words.replace(" ;", ";"), "a list that was cut says how many follow"
    assert "7 8 · · roll (3) 7 8 9 · no other" in words
    assert readable("dog.n.01") == "dog"
    assert readable("no synset") == "no synset"


def test_short_lists_are_confessed(tmp_path):
    given = outcomes("demo", tmp_path)
    assert "shorter than" not in tables(given)
    given["demo-ghrq-d16-b128-s0"].results["recall"]["constrained"]["short"] = 0.124
    assert "up to 12\u00a0% of the lists shorter than 10" in tables(given)


def test_a_report_is_written_whole_or_an_error_says_why(tmp_path):
    (tmp_path / "figures").write_text("in the way")
    with pytest.raises(UserError, match="cannot write the report into"):
        write(outcomes("demo", tmp_path), tmp_path)
    assert not (tmp_path / "report.html").exists()
