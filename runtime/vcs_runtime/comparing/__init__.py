"""Comparing systems: score files pair by pair, with paired tests (docs/guide/compare.md)."""
