"""Where IDs come from: the tokenizer and its settings, the files, dates and versions."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ghrq import __version__
from ghrq.report.words import count, join
from ghrq.system.files import read_json
from ghrq.system.pretrained import CONFIG

if TYPE_CHECKING:
    from ghrq.data.tables import VectorTable
    from ghrq.tokenizer import Tokenizer


def provenance(
    folder: Path, tokenizer: "Tokenizer", ids: "VectorTable", items: "VectorTable | None" = None
) -> dict[str, str]:
    """Names and values to show: of the tokenizer in ``folder``, of the file of IDs, and of the items they are of."""
    settings, sizes = tokenizer.get_params(), tokenizer.quantizer_.sizes
    made_by = read_json(folder / CONFIG, "fit the tokenizer again").get("ghrq", "an unknown version")
    known = "which the file of IDs names" if "tokenizer" in ids.manifest else "which the file of IDs does not name"
    facts = {
        "tokenizer": f"{folder}, written {_time(folder / CONFIG)} by ghrq {made_by}",
        "fingerprint": f"{tokenizer.fingerprint[:12]}, {known}",
        "kind": f"{settings['kind']}, engine {settings['engine']}, seed {settings['seed']}",
        "size": f"{count(len(sizes), 'stage')} of {_codes(sizes)}",
        "fitted on": f"{count(tokenizer.n_samples_seen_, 'row')} of {count(tokenizer.n_features_in_, 'number')}",
        "IDs": f"{ids.path}, {count(ids.rows, 'row')}, written {_time(ids.path)}",
    }
    if items is not None:
        skipped = f", {count(len(items.skipped), 'row')} skipped" if items.skipped else ""
        facts["items"] = f"{items.path}, {count(items.rows, 'row')}{skipped}, written {_time(items.path)}"
    return facts | {"inspected": f"{_shown(datetime.now(UTC))} by ghrq {__version__}"}


def _codes(sizes: tuple[int, ...]) -> str:
    return count(sizes[0], "code") if len(set(sizes)) == 1 else f"{join([f'{size:,}' for size in sizes])} codes"


def _time(path: Path) -> str:
    return _shown(datetime.fromtimestamp(path.stat().st_mtime, UTC))


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
