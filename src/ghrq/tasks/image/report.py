"""The report of the image task: tables 4 to 8 of the paper, as far as they are about images, and figures."""

from contextlib import suppress
from typing import Any

from ghrq.report import Baseline, Column, Table
from ghrq.report.curves import Curve, by_depth, training_figures
from ghrq.report.dendrogram import dendrogram
from ghrq.report.figures import Figure, Gallery, lines
from ghrq.report.kinds import label_of
from ghrq.report.page import Page, PageSection
from ghrq.report.results import Group, Measured, StudyResults
from ghrq.report.sheets import Sheet
from ghrq.report.study import recipe_grid
from ghrq.report.words import count, diverged, what_came_out, what_was_run
from ghrq.tasks.image.evaluation import RECONSTRUCTIONS, SAMPLE_SHEET
from ghrq.tasks.image.recipe import ImageRecipe

# Tables 4, 5 and 6 of the paper.
MSE, FID, SCORE = "MSE × 1000", "FID", "Inception Score"
PAPER = {
    ("mnist", "euclidean"): {MSE: 0.477, FID: 20.36, SCORE: 2.069},
    ("mnist", "naive"): {MSE: 0.600, FID: 15.01, SCORE: 2.105},
    ("mnist", "ghrq"): {MSE: 0.647, FID: 16.78, SCORE: 2.068},
    ("cifar100", "euclidean"): {MSE: 1.077, FID: 94.67, SCORE: 3.86, "ARI": 0.048, "NMI": 0.469, "purity": 0.327},
    ("cifar100", "naive"): {MSE: 1.280, FID: 101.84, SCORE: 3.51, "ARI": 0.055, "NMI": 0.481, "purity": 0.337},
    ("cifar100", "ghrq"): {MSE: 1.360, FID: 98.23, SCORE: 3.80, "ARI": 0.087, "NMI": 0.515, "purity": 0.370},
}

AGREEMENT = {"ARI": "ari", "NMI": "nmi", "purity": "purity", "dendrogram purity": "dendrogram_purity"}
COLOURS = Baseline("mean colours", lambda results: {"taxonomy": results["taxonomy"]["of_colours"]}, "no model")

RECONSTRUCTION = Table(
    "Reconstruction (table 4)",
    [Column(MSE, "mse", ".3f", "lowest", 1000.0)],
    paper=PAPER,
    note="Mean squared error of test images, pixels from 0 to 1, × 1000. The paper chose its epoch on the test images; "
    "here the last one counts.",
)


def _agreement(path: str, beside: str, beside_path: str) -> list[Column]:
    """A column for each measure of agreement, and one to compare it with."""
    columns = []
    for title, name in AGREEMENT.items():
        columns.append(Column(title, path.format(name), ".3f", "highest"))
        columns.append(Column(beside, beside_path.format(name), ".3f", aside=True))
    return columns


TAXONOMY = Table(
    "Superclass recovery (table 5)",
    _agreement("taxonomy.{}.value", "random", "taxonomy.{}.random"),
    baselines=[COLOURS],
    paper=PAPER,
    note="Each class is the midpoint of the decoded codes of its test images; the midpoints are merged, nearest first, "
    "and cut into as many clusters as there are superclasses. *Random*: the same tree against randomly assigned "
    "superclasses. *Mean colours*: the same from the pixels, position by position.",
)

RESAMPLED = Table(
    "Superclass recovery, resampled test images",
    _agreement("taxonomy.resampled.{}.mean", "±", "taxonomy.resampled.{}.deviation"),
    baselines=[COLOURS],
    note="The same with the test images of each class drawn again many times, with replacement: mean and standard "
    "deviation. These images do not tell kinds apart that are closer to each other than that.",
)


def _generation_note(study: StudyResults) -> str:
    def number(name: str) -> Measured:
        found = (group.number(f"samples.{name}") for group in study.groups)
        return next((values for values in found if values), Measured())

    fid = (
        f"FID of {number('fid_count').values[0]:,.0f} sampled and as many training images; it depends on the number, "
        "the paper took 10,000. "
        if number("fid_count")
        else ""
    )
    return (
        f"{fid}The Fréchet distance and the score are of the features and predictions of a small classifier on "
        f"{sum(number('count').values[:1]):,.0f} images; beside them what the test images reach. Nats: the loss of the "
        "prior on the codes of a position, on test images; no kind is the best, as codes that say little are easy to "
        "predict."
    )


