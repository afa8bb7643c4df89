"""Collision policies: laws on arbitrary input, and the sharing out against a plain list of pairs."""

from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghrq import ResidualQuantizer
from ghrq.ids.collisions import (
    _any_free,
    _Assignment,
    _nearest_last_codes,
    resolve,
    resolve_append,
    resolve_reassign,
)
from ghrq.ids.tuples import tuple_keys

D = 4


def tuples(codes):
    return [tuple(row) for row in codes.tolist()]


def quantizer(size, stages, kind="ghrq"):
    torch.manual_seed(size * 10 + stages)
    return ResidualQuantizer(D, size, stages, kind=kind).eval()


@st.composite
def tasks(draw):
    """A quantizer, vectors (with exact and near copies, up to as many as there are tuples) and their codes."""
    size, stages = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rq = quantizer(size, stages, draw(st.sampled_from(["ghrq", "naive", "euclidean"])))
    count = draw(st.integers(1, min(60, size**stages)))
    torch.manual_seed(draw(st.integers(0, 1000)))
    origin = torch.randint(draw(st.integers(1, count)), (count,))
    z = torch.randn(count, D)[origin] + draw(st.sampled_from([0.0, 1e-6, 0.1])) * torch.randn(count, D)
    return rq, z, rq.encode(z)


def keepers(rq, z, codes):
    """The row that keeps each tuple: the nearest, and of several the lowest."""
    distance = rq.distance(z, codes).tolist()
    owners = defaultdict(list)
    for row, name in enumerate(tuples(codes)):
        owners[name].append(row)
    return {name: min(rows, key=lambda row: (distance[row], row)) for name, rows in owners.items()}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(tasks(), st.integers(1, 4))
def test_reassign_makes_all_distinct_and_moves_only_who_must(task, beam):
    rq, z, codes = task
    before, asked = codes.clone(), set()

    def vectors_of(rows):
        assert bool((rows.diff() > 0).all())
        asked.update(rows.tolist())
        return z[rows]

    result = resolve_reassign(codes, vectors_of, rq, beam=beam)
    assert torch.equal(codes, before)
    assert result.shape == codes.shape
    assert result.dtype == codes.dtype
    assert bool(((result >= 0) & (result < rq.codebook_size)).all())
    assert len(set(tuples(result))) == len(codes)
    counts = Counter(tuples(codes))
    assert asked == {row for row, name in enumerate(tuples(codes)) if counts[name] > 1}
    distance = rq.distance(z, codes)
    for name, row in keepers(rq, z, codes).items():
        kept = tuples(result).index(name)
        assert tuples(codes)[kept] == name
        # Exact copies may differ in the last digit of their distance, by where they stand in a chunk.
        assert kept == row or abs(distance[kept] - distance[row]) < 1e-12
    assert torch.equal(resolve_reassign(codes, lambda rows: z[rows], rq, beam=beam), result)


@pytest.mark.parametrize("kind", ["ghrq", "naive", "euclidean"])
@pytest.mark.parametrize(("size", "stages", "count"), [(3, 2, 9), (4, 2, 12), (3, 3, 20), (5, 2, 25)])
def test_the_nearest_pair_of_item_and_free_tuple_comes_first(kind, size, stages, count):
    rq, every = quantizer(size, stages, kind), size**stages
    for seed in range(5):
        torch.manual_seed(seed)
        z = torch.randn(count, D)
        codes = rq.encode(z)
        keeps = keepers(rq, z, codes)
        expected = dict(zip(keeps.values(), keeps.keys(), strict=True))
        movers = [row for row in range(count) if row not in expected]
        if not movers:
            continue
        found, distance = rq.candidates(z[movers], every)
        pairs = sorted(
            (distance[i, place].item(), row, place, tuple(found[i, place].tolist()))
            for i, row in enumerate(movers)
            for place in range(every)
        )
        taken = set(keeps)
        for _, row, _, name in pairs:
            if row not in expected and name not in taken:
                expected[row] = name
                taken.add(name)
        result = resolve_reassign(codes, lambda rows, z=z: z[rows], rq, beam=every)
        assert tuples(result) == [expected[row] for row in range(count)]


