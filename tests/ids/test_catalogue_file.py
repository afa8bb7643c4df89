"""Look-ups in a file give what the catalogue in memory gives, batch by batch."""

import numpy as np
import pytest

from ghrq.ids import Catalogue, CatalogueFile, catalogue_file
from ghrq.ids.tuples import count_distinct
from ghrq.system.errors import UserError


@pytest.fixture(params=["text", "numbers"])
def both(request, tmp_path, monkeypatch):
    """A catalogue of 500 items, some with equal tuples, in memory and in a file that is read 64 rows at a time."""
    monkeypatch.setattr(catalogue_file, "_ROWS", 64)
    codes = np.random.default_rng(0).integers(0, [4, 6, 9], (500, 3))
    names = [f"n{row}" for row in range(500)] if request.param == "text" else list(range(1000, 1500))
    catalogue = Catalogue(names, codes)
    catalogue.save(tmp_path / "ids.parquet")
    return catalogue, CatalogueFile(tmp_path / "ids.parquet")


def test_codes_of_items(both):
    catalogue, file = both
    asked = [catalogue.ids.tolist()[row] for row in (499, 3, 77, 3, 200)]
    assert len(file) == 500
    assert file.codes_of(asked).tolist() == catalogue.codes_of(asked).tolist()
    with pytest.raises(UserError, match="expected a list of ids, got 'apple' alone"):
        file.codes_of("apple")
    with pytest.raises(KeyError, match="2 of 3 items are not in"):
        file.codes_of([asked[0], *(["x", "y"] if isinstance(asked[0], str) else [1, 2])])


def test_items_of_codes(both):
    catalogue, file = both
    _, inverse, counts = np.unique(catalogue.codes.numpy(), axis=0, return_inverse=True, return_counts=True)
    alone = np.flatnonzero(counts[inverse.ravel()] == 1)[::-1]
    assert len(alone) > 10
    asked = catalogue.codes[np.append(alone, alone[:3])]
    assert file.ids_of(asked).tolist() == catalogue.ids_of(asked).tolist()
    shared = catalogue.codes[np.flatnonzero(counts[inverse.ravel()] > 1)[:1]]
    for each in both:
        with pytest.raises(ValueError, match="items share the tuple"):
            each.ids_of(shared)
        with pytest.raises(KeyError, match="1 of 1 tuples belong to no item"):
            each.ids_of(np.array([[3, 5, 100]]))
    with pytest.raises(ValueError, match="expected codes of shape"):
        file.ids_of(asked[:, :2])


def test_items_under_a_prefix(both):
    catalogue, file = both
    for prefix in ([], [2], [2, 5], catalogue.codes[0].tolist(), [9]):
        assert file.under(prefix).tolist() == catalogue.under(prefix).tolist()


def test_distinct_tuples(both):
    catalogue, file = both
    for depth in (1, 2, 3):
        assert file.count_distinct(depth) == count_distinct(catalogue.codes[:, :depth])
    assert file.count_distinct() == count_distinct(catalogue.codes)


def test_codes_of_more_than_64_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue_file, "_ROWS", 7)
    codes = np.random.default_rng(1).integers(0, 2**14, (40, 6))
    codes[:5, :5] = codes[0, :5]
    catalogue = Catalogue(list(range(40)), codes)
    catalogue.save(tmp_path / "ids.parquet")
    file = CatalogueFile(tmp_path / "ids.parquet")
    assert file.ids_of(codes[::-1]).tolist() == list(range(40))[::-1]
    with pytest.raises(UserError, match="smaller depth"):
        file.count_distinct()
    assert file.count_distinct(4) == count_distinct(codes[:, :4])


def test_odd_questions_have_the_same_answers(both):
    for each in both:
        assert each.codes_of([]).shape == (0, 3)
        assert each.ids_of(np.zeros((0, 3), np.int64)).tolist() == []
        assert len(each.under([])) == 500
        with pytest.raises(KeyError, match=r"\[-1, 0, 0\]"):
            each.ids_of(np.array([[-1, 0, 0]]))
        for question in (lambda each=each: each.ids_of(np.array([[0.5, 0, 0]])), lambda each=each: each.under([1.9])):
            with pytest.raises(ValueError, match="expected integer codes"):
                question()
