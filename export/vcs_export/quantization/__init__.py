"""Quantisation of weights: int8 by ONNX Runtime's tool, and 8 bits in blocks."""
