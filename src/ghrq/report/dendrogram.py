"""A dendrogram with all its leaves named, coloured by their known groups."""

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ghrq.report.figures import INK, PALE, Figure, draw_figure
from ghrq.system.errors import require

# Inches and points: 100 leaves make a tall figure, but each can be read.
_LEAF, _TEXT = 0.125, 6.5
# Of the colours of groups: both have a contrast of 3 to 1 with a white page and with a dark one.
_LUMINANCES = 0.15, 0.29


def dendrogram(
    name: str,
    title: str,
    caption: str,
    linkage: npt.ArrayLike,
    leaf_names: Sequence[str],
    group_of: npt.ArrayLike,
    group_names: Sequence[str],
) -> Figure:
    """The tree from its root on the left to its leaves on the right, one line each.

    A leaf has a square in its group's colour, its name, and the name of its group. A branch whose leaves are all of one
    group has the colour of the group; so the more of the tree is coloured, the better it follows the groups.
    ``linkage (m - 1, 4)`` are the merges of m leaves as scipy writes them, ``group_of (m,)`` the group of each leaf.
    """
    merges, groups = np.asarray(linkage, dtype=np.float64), np.asarray(group_of, dtype=np.int64)
    if merges.shape != (len(leaf_names) - 1, 4) or groups.shape != (len(leaf_names),):
        raise ValueError(
            f"expected merges (m - 1, 4) and groups (m,) of m={len(leaf_names)} leaves, "
            f"got {merges.shape} and {groups.shape}"
        )
    colours = [*_colours(len(group_names)), PALE]
    # The group of each leaf, then of each merge; -1, the last colour, where a merge has leaves of several.
    owner = groups.tolist()
    for a, b in merges[:, :2].astype(np.int64):
        owner.append(owner[a] if owner[a] == owner[b] else -1)
    tree = require("scipy.cluster.hierarchy", "image").dendrogram(
        merges, no_plot=True, link_color_func=lambda node: colours[owner[node]]
    )
    order = tree["leaves"]

    def draw(axes: Any) -> None:
        lines = require("matplotlib.collections", "train").LineCollection
        # Leaves stand at 5, 15, 25 … in scipy's coordinates.
        paths = np.stack((np.asarray(tree["dcoord"]), np.asarray(tree["icoord"]) / 10.0 - 0.5), axis=-1)
        axes.add_collection(lines(paths, colors=tree["color_list"], linewidths=1.1, capstyle="projecting"))
        rows = np.arange(len(order))
        # Right of the axis, where they hide no merge.
        beside, shown = axes.get_yaxis_transform(), [colours[groups[leaf]] for leaf in order]
        axes.scatter(np.full(len(rows), 1.02), rows, s=16, c=shown, marker="s", transform=beside, clip_on=False)
        axes.set(xlim=(float(merges[:, 2].max()) * 1.02, 0.0), ylim=(len(rows) - 0.4, -0.6), xlabel="distance")
        axes.yaxis.tick_right()
        axes.set_yticks(rows, [leaf_names[leaf] for leaf in order], fontsize=_TEXT, color=INK)
        axes.tick_params(axis="y", length=0, pad=9)
        axes.spines[["left", "right"]].set_visible(False)
        axes.grid(axis="y", visible=False)
        # A second column of text, right of the longest name of a leaf.
        groups_axis = axes.secondary_yaxis(1.0)
        groups_axis.set_yticks(rows, [group_names[groups[leaf]] for leaf in order], fontsize=_TEXT, color=PALE)
        widest = max(len(leaf) for leaf in leaf_names)
        groups_axis.tick_params(axis="y", length=0, pad=12 + 0.6 * _TEXT * widest)
        groups_axis.spines[:].set_visible(False)

    return draw_figure(name, title, caption, 1.0 + _LEAF * len(order), draw)


def _colours(count: int) -> list[str]:
    """Hues around the circle, darker and lighter in turn, so that neighbours differ in more than hue."""
    shades = [_shade(i / count, _LUMINANCES[i % 2]) for i in range(count)]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in shade) for shade in shades]


def _shade(hue: float, luminance: float) -> tuple[float, float, float]:
    """Red, green and blue of a hue with this luminance, which lightness in HLS does not give."""
    steps = [colorsys.hls_to_rgb(hue, lightness / 256, 0.7) for lightness in range(257)]
    return min(steps, key=lambda shade: abs(relative_luminance(shade) - luminance))


def relative_luminance(colour: Sequence[float]) -> float:
    """Relative luminance (WCAG) of a colour of sRGB, red, green and blue from 0 to 1: black 0, white 1."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
