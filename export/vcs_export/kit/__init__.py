"""A kit: a folder with everything needed to install vcs-runtime and score without a network."""
