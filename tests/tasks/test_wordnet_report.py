"""The report of the WordNet task, from results written by hand in the form that the evaluation gives them."""

import re

import pytest
from ghrq.tasks.wordnet.cells import cells

from ghrq.metrics import baselines, hierarchy, ranking
from ghrq.quantizer.diagnosis import Diagnosis
from ghrq.system.errors import UserError
from ghrq.system.files import plain
from ghrq.tasks.wordnet import report
from ghrq.tasks.wordnet.report.outcome import Capacity, Outcome
from ghrq.tasks.wordnet.report.pictures import readable
from ghrq.training.run import Run

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


def results(budget, seeds=1, grid=False):
    """A result for every run; the second seed is 0.2 % better than the first, the third 0.4 %."""
    found = {}
    for name, recipe in cells(budget, seeds, grid).items():
        kind, lower = recipe.quantizer.kind, 0.3 if name.startswith("cpu") and recipe.quantizer.kind != "random" else 0
        found[name] = result(kind, SCORES[kind] - lower + 0.002 * recipe.seed)
    return found


def table(folder, title):
    """A table of tables.md: its heading, then its rows by label, block by block."""
    text = (folder / "tables.md").read_text("utf-8")
    part = next(part for part in text.split("\n## ") if part.startswith(title))
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line[:1] == "|"]
    return rows[0], rows[2:]


def figures(folder):
    return sorted(path.stem for path in (folder / "figures").iterdir())


