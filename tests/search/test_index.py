"""CodeIndex against a plain search: every ID decoded by the tokenizer, distances in float64, lists by a loop."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import ghrq
from ghrq.ids import Catalogue, resolve_append
from ghrq.search import CodeIndex, scan
from ghrq.system.errors import UserError

ROWS, DIM = 1500, 10


def vectors(rows=ROWS, seed=0):
    random = np.random.default_rng(seed)
    groups = 5.0 + 2.0 * np.random.default_rng(9).standard_normal((30, DIM))
    return (groups[random.integers(0, 30, rows)] + random.standard_normal((rows, DIM))).astype(np.float32)


def fitted(kind="euclidean", **settings):
    given = {"codebook_size": [16, 40, 24], "seed": 0, "iterations": 3} | settings
    return ghrq.Tokenizer(kind=kind, **given).fit(vectors())


@pytest.fixture(scope="module")
def flat():
    return fitted()


@pytest.fixture(scope="module")
def curved():
    return fitted("ghrq")


@pytest.fixture(params=["flat", "curved"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def plain_search(tokenizer, codes, queries, k, probes):
    """Squared distances ``(m, k)`` of the nearest items in the nearest ``probes`` lists by the first code."""
    decoded = tokenizer.decode(codes).astype(np.float64)
    lists = np.unique(codes[:, 0])
    centroids = tokenizer.decode(lists[:, None]).astype(np.float64)
    result = []
    for q in queries.astype(np.float64):
        near = lists[np.argsort(np.square(centroids - q).sum(1))[:probes]]
        inside = np.isin(codes[:, 0], near)
        result.append(np.sort(np.square(decoded[inside] - q).sum(1))[:k])
    return np.array(result)


@pytest.mark.parametrize("probes", [3, 99])
@pytest.mark.parametrize("way", ["tables", "decoded"])
def test_distances_are_those_of_a_plain_search(tokenizer, probes, way, monkeypatch):
    x, queries = vectors(), vectors(40, seed=1)
    codes = tokenizer.encode(x)
    index = CodeIndex(tokenizer, codes)
    if tokenizer.kind == "euclidean":
        monkeypatch.setattr(scan, "tables_are_cheaper", lambda *_: way == "tables")
    elif way == "tables":
        pytest.skip("the ball has no tables")
    found = index.search(queries, 7, probes)
    expected = plain_search(tokenizer, codes, queries, 7, probes)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-5)
    own = np.square(tokenizer.decode(codes[found.ids.ravel()]).reshape(40, 7, DIM) - queries[:, None]).sum(-1)
    np.testing.assert_allclose(found.distances, own, rtol=1e-4)  # the ids are the items of these distances


def test_queries_one_by_one_find_the_same(tokenizer, monkeypatch):
    codes, queries = tokenizer.encode(vectors()), vectors(9, seed=1)
    index = CodeIndex(tokenizer, codes)
    for few, sizes in ((0, 2**21), (99, 2**21), (99, 300)):
        monkeypatch.setattr(scan, "_FEW", few)
        monkeypatch.setattr(scan, "_NUMBERS", sizes)
        found = index.search(queries, 20, 5).distances
        np.testing.assert_allclose(found, plain_search(tokenizer, codes, queries, 20, 5), rtol=1e-5)


def test_lists_in_pieces_give_the_same(tokenizer, monkeypatch):
    codes, queries = tokenizer.encode(vectors()), vectors(9, seed=1)
    index = CodeIndex(tokenizer, codes)
    whole = index.search(queries, 20, 5).distances
    monkeypatch.setattr(scan, "_NUMBERS", 700)
    monkeypatch.setattr("ghrq.search.index._CANDIDATES", 300)
    np.testing.assert_array_equal(index.search(queries, 20, 5).distances, whole)


def test_the_rule_between_tables_and_decoding(flat, curved):
    short = CodeIndex(flat, flat.encode(vectors()))
    assert not scan.tables_are_cheaper(short.lists, short._decoder, 1000, 16)
    x = np.random.default_rng(0).standard_normal((800, 300)).astype(np.float32)
    wide = ghrq.Tokenizer(kind="euclidean", codebook_size=8, num_stages=2, seed=0, iterations=1).fit(x)
    index = CodeIndex(wide, wide.encode(x))
    assert scan.tables_are_cheaper(index.lists, index._decoder, 1, 1)
    ball = CodeIndex(curved, curved.encode(vectors()))
    assert not scan.tables_are_cheaper(ball.lists, ball._decoder, 1, 1)


def test_an_autoencoder_is_decoded():
    tokenizer = fitted(engine="autoencoder", hidden=(16,), latent_dim=4, epochs=1, codebook_size=8, num_stages=2)
    codes, queries = tokenizer.encode(vectors()), vectors(5, seed=1)
    found = CodeIndex(tokenizer, codes).search(queries, 4, 99)
    np.testing.assert_allclose(found.distances, plain_search(tokenizer, codes, queries, 4, 99), rtol=1e-5)


def test_many_items_are_split_by_two_codes(flat, monkeypatch):
    codes, queries = flat.encode(vectors()), vectors(30, seed=1)
    monkeypatch.setattr("ghrq.search.lists._ITEMS_A_LIST", 2)
    index = CodeIndex(flat, codes)
    assert index.lists.depth == 2
    assert len(index.lists) == len(np.unique(codes[:, :2], axis=0))
    exhaustive = plain_search(flat, codes, queries, 5, 99)
    np.testing.assert_allclose(index.search(queries, 5, len(index.lists)).distances, exhaustive, rtol=1e-5)


def test_k_items_are_found_even_where_lists_are_small(flat):
    codes = flat.encode(vectors())
    few = np.concatenate([codes[codes[:, 0] == code][:2] for code in range(16)])
    index, queries = CodeIndex(flat, few), vectors(8, seed=1)
    found = index.search(queries, 9, probes=1)
    assert found.ids.shape == (8, 9)
    assert all(len(set(row)) == 9 for row in found.ids.tolist())
    assert np.isfinite(found.distances).all()
    assert index.search(queries, 1000).ids.shape == (8, len(few))
    # The others do not change because one query needed more lists.
    np.testing.assert_array_equal(index.search(queries[:1], 9, probes=1).ids, found.ids[:1])


def test_equally_near_items_come_in_their_order(flat):
    codes = np.repeat(flat.encode(vectors(3)), 4, axis=0)[::-1]
    found = CodeIndex(flat, codes).search(vectors(3), 12, 99).ids
    for row in found.tolist():
        assert [sorted(row[i : i + 4]) for i in (0, 4, 8)] == [row[i : i + 4] for i in (0, 4, 8)]


def test_rerank_gives_true_neighbours(flat, tmp_path):
    x, queries = vectors(), vectors(20, seed=1)
    np.save(tmp_path / "x.npy", x)
    index = CodeIndex(flat, flat.encode(x))
    found = index.search(queries, 5, 99, rerank=np.load(tmp_path / "x.npy", mmap_mode="r"), candidates=ROWS)
    true = np.square(x.astype(np.float64)[None] - queries[:, None]).sum(-1)
    np.testing.assert_array_equal(found.ids, true.argsort(axis=1)[:, :5])
    np.testing.assert_allclose(found.distances, np.sort(true, axis=1)[:, :5], rtol=1e-5)
    default = index.search(queries, 5, 99, rerank=x)
    codes_only = index.search(queries, 5, 99)
    hits = [
        np.mean([len(set(a) & set(b)) for a, b in zip(f.ids, found.ids, strict=True)]) for f in (codes_only, default)
    ]
    assert hits[1] > hits[0]


def test_ids_of_every_source(flat, tmp_path):
    x, queries = vectors(200), vectors(5, seed=1)
    codes = flat.encode(x)
    names = [f"item-{row}" for row in range(200)]
    catalogue = Catalogue(names, resolve_append(codes), tokenizer=flat)
    catalogue.save(tmp_path / "ids.parquet")
    by_rows = CodeIndex(flat, codes).search(queries, 4, 99)
    for source in (catalogue, tmp_path / "ids.parquet", str(tmp_path / "ids.parquet")):
        found = CodeIndex(flat, source).search(queries, 4, 99)
        assert found.ids.tolist() == [[names[row] for row in each] for each in by_rows.ids.tolist()]
    torch_codes = CodeIndex(flat, torch.from_numpy(codes)).search(queries, 4, 99)
    np.testing.assert_array_equal(torch_codes.ids, by_rows.ids)


def test_a_tie_break_token_is_ignored(flat):
    codes, queries = flat.encode(vectors()), vectors(5, seed=1)
    with_token = CodeIndex(flat, resolve_append(codes)).search(queries, 6, 99)
    np.testing.assert_array_equal(with_token.ids, CodeIndex(flat, codes).search(queries, 6, 99).ids)


def test_like_leaves_the_item_out(tokenizer):
    codes = tokenizer.encode(vectors())
    index = CodeIndex(tokenizer, codes)
    found = index.like([5, 900, 5], 6, probes=99)
    assert found.ids.shape == (3, 6)
    assert 5 not in found.ids[0]
    assert 900 not in found.ids[1]
    expected = plain_search(tokenizer, codes, tokenizer.decode(codes[[5]]), 7, 99)[0]
    np.testing.assert_allclose(found.distances[0], expected[1:], rtol=1e-5, atol=1e-9)
    by_vectors = index.like([5], 3, probes=99, rerank=vectors())
    true = np.square(vectors().astype(np.float64) - vectors()[5]).sum(1).argsort()[1:4]
    assert by_vectors.ids[0, 0] == true[0]


def test_add_and_remove_are_as_a_new_index(tokenizer):
    codes, queries = tokenizer.encode(vectors()), vectors(12, seed=1)
    index = CodeIndex(tokenizer, codes[:1000])
    index.add(codes[1000:])
    index.remove(list(range(100, 300)))
    assert len(index) == 1300
    whole = Catalogue([*range(100), *range(300, ROWS)], np.delete(codes, np.arange(100, 300), axis=0))
    expected = CodeIndex(tokenizer, whole).search(queries, 8, 4)
    found = index.search(queries, 8, 4)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)
    # The rows of the vectors are still those of the order in which items came.
    found = index.search(queries, 3, 99, rerank=vectors(), candidates=len(index))
    true = np.square(vectors().astype(np.float64)[None] - queries[:, None]).sum(-1)
    true[:, 100:300] = np.inf
    np.testing.assert_array_equal(found.ids, true.argsort(axis=1)[:, :3])


def test_mistakes_are_one_line(flat, curved):
    codes = flat.encode(vectors(50))
    index = CodeIndex(flat, codes)
    named = Catalogue([f"i{n}" for n in range(50)], codes)
    for call, told in (
        (lambda: index.search(np.zeros((2, 3), np.float32)), "have 3 numbers each"),
        (lambda: index.search(np.full((2, DIM), np.nan, np.float32)), "NaN or infinite"),
        (
            lambda: index.search(np.array([[0.0] * DIM, [1e30] * DIM])),
            "query 1 is so long that its distances are infinite",
        ),
        (lambda: index.search(vectors(2), rerank=vectors(10)), "expected the 50 vectors"),
        (lambda: index.search(vectors(2), candidates=20), "rerank, which is not given"),
        (lambda: index.remove([3, 77]), "the index lacks 1 item of 2"),
        (lambda: index.remove(["three"]), "the ids of the catalogue are whole numbers"),
        (lambda: index.remove(list(range(50))), "all 50 items would be removed"),
        (lambda: index.add(named), "use one type"),
        (lambda: index.add(Catalogue([7], codes[:1])), "in the index, the first is 7"),
        (lambda: index.like([]), "no item is named"),
        (lambda: index.like("one"), r"expected a list of ids, got 'one' alone: give \['one'\]"),
        (lambda: index.like(17), r"got 17 alone: give \[17\]"),
        (lambda: index.decode(np.int64(17)), r"got 17 alone: give \[17\]"),
        (lambda: index.remove("one"), "got 'one' alone"),
        (lambda: index.remove([1.5]), "all text or all whole numbers, got the type double"),
        (lambda: index.like([3, None]), "got a missing one"),
        (lambda: index.like([3, "three"]), "all text or all whole numbers"),
        (lambda: index.like(3.5), "all text or all whole numbers"),
        (lambda: CodeIndex(flat, codes[:, :2]), "expected 3 codes an item"),
        (lambda: CodeIndex(flat, codes + 16), "use the one that made the IDs"),
        (lambda: CodeIndex(flat, codes.astype(np.float32)), "expected integer codes"),
        (lambda: CodeIndex(flat, codes[:0]), "at least one item"),
        (lambda: CodeIndex(curved, Catalogue(range(50), codes, tokenizer=flat)), "holds IDs of the tokenizer"),
    ):
        with pytest.raises(UserError, match=told) as error:
            call()
        assert "\n" not in str(error.value)
    assert len(index) == 50
    for call in (
        lambda: index.search(vectors(2), 0),
        lambda: index.search(vectors(2), 3, probes=0),
        lambda: index.like([3], 0),
    ):
        with pytest.raises(ValueError, match="at least 1"):
            call()


def test_arrow_tables_are_enough_to_search(flat):
    codes, queries = flat.encode(vectors()), vectors(6, seed=1)
    index = CodeIndex(flat, Catalogue([f"i{n}" for n in range(ROWS)], codes))
    lists, books, items = index.to_arrow()
    import json

    about = json.loads(items.schema.metadata[b"ghrq"])
    assert about["combine"] == "sum"
    assert about["tokenizer"] == flat.fingerprint
    book = {(r["stage"], r["code"]): np.array(r["vector"], np.float64) for r in books.to_pylist()}
    x = np.array([sum(book[s, c] for s, c in enumerate(r["codes"])) for r in items.to_pylist()]) + about["centre"]
    order = np.square(x[None] - queries[:, None]).sum(-1)
    found = index.search(queries, 5, 99)
    np.testing.assert_allclose(np.sort(order, axis=1)[:, :5], found.distances, rtol=1e-5)
    assert sum(lists["items"].to_pylist()) == len(items) == ROWS
    prefix = np.array(lists["prefix"].to_pylist())
    np.testing.assert_allclose(np.array(lists["centroid"].to_pylist()), flat.decode(prefix), rtol=1e-5)
    owner = np.array(items["list"])
    np.testing.assert_array_equal(prefix[owner, 0], np.array(items["codes"].to_pylist())[:, 0])


def test_arrow_tables_of_the_ball_say_so(curved):
    index = CodeIndex(curved, curved.encode(vectors(100)))
    tables = index.to_arrow()
    assert b'"combine": "nested"' in tables.codebooks.schema.metadata[b"ghrq"]
    points = np.array(tables.codebooks["vector"].to_pylist())
    assert np.linalg.norm(points, axis=1).max() < 1.0
    assert isinstance(tables.items, pa.Table)
