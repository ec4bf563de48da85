"""Texts of the experiments: dataset formats, published scores and corruptions made here."""
