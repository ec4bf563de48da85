"""Vision-language models: the interface for scoring, ways to a model, and its probe."""
