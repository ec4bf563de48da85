"""Readers of files that hold pairs or texts: one row at a time, whatever the format."""
