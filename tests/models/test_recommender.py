"""The recommender: its ways to rank against plain scores, its bad input, its files."""

import itertools
import re

import numpy as np
import pytest
import torch

from ghrq.data.interactions import Interactions
from ghrq.data.ragged import Ragged
from ghrq.models import Recommender, recommender_ranking
from ghrq.models.followers import Followers
from ghrq.models.recommender_network import RecommenderConfig
from ghrq.system.errors import UserError

N, SIZES, DIM = 40, (4, 4, 3), 6
KEYS = tuple(f"item{i}" for i in range(N))


def catalogue():
    every = torch.cartesian_prod(*(torch.arange(size) for size in SIZES))
    return every[torch.randperm(len(every))[:N]]


def small(**settings):
    options = {"keys": KEYS, "titles": tuple(f"Title {i}" for i in range(N)), "sizes": SIZES, "text_dim": DIM}
    options |= {"components": 4, "history": 5, "width": 16, "heads": 2, "feedforward": 16, "hidden": 16}
    config = RecommenderConfig(**options | settings)
    codes = catalogue() if config.sizes else None
    return Recommender(config, codes, torch.randn(N, DIM) if config.text_dim else None).eval()


def with_memory(**settings):
    """A small recommender that remembers 30 random histories, and these."""
    bought = [torch.randint(N, (int(length),)).tolist() for length in torch.randint(2, 7, (30,))]
    starts = torch.tensor([0, *itertools.accumulate(map(len, bought))])
    users = [f"user{i}" for i in range(len(bought))]
    counted = Followers.counted(
        Interactions(users, list(KEYS), starts, torch.tensor(list(itertools.chain.from_iterable(bought))))
    )
    model = small(
        pairs=len(counted.items), memory_share=0.4, memory_decay=0.7, memory_codes=0.3, memory_text=1.5, **settings
    )
    model.memory.load_state_dict(counted.state_dict())
    return model, bought


def histories(count=9, longest=8):
    lengths = torch.randint(1, longest + 1, (count,))
    return Ragged(torch.randint(N, (int(lengths.sum()),)), lengths).left_filled()


def plain_items(model, history):
    """Log-probabilities of all items as a whole for one history."""
    with torch.no_grad():
        state = model.states(history[history >= 0][None, -model.config.history :])[0, -1]
        return (torch.stack([model.embed(torch.tensor(i)) for i in range(N)]) @ state).log_softmax(0)


def plain_scores(model, history):
    """Scores of all items for one history, one item at a time: by codes and by items."""
    items = history[history >= 0][-model.config.history :]
    with torch.no_grad():
        state = model.states(items[None])[0, -1]
        by_codes = torch.stack(
            [
                model.decoder.log_probability(
                    state[None], model.codes[[i]], model.trie.path(model.codes[[i]]), model.trie
                )
                for i in range(N)
            ]
        ).squeeze(1)
    return by_codes, plain_items(model, history)


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("by", ["codes", "items", "hybrid", "reranked"])
def test_a_beam_over_everything_ranks_as_plain_scores_do(by, exclude_seen):
    model, given = small(), histories()
    allowed = torch.rand(len(given), N) < 0.8
    found = model.rank(given, 12, by=by, exclude_seen=exclude_seen, allowed=allowed, beam=N)
    for row, history in enumerate(given):
        by_codes, by_items = plain_scores(model, history)
        scores = {"codes": by_codes, "hybrid": by_codes + by_items}.get(by, by_items)
        mask = allowed[row].clone()
        if exclude_seen:
            mask[history[history >= 0]] = False
        wanted = scores.masked_fill(~mask, -torch.inf).topk(12)
        torch.testing.assert_close(found.scores[row], wanted.values, rtol=1e-4, atol=1e-4)
        assert found.items[row].tolist() == wanted.indices.tolist()


