"""Figure 2 of the paper, drawn by code: what goes forward, and which way gradients come back, under two routes."""

from typing import Any

from ghrq.report.figures import GRID, INK, PALE, PAPER, Figure, draw_figure
from ghrq.report.kinds import KINDS

BACK, COMMIT = KINDS["naive"].colour, KINDS["ghrq"].colour

CAPTION = (
    "Forward (black): the encoder's point z is taken apart into codes q₁ … qₙ, coarse to fine, and these are put "
    "together to ẑ. Backward, left, by blocks (GHRQ): one discounted transport P̃ takes the gradient of the "
    "reconstruction from ẑ to z, the commitment of the first stage is the only other path, and everything between is "
    "stopped. Right, naive: gradients go back through every code and every residual, and add up."
)

_STAGES = ("1", "2", "N")
_X, _TOP, _LOW, _SUM = (0.20, 0.42, 0.72), 0.72, 0.45, 0.91


def routes_figure() -> Figure:
    """The drawing; it needs no run."""

    def draw(panels: Any) -> None:
        for axes, (title, blocked) in zip(
            panels, (("GHRQ: by blocks", True), ("naive: through all", False)), strict=True
        ):
            axes.set(xlim=(0, 1), ylim=(0, 1))
            axes.axis("off")
            axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5, color=INK)
            _forward(axes, blocked)
            (_blocks if blocked else _through)(axes)

    return draw_figure("routes", "", CAPTION, 3.7, draw, width=9.2, panels=2)


def _forward(axes: Any, nested: bool) -> None:
    axes.add_patch(_box(0.12, 0.37, 0.70, 0.49))
    axes.text(0.815, 0.385, "residual quantization", ha="right", fontsize=7.5, color=PALE)
    _node(axes, 0.04, _LOW, "z")
    _node(axes, 0.93, _TOP, "ẑ")
    before = 0.04
    for x, name in zip(_X, _STAGES, strict=True):
        _node(axes, x, _TOP, f"q{_small(name)}")
        _arrow(axes, (before, _LOW), (x, _TOP - 0.01), INK)
        before = x + 0.09
        if name != "N":
            _node(axes, before, _LOW, f"r{_small(name)}")
            _arrow(axes, (x, _TOP), (before, _LOW), INK)
    axes.text(0.605, _TOP, "…", ha="center", va="center", fontsize=13, color=INK)
    for x in _X:
        axes.plot([x, x], [_TOP + 0.055, _SUM], color=INK, linewidth=1.3, zorder=2)
    axes.plot([_X[0], 0.93], [_SUM, _SUM], color=INK, linewidth=1.3, zorder=2)
    _arrow(axes, (0.93, _SUM + 0.04), (0.93, _TOP), INK)
    axes.text(0.825, _SUM + 0.045, "q₁ ⊕ (q₂ ⊕ …)" if nested else "(q₁ ⊕ q₂) ⊕ …", ha="center", fontsize=8.5, color=INK)
    axes.text(0.04, _LOW - 0.10, "encoder", ha="center", fontsize=8.5, color=PALE)
    axes.text(0.975, _TOP, "decoder", va="center", fontsize=8.5, color=PALE)


def _blocks(axes: Any) -> None:
    _arrow(axes, (0.93, _TOP), (0.04, _LOW), BACK, bend=-0.62, width=2.4)
    axes.text(0.5, 0.1, "d-HSTE, once: P̃ g", ha="center", fontsize=9.5, color=INK)
    _arrow(axes, (_X[0], _TOP), (0.04, _LOW), COMMIT, bend=0.45, width=2.0)
    axes.text(0.005, 0.9, "commitment\nto q₁ only", fontsize=8.5, color=INK, va="bottom")
    middle = (_TOP + _LOW) / 2
    for x, y in ((0.245, middle), (0.355, middle), (0.465, middle), (0.615, middle), (0.86, _SUM)):
        axes.plot(x, y, "x", color=BACK, markersize=9, markeredgewidth=2.4)
    axes.plot([], [], color=INK, linewidth=1.4, label="forward")
    axes.plot([], [], color=BACK, linewidth=2.4, label="gradient of the reconstruction")
    axes.plot([], [], color=COMMIT, linewidth=2.0, label="gradient of the commitment")
    axes.plot([], [], "x", color=BACK, markersize=8, markeredgewidth=2.4, linestyle="none", label="stopped")


def _through(axes: Any) -> None:
    bend = 0.28
    for x in _X:
        _arrow(axes, (0.93, _TOP), (x, _TOP), BACK, bend=0.16, width=1.6)
    before = 0.04
    for x, name in zip(_X, _STAGES, strict=True):
        for colour, more in ((BACK, 0.0), (COMMIT, 0.18)):
            _arrow(axes, (x, _TOP), (before, _LOW), colour, bend=bend + more, width=1.8)
        before = x + 0.09
        if name != "N":
            _arrow(axes, (before, _LOW), (x, _TOP), BACK, bend=bend, width=1.8)
    axes.text(0.47, 0.1, "N stages, N gradients at z", ha="center", fontsize=9.5, color=INK)


def _small(name: str) -> str:
    return {"1": "₁", "2": "₂", "N": "ₙ"}[name]


def _node(axes: Any, x: float, y: float, name: str) -> None:
    style = {"boxstyle": "circle,pad=0.32", "facecolor": PAPER, "edgecolor": INK, "linewidth": 1.2}
    axes.text(x, y, name, ha="center", va="center", fontsize=10, color=INK, bbox=style, zorder=5)


def _box(x: float, y: float, width: float, height: float) -> Any:
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch(
        (x, y), width, height, boxstyle="round,pad=0.012", facecolor="none", edgecolor=GRID, linewidth=1.6
    )


def _arrow(
    axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str, bend: float = 0.0, width: float = 1.3
) -> None:
    style = {
        "arrowstyle": "-|>",
        "color": colour,
        "linewidth": width,
        "shrinkA": 13,
        "shrinkB": 13,
        "connectionstyle": f"arc3,rad={bend}",
        "mutation_scale": 11,
    }
    axes.annotate("", end, xytext=start, arrowprops=style, zorder=3)
