"""Sentences about results: what was run, what came out, what diverged. Every number in them is measured."""

from collections.abc import Sequence
from typing import Any

from ghrq.recipes import shipped, summary
from ghrq.report.grid import Block, Grid, Row
from ghrq.report.kinds import KINDS, label_of
from ghrq.report.results import Measured, StudyResults


def count(number: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def join(parts: Sequence[str], word: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def what_was_run(study: StudyResults, folder: str = "") -> str:
    """Runs, seeds and labels on every axis. ``folder``: of the shipped recipes, whose purpose is told."""
    recipes = shipped()

    def named(axis: str, label: Any) -> str:
        if axis != "recipe":
            return label_of(label)
        path = recipes.get(f"{folder}/{label}")
        return f"`{label}` ({summary(path)})" if path is not None else f"`{label}`"

    text = f"**What was run.** {count(len(study.outcomes), 'run')} with {count(len(study.seeds), 'seed')}"
    axes = dict.fromkeys(axis for group in study.groups for axis in group.axes)
    parts = [f"{axis} {join([named(axis, label) for label in study.labels(axis)])}" for axis in axes]
    text += f": {'; '.join(parts)}." if parts else "."
    failed = sum(group.diverged for group in study.groups)
    if failed:
        text += f" **{count(failed, 'run')} diverged**; the last section has the messages."
    seconds = [value for group in study.groups for value in group.seconds().values]
    if seconds and len(seconds) == len(study.outcomes):
        text += f" Training took {_duration(sum(seconds))} in total."
    return text


def diverged(study: StudyResults) -> list[str]:
    """Which runs diverged, with their messages, as paragraphs."""
    failed = [f"`{outcome.folder.name}`: {outcome.error}" for outcome in study.outcomes if outcome.error]
    return ["**Diverged:** " + "; ".join(failed)] if failed else []


def what_came_out(grid: Grid | None, what: str = "", unit: str = "", title: str = "") -> list[str]:
    """A paragraph for each block of a table, on its column ``title``, by default the first that has a best.

    ``what``: what the column says, by default its title. ``unit``: behind each number.
    """
    if grid is None:
        return ["**What came out.** Nothing yet: no run has come to a result."]
    place = next((i for i, column in enumerate(grid.columns) if column.best and title in ("", column.title)), None)
    if place is None:
        return []
    column = grid.columns[place]
    sign, spec = (1.0 if column.best == "highest" else -1.0), column.spec

    def scores(blocks: Sequence[Block]) -> dict[Row, Measured]:
        rows = [row for block in blocks for row in block.rows]
        return {row: score for row in rows if isinstance(score := row.entries[place], Measured) and score}

    def show(score: Measured) -> str:
        return score.show(spec) + unit

    baselines = scores([block for block in grid.blocks if not block.compete])
    paragraphs = []
    for block in (block for block in grid.blocks if block.compete):
        found = scores([block])
        if not found:
            continue
        ranked = sorted(found, key=lambda row: -sign * found[row].mean)
        best = found[ranked[0]]
        text = f"**What came out{f' with {block.title}' if block.title else ''}.** {what or column.title}: "
        text += join([f"{row.label} {show(found[row])}" for row in ranked]) + "."
        named = {
            row: f"{row.label} ({', '.join(filter(None, (row.note, show(score))))})" for row, score in baselines.items()
        }
        below = [named[row] for row, score in baselines.items() if sign * best.mean > sign * score.mean]
        above = [named[row] for row, score in baselines.items() if sign * best.mean <= sign * score.mean]
        if below:
            but = f", but **not** {join(above, 'or')}" if above else ""
            text += f" The best, {ranked[0].label}, beats {join(below)}{but}."
        elif above:
            text += f" Even the best, {ranked[0].label}, does not beat {join(above, 'or')}."
        paragraphs.append(text + _differences(found, sign, spec))
    return paragraphs


def _differences(scores: dict[Row, Measured], sign: float, spec: str) -> str:
    """GHRQ beside the others, and whether the difference is larger than the joint standard deviation over seeds."""
    ours = next((row for row in scores if row.label == KINDS["ghrq"].label), None)
    if ours is None or len(scores) < 2:
        return ""
    told: dict[str, list[str]] = {}
    mine = scores[ours]
    for row, other in scores.items():
        if row is ours:
            continue
        difference = sign * (mine.mean - other.mean)
        if min(len(mine.values), len(other.values)) < 2:
            remark = "one seed: may be chance"
        else:
            remark = "more than" if difference**2 > mine.spread**2 + other.spread**2 else "within"
            remark += f" the joint deviation √(s₁² + s₂²) of {min(len(mine.values), len(other.values))} seeds"
        side = "ahead of" if difference > 0.0 else "behind"
        told.setdefault(remark, []).append(f"{abs(difference):{spec}} {side} {row.label}")
    return f" {ours.label} is {join([f'{join(rows)} ({remark})' for remark, rows in told.items()])}."


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min" if minutes else "less than a minute"
    return f"{minutes // 60} h {minutes % 60} min"
