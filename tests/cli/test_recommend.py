"""``ghrq recommend``: one history, a table of users, and bad input."""

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from ghrq.cli import main
from ghrq.models.recommender import Recommender
from ghrq.models.recommender_network import RecommenderConfig
from ghrq.system.errors import UserError

N = 30


@pytest.fixture
def model(tmp_path):
    config = RecommenderConfig(
        keys=tuple(f"k{i}" for i in range(N)), titles=tuple(f"Title {i}" for i in range(N)), sizes=(5, 6),
        width=16, heads=2, feedforward=16, hidden=16, inputs=("codes", "item"),
    )  # fmt: skip
    codes = torch.cartesian_prod(torch.arange(5), torch.arange(6))
    Recommender(config, codes).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


def failing(capsys, *arguments):
    code, _, error = run(capsys, *arguments)
    assert code == 2
    error = error.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    return error


def printed(capsys, *arguments):
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    return out


def test_one_history_prints_titles(model, capsys):
    lines = printed(capsys, "recommend", model, "--history", "k1, k2", "-k", 4).splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    wanted = Recommender.from_pretrained(model).recommend([["k1", "k2"]], k=4)[0]
    for line, item in zip(lines, wanted, strict=True):
        assert item.key in line
        assert item.title in line


def test_keys_with_commas_and_quotes_can_be_asked_for(capsys, tmp_path):
    keys = ("Tea, green", '24" screen', '"in quotes"', "k3", "k4")
    config = RecommenderConfig(keys=keys, sizes=(5,), width=16, heads=2, feedforward=16, hidden=16, inputs=("codes",))
    Recommender(config, torch.arange(5).unsqueeze(1)).save_pretrained(tmp_path / "model")

    def left(history):
        lines = printed(capsys, "recommend", tmp_path / "model", "--history", history).splitlines()
        return {key for key in keys if any(key in line for line in lines)}

    assert left('"Tea, green", k3') == set(keys) - {"Tea, green", "k3"}
    assert left('k3,24" screen,"""in quotes"""') == {"Tea, green", "k4"}
    for wrong in ('"Tea, green', '"Tea" green', "k3\nk4"):
        assert "is no line of CSV" in failing(capsys, "recommend", tmp_path / "model", "--history", wrong)


def test_only_allowed_items_are_printed(model, capsys, tmp_path):
    (tmp_path / "stock.txt").write_text("k5\nk7\n\n")
    out = printed(capsys, "recommend", model, "--history", "k1", "-k", 2, "--allowed", tmp_path / "stock.txt")
    assert {line.split()[2] for line in out.splitlines()} == {"k5", "k7"}


def test_a_table_of_users_gives_what_single_requests_give(model, capsys, tmp_path):
    histories = [[f"k{(7 * user + i) % N}" for i in range(1 + user % 5)] for user in range(40)]
    table = pa.table({"user_id": list(range(40)), "history": histories})
    parquet.write_table(table, tmp_path / "users.parquet", row_group_size=7)
    out = printed(
        capsys, "recommend", model, "--all", tmp_path / "users.parquet", "--out", tmp_path / "top.parquet", "-k", 3
    )
    assert "40" in out
    found = parquet.read_table(tmp_path / "top.parquet").to_pylist()
    wanted = Recommender.from_pretrained(model).recommend(histories, k=3)
    for row, user, items in zip(found, range(40), wanted, strict=True):
        assert row["user_id"] == user
        assert row["items"] == [item.key for item in items]
        assert row["titles"] == [item.title for item in items]
        assert row["scores"] == pytest.approx([item.score for item in items], abs=1e-5)


def test_users_without_known_items_are_skipped_on_request(model, capsys, tmp_path):
    table = pa.table({"who": ["a", "b", "c"], "had": [["k1", "nope"], ["nope"], []]})
    parquet.write_table(table, tmp_path / "users.parquet")
    columns = ("--user", "who", "--items", "had", "-k", 2)
    given = ("recommend", model, "--all", tmp_path / "users.parquet", "--out", tmp_path / "top.parquet", *columns)
    assert "row 0 (from 0), user 'a': the item 'nope' is not in" in failing(capsys, *given)
    assert not (tmp_path / "top.parquet").exists()
    assert "2" in printed(capsys, *given, "--skip-unknown")
    assert parquet.read_table(tmp_path / "top.parquet")["who"].to_pylist() == ["a"]


