"""Draw the figures of the documentation into docs/figures, as SVG, from the library's own functions.

python scripts/draw_figures.py

Colours are those of the page around them (``currentColor``, ``var(--good)``), with a fallback for a file by itself.
"""

import itertools
import math
from pathlib import Path

import torch
from torch import Tensor

from ghrq import ResidualQuantizer, ball
from ghrq.quantizer.cascade import aggregate, residual

OUT = Path(__file__).parents[1] / "docs" / "figures"
GOOD, BAD, MAIN = "var(--good, #1b7a45)", "var(--bad, #b5501a)", "var(--md-typeset-a-color, #4051b5)"
SIZE, MARGIN = 300, 8


class Disk:
    """The Poincaré disk as parts of an SVG, with its upper left corner at ``(x, y)``."""

    def __init__(self, x: float = 0.0, y: float = 0.0, size: float = SIZE) -> None:
        self.x, self.y, self.half = x + size / 2, y + size / 2, size / 2
        self.scale = self.half - MARGIN
        self.parts = [
            f'<circle cx="{self.x}" cy="{self.y}" r="{self.scale}" fill="currentColor" fill-opacity=".04" '
            'stroke="currentColor" stroke-opacity=".5"/>'
        ]

    def place(self, point: Tensor) -> tuple[float, float]:
        """A point of the disk on the page."""
        a, b = point.tolist()
        return round(self.x + self.scale * a, 1), round(self.y - self.scale * b, 1)

    def line(self, x: Tensor, y: Tensor, colour: str = "currentColor", width: float = 1.5, more: str = "") -> None:
        """The geodesic from x to y."""
        steps = torch.linspace(0, 1, 33).unsqueeze(-1)
        way = ball.expmap(x, steps * ball.logmap(x, y))
        places = " ".join(f"{a},{b}" for a, b in map(self.place, way))
        self.parts.append(
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"{more and " " + more}/>'
        )

    def dot(self, x: Tensor, colour: str = "currentColor", radius: float = 3.5) -> None:
        """A point as a spot."""
        a, b = self.place(x)
        self.parts.append(f'<circle cx="{a}" cy="{b}" r="{radius}" fill="{colour}"/>')

    def text(self, x: Tensor, label: str, dx: float = 8, dy: float = 4) -> None:
        """A label beside a point."""
        a, b = self.place(x)
        self.parts.append(text(a + dx, b + dy, label))


def text(x: float, y: float, label: str, anchor: str = "start", colour: str = "currentColor") -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{label}</text>'