@pytest.mark.parametrize(("new", "repeats"), [([], None), ([3, 17], None), ([3, 17], 0.3), ([], 1e-6)])
@pytest.mark.parametrize("beam", [0, N])
@pytest.mark.parametrize("outputs", [("codes", "items"), ("items",)])
def test_the_memory_is_mixed_with_the_item_head(beam, outputs, new, repeats):
    model, bought = with_memory(outputs=outputs, memory_repeats=repeats)
    model.known[new] = False
    given = histories()
    found = model.rank(given, 9, beam=beam, exclude_seen=False)
    for row, history in enumerate(given):
        by_codes, by_items = plain_scores(model, history) if "codes" in outputs else (0.0, plain_items(model, history))
        items = history[history >= 0].tolist()
        followed = torch.zeros(N)
        for age, item in enumerate(reversed(items)):
            for other in bought:
                for first, second in itertools.combinations(range(len(other)), 2):
                    if other[first] == item:
                        followed[other[second]] += 0.7**age / (second - first)
        recalled = followed / followed.sum().clamp(min=1e-30)
        text = torch.nn.functional.normalize(model.text, dim=1)
        whole = sum(0.7**age * text[item] for age, item in enumerate(reversed(items)))
        near = torch.cosine_similarity(text, whole[None])
        chance = 0.6 * by_items.exp() + 0.4 * recalled
        for item in new:  # as likely as the five items with the nearest texts, if that is more
            others = sorted(set(range(N)) - set(new), key=lambda other: -float(text[item] @ text[other]))
            chance[item] = max(chance[item], sum(chance[other] for other in others[:5]) / 5)
        if repeats is not None:  # the items of the history together have this share
            old, every = float(sum(chance[item] for item in set(items))), float(chance.sum())
            for item in range(N):
                chance[item] *= repeats / old if item in items else (1 - repeats) / (every - old)
        scores = chance.log() + 0.3 * by_codes + 1.5 * near
        wanted = scores.topk(9)
        torch.testing.assert_close(found.scores[row], wanted.values, rtol=1e-4, atol=1e-4)
        assert found.items[row].tolist() == wanted.indices.tolist()


def test_items_that_nobody_repeats_come_last_and_change_no_other():
    model, _ = with_memory(memory_repeats=1e-9)
    given = histories()
    found, unseen = (model.rank(given, N, beam=0, exclude_seen=leave, fewer=True).items for leave in (False, True))
    for row, history in enumerate(given):
        seen = len(set(history[history >= 0].tolist()))
        assert found[row, : N - seen].tolist() == unseen[row, : N - seen].tolist()


def test_the_memory_of_allowed_items_counts_however_few_they_are():
    model, _ = with_memory()
    given, allowed = histories(), torch.zeros(N, dtype=torch.bool)
    allowed[::7] = True
    beam, exact = (model.rank(given, 3, allowed=allowed, exclude_seen=False, beam=width) for width in (6, 0))
    assert int(allowed.sum()) == 6
    assert torch.equal(beam.items, exact.items)


def test_the_memory_is_saved_and_grows_with_the_catalogue(tmp_path):
    model, _ = with_memory(sizes=(4, 4, 6))
    given = histories()
    model.save_pretrained(tmp_path / "model")
    again = Recommender.from_pretrained(tmp_path / "model")
    assert torch.equal(again.rank(given, 5).items, model.rank(given, 5).items)
    larger = again.extended(["new"], torch.tensor([[1, 2, 5]]), torch.randn(1, DIM))
    old = larger.memory.probabilities(given, 0.5)
    torch.testing.assert_close(old[:, :N], model.memory.probabilities(given, 0.5))
    assert not old[:, N].any()
    assert larger.rank(torch.tensor([[N]]), 5, by="memory").items.shape == (1, 5)
    with pytest.raises(UserError, match="has no memory: use by='hybrid'"):
        small().rank(given, 5, by="memory")


