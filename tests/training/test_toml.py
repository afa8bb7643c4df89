"""What is written as TOML reads back as the same table."""

import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghrq.training.toml import dump

# TOML has no surrogates; integers are of 64 bits.
texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
tables = st.dictionaries(texts, values, max_size=5)


def kinds(value):
    """1 == 1.0 == True, so types are compared as well."""
    if isinstance(value, dict):
        return {key: kinds(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [kinds(inner) for inner in value]
    return type(value)


@given(tables)
def test_round_trip(table):
    back = tomllib.loads(dump(table))
    assert back == table
    assert kinds(back) == kinds(table)


def test_not_a_number():
    assert math.isnan(tomllib.loads(dump({"x": math.nan}))["x"])


def test_what_toml_cannot_say_is_an_error():
    with pytest.raises(TypeError, match="None"):
        dump({"x": None})
