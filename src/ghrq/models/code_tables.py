"""How probable each code is, given codes of the stages before it and of the frame before: integers only.

A table for each pair of codes would be far too large, so codes are in a few classes. There are three conditions: the
class ``a`` of the code of the stage before, ``b`` of the one before that, both of the same frame, and ``c`` of the code
of the same stage in the frame before. Code k has the weight ``2^((stage[a, k] + second[b, k] + frame[c, k]) / 16)``,
out of three small tables of bytes. Weights become widths of intervals for the coder by integer arithmetic, at least 1
each: every code can be coded, on every machine alike.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ghrq.models.range_coder import STATE_WORDS, TOTAL, RangeDecoder, RangeEncoder, Words

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Weights are powers of 2^(1/16): these times 2^16, rounded.
_STEPS = 16
_POWERS = (
    65536, 68438, 71468, 74632, 77936, 81386, 84990, 88752, 92682, 96785, 101070, 105545, 110218, 115098, 120194, 125515
)  # fmt: skip

# A code that is 2^-16 as probable as another is given no smaller weight.
_FLOOR = 16 * _STEPS

# For fitting: tries of a clustering, its most iterations, and the share of the frames that choose the settings.
_TRIES, _ITERATIONS, _HELD_OUT, _MOST_HELD_OUT = 4, 20, 0.1, 2_000

# The conditions, and how many stages before its own the code of each stands.
_BACK = {"stage": 1, "second": 2, "frame": 0}

# Counts of the whole that are added to those of a class, and how much each of the conditions counts.
_PRIORS, _TRUST = (100.0, 300.0, 1000.0), (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class CodeTables(nn.Module):
    """Tables for ``num_stages`` of ``codebook_size`` codes. New ones are uniform; :meth:`fit` learns from codes."""

    stage_classes: Tensor
    """``(num_stages, codebook_size)`` uint8: the class of each code for the stage after it."""
    second_classes: Tensor
    """The same for the stage after that."""
    frame_classes: Tensor
    """``(num_stages, codebook_size)`` uint8: the class of each code for the frame after it."""
    stage_weights: Tensor
    """``(num_stages, classes, codebook_size)`` int8, in sixteenths of a bit, given the stage before."""
    second_weights: Tensor
    """The same, given the stage before that."""
    frame_weights: Tensor
    """The same, given the frame before."""

    def __init__(self, num_stages: int, codebook_size: int, classes: int = 8) -> None:
        super().__init__()
        if codebook_size > TOTAL // 2:
            raise ValueError(f"codebook_size must be at most {TOTAL // 2} for entropy coding, got {codebook_size}")
        self.num_stages, self.codebook_size, self.classes = num_stages, codebook_size, classes
        for condition in ("stage", "second", "frame"):
            empty = torch.zeros(num_stages, classes, codebook_size, dtype=torch.int8)
            self.register_buffer(f"{condition}_classes", torch.zeros(num_stages, codebook_size, dtype=torch.uint8))
            self.register_buffer(f"{condition}_weights", empty)
        self._edges: dict[int, list[_LazyRow]] = {}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Models without tables have uniform ones."""
        for name, uniform in self.named_buffers():
            state_dict.setdefault(prefix + name, torch.zeros_like(uniform))
        self._edges.clear()
        super()._load_from_state_dict(state_dict, prefix, *args)

    def encode(self, codes: Codes) -> tuple[Words, list[int]]:
        """The stream of ``codes (frames, stages)``, and how many words each stage has in it after the state."""
        coder, sizes = RangeEncoder(), list[int]()
        for stage in reversed(range(codes.shape[1])):
            rows, own = self._rows(stage), codes[:, stage].tolist()
            classes = [0, *self._classes("frame", stage)[own[:-1]].tolist()]
            groups = self._groups(stage, codes).tolist()
            tables = [rows[group][last] for group, last in zip(groups, classes[: len(own)], strict=True)]
            starts = [table[code] for table, code in zip(tables, own, strict=True)]
            sizes.append(
                coder.push(starts, [t[k + 1] - start for t, k, start in zip(tables, own, starts, strict=True)])
            )
        return coder.finish(), sizes[::-1]

    def decode(self, words: Words, sizes: Sequence[int], frames: int) -> Codes:
        """The codes ``(frames, len(sizes))`` of a stream, whole or cut after a stage. If damaged, a ``ValueError``."""
        if len(words) != STATE_WORDS + sum(sizes):
            raise ValueError(f"{len(words)} words for sections of {sum(sizes)}")
        coder, codes = RangeDecoder(words), np.zeros((frames, len(sizes)), dtype=np.int64)
        left = sum(sizes)
        for stage, size in enumerate(sizes):
            classes = self._classes("frame", stage).tolist()
            codes[:, stage] = coder.pop(self._rows(stage), self._groups(stage, codes).tolist(), classes)
            left -= size
            if coder.words_left != left:
                raise ValueError(f"the codes of stage {stage + 1} do not end where their section ends")
        if len(sizes) == self.num_stages and not coder.is_at_end:
            raise ValueError("the codes do not end as they began")
        return codes

    def fit(self, sequences: Iterable[Codes]) -> None:
        """Learn the tables from the codes ``(frames, num_stages)`` of recordings, best some hundred thousand frames."""
        given = [np.asarray(codes, dtype=np.int64) for codes in sequences]
        codes = np.concatenate(given)
        begins = np.zeros(len(codes), dtype=bool)
        begins[np.cumsum([0, *(len(each) for each in given)])[:-1]] = True
        for stage in range(self.num_stages):
            own, none = codes[:, stage], np.full(len(codes), -1)
            given_codes = {
                "stage": codes[:, stage - 1] if stage >= 1 else none,
                "second": codes[:, stage - 2] if stage >= 2 else none,
                "frame": np.where(begins, -1, np.roll(own, 1)),
            }
            learnt = _fit_stage(own, list(given_codes.values()), self.codebook_size, self.classes)
            for (condition, back), (classes, weights) in zip(_BACK.items(), learnt, strict=True):
                if stage >= back:
                    getattr(self, f"{condition}_classes")[stage - back] = torch.from_numpy(classes)
                getattr(self, f"{condition}_weights")[stage] = torch.from_numpy(weights)
        self._edges.clear()

    def _classes(self, condition: str, stage: int) -> Codes:
        classes: Codes = getattr(self, f"{condition}_classes")[stage].cpu().numpy().astype(np.int64)
        return classes

    def _groups(self, stage: int, codes: Codes) -> Codes:
        """The classes of the codes of the two stages before, as one number for each frame; 0 for no stage."""
        found = np.zeros(len(codes), dtype=np.int64)
        for condition in ("stage", "second"):
            above, found = stage - _BACK[condition], found * self.classes
            if above >= 0:
                found += self._classes(condition, above)[codes[:, above]]
        return found

    def _rows(self, stage: int) -> "list[_LazyRow]":
        if stage not in self._edges:
            first, second, before = (
                getattr(self, f"{condition}_weights")[stage].cpu().numpy().astype(np.int64) for condition in _BACK
            )
            above = (first[:, None] + second[None]).reshape(-1, self.codebook_size)
            self._edges[stage] = [_LazyRow(group, before) for group in above]
        return self._edges[stage]


