"""The report of the image task: the paper's tables 4 to 8, its part of them, sheets of pictures, a tree of classes.

``write`` leaves report.html, tables.md and figures/ in the folder of the runs.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ghrq.report.dendrogram import dendrogram
from ghrq.report.figures import Figure, Gallery, lines
from ghrq.report.folder import write_report
from ghrq.report.kinds import KINDS
from ghrq.report.page import Piece, Section
from ghrq.report.runs import Curve, Group, by_depth, training_curve
from ghrq.report.sheets import Sheet
from ghrq.report.tables import Block, Column, Measured, Row, Table, count
from ghrq.tasks.image.evaluation import RECONSTRUCTIONS, SAMPLE_SHEET
from ghrq.tasks.image.recipe import ImageRecipe
from ghrq.training.run import Run

_NAME = re.compile(rf"(?P<kind>{'|'.join(KINDS)})-s(?P<seed>\d+)")

# Tables 4, 5 and 6 of the paper, by data set and kind.
PAPER: dict[str, dict[str, dict[str, float]]] = {
    "mnist": {
        "euclidean": {"mse": 0.477, "fid": 20.36, "inception_score": 2.069},
        "naive": {"mse": 0.600, "fid": 15.01, "inception_score": 2.105},
        "ghrq": {"mse": 0.647, "fid": 16.78, "inception_score": 2.068},
    },
    "cifar100": {
        "euclidean": {"mse": 1.077, "fid": 94.67, "inception_score": 3.86, "ari": 0.048, "nmi": 0.469, "purity": 0.327},
        "naive": {"mse": 1.280, "fid": 101.84, "inception_score": 3.51, "ari": 0.055, "nmi": 0.481, "purity": 0.337},
        "ghrq": {"mse": 1.360, "fid": 98.23, "inception_score": 3.80, "ari": 0.087, "nmi": 0.515, "purity": 0.370},
    },
}

CURVES = {
    "mse": Curve(
        "Error while training", "Of pictures held out for watching.", ("tokenizer",), "validation/mse", log=True
    ),
    "quantizer": Curve("Loss of the quantizer", "Codebook and commitment.", ("tokenizer",), "quantizer", log=True),
    "prior": Curve("Loss of the prior", "Nats a code, mean over depths.", ("prior",), "loss"),
}


def write(results: Mapping[str, dict[str, Any]], folder: Path) -> Path:
    """Write the report on ``results``, by the names of their runs, into ``folder``; returns report.html."""
    groups = _groups(results)
    runs = {name: Run.open(folder / name) for name in results if (folder / name / "recipe.toml").is_file()}
    recipe = next((run.recipe for run in runs.values() if isinstance(run.recipe, ImageRecipe)), None)
    dataset = recipe.data.name if recipe else ""
    title = f"Pictures in codes{f': {dataset}' if dataset else ''}"
    subtitle = "Residual quantization of pictures, kind by kind"
    return write_report(folder, title, subtitle, _lead(groups, recipe), _sections(groups, runs, dataset))


def _groups(results: Mapping[str, dict[str, Any]]) -> list[Group]:
    found: dict[str, Group] = {}
    for name, result in results.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"expected runs named KIND-sSEED, got '{name}'")
        found.setdefault(match["kind"], Group(match["kind"])).add(int(match["seed"]), result)
    return [found[kind] for kind in KINDS if kind in found]


def _lead(groups: Sequence[Group], recipe: ImageRecipe | None) -> list[str]:
    seeds = max((len(group.results) for group in groups), default=0)
    lead = [f"**What was run.** {count(len(groups), 'kind')} of quantizer, {count(seeds, 'seed')} each."]
    if recipe is not None:
        t, q, p = recipe.tokenizer, recipe.quantizer, recipe.prior
        lead[0] += (
            f" The tokenizer: {q.num_stages} × {q.codebook_size} codes of {t.dim} dimensions, "
            f"{count(t.epochs, 'epoch')} at rate {t.rate:g}. "
            f"The prior: {p.spatial_layers} + {p.depth_layers} layers of width {p.width}, "
            f"{count(p.epochs, 'epoch')}. All kinds have the same optimiser, rates and weights; errors are of the test "
            "pictures, which took no part in the training nor in choosing its end."
        )
    failed = [f"`{group.kind}-s{seed}`: {text}" for group in groups for seed, text in group.diverged.items()]
    return [*lead, *(["**Diverged:** " + "; ".join(failed)] if failed else [])]


def _sections(groups: Sequence[Group], runs: Mapping[str, Run], dataset: str) -> list[Section]:
    paper = PAPER.get(dataset, {})
    curves = [figure for name, curve in CURVES.items() if (figure := _curve(name, curve, groups, runs)) is not None]
    depth = lines(
        "mse-by-depth",
        "Error by depth",
        "Mean squared error of the pixels when only the first codes are used.",
        ("codes used", "MSE × 1000"),
        by_depth(groups, "mse_by_depth", scale=1000.0),
        log=True,
        depths=True,
    )
    return [
        Section(
            "Pictures and back",
            (),
            [_reconstruction(groups, paper), Gallery([depth]), _sheets(groups, runs, RECONSTRUCTIONS, _ROWS)],
        ),
        Section("A taxonomy from codes", (), _taxonomy(groups, paper)),
        Section("New pictures", (), _generation(groups, paper, _sheets(groups, runs, SAMPLE_SHEET, ""))),
        Section("The quantizer", (), [_quantizer(groups)]),
        Section("Training", (), [Gallery(curves)] if curves else []),
    ]


_ROWS = " From top to bottom: the picture, then what one, two, three and four codes make of it."


def _row(group: Group, entries: Sequence[Measured | str | None]) -> Row:
    return Row(KINDS[group.kind].label, entries, KINDS[group.kind].colour)


def _published(paper: Mapping[str, Mapping[str, float]], group: Group, name: str) -> Measured | None:
    value = paper.get(group.kind, {}).get(name)
    return None if value is None else Measured((value,))


def _reconstruction(groups: Sequence[Group], paper: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [_row(g, [g.number("mse").scaled(1000.0), _published(paper, g, "mse")]) for g in groups]
    return Table(
        "Reconstruction (table 4)",
        "Mean squared error of test pictures, pixels from 0 to 1, × 1000. The paper chose its epoch on the test "
        "pictures; here the last one counts.",
        [Column("MSE × 1000", ".3f", "lowest"), Column("the paper", ".3f", aside=True)],
        [Block("", rows)],
    )


_SCORES = {"ari": "ARI", "nmi": "NMI", "purity": "purity", "dendrogram_purity": "dendrogram purity"}


def _taxonomy(groups: Sequence[Group], paper: Mapping[str, Mapping[str, float]]) -> list[Piece]:
    if not any("taxonomy" in group.first for group in groups):
        return []
    columns: list[Column] = []
    for name, title in _SCORES.items():
        columns += [Column(title, ".3f", "highest"), Column("random", ".3f", aside=True)]
        columns += [Column("the paper", ".3f", aside=True)] if name != "dendrogram_purity" else []

    def entries(group: Group, *path: str, published: bool) -> list[Measured | str | None]:
        found: list[Measured | str | None] = []
        for name in _SCORES:
            found += [group.number(*path, name, "value"), group.number(*path, name, "random")]
            found += [_published(paper, group, name) if published else None] if name != "dendrogram_purity" else []
        return found

    rows = [_row(group, entries(group, "taxonomy", published=True)) for group in groups]
    first = next(group for group in groups if "taxonomy" in group.first)
    baseline = Row("mean colours", entries(first, "taxonomy", "of_colours", published=False), note="nothing learnt")
    table = Table(
        "Superclass recovery (table 5)",
        "Each class becomes the midpoint of what the codes of its test pictures stand for; the midpoints are merged, "
        "nearest first, and cut into as many clusters as there are superclasses. *Random*: the same tree against "
        "superclasses dealt at random. *Mean colours*: the same from the pixels, position by position.",
        columns,
        [Block("", rows), Block("what codes must beat", [baseline], compete=False)],
    )
    figures = [figure for group in groups if (figure := _tree(group)) is not None]
    return [table, _resampled(groups, first), Gallery(figures)]


def _resampled(groups: Sequence[Group], first: Group) -> Table:
    """The scores of superclass recovery with their spread; the colours are those of the ``first`` group's pictures."""

    def entries(group: Group, *path: str) -> list[Measured | str | None]:
        return [group.number(*path, "resampled", name, part) for name in _SCORES for part in ("mean", "deviation")]

    rows = [_row(group, entries(group, "taxonomy")) for group in groups]
    baseline = Row("mean colours", entries(first, "taxonomy", "of_colours"), note="nothing learnt")
    return Table(
        "Superclass recovery, other pictures",
        "The same with the test pictures of each class drawn anew, with replacement, many times: the mean, and the "
        "standard deviation. Kinds that are nearer to each other than that are not told apart by these pictures.",
        [c for title in _SCORES.values() for c in (Column(title, ".3f", "highest"), Column("±", ".3f", aside=True))],
        [Block("", rows), Block("what codes must beat", [baseline], compete=False)],
    )


