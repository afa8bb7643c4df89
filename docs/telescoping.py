"""Draw docs/telescoping.svg: one point, taken apart and put together under both rules. Needs nothing but ghrq.

python docs/telescoping.py
"""

import itertools
import math
from pathlib import Path

import torch
from torch import Tensor

from ghrq import ball
from ghrq.quantizer.cascade import aggregate, residual

SIZE, MARGIN = 420, 12
RULES = {"nested": ("#2a9d5c", "nested (ghrq): ends at z"), "chained": ("#d9713a", "chained (naive): drifts away")}


def place(x: Tensor) -> str:
    """A point of the disk on the page."""
    half = SIZE / 2
    a, b = (half + (half - MARGIN) * x * torch.tensor([1.0, -1.0])).tolist()
    return f"{a:.1f},{b:.1f}"


def geodesic(x: Tensor, y: Tensor) -> str:
    """The line of the disk from x to y, as the points of a polyline."""
    steps = torch.linspace(0, 1, 33).unsqueeze(-1)
    return " ".join(place(point) for point in ball.expmap(x, steps * ball.logmap(x, y)))


def dot(x: Tensor, colour: str, radius: float) -> str:
    """A point as a spot."""
    a, b = place(x).split(",")
    return f'<circle cx="{a}" cy="{b}" r="{radius}" fill="{colour}"/>'


def main() -> None:
    """Write the picture beside this file."""
    z = torch.tensor([0.62, 0.66])
    codes, r = [], z
    for angle in (0.45, -0.7, 0.5):
        # A coarse code: some way towards what is left, and off to one side.
        cos, sin = math.cos(angle), math.sin(angle)
        codes.append(0.85 * torch.tensor([[cos, sin], [-sin, cos]]) @ r)
        r = residual(r, codes[-1], 1.0, "nested")
    parts = [f'<circle cx="{SIZE / 2}" cy="{SIZE / 2}" r="{SIZE / 2 - MARGIN}" fill="#f7f7f4" stroke="#555"/>']
    for row, (rule, (colour, label)) in enumerate(RULES.items()):
        # The same three codes under both rules, and what each rule says is left; a rule that fits ends at z.
        r = z
        for q in codes:
            r = residual(r, q, 1.0, rule)
        pieces = [*codes, r]
        stops = [torch.zeros(2)] + [aggregate(pieces[: i + 1], 1.0, rule).point for i in range(len(pieces))]
        for i, (start, stop) in enumerate(itertools.pairwise(stops)):
            dash = ' stroke-dasharray="4 3"' if i == len(codes) else ""
            parts.append(
                f'<polyline points="{geodesic(start, stop)}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
            )
            parts.append(dot(stop, colour, 5 if i == len(codes) else 3.5))
        y = SIZE + 22 + 20 * row
        parts.append(f'<rect x="14" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="34" y="{y}">{label}</text>')
    a, b = place(z).split(",")
    parts.append(f'<circle cx="{a}" cy="{b}" r="9" fill="none" stroke="#222" stroke-width="1.5"/>')
    parts.append(f'<text x="{float(a) + 13}" y="{float(b) + 4}" font-weight="bold">z</text>')
    parts.append(dot(torch.zeros(2), "#222", 3))
    parts.append(f'<text x="14" y="{SIZE + 62}">dashed: the last residual, added to the three codes</text>')
    page = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE + 74}" width="{SIZE}" '
        f'font-family="sans-serif" font-size="14">\n<rect width="100%" height="100%" fill="white"/>\n'
    )
    Path(__file__).with_suffix(".svg").write_text(page + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    main()