class _LazyRow(dict[int, "array[int]"]):
    """The edges of the intervals for each class of the code of the frame before, made when first needed."""

    def __init__(self, above: Codes, before: Codes) -> None:
        super().__init__()
        self._above, self._before = above, before

    def __missing__(self, last: int) -> "array[int]":
        edges = array("i", [0, *np.cumsum(widths(self._above + self._before[last])).tolist()])
        self[last] = edges
        return edges


def widths(exponents: Codes) -> Codes:
    """Intervals in proportion to ``2^(exponent / 16)``, at least 1 each, that sum to ``TOTAL``: integers only."""
    below = np.minimum(exponents.max() - exponents, _FLOOR)  # 0 for the most probable
    weights = np.array(_POWERS, dtype=np.int64)[-below % _STEPS] >> -(-below // _STEPS)
    found: Codes = 1 + weights * (TOTAL - len(weights)) // weights.sum()
    found[found.argmax()] += TOTAL - found.sum()
    return found


def _fit_stage(
    own: Codes, given: Sequence[Codes], size: int, classes: int
) -> list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int8]]]:
    """Classes and weights for each condition of the codes ``own``; ``given`` are its codes, -1 where there are none."""
    kept = np.arange(len(own)) < (1.0 - _HELD_OUT) * len(own)
    all_: Floats = (np.bincount(own, minlength=size).astype(np.float64) + 0.5) / (len(own) + 0.5 * size)
    groups = [_clusters(own, codes, all_, classes) for codes in given]
    contexts = [np.where(codes >= 0, of[codes], 0) for of, codes in zip(groups, given, strict=True)]

    def learn(where: npt.NDArray[np.bool_], prior: float) -> list[Floats]:
        found = []
        for context in contexts:
            counts = _counts(context[where], own[where], classes, size)
            found.append(np.log2((counts + prior * all_) / (counts.sum(1, keepdims=True) + prior) / all_))
        return found

    best, held = (np.inf, 0.0, 0.0), np.flatnonzero(~kept)[:_MOST_HELD_OUT]
    for prior in _PRIORS:
        ratio = sum(ratio[context[held]] for ratio, context in zip(learn(kept, prior), contexts, strict=True))
        for trust in _TRUST:
            logits = np.log2(all_) + trust * ratio
            cost = np.log2(np.exp2(logits).sum(-1)) - logits[np.arange(len(held)), own[held]]
            best = min(best, (float(cost.sum()), prior, trust))
    _, prior, trust = best
    ratios = [trust * ratio for ratio in learn(np.ones_like(kept), prior)]
    ratios[-1] = ratios[-1] + np.log2(all_)
    return [(of.astype(np.uint8), _bytes(ratio)) for of, ratio in zip(groups, ratios, strict=True)]


