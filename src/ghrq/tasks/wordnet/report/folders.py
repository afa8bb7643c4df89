"""What the folders of the runs tell besides their results: recipes, times and training curves, where they are there."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ghrq.report.tables import Block, Column, Measured, Row, Table, count
from ghrq.system.errors import UserError
from ghrq.tasks.wordnet.recipe import WordNetRecipe
from ghrq.tasks.wordnet.report.outcome import Group, Outcome
from ghrq.training.run import Run


class Folders:
    """The runs in ``folder``; results may have come without them."""

    def __init__(self, folder: Path, outcome: Outcome) -> None:
        self.outcome = outcome
        names = [group.run_name(seed) for group in outcome.groups for seed in (*group.results, *group.diverged)]
        self.runs = {name: Run.open(folder / name) for name in names if (folder / name / "recipe.toml").is_file()}

    def recipe(self, setting: str) -> WordNetRecipe | None:
        """The recipe of a setting: of any run of it at the main capacity that trains an embedding."""
        for group in self.outcome.of(setting, self.outcome.main):
            for _, run in self._of(group):
                # One of an older version, perhaps: its results are still worth a report.
                with suppress(UserError):
                    if isinstance(run.recipe, WordNetRecipe):
                        return run.recipe
        return None

    def seconds(self, setting: str) -> Measured:
        """What training took, run by run."""
        groups = [group for group in self.outcome.groups if group.setting == setting]
        times = []
        for _, run in (found for group in groups for found in self._of(group)):
            last = {line["stage"]: line.get("seconds") or 0.0 for line in run.metrics() if "stage" in line}
            times.append(sum(last.values()) or None)
        return Measured.of(times)

    def curves(self, group: Group) -> tuple[int, list[dict[str, Any]]] | None:
        """The lowest seed of which there are metrics, and these."""
        found = ((seed, run.metrics()) for seed, run in self._of(group))
        return next(((seed, lines) for seed, lines in found if lines), None)

    def _of(self, group: Group) -> list[tuple[int, Run]]:
        seeds = sorted((*group.results, *group.diverged))
        return [(seed, self.runs[name]) for seed in seeds if (name := group.run_name(seed)) in self.runs]


def settings(folders: Folders) -> Table | None:
    """What the recipes say; nothing without a run's folder."""
    recipes = {setting: recipe for setting in folders.outcome.settings if (recipe := folders.recipe(setting))}
    if not recipes:
        return None
    said = [_said(recipe) | {"minutes a run": _minutes(folders, setting)} for setting, recipe in recipes.items()]
    rows = [Row(key, [recipe[key] for recipe in said]) for key in said[0]]
    return Table(
        "The recipes",
        "The same for every kind of quantizer. The rest is in recipe.toml of each run; times are of training alone.",
        [Column(f"`{setting}`") for setting in recipes],
        [Block("", rows, compete=False)],
    )


def _said(recipe: WordNetRecipe) -> dict[str, str]:
    optimizer, contrast, q, s = recipe.optimizer, recipe.contrast, recipe.quantizer, recipe.seq2seq
    return {
        "initial scale": f"{recipe.encoder.initial_scale:g}",
        "optimizer": f"{optimizer.name}, rate {optimizer.rate:g}, batch {optimizer.batch:,}",
        "epochs": f"{q.warm_epochs} of contrast alone, {optimizer.epochs} with codes",
        "contrast": f"on {contrast.on}, {contrast.negatives} negatives, temperature {contrast.temperature:g}",
        "codebooks": f"{count(q.num_stages, 'stage')}, {q.start} start{', scale control' if q.scale_control else ''}",
        "seq2seq": f"{count(s.layers, 'layer')} of width {s.width}, {count(s.epochs, 'epoch')}",
    }


def _minutes(folders: Folders, setting: str) -> str:
    return folders.seconds(setting).scaled(1 / 60).show(".1f")
