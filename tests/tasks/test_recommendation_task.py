"""The recommendation task from recipe to report, on a small shop, with every source of IDs."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_recommendation import ITEMS, SMALL, T5, USERS, small, write_shop

from ghrq.data import ragged
from ghrq.data.interactions import Interactions, leave_two_out, sequences
from ghrq.metrics.next_item import ranks, recall_ndcg
from ghrq.models import Recommender
from ghrq.models.followers import Followers
from ghrq.models.recommender_network import RecommenderConfig
from ghrq.report.study import console_tables, write_report
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from ghrq.tasks.recommendation import Recommendation, evaluation
from ghrq.tasks.recommendation.evaluation import RANKS, tune_memory
from ghrq.tasks.recommendation.item_ids import ids_of, load, tokenizer_of
from ghrq.tasks.recommendation.losses import RecommenderLosses
from ghrq.tasks.recommendation.recipe import RecommendationData
from ghrq.tasks.recommendation.task import _sequences
from ghrq.training.best import KeepBest
from ghrq.training.recipe import load_recipe
from ghrq.training.run import Run
from ghrq.training.study import Outcome
from ghrq.training.train import evaluate, train

SASREC = ("ids.source=none", 'recommender.inputs=["item"]', 'recommender.outputs=["items"]')


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    return write_shop(tmp_path_factory.mktemp("shop") / "data")


@pytest.fixture(scope="session")
def runs(shop, tmp_path_factory):
    """A run of every source of IDs, by its label."""
    folder = tmp_path_factory.mktemp("recommendation")
    recipes = {
        "ghrq": small(shop),
        "euclidean": small(shop, "quantizer.kind=euclidean"),
        "random": small(shop, "ids.source=random"),
        "LETTER": small(shop, "ids.source=published", f"ids.file={shop / 'codes.csv'}"),
        "SASRec": small(shop, *SASREC),
    }
    for label, recipe in recipes.items():
        train(recipe, folder / label)
    return folder, list(recipes)


def outcomes(folder, labels):
    return [
        Outcome({"recipe": "demo", "kind": label, "seed": 0}, folder / label, read(folder / label)) for label in labels
    ]


def read(run):
    return json.loads((run / "results.json").read_text())


@pytest.mark.slow
def test_a_run_leaves_scores_of_every_way_and_a_model_that_gives_them(runs, shop):
    folder, _ = runs
    results = read(folder / "ghrq")
    assert set(results["test"]) == {"codes", "items", "reranked", "hybrid", "memory"}
    assert set(read(folder / "SASRec")["test"]) == {"items", "memory"}
    data, split = load(small(shop).data)
    model = Recommender.from_pretrained(folder / "ghrq" / "models" / "recommender")
    assert model.config.keys == tuple(data.items)
    by_memory = (model.rank(split.before_test.last(9), 10).items == split.test.unsqueeze(1)).any(1).double().mean()
    assert results["recall@10"] == pytest.approx(float(by_memory))
    assert torch.equal(model.memory.items, Followers.counted(split.train).items)
    found = model.rank(split.before_test.last(9), 50, by="codes").items
    hit = (found[:, :10] == split.test.unsqueeze(1)).any(1).double().mean()
    assert results["test"]["codes"]["unseen"]["recall@10"] == pytest.approx(float(hit))
    # A tenth of the items are of the user's group: to learn the groups is to find most targets among 10.
    assert float(hit) > 0.6 > results["baselines"]["popularity"]["unseen"]["recall@10"]
    places = load_file(folder / "ghrq" / RANKS)
    assert places["codes.unseen"].shape == (USERS,)
    assert int((places["codes.unseen"] < 10).sum()) == round(float(hit) * USERS)
    assert results["ids"]["quantizer"]["telescoping_error"] < 1e-6
    assert len(results["examples"]) == 5
    assert "Item" in results["examples"][0]["next"]


@pytest.mark.slow
def test_the_kept_weights_are_those_of_the_best_validation(runs):
    folder, _ = runs
    lines = [json.loads(line) for line in (folder / "ghrq" / "metrics.jsonl").read_text().splitlines()]
    scores = {line["epoch"]: line["validation/ndcg@10"] for line in lines if "validation/ndcg@10" in line}
    assert list(scores) == [2, 4]
    (checkpoint,) = (folder / "ghrq" / "checkpoints" / "recommender").glob("step-*/model.safetensors")
    weights = load_file(checkpoint)
    assert float(weights["score"]) == pytest.approx(max(scores.values()))
    saved = load_file(folder / "ghrq" / "models" / "recommender" / "model.safetensors")
    assert torch.equal(saved["encoder.positions"], weights["best.encoder.positions"])


@pytest.mark.slow
def test_an_evaluation_alone_gives_the_same_results(runs):
    from ghrq.training.run import Run

    folder, _ = runs
    before = read(folder / "euclidean")
    after = evaluate(Run.open(folder / "euclidean"))
    assert after["test"] == before["test"]


@pytest.mark.slow
def test_the_report_has_every_table_and_five_users(runs, tmp_path):
    folder, labels = runs
    text = console_tables(Recommendation, outcomes(folder, labels))
    for title in ("Generating codes (table 3)", "SASRec", "Differences to GHRQ", "nearest texts", "IDs (tables 3"):
        assert title in text
    html = write_report(Recommendation, outcomes(folder, labels), tmp_path).read_text()
    assert "Five users" in html
    # Hits by popularity of the target, for each way to rank, with the slices that the results have.
    assert html.count("Found among 10, by ") >= 3
    users = [each["users"] for each in read(folder / "ghrq")["slices"]["codes"]]
    assert all(f"({count})" in html for count in users)
    assert read(folder / "ghrq")["examples"][0]["recommended"][0] in html
    # The paper's figure stands beside ours.
    assert "0.0604" in html
    assert "the paper</th>" in html
    assert "No user of Amazon Beauty" in html


def test_ids_of_every_source_are_distinct(shop):
    data, _ = load(small(shop).data)
    for settings in (("ids.source=random",), ("ids.source=published", f"ids.file={shop / 'codes.csv'}")):
        ids = ids_of(small(shop, *settings), data, None)
        assert len(ids.codes.unique(dim=0)) == ITEMS
        assert bool((ids.codes < torch.tensor(ids.sizes)).all())
    other = shop.parent / "other.csv"
    other.write_text("item,code1\n1,5\n")
    with pytest.raises(UserError, match="items 1 to 60"):
        ids_of(small(shop, "ids.source=published", f"ids.file={other}"), data, None)


def test_items_that_never_occur_are_no_negatives_and_have_no_share_of_the_codes(shop, tmp_path):
    data, split = load(small(shop).data)
    task = Recommendation(small(shop, "ids.source=random"), Run(tmp_path))
    task.ids = ids_of(task.recipe, data, None)
    losses = task._losses()
    assert ITEMS - 1 not in losses.known.tolist()
    assert losses.trie.num_items == len(losses.known) < ITEMS
    losses.zero_grad()
    items = split.train.last(6).flip(1)
    losses({"items": items[(items >= 0).all(1)]})["loss"].backward()
    assert not losses.recommender.item_embedding.weight.grad[ITEMS - 1].any()
    assert isinstance(losses, RecommenderLosses)


def test_the_loss_of_items_is_that_of_its_definition(shop, tmp_path):
    data, _ = load(small(shop).data)
    task = Recommendation(small(shop, "ids.source=random", "recommender.negatives=7"), Run(tmp_path))
    task.ids = ids_of(task.recipe, data, None)
    losses = task._losses().eval()
    losses.item_dropout = 0.0
    model = losses.recommender
    items = torch.tensor([[3, 9, 3, 3, 12], [40, 5, 6, -1, -1]])  # an item that comes again, and padding
    torch.manual_seed(5)
    found = float(losses({"items": items})["items"].detach())
    torch.manual_seed(5)
    drawn = losses.known[torch.randint(len(losses.known), (7,))].tolist()
    wanted = []
    for row in items.tolist():
        row = [item for item in row if item >= 0]
        for place in range(1, len(row)):
            history, target = row[:place], row[place]
            state = model.states(torch.tensor([history]))[0, -1]
            score = (model.embed(torch.arange(ITEMS)) @ state).tolist()
            share = (len(losses.known) - 1) / 7
            others = sum(share * math.exp(score[i]) for i in drawn if i != target)
            wanted.append(math.log(math.exp(score[target]) + others) - score[target])
    assert found == pytest.approx(sum(wanted) / len(wanted), rel=1e-5)


def test_recipes_that_cannot_be_trained_are_refused(shop):
    for settings, message in (
        (("ids.source=none",), "leave 'codes' out"),
        (("quantizer.codebook_size=61",), "60 items are too few"),
        (("recommender.generator=t5",), "set recommender.inputs"),
        (
            ("ids.source=random", "quantizer.codebook_size=2", "quantizer.num_stages=2"),
            "codebook_size = 2 and quantizer.num_stages = 2 allow only 4 random IDs for 60 items: raise one of them",
        ),
    ):
        with pytest.raises(UserError, match=message):
            Recommendation.check(small(shop, *settings))
    with pytest.raises(UserError, match="there is no /nowhere"):
        Recommendation.check(small(shop, "data.source=/nowhere"))
    with pytest.raises(UserError, match=r"recommender.epochs = 0: expected greater than or equal to 1"):
        small(shop, "recommender.epochs=0")
    with pytest.raises(UserError, match=r"^--set recommender.width=15: .* of recommender.width = 15: change one"):
        load_recipe("recommendation/cpu", ["recommender.width=15"])


def test_a_table_of_orders_alone_is_told_how_to_name_its_items(tmp_path):
    orders = write_orders(tmp_path)["source"]
    with pytest.raises(UserError, match=r"name their table with --set data\.items=… and data\.vectors or"):
        Recommendation.check(small(orders))


def test_the_recipes_of_the_paper_fit_its_rq_vae(shop):
    data, _ = load(small(shop).data)
    sizes = {"paper": [12, 512, 32], "as-run": [12, 512, 256, 128, 32]}
    for name, wanted in sizes.items():
        settings = ("quantizer.epochs=1", "quantizer.codebook_size=16", f"data.source={shop}")
        recipe = load_recipe(f"recommendation/{name}", settings)
        tokenizer = tokenizer_of(recipe, data.vectors)
        layers = [layer for layer in tokenizer.model_.encoder if isinstance(layer, torch.nn.Linear)]
        assert [layers[0].in_features, *(layer.out_features for layer in layers)] == wanted
        assert len(ids_of(recipe, data, tokenizer).codes.unique(dim=0)) == ITEMS


def test_tuning_keeps_the_best_share_of_the_memory(shop, tmp_path):
    data, split = load(small(shop).data)
    task = Recommendation(small(shop, "ids.source=random"), Run(tmp_path))
    task.ids = ids_of(task.recipe, data, None)
    task._losses()
    model = task.recommender.eval()
    tune_memory(model, split, task.recipe.evaluation)

    def quality(share, weight):
        model.config = model.config.model_copy(update={"memory_share": share, "memory_text": weight})
        found = model.rank(split.train.last(9), 10, beam=20).items
        return float(recall_ndcg(ranks(found, split.validation), 10)[1].mean())

    chosen = model.config.memory_share, model.config.memory_text
    assert quality(*chosen) == max(quality(share, weight) for share in (0.35, 0.5, 0.7) for weight in (1.0, 3.0))


def write_orders(folder, *more):
    """Four orders of six users, of nine items with vectors, and ``more`` rows; the settings of them."""
    orders = [f"u{user},i{(user + step) % 9},{step}" for user in range(6) for step in range(4)]
    (folder / "orders.csv").write_text("user_id,item_id,timestamp\n" + "\n".join([*orders, *more]) + "\n")
    (folder / "items.csv").write_text("item_id,name\n" + "".join(f"i{i},Item {i}\n" for i in range(9)))
    np.save(folder / "vectors.npy", np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32))
    given = {"source": folder / "orders.csv", "items": folder / "items.csv", "embeddings": folder / "vectors.npy"}
    return {"title": "name", **{key: str(path) for key, path in given.items()}}


def test_bad_rows_of_orders_are_refused_or_left_out(tmp_path):
    settings = write_orders(tmp_path, "u1,other,9")
    with pytest.raises(UserError, match=r"orders.csv, row 24 .*the item 'other' is not in .*on_bad='skip'"):
        load(RecommendationData(**settings))
    data, _ = load(RecommendationData(**settings, on_bad="skip"))
    assert len(data.sequence) == 24
    assert data.vectors.shape == (9, 5)


def test_settings_of_a_table_need_one(shop, monkeypatch):
    with pytest.raises(UserError, match=r"data.items = /x.csv is of a table of orders, and .*data is none: name that"):
        Recommendation.check(small(shop, "data.items=/x.csv"))
    with pytest.raises(UserError, match=r"data.core = 5 is of a table of orders"):
        Recommendation.check(small(shop, "data.core=5"))


def test_one_long_history_is_no_reason_to_pad_all_others(shop, tmp_path, monkeypatch):
    items, users, longest = 12, 230, 20_000
    random, lengths = torch.Generator().manual_seed(0), torch.tensor([3] * users + [longest])
    data = Interactions(
        [str(user) for user in range(users + 1)],
        [str(item) for item in range(items)],
        torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0))),
        torch.randint(items, (int(lengths.sum()),), generator=random),
    )
    split, cells = leave_two_out(data), []
    config = RecommenderConfig(keys=tuple(data.items), inputs=("item",), outputs=("items",), width=8, heads=2)
    model, filled = Recommender(config), ragged.last_of_each

    def counted(*given):
        cells.append(filled(*given))
        return cells[-1]

    monkeypatch.setattr(ragged, "last_of_each", counted)
    monkeypatch.setattr(sequences, "last_of_each", counted)
    settings = small(shop).evaluation.model_copy(update={"test_users": 0, "validation_users": 0})
    found = evaluation.test_scores(model, split, settings, Run(tmp_path), Progress())
    assert found["users"] == users + 1
    evaluation.validation_scores(model, split, settings)
    evaluation.examples(model, data, split)
    assert max(part.shape[1] for part in cells) == longest - 1
    assert max(part.numel() for part in cells) <= 2**22 < users * longest


@pytest.mark.slow
def test_a_run_refuses_other_data_and_keeps_its_model(tmp_path, monkeypatch):
    settings = write_orders(tmp_path)
    recipe = load_recipe("recommendation/demo", [*SMALL, *(f"data.{key}={value}" for key, value in settings.items())])
    run = tmp_path / "run"
    train(recipe, run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    lines = (tmp_path / "items.csv").read_text().splitlines()
    (tmp_path / "items.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    load.cache_clear()
    with pytest.raises(
        UserError, match=r"orders.csv, .*items.csv, .* \(their order counts\) are not those that the run"
    ):
        evaluate(Run(run))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path in before} == before
    (tmp_path / "items.csv").write_text("\n".join(lines) + "\n")
    load.cache_clear()
    assert evaluate(Run(run))["recall@10"] == json.loads(before[run / "results.json"])["recall@10"]


def test_a_shop_of_fewer_items_than_a_list_is_trained_and_tested(tmp_path, monkeypatch):
    given = [f"data.{name}={value}" for name, value in write_orders(tmp_path).items()]
    recipe = small(tmp_path / "orders.csv", *given, "quantizer.codebook_size=2", "recommender.epochs=1")
    train(recipe, tmp_path / "ghrq")
    results = read(tmp_path / "ghrq")
    for way in ("codes", "items", "hybrid", "memory"):
        assert results["test"][way]["unseen"]["recall@50"] == 1.0  # all nine items but the seen ones are in the list
    assert {len(example["recommended"]) for example in results["examples"]} == {5}
    follow_the_guide(tmp_path / "ghrq", monkeypatch, tmp_path)
    html = write_report(Recommendation, outcomes(tmp_path, ["ghrq"]), tmp_path).read_text()
    assert "Item 3" in html
    assert "the paper</th>" not in html  # its figures are of Amazon Beauty
    assert "No user of Amazon Beauty" not in html


def test_embeddings_whose_squares_are_not_finite_are_refused(tmp_path):
    given = [f"data.{name}={value}" for name, value in write_orders(tmp_path).items()]
    vectors = np.load(tmp_path / "vectors.npy")
    vectors[4] = 1e30
    np.save(tmp_path / "vectors.npy", vectors)
    with pytest.raises(UserError, match=r"the embedding of the item 'i4' has numbers up to 1e\+30.*scale"):
        Recommendation.check(small(tmp_path / "orders.csv", *given, "quantizer.codebook_size=2"))


def follow_the_guide(run, monkeypatch, folder):
    """The guide's pieces of Python that need a recommender, with a run and items that exist."""
    guide = Path(__file__).parents[2] / "docs" / "recommendation.md"
    pieces = re.findall(r"```python\n(.*?)```", guide.read_text("utf-8"), flags=re.DOTALL)
    names = {"in_stock": [f"i{i}" for i in range(9)], "vectors": np.zeros((1, 5), dtype=np.float32)}
    monkeypatch.chdir(folder)
    for piece in pieces:
        if any(name in piece for name in ("Recommender", "Tokenizer")):
            text = piece.replace("runs/recommendation-cpu/cpu-ghrq-s0", str(run))
            exec(text.replace("B004756YJA", "i1").replace("B004ZT0SSG", "i2"), names)
    again = Recommender.from_pretrained(folder / "larger")
    assert "B00NEW" in {item.key for item in again.recommend([["i1"]], k=9)[0]}


