"""From chunks to words: content words with their classes and static vectors, as arrays."""
