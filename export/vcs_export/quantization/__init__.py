"""Quantisation of weights: int8, 8 and 4 bits in blocks, fp8."""
