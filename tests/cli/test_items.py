"""fit, encode, decode and inspect as a user meets them: results, and one clear line for a mistake."""

import json
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq import Tokenizer, cli

ROWS, DIM, STAGES, CODES = 400, 6, 3, 8
IDS = [f"item-{i:03d}" for i in range(ROWS)]
FIT = ("--stages", STAGES, "--codes", CODES)


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    groups = random.standard_normal((10, DIM))
    return (groups[np.arange(ROWS) % 10] + 0.2 * random.standard_normal((ROWS, DIM))).astype(np.float32)


def table_of(vectors, ids=IDS):
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    labels = [f"top {i % 2} > sub {i % 10}" for i in range(len(vectors))]
    return pa.table({"item_id": ids, "embedding": flat, "category": labels, "price": [1.0] * len(vectors)})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, vectors):
    """A folder with items.parquet and tok/."""
    folder = tmp_path_factory.mktemp("fitted")
    pq.write_table(table_of(vectors), folder / "items.parquet")
    arguments = ["fit", folder / "items.parquet", "--column", "embedding", "--id", "item_id", "--out", folder / "tok"]
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in (*arguments, *FIT)])
    assert not end.value.code
    return folder


def lines(out):
    return {line[:22].strip(): line[22:].strip() for line in out.splitlines()}


@pytest.mark.parametrize("command", ["fit", "encode", "decode", "inspect"])
def test_help_has_an_example(command, ghrq):
    code, out, _ = ghrq(command, "--help")
    assert code == 0
    assert f"\n    ghrq {command}" in out


@pytest.mark.slow
def test_fit_then_encode_then_decode_then_inspect(ghrq, fitted, tmp_path, vectors):
    code, out, err = ghrq(
        "fit", fitted / "items.parquet", "--column", "embedding", "--id", "item_id", "--out", "tok", *FIT
    )
    assert (code, err) == (0, "")
    told = lines(out)
    assert told["rows"] == "400"
    assert told["next"] == f"ghrq inspect tok tok/ids.parquet --items {fitted}/items.parquet --out report/"
    assert {path.name for path in (tmp_path / "tok").iterdir()} >= {"config.json", "model.safetensors", "ids.parquet"}
    for name in ("model.safetensors", "ids.parquet"):  # the same seed
        assert (tmp_path / "tok" / name).read_bytes() == (fitted / "tok" / name).read_bytes()

    tokenizer = Tokenizer.load(tmp_path / "tok")
    ids = pq.read_table("tok/ids.parquet")
    assert ids.schema.names == ["item_id", "codes"]
    assert ids.schema.field("codes").type == pa.list_(pa.int32(), STAGES + 1)
    assert ids["item_id"].to_pylist() == IDS
    codes = np.array(ids["codes"].to_pylist())
    np.testing.assert_array_equal(codes[:, :STAGES], tokenizer.encode(vectors))
    assert told["distinct tuples"] == str(len(np.unique(codes[:, :STAGES], axis=0)))
    error = np.square(vectors - tokenizer.decode(codes[:, :STAGES])).mean() / vectors.var(axis=0).mean()
    assert told["reconstruction error"] == f"{error:.3f} of the variance"

    code, out, err = ghrq("encode", "tok", fitted / "items.parquet", "--out", "ids.parquet")  # columns of the fit
    assert (code, err) == (0, "")
    assert pq.read_table("ids.parquet").equals(ids)
    assert ghrq("encode", "tok", fitted / "items.parquet", "--out", "ids.npy", "--collisions", "none")[0] == 0
    np.testing.assert_array_equal(np.load("ids.npy"), codes[:, :STAGES])
    assert ghrq("encode", "tok", fitted / "items.parquet", "--out", "one.csv", "--collisions", "reassign")[0] == 0
    header, *rows = (tmp_path / "one.csv").read_text().splitlines()
    assert header.replace('"', "") == "item_id,code_1,code_2,code_3"
    assert len({row.split(",", 1)[1] for row in rows}) == ROWS

    assert ghrq("decode", "tok", "ids.parquet", "--out", "vectors.npy")[0] == 0
    np.testing.assert_allclose(np.load("vectors.npy"), tokenizer.decode(codes[:, :STAGES]), rtol=1e-6)
    assert ghrq("decode", "tok", "ids.parquet", "--out", "coarse.parquet", "--depth", 1)[0] == 0
    coarse = np.array(pq.read_table("coarse.parquet")["embedding"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(coarse, tokenizer.decode(codes[:, :1]), rtol=1e-6)

    code, out, err = ghrq("inspect", "tok", "ids.parquet", "--out", "plain")
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "plain" / "quality.json").read_text())["reconstruction"] is None
    items = ("--items", fitted / "items.parquet", "--labels", "category")
    code, out, err = ghrq("inspect", "tok", "ids.parquet", *items, "--out", "report")
    assert (code, err) == (0, "")
    found = json.loads((tmp_path / "report" / "quality.json").read_text())
    assert found["items"] == ROWS
    assert found["reconstruction"]["relative"][-1] == pytest.approx(error, rel=0.02)
    assert len(found["labels"]) == 2  # top, and sub below it
    assert out.splitlines()[-1] == "page: report/quality.html"
    assert "<html" in (tmp_path / "report" / "quality.html").read_text()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("kind", ["npy", "csv", "jsonl"])
