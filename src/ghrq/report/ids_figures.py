"""Plots of the quality of semantic IDs."""

from typing import Any

from ghrq.metrics.labels import LabelAgreement
from ghrq.metrics.quality import NeighbourAgreement, Quality, ReconstructionError
from ghrq.report.figures import INK, PALE, Figure, draw_figure
from ghrq.report.kinds import KINDS
from ghrq.system.errors import require

BLUE, ORANGE, GREEN = (KINDS[kind].colour for kind in ("ghrq", "naive", "euclidean"))

# Of text on a coloured background, which is the same in the light and the dark theme of the page.
DARK, LIGHT = "#000000", "#fffffe"

# Of a line to compare with: short enough for the key in the legend to show them beside its marker.
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
# Pixels that stay free around a number: about the radius of a marker.
_CLEAR = 4.0


def usage_figure(quality: Quality) -> Figure:
    """Which share of each codebook is used, and how evenly."""
    stages = range(quality.stages)

    def draw(axes: Any) -> None:
        alike = [perplexity / size for perplexity, size in zip(quality.perplexity, quality.codebook_size, strict=True)]
        shares = (("used at all", BLUE, quality.usage), ("perplexity / size", ORANGE, alike))
        for side, (label, colour, values) in zip((-0.21, 0.21), shares, strict=True):
            places, heights = [stage + 1 + side for stage in stages], [100.0 * values[stage] for stage in stages]
            drawn = axes.bar(places, heights, width=0.4, color=colour, label=label)
            axes.bar_label(drawn, fmt="{:.0f}", padding=2, fontsize=8)
        axes.set(xlabel="stage", ylabel="% of the codebook", ylim=(0, 112))
        axes.set_xticks([stage + 1 for stage in stages])
        axes.grid(axis="x", visible=False)

    caption = (
        "Both bars of a stage at 100 is best: the first falls where codes are never chosen, the second where some are "
        "chosen much more often than others."
    )
    return draw_figure("usage", "Are all codes used, and alike?", caption, 3.4, draw)


def uniqueness_figure(quality: Quality) -> Figure:
    """Distinct prefixes by depth, beside the most there can be."""
    possible, most = [], 1
    for size in quality.codebook_size:
        most = min(most * size, quality.items)
        possible.append(100.0 * most / quality.items)

    def draw(axes: Any) -> None:
        depths = range(1, len(possible) + 1)
        values = [100.0 * value for value in quality.uniqueness]
        depth_line(axes, possible, (PALE, "X", "at most"), DASHES)
        depth_line(axes, values, (BLUE, "o", "these IDs"))
        axes.set(xlabel="codes of the ID", ylabel="distinct prefixes, % of items", ylim=(0, 112))
        names = [str(m) if m <= quality.stages else "+ token" for m in depths]
        axes.set_xticks(list(depths), names)
        write_numbers(axes, values, ".1f")

    caption = (
        "The closer the blue line is to the dashed one, the better the codes spread the items; where it ends below "
        "100, items share an ID."
    )
    return draw_figure("uniqueness", "How soon is an item told apart?", caption, 3.4, draw)


def collisions_figure(quality: Quality) -> Figure:
    """How many IDs belong to one item, to two, and so on."""
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

    caption = (
        "The blue bar counts IDs of a single item; everything in orange is a collision, for a policy to resolve "
        "(`append` or `reassign`)."
    )
    return draw_figure("collisions", "How many items share an ID?", caption, 2.9, draw)


def error_figure(lost: ReconstructionError) -> Figure:
    """Reconstruction error by depth."""

    def draw(axes: Any) -> None:
        values = [100.0 * value for value in lost.relative]
        axes.axhline(100.0, color=PALE, dashes=DASHES, label="the mean of all vectors")
        depth_line(axes, values, (BLUE, "o", "the first codes decoded"))
        axes.set(xlabel="codes used", ylabel="squared error, % of variance", ylim=(0, 1.12 * max(100.0, *values)))
        write_numbers(axes, values, ".1f")

    caption = "Lower is better, and every code should lower the line; a flat end means that the last codes add little."
    return draw_figure("error", "How much of the vectors is lost?", caption, 3.4, draw)


