"""The MDCT against its definition, and that it is orthogonal."""

import numpy as np
import torch

from ghrq.nets.mdct import Analysis, Synthesis, mdct_basis


def test_frames_that_overlap_are_an_orthogonal_transform():
    hop, frames = 16, 5
    rows = torch.zeros(frames * hop, (frames + 1) * hop)
    for i in range(frames):
        rows[i * hop : (i + 1) * hop, i * hop : (i + 2) * hop] = mdct_basis(hop)
    assert torch.allclose(rows @ rows.mT, torch.eye(frames * hop), atol=1e-6)


def test_coefficients_are_those_of_the_definition():
    hop = 8
    x = np.random.default_rng(0).standard_normal(4 * hop)
    found = Analysis(hop)(torch.tensor(x, dtype=torch.float32).unsqueeze(0))[0, 2].detach()
    part = x[hop : 3 * hop]
    for k in range(hop):
        total = 0.0
        for n in range(2 * hop):
            window = np.sin(np.pi * (n + 0.5) / (2 * hop))
            total += window * part[n] * np.cos(np.pi / hop * (n + 0.5 + hop / 2) * (k + 0.5))
        assert abs(found[k].item() - total * np.sqrt(2 / hop)) < 1e-5


def test_synthesis_restores_all_but_the_last_hop():
    wave = torch.randn(2, 10 * 160)
    restored = Synthesis(160)(Analysis(160)(wave))
    assert restored.shape == wave.shape
    assert torch.allclose(restored[:, :-160], wave[:, :-160], atol=1e-5)
