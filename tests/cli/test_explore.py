"""ghrq explore as a user meets it: a page, or one clear line for a mistake."""

import http.client
import re
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq import Tokenizer, cli
from ghrq.cli import explore
from ghrq.data.tables import open_table
from ghrq.report import explorer_page
from ghrq.system import serving
from ghrq.tokenizer import bulk

ROWS, DIM = 300, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """items.parquet, tok/ and other/ with the IDs of both, and titled.parquet: IDs with a column of titles."""
    folder = tmp_path_factory.mktemp("explore")
    random = np.random.default_rng(0)
    x = (random.standard_normal((9, DIM))[np.arange(ROWS) % 9] + 0.3 * random.standard_normal((ROWS, DIM))).astype("f4")
    table = {
        "item_id": [f"item-{row}" for row in range(ROWS)],
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), DIM),
        "title": [f"title {row}" if row else None for row in range(ROWS)],
        "category": [f"kind {row % 3}" for row in range(ROWS)],
        "price": [0.5 * row for row in range(ROWS)],
        "details": [{"size": row} for row in range(ROWS)],
    }
    pq.write_table(pa.table(table), folder / "items.parquet")
    # The same items in another order.
    pq.write_table(pa.table(table).take(pa.array(np.arange(ROWS)[::-1])), folder / "reversed.parquet")
    for name, kind, file in (("tok", "ghrq", "items"), ("other", "euclidean", "reversed")):
        items = open_table(folder / f"{file}.parquet", "embedding", "item_id")
        model = Tokenizer(kind=kind, num_stages=2, codebook_size=6).fit(x)
        codes = bulk.resolve(bulk.encode(model, items), "append", model, items, widen=True)
        model.save(folder / name)
        bulk.write_codes(folder / name / "ids.parquet", items, codes, model, "append")
    ids = pq.read_table(folder / "tok" / "ids.parquet")
    titled = ids.append_column("title", [table["title"]]).append_column("category", [table["category"]])
    pq.write_table(titled, folder / "titled.parquet")
    return folder


@pytest.fixture
def run(ghrq, folder):
    """``run("--label", "title")``: explore with the usual tokenizer and IDs; the page as text, or None."""

    def explore(*options, tokenizer=folder / "tok", ids=folder / "tok" / "ids.parquet", out="page.html"):
        code, text, err = ghrq("explore", tokenizer, ids, *options, *(("--out", out) if out else ()))
        return code, text, err

    return explore


def test_the_ids_of_the_fit_are_the_default(ghrq, folder, tmp_path):
    assert ghrq("explore", folder / "tok", "--out", tmp_path / "page.html")[0] == 0
    assert "Codes of tok" in (tmp_path / "page.html").read_text()
    (tmp_path / "bare").mkdir()
    code, _, err = ghrq("explore", tmp_path / "bare", "--out", tmp_path / "other.html")
    assert code == 2
    assert "has no ids.parquet: name the file of IDs" in err


@pytest.mark.slow
def test_the_nouns_that_ship_are_shown_by_name(ghrq, tmp_path):
    code, out, err = ghrq("explore", "wordnet-nouns", "--colour", "kind", "--out", tmp_path / "nouns.html")
    assert code == 0, err
    assert "82,115" in out
    assert (tmp_path / "nouns.html").stat().st_size < 15e6


def test_help_has_an_example(ghrq):
    code, out, _ = ghrq("explore", "--help")
    assert code == 0
    assert "\n    ghrq explore tok/" in out


def test_a_page_of_ids_alone(run, tmp_path):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert re.search(r"^items +300$", out, re.MULTILINE)
    assert re.search(r"^page +page\.html$", out, re.MULTILINE)
    html = (tmp_path / "page.html").read_text("utf-8")
    assert "<title>Codes of ids</title>" in html
    assert "300 items, 2 codes of 6 (ghrq)" in html


def test_labels_and_colours_come_from_the_items_or_the_ids(run, folder, tmp_path):
    assert run("--items", folder / "items.parquet", "--label", "title", "--colour", "category", out="a.html")[0] == 0
    assert run("--label", "title", "--color", "category", ids=folder / "titled.parquet", out="b.html")[0] == 0
    one, two = ((tmp_path / name).read_text("utf-8") for name in ("a.html", "b.html"))
    data = re.compile(r'id="data">([^<]*)<')
    assert "Codes of items" in one
    assert "Codes of titled" in two
    # Only the title of the page differs.
    assert len(data.search(one)[1]) == pytest.approx(len(data.search(two)[1]), abs=40)


def test_another_tokenizer_beside_it(run, folder, tmp_path):
    code, _, err = run("--compare", folder / "other", folder / "other" / "ids.parquet")
    assert (code, err) == (0, "")
    html = (tmp_path / "page.html").read_text("utf-8")
    assert 'aria-label="Disk of tok"' in html
    assert 'aria-label="Disk of other"' in html


