"""Smaller numbers for weights: int8, 4 and 8 bits in blocks, FP8."""