def _tree(group: Group) -> Figure | None:
    found = group.first.get("taxonomy")
    if found is None:
        return None
    return dendrogram(
        f"tree-{group.kind}",
        f"{KINDS[group.kind].label}: classes as their codes merge",
        f"ARI {found['ari']['value']:.3f}, seed {min(group.results)}. Branches whose leaves are all of one superclass "
        "have its colour.",
        found["linkage"],
        found["classes"],
        found["superclass_of"],
        found["superclasses"],
    )


def _generation(groups: Sequence[Group], paper: Mapping[str, Mapping[str, float]], sheets: Gallery) -> list[Piece]:
    if not any("samples" in group.first for group in groups):
        return []
    # Only where its weights were in GHRQ_DATA.
    scored = any("inception_score" in group.first.get("samples", {}) for group in groups)
    rows = []
    for g in groups:
        losses = [g.number("prior", "test_loss_by_depth", i) for i in range(len(g.first.get("mse_by_depth", ())))]
        bits = (
            Measured.of(sum(each.values[i] for each in losses) for i in range(len(g.results))) if all(losses) else None
        )
        rows.append(
            _row(
                g,
                [
                    g.number("samples", "fid"),
                    _published(paper, g, "fid"),
                    *([g.number("samples", "inception_score"), _published(paper, g, "inception_score")] * scored),
                    g.number("samples", "classifier_distance"),
                    g.number("samples", "classifier_distance_of_test_pictures"),
                    g.number("samples", "classifier_score"),
                    g.number("samples", "classifier_score_of_test_pictures"),
                    bits,
                ],
            )
        )
    counts: dict[str, Any] = next((g.first["samples"] for g in groups if "samples" in g.first), {})
    fid = ""
    if "fid_count" in counts:
        fid = f"FID of {counts['fid_count']:,} drawn and as many training pictures; it depends on the number, "
        fid += "the paper's are of 10,000. "
    table = Table(
        "Generation (table 6)",
        f"{fid}The Fréchet distance and the score are those of a small classifier's features and predictions on "
        f"{counts.get('count', 0):,} pictures, beside them what the test pictures themselves reach. Nats: the prior's "
        "loss on the codes of a position, on test pictures; of no kind the best, as codes that say little are easy to "
        "guess.",
        [
            Column("FID", ".1f", "lowest"),
            Column("the paper", ".1f", aside=True),
            *([Column("Inception Score", ".2f", "highest"), Column("the paper", ".2f", aside=True)] * scored),
            Column("Fréchet distance, classifier", ".2f", "lowest"),
            Column("test pictures", ".2f", aside=True),
            Column("score, classifier", ".2f", "highest"),
            Column("test pictures", ".2f", aside=True),
            Column("nats a position", ".2f"),
        ],
        [Block("", rows)],
    )
    return [table, sheets]


