"""The texts of the experiments: dataset formats, published scores, corruptions that are made here."""
