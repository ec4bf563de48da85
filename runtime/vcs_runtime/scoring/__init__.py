"""Pairs of texts in, results out: the `Scorer` and all that a score consists of."""
