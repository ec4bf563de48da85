"""Scores from NVIDIA Triton (docs/triton.md): `repository` writes a model repository, `backend` serves it."""
