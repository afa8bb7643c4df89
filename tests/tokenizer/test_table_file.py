"""table.json: what was written is read, a mutated one is an error of one line, and old ones still load."""

import json
import random

import pytest
from tokenizer_tables import clustered

from ghrq import Tokenizer
from ghrq.system.errors import UserError
from ghrq.tokenizer import table_file
from ghrq.tokenizer.table_file import Columns


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(num_stages=1, codebook_size=4).fit(clustered(50))


@pytest.mark.parametrize("columns", [Columns(), Columns("embedding"), Columns("e_*", 'the "id"\n\u00e9')])
def test_what_is_written_is_read(columns, tokenizer, tmp_path):
    table_file.write(tmp_path / "table.json", columns, tokenizer)
    assert table_file.read(tmp_path / "table.json", tokenizer) == columns
    assert table_file.read(tmp_path / "none.json", tokenizer) == Columns()


@pytest.mark.parametrize("old", [{}, {"column": "embedding", "id": None}, {"column": "e*", "id": "sku"}])
def test_files_without_a_checksum_are_read(old, tokenizer, tmp_path):
    (tmp_path / "table.json").write_text(json.dumps(old))
    assert table_file.read(tmp_path / "table.json", tokenizer) == Columns(old.get("column"), old.get("id"))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("[]", "damaged"),
        ("{", "damaged, it is not valid JSON"),
        ('{"column": 5}', "column and id are no names"),
        ('{"column": ["a"], "id": null}', "column and id are no names"),
        ('{"column": "a", "id": {}}', "column and id are no names"),
        ('{"columm": "a"}', "unknown keys"),
        ('{"column": "a", "tokenizer": "x"}', "another checksum"),
        ('{"column": "a", "sha256": "x"}', "another checksum"),
    ],
)
def test_what_is_wrong_is_said(content, match, tokenizer, tmp_path):
    (tmp_path / "table.json").write_text(content)
    with pytest.raises(UserError, match=f"table.json .*{match}.*: remove it, and give --column and --id$"):
        table_file.read(tmp_path / "table.json", tokenizer)


def test_no_mutation_is_believed(tokenizer, tmp_path):
    path = tmp_path / "table.json"
    table_file.write(path, Columns("embedding", "item_id"), tokenizer)
    whole, chance, complaints = path.read_bytes(), random.Random(5), []
    for _ in range(300):
        place, kind = chance.randrange(len(whole)), chance.randrange(3)
        new = bytes([chance.randrange(256)]) if kind else b""
        path.write_bytes(whole[:place] + new + whole[place + (kind != 2) :])
        try:
            found = table_file.read(path, tokenizer)
        except UserError as error:
            complaints.append(str(error))
        else:
            assert found == Columns("embedding", "item_id")  # white space
    assert len(complaints) > 200
    assert not any("\n" in complaint for complaint in complaints)


def test_the_file_of_another_tokenizer_is_refused(tokenizer, tmp_path):
    other = Tokenizer(num_stages=1, codebook_size=4, seed=1).fit(clustered(50))
    table_file.write(tmp_path / "table.json", Columns("embedding"), other)
    with pytest.raises(UserError, match=r"table.json is of another tokenizer: remove it"):
        table_file.read(tmp_path / "table.json", tokenizer)
