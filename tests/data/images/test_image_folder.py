"""A folder of images."""

import shutil
import warnings

import numpy as np
import pytest
import torch

from ghrq.data.images import load, read_image
from ghrq.system.errors import UserError

Image = pytest.importorskip("PIL.Image")


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


def flat(value, channels=3, size=(6, 6)):
    return np.full((*size, channels) if channels > 1 else size, value, dtype=np.uint8)


def both(folder, size=4):
    return [load("folder", split=split, source=str(folder), size=size) for split in ("train", "test")]


def test_subfolders_are_classes(tmp_path):
    for number in range(20):
        save(tmp_path / ("cat" if number % 4 else "ant") / "deeper" / f"{number}.png", flat(10 * number))
    (tmp_path / "empty").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("not a image")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.png").write_text("not a image either")
    train, test = both(tmp_path)
    assert (len(train), len(test)) == (18, 2)
    assert train.label_names == test.label_names == ("ant", "cat")
    assert train.pixels.shape == (18, 3, 4, 4)
    assert train.labels.dtype == torch.int64
    values = torch.cat((train.pixels, test.pixels))[:, 0, 0, 0].long()
    labels = torch.cat((train.labels, test.labels))
    assert sorted(values.tolist()) == [10 * number for number in range(20)]
    assert torch.equal(labels, (values // 10 % 4 > 0).long())


def test_the_split_depends_on_the_names_only(tmp_path):
    """The same in another place; a image more or less changes few others."""
    for number in range(100):
        save(tmp_path / "a" / f"{number:02}.png", flat(number, 1))
    train, test = both(tmp_path / "a", size=2)
    assert (len(train), len(test)) == (90, 10)
    assert train.label_names == ("a",)
    assert train.labels.unique().tolist() == [0]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert torch.equal(both(tmp_path / "b", size=2)[1].pixels, test.pixels)
    save(tmp_path / "b" / "new.png", flat(200, 1))
    before, after = (set(images.pixels[:, 0, 0, 0].tolist()) for images in (test, both(tmp_path / "b", size=2)[1]))
    assert len(before - after) <= 1


def test_grey_if_all_are(tmp_path):
    save(tmp_path / "one.png", flat(100, 1))
    save(tmp_path / "two.png", np.full((6, 6), 200 * 256 + 7, dtype=np.uint16))
    train, test = both(tmp_path)
    assert train.pixels.shape == (1, 1, 4, 4)
    assert sorted(torch.cat((train.pixels, test.pixels))[:, 0, 0, 0].tolist()) == [100, 200]
    palette = Image.fromarray(flat(2, 1)).convert("P")
    palette.putpalette([0, 0, 0, 90, 90, 90, 150, 150, 150])
    palette.save(tmp_path / "three.png")
    train, test = both(tmp_path)
    assert sorted(torch.cat((train.pixels, test.pixels))[:, 0, 0, 0].tolist()) == [100, 150, 200]
    palette.putpalette([0, 0, 0, 90, 90, 90, 150, 160, 150])
    palette.save(tmp_path / "three.png")
    assert all(images.pixels.shape[1] == 3 for images in both(tmp_path))


@pytest.mark.parametrize("value", [200, 2**15, 2**20])
def test_of_32_bits_it_is_not_known_what_is_white(value, tmp_path):
    save(tmp_path / "deep.tiff", np.full((6, 6), value, dtype=np.int32))
    with pytest.raises(UserError, match=r"deep\.tiff cannot be read .*32 bits.*save it with 8 or 16"):
        read_image(tmp_path / "deep.tiff", None, 1)


@pytest.mark.parametrize("kind", ["png", "pgm", "tiff"])
def test_of_16_bits_the_upper_8_are_taken(kind, tmp_path):
    save(tmp_path / f"deep.{kind}", np.full((6, 6), 200 * 256 + 7, dtype=np.uint16))
    assert read_image(tmp_path / f"deep.{kind}", None, 1).unique().tolist() == [200]


def test_the_middle_square_is_resized(tmp_path):
    wide = np.zeros((8, 24, 3), dtype=np.uint8)
    wide[:, 8:12], wide[:, 12:16] = (255, 0, 0), (0, 0, 255)
    save(tmp_path / "wide.png", wide)
    assert read_image(tmp_path / "wide.png", 8, 3).tolist() == wide[:, 8:16].transpose(2, 0, 1).tolist()
    save(tmp_path / "tall.png", wide.transpose(1, 0, 2))
    assert torch.equal(read_image(tmp_path / "tall.png", 8, 3), read_image(tmp_path / "wide.png", 8, 3).mT)
    small = read_image(tmp_path / "wide.png", 2, 3)
    assert small[0, :, 0].min() > 200 > 50 > small[0, :, 1].max()
    assert read_image(tmp_path / "wide.png", 50, 1).shape == (1, 50, 50)


def test_a_photograph_that_lies_on_its_side(tmp_path):
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    image[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turn by 90° to see it upright
    save(tmp_path / "side.png", image, exif=exif)
    assert torch.equal(read_image(tmp_path / "side.png", 8, 1)[0, 0], torch.tensor([0] * 4 + [255] * 4).byte())


def test_what_is_transparent_is_white(tmp_path):
    image = np.zeros((6, 6, 4), dtype=np.uint8)
    image[:, 3:] = (10, 20, 30, 255)
    save(tmp_path / "clear.png", image)
    read = read_image(tmp_path / "clear.png", 6, 3)
    assert read[:, 0, 0].tolist() == [255, 255, 255]
    assert read[:, 0, 5].tolist() == [10, 20, 30]


@pytest.mark.parametrize("content", [b"", b"no image at all", "cut", "header"])
def test_a_broken_image_names_its_file(content, tmp_path):
    for number in range(3):
        save(tmp_path / f"{number}.png", np.random.RandomState(number).randint(256, size=(64, 64, 3)).astype(np.uint8))
    whole = (tmp_path / "1.png").read_bytes()
    damaged = {"cut": whole[: len(whole) // 2], "header": whole[:20]}.get(content, content)
    (tmp_path / "1.png").write_bytes(damaged)
    with pytest.raises(UserError, match=r"1\.png cannot be read as an image .*: repair or remove it") as caught:
        both(tmp_path)
    assert "\n" not in str(caught.value)


def test_broken_images_are_named_all_at_once(tmp_path):
    for number in range(10, 40):
        save(tmp_path / f"{number}.png", flat(number))
    for number in (12, 25, 38):  # by their names, the first is for testing, the others for training
        (tmp_path / f"{number}.png").write_bytes(b"no image")
    expected = r"12\.png cannot be read as an image .*: repair or remove it; 2 more .*: 25\.png, 38\.png$"
    for split in ("train", "test"):
        with pytest.raises(UserError, match=expected):
            load("folder", split=split, source=str(tmp_path))


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(UserError, match="needs a source"):
        load("folder", split="train")
    with pytest.raises(UserError, match=r"there is no folder '.*nowhere'"):
        both(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"too few images \(0\) in "):
        both(tmp_path)
    save(tmp_path / "beside.png", flat(1))
    with pytest.raises(UserError, match=r"'.*beside.png' is a file: name a folder"):
        both(tmp_path / "beside.png")
    with pytest.raises(UserError, match=r"too few images \(1\)"):
        both(tmp_path)
    save(tmp_path / "class" / "one.png", flat(1))
    with pytest.raises(UserError, match=r"beside\.png is beside subfolders"):
        both(tmp_path)
    (tmp_path / "beside.png").unlink()
    save(tmp_path / "class" / "two.png", flat(1))
    with pytest.raises(UserError, match="size 0"):
        both(tmp_path, size=0)


def test_a_large_image_is_read_without_a_word(tmp_path, monkeypatch):
    Image.new("L", (8, 8)).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    with warnings.catch_warnings(action="error"):
        assert read_image(tmp_path / "large.png", None, 1).shape == (1, 8, 8)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(UserError, match=r"large.png has too many pixels"):
        read_image(tmp_path / "large.png", None, 1)
