"""Texts to vectors: devices, ONNX Runtime sessions, tokenizers, batches, the embedder, its vector cache."""
