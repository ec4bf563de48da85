"""Rewrites of descriptions by a language model: valid variations, distortions and summaries."""
