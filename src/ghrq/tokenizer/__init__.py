"""From a table of embeddings to semantic IDs and back, in scikit-learn's manner."""

from ghrq.system.errors import require

require("sklearn", "tokenizer")

from ghrq.tokenizer.tokenizer import Tokenizer  # noqa: E402

__all__ = ["Tokenizer"]
