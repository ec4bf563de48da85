"""Files of pairs in, files of scores out: reading, resuming, summing up."""
