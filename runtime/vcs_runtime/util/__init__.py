"""Small helpers that know nothing of scores or models."""
