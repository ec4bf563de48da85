"""Metrics for torchmetrics and Hugging Face evaluate (docs/guide/integrations.md).

Each module imports its library, so this package imports none of them: a user imports one by name.
"""
