"""The tables: those of the paper, and the one that counts."""

from collections.abc import Callable, Container, Sequence

from ghrq.report.kinds import KINDS
from ghrq.report.tables import Block, Column, Entry, Measured, Row, Table
from ghrq.tasks.wordnet.report.outcome import Capacity, Group, Outcome

# Table 1 of the paper: Recall@10 in %, tuples, closure split.
PAPER_RECALL = {
    "euclidean": {Capacity(8, 64): 75.8, Capacity(8, 128): 75.4, Capacity(16, 64): 76.7, Capacity(16, 128): 75.9},
    "naive": {Capacity(8, 64): 88.2, Capacity(8, 128): 62.3, Capacity(16, 64): 86.9, Capacity(16, 128): 83.4},
    "ghrq": {Capacity(8, 64): 81.9, Capacity(8, 128): 78.7, Capacity(16, 64): 83.8, Capacity(16, 128): 81.9},
}
# Table 2: distinct share, path, Wu-Palmer and GloVe similarity.
PAPER_SIMILARITY = {"ghrq": (0.967, 0.088, 0.262, 0.162), "naive": (0.888, 0.078, 0.242, 0.097)}
# Tables 7 and 8, WordNet: of another measure, see the caption.
PAPER_ERROR = {"ghrq": 12.9, "naive": 14.4, "hra-only": 10.3, "dhste-only": 30.4}

MEASURES = {"path": "path", "wu_palmer": "Wu-Palmer", "glove": "GloVe"}

_OVER_SEEDS = "Mean ± standard deviation over seeds where there are several; bold: the best of its block."
_NOT_THE_SAME = (
    "The paper's numbers are of something else: its runs logged d²(ẑ ⊕ r_N, z), with the leftover residual r_N added "
    "back, so they are shown beside ours but do not compare."
)


def percent(measured: Measured) -> Measured:
    """A share as a percentage."""
    return measured.scaled(100.0)


def recall(outcome: Outcome) -> Table:
    """Table 1: tuples, kinds by capacities, with the paper's numbers beside ours."""
    groups = {(group.setting, group.kind, group.capacity): group for group in outcome.groups}
    columns = []
    for capacity in outcome.capacities:
        columns += [Column(str(capacity), best="highest"), Column("paper", aside=True)]

    def row(setting: str, kind: str) -> Row:
        entries: list[Entry] = []
        for capacity in outcome.capacities:
            group = groups.get((setting, kind, capacity))
            measured = percent(group.number("recall", "free", "tuple")) if group else None
            entries += [
                measured or (_without_result(group) if group else None),
                Measured.of([PAPER_RECALL.get(kind, {}).get(capacity)]),
            ]
        return Row(KINDS[kind].label, entries, KINDS[kind].colour)

    blocks = []
    for setting in outcome.settings:
        kinds = dict.fromkeys(group.kind for group in outcome.groups if group.setting == setting)
        blocks.append(Block(f"recipe `{setting}`", [row(setting, kind) for kind in kinds]))
    return Table(
        f"Table 1 of the paper: Recall@{outcome.k} in %, counted by tuples",
        f"The tuple of a held-out ancestor is among the first {outcome.k} of a free beam search, known ancestors not "
        "removed, as the paper counts. Collisions inflate it, as one tuple may stand for many synsets. For comparison "
        f"with the paper only, whose numbers are single runs with its own settings. {_OVER_SEEDS}",
        columns,
        blocks,
    )


