"""The report of the WordNet task: tables 1, 2, 7 and 8 of the paper, the baselines beside them, and figures."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ghrq.report import Baseline, Column, Table
from ghrq.report.curves import Curve, by_depth, training_figures
from ghrq.report.examples import Example, Examples
from ghrq.report.figures import ChartBar, ChartLine, Figure, Gallery, bars, lines
from ghrq.report.kinds import KINDS, label_of
from ghrq.report.page import Page, PageSection
from ghrq.report.results import Group, Measured, StudyResults, value_at
from ghrq.report.study import recipe_grid
from ghrq.report.words import count, diverged, what_came_out, what_was_run
from ghrq.tasks.wordnet.recipe import WordNetRecipe
from ghrq.tasks.wordnet.study import MAIN, SIZES

QUANTIZERS = tuple(kind for kind in KINDS if kind != "random")
SMALL_FIRST = tuple(reversed(SIZES))

# Table 1 of the paper: Recall@10 in %, counted by tuples, closure split.
PAPER_RECALL = {
    "euclidean": {"d8/b64": 75.8, "d8/b128": 75.4, "d16/b64": 76.7, "d16/b128": 75.9},
    "naive": {"d8/b64": 88.2, "d8/b128": 62.3, "d16/b64": 86.9, "d16/b128": 83.4},
    "ghrq": {"d8/b64": 81.9, "d8/b128": 78.7, "d16/b64": 83.8, "d16/b128": 81.9},
}
# Table 2, similarity, and tables 7 and 8, WordNet.
PAPER_SIMILARITY = {
    "ghrq": {"path": 0.088, "wu_palmer": 0.262, "glove": 0.162},
    "naive": {"path": 0.078, "wu_palmer": 0.242, "glove": 0.097},
}
PAPER_ERROR = {"ghrq": 12.9, "naive": 14.4, "hra-only": 10.3, "dhste-only": 30.4}

OVER_SEEDS = "Mean ± standard deviation over seeds where there are several; bold: the best of its block."


def _without_codes(name: str) -> Callable[[Any], Mapping[str, Any]]:
    """The recall of a baseline that names synsets, not tuples: it is the same for every beam."""

    def results(of_run: Any) -> Mapping[str, Any]:
        found = of_run["baselines"][name]
        recall = {"entity": found["unfiltered"]}
        recall |= dict.fromkeys(("entity_filtered", "entity_filtered_strict"), found["filtered"])
        bar = {"baselines": of_run["baselines"]} if name != "composition" else {}
        return {"recall": {"constrained": recall, "free": recall}, **bar}

    return results


def _over_composition(results: Any) -> float:
    recall: float = results["recall"]["constrained"]["entity_filtered"]
    return recall - results["baselines"]["composition"]["filtered"]


def _entity_note(study: StudyResults) -> str:
    short = max(
        (group.number("recall.constrained.short").mean for group in study.groups if group.finished), default=0.0
    )
    left = f"Filtering left up to {100 * short:.0f}\u00a0% of the lists shorter than 10. " if short >= 0.01 else ""
    return (
        "Share of the held-out pairs whose ancestor is among the first 10, in %. A hit on a tuple that m synsets share "
        "counts 1/m, the chance to name the right one. *Filtered*: ancestors known from training are removed from the "
        "list first, and from the m (*strict*: they still count among the m). The beam is restricted to tuples that "
        "exist, or free. Baselines name synsets, which share nothing; they answer the same questions. Compare filtered "
        f"with filtered. {left}{OVER_SEEDS}"
    )


def _entity(title: str, blocks: Sequence[str], sizes: Sequence[str]) -> Table:
    """The main table: entity level, beside baselines that need no good codes or no model."""
    return Table(
        title,
        [
            Column("filtered", "recall.constrained.entity_filtered", best="highest", factor=100.0),
            Column("over composition", _over_composition, "+.1f", factor=100.0, aside=True),
            Column("filtered, strict", "recall.constrained.entity_filtered_strict", best="highest", factor=100.0),
            Column("unfiltered", "recall.constrained.entity", best="highest", factor=100.0),
            Column("free beam, filtered", "recall.free.entity_filtered", best="highest", factor=100.0),
            Column("free beam, unfiltered", "recall.free.entity", best="highest", factor=100.0),
        ],
        blocks=blocks,
        only={"kind": QUANTIZERS, "size": sizes},
        baselines=[
            "random",
            Baseline("popularity", _without_codes("popularity"), "no model"),
            Baseline("graph composition", _without_codes("composition"), "no model"),
        ],
        note=_entity_note,
    )


def _errors(title: str, kinds: Sequence[str], needs: Sequence[str] = ()) -> Table:
    residual = "residual error d²(ẑ,\u00a0z)"
    paper = "paper, d²(ẑ\u00a0⊕\u00a0r_N,\u00a0z)"
    return Table(
        title,
        [
            Column(residual, "diagnosis.residual_error.-1", ".3g", "lowest", paper=paper),
            Column("telescoping error", "diagnosis.telescoping_error", ".2g"),
            Column("median radius of\u00a0z", "diagnosis.radius.median", ".3f"),
            Column("beyond radius\u00a00.99,\u00a0%", "diagnosis.boundary_fraction", factor=100.0),
        ],
        blocks=["recipe"],
        only={"kind": kinds, "size": [MAIN]},
        needs=needs,
        paper={kind: {residual: error} for kind, error in PAPER_ERROR.items()},
        note="Mean squared geodesic distance between the point z of a synset and the point ẑ of all its codes; and, "
        "apart from it, the telescoping error: what is missing after the last residual is added back by the rule it "
        "was taken with, 0 up to rounding if the rule is its own inverse. The paper measures something else: its runs "
        "logged d²(ẑ ⊕ r_N, z), with the last residual r_N added back, so its numbers are shown but do not compare. "
        f"Errors grow with the radius of the points after training. {OVER_SEEDS}",
    )


ENTITY = _entity(f"Recall@10, entity level ({MAIN})", ["recipe"], [MAIN])
ENTITY_SIZES = _entity(
    "Recall@10, entity level, the other sizes", ["recipe", "size"], [size for size in SMALL_FIRST if size != MAIN]
)

RECALL = Table(
    "Table 1 of the paper: Recall@10 in %, counted by tuples",
    [Column("recall", "recall.free.tuple", best="highest", factor=100.0)],
    blocks=["recipe"],
    across="size",
    only={"size": SMALL_FIRST},
    paper=PAPER_RECALL,
    note="The tuple of a held-out ancestor is among the first 10 of a free beam search, known ancestors not removed, "
    "as the paper counts. Collisions inflate it, as one tuple may belong to many synsets. For comparison with the "
    f"paper only, whose numbers are single runs with its own settings. {OVER_SEEDS}",
)

DISTINCT = Table(
    f"Table 2 of the paper, uniqueness: which synsets the codes tell apart ({MAIN})",
    [
        Column("distinct tuples a synset", "distinct", ".3f", "highest"),
        Column("of the 200 most frequent ancestors", "distinct_frequent", ".0f", "highest"),
        Column("groups that share a tuple", "similarity.groups", ",.0f"),
        Column("largest group", "similarity.largest", ",.0f"),
    ],
    blocks=["recipe"],
    only={"kind": QUANTIZERS, "size": [MAIN]},
    paper={"ghrq": {"distinct tuples a synset": 0.967}, "naive": {"distinct tuples a synset": 0.888}},
    note="Distinct tuples, as a share of all synsets and as a number among the 200 synsets with the most descendants: "
    f"the answers to most questions. Random codes are distinct by construction. {OVER_SEEDS}",
)

SIMILARITY = Table(
    f"Table 2 of the paper, similarity: which synsets share codes ({MAIN})",
    [
        column
        for title, name in (("path", "path"), ("Wu-Palmer", "wu_palmer"), ("GloVe", "glove"))
        for column in (
            Column(title, f"similarity.{name}.shared.pooled", ".3f"),
            Column("random", f"similarity.{name}.random.pooled", ".3f", aside=True),
            Column("groups", f"similarity.{name}.shared.groups", ",.0f", aside=True),
        )
    ],
    blocks=["recipe"],
    only={"kind": QUANTIZERS, "size": [MAIN]},
    baselines=[
        Baseline(
            f"{label_of(kind)}, the paper",
            lambda _, figures=figures: {  # type: ignore[misc]
                "similarity": {name: {"shared": {"pooled": value}} for name, value in figures.items()}
            },
        )
        for kind, figures in PAPER_SIMILARITY.items()
    ],
    note="Similarity of synsets that share a tuple, mean over all pairs within a group (at most 50 members of each); "
    "beside it that of random groups of the same sizes, and the number of groups. Only what is above random counts, "
    "and means over different groups do not compare from row to row, so none is bold. Words that GloVe does not know "
    "are left out.",
)

ERRORS = _errors(f"Table 7 of the paper, WordNet: quantization error on the ball ({MAIN})", ["ghrq", "naive"])
ABLATION = _errors(
    f"Table 8 of the paper, WordNet: one half of the method at a time ({MAIN})",
    ["ghrq", "hra-only", "dhste-only"],
    needs=["hra-only", "dhste-only"],
)

EMBEDDING = Table(
    f"The continuous embedding ({MAIN})",
    [
        Column("mean average precision, %", "reconstruction.mean_average_precision", best="highest", factor=100.0),
        Column("mean rank", "reconstruction.mean_rank", ",.1f", "lowest"),
        Column("median radius", "diagnosis.radius.median", ".3f"),
        Column("beyond radius\u00a00.99,\u00a0%", "diagnosis.boundary_fraction", factor=100.0),
    ],
    blocks=["recipe"],
    only={"kind": QUANTIZERS, "size": [MAIN]},
    note="All other synsets ranked by their distance from one: where are its ancestors? As for Poincaré embeddings, on "
    "all ancestors, known and held out, of a sample of synsets. Rank 1 is the best. The radius of the Euclidean points "
    f"is a norm. {OVER_SEEDS}",
)

TABLES = (ENTITY, ENTITY_SIZES, RECALL, DISTINCT, SIMILARITY, ERRORS, ABLATION, EMBEDDING)

CURVES = (
    Curve(
        "contrast",
        "Contrastive loss",
        "Of the embedding; epochs of contrast alone, if there are any, come first.",
        ("embedding", "codes"),
        "contrast",
    ),
    Curve("quantizer", "Loss of the quantizer", "Codebook and commitment terms.", ("codes",), "quantizer", log=True),
    Curve(
        "seq2seq",
        "Loss of the seq2seq model",
        "Of predicting the tuples of ancestors; random codes can only be memorized.",
        ("seq2seq",),
    ),
)

HOW_TO_READ = (
    "**How to read it.** A model sees the codes of a synset and predicts tuples of codes of its ancestors. If a "
    "matched tuple were enough, codes that map thousands of synsets to one tuple would win, as few tuples are easy to "
    "guess. So the main score is *entity level*: a matched tuple that m synsets share counts 1/m. It means something "
    "only beside baselines that need no good codes: **random codes**, the same model on meaningless tuples, one for "
    "each synset; **popularity**, the most frequent ancestors for every synset; and **graph composition**, the "
    "ancestors of ancestors in the training pairs, without any model."
)
EXAMPLES = (
    "A synset, its codes from coarse to fine, and the synsets that share the first one, two and three of them (the "
    "first dozen in the order of WordNet). Codes that follow the hierarchy put related synsets together.",
)


def page(title: str, study: StudyResults) -> Page:
    """The page of a study."""
    recipes = [str(label) for label in study.labels("recipe")]
    main = ENTITY.fill(study)
    asked = Measured.of(value_at(study.first, f"recall.{key}") for key in ("sources", "pairs", "beam")).values
    what = "Held-out ancestors among the first 10 guesses, entity level, known ancestors filtered"
    lead = [what_was_run(study, "wordnet"), *what_came_out(main, what, "\u00a0%"), HOW_TO_READ]
    if len(asked) == 3:
        sources, pairs, beam = asked
        lead[0] += (
            " A size is the dimension of the points and the number of codes of a stage. Each model was asked for "
            f"ancestors of {sources:,.0f} synsets, {pairs:,.0f} held-out pairs in total, by beams of {beam:.0f}."
        )

    def each(figure: Callable[[StudyResults, str], Figure | None]) -> Gallery:
        return Gallery([found for recipe in recipes if (found := figure(study, recipe)) is not None])

    curves = [
        figure for recipe in recipes for figure in training_figures(_with_random(study, recipe), CURVES, _at(recipe))
    ]
    return Page(
        title,
        "Residual quantization of the noun hierarchy of WordNet: kinds of quantizer side by side",
        lead,
        [
            PageSection("The main score", [each(recall_figure), main, ENTITY_SIZES.fill(study)]),
            PageSection("As the paper counts", [RECALL.fill(study)]),
            PageSection("Codes and meaning", [DISTINCT.fill(study), each(distinct_figure), SIMILARITY.fill(study)]),
            PageSection("Examples", cards := examples(study), EXAMPLES if cards else ()),
            PageSection("Quantization error", [ERRORS.fill(study), ABLATION.fill(study), each(residual_figure)]),
            PageSection("The embedding", [EMBEDDING.fill(study)]),
            PageSection("Training", [recipe_grid(study, _described), Gallery(curves)], diverged(study)),
        ],
    )


def _at(recipe: str) -> str:
    return f"{recipe}, {MAIN}"


def _with_random(study: StudyResults, recipe: str) -> list[Group]:
    """The groups of a recipe at the main size, with random codes: of another recipe if this one has none."""
    random = study.select(kind="random", size=MAIN)
    own = [group for group in random if group.axes["recipe"] == recipe]
    return [*study.select(recipe=recipe, size=MAIN, kind=QUANTIZERS), *(own or random)[:1]]


def recall_figure(study: StudyResults, recipe: str) -> Figure | None:
    """Bars at entity level, the tuple level marked, baselines as lines."""
    groups = _with_random(study, recipe)
    given = [
        ChartBar(group.kind, value, group.number("recall.constrained.tuple_filtered", 100.0))
        for group in groups
        if (value := group.number("recall.constrained.entity_filtered", 100.0))
    ]
    limits = {
        label: value
        for name, label in (("composition", "graph composition"), ("popularity", "popularity"))
        if (value := Measured.of([value_at(study.first, f"baselines.{name}.filtered")], 100.0))
    }
    borrowed = [f" Random codes are those of `{r}`." for group in groups if (r := group.axes["recipe"]) != recipe]
    caption = (
        "The bar is the main score, the diamond the score of the same lists if a tuple is enough: the gap between them "
        "is due to collisions. Lines are baselines without any model. Known ancestors are filtered everywhere."
    )
    name, title = f"recall-{recipe}", f"Ancestors found ({_at(recipe)})"
    label, mark = "Recall@10, filtered, %", "counted by tuples"
    return bars(name, title, caption + "".join(borrowed), label, given, mark, limits) if given else None


def distinct_figure(study: StudyResults, recipe: str) -> Figure | None:
    """How many tuples there are, depth by depth, of the possible ones."""
    groups = [group for group in study.select(recipe=recipe, size=MAIN, kind=QUANTIZERS) if group.first]
    if not groups:
        return None
    first, codes = groups[0].first, SIZES[MAIN]["quantizer.codebook_size"]
    synsets = round(first["distinct_by_depth"][-1] / first["distinct"])
    most = [min(codes ** (i + 1), synsets) for i in range(len(first["distinct_by_depth"]))]
    given = [
        ChartLine(
            group.kind,
            range(1, 1 + len(most)),
            [group.number(f"distinct_by_depth.{i}", 100 / number) for i, number in enumerate(most)],
        )
        for group in groups
    ]
    caption = (
        f"How many different tuples the {synsets:,} synsets have when only the first codes are read, in % of the "
        f"possible ones: {' / '.join(f'{number:,}' for number in most)}."
    )
    title, labels = f"Distinct tuples by depth ({_at(recipe)})", ("codes read", "of the possible ones, %")
    return lines(f"distinct-{recipe}", title, caption, labels, given, depths=True)


def residual_figure(study: StudyResults, recipe: str) -> Figure | None:
    """The error that is left after each code."""
    groups = study.select(recipe=recipe, size=MAIN, kind=QUANTIZERS)
    path = "diagnosis.residual_error"
    given = by_depth([group for group in groups if group.kind != "euclidean"], path)
    given += by_depth([group for group in groups if group.kind == "euclidean"], path, note=" (flat)")
    caption = (
        "Mean squared distance d²(ẑ, z) from the point of the synset when only the first codes are read. Geodesic on "
        "the ball; the Euclidean line is in Euclidean units, in which the same small step counts a quarter."
    )
    title, labels = f"Residual error by depth ({_at(recipe)})", ("codes read", "d²(ẑ, z)")
    return lines(f"residual-{recipe}", title, caption, labels, given, log=True, depths=True) if given else None


def examples(study: StudyResults) -> list[Examples]:
    """The examples of GHRQ at the main size, recipe by recipe."""
    found = []
    for group in study.select(kind="ghrq", size=MAIN):
        cards = [
            Example(
                readable(example["name"]),
                example["gloss"],
                example["codes"],
                [
                    _others(example["name"], *shared)
                    for shared in zip(example["sharing"], example["counts"], strict=True)
                ],
            )
            for example in group.first.get("examples", ())
        ]
        if cards:
            found.append(Examples(f"GHRQ, recipe `{group.axes['recipe']}`, seed {group.first_seed}", cards))
    return found


def readable(synset: str) -> str:
    """``hot_dog.n.02`` as ``hot dog (2)``; the first sense of a word goes without its number."""
    match = re.fullmatch(r"(.+)\.\w\.(\d+)", synset)
    if match is None:
        return synset
    sense = int(match[2])
    return match[1].replace("_", " ") + (f" ({sense})" if sense > 1 else "")


def _others(name: str, names: Sequence[str], total: int) -> list[str]:
    """Those named, and how many more there are."""
    listed = [readable(other) for other in names if other != name]
    more = total - 1 - len(listed)
    return [*listed, f"and {more:,} more"] if more else listed


def _described(recipe: WordNetRecipe) -> dict[str, str]:
    data, optimizer, contrast, q, s = recipe.data, recipe.optimizer, recipe.contrast, recipe.quantizer, recipe.seq2seq
    instances = "with" if data.instances else "without"
    scaled = q.scale_control or q.radius is not None
    return {
        "split": f"{data.split}, {100 * data.test_fraction:.0f}\u00a0% of the pairs held out, {instances} instances",
        "initial scale": f"{recipe.encoder.initial_scale:g}",
        "optimizer": f"{optimizer.name}, rate {optimizer.rate:g}, batch {optimizer.batch:,}",
        "epochs": f"{q.warm_epochs} of contrast alone, {optimizer.epochs} with codes",
        "contrast": f"on {contrast.on}, {contrast.negatives} negatives, temperature {contrast.temperature:g}",
        "codebooks": f"{count(q.num_stages, 'stage')}, {q.start} start{', scale control' if scaled else ''}",
        "seq2seq": f"{count(s.layers, 'layer')} of width {s.width}, {count(s.epochs, 'epoch')}",
    }
