"""Scores over HTTP: the server of `vcs-runtime serve` (docs/serve.md)."""
