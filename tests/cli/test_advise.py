"""``ghrq advise``, and ``ghrq fit`` with sizes by level and balanced codebooks."""

import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq import Tokenizer


@pytest.fixture
def items(tmp_path):
    random = np.random.default_rng(0)
    centres = random.standard_normal((20, 5))
    vectors = centres[random.integers(20, size=600)] + 0.2 * random.standard_normal((600, 5))
    np.save(tmp_path / "items.npy", vectors.astype(np.float32))
    return "items.npy"


@pytest.mark.slow
def test_the_command_that_it_recommends_runs(ghrq, items):
    code, out, _ = ghrq("advise", items, "--max-ids", 5000, "--no-balance", "--kind", "euclidean")
    assert code == 0
    assert "at 5,000" in out.splitlines()[0]
    assert out.count("<- this") == 1
    assert "judged by 600 rows" in out
    assert "--balance" not in out
    command = next(line for line in out.splitlines() if line.startswith("next: "))
    program, *words = shlex.split(command.removeprefix("next: "))
    assert program == "ghrq"
    assert ghrq(*words)[0] == 0
    told = next(line for line in out.splitlines() if line.startswith("recommended: "))
    assert told.startswith(f"recommended: {len(Tokenizer.load('tok').quantizer_.sizes)} levels")


@pytest.mark.slow
def test_fit_with_sizes_by_level(ghrq, items):
    code, out, _ = ghrq("fit", items, "--codes", "4,16,8", "--balance", "--out", "tok")
    assert code == 0, out
    tokenizer = Tokenizer.load("tok")
    assert (tokenizer.codebook_size, tokenizer.balance) == ([4, 16, 8], True)
    assert ghrq("inspect", "tok", "tok/ids.parquet", "--items", items, "--out", "report")[0] == 0
    code, _, err = ghrq("fit", items, "--codes", "4,16,8", "--stages", 4, "--out", "other")
    assert code == 2
    assert err == "error: --codes 4,16,8 has 3 sizes, but --stages is 4: leave --stages out, or give one size a stage\n"


@pytest.mark.parametrize("codes", ["0", "4,1", "4,,8", "many", ""])
def test_sizes_that_make_no_sense_are_one_clear_line(codes, ghrq, items):
    code, _, err = ghrq("fit", items, "--codes", codes, "--out", "tok")
    assert code == 2
    assert "Invalid value for '--codes'" in err
    assert "or one for each stage, 64,256,1024" in err.replace("\n", " ")


def test_help_and_mistakes(ghrq, items):
    code, out, _ = ghrq("advise", "--help")
    assert code == 0
    assert "\n    ghrq advise" in out
    np.save("few.npy", np.ones((15, 3), dtype=np.float32))
    assert ghrq("advise", "few.npy")[2] == "error: few.npy has 15 rows, too few to judge IDs by: give at least 16\n"
    np.save("same.npy", np.ones((40, 3), dtype=np.float32))
    assert "all vectors are equal" in ghrq("advise", "same.npy")[2]
    few = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    np.save("few.npy", few)
    code, out, err = ghrq("advise", "few.npy", "--max-ids", 5)
    assert (code, "at 20" in out.splitlines()[0]) == (0, True)
    assert "note: --max-ids 5 is less than the 20 rows of few.npy, which count instead" in err
    pq.write_table(pa.table({"item_id": [f"i{row}" for row in range(20)], "embedding": few.tolist()}), "few.parquet")
    assert "next: ghrq fit few.parquet --id item_id --stages " in ghrq("advise", "few.parquet")[1]
    assert "next: ghrq fit few.parquet --stages " in ghrq("advise", "few.parquet", "--id", "")[1]
    code, _, err = ghrq("advise", items, "--max-ids", 0)
    assert (code, "Invalid value for '--max-ids'" in err) == (2, True)
