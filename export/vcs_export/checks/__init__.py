"""Whatever runs a model that was built: agreement, quantisation error, TensorRT engines."""
