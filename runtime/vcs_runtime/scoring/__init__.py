"""Pairs of texts in, results out: the `Scorer`, its options and its results."""
