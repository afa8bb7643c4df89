"""The results of many runs, sorted: what was measured for each recipe, kind and capacity, over the seeds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ghrq.report import runs
from ghrq.report.kinds import KINDS
from ghrq.report.tables import Measured

_NAME = re.compile(rf"(?P<setting>.+)-(?P<kind>{'|'.join(KINDS)})-d(?P<dim>\d+)-b(?P<size>\d+)-s(?P<seed>\d+)")


class Capacity(NamedTuple):
    """Dimension of the encoder and codes of a stage."""

    dim: int
    size: int

    def __str__(self) -> str:
        return f"d{self.dim}/b{self.size}"


@dataclass(frozen=True, eq=False)
class Group(runs.Group):
    """Runs that differ in nothing but the seed."""

    setting: str
    """The recipe's name."""
    capacity: Capacity

    def run_name(self, seed: int) -> str:
        """The folder of a run of it."""
        return f"{self.setting}-{self.kind}-d{self.capacity.dim}-b{self.capacity.size}-s{seed}"


class Outcome:
    """All groups, in the order of :data:`ghrq.report.kinds.KINDS` within a recipe and a capacity."""

    def __init__(self, results: Mapping[str, dict[str, Any]]) -> None:
        found: dict[tuple[str, str, Capacity], Group] = {}
        for name, result in results.items():
            match = _NAME.fullmatch(name)
            if match is None:
                raise ValueError(f"expected runs named RECIPE-KIND-dDIM-bSIZE-sSEED, got '{name}'")
            key = match["kind"], match["setting"], Capacity(int(match["dim"]), int(match["size"]))
            found.setdefault(key, Group(*key)).add(int(match["seed"]), result)
        order = list(KINDS)
        self.groups = sorted(found.values(), key=lambda group: order.index(group.kind))
        self.settings = list(dict.fromkeys(setting for _, setting, _ in found))
        """Recipes, in the order they were run in."""
        self.capacities = sorted({group.capacity for group in self.groups})
        self.runs = len(results)

    @property
    def main(self) -> Capacity:
        """The capacity of all tables but the first: the paper's, or else the greatest there is."""
        standard = Capacity(16, 128)
        return standard if standard in self.capacities or not self.capacities else self.capacities[-1]

    @property
    def seeds(self) -> list[int]:
        """All seeds that were run."""
        return sorted({seed for group in self.groups for seed in (*group.results, *group.diverged)})

    @property
    def k(self) -> int:
        """How long the lists are that count; 10 while nothing has come out."""
        return next((g.first["recall"]["k"] for g in self.groups if g.first), 10)

    def of(self, setting: str, capacity: Capacity) -> list[Group]:
        """The groups of a recipe and a capacity, random codes left out."""
        return [g for g in self.groups if (g.setting, g.capacity) == (setting, capacity) and g.kind != "random"]

    def random(self, capacity: Capacity, setting: str | None = None) -> list[Group]:
        """Random codes; of ``setting`` if that has them, else of all that do."""
        found = [g for g in self.groups if g.kind == "random" and g.capacity == capacity]
        return [g for g in found if g.setting == setting] or found

    def baseline(self, name: str, how: str) -> Measured:
        """``popularity`` or ``composition``: all runs of a split agree, so their first is enough."""
        values = (group.number("baselines", name, how).values for group in self.groups)
        return Measured(next((found[:1] for found in values if found), ()))
