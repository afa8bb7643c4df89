"""Layers and networks, independent of tasks."""
