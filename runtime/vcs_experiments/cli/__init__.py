"""The commands `vcs-runtime experiment`."""
