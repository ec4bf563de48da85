"""Texts to vectors: devices, ONNX Runtime sessions, tokenizers, batches, embedder and cache."""
