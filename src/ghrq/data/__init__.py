"""Readers of real data, each in the format of its publisher, and what is derived from them without a model."""
