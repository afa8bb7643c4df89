"""The report of the recommendation task: table 3 of the paper, its part of tables 7 and 8, baselines, examples."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ghrq.metrics.next_item import paired_bootstrap, recall_ndcg
from ghrq.report import Baseline, Column, Table
from ghrq.report.curves import Curve, training_figures
from ghrq.report.examples import Examples, Lists
from ghrq.report.figures import ChartLine, Figure, Gallery, lines
from ghrq.report.grid import Block, Entry, Grid, Row
from ghrq.report.kinds import KINDS, label_of
from ghrq.report.page import Page, PageSection
from ghrq.report.results import Group, StudyResults, value_at
from ghrq.report.study import recipe_grid
from ghrq.report.words import count, diverged, what_came_out, what_was_run
from ghrq.tasks.recommendation.evaluation import KS, RANKS
from ghrq.tasks.recommendation.recipe import RecommendationRecipe
from ghrq.tasks.recommendation.study import LETTER, RANDOM, SASREC

# Table 3 of the paper, Amazon Beauty; items of the history are not removed there.
PAPER = {
    "euclidean": {"distinct": 0.960, "R@5": 0.0352, "N@5": 0.0242, "R@10": 0.0530, "N@10": 0.0299},
    "naive": {"distinct": 0.870, "R@5": 0.0388, "N@5": 0.0259, "R@10": 0.0606, "N@10": 0.0329},
    "ghrq": {"distinct": 0.971, "R@5": 0.0393, "N@5": 0.0264, "R@10": 0.0604, "N@10": 0.0332},
}

# SASRec has no codes.
_WITH_CODES = {"kind": ("ghrq", "hra-only", "dhste-only", "naive", "euclidean", "calibrated", RANDOM, LETTER)}

_ALL = "Items of the history stay in the list, as in the paper."
_UNSEEN = "Items of the history are left out of the list."
_NEVER_AGAIN = " No user of Amazon Beauty buys one again."


def _on_amazon(study: StudyResults) -> bool:
    """Whether the runs are on Amazon's reviews: figures of the paper mean nothing beside those of another shop."""
    recipes = (group.recipe() for group in study.groups)
    return not any(isinstance(recipe, RecommendationRecipe) and recipe.data.own for recipe in recipes)


def _columns(way: str, protocol: str) -> list[Column]:
    names = [("R", "recall"), ("N", "ndcg")]
    return [
        Column(f"{short}@{k}", f"test.{way}.{protocol}.{name}@{k}", ".4f", "highest")
        for k in KS
        for short, name in names
    ]


def _baselines(way: str) -> list[Baseline]:
    """Rows of what needs no training, at the paths of ``way``."""

    def of(name: str) -> Callable[[Any], Mapping[str, Any]]:
        return lambda results: {"test": {way: results["baselines"][name]}}

    return [
        Baseline("most popular", of("popularity")),
        Baseline("nearest texts", of("neighbours"), "item-kNN"),
        Baseline("what followed in training", of("followers"), "pairs of items"),
        Baseline("what followed, and nearest texts", of("both")),
    ]


def _table(title: str, way: str, protocol: str, note: str, **others: Any) -> Table:
    only: Mapping[str, Sequence[Any]] = {} if way in ("items", "memory") else _WITH_CODES
    baselines: list[Baseline | str] = [RANDOM, LETTER, *_baselines(way)]

    def noted(study: StudyResults) -> str:
        return note + _NEVER_AGAIN * (protocol == "unseen" and _on_amazon(study))

    return Table(
        title, _columns(way, protocol), only=only, baselines=baselines, note=noted, on_paper=_on_amazon, **others
    )


CODES = _table("Generating codes (table 3)", "codes", "all", f"Beam search over the IDs. {_ALL}", paper=PAPER)
CODES_UNSEEN = _table("Generating codes, seen items removed", "codes", "unseen", f"The same models. {_UNSEEN}")
RERANKED = _table("Generated, then re-ranked by the item head", "reranked", "unseen", _UNSEEN)
HYBRID = _table("Both: sum of the log-probabilities of codes and of items", "hybrid", "all", _ALL)
HYBRID_UNSEEN = _table("Both, seen items removed", "hybrid", "unseen", _UNSEEN)
ITEMS = _table(
    "The item head, and SASRec", "items", "all", f"{_ALL} SASRec: item embeddings only, with the same sampled softmax."
)
ITEMS_UNSEEN = _table("The item head, and SASRec, seen items removed", "items", "unseen", _UNSEEN)
MEMORY = _table(
    "With the memory of what followed what",
    "memory",
    "all",
    f"{_ALL} Both log-probabilities, that of the item mixed with how often it followed the history's items in "
    "training; shares chosen on validation targets. SASRec has the same memory.",
)
MEMORY_UNSEEN = _table("With the memory, seen items removed", "memory", "unseen", _UNSEEN)

