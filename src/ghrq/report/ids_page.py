"""The quality of semantic IDs as a page: what to look at first, plots that say how to read them, and all numbers."""

from collections.abc import Sequence
from pathlib import Path

from ghrq.metrics.labels import LabelAgreement
from ghrq.metrics.quality import Quality
from ghrq.report import ids_figures
from ghrq.report.figures import Gallery
from ghrq.report.grid import Block, Column, Grid, Row
from ghrq.report.page import Page, PageSection
from ghrq.report.results import Measured
from ghrq.report.words import count
from ghrq.system import files

TITLE = "How good are these semantic IDs?"

# A label that more of the items have leaves nothing to agree with.
_CONSTANT = 0.995
# Items of a group, on average, from which on the purity of random labels is the share of the most common one.
_GROUP = 20


def write_page(quality: Quality, folder: Path | str) -> Path:
    """Write ``folder/quality.html``, one file that needs nothing but a browser; returns its path."""
    folder = Path(folder)
    html = Page(TITLE, _subtitle(quality), _lead(quality), _sections(quality)).html()
    with files.telling(f"quality.html into {folder}", "choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / "quality.html", html)
    return folder / "quality.html"


def _sections(quality: Quality) -> list[PageSection]:
    lost, near, (labels, note) = quality.reconstruction, quality.neighbours, _informative(quality)
    codes = [
        ids_figures.usage_figure(quality),
        ids_figures.uniqueness_figure(quality),
        ids_figures.collisions_figure(quality),
    ]
    vectors, words = [], []
    if lost:
        vectors.append(ids_figures.error_figure(lost))
        words.append(f"The error was measured on {lost.rows:,} items.")
    if near:
        vectors.append(ids_figures.neighbour_figure(near))
        words.append(
            f"The exact {near.k} nearest neighbours among all items, by Euclidean distance, were found for "
            f"{near.queries:,} of them."
        )
    shown = [ids_figures.level_figure(labels)] if len(labels) > 1 else []
    # The best level as an example; the table has the others.
    shown += [ids_figures.label_figure(_best(labels)[2])] if labels else []
    return [
        PageSection("Codes and collisions", [Gallery(codes)]),
        PageSection("Codes and vectors", [Gallery(vectors)], words and [" ".join(words)]),
        PageSection("Codes and labels", [Gallery(shown)], note),
        PageSection("All numbers", [_depth_table(quality), _label_table(labels) if labels else None]),
    ]


def _subtitle(quality: Quality) -> str:
    sizes = quality.codebook_size[: quality.stages]
    size = f"{sizes[0]}" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))
    token = " and a tie-break token" if len(quality.usage) > quality.stages else ""
    return f"{quality.items:,} items, {count(quality.stages, 'code')} of {size} each{token}"


def _lead(quality: Quality) -> list[str]:
    lost, near, (labels, _) = quality.reconstruction, quality.neighbours, _informative(quality)
    alone = quality.collisions["1"] / quality.items
    words = [
        f"**{alone:.1%} of the items have an ID of their own**; the most crowded ID has "
        f"{quality.largest_group[-1]:,} of the {quality.items:,} items."
    ]
    if len(quality.usage) > quality.stages:
        bare = quality.uniqueness[quality.stages - 1]
        words[0] += (
            f" That is due to the tie-break token: **without it, there are {bare:.1%} as many IDs as items**, and the "
            f"most crowded one has {quality.largest_group[quality.stages - 1]:,}."
        )
    if lost:
        words.append(f"**The codes keep {1.0 - lost.relative[-1]:.1%} of the variance** of the vectors.")
    if near:
        words.append(
            f"**Neighbours share {near.mean_length:.2f} first codes** on average, random pairs "
            f"{near.mean_length_random:.2g}. Of the {near.k} nearest neighbours of an item, {near.recall:.1%} are "
            f"among the {near.k} items with the most first codes in common; of {near.k} items at random it would be "
            f"{100 * near.recall_random:.2g}%."
        )
    if labels:
        value, depth, of = _best(labels)
        words.append(
            f"**Labels agree most at depth {depth} with {of.level}:** adjusted mutual information {value:.3f}, where 1 "
            "is perfect and 0 is chance."
        )
    poor = min(range(quality.stages), key=lambda stage: quality.usage[stage])
    if quality.usage[poor] < 0.5:
        words.append(
            f"**Stage {poor + 1} uses only {quality.usage[poor]:.0%} of its codes.** Fewer codes of a stage, or fewer "
            "stages, would give the same IDs in less space."
        )
    return words