def entity(outcome: Outcome, capacities: Sequence[Capacity], title: str) -> Table:
    """The table that counts: entity level, beside what needs no codes and what needs no model."""
    bar = percent(outcome.baseline("composition", "filtered"))
    columns = (
        Column("filtered", best="highest"),
        Column("over composition", "+.1f", aside=True),
        Column("filtered, strict", best="highest"),
        Column("unfiltered", best="highest"),
        Column("free beam, filtered", best="highest"),
        Column("free beam, unfiltered", best="highest"),
    )

    def entries(group: Group) -> list[Entry]:
        def of(beam: str, how: str) -> Measured:
            return percent(group.number("recall", beam, how))

        filtered = of("constrained", "entity_filtered")
        return [
            filtered or _without_result(group),
            filtered.shifted(-bar.mean) if bar else None,
            of("constrained", "entity_filtered_strict"),
            of("constrained", "entity"),
            of("free", "entity_filtered"),
            of("free", "entity"),
        ]

    references = [
        _row(group, entries, _origin(outcome, group, capacities)) for c in capacities for group in outcome.random(c)
    ]
    for name, label in (("popularity", "popularity"), ("composition", "graph composition")):
        filtered, unfiltered = (percent(outcome.baseline(name, how)) for how in ("filtered", "unfiltered"))
        over = filtered.shifted(-bar.mean) if name != "composition" else None
        references.append(Row(label, [filtered, over, filtered, unfiltered, filtered, unfiltered], note="no model"))
    return Table(
        title,
        f"Share of the held-out pairs whose ancestor is among the first {outcome.k}, in %. A hit on a tuple that m "
        "synsets share counts 1/m, the chance to name the right one. *Filtered*: ancestors known from training are "
        "taken out of the list first, and out of the m (*strict*: they still count among the m). The beam is held to "
        "tuples that exist, or free. Baselines name synsets, so there is nothing to share; they answer the same "
        f"questions. Hold filtered against filtered. {_short_lists(outcome)}{_OVER_SEEDS}",
        columns,
        [*_blocks(outcome, capacities, entries), Block("what the codes must beat", references, compete=False)],
    )


def distinct(outcome: Outcome) -> Table:
    """Table 2, its first column: how many tuples are distinct."""
    columns = (
        Column("distinct tuples a synset", ".3f", "highest"),
        Column("paper", ".3f", aside=True),
        Column("of the 200 most frequent ancestors", ".0f", "highest"),
        Column("groups that share a tuple", ",.0f"),
        Column("largest group", ",.0f"),
    )

    def entries(group: Group) -> list[Entry]:
        return [
            group.number("distinct") or _without_result(group),
            Measured.of(PAPER_SIMILARITY.get(group.kind, ())[:1]),
            group.number("distinct_frequent"),
            group.number("similarity", "groups"),
            group.number("similarity", "largest"),
        ]

    return Table(
        f"Table 2 of the paper, uniqueness: what the codes keep apart ({outcome.main})",
        "Distinct tuples, as a share of all synsets and as a number among the 200 synsets with the most descendants: "
        "the answers that most questions ask for. Random codes are distinct by construction. " + _OVER_SEEDS,
        columns,
        _blocks(outcome, [outcome.main], entries),
    )


def similarity(outcome: Outcome) -> Table:
    """Table 2, the other columns: how alike synsets are that share a tuple."""
    columns = []
    for label in MEASURES.values():
        columns += [Column(label, ".3f"), Column("random", ".3f", aside=True), Column("groups", ",.0f", aside=True)]

    def entries(group: Group) -> list[Entry]:
        found: list[Entry] = []
        for measure in MEASURES:
            found += [group.number("similarity", measure, side, "pooled") for side in ("shared", "random")]
            found.append(group.number("similarity", measure, "shared", "groups"))
        return [found[0] or _without_result(group), *found[1:]]

    paper = []
    for kind, (_, *similarities) in PAPER_SIMILARITY.items():
        row: list[Entry] = [entry for value in similarities for entry in (Measured((value,)), None, None)]
        paper.append(Row(KINDS[kind].label, row, KINDS[kind].colour))
    return Table(
        f"Table 2 of the paper, similarity: what the codes put together ({outcome.main})",
        "Similarity of synsets that share a tuple, mean over all pairs within a group (at most 50 members of each); "
        "beside it that of groups of the same sizes drawn at random, and the number of groups. Only what is above "
        "random says anything, and means over different groups do not compare from row to row, so none is bold. Words "
        "that GloVe does not know are left out.",
        columns,
        [*_blocks(outcome, [outcome.main], entries), Block("the paper", paper, compete=False)],
    )


def residual_error(outcome: Outcome) -> Table:
    """Table 7, WordNet's row: naive against GHRQ."""
    return _errors(
        outcome,
        ("naive", "ghrq"),
        "Table 7 of the paper, WordNet: what quantization costs on the ball",
    )


def ablation(outcome: Outcome) -> Table | None:
    """Table 8, WordNet's column: one half of the method at a time. Nothing if no ablation was run."""
    kinds = ("hra-only", "dhste-only", "ghrq")
    settings = {group.setting for group in outcome.groups if group.kind in kinds[:2]}
    if not settings:
        return None
    return _errors(outcome, kinds, "Table 8 of the paper, WordNet: one half of the method at a time", settings)


