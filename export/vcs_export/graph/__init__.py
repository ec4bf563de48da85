"""ONNX graphs, built node by node from a checkpoint's tensors."""