def _informative(quality: Quality) -> tuple[list[LabelAgreement], list[str]]:
    """The levels of labels that vary, and a note on those that (nearly) all items share."""
    groups = round(quality.uniqueness[0] * quality.items)
    kept: list[LabelAgreement] = []
    notes: list[str] = []
    for of in quality.labels:
        most_common = of.shuffled.purity[0] if of.items >= _GROUP * groups else 0.0
        if most_common > _CONSTANT:
            notes.append(
                f"Left out is {of.level}: more than {_CONSTANT:.1%} of its {of.items:,} items have the same label."
            )
        else:
            kept.append(of)
    return kept, notes


def _best(labels: list[LabelAgreement]) -> tuple[float, int, LabelAgreement]:
    """The highest adjusted mutual information, its depth and its level."""
    every = [(ami, depth, of) for of in labels for depth, ami in enumerate(of.codes.ami, start=1)]
    return max(every, key=lambda found: found[0])


def _depth_table(quality: Quality) -> Grid:
    lost, near = quality.reconstruction, quality.neighbours
    columns: dict[Column, Sequence[float]] = {
        Column("codes", spec=",.0f"): quality.codebook_size,
        Column("used, %", factor=100.0): quality.usage,
        Column("perplexity"): quality.perplexity,
        Column("distinct, % of items", factor=100.0): quality.uniqueness,
        Column("largest group", spec=",.0f"): quality.largest_group,
        Column("mean squared error", spec=".4g"): lost.mean_squared if lost else [],
        Column("% of the variance", spec=".2f", factor=100.0): lost.relative if lost else [],
        Column("neighbours sharing, %", spec=".2f", factor=100.0): near.shared if near else [],
        Column("random pairs, %", spec=".2g", factor=100.0, aside=True): near.shared_random if near else [],
    }
    rows = [
        Row(
            f"depth {m + 1}" if m < quality.stages else "+ tie-break token",
            [Measured.of(values[m : m + 1], column.factor) for column, values in columns.items()],
        )
        for m in range(len(quality.usage))
    ]
    note = (
        "*Codes*, *used* and *perplexity* are of the one stage, the others of all codes up to it. *Perplexity* is the "
        "number of equally used codes that would be as hard to guess."
    )
    return Grid("By depth", note, list(columns), [Block("", rows, compete=False)])


def _label_table(labels: list[LabelAgreement]) -> Grid:
    shuffled = Column("shuffled", spec=".3f", aside=True)
    adjusted = [Column(name, spec="z.3f") for name in ("AMI", "ARI")]
    columns = [*adjusted, Column("NMI", spec=".3f"), shuffled, Column("purity", spec=".3f"), shuffled]
    blocks = []
    for of in labels:
        codes, chance = of.codes, of.shuffled
        by_depth = zip(codes.ami, codes.ari, codes.nmi, chance.nmi, codes.purity, chance.purity, strict=True)
        rows = [Row(f"depth {m}", [Measured((value,)) for value in row]) for m, row in enumerate(by_depth, start=1)]
        blocks.append(Block(f"{of.level}: {of.labels:,} labels of {of.items:,} items", rows, compete=False))
    note = (
        "*Shuffled* is the same measure with shuffled labels: NMI and purity rise with the number of groups by "
        "themselves. AMI and ARI are adjusted for that, so that chance is 0."
    )
    return Grid("Agreement with labels", note, columns, blocks)