def test_ways_that_share_a_search_rank_as_each_alone():
    model, given = with_memory()[0], histories()
    assert model.ways == ["codes", "reranked", "items", "hybrid", "memory"]
    for beam in (12, 0):
        together = model.rank_by_each(given, 10, model.ways, beam=beam)
        for way in model.ways:
            alone = model.rank(given, 10, by=way, beam=beam)
            assert torch.equal(together[way].items, alone.items)
            assert torch.equal(together[way].scores, alone.scores)
    assert model.rank_by_each(given[:0], 3, ["codes"])["codes"].items.shape == (0, 3)


@pytest.mark.parametrize("by", ["codes", "hybrid", "reranked"])
def test_exact_scores_agree_with_a_beam_as_wide_as_the_catalogue(by):
    model, given = small(), histories()
    beam, exact = (model.rank(given, 10, by=by, beam=width) for width in (N, 0))
    torch.testing.assert_close(beam.scores, exact.scores, rtol=1e-4, atol=1e-4)
    assert torch.equal(beam.items, exact.items)


@pytest.mark.parametrize("beam", [0, 50])
@pytest.mark.parametrize("by", ["codes", "reranked", "items", "hybrid", "memory"])
def test_lists_end_where_fewer_items_are_allowed(by, beam):
    (model, _), given = with_memory(), torch.tensor([[3, 7], [-1, 9]])
    allowed = torch.zeros(2, N, dtype=torch.bool)
    allowed[0, [1, 2, 3]] = True  # 3 is in the history
    long = model.rank(given, N + 5, by=by, allowed=allowed, beam=beam, fewer=True)
    short = model.rank(given[:1], 2, by=by, allowed=allowed[:1], beam=beam)
    assert long.items.shape == long.scores.shape == (2, N + 5)
    assert torch.equal(long.items[0, :2], short.items[0])
    torch.testing.assert_close(long.scores[0, :2], short.scores[0])
    assert (long.items[0, 2:] == -1).all()
    assert (long.items[1] == -1).all()  # nothing is allowed
    assert torch.equal(long.scores.isneginf(), long.items == -1)


def test_codes_and_items_need_no_other_part():
    plain = small(sizes=(), text_dim=0, inputs=("item",), outputs=("items",))
    assert plain.rank(histories(), 5, by="items").items.shape == (9, 5)
    with pytest.raises(UserError, match="predicts no codes: use by='items'"):
        plain.rank(histories(), 5, by="hybrid")
    with pytest.raises(UserError, match="predicts no items: use by='codes'"):
        small(outputs=("codes",)).rank(histories(), 5, by="hybrid")


def test_recommendations_have_keys_and_titles_and_leave_out_what_was_seen():
    model = small()
    first, second = model.recommend([["item1", "item2"], ["item7"]], k=38)
    assert not {"item1", "item2"} & {item.key for item in first}
    assert all(item.title == f"Title {item.key.removeprefix('item')}" for item in (*first, *second))
    kept = model.recommend([["item1", "item2"]], k=N, exclude_seen=False)[0]
    assert {item.key for item in kept} == set(KEYS)
    few = model.recommend([["item1"]], k=2, allowed=["item3", "item1", "item9"])[0]
    assert {item.key for item in few} == {"item3", "item9"}


def test_old_items_count_as_seen_but_are_not_looked_at():
    model, long = small(), torch.randperm(N)[None, :20]
    by_items = model.rank(long, 5, by="items")
    assert torch.equal(by_items.scores, model.rank(long, 5, by="items").scores)
    kept = model.rank(long[:, -5:], N, by="items", exclude_seen=False)
    unseen = [item for item in kept.items[0].tolist() if item not in long[0].tolist()]
    assert by_items.items[0].tolist() == unseen[:5]