def _quantizer(groups: Sequence[Group]) -> Table:
    rows = []
    stages = max((len(g.first.get("mse_by_depth", ())) for g in groups), default=0)
    last, of = stages - 1, ("quantizer",)
    for g in groups:
        rows.append(
            _row(
                g,
                [
                    g.number(*of, "residual_error", last).scaled(1000.0),
                    g.number(*of, "telescoping_error").scaled(1000.0),
                    g.number(*of, "radius", "median"),
                    *(g.number(*of, "perplexity", i) for i in range(stages)),
                ],
            )
        )
    return Table(
        "Errors on the ball (tables 7 and 8)",
        "Residual error: mean d²(ẑ, z). Telescoping error: of the codes and the last residual put together again. Both "
        "× 1000; of the Euclidean kind in flat units. Perplexity: how many codes of a stage are in use.",
        [
            Column("residual error", ".3f"),
            Column("telescoping error", ".2g", "lowest"),
            Column("median radius", ".2f"),
            *(Column(f"perplexity {i + 1}", ".0f") for i in range(stages)),
        ],
        [Block("", rows)],
    )


def _sheets(groups: Sequence[Group], runs: Mapping[str, Run], name: str, more: str) -> Gallery:
    found = []
    for group in groups:
        for seed in sorted(group.results)[:1]:
            run = runs.get(f"{group.kind}-s{seed}")
            if run is not None and (run.folder / name).is_file():
                found.append(
                    Sheet(f"**{KINDS[group.kind].label}**, seed {seed}.{more}", (run.folder / name).read_bytes())
                )
    return Gallery(found)


def _curve(name: str, curve: Curve, groups: Sequence[Group], runs: Mapping[str, Run]) -> Figure | None:
    given = []
    for group in groups:
        run = next((runs[n] for s in sorted(group.results) if (n := f"{group.kind}-s{s}") in runs), None)
        if run is not None:
            given.append(training_curve(group.kind, run.metrics(), curve))
    given = [series for series in given if len(series.x) > 1]
    if not given:
        return None
    return lines(f"curve-{name}", curve.title, curve.caption, ("epoch", "loss"), given, log=curve.log)
