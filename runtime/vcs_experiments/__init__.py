"""The experiments of the VCS papers (docs/guide/experiments.md).

This package needs the extra `experiments`; plots need the extra `report`. Nothing that scores
imports it.
"""
