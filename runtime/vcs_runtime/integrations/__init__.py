"""Metrics for torchmetrics and Hugging Face evaluate (docs/guide/integrations.md).

Each module imports the library that it is for, so nothing here imports the modules: a user does, by
name.
"""
