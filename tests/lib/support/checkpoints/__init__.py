"""Tiny random checkpoints in the layouts of their publishers."""
