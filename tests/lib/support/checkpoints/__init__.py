"""Tiny random checkpoints in the layouts of their publishers: a few hundred kilobytes, no
network."""
