"""Items on the page: the tuples that most share, and those with the same first codes."""

import numpy as np

from ghrq.report.ids_examples import ItemExamples, SharedTuple

CODES = np.array([[0, 1, 0], [0, 1, 1], [0, 2, 0], [1, 0, 0], [0, 1, 2], [1, 0, 1]])


def names_of(rows):
    assert rows.tolist() == sorted(rows.tolist())
    return [f"item {row}" for row in rows]


def test_the_worst_collisions_without_the_tie_break_token():
    found = ItemExamples.of(CODES, 2, names_of).collisions
    assert [(shared.codes, shared.items, shared.names) for shared in found] == [
        ([0, 1], 3, ["item 0", "item 1", "item 4"]),
        ([1, 0], 2, ["item 3", "item 5"]),
    ]
    vectors = np.zeros((6, 2))
    vectors[4] = 1.0
    assert [shared.note for shared in ItemExamples.of(CODES, 2, names_of, vectors).collisions] == [
        "2 different vectors",
        "all vectors are equal",
    ]


def test_items_with_those_that_share_exactly_their_first_codes():
    found = {example.name: example for example in ItemExamples.of(CODES, 2, names_of).prefixes}
    assert set(found) == {f"item {row}" for row in range(6)}
    assert found["item 0"].codes == [0, 1]
    assert found["item 0"].sharing == [["item 2"], ["item 1", "item 4"]]
    assert found["item 2"].sharing == [["item 0", "item 1", "item 4"], []]


def test_one_item_and_a_million_copies():
    alone = ItemExamples.of(np.array([[7]]), 1, names_of)
    assert alone.collisions == []
    assert len(alone.pieces()) == 1
    assert alone.prefixes[0].sharing == [[]]
    many = ItemExamples.of(np.zeros((10**6, 4), dtype=np.int32), 4, names_of)
    assert many.collisions[0].items == 10**6
    assert len(many.collisions[0].names) == 5


def test_titles_are_text_not_html():
    html = SharedTuple([1], 9, ["<script>alert(1)</script>", "a & b"]).html()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "and 7 more" in html
    shown = ItemExamples.of(CODES, 2, lambda rows: ["  x\n<i>y</i>" + "z" * 500 for _ in rows])
    assert shown.collisions[0].names[0].startswith("x <i>y</i>zz")
    assert len(shown.collisions[0].names[0]) == 120
    assert "<i>" not in shown.pieces()[0].html() + shown.pieces()[1].html()
    assert "(no title)" in ItemExamples.of(CODES, 2, lambda rows: [""] * len(rows)).pieces()[0].html()