@pytest.mark.slow
def test_t5_is_trained_and_ranks_like_the_other_recommenders(shop, tmp_path):
    recipe = small(shop, *T5, "recommender.layers=1", "recommender.rate=0.01", "recommender.epochs=6")
    train(recipe, tmp_path / "run")
    results = read(tmp_path / "run")
    assert set(results["test"]) == {"codes"}
    assert results["recall@10"] > 0.6 > results["baselines"]["popularity"]["unseen"]["recall@10"]
    model = Recommender.from_pretrained(tmp_path / "run" / "models" / "recommender")
    _, split = load(recipe.data)
    histories = split.before_test.last(9)[:20]
    beam, exact = (model.rank(histories, 10, by="codes", beam=width) for width in (ITEMS, 0))
    assert torch.equal(beam.items, exact.items)
    assert not (beam.items.unsqueeze(2) == histories.unsqueeze(1)).any()


def test_t5_is_trained_on_every_prefix(shop, tmp_path):
    data, split = load(small(shop).data)
    task = Recommendation(small(shop, *T5, "ids.source=random", "recommender.history=3"), Run(tmp_path))
    task.ids = ids_of(task.recipe, data, None)
    model = KeepBest(task._losses(), task.recommender)
    stage = task._stage(model)
    assert stage.steps_per_epoch == -(-(len(split.train.sequence) - USERS) // 32)
    batch = next(iter(stage.batches(0)))["items"]
    assert batch.shape[1] <= 4
    user = split.train.sequence[split.train.starts[7] : split.train.starts[8]]
    ends, lengths = _sequences(split.train, 4, every_prefix=True)
    mine = [split.train.sequence[e - n : e].tolist() for e, n in zip(ends, lengths, strict=True)]
    assert all(user[max(0, stop - 4) : stop].tolist() in mine for stop in range(2, len(user) + 1))
