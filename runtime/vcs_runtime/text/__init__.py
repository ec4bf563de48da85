"""Plain text processing: validation, cleaning, contractions, stop words."""
