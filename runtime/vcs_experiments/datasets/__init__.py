"""Texts of the experiments: dataset formats, published scores and new corruptions."""
