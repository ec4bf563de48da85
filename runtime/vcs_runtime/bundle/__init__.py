"""The bundle: the contract between the writer `vcs_export` and this runtime, the reader."""
