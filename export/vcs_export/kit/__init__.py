"""A kit: a folder with all that a machine without a network needs to install vcs-runtime and to score."""