def _errors(outcome: Outcome, kinds: Sequence[str], title: str, settings: Container[str] | None = None) -> Table:
    columns = (
        Column("residual error d²(ẑ,\u00a0z)", ".3g", "lowest"),
        Column("telescoping error", ".2g"),
        Column("paper, d²(ẑ\u00a0⊕\u00a0r_N,\u00a0z)", ".1f", aside=True),
        Column("median radius of\u00a0z", ".3f"),
        Column("beyond radius\u00a00.99,\u00a0%"),
    )

    def entries(group: Group) -> list[Entry]:
        return [
            group.number("diagnosis", "residual_error", -1) or _without_result(group),
            group.number("diagnosis", "telescoping_error"),
            Measured.of([PAPER_ERROR.get(group.kind)]),
            group.number("diagnosis", "radius", "median"),
            percent(group.number("diagnosis", "boundary_fraction")),
        ]

    chosen = [s for s in outcome.settings if settings is None or s in settings]
    return Table(
        f"{title} ({outcome.main})",
        "Mean squared geodesic distance between a synset's point z and the point ẑ of all its codes; and, apart from "
        "it, the telescoping error: what is still missing when the last residual is put back by the rule it was taken "
        f"out with, 0 up to rounding if the rule undoes itself. {_NOT_THE_SAME} Errors grow with the radius at which "
        f"training leaves the points. {_OVER_SEEDS}",
        columns,
        _blocks(outcome, [outcome.main], entries, kinds, chosen),
    )


def embedding(outcome: Outcome) -> Table:
    """How well the continuous points know the hierarchy, before any code."""
    columns = (
        Column("mean average precision, %", best="highest"),
        Column("mean rank", ",.1f", "lowest"),
        Column("median radius", ".3f"),
        Column("beyond radius\u00a00.99,\u00a0%"),
    )

    def entries(group: Group) -> list[Entry]:
        return [
            percent(group.number("reconstruction", "mean_average_precision")) or _without_result(group),
            group.number("reconstruction", "mean_rank"),
            group.number("diagnosis", "radius", "median"),
            percent(group.number("diagnosis", "boundary_fraction")),
        ]

    return Table(
        f"The continuous embedding ({outcome.main})",
        "All other synsets ranked by their distance from one: where are its ancestors? As for Poincaré embeddings, on "
        "all ancestors, known and held out, of a sample of synsets. Rank 1 is the best. The radius of the Euclidean "
        f"points is a norm. {_OVER_SEEDS}",
        columns,
        _blocks(outcome, [outcome.main], entries),
    )


# --- rows ----------------------------------------------------------------------------------------------------


def _blocks(
    outcome: Outcome,
    capacities: Sequence[Capacity],
    entries: Callable[[Group], list[Entry]],
    kinds: Container[str] | None = None,
    settings: Sequence[str] | None = None,
) -> list[Block]:
    """A block for each recipe and capacity that was run."""
    blocks = []
    for setting in outcome.settings if settings is None else settings:
        for capacity in capacities:
            groups = [group for group in outcome.of(setting, capacity) if kinds is None or group.kind in kinds]
            title = f"recipe `{setting}`" + (f", {capacity}" if len(capacities) > 1 else "")
            if groups:
                blocks.append(Block(title, [_row(group, entries) for group in groups]))
    return blocks


def _row(group: Group, entries: Callable[[Group], list[Entry]], origin: str = "") -> Row:
    runs = len(group.results) + len(group.diverged)
    few = f"{len(group.diverged)} of {runs} diverged" if group.diverged and group.results else ""
    look = KINDS[group.kind]
    return Row(look.label, entries(group), look.colour, ", ".join(filter(None, (origin, few))))


def _origin(outcome: Outcome, group: Group, capacities: Sequence[Capacity]) -> str:
    """Whose seq2seq learned random codes, where that can be asked."""
    setting = f"seq2seq of {group.setting}" if len(outcome.settings) > 1 else ""
    capacity = str(group.capacity) if len(capacities) > 1 else ""
    return ", ".join(filter(None, (setting, capacity)))


def _short_lists(outcome: Outcome) -> str:
    """A warning where filtering left lists too short to judge."""
    worst = max(
        (group.number("recall", "constrained", "short").mean for group in outcome.groups if group.results), default=0.0
    )
    return (
        f"Filtering left up to {100 * worst:.0f}\u00a0% of the lists shorter than {outcome.k}. "
        if worst >= 0.01
        else ""
    )


def _without_result(group: Group) -> str | None:
    return "diverged" if group.diverged and not group.results else None