def test_the_demo(tmp_path):
    path = report.write(results("demo"), tmp_path)
    assert path == tmp_path / "report.html"
    assert figures(tmp_path) == ["distinct-demo", "recall-demo", "residual-demo"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["figures", "report.html", "tables.md"]
    heading, rows = table(tmp_path, "Recall@10, entity level (d16/b128)")
    assert heading[1:5] == ["filtered", "over composition", "filtered, strict", "unfiltered"]
    assert rows == [
        ["**recipe `demo`**", "", "", "", "", "", ""],
        ["GHRQ", "**86.0**", "+1.6", "**83.0**", "**74.0**", "**85.0**", "**73.0**"],
        ["naive hyperbolic", "80.0", "-4.4", "77.0", "68.0", "79.0", "67.0"],
        ["Euclidean", "78.0", "-6.4", "75.0", "66.0", "77.0", "65.0"],
        ["**what the codes must beat**", "", "", "", "", "", ""],
        ["random codes", "42.0", "-42.4", "39.0", "30.0", "41.0", "29.0"],
        ["popularity (no model)", "44.5", "-39.9", "44.5", "41.6", "44.5", "41.6"],
        ["graph composition (no model)", "84.4", "–", "84.4", "80.1", "84.4", "80.1"],
    ]
    assert "Table 8" not in (tmp_path / "tables.md").read_text("utf-8"), "the demo has no ablation"


def test_the_page_shows_every_table_and_figure(tmp_path):
    html = report.write(results("cpu", seeds=2, grid=True), tmp_path).read_text("utf-8")
    titles = re.findall(r"^## (.*)", (tmp_path / "tables.md").read_text("utf-8"), re.MULTILINE)
    assert [title for title in re.findall(r"<h3>([^<]*)</h3>", html) if not title.startswith("GHRQ")] == titles
    assert html.count("<svg") == len(figures(tmp_path)) == 6
    assert "residual-cpu-figure_1" in html
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", html)
    for numbers in re.findall(r"\*\*([\d.]+ ± [\d.]+)\*\*", (tmp_path / "tables.md").read_text("utf-8")):
        assert f"<strong>{numbers}</strong>" in html


def test_table_1_has_every_capacity_beside_the_paper(tmp_path):
    report.write(results("cpu", seeds=3, grid=True), tmp_path)
    heading, rows = table(tmp_path, "Table 1 of the paper")
    assert heading == ["", "d8/b64", "paper", "d8/b128", "paper", "d16/b64", "paper", "d16/b128", "paper"]
    assert rows[1][0::2] == ["GHRQ", "81.9", "78.7", "83.8", "81.9"]
    assert rows[1][1::2] == ["**60.2 ± 0.2**"] * 4
    naive = next(row for row in rows if row[0] == "naive hyperbolic")
    assert naive[2::2] == ["88.2", "62.3", "86.9", "83.4"]
    assert naive[1] == "54.2 ± 0.2"
    euclidean = next(row for row in rows if row[0] == "Euclidean")
    assert euclidean[2::2] == ["75.8", "75.4", "76.7", "75.9"]
    heading, rows = table(tmp_path, "Recall@10, entity level, the other capacities")
    assert [row[0] for row in rows if row[0].startswith("**recipe `best`")] == [
        "**recipe `best`, d8/b64**",
        "**recipe `best`, d8/b128**",
        "**recipe `best`, d16/b64**",
    ]


def test_residual_and_telescoping_errors_are_told_apart(tmp_path):
    report.write(results("cpu"), tmp_path)
    heading, rows = table(tmp_path, "Table 7 of the paper")
    assert heading[1:4] == ["residual error d²(ẑ,\u00a0z)", "telescoping error", "paper, d²(ẑ\u00a0⊕\u00a0r_N,\u00a0z)"]
    assert rows[1][:4] == ["GHRQ", "**0.25**", "1e-30", "12.9"]
    assert rows[2][:4] == ["naive hyperbolic", "3", "0.5", "14.4"]
    assert [row[0] for row in rows] == [
        *("**recipe `cpu`**", "GHRQ", "naive hyperbolic"),
        *("**recipe `best`**", "GHRQ", "naive hyperbolic"),
    ]
    _, rows = table(tmp_path, "Table 8 of the paper")
    assert [row[:4] for row in rows[1:]] == [
        ["GHRQ", "**0.25**", "1e-30", "12.9"],
        ["HRA only", "0.75", "1e-30", "10.3"],
        ["d-HSTE only", "4", "0.5", "30.4"],
    ], "recipe best has no ablation, so no block"
    text = (tmp_path / "tables.md").read_text("utf-8")
    assert text.count("logged d²(ẑ ⊕ r_N, z)") == 2


def test_table_2_and_the_embedding(tmp_path):
    report.write(results("demo"), tmp_path)
    _, rows = table(tmp_path, "Table 2 of the paper, uniqueness")
    assert rows[1] == ["GHRQ", "**0.974**", "0.967", "**193**", "900", "60"]
    heading, rows = table(tmp_path, "Table 2 of the paper, similarity")
    assert heading == ["", "path", "random", "groups", "Wu-Palmer", "random", "groups", "GloVe", "random", "groups"]
    assert rows[1] == ["GHRQ", "0.150", "0.070", "900", "0.360", "0.210", "900", "–", "0.060", "800"]
    assert rows[-1] == ["naive hyperbolic", "0.078", "–", "–", "0.242", "–", "–", "0.097", "–", "–"]
    _, rows = table(tmp_path, "The continuous embedding")
    assert rows[1] == ["GHRQ", "**45.6**", "**12.2**", "0.500", "0.0"]


def test_without_glove_only_the_paper_has_it(tmp_path):
    given = {name: result("ghrq", 0.8, glove=False) for name in ("demo-ghrq-d16-b128-s0", "demo-naive-d16-b128-s0")}
    report.write(given, tmp_path)
    _, rows = table(tmp_path, "Table 2 of the paper, similarity")
    assert rows[1][6:] == ["900", "–"]
    assert rows[-1][-1] == "0.097"


def test_the_words_follow_the_numbers(tmp_path):
    given = results("cpu", seeds=2)
    text = report.write(given, tmp_path).read_text("utf-8")
    assert "18 runs with 2 seeds" in text
    assert "5,000 synsets, 9,261 held-out pairs in all" in text
    best = re.search(r"What came out with <code>best</code>(.*?)</p>", text)[1].replace("\u00a0", " ")
    assert "GHRQ 86.1 ± 0.1 %, naive hyperbolic 80.1 ± 0.1 % and Euclidean 78.1 ± 0.1 %" in best
    assert "The best, GHRQ, beats graph composition (84.4 %), popularity (44.5 %) and random codes" in best
    assert "6.0 points ahead of naive hyperbolic (more than seeds scatter)" in best
    assert "GHRQ gets 90.1 ± 0.1 % (the paper: 81.9 %), with 0.974 ± 0.000 distinct tuples a synset" in best
    cpu = re.search(r"What came out with <code>cpu</code>(.*?)</p>", text)[1].replace("\u00a0", " ")
    assert "but <strong>not</strong> graph composition (84.4 %)." in cpu

    for name in given:
        if name.startswith("best-ghrq"):
            given[name] = result("ghrq", 0.8 if name.endswith("s0") else 0.805)
        elif name.startswith("best"):
            given[name] = result("naive", 0.804)
    text = report.write(given, tmp_path).read_text("utf-8")
    assert "0.2 points behind naive hyperbolic (within the scatter of seeds)" in text
    for name in given:
        given[name] = result("random" if "random" in name else "naive", 0.43 if "random" in name else 0.3)
    text = report.write(given, tmp_path).read_text("utf-8").replace("\u00a0", " ")
    assert "does not beat graph composition (84.4 %), popularity (44.5 %) or random codes (43.0 ± 0.0 %)" in text


def test_one_seed_may_be_chance(tmp_path):
    text = report.write(results("demo"), tmp_path).read_text("utf-8")
    assert "4 runs with 1 seed:" in text
    assert "8.0 points ahead of Euclidean (one seed: perhaps chance)" in text
    assert "±" not in (tmp_path / "tables.md").read_text("utf-8").replace("Mean ± standard deviation", "")


def test_cells_that_diverged_or_are_missing(tmp_path):
    given = results("cpu", seeds=2)
    given["cpu-naive-d16-b128-s1"] = {"error": "the loss is not finite at step 7"}
    for seed in (0, 1):
        given[f"cpu-dhste-only-d16-b128-s{seed}"] = {"error": "<nan>"}
        del given[f"best-euclidean-d16-b128-s{seed}"]
    text = report.write(given, tmp_path).read_text("utf-8")
    _, rows = table(tmp_path, "Recall@10, entity level")
    block = [row[:3] for row in rows[: next(i for i, row in enumerate(rows) if "best" in row[0])]]
    assert ["naive hyperbolic (1 of 2 diverged)", "50.0", "-34.4"] in block
    assert ["d-HSTE only", "diverged", "–"] in block
    assert [row[0] for row in rows].count("Euclidean") == 1
    assert "<strong>3 runs diverged</strong>" in text
    assert "<code>cpu-naive-d16-b128-s1</code>: the loss is not finite at step 7" in text
    assert "&lt;nan&gt;" in text


@pytest.mark.parametrize("given", [{}, {"demo-ghrq-d16-b128-s0": {"error": "nan"}}])
def test_nothing_came_out(tmp_path, given):
    text = report.write(given, tmp_path).read_text("utf-8")
    assert "no run has come to a result" in text
    assert figures(tmp_path) == []


def test_curves_times_and_recipes_come_from_the_folders(tmp_path):
    recipes = cells("demo", 1, False)
    for name, recipe in recipes.items():
        run = Run.create(tmp_path / name, recipe)
        stages = ("seq2seq",) if recipe.quantizer.kind == "random" else ("embedding", "codes", "seq2seq")
        for stage in stages:
            for step in (1, 2, 3):
                line = {"stage": stage, "step": step, "epoch": step / 3, "loss": 4.0 / step, "seconds": 20.0 * step}
                line |= {"contrast": 3.0 / step} if stage != "seq2seq" else {}
                run.log(line | ({"quantizer": float("nan") if step == 2 else 1.0} if stage == "codes" else {}))
    text = report.write(results("demo"), tmp_path).read_text("utf-8")
    assert {f"curves-demo-{name}" for name in ("contrast", "quantizer", "seq2seq")} <= set(figures(tmp_path))
    assert "Training took 10 min altogether" in text
    assert "holds out 15\u00a0% of the pairs" in text
    _, rows = table(tmp_path, "The recipes")
    recipe = recipes["demo-ghrq-d16-b128-s0"]
    assert ["minutes a run", "2.5 ± 1.0"] in rows
    assert f"{recipe.optimizer.epochs} with codes" in dict(rows)["epochs"]
    seq2seq = (tmp_path / "figures" / "curves-demo-seq2seq.svg").read_text("utf-8")
    assert "random codes" in seq2seq
    assert "random codes" not in (tmp_path / "figures" / "curves-demo-contrast.svg").read_text("utf-8")


def test_a_run_of_an_older_recipe_still_gets_its_report(tmp_path):
    name, recipe = next(iter(cells("demo", 1, False).items()))
    Run.create(tmp_path / name, recipe)
    path = tmp_path / name / "recipe.toml"
    path.write_text(path.read_text("utf-8").replace("[data]", "[data]\nforgotten = 1"), "utf-8")
    assert "The recipes" not in report.write(results("demo"), tmp_path).read_text("utf-8")


def test_examples_are_readable(tmp_path):
    text = report.write(results("demo"), tmp_path).read_text("utf-8")
    card = text[text.index('<article class="card">') : text.index("</article>")]
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", card)).replace(" ,", ",")
    assert "hot dog (2) a sausage &lt;in&gt; a roll 7 8 9 10" in words
    assert "thing 10, thing 11, and 27 more" in words, "a list that was cut says how many follow"
    assert "7 8 · · roll (3) 7 8 9 · nobody else" in words
    assert readable("dog.n.01") == "dog"
    assert readable("no synset") == "no synset"


def test_names_tell_what_was_run():
    outcome = Outcome(
        {name: result("ghrq", 0.5) for name in ("my-best-hra-only-d8-b64-s12", "my-best-naive-d8-b64-s0")}
    )
    assert outcome.settings == ["my-best"]
    assert [group.kind for group in outcome.groups] == ["hra-only", "naive"]
    assert outcome.main == Capacity(8, 64)
    assert outcome.seeds == [0, 12]
    with pytest.raises(ValueError, match="RECIPE-KIND-dDIM-bSIZE-sSEED, got 'best'"):
        Outcome({"best": {}})


def test_short_lists_are_confessed(tmp_path):
    given = results("demo")
    assert "shorter than" not in report.write(given, tmp_path).read_text("utf-8")
    given["demo-ghrq-d16-b128-s0"]["recall"]["constrained"]["short"] = 0.124
    assert "up to 12\u00a0% of the lists shorter than 10" in report.write(given, tmp_path).read_text("utf-8")


def test_a_report_is_written_whole_or_an_error_says_why(tmp_path):
    (tmp_path / "figures").write_text("in the way")
    with pytest.raises(UserError, match="cannot write the report into"):
        report.write(results("demo"), tmp_path)
    assert not (tmp_path / "report.html").exists()
