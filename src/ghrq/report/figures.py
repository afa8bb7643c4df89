"""Figures in one style, as SVG: readable on a phone, in colours that everybody can tell apart, in light and dark."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ghrq.report.kinds import looks
from ghrq.report.results import Measured
from ghrq.report.template import render, safe
from ghrq.system import files
from ghrq.system.errors import require

WIDTH = 4.4  # inches: text keeps its size on a phone, and two figures fit side by side on a laptop

# What is neither data nor label. On a page each becomes a variable, which the reader's light or dark theme decides.
INK, PALE, GRID, PAPER = "#1b1f24", "#5d6772", "#dce0e5", "#ffffff"
_VARIABLES = {INK: "--ink", PALE: "--pale", GRID: "--grid", PAPER: "--paper"}
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

STYLE = {
    "svg.fonttype": "none",  # text stays text: to be found, copied and read aloud
    "svg.hashsalt": "ghrq",  # the same figure gives the same file
    "font.size": 10,
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.facecolor": PAPER,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "figure.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
}


def inline(svg: str, name: str) -> str:
    """``svg`` for the inside of a page: it follows the theme, and its identifiers begin with ``name``."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r"(url\(|href=\")#", rf"\1#{name}-", svg)
    for colour, variable in _VARIABLES.items():
        svg = re.sub(colour, f"var({variable})", svg, flags=re.IGNORECASE)
    return svg


@dataclass(frozen=True)
class Figure:
    """A plot with its caption."""

    name: str
    """Of its file, without the ending."""
    caption: str
    svg: str = field(repr=False)
    render: Callable[[str], bytes] | None = field(default=None, repr=False, compare=False)
    """Draws it again, in another format of matplotlib."""

    def write(self, path: Path) -> None:
        """Write ``path``, as SVG or by its ending in another format, atomically."""
        form = path.suffix.lower().removeprefix(".")
        if form != "svg" and self.render is None:
            raise ValueError(f"the figure {self.name} is SVG only, got {path}")
        files.write(path, self.svg if form == "svg" or self.render is None else self.render(form))

    def save(self, folder: Path) -> Path:
        """Write ``folder/name.svg``, atomically."""
        path = folder / f"{self.name}.svg"
        files.write(path, self.svg)
        return path

    def html(self) -> str:
        """A ``<figure>`` that follows the page's theme and shares no identifier with another."""
        svg = inline(self.svg, self.name)
        return render("figure", figure=self, svg=safe(svg))


@dataclass(frozen=True)
class Gallery:
    """Figures, or other pieces of a page, side by side as far as there is room."""

    figures: Sequence[Any]

    def html(self) -> str:
        """All of them."""
        return render("gallery", figures=[safe(figure.html()) for figure in self.figures])


@dataclass(frozen=True)
class ChartBar:
    """A bar, with a second number marked on it."""

    name: str
    """A kind of quantizer, or any other label."""
    value: Measured
    mark: Measured = field(default_factory=Measured)


@dataclass(frozen=True)
class ChartLine:
    """A line; ``y`` has its spread over runs where there are several."""

    name: str
    """A kind of quantizer, or any other label."""
    x: Sequence[float]
    y: Sequence[Measured]
    note: str = ""
    """Added to its name; a line with a note is dashed, as it does not compare with the others."""


def bars(
    name: str,
    title: str,
    caption: str,
    xlabel: str,
    given: Sequence[ChartBar],
    mark: str,
    limits: Mapping[str, Measured],
) -> Figure:
    """Horizontal bars from 0 to 100; ``mark`` names the marks on them, ``limits`` become lines across all."""

    def draw(axes: Any) -> None:
        places = range(len(given))
        shown = looks([bar.name for bar in given])
        for place, bar, look in zip(places, given, shown, strict=True):
            value = bar.value
            axes.barh(place, value.mean, height=0.62, color=look.colour)
            if value.spread:
                axes.errorbar(value.mean, place, xerr=value.spread, color=INK, capsize=3, linewidth=1.2)
            axes.text(1.02, place, value.show(".1f"), transform=axes.get_yaxis_transform(), va="center")
            if bar.mark:
                axes.plot(bar.mark.mean, place, "D", color=PAPER, markeredgecolor=INK, markersize=5, zorder=4)
        if any(bar.mark for bar in given):
            axes.plot([], [], "D", color=PAPER, markeredgecolor=INK, markersize=5, label=mark)
        for (label, limit), dashes in zip(limits.items(), ((5, 2), (1.5, 1.5), (5, 2, 1, 2)), strict=False):
            axes.axvline(limit.mean, color=INK, linewidth=1.3, dashes=dashes, label=f"{label} {limit.show('.1f')}")
        axes.set(xlim=(0, 100), ylim=(len(given) - 0.45, -0.55), xlabel=xlabel)
        axes.set_yticks(places, [look.label for look in shown])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)

    return draw_figure(name, title, caption, 1.75 + 0.32 * len(given), draw)


