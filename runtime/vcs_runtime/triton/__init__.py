"""Scores from NVIDIA Triton (docs/triton.md): `repository` writes what it loads, `backend` runs in it."""
