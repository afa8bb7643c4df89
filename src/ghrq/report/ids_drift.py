"""Is it time to fit again: measures of new items against bounds, one sentence of advice, and a page with plots.

docs/semantic-ids.md has the same rules in words.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghrq.metrics.drift import Drift
from ghrq.metrics.quality import percent
from ghrq.report.figures import Figure, Gallery, draw_figure
from ghrq.report.grid import Block, Column, Grid, Row
from ghrq.report.ids_figures import BLUE, ORANGE
from ghrq.report.ids_verdict import Check, Verdict
from ghrq.report.page import Page, PageSection
from ghrq.report.words import count
from ghrq.system import files

# Most error of new items as a multiple of that of the old ones, and least perplexity as a share of theirs.
ERROR, PERPLEXITY = 1.25, 0.5

# Most collisions, see collision_bound: a multiple of the old odds, a share that is fine anyway, standard errors.
ODDS, FINE, CHANCE = 2.0, 0.05, 3.0

# Fewer new items say nothing.
LEAST = 100


def judge_drift(drift: Drift) -> Verdict:
    """The first check that fails decides; without one, the tokenizer is kept."""
    checks = [*_error(drift), *_collisions(drift), _perplexity(drift)]
    failed = next((check for check in checks if not check.passed), None)
    if drift.items_new < LEAST:
        few = f"{count(drift.items_new, 'new item')} say little: wait for {LEAST} before you decide."
        return Verdict("too few new items to tell", few, checks)
    if failed is not None:
        return Verdict(failed.verdict, failed.advice, checks)
    more = "" if drift.error_old is not None else " The error was not compared: give the old table with --old."
    return Verdict("no drift", f"Keep this tokenizer, the new items fit it as the old ones do.{more}", checks)


def summary(drift: Drift) -> list[list[str]]:
    """A table for the terminal: the heading, then a row for each measure."""
    stages = range(len(drift.codebook_size))
    unknown = "not known"
    return [
        ["", "published", "new"],
        ["items", f"{drift.items_old:,}", f"{drift.items_new:,}"],
        ["error, of the variance", _share(drift.error_old, unknown), _share(drift.error_new)],
        ["share a tuple", _share(drift.collisions_old, unknown), _share(drift.collisions_new)],
        *([f"codes used, stage {i + 1}", percent(drift.usage_old[i]), percent(drift.usage_new[i])] for i in stages),
        *(
            [f"perplexity, stage {i + 1}", f"{drift.perplexity_old[i]:.1f}", f"{drift.perplexity_new[i]:.1f}"]
            for i in stages
        ),
    ]


def write_drift(drift: Drift, path: Path) -> Path:
    """Write a page, one file that needs nothing but a browser; returns its path."""
    verdict = judge_drift(drift)
    heading, *rows = summary(drift)
    numbers = Grid(
        "All numbers",
        f"Usage and perplexity are of {count(drift.sampled, 'item')} each, drawn at random.",
        [Column(title) for title in heading[1:]],
        [Block("", [Row(row[0], list(row[1:])) for row in rows], compete=False)],
    )
    checks = Grid(
        "What was checked",
        "The first check that fails decides; docs/semantic-ids.md has the rules.",
        [Column(title) for title in ("result", "measured", "expected")],
        [Block("", [Row(c.name, ["✓ passed" if c.passed else "✗ failed", c.value, c.bound]) for c in verdict.checks])],
    )
    sections = [
        PageSection("Checks", [checks]),
        PageSection("Old and new items", [Gallery(figures(drift))]),
        PageSection("All numbers", [numbers]),
    ]
    subtitle = f"{count(drift.items_new, 'new item')} beside {count(drift.items_old, 'published item')}"
    lead = [f"**Verdict: {verdict.verdict}.** {verdict.advice}"]
    html = Page("Do new items still fit the tokenizer?", subtitle, lead, sections).html()
    with files.telling(path):
        files.write(path, html)
    return path


def figures(drift: Drift) -> list[Figure]:
    """Error, collisions, and perplexity by stage; old beside new."""
    stages = len(drift.codebook_size)
    return [
        _bars(
            "drift-error",
            "How much of the vectors is lost?",
            f"Fit again when the second bar is more than {ERROR:g} times the first.",
            "squared error, % of variance",
            [""],
            None if drift.error_old is None else [100.0 * drift.error_old],
            [100.0 * drift.error_new],
        ),
        _bars(
            "drift-collisions",
            "How many items share a tuple?",
            "Without the tie-break token; of equally many items in all.",
            "% of the items",
            [""],
            None if drift.collisions_old is None else [100.0 * drift.collisions_old],
            [100.0 * drift.collisions_new],
        ),
        _bars(
            "drift-perplexity",
            "Do new items spread over the codes?",
            "Of equally many items, drawn at random; a much lower second bar means that they crowd into few codes.",
            "perplexity",
            [f"stage {i + 1}" for i in range(stages)],
            drift.perplexity_old,
            drift.perplexity_new,
        ),
    ]


def _bars(
    name: str,
    title: str,
    caption: str,
    ylabel: str,
    ticks: Sequence[str],
    old: Sequence[float] | None,
    new: Sequence[float],
) -> Figure:
    def draw(axes: Any) -> None:
        for side, label, colour, values in ((-0.21, "published", BLUE, old), (0.21, "new", ORANGE, new)):
            if values is not None:
                drawn = axes.bar([i + side for i in range(len(ticks))], values, width=0.4, color=colour, label=label)
                axes.bar_label(drawn, fmt="{:.1f}", padding=2, fontsize=8)
        axes.set(ylabel=ylabel, xlim=(-0.7, len(ticks) - 0.3))
        axes.margins(y=0.15)
        axes.set_xticks(range(len(ticks)), ticks)
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)

    return draw_figure(name, title, caption, 3.4, draw)


def _error(drift: Drift) -> list[Check]:
    if drift.error_old is None:
        return []
    more = drift.error_new / max(drift.error_old, 1e-12) - 1.0
    return [
        Check(
            "squared error, of the variance",
            _share(drift.error_new),
            f"at most {_share(ERROR * drift.error_old)} ({ERROR:g} x the published items' {_share(drift.error_old)})",
            drift.error_new <= ERROR * drift.error_old,
            "the new items do not fit",
            f"Fit again: the codes lose {more:.0%} more of the new items than of the published ones, "
            f"{ERROR - 1:.0%} is the bound.",
        )
    ]


def _collisions(drift: Drift) -> list[Check]:
    if drift.collisions_old is None:
        return []
    bound = collision_bound(drift.collisions_old, drift.items_old, drift.placed)
    most = f"at most {_share(bound)}" if bound < 1.0 else f"too few to tell from chance: {count(drift.placed, 'item')}"
    return [
        Check(
            "items that share a tuple",
            _share(drift.collisions_new),
            f"{most} (published items: {_share(drift.collisions_old)})",
            drift.collisions_new <= bound,
            "the new items collide",
            f"Fit again: {_share(drift.collisions_new)} of the new items have a tuple that another one has, "
            f"{_share(drift.collisions_old)} of the published ones, and {_share(bound)} is the bound.",
        )
    ]


def collision_bound(old: float, items: int, new: int) -> float:
    """Most of ``new`` items that may share a tuple where a share ``old`` of ``items`` published ones does.

    The odds, sharing to not sharing, may double: ``2p / (1 + p)``. Where few share one, that is twice the share; where
    most do, half of the share that does not. At least 5 % may, and what chance gives: three standard errors more, with
    one item that shares and one that does not added to those counted. 1 or more: nothing can be told.
    """
    odds = ODDS * old / (1.0 + (ODDS - 1.0) * old)
    guess = (old * items + 1.0) / (items + 2.0)
    chance = CHANCE * math.sqrt(guess * (1.0 - guess) * (1.0 / new + 1.0 / items))
    return max(odds, FINE, old + chance)


def _perplexity(drift: Drift) -> Check:
    ratios = [new / old for new, old in zip(drift.perplexity_new, drift.perplexity_old, strict=True)]
    stage = min(range(len(ratios)), key=ratios.__getitem__)
    new, old = drift.perplexity_new[stage], drift.perplexity_old[stage]
    return Check(
        f"perplexity, stage {stage + 1} (the lowest)",
        f"{new:.1f}",
        f"at least {PERPLEXITY * old:.1f} ({PERPLEXITY:.0%} of the published items' {old:.1f})",
        new >= PERPLEXITY * old,
        "the new items crowd into few codes",
        f"Fit again if such items keep coming: they use {new:.1f} codes of stage {stage + 1} where as many published "
        f"ones use {old:.1f}, and half of that is the bound.",
    )


def _share(value: float | None, unknown: str = "") -> str:
    return unknown if value is None else percent(value)
