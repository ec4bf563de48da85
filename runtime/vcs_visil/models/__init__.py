"""Vision-language models: the interface for scoring, the ways to a model, and the probe of a model."""
