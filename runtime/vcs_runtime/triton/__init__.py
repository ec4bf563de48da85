"""Scores from NVIDIA Triton (docs/guide/triton.md): `repository` writes the models, `backend` serves them."""