def test_rows_of_different_lengths_rank_like_padded_ones_and_only_a_few_cells_are_padded(monkeypatch):
    model, sizes = with_memory()[0], []
    filled = Ragged.left_filled
    monkeypatch.setattr(Ragged, "left_filled", lambda rows: sizes.append(filled(rows)) or sizes[-1])
    lengths = torch.tensor([3, 200, 1, 7, 2, 90, 1, 1])
    given = Ragged(torch.randint(N // 2, (int(lengths.sum()),)), lengths)
    padded = filled(given)
    whole = model.rank(padded, 5)
    assert [part.shape for part in sizes] == [(8, 200)]  # a small request is one piece
    sizes.clear()
    monkeypatch.setattr(recommender_ranking, "_CELLS", 100)
    found = model.rank(given, 5)
    assert [part.shape for part in sizes] == [(6, 7), (1, 90), (1, 200)]
    assert torch.equal(found.items, whole.items)
    torch.testing.assert_close(found.scores, whole.scores)
    gaps = torch.cat((padded, torch.full((8, 1), -1)), dim=1)  # -1 may be anywhere
    assert torch.equal(model.rank(gaps, 5).items, whole.items)


def test_bad_requests_are_one_line():
    model = small()
    with pytest.raises(UserError, match=r"catalogue of 40 items, .* lacks 1 of the items of the histories: 'nope'"):
        model.recommend([["item1", "nope"]])
    assert model.recommend([["item1", "nope"]], skip_unknown=True) == model.recommend([["item1"]])
    with pytest.raises(UserError, match=r"2 of 3 histories have no item.*number 1"):
        model.recommend([["item1"], [], ["nope"]], skip_unknown=True)
    with pytest.raises(UserError, match="k=3, but there are only 2 items allowed and not in the history"):
        model.recommend([["item1"]], k=3, allowed=["item3", "item1", "item9"])
    with pytest.raises(UserError, match="lacks 1 of the allowed items: 'nope'"):
        model.recommend([["item1"]], k=1, allowed=["item3", "nope"])
    only = model.recommend([["item1"]], k=1, allowed=["item3", "nope"], skip_unknown=True)[0]
    assert [item.key for item in only] == ["item3"]
    with pytest.raises(UserError, match="only 40 items: ask for fewer"):
        model.recommend([["item1"]], k=41, exclude_seen=False)
    with pytest.raises(UserError, match="lacks 2 of the allowed items"):
        model.recommend([["item1"]], allowed=["nope", "never"])
    with pytest.raises(UserError, match="allowed must be a list of keys, got the text 'item1'"):
        model.recommend([["item1"]], allowed="item1")
    for key in (3, None, ["item1"]):
        with pytest.raises(UserError, match=re.escape(f"keys are texts, got {key!r}")):
            model.recommend([["item2", key]], skip_unknown=True)
    for given in (None, 3, [None], [["item1"], 3], {"user": ["item1"]}):
        with pytest.raises(UserError, match="list of lists of keys"):
            model.recommend(given)
    assert model.recommend(np.array([["item1", "item2"]]), k=2) == model.recommend([["item1", "item2"]], k=2)
    for beam in (-1, 2.5):
        with pytest.raises(ValueError, match=f"beam.*{beam}"):
            model.recommend([["item1"]], 3, beam=beam)
    with pytest.raises(UserError, match="another catalogue"):
        model.rank(torch.tensor([[N]]))
    with pytest.raises(UserError, match="list of lists"):
        model.recommend(["item1"])


def test_nothing_of_old_weights_is_kept():
    model, other, given = small(), small(), histories()
    before = model.rank(given, 5).items
    model.load_state_dict(other.state_dict())
    after = model.rank(given, 5)
    assert not torch.equal(before, after.items)
    assert torch.equal(after.items, other.rank(given, 5).items)
    model.train()
    torch.nn.init.normal_(model.item_embedding.weight)
    changed = model.rank(given, 5, by="items")
    assert not torch.equal(changed.scores, other.rank(given, 5, by="items").scores)
    assert model.training


def test_a_model_is_a_folder(tmp_path):
    model, given = small(), histories()
    model.save_pretrained(tmp_path / "model")
    again = Recommender.from_pretrained(tmp_path / "model")
    assert again.config == model.config
    assert torch.equal(again.rank(given, 5).items, model.rank(given, 5).items)


def test_new_items_can_be_recommended_without_training():
    model = small(sizes=(4, 4, 6))
    text, codes = torch.randn(2, DIM), torch.tensor([[1, 2, 4], [3, 0, 5]])
    larger = model.extended(["new1", "new2"], codes, text, ["New 1", "New 2"])
    assert len(larger) == N + 2
    names = [item.key for item in larger.recommend([["item1", "new2"]], k=N)[0]]
    assert "new1" in names
    # By items alone, old items keep their order: their vectors are the same.
    old = [item.key for item in larger.recommend([["item1"]], k=N + 1, by="items")[0] if not item.key.startswith("new")]
    assert old == [item.key for item in model.recommend([["item1"]], k=N - 1, by="items")[0]]
    torch.testing.assert_close(larger.text[-2:], (text - model.text_mean) @ model.text_map, rtol=1e-5, atol=1e-5)


def test_new_items_get_the_next_free_tie_break_token():
    model = small(sizes=(4, 4, 9))
    shared = model.codes[0, :2].repeat(3, 1).numpy()  # as a tokenizer encodes
    text = np.random.default_rng(0).normal(size=(3, DIM)).astype(np.float32)
    larger = model.extended(["new1", "new2", "new3"], shared, text, ["1", "2", "3"])
    same = (model.codes[:, :2] == model.codes[0, :2]).all(1)
    first = int(model.codes[same, 2].max()) + 1
    assert larger.codes[-3:, 2].tolist() == [first, first + 1, first + 2]
    assert larger.config.titles[-1] == "3"
    keys = [f"n{first + i}" for i in range(10 - first)]
    many, text = model.codes[:1, :2].repeat(len(keys), 1), torch.randn(len(keys), DIM)
    with pytest.raises(UserError, match=r"the new item 'n9': the tie-break token of its ID has code 9.*ids.tie_break"):
        model.extended(keys, many, text)


ID = [[0, 0, 2]]
NOT_FITTING = {
    "the new item 'new': the tie-break token of its ID has code 3, but the model knows 3": {"codes": [[0, 0, 3]]},
    "stage 1 of its ID has code -1": {"codes": [[-1, 0, 2]]},
    "stage 2 of its ID has code 7.*use the tokenizer": {"codes": [[1, 7]]},
    r"IDs \(1, 3\) for the new items, or \(1, 2\) without.*got \(1, 1\)": {"codes": [[0]]},
    "whole numbers, got torch.float": {"codes": [[0.5, 0.0, 1.0]]},
    "'item1' again": {"keys": ["item1"]},
    "a key of the new items is empty": {"keys": [""]},
    "must be texts, got 7: write '7'": {"keys": [7]},
    r"list of texts, got the text 'new': write \['new'\]": {"keys": "new"},
    "a title for each of 1 new items, or none, got 2": {"titles": ["a", "b"]},
    r"text vectors \(1, 6\)": {"vectors": torch.zeros(1, 5)},
    r"text vectors \(1, 6\).*got none": {"vectors": None},
    "the new item 'new': its text vector has NaN": {"vectors": torch.full((1, 6), torch.nan)},
}


@pytest.mark.parametrize("message", NOT_FITTING)
def test_new_items_that_do_not_fit_are_refused(message):
    given = {"keys": ["new"], "codes": ID, "vectors": torch.zeros(1, DIM)} | NOT_FITTING[message]
    given["codes"] = torch.tensor(given["codes"])
    with pytest.raises(UserError, match=message):
        small().extended(**given)


def test_new_items_with_an_id_that_is_taken_are_named():
    model, text = small(), torch.randn(2, DIM)
    with pytest.raises(UserError, match="the new item 'new' has the same ID as 'item0'"):
        model.extended(["new"], model.codes[:1], text[:1])
    with pytest.raises(UserError, match="got 'b' again"):
        model.extended(["b", "b"], model.codes[:2], text)


def test_a_model_of_other_codes_is_refused():
    model = small()
    with pytest.raises(UserError, match="do not belong together"):
        Recommender(model.config, model.codes[:, :2])
