"""Measures of codes, embeddings, rankings and generated images."""
