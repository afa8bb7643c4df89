"""Do the defaults win untuned? Small autoencoders on real data, four kinds of quantizer, four weights of its loss.

    ghrq train wordnet/demo --out runs/wordnet-demo
    python benchmarks/defaults.py --data FOLDER --wordnet runs/wordnet-demo/models/embedding

FOLDER (or GHRQ_DATA) has mnist/, amazon-beauty/ and speech/. Digits come with scikit-learn. Every number is a mean
squared error on held-out rows, divided by the variance of the data, in thousandths. Codebooks start from k-means, and
learn by gradient and by moving midpoints, with the decay of the calibrated kind; nothing else differs between kinds.
Naive ones, which are slow and not what is compared, have one seed. Results are kept in a file, so that a run that was
stopped goes on; ``--only digits mnist`` and ``--seeds 1`` measure less. Needs soundfile and scikit-learn.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq import ResidualQuantizer
from ghrq.data.images import idx
from ghrq.models import HierarchyEmbedding
from ghrq.nets.mlp import MLP
from ghrq.optim import RiemannianAdam
from ghrq.quantizer.kinds import FEW_CODES, KINDS
from ghrq.system import files
from ghrq.tokenizer.model import LinearPlusMLP

NAMES = ("euclidean", "naive", "ghrq", "calibrated")
UPDATES = ("gradient", "ema")
WEIGHTS = (1.0, 0.1, 0.01, 0.001)
RESULTS = Path(__file__).parent / "results" / "defaults.json"


class Problem(NamedTuple):
    """Rows to reconstruct, and the autoencoder that does it."""

    train: Tensor
    test: Tensor
    networks: Callable[[], tuple[nn.Module, nn.Module]]
    """Encoder and decoder."""
    dim: int
    codebook_size: int
    num_stages: int
    steps: int
    batch: int
    rate: float = 2e-3
    channel_dim: int = -1


@dataclass(frozen=True)
class Measured:
    """One training run."""

    problem: str
    kind: str
    update: str
    weight: float
    seed: int
    error: float
    """Relative, in thousandths."""
    perplexity: float
    """The lowest of the stages, as a share of the codes."""
    seconds: float


def digits(_: argparse.Namespace) -> Problem:
    """scikit-learn's digits, 8 × 8, and a small convolutional VQ-VAE."""
    from sklearn.datasets import load_digits

    images = torch.tensor(load_digits().images / 16.0, dtype=torch.float32).unsqueeze(1)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(7))

    def networks() -> tuple[nn.Module, nn.Module]:
        encoder = [
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 8, 1),
        ]
        decoder = [nn.Conv2d(8, 32, 1), nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU()]
        return nn.Sequential(*encoder), nn.Sequential(*decoder, nn.Conv2d(16, 1, 3, padding=1))

    return Problem(images[order[:1500]], images[order[1500:]], networks, 8, 32, 4, 300, 32, channel_dim=1)


def mnist(given: argparse.Namespace) -> Problem:
    """5,000 images of MNIST and a VQ-VAE of another shape."""
    raw = idx.read(given.data / "mnist" / "train-images-idx3-ubyte.gz", 3)
    images = raw[:6000].float().div(255.0).unsqueeze(1)

    def networks() -> tuple[nn.Module, nn.Module]:
        encoder = [nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 16, 1)]
        decoder = [nn.Conv2d(16, 32, 1), nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU()]
        return nn.Sequential(*encoder), nn.Sequential(*decoder, nn.ConvTranspose2d(16, 1, 4, 2, 1))

    return Problem(images[:5000], images[5000:], networks, 16, 64, 4, 250, 16, channel_dim=1)


def beauty(given: argparse.Namespace) -> Problem:
    """MPNet embeddings of products and the fully-connected RQ-VAE of the paper's shape."""
    vectors = torch.from_numpy(np.load(given.data / "amazon-beauty" / "mpnet-embeddings.f16.npy")).float()
    vectors = (vectors - vectors.mean(0)) / vectors.std()
    vectors = vectors[torch.randperm(len(vectors), generator=torch.Generator().manual_seed(7))]
    sizes = [vectors.shape[1], 512, 32]
    return Problem(vectors[2000:], vectors[:2000], lambda: (MLP(sizes), MLP(sizes[::-1])), 32, 128, 4, 200, 128)


