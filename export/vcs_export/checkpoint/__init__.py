"""Reading checkpoints: files, settings and tensors, with every assumption checked."""
