# %% [markdown]
# # IDs for products
#
# From titles to short, hierarchical IDs: embed, fit, judge, look up, grow. The shop of this page is small and made up,
# so that it runs in seconds without a download. Take your own table and your own embeddings instead.

# %%
import itertools

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from ghrq import Tokenizer
from ghrq.ids import Catalogue, resolve_append
from ghrq.metrics.quality import quality

shelves = {
    "garden > watering": ["garden hose", "watering can", "lawn sprinkler", "rain barrel"],
    "garden > tools": ["garden spade", "leaf rake", "pruning shears", "garden fork"],
    "kitchen > pans": ["frying pan", "sauce pan", "wok pan", "grill pan"],
    "kitchen > knives": ["bread knife", "chef knife", "paring knife", "carving knife"],
    "sport > balls": ["soccer ball", "tennis ball", "golf ball", "volley ball"],
    "sport > running": ["running shoes", "running socks", "running shorts", "running jacket"],
}
brands, sizes = ["Alder", "Birch", "Cedar", "Dogwood", "Elm"], ["small", "medium", "large", "extra large"]
colours = ["red", "green", "blue", "black", "white"]
titles, paths = [], []
for path, things in shelves.items():
    for thing, brand, size, colour in itertools.product(things, brands, sizes, colours):
        titles.append(f"{brand} {thing}, {size}, {colour}")
        paths.append(path)
print(f"{len(titles):,} products, such as {titles[0]!r}")

# %% [markdown]
# ## Embed
#
# Any embedding will do: a sentence transformer in real life, weighted words here.

# %%
embedding = make_pipeline(TfidfVectorizer(), TruncatedSVD(32, random_state=0)).fit(titles)
X = embedding.transform(titles).astype(np.float32)
print(X.shape)

# %% [markdown]
# ## Fit and encode
#
# Three codes of 32 each, coarse to fine. Products that get the same three codes are told apart by a fourth token.

# %%
tokenizer = Tokenizer(num_stages=3, codebook_size=32).fit(X)
codes = tokenizer.encode(X)
ids = resolve_append(codes, tokenizer.tie_break_size_)
for row in (0, 1, 500, 2000):
    print(ids[row].tolist(), titles[row])

# %% [markdown]
# ## Judge
#
# Before a model is trained on IDs: do they follow the vectors, and the categories? `quality` has more numbers than
# this, and `ghrq inspect` makes a page of them.

# %%
measured = quality(codes, X, tokenizer, labels=paths, separator=" > ")
for row in measured.summary():
    print("".join(f"{cell:>18}" for cell in (row[0][:9], *row[3:6], row[8])))

# %% [markdown]
# ## Look up
#
# A catalogue knows items by ID and IDs by item. The first code alone is a shelf.

# %%
catalogue = Catalogue(titles, ids, vectors=X)
title = "Alder garden hose, small, red"
for other in catalogue.neighbours([title], k=4).ids:
    print(other)
shelf = catalogue.under(ids[0, :1].tolist())
print(f"\n{len(shelf)} products share the first code of {title!r}; the last of them: {shelf[-1]}")

# %% [markdown]
# ## Decode
#
# Codes are vectors again, at any depth: the more codes, the smaller the error.

# %%
for depth in (1, 2, 3):
    error = ((tokenizer.decode(codes[:, :depth]) - X) ** 2).sum() / ((X - X.mean(0)) ** 2).sum()
    print(f"{depth} codes: {100 * error:.0f} % of the variance is lost")

# %% [markdown]
# ## Grow
#
# New products get IDs. No ID that is published moves.

# %%
new = ["Fir garden hose, small, red", "Fir bread knife, large, black"]
larger = Catalogue(titles, ids).extend(tokenizer, new, embedding.transform(new).astype(np.float32))
for title in new:
    print(larger[title].tolist(), title)
assert all((larger[title] == catalogue[title]).all() for title in titles[:100])
