"""The hand-over to faiss: the same lists, the same items, the same distances."""

import numpy as np
import pytest

import ghrq
from ghrq.ids import Catalogue
from ghrq.search import CodeIndex
from ghrq.system.errors import UserError

faiss = pytest.importorskip("faiss")


def vectors(rows=1200, seed=0):
    random = np.random.default_rng(seed)
    return (3.0 + random.standard_normal((rows, 9)) * np.linspace(2.0, 0.5, 9)).astype(np.float32)


def test_as_many_lists_are_probed_as_by_default():
    x, queries = vectors(4000), vectors(200, seed=1)
    tokenizer = ghrq.Tokenizer(kind="euclidean", codebook_size=[64, 32, 32], seed=0, iterations=3).fit(x)
    index = CodeIndex(tokenizer, np.unique(tokenizer.encode(x), axis=0))
    other = index.to_faiss()
    assert other.nprobe == 4  # a sixteenth of 64
    items, found = other.search(queries, 10)[1], index.search(queries, 10)
    np.testing.assert_array_equal(items, found.ids)
    assert (found.ids != index.search(queries, 10, 1).ids).any()  # one list, as faiss has it, is not enough


@pytest.mark.parametrize("sizes", [[16, 32, 24, 5], [8, 256, 256]])
def test_distances_and_items_are_those_of_the_index(sizes):
    tokenizer = ghrq.Tokenizer(kind="euclidean", codebook_size=sizes, seed=0, iterations=3).fit(vectors())
    codes = np.unique(tokenizer.encode(vectors()), axis=0)  # without equal tuples, whose order is free
    index, queries = CodeIndex(tokenizer, codes), vectors(30, seed=1)
    other = index.to_faiss()
    assert other.ntotal == len(index)
    for probes in (2, len(index.lists)):
        found = index.search(queries, 6, probes)
        other.nprobe = probes
        distances, items = other.search(queries, 6)
        np.testing.assert_allclose(distances, found.distances, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(items, found.ids)
    back = faiss.deserialize_index(faiss.serialize_index(other))
    back.nprobe = len(index.lists)
    np.testing.assert_array_equal(back.search(queries, 6)[1], items)


def test_decoded_vectors_are_the_tokenizers():
    tokenizer = ghrq.Tokenizer(kind="euclidean", codebook_size=16, num_stages=3, seed=0, iterations=3).fit(vectors())
    codes = tokenizer.encode(vectors())
    other = CodeIndex(tokenizer, codes).to_faiss()
    other.make_direct_map()
    np.testing.assert_allclose(other.reconstruct_n(0, len(codes)), tokenizer.decode(codes), atol=1e-5)


def test_items_of_text_have_their_numbers():
    tokenizer = ghrq.Tokenizer(kind="euclidean", codebook_size=16, num_stages=2, seed=0, iterations=3).fit(vectors())
    codes = np.unique(tokenizer.encode(vectors()), axis=0)
    named = CodeIndex(tokenizer, Catalogue([f"n{row}" for row in range(len(codes))], codes))
    other = named.to_faiss()
    other.nprobe = 16
    items, found = other.search(vectors(5, seed=1), 3)[1], named.search(vectors(5, seed=1), 3, 16)
    assert [[f"n{row}" for row in each] for each in items.tolist()] == found.ids.tolist()


def test_the_ball_is_refused_with_a_remedy():
    tokenizer = ghrq.Tokenizer(kind="ghrq", codebook_size=16, num_stages=2, seed=0, iterations=3).fit(vectors())
    with pytest.raises(UserError, match=r"kind='euclidean', or give faiss whole vectors"):
        CodeIndex(tokenizer, tokenizer.encode(vectors())).to_faiss()
