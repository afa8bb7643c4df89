"""The explorer's JavaScript by node's test runner: numbers of the ball, and columns that Python packed."""

import base64
import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from explored import small_codes

from ghrq import ball
from ghrq.report.explorer_page import ItemTexts, explorer_page, pack

HERE = Path(__file__).parent / "explorer"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed: the explorer's JavaScript is not tested")


def points(count, most, seed):
    """``(count, 2)`` in the disk, up to the radius ``most``."""
    random = torch.Generator().manual_seed(seed)
    radius = most * torch.rand(count, dtype=torch.float64, generator=random) ** 0.25
    angle = 2 * math.pi * torch.rand(count, dtype=torch.float64, generator=random)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)


def records(**columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]


def nested(steps):
    """The nested sum of steps (angle, distance), the last one first, and its gap."""
    total, gap = torch.zeros(2, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    for angle, distance in reversed(steps):
        x = math.tanh(distance / 2) * torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        alpha = torch.tensor([1 / math.cosh(distance / 2) ** 2], dtype=torch.float64)
        total, gap = ball.mobius_add_with_gaps(x, alpha, total, gap, 1.0)
    return {"steps": steps, "sum": total.tolist(), "gap": gap.item()}


def disk_numbers():
    rim, x, y, w = points(60, 1.0, 0), points(60, 0.999, 1), points(60, 0.999, 2), points(60, 0.97, 3)
    a, b = points(60, 0.97, 4), points(60, 0.97, 5)
    dragged = ball.mobius_add(ball.mobius_add(b, -ball.gyration(b, a, a)), w)  # (b ⊟ a) ⊕ w
    random = np.random.default_rng(6)
    ways = [
        [*zip(random.uniform(-1, 1, 9).tolist(), random.uniform(0.2, 4, 9).tolist(), strict=True)] for _ in range(30)
    ]
    along = torch.stack([ball.expmap(a, t * ball.logmap(a, b)) for t in (0.0, 0.2, 0.5, 0.9, 1.0)], dim=1)
    return {
        "gaps": records(x=rim, gap=ball.gap(rim).squeeze(-1)),
        "sums": records(x=x, y=w, sum=ball.mobius_add(x, w)),
        "distances": records(x=x, y=y, distance=ball.distance(x, y)),
        "drags": records(a=a, b=b, w=w, moved=dragged),
        "chains": [nested(way) for way in ways],
        "geodesics": records(a=a, b=b, points=along),
        "flights": records(y=y, half=ball.expmap0(ball.logmap0(y) / 2)),
    }


def tree_numbers(explored):
    codes, quantizer = explored.codes, explored.quantizer
    labels = [f"item {row}" for row in range(len(codes))]
    prefixes, siblings = [], []
    for depth in range(1, codes.shape[1] + 1):
        for prefix in np.unique(codes[:, :depth], axis=0)[::7]:
            rows = np.flatnonzero((codes[:, :depth] == prefix).all(1))
            prefixes.append({"codes": prefix.tolist(), "labels": sorted(labels[r] for r in rows), "count": len(rows)})
            family = np.unique(codes[(codes[:, : depth - 1] == prefix[:-1]).all(1), :depth], axis=0)
            place = quantizer.points(quantizer.decode(torch.from_numpy(family)))
            away = ball.distance(place[(family == prefix).all(1).argmax()], place, quantizer.curvature)
            order = [i for i in away.argsort().tolist() if (family[i] != prefix).any()]
            siblings.append(
                {"codes": prefix.tolist(), "siblings": [[int(family[i, -1]), away[i].item()] for i in order[:4]]}
            )
    items = [{"label": label, "codes": row.tolist()} for label, row in zip(labels, codes, strict=True)]
    return labels, {"items": items, "prefixes": prefixes, "siblings": siblings}


@pytest.mark.slow
def test_the_javascript_of_the_explorer(tmp_path, monkeypatch):
    explored = small_codes()
    labels, numbers = tree_numbers(explored)
    packed = {}
    monkeypatch.setattr("ghrq.report.explorer_page.pack", lambda *data: packed.setdefault("data", pack(*data)))
    sides = ["left" if row % 3 else "right" for row in range(len(labels))]
    explorer_page([explored], np.arange(len(labels)), ItemTexts(labels, colours=sides), "title")
    (tmp_path / "data.txt").write_bytes(base64.b64encode(packed["data"]))
    (tmp_path / "tree.json").write_text(json.dumps(numbers))
    (tmp_path / "disk.json").write_text(json.dumps(disk_numbers()))
    done = subprocess.run(
        [NODE, "--test", *sorted(map(str, HERE.glob("*.test.mjs")))],
        env=os.environ | {"GHRQ_REFERENCE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass" in done.stdout or "ℹ pass" in done.stdout