def test_mistakes_are_one_line(model, capsys, tmp_path):
    parquet.write_table(pa.table({"user_id": [1], "history": ["k1,k2"]}), tmp_path / "users.parquet")
    all_users = ("--all", tmp_path / "users.parquet")
    assert "one of the two" in failing(capsys, "recommend", model)
    assert "--all needs --out" in failing(capsys, "recommend", model, *all_users)
    assert "expected a list of keys" in failing(capsys, "recommend", model, *all_users, "--out", tmp_path / "t.parquet")
    assert "would overwrite" in failing(capsys, "recommend", model, *all_users, "--out", tmp_path / "users.parquet")
    assert "'nope'" in failing(capsys, "recommend", model, "--history", "nope")
    assert "ghrq runs lists" in failing(capsys, "recommend", tmp_path, "--history", "k1")
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "config.json").write_text('{"format": "ghrq-tokenizer"}')
    (tmp_path / "tok" / "model.safetensors").write_text("")
    told = "its format is 'ghrq-tokenizer', not 'ghrq-recommender': name the folder of one"
    assert told in failing(capsys, "recommend", tmp_path / "tok", "--history", "k1")
    assert "there is no folder" in failing(capsys, "recommend", tmp_path / "nothing", "--history", "k1")
    assert "there are no items of --history" in failing(capsys, "recommend", model, "--history", " , ")
    none = failing(capsys, "recommend", model, "--history", "nope", "--skip-unknown")
    assert "knows none of the items of --history, 'nope' is the first; its keys are like 'k0'" in none


def test_items_of_a_history_that_are_skipped_are_named(model, capsys):
    with pytest.raises(SystemExit):
        main(["recommend", str(model), "--history", "k1,nope", "-k", "2", "--skip-unknown"])
    told = capsys.readouterr()
    assert "skipped 1 of the items of --history, which the model does not know: 'nope'" in told.err
    assert len(told.out.splitlines()) == 2


def test_files_of_allowed_items(model, capsys, tmp_path):
    stock = tmp_path / "stock.txt"

    def answer(content, ask=printed, *more):
        stock.write_bytes(content)
        return ask(capsys, "recommend", model, "--history", "k1", "-k", 2, "--allowed", stock, *more)

    assert {line.split()[2] for line in answer(b"\xef\xbb\xbfk5\r\nk7\r\n").splitlines()} == {"k5", "k7"}
    assert f"lacks 1 of the keys in {stock}: 'nope'" in answer(b"k5\nnope\nk7", failing)
    assert len(answer(b"k5\nnope\nk7", printed, "--skip-unknown").splitlines()) == 2
    assert f"there are no keys in {stock}" in answer(b"\n", failing)
    assert "write a text file with one key a line" in answer("Straße".encode("latin-1"), failing)


def users_table(folder, **columns):
    parquet.write_table(pa.table(columns), folder / "users.parquet")
    return ("--all", folder / "users.parquet", "--out", folder / "top.parquet")


def test_allowed_items_of_all_users_and_users_who_had_nearly_all(model, capsys, tmp_path):
    given = users_table(tmp_path, user_id=["a", "b", "c"], history=[["k1"], ["k5", "k7"], ["k5", "k7", "k9"]])
    (tmp_path / "stock.txt").write_text("k5\nk7\nk9\n")
    stock = ("--allowed", tmp_path / "stock.txt")
    code, out, err = run(capsys, "recommend", model, *given, *stock)
    assert (code, err.splitlines()[0]) == (0, "note: 3 items instead of 10: no more may be recommended")
    assert "items each     3\nshorter lists  2 users, for whom no more are left" in out
    found = parquet.read_table(tmp_path / "top.parquet").to_pylist()
    assert [set(row["items"]) for row in found] == [{"k5", "k7", "k9"}, {"k9"}, set()]
    assert [len(row["scores"]) for row in found] == [len(row["titles"]) for row in found] == [3, 1, 0]


def test_one_history_gets_a_shorter_list_too(model, capsys, tmp_path):
    (tmp_path / "stock.txt").write_text("k5\nk7\nk5\n")
    stock = ("--allowed", tmp_path / "stock.txt")
    code, out, err = run(capsys, "recommend", model, "--history", "k5", *stock)
    assert (code, err) == (0, "note: 1 item instead of 10: no more may be recommended\n")
    assert [line.split()[2] for line in out.splitlines()] == ["k7"]
    code, out, _ = run(capsys, "recommend", model, "--history", "k1", "-k", 10**12)
    assert (code, len(out.splitlines())) == (0, N - 1)
    assert "give --seen, or allow more" in failing(capsys, "recommend", model, "--history", "k5,k7", *stock)


def test_a_table_without_a_known_item_is_refused(model, capsys, tmp_path):
    given = users_table(tmp_path, user_id=["a", "b"], history=[["nope"], []])
    told = failing(capsys, "recommend", model, *given, "--skip-unknown")
    assert "users.parquet: the model knows no item of column 'history'; its keys are like 'k0'" in told
    assert [path.name for path in tmp_path.glob("top*")] == []


def test_lists_of_a_fixed_size_are_lists(model, capsys, tmp_path):
    fixed = pa.array([["k1", "k2"], ["k3", "k4"]], pa.list_(pa.string(), 2))
    given = users_table(tmp_path, user_id=[1, 2], history=fixed)
    printed(capsys, "recommend", model, *given, "-k", 2)
    assert parquet.read_table(tmp_path / "top.parquet").num_rows == 2


