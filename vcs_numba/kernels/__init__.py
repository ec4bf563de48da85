"""The formulas of the metric: each is written once, as a helper that kernels and Python share."""
