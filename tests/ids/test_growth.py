"""Growing catalogues against a plain one, a dictionary: nothing published moves, nothing collides."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghrq import ResidualQuantizer
from ghrq.ids.growth import NewItems, Rules, Section, grow, places, policy_of
from ghrq.system.errors import UserError

SIZE, STAGES, DIM = 3, 2, 4


def quantizer():
    torch.manual_seed(3)
    rq = ResidualQuantizer(DIM, SIZE, STAGES, kind="euclidean")
    with torch.no_grad():
        rq.codebooks.copy_(torch.randn_like(rq.codebooks))
    return rq.eval()


RQ = quantizer()


def section(items, width):
    codes = np.array([code for _, code in items], dtype=np.int32).reshape(len(items), width)
    ids = pa.array([name for name, _ in items], pa.large_string())
    return Section(lambda: [ids[:1], ids[1:]], codes)


class Plain:
    """A catalogue as two dictionaries from ids to tuples, in order."""

    def __init__(self):
        self.live, self.retired = {}, {}

    def step(self, policy, new, leave, reuse, tie_break=50):
        width = STAGES + (policy == "append")
        names, vectors = list(new), torch.tensor(list(new.values())).reshape(len(new), DIM)
        codes = RQ.encode(vectors).numpy() if len(new) else np.empty((0, STAGES), np.int64)
        items = NewItems(pa.array(names, pa.large_string()), codes, lambda rows: vectors[rows])
        live, retired = list(self.live.items()), list(self.retired.items())
        found = grow(
            section(live, width),
            section(retired, width),
            items,
            pa.array(leave, pa.large_string()),
            Rules(policy, RQ, tie_break, reuse),
        )
        self.live = {name: code for (name, code), stays in zip(live, found.kept, strict=True) if stays}
        self.live |= {retired[row][0]: retired[row][1] for row in found.back}
        given = map(tuple, found.codes.tolist())
        self.live |= {names[row]: code for row, code in zip(found.fresh, given, strict=True)}
        self.retired = {name: code for (name, code), stays in zip(retired, found.still, strict=True) if stays}
        self.retired |= dict(live[row] for row in found.leaving)
        return found, codes


@st.composite
def histories(draw):
    """Steps: vectors of new items, items that leave (names of those in use then), and whether IDs are given again."""
    vectors = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=DIM, max_size=DIM)
    names = st.sampled_from([f"i{number}" for number in range(14)])
    step = st.tuples(st.dictionaries(names, vectors, max_size=5), st.sets(names, max_size=3), st.booleans())
    return draw(st.lists(step, min_size=1, max_size=5))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["append", "reassign", "none"])
@given(histories())
@settings(max_examples=40, deadline=None)
def test_a_history_of_changes_moves_no_id_and_makes_no_collision(policy, steps):
    plain = Plain()
    plain.step(policy, {"first": [0.0] * DIM}, [], False)
    for new, leave, reuse in steps:
        before, claims = dict(plain.live), dict(plain.retired)
        leave = [name for name in sorted(leave) if name in before | claims and name not in new]
        room = SIZE**STAGES - len(before) - len(claims)
        if policy == "reassign" and len(new.keys() - before.keys() - claims.keys()) > room:
            continue
        _, codes = plain.step(policy, new, leave, reuse)
        assert set(plain.live) == (set(before) | set(new)) - set(leave)
        for name, code in plain.live.items():
            if name in before:
                assert code == before[name]
            elif name in claims:  # it comes back to its old ID
                assert code == claims[name]
        assert set(leave) <= set(plain.retired)
        if policy == "none":
            continue
        every = [*plain.live.values(), *plain.retired.values()]
        assert len(set(every)) == len(every)
        if not reuse:
            assert set(plain.retired) == (set(claims) | set(leave)) - set(new)
        if policy == "append":
            fresh = [name for name in new if name not in before and name not in claims]
            assert [plain.live[name][:STAGES] for name in fresh] == [
                tuple(code) for name, code in zip(new, codes.tolist(), strict=True) if name in fresh
            ]
            _check_tokens(fresh, plain.live, before, claims, leave, reuse)
        # Once more: nothing changes.
        again, _ = plain.step(policy, new, leave, reuse)
        assert again.nothing


def _check_tokens(fresh, live, before, claims, leave, reuse):
    """New items continue after the highest token of their tuple, or with ``reuse`` take the lowest free ones."""
    kept = {name: code for name, code in claims.items() if name in live or name in leave or not reuse}
    taken = {*before.values(), *kept.values()}
    for name in fresh:
        first = live[name][:STAGES]
        tokens = {code[-1] for code in taken if code[:STAGES] == first}
        free = [token for token in range(100) if token not in tokens]
        assert live[name][-1] == (free[0] if reuse else max(tokens, default=-1) + 1)
        taken.add(live[name])


def test_the_nearest_free_tuple_is_given_and_the_published_one_stays():
    plain, point = Plain(), RQ.decode(torch.tensor([[1, 2]]))[0].tolist()
    plain.step("reassign", {"old": point}, [], False)
    plain.step("reassign", {"new": point}, [], False)
    assert plain.live["old"] == (1, 2)
    everything = torch.cartesian_prod(torch.arange(SIZE), torch.arange(SIZE))
    distance = (RQ.decode(everything) - torch.tensor(point)).norm(dim=1)
    assert plain.live["new"] == tuple(everything[distance.argsort()[1]].tolist())


def test_an_item_with_another_vector_keeps_its_id_and_is_named():
    for policy in ("append", "reassign"):
        plain = Plain()
        one, other = (RQ.decode(torch.tensor([code]))[0].tolist() for code in ([0, 0], [2, 1]))
        plain.step(policy, {"a": one, "b": one}, [], False)
        before = dict(plain.live)
        found, _ = plain.step(policy, {"b": other, "a": one}, [], False)
        assert found.changed.tolist() == [0]
        assert found.same == 1
        assert (found.known, found.nothing, plain.live) == (2, True, before)
        found, _ = plain.step(policy, {"b": one}, [], False)
        assert not len(found.changed)  # reassign has moved it, it has not changed


def test_mistakes_are_named():
    point = [0.0] * DIM
    plain = Plain()
    plain.step("append", {"a": point, "b": point}, [], False, tie_break=3)
    with pytest.raises(UserError, match="a is to be retired, but also in the table of new items: remove it from one"):
        plain.step("append", {"a": point}, ["a"], False)
    with pytest.raises(UserError, match="2 of the 3 items to retire are not in the catalogue, the first is x"):
        plain.step("append", {}, ["a", "x", "y"], False)
    with pytest.raises(UserError, match="all 2 items would be retired: a catalogue needs at least one in use"):
        plain.step("append", {}, ["a", "b"], False)
    full = r"{} no free token in the tuple \[\d, \d\]: the tie-break token has 3 codes\. .* retire items and later"
    with pytest.raises(UserError, match=full.format("2 of the 3 new items find")):
        plain.step("append", {"c": point, "d": point, "e": point}, [], False, tie_break=3)
    plain.step("append", {"c": point}, ["a"], False, tie_break=3)
    with pytest.raises(UserError, match=full.format("1 new item finds")):
        plain.step("append", {"d": point}, [], False, tie_break=3)
    plain.step("append", {"d": point}, [], True, tie_break=3)
    assert (plain.live["d"][-1], plain.retired) == (0, {})
    plain.live["e"] = plain.live["d"]
    with pytest.raises(UserError, match=r"1 published ID of 4 is also that of another item, .* encode all items"):
        plain.step("append", {}, ["b"], False)


def test_a_full_space_of_tuples_is_named():
    plain = Plain()
    vectors = torch.randn(SIZE**STAGES, DIM).tolist()
    plain.step("reassign", {f"i{row}": vector for row, vector in enumerate(vectors)}, [], False)
    assert len(set(plain.live.values())) == SIZE**STAGES
    with pytest.raises(ValueError, match="10 items cannot have an ID each: 2 stages of 3 codes make 9 tuples"):
        plain.step("reassign", {"more": vectors[0]}, [], False)


def test_places_of_ids_of_any_type():
    numbers = [pa.array([5, 2]), pa.array([], pa.int64()), pa.array([9])]
    assert places(numbers, pa.array([9, 4, 5])).tolist() == [2, -1, 0]
    assert places(numbers, pa.array([2**63, 9], pa.uint64())).tolist() == [-1, 2]
    assert places([pa.array([-1])], pa.array([2**64 - 1], pa.uint64())).tolist() == [-1]
    assert places([pa.array(["a", "b"])], pa.array(["b"], pa.large_string())).tolist() == [1]
    assert places([pa.array(["a"])], pa.array([], pa.int64())).tolist() == []
    with pytest.raises(UserError, match="ids of the catalogue are text, such as a, but those given are whole numbers"):
        places([pa.array(["a"])], pa.array([1]))


def test_without_a_manifest_the_codes_say_how_collisions_were_resolved():
    codes = np.array([[0, 0, 0], [0, 0, 1]])
    assert policy_of({"collisions": "none"}, codes, 3) == "none"
    assert policy_of({}, codes, 2) == "append"
    assert policy_of({}, codes, 3) == "reassign"
    assert policy_of({}, codes[:, :2], 2) == "none"
