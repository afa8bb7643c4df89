"""The report of the audio task: figure 3 and the audio row of table 7 of the paper."""

from collections.abc import Sequence
from typing import Any

from ghrq.report import Column, Table
from ghrq.report.curves import Curve, training_figures
from ghrq.report.figures import ChartLine, Figure, Gallery, draw_figure, lines
from ghrq.report.kinds import looks
from ghrq.report.page import Page, PageSection
from ghrq.report.results import Group, StudyResults, length_at
from ghrq.report.study import recipe_grid
from ghrq.report.words import count, diverged, what_came_out, what_was_run
from ghrq.tasks.audio.recipe import AudioRecipe

# At 12 stages, of the paper's 24 kHz model at 12 kbit/s after 10 epochs; d = 64 is not in the paper.
MEL, PESQ, STOI, SI_SDR = "mel distance", "PESQ", "STOI", "SI-SDR"
_PAPER = {
    ("euclidean", 8): (1.126, 1.506, 0.872, -11.30),
    ("ghrq", 8): (1.210, 1.391, 0.848, -14.62),
    ("naive", 8): (1.297, 1.192, 0.793, -20.37),
    ("euclidean", 32): (1.084, 1.665, 0.889, -7.35),
    ("ghrq", 32): (1.162, 1.448, 0.854, -13.18),
    ("naive", 32): (1.330, 1.143, 0.773, -32.56),
    ("euclidean", 128): (1.090, 1.654, 0.893, -6.36),
    ("ghrq", 128): (1.265, 1.269, 0.814, -19.63),
    ("naive", 128): (1.429, 1.121, 0.735, -23.97),
}
PAPER = {key: dict(zip((MEL, PESQ, STOI, SI_SDR), row, strict=True)) for key, row in _PAPER.items()}

QUALITY = Table(
    "Quality at full depth (end of figure 3)",
    [
        Column(MEL, "mel", ".3f", "lowest"),
        Column(PESQ, "pesq", ".3f", "highest"),
        Column(STOI, "stoi", ".3f", "highest"),
        Column(SI_SDR, "si_sdr", ".1f", "highest"),
        Column("nominal kbit/s", "by_depth.nominal.-1", ".2f"),
        Column("entropy kbit/s", "by_depth.entropy.-1", ".2f"),
        Column("file kbit/s", "by_depth.file.-1", ".2f"),
    ],
    paper=PAPER,
    note="Of speakers that training has not heard. Mel distance: mean difference of log mel spectra (natural log), "
    "lower is better. The paper's are another model, rate and data: 24 kHz, 12 kbit/s.",
)

BY_DEPTH = Table(
    "Mel distance by depth",
    [Column("mel, depth {}", "by_depth.mel.*", ".3f", "lowest")],
    note="The columns are for 1, 2, 4, 8 and all stages.",
)

QUANTIZER = Table(
    "Errors on the ball (table 7)",
    [
        Column("residual error", "quantizer.residual_error.-1", ".3g"),
        Column("telescoping error", "quantizer.telescoping_error", ".2g", "lowest"),
        Column("offset", "quantizer.offset", ".2f", "lowest"),
        Column("median radius", "quantizer.radius.median", ".2f"),
        Column("lowest perplexity", lambda results: min(results["quantizer"]["perplexity"]), ".0f"),
    ],
    paper={"naive": {"residual error": 0.521}, "ghrq": {"residual error": 0.0044}},
    note="Residual error: mean d²(ẑ, z); of the Euclidean kind in Euclidean units. Telescoping error: of all codes "
    "and the last residual composed again. Offset: what all latents have in common, as a share of their median norm; "
    "near 1 the encoder has collapsed. The paper's numbers are means over its dimensions.",
)

TABLES = (QUALITY, BY_DEPTH, QUANTIZER)

CURVES = (
    Curve("mel", "Mel distance while training", "Of validation speakers, full depth.", ("codec",), "validation/mel"),
    Curve("offset", "Offset of the latents", "Of validation speakers.", ("codec",), "validation/offset"),
)

_SCORES = {"mel": MEL, "pesq": PESQ, "stoi": STOI, "si_sdr": f"{SI_SDR} in dB"}


