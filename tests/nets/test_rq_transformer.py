"""The prior against a plain Transformer with the same weights, and its samples against enumeration."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from ghrq import ResidualQuantizer
from ghrq.nets.draw import draw
from ghrq.nets.rq_transformer import RQTransformer

D, K, N, T = 4, 6, 3, 5


def small(**options):
    sizes = {"dim": D, "codebook_size": K, "num_stages": N, "positions": T}
    sizes |= {"width": 16, "spatial_layers": 2, "depth_layers": 2, "heads": 4}
    model = RQTransformer(**(sizes | options))
    # Far from uniform probabilities, and places that matter as much as inputs do.
    with torch.no_grad():
        for parameter in (model.heads, model.start, model.places, model.stages):
            parameter.mul_(30.0)
        model.centre.normal_()
        model.spread.fill_(0.3)
    return model.double().eval()


def small_quantizer(kind="ghrq", num_stages=N, codebook_size=K):
    quantizer = ResidualQuantizer(D, codebook_size, num_stages, kind=kind)
    quantizer.initialize(torch.randn(400, D))
    return quantizer.double().eval()


def some_grids(quantizer, count=7, positions=T):
    codes = torch.randint(quantizer.codebook_size, (count, positions, quantizer.num_stages))
    return quantizer.prefixes(codes), codes


def plain_transformer(layers, rows, heads):
    """Rows ``(L, width)`` of one sequence, one row and one head at a time."""
    for layer in layers:
        normed = layer.norm(rows)
        query = layer.query(normed).chunk(heads, dim=1)
        key, value = (part.chunk(heads, dim=1) for part in layer.key_value(normed).chunk(2, dim=1))
        fetched = []
        for i in range(len(rows)):
            scores = [(k[: i + 1] @ q[i]) / q.shape[1] ** 0.5 for q, k in zip(query, key, strict=True)]
            fetched.append(torch.cat([s.softmax(0) @ v[: i + 1] for s, v in zip(scores, value, strict=True)]))
        rows = rows + layer.out(torch.stack(fetched))
        rows = rows + F.linear(F.gelu(F.linear(layer.norm_forward(rows), layer.up.weight)), layer.down.weight)
    return rows


def plain_logits(model, prefixes, label):
    """``(T, N, K)`` of one grid of prefixes ``(T, N, dim)``."""
    prefixes = (prefixes - model.centre) / model.spread
    inputs = [model.start[label]] + [model.spatial_input.weight @ full for full in prefixes[:-1, -1]]
    h = plain_transformer(model.spatial, torch.stack(inputs) + model.places, model.attention_heads)
    logits = []
    for context, prefix in zip(model.spatial_norm(h), prefixes, strict=True):
        rows = [context] + [model.depth_input.weight @ vector for vector in prefix[:-1]]
        y = plain_transformer(model.depth, torch.stack(rows) + model.stages, model.attention_heads)
        heads = zip(model.depth_norm(y), model.heads, strict=True)
        logits.append(torch.stack([row @ head for row, head in heads]))
    return torch.stack(logits)


@pytest.mark.parametrize(("num_stages", "classes"), [(3, 0), (3, 4), (1, 0)])
def test_it_is_the_plain_transformer_with_its_gradients(num_stages, classes):
    model = small(num_stages=num_stages, classes=classes)
    prefixes, codes = some_grids(small_quantizer(num_stages=num_stages))
    labels = torch.arange(7) % 4 if classes else None
    of_grids = [0] * 7 if labels is None else labels.tolist()
    plain = torch.stack([plain_logits(model, p, label) for p, label in zip(prefixes, of_grids, strict=True)])
    torch.testing.assert_close(model.logits(prefixes, labels), plain)
    expected = -plain.log_softmax(-1).gather(-1, codes.unsqueeze(-1)).squeeze(-1).mean((0, 1))
    losses = model(prefixes, codes, labels)
    assert losses.shape == (num_stages,)
    torch.testing.assert_close(losses, expected)

    parameters = dict(model.named_parameters())
    mine = torch.autograd.grad(losses.sum(), list(parameters.values()))
    theirs = torch.autograd.grad(expected.sum(), list(parameters.values()), allow_unused=True)
    for name, a, b in zip(parameters, mine, theirs, strict=True):
        # A single stage has nothing to look back at: no input of its own, and one row to attend to.
        alone = num_stages == 1 and (name == "depth_input.weight" or (name.startswith("depth.") and "query" in name))
        assert alone or b.abs().max() > 0, name
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b, msg=lambda text, n=name: f"{n}: {text}")


def test_a_prefix_is_seen_by_what_comes_after_it_only():
    model = small()
    prefixes, _ = some_grids(small_quantizer(), count=1)
    before = model.logits(prefixes)
    for position, stage in product(range(T), range(N)):
        changed = prefixes.clone()
        changed[0, position, stage] += torch.randn(D).double()
        differs = (model.logits(changed) != before).any(-1)[0]
        expected = torch.zeros(T, N, dtype=torch.bool)
        expected[position, stage + 1 :] = True
        if stage == N - 1:  # the full reconstruction
            expected[position + 1 :] = True
        assert torch.equal(differs, expected), (position, stage)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ghrq", "naive", "euclidean"])
@pytest.mark.parametrize("classes", [0, 3])
def test_sampling_with_a_memory_is_sampling_without(kind, classes):
    model, quantizer, count = small(classes=classes), small_quantizer(kind), 40
    labels = torch.arange(count) % classes if classes else None
    options = {"temperature": [1.0, 0.7, 1.3], "top_k": [0, 4, 5], "top_p": [0.95, 1.0, 0.9]}
    generator = torch.Generator().manual_seed(5)
    mine = model.sample(count, quantizer, labels=labels, generator=generator, **options)

    generator.manual_seed(5)
    codes = torch.zeros(count, T, N, dtype=torch.int64)
    for position, stage in product(range(T), range(N)):
        logits = model.logits(quantizer.prefixes(codes), labels)[:, position, stage]
        stage_options = [options[name][stage] for name in ("temperature", "top_k", "top_p")]
        codes[:, position, stage] = draw(logits, *stage_options, generator)
    assert torch.equal(mine, codes)
    assert len(codes.flatten(1).unique(dim=0)) > count // 2

    best = model.sample(count, quantizer, labels=labels, temperature=0.0)
    logits = model.logits(quantizer.prefixes(best), labels)
    assert torch.equal(best, logits.argmax(-1))


@pytest.mark.slow
def test_samples_come_as_often_as_they_are_probable():
    size = {"num_stages": 2, "codebook_size": 3}
    model, quantizer = small(positions=2, **size), small_quantizer(**size)
    everything = torch.tensor(list(product(range(3), repeat=4))).view(-1, 2, 2)
    log_codes = model.logits(quantizer.prefixes(everything)).log_softmax(-1).detach()
    log_probability = log_codes.gather(-1, everything.unsqueeze(-1)).sum((1, 2, 3))
    probability = log_probability.exp()
    torch.testing.assert_close(probability.sum(), torch.tensor(1.0).double())

    count = 20_000
    samples = model.sample(count, quantizer, batch=6_000)
    number = samples.flatten(1) @ torch.tensor([27, 9, 3, 1])
    seen = number.bincount(minlength=81)
    # χ² over grids that are expected 5 times at least, within 4 standard deviations.
    often = probability * count > 5
    chi2 = ((seen - probability * count).square() / (probability * count))[often].sum()
    freedom = int(often.sum())
    assert freedom > 20
    assert chi2 < freedom + 4 * (2 * freedom) ** 0.5
    # The loss on its own samples is the model's entropy.
    losses = model(quantizer.prefixes(samples), samples)
    entropy = -(probability * log_probability).sum()
    spread = (probability * (log_probability + entropy).square()).sum().sqrt()
    assert (2 * losses.sum() - entropy).abs() < 4 * spread / count**0.5


def test_restricted_stages_draw_only_what_is_left():
    model, quantizer = small(), small_quantizer()
    samples = model.sample(200, quantizer, top_k=[1, 2, 0])
    order = model.logits(quantizer.prefixes(samples)).argsort(-1, descending=True)
    rank = (order == samples.unsqueeze(-1)).long().argmax(-1)
    assert [int(rank[..., stage].max()) for stage in range(2)] == [0, 1]
    assert rank[..., 2].max() > 1


@pytest.mark.slow
def test_it_learns_eight_grids_by_heart():
    quantizer = ResidualQuantizer(D, K, N).eval()
    quantizer.initialize(torch.randn(400, D))
    prefixes, codes = some_grids(quantizer, count=8)
    labels = torch.arange(8)
    model = RQTransformer(D, K, N, T, width=32, spatial_layers=1, depth_layers=1, heads=2, dropout=0.0, classes=8)
    model.standardize(prefixes)
    assert model(prefixes, codes, labels).sum().item() == pytest.approx(N * torch.tensor(K).log().item(), rel=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(200):
        optimizer.zero_grad()
        loss = model(prefixes, codes, labels).sum()
        loss.backward()
        optimizer.step()
    assert loss < 0.02
    assert torch.equal(model.sample(8, quantizer, labels=labels, temperature=0.0), codes)
    # It has learnt whose each grid is.
    assert model(prefixes, codes, labels.roll(1)).sum() > 1.0


def test_labels_matter_from_the_first_code_on():
    model = small(classes=2)
    prefixes, _ = some_grids(small_quantizer())
    zeros = torch.zeros(7, dtype=torch.int64)
    assert (model.logits(prefixes, zeros) != model.logits(prefixes, zeros + 1)).any(-1).all()


def test_euclidean_prefixes_are_cumulative_sums():
    quantizer, model = small_quantizer("euclidean"), small()
    prefixes, codes = some_grids(quantizer)
    sums = quantizer.codebooks[torch.arange(N), codes].cumsum(2)
    torch.testing.assert_close(prefixes, sums.detach())
    torch.testing.assert_close(model(prefixes, codes), model(sums, codes))


def test_how_long_the_vectors_are_makes_no_difference():
    model = small()
    prefixes, codes = some_grids(small_quantizer())
    model.standardize(prefixes)
    torch.testing.assert_close(model.centre, prefixes.mean((0, 1, 2)))
    standard = (prefixes - model.centre) / model.spread
    assert standard.square().mean().item() == pytest.approx(1.0)
    losses = model(prefixes, codes)
    other = 40.0 * prefixes + 3.0
    assert not torch.allclose(model(other, codes), losses)
    model.standardize(other)
    torch.testing.assert_close(model(other, codes), losses)
    with pytest.raises(ValueError, match="equal ones"):
        model.standardize(torch.ones(5, D))


def test_a_saved_state_is_the_same_model(tmp_path):
    from safetensors.torch import load_file, save_file

    model, other = small(classes=3), small(classes=3)
    prefixes, codes = some_grids(small_quantizer())
    labels = torch.arange(7) % 3
    assert not torch.equal(model(prefixes, codes, labels), other(prefixes, codes, labels))
    save_file(model.state_dict(), tmp_path / "prior.safetensors")
    other.load_state_dict(load_file(tmp_path / "prior.safetensors"))
    assert torch.equal(model(prefixes, codes, labels), other(prefixes, codes, labels))


def test_dropout_is_for_training_only_and_sampling_leaves_the_mode_alone():
    model, quantizer = small(dropout=0.3).train(), small_quantizer()
    prefixes, codes = some_grids(quantizer)
    assert not torch.equal(model(prefixes, codes), model(prefixes, codes))
    made = []
    first = model.sample(11, quantizer, generator=torch.Generator().manual_seed(1), batch=4, progress=made.append)
    assert model.training
    assert made == [4, 4, 3]
    assert not any(parameter.grad is not None for parameter in model.parameters())
    model.eval()
    assert torch.equal(first, model.sample(11, quantizer, generator=torch.Generator().manual_seed(1), batch=4))


def test_autocast_changes_nothing():
    model, quantizer = small().float(), small_quantizer().float()
    prefixes, codes = some_grids(quantizer)
    losses, samples = model(prefixes, codes), model.sample(5, quantizer, temperature=0.0)
    plain = torch.autograd.grad(losses.sum(), list(model.parameters()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = model(prefixes, codes)
        assert torch.equal(samples, model.sample(5, quantizer, temperature=0.0))
    assert torch.equal(losses, again)
    for a, b in zip(torch.autograd.grad(again.sum(), list(model.parameters())), plain, strict=True):
        torch.testing.assert_close(a, b)


def test_mistakes_are_named():
    model, quantizer = small(), small_quantizer()
    prefixes, codes = some_grids(quantizer)
    labels = torch.zeros(7, dtype=torch.int64)
    with pytest.raises(ValueError, match="multiple of heads"):
        RQTransformer(D, K, N, T, width=10, heads=4)
    with pytest.raises(ValueError, match="classes"):
        RQTransformer(D, K, N, T, classes=-1)
    with pytest.raises(ValueError, match=r"\(B, 5, 3, 4\)"):
        model(prefixes[:, :4], codes[:, :4])
    with pytest.raises(ValueError, match="a code for each prefix"):
        model(prefixes, codes[:3])
    with pytest.raises(ValueError, match="from 0 to 5"):
        model(prefixes, codes + K)
    with pytest.raises(ValueError, match="no classes"):
        model(prefixes, codes, labels)
    with pytest.raises(ValueError, match="give labels"):
        small(classes=2)(prefixes, codes)
    with pytest.raises(ValueError, match="from 0 to 1, got 2 to 2"):
        small(classes=2)(prefixes, codes, labels + 2)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        small(classes=2).sample(3, quantizer, labels=labels)
    with pytest.raises(ValueError, match="num_stages=3 as the model has"):
        model.sample(3, small_quantizer(num_stages=2))
    with pytest.raises(ValueError, match="each of the 3 stages, got 2"):
        model.sample(3, quantizer, top_k=[1, 2])
    with pytest.raises(ValueError, match="top_p"):
        model.sample(3, quantizer, top_p=0.0)
    with pytest.raises(ValueError, match="count"):
        model.sample(0, quantizer)