def test_other_formats_give_the_same_ids(kind, ghrq, fitted, tmp_path, vectors):
    path = tmp_path / f"items.{kind}"
    if kind == "npy":
        np.save(path, vectors)
    elif kind == "csv":
        rows = [",".join([name, *map(repr, row)]) for name, row in zip(IDS, vectors.tolist(), strict=True)]
        path.write_text("\n".join([",".join(["item_id", *(f"e{i}" for i in range(DIM))]), *rows]))
    else:
        rows = [{"item_id": name, "embedding": row} for name, row in zip(IDS, vectors.tolist(), strict=True)]
        path.write_text("\n".join(map(json.dumps, rows)))
    column = ["--column", "e?"] if kind == "csv" else []
    code, _, err = ghrq("encode", fitted / "tok", path, *column, "--out", "ids.parquet")
    assert (code, err) == (0, "")
    ids = pq.read_table("ids.parquet")
    assert ids["codes"].equals(pq.read_table(fitted / "tok" / "ids.parquet")["codes"])
    assert ids.column(0).to_pylist() == (list(range(ROWS)) if kind == "npy" else IDS)


def test_rows_are_numbered_on_request(ghrq, fitted):
    assert ghrq("encode", fitted / "tok", fitted / "items.parquet", "--id", "", "--out", "ids.parquet")[0] == 0
    assert pq.read_table("ids.parquet")["row"].to_pylist() == list(range(ROWS))


def test_reassign_says_how_many_it_moved(ghrq, fitted):
    code, out, _ = ghrq("encode", fitted / "tok", fitted / "items.parquet", "--out", "n.npy", "--collisions", "none")
    assert code == 0
    assert "moved" not in out
    code, out, _ = ghrq(
        "encode", fitted / "tok", fitted / "items.parquet", "--out", "r.npy", "--collisions", "reassign"
    )
    moved = (np.load("n.npy") != np.load("r.npy")).any(axis=1).sum()
    assert moved > 0
    assert f"moved to free tuples  {moved}\n" in out


def test_fit_stores_the_size_of_the_tie_break_token_and_encode_keeps_to_it(ghrq, vectors, tmp_path):
    copies, ids = np.repeat(vectors, 4, axis=0), range(4 * ROWS)
    copies[:300] = copies[0]  # more than the token has by default
    pq.write_table(table_of(copies, ids), "few.parquet")
    copies[:1800] = copies[0]
    pq.write_table(table_of(copies, ids), "many.parquet")
    names = ("--column", "embedding", "--id", "item_id")
    assert ghrq("fit", "few.parquet", *names, *FIT, "--out", "tok")[0] == 0
    ids = np.array(pq.read_table("tok/ids.parquet")["codes"].to_pylist())
    size = Tokenizer.load("tok").vocabulary().tie_break
    assert size == 1024  # a power of two, at least twice as many as the fullest tuple has items: room to grow
    assert 2 * (ids[:, -1].max() + 1) <= size < 4 * (ids[:, -1].max() + 1)
    code, _, err = ghrq("encode", "tok", "many.parquet", "--out", "ids.parquet")
    assert code == 2
    assert f"but the tie-break token has {size} codes: remove" in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "ids.parquet").exists()
    assert ghrq("encode", "tok", "many.parquet", "--out", "ids.parquet", "--collisions", "none")[0] == 0


