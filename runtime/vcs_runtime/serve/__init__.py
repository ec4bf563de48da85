"""Scores over HTTP: the server of `vcs-runtime serve` (docs/guide/serve.md)."""
