"""extend, drift, remap and export as a user meets them: no published ID moves, and nothing is lost."""

import json
import re
import shlex
import shutil
from pathlib import Path

import filelock
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq import Tokenizer, cli
from ghrq.data.tables import open_codes

ROWS, DIM = 400, 6
FIT = ("--column", "embedding", "--id", "item_id", "--stages", 2, "--codes", 8)
GUIDE = Path(__file__).parents[2] / "docs" / "semantic-ids.md"


def vectors(rows, seed=0):
    random = np.random.default_rng(seed)
    groups = np.random.default_rng(9).standard_normal((10, DIM))
    return (groups[random.integers(0, 10, rows)] + 0.2 * random.standard_normal((rows, DIM))).astype(np.float32)


def write(path, x, start=0, ids=None, name="item_id"):
    ids = [f"item-{start + row:03d}" for row in range(len(x))] if ids is None else ids
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
    pq.write_table(pa.table({name: ids, "embedding": lists}), path)
    return path


def run(*arguments):
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    assert not end.value.code


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with items.parquet and tok/, new.parquet (100 new items, 20 old ones), and another tokenizer."""
    folder = tmp_path_factory.mktemp("shop")
    x = vectors(ROWS)
    write(folder / "items.parquet", x)
    write(folder / "new.parquet", np.concatenate((x[-20:], vectors(100, seed=1))), ROWS - 20)
    for name, seed in (("tok", 0), ("other", 1)):
        run("fit", folder / "items.parquet", *FIT, "--seed", seed, "--out", folder / name)
    return folder


@pytest.fixture
def here(shop, tmp_path):
    """A copy to change, in the folder of the command."""
    for name in ("tok", "other"):
        shutil.copytree(shop / name, tmp_path / name)
    for name in ("items.parquet", "new.parquet"):
        shutil.copy(shop / name, tmp_path / name)
    shutil.copy(shop / "tok" / "ids.parquet", tmp_path / "ids.parquet")
    return tmp_path


def read(path, retired=False):
    batches = list(open_codes(path, retired=retired).batches(1000))
    ids = [name for batch in batches for name in batch.ids.to_pylist()]
    return dict(zip(ids, map(tuple, np.concatenate([batch.vectors for batch in batches]).tolist()), strict=True))


def told(out):
    return {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in out.splitlines() if "  " in line}


@pytest.mark.parametrize("command", ["extend", "drift", "remap", "export"])
def test_help_has_an_example(command, ghrq):
    code, out, _ = ghrq(command, "--help")
    assert code == 0
    assert f"\n    ghrq {command}" in out


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["append", "reassign"])
def test_a_catalogue_grows_in_place(policy, ghrq, here):
    items = "items.parquet"
    if policy == "reassign":  # 64 tuples
        write(here / items, vectors(ROWS)[:30])
        write(here / "new.parquet", np.concatenate((vectors(ROWS)[20:30], vectors(10, seed=1))), 20)
    known, fresh = (20, 100) if policy == "append" else (10, 10)
    assert ghrq("encode", "tok", items, "--out", "ids.parquet", "--force", "--collisions", policy)[0] == 0
    before = read("ids.parquet")
    command = ("extend", "tok", "ids.parquet", "new.parquet", "--out", "ids.parquet")
    code, out, err = ghrq(*command)
    assert (code, err) == (0, "")
    facts = told(out)
    assert (facts["new"], facts["published already"]) == (str(fresh), str(known))
    assert "changed" not in facts
    after = read("ids.parquet")
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == len(after) == len(before) + fresh
    manifest = open_codes("ids.parquet").manifest
    assert (manifest["collisions"], manifest["tokenizer"]) == (policy, Tokenizer.load("tok").fingerprint)

    content = (here / "ids.parquet").read_bytes()
    code, out, _ = ghrq(*command)
    assert told(out)["ids"] == "ids.parquet, nothing to change"
    assert (here / "ids.parquet").read_bytes() == content

    (here / "gone.txt").write_text("item-003\n\nitem-021\n")
    assert ghrq("extend", "tok", "ids.parquet", "--retire", "gone.txt", "--out", "ids.parquet")[0] == 0
    assert read("ids.parquet", retired=True) == {name: after[name] for name in ("item-003", "item-021")}
    code, out, _ = ghrq(*command)  # the new table has item-021 of reassign only, item-003 stays retired
    assert code == 0
    x = vectors(ROWS)
    write(here / "back.parquet", x[[3]], ids=["item-003"])
    code, out, _ = ghrq("extend", "tok", "ids.parquet", "back.parquet", "--out", "ids.parquet")
    assert told(out)["came back"] == "1"
    assert read("ids.parquet")["item-003"] == after["item-003"]


@pytest.mark.slow
def test_tables_are_joined_by_id_after_items_came_and_went(ghrq, here):
    (here / "gone.txt").write_text("item-003\nitem-021\n")
    grown = ("extend", "tok", "ids.parquet", "new.parquet", "--retire", "gone.txt", "--out", "ids.parquet")
    assert ghrq(*grown)[0] == 0
    every = pa.concat_tables([pq.read_table("items.parquet"), pq.read_table("new.parquet")[20:]])
    every = every.append_column("name", [[f"name of {item}" for item in every["item_id"].to_pylist()]])
    every = every.append_column("sold", [[float(item[5:]) for item in every["item_id"].to_pylist()]])
    rows = {item: row for row, item in enumerate(every["item_id"].to_pylist())}
    pq.write_table(every.take([rows[item] for item in read("ids.parquet")]), "exact.parquet")
    pq.write_table(every.take(np.random.default_rng(3).permutation(len(every))), "mixed.parquet")
    found, pages = [], []
    for name, note in (
        ("exact", ""),
        ("mixed", "note: 2 rows of table.parquet are of no item of ids.parquet, and left out\n"),
    ):
        shutil.copy(f"{name}.parquet", "table.parquet")  # the page is called by it
        items = ("--items", "table.parquet")
        asked = ("--title", "name", "--labels", "name", "--counts", "sold", "--out", name)
        code, _, err = ghrq("inspect", "tok", "ids.parquet", *items, *asked)
        assert (code, err) == (0, note)
        found.append(json.loads((here / name / "quality.json").read_text()))
        found[-1].pop("provenance")
        code, _, err = ghrq("explore", "tok", "ids.parquet", *items, "--label", "name", "--out", "page.html")
        assert (code, err) == (0, note)
        pages.append((here / "page.html").read_text())
    assert found[0] == found[1]
    assert pages[0] == pages[1]
    for command in ("inspect", "explore"):
        code, _, err = ghrq(command, "tok", "ids.parquet", "--items", "items.parquet", "--out", "few.html")
        assert (code, err.count("\n")) == (2, 1)
        assert "items.parquet lacks 100 of the 498 items of ids.parquet, such as 'item-400', 'item-401'" in err


@pytest.mark.slow
def test_another_file_with_other_ids_is_not_replaced(ghrq, here):
    command = ("extend", "tok", "ids.parquet", "new.parquet", "--out", "ids2.parquet")
    assert ghrq(*command)[0] == 0
    content = (here / "ids2.parquet").read_bytes()
    code, out, _ = ghrq(*command)
    assert (code, told(out)["ids"]) == (0, "ids2.parquet, nothing to change")
    write(here / "new.parquet", vectors(5, seed=3), 900)
    code, out, err = ghrq(*command)
    assert (code, out) == (2, "")
    assert "ids2.parquet exists and has other IDs, which would be lost: extend it" in err
    assert (here / "ids2.parquet").read_bytes() == content


@pytest.mark.slow
def test_csv_has_no_manifest_and_that_is_said(ghrq, here):
    assert ghrq("encode", "tok", "items.parquet", "--out", "ids.csv")[0] == 0
    code, out, _ = ghrq("extend", "tok", "ids.csv", "new.parquet", "--out", "ids2.parquet")
    assert code == 0
    assert (
        "whether this tokenizer made ids.csv, as it has no manifest; ids2.parquet has one" in told(out)["not checked"]
    )
    assert open_codes("ids2.parquet").manifest["rows"] == ROWS + 100


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["append", "reassign"])
def test_ids_of_another_tokenizer_are_found_out_without_a_manifest(policy, ghrq, here):
    x = vectors(ROWS)
    write(here / "items.parquet", x[:30])
    assert ghrq("encode", "tok", "items.parquet", "--out", "ids.csv", "--collisions", policy)[0] == 0
    known = write(
        here / "known.parquet",
        np.concatenate((x[:20], x[40:45])),
        ids=[f"item-{row:03d}" for row in [*range(20), *range(900, 905)]],
    )
    code, out, err = ghrq("extend", "other", "ids.csv", known.name, "--out", "ids2.parquet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(
        r"error: ids.csv has no manifest, and \d+% of the \d+ items that are also in the new table \(item-0", err
    )
    assert "have other codes by this tokenizer: name the tokenizer that made the IDs" in err
    assert not (here / "ids2.parquet").exists()
    # Some of them have other vectors: that may be.
    write(here / "some.parquet", np.concatenate((x[:15], x[15:20] + 3.0)))
    code, out, _ = ghrq("extend", "tok", "ids.csv", "some.parquet", "--out", "ids2.parquet")
    assert (code, "another vector" in out) == (0, True)
    # Nothing to compare: as before.
    write(here / "fresh.parquet", x[40:45], 900)
    assert "not checked" in ghrq("extend", "other", "ids.csv", "fresh.parquet", "--out", "ids3.parquet")[1]


@pytest.mark.slow
def test_bad_input_is_one_line_and_code_2_and_changes_nothing(ghrq, here):
    x = vectors(3, seed=4)
    write(here / "narrow.parquet", x[:, :4], 900)
    write(here / "numbers.parquet", x, ids=[1, 2, 3])
    write(here / "twice.parquet", x, ids=["a", "a", "b"])
    nan = x.copy()
    nan[1, 2] = np.nan
    write(here / "nan.parquet", nan, 900)
    write(here / "many.parquet", np.repeat(x[:1], 300, axis=0), 900)
    pq.write_table(pa.table({"item_id": ["a"], "embedding": ["text"]}), here / "text.parquet")
    np.save(here / "new.npy", x)
    (here / "unknown.txt").write_text("nobody\n")
    (here / "both.txt").write_text("item-400\n")
    about = pq.read_metadata(here / "ids.parquet").metadata[b"ghrq"]
    table = pq.read_table(here / "ids.parquet")
    pq.write_table(table[5:].replace_schema_metadata({b"ghrq": about}), here / "cut.parquet")
    edited = json.loads(about) | {"tokenizer": "0" * 64}
    pq.write_table(table.replace_schema_metadata({b"ghrq": json.dumps(edited)}), here / "edited.parquet")
    content = (here / "ids.parquet").read_bytes()
    out = ("--out", "ids.parquet")
    for arguments, message in [
        (("tok", "ids.parquet", "narrow.parquet", *out), "has vectors of 4 numbers, the tokenizer was fitted on 6"),
        (("tok", "ids.parquet", "text.parquet", *out), "column 'embedding' is 'text', expected numbers"),
        (
            ("tok", "ids.parquet", "numbers.parquet", *out),
            "are text, such as item-000, but those given are whole numbers",
        ),
        (("tok", "ids.parquet", "twice.parquet", *out), "rows 0 and 1 (counted from 0) have the same item_id 'a'"),
        (("tok", "ids.parquet", "nan.parquet", *out), "row 1 (counted from 0): column 'embedding' holds NaN"),
        (("tok", "ids.parquet", "many.parquet", *out), " new items find no free token in the tuple"),
        (("tok", "ids.parquet", "new.npy", *out), "new.npy has no ids, and without them no item can be told"),
        (("other", "ids.parquet", "new.parquet", *out), "holds IDs of the tokenizer"),
        (("tok", "cut.parquet", "new.parquet", *out), "it has 395 rows, its manifest says 400 items"),
        (("tok", "edited.parquet", "new.parquet", *out), "its manifest was cut or edited: fetch the file again"),
        (("tok", "ids.parquet", *out), "nothing to do for ids.parquet: name a table of new items, or --retire PATH"),
        (
            ("tok", "ids.parquet", "--retire", "unknown.txt", *out),
            "1 of the 1 items to retire are not in the catalogue",
        ),
        (("tok", "ids.parquet", "new.parquet", "--retire", "both.txt", *out), "item-400 is to be retired, but also in"),
        (("tok", "ids.parquet", "new.parquet", "--out", "new.parquet"), "would overwrite the input new.parquet"),
        (("tok", "ids.parquet", "new.parquet", "--out", "ids.csv"), "expected a name that ends in .parquet"),
    ]:
        code, shown, err = ghrq("extend", *arguments)
        assert (code, shown, err.count("\n")) == (2, "", 1), err
        assert message in err, err
        assert (here / "ids.parquet").read_bytes() == content


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(command, ghrq, here):
    arguments = ("extend", here / "tok", here / "ids.parquet", here / "new.parquet", "--out", here / "ids.parquet")
    old = (here / "ids.parquet").read_bytes()
    shutil.copy(here / "ids.parquet", here / "expected.parquet")
    assert ghrq("extend", "tok", "expected.parquet", "new.parquet", "--out", "expected.parquet")[0] == 0
    new = (here / "expected.parquet").read_bytes()
    seen = set()
    for moment in range(1, 10):
        process, _ = command(*arguments, die_after=moment)
        process.join()
        content = (here / "ids.parquet").read_bytes()
        assert content in (old, new)
        seen.add(content)
        if process.exitcode == 0:
            break
        (here / "ids.parquet").write_bytes(old)
    assert process.exitcode == 0
    assert moment > 2
    assert seen == {old, new}
    assert not [path.name for path in here.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.slow
def test_two_at_once_wait_for_each_other_and_lose_nothing(command, here):
    for part in range(2):
        write(here / f"new{part}.parquet", vectors(50, seed=part), 500 + 50 * part)
    arguments = [
        ("extend", here / "tok", here / "ids.parquet", here / f"new{part}.parquet", "--out", here / "ids.parquet")
        for part in range(2)
    ]
    before = read(here / "ids.parquet")
    with filelock.FileLock(here / ".ids.parquet.lock"):
        started = [command(*each) for each in arguments]
        for _, errors in started:
            while not (errors.exists() and "another process is changing" in errors.read_text()):
                started[0][0].join(0.1)
        assert read(here / "ids.parquet") == before
    for process, errors in started:
        process.join()
        assert process.exitcode == 0, errors.read_text()
    after = read(here / "ids.parquet")
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == len(after) == ROWS + 100


@pytest.mark.slow
def test_drift_tells_kept_from_new_kinds_of_items(ghrq, here):
    write(here / "same.parquet", vectors(200, seed=5), 900)
    write(here / "moved.parquet", vectors(200, seed=5) + 3.0, 900)
    code, out, _ = ghrq("drift", "tok", "same.parquet", "--out", "drift.html")
    assert code == 0
    assert "verdict: no drift. Keep this tokenizer" in out
    assert "page: drift.html" in out
    assert "<svg" in (here / "drift.html").read_text()
    code, out, _ = ghrq("drift", "tok", "moved.parquet", "--ids", "ids.parquet")
    assert "verdict: the new items do not fit. Fit again: " in out
    code, out, _ = ghrq("drift", "tok", "moved.parquet", "--old", "moved.parquet")
    assert "the new items do not fit" not in out
    code, _, err = ghrq("drift", "other", "same.parquet", "--ids", "ids.parquet")
    assert (code, "holds IDs of the tokenizer" in err) == (2, True)


@pytest.mark.slow
def test_a_day_without_new_items(ghrq, here):
    pq.write_table(pq.read_table("new.parquet")[:0], "none.parquet")
    (here / "none.jsonl").write_text("")
    for name in ("none.parquet", "none.jsonl"):
        code, out, err = ghrq("extend", "tok", "ids.parquet", name, "--out", "ids.parquet")
        assert (code, err) == (0, f"note: {name} has no rows: nothing is new\n")
        assert (told(out)["new"], told(out)["ids"]) == ("0", "ids.parquet, nothing to change")
    assert ghrq("extend", "tok", "ids.parquet", "none.parquet", "--out", "ids2.parquet")[0] == 0
    assert (here / "ids2.parquet").read_bytes() == (here / "ids.parquet").read_bytes()


@pytest.mark.slow
def test_rows_that_are_skipped_are_told(ghrq, here):
    x = vectors(3, seed=2)
    x[1, 2] = np.nan
    write(here / "nan.parquet", x, 900)
    code, out, _ = ghrq("extend", "tok", "ids.parquet", "nan.parquet", "--on-bad", "skip", "--out", "ids.parquet")
    assert (code, told(out)["new"]) == (0, "2")
    assert told(out)["skipped"].startswith("1 row, the first is row 1 (from 0): ")


@pytest.mark.slow
def test_remap_and_export(ghrq, here):
    code, out, _ = ghrq("remap", "ids.parquet", "other/ids.parquet", "--out", "map.parquet")
    assert code == 0
    assert (told(out)["items in both"], told(out)["tokenizers"]) == (str(ROWS), "two different ones")
    assert pq.read_table("map.parquet").column_names == ["item_id", "old", "new"]
    code, out, _ = ghrq("export", "ids.parquet", "--to", "llm", "--out", "items.jsonl")
    assert (code, told(out)["sizes"]) == (0, "8 x 8 x 256")
    assert " of 256 " in told(ghrq("inspect", "tok", "ids.parquet", "--out", "r")[1])["tie-break"]
    for there, command in (
        ("map.parquet", ("remap", "ids.parquet", "other/ids.parquet", "--out", "map.parquet")),
        ("shop.duckdb", ("export", "ids.parquet", "--to", "duckdb", "--out", "shop.duckdb")),
        ("new.tokens.json", ("export", "ids.parquet", "--to", "llm", "--out", "new.jsonl")),
    ):
        (here / there).write_text("mine")
        code, _, err = ghrq(*command)
        assert (code, err.startswith(f"error: {there} is there already: ")) == (2, True)
        assert (here / there).read_text() == "mine"
        assert ghrq(*command, "--force")[0] == 0
    code, _, err = ghrq("export", "ids.parquet", "--to", "minionerec", "--out", "Shop.json")
    assert (code, "ends in .index.json, got Shop.json: give --out Shop.index.json" in err) == (2, True)


@pytest.mark.slow
def test_the_guide_runs_as_it_stands(ghrq, here):
    section = re.search(r"\n## Grow\n(.*?)\n## ", GUIDE.read_text("utf-8"), flags=re.DOTALL)[1]
    (here / "gone.txt").write_text("item-007\n")
    x = vectors(60, seed=8)
    write(here / "today.parquet", x, 700)
    (script,) = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    for line in script.splitlines():
        arguments = shlex.split(line, comments=True)
        assert arguments[0] == "ghrq"
        code, _, err = ghrq(*arguments[1:])
        assert code == 0, (line, err)
    example, *_ = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    before = {"Tokenizer": Tokenizer}  # imported further up in the guide
    exec(compile(example, str(GUIDE), "exec"), before | {"names": [f"late-{row}" for row in range(60)], "X": x})


def test_a_list_to_retire_is_read_by_the_column_of_the_catalogue(ghrq, tmp_path):
    write(tmp_path / "items.parquet", vectors(60), ids=list(range(1, 61)))
    run("fit", tmp_path / "items.parquet", *FIT, "--out", tmp_path / "tok")
    ids = ("extend", "tok/", "tok/ids.parquet", "--retire")
    (tmp_path / "two.csv").write_text("id,item_id\n1,30\n2,31\n")
    code, out, _ = ghrq(*ids, "two.csv", "--out", "less.parquet")
    assert (code, told(out)["retired now"]) == (0, "2")
    assert list(read(tmp_path / "less.parquet", retired=True)) == [30, 31]
    for name, text, message in [
        ("bare.csv", "30\n31\n", "bare.csv has one column, with the header '30': if that is an id, call the file .txt"),
        (
            "both.csv",
            "id,sku\n1,2\n",
            "both.csv has the columns id, sku, which may all be ids, and none is called 'item_i",
        ),
    ]:
        (tmp_path / name).write_text(text)
        code, _, err = ghrq(*ids, name, "--out", "no.parquet")
        assert (code, message in err, (tmp_path / "no.parquet").exists()) == (2, True, False), err
    (tmp_path / "marked.txt").write_bytes("\ufeff30\n".encode())
    assert ghrq(*ids, "marked.txt", "--out", "marked.parquet")[0] == 0
    (tmp_path / "odd.txt").write_text("30\n99\n")
    code, _, err = ghrq(*ids, "odd.txt", "--out", "no.parquet")
    assert code == 2
    assert "tok/ids.parquet: 1 of the 2 items to retire are not in the catalogue, the first is 99" in err
