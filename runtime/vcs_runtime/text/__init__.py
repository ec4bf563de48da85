"""Plain text work: validation, cleaning, contractions, stop words."""