def hierarchy(given: argparse.Namespace) -> Problem:
    """The vectors of WordNet's nouns that a demo run learned."""
    vectors = HierarchyEmbedding.from_pretrained(given.wordnet).vectors().detach()
    vectors = (vectors - vectors.mean(0)) / vectors.std()
    vectors = vectors[torch.randperm(len(vectors), generator=torch.Generator().manual_seed(7))]
    sizes = [vectors.shape[1], 64, 16]
    return Problem(vectors[4000:], vectors[:4000], lambda: (MLP(sizes), MLP(sizes[::-1])), 16, 128, 4, 250, 256)


def speech(given: argparse.Namespace) -> Problem:
    """MDCT frames of speech (hop 160 at 16 kHz), 64 principal components, a deep cascade."""
    import soundfile

    folder = given.data / "speech" / "LibriSpeech" / "dev-clean"
    paths = sorted(folder.glob("*/*/*.flac"))[::4]
    frames = torch.cat([_mdct(torch.from_numpy(soundfile.read(path, dtype="float32")[0])) for path in paths])
    frames = frames[torch.randperm(len(frames), generator=torch.Generator().manual_seed(7))][:40000]
    frames = frames - frames.mean(0)
    frames = frames @ torch.linalg.eigh(frames.mT @ frames).eigenvectors[:, -64:]
    frames = frames / frames.std()

    def networks() -> tuple[nn.Module, nn.Module]:
        sizes = [64, 128, 32]
        encoder, decoder = LinearPlusMLP(sizes), LinearPlusMLP(sizes[::-1])
        encoder.direct.data = torch.eye(64)[32:]  # the codec starts as a transform: the larger half of the components
        decoder.direct.data = encoder.direct.data.mT.clone()
        return encoder, decoder

    return Problem(frames[4000:], frames[:4000], networks, 32, 1024, 12, 40, 128, 1e-3)


PROBLEMS: dict[str, Callable[[argparse.Namespace], Problem]] = {
    function.__name__: function for function in (digits, mnist, beauty, hierarchy, speech)
}


def _mdct(signal: Tensor, hop: int = 160) -> Tensor:
    """MDCT coefficients ``(frames, hop)`` with a sine window, compressed by the power 0.5 as a codec's network does."""
    blocks = signal.unfold(0, 2 * hop, hop) * torch.sin(torch.pi * (torch.arange(2 * hop) + 0.5) / (2 * hop))
    time_, frequency = torch.arange(2 * hop) + 0.5 + hop / 2, torch.arange(hop) + 0.5
    coefficients = blocks @ torch.cos(torch.pi / hop * torch.outer(time_, frequency))
    return coefficients.sign() * coefficients.abs().sqrt()


def train(problem: Problem, kind: str, update: str, weight: float, seed: int) -> tuple[float, float]:
    """Relative error on the test rows in thousandths, and the lowest perplexity of a stage as a share of its codes."""
    torch.manual_seed(seed)
    encoder, decoder = problem.networks()
    rq = ResidualQuantizer(
        problem.dim,
        problem.codebook_size,
        problem.num_stages,
        kind,
        codebook_update=update,
        decay=KINDS["calibrated"].decay if update == "ema" and problem.codebook_size <= FEW_CODES else None,
        channel_dim=problem.channel_dim,
    )
    parameters = [*encoder.parameters(), *decoder.parameters(), *rq.parameters()]
    optimizer = RiemannianAdam(parameters, lr=problem.rate)
    rq.attach(optimizer)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some kinds do collapse: that is what is measured
        rq.initialize(encoder(problem.train[: 8 * problem.codebook_size]), iterations=3)
    for _ in range(problem.steps):
        x = problem.train[torch.randint(len(problem.train), (problem.batch,))]
        z_hat, _, loss = rq(encoder(x))
        total = F.mse_loss(decoder(z_hat), x) + weight * loss
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    rq.eval()
    with torch.no_grad():
        z = encoder(problem.test)
        error = F.mse_loss(decoder(rq(z).z_hat), problem.test) / problem.test.var()
        perplexity = min(rq.diagnose(z).perplexity) / problem.codebook_size
    return 1000.0 * float(error), perplexity