def test_inspect_says_where_the_ids_come_from_what_to_change_and_shows_items(ghrq, fitted, tmp_path, vectors):
    table = table_of(vectors)
    titles = [f"<b>nail</b> & {i}" if i else None for i in range(ROWS)]
    labels = ["all > sub" if i else "other" for i in range(ROWS)]
    table = table.append_column("name", pa.array(titles)).set_column(2, "category", pa.array(labels))
    pq.write_table(table, "items.parquet")
    options = ("--items", "items.parquet", "--title", "name", "--labels", "category")
    code, out, err = ghrq("inspect", fitted / "tok", fitted / "tok" / "ids.parquet", *options, "--out", "report")
    assert (code, err) == (0, "")
    assert "AMI, level 1" not in out  # 399 of 400 items have the same label
    assert "Left out is level 1" in out
    verdict, page = out.splitlines()[-2:]
    assert verdict.startswith("verdict: too many collisions. Fit again with one stage more, --stages 4")
    assert page == "page: report/quality.html"
    found = json.loads((tmp_path / "report" / "quality.json").read_text())
    html = (tmp_path / "report" / "quality.html").read_text()
    tokenizer = Tokenizer.load(fitted / "tok")
    for fact in found["provenance"].values():
        assert fact.replace("&", "&amp;") in html
    assert found["provenance"]["fingerprint"].startswith(tokenizer.fingerprint[:12])
    assert found["provenance"]["kind"] == "ghrq, engine kmeans, seed 0"
    assert found["provenance"]["items"].startswith("items.parquet, 400 rows, written 2")
    assert found["verdict"]["verdict"] == "too many collisions"
    assert "&lt;b&gt;nail&lt;/b&gt; &amp; " in html
    assert "<b>nail" not in html

    assert ghrq("inspect", fitted / "tok", fitted / "tok" / "ids.parquet", "--out", "plain")[0] == 0
    assert "item-0" in (tmp_path / "plain" / "quality.html").read_text()  # ids, where there are no titles
    for options, message in (
        (("--title", "name"), "--title, --column and --id need the table"),
        (("--items", "items.parquet", "--title", "nam"), "--title"),
    ):
        code, _, err = ghrq("inspect", fitted / "tok", fitted / "tok" / "ids.parquet", *options, "--out", "no")
        assert (code, message in err, len(err.splitlines())) == (2, True, 1)


def test_one_absurd_row_is_pointed_at(ghrq, vectors):
    absurd = vectors.copy()
    absurd[17, 2] = 1e30
    np.save("absurd.npy", absurd)
    code, _, err = ghrq("fit", "absurd.npy", "--out", "tok", *FIT)
    assert code == 0
    assert "absurd.npy, row 17 (counted from 0) has the number 1e+30" in err


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--on", "--engine"])  # --engine is its name in 0.1.0
def test_a_cluster_that_does_not_answer_is_no_long_wait(option, ghrq, fitted, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    arguments = ("encode", fitted / "tok", fitted / "items.parquet", "--out", "ids.parquet", option, "ray")
    code, _, err = ghrq(*arguments)
    assert code == 2
    assert err.count("\n") == 1
    assert "cannot use Ray at 127.0.0.1:1 ([Errno 111] Connection refused): check RAY_ADDRESS" in err


def test_an_array_can_be_fitted_on(ghrq, tmp_path, vectors):
    np.save(tmp_path / "vectors.npy", vectors)
    assert ghrq("fit", "vectors.npy", "--out", "tok/", *FIT, "--kind", "euclidean", "--collisions", "none")[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "tok").iterdir()}
    again = ("fit", "vectors.npy", "--out", "tok", *FIT, "--kind", "naive")
    code, out, err = ghrq(*again)
    assert (code, out) == (2, "")
    assert err == "error: tok holds config.json already: name a new folder, or replace it all with --force\n"
    assert {path.name: path.read_bytes() for path in (tmp_path / "tok").iterdir()} == before
    assert ghrq(*again, "--force")[0] == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert json.loads((tmp_path / "tok" / "config.json").read_text())["params"]["kind"] == "naive"
    assert ghrq("encode", "tok", "vectors.npy", "--out", "ids.parquet")[0] == 0
    assert pq.read_table("ids.parquet").equals(pq.read_table("tok/ids.parquet"))


