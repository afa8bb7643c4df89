"""More of the page about IDs: what prefixes mean, head and tail apart, and another tokenizer beside this one."""

import math
from collections.abc import Mapping, Sequence

from ghrq.metrics.popularity import PopularitySlice
from ghrq.metrics.prefix_words import PrefixWords
from ghrq.metrics.quality import Quality
from ghrq.report.figures import ChartLine, Figure, Gallery, lines
from ghrq.report.grid import Block, Column, Entry, Grid, Row
from ghrq.report.page import PageSection
from ghrq.report.results import Measured


def words_section(found: Sequence[PrefixWords]) -> PageSection:
    """The words of the largest prefixes, those of two codes below their parents."""
    rows = []
    for each in found:
        label = " · ".join(map(str, each.codes))
        words = ", ".join(each.words) or None
        rows.append(Row(f"{'↳ ' if len(each.codes) > 1 else ''}{label}", [Measured((each.items,)), words]))
    note = (
        "The largest first codes, and the largest pairs of codes below some of them, with the words that set their "
        "titles apart from those of other prefixes of the same length (class-based tf-idf). Codes that mean something "
        "have words that belong together."
    )
    grid = Grid("Words of a prefix", note, [Column("items", spec=",.0f"), Column("words")], [Block("", rows, False)])
    return PageSection("What the codes mean", [grid] if rows else [])


def popularity_section(slices: Sequence[PopularitySlice], column: str) -> PageSection:
    """A table with a row for each part of the items."""
    columns = [
        Column("items", spec=",.0f"),
        Column("of all counts, %", factor=100.0),
        Column("alone, %", factor=100.0),
        Column("items a tuple", spec=".2f"),
        Column("error, % of the variance", spec=".1f", factor=100.0),
    ]
    rows = []
    for part in slices:
        values = (part.items, part.counted, part.alone, part.sharing, part.error)
        rows.append(Row(part.name, [Measured.of([v], c.factor) for v, c in zip(values, columns, strict=True)]))
    note = (
        f"By `{column}`: the head is the fifth of the items with the most, the tail the half with the fewest. *Alone*: "
        "no other item has the same codes, tie-break token aside; *items a tuple*: how many do, for an item of the "
        "part. Popular items that share a tuple cost most: a model cannot name one of them by its codes."
    )
    return PageSection("Head and tail", [Grid("Popular and rare items", note, columns, [Block("", rows, False)])])


def compared_section(measured: Mapping[str, Quality]) -> PageSection:
    """Tokenizers side by side: the measures that have a better and a worse, and their lines by depth."""
    columns = {
        Column("distinct, % of items", best="highest", factor=100.0): lambda q: q.uniqueness[q.stages - 1],
        Column("largest group", spec=",.0f", best="lowest"): lambda q: q.largest_group[q.stages - 1],
        Column("least used stage, %", best="highest", factor=100.0): lambda q: min(q.usage[: q.stages]),
        Column("greatest Gini", spec=".2f", best="lowest"): lambda q: max(q.gini[: q.stages]),
        Column("error, % of the variance", best="lowest", factor=100.0): (
            lambda q: q.reconstruction.relative[-1] if q.reconstruction else None
        ),
        Column("first codes neighbours share", spec=".2f", best="highest"): (
            lambda q: q.neighbours.mean_length if q.neighbours else None
        ),
        Column("neighbours found by codes, %", best="highest", factor=100.0): (
            lambda q: q.neighbours.recall if q.neighbours else None
        ),
        Column("AMI with labels, best depth", spec=".3f", best="highest"): (
            lambda q: max((value for of in q.labels if of.informative for value in of.codes.ami), default=None)
        ),
        Column("bits a tuple", spec=".1f"): lambda q: sum(math.log2(size) for size in q.codebook_size[: q.stages]),
    }
    rows = []
    for name, quality in measured.items():
        entries: list[Entry] = [Measured.of([value(quality)], column.factor) for column, value in columns.items()]
        rows.append(Row(name, entries))
    note = (
        "Tie-break tokens aside. Compare tokenizers of equally many bits: more bits are better in nearly everything. "
        "Neighbours are of the same random items for both."
    )
    grid = Grid("Side by side", note, list(columns), [Block("", rows)])
    return PageSection("Beside the other tokenizer", [grid, Gallery(_lines(measured))])


def _lines(measured: Mapping[str, Quality]) -> list[Figure]:
    series = {
        "error": ("Error by depth", "squared error, % of variance", "Lower is better."),
        "shared": ("Neighbours by prefix length", "% of the pairs", "Neighbours that share at least so many codes."),
        "distinct": ("Told apart by depth", "distinct prefixes, % of items", "Higher is better."),
    }
    figures = []
    for name, (title, label, caption) in series.items():
        given = []
        for tokenizer, q in measured.items():
            values: Sequence[float] = {
                "error": q.reconstruction.relative if q.reconstruction else [],
                "shared": q.neighbours.shared if q.neighbours else [],
                "distinct": q.uniqueness[: q.stages],
            }[name]
            if values:
                y = [Measured((100.0 * value,)) for value in values]
                given.append(ChartLine(tokenizer, range(1, 1 + len(y)), y))
        if given:
            figures.append(lines(f"compared-{name}", title, caption, ("codes used", label), given, depths=True))
    return figures
