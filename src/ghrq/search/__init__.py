"""Search on codes: nearest items of a query, from a tokenizer and the IDs it made, without the vectors."""

from ghrq.system.errors import require

require("sklearn", "tokenizer")
require("pyarrow", "tokenizer")

from ghrq.search.index import CodeIndex, Found  # noqa: E402

__all__ = ["CodeIndex", "Found"]