def test_ids_of_another_tokenizer_are_refused(ghrq, fitted):
    columns = ("--column", "embedding", "--id", "item_id")
    assert ghrq("fit", fitted / "items.parquet", *columns, "--out", "tok2", *FIT, "--seed", 1)[0] == 0
    for command in ("decode", "inspect"):
        code, out, err = ghrq(command, "tok2", fitted / "tok" / "ids.parquet", "--out", "v.npy")
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert "holds IDs of the tokenizer" in err
    assert ghrq("decode", fitted / "tok", fitted / "tok" / "ids.parquet", "--out", "v.npy")[0] == 0
    assert ghrq("encode", fitted / "tok", fitted / "items.parquet", "--out", "ids.csv")[0] == 0
    code, out, _ = ghrq("decode", "tok2", "ids.csv", "--out", "v.npy", "--force")
    assert code == 0
    assert "not checked" in out


@pytest.mark.parametrize("command", ["fit", "encode"])
def test_bad_rows_can_be_skipped(command, ghrq, fitted, tmp_path, vectors):
    rows, bad = vectors.tolist(), [0, 17, 399]
    rows[0], rows[17] = None, [float("nan")] * DIM
    pq.write_table(
        pa.table({"item_id": [*IDS[:-1], None], "embedding": pa.array(rows, pa.list_(pa.float32()))}), "t.parquet"
    )
    columns = ("--column", "embedding", "--id", "item_id")
    if command == "fit":
        arguments, ids = ("fit", "t.parquet", *columns, "--out", "tok", *FIT), tmp_path / "tok" / "ids.parquet"
    else:
        arguments = ("encode", fitted / "tok", "t.parquet", *columns, "--out", "ids.parquet")
        ids = tmp_path / "ids.parquet"
    code, out, err = ghrq(*arguments)
    assert code == 2
    assert "row 0 (counted from 0)" in err
    assert "--on-bad skip" in err
    code, out, err = ghrq(*arguments, "--on-bad", "skip")
    assert (code, err) == (0, "")
    assert f"3 rows, listed in {ids.relative_to(tmp_path)}.skipped.csv\n" in out
    kept = [row for row in range(ROWS) if row not in bad]
    assert pq.read_table(ids)["item_id"].to_pylist() == [IDS[row] for row in kept]
    listed = ids.with_name("ids.parquet.skipped.csv").read_text().splitlines()
    assert listed[0] == "row,item_id,reason"
    assert [line.split(",")[:2] for line in listed[1:]] == [["0", "item-000"], ["17", "item-017"], ["399", ""]]
    folder = tmp_path / "tok" if command == "fit" else fitted / "tok"
    codes = np.array(pq.read_table(ids)["codes"].to_pylist())[:, :STAGES]
    np.testing.assert_array_equal(codes, Tokenizer.load(folder).encode(vectors[kept]))
    arguments = ("inspect", folder, ids, "--items", "t.parquet", *columns, "--out", "report")
    assert "--on-bad skip" in ghrq(*arguments)[2]
    assert ghrq(*arguments, "--on-bad", "skip")[0] == 0


