"""InfoNCE over geodesic distances, with its gradient in closed form.

Each row has one positive and k negatives from a table, so the differences alone are ``(B, k, d)``. They are computed
in chunks that fit into the cache, and the gradient in the same pass: autograd would read that tensor about 20 times.
"""

import torch
from torch import Tensor

from ghrq.geometry.gradients import Distances, known

_CHUNK_ELEMENTS = 200_000


def info_nce(
    anchor: Tensor,
    anchor_gap: Tensor,
    positive: Tensor,
    positive_gap: Tensor,
    table: Tensor,
    table_gap: Tensor,
    negatives: Tensor,
    c: float,
    temperature: float = 1.0,
    itself: bool = True,
) -> Tensor:
    """The mean over rows of ``-log(e^{-d(u,v)/τ} / (1 + e^{-d(u,v)/τ} + Σ_j e^{-d(u,n_j)/τ}))``, a scalar.

    The distance is the ball's; at ``c = 0`` its limit ``2‖x - y‖``, so that both geometries start with the same
    logits next to the origin. The 1 is u itself as a wrong answer, at distance 0.

    Anchors u and positives v are ``(B, d)``, ``negatives (B, k)`` int64 row numbers of the points ``table (n, d)``. The
    gaps ``1 - c‖x‖²`` of all of them, ``(·, 1)``, count as functions of their points. ``c`` is the curvature of the
    ball, 0 or above, ``temperature`` is τ; ``itself``: whether to add the 1.
    """
    rows, k = negatives.shape
    with torch.no_grad():
        alpha, beta, gaps = (gap.to(anchor.dtype) for gap in (anchor_gap, positive_gap, table_gap))
        for_anchor, for_positive = torch.empty_like(anchor), torch.empty_like(positive)
        for_table, losses = torch.zeros_like(table), anchor.new_empty(rows)
        size = max(1, _CHUNK_ELEMENTS // (k * anchor.shape[1]))
        for start in range(0, rows, size):
            at = slice(start, start + size)
            x, gap = anchor[at].unsqueeze(1), alpha[at].unsqueeze(1)
            drawn = negatives[at].reshape(-1)
            n, n_gap = table[drawn].view(-1, k, anchor.shape[1]), gaps[drawn].view(-1, k, 1)
            near = Distances(x, gap, positive[at].unsqueeze(1), beta[at].unsqueeze(1), c)
            far = Distances(x, gap, n, n_gap, c)
            logits = torch.cat((near.value, far.value, torch.zeros_like(near.value)[:, : int(itself)]), dim=1)
            log_share = logits.div_(-temperature).log_softmax(dim=1)
            losses[at] = -log_share[:, 0, 0]
            # The derivative of the mean loss by each distance: negative for the negatives, positive for the positive.
            slope = log_share.exp_().div_(-rows * temperature)
            slope[:, 0] += 1.0 / (rows * temperature)
            from_near, to_near = near.gradients(slope[:, :1])
            from_far, to_far = far.gradients(slope[:, 1 : k + 1])
            for_anchor[at] = from_near + from_far
            for_positive[at] = to_near.squeeze(1)
            for_table.index_put_((drawn,), to_far.view(-1, anchor.shape[1]), accumulate=True)
        loss = losses.mean()
    return known(known(known(loss, anchor, for_anchor), positive, for_positive), table, for_table)
