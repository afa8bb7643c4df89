"""IDs in the forms of other programs, as those document them, and the table from old to new IDs."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
import torch

from ghrq.data.tables import TableLayout, manifest, open_codes, open_writer
from ghrq.ids import Vocabulary
from ghrq.ids.export import SUFFIXES, export, levels_of, tokens
from ghrq.ids.remap import remap, write_remapping
from ghrq.system.errors import UserError

NAMES = ["B1", 'a "quoted" ü', "B3", "gone"]
CODES = np.array([[12, 200, 3], [0, 1, 0], [12, 200, 4], [7, 7, 7]], np.int32)


def write(path, ids=NAMES, codes=CODES, retired=1, sizes=(16, 256, 8), fingerprint="abc"):
    about = manifest.describe(fingerprint, "append", sizes) if path.suffix == ".parquet" else None
    live = len(ids) - retired
    layout = TableLayout("asin", "codes", codes.shape[1], np.int32, live, about, bool(retired))
    with open_writer(path, layout) as writer:
        writer.write(pa.array(ids)[:live], codes[:live])
        if retired:
            writer.write(pa.array(ids)[live:], codes[live:], retired=True)
    return path


@pytest.fixture
def ids(tmp_path):
    return open_codes(write(tmp_path / "ids.parquet"))


def test_llm_texts_and_the_tokens_to_add(ids, tmp_path):
    out = tmp_path / "items.jsonl"
    facts = dict(export(ids, "llm", out))
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    texts = ["<a_12><b_200><c_3>", "<a_0><b_1><c_0>", "<a_12><b_200><c_4>"]
    assert rows == [{"asin": name, "tokens": text} for name, text in zip(NAMES, texts, strict=False)]
    listed = json.loads((tmp_path / "items.tokens.json").read_text())
    assert listed == tokens(levels_of(ids))
    assert (len(listed), listed[0], listed[16], listed[-1]) == (16 + 256 + 8, "<a_0>", "<b_0>", "<c_7>")
    assert facts["tokens to add"].startswith("280, listed in ")


def test_a_language_model_reads_each_added_token_as_one(ids, tmp_path):
    transformers, base = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    export(ids, "llm", tmp_path / "items.jsonl")
    words = base.Tokenizer(base.models.WordLevel({"bought": 0, "[UNK]": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = base.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    added = json.loads((tmp_path / "items.tokens.json").read_text())
    assert tokenizer.add_tokens(added) == len(added)
    found = tokenizer.convert_ids_to_tokens(tokenizer.encode("bought <a_12><b_200><c_3>"))
    assert found == ["bought", "<a_12>", "<b_200>", "<c_3>"]


def test_offsets_are_a_range_for_each_level(ids, tmp_path):
    out = tmp_path / "tokens.parquet"
    export(ids, "offsets", out)
    words = Vocabulary.of([16, 256, 8], tie_break=True)
    assert json.loads((tmp_path / "tokens.vocabulary.json").read_text()) == json.loads(json.dumps(words.to_dict()))
    table = pq.read_table(out)
    assert table.column_names == ["asin", "tokens"]
    assert table["asin"].to_pylist() == NAMES[:3]
    np.testing.assert_array_equal(np.array(table["tokens"].to_pylist()) - words.offsets, CODES[:3])
    sets = [set(range(start, start + size)) for start, size in zip(words.offsets, words.sizes, strict=True)]
    assert len(set.union(*sets)) == sum(words.sizes)


def test_cornac_has_codes_by_raw_item_id(ids, tmp_path):
    """Its guide: a JSON object from raw item ids to codes, as integers; rows go into the order of global_iid_map."""
    export(ids, "cornac", tmp_path / "ids.json")
    found = json.loads((tmp_path / "ids.json").read_text("utf-8"))
    assert found == dict(zip(NAMES[:3], CODES[:3].tolist(), strict=True))
    global_iid_map = {"B3": 0, "B1": 2, NAMES[1]: 1}
    aligned = np.empty((3, 3), dtype="int64")
    for item, row in global_iid_map.items():
        aligned[row] = found[item]
    np.testing.assert_array_equal(aligned, CODES[[2, 1, 0]])


def test_grid_has_a_tensor_with_a_column_for_each_item(ids, tmp_path):
    """Its reader takes ``id_map.t()[item]`` of a tensor (levels, items), items being whole numbers from 0."""
    facts = dict(export(ids, "grid", tmp_path / "sids.pt"))
    tensor = torch.load(tmp_path / "sids.pt", weights_only=True)
    assert (tensor.dtype, tensor.shape) == (torch.int64, (3, 3))
    assert torch.equal(tensor.t(), torch.from_numpy(CODES[:3]).long())
    assert facts["for"] == "semantic_id_path, with num_hierarchies=3"
    numbers = pc.read_csv(tmp_path / "sids.items.csv")
    assert numbers.to_pydict() == {"number": [0, 1, 2], "asin": NAMES[:3]}
    (tmp_path / "sids.items.csv").unlink()
    numbered = open_codes(write(tmp_path / "n.parquet", [2, 0, 1], CODES[:3], retired=0))
    export(numbered, "grid", tmp_path / "sids.pt")
    assert torch.equal(torch.load(tmp_path / "sids.pt", weights_only=True).t()[2], torch.tensor([12, 200, 3]))
    assert not (tmp_path / "sids.items.csv").exists()


def test_minionerec_has_tokens_by_item(ids, tmp_path):
    """Its reader: a JSON object from items to lists of tokens, of which it joins the first three."""
    facts = export(ids, "minionerec", tmp_path / "Shop.index.json")
    found = json.loads((tmp_path / "Shop.index.json").read_text("utf-8"))
    assert found["B1"] == ["<a_12>", "<b_200>", "<c_3>"]
    assert list(found) == NAMES[:3]
    assert [name for name, _ in facts] == ["for"]
    longer = np.column_stack((CODES, [0, 0, 1, 0])).astype(np.int32)
    longer[2, 2] = 3
    table = open_codes(write(tmp_path / "l.parquet", codes=longer, sizes=(16, 256, 8, 4)))
    note = dict(export(table, "minionerec", tmp_path / "Shop.index.json"))["note"]
    assert note.startswith("MiniOneRec joins the first 3 codes only, and 1 of 3 items have those of an earlier one")
    short = open_codes(write(tmp_path / "s.parquet", codes=CODES[:, :2], sizes=(16, 256)))
    with pytest.raises(UserError, match="has 2 codes an item, and MiniOneRec skips items of less than 3: fit with"):
        export(short, "minionerec", tmp_path / "Shop.index.json")


@pytest.mark.parametrize("to", ["csv", "jsonl"])
def test_plain_forms_read_back_and_say_that_they_have_no_manifest(to, ids, tmp_path):
    facts = dict(export(ids, to, tmp_path / f"ids2.{to}"))
    assert facts["note"].startswith("this format has no room for a manifest")
    back = open_codes(tmp_path / f"ids2.{to}")
    (batch,) = back.batches(10)
    assert batch.ids.to_pylist() == NAMES[:3]
    np.testing.assert_array_equal(batch.vectors, CODES[:3])


def test_duckdb_has_a_table_for_sql(ids, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    out = tmp_path / "ids.duckdb"
    for _ in range(2):  # an older file is replaced
        export(ids, "duckdb", out)
    with duckdb.connect(str(out), read_only=True) as connection:
        rows = connection.execute("SELECT * FROM ids").fetchall()
        counted = connection.execute("SELECT code_1, count(*) FROM ids GROUP BY 1 ORDER BY 1").fetchall()
    assert rows == [(name, *codes) for name, codes in zip(NAMES, CODES[:3].tolist(), strict=False)]
    assert counted == [(0, 1), (12, 2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.duckdb", "ids.parquet"]


def test_without_a_manifest_the_codes_that_occur_decide(tmp_path):
    table = open_codes(write(tmp_path / "ids.csv", retired=0))
    facts = dict(export(table, "llm", tmp_path / "items.jsonl"))
    assert facts["sizes"].startswith("13 x 201 x 8: those of the codes that occur, as ids.csv has no manifest")
    np.save(tmp_path / "ids.npy", CODES)
    for to in SUFFIXES:
        with pytest.raises(UserError, match=r"ids.npy has no ids of items"):
            export(open_codes(tmp_path / "ids.npy"), to, tmp_path / "x")


def test_an_edited_file_leaves_nothing_behind(tmp_path):
    path = write(tmp_path / "ids.parquet")
    about = pq.read_metadata(path).metadata[b"ghrq"]
    table = pq.read_table(path)
    names = table["asin"].take([1, 0, 2, 3])
    pq.write_table(table.set_column(0, "asin", names).replace_schema_metadata({b"ghrq": about}), path)
    for to, suffix in SUFFIXES.items():
        with pytest.raises(UserError, match="its rows have another checksum"):
            export(open_codes(path), to, tmp_path / f"out{suffix}")
        assert not (tmp_path / f"out{suffix}").exists(), to


def test_remap_joins_on_ids(tmp_path):
    old = open_codes(write(tmp_path / "old.parquet"))
    changed = np.array([[1, 1, 1, 0], [2, 2, 2, 0], [3, 3, 3, 0]], np.int32)
    new_names = ["new", "B3", "B1"]
    new = open_codes(write(tmp_path / "new.parquet", new_names, changed, 0, (4, 4, 4, 4), "def"))
    found = remap(old, new)
    assert (found.only_old, found.only_new, found.same) == (1, 1, 0)
    write_remapping(tmp_path / "map.parquet", found, "asin")
    assert pq.read_table(tmp_path / "map.parquet").to_pylist() == [
        {"asin": "B3", "old": [12, 200, 4], "new": [2, 2, 2, 0]},
        {"asin": "B1", "old": [12, 200, 3], "new": [3, 3, 3, 0]},
    ]
    assert remap(old, old).same == 3
    other = open_codes(write(tmp_path / "o.parquet", ["x", "y", "z"], CODES[:3], 0))
    with pytest.raises(UserError, match="have no item in common: check that both have the same kind of ids"):
        remap(old, other)


@pytest.mark.parametrize(
    ("to", "taken", "column"),
    [("llm", "tokens", "id"), ("grid", "number", "id"), ("duckdb", "CODE_1", "id"), ("llm", "code_1", "code_1")],
)
def test_a_name_that_the_form_uses_itself_hides_no_id(to, taken, column, tmp_path):
    layout = TableLayout(taken, "codes", 3, np.int32, 4, manifest.describe("abc", "append", (16, 256, 8)))
    with open_writer(tmp_path / "ids.parquet", layout) as writer:
        writer.write(pa.array(NAMES), CODES)
    out = tmp_path / f"items{SUFFIXES[to]}"
    export(open_codes(tmp_path / "ids.parquet"), to, out)
    if to == "llm":
        found = [json.loads(line)[column] for line in out.read_text("utf-8").splitlines()]
    elif to == "grid":
        found = pc.read_csv(tmp_path / "items.items.csv")[column].to_pylist()
    else:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(out), read_only=True) as connection:
            found = [row[0] for row in connection.execute(f"SELECT {column} FROM ids").fetchall()]
            assert connection.execute("SELECT max(code_1) FROM ids").fetchone() == (12,)
    assert found == NAMES


def test_equal_ids_of_a_file_without_a_manifest_are_refused(tmp_path):
    (tmp_path / "twice.csv").write_text("sku,code_1\na,1\na,2\n")
    (tmp_path / "once.csv").write_text("sku,code_1\na,1\nb,2\n")
    twice, once = (open_codes(tmp_path / name) for name in ("twice.csv", "once.csv"))
    with pytest.raises(UserError, match=r"rows 0 and 1 .* have the same sku 'a'"):
        export(twice, "cornac", tmp_path / "out.json")
    with pytest.raises(UserError, match=r"rows 0 and 1 .* have the same sku 'a'"):
        remap(once, twice)


def test_remap_has_the_old_id_of_retired_items(tmp_path):
    new = open_codes(write(tmp_path / "new.parquet", retired=0))
    found = remap(open_codes(write(tmp_path / "old.parquet")), new)
    assert found.ids.to_pylist() == NAMES
    assert found.old.tolist() == found.new.tolist() == CODES.tolist()
    assert (found.only_old, found.only_new, found.retired) == (0, 0, 1)
