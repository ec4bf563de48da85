"""Scores from NVIDIA Triton (docs/guide/triton.md).

`repository` writes the models, and `backend` serves them.
"""