def neighbour_figure(near: NeighbourAgreement) -> Figure:
    """Which share of neighbours and of random pairs have the first codes in common, by depth."""

    def draw(axes: Any) -> None:
        random, close = ([100.0 * value for value in values] for values in (near.shared_random, near.shared))
        depth_line(axes, random, (PALE, "X", "random pairs"), DASHES)
        depth_line(axes, close, (BLUE, "o", f"{near.k} nearest neighbours"))
        # Random pairs are near 0: their line must not lie on the axis.
        axes.set(xlabel="first codes in common, at least", ylabel="% of the pairs", ylim=(-8, 112))
        write_numbers(axes, close, ".1f")

    caption = (
        "The further the blue line is above the dashed one, the more a prefix says about the neighbourhood; both fall "
        "with every code."
    )
    return draw_figure("neighbours", "Do close vectors share codes?", caption, 3.4, draw)


def label_figure(of: LabelAgreement) -> Figure:
    """Agreement with one level of labels by depth, beside shuffled labels."""

    def draw(axes: Any) -> None:
        for name, colour, marker, label in (("purity", GREEN, "s", "purity"), ("nmi", ORANGE, "^", "NMI")):
            depth_line(axes, getattr(of.codes, name), (colour, marker, label))
            depth_line(axes, getattr(of.shuffled, name), (colour, marker, f"{label}, shuffled"), DASHES)
        depth_line(axes, of.codes.ami, (BLUE, "o", "AMI (adjusted)"))
        axes.set(xlabel="first codes in common", ylabel="agreement", ylim=(min(0.0, *of.codes.ami) - 0.08, 1.08))
        write_numbers(axes, of.codes.ami, "z.2f")

    caption = (
        f"Only the distance of a line from the dashed one of its colour (the same groups with shuffled labels) says "
        f"anything; AMI is adjusted for that: 0 is chance, 1 is perfect ({of.items:,} items, {of.labels:,} labels)."
    )
    return draw_figure(
        f"labels-{''.join(c if c.isalnum() else '-' for c in of.level)}",
        f"Agreement with {_literal(of.level)}",
        caption,
        3.9,
        draw,
    )


def level_figure(labels: list[LabelAgreement]) -> Figure:
    """Agreement of every depth with every level, as a heat map."""

    def draw(axes: Any) -> None:
        # Few enough colours for the scale to be drawn as vectors, not as an embedded image.
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

    caption = (
        "Adjusted mutual information, 0 is chance and 1 perfect: codes that go from coarse to fine have their "
        "brightest cells on the way from the upper left to the lower right."
    )
    return draw_figure("levels", "Which depth fits which level?", caption, 1.2 + 0.42 * len(labels), draw)


def depth_line(axes: Any, values: list[float], look: tuple[str, str, str], dashes: tuple[float, ...] = ()) -> None:
    """A line over depths of a ``look``: colour, marker and label."""
    depths = range(1, len(values) + 1)
    colour, marker, label = look
    axes.plot(depths, values, color=colour, marker=marker, dashes=dashes, label=label)
    axes.set_xticks(list(depths))
    axes.margins(x=0.12)
    axes.grid(axis="x", visible=False)


def write_numbers(axes: Any, values: list[float], spec: str) -> None:
    """Write ``values`` beside their points, on no line and no other number; those without room are left out.

    Call it last: where lines are in the figure depends on limits, title and legend.
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
            around = box.padded(_CLEAR)  # the layout of the finished figure may differ a little
            inside = axes.bbox.contains(around.x0, around.y0) and axes.bbox.contains(around.x1, around.y1)
            clear = not any(path.intersects_bbox(around, filled=False) for path in taken)
            if inside and clear and not box.count_overlaps(boxes):
                boxes.append(box)
                break
            text.remove()


def _literal(name: str) -> str:
    """A column may have any name; matplotlib reads text between dollars as a formula."""
    return name.replace("$", r"\$")
