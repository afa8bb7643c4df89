"""Look-up both ways and neighbours, against dictionaries and plain sorting; the file, whole or not at all."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghrq import Tokenizer
from ghrq.ids import Catalogue, resolve_append, resolve_reassign
from ghrq.system.errors import UserError

CODES = torch.tensor([[0, 1, 2], [0, 1, 0], [3, 3, 3], [0, 2, 2], [0, 1, 2]])
NAMES = ["apple", "pear", "nail", "plum", "apple 2"]


def shared(a, b):
    length = 0
    while length < len(a) and a[length] == b[length]:
        length += 1
    return length


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_neighbours_under_and_look_up_against_plain_search(data):
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    n, stages, size = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    codes = torch.randint(size, (n, stages))
    ids = (torch.randperm(1000)[:n] - 500).tolist()
    catalogue, k = Catalogue(ids, codes), data.draw(st.integers(1, 12))
    rows = [tuple(row) for row in codes.tolist()]
    asked = torch.randint(n, (10,)).tolist()

    vectors = torch.randint(3, (n, 2)) if data.draw(st.booleans()) else None  # equal distances, too
    catalogue = catalogue if vectors is None else Catalogue(ids, codes, vectors=vectors)

    def distance(row, other):
        return 0 if vectors is None else int((vectors[row] - vectors[other]).square().sum())

    found = catalogue.neighbours([ids[row] for row in asked], k)
    for place, row in enumerate(asked):
        others = [other for other in range(n) if other != row]
        ranked = sorted((-shared(rows[row], rows[other]), distance(row, other), other) for other in others)
        expected = [(ids[other], -length) for length, _, other in ranked if length < 0][:k]
        part = slice(found.indptr[place], found.indptr[place + 1])
        assert list(zip(found.ids[part].tolist(), found.shared[part].tolist(), strict=True)) == expected

    for m in range(stages + 1):
        prefix = rows[asked[0]][:m]
        assert catalogue.under(prefix).tolist() == [ids[row] for row in range(n) if rows[row][:m] == prefix]
    assert catalogue.under([size + 3]).tolist() == []
    assert torch.equal(catalogue.codes_of([ids[row] for row in asked]), codes[asked])

    alone = [row for row in range(n) if rows.count(rows[row]) == 1]
    assert catalogue.ids_of(codes[alone]).tolist() == [ids[row] for row in alone]
    if len(alone) < n:
        with pytest.raises(ValueError, match="share the tuple"):
            catalogue.ids_of(codes)


def test_neighbours_in_chunks(monkeypatch):
    codes = torch.randint(4, (200, 3))
    for catalogue in (Catalogue(range(200), codes), Catalogue(range(200), codes, vectors=torch.randn(200, 3))):
        expected = catalogue.neighbours(range(200), 7)
        with monkeypatch.context() as patch:
            patch.setattr("ghrq.ids.prefix_search._PAIRS", 20)
            patch.setattr("ghrq.ids.prefix_search._NUMBERS", 10)
            found = catalogue.neighbours(range(200), 7)
        assert all(map(np.array_equal, found, expected))


def test_equal_prefixes_are_sorted_by_distance(tmp_path):
    codes = torch.tensor([[0, 0], [0, 1], [0, 2], [0, 3], [0, 0], [1, 0]])
    points = np.array([[0.0], [3.0], [-1.0], [2.0], [9.0], [0.1]])
    assert Catalogue(range(6), codes).neighbours([0], 5).ids.tolist() == [4, 1, 2, 3]
    catalogue = Catalogue(range(6), codes, vectors=points)
    assert catalogue.neighbours([0], 5).ids.tolist() == [4, 2, 3, 1]
    assert catalogue.neighbours([0], 2).ids.tolist() == [4, 2]
    catalogue.save(tmp_path / "ids.parquet")
    assert Catalogue.load(tmp_path / "ids.parquet", points).neighbours([0], 3).ids.tolist() == [4, 2, 3]
    with pytest.raises(ValueError, match="expected 6 vectors, one for each item, got 5"):
        Catalogue(range(6), codes, vectors=points[:5])


def test_a_catalogue_is_like_a_mapping_from_ids_to_codes(monkeypatch):
    catalogue = Catalogue(NAMES, CODES)
    assert "pear" in catalogue
    assert "kiwi" not in catalogue
    assert 7 not in catalogue
    assert catalogue["pear"].tolist() == [0, 1, 0]
    with pytest.raises(KeyError, match="kiwi"):
        catalogue["kiwi"]
    assert list(catalogue) == NAMES
    assert repr(catalogue) == "<Catalogue of 5 items with 3 codes each>"
    assert np.int64(3) in Catalogue([3, 4], CODES[:2])
    assert Catalogue(np.array([3, 4]), CODES[:2])[np.int64(4)].tolist() == [0, 1, 0]

    frame = Catalogue(NAMES, CODES, name="asin").to_pandas()
    assert frame.index.name == "asin"
    assert frame.columns.tolist() == ["code_1", "code_2", "code_3"]
    assert frame.loc["plum"].tolist() == [0, 2, 2]
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    with pytest.raises(UserError, match="needs pandas, which is not installed: pip install pandas"):
        catalogue.to_pandas()


@pytest.mark.parametrize("make", [list, tuple, np.array, pd.Series, pl.Series, lambda x: np.array(x, dtype=object)])
@pytest.mark.parametrize("ids", [NAMES, [5, 3, -8, 10, 0]])
def test_ids_of_many_kinds(make, ids):
    catalogue = Catalogue(make(ids), CODES.numpy())
    assert len(catalogue) == 5
    assert catalogue.ids.tolist() == ids
    assert torch.equal(catalogue.codes_of(make(ids[1:3])), CODES[1:3])
    assert catalogue.ids_of(CODES[1:3].numpy()).tolist() == ids[1:3]
    assert catalogue.codes_of([]).shape == (0, 3)
    assert catalogue.neighbours([], 3).indptr.tolist() == [0]


def test_what_is_not_there_is_named():
    catalogue = Catalogue(NAMES, CODES)
    with pytest.raises(KeyError, match=r"2 of 3 items are not in the catalogue.*the first is 'kiwi'"):
        catalogue.codes_of(["apple", "kiwi", "fig"])
    with pytest.raises(KeyError, match=r"whose ids are like 'apple'; the first is 7"):
        catalogue.codes_of([7])
    with pytest.raises(KeyError, match=r"1 of 2 tuples belong to no item, the first is \[0, 1, 1\]"):
        catalogue.ids_of(torch.tensor([[0, 1, 0], [0, 1, 1]]))
    with pytest.raises(ValueError, match=r"2 items share the tuple \[0, 1, 2\]"):
        catalogue.ids_of(CODES[:1])
    assert catalogue.under(CODES[0]).tolist() == ["apple", "apple 2"]


@pytest.mark.parametrize(
    ("ids", "codes", "message"),
    [
        (["a", "b", "a", "b", "a"], CODES, r"'a' is in rows 0, 2, 4 \(from 0\)"),
        ([1, 2, 3, 4, 2], CODES, r"2 is in rows 1, 4"),
        (["x"] * 30, CODES.repeat(6, 1), r"8, 9 and 20 more"),
        (NAMES[:4], CODES, r"expected codes of shape \(4, num_stages\) for 4 ids, got shape \(5, 3\)"),
        (NAMES, CODES.float(), "integer"),
        (NAMES, CODES - 1, "from 0"),
        ([1, "b", 3, 4, 5], CODES, "all of one kind, got int, str"),
        ([1.0, 2.0, 3.0, 4.0, 5.0], CODES, "got float"),
        (["a", "b", "c", "d", None], CODES, "got NoneType, str"),
        (np.array([True, False]), CODES[:2], "got bool"),
        ([[1], [2]], CODES[:2], "one for each item"),
        ([1, 2**80], CODES[:2], "64 bits"),
        ([-1, 2**63], CODES[:2], "64 bits"),
        ("apple", CODES, "pass a list"),
        ([], CODES[:0], "neither of them 0"),
    ],
)
def test_wrong_input_is_refused(ids, codes, message):
    with pytest.raises(ValueError, match=message):
        Catalogue(ids, codes)


@pytest.mark.parametrize("ids", [NAMES, [5, 3, -8, 2**60, 0], [5, 2**63, 3, 2**64 - 1, 0]])
def test_the_file_holds_it_all(tmp_path, ids):
    path = tmp_path / "ids.parquet"
    Catalogue(ids, CODES, name="asin").save(path)
    schema = pq.read_schema(path)
    assert schema.names == ["asin", "codes"]
    assert schema.field("codes").type == pa.list_(pa.int32(), 3)
    assert list(tmp_path.iterdir()) == [path]
    back = Catalogue.load(path)
    assert back.name == "asin"
    assert back.ids.tolist() == ids
    assert torch.equal(back.codes, CODES)
    assert torch.equal(back.codes_of(ids[3:]), CODES[3:])
    # Any other reader has the same rows.
    assert pl.read_parquet(path).rows() == list(zip(ids, CODES.tolist(), strict=True))


def test_wrong_files_are_named(tmp_path):
    path = tmp_path / "ids.parquet"
    with pytest.raises(UserError, match=r"there is no file .*ids\.parquet: check the name"):
        Catalogue.load(path)
    Catalogue(NAMES, CODES).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"ids\.parquet cannot be read as parquet .*: write or copy it again"):
        Catalogue.load(path)
    path.write_bytes(whole)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    last = chunk.data_page_offset + chunk.total_compressed_size - 1  # of the page of ids
    path.write_bytes(whole[:last] + bytes([whole[last] ^ 1]) + whole[last + 1 :])
    with pytest.raises(UserError, match=r"ids\.parquet cannot be read as parquet .*: write or copy it again") as error:
        Catalogue.load(path)
    assert "\n" not in str(error.value)
    codes = pa.FixedSizeListArray.from_arrays(pa.array(range(6)), 3)
    for table, message in [
        ({"id": ["a", "b"]}, r"expected a column of ids and a column 'codes', got \['id'\]"),
        ({"codes": codes}, "expected a column of ids"),
        ({"id": ["a", "a"], "codes": codes}, "'a' is in rows 0, 1"),
        ({"id": ["a", None], "codes": codes}, "row 1 .*: column 'id' has no id"),
        ({"id": ["a", "b"], "codes": [[1, 2], [3]]}, "row 1 .* has 1 numbers, expected 2"),
        ({"id": ["a", "b"], "codes": pa.array([[1, 2], None], pa.list_(pa.int32(), 2))}, "row 1 .* value missing"),
        ({"id": ["a", "b"], "codes": pa.array([[1, 2], [3, -1]], pa.list_(pa.int32(), 2))}, "from 0"),
    ]:
        pq.write_table(pa.table(table), path)
        with pytest.raises(UserError, match=message) as error:
            Catalogue.load(path)
        assert "ids.parquet" in str(error.value)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "ids.parquet"
    Catalogue(NAMES, CODES).save(path)
    before = path.read_bytes()
    large = Catalogue(range(50_000), torch.randint(256, (50_000, 4)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # a full disk
    try:
        with pytest.raises(UserError, match=r"cannot write .*ids\.parquet \(.*File too large"):
            large.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_saving_needs_a_folder(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*c\.parquet: there is no folder .*nodir: create it first"):
        Catalogue(NAMES, CODES).save(tmp_path / "nodir" / "c.parquet")


# --- growth ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    x = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    return Tokenizer(num_stages=2, codebook_size=8, kind="euclidean").fit(x), x


@pytest.mark.parametrize("policy", ["append", "reassign"])
def test_a_catalogue_grows_shrinks_and_comes_back(policy, fitted, tmp_path):
    tokenizer, x = fitted
    x, stages = x[:40] if policy == "reassign" else x, len(tokenizer.encode(x[:1])[0])
    names, half = [f"i{row}" for row in range(len(x))], len(x) // 2
    codes = tokenizer.encode(x[:half])
    if policy == "append":
        ids = resolve_append(codes)
    else:
        ids = resolve_reassign(codes, lambda rows: tokenizer.latent(x[rows.numpy()]), tokenizer.quantizer_)
    catalogue = Catalogue(names[:half], ids, "sku", tokenizer=tokenizer)
    assert catalogue.manifest["collisions"] == policy
    grown = catalogue.extend(tokenizer, names[10:], x[10:])
    assert list(grown) == names
    assert torch.equal(grown.codes_of(names[:half]), catalogue.codes)
    assert len(grown.codes.unique(dim=0)) == len(grown)
    if policy == "append":
        np.testing.assert_array_equal(grown.codes[:, :stages], tokenizer.encode(x))

    gone = ["i3", "i7"]
    smaller = grown.retire(gone).retire(gone)
    assert list(smaller.retired) == gone
    assert len(smaller) == len(x) - 2
    assert "i3" not in smaller
    smaller.save(tmp_path / "ids.parquet")
    back = Catalogue.load(tmp_path / "ids.parquet")
    assert (back.name, back.manifest) == ("sku", smaller.manifest)
    assert torch.equal(back.retired.codes, grown.codes_of(gone))
    again = back.extend(tokenizer, ["i7"], x[7:8])
    assert torch.equal(again["i7"], grown["i7"])
    assert list(again.retired) == ["i3"]
    # The same vector as that of a retired item: another ID, unless it is given again.
    assert not torch.equal(back.extend(tokenizer, ["copy"], x[3:4])["copy"], grown["i3"])
    reused = back.extend(tokenizer, ["copy"], x[3:4], reuse=True)
    if policy == "reassign":
        assert torch.equal(reused["copy"], grown["i3"])
        assert list(reused.retired) == ["i7"]
    if policy == "append":
        with pytest.warns(UserWarning, match=r"1 items have another vector .* the first is 'i9': they keep their IDs"):
            changed = grown.extend(tokenizer, ["i9"], x[:1] + 3.0)
        assert torch.equal(changed.codes, grown.codes)


def test_mistakes_of_growth_are_named(fitted):
    tokenizer, x = fitted
    other = Tokenizer(num_stages=2, codebook_size=8, kind="euclidean", seed=1).fit(x)
    catalogue = Catalogue(range(9), resolve_append(tokenizer.encode(x[:9])), tokenizer=tokenizer)
    with pytest.raises(UserError, match=r"this catalogue holds IDs of the tokenizer .*: name the tokenizer that made"):
        catalogue.extend(other, [10], x[:1])
    unknown = Catalogue(range(9), resolve_append(tokenizer.encode(x[:9])))  # no manifest
    with pytest.raises(
        UserError, match=r"this catalogue has no manifest, and \d+% of the 9 items .*: name the tokenizer"
    ):
        unknown.extend(other, range(9), x[:9])
    assert len(unknown.extend(tokenizer, range(10), x[:10])) == 10
    with pytest.raises(UserError, match="2 is in rows 0, 1"):
        catalogue.extend(tokenizer, [2, 2], x[:2])
    with pytest.raises(ValueError, match="expected 1 vectors, one for each item, got 2"):
        catalogue.extend(tokenizer, [2], x[:2])
    with pytest.raises(UserError, match="expecting 4 features"):
        catalogue.extend(tokenizer, [12], x[:1, :3])
    with pytest.raises(UserError, match="ids of the catalogue are whole numbers, such as 0, but those given are text"):
        catalogue.extend(tokenizer, ["a"], x[:1])
    with pytest.raises(UserError, match="the catalogue has codes that the tokenizer does not have, whose sizes are"):
        Catalogue(["a", "b"], [[99, 0, 0], [1, 2, 0]]).extend(tokenizer, ["n"], x[:1])
    with pytest.raises(KeyError, match="1 of 1 items are not in the catalogue"):
        catalogue.retire([77])
    with pytest.raises(UserError, match="all 9 items would be retired"):
        catalogue.retire(range(9))
    with pytest.raises(UserError, match="the catalogue has 6 codes an item, the tokenizer 2: use"):
        Catalogue(NAMES, torch.cat((CODES, CODES), 1), tokenizer=tokenizer)
    with pytest.raises(UserError, match="only a catalogue that knows its tokenizer can keep retired items"):
        Catalogue(NAMES, CODES).retire(["pear"])
    assert catalogue.extend(tokenizer, [2**63], x[:1]).ids.tolist()[-1] == 2**63
