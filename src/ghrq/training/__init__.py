"""What every experiment shares: recipes, runs, the training loop, checkpoints and resume, progress, trackers.

Kept free of imports, so that the command line can read recipes and list runs without waiting for torch.
"""
