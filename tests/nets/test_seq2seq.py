"""The translator against a plain Transformer with the same weights, and beam search against enumeration."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from ghrq.ids import PrefixTrie
from ghrq.nets.beam_search import beam_search
from ghrq.nets.seq2seq import TupleTranslator, prefixes

K, N = 5, 3


def small(**options):
    sizes = {"num_stages": N, "codebook_size": K, "width": 16, "layers": 2, "heads": 4, "feedforward": 24}
    model = TupleTranslator(**(sizes | options))
    # Larger outputs than at the start, so that probabilities are far from uniform.
    with torch.no_grad():
        model.tokens.mul_(3.0)
    return model.double().eval()


def plain_layer(layer, x, others, heads, mask):
    """One layer on one sequence ``x (n, width)`` that attends to ``others`` and itself; rows of (key, value)."""

    def split(rows, parts):
        return rows.view(rows.shape[0], heads, parts, -1).unbind(2)

    normed = layer.norm(x)
    keys_values = torch.cat((others, layer.key_value(normed)))
    (query,), (key, value) = split(layer.query(normed), 1), split(keys_values, 2)
    result = F.scaled_dot_product_attention(*(t.transpose(0, 1) for t in (query, key, value)), attn_mask=mask)
    x = x + layer.out(result.transpose(0, 1).flatten(1))
    return x + F.linear(F.linear(layer.norm_forward(x), layer.up.weight).relu(), layer.down.weight)


def plain_log_probability(model, source, target):
    """Of one target ``(N,)`` after one source ``(N,)``, token by token, nothing shared."""
    stages = range(model.num_stages)
    x = torch.stack([model.tokens[i, source[i]] + model.source_positions[i, 0] for i in stages])
    for layer in model.encoder:
        x = plain_layer(layer, x, x.new_empty(0, 2 * model.width), model.heads, None)
    memories = model.memory(model.source_norm(x)).split(2 * model.width, dim=1)
    rows = [model.start[0]] + [model.tokens[i, target[i]] for i in stages[:-1]]
    x = torch.stack(rows) + model.target_positions[:, 0]
    mask = torch.ones(len(stages), 2 * len(stages), dtype=torch.bool).tril(len(stages))
    for layer, memory in zip(model.decoder, memories, strict=True):
        x = plain_layer(layer, x, memory, model.heads, mask)
    x = model.target_norm(x)
    return sum((x[i] @ model.tokens[i].T).log_softmax(0)[target[i]] for i in stages)


def some_pairs(sources=21, num_stages=N, codebook_size=K):
    """Sources with 0 to 30 targets each, in no order: several blocks of different sizes, shared prefixes, repeats."""
    source_of = torch.randint(sources, (30,)).sort().values
    source_of = torch.cat((source_of, torch.full((30,), sources - 2)))[torch.randperm(60)]
    shape = (codebook_size, (sources, num_stages)), (codebook_size, (60, num_stages))
    return *(torch.randint(*s) for s in shape), source_of


@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_it_is_the_plain_transformer_with_its_gradients(num_stages):
    model = small(num_stages=num_stages)
    source, targets, source_of = some_pairs(num_stages=num_stages)
    assert len(source) > len(source_of.unique()) > 10
    plain = torch.stack([plain_log_probability(model, source[s], t) for s, t in zip(source_of, targets, strict=True)])
    torch.testing.assert_close(model.log_probability(source, targets, source_of), plain)

    loss = model(source, targets, source_of)
    torch.testing.assert_close(loss, -plain.mean() / num_stages)
    parameters = dict(model.named_parameters())
    mine = torch.autograd.grad(loss, list(parameters.values()))
    theirs = torch.autograd.grad(-plain.mean() / num_stages, list(parameters.values()))
    for name, a, b in zip(parameters, mine, theirs, strict=True):
        # With one stage the encoder attends to a single token, whatever its query and key.
        assert b.abs().max() > 0 or num_stages == 1, name
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


def test_probabilities_of_all_tuples_add_up_to_one():
    model, source = small(), torch.randint(K, (3, N))
    everything = torch.tensor(list(product(range(K), repeat=N)))
    source_of = torch.arange(3).repeat_interleave(len(everything))
    log_probability = model.log_probability(source, everything.repeat(3, 1), source_of)
    torch.testing.assert_close(log_probability.view(3, -1).exp().sum(1), torch.ones(3).double())


def test_a_prefix_is_computed_once():
    targets = torch.tensor([[1, 2, 3], [1, 2, 4], [1, 0, 3], [1, 2, 3], [1, 2, 3]])
    tree = prefixes(targets, torch.tensor([0, 0, 0, 0, 1]), 3, K)
    assert tree.sizes == [3, 2, 3]  # three starts; 1 of two sources; 1,2 and 1,0 of the first, 1,2 of the second
    assert tree.token.tolist() == [0, 0, 0, 2, 2, 1 + K, 3 + K, 3 + K]
    assert tree.source.tolist() == [0, 1, 2, 0, 1, 0, 0, 1]
    assert [n.tolist() for n in tree.node_of] == [[0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [1, 1, 0, 1, 2]]
    pairs = set(map(tuple, tree.ancestors.T.tolist()))
    assert pairs >= {(6, 6), (6, 3), (6, 0), (7, 7), (7, 4), (7, 1)}
    assert len(pairs) == 3 + 2 * 2 + 3 * 3


def test_dropout_drops_its_share_and_keeps_the_mean():
    model = small(dropout=0.25)
    layer = model.encoder[0].train()
    x, branch = torch.zeros(400, 500).double(), torch.ones(400, 500).double().requires_grad_()
    y = layer._add(x, branch)
    assert set(y.unique().tolist()) == {0.0, 4 / 3}
    assert abs(float((y == 0).double().mean()) - 0.25) < 0.005
    # The draws of one number and its neighbours, eight of which come from one draw, are independent.
    for shift in (1, 3, 7, 8):
        both = ((y[:, shift:] == 0) & (y[:, :-shift] == 0)).double().mean()
        assert abs(float(both) - 0.0625) < 0.003
    (grad,) = torch.autograd.grad(y.sum(), branch)
    assert torch.equal(grad, y)
    layer.eval()
    assert torch.equal(layer._add(x, branch), branch)


def test_training_is_repeatable_and_random():
    model = small(dropout=0.5).train()
    batch = some_pairs()
    torch.manual_seed(1)
    first, second = model(*batch), model(*batch)
    torch.manual_seed(1)
    assert torch.equal(model(*batch), first)
    assert not torch.equal(first, second)


def test_autocast_changes_nothing():
    model = TupleTranslator(N, K, width=16, layers=1, heads=2, feedforward=16, dropout=0.0)
    batch = some_pairs()
    plain = torch.autograd.grad(model(*batch), list(model.parameters()))
    tuples, log_probability = beam_search(model, batch[0], 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(*batch)
        same, again = beam_search(model, batch[0], 3)
    assert loss.dtype == torch.float32
    assert torch.equal(tuples, same)
    assert torch.equal(log_probability, again)
    for a, b in zip(torch.autograd.grad(loss, list(model.parameters())), plain, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
def test_it_learns_a_rule():
    model = TupleTranslator(N, 8, width=32, layers=2, heads=2, feedforward=64, dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(500):
        source = torch.randint(8, (64, N))
        # Two targets of each source: its codes turned round, and plus one.
        targets = torch.cat((source.flip(1), (source + 1) % 8))
        loss = model(source, targets, torch.arange(64).repeat(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source = torch.randint(8, (200, N))
    tuples, log_probability = beam_search(model, source, 2)
    wanted = torch.stack((source.flip(1), (source + 1) % 8), dim=1)
    found = (tuples.unsqueeze(2) == wanted.unsqueeze(1)).all(3).any(1)
    assert found.double().mean() > 0.95
    # Each of the two has probability 1/2.
    assert (log_probability - torch.tensor(0.5).log()).abs().median() < 0.2


def plain_beam_search(model, source, beam, allowed=None):
    """One source ``(N,)``, one prefix at a time: log-probabilities of whole tuples tell those of the prefixes."""
    everything = torch.tensor(list(product(range(K), repeat=N)))
    source_of = torch.zeros(len(everything), dtype=torch.int64)
    scores = model.log_probability(source[None], everything, source_of).exp().detach()
    beams = [()]
    for m in range(1, N + 1):
        candidates = [(*prefix, code) for prefix in beams for code in range(K)]
        if allowed is not None:
            candidates = [c for c in candidates if any(tuple(a[:m]) == c for a in allowed.tolist())]
        probability = {c: scores[(everything[:, :m] == torch.tensor(c)).all(1)].sum() for c in candidates}
        beams = sorted(candidates, key=lambda c: -float(probability[c]))[:beam]
    return beams, [float(probability[c].log()) for c in beams]


@pytest.mark.parametrize("beam", [1, 3, 7])
@pytest.mark.parametrize("constrained", [False, True])
def test_beams_are_those_of_a_plain_search(beam, constrained):
    model, source = small(), torch.randint(K, (9, N))
    codes = torch.randint(K, (12, N))
    trie = PrefixTrie(codes, K) if constrained else None
    tuples, log_probability = beam_search(model, source, beam, trie, chunk=4)
    assert tuples.shape == (9, beam, N)
    for row, mine, scores in zip(source, tuples.tolist(), log_probability.tolist(), strict=True):
        beams, theirs = plain_beam_search(model, row, beam, codes if constrained else None)
        valid = sum(s > -torch.inf for s in scores)
        assert list(map(tuple, mine[:valid])) == beams
        assert scores[:valid] == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("beam", [K**N, K**N + 10])
def test_a_beam_as_wide_as_everything_ranks_exactly(beam):
    model, source = small(), torch.randint(K, (4, N))
    tuples, log_probability = beam_search(model, source, beam)
    everything = torch.tensor(list(product(range(K), repeat=N)))
    source_of = torch.arange(4).repeat_interleave(len(everything))
    exact = model.log_probability(source, everything.repeat(4, 1), source_of).view(4, -1)
    ranked, order = exact.sort(dim=1, descending=True)
    torch.testing.assert_close(log_probability[:, : K**N], ranked)
    assert torch.equal(tuples[:, : K**N], everything[order])
    # What is left over repeats the best and says so.
    assert log_probability[:, K**N :].isneginf().all()
    assert torch.equal(tuples[:, K**N :], tuples[:, :1].expand(-1, beam - K**N, -1))


def test_a_trie_leaves_exactly_its_tuples():
    model, source = small(), torch.randint(K, (6, N))
    codes = torch.randint(K, (9, N)).unique(dim=0)
    tuples, log_probability = beam_search(model, source, 20, PrefixTrie(codes, K))
    count = len(codes)
    for row in tuples:
        assert torch.equal(row[:count].unique(dim=0), codes)
    source_of = torch.arange(6).repeat_interleave(count)
    own = model.log_probability(source, tuples[:, :count].flatten(0, 1), source_of)
    torch.testing.assert_close(log_probability[:, :count].flatten(), own)
    assert log_probability[:, count:].isneginf().all()
    assert torch.equal(tuples[:, count:], tuples[:, :1].expand(-1, 20 - count, -1))


def test_a_stage_of_the_trie_may_have_fewer_codes_than_the_model():
    model, source = small(), torch.randint(K, (6, N))
    codes = torch.randint(K, (12, N))
    codes[:, -1] %= 2  # a tie-break token
    found = beam_search(model, source, 8, PrefixTrie(codes, (*(K,) * (N - 1), 2)))
    wanted = beam_search(model, source, 8, PrefixTrie(codes, K))
    assert torch.equal(found[0], wanted[0])
    torch.testing.assert_close(found[1], wanted[1])


def test_search_leaves_the_mode_alone_and_needs_no_chunks():
    model = small(dropout=0.5).train()
    source = torch.randint(K, (11, N))
    tuples, log_probability = beam_search(model, source, 4, chunk=3)
    assert model.training
    again, same = beam_search(model, source, 4)
    assert torch.equal(tuples, again)
    torch.testing.assert_close(log_probability, same)


def test_mistakes_are_named():
    model = small()
    codes = torch.randint(K, (4, N))
    with pytest.raises(ValueError, match="multiple of heads"):
        TupleTranslator(N, K, width=10, heads=4)
    with pytest.raises(ValueError, match="dropout"):
        TupleTranslator(N, K, dropout=1.0)
    with pytest.raises(ValueError, match="from 0 to 4"):
        model(codes + K, codes, torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="targets of shape"):
        model(codes, codes[:, :2], torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="source_of"):
        model(codes, codes, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="4 sources"):
        model(codes, codes, torch.full((4,), 4))
    with pytest.raises(ValueError, match="beam"):
        beam_search(model, codes, 0)
    with pytest.raises(ValueError, match="trie of 3 stages"):
        beam_search(model, codes, 2, PrefixTrie(codes[:, :2], K))
