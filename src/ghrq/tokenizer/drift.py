"""Measure how new items fit a tokenizer, beside the published ones: :mod:`ghrq.metrics.drift` on files."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ghrq.data.tables import VectorTable
from ghrq.ids.growth import places, policy_of
from ghrq.metrics.drift import Drift, drift
from ghrq.system.progress import Progress
from ghrq.tokenizer import bulk
from ghrq.tokenizer.extend import read_ids

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer


def measure_drift(
    tokenizer: "Tokenizer",
    ids: Path,
    new: VectorTable,
    old: VectorTable | None = None,
    progress: Progress = bulk.SILENT,
) -> Drift:
    """Compare the items of ``new`` with the published ones of the file ``ids``.

    ``old`` is a table of published items to measure their error on; without it, it is the one that ``ghrq fit``
    expected of further items, ``tokenizer.fit_error_``.
    """
    published, stages = read_ids(ids, tokenizer, progress), tokenizer.quantizer_.num_stages
    codes = bulk.encode(tokenizer, new, progress=progress)
    rows = np.full(len(codes), -1, dtype=np.int64)
    if new.has_ids:
        rows = places(published.live.ids(), pa.chunked_array(new.ids(2**20)).combine_chunks())
    known = tokenizer.fit_error_
    lost = bulk.squared_error(tokenizer, new)
    before = None if known is None else known["error"]
    if old is not None:
        before = bulk.squared_error(tokenizer, old)
    variance = known["variance"] if known is not None else bulk.variance(new if old is None else old)
    variance = max(variance, float(np.finfo(np.float64).tiny))
    policy = policy_of(published.table.manifest, published.live.codes, stages)
    sizes = list(tokenizer.vocabulary("none").sizes)
    errors = (None if before is None else before / variance, lost / variance)
    return drift(published.live.codes[:, :stages], codes, rows, sizes, errors, hidden=policy == "reassign")
