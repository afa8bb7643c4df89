"""The picture of a tree: every leaf named in the tree's order, pure branches in their group's colour."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from scipy.cluster.hierarchy import leaves_list, linkage

from ghrq.report.dendrogram import _colours, dendrogram, relative_luminance
from ghrq.report.figures import INK, PALE

SVG = "{http://www.w3.org/2000/svg}"
POINTS = np.array([0.0, 0.1, 5.0, 5.3, 9.0])  # (a b) and (c d) pure or not by their groups; e apart
NAMES = ["ape", "bee", "cow", "dog", "elk"]


def drawn(groups, points=POINTS, names=NAMES, labels=("red things", "blue things", "others")):
    return dendrogram("tree", "A tree", "Caption.", linkage(points[:, None], "average"), names, groups, labels)


def texts(figure):
    """Their places from the top and what they say."""
    nodes = ElementTree.fromstring(figure.svg).iter(f"{SVG}text")
    return [("".join(node.itertext()).strip(), node) for node in nodes]


def links(figure):
    """The colours of the branches, each with its corners."""
    found = re.findall(r'<path d="([^"]*)"[^>]*style="fill: none; stroke: (#\w{6}); stroke-width: 1.1', figure.svg)
    return [(colour, re.findall(r"[ML] ([\d.]+) ([\d.]+)", path)) for path, colour in found]


def test_leaves_stand_in_the_order_of_the_tree_with_their_groups():
    groups = np.array([0, 0, 1, 2, 2])
    said = [text for text, _ in texts(drawn(groups))]
    order = leaves_list(linkage(POINTS[:, None], "average"))
    leaves = [text for text in said if text in NAMES]
    assert leaves == [NAMES[leaf] for leaf in order]
    labels = ["red things", "blue things", "others"]
    assert [text for text in said if text in labels] == [labels[groups[leaf]] for leaf in order]
    assert {"A tree", "distance"} <= set(said)


def test_only_branches_of_one_group_have_its_colour():
    red, blue, other = _colours(3)
    colours = [colour for colour, _ in links(drawn([0, 0, 1, 2, 2]))]
    assert sorted(colours) == sorted([red, PALE, PALE, PALE])
    colours = [colour for colour, _ in links(drawn([0, 0, 1, 1, 1]))]
    assert sorted(colours) == sorted([red, blue, blue, PALE])
    assert other not in "".join(colours)


def test_branches_are_as_long_as_the_distances():
    heights = linkage(POINTS[:, None], "average")[:, 2]
    reach = []
    for _, corners in links(drawn([0, 0, 1, 1, 1])):
        x = [float(corner[0]) for corner in corners]
        reach.append(min(x))
    axis = np.polyfit(np.sort(heights)[::-1], np.sort(reach), 1)
    np.testing.assert_allclose(np.polyval(axis, np.sort(heights)[::-1]), np.sort(reach), atol=0.01)
    assert axis[0] < 0.0


def test_colours_differ_and_show_on_a_light_and_on_a_dark_page():
    colours = _colours(20)
    assert len(set(colours)) == 20
    assert not {INK, PALE} & set(colours)
    dark = relative_luminance([int("171b20"[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    for colour in colours:
        light = relative_luminance([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        assert 1.05 / (light + 0.05) > 3.0
        assert (light + 0.05) / (dark + 0.05) > 3.0
    assert relative_luminance([1.0, 1.0, 1.0]) == pytest.approx(1.0)


def test_a_hundred_leaves_get_a_line_each():
    points = np.random.default_rng(0).normal(size=100)
    figure = drawn(np.arange(100) % 3, points, [f"class {i}" for i in range(100)])
    places = [
        float(node.get("y") or re.search(r"translate\([\d.]+ ([\d.]+)", node.get("transform"))[1])
        for text, node in texts(figure)
        if text.startswith("class")
    ]
    assert len(places) == 100
    assert np.diff(np.sort(places)).min() > 7.0


def test_names_that_do_not_fit_the_tree_are_an_error():
    with pytest.raises(ValueError, match="m=4 leaves"):
        drawn([0, 0, 1, 2, 2], names=NAMES[:4])
