"""The pictures: recall beside its baselines, codes and errors by depth, training curves, and examples of codes."""

import re
from collections.abc import Sequence

from ghrq.report.examples import Example, Examples
from ghrq.report.figures import Bar, Figure, Series, bars, lines
from ghrq.report.runs import Curve, by_depth, training_curve
from ghrq.tasks.wordnet.report.folders import Folders
from ghrq.tasks.wordnet.report.outcome import Outcome
from ghrq.tasks.wordnet.report.tables import percent


def recall(outcome: Outcome, setting: str) -> Figure | None:
    """Bars at entity level, the tuple level marked, baselines as lines."""
    groups = [*outcome.of(setting, outcome.main), *outcome.random(outcome.main, setting)[:1]]
    given = [
        Bar(group.kind, value, percent(group.number("recall", "constrained", "tuple_filtered")))
        for group in groups
        if (value := percent(group.number("recall", "constrained", "entity_filtered")))
    ]
    limits = {
        label: value
        for name, label in (("composition", "graph composition"), ("popularity", "popularity"))
        if (value := percent(outcome.baseline(name, "filtered")))
    }
    if not given:
        return None
    borrowed = [group.setting for group in groups if group.setting != setting]
    return bars(
        f"recall-{setting}",
        f"Ancestors found ({setting}, {outcome.main})",
        "The bar is the score that counts, the diamond what the same lists score if a tuple is enough: the gap between "
        "them is collisions. Lines are what needs no model at all. Known ancestors are filtered everywhere."
        + "".join(f" Random codes are those of `{other}`." for other in borrowed),
        f"Recall@{outcome.k}, filtered, %",
        given,
        "counted by tuples",
        limits,
    )


def distinct(outcome: Outcome, setting: str) -> Figure | None:
    """How many tuples there are, depth by depth, of those there could be."""
    groups = [group for group in outcome.of(setting, outcome.main) if group.first]
    if not groups:
        return None
    first = groups[0].first
    synsets = round(first["distinct_by_depth"][-1] / first["distinct"])
    depths = range(1, 1 + len(first["distinct_by_depth"]))
    most = [min(outcome.main.size**depth, synsets) for depth in depths]
    given = [
        Series(
            group.kind,
            depths,
            [group.number("distinct_by_depth", i).scaled(100 / number) for i, number in enumerate(most)],
        )
        for group in groups
    ]
    return lines(
        f"distinct-{setting}",
        f"Distinct tuples by depth ({setting}, {outcome.main})",
        f"How many different tuples the {synsets:,} synsets have when only the first codes are read, of as many as "
        f"there could be: {' / '.join(f'{number:,}' for number in most)}.",
        ("codes read", "of the most possible, %"),
        given,
        depths=True,
    )


def residual_error(outcome: Outcome, setting: str) -> Figure | None:
    """What is left after each code."""
    groups = outcome.of(setting, outcome.main)
    given = by_depth([group for group in groups if group.kind != "euclidean"], "diagnosis", "residual_error")
    given += by_depth([g for g in groups if g.kind == "euclidean"], "diagnosis", "residual_error", note=" (flat)")
    if not given:
        return None
    return lines(
        f"residual-{setting}",
        f"Residual error by depth ({setting}, {outcome.main})",
        "Mean squared distance d²(ẑ, z) from the synset's point when only the first codes are read. Geodesic on the "
        "ball; the Euclidean line is in flat units, where the same small step counts a quarter.",
        ("codes read", "d²(ẑ, z)"),
        given,
        log=True,
        depths=True,
    )


CURVES = {
    "contrast": Curve(
        "Contrastive loss",
        "What the embedding learns by; epochs of contrast alone, where there are any, come first.",
        ("embedding", "codes"),
        "contrast",
    ),
    "quantizer": Curve("Loss of the quantizer", "Codebook and commitment terms.", ("codes",), "quantizer", log=True),
    "seq2seq": Curve(
        "Loss of the seq2seq model",
        "Of predicting the tuples of ancestors; with random codes it is learning by heart.",
        ("seq2seq",),
        "loss",
    ),
}


def curves(outcome: Outcome, setting: str, folders: Folders) -> list[Figure]:
    """The losses while training, of those runs whose folders are there."""
    groups = [*outcome.of(setting, outcome.main), *outcome.random(outcome.main, setting)[:1]]
    runs = [(group, found) for group in groups if (found := folders.curves(group)) is not None]
    seeds = {seed for _, (seed, _) in runs}
    whose = f"Seed {min(seeds)}." if len(seeds) == 1 else "The lowest seed of each kind."
    figures = []
    for name, curve in CURVES.items():
        given = [training_curve(group.kind, metrics, curve) for group, (_, metrics) in runs]
        given = [series for series in given if len(series.x) > 1]
        if given:
            title, caption = f"{curve.title} ({setting}, {outcome.main})", f"{curve.caption} {whose}"
            labels = ("epoch", "loss")
            figures.append(lines(f"curves-{setting}-{name}", title, caption, labels, given, log=curve.log))
    return figures


def examples(outcome: Outcome) -> list[Examples]:
    """The examples of GHRQ at the main capacity, recipe by recipe."""
    found = []
    for setting in outcome.settings:
        group = next((g for g in outcome.of(setting, outcome.main) if g.kind == "ghrq" and g.first), None)
        if group is None:
            continue
        cards = [
            Example(
                readable(example["name"]),
                example["gloss"],
                example["codes"],
                [
                    _others(example["name"], *shared)
                    for shared in zip(example["sharing"], example["counts"], strict=True)
                ],
            )
            for example in group.first.get("examples", ())
        ]
        if cards:
            found.append(Examples(f"GHRQ, recipe `{setting}`, seed {min(group.results)}", cards))
    return found


def readable(synset: str) -> str:
    """``hot_dog.n.02`` as ``hot dog (2)``; the first sense of a word goes without its number."""
    match = re.fullmatch(r"(.+)\.\w\.(\d+)", synset)
    if match is None:
        return synset
    sense = int(match[2])
    return match[1].replace("_", " ") + (f" ({sense})" if sense > 1 else "")


def _others(name: str, names: Sequence[str], count: int) -> list[str]:
    """Those named, and how many more there are."""
    listed = [readable(other) for other in names if other != name]
    more = count - 1 - len(listed)
    return [*listed, f"and {more:,} more"] if more else listed
