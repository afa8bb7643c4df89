# %% [markdown]
# # A T5 that only generates IDs that exist
#
# A small T5 learns to answer a query with the ID of a product. Without help it also generates IDs that no product has.
# `TrieLogitsProcessor` forbids them, inside `model.generate`.

# %%
import itertools

import numpy as np
import torch
from transformers import T5Config, T5ForConditionalGeneration

from ghrq import Tokenizer
from ghrq.ids import Catalogue, PrefixTrie, TrieLogitsProcessor, resolve_append

torch.manual_seed(0)
words = [
    ["cheap", "fine", "light", "strong", "old", "new"],
    ["red", "green", "blue", "black", "white", "grey"],
    ["hose", "spade", "pan", "knife", "ball", "shoe", "lamp", "chair"],
]
products = list(itertools.product(*words))
names = [" ".join(product) for product in products]
print(f"{len(names)} products, such as {names[0]!r}")

# %% [markdown]
# ## IDs
#
# A vector for each word, the last word weighs most: things of one sort are near each other. Then IDs, and the
# vocabulary of a language model: which token stands for which code.

# %%
random = np.random.default_rng(0)
table = {word: random.standard_normal(16) for group in words for word in group}
X = np.array([0.5 * table[a] + 0.5 * table[b] + 2 * table[c] for a, b, c in products], dtype=np.float32)
tokenizer = Tokenizer(num_stages=3, codebook_size=16).fit(X)
vocabulary = tokenizer.vocabulary()
ids = resolve_append(tokenizer.encode(X), vocabulary.tie_break)
catalogue = Catalogue(names, ids)
print(names[0], ids[0].tolist(), "tokens", vocabulary.tokens(ids[:1]).tolist()[0])

# %% [markdown]
# ## Train
#
# The input is the words of the query, the output the tokens of the ID. One product in eight is never seen in training.

# %%
numbers = {word: vocabulary.size + place for place, word in enumerate(table)}
queries = torch.tensor([[numbers[word] for word in product] for product in products])
targets = torch.cat([vocabulary.tokens(ids), torch.full((len(ids), 1), vocabulary.special["eos"])], dim=1)
held = torch.rand(len(names)) < 1 / 8
model = T5ForConditionalGeneration(
    T5Config(
        vocab_size=vocabulary.size + len(numbers),
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=vocabulary.special["pad"],
        eos_token_id=vocabulary.special["eos"],
        decoder_start_token_id=vocabulary.special["bos"],
    )
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(120):
    batch = (~held).nonzero().squeeze(1)[torch.randint(int((~held).sum()), (64,))]
    loss = model(input_ids=queries[batch], labels=targets[batch]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
print(f"loss of the last step {loss.item():.3f}")

# %% [markdown]
# ## Generate
#
# For products that it has not seen, with and without the trie. Five beams each; every beam is an ID.

# %%
trie = PrefixTrie(ids, vocabulary.sizes)
processor = TrieLogitsProcessor(trie, eos_token=vocabulary.special["eos"], offsets=vocabulary.offsets)
settings = {"num_beams": 5, "num_return_sequences": 5, "max_new_tokens": trie.num_stages, "do_sample": False}
known = {tuple(row) for row in ids.tolist()}


def existing(tokens):
    """The share of generated sequences that are IDs of products."""
    starts = torch.tensor(vocabulary.offsets)
    return np.mean([tuple(row) in known for row in (tokens[:, 1:] - starts).tolist()])


free = model.generate(queries[held], **settings)
bound = model.generate(queries[held], logits_processor=[processor], **settings)
print(f"IDs that exist: {existing(free):.0%} without the trie, {existing(bound):.0%} with it")

# %%
found = catalogue.ids_of(processor.codes(bound)).reshape(-1, 5)
for query, answers in list(zip(np.array(names)[held.numpy()], found, strict=True))[:4]:
    print(f"{query:18} -> {', '.join(answers)}")
