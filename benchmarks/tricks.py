"""What each hand-written speed-up gains over the plain torch version, in the step that it is part of.

    python benchmarks/tricks.py                    # all of them
    python benchmarks/tricks.py --only dropout     # those whose name contains a word
    python benchmarks/tricks.py --repeats 30

A ratio is the time of the step with the plain version divided by the time of the step as it is, measured in one run:
both take turns, one thread, medians. A speed-up stays in the library only if its ratio is at least 1.10 in some step.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import timing
import torch
import torch.nn.functional as F
from timing import Call, Shape, fitted, vectors
from torch import Tensor

import ghrq
from ghrq.nets import layer, tree_attention
from ghrq.nets.rq_transformer import RQTransformer
from ghrq.nets.seq2seq import TupleTranslator

Patches = Callable[[], list[AbstractContextManager[Any]]]


# --- the steps ---------------------------------------------------------------------------------------------------


def translator_step() -> Call:
    """WordNet's translator as the recipe wordnet/cpu has it: 128 sources with 8 targets each."""
    model = TupleTranslator(4, 128, width=128, layers=2, heads=4, feedforward=512, dropout=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    source, targets = torch.randint(128, (128, 4)), torch.randint(128, (1024, 4))
    source_of = torch.randint(128, (1024,))
    return _optimized(optimizer, lambda: model(source, targets, source_of))


def prior_step() -> Call:
    """The image prior as the recipe image/mnist-cpu has it: 16 grids of 7 x 7 tuples."""
    quantizer = ghrq.ResidualQuantizer(16, 128, 4)
    model = RQTransformer(16, 128, 4, 49, width=128, spatial_layers=2, depth_layers=2, heads=4, dropout=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    codes = torch.randint(128, (16, 49, 4))
    prefixes = quantizer.prefixes(codes)
    return _optimized(optimizer, lambda: model(prefixes, codes).sum())


def _optimized(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Call:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


# --- the plain versions ------------------------------------------------------------------------------------------


def plain_dropout() -> list[AbstractContextManager[Any]]:
    def add(self: layer.Layer, x: Tensor, branch: Tensor) -> Tensor:
        return x + F.dropout(branch, self.byte / 256, self.training)

    return [patch.object(layer.Layer, "_add", add)]


def plain_softmax_backward() -> list[AbstractContextManager[Any]]:
    def backward(grad: Tensor, weight: Tensor, *_: Any) -> Tensor:
        product = grad.mul_(weight)
        return product.addcmul_(weight, product.sum(-1, keepdim=True), value=-1.0)

    return [patch.object(torch, "_softmax_backward_data", backward)]


def plain_feed_forward() -> list[AbstractContextManager[Any]]:
    def feed_forward(x: Tensor, up: Tensor, down: Tensor, activation: str) -> Tensor:
        inner = F.linear(x, up)
        return F.linear(inner.relu() if activation == "relu" else F.gelu(inner), down)

    return [patch.object(layer._FeedForward, "apply", feed_forward)]


def out_of_place_activation() -> list[AbstractContextManager[Any]]:
    return [patch.object(layer, "_FeedForward", _OutOfPlace)]


class _OutOfPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor, down: Tensor, activation: str) -> Tensor:
        inner = torch.mm(x, up.t())
        active = inner.relu_() if activation == "relu" else F.gelu(inner)
        ctx.save_for_backward(x, inner, up, down)
        ctx.activation = activation
        return torch.mm(active, down.t())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, inner, up, down = ctx.saved_tensors
        of_inner = torch.mm(grad, down)
        if ctx.activation == "relu":
            active = inner
            of_inner = of_inner.mul_(inner > 0)
        else:
            with torch.enable_grad():
                leaf = inner.detach().requires_grad_()
                active = F.gelu(leaf)
            (of_inner,) = torch.autograd.grad(active, leaf, of_inner)
            active = active.detach()
        return torch.mm(of_inner, up), torch.mm(of_inner.t(), x), torch.mm(grad.t(), active), None


def plain_attention() -> list[AbstractContextManager[Any]]:
    def attend(q: Tensor, kv: Tensor, context: Tensor, masks: list[Tensor], heads: int) -> Tensor:
        results = []
        for mask, rows, own, before in zip(masks, *tree_attention._split(masks, q, kv, context), strict=True):
            p, length = mask.shape[2:]
            query = tree_attention._matrices(rows, p, heads)
            key, value = tree_attention._matrices(torch.cat((before, own)), length, heads).chunk(2, dim=2)
            query, key, value = (t.unflatten(0, (-1, heads)) for t in (query, key, value))
            found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            results.append(found.permute(2, 0, 1, 3).reshape(rows.shape))
        return torch.cat(results)

    return [patch("ghrq.nets.seq2seq.attend", attend)]


TRICKS: dict[str, tuple[Callable[[], Call], Patches]] = {
    "byte dropout, translator": (translator_step, plain_dropout),
    "byte dropout, prior": (prior_step, plain_dropout),
    "softmax backward, translator": (translator_step, plain_softmax_backward),
    "feed-forward in one function, translator": (translator_step, plain_feed_forward),
    "feed-forward in one function, prior": (prior_step, plain_feed_forward),
    "activation backward in place, translator": (translator_step, out_of_place_activation),
    "activation backward in place, prior": (prior_step, out_of_place_activation),
    "attention in blocks, translator": (translator_step, plain_attention),
}


def ratio(name: str, repeats: int) -> float:
    """Time of the step with the plain version, divided by the time of the step as it is."""
    make, patches = TRICKS[name]
    torch.manual_seed(0)
    step = make()

    def plain() -> None:
        with ExitStack() as stack:
            for each in patches():
                stack.enter_context(each)
            step()

    times = timing.medians(timing.interleaved({"plain": plain, "fast": step}, repeats))
    return times["plain"] / times["fast"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="only those whose name contains this word")
    parser.add_argument("--repeats", type=timing.positive, default=25, metavar="N", help="rounds (default 25)")
    chosen = parser.parse_args()
    timing.seeded(threads=1)
    print(timing.describe(timing.machine(1)), "\n", flush=True)
    for name in TRICKS:
        if chosen.only in name:
            print(f"{ratio(name, chosen.repeats):6.2f}  {name}", flush=True)


if __name__ == "__main__":
    main()
