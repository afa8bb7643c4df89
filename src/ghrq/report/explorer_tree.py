"""The prefixes of code tuples as a tree: what the explorer draws, as columns of numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.ids.tuples import tuple_ids
from ghrq.quantizer import ResidualQuantizer
from ghrq.system.progress import Progress

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SILENT = Progress()

# Nearest codes that are kept of each code, and steps of the power iteration that orders siblings.
_NEAR, _POWER = 32, 12

# Rows whose distances are computed at once.
_ROWS = 2**14

# The distance from the origin that the deepest nodes of flat space get in the median, as if their radius was 0.5.
_FLAT_DISTANCE = 2.0 * float(np.arctanh(0.5))


@dataclass(frozen=True, eq=False)
class NearCodes:
    """The nearest codes of each code of one stage, among the ``used`` ones.

    Adding on the left keeps distances, so these are the distances of decoded siblings, too, whatever their prefix.
    """

    used: Ints
    """``(u,)`` the codes that occur, ascending."""
    codes: Ints
    """``(u, k)`` the nearest other ones, the nearest first."""
    distances: Floats
    """``(u, k)`` on the ball of curvature 1; in flat space twice the Euclidean distance."""


@dataclass(frozen=True, eq=False)
class CodeTree:
    """All prefixes of some items' code tuples: a root, then level by level, children of one parent side by side.

    Siblings are in the order of their main direction, so that neighbours are alike; those of the root go round in the
    plane of the two main directions.
    """

    children: Ints
    """``(nodes,)`` how many each has."""
    code: Ints
    """``(nodes,)`` the last code of each prefix; 0 for the root."""
    count: Ints
    """``(nodes,)`` items, with those that are not shown."""
    distance: Floats
    """``(nodes,)`` of the decoded point from the origin of the ball, on curvature 1; flat space is scaled to fit."""
    like: Ints
    """``(nodes,)`` the shown item that speaks for it, as its place in ``order``; see :func:`_like`."""
    order: Ints
    """``(n,)`` the shown items in the order of the leaves."""
    leaf_items: Ints
    """``(leaves,)`` shown items of each leaf."""
    near: list[NearCodes]
    """Of each stage."""


@dataclass(frozen=True, eq=False)
class _Level:
    """The prefixes of one depth, in the order of their tuples."""

    of_item: Ints
    """``(n,)`` the prefix of each shown item."""
    parent: Ints
    code: Ints
    count: Ints
    points: Tensor
    """``(prefixes, dim)`` what they decode to, on the ball."""


def code_tree(
    codes: npt.NDArray[Any], shown: Ints, quantizer: ResidualQuantizer, progress: Progress = SILENT
) -> CodeTree:
    """The tree of ``codes (N, m)``, all items, with the prefixes of the items ``shown (n,)``."""
    levels: list[_Level] = []
    of_parent = np.zeros(len(shown), dtype=np.int64)
    with progress.patient_bar("decoding prefixes", codes.shape[1], "depths") as bar:
        for depth in range(1, codes.shape[1] + 1):
            every = tuple_ids(codes[:, :depth])
            kept, first, of_item = np.unique(every[shown], return_index=True, return_inverse=True)
            prefixes = codes[shown[first], :depth].astype(np.int64)
            z = quantizer.decode(torch.from_numpy(prefixes))
            points, count = quantizer.points(z), np.bincount(every)[kept]
            levels.append(_Level(of_item, of_parent[first], prefixes[:, -1], count, points))
            of_parent = of_item
            bar.advance()
    return _in_order(levels, len(codes), quantizer.curvature, _near_codes(quantizer, levels))


def _in_order(levels: list[_Level], items: int, c: float, near: list[NearCodes]) -> CodeTree:
    """Put siblings side by side, alike ones next to each other, and items in the order of the leaves."""
    children: list[Ints] = []
    parts: list[tuple[Ints, Ints, Floats]] = [(np.zeros(1, np.int64), np.array([items]), np.zeros(1))]
    place_of_parent, sorted_levels = np.zeros(1, dtype=np.int64), []
    origin = torch.zeros(1, levels[0].points.shape[1])
    for level in levels:
        parent = place_of_parent[level.parent]
        key = _round(level.points) if len(place_of_parent) == 1 else _along(level.points, parent)
        order = np.lexsort((key, parent))
        children.append(np.bincount(parent, minlength=len(place_of_parent)))
        away = ball.distance(level.points, origin, c).numpy() * (c**0.5 or 1.0)
        parts.append((level.code[order], level.count[order], away[order]))
        place_of_parent = np.argsort(order)
        sorted_levels.append(order)
    children.append(np.zeros(len(place_of_parent), dtype=np.int64))
    code, count, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
    if c == 0.0:
        distance *= _FLAT_DISTANCE / max(float(np.median(parts[-1][2])), np.finfo(np.float64).tiny)
    leaf_of_item = place_of_parent[levels[-1].of_item]
    order = np.argsort(leaf_of_item, kind="stable")
    like = _like(levels, sorted_levels, order, c)
    return CodeTree(np.concatenate(children), code, count, distance, like, order, np.bincount(leaf_of_item), near)


def _like(levels: list[_Level], sorted_levels: list[Ints], order: Ints, c: float) -> Ints:
    """For the root and every prefix, the place of the item that speaks for it.

    It makes the shortest detour on the way from the origin to the prefix: near to it, and rather general than special,
    as general things are near the origin where the vectors form a hierarchy.
    """
    leaves, leaf = levels[-1].points, levels[-1].of_item[order]
    origin = torch.zeros(1, leaves.shape[1])
    parts = []
    nothing = np.zeros(1, dtype=np.int64)
    root = _Level(np.zeros_like(leaf), nothing, nothing, nothing, origin)
    for level, placed in zip([root, *levels], [nothing, *sorted_levels], strict=True):
        prefix = level.of_item[order]
        away = np.empty(len(leaf))
        for start in range(0, len(leaf), _ROWS):
            here = slice(start, start + _ROWS)
            x = leaves[leaf[here]]
            away[here] = (ball.distance(x, level.points[prefix[here]], c) + ball.distance(x, origin, c)).numpy()
        nearest = np.lexsort((away, prefix))
        _, first = np.unique(prefix[nearest], return_index=True)
        parts.append(nearest[first][placed])
    return np.concatenate(parts)


def _round(points: Tensor) -> Floats:
    """The angle of each of ``points (n, dim)`` in the plane of their two main directions."""
    centred = (points - points.mean(0)).double().numpy()
    _, vectors = np.linalg.eigh(centred.T @ centred)
    plane = centred @ vectors[:, :-3:-1]
    return np.arctan2(plane[:, -1], plane[:, 0])


def _along(points: Tensor, parent: Ints) -> Floats:
    """Each of ``points (n, dim)`` along the main direction of the children of its ``parent (n,)``, of all at once."""
    order = np.argsort(parent, kind="stable")
    family, starts = np.unique(parent[order], return_index=True)
    of = np.repeat(np.arange(len(family)), np.diff(np.append(starts, len(order))))
    x = points.numpy()[order]
    x = x - (np.add.reduceat(x, starts) / np.bincount(of)[:, None]).astype(x.dtype)[of]
    # A start that is the same on every machine, and orthogonal to nothing in particular.
    direction = np.tile(np.cos(np.arange(1.0, x.shape[1] + 1.0)).astype(x.dtype), (len(family), 1))
    for _ in range(_POWER):
        direction = np.add.reduceat(np.einsum("nd,nd->n", x, direction[of])[:, None] * x, starts)
        direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), np.finfo(x.dtype).tiny)
    key = np.empty(len(order))
    key[order] = np.einsum("nd,nd->n", x, direction[of])
    return key


def _near_codes(quantizer: ResidualQuantizer, levels: list[_Level]) -> list[NearCodes]:
    c, result = quantizer.curvature, []
    for stage, level in enumerate(levels):
        used = np.unique(level.code)
        points = quantizer.codebooks[stage].detach()[torch.from_numpy(used)].double()
        count = min(_NEAR, len(used) - 1)
        away = ball.pairwise_distance(points, points, c).fill_diagonal_(torch.inf) * (c**0.5 or 1.0)
        distances, places = away.sort(dim=1, stable=True)
        result.append(NearCodes(used, used[places[:, :count].numpy()], distances[:, :count].numpy()))
    return result
