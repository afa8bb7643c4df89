"""Signs that a codec collapses while it trains, with the stage and the likely cause."""

from ghrq.quantizer.diagnosis import FEW_CODES, Diagnosis
from ghrq.system.checks import largest_size

OFFSET = 0.3
"""The offset of healthy latents is below: see :class:`ghrq.quantizer.diagnosis.Diagnosis`."""

# The share of points on the boundary of the ball, and by how much a stage may add to the error.
_BOUNDARY, _RISE = 0.1, 1.02
# A stage that gets this share of the first error has nothing left to do.
_NOTHING = 0.01

# Validations without a better mel distance, by this factor, while the learning rate is above this share of its start.
_PATIENCE, _BETTER, _LEARNING = 6, 0.995, 0.25


class Health:
    """Watches the validations of one run, and tells each sign once."""

    def __init__(self) -> None:
        self._mels: list[float] = []
        self._told: set[str] = set()

    def news(self, found: Diagnosis, mel: float, learning: float) -> list[str]:
        """Signs that were not there before. ``learning``: the learning rate, relative to its start."""
        self._mels.append(mel)
        signs = signs_of_collapse(found)
        if len(self._mels) > _PATIENCE and learning > _LEARNING:
            before, since = min(self._mels[:-_PATIENCE]), min(self._mels[-_PATIENCE:])
            if since > _BETTER * before:
                signs["mel"] = (
                    f"the mel distance has not fallen for {_PATIENCE} validations (best {before:.3f}, now {mel:.3f}): "
                    "another optimizer.rate may help"
                )
        new = [text for name, text in signs.items() if name not in self._told]
        self._told |= signs.keys()
        return new


def signs_of_collapse(found: Diagnosis) -> dict[str, str]:
    """What is wrong with a quantizer, by name: the stage and the likely cause."""
    signs, errors, size = {}, found.residual_error, largest_size(found.codebook_size)
    if found.offset > OFFSET:
        signs["offset"] = (
            f"before stage 1, {found.offset:.2f} of the median norm of the latents is common to all (healthy: below "
            f"{OFFSET}): the encoder gives up its input; lower quantizer.weight or optimizer.rate, or set "
            "quantizer.centre=true; a SEANet needs optimizer.unquantized steps first"
        )
    if found.boundary_fraction > _BOUNDARY:
        signs["boundary"] = (
            f"before stage 1, {found.boundary_fraction:.0%} of the latents are at the boundary of the ball, where few "
            "codes serve all; set or lower quantizer.radius"
        )
    idle = next((i for i, value in enumerate(found.perplexity) if value < FEW_CODES * size), None)
    if idle is not None:
        nothing = idle > 0 and errors[idle - 1] < _NOTHING * errors[0]
        signs["perplexity"] = f"stage {idle + 1} has perplexity {found.perplexity[idle]:.0f} of {size} codes: " + (
            "the stages before leave nothing to it; use fewer stages, or a larger codec.dim"
            if nothing
            else "its codes do not follow the latents; quantizer.update=ema, or a lower optimizer.rate"
        )
    rising = next((i for i in range(1, len(errors)) if errors[i] > _RISE * errors[i - 1]), None)
    if rising is not None:
        signs["residual"] = (
            f"stage {rising + 1} adds to the error of the stages before: their residuals are out of reach of its "
            "codes; lower quantizer.radius, or take a kind that telescopes (calibrated, ghrq)"
        )
    return signs


def health_values(found: Diagnosis, scale: float) -> dict[str, float]:
    """What is logged of a quantizer at each validation; ``scale`` is its multiplier on the latents."""
    by_stage = {
        f"{name}_{i}": value
        for name, values in (("perplexity", found.perplexity), ("residual_error", found.residual_error))
        for i, value in enumerate(values, start=1)
    }
    return {
        "signs_of_collapse": float(len(signs_of_collapse(found))),
        "offset": found.offset,
        "boundary": found.boundary_fraction,
        "radius": found.radius["median"],
        "scale": scale,
        **by_stage,
    }
