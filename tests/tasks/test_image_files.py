"""Image files to codes and back, by the commands."""

import io
import json
import os
import random
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from small_image import small

from ghrq.data.images import load
from ghrq.models import ImageTokenizer
from ghrq.models.image_files import decode_file, encode_file, fingerprint
from ghrq.system.progress import Progress
from ghrq.training.train import train

pytestmark = pytest.mark.slow  # they need a trained run


def load_tokenizer(run: Path) -> ImageTokenizer:
    return ImageTokenizer.from_pretrained(run / "models" / "tokenizer")


def test_an_image_of_any_size_to_codes_and_back(run: Path, ghrq, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    Pillow.fromarray(random.integers(0, 256, (30, 45, 3), dtype=np.uint8)).save("mine.png")
    code, out, _ = ghrq("image", "encode", run, "mine.png", "--out", "mine.npz")
    assert code == 0
    assert "12 × 8 positions" in out
    tokenizer = load_tokenizer(run)
    codes = np.load("mine.npz")["codes"]
    for depth in (None, 1, 3):
        option = () if depth is None else ("--depth", depth)
        assert ghrq("image", "decode", run, "mine.npz", "--out", "back.png", "--force", *option)[0] == 0
        with Pillow.open("back.png") as back:
            assert back.size == (45, 30)
            found = np.asarray(back)
        expected = tokenizer.decode(torch.from_numpy(codes[None, ..., :depth].astype(np.int64)), (30, 45))[0, 0]
        np.testing.assert_array_equal(found, (255 * expected).round().byte().numpy())


def test_the_error_of_an_image_is_told_beside_that_of_the_test_images(run: Path, ghrq, tmp_path: Path) -> None:
    tokenizer, random = load_tokenizer(run), np.random.default_rng(0)
    own = json.loads((run / "results.json").read_text())["mse"]
    assert tokenizer.config.test_error == own
    digits = load("digits", split="test").pixels
    Pillow.fromarray(digits[0, 0].numpy()).save("digit.png")
    Pillow.fromarray(random.integers(0, 256, (9, 13), dtype=np.uint8)).save("noise.png")
    code, out, err = ghrq("image", "encode", run, "digit.png", "--out", "digit.npz")
    assert (code, err) == (0, "")
    back = tokenizer.decode(tokenizer.encode(digits[:1]))
    error = float((back - digits[:1] / 255).square().mean())
    assert f"{error:.2g} for the image, {own:.2g} for the images it was tested on (mean squared" in out

    tokenizer.config = tokenizer.config.model_copy(update={"test_error": own / 100})  # as of one trained for longer
    tokenizer.save_pretrained("better")
    code, out, err = ghrq("image", "encode", "better", "digit.png", "noise.png", "--out", "codes")
    assert code == 0
    assert f"for the images, on average, {own / 100:.2g} for the images it was tested on" in out
    assert [line.split()[:2] for line in err.splitlines()] == [["warning:", "digit.png"], ["warning:", "noise.png"]]
    times = [float(line.split("with ")[1].split()[0]) for line in err.splitlines()]
    assert times[0] == round(100 * error / own)

    tokenizer.config = tokenizer.config.model_copy(update={"test_error": None})
    tokenizer.save_pretrained("old")
    code, out, err = ghrq("image", "encode", "old", "noise.png", "--out", "noise.npz")
    assert (code, err) == (0, "")
    assert "for the image, unknown for this model" in out


@pytest.mark.parametrize("positions", [1, 40, 12 * 9])
def test_a_large_image_is_coded_strip_by_strip_as_in_one_piece(
    positions: int, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    Pillow.fromarray(random.integers(0, 256, (90, 45), dtype=np.uint8)).save(tmp_path / "mine.png")
    tokenizer, told = load_tokenizer(run), Progress()
    whole = encode_file(tokenizer, tmp_path / "mine.png", tmp_path / "whole.npz", told)
    decode_file(tokenizer, tmp_path / "whole.npz", tmp_path / "whole.png", told)
    monkeypatch.setattr("ghrq.models.image_files._STRIP", positions)
    parts = encode_file(tokenizer, tmp_path / "mine.png", tmp_path / "parts.npz", told)
    decode_file(tokenizer, tmp_path / "whole.npz", tmp_path / "parts.png", told)
    assert whole.content.codes.shape == (23, 12, 3)
    assert torch.equal(parts.content.codes, whole.content.codes)
    with Pillow.open(tmp_path / "mine.png") as given, Pillow.open(tmp_path / "whole.png") as back:
        error = np.square((np.asarray(given, float) - np.asarray(back, float)) / 255).mean()
    assert parts.error == pytest.approx(whole.error, rel=1e-3) == pytest.approx(error, rel=1e-2)
    with Pillow.open(tmp_path / "whole.png") as first, Pillow.open(tmp_path / "parts.png") as second:
        # Sums in another order may round the other way.
        np.testing.assert_allclose(np.asarray(second, dtype=int), np.asarray(first, dtype=int), atol=1)


def test_several_at_once(run: Path, ghrq, tmp_path: Path) -> None:
    for name in ("one", "two"):
        Pillow.fromarray(np.full((9, 7), len(name) * 20, dtype=np.uint8)).save(f"{name}.png")
    assert ghrq("image", "encode", run, "one.png", "two.png", "--out", "codes")[0] == 0
    assert ghrq("image", "encode", run, "one.png", "--out", "one.npz")[0] == 0
    assert Path("one.npz").read_bytes() == Path("codes/one.npz").read_bytes()
    assert ghrq("image", "decode", run, "codes/one.npz", "codes/two.npz", "--out", "back")[0] == 0
    assert sorted(path.name for path in Path("back").iterdir()) == ["one.png", "two.png"]
    told = "is there already: name another file, or replace it with --force\n"
    for there, command in (
        ("one.npz", ("image", "encode", run, "one.png", "--out", "one.npz")),
        ("codes/one.npz", ("image", "encode", run, "one.png", "--out", "codes")),
        ("back/two.png", ("image", "decode", run, "codes/two.npz", "--out", "back")),
    ):
        Path(there).write_text("mine")
        assert ghrq(*command) == (2, "", f"error: {there} {told}")
        assert Path(there).read_text() == "mine"
        assert ghrq(*command, "--force")[0] == 0


def test_of_several_a_broken_one_does_not_keep_the_others_back(run: Path, ghrq, tmp_path: Path) -> None:
    for name in ("one", "two"):
        Pillow.fromarray(np.full((9, 7), 20, dtype=np.uint8)).save(f"{name}.png")
    Path("text.png").write_text("no picture")
    code, out, err = ghrq("image", "encode", run, "one.png", "text.png", "two.png", "--out", "codes")
    assert (code, out) == (2, "")
    assert "2 of 3 files written\n  text.png cannot be read as an image (cannot identify image file)" in err
    assert sorted(path.name for path in Path("codes").iterdir()) == ["one.npz", "two.npz"]


def test_a_folder_is_not_made_for_nothing(run: Path, ghrq, tmp_path: Path) -> None:
    Path("text.png").write_text("no picture")
    code, _, err = ghrq("image", "encode", run, "text.png", "none.png", "--out", "codes")
    assert (code, err.count("\n")) == (2, 3), "a line for each"
    assert "0 of 2 files written\n" in err
    assert not Path("codes").exists()


def test_a_full_disk_is_told_in_a_line(run: Path, ghrq, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    Pillow.fromarray(random.integers(0, 256, (200, 200), dtype=np.uint8)).save("mine.png")
    assert ghrq("image", "encode", run, "mine.png", "--out", "mine.npz")[0] == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        told = [
            ghrq("image", "encode", run, "mine.png", "--out", "again.npz"),
            ghrq("image", "decode", run, "mine.npz", "--out", "again.png"),
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for (code, out, err), name in zip(told, ("again.npz", "again.png"), strict=True):
        assert (code, out) == (2, "")
        assert err == f"error: cannot write {name} (File too large): make room, or choose another\n"
    assert sorted(path.name for path in Path().iterdir()) == ["mine.npz", "mine.png"]


def test_few_steps_are_told(tmp_path: Path) -> None:
    notes = []

    class Told(Progress):
        def note(self, text: str) -> None:
            notes.append(text)

    train(small("tokenizer.epochs=1", "tokenizer.batch=500", "prior.epochs=0"), tmp_path / "run", progress=Told())
    assert any("was trained for 3 steps only (tokenizer.epochs=1, 1,3" in note for note in notes), notes


def test_a_name_without_an_ending_is_a_folder_for_a_single_one_too(run: Path, ghrq, tmp_path: Path) -> None:
    Pillow.fromarray(np.full((9, 7), 20, dtype=np.uint8)).save("one.png")
    code, out, _ = ghrq("image", "encode", run, "one.png", "--out", "codes")
    assert code == 0
    assert out.split()[-1] == "codes/one.npz"
    assert ghrq("image", "decode", run, "codes/one.npz", "--out", "back.tif")[0] == 0
    with Pillow.open("back.tif") as back:
        assert back.size == (7, 9)


def test_a_folder_may_have_the_ending_of_a_file(run: Path, ghrq, tmp_path: Path) -> None:
    Pillow.fromarray(np.full((9, 7), 20, dtype=np.uint8)).save("one.png")
    Path("codes.npz").mkdir()
    assert ghrq("image", "encode", run, "one.png", "--out", "codes.npz")[0] == 0
    assert Path("codes.npz/one.npz").is_file()


def test_a_model_folder_is_as_good_as_its_run(run: Path, ghrq, tmp_path: Path) -> None:
    Pillow.fromarray(np.full((9, 7), 20, dtype=np.uint8)).save("one.png")
    for name, model in (("run", run), ("model", shutil.copytree(run / "models" / "tokenizer", "mine"))):
        assert ghrq("image", "encode", model, "one.png", "--out", f"{name}.npz")[0] == 0
    assert Path("run.npz").read_bytes() == Path("model.npz").read_bytes()
    code, _, err = ghrq("image", "encode", run / "models" / "prior", "one.png", "--out", "no.npz")
    assert (code, err.count("\n")) == (2, 1)
    assert "does not describe image tokenizers" in err


def test_a_damaged_tokenizer_is_refused_and_can_be_written_again(run: Path, ghrq, tmp_path: Path) -> None:
    shutil.copytree(run, "bad")
    with Path("bad/models/tokenizer/model.safetensors").open("ab") as file:
        file.write(b"x")
    Pillow.fromarray(np.full((9, 7), 20, dtype=np.uint8)).save("one.png")
    code, _, err = ghrq("image", "encode", "bad", "one.png", "--out", "one.npz")
    assert (code, err.count("\n")) == (2, 1)
    assert "bad/models/tokenizer/model.safetensors is damaged" in err
    assert "to write it: ghrq eval bad" in err
    assert not Path("one.npz").exists()
    assert ghrq("eval", "bad")[0] == 0
    for folder in ("bad", run):
        assert ghrq("image", "encode", folder, "one.png", "--out", f"{Path(folder).name}.npz")[0] == 0
    assert Path("bad.npz").read_bytes() == Path(f"{run.name}.npz").read_bytes()


def test_a_run_of_an_older_version_says_how_to_have_its_tokenizer(run: Path, ghrq, tmp_path: Path) -> None:
    shutil.copytree(run, "old", ignore=shutil.ignore_patterns("models"))
    Pillow.fromarray(np.full((9, 7), 20, dtype=np.uint8)).save("one.png")
    code, _, err = ghrq("image", "encode", "old", "one.png", "--out", "one.npz")
    assert (code, err) == (2, "error: old has no models/tokenizer: to write it: ghrq eval old\n")
    assert ghrq("eval", "old")[0] == 0
    assert ghrq("image", "encode", "old", "one.png", "--out", "one.npz")[0] == 0


def test_a_tokenizer_that_is_gone_says_how_to_have_it_again(run: Path, ghrq, tmp_path: Path) -> None:
    shutil.copytree(run, "gone", ignore=shutil.ignore_patterns("checkpoints", "models"))
    Pillow.fromarray(np.full((9, 7), 20, dtype=np.uint8)).save("one.png")
    assert "to write it: ghrq eval gone" in ghrq("image", "encode", "gone", "one.png", "--out", "one.npz")[2]
    remedy = "remove gone/results.json, which says that all is done, then ghrq train --resume gone"
    assert remedy in ghrq("eval", "gone")[2]


def test_an_evaluation_that_cannot_be_does_not_speak_of_training(run: Path, ghrq, tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(run, "kept")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(ImageTokenizer, "encode", full)
    assert "cannot be evaluated: no space left. What was saved is intact" in ghrq("eval", "kept")[2]


def test_a_run_that_is_not_finished_has_no_model_yet(run: Path, ghrq, tmp_path: Path) -> None:
    shutil.copytree(run, "half", ignore=shutil.ignore_patterns("models", "results.json"))
    Pillow.fromarray(np.zeros((8, 8), dtype=np.uint8)).save("mine.png")
    code, _, err = ghrq("image", "encode", "half", "mine.png", "--out", "mine.npz")
    assert (code, err) == (2, "error: half has no models/tokenizer: first ghrq train --resume half\n")
    assert ghrq("train", "--resume", "half")[0] == 0
    assert ghrq("image", "encode", "half", "mine.png", "--out", "mine.npz")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("encode", "RUN", "none.png", "--out", "a.npz"), "there is no image none.png"),
        (("encode", "RUN", "text.png", "--out", "a.npz"), "text.png cannot be read as an image"),
        (("encode", ".", "text.png", "--out", "a.npz"), ". is not a model and not a run"),
        (("encode", "RUN", "text.png", "--out", "a.txt"), ".npz"),
        (("encode", "RUN", ".", "--out", "a.npz"), ". is a folder: name the images in it, such as ./*"),
        (("decode", "RUN", "good.npz", "--out", "text.png/a.png"), "text.png is a file, not a folder"),
        (("decode", "RUN", "text.png", "--out", "a.png"), "cannot be read as a file of codes"),
        (("encode", "RUN", "float.tiff", "--out", "a.npz"), "floating point"),
        (("encode", "RUN", "text.png", "text.png", "--out", "a.npz"), "name a folder"),
        (("encode", "RUN", "text.png", "other.png", "--out", "plain.npy"), "name a folder"),
        (("encode", "RUN", "text.png", "b/text.jpg", "--out", "a.d"), "text.png and b/text.jpg would both be written"),
        (("encode", "RUN", "text.png", "--out", "nowhere"), "--out nowhere is no folder"),
        (("decode", "RUN", "none.npz", "--out", "a.png"), "there is no file none.npz: check the name"),
        (("decode", "RUN", "plain.npy", "--out", "a.png"), "cannot be read as a file of codes (no .npz)"),
        (("decode", "RUN", "cut.npz", "--out", "a.png"), "cannot be read as a file of codes (damaged, or cut off)"),
        (("decode", "RUN", ".", "--out", "a.png"), ". is a folder, expected a file"),
        (("decode", "RUN", "whole.npz", "--out", "a.png"), "not whole numbers"),
        (("decode", "RUN", "long.npz", "--out", "a.png"), "size is not height and width, but of shape (3,)"),
        (("decode", "RUN", "other.npz", "--out", "a.png"), "another tokenizer"),
        (("decode", "RUN", "deep.npz", "--out", "a.png"), "8 × 8 has codes of shape (2, 2, 3), these have (2, 2, 5)"),
        (("decode", "RUN", "high.npz", "--out", "a.png"), "the code 8 is not from 0 to 7"),
        (("decode", "RUN", "good.npz", "--out", "a.png", "--depth", "9"), "expected 1 to 3"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(run: Path, ghrq, tmp_path: Path, arguments, message: str) -> None:
    Path("text.png").write_text("no picture")
    Pillow.fromarray(np.ones((8, 8), dtype=np.float32)).save("float.tiff")
    codes, of = (
        np.zeros((2, 2, 3), dtype=np.int16),
        {"size": np.array([8, 8]), "tokenizer": fingerprint(load_tokenizer(run))},
    )
    np.save("plain.npy", codes)
    np.savez("good.npz", codes=codes, **of)
    Path("cut.npz").write_bytes(Path("good.npz").read_bytes()[:100])
    Path("nowhere").symlink_to("nothing")
    np.savez("deep.npz", codes=np.zeros((2, 2, 5), dtype=np.int16), **of)
    np.savez("high.npz", codes=codes + 8, **of)
    np.savez("whole.npz", codes=codes + 0.5, **of)
    np.savez("long.npz", codes=codes, **of | {"size": np.array([8, 8, 1])})
    np.savez("other.npz", codes=codes, **of | {"tokenizer": "another"})
    code, out, err = ghrq("image", *(run if argument == "RUN" else argument for argument in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not list(Path().glob("a.*"))


def npz_of(run: Path, **changed) -> bytes:
    content = {
        "codes": np.random.default_rng(0).integers(0, 8, (10, 10, 3)),
        "size": np.array([40, 40]),
        "tokenizer": np.array(fingerprint(load_tokenizer(run))),
    }
    file = io.BytesIO()
    np.savez_compressed(file, **content | changed)
    return file.getvalue()


def test_mutated_files_of_codes_are_one_line(run: Path, ghrq) -> None:
    """Before, zlib.error and NotImplementedError were tracebacks."""
    whole, chance = npz_of(run), random.Random(7)
    for _ in range(60):
        mutated = bytearray(whole)
        for _ in range(chance.choice([1, 3, 20])):
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        Path("m.npz").write_bytes(mutated)
        code, _, err = ghrq("image", "decode", run, "m.npz", "--out", "a.png", "--force")
        assert (code, err.count("\n")) in ((0, 0), (2, 1))


@pytest.mark.parametrize("shape", [(1000, 1000, 300), (20_000, 20_000)])
def test_a_small_file_that_claims_much_takes_no_memory(run: Path, ghrq, shape: tuple[int, ...]) -> None:
    Path("big.npz").write_bytes(npz_of(run, codes=np.zeros(shape, dtype=np.int8)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code, _, err = ghrq("image", "decode", run, "big.npz", "--out", "a.png")
    assert code == 2
    assert "big.npz would unpack to" in err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


def test_a_pipe_of_codes_is_refused(run: Path, ghrq) -> None:
    os.mkfifo("p.npz")
    code, _, err = ghrq("image", "decode", run, "p.npz", "--out", "a.png")
    assert (code, err) == (2, "error: p.npz is a pipe, expected a file: write the data to a file first\n")
