"""The report of the WordNet task: the paper's tables, the baselines beside them, and pictures.

``write`` leaves report.html, tables.md and figures/ in the folder of the runs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ghrq.report.figures import Figure, Gallery
from ghrq.report.folder import write_report
from ghrq.report.page import Section
from ghrq.tasks.wordnet.report import pictures, tables, words
from ghrq.tasks.wordnet.report.folders import Folders, settings
from ghrq.tasks.wordnet.report.outcome import Outcome

TITLE = "WordNet: what do the codes know of the hierarchy?"


def write(results: Mapping[str, dict[str, Any]], folder: Path) -> Path:
    """Write the report on ``results``, by the names of their runs, into ``folder``; returns report.html.

    Runs whose folders are in ``folder`` add training curves, times and what their recipes say.
    """
    outcome = Outcome(results)
    folders = Folders(folder, outcome)
    return write_report(folder, TITLE, _subtitle(outcome), words.lead(outcome, folders), _sections(outcome, folders))


def _subtitle(outcome: Outcome) -> str:
    kinds = len({group.kind for group in outcome.groups} - {"random"})
    return f"Residual quantization of WordNet's noun hierarchy: {kinds} kinds of quantizer side by side"


def _sections(outcome: Outcome, folders: Folders) -> list[Section]:
    main, others = outcome.main, [capacity for capacity in outcome.capacities if capacity != outcome.main]
    counts = [tables.entity(outcome, [main], f"Recall@{outcome.k}, entity level ({main})")]
    if others:
        counts.append(tables.entity(outcome, others, f"Recall@{outcome.k}, entity level, the other capacities"))
    errors = [tables.residual_error(outcome), tables.ablation(outcome)]
    recipes = settings(folders)

    def gallery(*figures: Figure | None) -> list[Gallery]:
        shown = [figure for figure in figures if figure is not None]
        return [Gallery(shown)] if shown else []

    def each(picture: Any) -> list[Gallery]:
        return gallery(*(picture(outcome, setting) for setting in outcome.settings))

    curves = [figure for setting in outcome.settings for figure in pictures.curves(outcome, setting, folders)]
    return [
        Section("The score that counts", (), [*each(pictures.recall), *counts]),
        Section("As the paper counts", (), [tables.recall(outcome)]),
        Section(
            "Codes and meaning", (), [tables.distinct(outcome), *each(pictures.distinct), tables.similarity(outcome)]
        ),
        Section("Examples", EXAMPLES, pictures.examples(outcome)),
        Section("What quantization costs", (), [*(e for e in errors if e), *each(pictures.residual_error)]),
        Section("The embedding", (), [tables.embedding(outcome)]),
        Section("Training", words.diverged(outcome), [*([recipes] if recipes else []), *gallery(*curves)]),
    ]


EXAMPLES = (
    "A synset, its codes from coarse to fine, and who shares the first one, two and three of them (the first dozen in "
    "WordNet's order). Codes that know the hierarchy gather kin.",
)
