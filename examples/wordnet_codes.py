# %% [markdown]
# # WordNet codes and the explorer
#
# The mammals of WordNet are a real hierarchy: dogs are canines, canines are carnivores. This page embeds it in the
# Poincaré ball, turns the points into codes, and makes a page to look around in them. The whole noun hierarchy is one
# command: `ghrq reproduce wordnet --budget demo`.

# %%
import os
from pathlib import Path

import numpy as np
import torch

from ghrq import ResidualQuantizer, ball
from ghrq.data import wordnet
from ghrq.report.explorer_page import Explored, ItemTexts, explorer_page

torch.manual_seed(0)
nouns = wordnet.load()
children = {}
for child, parent in nouns.edges.tolist():
    children.setdefault(parent, []).append(child)
paths = {nouns.names.index("mammal.n.01"): ()}  # noun -> what is above it, the top first
for noun in (queue := list(paths)):
    for child in children.get(noun, []):
        if child not in paths:
            paths[child] = (*paths[noun], noun)
            queue.append(child)
rows = {noun: row for row, noun in enumerate(paths)}
names = [nouns.lemmas[noun].replace("_", " ") for noun in rows]
pairs = torch.tensor([(rows[noun], rows[above]) for noun, path in paths.items() for above in path])
print(f"{len(nouns.names):,} nouns, {len(rows):,} of them mammals, {len(pairs):,} pairs of a noun and what is above it")

# %% [markdown]
# ## Embed
#
# Each noun is a vector, and the exponential map puts it on the ball. What is above a noun should be nearer to it than
# other nouns are. Half of those are drawn from what is above some noun, which makes it harder.

# %%
vectors = torch.nn.Parameter(0.05 * torch.randn(len(names), 8))
optimizer = torch.optim.Adam([vectors], lr=0.03)
for step in range(400):
    u, v = pairs[torch.randint(len(pairs), (512,))].T
    negatives = torch.randint(len(names), (512, 20))
    negatives[:, :10] = v[torch.randint(512, (512, 10))]
    points = ball.expmap0(vectors)
    near = ball.distance(points[u], points[v])
    far = ball.distance(points[u].unsqueeze(1), points[negatives])
    far = far.masked_fill(negatives == v.unsqueeze(1), torch.inf)
    loss = (near / 0.2 + torch.logsumexp(torch.cat((-near.unsqueeze(1), -far), 1) / 0.2, 1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.03 * (1 - step / 400)
points = ball.expmap0(vectors.detach())
print(f"loss {loss:.2f}; median radius {points.norm(dim=1).median():.2f}")


def nearest(name, k=6):
    """The nouns nearest to one, by geodesic distance."""
    order = ball.distance(points[names.index(name)], points).argsort()[1 : k + 1]
    return ", ".join(names[row] for row in order)


for name in ("poodle", "whale", "canine"):
    print(f"{name}: {nearest(name)}")

# %% [markdown]
# ## Codes
#
# Three codes of 16, coarse to fine. Nouns that share their first code are of one sort.

# %%
rq = ResidualQuantizer(8, codebook_size=16, num_stages=3, kind="ghrq", scale_control=True).eval()
rq.initialize(vectors.detach())
codes = rq.encode(vectors.detach())
for name in ("poodle", "beagle", "whale", "elephant"):
    row = names.index(name)
    same = (codes[:, 0] == codes[row, 0]).nonzero().squeeze(1)
    others = ", ".join(names[other] for other in same[:: max(1, len(same) // 5)][:5])
    print(f"{name}: codes {codes[row].tolist()}; {len(same)} nouns have the first one, such as {others}")

# %% [markdown]
# ## How much of the hierarchy is in the first code?
#
# The order of each mammal (carnivore, rodent, …) against the first code: the adjusted mutual information is 0 for
# random codes and 1 if both say the same.

# %%
from sklearn.metrics import adjusted_mutual_info_score

kinds = [nouns.lemmas[[*path, noun][min(2, len(path))]].replace("_", " ") for noun, path in paths.items()]
shuffled = np.random.default_rng(0).permutation(kinds)
print(f"codes:    {adjusted_mutual_info_score(kinds, codes[:, 0]):.2f}")
print(f"shuffled: {adjusted_mutual_info_score(list(shuffled), codes[:, 0]):.2f}")

# %% [markdown]
# ## The explorer
#
# One HTML file, which opens offline. Drag the disk, go deeper with the wheel, search for *dog*: [the page that this
# makes](mammals.html). For a table of your own: `ghrq explore tok/ ids.parquet --label title --out page.html`.

# %%
texts = ItemTexts(names, [nouns.names[noun] for noun in rows], "synset", kinds, "kind")
html = explorer_page([Explored("mammals", codes.numpy(), rq)], np.arange(len(names)), texts, "Mammals of WordNet")
page = Path(os.environ.get("GHRQ_EXAMPLES_OUT", ".")) / "mammals.html"
page.write_text(html, "utf-8")
print(f"{page.name}: {len(html) / 1e3:.0f} kB")
