"""New items of a recommender, checked one by one: errors name the item."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.ids import resolve_append
from ghrq.ids.tuples import Codes, tuple_keys
from ghrq.models.recommender_network import RecommenderConfig
from ghrq.system.errors import UserError

Vectors = Tensor | npt.NDArray[np.floating]


class NewItems(NamedTuple):
    """``m`` items that a catalogue does not have yet."""

    keys: tuple[str, ...]
    codes: Tensor
    """``(m, num_stages)``, with the tie-break token."""
    vectors: Tensor | None
    """``(m, text_dim)``."""
    titles: tuple[str, ...]
    """One for each, or none."""


def new_items(
    config: RecommenderConfig,
    taken: Tensor,
    keys: Sequence[str],
    codes: Codes,
    vectors: Vectors | None,
    titles: Sequence[str],
) -> NewItems:
    """What was given, if it fits to a catalogue with the IDs ``taken (n, num_stages)``; else an error."""
    names, called = _texts("keys", keys), _texts("titles", titles)
    known = set(config.keys)
    for key in names:
        if not key:
            raise UserError("a key of the new items is empty: give each item a key of its own")
        if key in known:
            raise UserError(f"the keys of new items must be new and different, got {key!r} again: leave it out")
        known.add(key)
    if called and len(called) != len(names):
        raise UserError(f"expected a title for each of {len(names)} new items, or none, got {len(called)}")
    texts = _text_vectors(config, names, vectors)
    return NewItems(names, _ids(config, taken, names, codes), texts, called)


def _texts(what: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise UserError(f"{what} of new items must be a list of texts, got the text {given!r}: write [{given!r}]")
    wrong = [each for each in given if not isinstance(each, str)]
    if wrong:
        raise UserError(f"{what} of new items must be texts, got {wrong[0]!r}: write {str(wrong[0])!r}")
    return tuple(given)


def _ids(config: RecommenderConfig, taken: Tensor, keys: tuple[str, ...], given: Codes) -> Tensor:
    codes, stages = torch.as_tensor(given), len(config.sizes)
    if codes.is_floating_point() or codes.dtype == torch.bool:
        raise UserError(f"the IDs of new items must be whole numbers, got {codes.dtype}: give those of the tokenizer")
    codes = codes.to(taken)
    if stages > 1 and codes.shape == (len(keys), stages - 1):
        _check_range(config, keys, codes)
        codes = resolve_append(codes, taken=taken)
    if codes.shape != (len(keys), stages):
        raise UserError(
            f"the model needs IDs ({len(keys)}, {stages}) for the new items, or ({len(keys)}, {max(0, stages - 1)}) "
            f"without the tie-break token, got {tuple(codes.shape)}"
        )
    _check_range(config, keys, codes)
    if stages:
        _check_distinct(config, keys, codes, taken)
    return codes


def _check_range(config: RecommenderConfig, keys: tuple[str, ...], codes: Tensor) -> None:
    """``codes (m, ≤ num_stages)`` must be codes that the model knows."""
    for stage, (size, column) in enumerate(zip(config.sizes, codes.unbind(1), strict=False)):
        wrong = ((column < 0) | (column >= size)).nonzero().squeeze(1).tolist()
        if wrong:
            last = stage == len(config.sizes) - 1
            what = "the tie-break token" if last else f"stage {stage + 1}"
            outgrown = "too many items share its other codes: leave it out, or train with a larger ids.tie_break"
            remedy = outgrown if last else "use the tokenizer that the model was trained with"
            raise UserError(
                f"the new item {keys[wrong[0]]!r}: {what} of its ID has code {int(column[wrong[0]])}, but the model "
                f"knows {size} (0 to {size - 1}): {remedy}"
            )


def _check_distinct(config: RecommenderConfig, keys: tuple[str, ...], codes: Tensor, taken: Tensor) -> None:
    every = (*config.keys, *keys)
    owner: dict[int, int] = {}
    for place, name in enumerate(tuple_keys(torch.cat((taken, codes)), config.sizes).tolist()):
        first = owner.setdefault(name, place)
        if first != place:
            raise UserError(
                f"the new item {every[place]!r} has the same ID as {every[first]!r}: leave out the tie-break tokens, "
                "and the model adds the next free ones (or ghrq.ids.resolve_append with taken=model.codes)"
            )


def _text_vectors(config: RecommenderConfig, keys: tuple[str, ...], given: Vectors | None) -> Tensor | None:
    shape = (len(keys), config.text_dim)
    if not config.text_dim:
        if given is not None:
            raise UserError("the model knows no texts: leave out the text vectors of the new items")
        return None
    vectors = None if given is None else torch.as_tensor(given)
    if vectors is None or vectors.shape != shape:
        got = "none" if vectors is None else str(tuple(vectors.shape))
        raise UserError(f"the model needs text vectors {shape} for the new items, got {got}")
    wrong = (~vectors.isfinite().all(1)).nonzero().squeeze(1).tolist()
    if wrong:
        raise UserError(
            f"the new item {keys[wrong[0]]!r}: its text vector has NaN or infinite numbers: embed its text again, or "
            "leave it out"
        )
    return vectors