IDS = Table(
    "IDs (tables 3, 7 and 8)",
    [
        Column("distinct", "ids.distinct", ".3f", "highest"),
        Column("most that share", "ids.most_that_share", ".0f"),
        Column("residual error", "ids.quantizer.residual_error.-1", ".4g"),
        Column("telescoping error", "ids.quantizer.telescoping_error", ".2g", "lowest"),
        Column("median radius", "ids.quantizer.radius.median", ".2f"),
        Column("perplexity {}", "ids.quantizer.perplexity.*", ".0f"),
    ],
    only=_WITH_CODES,
    baselines=[RANDOM, LETTER],
    paper=PAPER,
    on_paper=_on_amazon,
    note="Distinct: different tuples before the tie-break token, as a share of the items. Residual error: mean "
    "d²(ẑ, z). Telescoping error: of all codes and the last residual composed again. Those of the Euclidean kind are "
    "in Euclidean units. A higher share of distinct tuples need not mean better recommendations.",
)


def _of_slice(way: str, name: str, number: str) -> Callable[[Any], Any]:
    """A number of the slice called ``name``; ``tail`` is the first one that is not cold."""

    def find(results: Any) -> Any:
        slices = results["slices"][way]
        wanted = slices[0] if name == "cold" else slices[1] if name == "tail" else slices[-1]
        return wanted.get(number)

    return find


SLICES = Table(
    "By popularity of the target, seen items removed",
    [
        column
        for way in ("codes", "items", "hybrid", "memory")
        for column in (
            Column(f"{way}: cold R@50", _of_slice(way, "cold", "recall@50"), ".4f", "highest"),
            Column("n", _of_slice(way, "cold", "users"), ".0f", aside=True),
            Column(f"{way}: tail R@10", _of_slice(way, "tail", "recall@10"), ".4f", "highest"),
            Column("n", _of_slice(way, "tail", "users"), ".0f", aside=True),
            Column(f"{way}: head R@10", _of_slice(way, "head", "recall@10"), ".4f", "highest"),
        )
    ],
    baselines=[RANDOM, LETTER],
    note="Cold: the target never occurs in training. Tail and head: the quarters of the items that occur least and "
    "most often in training. With so few cold targets a share of them is hardly more than a count.",
)


class Differences:
    """GHRQ beside the others: differences of the means, with intervals by a paired bootstrap over users."""

    title = "Differences to GHRQ, seen items removed"
    columns: Sequence[Column] = ()

    def fill(self, study: StudyResults) -> Grid | None:
        """The table of a study; ``None`` if there is nothing to compare."""
        ours = [group for group in study.groups if group.kind == "ghrq"]
        others = [group for group in study.groups if group.kind and group.kind != "ghrq"]
        rows = [row for group in others for row in self._rows(ours[0], group)] if ours else []
        if not rows:
            return None
        note = (
            "GHRQ minus the other, mean over users and seeds; in brackets the interval that holds 95 % of the "
            "differences when users are drawn again. An interval around 0 is no difference. It does not contain the "
            "spread over seeds."
        )
        return Grid(self.title, note, [Column("R@10"), Column("N@10")], [Block("", rows, compete=False)])

    @staticmethod
    def _rows(ours: Group, other: Group) -> Iterator[Row]:
        mine, theirs = _ranks(ours), _ranks(other)
        pairs = [(way, way) for way in ("codes", "items", "hybrid", "memory")]
        if other.kind == SASREC:
            pairs = [("codes", "items"), ("items", "items"), ("hybrid", "items"), ("memory", "memory")]
        for way, beside in pairs:
            a, b = mine.get(f"{way}.unseen"), theirs.get(f"{beside}.unseen")
            if a is None or b is None or a.shape[1] != b.shape[1]:
                continue
            entries: list[Entry] = []
            for which in (0, 1):
                means = [torch.stack([recall_ndcg(row, 10)[which] for row in found]).mean(0) for found in (a, b)]
                difference, low, high = paired_bootstrap(means[0], means[1])
                entries.append(f"{difference:+.4f} [{low:+.4f}, {high:+.4f}]")
            colour = KINDS[other.kind].colour if other.kind in KINDS else ""
            yield Row(label_of(other.kind), entries, colour, way if way == beside else f"{way} against its items")


DIFFERENCES = Differences()

TABLES: Sequence[Any] = (
    CODES,
    CODES_UNSEEN,
    HYBRID,
    HYBRID_UNSEEN,
    ITEMS,
    ITEMS_UNSEEN,
    MEMORY,
    MEMORY_UNSEEN,
    RERANKED,
    DIFFERENCES,
    SLICES,
    IDS,
)