def page(title: str, study: StudyResults) -> Page:
    """The page of a study."""
    main = QUALITY.fill(study)
    dims: list[Any] = study.labels("dim") or [None]
    figures = [
        figure
        for dim in dims
        for name in _SCORES
        for figure in _rate_distortion(study.groups if dim is None else study.select(dim=dim), name, dim)
    ]
    training = [
        figure
        for dim in dims
        for figure in training_figures(
            study.groups if dim is None else study.select(dim=dim), CURVES, "" if dim is None else f"dim {dim}"
        )
    ]
    return Page(
        title,
        "Residual quantization of speech, kind by kind",
        [what_was_run(study, "audio"), *what_came_out(main)],
        [
            PageSection("Rate and distortion (figure 3)", [Gallery(figures), main, BY_DEPTH.fill(study)]),
            PageSection("The quantizer", [QUANTIZER.fill(study)]),
            PageSection("Training", [recipe_grid(study, _described), Gallery(training)], diverged(study)),
        ],
    )


def _rate_distortion(groups: Sequence[Group], name: str, dim: object) -> list[Figure]:
    """A score over the entropy of the codes, a line for each kind; the spread is that over seeds."""
    given = [line for group in groups if (line := _line(group, name))]
    if not given:
        return []
    where = "" if dim is None else f", d = {dim}"
    file = f"rate-{name.replace('_', '-')}" + ("" if dim is None else f"-d{dim}")
    caption = "At 1, 2, 4, 8 and all stages, against the entropy of the codes."
    return [lines(file, f"{_SCORES[name]}{where}", caption, ("kbit/s", _SCORES[name]), given)]


def figure_three(study: StudyResults) -> Figure | None:
    """Figure 3 of the paper: PESQ and SI-SDR over the entropy of the codes, by kind; paler for smaller dimensions."""
    dims = sorted({group.axes.get("dim", 0) for group in study.groups}, key=lambda dim: float(dim))
    shades = {dim: 0.35 + 0.65 * (place + 1) / len(dims) for place, dim in enumerate(dims)}
    found = {name: [(g, line) for g in study.groups if (line := _line(g, name))] for name in ("pesq", "si_sdr")}
    if not any(found.values()):
        return None

    def draw(panels: Any) -> None:
        for axes, (name, given) in zip(panels, found.items(), strict=True):
            for (group, line), look in zip(given, looks([group.kind for group, _ in given]), strict=True):
                dim = group.axes.get("dim", 0)
                label = f"{look.label}, d = {dim}" if len(dims) > 1 else look.label
                style = {"color": look.colour, "marker": look.marker, "alpha": shades[dim], "label": label}
                spread = [value.spread for value in line.y]
                axes.errorbar(line.x, [v.mean for v in line.y], spread if any(spread) else None, capsize=2, **style)
            axes.set(xlabel="entropy of the codes, kbit/s", ylabel=_SCORES[name])

    caption = (
        "Rate and distortion at 1, 2, 4, 8 and all stages, against the entropy of the codes; bars are the spread over "
        f"seeds. {what_was_run(study, 'audio').replace('**', '')}"
    )
    return draw_figure("rate-distortion", "", caption, 3.9, draw, width=9.2, panels=2)


def _line(group: Group, name: str) -> ChartLine | None:
    """A score over the entropy of the codes; the spread is that over seeds."""
    places = range(length_at(group.first, f"by_depth.{name}"))
    x = [group.number(f"by_depth.entropy.{place}").mean for place in places]
    y = [group.number(f"by_depth.{name}.{place}") for place in places]
    return ChartLine(group.kind, x, y) if x and all(y) else None


def _described(recipe: AudioRecipe) -> dict[str, str]:
    q, o, codec = recipe.quantizer, recipe.optimizer, recipe.codec
    return {
        "codes": f"{q.num_stages} × {q.codebook_size} of {codec.dim} dimensions",
        "codec": f"{codec.architecture}, {codec.sample_rate / 1000:g} kHz",
        "training": f"{count(o.steps, 'step')} of {o.batch} × {o.crop:g} s at rate {o.rate:g}",
        "scores": "of speakers of the test split, used neither for training nor to choose its end",
    }