@pytest.mark.parametrize("command", ["fit", "encode"])
def test_a_column_of_ids_that_is_not_used_is_mentioned(command, ghrq, fitted, tmp_path):
    assert ghrq("fit", fitted / "items.parquet", "--column", "embedding", "--id", "", "--out", "tok", *FIT)[0] == 0
    fit = ("fit", fitted / "items.parquet", "--column", "embedding", "--out", "tok2", *FIT)
    encode = ("encode", "tok", fitted / "items.parquet", "--out", "ids.parquet", "--force")
    arguments = fit if command == "fit" else encode
    code, _, err = ghrq(*arguments)
    assert (code, err) == (0, "note: the ids are row numbers, column 'item_id' is not used: --id item_id uses it\n")
    shutil.rmtree("tok2", ignore_errors=True)
    for given in ("", "item_id"):
        code, _, err = ghrq(*arguments, "--id", given)
        assert (code, err) == (0, "")
        shutil.rmtree("tok2", ignore_errors=True)


def test_outputs_go_through_links_and_the_links_stay(ghrq, fitted, tmp_path, vectors):
    np.save(tmp_path / "vectors.npy", vectors)
    (tmp_path / "far").mkdir()
    (tmp_path / "tok").symlink_to("far/tok")  # leads nowhere yet
    fit = ("fit", "vectors.npy", "--out", "tok", *FIT)
    assert ghrq(*fit)[0] == 0
    assert ghrq(*fit)[0] == 2
    assert ghrq(*fit, "--seed", 1, "--force")[0] == 0
    assert json.loads((tmp_path / "far" / "tok" / "config.json").read_text())["params"]["seed"] == 1
    for there in (False, True):
        (tmp_path / "ids.parquet").unlink(missing_ok=True)
        (tmp_path / "ids.parquet").symlink_to("far/real.parquet")
        assert (tmp_path / "ids.parquet").exists() == there
        assert ghrq("encode", "tok", "vectors.npy", "--out", "ids.parquet", "--force")[0] == 0
        assert pq.read_table("far/real.parquet").equals(pq.read_table("tok/ids.parquet"))
    assert (tmp_path / "tok").is_symlink()
    assert (tmp_path / "ids.parquet").is_symlink()

    (tmp_path / "file").symlink_to("vectors.npy")
    (tmp_path / "nowhere").symlink_to("gone/tok")
    (tmp_path / "loop").symlink_to("loop")
    for name, message in (
        ("file", "file would overwrite the input vectors.npy"),
        ("ids.parquet", "ids.parquet is a file: give --out the name of a folder"),
        ("nowhere", "there is no folder"),
        ("loop", "loop is a symbolic link that leads to itself"),
    ):
        code, _, err = ghrq("fit", "vectors.npy", "--out", name, *FIT)
        assert (code, message in err) == (2, True), err
        assert (tmp_path / name).is_symlink()
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["real.parquet", "tok"]


def test_outputs_are_replaced_with_force_only(ghrq, fitted, tmp_path):
    tok, items = fitted / "tok", fitted / "items.parquet"
    told = "is there already: name another file, or replace it with --force\n"
    for there, command in (
        ("ids.csv", ("encode", tok, items, "--out", "ids.csv")),
        ("ids.npy.skipped.csv", ("encode", tok, items, "--out", "ids.npy", "--on-bad", "skip")),
        ("v.npy", ("decode", tok, tok / "ids.parquet", "--out", "v.npy")),
    ):
        (tmp_path / there).write_text("mine")
        assert ghrq(*command) == (2, "", f"error: {there} {told}")
        assert (tmp_path / there).read_text() == "mine"
        assert ghrq(*command, "--force")[0] == 0
        assert (tmp_path / there).read_bytes() != b"mine"


def test_a_killed_replacement_is_repaired_by_the_next_command(ghrq, fitted, tmp_path, vectors):
    """What a process leaves on a system that cannot exchange two folders."""
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    for command in (
        ("encode", "tok", fitted / "items.parquet", "--out", "ids.parquet"),
        ("fit", fitted / "items.parquet", "--column", "embedding", "--out", "tok", *FIT),
    ):
        shutil.rmtree(tmp_path / "tok", ignore_errors=True)
        shutil.copytree(fitted / "tok", tmp_path / f".tok.{dead}.old")
        code, _, err = ghrq(*command)
        assert code == (0 if command[0] == "encode" else 2), err  # and fit does not replace it
        assert (tmp_path / "tok" / "ids.parquet").read_bytes() == (fitted / "tok" / "ids.parquet").read_bytes()
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_printed_command_can_be_pasted(ghrq, fitted, tmp_path):
    shutil.copy(fitted / "items.parquet", tmp_path / "my items.parquet")
    code, out, err = ghrq("fit", "my items.parquet", "--column", "embedding", "--id", "", "--out", "it's $HOME", *FIT)
    assert (code, err) == (0, "")
    words = shlex.split(lines(out)["next"])
    assert words[:3] == ["ghrq", "inspect", "it's $HOME"]
    assert words[5] == "my items.parquet"


