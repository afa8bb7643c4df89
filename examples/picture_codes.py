# %% [markdown]
# # Encode and decode a picture
#
# A tokenizer of pictures turns every square of 4 × 4 pixels into four codes. This one is trained here, in seconds, on
# the left part of one photo; then it encodes the right part, which it has not seen. The real training is one command:
# `ghrq train image/cifar100-cpu`.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_sample_image

from ghrq.models import ImageTokenizer
from ghrq.quantizer import QuantizerConfig

torch.manual_seed(0)
photo = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1)  # (3, 427, 640) bytes
left, right = photo[..., :384], photo[..., 384:]

# %% [markdown]
# ## Train
#
# `tokenizer(pixels)` gives the losses. The codes start from k-means and then follow the encoder by themselves.

# %%
quantizer = QuantizerConfig(kind="calibrated", codebook_size=128, num_stages=4, weight=0.1)
tokenizer = ImageTokenizer(ImageTokenizer.Config(channels=3, dim=16, quantizer=quantizer))


def crops(count, size=32):
    """Random squares of the left part, (count, 3, size, size) bytes."""
    tops = torch.randint(left.shape[1] - size, (count,)).tolist()
    lefts = torch.randint(left.shape[2] - size, (count,)).tolist()
    return torch.stack([left[:, i : i + size, j : j + size] for i, j in zip(tops, lefts, strict=True)])


with torch.no_grad():
    tokenizer.quantizer.initialize(tokenizer.vectors(crops(64).float() / 255))
optimizer = torch.optim.Adam([p for p in tokenizer.parameters() if p.requires_grad], lr=2e-3)
for step in range(100):
    losses = tokenizer(crops(16))
    optimizer.zero_grad()
    losses["loss"].backward()
    optimizer.step()
    if step % 25 == 24:
        print(f"step {step + 1}: mean squared error {losses['reconstruction']:.4f}")

# %% [markdown]
# ## Save and load
#
# A model is a folder with `config.json` and `model.safetensors`.

# %%
folder = Path(tempfile.mkdtemp()) / "tokenizer"
tokenizer.save_pretrained(folder)
tokenizer = ImageTokenizer.from_pretrained(folder)  # in evaluation mode: nothing changes any more
print(sorted(path.name for path in folder.iterdir()))

# %% [markdown]
# ## Codes and back
#
# Four codes of 7 bits for 4 × 4 pixels of 24 bits: 28 bits where there were 384. Fewer codes give the coarse picture.

# %%
picture = right[:, 100:356].unsqueeze(0)  # (1, 3, 256, 256)
codes = tokenizer.encode(picture)
print("codes", tuple(codes.shape), "the first:", codes[0, 0, 0].tolist())
decoded = [tokenizer.decode(codes[..., :depth])[0] for depth in (1, 2, 4)]
for depth, image in zip((1, 2, 4), decoded, strict=True):
    print(f"depth {depth}: mean squared error {(image - picture[0] / 255).square().mean():.4f}")

figure, axes = plt.subplots(1, 4, figsize=(9, 2.6))
for ax, title, image in zip(axes, ("photo", "1 code", "2 codes", "4 codes"), [picture[0] / 255, *decoded], strict=True):
    ax.imshow(image.clamp(0, 1).permute(1, 2, 0))
    ax.set_title(title)
    ax.axis("off")
