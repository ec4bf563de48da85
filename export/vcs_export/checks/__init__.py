"""Checks that run a model: verification, quantisation error, TensorRT engines."""
