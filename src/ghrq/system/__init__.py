"""Plumbing without mathematics: errors, atomic files, progress, processes, signals, checks."""