CURVES = (
    Curve(
        "validation",
        "Validation while training",
        "NDCG@10, seen items removed.",
        ("recommender",),
        "validation/ndcg@10",
    ),
    Curve("codes", "Loss of the codes", "Nats an item.", ("recommender",), "codes"),
    Curve("items", "Loss of the items", "Nats an item, against sampled ones.", ("recommender",), "items"),
)


def page(title: str, study: StudyResults) -> Page:
    """The page of a study."""
    main = CODES.fill(study)
    both, alone, remembered = (table.fill(study) for table in (HYBRID_UNSEEN, ITEMS_UNSEEN, MEMORY_UNSEEN))
    return Page(
        title,
        "Semantic IDs as what a recommender generates, kind by kind, beside baselines",
        [
            what_was_run(study, "recommendation"),
            *what_came_out(main, "Recall@10 of generated codes (" + _ALL.rstrip(".").lower() + ")", title="R@10"),
            *what_came_out(alone, "Recall@10 of whole items, seen ones removed", title="R@10"),
            *what_came_out(remembered, "Recall@10 with the memory, seen items removed", title="R@10"),
        ],
        [
            PageSection("Generating codes", [main, CODES_UNSEEN.fill(study), RERANKED.fill(study)]),
            PageSection("With the item head", [HYBRID.fill(study), both, ITEMS.fill(study), alone]),
            PageSection("With a memory", [MEMORY.fill(study), remembered]),
            PageSection("Who wins", [DIFFERENCES.fill(study)]),
            PageSection("Rare and new items", [Gallery(list(popularity_figures(study))), SLICES.fill(study)]),
            PageSection("The IDs", [IDS.fill(study)]),
            PageSection("Five users", [_examples(study)], ["Evenly spaced, not chosen: most recommendations miss."]),
            PageSection(
                "Training",
                [Gallery(training_figures(study.groups, CURVES)), recipe_grid(study, _described)],
                diverged(study),
            ),
        ],
    )


_WAYS = {"codes": "generated codes", "items": "the item head", "hybrid": "both", "memory": "both and the memory"}


def popularity_figures(study: StudyResults) -> Iterator[Figure]:
    """For each way to rank: how many targets are found, by how often they occur in training."""
    for way, shown in _WAYS.items():
        series: list[ChartLine] = []
        slices: list[tuple[str, int]] = []
        for group in study.groups:
            found = value_at(group.first, f"slices.{way}")
            with suppress(LookupError, TypeError, AttributeError):  # of a results.json that somebody changed
                names = [(str(each["name"]), int(each["users"])) for each in found]
                slices = slices or names
                hits = [group.number(f"slices.{way}.{place}.recall@10") for place in range(len(names))]
                if names == slices and any(hits):
                    there = [place for place, value in enumerate(hits) if value]
                    series.append(ChartLine(group.kind, there, [hits[place] for place in there]))
        if series:
            yield lines(
                f"popularity-{way}",
                f"Found among 10, by {shown}",
                "By how often the target occurs in training, with the number of test users; seen items removed.",
                ("occurrences of the target in training", "R@10"),
                series,
                ticks=[f"{name}\n({users:,})" for name, users in slices],
            )


def _described(recipe: RecommendationRecipe) -> dict[str, str]:
    q, r = recipe.quantizer, recipe.recommender
    return {
        "IDs": f"{q.num_stages} × {q.codebook_size} codes by {q.engine}, and a tie-break token",
        "recommender": f"{r.layers} layers of width {r.width}, the last {r.history} items, {count(r.epochs, 'epoch')}",
        "weights": "of the epoch with the best NDCG@10 on validation targets",
    }


def _examples(study: StudyResults) -> Examples | None:
    group = next((group for group in study.groups if value_at(group.first, "examples")), None)
    if group is None:
        return None
    cards = []
    with suppress(LookupError, TypeError):  # of a results.json that somebody changed
        for found in group.first["examples"]:
            lists = [("bought before", found["history"]), ("recommended", found["recommended"])]
            lists.append(("bought next" + (" (found)" if found["hit"] else ""), [found["next"]]))
            cards.append(Lists(f"User {found['user']}", lists))
    way = group.first.get("way", "")
    return Examples(f"{label_of(group.kind)}, seed {group.first_seed}, by {way}", cards)


def _ranks(group: Group) -> dict[str, Tensor]:
    """The ranks of all seeds ``(seeds, users)`` by way and protocol, from the folders of the runs."""
    found: dict[str, list[Tensor]] = {}
    for outcome in group.finished:
        path = outcome.folder / RANKS
        if path.is_file():
            with suppress(safetensors.SafetensorError):
                for name, ranks in safetensors.torch.load(path.read_bytes()).items():
                    found.setdefault(name, []).append(ranks.long())
    return {name: torch.stack(rows) for name, rows in found.items() if len({row.shape for row in rows}) == 1}