def lines(
    name: str,
    title: str,
    caption: str,
    labels: tuple[str, str],
    given: Sequence[ChartLine],
    *,
    log: bool = False,
    depths: bool = False,
    ticks: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
) -> Figure:
    """A line for each series; ``labels`` of the x and the y axis, ``log`` for a logarithmic y, ``limits`` of y.

    ``depths``: x counts codes, so ticks are at whole numbers and points are marked. ``ticks``: the same, and names for
    x = 0, 1, ….
    """

    def draw(axes: Any) -> None:
        for series, look in zip(given, looks([series.name for series in given]), strict=True):
            y = [value.mean for value in series.y]
            axes.plot(
                series.x,
                y,
                color=look.colour,
                marker=look.marker if depths or ticks else None,
                dashes=(4, 2) if series.note else (),
                label=f"{look.label}{series.note}",
            )
            spread = [value.spread for value in series.y]
            if any(spread):
                low, high = ([a + sign * b for a, b in zip(y, spread, strict=True)] for sign in (-1, 1))
                axes.fill_between(series.x, low, high, color=look.colour, alpha=0.18, linewidth=0)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        if limits:
            axes.set_ylim(*limits)
        if log:
            ticker = require("matplotlib.ticker", "train")
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
            axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        if depths:
            axes.set_xticks(sorted({x for series in given for x in series.x}))
        if ticks:
            axes.set_xticks(range(len(ticks)), ticks)
        axes.grid(axis="x", visible=False)

    return draw_figure(name, title, caption, 3.6, draw)


def draw_figure(
    name: str,
    title: str,
    caption: str,
    height: float,
    draw: Callable[[Any], None],
    *,
    width: float = WIDTH,
    panels: int = 1,
) -> Figure:
    """What ``draw`` puts on axes, in the common style, in inches; with a legend of what it labels.

    With several ``panels``, side by side, ``draw`` gets a list of axes; the legend is that of the first.
    """
    matplotlib = require("matplotlib", "train")

    def render(form: str) -> bytes:
        # Without pyplot: it needs no display, and keeps no figure in memory.
        with matplotlib.rc_context(STYLE):
            figure = require("matplotlib.figure", "train").Figure(figsize=(width, height), layout="constrained")
            axes = [figure.add_subplot(1, panels, i + 1) for i in range(panels)]
            draw(axes if panels > 1 else axes[0])
            if title:
                figure.suptitle(title, x=0.01, ha="left")
            handles, _ = axes[0].get_legend_handles_labels()
            if handles:
                figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2 * panels)
            written = io.BytesIO()
            date = "CreationDate" if form == "pdf" else "Date"
            figure.savefig(written, format=form, metadata={date: None, "Creator": None, "Title": title or name})
        return written.getvalue()

    svg = re.sub(r"'DejaVu Sans'[^;\"]*", _FONTS, render("svg").decode())
    return Figure(name, caption, svg, render)
