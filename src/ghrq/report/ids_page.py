"""The quality of semantic IDs as a page: what to look at first, plots that say how to read them, and all numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ghrq.metrics.labels import MOST_COMMON, LabelAgreement
from ghrq.metrics.quality import Quality
from ghrq.report import ids_figures
from ghrq.report.figures import Gallery
from ghrq.report.grid import Block, Column, Grid, Row
from ghrq.report.ids_examples import ItemExamples
from ghrq.report.ids_verdict import Verdict, judge
from ghrq.report.page import Page, PageSection
from ghrq.report.results import Measured
from ghrq.report.template import render
from ghrq.report.words import count
from ghrq.system import files

TITLE = "How good are these semantic IDs?"


@dataclass(frozen=True)
class Facts:
    """Names and values, as a list."""

    facts: Mapping[str, str]

    def html(self) -> str:
        """A ``<figure>``."""
        return render("facts", facts=list(self.facts.items()))


def write_page(
    quality: Quality,
    folder: Path | str,
    *,
    provenance: Mapping[str, str] | None = None,
    examples: ItemExamples | None = None,
    more: Sequence[PageSection] = (),
) -> Path:
    """Write ``folder/quality.html``, one file that needs nothing but a browser; returns its path.

    Args:
        quality: what was measured.
        folder: is created if it does not exist.
        provenance: which tokenizer, files and settings the IDs come from, as names and values.
        examples: items to show.
        more: sections after the checks: words of prefixes, popularity, another tokenizer.

    """
    folder, verdict = Path(folder), judge(quality)
    sections = _sections(quality, verdict, examples)
    sections[1:1] = more
    if provenance:
        sections.insert(1, PageSection("Where these IDs come from", [Facts(provenance)]))
    html = Page(TITLE, _subtitle(quality), _lead(quality, verdict), sections).html()
    with files.telling(f"quality.html into {folder}", "choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / "quality.html", html)
    return folder / "quality.html"


def _sections(quality: Quality, verdict: Verdict, examples: ItemExamples | None) -> list[PageSection]:
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
        PageSection("Checks", [_check_table(verdict)]),
        PageSection("Items", examples.pieces() if examples else []),
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


def _lead(quality: Quality, verdict: Verdict) -> list[str]:
    lost, near, (labels, _) = quality.reconstruction, quality.neighbours, _informative(quality)
    alone = quality.collisions["1"] / quality.items
    words = [
        f"**Verdict: {verdict.verdict}.** {verdict.advice}",
        f"**{alone:.1%} of the items have an ID of their own**; the most crowded ID has "
        f"{quality.largest_group[-1]:,} of the {quality.items:,} items.",
    ]
    if len(quality.usage) > quality.stages:
        bare = quality.uniqueness[quality.stages - 1]
        words[-1] += (
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
    if quality.distinct_vectors is not None and quality.distinct_vectors < quality.items:
        copies = quality.items - quality.distinct_vectors
        words.append(
            f"**{count(copies, 'item')} {'has' if copies == 1 else 'have'} the same vector as an earlier item**: no "
            "codes can tell them apart."
        )
    return words


def _informative(quality: Quality) -> tuple[list[LabelAgreement], list[str]]:
    """The levels of labels that vary, and a note on those that (nearly) all items share."""
    return [of for of in quality.labels if of.informative], left_out(quality)


def left_out(quality: Quality) -> list[str]:
    """A sentence for each level of labels that says nothing, as (nearly) all items have the same label."""
    return [
        f"Left out is {of.level}: more than {MOST_COMMON:.1%} of its {of.items:,} items have the same label."
        for of in quality.labels
        if not of.informative
    ]


def _best(labels: list[LabelAgreement]) -> tuple[float, int, LabelAgreement]:
    """The highest adjusted mutual information, its depth and its level."""
    every = [(ami, depth, of) for of in labels for depth, ami in enumerate(of.codes.ami, start=1)]
    return max(every, key=lambda found: found[0])


def _check_table(verdict: Verdict) -> Grid:
    titles = ("result", "measured", "expected")
    rows = [
        Row(check.name, ["✓ passed" if check.passed else "✗ failed", check.value, check.bound])
        for check in verdict.checks
    ]
    note = "The first check that fails decides on verdict and advice; docs/semantic-ids.md has the rules."
    return Grid("What was checked", note, [Column(title) for title in titles], [Block("", rows, compete=False)])


def _depth_table(quality: Quality) -> Grid:
    lost, near = quality.reconstruction, quality.neighbours
    columns: dict[Column, Sequence[float]] = {
        Column("codes", spec=",.0f"): quality.codebook_size,
        Column("used, %", factor=100.0): quality.usage,
        Column("perplexity"): quality.perplexity,
        Column("entropy, bits", spec=".2f"): quality.entropy,
        Column("Gini", spec=".2f"): quality.gini,
        Column("distinct, % of items", factor=100.0): quality.uniqueness,
        Column("largest group", spec=",.0f"): quality.largest_group,
        Column("mean squared error", spec=".4g"): lost.mean_squared if lost else [],
        Column("% of the variance", spec=".2f", factor=100.0): lost.relative if lost else [],
        Column("neighbours sharing, %", spec=".2f", factor=100.0): near.shared if near else [],
        Column("random pairs, %", spec=".2g", factor=100.0, aside=True): near.shared_random if near else [],
        Column("queries with a neighbour sharing, %", factor=100.0): near.hit if near else [],
    }
    rows = [
        Row(
            f"depth {m + 1}" if m < quality.stages else "+ tie-break token",
            [Measured.of(values[m : m + 1], column.factor) for column, values in columns.items()],
        )
        for m in range(len(quality.usage))
    ]
    note = (
        "*Codes*, *used*, *perplexity*, *entropy* and *Gini* are of the one stage, the others of all codes up to it. "
        "*Perplexity* is the number of equally used codes that would be as hard to guess; *Gini* is 0 if all codes "
        "have equally many items, and near 1 if few have nearly all."
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