# --- many runs -----------------------------------------------------------------------------------------------

_problems: dict[str, Problem] = {}


def _measure(job: tuple[argparse.Namespace, str, str, str, float, int]) -> Measured:
    given, name, *settings = job
    torch.set_num_threads(1)
    if name not in _problems:
        _problems[name] = PROBLEMS[name](given)
    start = time.process_time()
    error, perplexity = train(_problems[name], *settings)
    return Measured(name, *settings, error, perplexity, time.process_time() - start)


def measured(given: argparse.Namespace) -> Iterator[Measured]:
    """Every run that was asked for: from the file of results, or measured now and added to it."""
    done = {}
    given.results.parent.mkdir(parents=True, exist_ok=True)
    if given.results.exists():
        rows = [Measured(**row) for row in json.loads(given.results.read_text())]
        done = {(row.problem, row.kind, row.update, row.weight, row.seed): row for row in rows}
    plan = [
        settings
        for settings in itertools.product(given.only, NAMES, UPDATES, WEIGHTS, range(given.seeds))
        if settings[1] != "naive" or settings[-1] == 0
    ]
    jobs = [(given, *settings) for settings in plan if settings not in done]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for number, row in enumerate(pool.imap_unordered(_measure, jobs), start=1):
            done[row.problem, row.kind, row.update, row.weight, row.seed] = row
            files.write_json(given.results, [asdict(row) for row in done.values()])
            print(f"\r{number} of {len(jobs)} runs", end="", flush=True)
    print()
    yield from (done[settings] for settings in plan)


def tables(rows: list[Measured]) -> str:
    """Errors by problem, and what they say: ratios to Euclidean, worst weight against best."""
    lines = []
    for problem in dict.fromkeys(row.problem for row in rows):
        weights = " | ".join(f"{weight:g}" for weight in WEIGHTS)
        lines += [f"\n### {problem}\n", f"| kind | codebooks | {weights} | worst / best | perplexity |"]
        lines.append("|---|---|" + "---|" * (len(WEIGHTS) + 2))
        means = {}
        for kind, update in itertools.product(NAMES, UPDATES):
            own = [row for row in rows if (row.problem, row.kind, row.update) == (problem, kind, update)]
            errors = [[row.error for row in own if row.weight == weight] for weight in WEIGHTS]
            means[kind, update] = [float(np.mean(of_weight)) for of_weight in errors]
            cells = [f"{np.mean(e):.1f}" + f" ± {np.std(e):.1f}" * (len(e) > 1) for e in errors]
            spread, used = max(means[kind, update]) / min(means[kind, update]), np.mean([row.perplexity for row in own])
            lines.append(f"| {kind} | {update} | {' | '.join(cells)} | {spread:.2f} | {used:.2f} |")
        for update in UPDATES:
            ratios = [a / b for a, b in zip(means["calibrated", update], means["euclidean", update], strict=True)]
            cells = [f"{ratio:.2f}" for ratio in ratios]
            lines.append(f"| calibrated / euclidean | {update} | {' | '.join(cells)} | mean {np.mean(ratios):.2f} | |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("GHRQ_DATA"), help="folder of the data sets")
    parser.add_argument("--wordnet", type=Path, help="folder of a trained embedding")
    parser.add_argument("--only", nargs="+", choices=tuple(PROBLEMS), default=tuple(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    if set(given.only) - {"digits", "hierarchy"} and given.data is None:
        parser.error("give --data FOLDER, or set GHRQ_DATA")
    if "hierarchy" in given.only and given.wordnet is None:
        parser.error("give --wordnet FOLDER: first run ghrq train wordnet/demo")
    print(tables(list(measured(given))))


if __name__ == "__main__":
    main()
