"""The quality of semantic IDs as a page: what to look at first, plots that say how to read them, and all numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghrq import __version__
from ghrq.metrics.labels import LabelAgreement
from ghrq.metrics.quality import NeighbourAgreement, Quality, ReconstructionError
from ghrq.report.figures import INK, PALE, Figure, Gallery, draw_figure
from ghrq.report.page import Section, page
from ghrq.report.tables import Block, Column, Measured, Row, Table, count
from ghrq.system import files
from ghrq.system.errors import UserError, require

TITLE = "How good are these semantic IDs?"

# Of the palette by Okabe and Ito, see :mod:`ghrq.report.kinds`.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"

# Of text on a coloured ground, which is the same in the light and the dark theme of the page.
DARK, LIGHT = "#000000", "#fffffe"

# Of a line that is there to compare with: so short that the key in the legend shows them beside its marker.
DASHES = (2.0, 1.2)

# Where the number of a point may stand, in points from it, with its horizontal and vertical alignment; first come
# those that a falling line leaves free.
_PLACES = (
    ((4, 4), "left", "bottom"),
    ((0, 6), "center", "bottom"),
    ((4, -5), "left", "top"),
    ((0, -6), "center", "top"),
    ((-4, 4), "right", "bottom"),
    ((-4, -5), "right", "top"),
)
# Pixels that stay free around a number, which is about a marker's radius.
_CLEAR = 4.0

# A label that more of the items have leaves nothing to agree with.
_CONSTANT = 0.995
# Items of a group, on average, from which on the purity of labels dealt at random is the share of the commonest.
_GROUP = 20


def write_page(quality: Quality, folder: Path | str) -> Path:
    """Write ``folder/quality.html``, one file that needs nothing but a browser; returns its path."""
    folder = Path(folder)
    html = page(TITLE, _subtitle(quality), _lead(quality), _sections(quality), f"Written by ghrq {__version__}.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / "quality.html", html)
    except OSError as error:
        raise UserError(f"cannot write quality.html into {folder}: {error.strerror}; choose another folder") from error
    return folder / "quality.html"


def _sections(quality: Quality) -> list[Section]:
    lost, near, (labels, note) = quality.reconstruction, quality.neighbours, _telling(quality)
    codes = [_usage(quality), _uniqueness(quality), _collisions(quality)]
    vectors = [*([_error(lost)] if lost else []), *([_shared(near)] if near else [])]
    # The best level stands for all; the table has the rest.
    shown = [*([_heat_map(labels)] if len(labels) > 1 else []), *([_label_lines(_best(labels)[2])] if labels else [])]
    return [
        Section("Codes and collisions", (), [Gallery(codes)]),
        Section("Codes and vectors", _vector_words(lost, near), [Gallery(vectors)] if vectors else []),
        Section("Codes and labels", note, [Gallery(shown)] if shown else []),
        Section("All numbers", (), [_numbers(quality), *([_label_table(labels)] if labels else [])]),
    ]


# --- words -------------------------------------------------------------------------------------------------------


def _subtitle(quality: Quality) -> str:
    sizes = quality.codebook_size[: quality.stages]
    size = f"{sizes[0]}" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))
    token = " and a tie-break token" if len(quality.usage) > quality.stages else ""
    return f"{quality.items:,} items, {count(quality.stages, 'code')} of {size} each{token}"


def _lead(quality: Quality) -> list[str]:
    lost, near, (labels, _) = quality.reconstruction, quality.neighbours, _telling(quality)
    alone = quality.collisions["1"] / quality.items
    words = [
        f"**{alone:.1%} of the items have an ID of their own**; the most crowded ID has "
        f"{quality.largest_group[-1]:,} of the {quality.items:,} items."
    ]
    if len(quality.usage) > quality.stages:
        bare = quality.uniqueness[quality.stages - 1]
        words[0] += (
            f" The tie-break token sees to that: **without it, there are {bare:.1%} as many IDs as items**, and the "
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


def _telling(quality: Quality) -> tuple[list[LabelAgreement], list[str]]:
    """The levels of labels that can agree with anything, and a note on those that (all but) everything has alike."""
    groups = round(quality.uniqueness[0] * quality.items)
    kept: list[LabelAgreement] = []
    notes: list[str] = []
    for of in quality.labels:
        commonest = of.shuffled.purity[0] if of.items >= _GROUP * groups else 0.0
        if commonest > _CONSTANT:
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


def _vector_words(lost: ReconstructionError | None, near: NeighbourAgreement | None) -> list[str]:
    words = []
    if lost:
        words.append(f"The error was measured on {lost.rows:,} items.")
    if near:
        words.append(
            f"The exact {near.k} nearest neighbours among all items, by Euclidean distance, were found for "
            f"{near.queries:,} of them."
        )
    return words and [" ".join(words)]


# --- plots -------------------------------------------------------------------------------------------------------


def _usage(quality: Quality) -> Figure:
    stages = range(quality.stages)

    def draw(axes: Any) -> None:
        alike = [perplexity / size for perplexity, size in zip(quality.perplexity, quality.codebook_size, strict=True)]
        shares = (("used at all", BLUE, quality.usage), ("perplexity / size", ORANGE, alike))
        for side, (label, colour, values) in zip((-0.21, 0.21), shares, strict=True):
            places, heights = [stage + 1 + side for stage in stages], [100.0 * values[stage] for stage in stages]
            axes.bar(places, heights, width=0.4, color=colour, label=label)
            for place, height in zip(places, heights, strict=True):
                axes.text(place, height + 1.5, f"{height:.0f}", ha="center", fontsize=8)
        axes.set(xlabel="stage", ylabel="% of the codebook", ylim=(0, 112))
        axes.set_xticks([stage + 1 for stage in stages])
        axes.grid(axis="x", visible=False)

    return draw_figure(
        "usage",
        "Are all codes used, and alike?",
        "Both bars of a stage at 100 is best: the first falls where codes are never chosen, the second where some are "
        "chosen much more often than others.",
        3.4,
        draw,
    )


def _uniqueness(quality: Quality) -> Figure:
    possible, most = [], 1
    for size in quality.codebook_size:
        most = min(most * size, quality.items)
        possible.append(100.0 * most / quality.items)

    def draw(axes: Any) -> None:
        depths = range(1, len(possible) + 1)
        values = [100.0 * value for value in quality.uniqueness]
        _line(axes, possible, (PALE, "X", "at most"), DASHES)
        _line(axes, values, (BLUE, "o", "these IDs"))
        axes.set(xlabel="codes of the ID", ylabel="distinct prefixes, % of items", ylim=(0, 112))
        names = [str(m) if m <= quality.stages else "+ token" for m in depths]
        axes.set_xticks(list(depths), names)
        _number(axes, values, ".1f")

    return draw_figure(
        "uniqueness",
        "How soon is an item told apart?",
        "The closer the blue line is to the dashed one, the better the codes spread the items; where it ends below "
        "100, items share an ID.",
        3.4,
        draw,
    )


def _collisions(quality: Quality) -> Figure:
    sizes, tuples = list(quality.collisions), list(quality.collisions.values())

    def draw(axes: Any) -> None:
        axes.barh(range(len(sizes)), tuples, height=0.62, color=[BLUE, *[ORANGE] * (len(sizes) - 1)])
        for place, number in enumerate(tuples):
            axes.text(1.02, place, f"{number:,}", transform=axes.get_yaxis_transform(), va="center")
        axes.set(xlabel="IDs", ylabel="items of the ID", ylim=(len(sizes) - 0.45, -0.55))
        axes.xaxis.set_major_locator(require("matplotlib.ticker", "train").MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(require("matplotlib.ticker", "train").StrMethodFormatter("{x:,.0f}"))
        axes.set_yticks(range(len(sizes)), [size.replace("-", "–") for size in sizes])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)

    return draw_figure(
        "collisions",
        "How many items share an ID?",
        "The blue bar counts IDs that name one item; everything in orange is a collision, for a policy to resolve "
        "(`append` or `reassign`).",
        2.9,
        draw,
    )


def _error(lost: ReconstructionError) -> Figure:
    def draw(axes: Any) -> None:
        values = [100.0 * value for value in lost.relative]
        axes.axhline(100.0, color=PALE, dashes=DASHES, label="the mean of all vectors")
        _line(axes, values, (BLUE, "o", "the first codes decoded"))
        axes.set(xlabel="codes used", ylabel="squared error, % of variance", ylim=(0, 1.12 * max(100.0, *values)))
        _number(axes, values, ".1f")

    return draw_figure(
        "error",
        "How much of the vectors is lost?",
        "Lower is better, and every code should take the line further down; a flat end says that the last codes add "
        "little.",
        3.4,
        draw,
    )


def _shared(near: NeighbourAgreement) -> Figure:
    def draw(axes: Any) -> None:
        random, close = ([100.0 * value for value in values] for values in (near.shared_random, near.shared))
        _line(axes, random, (PALE, "X", "random pairs"), DASHES)
        _line(axes, close, (BLUE, "o", f"{near.k} nearest neighbours"))
        # Random pairs are near 0: there they must not lie on the axis.
        axes.set(xlabel="first codes in common, at least", ylabel="% of the pairs", ylim=(-8, 112))
        _number(axes, close, ".1f")

    return draw_figure(
        "neighbours",
        "Do close vectors share codes?",
        "The further the blue line is above the dashed one, the more a prefix says about the neighbourhood; both fall "
        "with every code.",
        3.4,
        draw,
    )


def _label_lines(of: LabelAgreement) -> Figure:
    def draw(axes: Any) -> None:
        for name, colour, marker, label in (("purity", GREEN, "s", "purity"), ("nmi", ORANGE, "^", "NMI")):
            _line(axes, getattr(of.codes, name), (colour, marker, label))
            _line(axes, getattr(of.shuffled, name), (colour, marker, f"{label}, shuffled"), DASHES)
        _line(axes, of.codes.ami, (BLUE, "o", "AMI (adjusted)"))
        axes.set(xlabel="first codes in common", ylabel="agreement", ylim=(min(0.0, *of.codes.ami) - 0.08, 1.08))
        _number(axes, of.codes.ami, "z.2f")

    return draw_figure(
        f"labels-{''.join(c if c.isalnum() else '-' for c in of.level)}",
        f"Agreement with {_literal(of.level)}",
        f"Only the distance of a line from the dashed one of its colour (the same groups with labels dealt at random) "
        f"says anything; AMI has that taken off: 0 is chance, 1 is perfect ({of.items:,} items, {of.labels:,} labels).",
        3.9,
        draw,
    )


def _heat_map(labels: list[LabelAgreement]) -> Figure:
    def draw(axes: Any) -> None:
        # Few enough colours for the scale to be drawn, not to be a picture in the picture.
        colours = require("matplotlib", "train").colormaps["cividis"].resampled(48)
        rectangle = require("matplotlib.patches", "train").Rectangle
        scale = require("matplotlib.cm", "train").ScalarMappable(cmap=colours)
        scale.set_clim(0.0, 1.0)
        for row, of in enumerate(labels):
            for depth, value in enumerate(of.codes.ami, start=1):
                axes.add_patch(rectangle((depth - 0.48, row - 0.46), 0.96, 0.92, color=scale.to_rgba(value)))
                axes.text(depth, row, f"{value:z.3f}", ha="center", va="center", color=DARK if value > 0.55 else LIGHT)
        depths = range(1, len(labels[0].codes.ami) + 1)
        axes.set(xlabel="first codes in common", xlim=(0.45, len(depths) + 0.55), ylim=(len(labels) - 0.45, -0.55))
        axes.set_xticks(list(depths))
        axes.set_yticks(range(len(labels)), [_literal(of.level) for of in labels])
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        bar = axes.figure.colorbar(scale, ax=axes, ticks=(0.0, 0.5, 1.0), aspect=12, pad=0.02)
        bar.outline.set_visible(False)
        bar.solids.set_edgecolor("face")  # otherwise there are seams
        bar.ax.tick_params(length=0)

    return draw_figure(
        "levels",
        "Which depth fits which level?",
        "Adjusted mutual information, 0 is chance and 1 perfect: codes that go from coarse to fine have their "
        "brightest cells on the way from the upper left to the lower right.",
        1.2 + 0.42 * len(labels),
        draw,
    )


def _line(axes: Any, values: list[float], look: tuple[str, str, str], dashes: tuple[float, ...] = ()) -> None:
    """A line over depths of a ``look``: colour, marker and label."""
    depths = range(1, len(values) + 1)
    colour, marker, label = look
    axes.plot(depths, values, color=colour, marker=marker, dashes=dashes, label=label)
    axes.set_xticks(list(depths))
    axes.margins(x=0.12)
    axes.grid(axis="x", visible=False)


def _number(axes: Any, values: list[float], spec: str) -> None:
    """Write ``values`` beside their points, on no line and no other number; those with no room there are left out.

    Call it when all else is drawn: where lines are on the paper depends on limits, title and legend.
    """
    figure = axes.figure
    figure.suptitle(" ")
    legend = figure.legend(loc="outside lower center", ncols=2)
    figure.draw_without_rendering()
    legend.remove()
    taken = [line.get_path().transformed(line.get_transform()) for line in axes.lines]
    boxes: list[Any] = []
    for depth, value in enumerate(values, start=1):
        for shift, across, up in _PLACES:
            look = {"ha": across, "va": up, "fontsize": 8, "color": INK, "textcoords": "offset points"}
            text = axes.annotate(format(value, spec), (depth, value), shift, **look)
            box = text.get_window_extent()
            inside = axes.bbox.contains(box.x0, box.y0) and axes.bbox.contains(box.x1, box.y1)
            clear = not any(path.intersects_bbox(box.padded(_CLEAR), filled=False) for path in taken)
            if inside and clear and not box.count_overlaps(boxes):
                boxes.append(box)
                break
            text.remove()


def _literal(name: str) -> str:
    """A column may have any name; matplotlib takes what is between dollars for a formula."""
    return name.replace("$", r"\$")


# --- tables ------------------------------------------------------------------------------------------------------


def _numbers(quality: Quality) -> Table:
    lost, near = quality.reconstruction, quality.neighbours
    columns: dict[Column, Sequence[float]] = {
        Column("codes", ",.0f"): quality.codebook_size,
        Column("used, %"): [100.0 * value for value in quality.usage],
        Column("perplexity"): quality.perplexity,
        Column("distinct, % of items"): [100.0 * value for value in quality.uniqueness],
        Column("largest group", ",.0f"): quality.largest_group,
        Column("mean squared error", ".4g"): lost.mean_squared if lost else [],
        Column("% of the variance", ".2f"): [100.0 * value for value in lost.relative] if lost else [],
        Column("neighbours sharing, %", ".2f"): [100.0 * value for value in near.shared] if near else [],
        Column("random pairs, %", ".2g", aside=True): [100.0 * value for value in near.shared_random] if near else [],
    }
    rows = [
        Row(
            f"depth {m + 1}" if m < quality.stages else "+ tie-break token",
            [Measured((float(values[m]),)) if m < len(values) else None for values in columns.values()],
        )
        for m in range(len(quality.usage))
    ]
    caption = (
        "*Codes*, *used* and *perplexity* are of the one stage, all else is of the first codes up to there. "
        "*Perplexity* is how many codes, used alike, would be as hard to guess."
    )
    return Table("By depth", caption, list(columns), [Block("", rows, compete=False)])


def _label_table(labels: list[LabelAgreement]) -> Table:
    def entries(of: LabelAgreement, m: int) -> list[Measured]:
        codes, shuffled = of.codes, of.shuffled
        measures = (codes.ami, codes.ari, codes.nmi, shuffled.nmi, codes.purity, shuffled.purity)
        return [Measured((values[m],)) for values in measures]

    blocks = [
        Block(
            f"{of.level}: {of.labels:,} labels of {of.items:,} items",
            [Row(f"depth {m + 1}", entries(of, m)) for m in range(len(of.codes.ami))],
            compete=False,
        )
        for of in labels
    ]
    aside = Column("shuffled", ".3f", aside=True)
    columns = [
        Column("AMI", "z.3f"),
        Column("ARI", "z.3f"),
        Column("NMI", ".3f"),
        aside,
        Column("purity", ".3f"),
        aside,
    ]
    caption = (
        "*Shuffled* is the same measure with the labels dealt to the items at random: NMI and purity rise with the "
        "number of groups by themselves. AMI and ARI are adjusted for that, so that chance is 0."
    )
    return Table("Agreement with labels", caption, columns, blocks)