def _bytes(bits: Floats) -> npt.NDArray[np.int8]:
    """Sixteenths of a bit from -128 to 127, the most probable code of each row at the upper end."""
    below = np.rint(_STEPS * (bits.max(axis=1, keepdims=True) - bits))
    return (127 - np.minimum(below, 255)).astype(np.int8)


def _counts(rows: Codes, columns: Codes, height: int, width: int) -> Floats:
    return np.bincount(rows * width + columns, minlength=height * width).reshape(height, width).astype(np.float64)


def _clusters(own: Codes, given: Codes, all_: Floats, classes: int) -> Codes:
    """The class of each code of ``given``, such that the classes tell most about ``own``: ``(codebook_size,)``.

    Codes move to the class whose distribution makes what follows them most probable, until none moves.
    """
    size, chance = len(all_), np.random.default_rng(0)
    there = given >= 0
    if not there.any():
        return np.zeros(size, dtype=np.int64)
    counts = _counts(given[there], own[there], size, size)
    totals, best = counts.sum(1), (-np.inf, np.zeros(size, dtype=np.int64))
    for _ in range(_TRIES):
        seeds = chance.choice(size, classes, replace=bool((totals > 0).sum() < classes), p=totals / totals.sum())
        sums, found = counts[seeds], None
        for _ in range(_ITERATIONS):
            prior = _PRIORS[0] * all_
            scores = counts @ np.log2((sums + prior) / (sums.sum(1, keepdims=True) + _PRIORS[0])).T
            moved = scores.argmax(1)
            if found is not None and (moved == found).all():
                break
            found = moved
            sums = np.eye(classes)[found].T @ counts
        assert found is not None
        best = max(best, (float(scores.max(1).sum()), found), key=lambda each: each[0])
    return best[1]
