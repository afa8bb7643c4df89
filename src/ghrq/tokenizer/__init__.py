"""Embeddings to semantic IDs and back, with scikit-learn's interface."""

from ghrq.system.errors import require

require("sklearn", "tokenizer")

from ghrq.tokenizer.tokenizer import Tokenizer  # noqa: E402

__all__ = ["Tokenizer"]
