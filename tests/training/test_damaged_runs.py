"""Whatever is wrong with the files of a run: every command ends in one message, and ``ghrq runs`` lists the others."""

import os
import random
import shutil
import signal

import pytest
from mutations import damaged_copy

from ghrq import cli

SEED, VARIANTS = int(os.environ.get("GHRQ_TEST_SEED", "0")), int(os.environ.get("GHRQ_TEST_VARIANTS", "60"))


@pytest.fixture(scope="module")
def study(tiny, tmp_path_factory):
    """A folder with a study of one run, half trained: its first stage is finished."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.raises(SystemExit) as end:
        cli.main(["reproduce", "tiny_task:Tiny", "--budget", "demo", "--out", str(folder / "runs"), "--jobs", "1"])
    assert not end.value.code
    return folder / "runs"


def too_long(*_):
    raise Hangs


class Hangs(BaseException):
    """Nothing in ghrq catches it."""


@pytest.mark.slow
def test_no_damage_ends_in_a_traceback(study, ghrq, tmp_path):
    chance = random.Random(SEED)
    before = signal.signal(signal.SIGALRM, too_long)
    train_from = {"finished": study / "ghrq-s0", "half": tmp_path / "half"}
    left_out = shutil.ignore_patterns("results.json", "prior", "models")
    shutil.copytree(study / "ghrq-s0", train_from["half"], ignore=left_out)
    (train_from["half"] / "status.json").write_text('{"state": "failed", "message": "x", "traceback": ""}')
    try:
        for variant in range(VARIANTS):
            root = tmp_path / "runs"
            shutil.copytree(study, root)
            shutil.rmtree(root / "ghrq-s0")
            told = damaged_copy(train_from[chance.choice(["finished", "half"])], root / "ghrq-s0", chance)
            shutil.copytree(study / "ghrq-s0", root / "z-good")
            for command in (
                ("runs", root),
                ("eval", root / "ghrq-s0"),
                ("train", "--resume", root / "ghrq-s0"),
                ("reproduce", "tiny_task:Tiny", "--budget", "demo", "--jobs", 1, "--out", root),
                ("runs", root),
            ):
                case = f"seed {SEED}, variant {variant}, {command[0]}: {told}"
                signal.alarm(120)
                try:
                    code, out, err = ghrq(*command)
                except BaseException as error:
                    raise AssertionError(case) from error
                signal.alarm(0)
                assert "Traceback" not in err, case
                assert code in ((0,) if command[0] == "runs" else (0, 1, 2, 3)), case
                if command[0] == "runs":
                    assert [line.split()[2] for line in out.splitlines() if "z-good" in line.split()[0]] == ["finished"]
            shutil.rmtree(root)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
