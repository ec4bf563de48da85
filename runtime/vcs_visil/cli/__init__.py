"""The commands of ViSIL, `vcs-runtime visil`."""
