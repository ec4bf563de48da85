"""Systems beside each other: score files compared pair by pair, with paired tests (docs/guide/compare.md)."""
