"""One module for each model family, from its checkpoint to a bundle."""