GENERATION = Table(
    "Generation (table 6)",
    [
        Column(FID, "samples.fid", ".1f", "lowest"),
        Column(SCORE, "samples.inception_score", ".2f", "highest"),
        Column("Fréchet distance, classifier", "samples.classifier_distance", ".2f", "lowest"),
        Column("test images", "samples.classifier_distance_of_test_pictures", ".2f", aside=True),
        Column("score, classifier", "samples.classifier_score", ".2f", "highest"),
        Column("test images", "samples.classifier_score_of_test_pictures", ".2f", aside=True),
        Column("nats a position", lambda results: sum(results["prior"]["test_loss_by_depth"]), ".2f"),
    ],
    paper=PAPER,
    note=_generation_note,
)

QUANTIZER = Table(
    "Errors on the ball (tables 7 and 8)",
    [
        Column("residual error", "quantizer.residual_error.-1", ".3f", factor=1000.0),
        Column("telescoping error", "quantizer.telescoping_error", ".2g", "lowest", 1000.0),
        Column("median radius", "quantizer.radius.median", ".2f"),
        Column("perplexity {}", "quantizer.perplexity.*", ".0f"),
    ],
    note="Residual error: mean d²(ẑ, z). Telescoping error: of all codes and the last residual composed again. Both "
    "× 1000; those of the Euclidean kind in Euclidean units. Perplexity: how many codes of a stage are in use.",
)

TABLES = (RECONSTRUCTION, TAXONOMY, RESAMPLED, GENERATION, QUANTIZER)

CURVES = (
    Curve("mse", "Error while training", "Of held-out training images.", ("tokenizer",), "validation/mse", log=True),
    Curve("quantizer", "Loss of the quantizer", "Codebook and commitment.", ("tokenizer",), "quantizer", log=True),
    Curve("prior", "Loss of the prior", "Nats per code, mean over depths.", ("prior",)),
)


def page(title: str, study: StudyResults) -> Page:
    """The page of a study."""
    groups = study.groups
    trees = [figure for group in groups if (figure := _tree(group)) is not None]
    depth = by_depth(groups, "mse_by_depth", 1000.0)
    caption = "Mean squared error of the pixels when only the first codes are used."
    labels = ("codes used", MSE)
    errors = [lines("mse-by-depth", "Error by depth", caption, labels, depth, log=True, depths=True)] if depth else []
    rows = " From top to bottom: the image, then its reconstruction from one, two, three and four codes."
    main = RECONSTRUCTION.fill(study)
    return Page(
        ": ".join([title, *map(str, study.labels("dataset"))]),
        "Residual quantization of images, kind by kind",
        [what_was_run(study, "image"), *what_came_out(main)],
        [
            PageSection("Reconstruction", [main, Gallery(errors), _sheets(groups, RECONSTRUCTIONS, rows)]),
            PageSection("A taxonomy from codes", [TAXONOMY.fill(study), RESAMPLED.fill(study), Gallery(trees)]),
            PageSection("New images", [GENERATION.fill(study), _sheets(groups, SAMPLE_SHEET)]),
            PageSection("The quantizer", [QUANTIZER.fill(study)]),
            PageSection(
                "Training", [recipe_grid(study, _described), Gallery(training_figures(groups, CURVES))], diverged(study)
            ),
        ],
    )


def _described(recipe: ImageRecipe) -> dict[str, str]:
    t, q, p = recipe.tokenizer, recipe.quantizer, recipe.prior
    return {
        "codes": f"{q.num_stages} × {q.codebook_size} of {t.dim} dimensions",
        "tokenizer": f"{count(t.epochs, 'epoch')} at rate {t.rate:g}",
        "prior": f"{p.spatial_layers} + {p.depth_layers} layers of width {p.width}, {count(p.epochs, 'epoch')}",
        "errors": "of test images, used neither for training nor to choose its end",
    }


def _tree(group: Group) -> Figure | None:
    found: Any = group.first.get("taxonomy")
    if found is None:
        return None
    with suppress(AttributeError, LookupError, TypeError, ValueError):  # of a results.json that somebody changed
        return dendrogram(
            f"tree-{group.kind}",
            f"{label_of(group.kind)}: classes as their codes merge",
            f"ARI {found['ari']['value']:.3f}, seed {group.first_seed}. Branches whose leaves are all of one "
            "superclass have its colour.",
            found["linkage"],
            found["classes"],
            found["superclass_of"],
            found["superclasses"],
        )
    return None


def _sheets(groups: list[Group], name: str, caption: str = "") -> Gallery:
    """The image files ``name`` that the first run of each group left in its folder."""
    found = []
    for group in groups:
        path = group.finished[0].folder / name if group.finished else None
        if path is not None and path.is_file():
            found.append(Sheet(f"**{label_of(group.kind)}**, seed {group.first_seed}.{caption}", path.read_bytes()))
    return Gallery(found)
