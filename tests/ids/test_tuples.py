"""Tuples as numbers: equal for equal tuples, in their order, however large the codes and in whatever type."""

import numpy as np
import pytest
import torch

from ghrq.ids.tuples import count_distinct, tuple_ids, tuple_keys


@pytest.mark.parametrize(("size", "stages"), [(3, 4), (2**31 - 1, 5)])
@pytest.mark.parametrize("convert", [lambda x: x.astype(np.int32), lambda x: x, torch.from_numpy])
def test_distinct_counts_tuples(size, stages, convert):
    codes = np.random.default_rng(0).integers(0, size, (500, stages))
    codes[100:200] = codes[:100]
    assert count_distinct(convert(codes)) == len({tuple(row) for row in codes.tolist()})
    ids = tuple_ids(convert(codes))
    order = sorted({tuple(row) for row in codes.tolist()})
    assert ids.tolist() == [order.index(tuple(row)) for row in codes.tolist()]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_small_types_do_not_overflow(dtype):
    codes = np.array([[255, 255, 255], [255, 255, 254]], dtype=dtype)
    assert tuple_keys(codes, 256).tolist() == [2**24 - 1, 2**24 - 2]
    assert tuple_keys(torch.from_numpy(codes), 256).tolist() == [2**24 - 1, 2**24 - 2]


def test_no_rows_and_no_codes():
    assert count_distinct(np.empty((0, 3), dtype=np.int64)) == 0
    assert tuple_keys(torch.zeros(2, 0, dtype=torch.int64), 5).tolist() == [0, 0]
