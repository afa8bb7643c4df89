"""A tokenizer on disk and on the Hub: the same when it comes back, and refused when it is not what was written."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizer_tables import ENGINES, NETWORK, clustered

from ghrq import Tokenizer
from ghrq.system import pretrained
from ghrq.system.errors import UserError

SMALL = {"num_stages": 2, "codebook_size": 8}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(**SMALL, kind="naive", curvature=0.5, seed=7).fit(clustered())


@pytest.fixture
def folder(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tok")
    return tmp_path / "tok"


def refused(folder, *words):
    with pytest.raises(UserError) as caught:
        Tokenizer.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def rewrite(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


# --- there and back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_what_comes_back_is_the_same(tmp_path, engine):
    frame = pd.DataFrame(clustered(), columns=[f"f{i}" for i in range(8)])
    tokenizer = Tokenizer(**SMALL, **(NETWORK | {"engine": engine, "epochs": 1})).fit(frame)
    tokenizer.save(str(tmp_path / "new" / "tok"))
    assert sorted(path.name for path in (tmp_path / "new").rglob("*")) == ["config.json", "model.safetensors", "tok"]
    found = Tokenizer.load(tmp_path / "new" / "tok")
    codes = tokenizer.encode(frame)
    np.testing.assert_array_equal(found.encode(frame), codes)
    np.testing.assert_array_equal(found.decode(codes), tokenizer.decode(codes))
    # What was left to the tokenizer is saved as it was.
    assert found.get_params() == tokenizer.get_params() | {"radius": 0.3 if engine == "kmeans" else 0.5}
    assert list(found.feature_names_in_) == list(frame.columns)
    assert found.n_samples_seen_ == 600
    tokenizer.partial_fit(frame)
    found.partial_fit(frame)
    if engine == "kmeans":  # the optimiser of a network starts afresh
        assert all(
            torch.equal(a, b)
            for a, b in zip(tokenizer.model_.state_dict().values(), found.model_.state_dict().values(), strict=True)
        )


def test_an_autoencoder_of_version_0_1_loads_as_it_was(tmp_path):
    """Its networks had no linear part."""
    tokenizer = Tokenizer(**SMALL, **(NETWORK | {"epochs": 1})).fit(clustered())
    for network in (tokenizer.model_.encoder, tokenizer.model_.decoder):
        network.direct.data.zero_()
    tokenizer.save(tmp_path / "tok")
    config, weights = pretrained.load(tmp_path / "tok", Tokenizer._format)
    old = {name: tensor for name, tensor in weights.items() if not name.endswith(".direct")}
    assert len(old) == len(weights) - 2
    pretrained.save(tmp_path / "old", Tokenizer._format, config, old)
    codes = tokenizer.encode(clustered())
    found = Tokenizer.load(tmp_path / "old")
    np.testing.assert_array_equal(found.encode(clustered()), codes)
    np.testing.assert_array_equal(found.decode(codes), tokenizer.decode(codes))


def test_config_says_what_it_is(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["format"] == "ghrq-tokenizer"
    assert config["version"] == 1
    assert config["convention"] == {"curvature": 0.5, "aggregation": "chained"}
    assert config["n_features"] == 8
    assert config["params"]["seed"] == 7
    assert config["params"].keys() == Tokenizer().get_params().keys()


def test_parameters_that_were_set_after_the_fit_are_not_those_of_the_file(tmp_path):
    tokenizer = Tokenizer(**SMALL).fit(clustered()).set_params(num_stages=5)
    tokenizer.save(tmp_path / "tok")
    assert Tokenizer.load(tmp_path / "tok").num_stages == 2


def test_only_force_replaces_a_tokenizer_and_nothing_replaces_other_files(folder):
    other = Tokenizer(num_stages=3, codebook_size=4).fit(clustered())
    for save in (other.save, other.save_pretrained):
        with pytest.raises(UserError, match=r"tok holds config.json already: .* replace it all with force=True"):
            save(folder)
    assert Tokenizer.load(folder).num_stages == 2
    other.save(folder, force=True)
    assert Tokenizer.load(folder).num_stages == 3
    assert [path.name for path in folder.parent.iterdir()] == ["tok"]
    (folder / "ids.parquet").write_bytes(b"of the old one")
    for force in (False, True):
        with pytest.raises(UserError, match=r"ids\.parquet"):
            other.save(folder, force)
    assert (folder / "ids.parquet").read_bytes() == b"of the old one"
    with pytest.raises(UserError, match="is a file"):
        other.save(folder / "config.json")


def test_a_save_that_fails_leaves_the_old_one(folder, tokenizer, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left on device")

    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*tok \(no space left on device\): make room"):
        tokenizer.save(folder, force=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["tok"]


def test_whoever_may_read_the_folder_may_read_its_files(folder):
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    (folder / "mine").touch()
    assert set(modes.values()) == {(folder / "mine").stat().st_mode & 0o777}


def test_what_is_not_fitted_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        Tokenizer().save(tmp_path / "tok")
    assert list(tmp_path.iterdir()) == []


# --- what is refused -----------------------------------------------------------------------------------------------


def test_a_flipped_byte_anywhere_in_the_weights_is_refused(folder):
    path = folder / "model.safetensors"
    good = path.read_bytes()
    for place in np.linspace(0, len(good) - 1, 60).astype(int):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        refused(folder, "model.safetensors", "again")
    path.write_bytes(good[:-1])
    refused(folder, "model.safetensors", "again")
    path.write_bytes(good)
    Tokenizer.load(folder)


def test_a_flipped_byte_in_the_config_is_refused_or_means_nothing(folder, tokenizer):
    path = folder / "config.json"
    good, messages = path.read_bytes(), []
    for place in range(0, len(good), 5):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x01]) + good[place + 1 :])
        try:
            found = Tokenizer.load(folder)
        except UserError as error:
            messages.append(str(error))
        else:  # one kind of white space for another
            assert found.get_params() == tokenizer.get_params()
    assert len(messages) > 100
    assert all("config.json" in message for message in messages)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", ""])
def test_a_missing_file_is_named(folder, name):
    if name:
        (folder / name).unlink()
    else:
        folder = folder.with_name("nowhere")
    refused(folder, name or "nowhere", "missing", "again")


def test_another_format_version_or_content_is_refused(folder):
    rewrite(folder, lambda config: config.update(version=2))
    refused(folder, "config.json", "version 2", "ghrq that wrote it")
    rewrite(folder, lambda config: config.update(version=1, format="gpt"))
    refused(folder, "config.json", "ghrq-tokenizer")
    rewrite(folder, lambda config: config.update(format="ghrq-tokenizer"))
    Tokenizer.load(folder)
    rewrite(folder, lambda config: config["params"].update(seed=8))
    refused(folder, "config.json", "written together")
    (folder / "config.json").write_text("[]")
    refused(folder, "config.json")


def test_another_convention_is_refused(folder, tokenizer):
    config, weights = pretrained.load(folder, Tokenizer._format)
    for change in (
        {"convention": {"curvature": 0.5, "aggregation": "nested"}},
        {"convention": {"curvature": 1.0, "aggregation": "chained"}},
    ):
        pretrained.save(folder, Tokenizer._format, {**config, **change}, weights, force=True)
        refused(folder, "config.json", "convention", "chained", "nested" if "nested" in str(change) else "1.0")
    # and weights of another convention under a config that does not say so
    pretrained.save(
        folder,
        Tokenizer._format,
        {
            **config,
            "params": config["params"] | {"curvature": 1.0},
            "convention": {"curvature": 1.0, "aggregation": "chained"},
        },
        weights,
        force=True,
    )
    refused(folder, "config.json", "curvature 0.5")


def test_parameters_that_this_version_does_not_know_are_refused(folder):
    config, weights = pretrained.load(folder, Tokenizer._format)
    for change in ({"magic": 1}, {"codebook_size": 9}):
        changed = {**config, "params": config["params"] | change}
        pretrained.save(folder, Tokenizer._format, changed, weights, force=True)
        refused(folder, "config.json", *(["magic"] if "magic" in change else []))


@pytest.mark.parametrize("names", [True, -1, "abc", [[]], {"a": 1}, ["a"], [None] * 8, [1] * 8])
def test_feature_names_that_are_none_are_refused(names, folder):
    config, weights = pretrained.load(folder, Tokenizer._format)
    pretrained.save(folder, Tokenizer._format, {**config, "feature_names": names}, weights, force=True)
    refused(folder, "config.json", "feature_names", "again")


def write_unchecked(folder, monkeypatch, **changes):
    """The tokenizer in ``folder`` with other tensors, under right checksums."""
    config, weights = pretrained.load(folder, Tokenizer._format)
    with monkeypatch.context() as patch:
        patch.setattr(pretrained, "_check_finite", lambda *_: None)
        pretrained.save(folder, Tokenizer._format, config, weights | changes, force=True)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["quantizer.codebooks", "standard.scale", "standard.mean", "quantizer.scale.total"])
def test_tensors_that_are_not_finite_are_refused_under_right_checksums(name, value, folder, tokenizer, monkeypatch):
    tensor = tokenizer.model_.state_dict()[name].clone()
    tensor.view(-1)[-1] = value
    write_unchecked(folder, monkeypatch, **{name: tensor})
    refused(folder, f"'{name}'", "model.safetensors", "NaN or infinite", "again")


def test_values_that_mean_nothing_are_refused(folder, tokenizer, monkeypatch):
    state = {name: tensor.clone() for name, tensor in tokenizer.model_.state_dict().items()}
    for name, tensor, word in [
        ("quantizer.codebooks", 3.0 * state["quantizer.codebooks"].sign(), "outside of the PoincareBall"),
        ("standard.scale", torch.tensor(0.0), "scale"),
        ("standard.scale", torch.tensor(-1.0), "scale"),
        ("quantizer.scale.total", torch.tensor(0.0), "scale"),
        ("quantizer.scale.total", torch.tensor(1e-38), "scale"),
        ("quantizer.scale.weight", torch.tensor(1e38), "scale"),
        ("quantizer.scale.weight", torch.tensor(-1.0), "scale"),
        ("quantizer.convention", torch.tensor([0, 10**18]), "unknown aggregation"),
        ("quantizer.codebooks", state["quantizer.codebooks"].to(torch.int8), "torch.int8"),
    ]:
        write_unchecked(folder, monkeypatch, **{name: tensor})
        refused(folder, word, "again")
        tokenizer.save(folder, force=True)


def test_a_diverged_tokenizer_is_not_saved(tokenizer, tmp_path):
    broken = Tokenizer(**SMALL).fit(clustered())
    broken.quantizer_.codebooks.data[1, 2] = torch.nan
    with pytest.raises(UserError, match=r"'quantizer.codebooks' in the tokenizer has NaN"):
        broken.save(tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_the_files_hold_no_pickles(folder):
    assert b"pickle" not in (folder / "model.safetensors").read_bytes()[:1000]
    assert set(load_file(folder / "model.safetensors")) >= {"standard.mean", "standard.scale", "quantizer.codebooks"}
    save_file({"a": torch.ones(2)}, folder / "model.safetensors")
    refused(folder, "model.safetensors")


# --- the Hub -------------------------------------------------------------------------------------------------------


def test_from_pretrained_takes_a_folder(folder, tokenizer):
    x = clustered()
    np.testing.assert_array_equal(Tokenizer.from_pretrained(folder).encode(x), tokenizer.encode(x))
    np.testing.assert_array_equal(Tokenizer.from_pretrained(str(folder)).encode(x), tokenizer.encode(x))


def test_from_pretrained_takes_what_the_cache_of_the_hub_has(folder, tokenizer, tmp_path):
    """The cache as huggingface_hub lays it out, filled by hand."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "cache" / "models--someone--tok"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots").mkdir()
    folder.rename(repository / "snapshots" / commit)
    found = Tokenizer.from_pretrained("someone/tok", cache_dir=tmp_path / "cache", local_files_only=True)
    np.testing.assert_array_equal(found.encode(clustered()), tokenizer.encode(clustered()))
    for name in ("someone/other", "no such/name/at all"):
        with pytest.raises(UserError, match=name):
            Tokenizer.from_pretrained(name, cache_dir=tmp_path / "cache", local_files_only=True)


def test_push_to_hub_saves_and_uploads(tokenizer, monkeypatch):
    """Only what would go over the network is replaced."""
    import huggingface_hub

    calls = []

    def create_repo(self, repo_id, **options):
        calls.append((repo_id, options))
        return huggingface_hub.RepoUrl(f"https://huggingface.co/someone/{repo_id}")

    def upload_folder(self, *, repo_id, folder_path, **options):
        np.testing.assert_array_equal(Tokenizer.load(folder_path).encode(clustered()), tokenizer.encode(clustered()))
        calls.append((repo_id, options))

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    assert tokenizer.push_to_hub("tok", private=True, revision="dev") == "https://huggingface.co/someone/tok"
    assert calls[0] == ("tok", {"private": True, "exist_ok": True})
    assert calls[1] == ("someone/tok", {"revision": "dev", "commit_message": "Upload tokenizer"})


# --- what is not installed -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_scikit_learn_the_extra_is_named():
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import ghrq\n"
        "try:\n    ghrq.Tokenizer\n"
        "except ghrq.system.errors.UserError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "scikit-learn" in run.stdout or "sklearn" in run.stdout, run.stderr
    assert "ghrq[tokenizer]" in run.stdout