# --- mistakes ------------------------------------------------------------------------------------------------


def unequal(vectors):
    rows = vectors.tolist()
    rows[321] = rows[321][:4]
    return pa.table({"item_id": IDS, "embedding": rows})


def with_nan(vectors):
    bad = vectors.copy()
    bad[399, 2] = np.nan
    return table_of(bad)


TABLES = {
    "unequal": (unequal, r"row 321 (counted from 0): column 'embedding' has 4 numbers, expected 6"),
    "nan": (with_nan, "row 399 (counted from 0): column 'embedding' holds NaN"),
    "empty": (lambda vectors: table_of(vectors)[:0], "is empty: expected a table with at least one row"),
    "column": (lambda vectors: table_of(vectors).rename_columns(["item_id", "embeddings", "c", "p"]), "'embeddings'?"),
    "no-id": (lambda vectors: table_of(vectors).rename_columns(["itemid", "embedding", "c", "p"]), "mean 'itemid'?"),
    "twice": (lambda vectors: table_of(vectors, [*IDS[:-1], IDS[5]]), "rows 5 and 399 (counted from 0) have the same"),
}


@pytest.mark.parametrize("command", ["fit", "encode"])
@pytest.mark.parametrize("kind", [*TABLES, "few", "truncated", "gone"])
def test_bad_tables(command, kind, ghrq, fitted, tmp_path, vectors):
    path = tmp_path / "bad.parquet"
    if kind in TABLES:
        make, message = TABLES[kind]
        pq.write_table(make(vectors), path)
    elif kind == "few":
        message = "bad.parquet has 7 rows, fewer than the 8 codes of a stage"
        pq.write_table(table_of(vectors)[:7], path)
    elif kind == "truncated":
        message = "bad.parquet cannot be read as parquet"
        path.write_bytes((fitted / "items.parquet").read_bytes()[:5000])
    else:
        message = "there is no file bad.parquet: check the name"
    columns = ("--column", "embedding", "--id", "item_id")
    before = sorted(tmp_path.iterdir())
    if command == "fit":
        code, out, err = ghrq("fit", "bad.parquet", *columns, "--out", "tok", *FIT)
    else:
        code, out, err = ghrq("encode", fitted / "tok", "bad.parquet", *columns, "--out", "ids.parquet")
        if kind == "few":  # is no mistake here
            assert code == 0
            return
    assert (code, out) == (2, "")
    assert message in err
    assert "bad.parquet" in err
    assert len(err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "ITEMS", "--out", "gone/tok"], "cannot write gone/tok: there is no folder gone: create it first"),
        (["fit", "ITEMS", "--out", "note.txt"], "note.txt is a file: give --out the name of a folder"),
        (["fit", "ITEMS", "--out", "full"], "full holds other files, such as mine.txt: name a new folder"),
        (["fit", "ITEMS", "--out", "."], "would overwrite the input"),
        (["fit", "ITEMS", "--out", "/proc/tok"], "cannot write /proc/tok"),
        (["fit", "ITEMS", "--out", "n" * 300], "(File name too long): name another"),
        (["fit", "ITEMS", "--out", "/dev/null"], "/dev/null is neither a file nor a folder"),
        (["fit", "ITEMS", "--out", "tok", "--codes", "0"], "Invalid value for '--codes'"),
        (["fit", "ITEMS", "--out", "tok", "--codes", "8", "--stages", "1000000000", "--id", ""], "TB of memory"),
        (["fit", "ITEMS", "--out", "tok", "--codes", "1000000000", "--id", ""], "more rows, or --codes 400 or less"),
        (["fit", "ITEMS", "--out", "tok", "--epochs", "3"], "--epochs is of the autoencoder"),
        (["fit", "ITEMS", "--out", "tok", "--learning-rate", "1"], "--learning-rate is of the autoencoder"),
        (["fit", "ITEMS", "--out", "tok", "--kind", "hyper"], "'hyper' is not one of"),
        (["fit", "ITEMS", "--out", "tok", "--seed", "-1"], "Invalid value for '--seed'"),
        (["fit", "ITEMS", "--out", "tok", "--radius", "1.5"], "Invalid value for '--radius'"),
        (["encode", "TOK", "ITEMS", "--out", "gone/ids.parquet"], "there is no folder gone: create it first"),
        (["encode", "TOK", "ITEMS", "--out", "ids.xlsx"], "ends in .parquet, .csv, .jsonl, .npy"),
        (["encode", "TOK", "ITEMS", "--out", "ITEMS"], "items.parquet would overwrite the input"),
        (["encode", "TOK", "ITEMS", "--out", "full/../items.parquet"], "would overwrite the input"),
        (["encode", "TOK", "ITEMS", "--out", "/proc/ids.parquet"], "cannot write /proc/ids.parquet"),
        (["encode", "gone", "ITEMS", "--out", "ids.parquet"], "there is no tokenizer gone: 'ghrq fit' makes one"),
        (["encode", "full", "ITEMS", "--out", "ids.parquet"], "full"),
        (["encode", "ITEMS", "TOK", "--out", "ids.parquet"], "is a file, not a tokenizer: name the folder of the"),
        (["encode", "TOK", "ITEMS", "--column", "price", "--out", "i.npy"], "'price' has vectors of 1 numbers"),
        (["decode", "TOK", "ITEMS", "--out", "v.npy"], "no column 'codes' but item_id, embedding, category, price"),
        (["decode", "TOK", "TOK/ids.parquet", "--out", "v.npy", "--depth", "4"], "--depth 4: expected 1 to 3"),
        (["decode", "TOK", "TOK/ids.parquet", "--out", "v.txt"], "ends in .parquet, .csv, .jsonl, .npy"),
        (["inspect", "TOK", "TOK/ids.parquet", "--out", "gone/r"], "there is no folder gone"),
        (["inspect", "TOK", "TOK/ids.parquet", "--out", "note.txt"], "note.txt is a file: give --out the name"),
        (["encode", "TOK", "few.npy", "--out", "i.npy"], "few.npy: the array has vectors of 3 numbers"),
        (["inspect", "TOK", "TOK/ids.parquet", "--labels", "x", "--out", "r"], "give it with --items"),
        (
            ["inspect", "TOK", "TOK/ids.parquet", "--items", "ITEMS", "--labels", "categry", "--out", "r"],
            "no column 'categry': did you mean 'category'?",
        ),
        (["inspect", "TOK", "few.npy", "--items", "ITEMS", "--out", "r"], "few.npy has 2 rows, items.parquet 400"),
        (["inspect", "TOK", "high.npy", "--out", "r"], "high.npy: "),
    ],
)
def test_mistakes_are_one_line_and_code_2(arguments, message, ghrq, fitted, tmp_path, vectors):
    pq.write_table(table_of(vectors), tmp_path / "items.parquet")
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    np.save(tmp_path / "few.npy", np.zeros((2, STAGES), np.int32))
    np.save(tmp_path / "high.npy", np.full((2, STAGES), CODES, np.int32))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    if arguments[0] == "fit":
        arguments = [*arguments, "--column", "embedding"]
    places = {"ITEMS": "items.parquet", "TOK": fitted / "tok", "TOK/ids.parquet": fitted / "tok" / "ids.parquet"}
    code, out, err = ghrq(*(places.get(argument, argument) for argument in arguments))
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    if "Invalid value" not in err:  # typer shows the usage before it
        assert len(err.splitlines()) == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["tok", "tok/ids.parquet"])
