"""Networks that the tasks train."""
