"""``ghrq recommend``: one history, a table of users, and bad input."""

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from ghrq.cli import main
from ghrq.models.recommender import Recommender
from ghrq.models.recommender_network import RecommenderConfig

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


def failing(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert end.value.code == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    return error


def printed(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert end.value.code in (0, None)
    return capsys.readouterr().out


def test_one_history_prints_titles(model, capsys):
    lines = printed(capsys, "recommend", model, "--history", "k1, k2", "-k", 4).splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    wanted = Recommender.from_pretrained(model).recommend([["k1", "k2"]], k=4)[0]
    for line, item in zip(lines, wanted, strict=True):
        assert item.key in line
        assert item.title in line


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
    assert "only 29 items" in failing(capsys, "recommend", model, "--history", "k1", "-k", 30)
    assert "not a model and not a run" in failing(capsys, "recommend", tmp_path, "--history", "k1")


def test_a_killed_run_goes_on_where_it_was_and_writes_the_same_file(model, tmp_path, monkeypatch):
    from ghrq.models import recommender_files

    monkeypatch.setattr(recommender_files, "_PART", 16)
    histories = [[f"k{(7 * user + i) % N}" for i in range(user % 5)] for user in range(100)]
    table = pa.table({"user_id": list(range(100)), "history": histories})
    parquet.write_table(table, tmp_path / "users.parquet", row_group_size=7)
    recommender = Recommender.from_pretrained(model)

    def run(out, **settings):
        given = {"k": 3, "skip_unknown": True} | settings
        return recommender_files.recommend_table(recommender, tmp_path / "users.parquet", tmp_path / out, **given)

    whole = run("whole.parquet")
    assert whole == (80, 20, 0)
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

    # Parts of other settings are of no use.
    killed_at(4)
    with pytest.raises(KeyboardInterrupt):
        run("top.parquet", k=4)
    killed_at(0)
    run("top.parquet")
    assert len(calls) == 7
    assert (tmp_path / "top.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_nothing_but_parts_is_removed(model, capsys, tmp_path):
    parquet.write_table(pa.table({"user_id": [1], "history": [["k1"]]}), tmp_path / "users.parquet")
    (tmp_path / "top.parquet.parts").mkdir()
    (tmp_path / "top.parquet.parts" / "mine.txt").write_text("mine")
    given = ("recommend", model, "--all", tmp_path / "users.parquet", "--out", tmp_path / "top.parquet")
    assert "move it away" in failing(capsys, *given)
    assert (tmp_path / "top.parquet.parts" / "mine.txt").read_text() == "mine"