def test_ids_are_no_embeddings(name, ghrq, fitted, tmp_path):
    code, out, err = ghrq("fit", fitted / name, "--out", "again", *FIT)
    assert (code, out) == (2, "")
    assert f"{name} holds the IDs of 'ghrq encode', not embeddings: name the table of embeddings" in err
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_flipped_byte_of_the_model_is_found(name, ghrq, fitted, tmp_path):
    shutil.copytree(fitted / "tok", tmp_path / "tok")
    whole = (tmp_path / "tok" / name).read_bytes()
    for place in (0,) if name == "config.json" else (0, 9, len(whole) // 2, len(whole) - 3):
        (tmp_path / "tok" / name).write_bytes(whole[:place] + bytes([whole[place] ^ 0x04]) + whole[place + 1 :])
        code, out, err = ghrq("encode", "tok", fitted / "items.parquet", "--out", "ids.parquet")
        assert (code, out) == (2, "")
        assert "tok" in err
        assert len(err.splitlines()) == 1
        assert not (tmp_path / "ids.parquet").exists()
    (tmp_path / "tok" / name).unlink()
    code, _, err = ghrq("encode", "tok", fitted / "items.parquet", "--out", "ids.parquet")
    assert code == 2
    assert name in err


def test_a_damaged_table_file_names_the_remedy(ghrq, fitted, tmp_path):
    shutil.copytree(fitted / "tok", tmp_path / "tok")
    (tmp_path / "tok" / "table.json").write_text("{")
    code, _, err = ghrq("encode", "tok", fitted / "items.parquet", "--out", "ids.parquet")
    assert code == 2
    assert "table.json is damaged" in err


@pytest.mark.slow
def test_the_commands_do_not_import_torch_for_their_help():
    script = """
        import sys
        from ghrq.cli import main
        for command in ("fit", "encode", "decode", "inspect"):
            try:
                main([command, "--help"])
            except SystemExit as end:
                assert end.code == 0
        heavy = {"torch", "pyarrow", "ray", "numpy", "sklearn"} & set(sys.modules)
        assert not heavy, heavy
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True)


def test_inspect_with_words_counts_and_another_tokenizer(ghrq, fitted, tmp_path, vectors):
    names = [f"{'red nail' if row % 2 else 'dry hair'} thing" for row in range(len(vectors))]
    table = pq.read_table(fitted / "items.parquet")
    sold = pa.array([float(row) for row in range(len(vectors))])
    pq.write_table(table.append_column("name", pa.array(names)).append_column("sold", sold), "named.parquet")
    other = ("fit", "named.parquet", "--kind", "euclidean", "--stages", "2", "--codes", "8", "--out", "flat")
    assert ghrq(*other, "--column", "embedding", "--id", "item_id")[0] == 0
    options = ("--items", "named.parquet", "--title", "name", "--counts", "sold")
    both = ("--compare", "flat", "flat/ids.parquet")
    tok = fitted / "tok"
    code, _, err = ghrq("inspect", tok, tok / "ids.parquet", *options, *both, "--out", "report")
    assert (code, err) == (0, "")
    html, found = Path("report/quality.html").read_text(), json.loads(Path("report/quality.json").read_text())
    for title in ("Beside the other tokenizer", "What the codes mean", "Head and tail"):
        assert f"<h2>{title}</h2>" in html
    assert ">flat<" in html
    assert found["compared"]["stages"] == 2
    assert sum(part["counted"] for part in found["popularity"]) == pytest.approx(1.0)
    assert {word for each in found["words"] for word in each["words"]} <= {"red", "nail", "dry", "hair", "thing"}
    code, _, err = ghrq("inspect", tok, tok / "ids.parquet", *options[:4], "--counts", "name", "--out", "no")
    assert (code, err.count("\n")) == (2, 1)
    assert "named.parquet: column 'name' has 'dry hair thing': give --counts a column of numbers" in err
    pq.write_table(pq.read_table("flat/ids.parquet").slice(3), "few.parquet")
    code, _, err = ghrq("inspect", tok, tok / "ids.parquet", "--compare", "flat", "few.parquet", "--out", "no")
    assert (code, err.count("\n")) == (2, 1)
