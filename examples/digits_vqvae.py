# %% [markdown]
# # A VQ-VAE on digits
#
# An encoder, the quantizer, a decoder: 1,797 pictures of 8 × 8 pixels, each as four codes of 32. The only line that is
# about ghrq is the one that makes the quantizer.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from ghrq import ResidualQuantizer

x = torch.tensor(load_digits().data, dtype=torch.float32) / 16  # (1797, 64)
train, test = x[:1500], x[1500:]


def network(rq):
    """Encoder and decoder around a quantizer."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16))
    decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 64))
    return nn.ModuleList([encoder, rq, decoder])


# %% [markdown]
# ## Train
#
# The loss of the quantizer is added with a weight. Nothing has to be tuned for `kind="calibrated"`, the default. The
# codes move by themselves; the optimiser only sees encoder and decoder.


# %%
def fit(model, steps=250, weight=0.1):
    """Train, and return the error on the test pictures."""
    encoder, rq, decoder = model
    torch.manual_seed(0)
    rq.initialize(encoder(train).detach())  # k-means
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    for _ in range(steps):
        batch = train[torch.randint(len(train), (256,))]
        z_hat, _, loss = rq(encoder(batch))  # in between: the codes
        total = nn.functional.mse_loss(decoder(z_hat), batch) + weight * loss
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return nn.functional.mse_loss(decoder(rq(encoder(test)).z_hat), test).item()


models = {}
for kind in ("calibrated", "euclidean"):
    models[kind] = network(ResidualQuantizer(16, codebook_size=32, num_stages=4, kind=kind, codebook_update="ema"))
    print(f"{kind:10}  mean squared error on test pictures {fit(models[kind]):.4f}")

# %% [markdown]
# One seed of so short a training cannot tell the two apart; three seeds, five data sets and four weights are in
# [the results](../results/calibrated.md).
#
# ## Look at every depth
#
# `decode` takes any number of first codes: one code is a rough digit, four are close to the picture.

# %%
encoder, rq, decoder = models["calibrated"]
with torch.no_grad():
    codes = rq.encode(encoder(test[:8]))  # (8, 4)
    rows = [test[:8], *(decoder(rq.decode(codes[:, :depth])) for depth in (1, 2, 3, 4))]
print(codes[:3].tolist())

figure, axes = plt.subplots(5, 8, figsize=(6.4, 4.2))
for row, (name, pictures) in enumerate(zip(("picture", "1 code", "2 codes", "3 codes", "4 codes"), rows, strict=True)):
    for column, picture in enumerate(pictures):
        axes[row, column].imshow(picture.view(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes[row, column].set(xticks=[], yticks=[])
    axes[row, 0].set_ylabel(name, rotation=0, ha="right", va="center")

# %% [markdown]
# ## Is it healthy?
#
# `diagnose` says what to look at: the error by depth, how many codes are used, how far out the points are. Here it
# warns that the vectors have much in common: `centre=True` takes that off before they are quantized.

# %%
print(rq.diagnose(encoder(test).detach()))
