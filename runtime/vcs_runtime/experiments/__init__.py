"""The experiments of the VCS papers, and comparisons of score files (docs/experiments.md).

Needs `vcs-runtime[experiments]`; plots need `vcs-runtime[report]`. Nothing that scores imports this package.
"""
