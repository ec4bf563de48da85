"""The experiments of the VCS papers, and comparisons of score files (docs/guide/experiments.md).

This package needs the extra `experiments`; plots need the extra `report`. Nothing that scores imports it.
"""