def test_a_large_table_is_sampled_and_it_says_so(run, monkeypatch, tmp_path):
    monkeypatch.setattr(explorer_page, "MOST_ITEMS", 50)
    code, out, _ = run()
    assert code == 0
    assert "300, 50 of them on the page, a random sample" in out
    assert "50 of 300 items are on this page" in (tmp_path / "page.html").read_text("utf-8")


def test_serve_on_this_machine(ghrq, folder, monkeypatch):
    made = []

    class Stopped(serving.ThreadingHTTPServer):
        """Answers one request, and is then stopped by Ctrl-C."""

        def serve_forever(self, poll_interval=0.5):
            ask = threading.Thread(target=lambda: made.append(get(self.server_address[1])))
            ask.start()
            self.handle_request()
            ask.join()
            raise KeyboardInterrupt  # not a signal: a job in the background ignores SIGINT

    def get(port):
        connection = http.client.HTTPConnection("localhost", port, timeout=20)
        connection.request("GET", "/")
        return connection.getresponse().read().decode()

    monkeypatch.setattr(serving, "ThreadingHTTPServer", Stopped)
    code, out, err = ghrq("explore", folder / "tok", folder / "tok" / "ids.parquet", "--serve")
    assert (code, err) == (0, "")
    assert re.search(r"serving on http://localhost:\d+/ \(Ctrl-C ends it\)\nstopped\n$", out)
    assert "Codes of ids" in made[0]


def refused(result, *parts):
    code, _, err = result
    assert code == 2
    assert len(err.splitlines()) == 1
    for part in parts:
        assert part in err


def test_mistakes_are_one_line(run, folder, tmp_path):
    items = ("--items", folder / "items.parquet")
    refused(run(out=None), "--out page.html", "--serve")
    refused(run("--label", "titel"), "has no column 'titel'", "--label takes one of item_id, codes", "--items")
    refused(run(*items, "--label", "Title"), "items.parquet has no column 'Title': did you mean 'title'?")
    refused(run(*items, "--colour", "colour"), "--colour takes one of")
    refused(run(*items, "--label", "embedding"), "column 'embedding' holds vectors")
    refused(run(*items, "--label", "details"), "column 'details' holds struct", "cannot be a label")
    refused(run("--id", "item_id"), "give it with --items")
    refused(run(out="page.txt"), "ends in .html")
    refused(run(out=folder / "missing" / "page.html"), "there is no folder")
    (tmp_path / "mine.html").write_text("my own page")
    refused(run(out=tmp_path / "mine.html"), "mine.html is there already, and is no page of ghrq")
    refused(run(tokenizer=folder / "none"), "there is no tokenizer")
    refused(run(*items, "--id", "title"), "column 'title' has no id")
    refused(run(*items, "--id", "category"), "items.parquet has no item of", "with --id")
    assert not (tmp_path / "page.html").exists()


def test_ids_that_do_not_fit_the_tokenizer(run, folder, tmp_path):
    other = folder / "other" / "ids.parquet"
    refused(run(ids=other), "holds IDs of the tokenizer", "encode the items again")
    refused(run("--compare", folder / "tok", other), "holds IDs of the tokenizer")
    np.save(tmp_path / "long.npy", np.zeros((5, 9), dtype=np.int64))
    refused(run(ids=tmp_path / "long.npy"), "has 9 codes a row", "use the tokenizer that made them")
    np.save(tmp_path / "large.npy", np.array([[0, 0], [0, 6]]))
    refused(run(ids=tmp_path / "large.npy"), "row 1 (counted from 0) has codes [0, 6]", "has 0 to 5")
    np.save(tmp_path / "few.npy", np.zeros((5, 2), dtype=np.int64))
    refused(run("--compare", folder / "tok", tmp_path / "few.npy"), "300 rows", "5", "encode the same table")
    ids = pq.read_table(folder / "tok" / "ids.parquet")
    renamed = ["new", *ids["item_id"].to_pylist()[1:]]
    pq.write_table(ids.set_column(0, "item_id", [renamed]), tmp_path / "renamed.parquet")
    refused(
        run("--compare", folder / "tok", tmp_path / "renamed.parquet"), "lacks 1 of the 300 items", "'item-0': encode"
    )


def test_numbers_are_labels_too(run, folder, tmp_path):
    assert run("--items", folder / "items.parquet", "--label", "price", "--colour", "price")[0] == 0
    assert (tmp_path / "page.html").exists()


def test_the_command_is_listed(ghrq):
    assert "explore" in ghrq("--help")[1]
    assert cli.explore.explore is explore.explore