def test_an_item_moves_to_the_best_free_tuple():
    rq = quantizer(8, 2)
    z = torch.randn(20, D)
    z[1] = z[0]
    codes = rq.encode(z)
    others = Counter(tuples(codes))
    result = resolve_reassign(codes, lambda rows: z[rows], rq, beam=64)
    assert others[tuples(codes)[1]] == 2
    found, _ = rq.candidates(z[1:2], 64)
    best_free = next(name for name in tuples(found[0]) if name not in others)
    assert tuples(result)[0] == tuples(codes)[0]
    assert tuples(result)[1] == best_free


def test_thousands_of_copies_get_the_nearest_last_codes_then_any_under_the_longest_prefix():
    rq = quantizer(16, 3)
    z = torch.randn(1, D).expand(16**3, D).contiguous()
    codes = rq.encode(z)
    home = codes[0]
    for count in (10, 100, 3000, 16**3):
        result = resolve_reassign(codes[:count], lambda rows: z[rows], rq, beam=1)
        assert len(set(tuples(result))) == count
        same = (result == home).cumprod(1).sum(1)
        # At most 1 + 4 leave by a beam; the others fill the tuples next to theirs before they go farther.
        assert int((same >= 2).sum()) >= min(16, count - 5)
        assert int((same >= 1).sum()) >= min(256, count - 5)


@pytest.mark.parametrize("kind", ["ghrq", "naive", "euclidean"])
@pytest.mark.parametrize("waiting", [1, 5, 9, 20])
def test_the_nearest_free_last_codes_are_those_whose_tuples_are_nearest(kind, waiting):
    rq = quantizer(12, 3, kind).double()
    home = torch.tensor([4, 7, 2])
    siblings = home.repeat(12, 1)
    siblings[:, 2] = torch.arange(12)
    far = rq.distance(rq.decode(home).expand(12, -1), siblings)
    taken = siblings[torch.tensor([2, 0, 11])]
    elsewhere = torch.tensor([[4, 6, 2]])
    draft = _Assignment.of(torch.cat((taken, elsewhere, home.repeat(waiting, 1))), 12)
    rows = torch.arange(4, 4 + waiting)
    draft.settled[rows] = False
    _nearest_last_codes(draft, rows, rq.codebooks[-1].detach(), rq.curvature)
    free = sorted(set(range(12)) - {2, 0, 11}, key=lambda code: far[code])
    assert draft.settled[rows].tolist() == [place < 9 for place in range(waiting)]
    assert tuples(draft.codes[rows]) == [(4, 7, code) for code in free][:waiting] + [(4, 7, 2)] * (waiting - 9)


@pytest.mark.slow
@given(st.integers(2, 4), st.integers(2, 4), st.data())
@settings(max_examples=150, deadline=None)
def test_any_free_shares_as_many_codes_as_there_is_room_for(size, stages, data):
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    every = torch.cartesian_prod(*[torch.arange(size)] * stages)
    taken = every[torch.randperm(len(every))[: data.draw(st.integers(1, len(every) - 1))]]
    homes = taken[torch.randint(len(taken), (data.draw(st.integers(1, len(every) - len(taken))),))]
    draft = _Assignment.of(torch.cat((taken, homes)), size)
    rows = torch.arange(len(taken), len(draft.codes))
    draft.settled[rows] = False
    _any_free(draft, rows)
    assert bool(draft.settled.all())
    assert torch.equal(draft.codes[: len(taken)], taken)
    result = draft.codes[rows]
    assert len(set(tuples(draft.codes))) == len(draft.codes)
    # Nobody could have stayed nearer: one stage up, all is taken. (Last codes alone have had their turn before.)
    same = (result == homes).cumprod(1).sum(1).tolist()
    end = tuples(draft.codes)
    for home, shared in zip(tuples(homes), same, strict=True):
        if shared + 1 <= stages - 2:
            assert sum(name[: shared + 1] == home[: shared + 1] for name in end) == size ** (stages - shared - 1)


@pytest.mark.slow
def test_long_tuples_do_not_overflow():
    rq = ResidualQuantizer(D, 256, 12).eval()
    z = torch.randn(5, D).repeat(300, 1)
    codes = rq.encode(z)
    result = resolve_reassign(codes, lambda rows: z[rows], rq)
    assert len(set(tuples(result))) == 1500
    assert tuples(result)[:5] == tuples(codes)[:5]
    rows = torch.randint(2, (2000, 90))
    keys = tuple_keys(torch.cat((rows, rows[:50])), 2)
    assert torch.equal(keys[2000:], keys[:50])
    assert len(keys.unique()) == len(rows.unique(dim=0))
    # Keys are in the order of the tuples.
    assert sorted(tuples(rows)) == [tuple(row) for row in rows[keys[:2000].argsort()].tolist()]


