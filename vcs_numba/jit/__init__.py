"""Compilation of plain functions into kernels, their cache, and the threads that run them."""
