"""The tokenizer among scikit-learn's: its own checks, pipelines, clones, searches, frames of named columns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.model_selection import ParameterGrid
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tokenizer_tables import NETWORK, clustered, error

from ghrq import Tokenizer

SMALL = {"num_stages": 2, "codebook_size": 4}


@parametrize_with_checks([Tokenizer(**SMALL)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([Tokenizer(**SMALL, **(NETWORK | {"epochs": 2, "batch_size": 16}))])
def test_scikit_learns_own_checks_of_a_network(estimator, check):
    check(estimator)


def test_a_clone_has_the_parameters_and_nothing_else():
    tokenizer = Tokenizer(**SMALL, kind="naive", seed=5).fit(clustered())
    copy = clone(tokenizer)
    assert copy.get_params() == tokenizer.get_params()
    assert not hasattr(copy, "quantizer_")
    np.testing.assert_array_equal(copy.fit_transform(clustered()), tokenizer.transform(clustered()))


def test_a_pipeline_there_and_back():
    x = clustered() * np.array([1, 10, 100, 1, 1, 1, 1, 1000], dtype=np.float32)  # columns of different units
    pipeline = make_pipeline(StandardScaler(), PCA(6, random_state=0), Tokenizer(num_stages=3, codebook_size=16))
    codes = pipeline.fit_transform(x)
    assert codes.shape == (600, 3)
    back = pipeline.inverse_transform(codes)
    assert np.square((back - x) / x.std(axis=0)).mean() < 0.3
    pipeline.set_params(tokenizer__num_stages=1)
    assert pipeline.fit_transform(x).shape == (600, 1)


def test_codes_are_features_for_a_classifier():
    x = clustered(2000)
    labels = KMeans(12, random_state=0, n_init=1).fit_predict(x)
    model = make_pipeline(Tokenizer(num_stages=2, codebook_size=16), CategoricalNB(min_categories=16))
    assert model.fit(x[:1500], labels[:1500]).score(x[1500:], labels[1500:]) > 0.9


def test_parameters_can_be_searched():
    x = clustered()
    errors = {
        (p["num_stages"], p["codebook_size"]): error(Tokenizer().set_params(**p).fit(x), x)
        for p in ParameterGrid({"num_stages": [1, 3], "codebook_size": [4, 16]})
    }
    assert min(errors, key=errors.get) == (3, 16)
    assert max(errors, key=errors.get) == (1, 4)


def test_frames_out_and_names():
    frame = pd.DataFrame(clustered(), columns=[f"f{i}" for i in range(8)])
    tokenizer = Tokenizer(**SMALL).set_output(transform="pandas").fit(frame)
    codes = tokenizer.transform(frame)
    assert list(codes.columns) == list(tokenizer.get_feature_names_out()) == ["tokenizer0", "tokenizer1"]
    np.testing.assert_array_equal(codes.to_numpy(), tokenizer.encode(frame))
    np.testing.assert_array_equal(tokenizer.inverse_transform(codes), tokenizer.decode(tokenizer.encode(frame)))
    assert list(tokenizer.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        tokenizer.transform(frame[frame.columns[::-1]])
    with pytest.warns(UserWarning, match="feature names"):
        tokenizer.transform(frame.to_numpy())
