"""What a user may get wrong: each a one-line error that names the row, what was expected and the remedy."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from tokenizer_tables import NETWORK, clustered

from ghrq import Tokenizer
from ghrq.system.errors import DivergedError, UserError

SMALL = {"num_stages": 2, "codebook_size": 8}


@pytest.fixture(scope="module")
def fitted():
    return Tokenizer(**SMALL).fit(clustered())


def spoilt(row=431, value=np.nan):
    x = clustered()
    x[row, 5] = value
    return x


CONTAINERS = {
    "numpy": lambda x: x,
    "float64": lambda x: x.astype(np.float64),
    "torch": torch.from_numpy,
    "pandas": lambda x: pd.DataFrame(x, columns=list("abcdefgh")),
    "polars": lambda x: pl.DataFrame(x, schema=list("abcdefgh")),
    "lists": lambda x: x.tolist(),
    "column of lists": lambda x: pd.Series(list(x)),
}


def complaint(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("container", CONTAINERS)
def test_the_first_bad_row_is_named(fitted, container):
    x = spoilt()
    x[500, 0] = np.inf
    for call in (Tokenizer(**SMALL).fit, Tokenizer(**SMALL).partial_fit, fitted.encode, fitted.latent):
        message = complaint(call, CONTAINERS[container](x))
        assert "row 431" in message
        assert "NaN" in message
        assert "column 5" in message
        assert "leave such rows out" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("standardize", [True, False])
def test_a_bad_row_outside_of_the_sample_is_found_too(value, standardize):
    x = clustered(5000)
    x[4999, 0] = value
    assert "row 4999" in complaint(Tokenizer(num_stages=1, codebook_size=2, standardize=standardize).fit, x)


def test_a_null_is_a_missing_number(fitted):
    x = pl.DataFrame(clustered(), schema=list("abcdefgh")).with_columns(
        pl.when(pl.int_range(600) == 17).then(None).otherwise(pl.col("c")).alias("c")
    )
    assert "row 17" in complaint(Tokenizer(**SMALL).fit, x)
    assert "row 17" in complaint(Tokenizer(**SMALL).fit, x.to_pandas())


def test_numbers_whose_sum_overflows_are_fine():
    x = clustered() * np.float32(1e37)
    tokenizer = Tokenizer(**SMALL).fit(x)
    np.testing.assert_array_equal(tokenizer.encode(x), tokenizer.encode(x.astype(np.float64)))


@pytest.mark.parametrize("wrap", [list, tuple, lambda rows: np.array(rows, dtype=object), pd.Series, pl.Series])
def test_rows_of_unequal_length(wrap):
    rows = clustered(30).tolist()
    rows[12] = rows[12][:5]
    message = complaint(Tokenizer(**SMALL).fit, wrap(rows))
    assert "row 12" in message
    assert "5 numbers" in message
    assert "has 8" in message


def test_fewer_rows_than_codes():
    for call in (Tokenizer().fit, Tokenizer().partial_fit):
        message = complaint(call, clustered(255))
        assert "codebook_size=256" in message
        assert "255" in message
        assert "lower codebook_size" in message


def test_tables_that_are_none(fitted):
    assert "0 sample" in complaint(Tokenizer(**SMALL).fit, np.empty((0, 8)))
    assert "0 sample" in complaint(fitted.encode, pd.DataFrame(columns=list("abcdefgh"), dtype=float))
    assert "0 feature" in complaint(Tokenizer(**SMALL).fit, np.empty((20, 0)))
    assert "1D" in complaint(fitted.encode, np.ones(8))
    assert "1D" in complaint(fitted.encode, torch.ones(8))
    assert "3D" in complaint(Tokenizer(**SMALL).fit, np.ones((20, 8, 2)))
    assert "0D" in complaint(Tokenizer(**SMALL).fit, None)
    assert "sparse" in complaint(Tokenizer(**SMALL).fit, sparse.csr_matrix(np.eye(20)))
    assert "sparse" in complaint(Tokenizer(**SMALL).fit, torch.eye(20).to_sparse())
    assert "omplex" in complaint(Tokenizer(**SMALL).fit, np.ones((20, 3), dtype=complex))
    assert "omplex" in complaint(Tokenizer(**SMALL).fit, torch.ones(20, 3, dtype=torch.complex64))
    assert "numbers" in complaint(Tokenizer(**SMALL).fit, np.full((20, 3), "text"))
    assert "numbers" in complaint(Tokenizer(**SMALL).fit, np.full((20, 3), np.datetime64("2020-01-01")))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_column_of_text_is_named(frame):
    table = frame({"price": [1.0] * 20, "title": ["soap"] * 20})
    assert "'title'" in complaint(Tokenizer(**SMALL).fit, table)


def test_vectors_of_another_size(fitted):
    for call in (fitted.encode, fitted.latent, fitted.partial_fit):
        message = complaint(call, clustered(dim=7))
        assert "7 features" in message
        assert "expecting 8" in message


def test_codes_that_are_none(fitted):
    for codes, word in (
        ([[0, 8]], "7"),
        ([[0, -1]], "-1"),
        ([[0, 1, 2]], "depth 1 to 2"),
        ([[0.0, 1.0]], "integer"),
        ([0, 1], "(n, depth)"),
    ):
        with pytest.raises(ValueError, match=r"codes") as caught:
            fitted.decode(codes)
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "spherical"),
        ("engine", "magic"),
        ("num_stages", 0),
        ("codebook_size", 2.5),
        ("curvature", -1.0),
        ("iterations", 0),
        ("standardize", "yes"),
        ("hidden", 512),
        ("hidden", (512, 0)),
        ("latent_dim", 0),
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", float("nan")),
        ("seed", -1),
    ],
)
def test_parameters_out_of_range_are_named(name, value):
    message = complaint(Tokenizer(**{name: value}).fit, clustered())
    assert name in message


def test_what_is_not_fitted_says_so():
    for call in (Tokenizer().encode, Tokenizer().decode, Tokenizer().latent):
        with pytest.raises(ValueError, match="not fitted"):
            call(clustered())


def test_a_mistake_changes_nothing(fitted):
    x = clustered()
    tokenizer = Tokenizer(**SMALL).fit(x)
    expected = fitted.encode(x)
    for call, table in (
        (tokenizer.fit, spoilt()),
        (tokenizer.fit, clustered(4, dim=3)),
        (tokenizer.partial_fit, spoilt()),
        (tokenizer.partial_fit, clustered(dim=3)),
    ):
        complaint(call, table)
        np.testing.assert_array_equal(tokenizer.encode(x), expected)
    assert tokenizer.n_samples_seen_ == 600


def test_more_batches_want_the_same_parameters():
    tokenizer = Tokenizer(**SMALL).fit(clustered()).set_params(num_stages=3)
    assert "parameters changed" in complaint(tokenizer.partial_fit, clustered())


@pytest.mark.slow
def test_a_training_that_diverges_says_what_to_do():
    with pytest.raises(DivergedError, match="learning_rate"):
        Tokenizer(**SMALL, **(NETWORK | {"epochs": 20}), learning_rate=1e25).fit(clustered())