def test_distinct_codes_stay_and_nobody_is_asked():
    rq = quantizer(4, 2)
    codes = torch.cartesian_prod(torch.arange(4), torch.arange(4)).int()
    result = resolve_reassign(codes, lambda rows: pytest.fail(f"asked for {len(rows)} rows"), rq)
    assert torch.equal(result, codes)
    assert result.dtype == torch.int32
    assert resolve_reassign(codes[:0], lambda rows: pytest.fail("asked"), rq).shape == (0, 2)


@pytest.mark.slow
def test_the_chunks_do_not_show(monkeypatch):
    rq = quantizer(16, 3)
    z = torch.randn(400, D).repeat(3, 1)
    codes = rq.encode(z)
    monkeypatch.setattr("ghrq.ids.collisions._ROWS", 37)
    monkeypatch.setattr("ghrq.ids.collisions._TUPLES", 100)
    result = resolve_reassign(codes, lambda rows: z[rows], rq)
    assert len(set(tuples(result))) == 1200
    assert set(tuples(codes)) <= set(tuples(result))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=40))
def test_append_counts_within_each_tuple_in_row_order(rows):
    codes = torch.tensor(rows, dtype=torch.int64).view(-1, 2)
    seen, expected = Counter(), []
    for row in rows:
        expected.append((*row, seen[row]))
        seen[row] += 1
    assert tuples(resolve_append(codes)) == expected
    assert tuples(resolve(codes, "append")) == expected
    assert resolve(codes, "none") is codes
    assert resolve_append(codes.int()).dtype == torch.int32


def test_mistakes_are_named():
    rq = quantizer(2, 3)
    codes = torch.zeros(9, 3, dtype=torch.int64)
    z = torch.randn(9, D)
    with pytest.raises(ValueError, match=r"9 items cannot have an ID each: 3 stages of 2 codes make 8 tuples.*append"):
        resolve(codes, "reassign", vectors_of=lambda rows: z[rows], quantizer=rq)
    with pytest.raises(ValueError, match="needs vectors_of and quantizer"):
        resolve(codes, "reassign")
    with pytest.raises(ValueError, match="policy must be one of 'append', 'reassign', 'none', got 'drop'"):
        resolve(codes, "drop")
    with pytest.raises(ValueError, match="expected codes of 3 stages"):
        resolve_reassign(codes[:, :2], lambda rows: z[rows], rq)
    with pytest.raises(ValueError, match="to give 4 vectors of size 4 for as many rows, got shape \\(3, 4\\)"):
        resolve_reassign(codes[:4], lambda rows: z[:3], rq)
    with pytest.raises(ValueError, match="NaN"):
        resolve_reassign(codes[:4], lambda rows: z[rows] * torch.nan, rq)
    with pytest.raises(ValueError, match="num_stages"):
        resolve_append(codes[0])
    with pytest.raises(ValueError, match=r"expected integer codes, got torch\.float64"):
        resolve_append(codes.double().numpy())


@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize("size", [3, 2**13])  # keys of 5 codes that fit into 64 bits, and that do not
def test_published_ids_in_pieces_count_as_a_whole(size, fill, monkeypatch):
    torch.manual_seed(size)
    tuples_there = torch.randint(size, (6, 5))
    taken = resolve_append(tuples_there[torch.randint(6, (60,))])[torch.randperm(60)[:40]]
    codes = torch.cat((tuples_there[torch.randint(6, (15,))], torch.randint(size, (5, 5))))
    expected, held = [], defaultdict(set)
    for *first, token in taken.tolist():
        held[tuple(first)].add(token)
    for row in tuples(codes):
        free = next(token for token in range(100) if token not in held[row])
        token = free if fill else max(held[row], default=-1) + 1
        held[row].add(token)
        expected.append([*row, token])
    for rows in (7, 2**22):
        monkeypatch.setattr("ghrq.ids.collisions._TAKEN", rows)
        assert resolve_append(codes, taken=taken, fill=fill).tolist() == expected
    assert resolve_append(codes, taken=taken.short(), fill=fill).tolist() == expected
