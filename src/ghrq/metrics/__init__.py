"""How good codes, embeddings and rankings are."""
