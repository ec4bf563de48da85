"""Made-up checkpoints of the true structure: random numbers, a few hundred kilobytes, no network."""
