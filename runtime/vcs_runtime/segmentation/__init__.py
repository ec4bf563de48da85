"""From texts to sentences: by rules, or by a learned segmenter."""
