"""Texts to vectors: devices, ONNX Runtime sessions, batches, tokenizers, the embedder and its vector cache."""