def save(name: str, width: float, height: float, parts: list[str]) -> None:
    """Write ``docs/figures/NAME.svg``."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
    style = 'font-family="system-ui, sans-serif" font-size="13">\n'
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.svg").write_text(head + style + "\n".join(parts) + "\n</svg>\n", "utf-8")


def turn(point: Tensor, angle: float) -> Tensor:
    """A point of the plane, turned about the origin."""
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]]) @ point


def draw_ball() -> None:
    """Left: a tree whose edges all have the same length. Right: circles of the same size."""
    tree, circles = Disk(), Disk(SIZE + 40)
    length = torch.tensor([math.tanh(1.2 / 2), 0.0])

    def grow(point: Tensor, heading: float, depth: int) -> None:
        if depth == 0:
            return
        for angle in (-0.9, 0.0, 0.9) if depth < 4 else (0.0, math.pi / 2, math.pi, -math.pi / 2):
            step = turn(length, heading + angle)
            child = ball.mobius_add(point, step)
            tree.line(point, child, MAIN, 1.6 if depth > 2 else 0.9)
            tree.dot(child, MAIN, 0.7 + 0.7 * depth)
            back = ball.mobius_sub(child, point)  # where the parent is, seen from the child
            grow(child, math.atan2(-back[1].item(), -back[0].item()), depth - 1)

    grow(torch.zeros(2), 0.0, 4)
    tree.dot(torch.zeros(2), MAIN, 4)
    around = torch.linspace(0, 2 * math.pi, 49)
    ring = math.tanh(0.35 / 2) * torch.stack([around.cos(), around.sin()], dim=1)
    for distance, count in ((0.0, 1), (0.95, 6), (1.9, 15), (2.85, 39)):
        for k in range(count):
            centre = turn(torch.tensor([math.tanh(distance / 2), 0.0]), 2 * math.pi * k / count)
            places = " ".join(f"{a},{b}" for a, b in map(circles.place, ball.mobius_add(centre, ring)))
            circles.parts.append(f'<polygon points="{places}" fill="{GOOD}" fill-opacity=".6"/>')
    labels = [text(SIZE / 2, SIZE + 16, "all edges have the same length", "middle")]
    labels.append(text(1.5 * SIZE + 40, SIZE + 16, "all circles have the same size", "middle"))
    save("ball", 2 * SIZE + 40, SIZE + 26, tree.parts + circles.parts + labels)


def draw_distance() -> None:
    """The distance from the origin against the radius, and the length of the straight line."""
    width, height, left, low = 470, 220, 46, 190
    radii = torch.cat([torch.linspace(0, 0.95, 60), torch.linspace(0.952, 0.9993, 60)])
    lengths = ball.distance(torch.zeros(2), torch.stack([radii, torch.zeros(120)], dim=1))

    def place(radius: float, length: float) -> str:
        return f"{left + radius * (width - left - 90):.1f},{low - length * 20:.1f}"

    parts = [f'<path d="M{left},12 V{low} H{width - 40}" fill="none" stroke="currentColor" stroke-opacity=".5"/>']
    for radius in (0.0, 0.5, 0.9, 1.0):
        x = float(place(radius, 0).split(",")[0])
        parts.append(text(x, low + 16, f"{radius:g}", "middle"))
    for length in (0, 2, 4, 6, 8):
        parts.append(text(left - 8, low - 20 * length + 4, str(length), "end"))
    edge = float(place(1, 0).split(",")[0])
    parts.append(
        f'<line x1="{edge}" y1="12" x2="{edge}" y2="{low}" stroke="currentColor" stroke-opacity=".5" '
        'stroke-dasharray="3 3"/>'
    )
    curve = " ".join(place(r, d) for r, d in zip(radii.tolist(), lengths.tolist(), strict=True))
    parts.append(f'<polyline points="{curve}" fill="none" stroke="{MAIN}" stroke-width="2.2"/>')
    parts.append(text(left + 10, 24, "distance from the origin"))
    parts.append(text((left + edge) / 2, low + 30, "radius on the ball", "middle"))
    parts.append(text(edge + 6, 60, "boundary"))
    save("distance", width, height + 6, parts)


def draw_telescoping() -> None:
    """One point, taken apart and put together under both rules."""
    disk, z = Disk(size=380), torch.tensor([0.62, 0.66])
    codes, r = [], z
    for angle in (0.45, -0.7, 0.5):
        codes.append(0.85 * turn(r, -angle))  # a coarse code: some way towards what is left, and off to one side
        r = residual(r, codes[-1], 1.0, "nested")
    rules = {"chained": (BAD, "chained (naive): drifts away"), "nested": (GOOD, "nested (ghrq): ends at z")}
    labels = []
    for row, (rule, (colour, label)) in enumerate(rules.items()):
        # The same three codes under both rules, and what each rule says is left; a rule that fits ends at z.
        r = z
        for q in codes:
            r = residual(r, q, 1.0, rule)
        pieces = [*codes, r]
        stops = [torch.zeros(2)] + [aggregate(pieces[: i + 1], 1.0, rule).point for i in range(len(pieces))]
        for i, (start, stop) in enumerate(itertools.pairwise(stops)):
            disk.line(start, stop, colour, 5.0 - 2.8 * row, 'stroke-dasharray="4 3"' if i == len(codes) else "")
            disk.dot(stop, colour, 5 if i == len(codes) else 3.5)
        labels.append(f'<rect x="14" y="{386 + 20 * row}" width="12" height="12" fill="{colour}"/>')
        labels.append(text(34, 397 + 20 * row, label))
    a, b = disk.place(z)
    disk.parts.append(f'<circle cx="{a}" cy="{b}" r="9" fill="none" stroke="currentColor" stroke-width="1.5"/>')
    disk.text(z, "z", 13)
    disk.dot(torch.zeros(2), radius=3)
    labels.append(text(14, 437, "dashed: the last residual, added to the three codes"))
    save("telescoping", 380, 446, disk.parts + labels)


def draw_drift() -> None:
    """The telescoping error of both rules against the radius of the points, as measured by ``diagnose``."""
    radii, errors = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), {"naive": [], "ghrq": []}
    for kind, found in errors.items():
        for radius in radii:
            torch.manual_seed(0)
            z = torch.randn(2000, 8)
            rq = ResidualQuantizer(8, codebook_size=32, num_stages=3, kind=kind, scale_control=True, radius=radius)
            rq.initialize(z)
            found.append(float(rq.eval().diagnose(z).telescoping_error))
    width, height, left, low = 440, 214, 62, 180

    def place(radius: float, error: float) -> tuple[float, float]:
        power = max(math.log10(max(error, 1e-35)), -35.0)
        return left + radius * (width - left - 20), round(low - (power + 35) * 4.1, 1)

    parts = [f'<path d="M{left},12 V{low} H{width - 10}" fill="none" stroke="currentColor" stroke-opacity=".5"/>']
    parts += [text(place(r, 1)[0], low + 16, f"{r:g}", "middle") for r in (0.1, 0.5, 0.9)]
    parts += [text(left - 8, place(0, 10.0**p)[1] + 4, f"1e{p}", "end") for p in (-30, -20, -10, 0)]
    for kind, colour in (("naive", BAD), ("ghrq", GOOD)):
        places = [place(r, e) for r, e in zip(radii, errors[kind], strict=True)]
        points = " ".join(f"{a:.1f},{b}" for a, b in places)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        parts.append(text(places[3][0], places[3][1] - 8, kind, "middle", colour))
    parts.append(text(left + 8, 22, "telescoping error"))
    parts.append(text((left + width) / 2, low + 30, "median radius of the points", "middle"))
    save("drift", width, height + 4, parts)


def draw_discount() -> None:
    """The length of the transported gradient against the radius: copied, transported, discounted."""
    radii = torch.linspace(0, 0.98, 80)
    z = torch.stack([radii, torch.zeros(80)], dim=1)
    q, g = ball.mobius_add(z, torch.tensor([0.0, 0.1])), torch.tensor([1.0, 0.0]).expand(80, 2)
    found = ball.discounted_transport(g, q, z).norm(dim=1)
    width, height, left, low = 440, 200, 46, 166
    parts = [f'<path d="M{left},12 V{low} H{width - 20}" fill="none" stroke="currentColor" stroke-opacity=".5"/>']
    span, tall = width - left - 40, 140
    for values, colour, label, y in (
        (torch.ones(80), BAD, "copied: 1 everywhere", low - tall - 6),
        (found, GOOD, "discounted transport: ¼ at the origin, 0 at the boundary", low - tall / 4 - 10),
    ):
        points = " ".join(
            f"{left + r * span:.1f},{low - v * tall:.1f}" for r, v in zip(radii.tolist(), values.tolist(), strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        parts.append(text(left + 14, y, label, colour=colour))
    parts += [text(left + r * span, low + 16, f"{r:g}", "middle") for r in (0.0, 0.5, 1.0)]
    parts += [text(left - 8, low - v * tall + 4, f"{v:g}", "end") for v in (0.0, 0.25, 1.0)]
    parts.append(text((left + width) / 2, low + 30, "radius of z", "middle"))
    save("discount", width, height + 4, parts)


def draw_numbers() -> None:
    """Usage, perplexity and error by depth of a healthy quantizer and of one whose vectors have collapsed."""
    parts = []
    for column, (title, colour) in enumerate((("healthy", GOOD), ("collapsed", BAD))):
        torch.manual_seed(0)
        z = torch.randn(20, 8)[torch.randint(20, (4000,))] + 0.3 * torch.randn(4000, 8)
        rq = ResidualQuantizer(8, codebook_size=64, num_stages=4).eval()
        rq.initialize(z)
        if column:  # the encoder has moved on: nearly one constant
            z = 0.05 * z + z.mean(0) + torch.ones(8)
        found = rq.diagnose(z)
        left = 10 + 300 * column
        parts.append(text(left, 18, title, colour=colour))
        errors = [float(e) for e in found.residual_error]
        for stage in range(4):
            y = 44 + 34 * stage
            share, left_over = float(found.perplexity[stage]) / 64, errors[stage] / errors[0]
            parts.append(text(left, y + 11, f"stage {stage + 1}"))
            parts.append(
                f'<rect x="{left + 62}" y="{y}" width="120" height="14" fill="currentColor" fill-opacity=".12"/>'
                f'<rect x="{left + 62}" y="{y}" width="{120 * share:.1f}" height="14" fill="{colour}"/>'
            )
            parts.append(text(left + 190, y + 11, f"{float(found.perplexity[stage]):.0f} of 64"))
            parts.append(
                f'<rect x="{left + 62}" y="{y + 16}" width="{120 * min(1.0, left_over):.1f}" height="5" '
                'fill="currentColor" fill-opacity=".55"/>'
            )
        parts.append(text(left + 62, 194, "thick: perplexity, thin: error left"))
    save("numbers", 580, 204, parts)


def main() -> None:
    """Draw all of them."""
    for draw in (draw_ball, draw_distance, draw_telescoping, draw_drift, draw_discount, draw_numbers):
        draw()


if __name__ == "__main__":
    main()
