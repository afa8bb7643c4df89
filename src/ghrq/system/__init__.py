"""Plumbing without any mathematics: errors, atomic files, progress, processes, signals, checks."""
