"""The entropy coder against a stack of unlimited integers, and against the information in the codes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghrq.models.range_coder import STATE_WORDS, TOTAL, RangeDecoder, RangeEncoder


def widths(chance, size, flat=False):
    """A table of ``size`` widths, none of them 0, that sum to TOTAL."""
    shares = np.ones(size) / size if flat else chance.dirichlet(np.full(size, 0.1))
    found = 1 + np.floor(shares * (TOTAL - size)).astype(np.int64)
    found[found.argmax()] += TOTAL - found.sum()
    return found


def starts(table):
    return [0, *np.cumsum(table).tolist()]


def encode(codes, tables, which):
    coder = RangeEncoder()
    edges = [starts(table) for table in tables]
    low = [edges[table][code] for code, table in zip(codes, which, strict=True)]
    coder.push(low, [int(tables[table][code]) for code, table in zip(codes, which, strict=True)])
    return coder.finish()


def decode(words, tables, which):
    coder = RangeDecoder(words)
    found = coder.pop([[starts(table)] for table in tables], which, [0] * max(len(table) for table in tables))
    return found, coder


class Stack:
    """The same coder with a state that grows without limit: no words, no rounding but that of the tables."""

    def __init__(self, state=0):
        self.state = state

    def push(self, start, width):
        self.state = self.state // width * TOTAL + start + self.state % width

    def pop(self, edges):
        slot = self.state % TOTAL
        code = max(i for i, edge in enumerate(edges[:-1]) if edge <= slot)
        self.state = (edges[code + 1] - edges[code]) * (self.state // TOTAL) + slot - edges[code]
        return code


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(0, 400))
def test_codes_come_back(seed, size, count):
    chance = np.random.default_rng(seed)
    tables = [widths(chance, size, flat=i == 0) for i in range(3)]
    which = chance.integers(0, 3, count).tolist()
    codes = [int(chance.choice(size, p=tables[table] / TOTAL)) for table in which]
    found, coder = decode(encode(codes, tables, which), tables, which)
    assert found == codes
    assert coder.is_at_end


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 50), st.integers(0, 60))
def test_it_costs_no_more_than_an_unlimited_stack(seed, size, count):
    chance = np.random.default_rng(seed)
    table = widths(chance, size)
    edges, codes, stack = starts(table), chance.integers(0, size, count).tolist(), Stack()
    for code in reversed(codes):
        stack.push(edges[code], int(table[code]))
    words = encode(codes, [table], [0] * count)
    # A state of 48 bits holds at least 2^32, so that a rounded step loses less than 2^-16 of it.
    assert 16 * len(words) <= max(stack.state.bit_length(), 1) + 16 * STATE_WORDS + 0.01 * count
    assert [stack.pop(edges) for _ in codes] == codes


def test_a_stream_is_as_long_as_its_information():
    chance = np.random.default_rng(0)
    table = widths(chance, 1024)
    codes = chance.choice(1024, 6000, p=table / TOTAL)
    bits = -np.log2(table[codes] / TOTAL).sum()
    words = encode(codes.tolist(), [table], [0] * len(codes))
    assert math.ceil(bits / 16) <= len(words) <= bits / 16 * 1.0005 + 2


def test_a_code_of_the_least_width_costs_16_bits_and_one_of_all_none():
    table = np.array([TOTAL - 1, 1])
    assert len(encode([1] * 100, [table], [0] * 100)) == 100
    assert len(encode([0] * 100_000, [np.array([TOTAL])], [0] * 100_000)) == STATE_WORDS


def test_bytes_are_the_same_everywhere():
    fixed = np.array([40_000, 20_000, 5_000, 500, 36])
    words = encode([0, 1, 2, 3, 4, 4, 0, 0, 1, 2, 3, 0], [fixed], [0] * 12)
    assert words.tolist() == [872, 12_717, 1_924, 65_504]


@pytest.mark.parametrize("kept", range(6))
def test_a_stream_may_be_cut_after_any_part(kept):
    chance = np.random.default_rng(kept)
    table = widths(chance, 64)
    parts = [chance.choice(64, 50, p=table / TOTAL).tolist() for _ in range(6)]
    edges, coder = starts(table), RangeEncoder()
    sizes = [coder.push([edges[code] for code in part], table[part].tolist()) for part in reversed(parts)][::-1]
    words = coder.finish()
    assert len(words) == STATE_WORDS + sum(sizes)
    short = RangeDecoder(words[: STATE_WORDS + sum(sizes[:kept])])
    for part in parts[:kept]:
        assert short.pop([[edges]], [0] * 50, [0] * 64) == part
    assert short.words_left == 0


def test_the_table_depends_on_the_code_before():
    chance = np.random.default_rng(1)
    tables = [starts(widths(chance, 8)) for _ in range(4)]
    classes, codes, groups = [0, 1, 0, 1, 0, 1, 0, 1], chance.integers(0, 8, 200).tolist(), [0, 1] * 100
    rows = [[tables[0], tables[1]], [tables[2], tables[3]]]
    used = [rows[group][cls] for group, cls in zip(groups, [0, *(classes[code] for code in codes[:-1])], strict=True)]
    coder = RangeEncoder()
    coder.push(
        [row[code] for row, code in zip(used, codes, strict=True)],
        [row[code + 1] - row[code] for row, code in zip(used, codes, strict=True)],
    )
    assert RangeDecoder(coder.finish()).pop(rows, groups, classes) == codes
