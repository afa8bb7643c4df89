"""What the tokenizer does with good input: codes and back, for every kind, engine and container."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from tokenizer_tables import ENGINES, KINDS, NETWORK, clustered, error

from ghrq import Tokenizer
from ghrq.data import arrays
from ghrq.system import progress
from ghrq.system.errors import UserError

SMALL = {"num_stages": 3, "codebook_size": 16}


def same(a: Tokenizer, b: Tokenizer) -> bool:
    ours, theirs = a.model_.state_dict(), b.model_.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# --- codes and back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_codes_and_back(kind, engine):
    x = clustered()
    settings = NETWORK | {"epochs": 10, "learning_rate": 1e-2} if engine == "autoencoder" else {}
    tokenizer = Tokenizer(kind=kind, **SMALL, **settings).fit(x)
    codes = tokenizer.encode(x)
    assert codes.shape == (600, 3)
    assert codes.dtype == np.int64
    assert codes.min() >= 0
    assert codes.max() < 16
    back = tokenizer.decode(codes)
    assert back.shape == x.shape
    assert back.dtype == np.float32
    assert error(tokenizer, x) < error(tokenizer, x, depth=1)
    assert error(tokenizer, x) < (0.1 if engine == "kmeans" else 0.25)


@pytest.mark.slow
def test_an_autoencoder_is_better_than_the_kmeans_it_begins_with():
    x = clustered(2000, dim=32, groups=200)
    network = {"engine": "autoencoder", "hidden": (32,), "latent_dim": 32, "batch_size": 100, "learning_rate": 3e-3}
    errors = [error(Tokenizer(**SMALL, **settings).fit(x), x) for settings in ({}, network)]
    assert errors[1] < 0.95 * errors[0]


@pytest.fixture(scope="module")
def fitted():
    return Tokenizer(**SMALL).fit(clustered())


def test_transform_and_its_inverse_are_encode_and_decode(fitted):
    x = clustered(50, seed=1)
    codes = fitted.encode(x)
    np.testing.assert_array_equal(fitted.transform(x), codes)
    np.testing.assert_array_equal(fitted.inverse_transform(codes), fitted.decode(codes))


def test_prefixes_are_the_decodes_of_every_depth(fitted):
    codes = fitted.encode(clustered(50, seed=1))
    prefixes = fitted.prefixes(codes)
    assert prefixes.shape == (50, 3, 8)
    for depth in (1, 2, 3):
        np.testing.assert_allclose(prefixes[:, depth - 1], fitted.decode(codes[:, :depth]), rtol=1e-5, atol=1e-5)


def test_depth_gives_the_first_codes_and_a_beam_never_more_error(fitted):
    x = clustered(300, seed=1)
    codes = fitted.encode(x)
    np.testing.assert_array_equal(fitted.encode(x, depth=2), codes[:, :2])
    greedy, wide = (fitted.decode(fitted.encode(x, beam=beam)) for beam in (1, 8))
    z = fitted.latent(x)
    distance = [(fitted.latent(back) - z).norm(dim=1) for back in (greedy, wide)]
    assert float(distance[1].mean()) < float(distance[0].mean())


def test_codes_of_all_integer_types_and_containers_decode_alike(fitted):
    codes = fitted.encode(clustered(20))
    expected = fitted.decode(codes)
    for given in (
        codes.astype(np.int32),
        codes.astype(np.uint8),
        torch.from_numpy(codes),
        pd.DataFrame(codes),
        codes.tolist(),
    ):
        np.testing.assert_array_equal(fitted.decode(given), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_latent_is_what_the_quantizer_sees(engine):
    x = clustered()
    tokenizer = Tokenizer(**SMALL, **(NETWORK | {"epochs": 1, "engine": engine})).fit(x)
    z = tokenizer.latent(x)
    assert z.shape == (600, tokenizer.quantizer_.dim)
    np.testing.assert_array_equal(tokenizer.quantizer_.encode(z).numpy(), tokenizer.encode(x))
    if engine == "kmeans":
        assert float(tokenizer.quantizer_.diagnose(z).radius["median"]) == pytest.approx(0.3, abs=0.01)


def test_the_first_code_tells_separate_groups_apart():
    centres = 10.0 * np.random.default_rng(0).standard_normal((16, 8))
    labels = np.arange(800) % 16
    x = centres[labels] + 0.1 * np.random.default_rng(1).standard_normal((800, 8))
    first = Tokenizer(**SMALL).fit(x).encode(x)[:, 0]
    assert len(set(zip(first.tolist(), labels.tolist(), strict=True))) == 16
    assert len(np.unique(first)) == 16


# --- containers ----------------------------------------------------------------------------------------------------


def memory_mapped(x, folder):
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_numbers_give_the_same_tokenizer_in_every_container(tmp_path, engine):
    x = clustered(5000)
    names = [f"f{i}" for i in range(8)]
    settings = {**SMALL, "codebook_size": 8, **(NETWORK | {"engine": engine, "epochs": 1, "batch_size": 1000})}
    expected = Tokenizer(**settings).fit(x)
    assert len(x) > 256 * 8, "k-means is to draw a sample"
    for given in (
        torch.from_numpy(x),
        memory_mapped(x, tmp_path),
        np.asfortranarray(x),
        pd.DataFrame(x, columns=names),
        pl.DataFrame(x, schema=names),
        pd.Series(list(x)),
        pl.Series(x.tolist(), dtype=pl.Array(pl.Float32, 8)),
        x.astype(">f4"),
    ):
        found = Tokenizer(**settings).fit(given)
        assert same(found, expected), type(given)
        np.testing.assert_array_equal(found.encode(given), expected.encode(x))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint16, np.int64, bool, object, np.longdouble])
def test_every_type_of_number(dtype):
    x = (clustered() * 4).astype(np.int8)
    x = x > 0 if dtype is bool else x.astype(dtype)
    tokenizer = Tokenizer(**SMALL).fit(x)
    np.testing.assert_array_equal(tokenizer.encode(x), tokenizer.encode(x.astype(np.float64)))
    assert error(tokenizer, x.astype(np.float64)) < 0.3


def test_half_precision_tensors():
    x = torch.from_numpy(clustered()).bfloat16()
    tokenizer = Tokenizer(**SMALL).fit(x)
    np.testing.assert_array_equal(tokenizer.encode(x), tokenizer.encode(x.float()))


def test_nullable_and_boolean_columns():
    x = clustered(dim=3)
    frame = pd.DataFrame(x, columns=list("abc")).astype({"a": "Float32"})
    assert same(Tokenizer(**SMALL).fit(frame), Tokenizer(**SMALL).fit(pd.DataFrame(x, columns=list("abc"))))
    mixed = pl.DataFrame({"a": x[:, 0], "b": x[:, 1] > 3, "c": range(600)})
    wide = np.column_stack([x[:, 0].astype(np.float64), x[:, 1] > 3, np.arange(600)])
    assert same(Tokenizer(**SMALL).fit(mixed), Tokenizer(**SMALL).fit(wide))


def test_digits_of_float64_far_from_the_origin_count():
    x = clustered(dtype=np.float64)
    near, far = Tokenizer(**SMALL).fit(x), Tokenizer(**SMALL).fit(x + 2.0**30)
    np.testing.assert_array_equal(far.encode(x + 2.0**30), near.encode(x))


@pytest.mark.slow
def test_a_memory_mapped_array_is_never_copied_whole(tmp_path):
    """In a process that may not have as much memory of its own as the array has."""
    path, rows, dim = tmp_path / "zeros.npy", 200_000, 384
    np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, dim))  # a hole in the disk: takes none
    program = f"""if True:
        import re, resource
        import numpy as np, torch
        from ghrq import Tokenizer
        torch.set_num_threads(1)
        Tokenizer(codebook_size=2, num_stages=1).fit(np.zeros((4, 4)))
        data = int(re.search(r"VmData:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (data + {rows * dim * 2}, -1))
        x = np.load({str(path)!r}, mmap_mode="r")
        tokenizer = Tokenizer(codebook_size=2, num_stages=1, kind="euclidean").fit(x)
        print(tokenizer.encode(x).shape)
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == f"({rows}, 1)", run.stderr


def test_chunks_do_not_matter(fitted, monkeypatch):
    x = clustered(3000, seed=2)
    expected = fitted.encode(x), fitted.latent(x)
    monkeypatch.setattr(arrays, "_CHUNK_BYTES", 1)
    np.testing.assert_array_equal(fitted.encode(x), expected[0])
    torch.testing.assert_close(fitted.latent(x), expected[1])


# --- standardisation -----------------------------------------------------------------------------------------------


def test_standardised_vectors_have_mean_0_and_mean_variance_1(fitted):
    x = clustered()
    z = fitted.latent(x).numpy()
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-5)
    assert z.var(axis=0).mean() == pytest.approx(1.0, rel=1e-5)
    angles = np.corrcoef(x - x.mean(axis=0))
    np.testing.assert_allclose(np.corrcoef(z), angles, atol=1e-3)  # one scale for all: geometry stays


def test_units_do_not_matter():
    x = clustered()
    np.testing.assert_array_equal(Tokenizer(**SMALL).fit_transform(x * 64.0), Tokenizer(**SMALL).fit_transform(x))


def test_statistics_are_of_all_rows_not_of_the_sample():
    x = np.sort(clustered(20_000, dim=2), axis=0)
    tokenizer = Tokenizer(num_stages=1, codebook_size=4).fit(x)
    np.testing.assert_allclose(tokenizer.model_.standard.mean.numpy(), x.mean(axis=0, dtype=np.float64), rtol=1e-6)
    spread = np.sqrt(x.astype(np.float64).var(axis=0).mean())
    assert float(tokenizer.model_.standard.scale) == pytest.approx(spread, rel=1e-6)


def test_constant_features_come_back():
    x = clustered()
    x[:, 2] = 7.25
    tokenizer = Tokenizer(**SMALL).fit(x)
    np.testing.assert_allclose(tokenizer.decode(tokenizer.encode(x))[:, 2], 7.25, rtol=1e-6)
    for value in (0.0, 0.1, 1e8):
        same_rows = np.full((100, 4), value)
        tokenizer = Tokenizer(**SMALL).fit(same_rows)
        assert float(tokenizer.model_.standard.scale) == 1.0
        np.testing.assert_allclose(tokenizer.decode(tokenizer.encode(same_rows)), value, rtol=1e-6)


def test_without_standardisation_vectors_stay_as_they_are():
    x = clustered()
    tokenizer = Tokenizer(**SMALL, standardize=False).fit(x)
    np.testing.assert_array_equal(tokenizer.latent(x).numpy(), x)


# --- chance --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_seed_decides_everything_and_nothing_else_does(engine, tmp_path):
    x = clustered(5000)
    settings = {**SMALL, "codebook_size": 8, **(NETWORK | {"engine": engine, "epochs": 2})}
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = Tokenizer(**settings, seed=3).fit(x).partial_fit(x[:100])
    first.encode(x)
    first.save(tmp_path / "tok")
    Tokenizer.load(tmp_path / "tok")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    torch.manual_seed(2)
    assert same(first, Tokenizer(**settings, seed=3).fit(x).partial_fit(x[:100]))
    assert not same(first, Tokenizer(**settings, seed=4).fit(x).partial_fit(x[:100]))


def test_a_second_fit_forgets_the_first():
    tokenizer = Tokenizer(**SMALL).fit(clustered(seed=5)).partial_fit(clustered(seed=6))
    assert same(tokenizer.fit(clustered()), Tokenizer(**SMALL).fit(clustered()))
    assert tokenizer.n_samples_seen_ == 600


# --- many batches --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_batches_come_close_to_the_whole(kind):
    x = np.random.default_rng(0).standard_normal((12_000, 6)).astype(np.float32)
    settings = {"kind": kind, "num_stages": 3, "codebook_size": 16, "batch_size": 100}
    tokenizer = Tokenizer(**settings).partial_fit(x[:100])
    first = error(tokenizer, x)
    for start in range(100, 12_000, 700):
        tokenizer.partial_fit(x[start : start + 700])
    assert tokenizer.n_samples_seen_ == 12_000
    assert error(tokenizer, x) < 0.9 * first
    assert error(tokenizer, x) < 1.1 * error(Tokenizer(**settings).fit(x), x)


@pytest.mark.slow
def test_batches_follow_the_rows_to_where_they_go():
    """The first batch has half of the groups; the others come later."""
    x = clustered(8000, groups=40)
    half = x[x[:, 0] < np.median(x[:, 0])]
    tokenizer = Tokenizer(num_stages=2, codebook_size=32, batch_size=100).partial_fit(half)
    before = error(tokenizer, x)
    tokenizer.partial_fit(x)
    assert error(tokenizer, x) < 0.8 * before


@pytest.mark.slow
def test_an_autoencoder_learns_from_batches():
    x = clustered(2000)
    tokenizer = Tokenizer(**SMALL, **NETWORK, learning_rate=1e-2).partial_fit(x)
    before = error(tokenizer, x)
    for _ in range(10):
        tokenizer.partial_fit(x)
    assert error(tokenizer, x) < 0.7 * before


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pickled_tokenizer_is_the_same_and_goes_on(engine):
    x = clustered()
    tokenizer = Tokenizer(**SMALL, **(NETWORK | {"engine": engine, "epochs": 2})).fit(x)
    copy = pickle.loads(pickle.dumps(tokenizer))
    np.testing.assert_array_equal(copy.encode(x), tokenizer.encode(x))
    copy.partial_fit(x)
    if engine == "kmeans":
        assert same(copy, tokenizer.partial_fit(x))


# --- progress ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_on_a_terminal_once_it_takes_long_and_silence_elsewhere(monkeypatch, capsys, terminal):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    Tokenizer(**SMALL).fit(clustered()).encode(clustered())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    Tokenizer(**SMALL).fit(clustered()).encode(clustered())
    shown = capsys.readouterr()
    assert ("k-means" in shown.err) == ("encoding" in shown.err) == terminal
    assert shown.out == ""


def test_the_weights_of_the_autoencoder_are_settings(tmp_path):
    x = np.random.default_rng(0).normal(size=(300, 12)).astype(np.float32)
    options = {
        "engine": "autoencoder",
        "codebook_size": 8,
        "num_stages": 2,
        "hidden": (16,),
        "latent_dim": 4,
        "epochs": 2,
    }
    plain = Tokenizer(**options).fit(x)
    same = Tokenizer(**options, codebook_rate=1e-3, quantizer_weight=0.1, commitment_weight=0.25).fit(x)
    assert same.fingerprint == plain.fingerprint
    still = Tokenizer(**options, codebook_rate=1e-12).fit(x)
    start = Tokenizer(**{**options, "epochs": 1}, codebook_rate=1e-12, learning_rate=1e-12).fit(x)
    assert torch.allclose(still.quantizer_.codebooks, start.quantizer_.codebooks, atol=1e-6)
    for change in ({"quantizer_weight": 1.0}, {"commitment_weight": 2.0}):
        other = Tokenizer(**options, **change).fit(x)
        assert other.fingerprint != plain.fingerprint
        other.save(tmp_path / next(iter(change)))
        assert Tokenizer.load(tmp_path / next(iter(change))).get_params() == other.get_params() | {"radius": 0.5}


def test_an_rq_vae_begins_at_random_and_is_plain(tmp_path):
    x = clustered()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    settings = {"engine": "rq-vae", "standardize": False, "hidden": (32,), "latent_dim": 8, "batch_size": 100}
    settings |= {"learning_rate": 1e-2, "reconstruction_weight": 1000.0, "quantizer_weight": 1.0}
    tokenizer, begun = (Tokenizer(**SMALL | settings | {"epochs": epochs}).fit(x) for epochs in (10, 1))
    assert {name for name, _ in tokenizer.model_.encoder.named_parameters()} == {
        "0.weight", "0.bias", "2.weight", "2.bias",
    }  # fmt: skip
    assert tokenizer.quantizer_.scale is None
    assert error(tokenizer, x) < 0.5 * error(begun, x)
    other = Tokenizer(**SMALL | settings | {"epochs": 1, "reconstruction_weight": 0.0}).fit(x)
    assert other.fingerprint != begun.fingerprint
    tokenizer.save(tmp_path / "tokenizer")
    np.testing.assert_array_equal(Tokenizer.load(tmp_path / "tokenizer").encode(x), tokenizer.encode(x))


def test_the_rate_of_an_rq_vae_is_constant():
    x = clustered()
    settings = {"hidden": (32,), "latent_dim": 8, "batch_size": 100, "epochs": 1}
    rates = {}
    for engine in ("rq-vae", "autoencoder"):
        tokenizer = Tokenizer(**SMALL | settings | {"engine": engine}).fit(x)
        rates[engine] = tokenizer._engine._optimizer.param_groups[0]["lr"]
    assert rates["rq-vae"] == 1e-3
    assert rates["autoencoder"] == pytest.approx(1e-3 / 6)  # in the last of 6 steps


def test_half_precision_changes_the_training_of_a_network_a_little_and_nothing_after_it():
    x = clustered()
    settings = SMALL | {"engine": "autoencoder", "hidden": (32,), "latent_dim": 8, "batch_size": 100, "epochs": 5}
    whole, half = (Tokenizer(**settings, precision=precision).fit(x) for precision in ("fp32", "bf16"))
    assert half.fingerprint != whole.fingerprint
    assert error(half, x) == pytest.approx(error(whole, x), rel=0.1)
    assert half.latent(x).dtype == torch.float32
    with pytest.raises(UserError, match="precision must be"):
        Tokenizer(**settings, precision="fp16").fit(x)


def test_without_training_the_ablations_have_the_codes_of_their_aggregation():
    x = clustered()
    codes = {kind: Tokenizer(**SMALL, kind=kind, radius=0.7).fit(x).encode(x) for kind in (*KINDS, "calibrated")}
    for kind, same in (("hra-only", "ghrq"), ("calibrated", "ghrq"), ("dhste-only", "naive")):
        np.testing.assert_array_equal(codes[kind], codes[same])
    assert (codes["naive"] != codes["ghrq"]).any()