def test_a_file_is_replaced_with_force_only(model, capsys, tmp_path):
    given = users_table(tmp_path, user_id=[1], history=[["k1"]])
    (tmp_path / "top.parquet").write_text("mine")
    assert "top.parquet is there already: name another" in failing(capsys, "recommend", model, *given)
    assert (tmp_path / "top.parquet").read_text() == "mine"
    printed(capsys, "recommend", model, *given, "--force")
    assert parquet.read_table(tmp_path / "top.parquet").num_rows == 1


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"user_id": [1], "history": [[{"sku": "k1"}]]}, (), "column 'history' has lists of struct"),
        ({"user_id": [1], "history": [[1.5]]}, (), "has lists of double, expected texts or whole numbers: convert"),
        ({"items": [1], "history": [["k1"]]}, ("--user", "items"), "rename the column of the users"),
        ({"user_id": [1, None], "history": [["k1"], ["k2"]]}, (), "row 1 (from 0): the user is empty: fix or remove"),
    ],
)
def test_tables_of_users_that_cannot_be_used_are_refused(model, capsys, tmp_path, columns, options, message):
    given = users_table(tmp_path, **columns)
    assert message in failing(capsys, "recommend", model, *given, *options, "-k", 2)
    assert not (tmp_path / "top.parquet.parts").exists()


def test_whole_numbers_in_json_lines_are_keys(capsys, tmp_path):
    keys = ("1", "2", "123456789012345678", "4")
    config = RecommenderConfig(keys=keys, sizes=(4,), width=16, heads=2, feedforward=16, hidden=16, inputs=("codes",))
    Recommender(config, torch.arange(4).unsqueeze(1)).save_pretrained(tmp_path / "model")
    (tmp_path / "users.jsonl").write_text(
        '{"user_id": 1, "history": [123456789012345678]}\n{"user_id": 2, "history": [2]}\n'
    )
    out = ("--out", tmp_path / "top.parquet", "-k", 3)
    printed(capsys, "recommend", tmp_path / "model", "--all", tmp_path / "users.jsonl", *out)
    found = parquet.read_table(tmp_path / "top.parquet")["items"].to_pylist()
    assert [set(keys) - set(items) for items in found] == [{"123456789012345678"}, {"2"}]


def test_a_killed_run_goes_on_where_it_was_and_writes_the_same_file(model, tmp_path, monkeypatch):
    from ghrq.models import recommender_files

    monkeypatch.setattr(recommender_files, "_PART", 16)
    histories = [[f"k{(7 * user + i) % N}" for i in range(user % 5)] for user in range(100)]
    table = pa.table({"user_id": list(range(100)), "history": histories})
    parquet.write_table(table, tmp_path / "users.parquet", row_group_size=7)
    recommender = Recommender.from_pretrained(model)

    def run(out, **settings):
        given = {"k": 3, "skip_unknown": True} | settings
        return recommender_files.recommend_table(recommender, f"{tmp_path}/users.parquet", f"{tmp_path}/{out}", **given)

    whole = run("whole.parquet")
    assert whole == (80, 20, 0, 0)
    assert parquet.read_table(tmp_path / "whole.parquet")["user_id"].to_pylist() == [u for u in range(100) if u % 5]

    calls, rank = [], Recommender.rank

    def killed_at(call):
        def counted(self, *arguments, **options):
            calls.append(len(arguments[0]))
            if len(calls) == call:
                raise KeyboardInterrupt
            return rank(self, *arguments, **options)

        calls.clear()
        monkeypatch.setattr(Recommender, "rank", counted)

    killed_at(4)
    with pytest.raises(KeyboardInterrupt):
        run("top.parquet")
    assert not (tmp_path / "top.parquet").exists()
    assert len(list((tmp_path / "top.parquet.parts").glob("part-*"))) == 3
    killed_at(0)
    assert run("top.parquet") == whole
    assert len(calls) == 4  # of 7 parts
    assert (tmp_path / "top.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "top.parquet.parts").exists()

    # Parts of other settings are of no use, and are not removed unasked.
    for other in ({"k": 4}, {"allowed": torch.arange(N) < 9}):
        killed_at(4)
        with pytest.raises(KeyboardInterrupt):
            run("top.parquet", **other)
        killed_at(0)
        with pytest.raises(UserError, match=r"top.parquet.parts has 3 finished parts .* by another command.*--force"):
            run("top.parquet")
        assert len(list((tmp_path / "top.parquet.parts").glob("part-*"))) == 3
        assert not calls
        run("top.parquet", replace=True)
        assert len(calls) == 7
    assert (tmp_path / "top.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_nothing_but_parts_is_removed(model, capsys, tmp_path):
    parquet.write_table(pa.table({"user_id": [1], "history": [["k1"]]}), tmp_path / "users.parquet")
    (tmp_path / "top.parquet.parts").mkdir()
    (tmp_path / "top.parquet.parts" / "mine.txt").write_text("mine")
    given = ("recommend", model, "--all", tmp_path / "users.parquet", "--out", tmp_path / "top.parquet")
    assert "move it away" in failing(capsys, *given)
    assert (tmp_path / "top.parquet.parts" / "mine.txt").read_text() == "mine"
