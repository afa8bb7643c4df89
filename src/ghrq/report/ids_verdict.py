"""Are the IDs good enough, and what to change: checks of measured numbers against fixed bounds.

docs/semantic-ids.md has the same rules in words.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ghrq.metrics.quality import Quality, percent

# Least share of the (distinct) vectors that have a tuple of their own, most error as a share of the variance, and least
# share of a codebook that is used.
DISTINCT, ERROR, USED = 0.95, 0.5, 0.5

# Neighbours have to share this many times as many first codes as random pairs, or be halfway from those to all codes:
# with few codes, random pairs already share many.
NEIGHBOURS = 2.0

# The last stage is of no use if the tuples without it are nearly as distinct and decode with nearly the same error.
LESS_DISTINCT, LESS_ERROR = 0.01, 0.01


@dataclass(frozen=True)
class Check:
    """One number beside its bound."""

    name: str
    value: str
    bound: str
    passed: bool
    verdict: str
    """What it means if the check failed."""
    advice: str
    """What to change then: one sentence."""


@dataclass(frozen=True)
class Verdict:
    """The first check that failed decides; the checks are in the order of their weight."""

    verdict: str
    advice: str
    checks: list[Check]

    def to_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON."""
        return asdict(self)


def judge(quality: Quality) -> Verdict:
    """Check what was measured: collisions and usage always, errors and neighbours where there are vectors."""
    checks = [
        *_equal(quality),
        _distinct(quality),
        *_neighbours(quality),
        *_error(quality),
        _usage(quality),
        *_last_stage(quality),
    ]
    failed = next((check for check in checks if not check.passed), None)
    if failed is not None:
        return Verdict(failed.verdict, failed.advice, checks)
    more = "" if quality.neighbours else " Errors and neighbours were not checked: --items gives the vectors for it."
    return Verdict("fine", f"Use these IDs as they are.{more}", checks)


def _equal(quality: Quality) -> list[Check]:
    """A check that is shown only if it failed: without differences, the other checks mean nothing."""
    if quality.distinct_vectors != 1 or quality.items == 1:
        return []
    advice = "Check the column of vectors (--column) and what computed it: no codes can tell these items apart."
    return [Check("distinct vectors", "1", "at least 2", False, "all vectors are equal", advice)]


def _distinct(quality: Quality) -> Check:
    """Of the tuples without the tie-break token, which hides collisions."""
    stages, items = quality.stages, quality.distinct_vectors or quality.items
    tuples = round(quality.uniqueness[stages - 1] * quality.items)
    poor = _least_used(quality)
    if _used(quality, poor) < USED:
        advice = (
            f"Look for outliers and nearly equal vectors, then fit again: items share tuples although stage {poor + 1} "
            f"uses only {percent(quality.usage[poor])} of its codes."
        )
    else:
        advice = f"Fit again with one stage more, --stages {stages + 1}, to tell items apart."
    what = f"distinct tuples per {'item' if quality.distinct_vectors is None else 'distinct vector'}"
    share = min(1.0, tuples / items)
    return Check(what, f"{share:.1%}", f"at least {DISTINCT:.0%}", share >= DISTINCT, "too many collisions", advice)


def _neighbours(quality: Quality) -> list[Check]:
    near = quality.neighbours
    if near is None:
        return []
    bound = min(NEIGHBOURS * near.mean_length_random, (near.mean_length_random + quality.stages) / 2)
    return [
        Check(
            "first codes shared by neighbours",
            f"{near.mean_length:.2f} (random pairs {near.mean_length_random:.2g})",
            f"at least {bound:.2g}",
            near.mean_length >= bound,
            "the codes do not follow the vectors",
            "Check that --items is the table these IDs were made from; if it is, fit the tokenizer on it again.",
        )
    ]


def _error(quality: Quality) -> list[Check]:
    lost = quality.reconstruction
    if lost is None:
        return []
    doubled = [2 * size for size in quality.codebook_size[: quality.stages]]
    advice = f"Fit again with bigger codebooks, --codes {_codes(doubled)}, to keep more of the vectors."
    passed = lost.relative[-1] <= ERROR
    return [
        Check(
            "squared error, of the variance",
            f"{lost.relative[-1]:.1%}",
            f"at most {ERROR:.0%}",
            passed,
            "the codes are coarse",
            advice,
        )
    ]


def _usage(quality: Quality) -> Check:
    poor, sizes = _least_used(quality), quality.codebook_size[: quality.stages]
    used = [round(share * size) for share, size in zip(quality.usage, sizes, strict=False)]
    size, most = sizes[poor], max(used) if len(set(sizes)) == 1 else used[poor]
    enough = 1 << (most - 1).bit_length()  # a power of two
    if enough >= size and poor > 0 and quality.uniqueness[poor - 1] >= DISTINCT:
        change = f"fewer stages, --stages {poor}"
    else:
        smaller = min(enough, max(1, size // 2))
        fewer = [smaller if stage == poor or len(set(sizes)) == 1 else own for stage, own in enumerate(sizes)]
        change = f"smaller codebooks, --codes {_codes(fewer)}"
    advice = f"Fit again with {change}: stage {poor + 1} uses only {percent(quality.usage[poor])} of its codes."
    share = _used(quality, poor)
    name = f"codes used, stage {poor + 1} (the fewest)"
    return Check(
        name, f"{share:.1%}", f"at least {USED:.0%}", share >= USED, "good, but with more codes than needed", advice
    )


def _last_stage(quality: Quality) -> list[Check]:
    lost, stages = quality.reconstruction, quality.stages
    if lost is None or stages < 2:
        return []
    distinct = quality.uniqueness[stages - 1] - quality.uniqueness[stages - 2]
    error = lost.relative[stages - 2] - lost.relative[stages - 1]
    return [
        Check(
            f"what stage {stages} adds",
            f"{100 * distinct:.1f} points of distinct tuples, {100 * error:.1f} of error",
            f"{100 * LESS_DISTINCT:.0f} point of either",
            distinct >= LESS_DISTINCT or error >= LESS_ERROR,
            "good, but longer than needed",
            f"Fit again with one stage less, --stages {stages - 1}: the last one adds next to nothing.",
        )
    ]


def _codes(sizes: Sequence[int]) -> str:
    """As ``--codes`` takes them: one number for all stages, or one for each."""
    return str(sizes[0]) if len(set(sizes)) == 1 else ",".join(map(str, sizes))


def _least_used(quality: Quality) -> int:
    return min(range(quality.stages), key=lambda stage: _used(quality, stage))


def _used(quality: Quality, stage: int) -> float:
    """Share of the codes that are used, of those that so few items can use."""
    size = quality.codebook_size[stage]
    return quality.usage[stage] * size / min(size, quality.items)
